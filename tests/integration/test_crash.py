"""Short runs of tests/crash: the daemon killed at twenty points of real work; its tiers turned over, and many
connections."""

import importlib.util
import json
import os
import subprocess
import sys
import time
import unittest

import wire

FOLDER = os.path.join(wire.ROOT, "tests", "crash")
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())


class Crash(unittest.TestCase):
    def test_case_22_kill_at_any_point(self):
        spec = importlib.util.spec_from_file_location("kill", os.path.join(FOLDER, "kill.py"))
        kill = importlib.util.module_from_spec(spec)
        sys.modules["kill"] = kill
        spec.loader.exec_module(kill)
        counts = kill.run(kill.QUICK_POINTS, SEED)
        self.assertEqual(counts["kills_at_work"], kill.QUICK_POINTS)
        self.assertGreater(counts["durable_found"], 0)

    @unittest.skipIf(wire.SLOW > 1, "sanitizers keep freed memory")
    def test_case_41_turnover_and_connections(self):
        """`tests/run soak` does the same for ten minutes."""
        found = subprocess.run([sys.executable, os.path.join(FOLDER, "soak.py"), "--minutes=0.25", "--turnovers=6",
                                "--connects=2500", f"--seed={SEED}"], capture_output=True, text=True, timeout=300)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        report = json.loads(found.stdout)
        self.assertEqual(report["failures"], [])
        self.assertGreater(report["evicted_blocks"], 1000)
        self.assertGreaterEqual(sum(v for v in report["connections"].values() if isinstance(v, int)), 2500)


if __name__ == "__main__":
    unittest.main()
