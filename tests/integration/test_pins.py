"""Pins and prefetches, by the Python client against a real cairnd."""

import os
import sys
import time
import unittest

import numpy as np

import wire

os.environ.setdefault("CAIRN_LIBRARY", os.path.join(wire.ROOT, "build", "release", "libcairn.so"))
sys.path.insert(0, os.path.join(wire.ROOT, "client", "python"))
import cairn  # noqa: E402
from cairn import Status  # noqa: E402

SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())
print(f"CAIRN_TEST_SEED={SEED}")
BLOCK = 256 * 1024


class Pins(wire.DaemonCase):
    flags = dict(ram_bytes="16MiB", nvme_bytes="16MiB", slab_bytes="4MiB", eviction="lru")

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        super().tearDown()

    def client(self):
        self.clients.append(cairn.Client(self.daemon.socket))
        return self.clients[-1]

    def space(self, client, name):
        return client.open_space(cairn.SpaceConfig.opaque(name, BLOCK, 16))

    def fill(self, space, count, name):
        """Puts `count` roots, one after the other, as room comes; returns their keys."""
        keys = [wire.key(name, space.fingerprint, i) for i in range(count)]
        for key in keys:
            space.put([key], [self.rng.integers(0, 256, BLOCK, np.uint8)], ack="disk")
        return keys

    def pins(self):
        with self.daemon.connect() as c:
            return c.stats()["cairn_block_pins"]

    def test_pinned_blocks_stay_when_others_go(self):
        client = self.client()
        space = self.space(client, "stay")
        first = self.fill(space, 24, "first")
        self.assertEqual(space.pin(first[:6]), [Status.OK] * 6)
        self.fill(space, 120, "flood")  # twice what the disk holds
        self.assertEqual(space.try_get(first[:6])[1], [Status.OK] * 6)
        gone = [s for s in space.try_get(first[6:])[1] if s == Status.ENOENT]
        self.assertGreater(len(gone), 9, "the others made room")
        self.assertEqual(space.unpin(first[:6]), [Status.OK] * 6)
        self.fill(space, 120, "again")
        self.assertIn(Status.ENOENT, space.try_get(first[:6])[1])

    def test_a_pinned_block_is_not_deleted(self):
        client, other = self.client(), self.client()
        space, theirs = self.space(client, "held"), self.space(other, "held")
        keys = self.fill(space, 3, "held")
        self.assertEqual(space.pin(keys[:2], owner="a"), [Status.OK] * 2)
        self.assertEqual(space.pin([keys[0]], owner="b"), [Status.OK])
        self.assertEqual(theirs.delete(keys), [Status.EHELD, Status.EHELD, Status.OK])
        self.assertEqual(theirs.unpin([keys[0]], owner="c"), [Status.ENOENT])
        self.assertEqual(theirs.unpin([keys[0]], owner="a"), [Status.OK], "one tenant, two workers")
        self.assertEqual(theirs.delete([keys[0]]), [Status.EHELD], "b's is left")
        self.assertEqual(space.delete(keys[:2], purge=True), [Status.OK] * 2)
        self.assertEqual(space.pin(keys), [Status.ENOENT] * 3)
        self.assertEqual(self.pins(), 0)

    def test_soft_pins_end_with_the_connection_and_hard_ones_do_not(self):
        client, other = self.client(), self.client()
        space, theirs = self.space(client, "soft"), self.space(other, "soft")
        keys = self.fill(space, 2, "soft")
        space.pin([keys[0]])
        space.pin([keys[1]], hard=True, owner="job 7")
        client.close()
        end = time.monotonic() + 5
        while self.pins() != 1 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(theirs.delete(keys), [Status.OK, Status.EHELD])
        self.assertEqual(theirs.unpin([keys[1]], owner="job 7"), [Status.OK])
        self.assertEqual(theirs.delete([keys[1]]), [Status.OK])

    def test_pins_end_by_their_deadline(self):
        client = self.client()
        space = self.space(client, "deadline")
        keys = self.fill(space, 3, "deadline")
        space.pin(keys, hard=True, for_s=0.2)
        space.pin([keys[1]], hard=True, for_s=300)  # renewed
        space.pin([keys[2]], owner="x", for_s=0.01)
        client.close()  # the clock goes on though nobody is connected
        time.sleep(1.5)
        self.assertEqual(self.pins(), 1)
        again = self.space(self.client(), "deadline")
        self.assertEqual(again.delete(keys), [Status.OK, Status.EHELD, Status.OK])
        self.assertEqual(again.unpin([keys[1]]), [Status.OK])

    def test_what_is_wrong_is_named(self):
        space = self.space(self.client(), "wrong")
        with self.assertRaises(cairn.Invalid):
            space.pin([b"k" * 32], owner="o" * 129)
        self.assertEqual(space.pin([]), [])
        self.assertEqual(space.pin([b"k" * 32]), [Status.ENOENT])
        self.assertEqual(space.unpin([b"k" * 32]), [Status.ENOENT])
        self.assertEqual(space.prefetch([b"k" * 32]), 0)
        self.assertEqual(space.prefetch([]), 0)


class Prefetches(unittest.TestCase):
    def test_blocks_are_in_ram_when_it_ends(self):
        daemon = wire.Daemon(ram_bytes="16MiB", nvme_bytes="64MiB", slab_bytes="4MiB")
        self.addCleanup(daemon.stop)
        rng = np.random.default_rng(SEED)
        config = cairn.SpaceConfig.opaque("prefetch", BLOCK, 16)
        with cairn.Client(daemon.socket, reconnect_s=20) as client:
            space = client.open_space(config)
            keys = [bytes([i]) * 32 for i in range(100)]
            blocks = [rng.integers(0, 256, BLOCK, np.uint8) for _ in keys]
            for key, block in zip(keys, blocks):
                space.put([key], [block], ack="disk")
            daemon.kill()
            daemon.start()
            before = client.stats()
            self.assertEqual(space.prefetch([*keys[:20], b"x" * 32]), 20)
            after = client.stats()
            reads = after["cairn_nvme_reads_total"] - before["cairn_nvme_reads_total"]
            self.assertGreaterEqual(reads, 20)
            found = space.get(keys[:20])
            np.testing.assert_array_equal(found, np.array(blocks[:20]))
            self.assertEqual(client.stats()["cairn_nvme_reads_total"],
                             after["cairn_nvme_reads_total"], "these came from RAM")
            self.assertEqual(space.prefetch(keys), 100, "more than RAM holds flows through it")


if __name__ == "__main__":
    unittest.main()
