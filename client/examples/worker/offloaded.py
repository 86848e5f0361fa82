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

STEPS_MAX = 16  # queries of so many steps go into one request


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
    """Attention over rows held here, rows fetched from cairn, and the rest.

    The worker holds the first `sinks` and the last `recent` tokens of the prompt and all that it
    generates.  Of the others, cairn returns for every step and KV head the share that matters most
    to that step's queries.  With `rest`, it also returns one estimated partial for all that was not
    fetched, merged here like one more row.
    """

    def __init__(self, model: Model, context, cache: KvCache, share: float, *, sinks: int = 4,
                 recent: int = 64, rest: bool = False, landmark: str = "token", chunk_tokens: int = 8):
        self.config, self.context = model.config, context
        self.prompt = cache.length
        self.sinks, self.recent = min(sinks, self.prompt), recent
        self.options = {"share": share, "scale": model.config.attention_scale, "rows": True,
                        "rest": rest, "landmark": landmark, "chunk_tokens": chunk_tokens}
        self.held = [self._hold(cache, layer) for layer in range(self.config.layers)]
        self.bytes_moved = self.rows_fetched = self.rows_seen = 0

    def _hold(self, cache, layer):
        """(positions, k, v) of one layer's rows that stay with the worker."""
        recent = self.config.window if self.config.is_local(layer) else self.recent
        first = max(self.sinks, self.prompt - recent)
        take = np.array([*range(self.sinks), *range(first, self.prompt)])
        return take, cache.k[layer][:, take], cache.v[layer][:, take]

    def attend(self, layer, q, k_new, v_new):
        """One step: q [heads][dim], k_new and v_new [kv_heads][dim] -> [heads][dim]."""
        return self.attend_batch(layer, q[None], k_new[None], v_new[None])[0]

    def attend_batch(self, layer, q, k_new, v_new):
        """Several steps at once, as teacher forcing or a draft to be checked has them: a leading axis."""
        positions, k, v = self.held[layer]
        first = max(positions[-1] + 1, self.prompt)
        new = np.arange(first, first + len(q))
        positions = np.concatenate([positions, new])
        k = np.concatenate([k, k_new.swapaxes(0, 1)], axis=1)
        v = np.concatenate([v, v_new.swapaxes(0, 1)], axis=1)
        self.held[layer] = positions, k, v
        out = np.empty_like(q)
        for start in range(0, len(q), STEPS_MAX):
            steps = slice(start, min(start + STEPS_MAX, len(q)))
            out[steps] = self._attend_steps(layer, q[steps], new[steps], positions, k, v)
        return out

    def _attend_steps(self, layer, q, now, positions, k, v):
        config, local = self.config, self.config.is_local(layer)
        hidden = positions > now[:, None]
        found = None
        if local:  # all that such a layer sees is held here
            hidden |= positions <= now[:, None] - config.window
        else:
            middle = self.sinks, max(self.sinks, self.prompt - self.recent)
            found = self.context.retrieve(layer, q, exclude=[(0, middle[0]), (middle[1], self.prompt)],
                                          held_lse=self._held_lse(q, k, hidden), **self.options)
            self.found = found
            self.bytes_moved += found.bytes
            self.rows_fetched += int(found.counts.sum())
            self.rows_seen += (middle[1] - middle[0]) * config.kv_heads * len(q)
        out = np.empty_like(q)
        for head in range(config.kv_heads):
            group = slice(head * config.group, (head + 1) * config.group)
            out[:, group] = self._merge(q[:, group], k[head], v[head], hidden, found, head, group)
        return out

    def _held_lse(self, q, k, hidden):
        """Log-sum-exp of the scores of what each step sees here: [steps][heads]."""
        config = self.config
        grouped = q.reshape(len(q), config.kv_heads, config.group, -1) * np.float32(config.attention_scale)
        scores = np.where(hidden[:, None, None], -np.inf, grouped @ k.swapaxes(1, 2))
        top = scores.max(3, keepdims=True)
        return (np.log(np.exp(scores - top).sum(3)) + top[..., 0]).reshape(q.shape[:2])

    def _merge(self, q, k, v, hidden, found, head, group):
        """Softmax over held rows, fetched rows and the rest: q [steps][group][dim] -> the same."""
        q = q * np.float32(self.config.attention_scale)
        held = np.where(hidden[:, None], -np.inf, q @ k.T)
        top = held.max(2, keepdims=True)
        if found is not None:
            rows = q @ found.k_rows[:, head].swapaxes(1, 2)
            beyond = np.arange(rows.shape[2]) >= found.counts[:, head, None]
            rows = np.where(beyond[:, None], -np.inf, rows)
            top = np.maximum(top, rows.max(2, keepdims=True, initial=-np.inf))
            if found.rest_lse is not None:
                top = np.maximum(top, found.rest_lse[:, group, None])
        held = np.exp(held - top)
        out, total = held @ v, held.sum(2, keepdims=True)
        if found is not None:
            rows = np.exp(rows - top)
            out += rows @ found.v_rows[:, head]
            total += rows.sum(2, keepdims=True)
            if found.rest_lse is not None:
                weight = np.exp(found.rest_lse[:, group, None] - top)
                out += weight * found.rest_out[:, group]
                total += weight
        return out / total
