"""Retain and Plan over the socket, beside NumPy written from the paper (tests/e2e/test_nacl_reference.py)."""
import os
import random
import sys
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import test_nacl_reference as nacl
import test_retrieve
from wire import *

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
POINTS = 64
GROUP = 2


def raw_space(**values):
    """Raw f32 rows, no codes: the daemon's scores can be compared with NumPy's."""
    return Space(**{**dict(dtype=F32, landmark_bits=0, value_bits=0, k_codec=RAW, v_codec=RAW, run_tokens=0), **values})


class Rows:
    """K and V of some tokens [layer][head][token][dim], and proxy queries that ask for a few of them."""

    def __init__(self, space, tokens, rng, proxies=7):
        self.space, self.tokens, self.proxies = space, tokens, proxies
        shape = space.layers, space.kv_heads, tokens
        self.k = rng.standard_normal((*shape, space.k_dim), np.float32)
        self.v = rng.standard_normal((*shape, space.v_dim), np.float32)
        self.q = rng.standard_normal((space.layers, proxies, space.kv_heads, GROUP, space.k_dim), np.float32)
        for layer in range(space.layers):
            for head in range(space.kv_heads):
                for needle in rng.integers(0, tokens, 6):
                    self.k[layer, head, needle] += 2 * self.q[layer, rng.integers(proxies), head, rng.integers(GROUP)]

    def packed(self, first, count):
        cut = slice(first, first + count)
        return b"".join(part.tobytes() for k, v in zip(self.k, self.v) for a, b in zip(k, v)
                        for part in (a[cut], b[cut]))

    def scores(self, layer, head, present=None):
        """What NACL scores the tokens of a head with; tokens that are not present count for nothing."""
        here = np.arange(self.tokens) if present is None else np.asarray(present)
        out = np.zeros(self.tokens)
        out[here] = nacl.reference_scores(self.k[layer, head][here], self.q[layer, :, head],
                                          np.float32(self.space.k_dim ** -0.5))
        return out


def choose_seed(seed, layer, head):
    with np.errstate(over="ignore"):
        first = nacl.splitmix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15))
        return int(nacl.splitmix(first ^ np.uint64(layer << 32 | head)))


def doubles(values):
    return struct.pack(f"<{len(values)}d", *values)


class RetainCase(test_retrieve.RetrieveCase):
    def context(self, c, rows, name, stored=None):
        """The tokens of `rows`: as many full blocks as `stored` says in the store, the others appended."""
        space = rows.space
        number = c.open_space(space)
        block = space.block_tokens
        count = rows.tokens // block if stored is None else stored
        keys = [key(name, space.fingerprint(), i) for i in range(count)]
        for i, k in enumerate(keys):
            reply = c.put(number, [k], rows.packed(i * block, block), parent=keys[i - 1] if i else b"")
            self.assertIn(reply.statuses(), ([OK], [EEXIST]))
        context = self.open(c, number, keys)
        step = (2 << 20) // (space.bytes() // block)
        for first in range(count * block, rows.tokens, step):
            self.append(c, context, rows, first, min(step, rows.tokens - first))
        return context

    def proxies(self, rows, layers=(), positions=None, queries=None, **more):
        positions = (rows.tokens - rows.proxies, rows.tokens) if positions is None else positions
        fields = {1: list(layers), 2: list(positions), 3: rows.space.kv_heads * GROUP}
        if queries:
            fields[4] = queries
        return message({**fields, **more.get("fields", {})})

    def ask(self, c, kind, context, rows, body, layers=(), deadline=0, **more):
        taken = list(layers) or range(rows.space.layers)
        payload = b"" if "queries" in more else np.ascontiguousarray(rows.q[taken]).tobytes()
        return c.call(kind, message({1: context, 2: self.proxies(rows, layers, **more), **body}), payload, deadline)

    def retain(self, c, context, rows, *, layers=(), keep=0.12, chance=0.07, protect=0.01, sinks=4, seed=0, drop=False,
               fields=None, **more):
        shares = message({1: F64bits(0.01), 2: F64bits(keep), 3: F64bits(chance), 4: F64bits(protect), 5: sinks})
        reply = self.ask(c, RETAIN, context, rows, {3: shares, 7: seed, 8: drop, **(fields or {})}, layers, **more)
        self.assertEqual(reply.status, OK, reply.text)
        kept = self.kept(reply.payload, len(layers) or rows.space.layers, rows.space.kv_heads)
        self.assertEqual(reply.get(1), sum(len(head) for layer in kept[0] for head in layer))
        self.assertEqual(reply.get(8), len(reply.payload))
        return kept, reply

    def kept(self, data, layers, heads):
        """(positions [layer][head], mass [layer][head]), by the layout of proto/result.h written down once more."""
        count = layers * heads
        part = (4 * count + 63) // 64 * 64
        counts = np.frombuffer(data, np.uint32, count)
        mass = np.frombuffer(data, np.float32, count, part).reshape(layers, heads)
        positions = np.frombuffer(data, np.uint32, offset=2 * part)
        self.assertEqual(counts.sum(), len(positions))
        parts = np.split(positions, np.cumsum(counts)[:-1])
        return [parts[i * heads:(i + 1) * heads] for i in range(layers)], mass

    def everything(self, c, context, of, layer, kind=RETRIEVE, **more):
        query = np.ascontiguousarray(of.q[layer, 0]).tobytes()
        return self.retrieve(c, of.space, [context], [layer], query, of.space.kv_heads * GROUP, {1: of.tokens},
                             kind=kind, **more)


class Keeping(RetainCase):
    def test_kept_sets_equal_numpy(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = np.random.default_rng(SEED)
        for tokens, stored, space in ((700, None, raw_space()), (333, 5, raw_space(kv_heads=3, layers=3, k_dim=24)),
                                      (20000, 0, raw_space(layers=1, kv_heads=1, block_tokens=256))):
            rows = Rows(space, tokens, rng)
            with self.daemon.connect() as c:
                context = self.context(c, rows, ("numpy", tokens), stored)
                arena = c.arena(1 << 20)
                for keep, chance, protect, seed in ((0.12, 0.07, 0.01, 1), (0.05, 0.15, 0.02, SEED), (0.2, 0, 0.01, 2)):
                    (positions, mass), reply = self.retain(c, context, rows, keep=keep, chance=chance, protect=protect,
                                                           seed=seed)
                    counts = [int(share * tokens + 1e-6) for share in (protect, keep, chance)]
                    sinks = min(4, counts[0])
                    for layer in range(space.layers):
                        for head in range(space.kv_heads):
                            scores = rows.scores(layer, head).astype(np.float32)
                            wanted = nacl.reference_kept(scores, sinks, counts[0] - sinks, counts[1], counts[2],
                                                         choose_seed(seed, layer, head))
                            np.testing.assert_array_equal(positions[layer][head], wanted)
                            self.assertAlmostEqual(mass[layer, head], scores[wanted].sum() / scores.sum(), places=4)
                    heads = space.layers * space.kv_heads
                    self.assertEqual(reply.get(1) + reply.get(2), tokens * heads)
                    self.assertAlmostEqual(reply.get(3), mass.mean(), places=5)
                    self.assertAlmostEqual(reply.get(4), mass.min(), places=5)
                    self.assertAlmostEqual(reply.get(4), mass[reply.get(5), reply.get(6)], places=5)
                    region_reply = self.ask(c, RETAIN, context, rows, {
                        3: message({1: F64bits(0.01), 2: F64bits(keep), 3: F64bits(chance), 4: F64bits(protect), 5: 4}),
                        7: seed, 9: region(arena.id, 4096, (1 << 20) - 4096)})
                    self.assertEqual((region_reply.status, region_reply.payload), (OK, b""))
                    self.assertEqual(arena.map[4096:4096 + reply.get(8)], reply.payload)
                arena.close()

    def test_layers_ranges_and_causal_proxies(self):
        rng = np.random.default_rng(5)
        rows = Rows(raw_space(layers=4), 400, rng, proxies=6)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "layers")
            whole, _ = self.retain(c, context, rows, seed=3)
            some, reply = self.retain(c, context, rows, seed=3, layers=[1, 3])
            for at, layer in enumerate((1, 3)):
                for head in range(2):
                    np.testing.assert_array_equal(some[0][at][head], whole[0][layer][head])
            stay, _ = self.retain(c, context, rows, keep=0.05, chance=0, fields={4: [100, 130, 200, 201]})
            for layer in stay[0]:
                for head in layer:
                    self.assertEqual(set(range(100, 130)) | {200}, set(head.tolist()) & (set(range(100, 130)) | {200}))
                    self.assertEqual(len(head), 31 + 4 + 20)
            positions = (50, 53, 90, 93)
            got, _ = self.retain(c, context, rows, keep=0.1, chance=0, protect=0, positions=positions)
            seen = np.array([50, 51, 52, 90, 91, 92])
            reply = self.ask(c, RETAIN, context, rows, {3: message({2: F64bits(0.1)})}, positions=positions,
                             fields={6: 1})
            causal, _ = self.kept(reply.payload, 4, 2)
            for layer in range(4):
                for head in range(2):
                    products = rows.q[layer, :, head].astype(np.float64) @ rows.k[layer, head].T / 4
                    products[np.arange(400) > seen[:, None, None] + np.zeros((1, GROUP, 1))] = -np.inf
                    weights = np.exp(products - products.max(2, keepdims=True))
                    scores = (weights / weights.sum(2, keepdims=True)).sum((0, 1)).astype(np.float32)
                    np.testing.assert_array_equal(causal[layer][head], np.sort(np.argsort(-scores, kind="stable")[:40]))
                    self.assertLess(causal[layer][head].max(), 93)
            self.assertGreater(max(head.max() for layer in got[0] for head in layer), 93, "not causal: all are seen")

    def test_budgets_follow_the_mass_when_spread(self):
        rng = np.random.default_rng(6)
        rows = Rows(raw_space(kv_heads=4), 600, rng)
        rows.k[:, 0] *= 0.05  # a diffuse head needs more
        with self.daemon.connect() as c:
            context = self.context(c, rows, "spread")
            count = lambda kept: np.array([[len(head) for head in layer] for layer in kept[0]])
            plain = count(self.retain(c, context, rows, keep=0.1, chance=0)[0])
            even = count(self.retain(c, context, rows, keep=0.1, chance=0, fields={5: 1, 6: F64bits(1)})[0])
            spread = count(self.retain(c, context, rows, keep=0.1, chance=0, fields={5: 1})[0])
            np.testing.assert_array_equal(plain, even)
            np.testing.assert_array_equal(spread.sum(1), plain.sum(1))
            self.assertTrue((spread.max(1) > 1.2 * spread.min(1)).all(), spread)

    def test_the_answer_does_not_depend_on_threads(self):
        rng = np.random.default_rng(SEED)
        rows = Rows(Space(dtype=F32, layers=3, block_tokens=64, run_tokens=32), 40000, rng, proxies=30)
        answers = []
        for scorers in (1, 5):
            daemon = Daemon(scorers=scorers, ram_bytes="64MiB", context_bytes="64MiB")
            with daemon.connect() as c:
                context = self.context(c, rows, "threads", stored=0)
                answers.append(self.retain(c, context, rows, seed=SEED, fields={5: 1})[1].payload)
                answers.append(self.ask(c, PLAN, context, rows, {}).payload)
            daemon.stop()
        self.assertEqual(answers[:2], answers[2:])


class Dropping(RetainCase):
    def test_demoted_rows_are_still_found(self):
        rng = np.random.default_rng(7)
        rows = Rows(Space(dtype=F32), 200, rng)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "demote")
            before = [self.everything(c, context, rows, layer, rows=True, rest=True).data for layer in range(2)]
            _, reply = self.retain(c, context, rows)
            self.assertGreater(reply.get(2), 0)
            after = [self.everything(c, context, rows, layer, rows=True, rest=True).data for layer in range(2)]
            self.assertEqual(before, after)

    def test_a_retrieve_of_what_was_demoted(self):
        """The worker holds another set a head: the daemon knows it, and looks among the others."""
        print("CAIRN_TEST_SEED", SEED)
        rng = np.random.default_rng(SEED)
        rows = Rows(raw_space(layers=3), 301, rng)
        rows.tokens = 201
        with self.daemon.connect() as c:
            context = self.context(c, rows, "demoted", 2)
            query = np.ascontiguousarray(rows.q[1, 0]).tobytes()
            early = c.call(RETRIEVE, self.body([context], [1], 4, {1: 9}, fields={19: 1}), query)
            self.assertEqual(early.status, EINVAL)
            self.assertIn("no Retain", early.text)
            kept, _ = self.retain(c, context, rows, layers=[0, 1])
            others = lambda p, n: sorted(set(range(n)) - set(p.tolist()))
            demoted = lambda one, layer, **more: self.everything(c, one, rows, layer, fields={19: 1}, **more)
            fork = c.call(FORK, message({1: context})).get(1)
            for layer in range(2):
                for head in range(2):
                    self.assertEqual(demoted(context, layer).chosen(head), others(kept[0][layer][head], 201))
            self.assertEqual(demoted(context, 2).counts, [201] * 2, "nothing of this layer is held")
            rows.tokens = 301
            self.append(c, context, rows, 201, 100)
            for one, tokens in ((context, 301), (fork, 201)):
                found = demoted(one, 1, rows=True)
                out = self.everything(c, one, rows, 1, kind=ATTEND, all=True, fields={19: 1}).part_out
                for head in range(2):
                    wanted = others(kept[0][1][head], tokens)
                    self.assertEqual(found.chosen(head), wanted)
                    for group in range(GROUP):
                        at = (head * GROUP + group) * 16
                        np.testing.assert_allclose(out[at:at + 16], self.attended(rows, 1, head, group, wanted),
                                                   atol=1e-4)
                self.assertEqual(self.everything(c, one, rows, 1).counts, [tokens] * 2, "all is still there")
            again, _ = self.retain(c, context, rows, layers=[0], keep=0.3, chance=0)
            self.assertEqual(demoted(context, 0).chosen(1), others(again[0][0][1], 301))
            self.assertEqual(demoted(context, 1).chosen(1), others(kept[0][1][1], 301), "as the last Retain of it left it")
            dropped, _ = self.retain(c, context, rows, layers=[1], drop=True, keep=0.3, chance=0)
            reply = c.call(RETRIEVE, self.body([context], [1], 4, {1: 9}, fields={19: 1}), query)
            self.assertEqual(reply.status, EINVAL, "a drop leaves nothing demoted")
            less, _ = self.retain(c, context, rows, keep=0.1, chance=0)
            self.assertEqual(demoted(context, 1).chosen(0),
                             sorted(set(dropped[0][0][0].tolist()) - set(less[0][1][0].tolist())))

    def attended(self, rows, layer, head, group, positions):
        products = rows.q[layer, 0, head, group].astype(np.float64) @ rows.k[layer, head][positions].T / 4
        weights = np.exp(products - products.max())
        return weights @ rows.v[layer, head][positions] / weights.sum()

    def test_dropped_rows_are_gone_for_good(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = np.random.default_rng(SEED)
        for space in (raw_space(), Space(dtype=F32)):
            rows = Rows(space, 230, rng)
            with self.daemon.connect() as c:
                context = self.context(c, rows, "drop", 8)
                earlier = c.call(FORK, message({1: context})).get(1)
                (positions, _), reply = self.retain(c, context, rows, drop=True, seed=9)
                self.assertGreater(reply.get(2), 0)
                later = c.call(FORK, message({1: context})).get(1)
                for one in (context, later):
                    for layer in range(2):
                        found = self.everything(c, one, rows, layer, rows=True, rest=True)
                        out = self.everything(c, one, rows, layer, kind=ATTEND, all=True).part_out
                        chunks = self.everything(c, one, rows, layer, fields={15: 1, 16: 8})
                        for head in range(2):
                            kept = positions[layer][head].tolist()
                            self.assertEqual(found.chosen(head), kept)
                            self.assertEqual(chunks.chosen(head), kept)
                            for group in range(GROUP):
                                at = (head * GROUP + group) * 16
                                wanted = self.attended(rows, layer, head, group, kept)
                                np.testing.assert_allclose(out[at:at + 16], wanted, atol=0.05)
                            self.assertTrue(all(lse == -np.inf for lse in found.rest_lse), "nothing is left to estimate")
                        few = self.retrieve(c, space, [one], [layer], bytes(4 * 16 * 4), 4, {2: F64bits(0.5)})
                        self.assertEqual(few.counts, [-(-len(p) // 2) for p in positions[layer]], "a share of what is there")
                self.assertEqual(self.everything(c, earlier, rows, 0).counts, [230, 230], "a fork of before keeps all")
                gone = sorted(set(range(230)) - set(positions[0][0].tolist()))
                fetch = lambda p: c.call(FETCH_ROWS, message({1: context, 2: 0, 3: [1, 0], 4: [int(p)]}))
                self.assertEqual(fetch(positions[0][0][3]).status, OK)
                refused = fetch(gone[0])
                self.assertEqual(refused.status, ENOENT)
                self.assertIn("dropped", refused.text)

    def test_a_second_drop_keeps_what_the_first_kept(self):
        rng = np.random.default_rng(8)
        rows = Rows(raw_space(), 500, rng)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "twice", 20)
            first, _ = self.retain(c, context, rows, drop=True, seed=4)
            again, reply = self.retain(c, context, rows, drop=True, seed=4)
            self.assertEqual(reply.get(2), 0, "nothing is left to remove")
            for a, b in zip(first[0], again[0]):
                for x, y in zip(a, b):
                    np.testing.assert_array_equal(x, y)
            np.testing.assert_allclose(again[1], 1, atol=1e-6)
            for layer in range(2):  # scored among what is left alone
                less, _ = self.retain(c, context, rows, keep=0.05, chance=0, protect=0, layers=[layer])
                for head in range(2):
                    scores = rows.scores(layer, head, first[0][layer][head]).astype(np.float32)
                    np.testing.assert_array_equal(less[0][0][head], np.sort(np.argsort(-scores, kind="stable")[:25]))

    def test_layers_that_were_not_named_and_tokens_that_come_later_stay(self):
        rng = np.random.default_rng(9)
        rows = Rows(raw_space(), 300, rng)
        rows.tokens = 201  # the first appends stop here
        with self.daemon.connect() as c:
            context = self.context(c, rows, "later", 2)
            rows.tokens = 201
            kept, _ = self.retain(c, context, rows, layers=[1], drop=True)
            rows.tokens = 300
            self.append(c, context, rows, 201, 99)
            one = self.everything(c, context, rows, 1)
            self.assertEqual(self.everything(c, context, rows, 0).counts, [300, 300])
            for head in range(2):
                self.assertEqual(one.chosen(head), kept[0][0][head].tolist() + list(range(201, 300)))
            again, _ = self.retain(c, context, rows, layers=[0], drop=True, keep=0.1, chance=0)
            self.assertEqual(self.everything(c, context, rows, 1).counts, one.counts)
            self.assertEqual(self.everything(c, context, rows, 0).chosen(1), again[0][0][1].tolist())
            more, reply = self.retain(c, context, rows, layers=[1], drop=True, keep=0.01, chance=0)
            self.assertEqual(self.everything(c, context, rows, 1).chosen(0), more[0][0][0].tolist())

    def test_retrieves_beside_drops_see_one_state_or_the_other(self):
        rng = np.random.default_rng(10)
        rows = Rows(raw_space(layers=1, kv_heads=1), 400, rng)
        query = np.ascontiguousarray(rows.q[0, 0]).tobytes()
        with self.daemon.connect() as c:
            context = self.context(c, rows, "beside")
            sizes = [400, 200, 100, 50, 25]
            ask = lambda: c.send(RETRIEVE, self.body([context], [0], GROUP, {1: 400}), query)
            for before, after in zip(sizes, sizes[1:]):
                retrieves = [ask() for _ in range(5)]
                shares = message({2: F64bits(after / 400)})
                body = message({1: context, 2: self.proxies(rows), 3: shares, 8: True})
                retain = c.send(RETAIN, body, rows.q.tobytes())
                second = c.send(RETAIN, body, rows.q.tobytes())
                retrieves += [ask() for _ in range(5)]
                for one in retrieves:
                    reply = c.wait(one)
                    result = test_retrieve.Result(reply.payload, 1, 1, rows.space, GROUP, reply.get(1))
                    self.assertIn(result.counts[0], (before, after))
                self.assertEqual(c.wait(retain).status, OK)
                self.assertIn(c.wait(second).status, (OK, EAGAIN))
                self.assertEqual(self.everything(c, context, rows, 0).counts, [after])


class Planning(RetainCase):
    def test_plans_equal_numpy(self):
        rng = np.random.default_rng(SEED)
        rows = Rows(raw_space(layers=3), 500, rng)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "plan", 10)
            shares = message({4: F64bits(0.02), 5: 4})
            reply = self.ask(c, PLAN, context, rows, {3: shares, 5: F64bits(0.9), 6: doubles([0.05, 0.2, 1])})
            self.assertEqual(reply.status, OK, reply.text)
            self.assertEqual(reply.get(5), len(reply.payload))
            parts = [np.frombuffer(reply.payload, t, n, o).reshape(3, 2, -1) for t, n, o in (
                (np.uint32, 6, 0), (np.uint32, 6, 64), (np.float32, 6, 128), (np.float32, 6, 192),
                (np.uint32, 6 * POINTS, 256), (np.float32, 6 * POINTS, 256 + 24 * POINTS))]
            needed, stay, held, mass_stay, kept, mass = parts
            for layer in range(3):
                for head in range(2):
                    scores = rows.scores(layer, head)
                    others = -np.sort(-scores[4:494])
                    sums = np.concatenate([[0], np.cumsum(others)]) + scores[:4].sum() + scores[494:].sum()
                    sums /= scores.sum()
                    self.assertEqual(stay[layer, head], 10)
                    self.assertAlmostEqual(mass_stay[layer, head, 0], sums[0], places=5)
                    self.assertLessEqual(abs(int(needed[layer, head, 0]) - 10 - int(np.argmax(sums >= 0.9))), 1)
                    self.assertGreaterEqual(held[layer, head, 0], 0.9 - 1e-5)
                    np.testing.assert_allclose(mass[layer, head], sums[kept[layer, head] - 10], atol=1e-5)
                    self.assertEqual(kept[layer, head, -1], 500)
            point = lambda data: [fields(data).get(i, [0])[-1] for i in range(1, 6)]
            budgets = [point(data) for data in reply.fields[2]]
            curve = [point(data) for data in reply.fields[3]]
            self.assertEqual(len(curve), POINTS)
            self.assertTrue(all(a[1] <= b[1] + 1e-9 for a, b in zip(curve, curve[1:])), "more tokens hold more")
            self.assertAlmostEqual(curve[0][0], 1 / 1024)
            self.assertEqual([b[0] for b in budgets], [0.05, 0.2, 1])
            self.assertAlmostEqual(budgets[2][1], 1)
            found = point(reply.fields[1][0])
            self.assertTrue(0.9 - 1e-6 <= found[1] < 0.92, found)
            self.assertLessEqual(found[2], found[1])
            # The plan keeps its promise.
            got, _ = self.retain(c, context, rows, keep=found[0] - 0.02, chance=0, protect=0.02)
            self.assertGreater(got[1].mean(), 0.9 - 0.01)

    def test_a_plan_changes_nothing(self):
        rng = np.random.default_rng(11)
        rows = Rows(Space(dtype=F32), 100, rng)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "nothing")
            before = self.everything(c, context, rows, 0, rest=True).data
            self.assertEqual(self.ask(c, PLAN, context, rows, {}).status, OK)
            self.assertEqual(self.everything(c, context, rows, 0, rest=True).data, before)


class Refusals(RetainCase):
    def test_requests_out_of_range(self):
        rng = np.random.default_rng(12)
        rows = Rows(raw_space(), 100, rng)
        with self.daemon.connect() as c, self.daemon.connect() as other:
            context = self.context(c, rows, "bad")
            empty = self.open(c, c.open_space(rows.space))

            def status(kind=RETAIN, connection=c, context=context, changes=None, text=None, **more):
                reply = self.ask(connection, kind, context, rows, changes or {}, **more)
                self.assertTrue(reply.status == OK or reply.text)
                if text:
                    self.assertIn(text, reply.text)
                return reply.status

            nan, double = float("nan"), lambda x: F64bits(x)
            for kind in (RETAIN, PLAN):
                self.assertEqual(status(kind), OK)
                self.assertEqual(status(kind, connection=other), ESTALE)
                self.assertEqual(status(kind, context=empty, text="no tokens"), EINVAL)
                self.assertEqual(status(kind, positions=(93, 101), text="token 100"), EINVAL)
                self.assertEqual(status(kind, positions=(50, 40)), EINVAL)
                self.assertEqual(status(kind, positions=(50, 53, 52, 56)), EINVAL)
                self.assertEqual(status(kind, positions=(50, 57, 60)), EINVAL)
                self.assertEqual(status(kind, positions=(50, 58)), ERANGE, "fewer queries than proxies")
                self.assertEqual(status(kind, positions=(0, 1 << 63)), EINVAL)
                self.assertEqual(status(kind, queries=region(7, 0, 100)), ESTALE)
                for bad, text in (({3: 3}, "KV heads"), ({3: 0}, "KV heads"), ({3: 512}, "KV heads"),
                                  ({1: [1, 0]}, "ascend"), ({1: [2]}, "below 2"), ({1: [0, 1, 2]}, "that has 2"),
                                  ({5: F32bits(nan)}, "scale"), ({5: F32bits(-1)}, "scale")):
                    self.assertEqual(status(kind, fields=bad, text=text), EINVAL, bad)
                for shares in ({2: double(1.5)}, {2: double(nan)}, {2: double(-0.1)}, {2: double(0.6), 3: double(0.5)}):
                    self.assertEqual(status(kind, changes={3: message(shares)}, text="at most 1"), EINVAL)
                for ranges in ([1], [5, 3], [0, 101], [0, 10, 5, 20], [0, 1] * 65):
                    self.assertEqual(status(kind, changes={4: ranges}), EINVAL, ranges)
                self.assertEqual(c.call(kind).status, ESTALE)
                self.assertEqual(c.call(kind, message({1: context})).status, EINVAL)
            self.assertEqual(status(changes={6: double(2)}, text="even"), EINVAL)
            self.assertEqual(status(changes={6: double(nan)}), EINVAL)
            for bad in (nan, -1, 1.5):
                self.assertEqual(status(PLAN, changes={5: double(bad)}, text="target_mass"), EINVAL)
                self.assertEqual(status(PLAN, changes={6: doubles([bad])}, text="budgets"), EINVAL)
            self.assertEqual(status(PLAN, changes={6: doubles([0.5] * 65)}, text="budgets"), EINVAL)
            arena = c.arena(1 << 16)
            reply = self.ask(c, RETAIN, context, rows, {9: region(arena.id, 0, 64)})
            self.assertEqual(reply.status, ERANGE)
            needed = reply.get(3)
            for size, wanted in ((needed - 1, ERANGE), (needed, OK)):
                self.assertEqual(self.ask(c, RETAIN, context, rows, {9: region(arena.id, 0, size)}).status, wanted)
            self.assertEqual(self.ask(c, RETAIN, context, rows, {9: region(arena.id, 32, needed)}).status, EINVAL)
            arena.close()
            self.assertEqual(self.everything(c, context, rows, 0).counts, [100, 100], "nothing of it dropped a row")

    def test_numbers_that_are_none(self):
        rng = np.random.default_rng(13)
        rows = Rows(raw_space(), 100, rng)
        rows.k[0, 0, 7, 3], rows.k[0, 1] = np.nan, np.inf
        rows.q[1, 2, 0, 1, 5] = np.nan
        rows.q[1, :, 1] = np.nan
        with self.daemon.connect() as c:
            context = self.context(c, rows, "none")
            kept, _ = self.retain(c, context, rows, drop=True)
            self.assertTrue(np.isfinite(kept[1]).all())
            self.assertEqual([len(h) for layer in kept[0] for h in layer], [20] * 4)
            self.assertEqual(self.ask(c, PLAN, context, rows, {}).status, OK)


class Ending(RetainCase):
    flags = dict(ram_bytes="64MiB", context_bytes="64MiB", scorers="1")

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(14)
        self.rows = Rows(raw_space(layers=4, kv_heads=2, k_dim=64, v_dim=16, block_tokens=256), 8000, rng, proxies=100)

    def begin(self, c, context, arena, kind=RETAIN, deadline=0, drop=True):
        arena.map[:self.rows.q.nbytes] = self.rows.q.tobytes()
        queries = region(arena.id, 0, self.rows.q.nbytes)
        body = {1: context, 2: self.proxies(self.rows, queries=queries)}
        if kind == RETAIN:
            body.update({3: message({2: F64bits(0.1)}), 8: drop})
        return c.send(kind, message(body), deadline=deadline)

    def test_late_and_lost_requests_leave_everything_as_it_was(self):
        with self.daemon.connect() as c:
            context = self.context(c, self.rows, "late", stored=0)
            arena = c.arena(self.rows.q.nbytes + 64)
            for kind in (RETAIN, PLAN):
                reply = c.wait(self.begin(c, context, arena, kind, deadline=20))
                self.assertEqual(reply.status, EDEADLINE)
            self.assertEqual(self.everything_counts(c, context), [8000] * 2)
            begun = time.monotonic()
            retain = self.begin(c, context, arena)
            ping = c.send(PING)
            query = np.ascontiguousarray(self.rows.q[0, 0]).tobytes()
            small = c.send(RETRIEVE, self.body([context], [0], 4, {1: 5}), query)
            self.assertEqual(c.wait(ping).status, OK)
            self.assertEqual(c.wait(small).status, OK)
            waited = time.monotonic() - begun
            self.assertEqual(c.wait(retain).status, OK)
            whole = time.monotonic() - begun
            self.assertLess(waited, whole / 2, "others get their turn")
            self.assertEqual(self.everything_counts(c, context), [800] * 2)
            arena.close()
        for closes in (False, True):  # the worker goes, or closes the context, in mid-work
            with self.daemon.connect() as c:
                context = self.context(c, self.rows, "gone", stored=0)
                arena = c.arena(self.rows.q.nbytes + 64)
                retain = self.begin(c, context, arena)
                self.begin(c, context, arena, PLAN)
                if closes:
                    self.assertEqual(c.call(CLOSE_CONTEXT, message({1: context})).status, OK)
                    self.assertEqual(c.wait(retain).status, OK)
                arena.close()

    def everything_counts(self, c, context):
        query = np.ascontiguousarray(self.rows.q[0, 0]).tobytes()
        return self.retrieve(c, self.rows.space, [context], [0], query, 4, {1: 8000}).counts

    def test_memory_is_bounded(self):
        rows = Rows(raw_space(layers=1, block_tokens=256), 40000, np.random.default_rng(15), proxies=1)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "memory", stored=0)
            arena = c.arena(40000 * 16 * 16 * 4)  # sparse: never read
            ask = lambda proxies: c.call(RETAIN, message({1: context, 2: message(
                {2: [0, proxies], 3: 16, 4: region(arena.id, 0, arena.size)}), 8: True}))
            reply = ask(40000)
            self.assertEqual(reply.status, ENOMEM)
            self.assertIn("context_bytes", reply.text)
            self.assertEqual(self.everything(c, context, rows, 0).counts, [40000] * 2)
            self.assertEqual(ask(3).status, OK)
            self.assertEqual(self.everything(c, context, rows, 0).counts, [8000] * 2)
            arena.close()

    def test_a_worker_that_writes_into_its_arena(self):
        rows = Rows(Space(dtype=F32, layers=2, kv_heads=2), 600, np.random.default_rng(16), proxies=40)
        with self.daemon.connect() as c:
            context = self.context(c, rows, "flip")
            arena = c.arena(1 << 18)
            stop = threading.Event()

            def flip():
                noise = np.random.default_rng(1).bytes(1 << 18)
                while not stop.is_set():
                    arena.map[:] = noise
                    arena.map[:] = b"\xff" * (1 << 18)

            thread = threading.Thread(target=flip)
            thread.start()
            try:
                for _ in range(40):
                    for kind in (RETAIN, PLAN):
                        reply = c.call(kind, message({1: context, 2: self.proxies(
                            rows, queries=region(arena.id, 0, rows.q.nbytes)), (9 if kind == RETAIN else 7):
                            region(arena.id, 1 << 17, 1 << 17)}))
                        self.assertEqual(reply.status, OK, reply.text)
            finally:
                stop.set()
                thread.join()
            arena.close()


if __name__ == "__main__":
    unittest.main()
