"""Trace ids of requests in the log, journald's fields, and the static probes of the built daemon."""
import json
import re
import shutil
import sys

from test_operate import wait_for
from wire import *

TRACE = 2047
ID, SPAN = bytes(range(1, 17)), bytes(range(0x21, 0x29))
JOURNAL = "/run/systemd/journal/socket"
PROBES = {"request__start", "request__end", "lookup", "put", "get", "retrieve", "io__submit", "io__complete", "remove", "ram__drop"}


class Traces(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.daemon = None

    def tearDown(self):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.stop()
        shutil.rmtree(self.directory)

    def start(self, **flags):
        self.daemon = Daemon(self.directory, log_level="debug", **flags)

    def line_of(self, text):
        wait_for(text, lambda: self.daemon.log(text))
        return next(line for line in self.daemon.lines if text in line)

    def test_failures_and_slow_requests_name_their_trace(self):
        self.start(slow_request="1ms")
        with self.daemon.connect() as c:
            reply = c.call(LOOKUP, message({1: 77, TRACE: ID + SPAN}))
            self.assertEqual(reply.status < 0, True)
            line = self.line_of("failed: Lookup")
            self.assertIn("CAIRN_E", line)
            self.assertTrue(line.endswith(f" trace_id={ID.hex()} span_id={SPAN.hex()}"), line)
            space = c.open_space(Space.opaque(4 << 20))
            arena = c.arena(64 << 20)
            body = {1: space, 2: 1, 3: b"".join(key("slow", i) for i in range(8)), 6: region(arena.id, 0, 32 << 20), TRACE: ID + SPAN}
            self.assertEqual(c.call(PUT, message(body)).statuses(), [OK] * 8)
            arena.close()
        line = self.line_of("slow: Put")
        self.assertIn(f"trace_id={ID.hex()} span_id={SPAN.hex()}", line)

    def test_json_has_the_facts_as_members(self):
        self.start(log_format="json")
        with self.daemon.connect() as c:
            c.call(LOOKUP, message({1: 77, TRACE: ID + SPAN}))
            c.call(GET, message({1: 78}))
        traced = json.loads(self.line_of("failed: Lookup"))
        self.assertEqual((traced["kind"], traced["trace_id"], traced["span_id"], traced["tenant"]),
                         ("Lookup", ID.hex(), SPAN.hex(), str(os.getuid())))
        self.assertRegex(traced["status"], "^CAIRN_E")
        self.assertGreater(float(traced["duration_ms"]), 0)
        self.assertNotIn("trace_id", json.loads(self.line_of("failed: Get")))

    def test_any_request_may_carry_one_and_odd_ones_are_skipped(self):
        self.start()
        with self.daemon.connect() as c:
            for body in ({TRACE: ID + SPAN}, {TRACE: b""}, {TRACE: b"x" * 23}, {TRACE: b"x" * 1000}, {TRACE: 5}, {TRACE: bytes(24)}):
                self.assertEqual(c.call(PING, message(body)).status, OK)
            twice = message({TRACE: ID + SPAN}) + message({TRACE: SPAN + ID})
            self.assertEqual(c.call(PING, twice).status, OK)

    def test_the_python_client_sets_it(self):
        self.start()
        script = ("import sys, cairn\n"
                  "client = cairn.Client(sys.argv[1])\n"
                  f"client.trace('00-{ID.hex()}-{SPAN.hex()}-01')\n"
                  "client.ping()\n"
                  "try:\n    client.open_space(cairn.SpaceConfig(model='', layers=1, kv_heads=1, k_dim=64, v_dim=64))\n"
                  "except cairn.Error: pass\n"
                  "client.trace(None)\n"
                  "try: client.trace('00-nonsense')\n"
                  "except cairn.Error as error: print(error)\n"
                  "else: print('taken')\n")
        result = subprocess.run([sys.executable, "-c", script, self.daemon.socket], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is no traceparent", result.stdout)


@unittest.skipUnless(os.geteuid() == 0 and not os.path.exists(JOURNAL), "needs root, and no journald of the machine's own")
class Journal(unittest.TestCase):
    def test_entries_carry_fields(self):
        made = not os.path.exists(os.path.dirname(JOURNAL))
        os.makedirs(os.path.dirname(JOURNAL), exist_ok=True)
        journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        journal.bind(JOURNAL)
        journal.settimeout(30 * SLOW)
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        reader, writer = os.pipe()
        info = os.fstat(writer)
        process = subprocess.Popen(
            [CAIRND, "--socket", os.path.join(directory, "s"), "--data-dir", os.path.join(directory, "d"), "--ram-bytes", "8MiB",
             "--nvme-bytes", "64MiB", "--log-level", "debug"], env=dict(os.environ, JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}"), stderr=writer)
        os.close(writer)
        try:
            def entry(wanted):
                while True:
                    fields_of = dict(line.split("=", 1) for line in journal.recv(65536).decode().splitlines() if "=" in line)
                    if wanted in fields_of["MESSAGE"]:
                        return fields_of
            self.assertEqual(entry("ready on")["SYSLOG_IDENTIFIER"], "cairnd")
            with Connection(os.path.join(directory, "s")) as c:
                c.call(LOOKUP, message({1: 77, TRACE: ID + SPAN}))
            got = entry("failed: Lookup")
            self.assertEqual((got["PRIORITY"], got["CAIRN_KIND"], got["CAIRN_TRACE_ID"], got["CAIRN_SPAN_ID"], got["CAIRN_TENANT"]),
                             ("7", "Lookup", ID.hex(), SPAN.hex(), str(os.getuid())))
        finally:
            process.terminate()
            process.wait(30 * SLOW)
            journal.close()
            os.unlink(JOURNAL)
            if made:
                os.rmdir(os.path.dirname(JOURNAL))
            shutil.rmtree(directory)
        self.assertEqual(os.read(reader, 4096), b"", "nothing went to stderr as well")
        os.close(reader)


class Probes(unittest.TestCase):
    def notes(self):
        return subprocess.run(["readelf", "-n", "-W", CAIRND], capture_output=True, text=True, check=True).stdout

    def test_the_built_daemon_has_them(self):
        if not any(os.path.exists(os.path.join(d, "sys/sdt.h")) for d in ("/usr/include", "/usr/include/x86_64-linux-gnu")):
            self.skipTest("systemtap-sdt-dev is not installed")
        found = set(re.findall(r"Provider: cairn\s+Name: (\w+)", self.notes()))
        self.assertEqual(found, PROBES)

    def test_the_list_names_them(self):
        with open(os.path.join(ROOT, "daemon/PROBES.md")) as page:
            self.assertEqual(set(re.findall(r"^\| `(\w+)` \|", page.read(), re.M)), PROBES)


if __name__ == "__main__":
    unittest.main()
