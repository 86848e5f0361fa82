"""Legal holds and purges: a real daemon, and the files of its data directory searched. Cases 19 and 42."""

import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_retain
from wire import (DELETE, EEXIST, EHELD, EINVAL, ENOENT, ENOSPC, EPERM, LIST_HOLDS, OK, RETAIN,
                  SET_HOLD, Daemon, DaemonCase, Space, fields, key, message, pattern)
from test_tenants import ALICE, BOB, connect

BLOCK = 64 * 1024


def set_hold(connection, name, **scope):
    numbers = dict(lift=2, tenant=3, space=4, key=5, note=6)
    return connection.call(SET_HOLD, message({1: name, **{numbers[n]: v for n, v in scope.items()}}))


def holds(connection):
    out = {}
    for info in connection.call(LIST_HOLDS).fields.get(1, []):
        f = fields(info)
        out[f[1][0].decode()] = dict(tenant=f.get(2, [b""])[0].decode(), space=f.get(3, [0])[0], key=f.get(4, [b""])[0],
                                     note=f.get(5, [b""])[0].decode(), since=f.get(6, [0])[0], blocks=f.get(7, [0])[0])
    return out


def delete(connection, space, keys, purge=0):
    return connection.call(DELETE, message({1: space, 2: b"".join(keys), 3: purge}))


def put_chain(connection, space, name, count, ack=1):
    keys = [key(name, i) for i in range(count)]
    for i, k in enumerate(keys):
        reply = connection.put(space, [k], pattern(BLOCK, name, i), parent=keys[i - 1] if i else b"", fields={2: ack})
        assert reply.statuses() == [OK], reply.statuses()
    return keys


def find_in_files(directory, needle):
    """The files in it that hold the bytes."""
    out = []
    for path, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(path, name), "rb") as f:
                if needle in f.read():
                    out.append(name)
    return out


def find_in_memory(pid, needle):
    """How often shared memory of the daemon (its RAM tier) holds the bytes."""
    count = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if "memfd:cairn-ram" not in line:
                continue
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            memory.seek(first)
            count += len(re.findall(re.escape(needle), memory.read(last - first)))
    return count


class Holds(DaemonCase):
    flags = dict(ram_bytes="4MiB", nvme_bytes="8MiB", slab_bytes="1MiB")

    def setUp(self):
        super().setUp()
        self.c = self.daemon.connect()
        self.space = self.c.open_space(Space.opaque(BLOCK, model=self.id()))

    def tearDown(self):
        for name in holds(self.c):
            self.assertEqual(set_hold(self.c, name, lift=1).status, OK)
        self.c.close()
        super().tearDown()

    def test_a_chain_under_hold_stays_and_says_so(self):
        keys = put_chain(self.c, self.space, "chain", 5)
        reply = set_hold(self.c, "case 12/2026", space=self.space, key=keys[2], note="letter of 3 May")
        self.assertEqual(reply.status, OK, reply.text)
        self.assertEqual(reply.get(1), 3)
        reply = delete(self.c, self.space, keys)
        self.assertEqual(reply.statuses(), [EHELD] * 3 + [OK] * 2)
        self.assertIn("under legal hold case 12/2026", reply.get(3, b"").decode())
        reply = delete(self.c, self.space, keys[:2], purge=1)
        self.assertEqual(reply.statuses(), [EHELD] * 2)
        for i in range(300):  # twice what the disk has
            self.c.put(self.space, [key("flood", i)], bytes(BLOCK), fields={2: 1})
        got = self.c.get(self.space, keys[:3])
        self.assertEqual(got.statuses(), [OK] * 3)
        self.assertEqual(got.payload, b"".join(pattern(BLOCK, "chain", i) for i in range(3)))
        self.assertEqual(self.c.put(self.space, keys[:1], bytes(BLOCK)).statuses(), [EEXIST], "nor replaced")
        listed = holds(self.c)["case 12/2026"]
        self.assertEqual((listed["space"], listed["key"], listed["note"], listed["blocks"]),
                         (self.space, keys[2], "letter of 3 May", 3))
        self.assertLess(abs(listed["since"] / 1000 - time.time()), 600)
        self.assertEqual(set_hold(self.c, "case 12/2026", lift=1).status, OK)
        self.assertEqual(delete(self.c, self.space, keys[:3]).statuses(), [OK] * 3)

    def test_time_to_live_does_not_end_it(self):
        for name in ("kept", "not"):
            self.assertEqual(self.c.put(self.space, [key(name)], bytes(BLOCK), fields={2: 1, 9: 200}).statuses(), [OK])
        self.assertEqual(set_hold(self.c, "ttl", space=self.space, key=key("kept")).status, OK)
        time.sleep(0.6)
        self.assertEqual(self.c.lookup(self.space, [key("not")]).get(1), 0)
        self.assertEqual(self.c.lookup(self.space, [key("kept")]).get(1), 1)
        self.assertEqual(set_hold(self.c, "ttl", lift=1).status, OK)
        end = time.monotonic() + 10
        while self.c.lookup(self.space, [key("kept")]).get(1) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.c.lookup(self.space, [key("kept")]).get(1), 0, "its time had ended long ago")

    def test_a_tier_full_of_held_blocks_says_why_it_refuses(self):
        self.assertEqual(set_hold(self.c, "all", space=self.space).status, OK)
        text, statuses = "", []
        for i in range(200):
            reply = self.c.put(self.space, [key("held", i)], bytes(BLOCK), fields={2: 1}, deadline=5000)
            statuses += reply.statuses()
            if reply.statuses() != [OK]:
                text = reply.get(2, b"").decode()
                break
        self.assertEqual(statuses[-1], ENOSPC)
        self.assertRegex(text, r"\d+ blocks in it are under legal hold")
        self.assertEqual(self.c.lookup(self.space, [key("held", i) for i in range(len(statuses) - 1)]).get(1),
                         len(statuses) - 1)
        self.assertEqual(set_hold(self.c, "all", lift=1).status, OK)
        self.assertEqual(self.c.put(self.space, [key("then")], bytes(BLOCK), fields={2: 1}).statuses(), [OK])

    def test_what_is_asked_wrongly_is_refused(self):
        keys = put_chain(self.c, self.space, "wrong", 1)
        for scope, status in ((dict(space=self.space, tenant="7"), EINVAL), (dict(), EINVAL), (dict(space=999), ENOENT),
                              (dict(space=self.space, key=key("none")), ENOENT), (dict(space=self.space, key=b"x"), EINVAL),
                              (dict(tenant="nobody"), ENOENT), (dict(lift=1), ENOENT)):
            reply = set_hold(self.c, "wrong", **scope)
            self.assertEqual(reply.status, status, scope)
            self.assertTrue(reply.text)
        self.assertEqual(set_hold(self.c, "", space=self.space).status, EINVAL)
        self.assertEqual(set_hold(self.c, "x" * 65, space=self.space).status, EINVAL)
        self.assertEqual(set_hold(self.c, "twice", space=self.space).status, OK)
        self.assertEqual(set_hold(self.c, "twice", space=self.space, key=keys[0]).status, EEXIST)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
    def test_holds_are_for_operators(self):
        os.chmod(self.daemon.directory, 0o711)
        with connect(self.daemon, ALICE) as alice, connect(self.daemon, BOB) as bob:
            self.assertEqual(set_hold(alice, "mine", tenant=str(ALICE)).status, EPERM)
            self.assertEqual(alice.call(LIST_HOLDS).status, EPERM)
            space = alice.open_space(Space.opaque(BLOCK, model="operators"))
            his = bob.open_space(Space.opaque(BLOCK, model="operators"))
            for c, s in ((alice, space), (bob, his)):
                self.assertEqual(c.put(s, [key("o")], bytes(BLOCK), fields={2: 1}).statuses(), [OK])
            self.assertEqual(set_hold(self.c, "secret matter", tenant=str(ALICE)).status, OK)
            reply = delete(alice, space, [key("o")])
            self.assertEqual(reply.statuses(), [EHELD])
            self.assertIn("under legal hold", reply.get(3).decode())
            self.assertNotIn("secret matter", reply.get(3).decode(), "its name is the operators'")
            self.assertEqual(delete(bob, his, [key("o")]).statuses(), [OK])


class DropUnderHold(test_retain.RetainCase):
    def test_nothing_of_a_held_chain_is_dropped_but_it_may_be_demoted(self):
        import numpy as np
        rows = test_retain.Rows(test_retain.raw_space(model="held drop"), 64, np.random.default_rng(1))
        with self.daemon.connect() as c:
            context = self.context(c, rows, "held drop")
            number = c.open_space(rows.space)
            keys = [key("held drop", rows.space.fingerprint(), i) for i in range(rows.tokens // rows.space.block_tokens)]
            self.assertEqual(set_hold(c, "drop", space=number, key=keys[1]).status, OK)

            def retain(drop):
                body = message({1: context, 2: self.proxies(rows), 8: drop})
                return c.call(RETAIN, body, np.ascontiguousarray(rows.q).tobytes())
            reply = retain(1)
            self.assertEqual(reply.status, EHELD, reply.text)
            self.assertIn("legal hold", reply.text)
            self.assertEqual(retain(0).status, OK)
            self.assertEqual(set_hold(c, "drop", lift=1).status, OK)
            self.assertEqual(retain(1).status, OK)


class Restart(unittest.TestCase):
    def test_case_42_and_restarts_holds_stay(self):
        """They have no clock: nothing but a lift ends them."""
        daemon = Daemon(ram_bytes="4MiB", nvme_bytes="8MiB", slab_bytes="1MiB")
        daemon.own = False
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(BLOCK, model="restart"))
            keys = put_chain(c, space, "restart", 3)
            self.assertEqual(set_hold(c, "stays", space=space, key=keys[1]).status, OK)
        daemon.kill()
        daemon.start()
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(BLOCK, model="restart"))
            self.assertEqual(holds(c)["stays"]["blocks"], 2)
            self.assertEqual(delete(c, space, keys).statuses(), [EHELD, EHELD, OK])
            self.assertEqual(set_hold(c, "stays", lift=1).status, OK)
        daemon.kill()
        daemon.own = True
        daemon.start()
        with daemon.connect() as c:
            self.assertEqual(holds(c), {})
            self.assertEqual(delete(c, c.open_space(Space.opaque(BLOCK, model="restart")), keys[:2]).statuses(), [OK, OK])
        daemon.stop()


class Purge(DaemonCase):
    flags = dict(ram_bytes="8MiB", nvme_bytes="32MiB", slab_bytes="2MiB")

    def setUp(self):
        super().setUp()
        self.data = os.path.join(self.daemon.directory, "data")
        self.c = self.daemon.connect()
        self.space = self.c.open_space(Space.opaque(BLOCK, model=self.id()))

    def tearDown(self):
        self.c.close()
        super().tearDown()

    def test_the_raw_files_do_not_hold_the_pattern_after(self):
        secret = os.urandom(32)
        block = (secret * (BLOCK // 32))[:BLOCK]
        k = key("secret", self.id())
        self.assertEqual(self.c.put(self.space, [k, key("beside")], block + pattern(BLOCK, "beside"), fields={2: 1}).statuses(),
                         [OK, OK])
        self.assertTrue(find_in_files(self.data, secret), "the test finds what is there")
        self.assertGreater(find_in_memory(self.daemon.process.pid, secret), 0)
        reply = delete(self.c, self.space, [k], purge=1)
        self.assertEqual((reply.statuses(), reply.get(2)), ([OK], 0))
        self.assertEqual(find_in_files(self.data, secret), [])
        self.assertEqual(find_in_memory(self.daemon.process.pid, secret), 0)
        self.assertEqual(self.c.get(self.space, [k]).statuses(), [ENOENT])
        self.assertEqual(self.c.get(self.space, [key("beside")]).payload, pattern(BLOCK, "beside"))
        self.assertEqual(delete(self.c, self.space, [k], purge=1).statuses(), [ENOENT])

    def test_what_was_deleted_or_evicted_before_is_found(self):
        secrets = [os.urandom(32) for _ in range(6)]
        keys = [key("early", self.id(), i) for i in range(6)]
        data = b"".join((s * (BLOCK // 32))[:BLOCK] for s in secrets)
        self.assertEqual(self.c.put(self.space, keys, data, fields={2: 1}).statuses(), [OK] * 6)
        self.assertEqual(delete(self.c, self.space, keys[:4]).statuses(), [OK] * 4)
        self.assertTrue(find_in_files(self.data, secrets[0]), "a delete alone leaves the bytes")
        reply = delete(self.c, self.space, keys, purge=1)
        self.assertEqual(reply.statuses(), [OK] * 6)
        for secret in secrets:
            self.assertEqual(find_in_files(self.data, secret), [])
            self.assertEqual(find_in_memory(self.daemon.process.pid, secret), 0)

    def test_case_19_who_reads_is_waited_for_and_its_end_is_the_purge(self):
        secret = os.urandom(32)
        k = key("read", self.id())
        block = (secret * (BLOCK // 32))[:BLOCK]
        self.assertEqual(self.c.put(self.space, [k], block, fields={2: 1}).statuses(), [OK])
        reader = self.daemon.connect()
        space = reader.open_space(Space.opaque(BLOCK, model=self.id()))
        lease = reader.lookup(space, [k], 60000).get(2)
        reply = delete(self.c, self.space, [k], purge=1)
        self.assertEqual((reply.statuses(), reply.get(2)), ([OK], 1), "pending")
        self.assertEqual(self.c.lookup(self.space, [k]).get(1), 0)
        self.assertTrue(lease)
        self.assertTrue(find_in_files(self.data, secret), "what is held is not touched")
        reader.close()  # the connection's end is the lease's
        end = time.monotonic() + 10
        while find_in_files(self.data, secret) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(find_in_files(self.data, secret), [])
        self.assertEqual(find_in_memory(self.daemon.process.pid, secret), 0)

    def test_a_batch(self):
        keys = [key("batch", self.id(), i) for i in range(100)]
        for i, k in enumerate(keys):
            self.assertEqual(self.c.put(self.space, [k], pattern(BLOCK, "batch", i), fields={2: i % 2}).statuses(), [OK])
        reply = delete(self.c, self.space, keys + [key("none")], purge=1)
        self.assertEqual(reply.statuses(), [OK] * 100 + [ENOENT])
        for i in range(100):
            self.assertEqual(find_in_files(self.data, pattern(BLOCK, "batch", i)[:24]), [], i)


class PurgeCrash(unittest.TestCase):
    def test_a_daemon_that_is_killed_finishes_at_its_next_start(self):
        daemon = Daemon(ram_bytes="4MiB", nvme_bytes="16MiB", slab_bytes="2MiB")
        daemon.own = False
        data = os.path.join(daemon.directory, "data")
        secrets = [os.urandom(32) for _ in range(8)]
        keys = [key("crash", i) for i in range(8)]
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(BLOCK, model="crash"))
            for k, s in zip(keys, secrets):
                self.assertEqual(c.put(space, [k], (s * (BLOCK // 32))[:BLOCK], fields={2: 1}).statuses(), [OK])
            lease = c.lookup(space, keys, 60000).get(2)  # so that nothing can be overwritten yet
            self.assertTrue(lease)
            reply = delete(c, space, keys[:5], purge=1)
            self.assertEqual(reply.get(2), 5)
            daemon.kill()
        self.assertTrue(find_in_files(data, secrets[0]))
        daemon.own = True
        daemon.start()
        end = time.monotonic() + 10
        while any(find_in_files(data, s) for s in secrets[:5]) and time.monotonic() < end:
            time.sleep(0.05)
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(BLOCK, model="crash"))
            self.assertEqual([bool(find_in_files(data, s)) for s in secrets], [False] * 5 + [True] * 3)
            self.assertEqual(c.get(space, keys).statuses(), [ENOENT] * 5 + [OK] * 3)
        daemon.stop()


if __name__ == "__main__":
    unittest.main()
