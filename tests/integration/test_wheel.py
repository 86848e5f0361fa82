"""The Python package as a user installs it: `pip install ./client/python` into a fresh environment, then a round trip."""
import shutil
import sys

import numpy

from wire import *

PACKAGE = os.path.join(ROOT, "client/python")
SCRIPT = """
import sys, numpy, cairn
assert cairn.__file__.startswith(sys.argv[2]), cairn.__file__
with cairn.Client(sys.argv[1]) as client:
    config = cairn.SpaceConfig(model="wheel", layers=2, kv_heads=2, k_dim=64, v_dim=64, block_tokens=128, run_tokens=128)
    space = client.open_space(config)
    keys = space.chain_keys(list(range(256)))
    k = numpy.random.default_rng(1).standard_normal(space.block_bytes // 2 * len(keys)).astype(numpy.float16)
    space.put(keys, k)
    with space.lookup(keys) as lease:
        assert lease.found == 2, lease.found
    back = space.get(keys)
    assert numpy.array_equal(numpy.ascontiguousarray(back).reshape(-1).view(numpy.uint8), k.view(numpy.uint8))
print("round trip", len(keys))
"""


class Wheel(unittest.TestCase):
    def test_pip_installs_it_and_it_works(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.addCleanup(shutil.rmtree, directory)
        env, source = os.path.join(directory, "env"), os.path.join(directory, "source")
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        subprocess.run([sys.executable, "-m", "venv", env], check=True)
        python = os.path.join(env, "bin/python")
        # NumPy comes from where this test runs.
        site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True, check=True).stdout.strip()
        with open(os.path.join(site, "borrowed.pth"), "w") as borrowed:
            borrowed.write(os.path.dirname(os.path.dirname(numpy.__file__)) + "\n")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        made = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", source], capture_output=True, text=True, env=clean, cwd=directory, timeout=300)
        if "No matching distribution found for setuptools" in made.stderr:
            self.skipTest("no package index to build with")
        self.assertEqual(made.returncode, 0, made.stderr)
        place = os.path.join(directory, "daemon")
        os.mkdir(place)
        daemon = Daemon(place)
        try:
            result = subprocess.run([python, "-c", SCRIPT, daemon.socket, env], capture_output=True, text=True, env=clean, cwd=directory, timeout=120)
        finally:
            daemon.stop()
        self.assertEqual(result.stdout, "round trip 2\n", result.stderr)


if __name__ == "__main__":
    unittest.main()
