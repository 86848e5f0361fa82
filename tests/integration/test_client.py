"""The Python package, libcairn and cairnctl against a real cairnd."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import wire

os.environ.setdefault("CAIRN_LIBRARY", os.path.join(wire.ROOT, "build", "release", "libcairn.so"))
sys.path.insert(0, os.path.join(wire.ROOT, "client", "python"))
import cairn  # noqa: E402

BUILD = os.environ.get("CAIRN_BUILD", os.path.join(wire.ROOT, "build", "release"))
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())
print(f"CAIRN_TEST_SEED={SEED}")


def config(name="toy", **changes):
    fields = dict(
        model=name, layers=2, kv_heads=2, k_dim=64, v_dim=64, dtype="f32", block_tokens=128
    )
    fields.update(changes)
    return cairn.SpaceConfig(**fields)


class Sequence:
    """Random rows of a prompt, keys with a few directions that queries like."""

    def __init__(self, space, blocks, rng, tail=0):
        c = space.config
        self.space, self.blocks = space, blocks
        self.tokens = blocks * c.block_tokens + tail
        self.ids = rng.integers(0, 2**32, self.tokens, dtype=np.uint32)
        self.k = rng.standard_normal((c.layers, c.kv_heads, self.tokens, c.k_dim), np.float32) + 0.5
        self.v = rng.standard_normal((c.layers, c.kv_heads, self.tokens, c.v_dim), np.float32)
        self.keys = space.chain_keys(self.ids)

    def packed(self):
        n = self.space.config.block_tokens
        return [
            self.space.pack_block(
                self.k[:, :, i * n : (i + 1) * n], self.v[:, :, i * n : (i + 1) * n]
            )
            for i in range(self.blocks)
        ]

    def put(self, **options):
        return self.space.put(self.keys, self.packed(), **options)

    def scores(self, layer, q, scale=None):
        """[head][token] of scale * q.k, heads of the query."""
        group = len(q) // self.space.config.kv_heads
        k = np.repeat(self.k[layer].astype(np.float64), group, axis=0)
        return np.einsum("hd,htd->ht", q, k) * (scale or q.shape[-1] ** -0.5)

    def attention(self, layer, q, take=slice(None)):
        """(out, log-sum-exp) over the tokens taken, one list a query head or one slice for all."""
        group = len(q) // self.space.config.kv_heads
        scores = self.scores(layer, q)
        out, lse = [], []
        for head, row in enumerate(scores):
            chosen = take if isinstance(take, slice) else take[head // group]
            top = row[chosen].max()
            weights = np.exp(row[chosen] - top)
            lse.append(top + np.log(weights.sum()))
            out.append(weights @ self.v[layer, head // group][chosen] / weights.sum())
        return np.array(out), np.array(lse)


class ClientCase(wire.DaemonCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        self.client = cairn.Client(self.daemon.socket)

    def tearDown(self):
        self.client.close()
        self.client = None
        gc.collect()
        super().tearDown()


class Blocks(ClientCase):
    def test_put_lookup_get_give_back_the_same_bytes(self):
        space = self.client.open_space(config("same bytes"))
        sequence = Sequence(space, 5, self.rng, tail=7)
        self.assertEqual(len(sequence.keys), 5)
        self.assertEqual(sequence.put(ack="disk"), [cairn.Status.OK] * 5)
        self.assertEqual(sequence.put(), [cairn.Status.EEXIST] * 5)
        with space.lookup(sequence.keys) as lease:
            self.assertEqual(lease.found, 5)
            blocks = space.get(sequence.keys, lease=lease)
        np.testing.assert_array_equal(blocks, np.stack(sequence.packed()))
        k, v = space.unpack_block(blocks[3])
        np.testing.assert_array_equal(k, sequence.k[:, :, 384:512])
        np.testing.assert_array_equal(v, sequence.v[:, :, 384:512])

    def test_the_longest_prefix_is_found(self):
        space = self.client.open_space(config("prefix"))
        sequence = Sequence(space, 4, self.rng)
        space.put(sequence.keys[:2], sequence.packed()[:2])
        found, lease = space.lookup(sequence.keys)
        self.assertEqual(found, 2)
        lease.release()
        lease.release()
        other = sequence.ids.copy()
        other[130] ^= 1
        self.assertEqual(space.lookup(space.chain_keys(other), lease_s=0).found, 1)

    def test_layers_alone(self):
        space = self.client.open_space(config("layers", layers=6))
        sequence = Sequence(space, 2, self.rng)
        sequence.put()
        blocks = space.get(sequence.keys, layers=(2, 5))
        self.assertEqual(blocks.shape, (2, 3, 2, 2, 128, 64))
        np.testing.assert_array_equal(blocks, np.stack(sequence.packed())[:, 2:5])
        k, _ = space.unpack_block(blocks[1])
        np.testing.assert_array_equal(k, sequence.k[2:5, :, 128:256])

    def test_memory_of_every_kind(self):
        space = self.client.open_space(config("memory", layers=8))  # 1 MiB a block: not inline
        sequence = Sequence(space, 6, self.rng)
        shared = space.new_blocks(6)
        for i, block in enumerate(sequence.packed()):
            shared[i] = block
        space.put(sequence.keys[:3], shared[:3])  # from an arena, side by side
        space.put(
            sequence.keys[3:5], [shared[4], shared[3]][::-1], parent=sequence.keys[2]
        )  # scattered in it
        space.put(
            sequence.keys[5:], [bytes(sequence.packed()[5])], parent=sequence.keys[4]
        )  # plain bytes
        wanted = np.stack(sequence.packed())
        plain = np.empty_like(wanted)
        self.assertIs(space.get(sequence.keys, out=plain), plain)
        np.testing.assert_array_equal(plain, wanted)
        arena = self.client.arena(wanted.nbytes + 64)
        inside = arena.array(wanted.shape, np.float32, offset=64)
        space.get(sequence.keys, out=inside)
        np.testing.assert_array_equal(inside, wanted)
        buffer = bytearray(wanted.nbytes)
        space.get(sequence.keys, out=buffer)
        self.assertEqual(bytes(buffer), wanted.tobytes())

    def test_a_miss_names_its_key(self):
        space = self.client.open_space(config("miss"))
        sequence = Sequence(space, 3, self.rng)
        space.put(sequence.keys[:1], sequence.packed()[:1])
        with self.assertRaises(cairn.NotFound) as caught:
            space.get(sequence.keys)
        self.assertEqual(caught.exception.index, 1)
        self.assertEqual(caught.exception.status, cairn.Status.ENOENT)
        _, statuses = space.try_get(sequence.keys)
        self.assertEqual(statuses, [cairn.Status.OK, cairn.Status.ENOENT, cairn.Status.ENOENT])

    def test_delete(self):
        space = self.client.open_space(config("delete"))
        sequence = Sequence(space, 2, self.rng)
        sequence.put()
        self.assertEqual(space.delete(sequence.keys[1:]), [cairn.Status.OK])
        self.assertEqual(space.lookup(sequence.keys, lease_s=0).found, 1)
        self.assertEqual(space.delete(sequence.keys[1:]), [cairn.Status.ENOENT])

    def test_opaque_spaces_store_bytes(self):
        space = self.client.open_space(
            cairn.SpaceConfig.opaque("engine", 100_000, 16, layout="paged")
        )
        keys = space.chain_keys(range(48))
        blocks = self.rng.integers(0, 256, (3, 100_000), dtype=np.uint8)
        space.put(keys, blocks)
        np.testing.assert_array_equal(space.get(keys), blocks)
        with self.assertRaises(cairn.Error):
            space.open_context(keys)

    def test_case_5_another_shape_is_another_space(self):
        base = config("shape", landmark_bits=2)
        sequence = Sequence(self.client.open_space(base), 1, self.rng)
        sequence.put()
        changes = dict(
            model="shape!",
            revision="r2",
            dtype="f16",
            layers=3,
            kv_heads=4,
            k_dim=32,
            v_dim=32,
            block_tokens=256,
            cache_group=1,
            tp_size=2,
            rope="not-applied",
            landmark_bits=4,
            outliers=4,
            run_tokens=64,
            value_bits=4,
            k_codec="raw",
            v_codec="raw",
        )
        for field, value in changes.items():
            other = self.client.open_space(cairn.SpaceConfig(**{**base.__dict__, field: value}))
            self.assertNotEqual(other.fingerprint, base.fingerprint(), field)
            self.assertEqual(other.lookup(sequence.keys, lease_s=0).found, 0, field)

    def test_many_clients_put_one_chain_and_space_is_counted_once(self):
        stored, errors = [], []

        def work():
            try:
                with cairn.Client(self.daemon.socket) as client:
                    space = client.open_space(config("shared"))
                    sequence = Sequence(space, 8, np.random.default_rng(SEED))
                    stored.append(sequence.put(ack="disk").count(cairn.Status.OK))
                    np.testing.assert_array_equal(
                        space.get(sequence.keys), np.stack(sequence.packed())
                    )
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        counted = [info.blocks for info in self.client.spaces() if info.config.model == "shared"]
        self.assertEqual(counted, [8])
        self.assertEqual(sum(stored), 8)

    def test_arrays_outlive_their_client(self):
        client = cairn.Client(self.daemon.socket)
        space = client.open_space(config("outlive"))
        sequence = Sequence(space, 2, self.rng)
        sequence.put()
        blocks = space.get(sequence.keys)
        client.close()
        del client, space
        gc.collect()
        np.testing.assert_array_equal(blocks, np.stack(sequence.packed()))

    def test_without_arenas_bytes_go_through_the_socket(self):
        space = self.client.open_space(config("no arenas", layers=8))
        sequence = Sequence(space, 3, self.rng)
        arenas = []
        with self.assertRaises(cairn.Busy):
            while len(arenas) < 100:
                arenas.append(self.client.arena(4096))
        self.assertEqual(len(arenas), 16)
        self.assertEqual(sequence.put(), [cairn.Status.OK] * 3)
        np.testing.assert_array_equal(space.get(sequence.keys), np.stack(sequence.packed()))
        with space.open_context(sequence.keys) as context:
            self.assertEqual(
                context.retrieve(0, sequence.k[0, :, 200], count=4, rows=True).counts.tolist(),
                [4, 4],
            )
            context.append(sequence.k[:, :, :100], sequence.v[:, :, :100])
        del arenas
        gc.collect()
        self.assertGreater(self.client.arena(4096).size_bytes, 0)

    def test_memory_goes_back(self):
        space = self.client.open_space(config("goes back", layers=8))
        sequence = Sequence(space, 4, self.rng)
        sequence.put()
        for _ in range(50):
            space.get(sequence.keys)
            self.client.arena(1 << 20).array(10)
        self.assertLessEqual(self.client.stats()["cairn_arenas"], 6)
        held = [space.get(sequence.keys) for _ in range(20)]  # more than there can be arenas
        for blocks in held:
            np.testing.assert_array_equal(blocks, held[0])


class Contexts(ClientCase):
    GROUP = 3

    def open(self, blocks=6, tail=50, **changes):
        space = self.client.open_space(config(self.id(), **changes))
        sequence = Sequence(space, blocks, self.rng, tail)
        sequence.put()
        context = space.open_context(sequence.keys)
        self.addCleanup(context.__exit__)
        if tail:
            context.append(sequence.k[:, :, -tail:], sequence.v[:, :, -tail:])
        self.assertEqual(context.tokens, sequence.tokens)
        return sequence, context

    def queries(self, sequence, *lead):
        c = sequence.space.config
        return 3 * self.rng.standard_normal((*lead, self.GROUP * c.kv_heads, c.k_dim), np.float32)

    def best(self, sequence, layer, q, count, allowed):
        """The rule by brute force:

        the tokens allowed with the largest probability in the group, over all tokens.
        """
        scores = sequence.scores(layer, q)
        top = scores.max(1, keepdims=True)
        lse = top + np.log(np.exp(scores - top).sum(1, keepdims=True))
        p = (scores - lse).reshape(sequence.space.config.kv_heads, self.GROUP, -1).max(1)
        order = np.argsort(-p[:, allowed], axis=1, kind="stable")[:, :count]
        return np.sort(allowed[order], axis=1), p

    def test_retrieval_finds_what_brute_force_finds(self):
        sequence, context = self.open()
        n = sequence.tokens
        allowed = np.arange(4, n - 64)
        hits, masses = {0: 0, 6: 0}, []
        for rerank in (0, 6) * 4:  # the default, and far more candidates than 2 bits need
            q = self.queries(sequence) / 2
            found = context.retrieve(
                1, q, count=40, rows=True, exclude=[(0, 4), (n - 64, n)], rerank=rerank
            )
            wanted, p = self.best(sequence, 1, q, 40, allowed)
            self.assertEqual(found.counts.tolist(), [40, 40])
            for head in range(2):
                got = found.positions[head]
                self.assertTrue((np.diff(got.astype(np.int64)) > 0).all(), "ascending and distinct")
                self.assertTrue(((got >= 4) & (got < n - 64)).all())
                hits[rerank] += len(np.intersect1d(got, wanted[head])) / 40 / 8
                # Rows and scores are those of the positions named, within what 8 bits a row can
                # tell.
                np.testing.assert_allclose(found.k_rows[head], sequence.k[1, head, got], atol=0.05)
                np.testing.assert_allclose(found.v_rows[head], sequence.v[1, head, got], atol=0.05)
                np.testing.assert_allclose(found.scores[head], p[head][got], atol=0.3)
            lse_all = sequence.attention(1, q, slice(4, n - 64))[1]
            np.testing.assert_allclose(found.lse_all, lse_all, atol=0.3)
            lse_chosen = sequence.attention(1, q, found.positions)[1]
            np.testing.assert_allclose(found.lse_chosen, lse_chosen, atol=0.05)
            best = sequence.attention(1, q, wanted)[1]
            masses.append(np.exp(lse_chosen - best).mean())
        self.assertGreater(np.mean(masses), 0.95, "mass of the chosen against the best choice's")
        self.assertGreater(hits[0], 0.8, "recall of keys that are pure noise")
        self.assertGreater(hits[6], 0.97, "recall with more candidates")

    def test_the_mass_held_comes_with_an_honest_error(self):
        sequence, context = self.open()
        n = sequence.tokens
        inside = tried = 0
        for step in range(12):
            q = self.queries(sequence) * (0.2 + 0.1 * step)
            found = context.retrieve(1, q, share=1 / 32, exclude=[(0, 4), (n - 64, n)])
            lse_all = sequence.attention(1, q, slice(4, n - 64))[1]
            lse_chosen = sequence.attention(1, q, found.positions)[1]
            mass = np.exp(found.lse_chosen - found.lse_all)
            gap = np.abs(mass - np.exp(lse_chosen - lse_all))
            self.assertEqual(found.mass_error.shape, mass.shape)
            self.assertTrue((found.mass_error >= 0).all(), found.mass_error)
            inside += (gap <= 2 * found.mass_error + 1e-3).sum()
            tried += gap.size
        self.assertGreaterEqual(inside / tried, 0.9, "share of true masses within two errors")

    def test_what_the_worker_holds_counts_in_the_ranking(self):
        sequence, context = self.open(k_codec="raw", v_codec="raw", landmark_bits=0)
        q = self.queries(sequence)
        for held in (np.full(len(q), -np.inf), np.linspace(-5, 60, len(q))):
            found = context.retrieve(1, q, count=20, held_lse=held)
            scores = sequence.scores(1, q)
            lse = np.logaddexp(np.logaddexp.reduce(scores, axis=1), held)
            p = (scores - lse[:, None]).reshape(2, self.GROUP, -1).max(1)
            for head in range(2):
                best = np.sort(np.argsort(-p[head], kind="stable")[:20])
                np.testing.assert_array_equal(found.positions[head], best)
                np.testing.assert_allclose(found.scores[head], p[head][best], atol=1e-2)
        both = self.queries(sequence, 2, 3)
        held = 4 * self.rng.standard_normal(both.shape[:-1], np.float32)
        found = context.retrieve([0, 1], both, count=9, held_lse=held)
        alone = context.retrieve(1, both[1, 2], count=9, held_lse=held[1, 2])
        np.testing.assert_array_equal(found.scores[1, 2], alone.scores)
        for wrong in (held[0], np.full_like(held, np.nan), np.full_like(held, np.inf)):
            with self.assertRaises(cairn.Error) as caught:
                context.retrieve([0, 1], both, count=9, held_lse=wrong)
            self.assertIn("held_lse", str(caught.exception))

    def test_raw_rows_come_back_exactly(self):
        sequence, context = self.open(k_codec="raw", v_codec="raw")
        found = context.retrieve(0, self.queries(sequence), count=16, rows=True)
        for head in range(2):
            np.testing.assert_array_equal(
                found.k_rows[head], sequence.k[0, head, found.positions[head]]
            )
            np.testing.assert_array_equal(
                found.v_rows[head], sequence.v[0, head, found.positions[head]]
            )

    def test_the_rest_brings_the_answer_closer_to_full_attention(self):
        sequence, context = self.open()
        without = with_rest = 0
        for _ in range(4):
            q = self.queries(sequence) / 2
            found = context.retrieve(0, q, share=1 / 32, rows=True, rest=True)
            full, _ = sequence.attention(0, q)
            part, part_lse = sequence.attention(0, q, found.positions)
            top = np.maximum(part_lse, found.rest_lse)
            a, b = np.exp(part_lse - top)[:, None], np.exp(found.rest_lse - top)[:, None]
            merged = (a * part + b * found.rest_out) / (a + b)
            without += np.linalg.norm(part - full)
            with_rest += np.linalg.norm(merged - full)
        self.assertLess(with_rest, 0.6 * without)

    def test_attend_is_attention_over_the_chosen(self):
        sequence, context = self.open()
        q = self.queries(sequence)
        found = context.attend(1, q, count=30)
        out, lse = sequence.attention(1, q, found.positions)
        np.testing.assert_allclose(found.out, out, atol=0.06)
        np.testing.assert_allclose(found.out_lse, lse, atol=0.05)
        everything = context.attend(1, q, everything=True)
        out, lse = sequence.attention(1, q)
        np.testing.assert_allclose(everything.out, out, atol=0.06)
        np.testing.assert_allclose(everything.out_lse, lse, atol=0.05)

    def test_steps_and_layers_in_one_request_are_the_same_as_alone(self):
        sequence, context = self.open()
        q = self.queries(sequence, 2, 3)
        both = context.retrieve([0, 1], q, count=12, rows=True, rest=True)
        self.assertEqual(both.positions.shape, (2, 3, 2, 12))
        for layer in range(2):
            steps = context.retrieve(layer, q[layer], count=12)
            np.testing.assert_array_equal(steps.positions, both.positions[layer])
            for step in range(3):
                alone = context.retrieve(layer, q[layer, step], count=12, rows=True, rest=True)
                for part in ("positions", "scores", "lse_all", "k_rows", "rest_out"):
                    np.testing.assert_array_equal(
                        getattr(alone, part), getattr(both, part)[layer, step], part
                    )

    def test_fetch_rows(self):
        sequence, context = self.open(k_codec="raw", v_codec="raw")
        positions = [[0, 5, 127, 128, 700], [3]]
        k, v = context.fetch_rows(1, positions)
        for head in range(2):
            np.testing.assert_array_equal(k[head], sequence.k[1, head, positions[head]])
            np.testing.assert_array_equal(v[head], sequence.v[1, head, positions[head]])
        with self.assertRaises(cairn.Error):
            context.fetch_rows(1, [[sequence.tokens], [0]])

    def test_exported_landmarks_score_like_the_daemon(self):
        errors = {1: 0.341, 2: 0.108, 4: 0.0095, 8: 0.0001}  # of the codes' grids
        for bits, dim, outliers in ((1, 64, 8), (2, 80, 8), (2, 64, 0), (4, 320, 3), (8, 64, 0)):
            with self.subTest(bits=bits, dim=dim, outliers=outliers):
                sequence, context = self.open(
                    landmark_bits=bits, k_dim=dim, v_dim=dim, outliers=outliers
                )
                found = context.export_landmarks(1)
                self.assertEqual(found.tokens, sequence.tokens)
                self.assertEqual(len(found.data), found.header["total_bytes"])
                self.assertTrue(found.present.all())
                for head in range(2):
                    keys, true = found.keys(head), sequence.k[1, head]
                    whole = found.header["blocks"] * found.header["block_tokens"]
                    np.testing.assert_array_equal(keys[whole:], true[whole:], "the tail is exact")
                    share = ((keys - true)[:whole] ** 2).mean() / true[:whole].var()
                    # Unbiased scales cost e / (1 - e) instead of e; outlier channels give some back.
                    limit = errors[bits] / (1 - errors[bits])
                    self.assertLess(share, 1.1 * limit)
                    self.assertGreater(share, 0.1 * limit)
                    q = self.queries(sequence)[head * self.GROUP : (head + 1) * self.GROUP] / 6
                    self.check_scores(context, found, head, q)

    def check_scores(self, context, found, head, q):
        """The daemon's log-sum-exps and choice, from exported landmarks alone."""
        every = np.zeros((2 * self.GROUP, q.shape[1]), np.float32)
        group = slice(head * self.GROUP, (head + 1) * self.GROUP)
        every[group] = q
        scores = (q / np.sqrt(q.shape[1])) @ found.keys(head).T
        lse = np.logaddexp.reduce(scores, axis=1)
        one = context.retrieve(1, every, count=1, rerank=1)  # all but one by their landmarks
        others = np.delete(scores, one.positions[head], axis=1)
        theirs = one.lse_all + np.log1p(-np.exp(one.lse_chosen - one.lse_all))
        np.testing.assert_allclose(theirs[group], np.logaddexp.reduce(others, axis=1), atol=0.04)
        p = (scores - lse[:, None]).max(0)
        best = np.argsort(-p, kind="stable")[:30]
        # The daemon's tables are of bytes: what scores alike may swap.
        chosen = context.retrieve(1, every, count=30, rerank=1).positions[head]
        self.assertEqual(len(np.unique(chosen)), 30)
        self.assertGreaterEqual(p[chosen].min(), p[best[-1]] - 0.2)

    def test_exported_landmarks_say_what_was_dropped(self):
        sequence, context = self.open()
        c = sequence.space.config
        shape = (c.layers, 8, self.GROUP * c.kv_heads, c.k_dim)
        kept = context.retain(self.rng.standard_normal(shape, np.float32), mode="drop")
        context.append(sequence.k[:, :, :9], sequence.v[:, :, :9])  # these came later
        for layer in range(c.layers):
            found = context.export_landmarks(layer)
            for head in range(c.kv_heads):
                there = np.flatnonzero(found.present[head])
                later = np.arange(sequence.tokens, sequence.tokens + 9)
                wanted = np.concatenate([kept.positions[layer][head], later])
                np.testing.assert_array_equal(there, wanted)
                k, _ = context.fetch_rows(layer, [there[:5] if h == head else [] for h in range(2)])
                np.testing.assert_allclose(k[head], found.keys(head)[there[:5]], atol=1.5)

    def test_exports_are_for_spaces_with_landmarks(self):
        _, context = self.open(landmark_bits=0, k_codec="raw", v_codec="raw")
        with self.assertRaises(cairn.Unsupported):
            context.export_landmarks(0)
        _, context = self.open(blocks=0, tail=3)
        found = context.export_landmarks(0)
        self.assertEqual((found.tokens, found.keys(0).shape), (3, (3, 64)))
        with self.assertRaises(cairn.Invalid):
            context.export_landmarks(9)

    def test_appends_in_pieces_are_the_same_as_one(self):
        space = self.client.open_space(config("pieces"))
        sequence = Sequence(space, 2, self.rng, tail=3)
        with space.open_context() as one, space.open_context() as many:
            one.append(sequence.k, sequence.v)
            at = 0
            for size in (1, 15, 16, 17, 127, 83):
                many.append(sequence.k[:, :, at : at + size], sequence.v[:, :, at : at + size])
                at += size
            self.assertEqual(many.tokens, at)
            self.assertEqual(one.tokens, at)
            q = self.queries(sequence)
            a, b = (context.retrieve(1, q, count=20, rows=True) for context in (one, many))
            np.testing.assert_array_equal(a.positions, b.positions)
            np.testing.assert_array_equal(a.k_rows, b.k_rows)

    def test_case_31_every_budget_gives_what_there_is(self):
        space = self.client.open_space(config("budgets"))
        q = 3 * self.rng.standard_normal((6, 64), np.float32)
        with space.open_context() as context:
            self.assertEqual(context.retrieve(0, q, count=5).counts.tolist(), [0, 0])
            sequence = Sequence(space, 0, self.rng, tail=100)
            context.append(sequence.k, sequence.v)
            for count in (0, 1, 99, 100, 101, 1000):
                found = context.retrieve(0, q, count=count, rows=True)
                self.assertEqual(found.counts.tolist(), [min(count, 100)] * 2)
                for head in range(2):
                    got = found.positions[head, : min(count, 100)]
                    self.assertEqual(len(np.unique(got)), min(count, 100))
                    self.assertTrue((got < 100).all())
            self.assertEqual(context.retrieve(0, q, share=0.125).counts.tolist(), [13, 13])
            everything = context.retrieve(
                0, q, count=5, exclude=[(0, 60), (50, 100), (100, 100)], rest=True
            )
            self.assertEqual(everything.counts.tolist(), [0, 0])
            self.assertTrue(np.isneginf(everything.rest_lse).all())
            self.assertFalse(np.isnan(everything.rest_out).any())

    def test_cases_33_and_34_dims_and_groups(self):
        for k_dim, v_dim, kv_heads, group in (
            (1, 1, 1, 1),
            (40, 40, 2, 5),
            (80, 64, 1, 8),
            (132, 0, 1, 12),
            (192, 128, 2, 2),
            (576, 512, 1, 16),
        ):
            outliers = min(8, k_dim - 1)
            space = self.client.open_space(
                config(
                    f"dims {k_dim}",
                    layers=1,
                    kv_heads=kv_heads,
                    k_dim=k_dim,
                    v_dim=v_dim,
                    outliers=outliers,
                )
            )
            sequence = Sequence(space, 2, self.rng, tail=9)
            sequence.put()
            with space.open_context(sequence.keys) as context:
                context.append(sequence.k[:, :, -9:], sequence.v[:, :, -9:])
                q = self.rng.standard_normal((kv_heads * group, k_dim), np.float32)
                found = context.retrieve(0, q, count=7, rows=True)
                self.assertEqual(found.k_rows.shape, (kv_heads, 7, k_dim))
                for head in range(kv_heads):
                    scale = np.abs(sequence.k).max() / 100
                    np.testing.assert_allclose(
                        found.k_rows[head], sequence.k[0, head, found.positions[head]], atol=scale
                    )
                if kv_heads == 2:
                    with self.assertRaises(cairn.Invalid):
                        context.retrieve(0, q[:-1], count=7)

    def test_chunk_means_are_offered_to_compare(self):
        sequence, context = self.open(tail=0)
        found = context.retrieve(
            0, self.queries(sequence), count=32, landmark="chunk-mean", chunk_tokens=8
        )
        for head in range(2):
            self.assertEqual(len(np.unique(found.positions[head])), 32)
            self.assertEqual(len(np.unique(found.positions[head] // 8)), 4, "whole chunks")

    def test_results_stay_while_they_are_held(self):
        sequence, context = self.open()
        held = [(q, context.retrieve(0, q, count=8)) for q in self.queries(sequence, 30)]
        for q, found in held:
            np.testing.assert_array_equal(
                context.retrieve(0, q, count=8).positions, found.positions
            )

    def test_a_chain_with_a_hole_names_the_block(self):
        space = self.client.open_space(config("hole"))
        sequence = Sequence(space, 3, self.rng)
        space.put(sequence.keys[:2], sequence.packed()[:2])
        with self.assertRaises(cairn.NotFound):
            space.open_context(sequence.keys)


class Reconnects(unittest.TestCase):
    def setUp(self):
        self.daemon = wire.Daemon()
        self.addCleanup(self.daemon.stop)
        self.rng = np.random.default_rng(SEED)

    def test_case_29_a_killed_daemon_comes_back_with_its_blocks(self):
        with cairn.Client(self.daemon.socket, reconnect_s=20) as client:
            space = client.open_space(config("restart"))
            sequence = Sequence(space, 4, self.rng)
            sequence.put(ack="disk")
            lease, context = space.lookup(sequence.keys), space.open_context(sequence.keys)
            shared = space.new_blocks(4)
            before = client.ping()
            self.daemon.kill()
            self.daemon.start()
            after = client.ping()
            self.assertNotEqual(before.incarnation, after.incarnation)
            with self.assertRaises(cairn.Stale):
                lease.release()
            with self.assertRaises(cairn.Stale):
                context.retrieve(0, np.zeros((2, 64), np.float32), count=1)
            self.assertEqual(space.lookup(sequence.keys, lease_s=0).found, 4)
            space.get(sequence.keys, out=shared)  # the arena is known to the new daemon
            np.testing.assert_array_equal(shared, np.stack(sequence.packed()))
            with space.open_context(sequence.keys) as again:
                self.assertEqual(again.tokens, 512)

    def test_case_29_eight_workers_survive_restarts(self):
        stop, errors, done = threading.Event(), [], [0] * 8

        def work(number):
            rng = np.random.default_rng([SEED, number])
            with cairn.Client(self.daemon.socket, reconnect_s=20) as client:
                space = client.open_space(config("restarts", layers=1))
                while not stop.is_set():
                    sequence = Sequence(space, 2, rng)
                    try:
                        sequence.put()
                        blocks, statuses = space.try_get(sequence.keys)
                    except (cairn.Disconnected, cairn.Stale):
                        continue
                    except cairn.Error as error:
                        if error.status != cairn.Status.ECANCELLED:
                            errors.append(error)
                        continue
                    for i, status in enumerate(statuses):
                        if (
                            status == cairn.Status.OK
                            and not (blocks[i] == sequence.packed()[i]).all()
                        ):
                            errors.append(f"worker {number}: other bytes")
                    done[number] += 1

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                time.sleep(0.5 * wire.SLOW)
                self.daemon.kill()
                time.sleep(0.05)
                self.daemon.start()
            reached = list(done)
            deadline = time.monotonic() + 20 * wire.SLOW
            while time.monotonic() < deadline and any(d <= r for d, r in zip(done, reached)):
                time.sleep(0.05)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [])
        self.assertTrue(all(d > r for d, r in zip(done, reached)), f"{reached} -> {done}")

    def test_no_daemon_is_said_at_once_with_a_remedy(self):
        path = self.daemon.socket
        client = cairn.Client(path, reconnect_s=0.3)
        self.daemon.kill()
        with self.assertRaises(cairn.Disconnected) as caught:
            client.ping()
        self.assertIn(path, str(caught.exception))
        self.assertIn("cairnd", caught.exception.remedy)
        begin = time.monotonic()
        with self.assertRaises(cairn.Disconnected):
            client.ping()
        self.assertLess(time.monotonic() - begin, 0.25)
        self.daemon.start()
        self.assertEqual(client.ping().state, "ready")
        client.close()


class Errors(ClientCase):
    def test_what_is_wrong_is_named(self):
        with self.assertRaisesRegex(cairn.Invalid, "run_tokens is 100"):
            self.client.open_space(config(run_tokens=100))
        with self.assertRaisesRegex(cairn.Invalid, "dtype: 'f64' is not one of"):
            config(dtype="f64")
        space = self.client.open_space(config("errors"))
        sequence = Sequence(space, 1, self.rng)
        with self.assertRaisesRegex(cairn.Invalid, "a block: 8 bytes, not 262144"):
            space.put(sequence.keys, [b"12345678"])
        with self.assertRaisesRegex(cairn.Invalid, "token ids"):
            space.chain_keys([-1])
        with self.assertRaisesRegex(cairn.Invalid, "keys have 32 bytes"):
            space.lookup([b"short"])
        with self.assertRaisesRegex(cairn.Invalid, "out has 8 bytes"):
            space.get(sequence.keys, out=np.zeros(2, np.float32))
        with space.open_context() as context:
            with self.assertRaisesRegex(cairn.Invalid, "budget"):
                context.retrieve(0, np.zeros((2, 64), np.float32))
            with self.assertRaisesRegex(cairn.Invalid, "queries have dim 63"):
                context.retrieve(0, np.zeros((2, 63), np.float32), count=1)
            with self.assertRaises(cairn.Invalid):
                context.retrieve(9, np.zeros((2, 64), np.float32), count=1)
        with self.assertRaisesRegex(cairn.Stale, "closed"):
            context.retrieve(0, np.zeros((2, 64), np.float32), count=1)

    def test_a_closed_client_says_so(self):
        client = cairn.Client(self.daemon.socket)
        space = client.open_space(config("closed"))
        client.close()
        client.close()
        with self.assertRaisesRegex(cairn.Disconnected, "closed"):
            space.lookup([])

    def test_bf16_travels_as_bits(self):
        space = self.client.open_space(config("bf16", dtype="bf16", k_codec="raw", v_codec="raw"))
        sequence = Sequence(space, 1, self.rng)
        sequence.put()
        k, _ = space.unpack_block(space.get(sequence.keys)[0])
        np.testing.assert_allclose(cairn.decode(k, "bf16"), sequence.k[:, :, :128], rtol=2**-8)


class Keys(unittest.TestCase):
    def golden(self):
        with open(
            os.path.join(wire.ROOT, "tests", "e2e", "golden_keys.json"), encoding="utf-8"
        ) as file:
            return json.load(file)

    def test_case_7_golden_vectors(self):
        vectors = self.golden()
        self.assertGreaterEqual(len(vectors), 30)
        for one in vectors:
            fingerprint = cairn.keys.space_fingerprint(
                one["model"], one["revision"], one["layout"], one["numbers"]
            )
            self.assertEqual(fingerprint.hex(), one["fingerprint"], one["name"])
            keys = cairn.keys.chain_keys(
                fingerprint,
                one["block_tokens"],
                one["tokens"],
                salt=bytes.fromhex(one["salt"]),
                adapter=bytes.fromhex(one["adapter"]),
            )
            self.assertEqual([key.hex() for key in keys], one["keys"], one["name"])

    def test_case_6_fields_do_not_run_together(self):
        firsts = [one["keys"][0] for one in self.golden()[5:]]
        self.assertEqual(len(set(firsts)), len(firsts))


class Tools(ClientCase):
    def ctl(self, *arguments, socket=None):
        return subprocess.run(
            [os.path.join(BUILD, "cairnctl"), "--socket", socket or self.daemon.socket, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_cairnctl_ping(self):
        person = self.ctl("ping")
        self.assertEqual(person.returncode, 0, person.stderr)
        self.assertIn("ready", person.stdout)
        script = json.loads(self.ctl("ping", "--json").stdout)
        self.assertEqual(script["state"], "ready")
        self.assertEqual(int(script["incarnation"], 16), self.client.ping().incarnation)

    def test_cairnctl_spaces_and_stats(self):
        space = self.client.open_space(config('quoted "name"'))
        Sequence(space, 3, self.rng).put()
        listed = json.loads(self.ctl("--json", "spaces").stdout)["spaces"]
        mine = [one for one in listed if one["fingerprint"] == space.fingerprint.hex()]
        self.assertEqual([(one["model"], one["blocks"]) for one in mine], [('quoted "name"', 3)])
        self.assertIn('quoted "name"', self.ctl("spaces").stdout)
        stats = json.loads(self.ctl("stats", "cairn_blocks", "--json").stdout)
        self.assertEqual(stats["cairn_blocks"], self.client.stats()["cairn_blocks"])
        self.assertTrue(all(name.startswith("cairn_blocks") for name in stats))
        info = [one for one in self.client.spaces() if one.fingerprint == space.fingerprint]
        self.assertEqual((info[0].config, info[0].blocks), (space.config, 3))

    def test_cairnctl_exit_codes(self):
        self.assertEqual(self.ctl("ping", socket="/tmp/cairn-no-such.sock").returncode, 3)
        self.assertEqual(self.ctl("pong").returncode, 2)
        self.assertEqual(self.ctl("ping", "more").returncode, 2)
        self.assertEqual(self.ctl("--timeout", "soon", "ping").returncode, 2)
        self.assertEqual(self.ctl("stats", "no_such_metric").returncode, 1)
        self.assertEqual(self.ctl("--help").returncode, 0)
        self.assertIn("example", self.ctl("ping", "--help").stdout)
        self.assertEqual(self.ctl("ping", socket="/tmp/" + "a" * 110).returncode, 2)

    def test_asynchronous_calls_from_c(self):
        program = os.path.join(BUILD, "tests", "cairn_integration_async")
        ran = subprocess.run(
            [program, self.daemon.socket, "4", "10"], capture_output=True, text=True, timeout=300
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("640 blocks", ran.stdout)


if __name__ == "__main__":
    unittest.main()
