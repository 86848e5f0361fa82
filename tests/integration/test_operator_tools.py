"""cairnctl quota, tenants, hold, pin, unpin and purge, and the Python client's part, against a real cairnd."""

import json
import os
import subprocess
import sys
import time
import unittest

import numpy as np

import wire
from test_tenants import ALICE, BOB, As

os.environ.setdefault("CAIRN_LIBRARY", os.path.join(wire.ROOT, "build", "release", "libcairn.so"))
sys.path.insert(0, os.path.join(wire.ROOT, "client", "python"))
import cairn  # noqa: E402
from cairn import Status  # noqa: E402

CAIRNCTL = os.path.join(os.path.dirname(wire.CAIRND), "cairnctl")
BLOCK = 64 * 1024
MIB = 1 << 20


class Tools(wire.DaemonCase):
    flags = dict(ram_bytes="16MiB", nvme_bytes="32MiB", slab_bytes="2MiB", tenants=f"alice:{ALICE}, bob:{BOB}")

    def setUp(self):
        super().setUp()
        os.chmod(self.daemon.directory, 0o711)
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        for name in ("a", "b"):
            self.run_ctl("hold", "lift", name)
        super().tearDown()

    def client(self, uid=0):
        with As(uid):
            self.clients.append(cairn.Client(self.daemon.socket))
        return self.clients[-1]

    def run_ctl(self, *arguments):
        return subprocess.run([CAIRNCTL, "--socket", self.daemon.socket, *arguments], capture_output=True, text=True,
                              timeout=60)

    def ctl(self, *arguments, code=0):
        result = self.run_ctl(*arguments)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result.stdout if code == 0 else result.stderr

    def filled(self, client, model, count=3):
        space = client.open_space(cairn.SpaceConfig.opaque(model, BLOCK, 16))
        keys = [wire.key(model, i) for i in range(count)]
        parents = [None, *keys[:-1]]
        for key, parent in zip(keys, parents):
            space.put([key], [np.full(BLOCK, 7, np.uint8)], ack="disk", parent=parent)
        return space, keys

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
    def test_quota_and_tenants(self):
        self.filled(self.client(ALICE), "quota")
        self.assertIn("alice", self.ctl("tenants"))
        self.ctl("quota", "alice", "--ram", "4MiB", "--nvme", "8MiB", "--ram-guaranteed", "1MiB")
        self.ctl("quota", "alice", "--nvme", "9MiB")
        self.ctl("quota", "default", "--ram", "5MiB")
        rows = {row["tenant"]: row for row in json.loads(self.ctl("--json", "tenants"))["tenants"]}
        alice = rows["alice"]
        self.assertEqual([alice[name] for name in ("ram_limit_bytes", "nvme_limit_bytes", "ram_guaranteed_bytes",
                                                   "nvme_guaranteed_bytes")], [4 * MIB, 9 * MIB, 1 * MIB, 0])
        self.assertEqual((alice["source"], alice["number"]), ("set", ALICE))
        self.assertGreaterEqual(alice["blocks"], 3)
        self.assertEqual(rows["default"]["ram_limit_bytes"], 5 * MIB)
        one = json.loads(self.ctl("--json", "quota", str(ALICE)))["tenants"]
        self.assertEqual([row["tenant"] for row in one], ["alice"])
        self.assertIn("together are", self.ctl("quota", "bob", "--ram", "none", "--ram-guaranteed", "16MiB", code=1))
        self.assertIn("no tenant", self.ctl("quota", "nobody", "--ram", "1MiB", code=1))
        self.assertIn("whose", self.ctl("quota", "--ram", "1MiB", code=2))
        self.assertIn("bytes like", self.ctl("quota", "alice", "--ram", "much", code=2))
        self.assertIn("no numbers", self.ctl("quota", "alice", "--ram", "1MiB", "--reset", code=2))
        self.ctl("quota", "alice", "--ram", "none")
        self.ctl("quota", "alice", "--reset")
        self.ctl("quota", "default", "--reset")
        self.assertEqual(json.loads(self.ctl("--json", "quota", "alice"))["tenants"][0]["source"], "none")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
    def test_python_quota(self):
        root, alice = self.client(), self.client(ALICE)
        self.filled(alice, "python quota")
        self.assertEqual(root.set_quota("alice", nvme_bytes=10 * MIB), cairn.Quota(0, 10 * MIB, 0, 0))
        self.assertEqual(root.set_quota(ALICE, ram_bytes=3 * MIB), cairn.Quota(3 * MIB, 10 * MIB, 0, 0))
        mine = alice.tenants()
        self.assertEqual(set(mine), {"alice", "default"})
        self.assertEqual((mine["alice"].quota.ram_bytes, mine["alice"].number), (3 * MIB, ALICE))
        self.assertIsNone(mine["default"].number)
        with self.assertRaises(cairn.Error) as refused:
            alice.set_quota("alice", nvme_bytes=0)
        self.assertEqual(refused.exception.status, Status.EPERM)
        with self.assertRaises(TypeError):
            root.set_quota("alice", disk=1)
        self.assertEqual(root.reset_quota("alice"), cairn.Quota())

    def test_holds(self):
        client = self.client()
        space, keys = self.filled(client, "hold")
        number = next(info.number for info in client.spaces() if info.config.model == "hold")
        self.assertIn("no legal hold", self.ctl("hold", "list"))
        self.assertIn("3 blocks", self.ctl("hold", "set", "a", "--space", str(number), "--key", keys[2].hex(), "--note",
                                           "why\x1b[31m"))
        shown = self.ctl("hold")
        self.assertIn(f"space {number}, up to {keys[2].hex()[:16]}", shown)
        self.assertNotIn("\x1b", shown)
        listed = json.loads(self.ctl("--json", "hold", "list"))["holds"][0]
        self.assertEqual((listed["name"], listed["space"], listed["key"], listed["blocks"], listed["note"]),
                         ("a", number, keys[2].hex(), 3, "why\x1b[31m"))
        self.assertEqual(space.delete(keys), [Status.EHELD] * 3)
        self.assertIn("under legal hold a", self.ctl("purge", keys[0].hex(), "--space", str(number), code=1))
        hold = client.holds()["a"]
        self.assertEqual((hold.space, hold.key, hold.tenant, hold.blocks), (number, keys[2], None, 3))
        self.assertLess(abs(hold.since_s - time.time()), 600)
        self.assertEqual(client.lift_hold("a"), 3)
        self.assertEqual(client.set_hold("b", space=number, note="all of it"), 3)
        self.assertEqual(client.holds()["b"].note, "all of it")
        self.assertEqual(json.loads(self.ctl("--json", "hold", "lift", "b")), {"lifted": "b", "blocks": 3})
        self.assertEqual(client.set_hold("a", tenant=os.geteuid()), json.loads(self.ctl("--json", "quota", str(os.geteuid())))
                         ["tenants"][0]["blocks"])
        self.ctl("hold", "lift", "a")
        for arguments in (("hold", "set", "a"), ("hold", "set"), ("hold", "drop", "a"), ("hold", "set", "a", "--key", keys[0].hex()),
                          ("hold", "set", "a", "--space", "1", "--key", "abc"), ("hold", "list", "a"), ("quota", "a", "b")):
            self.ctl(*arguments, code=2)
        self.assertIn("no hold", self.ctl("hold", "lift", "a", code=1))

    def test_pins_by_cairnctl(self):
        client = self.client()
        space, keys = self.filled(client, "pins")
        number = next(str(info.number) for info in client.spaces() if info.config.model == "pins")
        self.ctl("pin", keys[0].hex(), "--space", number, "--owner", "ops", "--for", "1h")
        self.assertEqual(space.delete(keys[:1]), [Status.EHELD])
        self.assertIn("no such pin", self.ctl("unpin", keys[0].hex(), "--space", number, code=1))
        self.ctl("unpin", keys[0].hex(), "--space", number, "--owner", "ops")
        self.assertEqual(json.loads(self.ctl("--json", "pin", keys[1].hex(), "--space", number)), {"pinned": keys[1].hex()})
        self.ctl("unpin", keys[1].hex(), "--space", number)
        self.assertEqual(space.delete(keys), [Status.OK] * 3)
        self.ctl("pin", keys[0].hex(), "--space", number, code=1)
        self.ctl("pin", "abc", "--space", number, code=2)
        self.ctl("pin", keys[0].hex(), "--space", "999", code=1)
        self.ctl("pin", keys[0].hex(), "--space", number, "--for", "soon", code=2)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become other users")
    def test_operators_look_after_tenants_and_purge(self):
        alice, root = self.client(ALICE), self.client()
        hers, keys = self.filled(alice, "purge")
        info = next(info for info in root.spaces() if info.config.model == "purge")
        before = len(root.spaces())
        stored = root.open_stored_space(info)
        with stored.lookup(keys) as lease:
            self.assertEqual(lease.found, 3)
        self.assertEqual(root.open_space(info.config).lookup(keys).found, 0, "an operator's own is another one")
        self.assertEqual(len(root.spaces()), before + 1)
        self.assertEqual(stored.purge(keys[2:]), ([Status.OK], 0))
        self.assertIn(keys[1].hex(), self.ctl("purge", keys[1].hex(), "--space", str(info.number)))
        self.assertEqual(hers.try_get(keys)[1], [Status.OK, Status.ENOENT, Status.ENOENT])
        with hers.lookup(keys[:1], lease_s=60) as lease:
            self.assertEqual(lease.found, 1)
            result = self.run_ctl("--json", "purge", keys[0].hex(), "--space", str(info.number))
            self.assertEqual(json.loads(result.stdout), {"pending": keys[0].hex()})
            self.assertIn("still reads", result.stderr)
        self.assertEqual(hers.purge(keys), ([Status.ENOENT] * 3, 0))
        with self.assertRaisesRegex(cairn.Error, "for operators"):
            alice.open_stored_space(info)

    def test_help(self):
        usage = self.ctl("--help")
        for name in ("tenants", "quota", "hold", "pin", "unpin", "purge"):
            self.assertRegex(usage, rf"(?m)^  {name} ")
            self.assertIn("example: cairnctl " + name, self.ctl(name, "--help"))


if __name__ == "__main__":
    unittest.main()
