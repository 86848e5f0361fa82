"""A cache that lives in cairn: prefixes shared between workers, and attention over retrieved rows.

This is the part to copy.  It knows cairn by its public Python API alone.

`space_config`    what cairn must know of a model's KV cache
`offload_prefill` prefill that puts each block as soon as it is full
`load_prefix`     the longest prefix that cairn has, into a KvCache
`RetrievedAttention` decode over the rows that matter, fetched every step
"""

import numpy as np

import cairn

from .attention import KvCache
from .model import BLOCK_TOKENS, Model


def space_config(model: Model, dtype: str = "f32", revision: str = "", **codes) -> cairn.SpaceConfig:
    """The description of this model's KV cache; `codes` are landmark_bits, outliers, value_bits ..."""
    config = model.config
    return cairn.SpaceConfig(
        model=config.name, revision=revision, layers=config.layers, kv_heads=config.kv_heads,
        k_dim=config.head_dim, v_dim=config.head_dim, dtype=dtype, block_tokens=BLOCK_TOKENS, **codes)


def offload_prefill(model: Model, space, tokens, cache: KvCache, on_progress=None):
    """Prefills `tokens` and puts each full block of them while it goes; returns the last logits.

    The puts are durable when this returns.  A block that cairn already has is left as it is.
    """
    keys = space.chain_keys(tokens)

    def on_block(index, k, v):
        if index < len(keys):
            parent = keys[index - 1] if index else None
            space.put([keys[index]], [space.pack_block(k, v)], parent=parent, ack="disk")
        if on_progress:
            on_progress(cache.length, len(tokens))

    return model.prefill(tokens, cache, on_block)


def load_prefix(space, tokens, cache: KvCache) -> int:
    """Loads the longest stored prefix of `tokens` into an empty cache; returns its tokens.

    One token at least is left to compute, since its logits are what decoding starts from.
    """
    keys = space.chain_keys(tokens[:len(tokens) - 1])
    with space.lookup(keys) as lease:
        if lease.found == 0:
            return 0
        cache.reserve(lease.found * BLOCK_TOKENS)
        for block in space.get(keys[:lease.found], lease=lease):
            cache.load_kv(*space.unpack_block(block))
    return cache.length


class RetrievedAttention:
    """One decode step's attention: rows held here, rows fetched from cairn, and the rest.

    The worker holds the first `sinks` and the last `recent` tokens of the prompt and all that it
    generates.  Of the others, cairn returns the share that matters most to each step's queries.
    With `rest`, it also returns one estimated partial for all that was not fetched.
    """

    def __init__(self, model: Model, context, cache: KvCache, share: float, *, sinks: int = 4,
                 recent: int = 64, rest: bool = False, landmark: str = "token", chunk_tokens: int = 8):
        self.config, self.context = model.config, context
        self.share, self.rest = share, rest
        self.landmark, self.chunk_tokens = landmark, chunk_tokens
        self.prompt = cache.length
        self.sinks, self.recent = min(sinks, self.prompt), recent
        self.held = [self._hold(cache, layer) for layer in range(self.config.layers)]
        self.bytes_moved = self.rows_fetched = self.rows_seen = 0

    def _hold(self, cache, layer):
        """(first position, k, v): the rows of one layer that stay with the worker."""
        recent = self.config.window if self.config.is_local(layer) else self.recent
        first = max(self.sinks, self.prompt - recent)
        take = [*range(self.sinks), *range(first, self.prompt)]
        return first, cache.k[layer][:, take], cache.v[layer][:, take]

    def attend(self, layer, q, k_new, v_new):
        """q [heads][dim], k_new and v_new [kv_heads][dim] -> [heads][dim]."""
        config = self.config
        first, k, v = self.held[layer]
        k = np.concatenate([k, k_new[:, None]], axis=1)
        v = np.concatenate([v, v_new[:, None]], axis=1)
        self.held[layer] = first, k, v
        if config.is_local(layer):  # all that such a layer sees is held here
            k, v = k[:, -config.window:], v[:, -config.window:]
            return np.concatenate([self._merge(q, head, k[head], v[head])
                                   for head in range(config.kv_heads)])
        found = self.context.retrieve(
            layer, q, share=self.share, scale=config.attention_scale, rows=True, rest=self.rest,
            exclude=[(0, self.sinks), (first, self.prompt)], landmark=self.landmark,
            chunk_tokens=self.chunk_tokens)
        self.bytes_moved += found.bytes
        out = []
        for head in range(config.kv_heads):
            n = int(found.counts[head])
            self.rows_fetched += n
            self.rows_seen += first - self.sinks
            out.append(self._merge(q, head, np.concatenate([k[head], found.k_rows[head, :n]]),
                                   np.concatenate([v[head], found.v_rows[head, :n]]), found))
        return np.concatenate(out)

    def _merge(self, q, head, k, v, found=None):
        """Softmax over the rows at hand and, as one more row, the rest: -> [group][dim]."""
        heads = slice(head * self.config.group, (head + 1) * self.config.group)
        scores = (q[heads] * np.float32(self.config.attention_scale)) @ k.T
        top = scores.max(1, keepdims=True)
        if found is not None and self.rest:
            rest_lse, rest_out = found.rest_lse[heads, None], found.rest_out[heads]
            top = np.maximum(top, rest_lse)
            weight = np.exp(rest_lse - top)
        else:
            weight, rest_out = np.zeros_like(top), np.zeros_like(q[heads])
        scores = np.exp(scores - top)
        return (scores @ v + weight * rest_out) / (scores.sum(1, keepdims=True) + weight)
