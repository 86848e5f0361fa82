"""A short run of tests/crash/kill.py: the daemon killed at twenty points of real work."""

import importlib.util
import os
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


if __name__ == "__main__":
    unittest.main()
