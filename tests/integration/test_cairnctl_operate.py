"""cairnctl for operators: top, doctor, reload, drain."""
import json
import shutil
import subprocess

from wire import *

CAIRNCTL = os.path.join(os.path.dirname(CAIRND), "cairnctl")


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.daemon = None

    def tearDown(self):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.stop()
        shutil.rmtree(self.directory)

    def start(self, **flags):
        self.daemon = Daemon(self.directory, **flags)
        return self.daemon

    def ctl(self, *arguments, expected=0):
        result = subprocess.run([CAIRNCTL, "--socket", os.path.join(self.directory, "s"), *arguments], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertEqual(result.returncode, expected, result.stdout + result.stderr)
        return result.stdout if expected == 0 else result.stderr + result.stdout


class Top(Case):
    def traffic(self, stop):
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(4096))
            c.put(space, [key("top")], pattern(4096, "top"))
            while not stop.is_set():
                c.lookup(space, [key("top"), key("absent")])
                c.get(space, [key("top")])

    def with_traffic(self, run):
        stop = threading.Event()
        worker = threading.Thread(target=self.traffic, args=(stop,))
        worker.start()
        try:
            time.sleep(0.3)
            return run()
        finally:
            stop.set()
            worker.join()

    def test_a_page_shows_what_goes_on(self):
        self.start()
        page = self.with_traffic(lambda: self.ctl("top", "500"))
        self.assertRegex(page, r"(?m)^ram   \[\.+\]")
        self.assertRegex(page, r"lookups +\d+ blocks/s,  50 % found")
        kinds = {line.split()[0]: line.split() for line in page.splitlines()[-6:]}
        self.assertGreater(int(kinds["Get"][1]), 10)
        self.assertRegex(" ".join(kinds["Get"][2:]), r"^[\d.]+ (us|ms) [\d.]+ (us|ms) 0$")

    def test_json_has_gauges_and_rates(self):
        self.start()
        answer = json.loads(self.with_traffic(lambda: self.ctl("--json", "top", "500")))
        self.assertGreater(answer["seconds"], 0.45)
        self.assertEqual(answer["now"]["cairn_blocks"], 1)
        self.assertGreater(answer["per_second"]['cairn_lookup_blocks_total{tier="ram"}'], 10)
        self.assertNotIn("cairn_blocks", answer["per_second"])

    @unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
    def test_live_in_a_terminal_until_q(self):
        self.start()
        tmux = ["tmux", "-L", f"cairn-test-{os.getpid()}"]
        env = dict(os.environ, TERM="xterm")
        subprocess.run([*tmux, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30",
                        f"{CAIRNCTL} --socket {self.directory}/s top 100; echo code $?; sleep 60"], check=True, env=env)
        try:
            def screen(wanted):
                end = time.monotonic() + 30 * SLOW
                while time.monotonic() < end:
                    text = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, env=env).stdout
                    if wanted in text:
                        return text
                    time.sleep(0.1)
                self.fail(f"no {wanted!r} on the screen:\n{text}")

            text = self.with_traffic(lambda: screen("Get "))
            self.assertIn("q: quit", text)
            self.assertIn("cairnd on", text.splitlines()[0])
            self.daemon.stop()  # the screen stays, and says what is wrong
            screen("no daemon answers")
            subprocess.run([*tmux, "send-keys", "q"], check=True, env=env)
            screen("code 0")
        finally:
            subprocess.run([*tmux, "kill-server"], env=env)

    def test_wrong_usage(self):
        self.start()
        for interval in ("5", "x", "1e9"):
            self.assertIn("interval", self.ctl("top", interval, expected=2))


class Doctor(Case):
    def test_it_measures_and_advises(self):
        self.start()
        answer = json.loads(self.ctl("--json", "doctor", self.directory))
        checks = {one["check"]: one for one in answer["checks"]}
        self.assertEqual(set(checks), {"kernel", "processor", "io_uring", "memlock", "descriptors", "huge pages", "O_DIRECT", "disk", "daemon"})
        self.assertIn(os.uname().release, checks["kernel"]["found"])
        self.assertRegex(checks["disk"]["found"], r"reads [\d.]+ GB/s, writes [\d.]+ GB/s")
        self.assertIn("0 blocks", checks["daemon"]["found"])
        for one in checks.values():
            self.assertIn(one["verdict"], ("ok", "slower", "bad"))
            self.assertEqual(one["verdict"] != "ok", one["advice"] != "" or one["check"] == "daemon" and one["verdict"] == "slower", one)
        self.assertEqual(os.listdir(self.directory).count("data"), 1)

    def test_without_a_daemon_and_without_a_directory(self):
        answer = json.loads(self.ctl("--json", "doctor", "/nonexistent", expected=1))
        verdicts = {one["check"]: one["verdict"] for one in answer["checks"]}
        self.assertEqual((verdicts["O_DIRECT"], verdicts["disk"], verdicts["daemon"]), ("bad", "bad", "slower"))

    def test_break_even(self):
        slow = json.loads(self.ctl("--json", "doctor", self.directory, "--model-bytes-per-token", "1000", "--prefill-rate", "10"))
        self.assertTrue(slow["break_even"]["load_from_disk"])
        fast = json.loads(self.ctl("--json", "doctor", self.directory, "--model-bytes-per-token", "1e9", "--prefill-rate", "1e6"))
        self.assertFalse(fast["break_even"]["load_from_ram"])
        self.assertIn("recomputing beats loading", self.ctl("doctor", self.directory, "--model-bytes-per-token", "1e9", "--prefill-rate", "1e6"))
        self.assertIn("go together", self.ctl("doctor", "--prefill-rate", "5", expected=2))
        self.assertIn("above zero", self.ctl("doctor", "--prefill-rate", "-5", expected=2))


class Operate(Case):
    def test_reload(self):
        path = os.path.join(self.directory, "c")
        with open(path, "w") as f:
            f.write("lease_max = 5s\n")
        self.start(config=path)
        self.assertEqual(self.ctl("reload"), "nothing changed\n")
        with open(path, "w") as f:
            f.write("lease_max = 6s\nqueue_depth = 3\n")
        self.assertEqual(json.loads(self.ctl("--json", "reload"))["reload"], "changed: lease_max; need a restart: queue_depth")
        with open(path, "w") as f:
            f.write("lease_mux = 6s\n")
        self.assertIn('did you mean "lease_max"?', self.ctl("reload", expected=1))

    def test_drain_writes_back_and_stops(self):
        self.start()
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(65536))
            keys = [key("drain", i) for i in range(32)]
            for i, k in enumerate(keys):
                c.put(space, [k], pattern(65536, i))
        self.ctl("drain", "20000")
        self.daemon.process.wait(30 * SLOW)
        self.assertEqual(self.daemon.process.returncode, 0)
        self.assertIn("no daemon", self.ctl("ping", expected=3))
        self.daemon.reader.join()
        self.daemon.start()
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(65536))
            self.assertEqual(c.lookup(space, keys[:1]).get(1), 1)
            self.assertEqual(c.stats()["cairn_blocks"], 32)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, to become another user")
    def test_others_are_refused(self):
        os.chmod(self.directory, 0o711)
        self.start()
        for command in (["reload"], ["drain"]):
            result = subprocess.run(["setpriv", "--reuid=65534", "--regid=0", "--clear-groups", "--bounding-set=-all", CAIRNCTL,
                                     "--socket", os.path.join(self.directory, "s"), *command], capture_output=True, text=True)
            if "failed to execute" in result.stderr:
                self.skipTest("another user cannot reach the build folder")
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("CAIRN_EPERM", result.stderr)


if __name__ == "__main__":
    unittest.main()
