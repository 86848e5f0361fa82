"""A search by FAISS or NumPy over the keys that cairn-bench wrote; it is told when to run, through a pipe.

    versus.py faiss|numpy FOLDER TOKENS DIM   with keys.f32, queries.f32 and chosen.u32 (cairn's choice)

Words on stdin, numbers on stdout: `ready` (0), `search` (seconds of one search), `mass`: the softmax
mass, mean over queries, that hold cairn's rows, as many rows of this search (the best by its own
group score), as many by exact scores, and this search's own k rows for each query.
"""

import sys
import time
from pathlib import Path

import numpy as np


class Numpy:
    """Exact scores by matmul, the group's best by argpartition."""

    def __init__(self, keys, queries, k):
        self.keys, self.queries, self.k = keys, queries, k

    def search(self):
        scores = self.queries @ self.keys.T
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        self.found = np.argpartition(weights.max(0), -self.k)[-self.k:]

    def sets(self):
        return self.found, [self.found] * len(self.queries)


class Faiss:
    """IndexPQFastScan, dim / 2 sub-quantizers of 4 bits, k rows a query."""

    def __init__(self, keys, queries, k):
        import faiss
        faiss.omp_set_num_threads(1)
        self.queries, self.k = queries, k
        self.index = faiss.IndexPQFastScan(keys.shape[1], keys.shape[1] // 2, 4, faiss.METRIC_INNER_PRODUCT)
        self.index.train(keys[:65536])
        self.index.add(keys)

    def search(self):
        self.scores, self.ids = self.index.search(self.queries, self.k)

    def sets(self):
        """The k rows with the best group score of the queries' k each; and those of each query."""
        weights = np.exp(self.scores - self.scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        best = {}
        for row, weight in zip(self.ids.ravel(), weights.ravel()):
            best[row] = max(best.get(row, 0), weight)
        return np.array(sorted(best, key=best.get)[-self.k:]), list(self.ids)


def main():
    name, folder, tokens, dim = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    keys = np.fromfile(folder / "keys.f32", np.float32).reshape(tokens, dim)
    queries = np.fromfile(folder / "queries.f32", np.float32).reshape(-1, dim) / np.float32(dim ** 0.5)
    chosen = np.fromfile(folder / "chosen.u32", np.uint32)
    method = {"faiss": Faiss, "numpy": Numpy}[name](keys, queries, len(chosen))
    for word in sys.stdin:
        word = word.strip()
        if word == "ready":
            method.search()
            print(0, flush=True)
        elif word == "search":
            begun = time.perf_counter()
            method.search()
            print(time.perf_counter() - begun, flush=True)
        elif word == "mass":
            exact = np.exp((queries.astype(np.float64) @ keys.T.astype(np.float64)))
            exact /= exact.sum(1, keepdims=True)
            best = np.argpartition(exact.max(0), -len(chosen))[-len(chosen):]
            together, alone = method.sets()
            own = np.mean([exact[q, rows].sum() for q, rows in enumerate(alone)])
            print(*(exact[:, rows].sum(1).mean() for rows in (chosen, together, best)), own, flush=True)


if __name__ == "__main__":
    main()
