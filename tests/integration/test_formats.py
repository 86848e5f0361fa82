"""Directories from the future, with garbage, or damaged; and processors of the past.

Case 30: a format of a later version is refused and left as it is; files that are not ours are left alone or passed
over; a damaged catalog is made anew. Case 37: without AVX everything answers the same.
"""
import ctypes
import glob
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import unittest

import wire
from wire import DELETE, ECORRUPT, ENOENT, F32, OK, OPEN_CONTEXT, RETRIEVE, Daemon, Space, key, message, pattern

SIZE = 1 << 16
SPACE = Space.opaque(SIZE)
BUILD = os.environ.get("CAIRN_BUILD", os.path.join(wire.ROOT, "build", "release"))
SANITIZED = "asan" in wire.CAIRND or "tsan" in wire.CAIRND
QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def checksum(data):
    """XXH3-128 in its canonical form, by the system's library."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    sum = library.XXH3_128bits(bytes(data), len(data))
    return struct.pack(">QQ", sum.high, sum.low)


class Directory(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.data = os.path.join(self.directory, "data")
        self.keys = [key("format", i) for i in range(20)]
        self.daemon = self.fill()
        self.addCleanup(lambda: self.daemon.process.poll() is None and self.daemon.kill())

    def fill(self):
        daemon = Daemon(self.directory, ram_bytes="4MiB", nvme_bytes="32MiB", slab_bytes="1MiB")
        with daemon.connect() as c:
            number = c.open_space(SPACE)
            for k in self.keys:
                self.assertEqual(c.put(number, [k], pattern(SIZE, k), fields={2: 1}).statuses(), [OK])
        daemon.own = False
        daemon.stop()
        daemon.lines.clear()
        return daemon

    def slabs(self):
        return sorted(glob.glob(os.path.join(self.data, "slabs", "*.slab")))

    def contents(self):
        """What the directory holds, by file."""
        found = {}
        for folder, _, names in os.walk(self.data):
            for name in names:
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as file:
                        found[path] = hashlib.sha256(file.read()).digest()
        return found

    def refused(self, pattern):
        """It does not start, says why, and touches nothing but its lock and the catalog's counter."""
        before = self.contents()
        self.daemon.launch()
        self.assertNotEqual(self.daemon.process.wait(60 * wire.SLOW), 0)
        self.daemon.reader.join()
        self.assertTrue(self.daemon.log(pattern), self.daemon.lines)
        after = self.contents()
        self.assertEqual(set(after), set(before))
        for path in before:
            if path.endswith(".slab"):
                self.assertEqual(after[path], before[path], path)
        self.daemon.lines.clear()

    def served(self, at_least=None):
        """It starts; every key is exact or a miss, a corrupt one counted. Returns how many were there."""
        self.daemon.start()
        found = corrupt = 0
        with self.daemon.connect() as c:
            number = c.open_space(SPACE)
            for k in self.keys:
                reply = c.get(number, [k])
                if reply.statuses() == [OK]:
                    self.assertEqual(reply.payload, pattern(SIZE, k))
                    found += 1
                else:
                    self.assertIn(reply.statuses()[0], (ENOENT, ECORRUPT))
                    corrupt += reply.statuses() == [ECORRUPT]
            fresh = key("fresh")
            back = c.lookup(number, [fresh]).get(1)  # a catalog made anew may bring back what was deleted
            stats = c.stats()
            self.assertEqual((stats["cairn_blocks"], stats["cairn_blocks_corrupt_total"]), (found + back, corrupt))
            self.assertEqual(c.call(DELETE, message({1: number, 2: fresh})).statuses(), [OK if back else ENOENT])
            self.assertEqual(c.put(number, [fresh], pattern(SIZE, fresh), fields={2: 1}).statuses(), [OK])
            self.assertEqual(c.get(number, [fresh]).payload, pattern(SIZE, fresh))
            self.assertEqual(c.call(DELETE, message({1: number, 2: fresh})).statuses(), [OK])
        self.daemon.stop()
        self.assertGreaterEqual(found, len(self.keys) if at_least is None else at_least)
        return found

    def test_case_30_a_slab_from_the_future(self):
        with open(self.slabs()[0], "r+b") as slab:
            head = bytearray(slab.read(8192))
            old = bytes(head)
            self.assertEqual(head[8176:], checksum(head[:8176]), "the checksum is where the README has it")
            struct.pack_into("<I", head, 8, 2)
            head[8176:] = checksum(head[:8176])
            slab.seek(0)
            slab.write(head)
        self.refused("slab files of another format")
        with open(self.slabs()[0], "r+b") as slab:
            slab.write(old)
        self.served()

    def test_case_30_files_that_are_not_ours(self):
        slabs = os.path.join(self.data, "slabs")
        ours = {os.path.join(self.data, "notes.txt"): b"mine", os.path.join(slabs, "readme.slab"): b"no number",
                os.path.join(slabs, "0000000g.slab"): b"no number either",
                os.path.join(self.data, "catalog.mdb.old"): bytes(4096)}
        for path, text in ours.items():
            with open(path, "wb") as file:
                file.write(text)
        os.mkdir(os.path.join(slabs, "00000077.slab"))
        target = os.path.join(self.directory, "elsewhere")
        with open(target, "wb") as file:
            file.write(b"precious" * 4096)
        os.symlink(target, os.path.join(slabs, "00000078.slab"))
        self.served()
        for path, text in ours.items():
            with open(path, "rb") as file:
                self.assertEqual(file.read(), text, path)
        with open(target, "rb") as file:
            self.assertEqual(file.read(), b"precious" * 4096, "nothing is written through a link")

    def test_case_30_slab_files_of_garbage(self):
        slabs = os.path.join(self.data, "slabs")
        for i, content in enumerate((b"", b"x" * 100, os.urandom(8192), os.urandom(1 << 20), bytes(1 << 20))):
            with open(os.path.join(slabs, f"000000{80 + i}.slab"), "wb") as file:
                file.write(content)
        self.served()

    def test_case_30_a_catalog_of_garbage(self):
        path = os.path.join(self.data, "catalog.mdb")
        size = os.path.getsize(path)
        for content in (os.urandom(size), bytes(size), b"not a catalog", b""):
            with open(path, "wb") as file:
                file.write(content)
            self.served()
            self.daemon.lines.clear()

    def test_case_30_cut_and_flipped_slabs(self):
        """Case 22's other half: exact, or a counted miss."""
        slabs = self.slabs()
        with open(slabs[0], "r+b") as slab:
            slab.truncate(os.path.getsize(slabs[0]) // 2)
        with open(slabs[1], "r+b") as slab:
            slab.seek(8192 + 5000)
            slab.write(b"flip")
        found = self.served(at_least=1)
        self.assertLess(found, len(self.keys))
        print(f"{found} of {len(self.keys)} blocks after a slab was cut in half and another changed")


@unittest.skipIf(SANITIZED, "the sanitizers do not run under qemu-user")
@unittest.skipUnless(QEMU, "no qemu-x86_64 (package qemu-user)")
class OldProcessors(unittest.TestCase):
    CPU = "Nehalem"  # SSE4.2 and no AVX

    def test_case_37_selection_without_avx(self):
        test = os.path.join(BUILD, "tests", "test_landmark_select")
        if not os.path.exists(test):
            self.skipTest("test_landmark_select is not built")
        result = subprocess.run([QEMU, "-cpu", self.CPU, test, "-j1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout[-4000:])
        self.assertRegex(result.stdout, r"Failing: 0 \| Crashing: 0")

    def answers(self, daemon):
        """Bytes of a retrieval over 256 tokens, rows and the rest with them."""
        space = Space(model="old", k_dim=64, v_dim=64, dtype=F32, block_tokens=128, run_tokens=128, outliers=8)
        floats = [((i * 2654435761 >> 8) % 4001 - 2000) / 500 for i in range(space.bytes() // 4)]
        block = struct.pack(f"<{len(floats)}f", *floats)
        queries = struct.pack("<512f", *floats[:512])
        with daemon.connect() as c:
            number = c.open_space(space)
            keys = [key("old", i) for i in range(2)]
            self.assertEqual(c.put(number, keys, block[::-1][3:] + block[:3] + block).statuses(), [OK] * 2)
            context = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(keys)})).get(1)
            budget = message({1: 16})
            request = {1: [context], 2: [0, 1], 3: 1, 4: 4, 5: wire.region(0, 0, 2048), 7: budget, 11: 1, 13: 1}
            reply = c.call(RETRIEVE, message(request), queries)
            self.assertEqual(reply.status, OK, reply.text)
            return reply.payload

    def test_case_37_a_daemon_without_avx(self):
        native = Daemon()  # with the best kernels of this machine
        wanted = self.answers(native)
        native.stop()

        class Emulated(Daemon):
            def command(self):
                return [QEMU, "-cpu", OldProcessors.CPU, *super().command()]

        daemon = Emulated(ram_bytes="16MiB", nvme_bytes="64MiB", scratch_bytes="16MiB", context_bytes="16MiB")
        self.addCleanup(shutil.rmtree, daemon.directory, ignore_errors=True)
        self.addCleanup(daemon.kill)
        self.assertTrue(daemon.log("kernels scalar"))
        self.assertEqual(self.answers(daemon), wanted)
        # Not by SIGTERM: qemu-user 7.2 hands an x86-64 signal handler a stack that is not aligned to 16 bytes (of any
        # program; not so on arm64), and libuv's falls over it.
        with daemon.connect() as c:
            self.assertEqual(c.call(wire.DRAIN).status, OK)
        self.assertEqual(daemon.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
