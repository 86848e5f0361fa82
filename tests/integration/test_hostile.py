"""Hostile and broken peers: what they send costs little, hurts nobody else, and leaves nothing behind."""
import array
import mmap
import os
import random
import resource
import select
import socket
import struct
import tempfile
import threading
import time
import unittest

from wire import *

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


def send_with(connection, data, fds):
    connection.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


class Frames(DaemonCase):
    flags = dict(frame_timeout="700ms")

    def refused(self, data, status=EPROTO, hello=True):
        with self.daemon.connect(hello=hello) as c:
            c.socket.sendall(data)
            reply = c.receive()
            self.assertEqual(reply.status, status, reply.text)
            self.assertTrue(reply.text)
            self.assertTrue(c.ended())
        self.assertHealthy()

    def test_case_12_sizes_at_the_limits(self):
        for size in (MESSAGE_MAX + 1, 0xFFFFFFFF):
            self.refused(frame(PING, message_bytes=size))
        for size in (PAYLOAD_MAX + 1, 0xFFFFFFFF):
            self.refused(frame(PING, payload_bytes=size))
        with self.daemon.connect() as c:  # an empty message is a good Ping
            self.assertEqual(c.call(PING, b"").status, OK)
            self.assertEqual(c.call(PING, b"", b"x" * PAYLOAD_MAX).status, OK)

    def test_case_12_500_connections_that_claim_the_maximum(self):
        before = self.daemon.memory()
        hostile = []
        for _ in range(500):
            c = self.daemon.connect()
            c.socket.sendall(frame(PUT, message_bytes=MESSAGE_MAX, payload_bytes=PAYLOAD_MAX) + b"\n")
            hostile.append(c)
        with self.daemon.connect() as healthy:
            begin = time.monotonic()
            for _ in range(50):
                self.assertEqual(healthy.call(PING).status, OK)
            self.assertLess(time.monotonic() - begin, 2 * SLOW)
        grown = self.daemon.memory() - before
        self.assertLess(grown / 500, 1 << 20 if SLOW == 1 else 4 << 20, "memory a connection")
        begin = time.monotonic()
        for c in hostile:
            c.socket.settimeout(10 * SLOW)
            self.assertTrue(c.ended())
            c.close()
        self.assertLess(time.monotonic() - begin, 5 * SLOW)

    def test_case_12_a_trickle_does_not_stop_the_clock(self):
        with self.daemon.connect() as c:
            data = frame(PUT, message_bytes=1000)
            begin = time.monotonic()
            try:
                for byte in data + b"\0" * 500:
                    c.socket.sendall(bytes([byte]))
                    time.sleep(0.02)
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertTrue(c.ended())
            self.assertLess(time.monotonic() - begin, 4 * SLOW)

    def test_no_hello_in_time(self):
        with self.daemon.connect(hello=False) as c:
            begin = time.monotonic()
            self.assertTrue(c.ended())
            self.assertLess(time.monotonic() - begin, 4 * SLOW)

    def test_bytes_that_are_no_frame(self):
        self.refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.refused(frame(PING, magic=b"CRN2"))
        self.refused(frame(PING | REPLY))
        self.refused(frame(999))
        self.refused(frame(0))
        self.refused(frame(PING, reserved=1))

    def test_versions(self):
        self.refused(frame(PING, version=2), EVERSION)
        self.refused(frame(HELLO, message({1: 2, 2: 9})), EVERSION, hello=False)
        with self.daemon.connect(hello=False) as c:
            reply = c.call(HELLO, message({1: 1, 2: 9}))
            self.assertEqual((reply.status, reply.get(1)), (OK, 1))

    def test_hello_comes_first(self):
        self.refused(frame(PING), EPROTO, hello=False)

    def test_requests_without_what_they_need(self):
        with self.daemon.connect() as c:
            for kind in (PIN, UNPIN, PREFETCH, SEAL, EXPORT_LANDMARKS, RETAIN, PLAN, SET_QUOTA, WHY):
                reply = c.call(kind)
                self.assertLess(reply.status, 0)
                self.assertTrue(reply.text)
            self.assertEqual(c.call(PING).status, OK)


class Sessions(DaemonCase):
    """A whole session, cut in every way."""
    space = Space.opaque(4096)

    def script(self):
        """(bytes, statuses): a session as one stream; the space's number is always the same."""
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
        keys = [key("session", i) for i in range(2)]
        data = b"".join(pattern(4096, k) for k in keys)
        out = frame(HELLO, message({1: 1, 2: 1}), id=1)
        out += frame(OPEN_SPACE, message({1: self.space.packed()}), id=2)
        out += frame(PING, id=3)
        return out, number, keys, data

    def replay(self, chunks):
        first, number, keys, data = self.script()
        with self.daemon.connect(hello=False) as c:
            stream = first
            for part in chunks(stream):
                c.socket.sendall(part)
            for id in (1, 2, 3):
                self.assertEqual(c.wait(id).status, OK)
            stream = frame(PUT, message({1: number, 3: b"".join(keys)}), data, id=4)
            for part in chunks(stream):
                c.socket.sendall(part)
            self.assertTrue(set(c.wait(4).statuses()) <= {OK, EEXIST})
            stream = frame(LOOKUP, message({1: number, 2: b"".join(keys), 3: 1000}), id=5)
            stream += frame(GET, message({1: number, 2: b"".join(keys)}), id=6)
            for part in chunks(stream):
                c.socket.sendall(part)
            self.assertEqual(c.wait(5).get(1), 2)
            reply = c.wait(6)
            self.assertEqual(reply.statuses(), [OK, OK])
            self.assertEqual(reply.payload, data)

    def test_case_13_a_byte_a_write(self):
        self.replay(lambda stream: [stream[i:i + 1] for i in range(len(stream))])

    def test_case_13_all_in_one_write(self):
        self.replay(lambda stream: [stream])

    def test_case_13_in_random_pieces(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)

        def cut(stream):
            at = 0
            while at < len(stream):
                size = rng.choice((1, 7, 31, 32, 33, 4096))
                yield stream[at:at + size]
                at += size

        for _ in range(5):
            self.replay(cut)

    def test_case_13_cut_at_every_offset(self):
        stream, number, keys, data = self.script()
        stream += frame(LOOKUP, message({1: number, 2: b"".join(keys), 3: 60000}), id=5)
        for end in range(len(stream)):
            with self.daemon.connect(hello=False) as c:
                c.socket.sendall(stream[:end])
        self.assertHealthy()

    def test_case_14_worker_gone_in_mid_write(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            keys = [key("epipe", i) for i in range(64)]
            c.put(number, keys, b"".join(pattern(4096, k) for k in keys))
        for i in range(1000 if SLOW == 1 else 200):
            c = self.daemon.connect()
            self.assertEqual(c.open_space(self.space), number)
            c.send(GET, message({1: number, 2: b"".join(keys)}))
            if i % 3 == 0:
                c.read(100 * (i % 7) + 1)
            c.close()
        self.assertHealthy()

    def test_half_close_ends_the_connection(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            c.put(number, [key("half")], pattern(4096, "half"))
            self.assertEqual(c.lookup(number, [key("half")], 60000).get(1), 1)
            c.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(c.ended())


class Arenas(DaemonCase):
    space = Space.opaque(4096)

    def test_case_15_arena_range_out_of_bounds(self):
        size = 64 * 1024
        with self.daemon.connect() as c, self.daemon.connect() as other:
            arena = c.arena(size)
            number = c.open_space(self.space)
            k = [key("range")]
            top = (1 << 64) - 1
            for offset, length in ((0, size + 1), (top, 2), (size, 4096), (size - 4095, 4096), (top - 4095, 4096),
                                   (1, top), (top, top), (0, 4095), (0, 0)):
                reply = c.put(number, k, fields={6: region(arena.id, offset, length)})
                self.assertEqual(reply.status, ERANGE, (offset, length))
                reply = c.get(number, k, fields={6: region(arena.id, offset, length)})
                self.assertEqual(reply.status, ERANGE, (offset, length))
            for at in (size, size - 4095, top, top - 4095, 1 << 63):
                reply = c.put(number, k, fields={6: region(arena.id, 0, size), 7: [at]})
                self.assertEqual(reply.status, ERANGE, at)
                self.assertEqual(c.get(number, k, fields={6: region(arena.id, 0, size), 7: [at]}).status, ERANGE)
            reply = c.put(number, k, fields={6: region(arena.id, 0, size), 7: [0, 0]})
            self.assertEqual(reply.status, EINVAL, "an offset too many")
            number_other = other.open_space(self.space)
            for name in (arena.id, 0x7FFFFFFF, 0xFFFFFFFF):
                reply = other.put(number_other, k, fields={6: region(name, 0, 4096)})
                self.assertEqual(reply.status, ESTALE, "another worker's arena")
            self.assertEqual(c.lookup(number, k).get(1), 0, "nothing was stored")
            self.assertEqual(c.call(RELEASE_ARENA, message({1: arena.id})).status, OK)
            self.assertEqual(c.call(RELEASE_ARENA, message({1: arena.id})).status, ESTALE)
            self.assertEqual(c.put(number, k, fields={6: region(arena.id, 0, 4096)}).status, ESTALE)
            arena.close()

    def test_case_15_payload_range_out_of_bounds(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            for payload in (b"", b"x" * 4095):
                self.assertEqual(c.put(number, [key("p")], payload).status, ERANGE)
            reply = c.put(number, [key("p")], b"x" * 4096, fields={6: region(0, 1, 4096)})
            self.assertEqual(reply.status, ERANGE)
            self.assertEqual(c.lookup(number, [key("p")]).get(1), 0)

    def test_case_15_bytes_that_change_during_the_put(self):
        """What is stored is what was summed: a get is exact for some moment of each byte, never an error."""
        with self.daemon.connect() as c:
            space = Space.opaque(1 << 20)
            arena = c.arena(2 << 20)
            number = c.open_space(space)
            stop = threading.Event()

            def flip():
                value = 0
                while not stop.is_set():
                    value ^= 0xFF
                    arena.map[0:1 << 20] = bytes([value]) * (1 << 20)

            thread = threading.Thread(target=flip)
            thread.start()
            try:
                keys = [key("flip", i) for i in range(20)]
                for k in keys:
                    self.assertEqual(c.put(number, [k], fields={6: region(arena.id, 0, 1 << 20)}).statuses(), [OK])
            finally:
                stop.set()
                thread.join()
            for k in keys:
                first = c.get(number, [k], fields={6: region(arena.id, 1 << 20, 1 << 20)})
                self.assertEqual(first.statuses(), [OK])
                copy = arena.map[1 << 20:2 << 20]
                self.assertTrue(set(copy) <= {0, 0xFF})
                c.get(number, [k], fields={6: region(arena.id, 1 << 20, 1 << 20)})
                self.assertEqual(arena.map[1 << 20:2 << 20], copy, "the same bytes each time")
            arena.close()

    def test_case_16_arenas_that_can_shrink(self):
        with self.daemon.connect() as c:
            def refused(fd, size=65536):
                reply = c.call(REGISTER_ARENA, message({1: size}), fds=[fd])
                self.assertEqual(reply.status, EINVAL)
                self.assertIn(";", reply.text)

            unsealed = Arena(65536, seals=0)
            refused(unsealed.fd)
            os.ftruncate(unsealed.fd, 0)
            unsealed.close()
            grow = Arena(65536, seals=F_SEAL_GROW)
            refused(grow.fd)
            grow.close()
            readonly = os.memfd_create("ro", os.MFD_ALLOW_SEALING)
            os.ftruncate(readonly, 65536)
            fcntl.fcntl(readonly, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE)
            refused(readonly)
            os.close(readonly)
            with tempfile.TemporaryFile() as file:
                file.truncate(65536)
                refused(file.fileno())
            read_end, write_end = os.pipe()
            refused(read_end)
            os.close(read_end)
            os.close(write_end)
            with open("/dev/zero", "r+b", buffering=0) as zero:
                refused(zero.fileno())
            sealed = Arena(65536)
            refused(sealed.fd, 65537)
            refused(sealed.fd, 0)
            refused(sealed.fd, (1 << 64) - 1)
            with self.assertRaises(PermissionError):
                os.ftruncate(sealed.fd, 0)
            sealed.close()
            self.assertEqual(c.call(PING).status, OK)

    def test_arenas_are_bounded(self):
        with self.daemon.connect() as c:
            arenas = [c.arena(4096) for _ in range(16)]
            more = Arena(4096)
            self.assertEqual(c.call(REGISTER_ARENA, message({1: 4096}), fds=[more.fd]).status, EBUSY)
            self.assertEqual(c.call(RELEASE_ARENA, message({1: arenas[0].id})).status, OK)
            self.assertEqual(c.call(REGISTER_ARENA, message({1: 4096}), fds=[more.fd]).status, OK)
            for arena in arenas + [more]:
                arena.close()

    def test_released_while_a_get_runs(self):
        with self.daemon.connect() as c:
            space = Space.opaque(1 << 20)
            number = c.open_space(space)
            arena = c.arena(16 << 20)
            keys = [key("rel", i) for i in range(16)]
            for i, k in enumerate(keys):
                arena.map[i << 20:(i + 1) << 20] = pattern(1 << 20, k)
            c.put(number, keys, fields={6: region(arena.id, 0, 16 << 20)})
            get = c.send(GET, message({1: number, 2: b"".join(keys), 6: region(arena.id, 0, 16 << 20)}))
            release = c.send(RELEASE_ARENA, message({1: arena.id}))
            self.assertEqual(c.wait(release).status, OK)
            self.assertEqual(c.wait(get).statuses(), [OK] * 16)
            arena.close()


class Descriptors(DaemonCase):
    def settled(self):
        """No descriptor stays in the daemon."""
        end = time.monotonic() + 5 * SLOW
        with self.daemon.connect():
            while self.daemon.descriptors() > self.quiet_descriptors and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(self.daemon.descriptors(), self.quiet_descriptors)

    def test_case_17_253_descriptors_in_a_message(self):
        arena = Arena(4096)
        extra = [os.dup(arena.fd) for _ in range(253)]
        with self.daemon.connect() as c:
            send_with(c, frame(REGISTER_ARENA, message({1: 4096}), id=9), extra)
            reply = c.wait(9)
            self.assertEqual(reply.status, EINVAL, reply.text)
            self.assertEqual(c.call(REGISTER_ARENA, message({1: 4096}), fds=[arena.fd]).status, OK, "the next is fine")
        for fd in extra:
            os.close(fd)
        arena.close()
        self.settled()

    def test_case_17_two_descriptors_in_a_message(self):
        arena = Arena(4096)
        with self.daemon.connect() as c:
            reply = c.call(REGISTER_ARENA, message({1: 4096}), fds=[arena.fd, arena.fd])
            self.assertEqual(reply.status, EINVAL)
            self.assertEqual(c.call(PING).status, OK)
        arena.close()
        self.settled()

    def test_case_17_descriptors_on_the_wrong_message(self):
        arena = Arena(4096)
        for kind in (PING, PUT):
            c = self.daemon.connect()
            send_with(c, frame(kind, id=9), [arena.fd])
            replies = []
            try:
                while True:
                    replies.append(c.receive().status)
            except (EOFError, ConnectionError):
                pass
            self.assertIn(EPROTO, replies)
            c.close()
        for _ in range(3):  # before Hello
            c = self.daemon.connect(hello=False)
            send_with(c, frame(PING)[:5], [arena.fd])
            c.close()
        arena.close()
        self.settled()
        self.assertHealthy()

    def test_case_17_no_descriptor(self):
        with self.daemon.connect() as c:
            reply = c.call(REGISTER_ARENA, message({1: 4096}))
            self.assertEqual(reply.status, EINVAL)
            self.assertEqual(c.call(PING).status, OK)

    def test_case_17_pipelined_registers_keep_their_order(self):
        sizes = [4096, 8192, 12288, 16384]
        arenas = [Arena(size) for size in sizes]
        with self.daemon.connect() as c:
            ids = [c.send(REGISTER_ARENA, message({1: a.size}), fds=[a.fd]) for a in arenas]
            self.assertEqual([c.wait(i).status for i in ids], [OK] * 4)  # a mix-up would not fit the sizes
        for arena in arenas:
            arena.close()

    def test_case_17_a_descriptor_with_a_frame_in_pieces(self):
        arena = Arena(4096)
        data = frame(REGISTER_ARENA, message({1: 4096}), id=7)
        with self.daemon.connect() as c:
            for cut in (1, 31, 32, 33):
                send_with(c, data[:cut], [arena.fd])
                time.sleep(0.02)
                c.socket.sendall(data[cut:])
                self.assertEqual(c.wait(7).status, OK)
        arena.close()

    def test_case_17_thousands_of_descriptors(self):
        arena = Arena(4096)
        for _ in range(300):
            c = self.daemon.connect()
            send_with(c, frame(REGISTER_ARENA, message({1: 4096})) * 2, [arena.fd])
            c.close()
        arena.close()
        self.settled()


class DescriptorLimit(unittest.TestCase):
    def test_case_17_at_the_descriptor_limit(self):
        daemon = Daemon(limits=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        held = []
        try:
            for _ in range(120):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.settimeout(1)
                s.connect(daemon.socket)
                held.append(s)
            time.sleep(0.5)
            before = daemon.cpu_seconds()
            time.sleep(2)
            self.assertLess(daemon.cpu_seconds() - before, 0.5 * SLOW, "it does not spin")
            self.assertTrue(daemon.log("cannot accept"))
            for s in held:
                s.close()
            with daemon.connect() as c:
                self.assertEqual(c.call(PING).status, OK)
                arenas = [c.arena(4096)]  # and at the limit a descriptor is lost, not the daemon
                arenas[0].close()
        finally:
            daemon.stop()

    def test_too_many_connections_are_told(self):
        daemon = Daemon(connections_max=3)
        try:
            held = [daemon.connect() for _ in range(3)]
            c = daemon.connect(hello=False)
            self.assertEqual(c.receive().status, EBUSY)
            self.assertTrue(c.ended())
            c.close()
            held.pop().close()
            time.sleep(0.2)
            with daemon.connect() as c:
                self.assertEqual(c.call(PING).status, OK)
            for c in held:
                c.close()
        finally:
            daemon.stop()


class Messages(DaemonCase):
    def test_case_18_empty_repeated_entries(self):
        with self.daemon.connect() as c:
            before = self.daemon.memory()
            entries = b"\x32\x00" * (MESSAGE_MAX // 2)  # a Region, empty, a quarter of a million times
            for kind in (PUT, GET, RETRIEVE):
                reply = c.call(kind, entries)
                self.assertLess(reply.status, 0)
            metrics = b"\x0a\x00" * (MESSAGE_MAX // 2)
            for kind in (STATS, LIST_SPACES, OPEN_SPACE, DELETE, OPEN_CONTEXT):
                c.call(kind, metrics)
            many = b"\x3a" + varint(MESSAGE_MAX - 8) + b"\x00" * (MESSAGE_MAX - 8)  # packed offsets of Put
            self.assertLess(c.call(PUT, many).status, 0)
            self.assertLess(self.daemon.memory() - before, 64 << 20)
            self.assertEqual(c.call(PING).status, OK)

    def test_case_18_deep_nesting(self):
        body = b""
        for _ in range(10000):
            body = b"\x0a" + varint(len(body)) + body
            if len(body) > MESSAGE_MAX - 16:
                break
        with self.daemon.connect() as c:
            for kind in (OPEN_SPACE, RETRIEVE, PUT, STATS):
                c.call(kind, body)
            groups = b"\x0b" * 100000
            for kind in (OPEN_SPACE, RETRIEVE, PUT):
                self.assertEqual(c.call(kind, groups).status, EPROTO)
            self.assertEqual(c.call(PING).status, OK)

    def test_case_18_fuzzed_messages(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        space = Space.opaque(4096)
        kinds = [OPEN_SPACE, LIST_SPACES, LOOKUP, PUT, GET, RELEASE, DELETE, OPEN_CONTEXT, APPEND, CLOSE_CONTEXT,
                 RETRIEVE, FETCH_ROWS, ATTEND, STATS, RELEASE_ARENA, REGISTER_ARENA]
        with self.daemon.connect() as c:
            number = c.open_space(space)
            seeds = [message({1: space.packed()}), message({1: number, 2: key(1) * 3, 3: 1000}),
                     message({1: number, 3: key(1), 6: region(0, 0, 4096)}),
                     message({1: [1], 2: [0], 3: 1, 4: 4, 5: region(0, 0, 64), 7: message({1: 5}), 8: [0, 4]})]
            for i in range(3000 if SLOW == 1 else 600):
                body = bytearray(rng.choice(seeds))
                for _ in range(rng.randrange(1, 6)):
                    choice = rng.random()
                    at = rng.randrange(len(body) + 1)
                    if choice < 0.5 and at < len(body):
                        body[at] = rng.randrange(256)
                    elif choice < 0.75:
                        body[at:at] = rng.randbytes(rng.randrange(1, 9))
                    else:
                        del body[at:at + rng.randrange(1, 9)]
                c.call(rng.choice(kinds), bytes(body), rng.randbytes(rng.randrange(64)))
            self.assertEqual(c.call(PING).status, OK)

    def test_case_18_fuzzed_streams(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED + 1)
        good = b"".join(frame(k, message({1: 1, 2: b"x" * 32}), b"y" * 100, id=k) for k in (PING, LOOKUP, STATS, GET))
        for _ in range(300 if SLOW == 1 else 100):
            data = bytearray(frame(HELLO, message({1: 1, 2: 1})) + good)
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(40, len(data))] = rng.randrange(256)
            with self.daemon.connect(hello=False) as c:
                c.socket.sendall(data)
        self.assertHealthy()

    def test_who_does_not_read_is_served_at_a_pace(self):
        with self.daemon.connect() as c, self.daemon.connect() as other:
            name = 'cairn_requests_total{kind="Stats"}'
            begun, before = time.monotonic(), other.stats()[name]
            asked = list(range(1000, 1500))
            c.socket.sendall(b"".join(frame(STATS, id=i) for i in asked))
            time.sleep(0.2)
            served = other.stats()[name] - before
            self.assertLess(served, 100 + (time.monotonic() - begun) / 0.005, "then a request every 5 ms")
            self.assertEqual(sorted(c.receive().id for _ in asked), sorted(asked), "nothing is lost")


class Readers(DaemonCase):
    flags = dict(reply_timeout="700ms")

    def test_a_reader_that_does_not_read_is_held_up_then_closed(self):
        with self.daemon.connect() as c, self.daemon.connect() as healthy:
            number = c.open_space(Space.opaque(1 << 20))
            keys = [key("deaf", i) for i in range(4)]
            for k in keys:
                c.put(number, [k], pattern(1 << 20, k))
            before = self.daemon.memory()
            request = frame(GET, message({1: number, 2: b"".join(keys)}))  # 4 MiB each
            c.socket.setblocking(False)
            peak = sent = 0
            end = time.monotonic() + 20 * SLOW
            while time.monotonic() < end:
                try:
                    sent += c.socket.send(request * 10)
                except BlockingIOError:
                    time.sleep(0.02)
                except (BrokenPipeError, ConnectionResetError):
                    break
                peak = max(peak, self.daemon.memory() - before)
                self.assertEqual(healthy.call(PING).status, OK)
            self.assertLess(time.monotonic(), end, "it was closed")
            self.assertLess(peak, (96 if SLOW == 1 else 512) << 20)

    def test_many_requests_in_flight_are_all_answered(self):
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(4096))
            keys = [key("many", i) for i in range(2000)]
            ids = []

            def write():
                for k in keys:
                    ids.append(c.send(PUT, message({1: number, 3: k}), pattern(4096, k)))

            writer = threading.Thread(target=write)
            writer.start()
            replies = {}
            while len(replies) < len(keys):
                reply = c.receive()
                replies[reply.id] = reply
            writer.join()
            self.assertTrue(all(replies[i].statuses() == [OK] for i in ids))


if __name__ == "__main__":
    unittest.main()
