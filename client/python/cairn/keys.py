"""Keys of blocks and fingerprints of spaces in pure Python.

BLAKE2b-256 over tagged, length-prefixed fields.  The bytes are those of libcairn (proto/README.md);
tests/e2e/golden_keys.json holds both to them.  Use it where the library is not at hand, for example
in a router that only needs to know which prompt has which chain.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

KEY_BYTES = 32

# Numbers of a space in the order of their tags, which begin at 16.
SPACE_NUMBERS = (
    "kind",
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
    "block_bytes",
)


def _field(hash_, tag: int, value: bytes) -> None:
    hash_.update(struct.pack("<BQ", tag, len(value)))
    hash_.update(value)


def _begin(domain: bytes):
    hash_ = hashlib.blake2b(digest_size=KEY_BYTES)
    _field(hash_, 1, domain)
    return hash_


def _token_bytes(tokens: Iterable[int]) -> bytes:
    numbers = [int(token) for token in tokens]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def space_fingerprint(
    model: str,
    revision: str,
    layout: str,
    numbers: Sequence[int],
    *,
    shared: bool = False,
    v_prefix: int = 0,
) -> bytes:
    """The fingerprint of a space: its texts, and its numbers in the order of SPACE_NUMBERS."""
    hash_ = _begin(b"cairn space 1")
    for tag, text in ((2, model), (3, revision), (4, layout)):
        _field(hash_, tag, text.encode())
    for i, number in enumerate(numbers):
        _field(hash_, 16 + i, struct.pack("<Q", number))
    if shared:
        _field(hash_, 34, struct.pack("<Q", 1))
    if v_prefix:
        _field(hash_, 35, struct.pack("<Q", v_prefix))
    return hash_.digest()


def block_key(
    fingerprint: bytes,
    parent: bytes | None,
    tokens: Iterable[int],
    *,
    salt: bytes = b"",
    adapter: bytes = b"",
) -> bytes:
    """The key of one block of tokens after `parent` (None: it begins a chain)."""
    hash_ = _begin(b"cairn block key 1")
    _field(hash_, 2, fingerprint)
    _field(hash_, 3, parent or b"")
    _field(hash_, 4, _token_bytes(tokens))
    _field(hash_, 5, salt)
    _field(hash_, 6, adapter)
    return hash_.digest()


def chain_keys(
    fingerprint: bytes,
    block_tokens: int,
    tokens: Sequence[int],
    *,
    salt: bytes = b"",
    adapter: bytes = b"",
    parent: bytes | None = None,
) -> list[bytes]:
    """Keys of all full blocks of `tokens`, each the child of the one before."""
    keys = []
    for first in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = block_key(
            fingerprint, parent, tokens[first : first + block_tokens], salt=salt, adapter=adapter
        )
        keys.append(parent)
    return keys
