"""Reads stored blocks where they lie, in the daemon's own memory, layer by layer.

    python3 client/examples/views.py       (a cairnd with views = yes must be running)
"""

import numpy as np

import cairn

with cairn.Client() as client:
    config = cairn.SpaceConfig(
        model="views-example", layers=4, kv_heads=2, k_dim=64, v_dim=64, dtype="f16", block_tokens=16
    )
    space = client.open_space(config)
    keys = space.chain_keys(range(8 * 16))
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((len(keys), *space.block_shape())).astype(np.float16)
    space.put(keys, blocks)
    with space.lookup(keys) as lease:  # the blocks stay in RAM for as long as it lasts
        held = keys[: lease.found]
        for layer in range(config.layers):
            views = space.get_views(held, layers=(layer, layer + 1), lease=lease)
            k, v = zip(*(space.unpack_block(view) for view in views))
            total = sum(float(rows.sum()) for rows in k + v)
            if not views.valid():  # read first, then ask: the lease had ended on the way
                raise SystemExit("too slow: look the keys up again")
            print(f"layer {layer}: {len(views)} blocks in place, sum {total:.1f}")
