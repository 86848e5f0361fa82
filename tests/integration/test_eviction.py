"""Eviction and admission by name, by the Python client against a real cairnd: what stays when a tier is full."""

import os
import shutil
import sys
import time
import unittest

import numpy as np

import wire

os.environ.setdefault("CAIRN_LIBRARY", os.path.join(wire.ROOT, "build", "release", "libcairn.so"))
sys.path.insert(0, os.path.join(wire.ROOT, "client", "python"))
import cairn  # noqa: E402
from cairn import Status  # noqa: E402

BLOCK = 64 * 1024
FLAGS = dict(ram_bytes="4MiB", nvme_bytes="16MiB", slab_bytes="2MiB")


class Case(unittest.TestCase):
    def serve(self, **flags):
        daemon = wire.Daemon(**{**FLAGS, **flags})
        self.addCleanup(daemon.stop)
        client = cairn.Client(daemon.socket)
        self.addCleanup(client.close)
        self.daemon = daemon
        self.space = client.open_space(cairn.SpaceConfig.opaque("evict", BLOCK, 16))

    def keys(self, name, count):
        return [wire.key(name, self.space.fingerprint, i) for i in range(count)]

    def put(self, keys, ack="disk", **more):
        bytes_of = [np.frombuffer(wire.pattern(BLOCK, key), np.uint8) for key in keys]
        self.space.put(keys, bytes_of, ack=ack, **more)

    def there(self, keys):
        arrays, statuses = self.space.try_get(keys)
        for key, array, status in zip(keys, arrays, statuses):
            if status == Status.OK:
                self.assertEqual(bytes(array), wire.pattern(BLOCK, key))
        return [status == Status.OK for status in statuses]

    def stat(self, name):
        with self.daemon.connect() as c:
            return c.stats()[name]


class Eviction(Case):
    def check_leaves_first(self, policy):
        self.serve(eviction=policy)
        chains = [self.keys(f"chain {i}", 8) for i in range(60)]  # 30 MiB
        for i, chain in enumerate(chains):
            self.put(chain)  # each the child of the one before
            if i % 3 == 0:
                self.there(chains[0][:4])
        self.assertGreater(self.stat('cairn_evictions_total{tier="nvme"}'), 100)
        whole = 0
        for chain in chains:
            found = self.there(chain)
            self.assertEqual(found, sorted(found, reverse=True), "a child outlived its parent")
            whole += all(found)
        self.assertGreater(whole, 5)

    def test_lru_takes_leaves_first(self):
        self.check_leaves_first("lru")

    def test_s3fifo_takes_leaves_first(self):
        self.check_leaves_first("s3fifo")

    def test_cost_takes_leaves_first(self):
        self.check_leaves_first("cost")

    def dear_that_stay(self, policy):
        self.serve(eviction=policy)
        dear = self.keys("dear", 40)
        for key in dear:
            self.put([key], recompute_us=5_000_000)
        for key in self.keys("cheap", 400):
            self.put([key], recompute_us=1_000)
        return sum(self.there(dear))

    def test_cost_keeps_what_is_dear(self):
        self.assertEqual(self.dear_that_stay("cost"), 40)

    def test_lru_does_not_ask_what_it_cost(self):
        self.assertEqual(self.dear_that_stay("lru"), 0)

    def test_an_unknown_policy_is_refused(self):
        daemon = wire.Daemon(wait=False, eviction="fifo", **FLAGS)
        daemon.launch()
        self.assertEqual(daemon.process.wait(30), 78)
        daemon.reader.join(10)
        self.assertRegex("\n".join(daemon.lines), 'eviction = "fifo".*one of the words')
        shutil.rmtree(daemon.directory, ignore_errors=True)


class Admission(Case):
    def settle(self):
        for _ in range(100):
            if self.stat("cairn_blocks_dirty") == 0:
                return
            time.sleep(0.05)
        self.fail("blocks stay unwritten")

    def check(self, admission):
        self.serve(admission=admission)
        once, twice = self.keys("once", 16), self.keys("twice", 8)
        self.put(once + twice, ack="memory")
        self.settle()
        self.assertEqual(self.stat('cairn_tier_blocks{tier="nvme"}'), 0)
        self.assertTrue(all(self.there(twice)))
        self.settle()
        self.assertEqual(self.stat('cairn_tier_blocks{tier="nvme"}'), 8)
        on_disk = self.keys("disk", 4)
        self.put(on_disk, ack="disk")
        self.assertEqual(self.stat('cairn_tier_blocks{tier="nvme"}'), 12)
        self.put(once[:4], ack="disk")  # there already, in RAM alone: on disk before the answer
        self.assertEqual(self.stat('cairn_tier_blocks{tier="nvme"}'), 16)

    def test_second_use(self):
        self.check("second-use")

    def test_tinylfu(self):
        self.check("tinylfu")

    def test_always(self):
        self.serve(admission="always")
        self.put(self.keys("once", 16), ack="memory")
        self.settle()
        self.assertEqual(self.stat('cairn_tier_blocks{tier="nvme"}'), 16)


if __name__ == "__main__":
    unittest.main()
