"""Tenants: what one sees of another, by a real daemon and peers of several uids. Cases 28 and 44."""

import json
import os
import shutil
import tempfile
import unittest

from wire import (DELETE, EBUSY, ENOENT, EPERM, ESTALE, LIST_SPACES, OK, OPEN_CONTEXT, OPEN_SPACE, PIN, PREFETCH,
                  RELEASE, UNPIN, Connection, Daemon, DaemonCase, Space, fields, key, message, pattern)

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
