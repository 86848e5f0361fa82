"""The client: one connection to the daemon, that mends itself."""

from __future__ import annotations

import collections
import ctypes
import math
import os
import threading
import time
import weakref
from typing import NamedTuple

import numpy as np

from . import _library as lib
from .config import CODECS, DTYPES, KINDS, ROPES, SpaceConfig
from .errors import Busy, Disconnected, Error, NoSpace, Stale, Status, error_of
from .operators import Operating

_POOL_ARENAS_MAX = 8  # of the 16 that a connection may have
_POOL_FREE_BYTES_MAX = 64 << 20
_POOL_BYTES_MIN = 64 << 10
_STATES = {0: "starting", 1: "ready", 2: "draining"}


class PingInfo(NamedTuple):
    incarnation: int  # another number after every start of the daemon
    state: str  # "starting", "ready" or "draining"
    uptime_s: float
    round_trip_s: float


class BreakEven(NamedTuple):
    """Does loading what the daemon stores beat computing it again?"""

    disk_bytes_s: float  # as the daemon has measured it; 0: too little was read from it so far
    ram_bytes_s: float  # a copy in memory
    disk_tokens_s: float
    ram_tokens_s: float
    load_from_disk: bool  # true while it is unknown
    load_from_ram: bool


class SpaceInfo(NamedTuple):
    """What the daemon stores of one space."""

    config: SpaceConfig
    fingerprint: bytes
    blocks: int
    ram_bytes: int
    nvme_bytes: int
    number: int = 0  # the daemon's, for operators


class _Handle:
    """The native client.

    Arrays that lie in its arenas keep it alive; it ends with the last of them.
    """

    def __init__(self, options: lib.OptionsStruct):
        self.library = lib.load()
        self.pointer = ctypes.c_void_p()
        text = ctypes.create_string_buffer(640)
        status = self.library.cairn_client_create(
            ctypes.byref(options), ctypes.byref(self.pointer), text, len(text)
        )
        if status < 0:
            raise error_of(
                status,
                text.value.decode(errors="replace"),
                self.library.cairn_error_remedy(status).decode(),
            )
        self._end = weakref.finalize(self, self.library.cairn_client_destroy, self.pointer)
        self._end.atexit = False  # at exit the system unmaps; arrays may still be read


class _Memory(NamedTuple):
    arena: int  # of the native arena
    address: int
    size_bytes: int


class Arena:
    """Memory shared with the daemon.

    Arrays in it move without a copy, as blocks, rows and results.
    """

    def __init__(self, client: Client, size_bytes: int):
        self._client = client
        self._memory = client._create_memory(size_bytes)
        self.size_bytes = self._memory.size_bytes
        self._buffer = _buffer_of(client, self._memory, client._released.append)
        self._filled = 0

    def array(self, shape, dtype=np.uint8, offset: int | None = None) -> np.ndarray:
        """An array inside the arena:

        at `offset`, or behind the last one (at a multiple of 64 bytes).
        """
        dtype = np.dtype(dtype)
        count = math.prod(shape) if np.ndim(shape) else int(shape)
        first = (self._filled + 63) & ~63 if offset is None else offset
        if first < 0 or first + count * dtype.itemsize > self.size_bytes:
            raise error_of(
                Status.ERANGE,
                f"an array of {count * dtype.itemsize} bytes at {first} leaves the arena "
                f"of {self.size_bytes}; make the arena larger",
            )
        self._filled = max(self._filled, first + count * dtype.itemsize)
        return np.frombuffer(self._buffer, dtype, count, first).reshape(shape)

    def __buffer__(self, flags):  # Python 3.12; before: memoryview(arena.array(...))
        return memoryview(self._buffer)


def _buffer_of(client: Client, memory: _Memory, on_free):
    """A ctypes array over the memory.

    It keeps the native client; on_free(memory) when nobody has it any more.
    """
    buffer = (ctypes.c_uint8 * memory.size_bytes).from_address(memory.address)
    buffer.handle = client._handle
    weakref.finalize(buffer, on_free, memory).atexit = False
    return buffer


class Client(Operating):
    """One connection to cairnd.

    `socket` None: $CAIRN_SOCKET, $XDG_RUNTIME_DIR/cairn/cairnd.sock, /run/cairn/cairnd.sock.  If
    the connection is lost, the next call connects again; spaces and arenas stay valid, leases and
    contexts are `Stale` then.  Calls from several threads take turns.
    """

    def __init__(
        self,
        socket: str | os.PathLike | None = None,
        *,
        timeout_s: float = 30.0,
        wait_s: float = 0.0,
        reconnect_s: float = 2.0,
        name: str | None = None,
    ):
        options = lib.OptionsStruct(
            os.fsencode(socket) if socket else None,
            name.encode() if name else None,
            max(1, int(timeout_s * 1000)),
            int(wait_s * 1000),
            max(1, int(reconnect_s * 1000)),
        )
        self._handle = _Handle(options)
        self._library = self._handle.library
        self._lock = threading.RLock()
        self._released = (
            collections.deque()
        )  # memories to unmap, filled by finalizers of any thread
        self._returned = collections.deque()  # memories back in the pool
        self._pool: list[_Memory] = []
        self._pool_out = 0
        self._ended_leases = collections.deque()  # whose views were collected
        self._depth = 0  # calls of the library under way: 0 or 1

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Ends the connection.  Arrays that lie in shared memory stay readable."""
        with self._lock:
            if self._handle is None:
                return
            self._library.cairn_client_hang_up(self._handle.pointer)
            self._handle = None

    # ---- calls ----

    def _call(self, function: str, *arguments) -> None:
        """One blocking call of the library; raises what fits its status."""
        with self._lock:
            if self._handle is None:
                raise error_of(Status.EDISCONNECTED, "this client is closed; make another")
            self._tidy()
            self._depth += 1
            try:
                status = getattr(self._library, function)(self._handle.pointer, *arguments)
            finally:
                self._depth -= 1
            if status < 0:
                error = self._error(status)
                self._release_ended()
                raise error
            self._release_ended()

    def _release_soon(self, lease) -> None:
        """Ends a lease whose owner was collected.

        That happens in any thread, and in the middle of a call: then at its end.
        """
        self._ended_leases.append(lease)
        if self._lock.acquire(blocking=False):
            try:
                self._release_ended()
            finally:
                self._lock.release()

    def _release_ended(self) -> None:
        while self._ended_leases and self._depth == 0 and self._handle is not None:
            try:
                self._ended_leases.popleft().release()
            except (Stale, Disconnected):
                pass  # it has ended already, which is what was asked for

    def _error(self, status: int, text: str | None = None, index: int | None = None) -> Error:
        if text is None:
            text = self._library.cairn_client_error(self._handle.pointer).decode(errors="replace")
        return error_of(status, text, self._library.cairn_error_remedy(status).decode(), index)

    def _status_error(self, status: int, what: str, index: int) -> Error:
        text = self._library.cairn_error_text(status).decode()
        remedy = self._library.cairn_error_remedy(status).decode()
        return error_of(status, f"{what} {index}: {text}; {remedy}", remedy, index)

    # ---- shared memory ----

    def _create_memory(self, size_bytes: int) -> _Memory:
        arena = ctypes.c_void_p()
        self._call("cairn_client_arena_create", size_bytes, ctypes.byref(arena))
        return _Memory(
            arena.value,
            self._library.cairn_client_arena_data(arena),
            self._library.cairn_client_arena_bytes(arena),
        )

    def _tidy(self) -> None:
        """Unmaps what finalizers have let go of.

        They run in any thread, so the work is done here.
        """
        while self._returned:
            self._pool.append(self._returned.popleft())
            self._pool_out -= 1
        while sum(memory.size_bytes for memory in self._pool) > _POOL_FREE_BYTES_MAX:
            self._released.append(self._pool.pop(0))
        while self._released:
            memory = self._released.popleft()
            self._library.cairn_client_arena_destroy(self._handle.pointer, memory.arena)

    def _result_buffer(self, size_bytes: int):
        """Memory for an answer, shared while there is some;

        it returns when the last array over it goes.
        """
        with self._lock:
            if self._handle is None:
                raise error_of(Status.EDISCONNECTED, "this client is closed; make another")
            self._tidy()
            fitting = [memory for memory in self._pool if memory.size_bytes >= size_bytes]
            if fitting:
                memory = min(fitting, key=lambda one: one.size_bytes)
                self._pool.remove(memory)
            else:
                if self._pool_out + len(self._pool) >= _POOL_ARENAS_MAX:
                    if not self._pool:
                        return np.empty(size_bytes + 64, np.uint8)  # all are held: copied, then
                    self._released.append(self._pool.pop(0))
                wanted = _POOL_BYTES_MIN
                while wanted < size_bytes and wanted < _POOL_FREE_BYTES_MAX:
                    wanted *= 2
                try:
                    memory = self._create_memory(max(wanted, size_bytes))
                except (Busy, NoSpace):
                    return np.empty(size_bytes + 64, np.uint8)  # no more arenas: copied, then
            self._pool_out += 1
            return np.frombuffer(_buffer_of(self, memory, self._returned.append), np.uint8)

    def arena(self, size_bytes: int) -> Arena:
        """Memory shared with the daemon; it goes when the arena and the arrays in it have gone."""
        return Arena(self, size_bytes)

    # ---- session ----

    def trace(self, traceparent: str | None) -> None:
        """The trace that requests from now on belong to, as OpenTelemetry hands it over.

        A W3C traceparent ("00-<trace id>-<span id>-01"): the daemon's lines about slow and failed
        requests name it.  None: no trace.
        """
        text = None if traceparent is None else traceparent.encode()
        self._call("cairn_client_trace", text)

    def ping(self) -> PingInfo:
        info = lib.PingInfoStruct()
        begin = time.perf_counter()
        self._call("cairn_ping", None, ctypes.byref(info))
        return PingInfo(
            info.incarnation,
            _STATES.get(info.state, "unknown"),
            info.uptime_ms / 1000,
            time.perf_counter() - begin,
        )

    def break_even(self, bytes_per_token: float, prefill_tokens_s: float) -> BreakEven:
        """Ask before you load: is it faster than prefill?

        ``bytes_per_token``: K and V of all layers, ``config.block_bytes / config.block_tokens``.
        """
        answer = lib.BreakEvenStruct()
        self._call("cairn_break_even", bytes_per_token, prefill_tokens_s, ctypes.byref(answer))
        return BreakEven(*(getattr(answer, name) for name in BreakEven._fields))

    def stats(self) -> dict[str, float]:
        """Counters and gauges by name; those with labels as name{labels}."""
        found: dict[str, float] = {}

        def on_metric(_, name, labels, value):
            full = name.decode() + (f"{{{labels.decode()}}}" if labels else "")
            found[full] = value

        self._call("cairn_stats", None, lib.OnMetric(on_metric), None)
        return found

    def spaces(self) -> list[SpaceInfo]:
        """What the daemon stores, a space each."""
        found = []

        def on_space(_, info):
            info = info.contents
            found.append(
                SpaceInfo(
                    _config_from(info.config),
                    bytes(info.fingerprint.bytes),
                    info.blocks,
                    info.ram_bytes,
                    info.nvme_bytes,
                    info.id,
                )
            )

        self._call("cairn_list_spaces", None, lib.OnSpace(on_space), None)
        return found

    @property
    def socket(self) -> str:
        return os.fsdecode(self._library.cairn_client_socket(self._handle.pointer))

    @property
    def server(self) -> dict[str, str | int]:
        """What the daemon said of itself when the client connected."""
        info = lib.ServerInfoStruct()
        self._library.cairn_client_server(self._handle.pointer, ctypes.byref(info))
        return {
            "incarnation": info.incarnation,
            "protocol": info.protocol,
            "server": info.server.decode(),
            "isa": info.isa.decode(),
        }

    def open_space(self, config: SpaceConfig) -> Space:
        """The space of this description, made if it is new."""
        number = ctypes.c_uint32()
        self._call(
            "cairn_client_open_space", ctypes.byref(_config_to(config)), ctypes.byref(number)
        )
        return Space(self, config, number.value)

    # ---- several contexts at once ----

    def open_stored_space(self, info: SpaceInfo) -> Space:
        """Operators: a space of spaces(), whoever's it is."""
        number = ctypes.c_uint32()
        struct = lib.SpaceInfoStruct(config=_config_to(info.config), id=info.number)
        self._call("cairn_client_open_stored_space", ctypes.byref(struct), ctypes.byref(number))
        return Space(self, info.config, number.value)

    def retrieve(self, contexts, layers, q, **options) -> Selection:
        """Context.retrieve over (context, layer) pairs of one space in one request."""
        return retrieve(self, list(contexts), layers, q, attend=False, **options)

    def attend(self, contexts, layers, q, **options) -> Selection:
        return retrieve(self, list(contexts), layers, q, attend=True, **options)


def _config_to(config: SpaceConfig) -> lib.SpaceConfigStruct:
    struct = lib.SpaceConfigStruct()
    for field in ("model", "revision", "layout"):
        text = getattr(config, field).encode()
        if len(text) >= lib.NAME_BYTES:
            raise error_of(
                Status.EINVAL, f"{field}: {len(text)} bytes; at most {lib.NAME_BYTES - 1}"
            )
        setattr(struct, field, text)
    for field, number in config.numbers().items():
        if not 0 <= number < 2 ** (64 if field == "block_bytes" else 32):
            raise error_of(Status.EINVAL, f"{field}: {number} is out of range")
        setattr(struct, field, number)
    struct.shared = int(config.shared)
    struct.v_prefix = config.v_prefix
    return struct


def _config_from(struct: lib.SpaceConfigStruct) -> SpaceConfig:
    named = {"kind": KINDS, "dtype": DTYPES, "rope": ROPES, "k_codec": CODECS, "v_codec": CODECS}
    fields = {}
    for field, _ in struct._fields_:
        value = getattr(struct, field)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif field in named:
            value = {number: name for name, number in named[field].items()}[value]
        fields[field] = value
    fields["shared"] = bool(fields["shared"])
    return SpaceConfig(**fields)


from .space import Space  # noqa: E402  (they know each other)
from .context import Selection, retrieve  # noqa: E402
