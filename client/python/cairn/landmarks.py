"""Landmarks as a worker gets them: bytes to move to a GPU, and what they stand for."""

from __future__ import annotations

import struct

import numpy as np

from .arrays import NUMPY, decode
from .config import DTYPES

NONE = 0xFFFFFFFF
FIELDS = (
    "kv_heads k_dim block_tokens run_tokens landmark_bits outliers code_dim runs blocks tail_tokens "
    "dtype grid_dims codes scales outlier_rows centres run_heads block_bytes"
).split()
PLACES = "present landmarks tail total_bytes".split()
GROUP_TOKENS = 32


def _round_up(x, multiple):
    return -(-x // multiple) * multiple


class Landmarks:
    """The landmarks of one layer, all KV heads: what ExportLandmarks returned.

    data       the bytes themselves, as policy/landmark/export.h documents them
    header     their numbers by name
    grid       [16][grid_dims] what a nibble stands for
    signs      [2][code_dim] of the rotation
    present    [H][tokens] false where Retain dropped the row
    keys(head) the keys that the landmarks stand for, [tokens][k_dim]: the slow way to score, and
               the reference of a fast one

    They stay as they were when the context was read: later tokens are not in them.
    """

    def __init__(self, data: np.ndarray):
        if bytes(data[:8]) != b"CAIRNLM1":
            raise ValueError("these are no landmarks of this version; update the client")
        head = struct.unpack_from("<Q18I4Q", data, 8)
        self.data, self.tokens = data, head[0]
        self.header = dict(zip(FIELDS, head[1:19])) | dict(zip(PLACES, head[19:]))
        h = self.header
        self.grid = np.frombuffer(data, np.float32, 64, 128).reshape(16, 4)[:, : h["grid_dims"]]
        self.signs = np.frombuffer(data, np.int8, 2 * h["code_dim"], 384).reshape(2, -1)
        words = -(-self.tokens // 64)
        bits = np.frombuffer(data, np.uint8, h["kv_heads"] * words * 8, h["present"])
        bits = np.unpackbits(bits.reshape(h["kv_heads"], -1), axis=1, bitorder="little")
        self.present = bits[:, : self.tokens].astype(bool)

    def head_blocks(self, head: int) -> np.ndarray:
        """[blocks][block_bytes] of one KV head."""
        h = self.header
        size = h["blocks"] * h["block_bytes"]
        first = h["landmarks"] + head * size
        return self.data[first : first + size].reshape(h["blocks"], h["block_bytes"])

    def tail(self, head: int) -> np.ndarray:
        """The keys after the last whole block, uncoded: [tail_tokens][k_dim] float32."""
        h = self.header
        name = next(name for name, number in DTYPES.items() if number == h["dtype"])
        size = h["tail_tokens"] * h["k_dim"] * np.dtype(NUMPY[name]).itemsize
        first = h["tail"] + head * size
        rows = self.data[first : first + size].view(NUMPY[name]).reshape(-1, h["k_dim"])
        return decode(rows, name).astype(np.float32)

    def keys(self, head: int) -> np.ndarray:
        """Approximate keys of one KV head: rows of NaN where a key was not finite."""
        blocks = [self._block(block) for block in self.head_blocks(head)]
        return np.concatenate([*blocks, self.tail(head)])

    def _block(self, block):
        h = self.header
        tokens, dim = h["block_tokens"], h["k_dim"]
        slots = _round_up(tokens, GROUP_TOKENS)
        scales = block[h["scales"] :][: 2 * slots].view(np.float16)[:tokens].astype(np.float32)
        if h["landmark_bits"] == 8:
            padded = _round_up(dim, 16)
            codes = block[h["codes"] :][: slots * padded].view(np.int8).reshape(slots, padded)
            keys = codes[:tokens, :dim] * scales[:, None]
        else:
            keys = self._coded(block, slots)[:tokens] * scales[:, None]
            keys = self._rotate_back(keys)[:, :dim]
        for run in range(h["runs"]):
            first, end = run * h["run_tokens"], min(tokens, (run + 1) * h["run_tokens"])
            self._add_run(block, run, np.arange(first, end), keys)
        return keys

    def _coded(self, block, slots):
        """Grid points of all slots, [slot][code_dim], planar: coordinate after coordinate."""
        h = self.header
        subs = h["code_dim"] // h["grid_dims"]
        size = slots * subs // 2
        codes = block[h["codes"] :][:size].reshape(-1, subs // 2, GROUP_TOKENS)
        nibbles = np.stack([codes & 15, codes >> 4], 2).reshape(-1, subs, GROUP_TOKENS)
        points = self.grid[nibbles]  # [group][sub][token][coordinate]
        return points.transpose(0, 2, 3, 1).reshape(slots, h["code_dim"])

    def _rotate_back(self, x):
        dim = x.shape[1]
        power = 1 << (dim.bit_length() - 1)
        x = x.copy()
        if power != dim:
            x[:, dim - power :] = _hadamard(x[:, dim - power :])
            x *= self.signs[1]
        x[:, :power] = _hadamard(x[:, :power])
        return x * self.signs[0]

    def _add_run(self, block, run, rows, keys):
        """Centre and outlier channels of a run's tokens, added to `keys`."""
        h = self.header
        channels, dim = h["outliers"], h["k_dim"]
        padded, wide = _round_up(dim, 16), 2 if dim > 256 else 1
        head = block[h["run_heads"] + run * _round_up(4 + channels * (2 + wide), 4) :]
        unit = head[:4].view(np.float32)[0]
        centre = block[h["centres"] + run * padded :][:dim].view(np.int8).astype(np.float32)
        keys[rows] += centre * np.abs(centre) * unit
        if channels == 0 or h["outlier_rows"] == NONE:
            return
        scales = head[4 : 4 + 2 * channels].view(np.float16).astype(np.float32)
        indices = head[4 + 2 * channels :][: wide * channels].view(np.uint16 if wide == 2 else np.uint8)
        group, token = rows // GROUP_TOKENS, rows % GROUP_TOKENS
        for channel in range(channels):
            pair = group * (channels // 2) + channel // 2
            left = block[h["outlier_rows"] + (pair * GROUP_TOKENS + token) * 2 + channel % 2]
            keys[rows, indices[channel]] += (left.astype(np.float32) - 128) * scales[channel]


def _hadamard(x):
    """The orthonormal Walsh-Hadamard transform of rows of a power of two."""
    n = x.shape[1]
    step = 1
    while step < n:
        pairs = x.reshape(len(x), -1, 2, step)
        x = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2)
        x = x.reshape(len(x), n)
        step *= 2
    return x / np.float32(np.sqrt(n))
