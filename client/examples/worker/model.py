"""The transformer's forward pass in fp32: llama, qwen2 and gemma3 in one function.

Weights are [out][in] as GGUF stores them; activations are [tokens][width].  Attention is given by
the caller (see attention.py), so full attention, top-k retrieval and every baseline share the rest.
"""

from functools import partial

import numpy as np

from .attention import FullAttention, KvCache
from .config import Config
from .gguf_file import open_model
from .parallel import by_rows
from .tokenizer import Tokenizer

BLOCK_TOKENS = 256  # tokens of a cairn block, and of a prefill chunk


def load_model(model: str = "smollm2") -> "Model":
    """A model by its name (`smollm2`, `qwen2`, `gemma3`: fetched if need be) or by a GGUF path."""
    return Model(*open_model(model))


class Model:
    """Weights, config and tokenizer of one model; holds no state of any sequence."""

    def __init__(self, config: Config, tensors: dict, tokenizer: Tokenizer):
        self.config = config
        self.tokenizer = tokenizer
        self._weights = tensors
        self._layers = [_layer_weights(tensors, i) for i in range(config.layers)]
        self._embedding = tensors["token_embd.weight"]
        self._head = tensors.get("output.weight", self._embedding)

    def prefill(self, tokens, cache: KvCache, on_block=None):
        """Runs `tokens` after what `cache` holds; returns the last token's logits [vocab].

        `on_block(index, k, v)` is called for each block of BLOCK_TOKENS that becomes full, in
        order, with views [layer][kv_head][BLOCK_TOKENS][dim]: copy or send them within the call.
        """
        assert len(tokens) > 0
        attention, logits, done = FullAttention(cache), None, 0
        cache.reserve(cache.length + len(tokens) + BLOCK_TOKENS)
        while done < len(tokens):
            room = BLOCK_TOKENS - cache.length % BLOCK_TOKENS
            chunk = tokens[done:done + room]
            done += len(chunk)
            logits = self.forward(chunk, cache.length, attention.attend_batch,
                                  "last" if done == len(tokens) else "none")
            if on_block and cache.length % BLOCK_TOKENS == 0:
                on_block(cache.length // BLOCK_TOKENS - 1,
                         *cache.rows(cache.length - BLOCK_TOKENS, cache.length))
        return logits

    def step(self, token: int, position: int, attention) -> np.ndarray:
        """One decode step: `token` is the one at `position`; returns logits [vocab]."""
        def attend(layer, q, k, v):
            return attention.attend(layer, q[0], k[0], v[0])[None]
        return self.forward([token], position, attend, "last")

    def forward(self, tokens, position: int, attend_batch, logits: str):
        """Runs tokens at position, position + 1, ...; `logits` is "none", "last" or "all"."""
        config = self.config
        turns = {local: self._rotation(position, len(tokens), local)
                 for local in {config.is_local(i) for i in range(config.layers)}}
        x = self._embedding[np.asarray(tokens)] * np.float32(config.embedding_scale)
        for i, w in enumerate(self._layers):
            q, k, v = by_rows(partial(self._before_attention, w), x, *turns[config.is_local(i)])
            out = attend_batch(i, q, k, v)
            x, = by_rows(partial(self._after_attention, w), x, out)
        if logits == "none":
            return None
        x = self._norm(x if logits == "all" else x[-1:], self._weights["output_norm.weight"])
        result, = by_rows(lambda rows: (rows @ self._head.T,), x)
        return result if logits == "all" else result[0]

    def generate(self, tokens, cache: KvCache, count_max: int, attention=None):
        """Greedy decoding: yields ids until a stop token or `count_max` of them."""
        logits = self.prefill(tokens, cache)
        attention = attention or FullAttention(cache)
        position = cache.length
        for i in range(count_max):
            token = int(logits.argmax())
            if token in self.tokenizer.stop_ids:
                return
            yield token
            if i + 1 < count_max:
                logits = self.step(token, position, attention)
                position += 1

    def score_answer(self, answer, first_logits, position: int, attention) -> np.ndarray:
        """Teacher forcing: logits [len(answer)][vocab], row i being what predicts answer[i].

        `first_logits` came from the prompt's last token; `position` is that of answer[0].  One
        token a step, or one batch if the attention has `attend_batch`.
        """
        rest = list(answer[:-1])
        if not rest:
            return np.asarray(first_logits)[None]
        if hasattr(attention, "attend_batch"):
            later = self.forward(rest, position, attention.attend_batch, "all")
        else:
            later = [self.step(t, position + i, attention) for i, t in enumerate(rest)]
        return np.vstack([np.asarray(first_logits)[None], later])

    def _before_attention(self, w, x, cos, sin):
        """q, k, v [tokens][heads or kv_heads][dim], rotated."""
        h = self._norm(x, w["attn_norm"])
        q, k, v = (self._project(h, w, name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = (a.reshape(len(x), -1, self.config.head_dim) for a in (q, k, v))
        if "attn_q_norm" in w:
            q, k = self._norm(q, w["attn_q_norm"]), self._norm(k, w["attn_k_norm"])
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin), v

    def _after_attention(self, w, x, out):
        """The residual stream after this layer."""
        h = out.reshape(len(x), -1) @ w["attn_output"].T
        x = x + (self._norm(h, w["post_attention_norm"]) if "post_attention_norm" in w else h)
        h = self._norm(x, w["ffn_norm"])
        h = self._activate(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)
        h = h @ w["ffn_down"].T
        return (x + (self._norm(h, w["post_ffw_norm"]) if "post_ffw_norm" in w else h),)

    def _project(self, x, w, name):
        out = x @ w[name].T
        return out + w[name + ".bias"] if name + ".bias" in w else out

    def _norm(self, x, weight):
        power = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
        return x * (weight / np.sqrt(power + np.float32(self.config.norm_epsilon)))

    def _activate(self, x):
        if self.config.arch == "gemma3":  # GELU, the tanh approximation
            inner = np.float32(0.7978845608) * x * (1 + np.float32(0.044715) * x * x)
            return np.float32(0.5) * x * (1 + np.tanh(inner))
        return x / (1 + np.exp(-x))       # SiLU

    def _rotation(self, position, count, local):
        """cos and sin [tokens][1][dim / 2]."""
        config = self.config
        base = config.rope_base_local if local else config.rope_base
        speed = base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
        angle = np.arange(position, position + count)[:, None, None] * speed
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def _rotate(self, x, cos, sin):
        half = x.shape[-1] // 2
        out = np.empty_like(x)
        first, second = (slice(0, half), slice(half, None)) if self.config.rope_halves else \
            (slice(0, None, 2), slice(1, None, 2))
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out


def _layer_weights(tensors: dict, layer: int) -> dict:
    """Names without `blk.N.` and `.weight`: attn_q, attn_q.bias, ffn_norm, ..."""
    prefix = f"blk.{layer}."
    return {name[len(prefix):].removesuffix(".weight"): array
            for name, array in tensors.items() if name.startswith(prefix)}
