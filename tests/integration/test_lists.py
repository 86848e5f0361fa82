"""What operators look at: blocks, contexts, leases, the running configuration, and the short benchmark."""
import json
import shutil

from test_cairnctl_operate import CAIRNCTL, Case
from wire import *


def attention():
    return Space(layers=1, kv_heads=1)


class Blocks(Case):
    def fill(self, c, count=12, bytes_each=4096):
        space = c.open_space(Space.opaque(bytes_each))
        chain = [key("list", i) for i in range(count)]
        parent = b""
        for i, k in enumerate(chain):
            self.assertEqual(c.put(space, [k], pattern(bytes_each, i), parent).status, OK)
            parent = k
        return space, chain

    def listed(self, *arguments):
        return json.loads(self.ctl("--json", "blocks", *arguments))

    def test_every_block_once_with_its_place(self):
        self.start()
        with self.daemon.connect() as c:
            space, chain = self.fill(c)
            c.lookup(space, chain[:3], lease_ms=60000)
            answer = self.listed()
            self.assertIsNone(answer["after"])
            blocks = {b["key"]: b for b in answer["blocks"]}
            self.assertEqual(sorted(blocks), sorted(k.hex() for k in chain))
            for i, k in enumerate(chain):
                b = blocks[k.hex()]
                self.assertEqual(b["parent"], chain[i - 1].hex() if i else None)
                self.assertEqual(b["children"], int(i + 1 < len(chain)))
                self.assertEqual(b["holds"], int(i < 3))
                self.assertEqual(b["tenant"], os.getuid())
                self.assertGreaterEqual(b["ram_bytes"], 4096)
                self.assertEqual(b["expires_ms"], 0)
            text = self.ctl("blocks")
            self.assertEqual(len(text.splitlines()), 13)
            self.assertIn(chain[0].hex(), text)

    def test_filters(self):
        self.start()
        with self.daemon.connect() as c:
            space, chain = self.fill(c)
            other = c.open_space(Space.opaque(8192, model="other"))
            c.put(other, [key("other")], pattern(8192, "other"))
            c.lookup(space, chain[:2], lease_ms=60000)
            numbers_of = {s["model"]: s["space"] for s in json.loads(self.ctl("--json", "spaces"))["spaces"]}
            self.assertEqual(len(self.listed("--space", str(numbers_of["other"]))["blocks"]), 1)
            self.assertEqual(len(self.listed("--space", str(numbers_of["test"]))["blocks"]), 12)
            self.assertEqual({b["key"] for b in self.listed("--held")["blocks"]}, {k.hex() for k in chain[:2]})
            self.assertEqual(len(self.listed("--tenant", str(os.getuid()))["blocks"]), 13)
            self.assertEqual(self.listed("--tenant", "4242")["blocks"], [])
            self.assertEqual([b["key"] for b in self.listed("--key", chain[5].hex()[:10])["blocks"]], [chain[5].hex()])
            self.assertEqual(len(self.listed("--tier", "ram")["blocks"]), 13)
            self.assertEqual(self.ctl("blocks", "--key", "00" * 32), "no blocks\n")

    def test_tiers_say_where_the_copies_are(self):
        self.start()
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(4096))
            c.put(space, [key("durable")], pattern(4096, 1), fields={2: 1})
            b, = self.listed("--tier", "nvme")["blocks"]
            self.assertEqual((b["tiers"], b["unwritten"]), ("ram+nvme", False))
            self.assertGreaterEqual(b["nvme_bytes"], 4096)

    def test_pages(self):
        self.start()
        with self.daemon.connect() as c:
            self.fill(c, 40)
        seen, after = [], 0
        for _ in range(50):
            answer = self.listed("--max", "7", "--after", str(after))
            self.assertLessEqual(len(answer["blocks"]), 7)
            seen += [b["key"] for b in answer["blocks"]]
            after = answer["after"]
            if after is None:
                break
        self.assertEqual(len(seen), 40)
        self.assertEqual(len(set(seen)), 40)
        self.assertIn("there are more", subprocess.run([CAIRNCTL, "--socket", self.daemon.socket, "blocks", "--max", "7"],
                                                       capture_output=True, text=True).stderr)

    def test_bad_requests_are_refused_with_the_reason(self):
        self.start()
        with self.daemon.connect() as c:
            for body in ({8: b"x" * 33}, {1: 1 << 40}):
                reply = c.call(LIST_BLOCKS, message(body))
                self.assertEqual(reply.status, EINVAL)
                self.assertIn("ListBlocks", reply.text)
            self.fill(c, 3)
            reply = c.call(LIST_BLOCKS, message({2: 0xFFFFFFFF, 1: 2}))
            self.assertEqual((reply.status, len(reply.fields[2])), (OK, 1))
            self.assertEqual(c.call(LIST_BLOCKS, message({1: 0xFFFFFFFF})).fields.get(2, []), [])
        for arguments, said in ((["--tier", "tape"], "ram or nvme"), (["--key", "abc"], "even number"), (["--max", "-1"], "a number"),
                                (["--space", "4294967296"], "a number")):
            self.assertIn(said, self.ctl("blocks", *arguments, expected=2))
        self.assertIn("takes no --tier", self.ctl("leases", "--tier", "ram", expected=2))


class Holders(Case):
    def test_contexts(self):
        self.start()
        with self.daemon.connect() as c, self.daemon.connect() as d:
            s = attention()
            space = c.open_space(s)
            k = block_key(s, None, range(16))
            c.put(space, [k], pattern(s.bytes(), "context"))
            d_space = d.open_space(s)
            ids = [c.call(OPEN_CONTEXT, message({1: space, 2: k})).get(1) for _ in range(3)]
            ids.append(d.call(OPEN_CONTEXT, message({1: d_space, 2: k})).get(1))
            answer = json.loads(self.ctl("--json", "contexts"))
            self.assertEqual([x["context"] for x in answer["contexts"]], sorted(ids))
            for x in answer["contexts"]:
                self.assertEqual((x["tenant"], x["pid"], x["tokens"], x["blocks"], x["tail_tokens"], x["busy"]),
                                 (os.getuid(), os.getpid(), 16, 1, 0, False))
            page = json.loads(self.ctl("--json", "contexts", "--max", "3"))
            self.assertEqual([x["context"] for x in page["contexts"]], sorted(ids)[:3])
            rest = json.loads(self.ctl("--json", "contexts", "--after", str(page["after"])))
            self.assertEqual([x["context"] for x in rest["contexts"]], sorted(ids)[3:])
            self.assertEqual(len(self.ctl("contexts").splitlines()), 5)
        self.assertEqual(self.ctl("contexts"), "no contexts\n")

    def test_leases(self):
        self.start()
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(4096))
            keys = [key("lease", i) for i in range(5)]
            for i, k in enumerate(keys):
                c.put(space, [k], pattern(4096, i))
            long = c.lookup(space, keys, lease_ms=60000).get(2)
            short = c.lookup(space, keys[:2], lease_ms=30000).get(2)
            leases = {x["lease"]: x for x in json.loads(self.ctl("--json", "leases"))["leases"]}
            self.assertEqual(set(leases), {long, short})
            self.assertEqual((leases[long]["blocks"], leases[short]["blocks"]), (5, 2))
            self.assertEqual(leases[long]["first_key"], keys[0].hex())
            self.assertTrue(30000 < leases[long]["left_ms"] <= 60000)
            self.assertEqual(leases[short]["pid"], os.getpid())
            c.call(RELEASE, message({1: long}))
            self.assertEqual(len(json.loads(self.ctl("--json", "leases"))["leases"]), 1)
        self.assertEqual(json.loads(self.ctl("--json", "leases", "--tenant", "4242"))["leases"], [])

    def test_a_name_from_outside_cannot_steer_the_terminal(self):
        self.start()
        c = self.daemon.connect(hello=False)
        c.call(HELLO, message({1: 1, 2: 1, 4: "\x1b[2Jevil\n" + "x" * 200}))
        space = c.open_space(Space.opaque(4096))
        c.put(space, [key(1)], pattern(4096, 1))
        c.lookup(space, [key(1)], lease_ms=60000)
        text = self.ctl("leases")
        self.assertIn("?[2Jevil?", text)
        self.assertNotIn("\x1b", text)
        self.assertEqual(json.loads(self.ctl("--json", "leases"))["leases"][0]["client"], ("\x1b[2Jevil\n" + "x" * 200)[:63])
        c.close()


class Config(Case):
    def test_values_and_their_sources(self):
        path = os.path.join(self.directory, "c")
        with open(path, "w") as f:
            f.write("lease_max = 5s\n")
        self.start(config=path)
        answer = json.loads(self.ctl("--json", "config"))
        self.assertEqual(answer["file"], path)
        settings = answer["settings"]
        self.assertEqual(settings["lease_max"], {"value": "5s", "source": "file", "reloadable": True})
        self.assertEqual((settings["ram_bytes"]["value"], settings["ram_bytes"]["source"]), ("64MiB", "flag"))
        self.assertGreater(len(settings), 25)
        with open(path, "w") as f:
            f.write("lease_max = 7s\n")
        self.ctl("reload")
        self.assertIn("lease_max          = 7s ; from file, reload changes it", self.ctl("config", "lease"))
        self.assertIn("no key begins with nothing", self.ctl("config", "nothing", expected=1))

    def test_a_share_comes_with_what_it_is(self):
        self.start(nvme_bytes="1%")
        setting = json.loads(self.ctl("--json", "config", "nvme_bytes"))["settings"]["nvme_bytes"]
        self.assertEqual(setting["value"], "1%")
        self.assertGreater(setting["number"], 1 << 20)


class Bench(Case):
    def test_it_measures_and_leaves_no_blocks(self):
        self.start(ram_bytes="128MiB")
        steps = {s["step"]: s for s in json.loads(self.ctl("--json", "bench", "20"))["steps"]}
        self.assertEqual(list(steps), ["ping", "put", "lookup", "get", "put-durable"])
        for step in steps.values():
            self.assertGreaterEqual(step["calls"], 1)
            self.assertGreaterEqual(step["p99_us"], step["p50_us"])
        self.assertGreater(steps["get"]["bytes_per_second"], 1e6)
        self.assertEqual(json.loads(self.ctl("--json", "stats", "cairn_blocks"))["cairn_blocks"], 0)
        self.assertEqual(self.ctl("blocks"), "no blocks\n")
        for bad in ("5", "x", "60001"):
            self.assertIn("ms a step", self.ctl("bench", bad, expected=2))
        self.assertIn("GB/s", self.ctl("bench", "20"))

    def test_what_is_refused_is_said(self):
        self.start(ram_bytes="1MiB")
        text = self.ctl("bench", "20", expected=1)
        self.assertIn("cairnctl bench:", text)


class Others(Case):
    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, to become another user")
    def test_lists_are_for_operators(self):
        os.chmod(self.directory, 0o711)
        self.start()
        for command in ("blocks", "contexts", "leases", "config"):
            result = subprocess.run(["setpriv", "--reuid=65534", "--regid=0", "--clear-groups", "--bounding-set=-all", CAIRNCTL,
                                     "--socket", self.daemon.socket, command], capture_output=True, text=True)
            if "failed to execute" in result.stderr:
                self.skipTest("another user cannot reach the build folder")
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("CAIRN_EPERM", result.stderr)


del Case  # else its tests' base would be collected here too

if __name__ == "__main__":
    unittest.main()
