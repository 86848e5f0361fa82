"""What operators ask: tenants and their quotas, legal holds, any tenant's space."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _library as lib

_KEEP = {"ram_bytes": 1, "nvme_bytes": 2, "ram_guaranteed_bytes": 4, "nvme_guaranteed_bytes": 8}
_DEFAULT = 2**32 - 1


class Quota(NamedTuple):
    """What a tenant may take: 0 is no limit, and nothing guaranteed."""

    ram_bytes: int = 0
    nvme_bytes: int = 0
    ram_guaranteed_bytes: int = 0
    nvme_guaranteed_bytes: int = 0


class Tenant(NamedTuple):
    """One tenant, or (name "default") what those without a quota of their own have."""

    name: str
    number: int | None  # a uid
    quota: Quota
    source: str  # of the quota: "set", "configuration", "default" or "none"
    ram_bytes: int
    nvme_bytes: int
    blocks: int
    evicted: int
    refused: int
    connections: int
    held: bool


class Hold(NamedTuple):
    """A legal hold: on a tenant, a space (its number), or a chain of it."""

    name: str
    note: str
    tenant: str | None
    space: int | None
    key: bytes | None
    since_s: float  # since 1970
    blocks: int


def _quota_from(struct: lib.QuotaStruct) -> Quota:
    return Quota(*(getattr(struct, field) for field in Quota._fields))


class Operating:
    """The part of a Client that operators use; tenants() and spaces() answer anybody for itself."""

    def tenants(self) -> dict[str, Tenant]:
        """Tenants by name: an operator's call has all of them, another's its own; and "default"."""
        found: dict[str, Tenant] = {}

        def on_tenant(_, info):
            info = info.contents
            name = info.name.decode(errors="replace")
            found[name] = Tenant(
                name,
                None if info.tenant == _DEFAULT else info.tenant,
                _quota_from(info.quota),
                info.source.decode(),
                info.ram_bytes,
                info.nvme_bytes,
                info.blocks,
                info.evicted,
                info.refused,
                info.connections,
                info.held,
            )

        self._call("cairn_list_tenants", None, lib.OnTenant(on_tenant), None)
        return found

    def set_quota(self, tenant: str | int, **numbers: int) -> Quota:
        """Sets what is given of ram_bytes, nvme_bytes, ram_guaranteed_bytes, nvme_guaranteed_bytes.

        The others stay.  tenant: a name, a uid, or "default".  Durable, and in force at once.
        """
        unknown = set(numbers) - set(_KEEP)
        if unknown:
            raise TypeError(f"set_quota: {', '.join(sorted(unknown))}: one of {', '.join(_KEEP)}")
        keep = sum(bit for name, bit in _KEEP.items() if name not in numbers)
        limits, result = lib.QuotaStruct(**numbers), lib.QuotaStruct()
        self._call(
            "cairn_set_quota",
            None,
            str(tenant).encode(),
            ctypes.byref(limits),
            keep,
            ctypes.byref(result),
        )
        return _quota_from(result)

    def reset_quota(self, tenant: str | int) -> Quota:
        """Back to what the configuration says."""
        result = lib.QuotaStruct()
        self._call("cairn_reset_quota", None, str(tenant).encode(), ctypes.byref(result))
        return _quota_from(result)

    def holds(self) -> dict[str, Hold]:
        """Legal holds by name."""
        found: dict[str, Hold] = {}

        def on_hold(_, info):
            info = info.contents
            tenant = info.tenant.decode(errors="replace")
            hold = Hold(
                info.name.decode(errors="replace"),
                info.note.decode(errors="replace"),
                tenant or None,
                info.space or None,
                bytes(info.key.contents.bytes) if info.key else None,
                info.since_ms / 1000,
                info.blocks,
            )
            found[hold.name] = hold

        self._call("cairn_list_holds", None, lib.OnHold(on_hold), None)
        return found

    def set_hold(
        self,
        name: str,
        *,
        tenant: str | int | None = None,
        space: int | None = None,
        key: bytes | None = None,
        note: str = "",
    ) -> int:
        """Keeps a tenant's blocks, a space, or the chain up to `key` of a space; returns how many.

        What is under hold is not evicted, does not expire, and is not deleted until lift_hold.
        space: its number, as spaces() has it.
        """
        args = lib.HoldArgsStruct(
            name.encode(),
            note.encode(),
            None if tenant is None else str(tenant).encode(),
            space or 0,
            None if key is None else ctypes.pointer(lib.KeyStruct.from_buffer_copy(key)),
        )
        blocks = ctypes.c_uint64()
        self._call("cairn_set_hold", None, ctypes.byref(args), ctypes.byref(blocks))
        return blocks.value

    def lift_hold(self, name: str) -> int:
        """Ends a legal hold; returns how many blocks it kept."""
        blocks = ctypes.c_uint64()
        self._call("cairn_lift_hold", None, name.encode(), ctypes.byref(blocks))
        return blocks.value
