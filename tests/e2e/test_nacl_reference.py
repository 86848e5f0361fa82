"""NACL in C against NumPy written from the paper's description (arXiv 2408.03675): scores, kept sets,
and the chances of the random part. Compiles the policy with cc; needs NumPy alone."""

import ctypes
import functools
import itertools
import math
import os
import platform
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SEED = int(os.environ.get("CAIRN_TEST_SEED", "1"))

READ = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_float)
)


class Keys(ctypes.Structure):
    _fields_ = [("read", READ), ("arg", ctypes.c_void_p), ("n_tokens", ctypes.c_uint32), ("k_dim", ctypes.c_uint32)]


class Request(ctypes.Structure):
    _fields_ = [
        ("keys", Keys),
        ("queries", ctypes.c_void_p),
        ("n_proxies", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_void_p),
        ("present", ctypes.c_void_p),
    ]


class Options(ctypes.Structure):
    _fields_ = [(n, ctypes.c_double) for n in ("proxy_ratio", "proxy_keep", "random_keep", "protect")] + [
        ("sinks", ctypes.c_uint32)
    ]


class Counts(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("proxies", "sinks", "recent", "top", "random")]


class Choice(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_uint32),
        ("scores", ctypes.c_void_p),
        ("present", ctypes.c_void_p),
        ("sinks", ctypes.c_uint32),
        ("recent", ctypes.c_uint32),
        ("top", ctypes.c_uint32),
        ("random", ctypes.c_uint32),
        ("ranges", ctypes.c_void_p),
        ("n_ranges", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
    ]


class Chosen(ctypes.Structure):
    _fields_ = (
        [(n, ctypes.c_uint32) for n in ("kept", "protected_tokens", "top", "random", "present")]
        + [("lowest_top", ctypes.c_float)]
        + [(n, ctypes.c_double) for n in ("mass_all", "mass_kept", "mass_protected", "mass_top")]
    )


# What the scores need, and the flags that cmake gives each.
SOURCES = {
    "policy/retention/nacl.c": "",
    "policy/retention/choose.c": "",
    "policy/landmark/isa.c": "",
    "policy/landmark/grid.c": "",
    "policy/landmark/score_scalar.c": "",
}
X86_SOURCES = {
    "policy/landmark/score_avx2.c": "-mavx2 -mfma -mf16c -mbmi2",
    "policy/landmark/score_avx512.c": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi "
    "-mavx512vbmi2 -mf16c -mfma -mbmi2",
    "policy/landmark/score_amx.c": "-mamx-tile -mamx-int8 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi",
}


@functools.cache
def build():
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise unittest.SkipTest("no C compiler")
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-I", ROOT]
    sources = SOURCES | (X86_SOURCES if platform.machine() == "x86_64" else {})
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for name, more in sources.items():
            objects.append(os.path.join(folder, name.replace("/", "_") + ".o"))
            source = os.path.join(ROOT, name)
            subprocess.run([compiler, *flags, *more.split(), "-c", source, "-o", objects[-1]], check=True)
        path = os.path.join(folder, "nacl.so")
        subprocess.run([compiler, "-shared", *objects, "-lm", "-o", path], check=True)
        library = ctypes.CDLL(path)
    library.cairn_isa_choose(os.environ.get("CAIRN_ISA", "").encode() or None)
    library.cairn_nacl_scores_bytes.restype = ctypes.c_size_t
    library.cairn_choose_scratch_bytes.restype = ctypes.c_size_t
    library.cairn_choose_seed.restype = ctypes.c_uint64
    library.cairn_choose_seed.argtypes = [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32]
    return library


def aligned(size):
    raw = np.zeros(size + 64, np.uint8)
    return raw[(-raw.ctypes.data) % 64 :][:size]


# ---- the paper, in NumPy ----


def reference_scores(keys, queries, scale):
    """Attention of every proxy over all stored tokens, summed over proxies and the group."""
    products = scale * queries.reshape(-1, keys.shape[1]).astype(np.float64) @ keys.astype(np.float64).T
    weights = np.exp(products - products.max(1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True)).sum(0)


def splitmix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def gumbels(seed, count):
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = splitmix(np.uint64(seed) + steps)
    return -np.log(-np.log(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52))


def reference_kept(scores, sinks, recent, top, random, seed):
    """Sinks, the most recent, the best `top` of the others, and `random` of what is left, drawn without
    replacement with the chances of softmax(score): the greatest of score + Gumbel noise."""
    n = len(scores)
    others = np.arange(sinks, n - recent)
    best = others[np.argsort(-scores[others], kind="stable")[:top]]
    left = np.setdiff1d(others, best)
    noisy = scores[left].astype(np.float64) + gumbels(seed, n)[left]
    drawn = left[np.argsort(-noisy, kind="stable")[:random]]
    return np.sort(np.concatenate([np.arange(sinks), best, drawn, np.arange(n - recent, n)]))


def chi_square_limit(degrees, z=3.72):
    """What chi-square exceeds once in ten thousand (Wilson and Hilferty)."""
    return degrees * (1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3


class Nacl(unittest.TestCase):
    def setUp(self):
        print(f"CAIRN_TEST_SEED={SEED}")
        self.library = build()

    def scores(self, keys, queries, scale):
        n, dim = keys.shape
        proxies, group = queries.shape[:2]

        def read(_, first, count, rows):
            ctypes.memmove(rows, keys[first : first + count].ctypes.data, count * dim * 4)
            return 0

        callback = READ(read)
        request = Request(Keys(callback, None, n, dim), queries.ctypes.data, proxies, group, scale, None, None)
        memory = aligned(self.library.cairn_nacl_scores_bytes(ctypes.byref(request)))
        out = np.empty(n, np.float32)
        status = self.library.cairn_nacl_scores(
            ctypes.byref(request), ctypes.c_void_p(memory.ctypes.data), ctypes.c_void_p(out.ctypes.data)
        )
        self.assertEqual(status, 0)
        return out

    def kept(self, scores, sinks, recent, top, random, seed):
        n = len(scores)
        request = Choice(n, scores.ctypes.data, None, sinks, recent, top, random, None, 0, seed)
        scratch = aligned(self.library.cairn_choose_scratch_bytes(n))
        bits = np.zeros((n + 63) // 64, np.uint64)
        result = Chosen()
        status = self.library.cairn_choose(
            ctypes.byref(request),
            ctypes.c_void_p(scratch.ctypes.data),
            ctypes.c_void_p(bits.ctypes.data),
            ctypes.byref(result),
        )
        self.assertEqual(status, 0)
        return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")[:n]), result

    def head(self, rng, n, dim, group):
        """Keys with sinks and a few needles that the proxies ask for, as real heads have."""
        keys = rng.standard_normal((n, dim), np.float32) * 1.5
        proxies = max(n // 100, 1)
        queries = rng.standard_normal((proxies, group, dim), np.float32)
        keys[:4] += 2 * queries.mean((0, 1))
        for needle in rng.integers(0, n, 5):
            keys[needle] += 3 * queries[rng.integers(proxies), rng.integers(group)]
        return keys, queries

    def test_scores_and_kept_sets_equal_numpy(self):
        rng = np.random.default_rng(SEED)
        for n, dim, group in ((1200, 64, 3), (3000, 128, 4), (5000, 80, 1), (777, 256, 8), (20000, 64, 2)):
            keys, queries = self.head(rng, n, dim, group)
            scale = 1 / math.sqrt(dim)
            ours = self.scores(keys, queries, scale)
            theirs = reference_scores(keys, queries, np.float32(scale))
            np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=1e-9)
            self.assertAlmostEqual(float(ours.sum(dtype=np.float64)), queries.shape[0] * group, delta=1e-3)
            for keep, chance, protect in ((0.12, 0.07, 0.01), (0.05, 0.15, 0.02), (0.2, 0, 0.01), (0, 0.2, 0)):
                counts = Counts()
                options = Options(0.01, keep, chance, protect, 4)
                self.library.cairn_nacl_counts(ctypes.byref(options), n, ctypes.byref(counts))
                self.assertEqual(counts.top, math.floor(keep * n + 1e-6))
                self.assertEqual(counts.random, math.floor(chance * n + 1e-6))
                self.assertEqual(counts.sinks + counts.recent, math.floor(protect * n + 1e-6))
                self.assertEqual(counts.proxies, queries.shape[0])
                for layer in range(3):
                    seed = self.library.cairn_choose_seed(SEED, layer, group)
                    budget = (counts.sinks, counts.recent, counts.top, counts.random, seed)
                    got, result = self.kept(ours, *budget)
                    np.testing.assert_array_equal(got, reference_kept(ours, *budget))
                    mass = ours[got].sum(dtype=np.float64)
                    self.assertAlmostEqual(result.mass_kept, mass, delta=1e-6 * mass)

    def test_sets_are_drawn_with_the_chances_of_sampling_without_replacement(self):
        """Every set of 3 out of 7, by its exact chance; chi-square over the 35 sets."""
        scores = np.array([0, 0.2, 0.5, 0.5, 1, 1.7, 2.5], np.float32)
        weights = np.exp(scores.astype(np.float64))
        chances = dict.fromkeys(itertools.combinations(range(7), 3), 0.0)
        for order in itertools.permutations(range(7), 3):
            chance, left = 1.0, weights.sum()
            for i in order:
                chance *= weights[i] / left
                left -= weights[i]
            chances[tuple(sorted(order))] += chance
        self.assertAlmostEqual(sum(chances.values()), 1)
        draws = 30000
        seen = dict.fromkeys(chances, 0)
        for i in range(draws):
            got, _ = self.kept(scores, 0, 0, 0, 3, self.library.cairn_choose_seed(SEED, 7, i))
            seen[tuple(int(t) for t in got)] += 1
        chi = sum((seen[s] - draws * p) ** 2 / (draws * p) for s, p in chances.items())
        self.assertLess(chi, chi_square_limit(len(chances) - 1))

    def test_inclusion_frequencies_equal_those_of_numpy_choice(self):
        """A head as large as real ones: how often each of 20 classes of tokens is drawn, by us and by
        numpy.random.Generator.choice with the same chances."""
        rng = np.random.default_rng(SEED)
        n, draw, rounds, classes = 2000, 140, 400, 20
        scores = (rng.random(n) ** 3 * 4).astype(np.float32)
        weights = np.exp(scores.astype(np.float64))
        order = np.argsort(scores, kind="stable").reshape(classes, -1)
        of = np.empty(n, int)
        for c, members in enumerate(order):
            of[members] = c
        ours, theirs = np.zeros(classes), np.zeros(classes)
        for i in range(rounds):
            got, _ = self.kept(scores, 0, 0, 0, draw, self.library.cairn_choose_seed(SEED, 3, i))
            self.assertEqual(len(got), draw)
            ours += np.bincount(of[got], minlength=classes)
            theirs += np.bincount(of[rng.choice(n, draw, replace=False, p=weights / weights.sum())], minlength=classes)
        # Draws without replacement vary less than independent ones: the limit is on the safe side.
        chi = float(((ours - theirs) ** 2 / (ours + theirs)).sum())
        self.assertLess(chi, chi_square_limit(classes - 1))
        self.assertGreater(ours[-1], 4 * ours[0], "high scores are drawn more often")


if __name__ == "__main__":
    unittest.main()
