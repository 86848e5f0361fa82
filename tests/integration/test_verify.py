"""Verify: a running daemon checks what it stores; a directory is checked without one. Damage is counted, never served."""
import hashlib
import json
import random
import shutil
import subprocess

from wire import *

CAIRNCTL = os.path.join(os.path.dirname(CAIRND), "cairnctl")
SIZE = 65536
BLOCKS = 60
SLOT = 4096 + SIZE  # one header and one layer: an opaque space
START = 8192        # of a slab file
SEED = int(os.environ.get("CAIRN_TEST_SEED", time.time_ns() % 1000000))


def rows(name):
    return pattern(SIZE, "verify", name)


class Case(unittest.TestCase):
    def setUp(self):
        print(f"CAIRN_TEST_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.data = os.path.join(self.directory, "data")
        self.keys = [key("verify", i) for i in range(BLOCKS)]
        self.daemon = Daemon(self.directory, slab_bytes="1MiB")
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(SIZE))
            for i, k in enumerate(self.keys):
                self.assertEqual(c.put(space, [k], rows(i), fields={2: 1}).statuses(), [OK])

    def tearDown(self):
        if self.daemon.process.poll() is None:
            self.daemon.stop()
        shutil.rmtree(self.directory)

    def ctl(self, *arguments, code=0):
        result = subprocess.run([CAIRNCTL, "--socket", os.path.join(self.directory, "s"), "verify", *arguments],
                                capture_output=True, text=True, timeout=120 * SLOW)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def verify(self, *arguments, code=0):
        return json.loads(self.ctl("--json", *arguments, code=code).stdout)

    def offline(self, code=0):
        """What is found, and that nothing in the directory changed by it."""
        before = self.fingerprints()
        found = self.verify("--offline", self.data, code=code)
        self.assertEqual(self.fingerprints(), before)
        return found

    def fingerprints(self):
        out = {}
        for folder, _, names in os.walk(self.data):
            out[folder] = sorted(names)
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    info = os.stat(path)
                    out[path] = hashlib.sha256(f.read()).hexdigest(), info.st_mtime_ns, info.st_mode, info.st_size
        return out

    def flip(self, count):
        """One byte in each of so many slots that hold a block: in the header, the table or the rows. Returns the slots."""
        slots = []
        for name in sorted(os.listdir(os.path.join(self.data, "slabs"))):
            path = os.path.join(self.data, "slabs", name)
            with open(path, "rb") as f:
                for slot in range((os.path.getsize(path) - START) // SLOT):
                    f.seek(START + slot * SLOT)
                    if f.read(8) == b"CRNPART1":
                        slots.append((path, slot))
        self.assertEqual(len(slots), BLOCKS)
        chosen = self.random.sample(slots, count)
        for i, (path, slot) in enumerate(chosen):
            at = [self.random.randrange(192), 192 + self.random.randrange(16), 4096 + self.random.randrange(SIZE)][i % 3]
            with open(path, "r+b") as f:
                f.seek(START + slot * SLOT + at)
                byte = f.read(1)[0]
                f.seek(START + slot * SLOT + at)
                f.write(bytes([byte ^ self.random.randrange(1, 256)]))
        return chosen

    def read_all(self):
        """The number of misses; every other block is exact."""
        missing = 0
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(SIZE))
            for i, k in enumerate(self.keys):
                reply = c.get(space, [k])
                if reply.statuses() == [OK]:
                    self.assertEqual(reply.payload, rows(i))
                else:
                    self.assertIn(reply.statuses()[0], (ENOENT, ECORRUPT))
                    missing += 1
        return missing

    def restart(self):
        self.daemon.reader.join()
        self.daemon.lines.clear()
        self.daemon.start()


class Online(Case):
    def test_sound_blocks(self):
        self.assertEqual(self.verify(), {"blocks": BLOCKS, "corrupt": 0, "unread": 0, "bytes": 2 * BLOCKS * SIZE})
        self.assertIn(f"{BLOCKS} blocks", self.ctl().stdout)

    def test_flipped_bytes_become_misses_that_can_be_put_again(self):
        self.flip(9)  # under the daemon: RAM still has them whole
        found = self.verify(code=1)
        self.assertEqual((found["blocks"], found["corrupt"], found["unread"]), (BLOCKS, 9, 0))
        self.assertEqual(self.read_all(), 9)
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(SIZE))
            self.assertEqual(c.stats()["cairn_blocks"], BLOCKS - 9)
            self.assertEqual(c.stats()["cairn_blocks_corrupt_total"], 9)
            for i, k in enumerate(self.keys):
                self.assertIn(c.put(space, [k], rows(i), fields={2: 1}).statuses()[0], (OK, EEXIST))
        self.assertEqual(self.verify()["corrupt"], 0)
        self.assertEqual(self.read_all(), 0)

    def test_rate_bounds_it_and_one_at_a_time(self):
        with self.daemon.connect() as c, self.daemon.connect() as d:
            begun = time.monotonic()
            first = c.send(VERIFY, message({1: 8 << 20}))
            time.sleep(0.1)
            self.assertEqual(d.call(VERIFY).status, EBUSY)
            self.assertEqual(c.wait(first).get(1), BLOCKS)
            self.assertGreater(time.monotonic() - begun, 2 * BLOCKS * SIZE / (8 << 20) * 0.8)
            self.assertEqual(d.call(VERIFY).get(1), BLOCKS)

    def test_it_ends_with_its_connection_its_deadline_and_the_daemon(self):
        with self.daemon.connect() as c:
            self.assertEqual(c.call(VERIFY, message({1: 100 << 10}), deadline=300).status, EDEADLINE)
            c.send(VERIFY, message({1: 100 << 10}))
            time.sleep(0.1)
        with self.daemon.connect() as c:
            end = time.monotonic() + 10 * SLOW
            while (status := c.call(VERIFY).status) == EBUSY and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(status, OK)
            stats = c.stats()
            self.assertEqual((stats["cairn_holds"], stats["cairn_pins"]), (0, 0))
            begun = time.monotonic()
            c.send(VERIFY, message({1: 100 << 10}))
            time.sleep(0.1)
            self.daemon.stop()
            self.assertLess(time.monotonic() - begun, 5 * SLOW)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, to become another user")
    def test_others_are_refused(self):
        os.chmod(self.directory, 0o711)
        result = subprocess.run(["setpriv", "--reuid=65534", "--regid=0", "--clear-groups", "--bounding-set=-all", CAIRNCTL,
                                 "--socket", os.path.join(self.directory, "s"), "verify"], capture_output=True, text=True)
        if "failed to execute" in result.stderr:
            self.skipTest("another user cannot reach the build folder")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("CAIRN_EPERM", result.stderr)


class Offline(Case):
    def test_a_daemon_has_it(self):
        self.assertIn("a daemon has the data directory", self.ctl("--offline", self.data, code=1).stderr)

    def test_sound_directory(self):
        self.daemon.stop()
        found = self.offline()
        self.assertEqual((found["blocks"], found["corrupt"], found["lost"], found["catalog"], found["bad"]),
                         (BLOCKS, 0, 0, "sound", []))

    def test_flipped_bytes_are_counted_and_never_served(self):
        self.daemon.stop()
        chosen = self.flip(12)
        found = self.offline(code=1)
        self.assertEqual((found["blocks"], found["corrupt"], found["lost"]), (BLOCKS, 12, 0))
        self.assertEqual({(f"{one['slab']:08x}.slab", one["slot"]) for one in found["bad"]},
                         {(os.path.basename(path), slot) for path, slot in chosen})
        os.unlink(os.path.join(self.data, "catalog.mdb"))
        found = self.offline(code=1)  # the slots speak for themselves
        self.assertEqual((found["blocks"], found["corrupt"], found["catalog"]), (BLOCKS, 12, "absent"))
        self.restart()
        self.assertEqual(self.read_all(), 12)

    def test_deleted_blocks_are_none(self):
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(SIZE))
            self.assertEqual(c.call(DELETE, message({1: space, 2: b"".join(self.keys[:5])})).statuses(), [OK] * 5)
        self.daemon.stop()
        found = self.offline()
        self.assertEqual((found["blocks"], found["unnamed"]), (BLOCKS - 5, 5))

    def test_lost_and_cut_files(self):
        self.daemon.stop()
        slabs = sorted(os.listdir(os.path.join(self.data, "slabs")))
        os.unlink(os.path.join(self.data, "slabs", slabs[0]))
        os.truncate(os.path.join(self.data, "slabs", slabs[1]), START + 3 * SLOT + 100)
        os.truncate(os.path.join(self.data, "slabs", slabs[2]), 5000)
        found = self.offline(code=1)
        self.assertEqual(found["slabs_bad"], 2)
        self.assertEqual(found["blocks"] + found["lost"], BLOCKS)
        self.assertGreater(found["lost"], 3)
        self.assertEqual(found["corrupt"], 0)

    def test_damaged_catalog(self):
        self.daemon.stop()
        with open(os.path.join(self.data, "catalog.mdb"), "r+b") as f:
            f.write(self.random.randbytes(65536))
        found = self.offline(code=1)
        self.assertEqual((found["blocks"], found["corrupt"], found["catalog"]), (BLOCKS, 0, "damaged"))

    def test_random_damage_of_the_catalog_ends_well(self):
        self.daemon.stop()
        path = os.path.join(self.data, "catalog.mdb")
        with open(path, "rb") as f:
            whole = f.read()
        for _ in range(12):
            with open(path, "r+b") as f:
                f.write(whole)
                for _ in range(self.random.choice([1, 20])):
                    f.seek(self.random.randrange(65536))
                    f.write(self.random.randbytes(self.random.choice([1, 64])))
            result = subprocess.run([CAIRNCTL, "verify", "--json", "--offline", self.data], capture_output=True, text=True,
                                    timeout=60 * SLOW)
            self.assertIn(result.returncode, (0, 1), result.stderr)
            if "format" not in result.stderr:
                found = json.loads(result.stdout)
                self.assertEqual(found["corrupt"], 0 if found["catalog"] != "sound" else found["corrupt"])
                self.assertGreaterEqual(found["blocks"] + found["records_bad"], BLOCKS if found["catalog"] != "sound" else 0)

    def test_a_directory_that_is_none(self):
        self.assertIn("name a data directory", self.ctl("--offline", os.path.join(self.directory, "nowhere"), code=1).stderr)
        empty = os.path.join(self.directory, "empty")
        os.mkdir(empty)
        self.ctl("--offline", empty, code=1)
        self.assertEqual(os.listdir(empty), [])
        for wrong in (["--offline"], [self.data], ["--rate", "fast"], ["--rate", "-5"]):
            self.ctl(*wrong, code=2)


if __name__ == "__main__":
    unittest.main()
