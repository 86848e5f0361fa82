"""Writes golden_keys.json: fingerprints and chain keys that C and Python must both give.

Made by the pure Python keys of the client package, so that the C code is checked against another
implementation.  Run it again only when the key format changes, which changes every key of every
store: `make_golden_keys.py > golden_keys.json`. One vector a line, so that a C test reads it
without a JSON library.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python"))

from cairn.config import SpaceConfig  # noqa: E402
from cairn.keys import chain_keys  # noqa: E402

SMOLLM = dict(
    model="SmolLM2-135M", layers=30, kv_heads=3, k_dim=64, v_dim=64, dtype="f32", block_tokens=256
)


def vector(name, config, tokens, block_tokens=None, salt=b"", adapter=b""):
    size = block_tokens or config.block_tokens
    return {
        "name": name,
        "model": config.model,
        "revision": config.revision,
        "layout": config.layout,
        "numbers": list(config.numbers().values()),
        "fingerprint": config.fingerprint().hex(),
        "salt": salt.hex(),
        "adapter": adapter.hex(),
        "block_tokens": size,
        "tokens": tokens,
        "keys": [
            key.hex()
            for key in chain_keys(config.fingerprint(), size, tokens, salt=salt, adapter=adapter)
        ],
    }


def vectors():
    plain = SpaceConfig(**SMOLLM)
    few = list(range(1, 9))
    yield vector("three blocks and a tail", plain, list(range(100, 114)), 4)
    yield vector("no full block", plain, [1, 2, 3], 4)
    yield vector("token ids to the last", plain, [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], 2)
    yield vector("more tokens than are hashed at once", plain, list(range(600)), 300)
    yield vector("blocks of one token", plain, few, 1)
    yield vector("salt x, no adapter", plain, few, 4, salt=b"x")
    yield vector("no salt, adapter x", plain, few, 4, adapter=b"x")
    yield vector("salt ab, adapter c", plain, few, 4, salt=b"ab", adapter=b"c")
    yield vector("salt a, adapter bc", plain, few, 4, salt=b"a", adapter=b"bc")
    yield vector("salt of any bytes", plain, few, 4, salt=bytes(range(64)))
    yield vector(
        "model ab, revision c", SpaceConfig(**{**SMOLLM, "model": "ab"}, revision="c"), few, 4
    )
    yield vector(
        "model a, revision bc", SpaceConfig(**{**SMOLLM, "model": "a"}, revision="bc"), few, 4
    )
    changes = dict(
        revision="main",
        layers=31,
        kv_heads=4,
        k_dim=80,
        v_dim=32,
        dtype="bf16",
        block_tokens=128,
        layout="hlkv",
        cache_group=1,
        tp_rank=1,
        tp_size=2,
        rope="not-applied",
        landmark_bits=4,
        outliers=0,
        run_tokens=64,
        value_bits=4,
        k_codec="q4",
        v_codec="raw",
    )
    base = plain.__dict__
    for field, value in changes.items():
        fields = {**base, field: value}
        if field == "tp_rank":
            fields["tp_size"] = 2
        yield vector(f"another {field}", SpaceConfig(**fields), few, 4)
    yield vector("opaque", SpaceConfig.opaque("engine", 4096, 16, layout="paged v2"), few, 4)
    yield vector("names beyond ASCII", SpaceConfig(**{**SMOLLM, "model": "modèle"}), few, 4)


if __name__ == "__main__":
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in vectors()]
    print("[\n" + ",\n".join(lines) + "\n]")
