"""Stores a prompt's blocks, finds them again, and asks which tokens matter to a query."""
import numpy as np
import cairn

layers, kv_heads, tokens, dim = 2, 2, 4 * 256, 64
rng = np.random.default_rng(0)
prompt = rng.integers(0, 32000, tokens)
k, v = rng.standard_normal((2, layers, kv_heads, tokens, dim), np.float32)

with cairn.Client() as client:  # $CAIRN_SOCKET, or the daemon's default socket
    space = client.open_space(cairn.SpaceConfig(
        model="example", layers=layers, kv_heads=kv_heads, k_dim=dim, v_dim=dim, dtype="f32"))
    keys = space.chain_keys(prompt)  # one a block of 256 tokens
    space.put(keys, [space.pack_block(k[:, :, i:i + 256], v[:, :, i:i + 256])
                     for i in range(0, tokens, 256)])
    with space.lookup(keys) as lease:  # another worker would begin here
        stored = space.get(keys[:lease.found], lease=lease)
        print(f"{lease.found} of {len(keys)} blocks found, {stored.nbytes >> 10} KiB")
    with space.open_context(keys) as context:
        found = context.retrieve(1, 3 * k[1, :, 700], count=8, rows=True)  # a query that looks for token 700
        print("layer 1 reads the tokens", found.positions.tolist())
        assert all(700 in row for row in found.positions)
