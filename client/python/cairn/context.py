"""Contexts: a chain opened for retrieval, and what a query finds in it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from . import _library as lib
from . import retention
from .arrays import NUMPY, pack_rows
from .config import DTYPES, number_of
from .errors import Disconnected, NotFound, Stale, Status, error_of
from .landmarks import Landmarks

LANDMARKS = {"token": 0, "chunk-mean": 1, "chunk-minmax": 2, "exact": 3}
GROUPS = {"max": 0, "sum": 1}
ROWS_MAX = 65536  # a KV head


class Selection:
    """What a retrieve or attend found.

    Arrays begin with the axes of the question: [pair] if `layers` was a sequence, then [step] if
    the queries had steps. H KV heads, Q query heads, k = k_max.  They lie in memory shared with the
    daemon and stay valid while referenced.

    counts       [H]             rows chosen, <= k
    positions    [H][k]          ascending; beyond the count zero
    scores       [H][k]          log of the group's softmax probability, excluded tokens counted
    lse_chosen   [Q]             log-sum-exp of the chosen
    lse_all      [Q]             log-sum-exp of all that were not excluded
    mass_error   [Q]             standard error of exp(lse_chosen - lse_all), the mass held
    k_rows       [H][k][k_dim]   if rows were asked for, else None; v_rows alike
    rest_lse     [Q]             if the rest was asked for; rest_out [Q][v_dim, or v_prefix]
    out_lse      [Q]             attend: log-sum-exp of the attended rows; out [Q][as rest_out]
    bytes        size of the answer in bytes
    """

    counts: np.ndarray
    positions: np.ndarray
    scores: np.ndarray
    lse_chosen: np.ndarray
    lse_all: np.ndarray
    mass_error: np.ndarray
    k_rows: np.ndarray | None
    v_rows: np.ndarray | None
    rest_lse: np.ndarray | None
    rest_out: np.ndarray | None
    out_lse: np.ndarray | None
    out: np.ndarray | None

    def __init__(
        self, struct: lib.SelectionStruct, memory: np.ndarray, row_dtype: str, axes: tuple[int, ...]
    ):
        s = struct
        base = memory.ctypes.data
        rows = NUMPY[row_dtype]

        def part(name, dtype, *shape):
            address = getattr(s, name)
            if not address:
                return None
            count = math.prod(axes + shape)
            first = address - base
            dtype = np.dtype(dtype)
            return memory[first : first + count * dtype.itemsize].view(dtype).reshape(axes + shape)

        h, q, k = s.kv_heads, s.query_heads, s.k_max
        lse = part("lse", np.float32, q, 2)
        self.counts = part("counts", np.uint32, h)
        self.positions = part("positions", np.uint32, h, k)
        self.scores = part("scores", np.float32, h, k)
        self.lse_chosen, self.lse_all = lse[..., 0], lse[..., 1]
        self.mass_error = part("mass_error", np.float32, q)
        self.out_lse = part("part_lse", np.float32, q)
        self.out = part("part_out", np.float32, q, s.out_dim)
        self.rest_lse = part("rest_lse", np.float32, q)
        self.rest_out = part("rest_out", np.float32, q, s.out_dim)
        self.k_rows = part("k_rows", rows, h, k, s.k_dim)
        self.v_rows = part("v_rows", rows, h, k, s.v_dim)
        self.k_max, self.bytes = k, s.result_bytes
        self.tokens_scanned, self.bytes_scanned = s.tokens_scanned, s.bytes_scanned
        self.kernel_ns = s.kernel_ns


def _budget(count, share, threshold, mass, cap) -> lib.BudgetStruct:
    given = [
        name
        for name, value in (
            ("count", count),
            ("share", share),
            ("threshold", threshold),
            ("mass", mass),
        )
        if value is not None
    ]
    if len(given) != 1:
        raise error_of(
            Status.EINVAL,
            "the budget is one of count, share, threshold and mass; "
            f"given: {', '.join(given) or 'none'}",
        )
    return lib.BudgetStruct(count or 0, share or 0, threshold or 0, mass or 0, cap or 0)


def _ranges(exclude) -> list[tuple[int, int]]:
    """Half-open ranges, sorted, merged, without empty ones."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted((max(0, int(begin)), int(end)) for begin, end in exclude):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _question(contexts, layers, q):
    """(pairs' layers, queries [pair][step][head][dim], axes of the answer's arrays)."""
    single = np.ndim(layers) == 0
    pairs = [int(layers)] if single else [int(layer) for layer in layers]
    q = np.ascontiguousarray(q, np.float32)
    full = q[None] if single else q
    steps = full.ndim == 4
    if full.ndim not in (3, 4) or full.shape[0] != len(pairs):
        raise error_of(
            Status.EINVAL,
            f"queries are {q.shape}; for {'one layer' if single else 'a list of layers'} "
            f"they are {'' if single else '[pair]'}[step][head][k_dim], or without [step]",
        )
    if full.ndim == 3:
        full = full[:, None]
    axes = (() if single else (len(pairs),)) + ((full.shape[1],) if steps else ())
    if full.shape[-1] != contexts[0].space.config.k_dim:
        raise error_of(
            Status.EINVAL,
            f"queries have dim {full.shape[-1]}, the keys have {contexts[0].space.config.k_dim}",
        )
    return pairs, full, axes


def _held(held_lse, shape):
    """[pair][step][head], or None."""
    if held_lse is None:
        return None
    held = np.ascontiguousarray(held_lse, np.float32)
    if held.size != math.prod(shape):
        raise error_of(
            Status.EINVAL, f"held_lse is {held.shape}; it has one number a query head of q"
        )
    return held.reshape(shape)


def retrieve(
    client,
    contexts,
    layers,
    q,
    *,
    attend: bool,
    count: int | None = None,
    share: float | None = None,
    threshold: float | None = None,
    mass: float | None = None,
    cap: int | None = None,
    exclude=(),
    rows: bool = False,
    rest: bool = False,
    scale: float | None = None,
    rerank: float = 0.0,
    group: str = "max",
    landmark: str = "token",
    chunk_tokens: int = 8,
    row_dtype: str | None = None,
    everything: bool = False,
    demoted: bool = False,
    held_lse=None,
) -> Selection:
    """See Context.retrieve and Context.attend."""
    pairs, queries, axes = _question(contexts, layers, q)
    held = _held(held_lse, queries.shape[:3])
    excluded = _ranges(exclude)
    config = contexts[0].space.config
    if everything:
        budget = lib.BudgetStruct()
    else:
        if cap is None and (threshold is not None or mass is not None):
            cap = min(ROWS_MAX, max(context.tokens for context in contexts)) or 1
        budget = _budget(count, share, threshold, mass, cap)
    args = lib.RetrieveArgsStruct(
        contexts=(lib.ContextStruct * len(contexts))(*(context._live() for context in contexts)),
        contexts_count=len(contexts),
        layers=(ctypes.c_uint32 * len(pairs))(*pairs),
        layers_count=len(pairs),
        steps=queries.shape[1],
        query_heads=queries.shape[2],
        queries=queries.ctypes.data,
        held_lse=None if held is None else held.ctypes.data,
        scale=scale or 0.0,
        budget=budget,
        excluded=(lib.RangeStruct * max(1, len(excluded)))(*excluded),
        excluded_count=len(excluded),
        rerank_factor=rerank,
        group_rule=number_of(GROUPS, group, "group"),
        landmark=number_of(LANDMARKS, landmark, "landmark"),
        chunk_tokens=chunk_tokens if landmark.startswith("chunk") else 0,
        row_dtype=number_of(DTYPES, row_dtype, "row_dtype") if row_dtype else 0,
        rows=rows,
        rest=rest,
        all=everything,
        demoted=demoted,
    )
    with client._lock:
        if client._handle is None:
            raise error_of(Status.EDISCONNECTED, "this client is closed; make another")
        size = client._library.cairn_retrieve_bytes(
            client._handle.pointer, ctypes.byref(args), attend
        )
        if size == 0:
            raise error_of(Status.EINVAL, "retrieve: contexts of one space, please")
        memory = client._result_buffer(size)
        selection = lib.SelectionStruct()
        client._call(
            "cairn_attend" if attend else "cairn_retrieve",
            None,
            ctypes.byref(args),
            memory.ctypes.data,
            memory.nbytes,
            ctypes.byref(selection),
        )
    return Selection(selection, memory, row_dtype or config.dtype, axes)


class Context:
    """A chain opened for retrieval, with a tail that `append` extends.

    A context manager closes it.
    """

    def __init__(self, space, struct: lib.ContextStruct):
        self.space, self._struct = space, struct
        self._client = space.client

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_):
        try:
            self.close()
        except (Stale, Disconnected, NotFound):
            pass  # it went with its connection, which is what was asked for

    def _live(self) -> lib.ContextStruct:
        if self._struct is None:
            raise error_of(Status.ESTALE, "this context is closed; open it again")
        return self._struct

    @property
    def tokens(self) -> int:
        """Tokens of the chain and of the tail."""
        return self._live().tokens

    def close(self) -> None:
        """Ends it.  A second time does nothing."""
        struct, self._struct = self._struct, None
        if struct is not None:
            self._client._call("cairn_close_context", None, ctypes.byref(struct))

    def append(self, k, v=None) -> int:
        """Adds rows k, v [layers][kv_heads][tokens][dim] to the tail; returns the tokens of all."""
        c = self.space.config
        rows = pack_rows(k, v, c.layers, c.kv_heads, c.k_dim, c.v_dim, c.dtype)
        self._client._call(
            "cairn_append", None, ctypes.byref(self._live()), rows.ctypes.data, np.shape(k)[2]
        )
        return self.tokens

    def fork(self) -> Context:
        """A second context with the same tokens; from here on each has its own tail."""
        struct = lib.ContextStruct()
        self._client._call("cairn_fork", None, ctypes.byref(self._live()), ctypes.byref(struct))
        return Context(self.space, struct)

    def seal(self, keys: Sequence[bytes], parent: bytes | None = None) -> list[Status]:
        """Turns full blocks of the tail into stored blocks with these keys; one status a key."""
        statuses, sealed = (ctypes.c_int * max(1, len(keys)))(), ctypes.c_size_t()
        self._client._call(
            "cairn_seal",
            None,
            ctypes.byref(self._live()),
            b"".join(keys),
            len(keys),
            parent,
            ctypes.byref(sealed),
            statuses,
        )
        return [Status(status) for status in statuses[: len(keys)]]

    def retrieve(self, layers: int | Sequence[int], q, **options) -> Selection:
        """The tokens that matter most to the queries, a KV head each.

        layers: one, with q [head][k_dim] or [step][head][k_dim]; or several, with one more axis in
        front of q. The budget is one of: count (rows a KV head), share (of the tokens), threshold
        (the least estimated probability), mass (of the attention); cap bounds the rows of the last
        two.

        exclude      half-open ranges of positions that the worker holds itself
        rows         return the K and V rows too, in row_dtype (default: the space's)
        rest         return one more partial for all tokens not chosen: rest_lse and rest_out
        demoted      only rows that the last retain demoted, and later ones: the worker holds the others
        scale        of q.k; default 1 / sqrt(k_dim)
        group        "max" (of each head's softmax probability) or "sum"
        landmark     "token", or to compare: "chunk-mean", "chunk-minmax" of chunk_tokens, "exact"
        rerank       candidates a chosen row; 0: the default
        held_lse     log-sum-exp of scale * q.k over all that the worker holds, generated tokens
                     too; shaped like q without its last axis. It counts in the softmax that ranks
                     tokens; without it, the excluded tokens' is estimated
        """
        return retrieve(self._client, [self], layers, q, attend=False, **options)

    def attend(self, layers: int | Sequence[int], q, **options) -> Selection:
        """retrieve, but instead of rows the attention output over them: out, out_lse.

        everything=True attends to every row, without a budget.
        """
        return retrieve(self._client, [self], layers, q, attend=True, **options)

    def export_landmarks(self, layer: int) -> Landmarks:
        """What the tokens of a layer are found by, to be scored elsewhere; see fetch_rows."""
        size = ctypes.c_uint64()
        ask = [None, ctypes.byref(self._live()), layer]
        self._client._call("cairn_export_landmarks", *ask, None, 0, ctypes.byref(size))
        memory = self._client._result_buffer(size.value)
        self._client._call(
            "cairn_export_landmarks", *ask, memory.ctypes.data, size.value, ctypes.byref(size)
        )
        return Landmarks(memory[: size.value])

    def retain(self, queries, **options) -> retention.Kept:
        """What stays hot, by the attention of proxy tokens (NACL): positions a layer and KV head.

        queries [layer][proxy][query head][k_dim]: of the proxies, usually the prompt's last 1 %.
        The time is tokens x proxies x query heads x layers: a few dozen proxies do.

        mode         "demote": nothing is lost, retrieve still finds the others. "drop": they are
                     gone from this context, and from forks of it made later, for good
        layers       ascending; default: all
        proxies      half-open ranges of their positions; default: the last tokens
        proxy_keep, random_keep, protect   shares of the tokens: by score, by chance (seed), and the
                     first `sinks` with the most recent; default .12, .07, .01 and 4
        protect_ranges   tokens that stay in any case
        spread, even heads of a layer share their budgets by where the mass lies; `even` of each
                     stays as it was
        causal       a proxy sees what lies before it; default: all tokens, as in the paper's code
        scale        of q.k; default 1 / sqrt(k_dim)
        """
        return retention.retain(self, queries, **options)

    def plan(self, queries, target_mass: float = 0.99, **options) -> retention.Plan:
        """What budgets would hold, without doing it: the smallest share of the tokens for the target
        mass, shares asked about (budgets), and a curve.

        Other options: layers, proxies, protect, sinks, protect_ranges, causal, scale, as in retain.
        """
        return retention.plan(self, queries, target_mass=target_mass, **options)

    def fetch_rows(
        self, layer: int, positions: Sequence[Sequence[int]], row_dtype: str | None = None
    ):
        """(k, v) rows at `positions`, one list a KV head: each a list of arrays [n][dim]."""
        c = self.space.config
        if len(positions) != c.kv_heads:
            raise error_of(
                Status.EINVAL, f"positions of {len(positions)} KV heads; the space has {c.kv_heads}"
            )
        counts = [len(one) for one in positions]
        flat = np.concatenate([np.asarray(one, np.uint32) for one in positions])
        dtype = NUMPY[row_dtype or c.dtype]
        total = int(flat.size)
        k_bytes = total * c.k_dim * dtype.itemsize
        v_first = (k_bytes + 63) & ~63
        size = v_first + total * c.v_dim * dtype.itemsize
        memory = self._client._result_buffer(size)
        self._client._call(
            "cairn_fetch_rows",
            None,
            ctypes.byref(self._live()),
            layer,
            (ctypes.c_uint32 * len(counts))(*counts),
            flat.ctypes.data,
            number_of(DTYPES, row_dtype, "row_dtype") if row_dtype else 0,
            memory.ctypes.data,
            size,
        )
        k = memory[:k_bytes].view(dtype).reshape(total, c.k_dim)
        v = memory[v_first:size].view(dtype).reshape(total, c.v_dim)
        cuts = np.cumsum(counts)[:-1]
        return np.split(k, cuts), np.split(v, cuts)
