"""The description of a KV cache."""

from __future__ import annotations

import dataclasses

from . import keys
from .errors import Status, error_of

KINDS = {"attention": 0, "opaque": 1}
DTYPES = {"none": 0, "f32": 1, "f16": 2, "bf16": 3, "f8e4m3": 4, "f8e5m2": 5}
DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1}
CODECS = {"raw": 0, "q8": 1, "q4": 2, "none": 3}
ROPES = {"applied": 0, "not-applied": 1, "none": 2}
RUN_TOKENS = 128  # of the default


def number_of(names: dict[str, int], name: str, field: str) -> int:
    try:
        return names[name]
    except KeyError:
        raise error_of(
            Status.EINVAL, f"{field}: {name!r} is not one of {', '.join(names)}"
        ) from None


@dataclasses.dataclass(frozen=True)
class SpaceConfig:
    """The immutable description of a KV cache.  Every field is part of every key.

    None takes the default that fits the other fields: runs of 128 tokens (or a block, if that is
    shorter), 8 outlier channels, value codes of 2 bits; and none of these without landmarks.
    """

    model: str
    layers: int = 0
    kv_heads: int = 0
    k_dim: int = 0
    v_dim: int = 0
    dtype: str = "f16"
    block_tokens: int = 256
    revision: str = ""
    layout: str = "lhkv"
    cache_group: int = 0
    tp_rank: int = 0
    tp_size: int = 1
    rope: str = "applied"
    landmark_bits: int = 2
    outliers: int | None = None
    run_tokens: int | None = None
    value_bits: int | None = None
    k_codec: str = "q8"
    v_codec: str = "q8"
    kind: str = "attention"
    block_bytes: int = 0
    shared: bool = False
    v_prefix: int = 0  # latent attention: values are the first v_prefix dims of K; v_dim is 0 then

    @classmethod
    def opaque(
        cls, model: str, block_bytes: int, block_tokens: int, *, layout: str = "", **fields
    ) -> SpaceConfig:
        """A space whose blocks are just bytes: stored by prefix, not searched."""
        return cls(
            model=model,
            kind="opaque",
            block_bytes=block_bytes,
            block_tokens=block_tokens,
            layout=layout,
            dtype="none",
            landmark_bits=0,
            k_codec="raw",
            v_codec="raw",
            **fields,
        )

    def __post_init__(self):
        coded = self.landmark_bits > 0
        defaults = {
            "outliers": min(8, max(self.k_dim - 1, 0)) if coded and self.landmark_bits < 8 else 0,
            "run_tokens": min(RUN_TOKENS, self.block_tokens) if coded else 0,
            "value_bits": 2 if coded and (self.v_dim > 0 or self.v_prefix > 0) else 0,
        }
        for field, value in defaults.items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
        for names, fields in (
            (KINDS, ["kind"]),
            (DTYPES, ["dtype"]),
            (ROPES, ["rope"]),
            (CODECS, ["k_codec", "v_codec"]),
        ):
            for field in fields:
                number_of(names, getattr(self, field), field)

    def numbers(self) -> dict[str, int]:
        """Every number of the description, names replaced by the numbers of the wire."""
        named = {
            "kind": KINDS,
            "dtype": DTYPES,
            "rope": ROPES,
            "k_codec": CODECS,
            "v_codec": CODECS,
        }
        return {
            field: named[field][getattr(self, field)] if field in named else getattr(self, field)
            for field in keys.SPACE_NUMBERS
        }

    def fingerprint(self) -> bytes:
        return keys.space_fingerprint(
            self.model,
            self.revision,
            self.layout,
            list(self.numbers().values()),
            shared=self.shared,
            v_prefix=self.v_prefix,
        )

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES.get(self.dtype, 1)

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer of a raw block."""
        if self.kind == "opaque":
            return self.block_bytes
        return self.kv_heads * self.block_tokens * (self.k_dim + self.v_dim) * self.item_bytes

    @property
    def raw_block_bytes(self) -> int:
        return self.block_bytes if self.kind == "opaque" else self.layers * self.layer_bytes
