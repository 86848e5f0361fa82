"""Disks that fill up under the daemon, or go away while it runs (cases 2, 21 and 43), on real file systems.

A mount that this machine does not allow skips its test, by name.
"""
import os
import random
import shutil
import subprocess
import time
import unittest

from test_places import PlacedDaemon, can_mount
from wire import EIO, ENOENT, ENOSPC, OK, RELEASE, SLOW, DaemonCase, Space, key, message, pattern

KIB, MIB = 1 << 10, 1 << 20
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())
SIZE = 256 * KIB
SMALL_DISK = "mkdir -p {directory}/data && mount -t tmpfs -o size=48m none {directory}/data"


class HalfFailed(DaemonCase):
    """RAM for three blocks, and batches of six of which some cannot be had."""
    flags = dict(ram_bytes="1MiB", nvme_bytes="64MiB")

    def test_case_2_half_failed_batches(self):
        print(f"CAIRN_TEST_SEED={SEED}")
        rng = random.Random(SEED)
        rounds = 1000 if SLOW == 1 else 150
        keys = [key("half", SEED, i) for i in range(12)]
        with self.daemon.connect() as c, self.daemon.connect() as holder:
            number = c.open_space(Space.opaque(SIZE))
            self.assertEqual(holder.open_space(Space.opaque(SIZE)), number)
            blocks = {k: pattern(SIZE, k) for k in keys[:9]}  # three are never there
            for k, block in blocks.items():
                self.assertEqual(c.put(number, [k], block, fields={2: 1}).statuses(), [OK])
            arena = c.arena(6 * SIZE)
            for _ in range(rounds):
                lease = holder.lookup(number, rng.sample(keys[:9], 3), 60000).get(2)
                some = rng.sample(keys, 6)
                arena.map[:] = bytes(arena.size)
                reply = c.get(number, some, fields={6: message({1: arena.id, 2: 0, 3: arena.size})})
                self.assertEqual(reply.statuses(), [OK if k in blocks else ENOENT for k in some])
                for i, k in enumerate(some):
                    if k in blocks:
                        self.assertEqual(arena.map[i * SIZE:(i + 1) * SIZE], blocks[k])
                self.assertEqual(holder.call(RELEASE, message({1: lease})).status, OK)
            arena.close()


class Disks(unittest.TestCase):
    def start(self, mounts="", **flags):
        if mounts and not can_mount(mounts):
            self.skipTest("no such mount is allowed here")
        daemon = PlacedDaemon(mounts, **{"ram_bytes": "8MiB", "slab_bytes": "4MiB", **flags})
        self.addCleanup(shutil.rmtree, daemon.directory, ignore_errors=True)
        self.addCleanup(daemon.kill)
        daemon.own = False
        return daemon

    def put(self, c, number, name, count, ack):
        """The keys that were taken, and every status that came."""
        taken, statuses = [], []
        for i in range(count):
            k = key(name, i)
            statuses += c.put(number, [k], pattern(SIZE, k), fields={2: ack}).statuses()
            if statuses[-1] == OK:
                taken.append(k)
        return taken, statuses

    def check(self, c, number, keys):
        """Exact bytes or a miss. Returns how many are there."""
        found = 0
        for k in keys:
            reply = c.get(number, [k])
            self.assertIn(reply.statuses(), ([OK], [ENOENT]))
            if reply.statuses() == [OK]:
                self.assertEqual(reply.payload, pattern(SIZE, k))
                found += 1
        return found

    def until(self, text, happened):
        end = time.monotonic() + 30 * SLOW
        while not happened():
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.1)

    def test_case_21_the_disk_is_full_below_the_limit(self):
        """48 MiB of disk, a limit of 1 GiB: the oldest give way; with no room left RAM serves; then all recovers."""
        daemon = self.start(SMALL_DISK, nvme_bytes="1GiB")
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            taken, statuses = self.put(c, number, "first", 300, 1)
            self.assertEqual(statuses, [OK] * 300, "75 MiB went through a disk of 48")
            self.assertEqual(self.check(c, number, taken[-20:]), 20, "the newest are there")
            self.assertLess(self.check(c, number, taken), 200)
            disk = f"/proc/{daemon.process.pid}/root{daemon.directory}/data"
            with open(os.path.join(disk, "ballast"), "wb") as ballast:
                try:
                    while True:
                        ballast.write(bytes(64 * KIB))
                        ballast.flush()
                except OSError:
                    pass
            kept, statuses = self.put(c, number, "second", 40, 0)
            self.assertEqual(statuses, [OK] * 40)
            self.assertEqual(self.check(c, number, kept[-8:]), 8)
            os.unlink(os.path.join(disk, "ballast"))
            self.until("written to disk again",
                       lambda: self.put(c, number, f"third {time.monotonic()}", 1, 1)[1] == [OK])
            last, statuses = self.put(c, number, "fourth", 20, 1)
            self.assertEqual(statuses, [OK] * 20)
        daemon.stop()

    def test_case_43_the_directory_is_removed(self):
        """What was put before is gone for the next start: so nothing may be promised to be on disk any more."""
        daemon = self.start(nvme_bytes="64MiB")
        self.lose(daemon, lambda: shutil.rmtree(os.path.join(daemon.directory, "data")))
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            _, statuses = self.put(c, number, "promised", 8, 1)
            self.assertNotIn(OK, statuses)

    def test_case_43_the_directory_becomes_read_only(self):
        daemon = self.start(nvme_bytes="64MiB")
        slabs = os.path.join(daemon.directory, "data", "slabs")

        def attribute(sign):
            return subprocess.run(["chattr", sign + "i", slabs], stderr=subprocess.DEVNULL, check=False).returncode

        if not shutil.which("chattr") or attribute("+") != 0:
            self.skipTest("no chattr on this file system")
        self.addCleanup(attribute, "-")
        attribute("-")
        self.lose(daemon, lambda: attribute("+"))
        attribute("-")
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            self.until("the alarm ends", lambda: c.put(number, [key("back", time.monotonic())], pattern(SIZE, "back"),
                                                       fields={2: 1}).statuses() == [OK]
                       and c.stats()["cairn_nvme_failed"] == 0)

    def test_case_16_and_43_the_catalog_is_cut(self):
        """Its map's bytes go: no SIGBUS, RAM goes on with a warning, and the next start makes it anew."""
        daemon = self.start(nvme_bytes="64MiB")
        catalog = os.path.join(daemon.directory, "data", "catalog.mdb")
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            before, statuses = self.put(c, number, "before", 8, 1)
            self.assertEqual(statuses, [OK] * 8)
            os.truncate(catalog, 0)
            k = key("promised")
            self.assertEqual(c.put(number, [k], pattern(SIZE, k), fields={2: 1}).statuses(), [EIO])
            self.until("a warning", lambda: daemon.log("the catalog cannot be read any more"))
            kept, statuses = self.put(c, number, "ram", 12, 0)
            self.assertEqual(statuses, [OK] * 12, "RAM goes on")
            self.assertEqual(self.check(c, number, kept), 12)
            self.assertEqual(self.check(c, number, before), 8)
        daemon.stop()
        again = self.start(nvme_bytes="64MiB", directory=daemon.directory)
        with again.connect() as c:
            self.assertEqual(self.check(c, c.open_space(Space.opaque(SIZE)), before), 8)

    def lose(self, daemon, happen):
        """No slab can be made any more: RAM goes on, with an alarm."""
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(SIZE))
            before, statuses = self.put(c, number, "before", 8, 1)
            self.assertEqual(statuses, [OK] * 8)
            happen()
            for i in range(60):
                k = key("after", i)
                status = c.put(number, [k], pattern(SIZE, k), fields={2: 1}).statuses()[0]
                self.assertIn(status, (OK, EIO, ENOSPC))
                if c.stats()["cairn_nvme_failed"]:
                    break
            self.assertEqual(c.stats()["cairn_nvme_failed"], 1, "an alarm")
            self.until("a warning", lambda: daemon.log("NVMe writes fail"))
            self.assertEqual(len(daemon.log("NVMe writes fail")), 1, daemon.warnings())
            kept, statuses = self.put(c, number, "ram", 12, 0)
            self.assertEqual(statuses, [OK] * 12, "RAM goes on")
            self.assertEqual(self.check(c, number, kept), 12)
            self.check(c, number, before)


if __name__ == "__main__":
    unittest.main()
