"""Tenants: what one sees of another, by a real daemon and peers of several uids. Cases 28 and 44."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from wire import (CAIRND, DELETE, EBUSY, EINVAL, ENOENT, ENOSPC, EPERM, ESTALE, LIST_SPACES, LIST_TENANTS, OK,
                  OPEN_CONTEXT, OPEN_SPACE, PIN, PREFETCH, PUT, RELEASE, RELOAD, SET_QUOTA, UNPIN, Connection, Daemon, DaemonCase, Space, fields, frame, key,
                  message, pattern)

ALICE, BOB, CAROL = 4001, 4002, 4003
BLOCK = 64 * 1024


class As:
    """What is done inside is done as that user: the kernel notes a peer's effective uid when it connects."""

    def __init__(self, uid):
        self.uid = uid

    def __enter__(self):
        os.seteuid(self.uid)

    def __exit__(self, *_):
        os.seteuid(0)


def connect(daemon, uid):
    with As(uid):
        return Connection(daemon.socket)


def as_child(uid, what):
    """What a process of that user answers."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(uid)  # all three of its uids: there is no way back
            os.write(into, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def listed(connection):
    """{id: (fingerprint, blocks, tenant)}"""
    out = {}
    for info in connection.call(LIST_SPACES).fields.get(1, []):
        f = fields(info)
        out[f[3][0]] = (f[2][0], f.get(4, [0])[0], f.get(7, [b""])[0].decode())
    return out


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
class Walls(DaemonCase):
    flags = dict(ram_bytes="16MiB", nvme_bytes="64MiB", slab_bytes="8MiB", tenants=f"alice:{ALICE}, bob:{BOB}")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(cls.daemon.directory, 0o711)

    def setUp(self):
        super().setUp()
        self.connections = []

    def tearDown(self):
        for connection in self.connections:
            connection.close()
        super().tearDown()

    def open(self, uid):
        self.connections.append(connect(self.daemon, uid))
        return self.connections[-1]

    def test_the_same_description_is_a_space_of_each(self):
        alice, bob = self.open(ALICE), self.open(BOB)
        space = Space.opaque(BLOCK, model="same")
        hers, his = alice.open_space(space), bob.open_space(space)
        self.assertNotEqual(hers, his)
        keys = [key("same", i) for i in range(3)]
        data = b"".join(pattern(BLOCK, "hers", i) for i in range(3))
        self.assertEqual(alice.put(hers, keys, data, fields={2: 1}).statuses(), [OK] * 3)
        self.assertEqual(alice.lookup(hers, keys).get(1), 3)
        self.assertEqual(bob.lookup(his, keys).get(1), 0)
        self.assertEqual(bob.get(his, keys).statuses(), [ENOENT] * 3)
        # The same keys hold other bytes here, and neither's delete touches the other's.
        other = b"".join(pattern(BLOCK, "his", i) for i in range(3))
        self.assertEqual(bob.put(his, keys, other, fields={2: 1}).statuses(), [OK] * 3, "nothing says that they exist")
        self.assertEqual(bob.get(his, keys).payload, other)
        self.assertEqual(alice.get(hers, keys).payload, data)
        self.assertEqual(bob.call(DELETE, message({1: his, 2: b"".join(keys)})).statuses(), [OK] * 3)
        self.assertEqual(alice.get(hers, keys).payload, data)
        self.assertEqual(bob.get(his, keys).statuses(), [ENOENT] * 3)

    def test_another_tenants_number_is_refused_as_one_that_does_not_exist(self):
        alice, bob = self.open(ALICE), self.open(BOB)
        hers = alice.open_space(Space.opaque(BLOCK, model="numbers"))
        keys = [key("numbers", i) for i in range(2)]
        packed = b"".join(keys)
        self.assertEqual(alice.put(hers, keys, bytes(2 * BLOCK), fields={2: 1}).statuses(), [OK] * 2)
        lease = alice.lookup(hers, keys, 60000).get(2)
        requests = {  # everything that names a space
            "Lookup": lambda s: bob.lookup(s, keys, 1000),
            "Put": lambda s: bob.put(s, keys, bytes(2 * BLOCK)),
            "Get": lambda s: bob.get(s, keys),
            "Pin": lambda s: bob.call(PIN, message({1: s, 2: packed, 4: 1})),
            "Unpin": lambda s: bob.call(UNPIN, message({1: s, 2: packed})),
            "Delete": lambda s: bob.call(DELETE, message({1: s, 2: packed})),
            "Purge": lambda s: bob.call(DELETE, message({1: s, 2: packed, 3: 1})),
            "Prefetch": lambda s: bob.call(PREFETCH, message({1: s, 2: packed})),
            "OpenContext": lambda s: bob.call(OPEN_CONTEXT, message({1: s, 2: packed})),
            "OpenSpace": lambda s: bob.call(OPEN_SPACE, message({3: s})),
        }
        absent = 900  # no daemon of this test has so many
        for name, request in requests.items():
            there, nowhere = request(hers), request(absent)
            self.assertLess(there.status, 0, name)
            self.assertEqual(there.status, nowhere.status, name)
            self.assertEqual(there.text, nowhere.text.replace(str(absent), str(hers)), name)
        self.assertEqual(bob.call(RELEASE, message({1: lease})).status, ESTALE, "only who took it may release it")
        self.assertEqual(alice.lookup(hers, keys).get(1), 2)
        self.assertEqual(alice.call(RELEASE, message({1: lease})).status, OK)

    def test_lists_show_ones_own_and_an_operator_all(self):
        alice, bob, carol, root = (self.open(uid) for uid in (ALICE, BOB, CAROL, 0))
        hers = alice.open_space(Space.opaque(BLOCK, model="list"))
        theirs = bob.open_space(Space.opaque(BLOCK, model="list", shared=1))
        carols = carol.open_space(Space.opaque(BLOCK, model="list"))
        self.assertIn(hers, listed(alice))
        self.assertEqual(listed(alice)[hers][2], "alice")
        self.assertNotIn(carols, listed(alice))
        self.assertNotIn(hers, listed(bob))
        self.assertEqual(listed(carol)[carols][2], str(CAROL), "no name: the number")
        for connection in (alice, bob, carol):
            self.assertIn(theirs, listed(connection))
        self.assertLessEqual({hers, theirs, carols}, set(listed(root)))
        self.assertEqual(listed(root)[theirs][2], "", "shared")

    def test_a_shared_space_is_everyones(self):
        alice, bob = self.open(ALICE), self.open(BOB)
        space = Space.opaque(BLOCK, model="shared", shared=1)
        hers, his = alice.open_space(space), bob.open_space(space)
        self.assertEqual(hers, his)
        block = pattern(BLOCK, "shared")
        self.assertEqual(alice.put(hers, [key("shared")], block).statuses(), [OK])
        self.assertEqual(bob.get(his, [key("shared")]).payload, block)
        self.assertNotEqual(space.fingerprint(), Space.opaque(BLOCK, model="shared").fingerprint())

    def test_case_28_a_tenant_cannot_be_forged(self):
        """No message has a tenant that a worker could set: what an unknown field or a field of another message says
        is not looked at, and what operators may name is refused."""
        alice, bob = self.open(ALICE), self.open(BOB)
        space = Space.opaque(BLOCK, model="forged")
        hers = alice.open_space(space)
        self.assertEqual(alice.put(hers, [key("forged")], bytes(BLOCK)).statuses(), [OK])
        forged = bob.call(OPEN_SPACE, message({1: space.packed(), 4: 1, 5: ALICE, 7: "alice", 77: ALICE}))
        self.assertEqual(forged.status, OK, forged.text)
        self.assertNotEqual(forged.get(1), hers, "the peer's uid decides")
        self.assertEqual(bob.lookup(forged.get(1), [key("forged")]).get(1), 0)
        self.assertEqual(bob.call(OPEN_SPACE, message({1: space.packed(), 3: hers})).status, EPERM)
        root = self.open(0)
        opened = root.call(OPEN_SPACE, message({3: hers}))
        self.assertEqual(opened.status, OK, opened.text)
        self.assertEqual(opened.get(2), space.fingerprint())
        self.assertEqual(root.lookup(hers, [key("forged")]).get(1), 1, "an operator looks after all")
        self.assertEqual(root.call(OPEN_SPACE, message({3: 900})).status, ENOENT)

    def test_case_44_a_child_of_another_uid_is_another_tenant(self):
        """The same by a process that is that user for good."""
        alice = self.open(ALICE)
        hers = alice.open_space(Space.opaque(BLOCK, model="child"))
        self.assertEqual(alice.put(hers, [key("child")], bytes(BLOCK)).statuses(), [OK])
        for uid, found in ((ALICE, 1), (BOB, 0), (CAROL, 0)):
            number, seen = as_child(uid, lambda: self.look(Space.opaque(BLOCK, model="child"), key("child")))
            self.assertEqual(seen, found)
            self.assertEqual(number == hers, uid == ALICE)

    def look(self, space, wanted):
        with self.daemon.connect() as c:
            number = c.open_space(space)
            return number, c.lookup(number, [wanted]).get(1)

    def test_one_tenant_cannot_use_up_all_spaces(self):
        carol, alice = self.open(CAROL), self.open(ALICE)
        statuses = []
        for i in range(520):
            space = Space.opaque(4096, model=f"many {i}", shared=i % 2)
            statuses.append(carol.call(OPEN_SPACE, message({1: space.packed()})).status)
        self.assertEqual(statuses[-1], EBUSY)
        self.assertGreaterEqual(statuses.count(OK), 500)
        self.assertEqual(carol.call(OPEN_SPACE, message({1: Space.opaque(4096, model="many 0").packed()})).status, OK)
        alice.open_space(Space.opaque(4096, model="still room"))


def tenants(connection):
    """{name: {...}}, and the default quota."""
    reply = connection.call(LIST_TENANTS)
    out = {}
    for info in reply.fields.get(1, []):
        f = fields(info)
        quota = fields(f[3][0])
        out[f[1][0].decode()] = dict(quota=[quota.get(i, [0])[0] for i in range(1, 5)], source=f[4][0].decode(),
                                     ram=f.get(5, [0])[0], nvme=f.get(6, [0])[0], blocks=f.get(7, [0])[0],
                                     connections=f.get(8, [0])[0], refused=f.get(10, [0])[0])
    fallback = fields(reply.get(2))
    return out, [fallback.get(i, [0])[0] for i in range(1, 5)]


def set_quota(connection, tenant, **numbers):
    names = dict(ram=2, nvme=3, ram_guaranteed=4, nvme_guaranteed=5, keep=6, reset=7)
    return connection.call(SET_QUOTA, message({1: tenant, **{names[n]: v for n, v in numbers.items()}}))


KIB, MIB = 1024, 1024 * 1024


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
class Quotas(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        os.chmod(self.directory, 0o711)
        self.addCleanup(shutil.rmtree, self.directory)
        self.daemon = None

    def tearDown(self):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.stop()

    def start(self, **flags):
        base = dict(ram_bytes="32MiB", nvme_bytes="64MiB", slab_bytes="2MiB", tenants=f"alice:{ALICE}, bob:{BOB}+{CAROL}")
        self.daemon = Daemon(self.directory, **{**base, **flags})
        return self.daemon

    def fill(self, uid, count, name, ack=1):
        """Puts roots one after the other; their statuses, and the text of the first refusal."""
        statuses, text = [], ""
        with connect(self.daemon, uid) as c:
            space = c.open_space(Space.opaque(BLOCK, model="quota"))
            for i in range(count):
                reply = c.put(space, [key(name, i)], pattern(BLOCK, name, i), fields={2: ack})
                statuses += reply.statuses()
                text = text or reply.get(2, b"").decode()
        return statuses, text

    def present(self, uid, count, name):
        found = 0
        with connect(self.daemon, uid) as c:
            space = c.open_space(Space.opaque(BLOCK, model="quota"))
            for i in range(count):
                reply = c.get(space, [key(name, i)])
                if reply.statuses() == [OK]:
                    self.assertEqual(reply.payload, pattern(BLOCK, name, i))
                    found += 1
        return found

    def test_case_28_150_of_100_and_a_quota_lowered_while_running(self):
        slot = BLOCK + 4096
        self.start(quotas=f"alice nvme={100 * slot} ram=4MiB, default nvme=16MiB")
        self.assertEqual(self.fill(BOB, 20, "his")[0], [OK] * 20)
        statuses, _ = self.fill(ALICE, 150, "hers")
        self.assertEqual(statuses, [OK] * 150, "her own oldest make room")
        with self.daemon.connect() as root:
            known, fallback = tenants(root)
            self.assertEqual(known["alice"]["quota"], [4 * MIB, 100 * slot, 0, 0])
            self.assertEqual(known["alice"]["source"], "configuration")
            self.assertLessEqual(known["alice"]["nvme"], 100 * slot)
            self.assertLessEqual(known["alice"]["ram"], 4 * MIB)
            self.assertEqual(known["bob"]["source"], "default")
            self.assertEqual(known["bob"]["quota"], [0, 16 * MIB, 0, 0])
            self.assertEqual(fallback, [0, 16 * MIB, 0, 0])
            there = self.present(ALICE, 150, "hers")
            self.assertTrue(80 <= there <= 100, there)
            self.assertEqual(self.present(BOB, 20, "his"), 20, "and nobody else's")
            self.assertEqual(set_quota(root, "alice", nvme=40 * slot, keep=1).status, OK)
            end = time.monotonic() + 20
            while tenants(root)[0]["alice"]["nvme"] > 40 * slot and time.monotonic() < end:
                time.sleep(0.05)
            self.assertLessEqual(tenants(root)[0]["alice"]["nvme"], 40 * slot)
            self.assertEqual(tenants(root)[0]["alice"]["quota"], [4 * MIB, 40 * slot, 0, 0], "keep: RAM's stays")
            self.assertEqual(self.present(BOB, 20, "his"), 20)

    def test_case_28_aborted_puts_cost_nothing(self):
        self.start(quotas="alice nvme=4MiB ram=4MiB")
        with connect(self.daemon, ALICE) as c:
            space = c.open_space(Space.opaque(BLOCK, model="quota"))
            for i in range(300):
                c.send(PUT, message({1: space, 3: key("gone", i), 6: message({2: 0, 3: 10 * BLOCK})}), bytes(100))
            for i in range(300):
                self.assertLess(c.receive().status, 0)
        for i in range(40):  # cut off in the middle of their frames
            c = connect(self.daemon, ALICE)
            space = c.open_space(Space.opaque(BLOCK, model="quota"))
            body = message({1: space, 3: key("cut", i)})
            c.socket.sendall(frame(PUT, body, bytes(BLOCK), 7)[: 200 + 1000 * i])
            c.close()
        with self.daemon.connect() as root:
            end = time.monotonic() + 10
            while tenants(root)[0].get("alice", {"ram": 0})["ram"] and time.monotonic() < end:
                time.sleep(0.05)
            alice = tenants(root)[0]["alice"]
            self.assertEqual((alice["ram"], alice["nvme"], alice["blocks"]), (0, 0, 0))
        self.assertEqual(self.fill(ALICE, 30, "then")[0], [OK] * 30)

    def test_what_cannot_leave_is_refused_with_a_text_that_names_the_quota(self):
        self.start(quotas="alice nvme=1MiB")
        with connect(self.daemon, ALICE) as c:
            space = c.open_space(Space.opaque(BLOCK, model="quota"))
            keys = [key("pinned", i) for i in range(40)]
            statuses = []
            text = ""
            for k in keys:
                reply = c.put(space, [k], bytes(BLOCK), fields={2: 1}, deadline=3000)
                statuses += reply.statuses()
                text = text or reply.get(2, b"").decode()
                if reply.statuses() == [OK]:
                    self.assertEqual(c.call(PIN, message({1: space, 2: k, 4: 1})).statuses(), [OK])
                else:
                    break
            self.assertEqual(statuses[-1], ENOSPC)
            self.assertIn("quota of NVMe (1048576 bytes, ", text)
            self.assertIn("cairnctl quota", text)
            self.assertEqual(self.fill(BOB, 30, "his")[0], [OK] * 30)
            c.call(UNPIN, message({1: space, 2: b"".join(keys)}))
            self.assertEqual(c.put(space, [key("again")], bytes(BLOCK), fields={2: 1}).statuses(), [OK])

    def test_what_is_set_outlives_a_restart_and_reset_ends_it(self):
        flags = dict(quotas="alice nvme=8MiB, default ram=5MiB")
        self.start(**flags)
        with self.daemon.connect() as root:
            self.assertEqual(set_quota(root, "alice", ram=3 * MIB, nvme=6 * MIB, ram_guaranteed=1 * MIB).status, OK)
            self.assertEqual(set_quota(root, "default", nvme=7 * MIB, keep=1).status, OK)
            self.assertEqual(set_quota(root, "77", nvme=9 * MIB).status, OK)
        self.daemon.kill()
        self.start(**flags)
        with self.daemon.connect() as root:
            known, fallback = tenants(root)
            self.assertEqual(known["alice"]["quota"], [3 * MIB, 6 * MIB, 1 * MIB, 0])
            self.assertEqual(known["alice"]["source"], "set")
            self.assertEqual(known["77"]["quota"], [0, 9 * MIB, 0, 0])
            self.assertEqual(fallback, [5 * MIB, 7 * MIB, 0, 0])
            reply = set_quota(root, "alice", reset=1)
            self.assertEqual(reply.get(2), b"configuration")
            self.assertEqual(tenants(root)[0]["alice"]["quota"], [0, 8 * MIB, 0, 0])
            self.assertEqual(set_quota(root, "default", reset=1).status, OK)
            self.assertEqual(tenants(root)[1], [5 * MIB, 0, 0, 0])
            self.assertEqual(set_quota(root, "77", reset=1).get(2), b"default")
            self.assertEqual(tenants(root)[0]["77"]["quota"], [5 * MIB, 0, 0, 0])

    def test_guarantees_must_fit(self):
        self.start(quotas="alice ram_guaranteed=20MiB")
        with self.daemon.connect() as root, connect(self.daemon, ALICE) as alice:
            reply = set_quota(root, "bob", ram_guaranteed=20 * MIB)
            self.assertEqual(reply.status, EINVAL)
            self.assertIn("all guarantees of ram together are 41943040 bytes, and ram_bytes is 33554432", reply.text)
            self.assertEqual(tenants(root)[0].get("bob", {"quota": [0] * 4})["quota"], [0] * 4)
            self.assertEqual(set_quota(root, "bob", ram_guaranteed=12 * MIB).status, OK)
            reply = set_quota(root, "bob", ram=1 * MIB, ram_guaranteed=2 * MIB)
            self.assertEqual(reply.status, EINVAL)
            self.assertIn("above the tenant's own limit", reply.text)
            self.assertIn("name them", set_quota(root, "default", ram_guaranteed=1).text)
            self.assertIn("no tenant \"carol\"", set_quota(root, "carol", ram=1).text)
            self.assertEqual(set_quota(alice, "alice", nvme=0).status, EPERM, "operators alone")
            self.assertEqual(list(tenants(alice)[0]), ["alice"], "a tenant is told of itself")

    def test_case_38_configuration_is_checked(self):
        for tenants_, quotas, said in ((f"alice:{ALICE}", "alice ram=1GiB nvem=2", "nvem"), ("", "alice ram=1", "no tenant"),
                                       ("", "7 ram=x", "give bytes"), ("", "7", "one limit"), ("", "7 ram=1, 7 nvme=1", "twice"),
                                       ("", "7 ram_guaranteed=40MiB", "ram_bytes is"), ("alice", "", "name:uid"),
                                       ("alice:1, bob:1", "", "there twice"), ("default:1", "", "name:uid"),
                                       ("alice:no-such-user", "", "no user"), ("", "default ram_guaranteed=1", "name them")):
            result = subprocess.run([CAIRND, "--check-config", "--ram-bytes", "32MiB", "--tenants", tenants_, "--quotas", quotas],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn(said, result.stderr + result.stdout)

    def test_reload_changes_names_and_quotas(self):
        path = os.path.join(self.directory, "conf")
        with open(path, "w") as f:
            f.write(f"ram_bytes = 32MiB\nnvme_bytes = 64MiB\ntenants = alice:{ALICE}\nquotas = alice nvme=8MiB ram_guaranteed=30MiB\n")
        self.daemon = Daemon(self.directory, wait=False)
        self.daemon.flags = dict(config=path)
        self.daemon.start()
        with self.daemon.connect() as root:
            self.assertEqual(tenants(root)[0]["alice"]["quota"], [0, 8 * MIB, 30 * MIB, 0])
            with open(path, "w") as f:
                f.write(f"ram_bytes = 32MiB\nnvme_bytes = 64MiB\ntenants = alice:{ALICE}, bob:{BOB}\n"
                        "quotas = alice nvme=4MiB, bob ram_guaranteed=30MiB\n")
            reply = root.call(RELOAD)
            self.assertEqual(reply.status, OK, reply.text)
            known = tenants(root)[0]
            self.assertEqual(known["alice"]["quota"], [0, 4 * MIB, 0, 0])
            self.assertEqual(known["bob"]["quota"], [0, 0, 30 * MIB, 0])

    def test_a_guarantee_is_never_taken_by_another(self):
        self.start(ram_bytes="16MiB", nvme_bytes="24MiB", quotas="alice nvme_guaranteed=8MiB")
        self.assertEqual(self.fill(ALICE, 80, "hers")[0], [OK] * 80)  # five of her eight MiB
        self.fill(BOB, 600, "his")  # more than the whole tier
        self.assertEqual(self.present(ALICE, 80, "hers"), 80)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
class Restarts(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        os.chmod(self.directory, 0o711)
        self.addCleanup(shutil.rmtree, self.directory)

    def test_walls_stand_after_a_restart_and_a_lost_catalog(self):
        space = Space.opaque(BLOCK, model="restart")
        blocks = {uid: pattern(BLOCK, uid) for uid in (ALICE, BOB)}
        daemon = Daemon(self.directory, ram_bytes="8MiB", nvme_bytes="64MiB")
        for uid, block in blocks.items():
            with connect(daemon, uid) as c:
                self.assertEqual(c.put(c.open_space(space), [key("one")], block, fields={2: 1}).statuses(), [OK])
        daemon.stop()
        for lost in (False, True):
            if lost:
                os.truncate(os.path.join(self.directory, "data", "catalog.mdb"), 5000)
            daemon = Daemon(self.directory, ram_bytes="8MiB", nvme_bytes="64MiB")
            for uid, block in blocks.items():
                with connect(daemon, uid) as c:
                    self.assertEqual(c.get(c.open_space(space), [key("one")]).payload, block, lost)
            with connect(daemon, CAROL) as c:
                self.assertEqual(c.get(c.open_space(space), [key("one")]).statuses(), [ENOENT])
            daemon.stop()


if __name__ == "__main__":
    unittest.main()
