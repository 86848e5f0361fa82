"""Spaces and keys: whatever differs is another space, never read as this one."""
import itertools
import json
import os
import unittest

from wire import *

GOLDEN = os.path.join(ROOT, "tests", "e2e", "golden_keys.json")


class Spaces(DaemonCase):
    def test_case_5_each_field_makes_another_space(self):
        runs = dict(block_tokens=64, run_tokens=64)
        base = Space(**runs)
        changes = dict(model="other", revision="2", layers=3, kv_heads=4, k_dim=32, v_dim=32, dtype=BF16,
                       block_tokens=128, cache_group=1, tp_size=2, rope=1, landmark_bits=4, outliers=4, run_tokens=32,
                       value_bits=4, k_codec=RAW, v_codec=RAW)
        with self.daemon.connect() as c:
            number = c.open_space(base)
            k = [key("shape")]
            c.put(number, k, pattern(base.bytes(), "shape"))
            seen = {number}
            for name, value in list(changes.items()) + [("tp_rank", 1)]:
                more = dict(tp_size=2) if name == "tp_rank" else {}
                space = Space(**{**runs, name: value, **more})
                other = c.open_space(space)
                self.assertNotIn(other, seen, name)
                seen.add(other)
                self.assertEqual(c.lookup(other, k).get(1), 0, name)
                self.assertEqual(c.get(other, k).statuses(), [ENOENT], name)
                reply = c.call(OPEN_CONTEXT, message({1: other, 2: k[0]}))
                self.assertEqual(reply.status, ENOENT, name)
            self.assertEqual(c.open_space(base), number, "the same description is the same space")
            self.assertEqual(c.get(number, k).payload, pattern(base.bytes(), "shape"))

    def test_case_5_a_foreign_fingerprint_is_refused(self):
        with self.daemon.connect() as c:
            space = Space()
            reply = c.call(OPEN_SPACE, message({1: space.packed(), 2: space.fingerprint()}))
            self.assertEqual(reply.status, OK)
            self.assertEqual(reply.get(2), space.fingerprint())
            self.assertEqual(reply.get(3), space.bytes())
            for other in (Space(k_dim=32).fingerprint(), b"x", space.fingerprint()[:31]):
                reply = c.call(OPEN_SPACE, message({1: space.packed(), 2: other}))
                self.assertEqual(reply.status, EMISMATCH)

    def test_case_5_a_space_must_be_opened_on_the_connection(self):
        with self.daemon.connect() as c, self.daemon.connect() as other:
            number = c.open_space(Space())
            for kind in (LOOKUP, GET, PUT, DELETE, OPEN_CONTEXT):
                reply = other.call(kind, message({1: number}))
                self.assertEqual(reply.status, ENOENT)
            self.assertEqual(c.call(LOOKUP, message({1: 0xFFFFFFFF})).status, ENOENT)

    def test_case_5_descriptions_out_of_range(self):
        bad = [dict(model=""), dict(layers=0), dict(layers=257), dict(kv_heads=0), dict(k_dim=0), dict(k_dim=577),
               dict(v_dim=577), dict(dtype=0), dict(dtype=6), dict(block_tokens=0), dict(block_tokens=1025),
               dict(landmark_bits=3), dict(outliers=17), dict(run_tokens=7), dict(value_bits=3), dict(k_codec=4),
               dict(tp_rank=1), dict(tp_size=0), dict(rope=9), dict(kind=2), dict(model="m" * 129),
               dict(block_bytes=1), dict(layers=256, kv_heads=256, k_dim=576, v_dim=576, block_tokens=1024),
               dict(layers=(1 << 32) - 1)]
        opaque = [dict(size=0), dict(size=(256 << 20) + 1), dict(size=1 << 63)]
        with self.daemon.connect() as c:
            for values in bad:
                reply = c.call(OPEN_SPACE, message({1: Space(**values).packed()}))
                self.assertEqual(reply.status, EINVAL, values)
                self.assertTrue(reply.text)
            for values in opaque:
                self.assertEqual(c.call(OPEN_SPACE, message({1: Space.opaque(**values).packed()})).status, EINVAL)
            self.assertEqual(c.call(OPEN_SPACE, b"").status, EINVAL)

    def test_case_6_and_7_fingerprints_by_another_hand(self):
        names = ("x", "", "ab", "a", "abc")
        spaces = [Space(model=m or "m", revision=r, layout=layout)
                  for m, r, layout in itertools.product(names, names, ("lhkv",))]
        seen = {}
        with self.daemon.connect() as c:
            for space in spaces:
                reply = c.call(OPEN_SPACE, message({1: space.packed()}))
                self.assertEqual(reply.status, OK, reply.text)
                self.assertEqual(reply.get(2), space.fingerprint())
                self.assertNotIn(reply.get(1), seen.values())
                seen[(space.model, space.revision)] = reply.get(1)

    def test_case_6_keys_of_fields_that_touch(self):
        space = Space()
        keys = [block_key(space, None, [1], salt=b"x"), block_key(space, None, [1], adapter=b"x"),
                block_key(space, None, [1], salt=b"ab", adapter=b"c"),
                block_key(space, None, [1], salt=b"a", adapter=b"bc"), block_key(space, None, [1])]
        self.assertEqual(len(set(keys)), len(keys))
        with self.daemon.connect() as c:
            number = c.open_space(space)
            for i, k in enumerate(keys):
                c.put(number, [k], pattern(space.bytes(), "salt", i))
            for i, k in enumerate(keys):
                self.assertEqual(c.get(number, [k]).payload, pattern(space.bytes(), "salt", i))

    def test_list_spaces(self):
        with self.daemon.connect() as c:
            space = Space.opaque(4096, model="listed")
            number = c.open_space(space)
            c.put(number, [key("l", i) for i in range(3)], b"x" * 3 * 4096)
            found = [fields(s) for s in c.call(LIST_SPACES).fields[1]]
            mine = [s for s in found if s[2][0] == space.fingerprint()]
            self.assertEqual(len(mine), 1)
            self.assertEqual((mine[0][3][0], mine[0][4][0]), (number, 3))
            described = fields(mine[0][1][0])
            self.assertEqual((described[2][0], described[21][0]), (b"listed", 4096))


class SpaceLimit(DaemonCase):
    def test_spaces_are_bounded(self):
        with self.daemon.connect() as c:
            statuses = []
            ids = [c.send(OPEN_SPACE, message({1: Space.opaque(512, model=f"m{i}").packed()})) for i in range(1030)]
            for i in ids:
                statuses.append(c.wait(i).status)
            self.assertEqual(statuses.count(OK), 1024)
            self.assertEqual(statuses.count(EBUSY), 6)
            self.assertEqual(c.call(LIST_SPACES).status, OK)
            self.assertEqual(len(c.call(LIST_SPACES).fields[1]), 1024)


if __name__ == "__main__":
    unittest.main()
