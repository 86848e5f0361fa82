"""lru and s3fifo of `cairn-bench trace` against the simulator libcachesim on the same traces (blocks without
parents). Needs cairn-bench (CAIRN_BENCH, or build/release) and, from PyPI, libcachesim: skipped, and said so,
where either cannot be had."""

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SEED = int(os.environ.get("CAIRN_TEST_SEED", "1"))
SIZES = (1, 5, 10, 20, 50)
WITHIN = 0.05  # of the reference's hit ratio


def find_bench():
    path = os.environ.get("CAIRN_BENCH", os.path.join(ROOT, "build", "release", "cairn-bench"))
    if not os.access(path, os.X_OK):
        raise unittest.SkipTest(f"no cairn-bench at {path}: build the release preset, or set CAIRN_BENCH")
    return path


def find_libcachesim():
    """Imports libcachesim; installs it (once, into the cache folder) where it is missing."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    folder = os.path.join(cache, "cairn", "libcachesim")
    sys.path.append(folder)
    try:
        return importlib.import_module("libcachesim")
    except ImportError:
        pass
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", folder, "libcachesim==0.3.5"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise unittest.SkipTest("libcachesim cannot be installed: " + done.stderr.strip()[-200:])
    importlib.invalidate_caches()
    try:
        return importlib.import_module("libcachesim")
    except ImportError as error:
        raise unittest.SkipTest(f"libcachesim cannot be imported: {error}") from error


def read_trace(path):
    uses = []
    with open(path, encoding="ascii") as lines:
        for line in lines:
            if not line.startswith("#"):
                fields = line.split()
                uses.append((int(fields[1], 0), int(fields[2])))
    return uses


class TraceReference(unittest.TestCase):
    def setUp(self):
        print(f"CAIRN_TEST_SEED={SEED}")
        self.bench = find_bench()

    def ours(self, *flags):
        sizes = ",".join(str(s) for s in SIZES)
        command = [self.bench, "trace", "--json", "--sizes", sizes, *flags]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def theirs(self, policy, uses, capacity):
        cache = getattr(self.reference, policy)(cache_size=capacity)
        request = self.reference.Request()
        used = hit = 0
        for block, size in uses:
            request.obj_id = block % (1 << 63)
            request.obj_size = size
            used += size
            if cache.get(request):
                hit += size
        return hit / used

    def compare(self, path):
        self.reference = find_libcachesim()
        uses = read_trace(path)
        footprint = sum(dict(uses).values())
        ours = self.ours("--file", path)
        for name, policy in (("lru", "LRU"), ("s3fifo", "S3FIFO")):
            for size in SIZES:
                want = self.theirs(policy, uses, int(size / 100 * footprint))
                got = ours[f"{name}.bytes.{size}"]
                print(f"  {os.path.basename(path)} {name} {size:3d} %: cairn {got:.4f}, libcachesim {want:.4f}")
                with self.subTest(trace=os.path.basename(path), policy=name, size=size):
                    self.assertAlmostEqual(got, want, delta=WITHIN * want)
                    self.assertGreater(got, 0.01, "something is hit")

    def test_each_policy_is_worth_its_name(self):
        for seed in range(SEED, SEED + 3):
            runs = {n: self.ours("--trace", n, "--seed", str(seed)) for n in ("zipf", "scan", "chat", "shared")}
            for size in SIZES:
                for name in ("zipf", "scan"):  # one size of block: Belady's rule is the optimum
                    run = runs[name]
                    best = max(run[f"{policy}.bytes.{size}"] for policy in ("lru", "s3fifo", "cost"))
                    self.assertGreaterEqual(run[f"belady.bytes.{size}"], best)
                self.assertGreater(runs["scan"][f"s3fifo.bytes.{size}"], runs["scan"][f"lru.bytes.{size}"])
                for run in runs.values():
                    for what in ("bytes", "seconds"):
                        best = max(run[f"{p}.{what}.{size}"] for p in ("lru", "s3fifo", "cost", "belady"))
                        self.assertGreaterEqual(run[f"infinite.{what}.{size}"], best)
            saved = {p: sum(runs["chat"][f"{p}.seconds.{s}"] for s in SIZES) for p in ("lru", "s3fifo", "cost")}
            self.assertEqual(max(saved, key=saved.get), "cost", f"seed {seed}: {saved}")

    def test_zipf_and_scans(self):
        for name in ("zipf", "scan"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                self.ours("--trace", name, "--uses", "100000", "--seed", str(SEED), "--write", path)
                self.compare(path)

    def test_blocks_of_many_sizes(self):
        draw = random.Random(SEED)
        sizes = [draw.randrange(1, 64) << 16 for _ in range(8000)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sizes")
            with open(path, "w", encoding="ascii") as out:
                for time in range(120000):
                    block = int(8000 * draw.random() ** 4)
                    print(time, block + 1, sizes[block], 1000, "-", file=out)
            self.compare(path)


if __name__ == "__main__":
    unittest.main()
