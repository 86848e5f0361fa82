"""Contexts and retrieval over the socket, beside a reference of a few lines."""
import array
import math
import os
import random
import struct
import threading
import time
import unittest

from wire import *

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
NAN, INF = float("nan"), float("inf")


def exact_space(**values):
    """Raw f32 rows and nothing else to score: the answer can be compared number by number."""
    base = dict(dtype=F32, landmark_bits=0, value_bits=0, k_codec=RAW, v_codec=RAW, run_tokens=0)
    base.update(values)
    return Space(**base)


def pack(values):
    return struct.pack(f"<{len(values)}f", *values)


class Rows:
    """The K and V rows of some tokens: k[layer][head][token] is a list of floats."""

    def __init__(self, space, tokens, rng, make=None):
        make = make or (lambda dim: [rng.gauss(0, 1) for _ in range(dim)])
        self.space, self.tokens = space, tokens
        self.k = [[[make(space.k_dim) for _ in range(tokens)] for _ in range(space.kv_heads)]
                  for _ in range(space.layers)]
        self.v = [[[make(space.v_dim) for _ in range(tokens)] for _ in range(space.kv_heads)]
                  for _ in range(space.layers)]

    def packed(self, first, count):
        code = {F32: "f", F16: "e"}[self.space.dtype]
        out = []
        for layer in range(self.space.layers):
            for head in range(self.space.kv_heads):
                for rows in (self.k[layer][head], self.v[layer][head]):
                    flat = [x for row in rows[first:first + count] for x in row]
                    out.append(struct.pack(f"<{len(flat)}{code}", *flat))
        return b"".join(out)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def log_sum_exp(values):
    top = max(values, default=-INF)
    return top + math.log(sum(math.exp(v - top) for v in values)) if top > -INF else -INF


def reference(rows, layer, head, queries, k, scale, excluded=()):
    """(positions, lse of the chosen, lse of all) of the exact rule: the largest softmax probability of the group.

    A token's probability is its share of all tokens, also of those that the worker holds and excludes.
    """
    eligible = [t for t in range(rows.tokens) if not any(a <= t < b for a, b in excluded)]
    every = [[scale * dot(q, rows.k[layer][head][t]) for t in range(rows.tokens)] for q in queries]
    scores = [[s[t] for t in eligible] for s in every]
    all_lse = [log_sum_exp(s) for s in scores]
    whole = [log_sum_exp(s) for s in every]
    best = [max(scores[g][i] - whole[g] for g in range(len(queries))) for i in range(len(eligible))]
    order = sorted(range(len(eligible)), key=lambda i: (-best[i], eligible[i]))[:k]
    chosen = sorted(eligible[i] for i in order)
    chosen_lse = [log_sum_exp([scores[g][i] for i in order]) for g in range(len(queries))]
    return chosen, chosen_lse, all_lse


class Result:
    """The parts of an answer, by the layout of proto/result.h written down once more."""

    def __init__(self, data, pairs, steps, space, query_heads, k, attend=False, rest=False, rows=False):
        self.at = 0
        self.data = data
        ps, h, q = pairs * steps, space.kv_heads, query_heads
        out_dim = space.v_prefix or space.v_dim
        self.counts = self.take("I", ps * h)
        self.positions = self.take("I", ps * h * k)
        self.scores = self.take("f", ps * h * k)
        self.lse = self.take("f", ps * q * 2)
        self.mass_error = self.take("f", ps * q)
        if attend:
            self.part_lse = self.take("f", ps * q)
            self.part_out = self.take("f", ps * q * out_dim)
        if rest:
            self.rest_lse = self.take("f", ps * q)
            self.rest_out = self.take("f", ps * q * out_dim)
        if rows:
            code = {F32: "f", F16: "e"}[space.dtype]
            self.k_rows = self.take(code, ps * h * k * space.k_dim)
            self.v_rows = self.take(code, ps * h * k * space.v_dim)
        self.k = k
        self.total = self.at

    def take(self, code, count):
        self.at = (self.at + 63) & ~63
        out = list(struct.unpack_from(f"<{count}{code}", self.data, self.at))
        self.at += struct.calcsize(f"<{count}{code}")
        return out

    def chosen(self, index):
        return self.positions[index * self.k:index * self.k + self.counts[index]]


class RetrieveCase(DaemonCase):
    flags = dict(ram_bytes="128MiB", context_bytes="64MiB")

    def store(self, c, space, rows, name):
        number = c.open_space(space)
        count = rows.tokens // space.block_tokens
        keys = [key(name, space.fingerprint(), i) for i in range(count)]
        for i, k in enumerate(keys):
            reply = c.put(number, [k], rows.packed(i * space.block_tokens, space.block_tokens),
                          parent=keys[i - 1] if i else b"")
            self.assertIn(reply.statuses(), ([OK], [EEXIST]))
        return number, keys

    def open(self, c, number, keys=()):
        reply = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(keys)}))
        self.assertEqual(reply.status, OK, reply.text)
        return reply.get(1)

    def append(self, c, context, rows, first, count):
        data = rows.packed(first, count)
        reply = c.call(APPEND, message({1: context, 2: count, 3: region(0, 0, len(data))}), data)
        self.assertEqual(reply.status, OK, reply.text)
        return reply.get(1)

    def body(self, contexts, layers, query_heads, budget, **more):
        out = {1: list(contexts), 2: list(layers), 3: more.pop("steps", 1), 4: query_heads, 7: message(budget)}
        if "excluded" in more:
            out[8] = [x for r in more.pop("excluded") for x in r]
        if more.pop("rows", False):
            out[11] = 1
        if more.pop("rest", False):
            out[13] = 1
        if more.pop("all", False):
            out[17] = 1
        out.update(more.pop("fields", {}))
        return message(out)

    def retrieve(self, c, space, contexts, layers, queries, query_heads, budget, kind=RETRIEVE, **more):
        rows, rest, steps = more.get("rows", False), more.get("rest", False), more.get("steps", 1)
        reply = c.call(kind, self.body(contexts, layers, query_heads, budget, **more), queries)
        self.assertEqual(reply.status, OK, reply.text)
        result = Result(reply.payload, len(layers), steps, space, query_heads, reply.get(1), kind == ATTEND, rest, rows)
        self.assertEqual(result.total, len(reply.payload))
        self.assertEqual(reply.get(2), result.total)
        return result


class Selection(RetrieveCase):
    def test_case_31_counts(self):
        """n and k around each other, alone and in a batch, for codes and for exact rows."""
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        for space in (Space(dtype=F32), exact_space()):
            rows = Rows(space, 40, rng)
            queries = [pack([rng.gauss(0, 1) for _ in range(4 * space.k_dim)]) for _ in range(2)]
            with self.daemon.connect() as c:
                number = c.open_space(space)
                for n in (0, 1, 4, 5, 6, 15, 16, 17, 33):
                    context = self.open(c, number)
                    if n:
                        self.assertEqual(self.append(c, context, rows, 0, n), n)
                    for k in (0, 1, n - 1, n, n + 1, 5):
                        if k < 0:
                            continue
                        alone = [self.retrieve(c, space, [context], [layer], queries[layer], 4, {1: k})
                                 for layer in range(2)]
                        both = self.retrieve(c, space, [context], [0, 1], queries[0] + queries[1], 4, {1: k})
                        for layer in range(2):
                            for head in range(2):
                                chosen = alone[layer].chosen(head)
                                self.assertEqual(len(chosen), min(k, n), (n, k))
                                self.assertEqual(chosen, sorted(set(chosen)))
                                self.assertTrue(all(0 <= p < n for p in chosen))
                                self.assertEqual(both.chosen(layer * 2 + head), chosen)
                        self.assertEqual(both.scores[:2 * k], alone[0].scores)
                        self.assertEqual(both.lse[8:], alone[1].lse)
                    self.assertEqual(c.call(CLOSE_CONTEXT, message({1: context})).status, OK)

    def test_exact_rows_agree_with_brute_force(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        space = exact_space(layers=2, kv_heads=2, k_dim=24, v_dim=8)
        rows = Rows(space, 77, rng)
        excluded = [(0, 4), (30, 41), (70, 1000)]
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "exact")
            context = self.open(c, number, keys)
            self.assertEqual(self.append(c, context, rows, 64, 13), 77)
            steps = [[[rng.gauss(0, 1) for _ in range(24)] for _ in range(6)] for _ in range(3)]
            flat = pack([x for step in steps for q in step for x in q])
            result = self.retrieve(c, space, [context], [1], flat, 6, {1: 9}, steps=3, excluded=excluded, rows=True)
            for step in range(3):
                for head in range(2):
                    index = step * 2 + head
                    group = steps[step][head * 3:head * 3 + 3]
                    chosen, chosen_lse, all_lse = reference(rows, 1, head, group, 9, 24 ** -0.5, excluded)
                    self.assertEqual(result.chosen(index), chosen)
                    for g in range(3):
                        at = (step * 6 + head * 3 + g) * 2
                        self.assertAlmostEqual(result.lse[at], chosen_lse[g], places=3)
                        self.assertAlmostEqual(result.lse[at + 1], all_lse[g], places=3)
                    for i, p in enumerate(chosen):
                        at = (index * 9 + i) * 24
                        self.assertEqual(result.k_rows[at:at + 24], list(struct.unpack("<24f", pack(rows.k[1][head][p]))))
                        at = (index * 9 + i) * 8
                        self.assertEqual(result.v_rows[at:at + 8], list(struct.unpack("<8f", pack(rows.v[1][head][p]))))

    def test_budgets(self):
        rng = random.Random(3)
        space = exact_space()
        rows = Rows(space, 64, rng)
        queries = pack([rng.gauss(0, 1) for _ in range(2 * 16)])
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "budget")
            context = self.open(c, number, keys)
            ask = lambda budget, **more: self.retrieve(c, space, [context], [0], queries, 2, budget, **more)
            self.assertEqual(ask({2: F64bits(0.125)}).counts, [8, 8])
            self.assertEqual(ask({2: F64bits(0.125)}, excluded=[(0, 32)]).counts, [4, 4])
            self.assertEqual(ask({2: F64bits(0.125), 5: 3}).counts, [3, 3])
            self.assertEqual(ask({2: F64bits(1.0)}).counts, [64, 64])
            capped = ask({4: F64bits(0.5), 5: 64})
            self.assertTrue(all(0 < n < 64 for n in capped.counts))
            self.assertTrue(all(n <= 64 for n in ask({3: F64bits(0.01), 5: 64}).counts))
            for bad in ({2: F64bits(1.5)}, {2: F64bits(-0.1)}, {2: F64bits(NAN)}, {3: F64bits(0.1)}, {4: F64bits(0.1)},
                        {1: 5, 2: F64bits(0.1)}, {1: 65537}, {4: F64bits(2.0), 5: 5}):
                reply = c.call(RETRIEVE, self.body([context], [0], 2, bad), queries)
                self.assertEqual(reply.status, EINVAL, bad)

    def test_requests_out_of_range(self):
        rng = random.Random(4)
        space = exact_space()
        rows = Rows(space, 16, rng)
        queries = pack([0.5] * 32)
        with self.daemon.connect() as c, self.daemon.connect() as other:
            number, keys = self.store(c, space, rows, "range")
            context = self.open(c, number, keys)
            good = dict(contexts=[context], layers=[0], query_heads=2, budget={1: 4})

            def status(payload=queries, connection=c, kind=RETRIEVE, **changes):
                reply = connection.call(kind, self.body(**{**good, **changes}), payload)
                self.assertTrue(reply.status == OK or reply.text)
                return reply.status

            self.assertEqual(status(), OK)
            self.assertEqual(status(layers=[]), EINVAL)
            self.assertEqual(status(layers=[2]), EINVAL)
            self.assertEqual(status(layers=[0] * 513), EINVAL)
            self.assertEqual(status(contexts=[]), EINVAL)
            self.assertEqual(status(contexts=[context, context]), EINVAL)
            self.assertEqual(status(contexts=[context + 1]), ESTALE)
            self.assertEqual(status(connection=other), ESTALE, "another worker's context")
            self.assertEqual(status(payload=queries[:-1]), ERANGE)
            self.assertEqual(status(steps=65), EINVAL)
            self.assertEqual(status(excluded=[(4, 2)]), EINVAL)
            self.assertEqual(status(excluded=[(4, 8), (6, 9)]), EINVAL)
            self.assertEqual(status(excluded=[(i, i + 1) for i in range(65)]), EINVAL)
            self.assertEqual(status(fields={8: [1, 2, 3]}), EINVAL)
            self.assertEqual(status(excluded=[(0, (1 << 64) - 1)]), OK)
            self.assertEqual(status(fields={6: F32bits(NAN)}), EINVAL)
            self.assertEqual(status(fields={6: F32bits(INF)}), EINVAL)
            self.assertEqual(status(fields={9: F32bits(0.5)}), EINVAL)
            self.assertEqual(status(fields={12: 9}), EINVAL)
            self.assertEqual(status(fields={15: 9}), EINVAL)
            self.assertEqual(status(fields={15: 1, 16: 1}), EINVAL)
            for held, wanted in ((1.0, OK), (-INF, OK), (NAN, EINVAL), (INF, EINVAL)):
                self.assertEqual(status(payload=queries + pack([0.0, held]), fields={18: region(0, 128, 8)}), wanted)
            self.assertEqual(status(fields={18: region(0, 128, 8)}), ERANGE)
            self.assertEqual(status(fields={18: region(7, 0, 8)}), ESTALE)
            self.assertEqual(status(fields={5: region(0, 1, 128)}), ERANGE)
            self.assertEqual(status(fields={5: region(7, 0, 128)}), ESTALE)
            self.assertEqual(status(contexts=[(1 << 64) - 1]), ESTALE)

    def test_case_32_numbers_that_are_none(self):
        rng = random.Random(5)
        for space in (Space(dtype=F32, k_dim=32, v_dim=32), exact_space(k_dim=32, v_dim=32)):
            rows = Rows(space, 48, rng)
            bad = {1: NAN, 2: INF, 20: -INF, 33: NAN, 47: NAN}
            for position, value in bad.items():
                for layer in range(2):
                    rows.k[layer][0][position][7] = value
            rows.k[0][0][5] = [0.0] * 32
            for position in range(48):
                rows.k[1][1][position] = [NAN] * 32
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, rows, "nan")
                context = self.open(c, number, keys[:2])
                self.append(c, context, rows, 32, 16)
                queries = [rng.gauss(0, 1) for _ in range(64)]
                result = self.retrieve(c, space, [context], [0], pack(queries), 2, {1: 43}, rows=True)
                self.assertEqual(result.chosen(0), [p for p in range(48) if p not in bad], "numbers come first")
                result = self.retrieve(c, space, [context], [0], pack(queries), 2, {1: 45})
                self.assertEqual(result.chosen(0), sorted([p for p in range(48) if p not in bad] + [1, 2]),
                                 "then the lower positions")
                self.assertTrue(all(math.isfinite(x) for x in result.lse[:2]))
                every = self.retrieve(c, space, [context], [1], pack(queries), 2, {1: 7}, rest=True)
                self.assertEqual(every.chosen(1), list(range(7)), "nothing is a number: the lower positions")
                self.assertEqual(every.lse[2:], [-INF, -INF])
                self.assertTrue(all(x == 0 for x in every.rest_out[32:]))
                for value in (NAN, INF, 0.0):
                    result = self.retrieve(c, space, [context], [0], pack([value] * 64), 2, {1: 5})
                    self.assertEqual(result.counts, [5, 5])

    def test_case_33_head_dims(self):
        rng = random.Random(6)
        for k_dim in (1, 40, 64, 80, 96, 112, 128, 132, 192, 256, 576):
            for v_dim in {0, k_dim, 24}:
                space = Space(dtype=F32, layers=1, kv_heads=1, k_dim=k_dim, v_dim=v_dim, block_tokens=32,
                              run_tokens=32, outliers=min(8, k_dim - 1), v_codec=Q8 if v_dim else RAW,
                              value_bits=2 if v_dim else 0)
                rows = Rows(space, 70, rng)
                query = [rng.gauss(0, 1) for _ in range(k_dim)]
                for needle in (3, 40, 69):
                    rows.k[0][0][needle] = [8 * x for x in query]
                with self.daemon.connect() as c:
                    number, keys = self.store(c, space, rows, "dims")
                    context = self.open(c, number, keys)
                    self.assertEqual(self.append(c, context, rows, 64, 6), 70)
                    result = self.retrieve(c, space, [context], [0], pack(query), 1, {1: 6}, rows=True)
                    if k_dim > 1:
                        self.assertTrue({3, 40, 69} <= set(result.chosen(0)), (k_dim, v_dim, result.chosen(0)))
                    for i, p in enumerate(result.chosen(0)):
                        got = result.k_rows[i * k_dim:(i + 1) * k_dim]
                        want = rows.k[0][0][p]
                        norm = max(1.0, max(abs(x) for x in want))
                        self.assertTrue(all(abs(a - b) < 0.05 * norm for a, b in zip(got, want)), (k_dim, v_dim, p))

    def test_case_34_query_heads(self):
        rng = random.Random(7)
        space = Space(dtype=F32, layers=1, kv_heads=2, k_dim=32, v_dim=32, block_tokens=32, run_tokens=32)
        rows = Rows(space, 96, rng)
        wanted = [[rng.gauss(0, 1) for _ in range(32)] for _ in range(2)]
        rows.k[0][0][50] = [10 * x for x in wanted[0]]
        rows.k[0][1][90] = [10 * x for x in wanted[1]]
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "heads")
            context = self.open(c, number, keys)
            for group in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32):
                queries = []
                for head in range(2):
                    for g in range(group):  # one head of the group alone looks for the needle
                        queries += wanted[head] if g == group - 1 else [rng.gauss(0, 0.1) for _ in range(32)]
                result = self.retrieve(c, space, [context], [0], pack(queries), 2 * group, {1: 3})
                self.assertIn(50, result.chosen(0), group)
                self.assertIn(90, result.chosen(1), group)
            for heads in (0, 1, 3, 2 * 129, 1026):
                reply = c.call(RETRIEVE, self.body([context], [0], heads, {1: 3}), bytes(heads * 32 * 4))
                self.assertEqual(reply.status, EINVAL, heads)


class Attention(RetrieveCase):
    def attention(self, rows, layer, head, query, positions, scale):
        scores = [scale * dot(query, rows.k[layer][head][p]) for p in positions]
        lse = log_sum_exp(scores)
        out = [sum(math.exp(s - lse) * rows.v[layer][head][p][d] for s, p in zip(scores, positions))
               for d in range(rows.space.v_dim)]
        return lse, out

    def test_attend_to_every_row(self):
        rng = random.Random(8)
        space = exact_space(k_dim=16, v_dim=8)
        rows = Rows(space, 45, rng)
        queries = [[rng.gauss(0, 1) for _ in range(16)] for _ in range(4)]
        flat = pack([x for q in queries for x in q])
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "attend")
            context = self.open(c, number, keys)
            self.append(c, context, rows, 32, 13)
            result = self.retrieve(c, space, [context], [1], flat, 4, {}, kind=ATTEND, all=True, excluded=[(0, 5)])
            for q in range(4):
                lse, out = self.attention(rows, 1, q // 2, queries[q], range(5, 45), 0.25)
                self.assertAlmostEqual(result.part_lse[q], lse, places=3)
                for a, b in zip(result.part_out[q * 8:q * 8 + 8], out):
                    self.assertAlmostEqual(a, b, places=3)

    def test_part_and_rest_make_the_whole(self):
        rng = random.Random(9)
        for space, tolerance in ((exact_space(k_dim=16, v_dim=8, landmark_bits=8, run_tokens=16), 0.02),
                                 (Space(dtype=F32, k_dim=32, v_dim=32, landmark_bits=4, value_bits=4), 0.3)):
            rows = Rows(space, 48, rng)
            queries = [[rng.gauss(0, 1) for _ in range(space.k_dim)] for _ in range(4)]
            flat = pack([x for q in queries for x in q])
            scale = space.k_dim ** -0.5
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, rows, "rest")
                context = self.open(c, number, keys)
                result = self.retrieve(c, space, [context], [0], flat, 4, {1: 12}, kind=ATTEND, rest=True)
                for q in range(4):
                    lse, out = self.attention(rows, 0, q // 2, queries[q], range(48), scale)
                    parts = ((result.part_lse[q], result.part_out), (result.rest_lse[q], result.rest_out))
                    whole = log_sum_exp([p[0] for p in parts])
                    self.assertAlmostEqual(whole, lse, delta=tolerance * 4)
                    for d in range(space.v_dim):
                        merged = sum(math.exp(p[0] - whole) * p[1][q * space.v_dim + d] for p in parts)
                        self.assertAlmostEqual(merged, out[d], delta=tolerance)

    def test_case_45_the_rest_of_nothing(self):
        rng = random.Random(10)
        space = Space(dtype=F32)
        rows = Rows(space, 32, rng)
        flat = pack([rng.gauss(0, 1) for _ in range(64)])
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "nothing")
            context = self.open(c, number, keys)
            for budget, excluded in (({1: 32}, []), ({1: 40}, []), ({1: 4}, [(0, 32)])):
                result = self.retrieve(c, space, [context], [0], flat, 4, budget, kind=ATTEND, rest=True,
                                       excluded=excluded)
                self.assertEqual(result.rest_lse, [-INF] * 4)
                self.assertEqual(result.rest_out, [0.0] * 64)
            empty = self.open(c, number)
            result = self.retrieve(c, space, [empty], [0], flat, 4, {1: 4}, kind=ATTEND, rest=True)
            self.assertEqual((result.counts, result.part_lse, result.part_out), ([0, 0], [-INF] * 4, [0.0] * 64))


class Contexts(RetrieveCase):
    def test_case_47_a_tail_answers_like_a_chain(self):
        """The same tokens, stored and appended in pieces: the same bits."""
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        for space in (Space(dtype=F32, block_tokens=64, run_tokens=32), exact_space(block_tokens=64)):
            rows = Rows(space, 192, rng)
            flat = pack([rng.gauss(0, 1) for _ in range(64)])
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, rows, "tail")
                answers = []
                for pieces, chain in (([], 3), ([64, 64], 1), ([1, 15, 16, 17, 79, 64], 0), ([127, 1], 1),
                                      ([65, 63], 1), ([192], 0)):
                    context = self.open(c, number, keys[:chain])
                    at = chain * 64
                    for count in pieces:
                        at = self.append(c, context, rows, at, count)
                    self.assertEqual(at, 192)
                    result = self.retrieve(c, space, [context], [0], flat, 4, {1: 11}, rows=True, rest=True)
                    answers.append((result.counts, result.positions, result.scores, result.lse, result.k_rows,
                                    result.v_rows, result.rest_lse, result.rest_out))
                for answer in answers[1:]:
                    self.assertEqual(answer, answers[0])

    def fork(self, c, context):
        reply = c.call(FORK, message({1: context}))
        self.assertEqual(reply.status, OK, reply.text)
        return reply.get(1), reply.get(2)

    def test_case_47_forks_see_their_own_tokens_alone(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        for space in (Space(dtype=F32, block_tokens=64, run_tokens=32), exact_space(block_tokens=64)):
            left, right = Rows(space, 280, rng), Rows(space, 280, rng)
            for layer in range(2):
                for head in range(2):  # one prefix of 150 tokens
                    right.k[layer][head][:150] = left.k[layer][head][:150]
                    right.v[layer][head][:150] = left.v[layer][head][:150]
            flat = pack([rng.gauss(0, 1) for _ in range(64)])
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, left, "fork")
                ask = lambda context: self.retrieve(c, space, [context], [1], flat, 4, {1: 13}, rows=True, rest=True).data
                for more in (0, 1, 15, 16, 17, 42, 43, 105, 106, 107, 127, 128, 129):
                    parent = self.open(c, number, keys[:1])
                    self.append(c, parent, left, 64, 86)
                    child, tokens = self.fork(c, parent)
                    self.assertEqual(tokens, 150)
                    self.assertEqual(ask(child), ask(parent))
                    if more:
                        self.append(c, parent, left, 150, more)
                        self.append(c, child, right, 150, more)
                    wanted = []
                    for rows in (left, right):
                        alone = self.open(c, number, keys[:1])
                        self.append(c, alone, rows, 64, 86 + more)
                        wanted.append(ask(alone))
                        c.call(CLOSE_CONTEXT, message({1: alone}))
                    self.assertEqual([ask(parent), ask(child)], wanted, more)
                    self.assertEqual(c.call(CLOSE_CONTEXT, message({1: parent})).status, OK)
                    self.assertEqual(ask(child), wanted[1], "a fork outlives its parent")
                    c.call(CLOSE_CONTEXT, message({1: child}))
                self.assertEqual(c.call(FORK, message({1: parent})).status, ESTALE)

    def test_case_47_a_sealed_tail_answers_like_the_tail(self):
        rng = random.Random(18)
        for space in (Space(dtype=F32, block_tokens=64, run_tokens=32), exact_space(block_tokens=64)):
            rows = Rows(space, 200, rng)
            flat = pack([rng.gauss(0, 1) for _ in range(64)])
            name = ("seal", space.fingerprint())
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, rows, "sealed")
                seal = lambda context, named, parent=b"": c.call(
                    SEAL, message({1: context, 2: b"".join(named), 3: parent}))
                context = self.open(c, number, keys[:1])
                self.append(c, context, rows, 64, 136)
                new = [key(*name, i) for i in range(3)]
                self.assertEqual(seal(context, new).status, EINVAL, "two blocks are full")
                self.assertEqual(seal(context, new[:2], b"x").status, EINVAL)
                reply = seal(context, new[:2])
                self.assertEqual((reply.status, reply.get(1), [zigzag(v) for v in reply.list(2)]), (OK, 2, [OK, OK]))
                again = seal(context, new[:2])
                self.assertEqual((again.get(1), [zigzag(v) for v in again.list(2)]), (2, [EEXIST, EEXIST]))
                self.assertEqual(c.get(number, new[:2]).payload, rows.packed(64, 64) + rows.packed(128, 64))
                chain = self.open(c, number, [keys[0], *new[:2]])
                self.append(c, chain, rows, 192, 8)
                answers = [self.retrieve(c, space, [x], [0], flat, 4, {1: 13}, rows=True, rest=True).data
                           for x in (context, chain)]
                self.assertEqual(answers[0], answers[1])
                self.assertEqual(seal(context, []).status, OK)

    def test_appends_keep_their_order_and_overtake_nobody(self):
        rng = random.Random(11)
        space = exact_space(block_tokens=16)
        rows = Rows(space, 60, rng)
        with self.daemon.connect() as c:
            number = c.open_space(space)
            context = self.open(c, number)
            ids = []
            for at in range(0, 60, 5):
                data = rows.packed(at, 5)
                ids.append(c.send(APPEND, message({1: context, 2: 5, 3: region(0, 0, len(data))}), data))
            self.assertEqual([c.wait(i).get(1) for i in ids], list(range(5, 61, 5)))
            reply = self.fetch(c, context, 0, [60, 60], list(range(60)) * 2)
            values = struct.unpack(f"<{2 * 60 * 32}f", reply.payload)
            self.assertEqual(list(values[:16]), list(struct.unpack("<16f", pack(rows.k[0][0][0]))))
            at = 60 * 16 + 59 * 16
            self.assertEqual(list(values[at:at + 16]), list(struct.unpack("<16f", pack(rows.k[0][1][59]))))

    def fetch(self, c, context, layer, counts, positions, **fields):
        return c.call(FETCH_ROWS, message({1: context, 2: layer, 3: counts, 4: positions, **fields}))

    def test_fetch_rows(self):
        rng = random.Random(12)
        space = exact_space(k_dim=8, v_dim=4)
        rows = Rows(space, 40, rng)
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "rows")
            context = self.open(c, number, keys)
            self.append(c, context, rows, 32, 8)
            reply = self.fetch(c, context, 1, [3, 2], [0, 15, 39, 16, 31])
            self.assertEqual(reply.status, OK, reply.text)
            k = struct.unpack_from("<40f", reply.payload)
            v = struct.unpack_from("<20f", reply.payload, 192)
            for i, (head, p) in enumerate(((0, 0), (0, 15), (0, 39), (1, 16), (1, 31))):
                self.assertEqual(k[i * 8:i * 8 + 8], struct.unpack("<8f", pack(rows.k[1][head][p])))
                self.assertEqual(v[i * 4:i * 4 + 4], struct.unpack("<4f", pack(rows.v[1][head][p])))
            self.assertEqual(self.fetch(c, context, 1, [0, 0], []).status, OK)
            for layer, counts, positions, status in (
                    (2, [1, 0], [0], EINVAL), (0, [1], [0], EINVAL), (0, [1, 1], [0], EINVAL),
                    (0, [1, 0], [0, 1], EINVAL), (0, [2, 0], [1, 0], ERANGE), (0, [2, 0], [3, 3], ERANGE),
                    (0, [1, 0], [40], ERANGE), (0, [1, 0], [(1 << 32) - 1], ERANGE),
                    (0, [(1 << 32) - 1, 1], [0], EINVAL)):
                self.assertEqual(self.fetch(c, context, layer, counts, positions).status, status, (counts, positions))
            self.assertEqual(self.fetch(c, context, 0, [1, 0], [0]).status, OK)

    def test_case_46_a_chain_with_a_block_missing(self):
        rng = random.Random(13)
        space = Space(dtype=F32)
        rows = Rows(space, 64, rng)
        flat = pack([rng.gauss(0, 1) for _ in range(64)])
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "missing")
            context = self.open(c, number, keys)
            before = self.retrieve(c, space, [context], [0], flat, 4, {1: 9}, rows=True)
            self.assertEqual(c.call(DELETE, message({1: number, 2: keys[2]})).statuses(), [OK])
            after = self.retrieve(c, space, [context], [0], flat, 4, {1: 9}, rows=True)
            self.assertEqual(after.data, before.data, "an open context keeps what it pinned")
            reply = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(keys)}))
            self.assertEqual((reply.status, reply.get(2)), (ENOENT, 2))
            other = Rows(space, 64, rng)
            c.put(number, [keys[2]], other.packed(32, 16), parent=keys[1])
            again = self.retrieve(c, space, [context], [0], flat, 4, {1: 9}, rows=True)
            self.assertEqual(again.data, before.data, "case 11: nor does a re-put mix in")
            fresh = self.retrieve(c, space, [self.open(c, number, keys)], [0], flat, 4, {1: 64}, rows=True)
            self.assertNotEqual(fresh.data, before.data)

    def test_contexts_end(self):
        space = Space(dtype=F32)
        with self.daemon.connect() as c, self.daemon.connect() as other:
            number = c.open_space(space)
            context = self.open(c, number)
            self.assertEqual(other.call(CLOSE_CONTEXT, message({1: context})).status, ESTALE)
            self.assertEqual(c.call(CLOSE_CONTEXT, message({1: context})).status, OK)
            self.assertEqual(c.call(CLOSE_CONTEXT, message({1: context})).status, ESTALE)
            self.assertEqual(c.call(APPEND, message({1: context, 2: 1})).status, ESTALE)
            contexts = [self.open(c, number) for _ in range(256)]
            self.assertEqual(c.call(OPEN_CONTEXT, message({1: number})).status, EBUSY)
            self.assertEqual(len(set(contexts)), 256)
            opaque = c.open_space(Space.opaque(4096))
            self.assertEqual(c.call(OPEN_CONTEXT, message({1: opaque})).status, EINVAL)

    def test_appends_are_bounded(self):
        space = Space(dtype=F32, layers=4, kv_heads=4, k_dim=64, v_dim=64, block_tokens=256, run_tokens=128)
        with self.daemon.connect() as c:
            number = c.open_space(space)
            context = self.open(c, number)
            arena = c.arena(space.bytes())
            tokens = 0
            for _ in range(100):  # 64 MiB are allowed, and a block takes more than 2
                reply = c.call(APPEND, message({1: context, 2: 256, 3: region(arena.id, 0, arena.size)}))
                if reply.status != OK:
                    break
                tokens = reply.get(1)
            self.assertEqual(reply.status, ENOMEM)
            self.assertIn("context_bytes", reply.text)
            self.assertGreater(tokens, 0)
            queries = bytes(4 * 64 * 4)
            reply = c.call(RETRIEVE, self.body([context], [0], 4, {1: 5}), queries)
            self.assertEqual((reply.status, reply.get(3)), (OK, 4 * tokens), "what was appended is still there")
            for tokens in (0, 65537, (1 << 32) - 1):
                self.assertEqual(c.call(APPEND, message({1: context, 2: tokens})).status, EINVAL)
            reply = c.call(APPEND, message({1: context, 2: 256, 3: region(arena.id, 0, arena.size - 1)}))
            self.assertEqual(reply.status, ERANGE)
            arena.close()

    def test_results_in_an_arena(self):
        rng = random.Random(14)
        space = exact_space()
        rows = Rows(space, 64, rng)
        queries = pack([rng.gauss(0, 1) for _ in range(64)])
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "arena")
            context = self.open(c, number, keys)
            arena = c.arena(65536)
            inline = self.retrieve(c, space, [context], [0], queries, 4, {1: 8}, rows=True)
            arena.map[1000:1000 + len(queries)] = queries
            ask = lambda offset, size: c.call(RETRIEVE, self.body(
                [context], [0], 4, {1: 8}, rows=True,
                fields={5: region(arena.id, 1000, len(queries)), 14: region(arena.id, offset, size)}))
            reply = ask(4096, inline.total)
            self.assertEqual((reply.status, reply.payload), (OK, b""))
            self.assertEqual(arena.map[4096:4096 + inline.total], inline.data)
            self.assertEqual(arena.map[4096 + inline.total:], bytes(65536 - 4096 - inline.total))
            reply = ask(4096, inline.total - 1)
            self.assertEqual((reply.status, reply.get(3)), (ERANGE, inline.total))
            self.assertEqual(ask(4097, inline.total).status, EINVAL)
            self.assertEqual(ask(65536 - 64, inline.total).status, ERANGE)
            self.assertEqual(ask((1 << 64) - 64, inline.total).status, ERANGE)
            arena.close()

    def test_case_15_a_worker_that_writes_into_its_result(self):
        rng = random.Random(15)
        space = Space(dtype=F32, layers=1, kv_heads=2, k_dim=32, v_dim=32, block_tokens=64, run_tokens=32)
        rows = Rows(space, 256, rng)
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "flip")
            context = self.open(c, number, keys)
            arena = c.arena(1 << 20)
            stop = threading.Event()

            def flip():
                while not stop.is_set():
                    arena.map[0:1 << 18] = b"\xFF" * (1 << 18)

            thread = threading.Thread(target=flip)
            thread.start()
            try:
                for _ in range(200):
                    reply = c.call(RETRIEVE, self.body(
                        [context], [0], 4, {1: 64}, rows=True, rest=True, steps=2,
                        fields={5: region(arena.id, 0, 1024), 14: region(arena.id, 1024, 1 << 19)}))
                    self.assertEqual(reply.status, OK, reply.text)
            finally:
                stop.set()
                thread.join()
            arena.close()

    def test_closed_while_a_retrieve_runs(self):
        rng = random.Random(16)
        space = Space(dtype=F32, layers=2, kv_heads=2, k_dim=32, v_dim=32, block_tokens=64, run_tokens=32)
        rows = Rows(space, 128, rng)
        queries = pack([rng.gauss(0, 1) for _ in range(64 * 4 * 32)])
        for _ in range(20):
            with self.daemon.connect() as c:
                number, keys = self.store(c, space, rows, "closed")
                context = self.open(c, number, keys)
                body = self.body([context], [0], 4, {1: 16}, rows=True, rest=True, steps=64)
                retrieve = c.send(RETRIEVE, body, queries)
                close = c.send(CLOSE_CONTEXT, message({1: context}))
                late = c.send(RETRIEVE, body, queries)
                self.assertEqual(c.wait(close).status, OK)
                self.assertEqual(c.wait(retrieve).status, OK)
                self.assertEqual(c.wait(late).status, ESTALE)
                context = self.open(c, number, keys)
                for _ in range(8):
                    c.send(RETRIEVE, self.body([context], [0], 4, {1: 16}, steps=64, rest=True), queries)


class LongContexts(unittest.TestCase):
    def test_many_threads_on_one_task_give_the_same_bits(self):
        """70,000 tokens, one KV head: eight scorers share what one scorer does alone."""
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        space = Space(dtype=F32, layers=1, kv_heads=1, k_dim=16, v_dim=16, block_tokens=256, run_tokens=128)
        tokens = 70001
        rows = array.array("f", (rng.random() - 0.5 for _ in range(tokens * 32))).tobytes()
        half = tokens * 16 * 4
        flat = pack([3 * rng.gauss(0, 1) for _ in range(64)])
        answers = []
        for scorers in (1, 8):
            daemon = Daemon(scorers=scorers, ram_bytes="32MiB", context_bytes="64MiB")
            with daemon.connect() as c:
                number = c.open_space(space)
                context = c.call(OPEN_CONTEXT, message({1: number})).get(1)
                for first in range(0, tokens, 14000):
                    count = min(14000, tokens - first)
                    part = rows[first * 64:(first + count) * 64] + rows[half + first * 64:half + (first + count) * 64]
                    reply = c.call(APPEND, message({1: context, 2: count, 3: region(0, 0, len(part))}), part)
                    self.assertEqual(reply.get(1), first + count, reply.text)
                for kind in (RETRIEVE, ATTEND):
                    body = message({1: [context], 2: [0], 4: 4, 7: message({2: F64bits(1 / 64)}), 8: [0, 4, 69000, 70001],
                                    11: int(kind == RETRIEVE), 13: 1})
                    reply = c.call(kind, body, flat)
                    self.assertEqual((reply.status, reply.get(3)), (OK, tokens), reply.text)
                    answers.append(reply.payload)
                # The worker goes while its requests are under way.
                for _ in range(20):
                    c.send(RETRIEVE, message({1: [context], 2: [0], 4: 4, 7: message({1: 9}), 13: 1}), flat)
            daemon.stop()
        self.assertEqual(answers[:2], answers[2:])
        counts = struct.unpack_from("<I", answers[0])[0]
        self.assertEqual(counts, math.ceil((69000 - 4) / 64))


class SmallMemory(RetrieveCase):
    flags = dict(ram_bytes="8MiB", request_timeout="20s")

    def test_contexts_leave_room_for_puts(self):
        rng = random.Random(17)
        space = exact_space(layers=4, kv_heads=2, k_dim=64, v_dim=64, block_tokens=64)  # 256 KiB a block
        rows = Rows(space, 64, rng)
        block = rows.packed(0, 64)
        with self.daemon.connect() as c:
            number = c.open_space(space)
            keys = [key("room", i) for i in range(40)]
            for i, k in enumerate(keys):
                self.assertEqual(c.put(number, [k], block, parent=keys[i - 1] if i else b"").statuses(), [OK])
            reply = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(keys)}))
            self.assertEqual((reply.status, reply.get(2)), (ENOMEM, 24), "three quarters of 8 MiB")
            self.assertIn("ram_bytes", reply.text)
            contexts = [self.open(c, number, keys[:20]) for _ in range(5)]
            self.assertEqual(len(contexts), 5, "shared blocks count once")
            for i in range(10):
                self.assertEqual(c.put(number, [key("more", i)], block).statuses(), [OK])
            self.assertEqual(c.get(number, keys[-8:]).statuses(), [OK] * 8)


if __name__ == "__main__":
    unittest.main()
