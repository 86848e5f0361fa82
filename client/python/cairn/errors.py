"""Status codes, and one exception class for each of those that a worker may want to catch."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    OK = 0
    EINVAL = -1
    EPROTO = -2
    EVERSION = -3
    EUNSUPPORTED = -4
    ENOENT = -5
    EEXIST = -6
    ECORRUPT = -7
    ENOSPC = -8
    ENOMEM = -9
    EBUSY = -10
    EAGAIN = -11
    EDEADLINE = -12
    ECANCELLED = -13
    EIO = -14
    EPERM = -15
    EMISMATCH = -16
    ERANGE = -17
    ESTALE = -18
    EHELD = -19
    EDISCONNECTED = -20
    EINTERNAL = -21


class Error(Exception):
    """A request that failed. `status` is the code; the text names cause and remedy."""

    def __init__(self, status: int, text: str, remedy: str = "", index: int | None = None):
        super().__init__(text)
        self.status = Status(status) if status in Status._value2member_map_ else status
        self.remedy = remedy
        self.index = index  # of the key that was to blame, where there is one


class Invalid(Error, ValueError):
    """A field is out of range or contradicts another."""


class NotFound(Error, LookupError):
    """A miss: the block, space, context or arena is not there."""


class Corrupt(NotFound):
    """Stored bytes failed their checksum: a miss that may be put again."""


class Unsupported(Error):
    """Known, but not built or not enabled."""


class NoSpace(Error):
    """No room in the tier, the quota or the disk."""


class Busy(Error):
    """Too many requests, leases, arenas or contexts: wait and retry."""


class Deadline(Error, TimeoutError):
    """The request's deadline passed."""


class Mismatch(Error):
    """The space differs from the one named."""


class Stale(Error):
    """A lease, arena or context that is no longer valid: look up or open again."""


class Disconnected(Error, ConnectionError):
    """No daemon at the other end."""


_CLASSES = {
    Status.EINVAL: Invalid,
    Status.ERANGE: Invalid,
    Status.ENOENT: NotFound,
    Status.ECORRUPT: Corrupt,
    Status.EUNSUPPORTED: Unsupported,
    Status.ENOSPC: NoSpace,
    Status.ENOMEM: NoSpace,
    Status.EBUSY: Busy,
    Status.EAGAIN: Busy,
    Status.EDEADLINE: Deadline,
    Status.EMISMATCH: Mismatch,
    Status.ESTALE: Stale,
    Status.EDISCONNECTED: Disconnected,
}


def error_of(status: int, text: str, remedy: str = "", index: int | None = None) -> Error:
    """The exception that fits a negative status."""
    return _CLASSES.get(status, Error)(status, text, remedy, index)
