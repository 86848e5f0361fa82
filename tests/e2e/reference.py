"""Attention methods in pure NumPy, to compare what is served with what others would serve.

Each is an attention for worker.Model.step: built on a cache that holds a whole prompt, it answers
decode steps by a part of the prompt's rows, the rows it holds itself (the first `sinks`, the last
`recent`, all generated ones) and, in layers with a window, all rows in the window.

    ExactTopK    the tokens of largest true probability: the best that selection alone can do
    ChunkMeans   chunks of 8 by the mean of their keys; all tokens of a chosen chunk (as ShadowKV)
    Quest        chunks of 16 by the bound that their keys' min and max give (arXiv 2406.10774)
    Yakv         tokens by 2-bit keys, neither centred nor re-ranked; rows of 4 bits (2604.08426)
    NaclDrop     a fifth of the tokens chosen once by the question's attention; the rest are gone
                 (arXiv 2408.03675)

A group of query heads shares a KV head and so a selection: a token's (or chunk's) worth is the
maximum over the group of each head's softmax probability.
"""

import functools

import numpy as np

from worker import FullAttention, KvCache


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest scores, in order of position; of equals the lower is taken."""
    if k >= len(scores):
        return np.arange(len(scores))
    if k <= 0:
        return np.arange(0)
    threshold = -np.partition(-scores, k - 1)[k - 1]
    above = np.flatnonzero(scores > threshold)
    equal = np.flatnonzero(scores == threshold)[:k - len(above)]
    return np.sort(np.concatenate([above, equal]))


class Method:
    """What all methods share; a subclass chooses positions, and may change the rows."""

    def __init__(self, cache: KvCache, share: float = 0.03125, sinks: int = 4, recent: int = 64,
                 measure: bool = True):
        self.config, self.prompt_tokens = cache.config, cache.length
        self.keys, self.values = cache.rows(0, cache.length)
        self.sinks = min(sinks, self.prompt_tokens)
        self.recent = min(recent, self.prompt_tokens - self.sinks)
        self.budget = max(1, round(share * self.prompt_tokens))
        self.measure = measure
        self.tail = KvCache(cache.config, 64)  # generated tokens
        self._generated = 0                    # of them, in the layer at work
        self.sums = {"calls": 0, "touched": 0, "recall": 0.0, "mass_lost": 0.0}
        self._window = FullAttention(self._windowed_cache(cache))

    @property
    def candidates(self) -> slice:
        """Positions that the method may choose: those that the worker does not hold."""
        return slice(self.sinks, self.prompt_tokens - self.recent)

    def row_bytes(self) -> int:
        """Bytes of one token's K and V rows of one head when fetched."""
        return 2 * self.config.head_dim * 4

    def choose(self, layer: int, q: np.ndarray) -> list:
        """Positions for each KV head; q is [kv_heads][group][dim], scaled."""
        raise NotImplementedError

    def rows(self, layer: int, head: int, positions: np.ndarray):
        """K and V rows as fetched."""
        return self.keys[layer, head, positions], self.values[layer, head, positions]

    def attend(self, layer, q, k_new, v_new):
        """See worker.attention."""
        if self.config.is_local(layer):
            return self._window.attend(layer, q, k_new, v_new)
        config = self.config
        self._generated = self.tail.append(layer, k_new[:, None], v_new[:, None])
        q = (q * np.float32(config.attention_scale)).reshape(config.kv_heads, config.group, -1)
        chosen = self.choose(layer, q)
        out = np.empty_like(q)
        for head, positions in enumerate(chosen):
            k, v = self._present(layer, head, positions)
            out[head] = softmax(q[head] @ k.T) @ v
        if self.measure:
            self._measure(layer, q, chosen)
        return out.reshape(config.heads, -1)

    def report(self) -> dict:
        """Means over layers (those without a window), KV heads and steps."""
        calls = max(1, self.sums["calls"])
        touched = self.sums["touched"] / calls
        return {"tokens_touched": touched, "tokens_touched_share": touched / self.prompt_tokens,
                "bytes_moved": self.sums["touched"] * self.row_bytes(),
                "recall": self.sums["recall"] / calls,
                "mass_lost": self.sums["mass_lost"] / calls}

    def worth(self, layer, q, scores, tokens_each: int = 1) -> np.ndarray:
        """Scores [kv_heads][group][n] of candidates -> maximum over the group of probabilities.

        A probability is among all tokens: the held ones count by their true scores, and each
        candidate for `tokens_each` tokens.
        """
        held = np.stack([self._held(layer, head)[0] for head in range(self.config.kv_heads)])
        held_scores = q @ held.swapaxes(1, 2)
        most = np.maximum(scores.max(-1), held_scores.max(-1))[..., None]
        total = (np.exp(scores - most).sum(-1) * tokens_each + np.exp(held_scores - most).sum(-1))
        return (np.exp(scores - most) / total[..., None]).max(1)

    def _held(self, layer, head):
        """K and V of the tokens that the worker has: sinks, recent, generated."""
        late = slice(self.prompt_tokens - self.recent, self.prompt_tokens)
        return tuple(np.concatenate([rows[layer, head, :self.sinks], rows[layer, head, late],
                                     tail[layer, head, :self._generated]])
                     for rows, tail in ((self.keys, self.tail.k), (self.values, self.tail.v)))

    def _present(self, layer, head, positions):
        """K and V that the step attends to: what is held and what was fetched."""
        return tuple(np.concatenate(pair) for pair in zip(self._held(layer, head),
                                                          self.rows(layer, head, positions)))

    def _measure(self, layer, q, chosen):
        """Compares with the true probabilities of all tokens."""
        span = self.candidates
        tail = self.tail.k[layer, :, :self._generated]
        scores = np.concatenate([q @ self.keys[layer].swapaxes(1, 2), q @ tail.swapaxes(1, 2)], 2)
        probability = softmax(scores)[:, :, span]  # of candidates, among all tokens
        for head, positions in enumerate(chosen):
            mine = probability[head][:, positions - span.start]
            lost = probability[head].sum() - mine.sum()
            best = top_k(probability[head].max(0), len(positions)) + span.start
            self.sums["calls"] += 1
            self.sums["touched"] += len(positions)
            self.sums["mass_lost"] += float(lost) / self.config.group
            self.sums["recall"] += len(np.intersect1d(best, positions)) / max(1, len(best))

    def _windowed_cache(self, cache):
        """A cache of its own for layers with a window; the same rows at the same positions."""
        return cache.copy() if self.config.window else KvCache(self.config, 1)


class ExactTopK(Method):
    def choose(self, layer, q):
        scores = q @ self.keys[layer, :, self.candidates].swapaxes(1, 2)
        worth = self.worth(layer, q, scores)
        return [top_k(row, self.budget) + self.candidates.start for row in worth]


class Chunked(Method):
    """Chooses whole chunks of candidates by a score of each."""

    def __init__(self, cache, chunk: int, **options):
        super().__init__(cache, **options)
        self.chunk = chunk
        rows = self.keys[:, :, self.candidates]
        self.chunks = rows.shape[2] // chunk  # tokens that fill no chunk are held
        rows = rows[:, :, :self.chunks * chunk]
        self.recent = self.prompt_tokens - self.sinks - self.chunks * chunk
        self.summarize(rows.reshape(rows.shape[:2] + (self.chunks, chunk, -1)))

    def summarize(self, rows):
        """rows [layer][kv_head][chunk][token][dim]"""
        raise NotImplementedError

    def score(self, layer, q):
        """[kv_heads][group][chunks]"""
        raise NotImplementedError

    def choose(self, layer, q):
        worth = self.worth(layer, q, self.score(layer, q), self.chunk)
        count = max(1, self.budget // self.chunk)
        within = np.arange(self.chunk)
        return [(top_k(row, count)[:, None] * self.chunk + within).ravel() + self.sinks
                for row in worth]


class ChunkMeans(Chunked):
    def __init__(self, cache, chunk: int = 8, **options):
        super().__init__(cache, chunk, **options)

    def summarize(self, rows):
        self.means = rows.mean(3)

    def score(self, layer, q):
        return q @ self.means[layer].swapaxes(1, 2)


class Quest(Chunked):
    def __init__(self, cache, chunk: int = 16, **options):
        super().__init__(cache, chunk, **options)

    def summarize(self, rows):
        self.low, self.high = rows.min(3), rows.max(3)

    def score(self, layer, q):
        """The most that q.k can be in the chunk: each element takes its better end."""
        return (np.maximum(q, 0) @ self.high[layer].swapaxes(1, 2)
                + np.minimum(q, 0) @ self.low[layer].swapaxes(1, 2))


@functools.lru_cache(None)
def gaussian_grid(points: int, dims: int) -> np.ndarray:
    """[points][dims] of least mean square error for a Gaussian, by Lloyd's iteration."""
    if dims == 1:
        sample = np.linspace(-5, 5, 20001)[:, None]
        weight = np.exp(-sample[:, 0] ** 2 / 2)
        grid = np.linspace(-2.5, 2.5, points)[:, None]
    else:
        rng = np.random.default_rng(7)
        sample, weight = rng.standard_normal((40000, dims)), np.ones(40000)
        grid = rng.standard_normal((points, dims))
    for _ in range(300 if dims == 1 else 100):
        near = nearest(sample, grid)
        total = np.maximum(np.bincount(near, weight, points), 1e-12)
        grid = np.stack([np.bincount(near, weight * sample[:, i], points) / total
                         for i in range(dims)], 1)
    return grid.astype(np.float32)


def nearest(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """For each x [...][dims] the index of the nearest grid point."""
    return ((grid ** 2).sum(1) - 2 * (x @ grid.T)).argmin(-1)


def rotation(dim: int, seed: int = 1) -> np.ndarray:
    """A signed Hadamard matrix [dim][dim], orthonormal; dim is a power of two."""
    assert dim & (dim - 1) == 0
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < dim:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    signs = np.random.default_rng(seed).choice(np.float32([-1, 1]), dim)
    return matrix * signs / np.float32(np.sqrt(dim))


def quantized(rows: np.ndarray, bits: int) -> np.ndarray:
    """Rows [...][dim] after coding: rotated, scaled by token, nearest of a Gaussian's grid."""
    grid = gaussian_grid(16, 2) if bits == 2 else gaussian_grid(1 << bits, 1)
    turn = rotation(rows.shape[-1])
    x = rows @ turn.T
    scale = np.sqrt((x * x).mean(-1, keepdims=True)) + np.float32(1e-12)
    pieces = (x / scale).reshape(x.shape[:-1] + (-1, grid.shape[1]))
    return (grid[nearest(pieces, grid)].reshape(x.shape) * scale) @ turn


class Yakv(Method):
    def __init__(self, cache, **options):
        super().__init__(cache, **options)
        self.marks = [quantized(rows, 2) for rows in self.keys]
        self.key_rows = [quantized(rows, 4) for rows in self.keys]
        self.value_rows = [quantized(rows, 4) for rows in self.values]

    def row_bytes(self):
        return 2 * (self.config.head_dim // 2 + 2)

    def choose(self, layer, q):
        scores = q @ self.marks[layer][:, self.candidates].swapaxes(1, 2)
        worth = self.worth(layer, q, scores)
        return [top_k(row, self.budget) + self.candidates.start for row in worth]

    def rows(self, layer, head, positions):
        return self.key_rows[layer][head, positions], self.value_rows[layer][head, positions]


class NaclDrop(Method):
    """`queries` is [layer][proxies][heads][dim], unscaled, of the prompt's last tokens."""

    def __init__(self, cache, queries: np.ndarray, keep: float = 0.12, random_keep: float = 0.07,
                 protect: float = 0.01, seed: int = 0, **options):
        options.update(sinks=0, recent=max(1, round(protect * cache.length)))
        super().__init__(cache, **options)
        rng = np.random.default_rng(seed)
        count, random_count = (round(x * self.prompt_tokens) for x in (keep, random_keep))
        self.kept = [self._retain(layer, queries[layer], count, random_count, rng)
                     for layer in range(self.config.layers)]

    def _retain(self, layer, queries, count, random_count, rng):
        config, proxies = self.config, len(queries)
        q = queries.swapaxes(0, 1).reshape(config.kv_heads, config.group * proxies, -1)
        scores = (q * np.float32(config.attention_scale)) @ self.keys[layer].swapaxes(1, 2)
        scores = scores.reshape(config.kv_heads, config.group, proxies, -1)
        first = self.prompt_tokens - proxies  # position of the first proxy
        late = np.arange(self.prompt_tokens) > np.arange(first, self.prompt_tokens)[:, None]
        worth = softmax(np.where(late, -np.inf, scores)).sum((1, 2))[:, self.candidates]
        kept = []
        for row in worth:
            best = top_k(row, count)
            noisy = row + rng.gumbel(size=len(row))  # k largest: a sample by softmax of the worth
            noisy[best] = -np.inf
            kept.append(np.union1d(best, top_k(noisy, min(random_count, len(row) - len(best)))))
        return kept

    def choose(self, layer, q):
        return self.kept[layer]


class QueryRecorder(FullAttention):
    """Full attention that keeps the queries it saw, [layer] of [tokens][heads][dim]."""

    def __init__(self, cache):
        super().__init__(cache)
        self.queries = [[] for _ in range(cache.config.layers)]

    def attend_batch(self, layer, q, k_new, v_new):
        self.queries[layer].append(q.copy())
        return super().attend_batch(layer, q, k_new, v_new)


def prefill_with_queries(model, tokens, cache, proxies: int):
    """Prefills; returns the last logits and the queries of the last `proxies` tokens, stacked."""
    if len(tokens) > proxies:
        model.prefill(tokens[:-proxies], cache)
    recorder = QueryRecorder(cache)
    logits = model.forward(tokens[-proxies:], cache.length, recorder.attend_batch, "last")
    return logits, np.stack([np.concatenate(q) for q in recorder.queries])
