"""Case 36: rows of every number that a dtype has, and outliers far from the others, by a real daemon."""
import math
import random
import struct
import unittest

from test_retrieve import INF, SEED, RetrieveCase, Rows, exact_space, pack, reference
from wire import (BF16, F8E4M3, F8E5M2, F16, F32, FETCH_ROWS, OK, OPEN_CONTEXT, Q8, RAW, Space, key, message)


class Numbers(RetrieveCase):
    def test_case_36_rows_of_every_code(self):
        """What was put comes back bit for bit, and searches end."""
        for dtype, width in ((F16, 2), (BF16, 2), (F8E4M3, 1), (F8E5M2, 1)):
            space = Space(model=f"codes-{dtype}", layers=1, kv_heads=1, dtype=dtype, k_dim=64, v_dim=64, block_tokens=128,
                          run_tokens=128, k_codec=RAW, v_codec=RAW)
            per_row = 64 * width
            codes = b"".join(code.to_bytes(width, "little") for code in range(256 ** width))
            size = 128 * per_row
            blocks = [codes[at:at + size].ljust(size, b"\0") for at in range(0, len(codes), size)]
            with self.subTest(dtype=dtype), self.daemon.connect() as c:
                number = c.open_space(space)
                keys = [key("codes", dtype, i) for i in range(len(blocks))]
                for i, k in enumerate(keys):
                    rows = blocks[i] + blocks[-1 - i]
                    self.assertEqual(c.put(number, [k], rows, parent=keys[i - 1] if i else b"").statuses(), [OK])
                context = self.open(c, number, keys)
                tokens = 128 * len(keys)
                for i in range(len(keys)):
                    reply = c.call(FETCH_ROWS, message({1: context, 2: 0, 3: [128], 4: list(range(128 * i, 128 * i + 128))}))
                    self.assertEqual(reply.status, OK, reply.text)
                    self.assertEqual(reply.payload[:size], blocks[i])
                    self.assertEqual(reply.payload[-size:], blocks[-1 - i])
                for value in (0.0, 1e-3, -2.0):
                    result = self.retrieve(c, space, [context], [0], pack([value] * 64), 1, {1: tokens // 2}, rest=True)
                    self.assertEqual(result.counts, [tokens // 2])
                    self.assertEqual(result.chosen(0), sorted(set(result.chosen(0))))
                    self.assertFalse(math.isnan(result.lse[0]))

    def test_case_36_outliers(self):
        """One channel of some keys is far beyond what fp16 holds: they are found, and no answer is NaN."""
        rng = random.Random(SEED)
        for size in (1e5, 1e10, 1e30, 3e38):
            for coded in (False, True):
                space = (Space(model="outliers", layers=1, kv_heads=1, dtype=F32, k_dim=64, v_dim=64, block_tokens=128,
                               run_tokens=128, outliers=8) if coded else
                         exact_space(layers=1, kv_heads=1, k_dim=64, v_dim=64, block_tokens=128))
                rows = Rows(space, 128, rng)
                for position in (3, 77):
                    rows.k[0][0][position][9] = size
                with self.subTest(size=size, coded=coded), self.daemon.connect() as c:
                    number, keys = self.store(c, space, rows, f"outliers {size}")
                    context = self.open(c, number, keys)
                    query = [0.0] * 64
                    query[9] = 1e-3
                    result = self.retrieve(c, space, [context], [0], pack(query), 1, {1: 2}, rest=True)
                    self.assertEqual(result.chosen(0), [3, 77])
                    self.assertFalse(math.isnan(result.lse[0]))
                    self.assertTrue(all(math.isfinite(x) for x in result.rest_out))


if __name__ == "__main__":
    unittest.main()
