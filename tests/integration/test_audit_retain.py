"""What a Retain leaves in the audit, and what a daemon that dies in the middle of one leaves behind."""
import json
import subprocess

import numpy as np
import test_retain
from test_cairnctl_operate import CAIRNCTL
from wire import *


class RetainAudit(test_retain.RetainCase):
    def records(self, action):
        out = subprocess.run([CAIRNCTL, "--socket", self.daemon.socket, "--json", "audit", "--action", action],
                             capture_output=True, text=True, check=True).stdout
        return json.loads(out)["records"]

    def ram_bytes(self, space):
        out = subprocess.run([CAIRNCTL, "--socket", self.daemon.socket, "--json", "blocks", "--space", str(space)],
                             capture_output=True, text=True, check=True).stdout
        return {b["key"]: b["ram_bytes"] for b in json.loads(out)["blocks"]}

    def test_a_retain_is_one_record_and_a_drop_one_more_a_layer(self):
        rows = test_retain.Rows(test_retain.raw_space(), 500, np.random.default_rng(5))
        before = len(self.records("retain")), len(self.records("drop"))
        with self.daemon.connect() as c:
            context = self.context(c, rows, "audited", 20)
            (_, mass), reply = self.retain(c, context, rows, seed=77)
            record = self.records("retain")[-1]
            self.assertEqual((record["reason"], record["policy"], record["context"]), ("retention", "nacl", context))
            self.assertEqual((record["count"], record["numbers"][0]), (reply.get(2), reply.get(1)))
            self.assertEqual(record["bytes"], reply.get(2) * 2 * 16 * 4)
            self.assertAlmostEqual(record["score"], float(mass.mean()), places=5)
            self.assertAlmostEqual(record["numbers"][2], float(mass.min()), places=5)
            self.assertEqual(record["numbers"][3], 77)
            self.assertEqual((record["tier_from"], record["tier_to"]), ("ram", "nvme"))
            self.assertGreater(record["request"], 0)
            self.assertEqual(len(self.records("drop")), before[1])
            _, reply = self.retain(c, context, rows, seed=78, drop=True)
            drops = self.records("drop")[before[1]:]
            self.assertEqual([r["layer"] for r in drops], list(range(rows.space.layers)))
            self.assertEqual(sum(r["count"] for r in drops), reply.get(2))
            self.assertEqual(len(self.records("retain")), before[0] + 2)

    def test_a_demote_takes_raw_rows_out_of_ram(self):
        space = test_retain.raw_space(landmark_bits=2, value_bits=2, k_codec=Q8, v_codec=Q8, run_tokens=16)
        rows = test_retain.Rows(space, 320, np.random.default_rng(8))
        keys = [key("cooled", space.fingerprint(), i) for i in range(20)]
        packed = b"".join(rows.packed(16 * i, 16) for i in range(20))
        with self.daemon.connect() as c, self.daemon.connect() as other:
            number = c.open_space(space)
            c.put(number, keys, packed, fields={2: 1})
            context = self.open(c, number, keys)
            held = other.call(LOOKUP, message({1: other.open_space(space), 2: keys[0], 3: 60000}))
            self.assertEqual(held.get(1), 1)
            whole = self.ram_bytes(number)
            self.assertEqual(len(whole), len(keys))
            before = len(self.records("demote"))
            (kept, _), reply = self.retain(c, context, rows)
            self.assertGreater(reply.get(2), 0)
            cooled = self.ram_bytes(number)
            self.assertEqual(cooled[keys[0].hex()], whole[keys[0].hex()], "somebody else holds it")
            for k in keys[1:]:
                self.assertLessEqual(cooled[k.hex()], whole[k.hex()] - space.bytes())
                self.assertGreater(cooled[k.hex()], 0, "its codes are gone")
            demoted = self.records("demote")[before:]
            self.assertEqual(sorted(r["key"] for r in demoted), sorted(k.hex() for k in keys[1:]))
            for r in demoted:
                self.assertEqual((r["reason"], r["policy"], r["context"], r["tier_from"], r["tier_to"], r["bytes"] >= space.bytes()),
                                 ("retention", "nacl", context, "ram", "nvme", True))
            for layer in range(space.layers):
                found = self.everything(c, context, rows, layer)
                for head in range(space.kv_heads):
                    self.assertEqual(len(found.chosen(head)), rows.tokens)
            self.assertEqual(c.get(number, keys).payload, packed)

    def test_the_same_retain_twice_chooses_the_same(self):
        rows = test_retain.Rows(test_retain.raw_space(), 500, np.random.default_rng(6))
        with self.daemon.connect() as c:
            context = self.context(c, rows, "idempotent", 20)
            first, _ = self.retain(c, context, rows, seed=3)
            again, _ = self.retain(c, context, rows, seed=3)
            np.testing.assert_array_equal(first[1], again[1])
            for a, b in zip(sum(first[0], []), sum(again[0], [])):
                np.testing.assert_array_equal(a, b)

    def test_a_daemon_that_dies_in_the_middle_of_a_drop_leaves_every_row(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())
        print(f"CAIRN_TEST_SEED={seed}")
        rng = np.random.default_rng(seed)
        rows = test_retain.Rows(test_retain.raw_space(), 24000, rng, proxies=64)
        block = rows.space.block_tokens
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        flags = dict(ram_bytes="256MiB", context_bytes="256MiB")
        try:
            daemon = Daemon(directory, **flags)
            daemon.own = False
            with daemon.connect() as c:
                number = c.open_space(rows.space)
                keys = [key("dies", i) for i in range(rows.tokens // block)]
                for first in range(0, len(keys), 64):
                    some = keys[first:first + 64]
                    reply = c.put(number, some,
                                  b"".join(rows.packed((first + i) * block, block) for i in range(len(some))),
                                  parent=keys[first - 1] if first else b"", fields={2: 1})
                    self.assertEqual(reply.statuses(), [OK] * len(some))
                for turn in range(4):
                    context = self.open(c, number, keys)
                    shares = message({1: F64bits(0.01), 2: F64bits(0.1), 3: F64bits(0.05), 4: F64bits(0.01), 5: 4})
                    queries = np.ascontiguousarray(rows.q).tobytes()
                    body = message({1: context, 2: self.proxies(rows), 3: shares, 7: seed, 8: True})
                    c.send(RETAIN, body, queries)
                    time.sleep(rng.uniform(0, 0.15))
                    daemon.kill()
                    daemon.start()
                    c.close()
                    c = daemon.connect()
                    number = c.open_space(rows.space)
                    context = self.open(c, number, keys)
                    for layer in range(rows.space.layers):
                        for head in range(rows.space.kv_heads):
                            found = self.everything(c, context, rows, layer).chosen(head)
                            self.assertEqual(len(found), rows.tokens, "rows are missing")
                    self.assertEqual(c.call(CLOSE_CONTEXT, message({1: context})).status, OK)
                c.close()
            daemon.stop()
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class TunedRetain(test_retain.RetainCase):
    flags = dict(ram_bytes="128MiB", context_bytes="64MiB", retain_target_permille=900)

    def without_shares(self, c, context, rows):
        reply = self.ask(c, test_retain.RETAIN, context, rows, {7: 1})
        self.assertEqual(reply.status, OK, reply.text)
        return reply.get(1) / (reply.get(1) + reply.get(2)), reply

    def test_a_retain_without_shares_follows_what_plans_needed(self):
        rows = test_retain.Rows(test_retain.raw_space(), 600, np.random.default_rng(8))
        with self.daemon.connect() as c:
            context = self.context(c, rows, "tuned", 20)
            before, _ = self.without_shares(c, context, rows)
            self.assertLess(before, 0.25)  # the paper's
            for _ in range(4):
                plan = self.ask(c, test_retain.PLAN, context, rows, {5: F64bits(0.9)})
                self.assertEqual(plan.status, OK, plan.text)
            needed = fields(plan.fields[1][0])[1][-1]
            after, reply = self.without_shares(c, context, rows)
            self.assertAlmostEqual(after, min(max(needed, 0.02), 0.5), delta=0.05)
            self.assertGreater(abs(after - before), 0.05)
            asked, _ = self.retain(c, context, rows)
            self.assertAlmostEqual(sum(len(h) for layer in asked[0] for h in layer) / (600 * 4), 0.2, delta=0.03)
            self.assertTrue(self.daemon.log("space 1: "))
            out = subprocess.run([CAIRNCTL, "--socket", self.daemon.socket, "why",
                                  key("tuned", rows.space.fingerprint(), 0).hex()], capture_output=True, text=True).stdout
            self.assertIn("in RAM", out)
            self.assertIn("share", out)


class TunedModels(test_retain.RetainCase):
    flags = dict(ram_bytes="128MiB", context_bytes="64MiB", retain_targets="other=990, test=900,third=0")

    def test_a_space_has_the_target_of_its_model(self):
        for model, tuned in (("test", True), ("third", False), ("fourth", False)):
            rows = test_retain.Rows(test_retain.raw_space(model=model), 600, np.random.default_rng(8))
            with self.daemon.connect() as c:
                context = self.context(c, rows, "tuned", 20)
                for _ in range(4):
                    plan = self.ask(c, test_retain.PLAN, context, rows, {5: F64bits(0.9)})
                    self.assertEqual(plan.status, OK, plan.text)
                reply = self.ask(c, test_retain.RETAIN, context, rows, {7: 1})
                share = reply.get(1) / (reply.get(1) + reply.get(2))
                (self.assertGreater if tuned else self.assertLess)(share, 0.25, model)

    def test_lists_that_are_none_are_refused(self):
        for text in ("test", "=900", "test=", "test=1000", "test=-1", "test=9x", "test 900"):
            done = subprocess.run([CAIRND, "--check-config", "--retain-targets", text], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0, text)
            self.assertIn("retain_targets", done.stderr)


if __name__ == "__main__":
    unittest.main()
