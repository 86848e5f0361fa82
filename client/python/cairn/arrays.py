"""Arrays at the border: dtypes of the wire in NumPy, addresses, packing of blocks."""

from __future__ import annotations

import numpy as np

from .errors import Status, error_of

# NumPy has no bf16 and no 8-bit floats: these travel as their bits.
NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f8e4m3": np.dtype(np.uint8),
    "f8e5m2": np.dtype(np.uint8),
    "none": np.dtype(np.uint8),
}


def encode(array, dtype: str) -> np.ndarray:
    """`array` as the elements of `dtype`:

    converted from float where NumPy can, bits taken as they are.
    """
    array = np.asarray(array)
    wanted = NUMPY[dtype]
    if array.dtype == wanted:
        return array
    if array.dtype.kind == "f" and wanted.kind == "f":
        return array.astype(wanted)
    if dtype == "bf16" and array.dtype.kind == "f":
        return _bf16_bits(array)
    raise error_of(
        Status.EINVAL,
        f"an array of {array.dtype} where {dtype} is stored; pass its bits as {wanted}",
    )


def _bf16_bits(array) -> np.ndarray:
    """Rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """float32 of rows as they came: for dtypes that NumPy can read, and bf16."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if NUMPY[dtype].kind != "f":
        raise error_of(Status.EUNSUPPORTED, f"{dtype} has no NumPy type; decode its bits yourself")
    return array.astype(np.float32, copy=False)


def flat(value, size_bytes: int, what: str) -> np.ndarray:
    """A contiguous array over `value` (array or anything with a buffer) of exactly `size_bytes`."""
    array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    array = np.ascontiguousarray(array)
    if array.nbytes != size_bytes:
        raise error_of(Status.EINVAL, f"{what}: {array.nbytes} bytes, not {size_bytes}")
    return array


def pack_rows(
    k,
    v,
    layers: int,
    kv_heads: int,
    k_dim: int,
    v_dim: int,
    dtype: str,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """k, v [layers][kv_heads][tokens][dim] -> [layers][kv_heads][tokens * k_dim + tokens * v_dim].
    k, v [layers][kv_heads][tokens][dim] -> [layers][kv_heads][tokens * k_dim + tokens * v_dim]."""
    k = encode(k, dtype)
    tokens = k.shape[2] if k.ndim == 4 else -1
    if k.shape != (layers, kv_heads, tokens, k_dim):
        raise error_of(
            Status.EINVAL,
            f"k is {k.shape}; it must be [layers {layers}][kv_heads "
            f"{kv_heads}][tokens][k_dim {k_dim}]",
        )
    split, width = tokens * k_dim, tokens * (k_dim + v_dim)
    if out is None:
        out = np.empty((layers, kv_heads, width), NUMPY[dtype])
    rows = out.reshape(layers, kv_heads, width)
    rows[:, :, :split] = k.reshape(layers, kv_heads, split)
    if v_dim:
        v = encode(v, dtype)
        if v.shape != (layers, kv_heads, tokens, v_dim):
            raise error_of(
                Status.EINVAL,
                f"v is {v.shape}; it must be [layers {layers}][kv_heads "
                f"{kv_heads}][tokens {tokens}][v_dim {v_dim}]",
            )
        rows[:, :, split:] = v.reshape(layers, kv_heads, width - split)
    return out
