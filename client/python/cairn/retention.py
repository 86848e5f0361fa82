"""Retain and Plan: what stays hot of a context, and what a budget would hold (NACL, arXiv 2408.03675).

    kept = context.retain(queries)            # queries [layer][proxy][query head][k_dim]
    kept.positions[layer][head]               # what the worker keeps on its GPU
    plan = context.plan(queries, target_mass=0.99)
    plan.share                                # the smallest share of the tokens that holds it
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import _library as lib
from .errors import Status, error_of

MODES = ("demote", "drop")
POINTS = 64
FILE_MAGIC = b"CRNPROX1"


class Kept:
    """What a retain keeps. Arrays begin with the axes [layer asked for][KV head].

    positions    lists of arrays: the tokens that stay, ascending
    counts       how many they are
    mass         share of the proxies' attention that they hold
    kept, removed, mass_mean, mass_lowest, lowest (layer, KV head): all heads together
    """

    def __init__(self, retained: lib.RetainedStruct, memory: np.ndarray, layers: list[int]):
        r = retained
        shape = r.layers, r.kv_heads
        self.layers = layers
        self.counts = _part(memory, r.counts, np.uint32, shape)
        self.mass = _part(memory, r.mass, np.float32, shape)
        flat = _part(memory, r.positions, np.uint32, (r.kept,))
        heads = np.split(flat, np.cumsum(self.counts.reshape(-1), dtype=np.int64)[:-1])
        self.positions = [heads[i : i + r.kv_heads] for i in range(0, len(heads), r.kv_heads)]
        self.kept, self.removed = r.kept, r.removed
        self.mass_mean, self.mass_lowest = r.mass_mean, r.mass_lowest
        self.lowest = r.lowest_layer, r.lowest_head
        self.bytes, self.kernel_ns = r.result_bytes, r.kernel_ns


@dataclass
class Point:
    """What a share of every head's tokens holds: on average, and the head that holds least."""

    share: float
    mass: float
    mass_lowest: float
    lowest: tuple[int, int]  # layer, KV head

    @classmethod
    def _of(cls, p: lib.PlanPointStruct) -> Point:
        return cls(p.share, p.mass, p.mass_lowest, (p.lowest_layer, p.lowest_head))


class Plan:
    """What budgets would hold, without doing it. H: [layer asked for][KV head].

    share, mass, mass_lowest, lowest   the smallest share that holds the target mass on average
    budgets      a Point a budget asked about
    curve        64 Points, from 1/1024 of the tokens to all, by equal factors
    needed       [H]      the fewest tokens that hold the target mass of that head
    mass_needed  [H]      what they hold
    protected    [H]      tokens that stay in any case; mass_protected
    curve_kept   [H][64]  tokens of each head at the points of the curve; curve_mass alike
    """

    def __init__(self, plan: lib.PlanStruct, memory: np.ndarray, layers: list[int], budgets: int):
        shape = plan.layers, plan.kv_heads
        needed = Point._of(plan.needed)
        self.layers, self.tokens = layers, plan.tokens
        self.share, self.mass = needed.share, needed.mass
        self.mass_lowest, self.lowest = needed.mass_lowest, needed.lowest
        self.curve = [Point._of(p) for p in plan.curve]
        self.budgets = [Point._of(p) for p in plan.budgets[:budgets]]
        self.needed = _part(memory, plan.head_needed, np.uint32, shape)
        self.protected = _part(memory, plan.head_protected, np.uint32, shape)
        self.mass_needed = _part(memory, plan.head_mass_needed, np.float32, shape)
        self.mass_protected = _part(memory, plan.head_mass_protected, np.float32, shape)
        self.curve_kept = _part(memory, plan.head_kept, np.uint32, (*shape, POINTS))
        self.curve_mass = _part(memory, plan.head_mass, np.float32, (*shape, POINTS))
        self.kernel_ns = plan.kernel_ns


def _part(memory: np.ndarray, address: int, dtype, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(dtype)
    first = address - memory.ctypes.data
    return memory[first : first + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)


def _ranges(ranges) -> ctypes.Array | None:
    return (lib.RangeStruct * len(ranges))(*[(int(a), int(b)) for a, b in ranges]) if ranges else None


def _args(context, queries, layers, proxies, options) -> tuple[lib.RetainArgsStruct, tuple, list[int]]:
    """The arguments, what they point at, and the layers asked for."""
    config = context.space.config
    named = list(range(config.layers)) if layers is None else [int(layer) for layer in layers]
    queries = np.ascontiguousarray(queries, np.float32)
    if queries.ndim != 4 or queries.shape[0] != len(named) or queries.shape[3] != config.k_dim:
        raise error_of(
            Status.EINVAL,
            f"queries are {queries.shape}; they must be [layers {len(named)}][proxy][query head]"
            f"[k_dim {config.k_dim}]",
        )
    ranges = [tuple(r) for r in proxies] if proxies is not None else []
    if ranges and sum(b - a for a, b in ranges) != queries.shape[1]:
        raise error_of(Status.EINVAL, f"{queries.shape[1]} queries a layer for proxies {ranges}")
    protected = [tuple(r) for r in options.pop("protect_ranges", ())]
    live = context._live()
    held = (
        queries,
        live,
        (ctypes.c_uint32 * max(1, len(named)))(*named),
        _ranges(ranges),
        _ranges(protected),
    )
    args = lib.RetainArgsStruct(
        context=ctypes.pointer(live),
        layers=held[2],
        layers_count=0 if layers is None else len(named),
        queries=queries.ctypes.data,
        query_heads=queries.shape[2],
        proxies_count=queries.shape[1],
        proxies=held[3],
        proxies_ranges=len(ranges),
        protected_ranges=held[4],
        protected_count=len(protected),
        **options,
    )
    return args, held, named


def _call(client, function: str, size_of: str, args, answer) -> np.ndarray:
    with client._lock:
        if client._handle is None:
            raise error_of(Status.EDISCONNECTED, "this client is closed; make another")
        size = getattr(client._library, size_of)(client._handle.pointer, ctypes.byref(args))
        memory = client._result_buffer(max(64, size))
        client._call(
            function, None, ctypes.byref(args), memory.ctypes.data, memory.nbytes, ctypes.byref(answer)
        )
    return memory


def retain(
    context,
    queries,
    *,
    layers: Sequence[int] | None = None,
    proxies: Sequence[tuple[int, int]] | None = None,
    mode: str = "demote",
    proxy_keep: float = 0.12,
    random_keep: float = 0.07,
    protect: float = 0.01,
    sinks: int = 4,
    protect_ranges: Sequence[tuple[int, int]] = (),
    scale: float | None = None,
    causal: bool = False,
    spread: bool = False,
    even: float = 0.0,
    seed: int = 0,
) -> Kept:
    """See Context.retain."""
    if mode not in MODES:
        raise error_of(Status.EINVAL, f"mode {mode!r}: one of {', '.join(MODES)}")
    args, held, named = _args(context, queries, layers, proxies, {
        "scale": scale or 0.0, "causal": causal, "proxy_keep": proxy_keep, "random_keep": random_keep,
        "protect": protect, "sinks": sinks, "protect_ranges": protect_ranges, "spread": spread,
        "even": even, "seed": seed, "drop": mode == "drop",
    })
    answer = lib.RetainedStruct()
    memory = _call(context._client, "cairn_retain", "cairn_retain_bytes", args, answer)
    del held  # alive until the call had ended
    return Kept(answer, memory, named)


def plan(
    context,
    queries,
    *,
    target_mass: float = 0.99,
    budgets: Sequence[float] = (),
    layers: Sequence[int] | None = None,
    proxies: Sequence[tuple[int, int]] | None = None,
    protect: float = 0.01,
    sinks: int = 4,
    protect_ranges: Sequence[tuple[int, int]] = (),
    scale: float | None = None,
    causal: bool = False,
) -> Plan:
    """See Context.plan."""
    inner, held, named = _args(context, queries, layers, proxies, {
        "scale": scale or 0.0, "causal": causal, "protect": protect, "sinks": sinks,
        "protect_ranges": protect_ranges,
    })
    shares = (ctypes.c_double * max(1, len(budgets)))(*budgets)
    args = lib.PlanArgsStruct(
        retain=inner, target_mass=target_mass, budgets=shares, budgets_count=len(budgets)
    )
    answer = lib.PlanStruct()
    memory = _call(context._client, "cairn_plan", "cairn_plan_bytes", args, answer)
    del held  # alive until the call had ended
    return Plan(answer, memory, named, len(budgets))


def save_proxies(path, space, keys: Sequence[bytes], queries, *, scale: float | None = None) -> None:
    """Keeps the proxies' queries of a stored chain, all layers, for `cairnctl plan PATH`.

    Little endian: magic "CRNPROX1"; u32 layers, proxies, query heads, k_dim, keys, 0; f32 scale
    (0: 1/sqrt(k_dim)); u32 0; the space's fingerprint; the keys; f32 [layer][proxy][head][k_dim].
    """
    config = space.config
    queries = np.ascontiguousarray(queries, np.float32)
    if queries.ndim != 4 or queries.shape[0] != config.layers or queries.shape[3] != config.k_dim:
        raise error_of(
            Status.EINVAL,
            f"queries are {queries.shape}; they must be [layers {config.layers}][proxy][query head]"
            f"[k_dim {config.k_dim}]",
        )
    head = struct.pack("<8s6IfI", FILE_MAGIC, *queries.shape, len(keys), 0, scale or 0.0, 0)
    with Path(path).open("wb") as file:
        file.write(head + space.fingerprint + b"".join(keys))
        file.write(queries.tobytes())
