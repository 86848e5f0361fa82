"""Views: leased blocks read in place, by the Python client, by C and by hand, against a real cairnd."""

import ctypes
import fcntl
import gc
import mmap
import os
import re
import socket
import subprocess
import sys
import time
import traceback
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
MIB = 1 << 20
F_GET_SEALS, F_SEAL_SEAL, F_SEAL_FUTURE_WRITE = 1034, 1, 16
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
MAP_FAILED = ctypes.c_void_p(-1).value


def segments_mapped():
    """Of RAM tiers, in this process."""
    with open("/proc/self/maps") as maps:
        return sum("/memfd:cairn-ram" in line for line in maps)


def own_descriptors():
    return len(os.listdir("/proc/self/fd"))


def as_user(uid, what):
    """What a process of that user answers, or how it failed."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            answer = what()
        except BaseException:  # noqa: BLE001: it is the answer
            answer = traceback.format_exc()
        os.write(into, answer.encode()[-4096:])
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


class Hand(wire.Connection):
    """A connection that keeps the descriptors that come with replies."""

    def __init__(self, path):
        self.descriptors = []
        super().__init__(path)

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            part, fds, flags, _ = socket.recv_fds(self.socket, min(size - len(data), 1 << 20), 64)
            assert not flags & socket.MSG_CTRUNC
            self.descriptors += fds
            if not part:
                raise EOFError("the daemon closed the connection")
            data += part
        return bytes(data)

    def close(self):
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []
        super().close()

    def views(self, space, keys, lease, **more):
        """(statuses, [view fields], [(segment, bytes)]) or the failed reply."""
        reply = self.get(space, keys, fields={3: lease, 8: True, **more})
        if reply.status != wire.OK:
            return reply
        views = [wire.fields(view) for view in reply.fields.get(2, [])]
        shown = [wire.fields(segment) for segment in reply.fields.get(3, [])]
        return reply.statuses(), views, [(s[1][0], s[2][0]) for s in shown]


class Case(wire.DaemonCase):
    flags = dict(ram_bytes="16MiB", nvme_bytes="1GiB", slab_bytes="16MiB", views="yes")

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        self.clients = []
        self.own = own_descriptors()

    def tearDown(self):
        for client in self.clients:
            client.close()
        self.clients = []
        gc.collect()
        self.assertEqual(own_descriptors(), self.own, "descriptors of this process")
        self.assertEqual(segments_mapped(), 0, "segments that stayed mapped")
        super().tearDown()

    def client(self, **options):
        self.clients.append(cairn.Client(self.daemon.socket, **options))
        return self.clients[-1]

    def opaque(self, client, name, size=BLOCK, **more):
        return client.open_space(cairn.SpaceConfig.opaque(name, size, 16, **more))

    def fill(self, space, count, name, ack="disk"):
        """Puts `count` roots; returns their keys and bytes."""
        keys = [wire.key(name, space.fingerprint, i) for i in range(count)]
        blocks = self.rng.integers(0, 256, (count, space.block_bytes), np.uint8)
        for key, block in zip(keys, blocks):
            space.put([key], [block], ack=ack)
        return keys, blocks

    def stat(self, name):
        with self.daemon.connect() as c:
            return c.stats()[name]

    def gone(self, name="cairn_views", wanted=0):
        end = time.monotonic() + 5 * wire.SLOW
        while self.stat(name) != wanted and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.stat(name), wanted)


class Reading(Case):
    def test_views_show_what_was_put(self):
        space = self.opaque(self.client(), "show")
        keys, blocks = self.fill(space, 9, "show")
        with space.get_views(keys) as views:
            self.assertEqual(len(views), 9)
            for view, block in zip(views, blocks):
                self.assertTrue(np.array_equal(view.reshape(-1).view(np.uint8), block))
            self.assertEqual(bytes(views.buffer(3)), blocks[3].tobytes())
            self.assertTrue(views.valid())
            self.assertEqual(self.stat("cairn_views"), 9)
            self.assertEqual(self.stat("cairn_view_bytes"), 9 * BLOCK)
            array = views[0]
            del view
        self.gone()
        self.gone("cairn_view_bytes")
        self.assertFalse(views.valid(), "closed")
        self.assertEqual(array.size * array.itemsize, BLOCK, "an array that was kept stays readable")
        del array

    def test_they_are_read_only(self):
        space = self.opaque(self.client(), "only")
        keys, _ = self.fill(space, 1, "only")
        with space.get_views(keys) as views:
            with self.assertRaises(ValueError):
                views[0].reshape(-1)[0] = 1
            with self.assertRaises(ValueError):
                views[0].flags.writeable = True
            with self.assertRaises(TypeError):
                views.buffer(0)[0] = 1

    def test_ranges_of_layers(self):
        config = cairn.SpaceConfig(model="layers", layers=6, kv_heads=2, k_dim=32, v_dim=32, dtype="f16",
                                   block_tokens=16)
        space = self.client().open_space(config)
        block = self.rng.standard_normal(space.block_shape()).astype(np.float16)
        key = wire.key("layers", SEED)
        space.put([key], block[None], ack="disk")
        with space.lookup([key]) as lease:
            for first in range(6):
                for end in range(first + 1, 7):
                    views = space.get_views([key], layers=(first, end), lease=lease)
                    self.assertTrue(np.array_equal(views[0], block[first:end]))
            self.assertEqual(self.stat("cairn_views"), 1, "one block, however often it is asked for")
            with self.assertRaises(cairn.Invalid):
                space.get_views([key], layers=(3, 7), lease=lease)
        with space.get_views([key]) as views:
            k, v = space.unpack_block(views[0])
            self.assertTrue(np.array_equal(k, space.unpack_block(block)[0]))
            del k, v
        self.gone()

    def test_a_collected_owner_ends_its_lease(self):
        space = self.opaque(self.client(), "collected")
        keys, blocks = self.fill(space, 4, "collected")
        views = space.get_views(keys, lease_s=300)
        kept = views[2]
        self.assertEqual(self.stat("cairn_leases"), 1)
        del views
        gc.collect()
        self.gone("cairn_leases")
        self.gone()
        self.assertTrue(np.array_equal(kept.reshape(-1).view(np.uint8), blocks[2]), "and nobody used the memory anew")
        del kept

    def test_what_is_missing_is_named(self):
        space = self.opaque(self.client(), "missing")
        keys, _ = self.fill(space, 2, "missing")
        wrong = wire.key("missing", "nobody")
        found = space.try_get_views([keys[0], wrong, keys[1]])
        self.assertEqual(found.statuses, [Status.OK, Status.ENOENT, Status.ENOENT], "a lookup finds a prefix")
        self.assertIsNone(found[1])
        self.assertFalse(found.valid(1))
        self.assertTrue(found.valid())
        found.close()
        with space.lookup(keys) as lease:
            found = space.try_get_views([keys[0], wrong, keys[1]], lease=lease)
            self.assertEqual(found.statuses, [Status.OK, Status.ENOENT, Status.OK])
            del found
            with self.assertRaises(cairn.NotFound) as caught:
                space.get_views([wrong], lease=lease)
            self.assertEqual(caught.exception.index, 0)
        with self.assertRaises(cairn.Invalid):
            space.get_views(keys, lease=cairn.Lease(space.client, 0, cairn._library.LeaseStruct()))
        with self.assertRaises(cairn.Invalid):
            space.get_views(keys, lease=lease)  # it was released
        self.assertEqual(len(space.get_views([])), 0)

    def test_blocks_come_from_nvme(self):
        space = self.opaque(self.client(), "nvme")
        keys, blocks = self.fill(space, 100, "nvme")  # six times what RAM holds
        before = self.stat("cairn_nvme_reads_total")
        for first in range(0, 100, 20):
            with space.get_views(keys[first:first + 20]) as views:
                for i in range(20):
                    self.assertTrue(np.array_equal(views[i].reshape(-1).view(np.uint8), blocks[first + i]))
                self.assertTrue(views.valid())
        self.assertGreater(self.stat("cairn_nvme_reads_total") - before, 40)
        self.gone()

    def test_more_segments_than_one_reply_shows(self):
        """A block of a quarter MiB fills a segment here: 100 of them bring 100 descriptors."""
        daemon = wire.Daemon(ram_bytes="64MiB", nvme_bytes="64MiB", views="yes", view_bytes="64MiB")
        try:
            with cairn.Client(daemon.socket) as client:
                space = self.opaque(client, "many", MIB)
                keys, blocks = self.fill(space, 50, "many")
                before = own_descriptors()
                for _ in range(3):
                    with space.get_views(keys[:45]) as views:
                        self.assertTrue(all(np.array_equal(v.reshape(-1).view(np.uint8), b)
                                            for v, b in zip(views, blocks)))
                        self.assertGreaterEqual(segments_mapped(), 45)
                        self.assertTrue(views.valid())
                self.assertEqual(own_descriptors(), before, "a mapping needs none")
            with Hand(daemon.socket) as hand:
                number = hand.open_space(wire.Space.opaque(4096, model="small"))
                for i in range(1):
                    hand.put(number, [wire.key("one", i)], bytes(4096))
                lease = hand.lookup(number, [wire.key("one", 0)], 60000).get(2)
                statuses, views, shown = hand.views(number, [wire.key("one", 0)] * 3, lease)
                self.assertEqual((statuses, len(shown), len(hand.descriptors)), ([0, 0, 0], 1, 1))
                statuses, views, shown = hand.views(number, [wire.key("one", 0)], lease)
                self.assertEqual((statuses, len(shown), len(hand.descriptors)), ([0], 0, 1), "it has it already")
        finally:
            daemon.stop()
        self.assertEqual(segments_mapped(), 0)


class Ending(Case):
    def test_case_8_a_lease_ends_while_its_reader_stops(self):
        """Intact, or detectably expired after the read."""
        client, other = self.client(), self.client()
        space, churn = self.opaque(client, "slow"), self.opaque(other, "slow")
        keys, blocks = self.fill(space, 16, "slow")
        views = space.get_views(keys, lease_s=0.5)
        self.assertTrue(views.valid())
        end = time.monotonic() + 2
        count = 0
        while time.monotonic() < end or count < 300:
            self.fill(churn, 10, ("churn", count), ack="memory")
            count += 10
            time.sleep(0.07)
        invalid = 0
        for i, block in enumerate(blocks):
            same = np.array_equal(views[i].reshape(-1).view(np.uint8), block)
            valid = views.valid(i)
            self.assertTrue(same or not valid, "other bytes, and said to be the block")
            invalid += not valid
        self.assertGreater(invalid, 8, "RAM was turned over three times")
        self.assertFalse(views.valid())
        self.assertGreater(self.stat("cairn_leases_expired_total"), 0)
        views.close()
        self.gone()

    def test_leased_views_outlast_the_churn(self):
        space = self.opaque(self.client(), "last")
        keys, blocks = self.fill(space, 16, "last")
        with space.get_views(keys) as views:
            self.fill(space, 120, "churn")
            for i, block in enumerate(blocks):
                self.assertTrue(np.array_equal(views[i].reshape(-1).view(np.uint8), block))
            self.assertTrue(views.valid())

    def test_a_deleted_block_stays_for_its_readers(self):
        space = self.opaque(self.client(), "deleted")
        keys, blocks = self.fill(space, 1, "deleted")
        with space.get_views(keys) as views:
            self.assertEqual(space.delete(keys), [Status.OK])
            space.put(keys, [blocks[0] ^ 255])
            self.fill(space, 80, "churn")
            self.assertTrue(np.array_equal(views[0].reshape(-1).view(np.uint8), blocks[0]))
            self.assertTrue(views.valid())
            with space.get_views(keys) as newer:
                self.assertTrue(np.array_equal(newer[0].reshape(-1).view(np.uint8), blocks[0] ^ 255))

    def test_the_bound_on_what_leases_pin(self):
        space = self.opaque(self.client(), "bound")
        keys, blocks = self.fill(space, 60, "bound")
        lease = space.lookup(keys)
        found = space.try_get_views(keys, lease=lease)
        self.assertEqual(found.statuses.count(Status.OK), 32, "half of 16 MiB")
        self.assertEqual(set(found.statuses[32:]), {Status.EBUSY})
        self.assertTrue(np.array_equal(space.get(keys[59:])[0], blocks[59]), "copies are served beside them")
        self.fill(space, 60, "more")
        again = space.try_get_views(keys[:32], lease=lease)
        self.assertEqual(set(again.statuses), {Status.OK}, "what the lease has costs nothing more")
        self.assertTrue(found.valid())
        del found, again
        lease.release()
        with space.get_views(keys[40:60]) as views:
            self.assertTrue(views.valid())
        self.gone("cairn_view_bytes")

    def test_a_connection_that_ends_gives_all_back(self):
        space = self.opaque(self.client(), "ends")
        keys, _ = self.fill(space, 10, "ends")
        views = space.get_views(keys)
        array = views[0]
        self.clients.pop().close()
        self.gone()
        self.gone("cairn_leases")
        self.assertFalse(views.valid())
        self.assertEqual(int(array.reshape(-1).view(np.uint8)[:1].size), 1)
        views.close()
        del array

    def test_views_end_with_the_daemon(self):
        """A daemon that is killed leaves readable, invalid views; its successor serves new ones."""
        daemon = wire.Daemon(ram_bytes="16MiB", nvme_bytes="64MiB", views="yes")
        try:
            client = cairn.Client(daemon.socket, reconnect_s=20)
            space = self.opaque(client, "restart")
            keys, blocks = self.fill(space, 8, "restart")
            for kill in (True, False):
                views = space.get_views(keys)
                if kill:
                    daemon.kill()
                else:
                    daemon.process.terminate()
                    daemon.process.wait()
                    daemon.reader.join()
                    self.assertFalse(views.valid(), "it gave its memory up in good order")
                total = sum(int(view.reshape(-1).view(np.uint8)[::4096].sum()) for view in views)  # no SIGBUS
                self.assertGreaterEqual(total, 0)
                daemon.lines.clear()
                daemon.start()
                client.ping()
                self.assertFalse(views.valid())
                for i in range(8):
                    self.assertFalse(views.valid(i))
                views.close()
                with space.get_views(keys) as fresh:
                    for i, block in enumerate(blocks):
                        self.assertTrue(np.array_equal(fresh[i].reshape(-1).view(np.uint8), block))
                    self.assertTrue(fresh.valid())
            client.close()
        finally:
            daemon.stop()

    def test_segments_that_the_daemon_gives_up_are_unmapped(self):
        client, other = self.client(), self.client()
        space = self.opaque(client, "first")
        keys, _ = self.fill(space, 20, "first")
        with space.get_views(keys):
            before = segments_mapped()
        self.assertGreaterEqual(before, 20)
        large = self.opaque(other, "large", MIB)
        self.fill(large, 40, "large")  # needs all of RAM, in segments of another size
        client.ping()
        self.assertLess(segments_mapped(), before / 2)


class Example(Case):
    def test_the_example_runs(self):
        environment = dict(os.environ, CAIRN_SOCKET=self.daemon.socket,
                           PYTHONPATH=os.path.join(wire.ROOT, "client", "python"))
        ran = subprocess.run([sys.executable, os.path.join(wire.ROOT, "client", "examples", "views.py")],
                             capture_output=True, text=True, timeout=120, check=False, env=environment)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(len(re.findall(r"layer \d: 8 blocks in place", ran.stdout)), 4, ran.stdout)
        self.gone()


class FromC(Case):
    def test_views_from_c(self):
        program = os.path.join(os.path.dirname(wire.CAIRND), "tests", "cairn_integration_views")
        ran = subprocess.run([program, self.daemon.socket, "4"], capture_output=True, text=True, timeout=300,
                             check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        words = ran.stdout.split()
        self.assertEqual(words[:3], ["1280", "views", "read,"])
        self.assertGreater(int(words[-5]), 0, ran.stdout)
        self.gone()


class Walls(Case):
    def shown(self, hand):
        """A segment's descriptor, its size and a view in it."""
        number = hand.open_space(wire.Space.opaque(BLOCK, model="walls"))
        key = wire.key("walls", SEED)
        self.assertEqual(hand.put(number, [key], wire.pattern(BLOCK, "walls")).statuses(), [wire.OK])
        lease = hand.lookup(number, [key], 60000).get(2)
        statuses, views, shown = hand.views(number, [key], lease)
        self.assertEqual(statuses, [wire.OK])
        return hand.descriptors[0], shown[0][1], views[0]

    def refused(self, result, *numbers):
        self.assertIn(result, (-1, MAP_FAILED))
        self.assertIn(ctypes.get_errno(), numbers)

    def check_unwritable(self, fd, size, read_only=True):
        eperm, eacces, ebadf = 1, 13, 9
        for protection in (mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_WRITE):
            self.refused(LIBC.mmap(None, 4096, protection, mmap.MAP_SHARED, fd, 0), eperm, eacces)
        address = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        self.assertNotEqual(address, MAP_FAILED)
        self.refused(LIBC.mprotect(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE), eacces, eperm)
        self.refused(LIBC.mprotect(address, 4096, mmap.PROT_WRITE), eacces, eperm)
        LIBC.munmap(address, 4096)
        for call in (lambda: os.write(fd, b"x"), lambda: os.pwrite(fd, b"x", size - 1),
                     lambda: os.pwrite(fd, b"x", size), lambda: os.ftruncate(fd, 0),
                     lambda: os.ftruncate(fd, size + 4096), lambda: os.pwritev(fd, [b"x"], 0)):
            with self.assertRaises(OSError) as caught:
                call()
            self.assertIn(caught.exception.errno, (eperm, ebadf, 22))
        # Plain, keep size, punch a hole, zero a range. Who opens it anew for writing, as root can, may
        # allocate: that changes no byte.
        for mode in (0, 1, 3, 16) if read_only else (3, 16):
            self.refused(LIBC.fallocate(fd, mode, 0, 4096), eperm, ebadf, 95)
        for seals in (0, 1, 16):
            with self.assertRaises(PermissionError):
                fcntl.fcntl(fd, wire.F_ADD_SEALS, seals)
        self.assertEqual(fcntl.fcntl(fd, F_GET_SEALS) & 23, 1 | 2 | 4 | 16)

    def test_a_segment_cannot_be_written_by_anybody_else(self):
        with Hand(self.daemon.socket) as hand:
            fd, size, view = self.shown(hand)
            self.check_unwritable(fd, size)
            name = os.readlink(f"/proc/self/fd/{fd}")
            pid = self.daemon.process.pid
            theirs = [f"/proc/{pid}/fd/{n}" for n in os.listdir(f"/proc/{pid}/fd")]
            theirs = [path for path in theirs if os.path.lexists(path) and os.readlink(path) == name]
            tried = 0
            self.assertGreater(len(theirs), 0)
            for path in [f"/proc/self/fd/{fd}", *theirs]:
                for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
                    try:
                        again = os.open(path, flags | os.O_CLOEXEC)
                    except PermissionError:
                        tried += 1
                        continue  # refused at once: as good
                    except FileNotFoundError:
                        continue  # the daemon's copy that was on its way to us
                    tried += 1
                    try:
                        if flags == os.O_RDWR:
                            self.check_unwritable(again, size, read_only=False)
                        with self.assertRaises(OSError):
                            os.write(again, b"x")
                    finally:
                        os.close(again)
            self.assertGreaterEqual(tried, 6)
            with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
                at = view[2][0]
                self.assertEqual(memory[at:at + BLOCK], wire.pattern(BLOCK, "walls"), "and all is as it was")

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be somebody else")
    def test_another_user_sees_no_segment(self):
        """Not through the daemon, not through /proc; the block's own user does."""
        with Hand(self.daemon.socket) as mine:
            space = wire.Space.opaque(BLOCK, model="shared", shared=1)
            number, key = mine.open_space(space), wire.key("shared", SEED)
            self.assertEqual(mine.put(number, [key], wire.pattern(BLOCK, "shared")).statuses(), [wire.OK])
            lease = mine.lookup(number, [key], 60000).get(2)
            self.assertEqual(mine.views(number, [key], lease)[0], [wire.OK])
            os.chmod(self.daemon.directory, 0o755)
            os.chmod(self.daemon.socket, 0o777)
            self.assertEqual(as_user(54321, lambda: self.look_as_another(space, key)), "done")

    def look_as_another(self, space, key):
        with Hand(self.daemon.socket) as hand:
            number = hand.open_space(space)
            lease = hand.lookup(number, [key], 60000).get(2)
            statuses, _, shown = hand.views(number, [key], lease)
            self.assertEqual((statuses, shown, hand.descriptors), ([wire.EPERM], [], []))
            own = wire.key("own", 1)
            self.assertEqual(hand.put(number, [own], wire.pattern(BLOCK, "own")).statuses(), [wire.OK])
            statuses, _, shown = hand.views(number, [own], hand.lookup(number, [own], 60000).get(2))
            self.assertEqual((statuses, len(hand.descriptors)), ([wire.OK], 1))
            fd = hand.descriptors[0]
            data = os.pread(fd, shown[0][1], 0)
            self.assertIn(wire.pattern(BLOCK, "own"), data)
            self.assertNotIn(wire.pattern(BLOCK, "shared")[:4096], data)
            self.check_unwritable(fd, shown[0][1])
            for flags in (os.O_RDWR, os.O_WRONLY):
                with self.assertRaises(PermissionError):
                    os.close(os.open(f"/proc/self/fd/{fd}", flags))
        with self.assertRaises(PermissionError):
            os.listdir(f"/proc/{self.daemon.process.pid}/fd")
        return "done"

    def test_requests_that_make_no_sense(self):
        with Hand(self.daemon.socket) as hand, Hand(self.daemon.socket) as other:
            number = hand.open_space(wire.Space.opaque(BLOCK, model="sense"))
            key = wire.key("sense", SEED)
            hand.put(number, [key], bytes(BLOCK))
            lease = hand.lookup(number, [key], 60000).get(2)
            self.assertEqual(hand.views(number, [key], 0).status, wire.EINVAL)
            self.assertEqual(hand.views(number, [key], lease + 1)[0], [wire.ESTALE])
            theirs = other.open_space(wire.Space.opaque(BLOCK, model="sense"))
            self.assertEqual(other.views(theirs, [key], lease)[0], [wire.ESTALE], "a lease is its connection's")
            arena = hand.arena(MIB)
            placed = {3: lease, 8: True, 6: wire.region(arena.id, 0, BLOCK)}
            self.assertEqual(hand.get(number, [key], fields=placed).status, wire.EINVAL)
            self.assertEqual(hand.get(number, [key], fields={3: lease, 8: True, 4: 1, 5: 1}).status, wire.EINVAL)
            self.assertEqual(hand.views(number, [], lease)[0], [])
            arena.close()

    def test_a_peer_that_goes_with_views_on_their_way(self):
        with Hand(self.daemon.socket) as hand:
            number = hand.open_space(wire.Space.opaque(BLOCK, model="gone"))
            keys = [wire.key("gone", i) for i in range(30)]
            for key in keys:
                hand.put(number, [key], bytes(BLOCK))
        for _ in range(50):
            hand = Hand(self.daemon.socket)
            number = hand.open_space(wire.Space.opaque(BLOCK, model="gone"))
            lease = hand.lookup(number, keys, 60000).get(2)
            for _ in range(4):
                hand.send(wire.GET, wire.message({1: number, 2: b"".join(keys), 3: lease, 8: True}))
            hand.close()  # none of them read
        self.gone()


class Off(wire.DaemonCase):
    flags = dict(views="no")

    def test_a_daemon_without_views_says_so(self):
        with cairn.Client(self.daemon.socket) as client:
            space = client.open_space(cairn.SpaceConfig.opaque("off", BLOCK, 16))
            key = wire.key("off", SEED)
            space.put([key], [np.zeros(BLOCK, np.uint8)])
            with self.assertRaises(cairn.Unsupported) as caught:
                space.get_views([key])
            self.assertIn("views = yes", str(caught.exception))


class Checks(unittest.TestCase):
    """ram_check: what RAM gives is summed again; a bad copy comes from NVMe."""

    def flip(self, daemon, pattern):
        """Changes a byte of each place in the daemon's RAM tier where the pattern lies; how many."""
        pid, flipped = daemon.process.pid, 0
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for line in maps:
                if "/memfd:cairn-ram" not in line:
                    continue
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(begin)
                at = memory.read(end - begin).find(pattern)
                if at >= 0:
                    memory.seek(begin + at + 100)
                    memory.write(bytes([pattern[100] ^ 1]))
                    flipped += 1
        return flipped

    def run_check(self, views, ack="disk", **flags):
        daemon = wire.Daemon(ram_bytes="16MiB", views="yes" if views else "no", ram_check="1", **flags)
        try:
            with cairn.Client(daemon.socket) as client, daemon.connect() as monitor:
                space = client.open_space(cairn.SpaceConfig.opaque("check", BLOCK, 16))
                key, data = wire.key("check", SEED), wire.pattern(BLOCK, "check", SEED)
                space.put([key], [np.frombuffer(data, np.uint8)], ack=ack)
                self.assertEqual(bytes(space.get([key])), data)
                before = monitor.stats()
                self.assertGreaterEqual(before["cairn_ram_checks_total"], 1)
                self.assertEqual(self.flip(daemon, data[:4096]), 1)
                yield space, key, data, monitor
        finally:
            daemon.stop()

    def test_a_bad_copy_is_read_from_nvme_again(self):
        for space, key, data, monitor in self.run_check(views=False):
            self.assertEqual(bytes(space.get([key])), data)
            stats = monitor.stats()
            self.assertEqual(stats["cairn_ram_copies_corrupt_total"], 1)
            self.assertEqual(stats["cairn_blocks_corrupt_total"], 0)
            self.assertEqual(bytes(space.get([key])), data)
            self.assertEqual(monitor.stats()["cairn_ram_copies_corrupt_total"], 1)

    def test_views_are_checked_too(self):
        for space, key, data, monitor in self.run_check(views=True):
            with space.get_views([key]) as views:
                self.assertEqual(bytes(views.buffer(0)), data)
                self.assertTrue(views.valid())
            self.assertEqual(monitor.stats()["cairn_ram_copies_corrupt_total"], 1)

    def test_a_bad_copy_that_others_read_makes_the_block_a_miss(self):
        daemon = wire.Daemon(ram_bytes="16MiB", views="yes", ram_check="1")
        try:
            with cairn.Client(daemon.socket) as client, daemon.connect() as monitor:
                space = client.open_space(cairn.SpaceConfig.opaque("check", BLOCK, 16))
                key, data = wire.key("check", SEED), wire.pattern(BLOCK, "check", SEED)
                space.put([key], [np.frombuffer(data, np.uint8)], ack="disk")
                with space.get_views([key]):
                    self.assertEqual(self.flip(daemon, data[:4096]), 1)
                    self.assertEqual(space.try_get([key])[1], [Status.ECORRUPT])
                self.assertEqual(space.try_get([key])[1], [Status.ENOENT])
                stats = monitor.stats()
                self.assertEqual(stats["cairn_blocks_corrupt_total"], 1)
                self.assertEqual(stats["cairn_ram_copies_corrupt_total"], 0)
                self.assertEqual(stats["cairn_pins"], 0)
                space.put([key], [np.frombuffer(data, np.uint8)])
                self.assertEqual(bytes(space.get([key])), data)
        finally:
            daemon.stop()

    def test_without_another_copy_the_block_is_a_miss_and_can_be_put_again(self):
        for space, key, data, monitor in self.run_check(views=False, ack="memory", nvme_bytes="0"):
            self.assertEqual(space.try_get([key])[1], [Status.ECORRUPT])
            self.assertEqual(space.try_get([key])[1], [Status.ENOENT])
            self.assertEqual(monitor.stats()["cairn_blocks_corrupt_total"], 1)
            space.put([key], [np.frombuffer(data, np.uint8)])
            self.assertEqual(bytes(space.get([key])), data)

    def test_the_share_is_about_what_was_asked_for(self):
        daemon = wire.Daemon(ram_check="8")
        try:
            with cairn.Client(daemon.socket) as client, daemon.connect() as monitor:
                space = client.open_space(cairn.SpaceConfig.opaque("share", 4096, 16))
                keys = [wire.key("share", i) for i in range(64)]
                space.put(keys, np.zeros((64, 4096), np.uint8))
                for _ in range(50):
                    space.get(keys)
                checks = monitor.stats()["cairn_ram_checks_total"]
                self.assertTrue(280 < checks < 540, f"{checks} of 3200, 400 wanted")
        finally:
            daemon.stop()


class LayerRanges(unittest.TestCase):
    def test_a_range_of_what_ram_has_not_reads_just_its_bytes(self):
        daemon = wire.Daemon(ram_bytes="8MiB", nvme_bytes="128MiB")
        try:
            with cairn.Client(daemon.socket) as client, daemon.connect() as monitor:
                config = cairn.SpaceConfig(model="ranges", layers=16, kv_heads=2, k_dim=64, v_dim=64, dtype="f16",
                                           block_tokens=128, landmark_bits=0, value_bits=0)
                space = client.open_space(config)
                rng = np.random.default_rng(SEED)
                blocks = rng.standard_normal((20, *space.block_shape())).astype(np.float16)
                keys = [wire.key("ranges", i) for i in range(20)]
                for key, block in zip(keys, blocks):
                    space.put([key], block[None], ack="disk")
                with space.lookup(keys[:1]) as lease:
                    before = monitor.stats()["cairn_nvme_read_bytes_total"]
                    got = space.get(keys[:1], layers=(3, 5), lease=lease)
                    self.assertTrue(np.array_equal(got[0], blocks[0][3:5]))
                    read = monitor.stats()["cairn_nvme_read_bytes_total"] - before
                self.assertTrue(0 < read <= 2 * config.layer_bytes + 3 * 4096, f"{read} bytes for two layers")
                for first in range(16):
                    for end in range(first + 1, 17, 3):
                        got = space.get(keys, layers=(first, end))
                        self.assertTrue(np.array_equal(got, blocks[:, first:end]))
                self.assertEqual(monitor.stats()["cairn_pins"], 0)
        finally:
            daemon.stop()


if __name__ == "__main__":
    unittest.main()
