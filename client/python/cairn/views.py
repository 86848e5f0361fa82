"""Views: leased blocks read where they lie, in the daemon's RAM tier."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from . import _library as lib
from .errors import Disconnected, Stale, Status, error_of

KEY_BYTES = 32


def _buffer_of(library, view: lib.ViewStruct) -> memoryview:
    """Read-only memory over a view; the mapping stays for as long as somebody has it."""
    buffer = (ctypes.c_uint8 * view.size_bytes).from_address(view.bytes)
    weakref.finalize(buffer, library.cairn_view_release, ctypes.byref(view)).atexit = False
    return memoryview(buffer).cast("B").toreadonly()


class Views(Sequence):
    """Blocks (or some layers of each) as read-only arrays over the daemon's own memory: no copy.

    A sequence with one array a key; None for a key whose status is not OK. The daemon keeps the
    blocks in RAM until the lease ends: with close, with this object, by its deadline, or with the
    connection. Arrays stay readable after that, but may then show other bytes at any moment: read,
    then ask `valid`.
    """

    def __init__(self, space, keys: Sequence[bytes], joined: bytes, first: int, count: int, lease):
        client = space.client
        views = (lib.ViewStruct * max(1, len(keys)))()
        statuses = (ctypes.c_int * max(1, len(keys)))()
        args = lib.GetArgsStruct(
            space=space._number, keys=joined, count=len(keys), layer_first=first, layer_count=count
        )
        args.lease = lease._struct
        self._library = client._library
        self._views: list[lib.ViewStruct | None] = []
        self._arrays: list[np.ndarray | None] = []
        self._end = None
        self._closed = False
        if keys:
            client._call("cairn_get_views", None, ctypes.byref(args), views, statuses)
        self.statuses = [Status(status) for status in statuses[: len(keys)]]
        shape = space.block_shape(count or None)
        for one, status in zip(views, self.statuses, strict=False):
            view = lib.ViewStruct.from_buffer_copy(one) if status == Status.OK else None
            self._views.append(view)
            memory = _buffer_of(self._library, view) if view else None
            self._arrays.append(
                np.frombuffer(memory, space.dtype).reshape(shape) if view else None
            )

    def _own(self, client, lease) -> None:
        """The lease ends with this object."""
        self._end = weakref.finalize(self, client._release_soon, lease)
        self._end.atexit = False

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index):
        return self._arrays[index]

    def __iter__(self) -> Iterator[np.ndarray | None]:
        return iter(self._arrays)

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_):
        self.close()

    def buffer(self, index: int) -> memoryview:
        """The bytes of one view, read-only."""
        array = self._arrays[index]
        if array is None:
            raise error_of(Status.ENOENT, f"view {index}: {self.statuses[index].name}")
        return memoryview(array.reshape(-1).view(np.uint8))

    def valid(self, index: int | None = None) -> bool:
        """True: what was read from this view (None: from all of them) so far was the block."""
        if self._closed:
            return False
        if index is not None:
            view = self._views[index]
            return view is not None and self._library.cairn_view_valid(ctypes.byref(view))
        return all(
            self._library.cairn_view_valid(ctypes.byref(view)) for view in self._views if view
        )

    def close(self) -> None:
        """Ends the lease, if it was taken for these views.  A second time does nothing."""
        self._closed = True
        self._arrays = [None] * len(self._arrays)
        if self._end is not None:
            self._end()


def take(space, keys: Sequence[bytes], joined: bytes, layers, lease, lease_s: float) -> Views:
    """The views of `keys`, by `lease` or by one of their own."""
    first, end = layers or (0, space.config.layers)
    if layers and not 0 <= first < end <= space.config.layers:
        raise error_of(
            Status.EINVAL, f"layers {layers}: a range inside 0 to {space.config.layers}"
        )
    count = end - first if layers else 0
    if lease is not None:
        return Views(space, keys, joined, first, count, lease)
    if lease_s <= 0:
        raise error_of(Status.EINVAL, f"lease_s: {lease_s}: a view needs a lease of some time")
    own = space.lookup(keys, lease_s=lease_s)
    try:
        views = Views(space, keys[: own.found], joined[: own.found * KEY_BYTES], first, count, own)
    except BaseException:
        try:
            own.release()
        except (Stale, Disconnected):
            pass  # it has ended already
        raise
    missing = len(keys) - own.found
    views._arrays += [None] * missing
    views._views += [None] * missing
    views.statuses += [Status.ENOENT] * missing
    views._own(space.client, own)
    return views
