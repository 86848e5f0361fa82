"""cairn: a KV cache that outlives its worker, and finds the tokens that matter.

    with cairn.Client() as client:
        config = cairn.SpaceConfig(model="m", layers=30, kv_heads=3, k_dim=64, v_dim=64)
        space = client.open_space(config)
        keys = space.chain_keys(tokens)
        space.put(keys, blocks)
        with space.lookup(keys) as lease:
            blocks = space.get(keys[:lease.found], lease=lease)

See Client, Space, Context; cairn.keys works without the library.
"""

from . import keys
from .arrays import decode, encode
from .client import Arena, BreakEven, Client, PingInfo, SpaceInfo
from .config import SpaceConfig
from .context import Context, Selection
from .errors import (
    Busy,
    Corrupt,
    Deadline,
    Disconnected,
    Error,
    Invalid,
    Mismatch,
    NoSpace,
    NotFound,
    Stale,
    Status,
    Unsupported,
)
from .landmarks import Landmarks
from .operators import Hold, Quota, Tenant
from .retention import Kept, Plan, save_proxies
from .space import Lease, Space
from .views import Views

__version__ = "0.1.0"
__all__ = [
    "BreakEven",
    "Arena",
    "Busy",
    "Client",
    "Context",
    "Corrupt",
    "Deadline",
    "Disconnected",
    "Error",
    "Hold",
    "Invalid",
    "Kept",
    "Landmarks",
    "Lease",
    "Mismatch",
    "NoSpace",
    "NotFound",
    "PingInfo",
    "Plan",
    "Quota",
    "Selection",
    "Space",
    "SpaceConfig",
    "SpaceInfo",
    "Stale",
    "Status",
    "Tenant",
    "Unsupported",
    "Views",
    "decode",
    "encode",
    "keys",
    "save_proxies",
]
