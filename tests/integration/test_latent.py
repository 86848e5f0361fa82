"""Latent attention: one KV head whose values are the first dims of its keys, over the socket and through libcairn."""
import os
import random
import sys
import unittest

import numpy as np

import test_retrieve
from wire import *

os.environ.setdefault("CAIRN_LIBRARY", os.path.join(ROOT, "build", "release", "libcairn.so"))
sys.path.insert(0, os.path.join(ROOT, "client", "python"))
import cairn  # noqa: E402

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
SCALE = 192 ** -0.5  # of the heads before their keys were compressed


def latent_space(**values):
    return Space(**{**dict(dtype=F32, layers=1, kv_heads=1, k_dim=576, v_dim=0, v_prefix=512, block_tokens=64,
                           run_tokens=64, outliers=8), **values})


class Latents:
    """Latents [layer][token][dim]: a mean, a few directions that heads ask for, and noise."""

    def __init__(self, space, tokens, rng, heads):
        self.space, self.tokens = space, tokens
        self.k = (rng.standard_normal((space.layers, tokens, space.k_dim)) + rng.standard_normal(space.k_dim) * 2)
        self.k = self.k.astype(np.float32)
        self.q = (rng.standard_normal((heads, space.k_dim)) * 0.3).astype(np.float32)
        for head in range(heads):
            self.k[:, rng.integers(0, tokens, 3)] += 2 * self.q[head]

    def packed(self, first, count):
        return self.k[:, first:first + count].tobytes()

    def attention(self, layer, take=slice(None), scale=SCALE):
        """(out [head][prefix], log-sum-exp [head]) over the tokens taken."""
        keys = self.k[layer][take].astype(np.float64)
        scores = self.q.astype(np.float64) @ keys.T * scale
        top = scores.max(1, keepdims=True)
        weights = np.exp(scores - top)
        whole = weights.sum(1, keepdims=True)
        return weights @ keys[:, :self.space.v_prefix] / whole, (top + np.log(whole))[:, 0]


def merged(out, lse, rest_out, rest_lse):
    whole = np.logaddexp(lse, rest_lse)
    return out * np.exp(lse - whole)[:, None] + rest_out * np.exp(rest_lse - whole)[:, None], whole


class OverTheWire(test_retrieve.RetrieveCase):
    flags = dict(ram_bytes="128MiB", context_bytes="64MiB")

    def test_attend_to_every_row_exactly(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = np.random.default_rng(SEED)
        space = latent_space(layers=2, k_dim=40, v_prefix=24, landmark_bits=0, value_bits=0, outliers=0, run_tokens=0,
                             k_codec=RAW)
        rows = Latents(space, 150, rng, 16)
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "latent, exact")
            context = self.open(c, number, keys)
            self.assertEqual(self.append(c, context, rows, 128, 22), 150)
            result = self.retrieve(c, space, [context], [1], rows.q.tobytes(), 16, {}, kind=ATTEND, all=True)
            out, lse = rows.attention(1, scale=40 ** -0.5)
            np.testing.assert_allclose(np.reshape(result.part_out, (16, 24)), out, atol=1e-4)
            np.testing.assert_allclose(result.part_lse, lse, atol=1e-4)

    def test_rows_are_returned_once(self):
        rng = np.random.default_rng(SEED + 1)
        space = latent_space()
        rows = Latents(space, 200, rng, 8)
        with self.daemon.connect() as c:
            number, keys = self.store(c, space, rows, "latent, rows")
            context = self.open(c, number, keys)
            self.append(c, context, rows, 192, 8)
            result = self.retrieve(c, space, [context], [0], rows.q.tobytes(), 8, {1: 20}, rows=True)
            self.assertEqual(result.v_rows, [])
            got = np.reshape(result.k_rows, (20, 576))
            want = rows.k[0][result.chosen(0)]
            np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())

    def test_refused_by_name(self):
        with self.daemon.connect() as c:
            for wrong, said in ((dict(v_prefix=577), "v_prefix is 577"), (dict(v_dim=512), "leave v_dim 0")):
                reply = c.call(OPEN_SPACE, message({1: latent_space(**wrong).packed()}))
                self.assertEqual(reply.status, EINVAL)
                self.assertIn(said, reply.text)
            prefix, none = latent_space(), latent_space(v_prefix=0, value_bits=0)
            self.assertNotEqual(prefix.fingerprint(), none.fingerprint())
            self.assertNotEqual(c.open_space(prefix), c.open_space(none))


class ThroughTheClient(DaemonCase):
    flags = dict(ram_bytes="128MiB", context_bytes="64MiB")

    def test_128_heads_share_one_latent(self):
        """Put, open, append; a thirtieth of the rows and the rest merge to full attention, and are stored as keys."""
        print("CAIRN_TEST_SEED", SEED)
        rng = np.random.default_rng(SEED + 2)
        with cairn.Client(self.daemon.socket) as client:
            config = cairn.SpaceConfig(model="latent", layers=1, kv_heads=1, k_dim=576, v_prefix=512, dtype="f32",
                                       block_tokens=128)
            space = client.open_space(config)
            self.assertEqual(config.value_bits, 2)
            self.assertEqual(space.block_bytes, 128 * 576 * 4)
            rows = Latents(latent_space(), 128 * 12 + 50, rng, 128)
            keys = space.chain_keys(np.arange(rows.tokens))
            space.put(keys, [np.ascontiguousarray(rows.k[:, i * 128:(i + 1) * 128]) for i in range(12)], ack="disk")
            with space.open_context(keys) as context:
                context.append(rows.k[:, None, 128 * 12:])
                self.assertEqual(context.tokens, rows.tokens)
                answer = context.attend(0, rows.q, share=1 / 32, rest=True, scale=SCALE)
                self.assertEqual(answer.out.shape, (128, 512))
                self.assertEqual(answer.rest_out.shape, (128, 512))
                exact, exact_lse = rows.attention(0)
                out, lse = merged(answer.out, answer.out_lse, answer.rest_out, answer.rest_lse)
                alone = np.linalg.norm(answer.out - exact, axis=1).mean()
                error = np.linalg.norm(out - exact, axis=1).mean()
                print(f"output error of the chosen {alone:.3f}, with the rest {error:.3f}, "
                      f"of {np.linalg.norm(exact, axis=1).mean():.1f}")
                self.assertLess(error, 0.4 * alone)
                self.assertLess(np.abs(lse - exact_lse).mean(), 0.1)
                every = context.attend(0, rows.q, everything=True, scale=SCALE)
                np.testing.assert_allclose(every.out, exact, atol=0.05)
            for info in client.spaces():
                if info.config.model == "latent":
                    self.assertEqual(info.config, config)


if __name__ == "__main__":
    unittest.main()
