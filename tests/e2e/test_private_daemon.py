"""A test that is stopped leaves no daemon behind. `python tests/e2e/test_private_daemon.py`"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM = """
import time
from private_daemon import PrivateDaemon
with PrivateDaemon(ram_bytes="64MiB", nvme_bytes="256MiB") as daemon:
    print(daemon.process.pid, daemon.work, flush=True)
    time.sleep(60)
"""


class Stopped(unittest.TestCase):
    def test_sigterm_takes_the_daemon_and_its_folder_along(self):
        here = str(Path(__file__).resolve().parent)
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": path}) as program:
            pid, work = program.stdout.readline().split()
            program.terminate()
            self.assertEqual(program.wait(30), 128 + 15)
        self.assertFalse(Path("/proc", pid).exists())
        self.assertFalse(Path(work).exists())


if __name__ == "__main__":
    unittest.main()
