"""The audit of a real daemon: one record a vanished block whatever crashes, filters, tampering, why."""
import glob
import json
import random
import shutil
import subprocess

from test_cairnctl_operate import CAIRNCTL, Case
from wire import *

AUDIT = 66
RECORD = 256
BLOCK = 64 * 1024
GONE = ("evict", "delete", "purge")
SMALL = dict(ram_bytes="4MiB", nvme_bytes="8MiB", slab_bytes="2MiB")


class AuditCase(Case):
    def records(self, *arguments):
        out, after = [], 0
        while after is not None:
            page = json.loads(self.ctl("--json", "audit", "--after", str(after), *arguments))
            out += page["records"]
            after = page["after"]
        return out

    def about(self, action=GONE):
        """How many records of these actions each key has."""
        out = {}
        for r in self.records():
            if r["action"] in action and r["key"]:
                out[r["key"]] = out.get(r["key"], 0) + 1
        return out

    def check(self, *arguments, expected=0):
        text = self.ctl("--json", "audit", "--verify", *arguments, expected=expected)
        return json.loads(text[text.index("{"):])

    def offline(self, *arguments, expected=0):
        return self.check("--offline", os.path.join(self.directory, "data"), *arguments, expected=expected)

    def fill(self, c, count, seed="audit", durable=True):
        space = c.open_space(Space.opaque(BLOCK))
        keys = [key(seed, i) for i in range(count)]
        for i in range(0, count, 10):
            some = keys[i:i + 10]
            bytes_ = b"".join(pattern(BLOCK, j) for j in range(i, i + len(some)))
            fields = {2: 1 if durable else 0, 5: bytes(32 * len(some))}
            self.assertEqual(c.put(space, some, bytes_, fields=fields).statuses(), [OK] * len(some))
        return space, keys

    def found(self, c, space, keys):
        return {k for k in keys if c.get(space, [k]).statuses() == [OK]}


class Removals(AuditCase):
    def test_each_vanished_block_has_one_record(self):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 400)
            for k in keys[380:390]:
                c.call(DELETE, message({1: space, 2: k}))
            here = self.found(c, space, keys)
            self.assertLess(len(here), 200)
            self.assertGreater(len(here), 50)
            gone = self.about()
            self.assertEqual({k.hex() for k in keys} - {k.hex() for k in here}, set(gone))
            self.assertEqual(set(gone.values()), {1})
            for r in self.records("--action", "delete"):
                self.assertEqual((r["reason"], r["tenant"], r["tier_from"]), ("request", os.getuid(), "nvme"))
                self.assertGreaterEqual(r["bytes"], BLOCK)
            evicted = self.records("--action", "evict")
            self.assertEqual(len(evicted), 400 - 10 - len(here))
            self.assertEqual({r["reason"] for r in evicted}, {"capacity"})
        self.assertEqual(self.check()["bad"], 0)

    def test_after_a_restart_the_chain_goes_on(self):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            self.fill(c, 300)
        before = self.check()
        self.daemon.own = False
        self.daemon.stop()
        self.assertEqual(self.offline()["end"], before["end"])
        self.daemon = Daemon(self.directory, **SMALL)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 300, "more")
            here = self.found(c, space, keys)
        after = self.check("--noted", before["end"])
        self.assertEqual(after["bad"], 0)
        self.assertGreater(after["records"], before["records"])
        self.assertEqual(len(self.records("--action", "begin")), 2)
        self.assertTrue({k.hex() for k in keys} - {k.hex() for k in here} <= set(self.about()))

    def test_killed_at_any_moment_each_vanished_block_has_one_record(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED", "0")) or random.randrange(1, 1 << 31)
        print(f"CAIRN_TEST_SEED={seed}")
        rng = random.Random(seed)
        stored, deleting = set(), set()
        for turn in range(8):
            self.daemon = Daemon(self.directory, **SMALL)
            self.daemon.own = False
            stop = threading.Timer(rng.uniform(0.05, 0.8), self.daemon.process.kill)
            with self.daemon.connect() as c:
                stop.start()
                try:
                    space = c.open_space(Space.opaque(BLOCK))
                    for i in range(100000):
                        k = key("kill", turn, i)
                        if c.put(space, [k], pattern(BLOCK, i), fields={2: 1}).statuses() == [OK]:
                            stored.add(k)
                        if i % 7 == 3:
                            victim = rng.choice(sorted(stored))
                            deleting.add(victim)
                            c.call(DELETE, message({1: space, 2: victim}))
                except (ConnectionError, EOFError, AssertionError, OSError, struct.error):
                    pass
            stop.join()
            self.daemon.process.wait()
            self.daemon.reader.join()
            self.assertEqual(self.offline()["bad"], 0)
        self.daemon = Daemon(self.directory, **SMALL)
        self.daemon.own = False
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(BLOCK))
            here = {k.hex() for k in self.found(c, space, sorted(stored))}
        gone = self.about()
        wanted = {k.hex() for k in stored} - here
        self.assertGreater(len(wanted), 10)
        self.assertEqual(wanted - set(gone), set(), "vanished without a record")
        self.assertEqual(set(gone) & here, set(), "a record of what is here")
        self.assertEqual({k: n for k, n in gone.items() if n != 1}, {}, "more than one record")
        self.assertEqual(self.check()["bad"], 0)

    def test_what_memory_alone_had_is_recorded_at_the_stop(self):
        self.start(ram_bytes="4MiB", nvme_bytes="0")
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 100, durable=False)
            here = {k.hex() for k in self.found(c, space, keys)}
            self.assertEqual(set(self.about()), {k.hex() for k in keys} - here)
        self.daemon.own = False
        self.daemon.stop()
        self.daemon = Daemon(self.directory, ram_bytes="4MiB", nvme_bytes="0")
        self.assertEqual({r["key"] for r in self.records("--reason", "stopped")}, here)
        self.assertEqual(set(self.about().values()), {1})


class Reading(AuditCase):
    def test_filters_and_pages(self):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 200)
            for k in keys[190:]:
                c.call(DELETE, message({1: space, 2: k}))
        everything = self.records()
        self.assertEqual([r["sequence"] for r in everything], list(range(len(everything))))
        self.assertEqual(self.records("--max", "7"), everything)
        newest = json.loads(self.ctl("--json", "audit", "--newest", "--max", "3"))
        self.assertEqual([r["sequence"] for r in newest["records"]],
                         [r["sequence"] for r in everything[:-4:-1]])
        self.assertEqual(len(self.records("--action", "delete")), 10)
        self.assertEqual(self.records("--reason", "quota"), [])
        self.assertEqual(len(self.records("--tenant", str(os.getuid()), "--action", "delete")), 10)
        self.assertEqual(self.records("--tenant", "4242"), [])
        one, = self.records("--key", keys[195].hex())
        self.assertEqual(one["action"], "delete")
        self.assertEqual(self.records("--since", "1h"), everything)
        self.assertEqual(self.records("--until", "1h"), [])
        self.assertEqual(len(self.ctl("audit", "--action", "delete").splitlines()), 11)
        self.assertEqual(self.ctl("audit", "--reason", "quota"), "no records\n")

    def test_wrong_words_are_refused_with_what_is_right(self):
        self.start()
        self.assertIn("no reason is called", self.ctl("audit", "--reason", "boredom", expected=1))
        self.assertIn("no tenant is called", self.ctl("audit", "--tenant", "nobody-such", expected=1))
        self.assertIn("15m", self.ctl("audit", "--since", "yesterday", expected=2))
        self.assertIn("COUNT:DIGEST", self.ctl("audit", "--verify", "--noted", "7", expected=2))
        self.assertIn("64 hex", self.ctl("why", "abc", expected=2))
        self.assertIn("--verify --offline", self.ctl("audit", "/tmp", expected=2))

    def test_without_an_audit_it_says_so(self):
        self.start(audit_bytes="0", **SMALL)
        with self.daemon.connect() as c:
            _, keys = self.fill(c, 200)
        self.assertIn("audit_bytes", self.ctl("audit", expected=1))
        self.assertIn("no records are kept", self.ctl("why", keys[0].hex(), expected=1))
        self.assertIn("in RAM", self.ctl("why", keys[199].hex()))
        self.assertFalse(os.path.exists(os.path.join(self.directory, "data", "audit")))

    def test_files_are_rotated_within_their_bound(self):
        flags = dict(SMALL, audit_bytes="64KiB")
        self.start(**flags)
        with self.daemon.connect() as c:
            self.fill(c, 1500, "rotate")
        state = self.check()
        self.assertEqual(state["bad"], 0)
        self.assertGreater(state["first"], 500)
        sizes = [os.path.getsize(f) for f in glob.glob(os.path.join(self.directory, "data", "audit", "*.log"))]
        self.assertLessEqual(sum(sizes), 64 * 1024 + 2 * 4096)
        self.assertIn("rotated out", self.ctl("why", key("rotate", 0).hex(), expected=1))

    @unittest.skipUnless(os.getuid() == 0, "wants several users")
    def test_only_operators_read_it_and_tenants_ask_of_their_own(self):
        self.start(**SMALL)
        os.chmod(self.directory, 0o711)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 200)
        def as_user(*arguments):
            return subprocess.run([CAIRNCTL, "--socket", os.path.join(self.directory, "s"), *arguments], user=4001,
                                  group=0, extra_groups=[], capture_output=True, text=True)
        self.assertIn("CAIRN_EPERM", as_user("audit").stderr)
        self.assertIn("CAIRN_EPERM", as_user("audit", "--verify").stderr)
        for k in (keys[0], keys[199]):  # gone, and here
            answer = as_user("why", k.hex())
            self.assertEqual(answer.returncode, 1)
            self.assertIn("never stored here", answer.stdout)
            self.assertNotIn("evict", answer.stdout)


class Why(AuditCase):
    def test_where_a_block_is_and_what_became_of_it(self):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 200)
            c.call(DELETE, message({1: space, 2: keys[199]}))
            c.lookup(space, [keys[198]], lease_ms=60000)
            text = self.ctl("why", keys[198].hex())
            self.assertIn("in RAM", text)
            self.assertIn("on NVMe", text)
            self.assertIn("held 1 times", text)
            text = self.ctl("why", keys[0].hex(), expected=1)
            self.assertIn("it is not here", text)
            self.assertIn("was evicted, since the tier was full", text)
            self.assertIn("was deleted, since somebody asked for it", self.ctl("why", keys[199].hex(), expected=1))
            self.assertIn("never stored here", self.ctl("why", key("never").hex(), expected=1))
            here = json.loads(self.ctl("--json", "why", keys[198].hex()))
            self.assertEqual((len(here["blocks"]), here["blocks"][0]["holds"]), (1, 1))
            gone = self.ctl("--json", "why", keys[199].hex(), expected=1)
            gone = json.loads(gone[gone.index("{"):])
            self.assertEqual((gone["blocks"], gone["records"][0]["action"]), ([], "delete"))

    def test_a_block_that_came_back_has_its_past(self):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            space, keys = self.fill(c, 3)
            for _ in range(2):
                c.call(DELETE, message({1: space, 2: keys[1]}))
                c.put(space, [keys[1]], pattern(BLOCK, 1))
            text = self.ctl("why", keys[1].hex())
            self.assertIn("in RAM", text)
            self.assertEqual(text.count("was deleted"), 2)


class Tampering(AuditCase):
    def log(self):
        return sorted(glob.glob(os.path.join(self.directory, "data", "audit", "*.log")))[0]

    def bytes(self):
        with open(self.log(), "rb") as f:
            return f.read()

    def stopped(self, count=300):
        self.start(**SMALL)
        with self.daemon.connect() as c:
            self.fill(c, count)
        self.daemon.own = False
        self.daemon.stop()

    def edit(self, at, data):
        with open(self.log(), "r+b") as f:
            f.seek(at)
            f.write(data)

    def tree(self):
        out = {}
        for folder, _, names in os.walk(os.path.join(self.directory, "data")):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    out[path] = (os.stat(path).st_mtime_ns, hash(f.read()))
        return out

    def test_a_changed_record_is_found_with_its_place_and_nothing_is_written(self):
        self.stopped()
        whole = self.bytes()
        before = self.tree()
        self.assertEqual(self.offline()["problems"], [])
        self.assertEqual(self.tree(), before)
        self.edit(17 * RECORD + 26, b"\x7f")
        state = self.offline(expected=1)
        self.assertEqual(state["problems"], ["17: was changed: its digest does not fit"])
        self.daemon = Daemon(self.directory, **SMALL)  # it serves all the same
        self.daemon.own = False
        self.assertEqual(self.check(expected=1)["problems"], state["problems"])
        text = self.ctl("audit", "--verify", expected=1)
        self.assertIn("record 17: was changed", text)
        self.daemon.stop()
        self.edit(0, whole)
        self.assertEqual(self.offline()["bad"], 0)

    def test_removed_and_reordered_records_are_found(self):
        self.stopped()
        whole = self.bytes()
        size = len(whole)
        with open(self.log(), "wb") as f:
            f.write(whole[: 20 * RECORD] + whole[21 * RECORD:])
        self.assertTrue(self.offline(expected=1)["problems"][0].startswith("20: does not follow"))
        with open(self.log(), "wb") as f:
            f.write(whole[: 20 * RECORD] + whole[21 * RECORD: 22 * RECORD] + whole[20 * RECORD: 21 * RECORD]
                    + whole[22 * RECORD:])
        self.assertTrue(self.offline(expected=1)["problems"][0].startswith("20: does not follow"))
        with open(self.log(), "wb") as f:
            f.write(whole[: size - 3 * RECORD])
        self.assertIn("cut off", self.offline(expected=1)["problems"][0])
        os.unlink(self.log())
        self.assertIn("cut off", self.offline(expected=1)["problems"][0])

    def test_a_log_that_was_written_anew_does_not_fit_a_noted_end(self):
        self.stopped()
        noted = self.offline()["end"]
        shutil.rmtree(os.path.join(self.directory, "data"))
        self.start(**SMALL)
        with self.daemon.connect() as c:
            self.fill(c, 310)
        self.assertEqual(self.check()["bad"], 0)  # whole in itself
        self.assertIn("rewritten", self.check("--noted", noted, expected=1)["problems"][0])

    def test_a_lost_catalog_leaves_the_chain(self):
        self.stopped()
        records = self.offline()["records"]
        with open(os.path.join(self.directory, "data", "catalog.mdb"), "r+b") as f:
            f.write(b"\xff" * 65536)
        self.assertEqual(self.offline()["records"], records)
        self.daemon = Daemon(self.directory, **SMALL)
        state = self.check()
        self.assertEqual((state["bad"], state["continued"]), (0, 1))
        self.assertEqual(state["records"], records + 1)
        last, = json.loads(self.ctl("--json", "audit", "--newest", "--max", "1"))["records"]
        self.assertEqual((last["action"], last["reason"]), ("begin", "corrupt"))

    def test_a_directory_that_is_served_or_is_none(self):
        self.start()
        self.assertIn("a daemon has", self.ctl("audit", "--verify", "--offline",
                                               os.path.join(self.directory, "data"), expected=1))
        self.assertIn("name a data directory", self.ctl("audit", "--verify", "--offline", "/usr/lib", expected=1))


if __name__ == "__main__":
    unittest.main()
