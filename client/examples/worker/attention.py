"""Where keys and values live, and attention over all of them.

An attention is any object with `attend(layer, q, k_new, v_new) -> out`.  It owns the KV: it takes
the new token's rows, keeps them, and answers for the queries.  Shapes of one decode step:

    q      [heads][dim]     rotated; NOT multiplied by config.attention_scale
    k_new  [kv_heads][dim]  rotated;  v_new the same
    out    [heads][dim]

An attention that also has `attend_batch`, with a leading axis of tokens on all four, can be used
for prefill and for batched teacher forcing.
"""

import numpy as np

from .config import Config
from .parallel import run_all

QUERY_TILE = 64  # queries a head in one matmul: the scores should stay near the caches


class KvCache:
    """K and V of a sequence, as [layer][kv_head][token][dim], fp32; grows by itself.

    Keys are stored after rotation, so a block is good for its own position only: which is what a
    chain of blocks, each named by its parent, guarantees.
    """

    def __init__(self, config: Config, capacity: int = 1024):
        self.config = config
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.k = np.zeros(shape, np.float32)
        self.v = np.zeros(shape, np.float32)
        self._lengths = [0] * config.layers

    @property
    def length(self) -> int:
        """Tokens that all layers hold."""
        return min(self._lengths)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> int:
        """Adds rows [kv_heads][tokens][dim] to one layer; returns that layer's new length."""
        start, count = self._lengths[layer], k.shape[1]
        self.reserve(start + count)
        self.k[layer, :, start:start + count] = k
        self.v[layer, :, start:start + count] = v
        self._lengths[layer] = start + count
        return start + count

    def reserve(self, tokens: int) -> None:
        """Makes room for `tokens` tokens in all."""
        capacity = self.k.shape[2]
        if tokens <= capacity:
            return
        grown = max(tokens, capacity * 3 // 2)
        for name in ("k", "v"):
            old = getattr(self, name)
            new = np.zeros(old.shape[:2] + (grown, old.shape[3]), np.float32)
            new[:, :, :capacity] = old
            setattr(self, name, new)

    def truncate(self, tokens: int) -> None:
        """Forgets all but the first `tokens` tokens."""
        assert 0 <= tokens <= self.length
        self._lengths = [tokens] * self.config.layers

    def rows(self, start: int, stop: int):
        """Views (k, v) [layer][kv_head][stop - start][dim]; valid until the cache grows."""
        assert 0 <= start <= stop <= self.length
        return self.k[:, :, start:stop], self.v[:, :, start:stop]

    def load_kv(self, k: np.ndarray, v: np.ndarray) -> None:
        """Adds ready rows [layer][kv_head][tokens][dim] (fp16 or fp32) to all layers: a block."""
        for layer in range(self.config.layers):
            self.append(layer, k[layer], v[layer])

    def copy(self) -> "KvCache":
        """An independent cache with the same tokens."""
        other = KvCache(self.config, max(1, self.length))
        other.load_kv(*self.rows(0, self.length))
        return other


class FullAttention:
    """Exact attention over all tokens of a KvCache (the last `window` of them in local layers)."""

    def __init__(self, cache: KvCache):
        self.cache = cache

    def attend(self, layer, q, k_new, v_new):
        return self.attend_batch(layer, q[None], k_new[None], v_new[None])[0]

    def attend_batch(self, layer, q, k_new, v_new):
        """[tokens][heads][dim] and [tokens][kv_heads][dim] -> [tokens][heads][dim]; causal."""
        config, count = self.cache.config, len(q)
        total = self.cache.append(layer, k_new.swapaxes(0, 1), v_new.swapaxes(0, 1))
        window = config.window if config.is_local(layer) else total
        keys, values = self.cache.k[layer, :, :total], self.cache.v[layer, :, :total]
        q = (q * np.float32(config.attention_scale)).swapaxes(0, 1)  # [heads][tokens][dim]
        out = np.empty((config.heads, count, config.head_dim), np.float32)

        def work(start, head):
            stop = min(start + QUERY_TILE, count)
            oldest, newest = total - count + start, total - count + stop - 1  # queries' positions
            first = max(0, oldest - window + 1)
            hidden = _hidden_keys(oldest, newest, first, window)
            heads = slice(head * config.group, (head + 1) * config.group)
            out[heads, start:stop] = _softmax_attention(
                q[heads, start:stop], keys[head, first:newest + 1],
                values[head, first:newest + 1], hidden)

        tasks = [(start, head) for start in range(0, count, QUERY_TILE)
                 for head in range(config.kv_heads)]
        if count > 1:
            run_all(work, tasks)
        else:
            for task in tasks:
                work(*task)
        return out.swapaxes(0, 1)


def _hidden_keys(oldest, newest, first, window):
    """Ranges of keys, counted from `first`, that some queries must not see, each with a mask.

    Queries are at oldest..newest.  The newest keys are too late for all but the last query, and
    in a local layer the oldest keys too early for all but the first.
    """
    queries = np.arange(oldest, newest + 1)[:, None]
    late, early = slice(oldest + 1, newest + 1), slice(first, newest - window + 1)
    ranges = [(late, np.arange(late.start, late.stop) > queries)]
    if early.stop > early.start:
        ranges.append((early, np.arange(early.start, early.stop) <= queries - window))
    return [(slice(r.start - first, r.stop - first), mask) for r, mask in ranges if mask.size]


def _softmax_attention(q, keys, values, hidden):
    """q [group][tokens][dim] (scaled), keys and values [n][dim] -> [group][tokens][dim]."""
    group, count, dim = q.shape
    scores = q.reshape(group * count, dim) @ keys.T
    for columns, mask in hidden:
        view = scores.reshape(group, count, -1)[:, :, columns]
        view[np.broadcast_to(mask, view.shape)] = -np.inf
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    total = scores.sum(1, keepdims=True)
    return ((scores @ values) / total).reshape(group, count, dim)
