"""A space of a client: keys, blocks, and contexts over them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from . import _library as lib
from . import views
from .arrays import NUMPY, flat, pack_rows
from .config import SpaceConfig
from .errors import Disconnected, Stale, Status, error_of

KEY_BYTES = 32
_ACKS = {"memory": 0, "disk": 1}


def join_keys(keys: Sequence[bytes]) -> bytes:
    joined = b"".join(keys)
    if len(joined) != KEY_BYTES * len(keys):
        raise error_of(Status.EINVAL, f"keys have {KEY_BYTES} bytes each")
    return joined


def _pointers(arrays) -> ctypes.Array:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


class Lease:
    """A hold on the longest stored prefix of a list of keys.

    `found` keys of them are there, and stay until release, the deadline, or the connection's end.
    As a context manager it releases itself; `n, lease = space.lookup(keys)` works too.
    """

    def __init__(self, client, found: int, struct: lib.LeaseStruct):
        self._client, self.found, self._struct = client, found, struct

    def __iter__(self):
        return iter((self.found, self))

    def __len__(self) -> int:
        return self.found

    def __bool__(self) -> bool:
        return self.found > 0

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_):
        try:
            self.release()
        except (Stale, Disconnected):
            pass  # it has ended already, which is what was asked for

    def release(self) -> None:
        """Ends the hold now.  A second time does nothing."""
        struct, self._struct = self._struct, lib.LeaseStruct()
        if struct.id:
            self._client._call("cairn_release", None, ctypes.byref(struct))


class Space:
    """Blocks of one KV cache.  Made by Client.open_space; valid across reconnects."""

    def __init__(self, client, config: SpaceConfig, number: int):
        self.client, self.config, self._number = client, config, number
        self.fingerprint = config.fingerprint()
        self.dtype = NUMPY[config.dtype]
        self.block_bytes = config.raw_block_bytes

    # ---- shapes ----

    def block_shape(self, layers: int | None = None) -> tuple[int, ...]:
        """Shape of a block (or of some layers of it) in `self.dtype`.

        [layers][kv_heads][2][tokens][dim] when K and V have one dim; else K and V of a head are one
        row of elements.
        """
        c = self.config
        if c.kind == "opaque":
            return (c.block_bytes,)
        layers = c.layers if layers is None else layers
        if c.k_dim == c.v_dim:
            return (layers, c.kv_heads, 2, c.block_tokens, c.k_dim)
        return (layers, c.kv_heads, c.block_tokens * (c.k_dim + c.v_dim))

    def pack_block(self, k, v, out: np.ndarray | None = None) -> np.ndarray:
        """A block of k, v [layers][kv_heads][tokens][dim], in `out` (an array in an arena, say) or
        a new array."""
        c = self.config
        if np.shape(k)[2] != c.block_tokens:
            raise error_of(
                Status.EINVAL, f"a block has {c.block_tokens} tokens, k has {np.shape(k)[2]}"
            )
        if out is None:
            out = np.empty(self.block_shape(), self.dtype)
        pack_rows(k, v, c.layers, c.kv_heads, c.k_dim, c.v_dim, c.dtype, out)
        return out

    def unpack_block(self, block) -> tuple[np.ndarray, np.ndarray]:
        """(k, v), each [layers][kv_heads][tokens][dim]:

        views into `block`, which may hold a range of layers.
        """
        c = self.config
        data = block if isinstance(block, np.ndarray) else np.frombuffer(block, np.uint8)
        data = data.reshape(-1).view(self.dtype)
        width = c.block_tokens * (c.k_dim + c.v_dim)
        rows = data.reshape(-1, c.kv_heads, width)
        split, heads = c.block_tokens * c.k_dim, rows.shape[:2]
        return (
            rows[:, :, :split].reshape(*heads, c.block_tokens, c.k_dim),
            rows[:, :, split:].reshape(*heads, c.block_tokens, c.v_dim),
        )

    def new_blocks(self, count: int) -> np.ndarray:
        """[count][block] in memory shared with the daemon: fill it, then put it without a copy."""
        arena = self.client.arena(max(1, count * self.block_bytes))
        return arena.array((count, *self.block_shape()), self.dtype, 0)

    # ---- keys ----

    def chain_keys(
        self, tokens, *, salt: bytes = b"", adapter: bytes = b"", parent: bytes | None = None
    ) -> list[bytes]:
        """Keys of all full blocks of `tokens` (ids up to 2**32 - 1), each the child of the one
        before."""
        ids = np.asarray(tokens)
        if ids.size and (ids.min() < 0 or ids.max() > 0xFFFFFFFF):
            raise error_of(Status.EINVAL, "token ids are 0 to 4294967295")
        ids = np.ascontiguousarray(ids, np.uint32)
        count = ids.size // self.config.block_tokens
        keys = ctypes.create_string_buffer(max(1, count * KEY_BYTES))
        self.client._library.cairn_chain_keys(
            self.fingerprint,
            self.config.block_tokens,
            salt or None,
            len(salt),
            adapter or None,
            len(adapter),
            parent,
            ids.ctypes.data,
            ids.size,
            keys,
        )
        return [keys.raw[i * KEY_BYTES : (i + 1) * KEY_BYTES] for i in range(count)]

    # ---- blocks ----

    def lookup(self, keys: Sequence[bytes], *, lease_s: float = 30.0) -> Lease:
        """The longest stored prefix of `keys`, held for `lease_s` seconds (0: not held)."""
        found, lease = ctypes.c_size_t(), lib.LeaseStruct()
        self.client._call(
            "cairn_lookup",
            None,
            self._number,
            join_keys(keys),
            len(keys),
            int(lease_s * 1000),
            ctypes.byref(found),
            ctypes.byref(lease) if lease_s > 0 else None,
        )
        return Lease(self.client, found.value, lease)

    def try_put(
        self,
        keys: Sequence[bytes],
        blocks,
        *,
        parent: bytes | None = None,
        parents: Sequence[bytes | None] | None = None,
        ack: str = "memory",
        recompute_us: int = 0,
        ttl_s: float = 0,
    ) -> list[Status]:
        """Stores blocks; one status a key: OK, EEXIST (it was there: fine), or why not.

        EEXIST says that the block is visible; if it was put with ack="memory" a moment ago, it may
        still be on its way to disk, whatever this call's `ack`.

        blocks: one array [n][block], or a list of arrays or buffers.  Each key's parent is the key
        before it, the first one's is `parent` (None: it begins a chain); or name all of them by
        `parents`.  ack="disk" returns once the blocks would survive a crash.
        """
        if ack not in _ACKS:
            raise error_of(Status.EINVAL, f"ack: {ack!r} is not one of memory, disk")
        args = lib.PutArgsStruct(
            space=self._number,
            keys=join_keys(keys),
            count=len(keys),
            parent=parent,
            ack=_ACKS[ack],
            recompute_us=recompute_us,
            ttl_ms=int(ttl_s * 1000),
        )
        if parents is not None:
            args.parents = join_keys([one or bytes(KEY_BYTES) for one in parents])
        if isinstance(blocks, np.ndarray):
            held = [flat(blocks, len(keys) * self.block_bytes, f"{len(keys)} blocks")]
            args.blocks = held[0].ctypes.data
        else:
            if len(blocks) != len(keys):
                raise error_of(Status.EINVAL, f"{len(blocks)} blocks for {len(keys)} keys")
            held = [flat(block, self.block_bytes, "a block") for block in blocks]
            args.blocks_at = _pointers(held)
        statuses = (ctypes.c_int * max(1, len(keys)))()
        if keys:
            self.client._call("cairn_put", None, ctypes.byref(args), statuses)
        return [Status(status) for status in statuses[: len(keys)]]

    def put(self, keys: Sequence[bytes], blocks, **options) -> list[Status]:
        """try_put, but a key that could not be stored raises."""
        statuses = self.try_put(keys, blocks, **options)
        for index, status in enumerate(statuses):
            if status not in (Status.OK, Status.EEXIST):
                raise self.client._status_error(status, "put: key", index)
        return statuses

    def try_get(
        self,
        keys: Sequence[bytes],
        *,
        layers: tuple[int, int] | None = None,
        lease: Lease | None = None,
        out=None,
    ) -> tuple[np.ndarray, list[Status]]:
        """(blocks, statuses): blocks [n][block] (of layers [a, b) alone, if given), in `out` or new
        memory.

        What a key without OK would have filled is not to be read.  New memory is shared with the
        daemon: no copy.
        """
        first, end = layers or (0, self.config.layers)
        if layers and not 0 <= first < end <= self.config.layers:
            raise error_of(
                Status.EINVAL, f"layers {layers}: a range inside 0 to {self.config.layers}"
            )
        piece = (end - first) * self.config.layer_bytes if layers else self.block_bytes
        size = len(keys) * piece
        if out is None:
            data = self.client._result_buffer(size)[:size] if size else np.empty(0, np.uint8)
        else:
            data = _writable(out, size)
        args = lib.GetArgsStruct(
            space=self._number,
            keys=join_keys(keys),
            count=len(keys),
            layer_first=first,
            layer_count=end - first if layers else 0,
            blocks=data.ctypes.data,
        )
        if lease is not None:
            args.lease = lease._struct
        statuses = (ctypes.c_int * max(1, len(keys)))()
        if keys:
            self.client._call("cairn_get", None, ctypes.byref(args), statuses)
        shape = (
            self.block_shape(end - first) if self.config.kind == "attention" else self.block_shape()
        )
        blocks = data.view(self.dtype).reshape(len(keys), *shape) if out is None else out
        return blocks, [Status(status) for status in statuses[: len(keys)]]

    def get(self, keys: Sequence[bytes], **options) -> np.ndarray:
        """try_get, but a key that is not there raises NotFound; its `index` says which."""
        blocks, statuses = self.try_get(keys, **options)
        for index, status in enumerate(statuses):
            if status != Status.OK:
                raise self.client._status_error(status, "get: key", index)
        return blocks

    def try_get_views(
        self,
        keys: Sequence[bytes],
        *,
        layers: tuple[int, int] | None = None,
        lease: Lease | None = None,
        lease_s: float = 30.0,
    ) -> views.Views:
        """Views of blocks (of layers [a, b) alone, if given): read-only arrays over the daemon's own
        RAM tier, no copy; None and a status for a key that cannot be viewed.

        They last as long as the lease: `lease`, or one of `lease_s` seconds that ends with them.
        The daemon must serve views (`views = yes`).  Use it as a context manager:

            with space.get_views(keys) as views:
                use(views[0])
                assert views.valid()
        """
        return views.take(self, keys, join_keys(keys), layers, lease, lease_s)

    def get_views(self, keys: Sequence[bytes], **options) -> views.Views:
        """try_get_views, but a key without a view raises; its `index` says which."""
        found = self.try_get_views(keys, **options)
        for index, status in enumerate(found.statuses):
            if status != Status.OK:
                found.close()
                raise self.client._status_error(status, "views: key", index)
        return found

    def delete(self, keys: Sequence[bytes], *, purge: bool = False) -> list[Status]:
        """Removes blocks; one status a key (ENOENT: it was not there, EHELD: it is pinned or held).

        purge: as purge() does, without saying what is pending.
        """
        statuses = (ctypes.c_int * max(1, len(keys)))()
        self.client._call(
            "cairn_delete", None, self._number, join_keys(keys), len(keys), purge, statuses
        )
        return [Status(status) for status in statuses[: len(keys)]]

    def purge(self, keys: Sequence[bytes]) -> tuple[list[Status], int]:
        """Removes blocks and overwrites their bytes in every tier, old copies too; a status a key.

        This tenant's own pins do not count, and end with the block.  And how many somebody still
        reads: gone for all others, and overwritten when the last of these lets go.
        """
        statuses = (ctypes.c_int * max(1, len(keys)))()
        pending = ctypes.c_uint32()
        self.client._call(
            "cairn_purge",
            None,
            self._number,
            join_keys(keys),
            len(keys),
            statuses,
            ctypes.byref(pending),
        )
        return [Status(status) for status in statuses[: len(keys)]], pending.value

    def pin(
        self,
        keys: Sequence[bytes],
        *,
        owner: str = "",
        hard: bool = False,
        for_s: float | None = None,
    ) -> list[Status]:
        """Keeps blocks in a local tier, and from being deleted; one status a key.

        Until unpinned by the same owner, for for_s seconds at most. hard: beyond this connection.
        """
        joined, name = join_keys(keys), owner.encode()
        args = lib.PinArgsStruct(
            self._number, joined, len(keys), name, max(1, int(for_s * 1000)) if for_s else 0, hard
        )
        statuses = (ctypes.c_int * max(1, len(keys)))()
        self.client._call("cairn_pin", None, ctypes.byref(args), statuses)
        return [Status(status) for status in statuses[: len(keys)]]

    def unpin(self, keys: Sequence[bytes], *, owner: str = "") -> list[Status]:
        """Ends pins of this owner; one status a key (ENOENT: there was none)."""
        statuses = (ctypes.c_int * max(1, len(keys)))()
        self.client._call(
            "cairn_unpin",
            None,
            self._number,
            join_keys(keys),
            len(keys),
            owner.encode(),
            statuses,
        )
        return [Status(status) for status in statuses[: len(keys)]]

    def prefetch(self, keys: Sequence[bytes]) -> int:
        """Brings blocks into RAM, as many as it has room for; returns how many are there now."""
        loaded = ctypes.c_size_t()
        self.client._call(
            "cairn_prefetch", None, self._number, join_keys(keys), len(keys), ctypes.byref(loaded)
        )
        return loaded.value

    # ---- contexts ----

    def open_context(self, keys: Sequence[bytes] = ()) -> Context:
        """The chain of `keys`, all of which must be stored, opened for retrieval;

        none: an empty context.
        """
        struct = lib.ContextStruct()
        self.client._call(
            "cairn_open_context",
            None,
            self._number,
            join_keys(keys),
            len(keys),
            ctypes.byref(struct),
        )
        return Context(self, struct)


def _writable(out, size_bytes: int) -> np.ndarray:
    """`out` as bytes, exactly `size_bytes`, contiguous and writable:

    the caller's own memory, never a copy.
    """
    array = out if isinstance(out, np.ndarray) else np.frombuffer(out, np.uint8)
    if array.nbytes != size_bytes:
        raise error_of(Status.EINVAL, f"out has {array.nbytes} bytes, not {size_bytes}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise error_of(Status.EINVAL, "out must be contiguous and writable")
    return array.reshape(-1).view(np.uint8)


from .context import Context  # noqa: E402  (they know each other)
