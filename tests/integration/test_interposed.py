"""A cairnd whose disk stalls and whose wall clock jumps, by functions put before the system's (interpose.c).

Not under the sanitizers, whose own interposing comes first.
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import wire
from wire import (CAIRND, EDEADLINE, ESTALE, GET, OK, PING, PUT, ROOT, STATS, Daemon, Space, key, message,
                  pattern)

SOURCE = os.path.join(ROOT, "tests", "integration", "interpose.c")
SIZE = 1 << 16
HOUR, TEN_YEARS = 3600, 10 * 365 * 24 * 3600


class InterposedDaemon(Daemon):
    def __init__(self, library, directory, **flags):
        self.library = library
        self.stall_path = os.path.join(directory, "stall")
        self.clock_path = os.path.join(directory, "clock")
        super().__init__(directory, **flags)

    def command(self):
        settings = [f"LD_PRELOAD={self.library}", f"INTERPOSE_STALL={self.stall_path}",
                    f"INTERPOSE_CLOCK={self.clock_path}"]
        return ["/usr/bin/env", *settings, *super().command(), "--sandbox=no", "--force-sync-device"]

    def stall(self):
        open(self.stall_path, "w").close()

    def flow(self):
        if os.path.exists(self.stall_path):
            os.unlink(self.stall_path)

    def jump(self, seconds):
        with open(self.clock_path + ".new", "w") as file:
            file.write(str(seconds))
        os.rename(self.clock_path + ".new", self.clock_path)


@unittest.skipIf("asan" in CAIRND or "tsan" in CAIRND, "sanitizers interpose themselves")
class Interposed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.build = tempfile.mkdtemp(prefix="cairn-test-")
        cls.library = os.path.join(cls.build, "interpose.so")
        subprocess.run(["cc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", cls.library,
                        SOURCE, "-ldl"], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.build)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.daemon = InterposedDaemon(self.library, self.directory, ram_bytes="4MiB", nvme_bytes="64MiB",
                                       stop_timeout="1s")
        self.addCleanup(lambda: self.daemon.process.poll() is None and self.daemon.kill())
        self.addCleanup(self.daemon.flow)

    def timed(self, c, kind, body, payload=b"", deadline=0):
        begin = time.monotonic()
        reply = c.call(kind, body, payload, deadline)
        return reply, time.monotonic() - begin

    def test_case_25_the_disk_stalls(self):
        """Time-outs come on time, RAM hits are fine, and all goes on once the disk does."""
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            cold = [key("cold", i) for i in range(160)]  # more than RAM holds
            for k in cold:
                self.assertEqual(c.put(number, [k], pattern(SIZE, k), fields={2: 1}).statuses(), [OK])
            hot = key("hot")
            self.assertEqual(c.put(number, [hot], pattern(SIZE, hot), fields={2: 1}).statuses(), [OK])
            self.daemon.stall()
            waiting = [c.send(GET, message({1: number, 2: k}), deadline=400) for k in cold[:4]]
            late = c.send(PUT, message({1: number, 2: 1, 3: key("late")}), pattern(SIZE, key("late")), deadline=0)
            for k in cold[4:6]:
                reply, seconds = self.timed(c, GET, message({1: number, 2: k}), deadline=500)
                self.assertEqual(reply.status or reply.statuses()[0], EDEADLINE)
                self.assertGreater(seconds, 0.4)
                self.assertLess(seconds, 2)
            for i in waiting:
                reply = c.wait(i)
                self.assertEqual(reply.status or reply.statuses()[0], EDEADLINE)
            until = time.monotonic() + 2
            slowest = 0
            while time.monotonic() < until:
                reply, seconds = self.timed(c, GET, message({1: number, 2: hot}))
                self.assertEqual((reply.statuses(), reply.payload), ([OK], pattern(SIZE, hot)))
                slowest = max(slowest, seconds, self.timed(c, PING, b"")[1], self.timed(c, STATS, b"")[1])
                time.sleep(0.02)
            print(f"slowest RAM hit, Ping or Stats while the disk stood still: {slowest * 1e3:.1f} ms")
            self.assertLess(slowest, 1)
            self.assertNotIn(late, c.kept, "ack=disk was not answered while nothing was written")
            k = key("memory")
            self.assertEqual(c.put(number, [k], pattern(SIZE, k)).statuses(), [OK], "RAM has room")
            self.daemon.flow()
            self.assertEqual(c.wait(late).statuses(), [OK])
            for k in cold[:6] + cold[-4:] + [key("late"), key("memory")]:
                reply = c.get(number, [k])
                self.assertEqual((reply.statuses(), reply.payload), ([OK], pattern(SIZE, k)))
        self.daemon.own = False
        self.daemon.stop()

    def test_case_23_sigterm_while_the_disk_stalls(self):
        """What cannot be written does not hold the daemon beyond its limit; what was committed is exact."""
        keys = [key("stalled", i) for i in range(40)]
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            for k in keys[:20]:
                self.assertEqual(c.put(number, [k], pattern(SIZE, k), fields={2: 1}).statuses(), [OK])
            self.daemon.stall()
            for k in keys[20:]:
                self.assertEqual(c.put(number, [k], pattern(SIZE, k)).statuses(), [OK])
            begin = time.monotonic()
            self.daemon.process.send_signal(signal.SIGTERM)
            self.daemon.process.wait(30)  # 0, or 1: it gave up waiting
            seconds = time.monotonic() - begin
        print(f"SIGTERM with the disk standing still and a limit of 1 s: {seconds:.2f} s")
        self.assertLess(seconds, 5)
        self.assertTrue(self.daemon.log("gave up waiting|stopped before all blocks were on disk"))
        self.daemon.reader.join()
        self.daemon.flow()
        self.daemon.lines.clear()
        self.daemon.start()
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            for i, k in enumerate(keys):
                reply = c.get(number, [k])
                if i < 20 or reply.statuses() == [OK]:
                    self.assertEqual((reply.statuses(), reply.payload), ([OK], pattern(SIZE, k)))
            self.assertEqual(c.stats()["cairn_blocks_corrupt_total"], 0)
        self.daemon.own = False
        self.daemon.stop()

    def test_case_42_the_clock_jumps(self):
        """An hour back and ten years ahead: leases end when they would have, and not before."""
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            k = key("clock")
            brief = key("brief")
            self.assertEqual(c.put(number, [k], pattern(SIZE, k)).statuses(), [OK])
            self.assertEqual(c.put(number, [brief], pattern(SIZE, brief), fields={9: 600000}).statuses(), [OK])
            for jump in (-HOUR, TEN_YEARS, -TEN_YEARS):
                long = c.lookup(number, [k], 60000).get(2)
                short = c.lookup(number, [k], 300).get(2)
                before = self.uptime(c)
                self.daemon.jump(jump)
                self.assertEqual(c.get(number, [k], fields={3: short}).statuses(), [OK])
                time.sleep(0.6)
                self.assertEqual(c.get(number, [k], fields={3: short}).status, ESTALE, "it ended in its time")
                self.assertEqual(c.get(number, [k], fields={3: long}).statuses(), [OK])
                self.assertEqual(c.get(number, [brief]).statuses(), [OK], "its time to live is ten minutes")
                self.assertLess(self.uptime(c) - before, 30000)
                reply, seconds = self.timed(c, GET, message({1: number, 2: k}), deadline=5000)
                self.assertEqual(reply.statuses(), [OK])
        self.daemon.own = False
        self.daemon.stop()

    def test_the_clock_of_a_process_does_jump(self):
        """Else the test above would show nothing."""
        self.daemon.jump(TEN_YEARS)
        result = subprocess.run(
            ["/usr/bin/env", f"LD_PRELOAD={self.library}", f"INTERPOSE_CLOCK={self.daemon.clock_path}", "date", "+%s"],
            stdout=subprocess.PIPE, check=True)
        self.assertGreater(int(result.stdout) - time.time(), TEN_YEARS - HOUR)

    def uptime(self, c):
        return c.call(PING).get(3)


class Clocks(unittest.TestCase):
    def test_case_42_the_wall_clock_is_written_down_and_decides_nothing(self):
        """The log reads it, and clock.h for the times in the audit, of holds: nobody else may ask for a clock that steps."""
        found = []
        for folder in ("proto", "policy", "storage", "daemon", "client/src"):
            for path in glob.glob(os.path.join(ROOT, folder, "**", "*.[ch]"), recursive=True):
                with open(path, encoding="utf-8") as source:
                    if re.search(r"CLOCK_REALTIME|CLOCK_TAI|\bgettimeofday\(|[^_a-z]time\((NULL|0|&)", source.read()):
                        found.append(os.path.relpath(path, ROOT))
        self.assertEqual(sorted(found), ["daemon/clock.h", "daemon/log.c"])
        users = subprocess.run(["grep", "-rlE", "cairn_clock_wall_ms|wall_ms\\(", "daemon", "storage", "policy"], cwd=ROOT,
                               capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(sorted(users), ["daemon/clock.h", "daemon/serve_tenant.c", "daemon/server.c", "storage/audit.c",
                                         "storage/recover.c"])


if __name__ == "__main__":
    unittest.main()
