"""Run as a service: metrics over HTTP, reload, watchdog, socket activation, who may connect, logs."""
import http.client
import json
import shutil
import signal
import sys

from wire import *


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30 * SLOW)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30 * SLOW)
        self.sock.connect(self.path)


def http_get(path, url, method="GET"):
    """(status, text) of one request to a Unix socket, or a TCP port."""
    connection = UnixHttp(path) if isinstance(path, str) else http.client.HTTPConnection("127.0.0.1", path, timeout=30)
    connection.request(method, url)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def samples(text):
    out = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name] = float(value)
    return out


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, condition):
    end = time.monotonic() + 30 * SLOW
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within the time: {what}")
        time.sleep(0.02)


class Metrics(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.address = os.path.join(self.directory, "metrics")

    def tearDown(self):
        shutil.rmtree(self.directory)

    def test_case_39_a_scripted_run_has_exact_numbers(self):
        daemon = Daemon(self.directory, metrics_address=self.address)
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(4096))
            keys = [key("metrics", i) for i in range(8)]
            self.assertEqual(c.put(space, keys[:6], pattern(6 * 4096, "m")).statuses(), [OK] * 6)
            self.assertEqual(c.put(space, keys[:2], pattern(2 * 4096, "m")).statuses(), [EEXIST] * 2)
            self.assertEqual(c.lookup(space, keys).get(1), 6)
            self.assertEqual(c.get(space, [keys[0], keys[5], keys[7]]).statuses(), [OK, OK, ENOENT])
        wait_for("the connection to end", lambda: samples(http_get(self.address, "/metrics")[1])["cairn_connections"] == 0)
        status, text = http_get(self.address, "/metrics")
        self.assertEqual(status, 200)
        got = samples(text)
        exact = {
            'cairn_put_blocks_total{status="CAIRN_OK"}': 6,
            'cairn_put_blocks_total{status="CAIRN_EEXIST"}': 2,
            'cairn_get_blocks_total{status="CAIRN_OK"}': 2,
            'cairn_get_blocks_total{status="CAIRN_ENOENT"}': 1,
            'cairn_lookup_blocks_total{tier="ram"}': 6,
            'cairn_lookup_blocks_total{tier="none"}': 2,
            "cairn_put_bytes_total": 6 * 4096,
            "cairn_get_bytes_total": 2 * 4096,
            "cairn_blocks": 6,
            "cairn_connections_total": 1,
            'cairn_requests_total{kind="Put"}': 2,
            'cairn_requests_total{kind="Get"}': 1,
            'cairn_request_duration_seconds_count{kind="Put"}': 2,
            'cairn_request_duration_seconds_bucket{kind="Put",le="+Inf"}': 2,
            "cairn_connections": 0, "cairn_requests_inflight": 0, "cairn_requests_bytes": 0, "cairn_leases": 0,
            "cairn_arenas": 0, "cairn_holds": 0, "cairn_contexts": 0,
        }
        self.assertEqual({name: got.get(name) for name in exact}, exact)
        space_blocks = [value for name, value in got.items() if name.startswith("cairn_space_blocks")]
        self.assertEqual(space_blocks, [6])
        for k in keys:
            self.assertNotIn(k.hex(), text)
        daemon.stop()
        self.assertFalse(os.path.exists(self.address))

    @unittest.skipUnless(shutil.which("promtool"), "promtool (Debian's prometheus) is not installed")
    def test_promtool_finds_nothing_to_complain_about(self):
        daemon = Daemon(self.directory, metrics_address=self.address)
        with daemon.connect() as c:
            space = c.open_space(Space.opaque(4096, model='a "quoted\\ model\n'))
            c.put(space, [key("p")], pattern(4096, "p"))
            c.get(space, [key("p")])
            c.lookup(space, [key("p")])
            text = http_get(self.address, "/metrics")[1]
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        daemon.stop()

    def test_histograms_are_cumulative(self):
        daemon = Daemon(self.directory, metrics_address=self.address)
        with daemon.connect() as c:
            for _ in range(50):
                c.call(PING)
            got = samples(http_get(self.address, "/metrics")[1])
        buckets = [(float(name.split('le="')[1][:-2]), value) for name, value in got.items()
                   if name.startswith('cairn_request_duration_seconds_bucket{kind="Ping"')]
        self.assertEqual(len(buckets), 20)
        self.assertEqual([v for _, v in buckets], sorted(v for _, v in buckets))
        self.assertEqual([b for b, _ in buckets], sorted(b for b, _ in buckets))
        self.assertEqual(buckets[-1][1], 50)
        self.assertGreater(got['cairn_request_duration_seconds_sum{kind="Ping"}'], 0)
        daemon.stop()

    def test_tcp_on_loopback_and_its_pages(self):
        port = free_port()
        daemon = Daemon(self.directory, metrics_address=f"127.0.0.1:{port}")
        self.assertEqual(http_get(port, "/ready"), (200, "ready\n"))
        self.assertEqual(http_get(port, "/live"), (200, "live\n"))
        self.assertEqual(http_get(port, "/")[0], 404)
        self.assertEqual(http_get(port, "/metrics", "DELETE")[0], 405)
        self.assertFalse(daemon.log("readable from other machines"))
        self.assertEqual(subprocess.run([CAIRND, f"--metrics-address=127.0.0.1:{port}", f"--socket={self.directory}/t",
                                         f"--data-dir={self.directory}/other", "--ram-bytes=8MiB", "--nvme-bytes=0"],
                                        capture_output=True).returncode, 1)
        daemon.stop()

    def test_addresses_that_are_none(self):
        for address in ("9464", "127.0.0.1", "example.org:80", "127.0.0.1:0", "127.0.0.1:65536", "[::1:80", "/" + "a" * 108):
            result = subprocess.run([CAIRND, "--check-config", "--metrics-address", address], capture_output=True, text=True)
            self.assertEqual(result.returncode, 78, address)
            self.assertIn("metrics_address", result.stderr)

    def test_hostile_http(self):
        daemon = Daemon(self.directory, metrics_address=self.address)
        idle = []
        for data in (b"", b"\0" * 1000, b"GET " + b"a" * 100000, b"GET /metrics HTTP/9.9\r\n\r\n", b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"):
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.address)
            try:
                s.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            idle.append(s)
        self.assertEqual(http_get(self.address, "/metrics")[0], 200)
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        for s in idle:
            s.close()
        daemon.stop()


class Reload(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.file = os.path.join(self.directory, "cairn.conf")
        self.write("lease_max = 5s\n")
        self.daemon = Daemon(self.directory, config=self.file)

    def tearDown(self):
        self.daemon.stop()
        shutil.rmtree(self.directory)

    def write(self, text):
        with open(self.file, "w") as f:
            f.write("[cairnd]\n" + text)

    def reload(self):
        before = len(self.daemon.log("reload:"))
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_for("the reload", lambda: len(self.daemon.log("reload:")) > before)
        return self.daemon.log("reload:")[-1]

    def lease_max(self):
        with self.daemon.connect(hello=False) as c:
            return c.call(HELLO, message({1: 1, 2: 1, 4: "test"})).get(9)

    def test_sighup_applies_what_may_change_and_names_the_rest(self):
        self.assertEqual(self.lease_max(), 5000)
        self.write("lease_max = 7s\nqueue_depth = 9\nlog_level = debug\n")
        line = self.reload()
        self.assertIn("changed: lease_max, log_level", line)
        self.assertIn("need a restart: queue_depth", line)
        self.assertEqual(self.lease_max(), 7000)
        self.assertIn("nothing changed; need a restart: queue_depth", self.reload())

    def test_a_wrong_file_changes_nothing(self):
        self.write("lease_max = 8s\nlease_mux = 9s\n")
        self.assertIn('did you mean "lease_max"?', self.reload())
        self.assertEqual(self.lease_max(), 5000)
        with self.daemon.connect() as c:
            reply = c.call(RELOAD)
            self.assertEqual(reply.status, EINVAL)
            self.assertIn("lease_mux", reply.text)

    def test_reload_request_answers_what_changed(self):
        self.write("lease_max = 6s\n")
        with self.daemon.connect() as c:
            reply = c.call(RELOAD)
            self.assertEqual(reply.status, OK)
            self.assertEqual(reply.fields[1][0], b"changed: lease_max")
        self.assertEqual(self.lease_max(), 6000)

    def test_flags_stay_above_the_file(self):
        self.write("lease_max = 5s\nram_bytes = 1GiB\n")
        self.assertIn("nothing changed", self.reload())

    def test_access_changes_while_running(self):
        with self.daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        self.write("lease_max = 5s\nallowed_uids = 4242\n")
        self.assertIn("changed: allowed_uids", self.reload())
        with self.daemon.connect() as c:  # its own user always may
            self.assertEqual(c.call(PING).status, OK)


class ServiceManager(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(os.path.join(self.directory, "notify"))
        self.notify.settimeout(30 * SLOW)

    def tearDown(self):
        self.notify.close()
        shutil.rmtree(self.directory)

    def launch(self, command, **environment):
        flags = [f"--socket={self.directory}/s", f"--data-dir={self.directory}/d", "--ram-bytes=8MiB", "--nvme-bytes=64MiB"]
        return subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True,
                                env=dict(os.environ, NOTIFY_SOCKET=f"{self.directory}/notify", **environment))

    def until(self, text):
        while True:
            got = self.notify.recv(4096).decode()
            if text in got:
                return got

    def test_watchdog_is_fed_by_the_loop(self):
        process = self.launch([CAIRND], WATCHDOG_USEC="200000")
        self.until("READY=1")
        begun = time.monotonic()
        for _ in range(5):
            self.until("WATCHDOG=1")
        self.assertLess(time.monotonic() - begun, 2 * SLOW)
        process.send_signal(signal.SIGSTOP)  # a daemon that hangs feeds nothing
        try:
            self.notify.settimeout(0.5)
            with self.assertRaises(TimeoutError):
                for _ in range(20):
                    self.notify.recv(4096)
        finally:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            process.communicate()

    def test_reload_is_announced(self):
        process = self.launch([CAIRND])
        self.until("READY=1")
        process.send_signal(signal.SIGHUP)
        self.assertIn("MONOTONIC_USEC=", self.until("RELOADING=1"))
        self.until("READY=1")
        process.send_signal(signal.SIGTERM)
        self.until("STOPPING=1")
        process.communicate()
        self.assertEqual(process.returncode, 0)

    @unittest.skipUnless(shutil.which("systemd-socket-activate"), "systemd-socket-activate is not installed")
    def test_socket_activation(self):
        path = os.path.join(self.directory, "activated")
        process = self.launch(["systemd-socket-activate", f"--listen={path}", "--setenv=NOTIFY_SOCKET", CAIRND])
        wait_for("the socket", lambda: os.path.exists(path))
        time.sleep(0.2)
        self.assertFalse(os.path.exists(f"{self.directory}/d"), "the daemon starts on the first connection")
        with Connection(path) as c:
            self.assertEqual(c.call(PING).status, OK)
        self.assertFalse(os.path.exists(f"{self.directory}/s"), "no second socket is made")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("the socket comes from systemd", errors)
        self.assertIn("another path than the configured", errors)
        self.assertTrue(os.path.exists(path), "systemd's socket stays")

    def test_a_descriptor_that_is_no_listener_is_refused(self):
        code = ("import os, sys; os.dup2(os.open('/dev/null', os.O_RDONLY), 3); "
                "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[1], sys.argv[1:])")
        process = self.launch([sys.executable, "-c", code, CAIRND])
        _, errors = process.communicate(timeout=60 * SLOW)
        self.assertEqual(process.returncode, 1)
        self.assertIn("no listening Unix socket", errors)

    def test_drain_request_stops_like_sigterm(self):
        process = self.launch([CAIRND])
        self.until("READY=1")
        with Connection(f"{self.directory}/s") as c:
            self.assertEqual(c.call(DRAIN, message({1: 3000})).status, OK)
        _, errors = process.communicate(timeout=60 * SLOW)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("stopping within 3000 ms", errors)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become another user")
class Access(unittest.TestCase):
    """Case 44: a foreign uid, by what the kernel says of the peer."""
    USER = 65534

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        os.chmod(self.directory, 0o711)

    def tearDown(self):
        shutil.rmtree(self.directory)

    def ask(self, kind, uid, groups=(0,)):
        """Status and text of one request from a process of that user; groups[0] is the first."""
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(groups)
                os.setgid(groups[0])
                os.setuid(uid)
                c = Connection(os.path.join(self.directory, "s"), hello=False)
                reply = c.call(HELLO, message({1: 1, 2: 1, 4: "test"}))if kind != HELLO else None
                if reply is None or reply.status == OK:
                    reply = c.call(kind, message({1: 1, 2: 1}) if kind == HELLO else b"")
                os.write(into, json.dumps([reply.status, reply.text]).encode())
            except BaseException as error:
                os.write(into, json.dumps([type(error).__name__, str(error)]).encode())
            os._exit(0)
        os.close(into)
        answer = b"".join(iter(lambda: os.read(out, 4096), b""))
        os.close(out)
        os.waitpid(child, 0)
        return json.loads(answer)

    def first(self, uid, groups=(0,)):
        """What a peer that only listens is told: the daemon speaks first when it turns one away."""
        script = ("import os,socket,sys; os.setgroups({g}); os.setgid({g}[0]); os.setuid({u}); "
                  "s=socket.socket(socket.AF_UNIX); s.connect({p!r}); s.settimeout(20); sys.stdout.buffer.write(s.recv(4096))"
                  ).format(g=list(groups), u=uid, p=os.path.join(self.directory, "s"))
        data = subprocess.run([sys.executable, "-c", script], capture_output=True).stdout
        return HEADER.unpack(data[:HEADER.size])[4], data[HEADER.size:]

    def test_case_44_a_foreign_uid_is_refused(self):
        daemon = Daemon(self.directory, allowed_uids="4242, root")
        status, text = self.first(self.USER)
        self.assertEqual(status, EPERM)
        self.assertIn(b"allowed_uids", text)
        self.assertEqual(self.ask(PING, 4242)[0], OK)
        self.assertEqual(self.ask(PING, 0)[0], OK)
        with daemon.connect() as c:
            self.assertEqual(c.stats()["cairn_connections_refused_total"], 1)
        self.assertTrue(daemon.log("turned a connection of uid 65534 away"))
        daemon.stop()

    def test_groups_let_in_by_any_of_them(self):
        daemon = Daemon(self.directory, allowed_gids="777")
        self.assertEqual(self.ask(PING, self.USER, (0, 777))[0], OK)
        self.assertEqual(self.first(self.USER, (0, 778))[0], EPERM)
        daemon.stop()

    def test_operator_calls_are_for_operators(self):
        daemon = Daemon(self.directory, operator_gids="777")
        for kind in (RELOAD, AUDIT, VERIFY, SET_QUOTA, DRAIN):
            status, text = self.ask(kind, self.USER)
            self.assertEqual(status, EPERM, kind)
            self.assertIn("operator_gids", text)
        self.assertEqual(self.ask(STATS, self.USER)[0], OK)
        self.assertEqual(self.ask(RELOAD, self.USER, (0, 777))[0], OK)
        self.assertEqual(self.ask(RELOAD, 0)[0], OK)
        daemon.stop()

    def test_names_that_nobody_has(self):
        result = subprocess.run([CAIRND, "--check-config", "--allowed-uids=no-such-user"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 78)
        self.assertIn('no user "no-such-user"', result.stderr)


class Logs(unittest.TestCase):
    def test_json_lines(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        process = subprocess.Popen([CAIRND, f"--socket={directory}/s", f"--data-dir={directory}/d", "--ram-bytes=8MiB",
                                    "--nvme-bytes=64MiB", "--log-format=json", "--slow-request=1ms"],
                                   stderr=subprocess.PIPE, text=True)
        first = [json.loads(process.stderr.readline()) for _ in range(2)]
        self.assertIn("ready on", first[-1]["message"])
        self.assertRegex(first[-1]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(first[-1]["level"], "info")
        with Connection(f"{directory}/s") as c:  # a put that waits for the disk is slower than 1 ms
            space = c.open_space(Space.opaque(1 << 20))
            for i in range(20):
                c.put(space, [key("slow", i)], pattern(1 << 20, i), fields={2: 1})
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate()
        lines = [json.loads(line) for line in rest.splitlines()]
        slow = [line for line in lines if line["message"].startswith("slow: Put")]
        self.assertTrue(slow)
        self.assertRegex(slow[0]["message"], rf"of tenant {os.geteuid()} took \d+ ms")
        shutil.rmtree(directory)


if __name__ == "__main__":
    unittest.main()
