"""Blocks: put, look up, get, delete; leases; batches larger than memory; many workers at once; deadlines."""
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

from wire import *

SEED = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


class Blocks(DaemonCase):
    space = Space.opaque(8192)

    def fill(self, c, name, count, space=None):
        space = space or self.space
        number = c.open_space(space)
        keys = [key(name, i) for i in range(count)]
        for at in range(0, count, 100):
            part = keys[at:at + 100]
            reply = c.put(number, part, b"".join(pattern(space.bytes(), k) for k in part),
                          parent=keys[at - 1] if at else b"")
            self.assertEqual(set(reply.statuses()), {OK})
        return number, keys

    def test_put_get_delete(self):
        with self.daemon.connect() as c:
            number, keys = self.fill(c, "pgd", 5)
            reply = c.get(number, keys)
            self.assertEqual(reply.statuses(), [OK] * 5)
            self.assertEqual(reply.payload, b"".join(pattern(8192, k) for k in keys))
            reply = c.put(number, keys, b"z" * 5 * 8192)
            self.assertEqual(reply.statuses(), [EEXIST] * 5)
            self.assertEqual(c.get(number, keys[:1]).payload, pattern(8192, keys[0]), "a re-put changes nothing")
            reply = c.call(DELETE, message({1: number, 2: keys[4] + keys[3] + key("absent")}))
            self.assertEqual(reply.statuses(), [OK, OK, ENOENT])
            self.assertEqual(c.lookup(number, keys).get(1), 3)
            reply = c.get(number, keys)
            self.assertEqual(reply.statuses(), [OK, OK, OK, ENOENT, ENOENT])
            self.assertEqual(len(reply.payload), 5 * 8192)
            self.assertEqual(reply.payload[3 * 8192:], bytes(2 * 8192), "no bytes of others where there is no block")
            again = c.put(number, keys[3:4], b"n" * 8192, parent=keys[2])
            self.assertEqual(again.statuses(), [OK])
            self.assertEqual(c.get(number, keys[3:4]).payload, b"n" * 8192)

    def test_lookup_finds_the_longest_prefix(self):
        with self.daemon.connect() as c:
            number, keys = self.fill(c, "prefix", 6)
            c.call(DELETE, message({1: number, 2: keys[4]}))
            reply = c.lookup(number, keys)
            self.assertEqual(reply.get(1), 4)
            self.assertEqual(len(reply.get(3)), 4)
            self.assertTrue(set(reply.get(3)) <= {1, 2})
            self.assertEqual(c.lookup(number, [key("no")] + keys).get(1), 0)
            self.assertEqual(c.lookup(number, []).get(1), 0)

    def test_layers(self):
        space = Space(layers=5)
        layer = space.bytes() // 5
        with self.daemon.connect() as c:
            number, keys = self.fill(c, "layers", 3, space)
            whole = [pattern(space.bytes(), k) for k in keys]
            for first, count in ((0, 1), (1, 3), (4, 1), (2, 0), (0, 5)):
                reply = c.get(number, keys, fields={4: first, 5: count})
                end = first + count if count else 5
                self.assertEqual(reply.payload, b"".join(w[first * layer:end * layer] for w in whole))
            for first, count in ((5, 0), (5, 1), (0, 6), (4, 2), (1, (1 << 32) - 1)):
                self.assertEqual(c.get(number, keys, fields={4: first, 5: count}).status, EINVAL)

    def test_arena_offsets(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            arena = c.arena(1 << 20)
            keys = [key("off", i) for i in range(4)]
            places = [500001, 20000, 100000, 3]
            for k, at in zip(keys, places):
                arena.map[at:at + 8192] = pattern(8192, k)
            reply = c.put(number, keys, fields={6: region(arena.id, 0, 1 << 20), 7: places})
            self.assertEqual(reply.statuses(), [OK] * 4)
            arena.map[:] = bytes(1 << 20)
            back = [700000, 16384, 1, 300000]
            reply = c.get(number, keys, fields={6: region(arena.id, 0, 1 << 20), 7: back})
            self.assertEqual(reply.statuses(), [OK] * 4)
            for k, at in zip(keys, back):
                self.assertEqual(arena.map[at:at + 8192], pattern(8192, k))
            touched = sorted((at, at + 8192) for at in back)
            clean = [(0, touched[0][0])] + [(a[1], b[0]) for a, b in zip(touched, touched[1:])]
            for begin, end in clean:
                self.assertEqual(arena.map[begin:end], bytes(max(0, end - begin)), "nothing beside the blocks")
            arena.close()

    def test_keys_must_be_whole(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            for kind, field in ((LOOKUP, 2), (GET, 2), (PUT, 3), (DELETE, 2), (OPEN_CONTEXT, 2)):
                self.assertEqual(c.call(kind, message({1: number, field: b"x" * 31})).status, EINVAL)
                self.assertEqual(c.call(kind, message({1: number, field: b"x" * 32 * 4097})).status, EINVAL)
            for parents in ({4: b"x"}, {4: b"p" * 32, 5: b"q" * 32}, {5: b"q" * 64}):
                reply = c.put(number, [key("par")], b"x" * 8192, fields=parents)
                self.assertEqual(reply.status, EINVAL)

    def test_an_inline_answer_above_the_limit_says_so(self):
        with self.daemon.connect() as c:
            number, keys = self.fill(c, "inline", 4, Space.opaque(1 << 20))
            self.assertEqual(c.get(number, keys).statuses(), [OK] * 4)
            reply = c.get(number, keys + keys[:1])
            self.assertEqual((reply.status, reply.get(3)), (ERANGE, 5 << 20))

    def test_pipelined_requests_are_all_answered_once(self):
        print("CAIRN_TEST_SEED", SEED)
        rng = random.Random(SEED)
        with self.daemon.connect() as c:
            number, keys = self.fill(c, "pipe", 50)
            wanted = {}
            for _ in range(400):
                kind = rng.choice((PING, LOOKUP, GET, STATS))
                if kind == GET:
                    k = rng.choice(keys)
                    wanted[c.send(GET, message({1: number, 2: k}))] = pattern(8192, k)
                elif kind == LOOKUP:
                    wanted[c.send(LOOKUP, message({1: number, 2: b"".join(keys)}))] = 50
                else:
                    wanted[c.send(kind)] = None
            seen = set()
            for _ in range(len(wanted)):
                reply = c.receive()
                self.assertNotIn(reply.id, seen)
                seen.add(reply.id)
                if isinstance(wanted[reply.id], bytes):
                    self.assertEqual(reply.payload, wanted[reply.id])
                elif wanted[reply.id] is not None:
                    self.assertEqual(reply.get(1), 50)
            self.assertEqual(seen, set(wanted))

    def test_a_ping_overtakes_a_large_put(self):
        with self.daemon.connect() as c:
            space = Space(layers=8, kv_heads=4, k_dim=64, v_dim=64, block_tokens=256, run_tokens=128)
            number = c.open_space(space)
            arena = c.arena(space.bytes() * 8)
            keys = [key("large", i) for i in range(8)]
            put = c.send(PUT, message({1: number, 3: b"".join(keys), 6: region(arena.id, 0, arena.size)}))
            ping = c.send(PING)
            first = c.receive()
            self.assertEqual(first.id, ping, "replies come in the order of their end")
            self.assertEqual(c.wait(put).statuses(), [OK] * 8)
            arena.close()

    def test_deadlines(self):
        with self.daemon.connect() as c:
            space = Space(layers=16, kv_heads=8, k_dim=64, v_dim=64, block_tokens=256, run_tokens=128)
            number = c.open_space(space)
            arena = c.arena(space.bytes())
            keys = [key("late", i) for i in range(400)]
            begin = time.monotonic()
            reply = c.put(number, keys, fields={6: region(arena.id, 0, arena.size), 7: [0] * 400}, deadline=50)
            self.assertLess(time.monotonic() - begin, 10 * SLOW)
            statuses = reply.statuses()
            self.assertEqual(len(statuses), 400)
            self.assertIn(EDEADLINE, statuses)
            self.assertTrue(set(statuses) <= {OK, EDEADLINE}, set(statuses))
            for k, status in zip(keys, statuses):
                self.assertEqual(c.lookup(number, [k]).get(1), int(status == OK), "a late put leaves no trace")
            c.call(DELETE, message({1: number, 2: b"".join(keys)}))
            arena.close()

    def test_case_26_a_batch_of_4096(self):
        space = Space.opaque(512)
        with self.daemon.connect() as c:
            number = c.open_space(space)
            keys = [key("batch", i) for i in range(4096)]
            data = b"".join(pattern(512, k) for k in keys)
            self.assertEqual(c.put(number, keys, data).statuses(), [OK] * 4096)
            self.assertEqual(c.lookup(number, keys).get(1), 4096)
            reply = c.get(number, keys)
            self.assertEqual(reply.statuses(), [OK] * 4096)
            self.assertEqual(reply.payload, data)


class Leases(DaemonCase):
    space = Space.opaque(4096)

    def start(self, c):
        number = c.open_space(self.space)
        keys = [key("lease", i) for i in range(4)]
        c.put(number, keys, b"".join(pattern(4096, k) for k in keys))
        return number, keys

    def held(self):
        with self.daemon.connect() as c:
            stats = c.stats()
            return stats["cairn_leases"], stats["cairn_holds"]

    def gone_within(self, seconds):
        end = time.monotonic() + seconds
        while self.held() != (0, 0):
            self.assertLess(time.monotonic(), end, self.held())
            time.sleep(0.05)

    def test_case_19_kill_9(self):
        code = ("import sys, time; sys.path.insert(0, %r); from wire import *\n"
                "c = Connection(%r); n = c.open_space(Space.opaque(4096))\n"
                "keys = [key('lease', i) for i in range(4)]\n"
                "c.put(n, keys, b''.join(pattern(4096, k) for k in keys))\n"
                "assert c.lookup(n, keys, 600000).get(2)\n"
                "print('held', flush=True); time.sleep(600)\n"
                ) % (os.path.dirname(os.path.abspath(__file__)), self.daemon.socket)
        worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(worker.stdout.readline(), "held\n")
        self.assertEqual(self.held(), (1, 4))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        self.gone_within(1 * SLOW)

    def test_case_19_half_close(self):
        c = self.daemon.connect()
        number, keys = self.start(c)
        c.lookup(number, keys, 600000)
        self.assertEqual(self.held(), (1, 4))
        c.socket.shutdown(socket.SHUT_WR)
        self.gone_within(1 * SLOW)
        c.close()

    def test_case_19_lookup_twice_and_release_once(self):
        with self.daemon.connect() as c:
            number, keys = self.start(c)
            first = c.lookup(number, keys, 600000).get(2)
            second = c.lookup(number, keys, 600000).get(2)
            self.assertNotEqual(first, second)
            self.assertEqual(c.call(RELEASE, message({1: first})).status, OK)
            self.assertEqual(c.call(RELEASE, message({1: first})).status, ESTALE)
            self.assertEqual(self.held(), (1, 4))
        self.gone_within(1 * SLOW)

    def test_case_19_nobody_else_can_release(self):
        with self.daemon.connect() as c, self.daemon.connect() as other:
            number, keys = self.start(c)
            lease = c.lookup(number, keys, 600000).get(2)
            for guess in (lease, lease + 1, lease - 1, 0, (1 << 64) - 1):
                self.assertEqual(other.call(RELEASE, message({1: guess})).status, ESTALE)
            self.assertEqual(self.held(), (1, 4))
            number_other = other.open_space(self.space)
            self.assertEqual(other.get(number_other, keys, fields={3: lease}).status, ESTALE)
            self.assertEqual(c.get(number, keys, fields={3: lease}).statuses(), [OK] * 4)

    def test_a_lease_ends_at_its_deadline(self):
        with self.daemon.connect() as c:
            number, keys = self.start(c)
            lease = c.lookup(number, keys, 300).get(2)
            self.assertEqual(self.held(), (1, 4))
            time.sleep(0.35)
            self.assertEqual(c.get(number, keys, fields={3: lease}).status, ESTALE)
            self.gone_within(1 * SLOW)
            self.assertEqual(c.call(RELEASE, message({1: lease})).status, ESTALE)
            self.assertEqual(c.lookup(number, keys, 0).get(2), 0, "no lease was asked for")

    def test_leases_are_bounded(self):
        with self.daemon.connect() as c:
            number, keys = self.start(c)
            ids = [c.send(LOOKUP, message({1: number, 2: keys[0], 3: 60000})) for _ in range(1025)]
            statuses = [c.wait(i).status for i in ids]
            self.assertEqual((statuses.count(OK), statuses.count(EBUSY)), (1024, 1))
            self.assertEqual(self.held(), (1024, 1024))
        self.gone_within(1 * SLOW)

    def test_case_29_an_old_lease_never_matches(self):
        daemon = Daemon()
        with daemon.connect() as c:
            number, keys = self.start(c)
            old = c.lookup(number, keys, 600000).get(2)
        daemon.kill()
        daemon.start()
        with daemon.connect() as c:
            number, keys = self.start(c)
            new = c.lookup(number, keys, 600000).get(2)
            self.assertNotEqual(old, new)
            self.assertEqual(c.call(RELEASE, message({1: old})).status, ESTALE)
        daemon.stop()


class SmallMemory(DaemonCase):
    """A RAM tier of a few blocks: everything still flows, and what is answered is exact."""
    flags = dict(ram_bytes="8MiB", nvme_bytes="512MiB")
    space = Space.opaque(1 << 20)

    def test_case_2_a_batch_larger_than_memory(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            arena = c.arena(64 << 20)
            keys = [key("big", i) for i in range(64)]
            for i, k in enumerate(keys):
                arena.map[i << 20:(i + 1) << 20] = pattern(1 << 20, k)
            reply = c.put(number, keys, fields={6: region(arena.id, 0, 64 << 20)})
            self.assertEqual(reply.statuses(), [OK] * 64)
            self.assertEqual(c.lookup(number, keys).get(1), 64)
            for _ in range(3):
                arena.map[:] = bytes(64 << 20)
                reply = c.get(number, keys, fields={6: region(arena.id, 0, 64 << 20)})
                self.assertEqual(reply.statuses(), [OK] * 64)
                for i, k in enumerate(keys):
                    self.assertEqual(arena.map[i << 20:(i + 1) << 20], pattern(1 << 20, k))
            arena.close()

    def test_case_2_several_workers_read_more_than_memory(self):
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            keys = [key("share", i) for i in range(32)]
            for k in keys:
                self.assertIn(c.put(number, [k], pattern(1 << 20, k)).statuses()[0], (OK, EEXIST))
        wrong = []

        def read(seed):
            rng = random.Random(seed)
            with self.daemon.connect() as w:
                n = w.open_space(self.space)
                arena = w.arena(16 << 20)
                for _ in range(8):
                    some = rng.sample(keys, 16)
                    reply = w.get(n, some, fields={6: region(arena.id, 0, 16 << 20)})
                    for i, (k, status) in enumerate(zip(some, reply.statuses())):
                        if status != OK or arena.map[i << 20:(i + 1) << 20] != pattern(1 << 20, k):
                            wrong.append((k, status))
                arena.close()

        threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class ManyWorkers(DaemonCase):
    flags = dict(ram_bytes="32MiB", nvme_bytes="256MiB")

    def test_case_4_eight_workers_put_the_same_keys(self):
        """Two of them are killed in the middle. Each key is stored once, whole, by one of the workers."""
        directory = os.path.dirname(os.path.abspath(__file__))
        code = ("import sys; sys.path.insert(0, %r); from wire import *\n"
                "me = int(sys.argv[1]); c = Connection(%r); n = c.open_space(Space.opaque(16384))\n"
                "keys = [key('shared', i) for i in range(500)]\n"
                "print('go', flush=True); sys.stdin.readline()\n"
                "for at in range(0, 500, 20):\n"
                "    part = keys[at:at + 20]\n"
                "    r = c.put(n, part, b''.join(pattern(16384, k, me) for k in part), parent=keys[at - 1] if at else b'')\n"
                "    print(*r.statuses(), flush=True)\n") % (directory, self.daemon.socket)
        workers = [subprocess.Popen([sys.executable, "-c", code, str(i)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True) for i in range(8)]
        for w in workers:
            self.assertEqual(w.stdout.readline(), "go\n")
        for w in workers:
            w.stdin.write("\n")
            w.stdin.flush()
        for w in workers[:2]:
            w.stdout.readline()
            w.kill()
        statuses = []
        for w in workers:
            out, _ = w.communicate()
            if w in workers[2:]:
                self.assertEqual(w.returncode, 0)
                statuses += [int(s) for s in out.split()]
        self.assertEqual(len(statuses), 6 * 500)
        self.assertTrue(set(statuses) <= {OK, EEXIST}, set(statuses))
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(16384))
            keys = [key("shared", i) for i in range(500)]
            self.assertEqual(c.lookup(number, keys).get(1), 500)
            for k in keys:
                payload = c.get(number, [k]).payload
                self.assertIn(payload, [pattern(16384, k, me) for me in range(8)], "of one worker, whole")
            stored = [fields(s) for s in c.call(LIST_SPACES).fields[1]]
            mine = [s for s in stored if s[2][0] == Space.opaque(16384).fingerprint()][0]
            self.assertEqual(mine[4][0], 500, "space is counted once")

    def test_case_9_disconnect_with_reads_in_flight(self):
        with self.daemon.connect() as c:
            number = c.open_space(Space.opaque(65536))
            keys = [key("inflight", i) for i in range(300)]
            for at in range(0, 300, 50):
                c.put(number, keys[at:at + 50], b"".join(pattern(65536, k) for k in keys[at:at + 50]))
        for _ in range(20):
            c = self.daemon.connect()
            number = c.open_space(Space.opaque(65536))
            arena = c.arena(256 * 65536)
            for i, k in enumerate(keys[:256]):
                c.send(GET, message({1: number, 2: k, 6: region(arena.id, i * 65536, 65536)}))
            c.close()
            arena.map[:] = b"\xAA" * arena.size
            arena.close()
        self.assertHealthy()


if __name__ == "__main__":
    unittest.main()
