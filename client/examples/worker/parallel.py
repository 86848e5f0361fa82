"""Threads for the forward pass.

OpenBLAS's own threads spin while they wait for each other: on cores shared with other work they
make a product ten times slower.  So BLAS is held to one thread, and work is split by rows or heads
over threads that sleep when they wait (NumPy releases the interpreter's lock in its loops).
OPENBLAS_NUM_THREADS, if set, is respected.
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROWS_MIN = 32  # a smaller piece costs more to hand over than it saves
THREADS = max(1, min(16, len(os.sched_getaffinity(0))))

_pool = ThreadPoolExecutor(THREADS, "worker") if THREADS > 1 else None


def run_all(function, tasks) -> None:
    """Calls function(*task) for each task, and returns when all are done."""
    tasks = list(tasks)
    if _pool is None or len(tasks) < 2:
        for task in tasks:
            function(*task)
        return
    for _ in _pool.map(lambda task: function(*task), tasks):
        pass


def by_rows(function, *arrays):
    """function(*arrays) where rows of the result depend on the same rows of the arrays alone.

    The function returns a tuple of arrays; it runs on pieces at the same time.
    """
    pieces = min(THREADS, len(arrays[0]) // ROWS_MIN)
    if pieces < 2:
        return function(*arrays)
    split = zip(*(np.array_split(array, pieces) for array in arrays))
    parts = _pool.map(lambda piece: function(*piece), split)
    return tuple(np.concatenate(results) for results in zip(*parts))


def _limit_blas_threads() -> None:
    """Works for NumPy's own wheels; elsewhere BLAS keeps its threads, which is slower, not wrong."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    for path in (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))  # loaded already: the same instance
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
                     "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(ctypes.c_int(1))
                return


_limit_blas_threads()
