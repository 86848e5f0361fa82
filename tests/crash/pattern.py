"""What the crash tests store: bytes that name their key, version and offset, and the spaces they lie in."""

import numpy as np

import cairn

UNIT_BYTES = 16  # four words: two of the key, the version, the offset in units


def spaces():
    """The spaces by name: opaque blocks, searchable ones (whose words are whole floats), and shared opaque ones."""
    return {
        "opaque": cairn.SpaceConfig.opaque("crash opaque", 16384, 16),
        "attention": cairn.SpaceConfig(
            model="crash attention", layers=2, kv_heads=1, k_dim=16, v_dim=16, dtype="f32", block_tokens=16),
        "shared": cairn.SpaceConfig.opaque("crash shared", 8192, 16),
    }


def block(space, key, version):
    """A block as flat bytes. Words stay below 2^24, so that as floats they are exact."""
    count = space.block_bytes // UNIT_BYTES
    words = np.empty((count, 4), np.uint32)
    words[:, 0] = int.from_bytes(key[:3], "little")
    words[:, 1] = int.from_bytes(key[3:6], "little")
    words[:, 2] = version
    words[:, 3] = np.arange(count)
    if space.config.kind == "attention":
        words = words.astype(np.float32)
    return words.reshape(-1).view(np.uint8)


def version_of(space, key, data):
    """The version whose exact bytes these are, or None if they are no block of this key."""
    data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    words = data[:UNIT_BYTES].view(np.float32 if space.config.kind == "attention" else np.uint32)
    if not 0 <= words[2] < 1 << 24:
        return None
    version = int(words[2])
    return version if np.array_equal(data, block(space, key, version)) else None


def describe(space, data):
    """What is in bytes that are wrong, for a person."""
    words = np.ascontiguousarray(data).reshape(-1).view(np.float32 if space.config.kind == "attention" else np.uint32)
    words = words.reshape(-1, 4)
    return (f"keys {np.unique(words[:, :2], axis=0)[:4].tolist()}, versions {np.unique(words[:, 2])[:8].tolist()}, "
            f"first wrong offset {int(np.argmax(words[:, 3] != np.arange(len(words)))) * UNIT_BYTES}")
