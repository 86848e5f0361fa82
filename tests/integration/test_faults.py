"""Faults that users of such stores have reported: writers that die, restarts when full, lowered limits, garbage.

Each test names its case. A real cairnd, a hand-written wire.
"""
import glob
import os
import random
import shutil
import signal
import struct
import tempfile
import time
import unittest

import wire
from wire import (EEXIST, ENOENT, ESTALE, GET, OK, PUT, SLOW, Connection, Daemon,
                  DaemonCase, Space, key, message, pattern, region)

MIB = 1 << 20
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())
print(f"CAIRN_TEST_SEED={SEED}")


def slab_slots_bytes(directory):
    """Bytes of all slots of all slab files."""
    total = 0
    for path in glob.glob(os.path.join(directory, "data", "slabs", "*.slab")):
        with open(path, "rb") as slab:
            slot_bytes, slots = struct.unpack_from("<QI", slab.read(28), 16)
        total += slots * slot_bytes
    return total


def in_child(work):
    """work() in another process; returns its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


class Writers(DaemonCase):
    """Workers that die, or sleep, in the middle."""
    flags = dict(ram_bytes="16MiB", nvme_bytes="32MiB")
    space = Space.opaque(MIB)

    def test_case_3_writer_dies_before_commit(self):
        begin = time.monotonic()
        with self.daemon.connect() as other:
            number = other.open_space(self.space)
            for i in range(12):
                k = key("writer", SEED, i)
                read, write = os.pipe()

                def half(k=k, cut=1 + i * MIB // 12):
                    c = Connection(self.daemon.socket)
                    n = c.open_space(self.space)
                    c.socket.sendall(wire.frame(PUT, message({1: n, 3: k}), pattern(MIB, k, "dead"))[:cut])
                    os.write(write, b"x")
                    time.sleep(60)

                child = in_child(half)
                os.read(read, 1)
                self.assertEqual(other.lookup(number, [k]).get(1), 0, "not visible before it is whole")
                end(child)
                self.assertEqual(other.get(number, [k]).statuses(), [ENOENT])
                self.assertEqual(other.put(number, [k], pattern(MIB, k, "alive"), fields={2: 1}).statuses(), [OK])
                self.assertEqual(other.get(number, [k]).payload, pattern(MIB, k, "alive"))
                os.close(read)
                os.close(write)
        self.assertLess(time.monotonic() - begin, 20 * SLOW)

    def test_case_3_the_old_version_stays_until_the_new_one_commits(self):
        with self.daemon.connect() as other:
            number = other.open_space(self.space)
            k = key("old", SEED)
            self.assertEqual(other.put(number, [k], pattern(MIB, k, 1)).statuses(), [OK])
            with self.daemon.connect() as writer:
                n = writer.open_space(self.space)
                writer.socket.sendall(wire.frame(PUT, message({1: n, 3: k}), pattern(MIB, k, 2), id=99)[:MIB // 2])
                self.assertEqual(other.get(number, [k]).payload, pattern(MIB, k, 1))
            self.assertEqual(other.get(number, [k]).payload, pattern(MIB, k, 1))
            self.assertEqual(other.put(number, [k], pattern(MIB, k, 2)).statuses(), [EEXIST])
            self.assertEqual(other.get(number, [k]).payload, pattern(MIB, k, 1))

    def test_case_3_writers_die_while_their_arena_is_read(self):
        rng = random.Random(SEED)
        with self.daemon.connect() as other:
            number = other.open_space(self.space)
            for i in range(20):
                keys = [key("arena", SEED, i, j) for j in range(4)]
                ready, done = os.pipe()

                def puts(keys=keys):
                    c = Connection(self.daemon.socket)
                    n = c.open_space(self.space)
                    arena = c.arena(4 * MIB)
                    arena.map[:] = b"".join(pattern(MIB, k) for k in keys)
                    os.write(done, b"x")
                    c.call(PUT, message({1: n, 3: b"".join(keys), 6: region(arena.id, 0, 4 * MIB)}))
                    time.sleep(60)

                child = in_child(puts)
                os.read(ready, 1)
                time.sleep(rng.uniform(0, 0.003))
                end(child)
                os.close(ready)
                os.close(done)
                blocks = b"".join(pattern(MIB, k) for k in keys[2:])
                for status in other.put(number, keys[2:], blocks, parent=keys[1]).statuses():
                    self.assertIn(status, (OK, EEXIST))
                for k in keys:
                    reply = other.get(number, [k])
                    if reply.statuses() == [OK]:
                        self.assertEqual(reply.payload, pattern(MIB, k), "whole or a miss")
                    else:
                        self.assertEqual(reply.statuses(), [ENOENT])

    def test_case_8_a_lease_ends_while_the_worker_sleeps(self):
        keys = [key("sleeper", SEED, i) for i in range(3)]
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            c.put(number, keys, b"".join(pattern(MIB, k) for k in keys))
        ready, done = os.pipe()

        def read():
            """Gets under a lease of 500 ms, on and on: every answer goes out as a letter."""
            c = Connection(self.daemon.socket)
            n = c.open_space(self.space)
            lease = c.lookup(n, keys, 500).get(2)
            while True:
                reply = c.get(n, keys, fields={3: lease})
                if reply.status == ESTALE:
                    os.write(done, b"S")
                    while True:
                        time.sleep(60)
                whole = reply.statuses() == [OK] * 3 and reply.payload == b"".join(pattern(MIB, k) for k in keys)
                os.write(done, b"." if whole else b"X")

        child = in_child(read)
        try:
            self.assertEqual(os.read(ready, 1), b".")
            os.kill(child, signal.SIGSTOP)  # with an answer half read, as it comes
            with self.daemon.connect() as c:
                number = c.open_space(self.space)
                until = time.monotonic() + 2
                churned = 0
                while time.monotonic() < until or churned < 48:
                    k = key("churn", SEED, churned)
                    self.assertEqual(c.put(number, [k], pattern(MIB, k)).statuses(), [OK])
                    churned += 1
                self.assertEqual(c.lookup(number, keys).get(1), 0, "evicted: the lease was over")
            os.kill(child, signal.SIGCONT)
            seen = b""
            while not seen.endswith(b"S"):
                seen += os.read(ready, 4096)
            self.assertNotIn(b"X", seen)
        finally:
            end(child)
            os.close(ready)
            os.close(done)


class Restarts(unittest.TestCase):
    """The same directory, several daemons."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.daemon = None
        self.addCleanup(lambda: self.daemon.process.poll() is None and self.daemon.kill())

    def start(self, **flags):
        self.daemon = Daemon(self.directory, **flags)
        return self.daemon

    def put(self, c, number, keys, size, **more):
        statuses = []
        for k in keys:
            statuses += c.put(number, [k], pattern(size, k), **more).statuses()
        return statuses

    def exact(self, c, number, keys, size):
        """How many are there; each must be exact, and the others a miss."""
        found = 0
        for k in keys:
            reply = c.get(number, [k])
            if reply.statuses() == [OK]:
                self.assertEqual(reply.payload, pattern(size, k))
                found += 1
            else:
                self.assertEqual(reply.statuses(), [ENOENT])
        return found

    def limits(self, c, quiet=True):
        """Never above the bounds; once quiet, free + used = total."""
        until = time.monotonic() + 10 * SLOW
        while True:
            stats = c.stats()
            used = stats['cairn_tier_used_bytes{tier="nvme"}']
            self.assertLessEqual(used, stats['cairn_tier_limit_bytes{tier="nvme"}'])
            self.assertLessEqual(stats['cairn_tier_used_bytes{tier="ram"}'], stats['cairn_tier_limit_bytes{tier="ram"}'])
            total = slab_slots_bytes(self.directory)
            if not quiet or used + stats["cairn_nvme_free_bytes"] == total and stats["cairn_io_inflight"] == 0:
                return stats
            if time.monotonic() > until:
                self.fail(f"used {used} + free {stats['cairn_nvme_free_bytes']} are not {total}")
            time.sleep(0.02)

    def restart_at_90_percent(self, stop):
        size, limit = 1 << 16, 16 * MIB
        space = Space.opaque(size)
        daemon = self.start(ram_bytes="4MiB", nvme_bytes=limit, slab_bytes="1MiB")
        keys = [key("full", i) for i in range(int(0.9 * limit / (size + 4096)))]
        with daemon.connect() as c:
            number = c.open_space(space)
            self.assertEqual(set(self.put(c, number, keys, size, fields={2: 1})), {OK})
            self.assertGreater(self.limits(c)['cairn_tier_used_bytes{tier="nvme"}'], 0.85 * limit)
        daemon.own = False
        stop(daemon)
        daemon.start()
        more = [key("more", i) for i in range(len(keys) // 2)]
        with daemon.connect() as c:
            number = c.open_space(space)
            stats = self.limits(c)
            self.assertEqual(stats["cairn_blocks_recovered"], len(keys))
            self.assertEqual(stats["cairn_orphans_recovered"], 0)
            self.assertEqual(self.exact(c, number, keys, size), len(keys))
            for k in more:
                self.assertEqual(c.put(number, [k], pattern(size, k), fields={2: 1}).statuses(), [OK])
                self.limits(c, quiet=False)
            self.assertEqual(self.exact(c, number, more, size), len(more), "the newest stay")
            found = self.exact(c, number, keys, size)
            self.assertGreater(found, 0)
            stats = self.limits(c)
            self.assertEqual(stats["cairn_blocks"], found + len(more))
            self.assertEqual(stats['cairn_evictions_total{tier="nvme"}'], len(keys) - found)
        daemon.stop()

    def test_case_22_restart_at_90_percent_after_kill_9(self):
        self.restart_at_90_percent(lambda daemon: daemon.kill())

    def test_case_22_restart_at_90_percent_after_sigterm(self):
        self.restart_at_90_percent(lambda daemon: daemon.stop())

    def fill_and_stop(self, stop_timeout, seconds):
        """SIGTERM with 96 MiB in RAM, most not written; returns (found after the restart, all)."""
        keys = [key("unwritten", i) for i in range(96)]
        daemon = self.start(ram_bytes="128MiB", nvme_bytes="256MiB", stop_timeout=stop_timeout)
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(MIB))
            arena = c.arena(96 * MIB)
            for i, k in enumerate(keys):
                arena.map[i * MIB:(i + 1) * MIB] = pattern(MIB, k)
            reply = c.put(number, keys, fields={6: region(arena.id, 0, 96 * MIB)})
            self.assertEqual(reply.statuses(), [OK] * 96)
            begin = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            codes = (0, 1) if stop_timeout == "1ms" else (0,)  # 1: it gave up waiting
            self.assertIn(daemon.process.wait(60 * SLOW), codes)
            self.assertLess(time.monotonic() - begin, seconds * SLOW)
            arena.close()
        daemon.reader.join()
        daemon.lines.clear()
        daemon.start()
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(MIB))
            found = self.exact(c, number, keys, MIB)
            self.assertEqual(self.limits(c)["cairn_blocks_corrupt_total"], 0)
        daemon.stop()
        return found, len(keys)

    def test_case_23_sigterm_with_much_unwritten(self):
        found, total = self.fill_and_stop("10s", 12)
        self.assertEqual(found, total)

    def test_case_23_sigterm_without_the_time_to_write(self):
        found, total = self.fill_and_stop("1ms", 3)
        print(f"{found} of {total} blocks were written within 1 ms; none is torn")

    def test_case_28_150_of_100_and_a_lowered_limit(self):
        size, limit = 1 << 16, 8 * MIB
        slots = limit // (size + 4096)
        space = Space.opaque(size)
        daemon = self.start(ram_bytes="2MiB", nvme_bytes=limit, slab_bytes="1MiB")
        keys = [key("quota", i) for i in range(slots * 3 // 2)]
        with daemon.connect() as c:
            number = c.open_space(space)
            for k in keys:
                self.assertEqual(c.put(number, [k], pattern(size, k), fields={2: 1}).statuses(), [OK])
                self.limits(c, quiet=False)
            found = self.exact(c, number, keys, size)
            self.assertGreater(found, slots * 3 // 4)
            self.assertEqual(self.limits(c)["cairn_blocks"], found)
        daemon.own = False
        daemon.stop()
        daemon.flags.update(nvme_bytes=limit // 2, ram_bytes="1MiB")
        daemon.lines.clear()
        daemon.start()
        with daemon.connect() as c:
            number = c.open_space(space)
            stats = self.limits_reached(c)
            found = self.exact(c, number, keys, size)
            self.assertEqual(found, stats["cairn_blocks"])
            self.assertGreater(found, slots // 5, "no more goes than must")
            fresh = [key("fresh", i) for i in range(slots)]
            self.assertEqual(set(self.put(c, number, fresh, size, fields={2: 1})), {OK})
            self.limits(c)
        daemon.stop()

    def limits_reached(self, c):
        """The numbers once the NVMe tier is within its bound, which a lowered one may take a moment to be."""
        until = time.monotonic() + 10 * SLOW
        while time.monotonic() < until:
            stats = c.stats()
            if stats['cairn_tier_used_bytes{tier="nvme"}'] <= stats['cairn_tier_limit_bytes{tier="nvme"}']:
                break
            time.sleep(0.05)
        return self.limits(c)


class Aborts(DaemonCase):
    flags = dict(ram_bytes="8MiB", nvme_bytes="16MiB")

    def test_case_28_ten_thousand_aborted_puts(self):
        space = Space.opaque(1 << 16)
        with self.daemon.connect() as c:
            number = c.open_space(space)
            before = c.stats()
            for first in range(0, 9500, 100):  # refused: a region outside of the payload, or too short
                ids = [c.send(PUT, message({1: number, 3: key("abort", first + i), 6: region(0, i % 2, 65535)}), b"y" * 64)
                       for i in range(100)]
                for i in ids:
                    self.assertLess(c.wait(i).status, 0)
            for i in range(500):  # gone with half of it sent
                with self.daemon.connect(hello=i % 2 == 0) as writer:
                    writer.socket.sendall(wire.frame(PUT, message({1: number, 3: key("gone", i)}), b"x" * 65536)[:32768])
            after = c.stats()
            for name in ("cairn_blocks", 'cairn_tier_used_bytes{tier="ram"}', 'cairn_tier_used_bytes{tier="nvme"}'):
                self.assertEqual(after[name], before[name], name)
            k = key("alive")
            self.assertEqual(c.put(number, [k], pattern(65536, k)).statuses(), [OK])
            self.assertEqual(c.get(number, [k]).payload, pattern(65536, k))


class LargeArenas(DaemonCase):
    flags = dict(ram_bytes="16MiB", nvme_bytes="64MiB")

    def test_case_35_offsets_beyond_2_and_4_gib(self):
        """An arena of 5 GiB (of which a few pages are ever touched): blocks at offsets beyond 2^31 and 2^32."""
        size = 1 << 16
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(size))
            arena = c.arena(5 << 30)
            offsets = [0, (1 << 31) - size, 1 << 31, (1 << 32) - 4096, (1 << 32) + MIB + 12345, (5 << 30) - size]
            keys = [key("far", i) for i in range(len(offsets))]
            for offset, k in zip(offsets, keys):
                arena.map[offset:offset + size] = pattern(size, k)
            reply = c.put(number, keys, fields={6: region(arena.id, 0, 5 << 30), 7: offsets})
            self.assertEqual(reply.statuses(), [OK] * len(keys), reply.text)
            for offset in offsets:
                arena.map[offset:offset + size] = bytes(size)
            turned = offsets[::-1]
            reply = c.call(GET, message({1: number, 2: b"".join(keys), 6: region(arena.id, 0, 5 << 30), 7: turned}))
            self.assertEqual(reply.statuses(), [OK] * len(keys), reply.text)
            for offset, k in zip(turned, keys):
                self.assertEqual(arena.map[offset:offset + size], pattern(size, k))
            for offset in ((5 << 30) - size + 1, 1 << 33, (1 << 64) - 4096):
                reply = c.call(GET, message({1: number, 2: keys[0], 6: region(arena.id, 0, 5 << 30), 7: [offset]}))
                self.assertLess(reply.status or reply.statuses()[0], 0, offset)
            arena.close()


class Warm(unittest.TestCase):
    def test_case_40_the_first_puts_are_like_the_next(self):
        """A number, not a verdict: this machine may be busy."""
        daemon = Daemon(ram_bytes="256MiB", nvme_bytes="512MiB")
        self.addCleanup(daemon.stop)
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(1 << 16))
            block = pattern(1 << 16, "warm")
            times = []
            for i in range(2000):
                begin = time.perf_counter()
                statuses = c.put(number, [key("warm", i)], block).statuses()
                times.append(time.perf_counter() - begin)
                self.assertEqual(statuses, [OK])
        first, second = sorted(times[:1000])[989], sorted(times[1000:])[989]
        print(f"p99 of the first 1,000 puts {first * 1e3:.2f} ms, of the next {second * 1e3:.2f} ms: {first / second:.2f}x")


if __name__ == "__main__":
    unittest.main()
