"""Retain, Plan and `cairnctl plan` as a worker and an operator meet them: the Python package, a real daemon."""
import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import numpy as np

import cairn
from wire import DaemonCase

CTL = str(Path(os.environ.get("CAIRND", "build/release/cairnd")).with_name("cairnctl"))
SHAPE = dict(layers=3, kv_heads=2, k_dim=32, v_dim=32)
TOKENS = 600


def rows(rng):
    shape = SHAPE["layers"], SHAPE["kv_heads"], TOKENS, 32
    return rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)


class Retention(DaemonCase):
    flags = dict(ram_bytes="64MiB", context_bytes="64MiB")

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(21)
        self.client = cairn.Client(self.daemon.socket)
        self.space = self.client.open_space(cairn.SpaceConfig(
            model="retention", dtype="f32", block_tokens=64, run_tokens=64, **SHAPE))
        self.k, self.v = rows(rng)
        self.q = rng.standard_normal((3, 8, 4, 32), np.float32)
        self.keys = self.space.chain_keys(range(TOKENS))
        blocks = [self.space.pack_block(self.k[:, :, i * 64:i * 64 + 64], self.v[:, :, i * 64:i * 64 + 64])
                  for i in range(len(self.keys))]
        self.space.put(self.keys, blocks)
        self.context = self.space.open_context(self.keys)
        first = self.context.tokens
        self.context.append(self.k[:, :, first:], self.v[:, :, first:])

    def tearDown(self):
        self.client.close()
        super().tearDown()

    def test_demote_then_retrieve_from_all(self):
        kept = self.context.retain(self.q)
        self.assertEqual(kept.counts.shape, (3, 2))
        self.assertTrue((kept.counts == 6 + 72 + 42).all())
        self.assertEqual(kept.kept + kept.removed, 3 * 2 * TOKENS)
        self.assertAlmostEqual(kept.mass_mean, float(kept.mass.mean()), places=5)
        self.assertEqual(kept.mass[kept.lowest], kept.mass.min())
        for layer in range(3):
            for head in range(2):
                positions = kept.positions[layer][head]
                self.assertEqual(positions[:4].tolist(), [0, 1, 2, 3])
                self.assertEqual(positions[-2:].tolist(), [TOKENS - 2, TOKENS - 1])
                self.assertTrue((np.diff(positions.astype(int)) > 0).all())
        found = self.context.retrieve(0, self.q[0, 0], count=TOKENS)
        self.assertTrue((found.counts == TOKENS).all(), "what was demoted is still found")

    def test_drop_and_forks(self):
        before = self.context.fork()
        kept = self.context.retain(self.q, mode="drop", seed=5, spread=True, even=0.5)
        self.assertTrue((kept.counts.sum(1) == 2 * 120).all())
        for context in (self.context, self.context.fork()):
            found = context.retrieve([0, 1, 2], self.q[:, 0], count=TOKENS)
            for layer in range(3):
                for head in range(2):
                    got = found.positions[layer, head, :found.counts[layer, head]]
                    np.testing.assert_array_equal(got, kept.positions[layer][head])
        self.assertTrue((before.retrieve(0, self.q[0, 0], count=TOKENS).counts == TOKENS).all())
        with self.assertRaises(cairn.NotFound) as caught:
            gone = min(set(range(TOKENS)) - set(kept.positions[1][0].tolist()))
            self.context.fetch_rows(1, [[gone], []])
        self.assertIn("dropped", str(caught.exception))

    def test_layers_proxies_and_ranges(self):
        kept = self.context.retain(self.q[[0, 2]], layers=[0, 2], proxies=[(10, 15), (590, 593)],
                                   protect_ranges=[(100, 110)], random_keep=0)
        self.assertEqual((kept.layers, kept.counts.shape), ([0, 2], (2, 2)))
        self.assertTrue(set(range(100, 110)) <= set(kept.positions[1][1].tolist()))
        with self.assertRaises(cairn.Invalid):
            self.context.retain(self.q, proxies=[(0, 3)])
        with self.assertRaises(cairn.Invalid):
            self.context.retain(self.q[:2])
        with self.assertRaises(cairn.Invalid):
            self.context.retain(self.q, mode="forget")
        with self.assertRaises(cairn.Invalid) as caught:
            self.context.retain(self.q, proxy_keep=0.95, random_keep=0.2)
        self.assertIn("at most 1", str(caught.exception))
        with self.assertRaises(cairn.Invalid):
            self.space.open_context().retain(self.q)

    def test_a_plan_and_a_retain_agree(self):
        plan = self.context.plan(self.q, target_mass=0.8, budgets=[0.1, 0.5])
        self.assertEqual(plan.curve_mass.shape, (3, 2, 64))
        self.assertTrue((np.diff(plan.curve_mass, axis=2) >= -1e-6).all())
        self.assertTrue((plan.mass_needed >= 0.8 - 1e-5).all())
        self.assertEqual([p.share for p in plan.budgets], [0.1, 0.5])
        self.assertLess(plan.budgets[0].mass, plan.budgets[1].mass)
        self.assertGreaterEqual(plan.mass, 0.8 - 1e-6)
        kept = self.context.retain(self.q, proxy_keep=plan.share - 0.01, random_keep=0)
        self.assertAlmostEqual(kept.mass_mean, 0.8, delta=0.02)

    # ---- cairnctl ----

    def cairnctl(self, *arguments):
        return subprocess.run([CTL, "--socket", self.daemon.socket, *map(str, arguments)], capture_output=True,
                              text=True, check=False)

    def test_cairnctl_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path, picture = Path(folder, "q"), Path(folder, "plan.svg")
            cairn.save_proxies(path, self.space, self.keys, self.q)
            outcome = self.cairnctl("plan", path, "--target-mass", 0.8, "--plot", picture)
            self.assertEqual(outcome.returncode, 0, outcome.stderr)
            self.assertIn("80", outcome.stdout)
            self.assertIn("layer", outcome.stdout)
            svg = xml.etree.ElementTree.fromstring(picture.read_text())
            self.assertTrue(svg.tag.endswith("svg"))
            self.assertGreaterEqual(len(svg.findall(".//{*}polyline")), 2)
            outcome = self.cairnctl("--json", "plan", path, "--target-mass", 0.8)
            plan = json.loads(outcome.stdout)
            with self.space.open_context(self.keys) as stored:
                wanted = stored.plan(self.q, target_mass=0.8)
            self.assertEqual(plan["tokens"], wanted.tokens)
            self.assertAlmostEqual(plan["needed"]["share"], wanted.share)
            self.assertEqual(len(plan["curve"]), 64)
            self.assertEqual([layer["layer"] for layer in plan["layers"]], [0, 1, 2])
            self.assertEqual([head["needed"] for layer in plan["layers"] for head in layer["heads"]],
                             wanted.needed.reshape(-1).tolist())

    def test_cairnctl_plan_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "q")
            outcome = self.cairnctl("plan")
            self.assertEqual(outcome.returncode, 2)
            outcome = self.cairnctl("plan", path)
            self.assertEqual(outcome.returncode, 1)
            self.assertIn("No such file", outcome.stderr)
            cairn.save_proxies(path, self.space, self.keys, self.q)
            whole = path.read_bytes()
            for bad in (b"", whole[:50], whole[:-1], whole + b"x", b"X" + whole[1:],
                        whole[:8] + b"\xff" * 20 + whole[28:]):
                path.write_bytes(bad)
                outcome = self.cairnctl("plan", path)
                self.assertEqual(outcome.returncode, 1, outcome.stdout)
                self.assertIn("save_proxies", outcome.stderr)
            path.write_bytes(whole[:40] + b"\0" * 32 + whole[72:])
            outcome = self.cairnctl("plan", path)
            self.assertEqual(outcome.returncode, 1)
            self.assertIn("space", outcome.stderr)
            path.write_bytes(whole[:72] + b"\0" * 32 + whole[104:])
            outcome = self.cairnctl("plan", path)
            self.assertEqual(outcome.returncode, 1)
            self.assertIn("ENOENT", outcome.stderr)
            path.write_bytes(whole)
            outcome = self.cairnctl("plan", path, "--target-mass", 1.5)
            self.assertNotEqual(outcome.returncode, 0)


if __name__ == "__main__":
    unittest.main()
