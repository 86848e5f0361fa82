"""libcairn by ctypes: where it lies, its structs and its functions.  Private to the package."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

__all__ = ["byref", "load"]

NAME_BYTES = 129


class SpaceConfigStruct(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("model", c_char * NAME_BYTES),
        ("revision", c_char * NAME_BYTES),
        ("layout", c_char * NAME_BYTES),
        *[
            (name, c_uint32)
            for name in (
                "layers",
                "kv_heads",
                "k_dim",
                "v_dim",
                "dtype",
                "block_tokens",
                "cache_group",
                "tp_rank",
                "tp_size",
                "rope",
                "landmark_bits",
                "outliers",
                "run_tokens",
                "value_bits",
                "k_codec",
                "v_codec",
            )
        ],
        ("block_bytes", c_uint64),
        ("shared", c_uint32),
        ("v_prefix", c_uint32),
    ]


class KeyStruct(Structure):
    _fields_ = [("bytes", c_uint8 * 32)]


class SpaceInfoStruct(Structure):
    _fields_ = [
        ("config", SpaceConfigStruct),
        ("fingerprint", KeyStruct),
        ("block_bytes", c_uint64),
        ("blocks", c_uint64),
        ("ram_bytes", c_uint64),
        ("nvme_bytes", c_uint64),
        ("id", c_uint32),
    ]


class QuotaStruct(Structure):
    _fields_ = [
        ("ram_bytes", c_uint64),
        ("nvme_bytes", c_uint64),
        ("ram_guaranteed_bytes", c_uint64),
        ("nvme_guaranteed_bytes", c_uint64),
    ]


class TenantInfoStruct(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("tenant", c_uint32),
        ("source", c_char_p),
        ("quota", QuotaStruct),
        ("ram_bytes", c_uint64),
        ("nvme_bytes", c_uint64),
        ("blocks", c_uint64),
        ("evicted", c_uint64),
        ("refused", c_uint64),
        ("connections", c_uint32),
        ("held", c_bool),
    ]


class HoldArgsStruct(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("note", c_char_p),
        ("tenant", c_char_p),
        ("space", c_uint32),
        ("key", POINTER(KeyStruct)),
    ]


class HoldInfoStruct(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("note", c_char_p),
        ("tenant", c_char_p),
        ("space", c_uint32),
        ("key", POINTER(KeyStruct)),
        ("since_ms", c_uint64),
        ("blocks", c_uint64),
    ]


class OptionsStruct(Structure):
    _fields_ = [
        ("socket_path", c_char_p),
        ("name", c_char_p),
        ("timeout_ms", c_uint32),
        ("connect_wait_ms", c_uint32),
        ("reconnect_wait_ms", c_uint32),
        ("spin_us", c_uint32),
    ]


class BreakEvenStruct(Structure):
    _fields_ = [
        *[
            (name, c_double)
            for name in ("disk_bytes_s", "ram_bytes_s", "disk_tokens_s", "ram_tokens_s")
        ],
        ("load_from_disk", c_bool),
        ("load_from_ram", c_bool),
    ]


class ServerInfoStruct(Structure):
    _fields_ = [
        ("incarnation", c_uint64),
        ("protocol", c_uint32),
        ("server", c_char * 64),
        ("isa", c_char * 32),
    ]


class PingInfoStruct(Structure):
    _fields_ = [("incarnation", c_uint64), ("state", c_uint32), ("uptime_ms", c_uint64)]


class LeaseStruct(Structure):
    _fields_ = [("id", c_uint64), ("connection", c_uint64)]


class PutArgsStruct(Structure):
    _fields_ = [
        ("space", c_uint32),
        ("keys", c_char_p),
        ("count", c_size_t),
        ("parent", c_char_p),
        ("parents", c_char_p),
        ("blocks", c_void_p),
        ("blocks_at", POINTER(c_void_p)),
        ("ack", c_uint32),
        ("recompute_us", c_uint64),
        ("ttl_ms", c_uint64),
    ]


class PinArgsStruct(Structure):
    _fields_ = [
        ("space", c_uint32),
        ("keys", c_char_p),
        ("count", c_size_t),
        ("owner", c_char_p),
        ("for_ms", c_uint64),
        ("hard", c_bool),
    ]


class GetArgsStruct(Structure):
    _fields_ = [
        ("space", c_uint32),
        ("keys", c_char_p),
        ("count", c_size_t),
        ("lease", LeaseStruct),
        ("layer_first", c_uint32),
        ("layer_count", c_uint32),
        ("blocks", c_void_p),
        ("blocks_at", POINTER(c_void_p)),
    ]


class ViewStruct(Structure):
    _fields_ = [
        ("bytes", c_void_p),
        ("size_bytes", c_uint64),
        ("segment", c_void_p),
        ("slot", c_uint64),
        ("generation", c_uint64),
    ]


class ContextStruct(Structure):
    _fields_ = [
        ("id", c_uint64),
        ("connection", c_uint64),
        ("tokens", c_uint64),
        ("space", c_uint32),
    ]


class BudgetStruct(Structure):
    _fields_ = [
        ("count", c_uint32),
        ("share", c_double),
        ("threshold", c_double),
        ("mass", c_double),
        ("cap", c_uint32),
    ]


class RangeStruct(Structure):
    _fields_ = [("begin", c_uint64), ("end", c_uint64)]


class RetrieveArgsStruct(Structure):
    _fields_ = [
        ("contexts", POINTER(ContextStruct)),
        ("contexts_count", c_size_t),
        ("layers", POINTER(c_uint32)),
        ("layers_count", c_size_t),
        ("steps", c_uint32),
        ("query_heads", c_uint32),
        ("queries", c_void_p),
        ("held_lse", c_void_p),
        ("scale", c_float),
        ("budget", BudgetStruct),
        ("excluded", POINTER(RangeStruct)),
        ("excluded_count", c_size_t),
        ("rerank_factor", c_float),
        ("group_rule", c_uint32),
        ("landmark", c_uint32),
        ("chunk_tokens", c_uint32),
        ("row_dtype", c_uint32),
        ("rows", c_bool),
        ("rest", c_bool),
        ("all", c_bool),
        ("demoted", c_bool),
    ]


SELECTION_PARTS = (
    "counts",
    "positions",
    "scores",
    "lse",
    "mass_error",
    "part_lse",
    "part_out",
    "rest_lse",
    "rest_out",
    "k_rows",
    "v_rows",
)


class SelectionStruct(Structure):
    _fields_ = [
        *[
            (name, c_uint32)
            for name in (
                "pairs",
                "steps",
                "kv_heads",
                "query_heads",
                "k_max",
                "k_dim",
                "v_dim",
                "out_dim",
                "row_dtype",
            )
        ],
        *[(name, c_void_p) for name in SELECTION_PARTS],
        *[
            (name, c_uint64)
            for name in ("result_bytes", "tokens_scanned", "bytes_scanned", "kernel_ns")
        ],
    ]


class RetainArgsStruct(Structure):
    _fields_ = [
        ("context", POINTER(ContextStruct)),
        ("layers", POINTER(c_uint32)),
        ("layers_count", c_size_t),
        ("queries", c_void_p),
        ("query_heads", c_uint32),
        ("proxies_count", c_uint32),
        ("proxies", POINTER(RangeStruct)),
        ("proxies_ranges", c_size_t),
        ("scale", c_float),
        ("causal", c_bool),
        ("proxy_keep", c_double),
        ("random_keep", c_double),
        ("protect", c_double),
        ("sinks", c_uint32),
        ("protected_ranges", POINTER(RangeStruct)),
        ("protected_count", c_size_t),
        ("spread", c_bool),
        ("even", c_double),
        ("seed", c_uint64),
        ("drop", c_bool),
    ]


class RetainedStruct(Structure):
    _fields_ = [
        ("layers", c_uint32),
        ("kv_heads", c_uint32),
        ("counts", c_void_p),
        ("mass", c_void_p),
        ("positions", c_void_p),
        ("kept", c_uint64),
        ("removed", c_uint64),
        ("mass_mean", c_double),
        ("mass_lowest", c_double),
        ("lowest_layer", c_uint32),
        ("lowest_head", c_uint32),
        ("result_bytes", c_uint64),
        ("kernel_ns", c_uint64),
    ]


class PlanPointStruct(Structure):
    _fields_ = [
        ("share", c_double),
        ("mass", c_double),
        ("mass_lowest", c_double),
        ("lowest_layer", c_uint32),
        ("lowest_head", c_uint32),
    ]


class PlanArgsStruct(Structure):
    _fields_ = [
        ("retain", RetainArgsStruct),
        ("target_mass", c_double),
        ("budgets", POINTER(c_double)),
        ("budgets_count", c_size_t),
    ]


class PlanStruct(Structure):
    _fields_ = [
        ("layers", c_uint32),
        ("kv_heads", c_uint32),
        ("tokens", c_uint64),
        ("needed", PlanPointStruct),
        ("curve", PlanPointStruct * 64),
        ("budgets", PlanPointStruct * 64),
        *[
            (name, c_void_p)
            for name in (
                "head_needed",
                "head_protected",
                "head_mass_needed",
                "head_mass_protected",
                "head_kept",
                "head_mass",
            )
        ],
        ("result_bytes", c_uint64),
        ("kernel_ns", c_uint64),
    ]


OnMetric = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_double)
OnSpace = CFUNCTYPE(None, c_void_p, POINTER(SpaceInfoStruct))
OnTenant = CFUNCTYPE(None, c_void_p, POINTER(TenantInfoStruct))
OnHold = CFUNCTYPE(None, c_void_p, POINTER(HoldInfoStruct))

_CLIENT = c_void_p
_CALL = c_void_p  # always NULL: this package only makes blocking calls

# name: (result, arguments)
_FUNCTIONS = {
    "cairn_error_name": (c_char_p, [c_int]),
    "cairn_error_text": (c_char_p, [c_int]),
    "cairn_error_remedy": (c_char_p, [c_int]),
    "cairn_space_config_check": (c_int, [POINTER(SpaceConfigStruct), c_char_p, c_size_t]),
    "cairn_client_create": (c_int, [POINTER(OptionsStruct), POINTER(c_void_p), c_char_p, c_size_t]),
    "cairn_client_destroy": (None, [_CLIENT]),
    "cairn_client_hang_up": (None, [_CLIENT]),
    "cairn_break_even": (c_int, [_CLIENT, c_double, c_double, POINTER(BreakEvenStruct)]),
    "cairn_client_trace": (c_int, [_CLIENT, c_char_p]),
    "cairn_client_error": (c_char_p, [_CLIENT]),
    "cairn_client_socket": (c_char_p, [_CLIENT]),
    "cairn_client_server": (None, [_CLIENT, POINTER(ServerInfoStruct)]),
    "cairn_ping": (c_int, [_CLIENT, _CALL, POINTER(PingInfoStruct)]),
    "cairn_stats": (c_int, [_CLIENT, _CALL, OnMetric, c_void_p]),
    "cairn_client_arena_create": (c_int, [_CLIENT, c_uint64, POINTER(c_void_p)]),
    "cairn_client_arena_destroy": (c_int, [_CLIENT, c_void_p]),
    "cairn_client_arena_data": (c_void_p, [c_void_p]),
    "cairn_client_arena_bytes": (c_uint64, [c_void_p]),
    "cairn_client_open_space": (c_int, [_CLIENT, POINTER(SpaceConfigStruct), POINTER(c_uint32)]),
    "cairn_client_space": (c_int, [_CLIENT, c_uint32, POINTER(SpaceInfoStruct)]),
    "cairn_list_spaces": (c_int, [_CLIENT, _CALL, OnSpace, c_void_p]),
    "cairn_chain_keys": (
        c_size_t,
        [
            c_char_p,
            c_uint32,
            c_char_p,
            c_size_t,
            c_char_p,
            c_size_t,
            c_char_p,
            c_void_p,
            c_size_t,
            c_char_p,
        ],
    ),
    "cairn_lookup": (
        c_int,
        [
            _CLIENT,
            _CALL,
            c_uint32,
            c_char_p,
            c_size_t,
            c_uint32,
            POINTER(c_size_t),
            POINTER(LeaseStruct),
        ],
    ),
    "cairn_release": (c_int, [_CLIENT, _CALL, POINTER(LeaseStruct)]),
    "cairn_put": (c_int, [_CLIENT, _CALL, POINTER(PutArgsStruct), POINTER(c_int)]),
    "cairn_get": (c_int, [_CLIENT, _CALL, POINTER(GetArgsStruct), POINTER(c_int)]),
    "cairn_get_views": (
        c_int,
        [_CLIENT, _CALL, POINTER(GetArgsStruct), POINTER(ViewStruct), POINTER(c_int)],
    ),
    "cairn_view_valid": (c_bool, [POINTER(ViewStruct)]),
    "cairn_view_release": (None, [POINTER(ViewStruct)]),
    "cairn_delete": (c_int, [_CLIENT, _CALL, c_uint32, c_char_p, c_size_t, c_bool, POINTER(c_int)]),
    "cairn_pin": (c_int, [_CLIENT, _CALL, POINTER(PinArgsStruct), POINTER(c_int)]),
    "cairn_purge": (
        c_int,
        [_CLIENT, _CALL, c_uint32, c_char_p, c_size_t, POINTER(c_int), POINTER(c_uint32)],
    ),
    "cairn_client_open_stored_space": (
        c_int,
        [_CLIENT, POINTER(SpaceInfoStruct), POINTER(c_uint32)],
    ),
    "cairn_list_tenants": (c_int, [_CLIENT, _CALL, OnTenant, c_void_p]),
    "cairn_set_quota": (
        c_int,
        [_CLIENT, _CALL, c_char_p, POINTER(QuotaStruct), c_uint32, POINTER(QuotaStruct)],
    ),
    "cairn_reset_quota": (c_int, [_CLIENT, _CALL, c_char_p, POINTER(QuotaStruct)]),
    "cairn_list_holds": (c_int, [_CLIENT, _CALL, OnHold, c_void_p]),
    "cairn_set_hold": (c_int, [_CLIENT, _CALL, POINTER(HoldArgsStruct), POINTER(c_uint64)]),
    "cairn_lift_hold": (c_int, [_CLIENT, _CALL, c_char_p, POINTER(c_uint64)]),
    "cairn_unpin": (
        c_int,
        [_CLIENT, _CALL, c_uint32, c_char_p, c_size_t, c_char_p, POINTER(c_int)],
    ),
    "cairn_prefetch": (
        c_int,
        [_CLIENT, _CALL, c_uint32, c_char_p, c_size_t, POINTER(c_size_t)],
    ),
    "cairn_open_context": (
        c_int,
        [_CLIENT, _CALL, c_uint32, c_char_p, c_size_t, POINTER(ContextStruct)],
    ),
    "cairn_append": (c_int, [_CLIENT, _CALL, POINTER(ContextStruct), c_void_p, c_uint32]),
    "cairn_fork": (c_int, [_CLIENT, _CALL, POINTER(ContextStruct), POINTER(ContextStruct)]),
    "cairn_seal": (
        c_int,
        [
            _CLIENT,
            _CALL,
            POINTER(ContextStruct),
            c_char_p,
            c_size_t,
            c_char_p,
            POINTER(c_size_t),
            POINTER(c_int),
        ],
    ),
    "cairn_close_context": (c_int, [_CLIENT, _CALL, POINTER(ContextStruct)]),
    "cairn_retrieve_bytes": (c_uint64, [_CLIENT, POINTER(RetrieveArgsStruct), c_bool]),
    "cairn_retrieve": (
        c_int,
        [_CLIENT, _CALL, POINTER(RetrieveArgsStruct), c_void_p, c_uint64, POINTER(SelectionStruct)],
    ),
    "cairn_attend": (
        c_int,
        [_CLIENT, _CALL, POINTER(RetrieveArgsStruct), c_void_p, c_uint64, POINTER(SelectionStruct)],
    ),
    "cairn_export_landmarks": (
        c_int,
        [
            _CLIENT,
            _CALL,
            POINTER(ContextStruct),
            c_uint32,
            c_void_p,
            c_uint64,
            POINTER(c_uint64),
        ],
    ),
    "cairn_fetch_rows": (
        c_int,
        [
            _CLIENT,
            _CALL,
            POINTER(ContextStruct),
            c_uint32,
            POINTER(c_uint32),
            c_void_p,
            c_uint32,
            c_void_p,
            c_uint64,
        ],
    ),
    "cairn_retain_bytes": (c_uint64, [_CLIENT, POINTER(RetainArgsStruct)]),
    "cairn_retain": (
        c_int,
        [_CLIENT, _CALL, POINTER(RetainArgsStruct), c_void_p, c_uint64, POINTER(RetainedStruct)],
    ),
    "cairn_plan_bytes": (c_uint64, [_CLIENT, POINTER(PlanArgsStruct)]),
    "cairn_plan": (
        c_int,
        [_CLIENT, _CALL, POINTER(PlanArgsStruct), c_void_p, c_uint64, POINTER(PlanStruct)],
    ),
}

_loaded: ctypes.CDLL | None = None


def _candidates():
    """Paths and names to try, in this order."""
    named = os.environ.get("CAIRN_LIBRARY")
    if named:
        yield named
        return  # who names one wants that one
    package = Path(__file__).resolve().parent
    yield from sorted(map(str, package.glob("libcairn.so*")))
    for root in package.parents:
        if (root / "client" / "include" / "cairn" / "cairn.h").exists():
            builds = sorted(
                (root / "build").glob("*/libcairn.so"),
                key=lambda path: path.stat().st_mtime,
                reverse=True,
            )
            release = [path for path in builds if path.parent.name == "release"]
            others = [
                path for path in builds if path.parent.name not in ("release", "asan", "tsan")
            ]
            yield from map(str, release + others)
    yield "libcairn.so.0"
    found = ctypes.util.find_library("cairn")
    if found:
        yield found


def load() -> ctypes.CDLL:
    """The library, its functions typed.  OSError names what was tried."""
    global _loaded
    if _loaded is not None:
        return _loaded
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path} ({error})")
            continue
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        _loaded = library
        return library
    raise OSError(
        "libcairn.so was not found; build cairn (cmake --preset release && cmake --build "
        "--preset release), install it, or name it by CAIRN_LIBRARY. Tried: " + "; ".join(tried)
    )
