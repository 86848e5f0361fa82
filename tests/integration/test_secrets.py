"""Tenants' data stays out of core dumps: the RAM tier, arenas, working memory, what was appended to contexts."""
import re
import shutil

from test_operate import wait_for
from wire import *

TOKEN = b"the tenant's own secret, 40 bytes of it."


def mappings(pid):
    """(name, kB, VmFlags) of each mapping."""
    out, name, size = [], "", 0
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                name = line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
            elif line.startswith("Size:"):
                size = int(line.split()[1])
            elif line.startswith("VmFlags:"):
                out.append((name, size, line.split()[1:]))
    return out


class Dumps(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(ram_bytes="32MiB")

    def tearDown(self):
        self.daemon.stop()
        shutil.rmtree(self.daemon.directory, ignore_errors=True)

    def fill(self, c):
        """The token in a stored block, an arena, and the tail of a context that was searched."""
        space = Space(dtype=F32, layers=2, kv_heads=4, k_dim=64, v_dim=64, block_tokens=256, run_tokens=128)
        number = c.open_space(space)
        size = space.bytes()
        self.assertEqual(size, 1 << 20)
        data = (TOKEN * (size // len(TOKEN) + 1))[:size]
        arena = c.arena(4 << 20)
        arena.map[:size] = data
        first = block_key(space, None, range(256))
        reply = c.call(PUT, message({1: number, 2: 1, 3: first, 6: region(arena.id, 0, size)}))
        self.assertEqual(reply.statuses(), [OK], reply.text)
        context = c.call(OPEN_CONTEXT, message({1: number, 2: first})).get(1)
        append = c.call(APPEND, message({1: context, 2: 256, 3: region(arena.id, 0, size)}))
        self.assertEqual(append.status, OK, append.text)
        queries = struct.pack("<f", 0.1) * (4 * space.k_dim)
        body = {1: [context], 2: [0], 3: 1, 4: 4, 5: region(0, 0, len(queries)), 7: message({1: 64}), 11: 1}
        reply = c.call(RETRIEVE, message(body), queries)
        self.assertEqual(reply.status, OK, reply.text)
        return arena

    def test_segments_and_arenas_are_marked(self):
        with self.daemon.connect() as c:
            arena = self.fill(c)
            shared = [m for m in mappings(self.daemon.process.pid) if m[0].startswith("/memfd:")]
            self.assertTrue(any("cairn-ram" in name for name, _, _ in shared))
            self.assertTrue(any("memfd:test" in name for name, _, _ in shared))
            self.assertEqual([m for m in shared if "dd" not in m[2]], [])
            own = sum(size for name, size, flags in mappings(self.daemon.process.pid) if not name and "dd" in flags)
            self.assertGreaterEqual(own, 1024, "the context's tail")
            arena.close()

    @unittest.skipIf(SLOW > 1, "a sanitizer's shadow is a very large dump")
    @unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
    def test_a_core_dump_holds_none_of_it(self):
        path = os.path.join(self.daemon.directory, "core")
        with self.daemon.connect() as c:
            arena = self.fill(c)
            result = subprocess.run(["gdb", "-q", "-batch", "-nx", "-p", str(self.daemon.process.pid), "-ex", f"generate-core-file {path}"],
                                    capture_output=True, text=True, timeout=120)
            if not os.path.exists(path):
                self.skipTest("gdb may not attach here: " + result.stderr[-200:])
            arena.close()
        with open(path, "rb") as core:
            data = core.read()
        self.assertGreater(len(data), 1 << 20)
        self.assertIn(b"cairn-ram", data + b"".join(m[0].encode() for m in mappings(self.daemon.process.pid)))
        self.assertEqual(data.count(TOKEN), 0)


if __name__ == "__main__":
    unittest.main()
