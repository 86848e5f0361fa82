"""Starting and stopping: sockets, stale and live, configuration, signals, kill -9."""
import os
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

from wire import *


def run(*flags, **more):
    return subprocess.run([CAIRND, *flags], capture_output=True, text=True, timeout=60 * SLOW, **more)


def numbers(text):
    """The set that the kernel writes as 0-3,8."""
    ranges = [[int(n) for n in (part.split("-") * 2)[:2]] for part in text.strip().split(",")]
    return {n for first, last in ranges for n in range(first, last + 1)}


NUMA = unittest.skipUnless(os.path.exists("/sys/devices/system/node/node0/cpulist"), "a kernel without memory nodes")


class Sockets(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")

    def tearDown(self):
        shutil.rmtree(self.directory)

    def path_of(self, size):
        base = os.path.join(self.directory, "")
        return base + "s" * (size - len(base))

    def test_case_27_socket_paths(self):
        daemon = Daemon(self.directory, socket=self.path_of(107))
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        daemon.stop()
        for size in (108, 109, 200):
            result = run("--socket", self.path_of(size), "--data-dir", os.path.join(self.directory, "data"))
            self.assertEqual(result.returncode, 78)
            self.assertIn("107", result.stderr)
            self.assertFalse(os.path.exists(self.path_of(107)), "nothing is left behind")

    def test_case_27_a_stale_socket_is_replaced(self):
        daemon = Daemon(self.directory)
        daemon.kill()
        self.assertTrue(os.path.exists(daemon.socket))
        daemon.start()
        self.assertTrue(daemon.log("stale"))
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        daemon.stop()
        self.assertFalse(os.path.exists(daemon.socket))

    def test_case_27_a_live_socket_is_left_alone(self):
        daemon = Daemon(self.directory)
        other = run("--socket", daemon.socket, "--data-dir", os.path.join(self.directory, "other"))
        self.assertEqual(other.returncode, 1)
        self.assertIn("another daemon listens", other.stderr)
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        daemon.stop()

    def test_case_27_a_second_daemon_on_the_directory_is_refused(self):
        daemon = Daemon(self.directory)
        other = run("--socket", os.path.join(self.directory, "t"), "--data-dir", os.path.join(self.directory, "data"))
        self.assertEqual(other.returncode, 1)
        self.assertIn(";", other.stderr)
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        daemon.stop()

    def test_what_is_no_socket_is_left_alone(self):
        path = os.path.join(self.directory, "file")
        with open(path, "w") as f:
            f.write("precious")
        other = run("--socket", path, "--data-dir", os.path.join(self.directory, "data"))
        self.assertEqual(other.returncode, 1)
        with open(path) as f:
            self.assertEqual(f.read(), "precious")

    def test_modes(self):
        daemon = Daemon(self.directory)
        self.assertEqual(stat.S_IMODE(os.stat(daemon.socket).st_mode), 0o660)
        for root, _, files in os.walk(os.path.join(self.directory, "data")):
            for name in files:
                self.assertEqual(os.stat(os.path.join(root, name)).st_mode & 0o077, 0, name)
        daemon.stop()

    def test_a_new_socket_of_another_daemon_is_not_removed(self):
        daemon = Daemon(self.directory)
        os.unlink(daemon.socket)
        with open(daemon.socket, "w") as f:
            f.write("another's")
        daemon.stop()
        with open(daemon.socket) as f:
            self.assertEqual(f.read(), "another's")


class Stopping(unittest.TestCase):
    def test_sigterm_ends_with_workers_connected(self):
        daemon = Daemon()
        c = daemon.connect()
        number = c.open_space(Space.opaque(65536))
        keys = [key("stop", i) for i in range(16)]
        c.put(number, keys, b"".join(pattern(65536, k) for k in keys))
        c.lookup(number, keys, 60000)
        begin = time.monotonic()
        daemon.stop()
        self.assertLess(time.monotonic() - begin, 12 * SLOW)
        self.assertTrue(c.ended())
        c.close()

    def test_sigterm_keeps_what_was_acknowledged(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        daemon = Daemon(directory)
        keys = [key("kept", i) for i in range(32)]
        with daemon.connect() as c:
            number = c.open_space(Space.opaque(65536))
            c.put(number, keys[:16], b"".join(pattern(65536, k) for k in keys[:16]))
            c.put(number, keys[16:], b"".join(pattern(65536, k) for k in keys[16:]))
            incarnation = c.incarnation
        daemon.stop()
        daemon.start()
        with daemon.connect() as c:
            self.assertNotEqual(c.incarnation, incarnation)
            number = c.open_space(Space.opaque(65536))
            self.assertEqual(c.lookup(number, keys).get(1), 32)
            for k in keys:
                reply = c.get(number, [k])
                self.assertEqual((reply.statuses(), reply.payload), ([OK], pattern(65536, k)))
        daemon.stop()
        shutil.rmtree(directory)

    def test_kill_9_keeps_what_was_acknowledged_on_disk(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        daemon = Daemon(directory)
        space = Space()
        keys = [key("disk", i) for i in range(24)]
        with daemon.connect() as c:
            number = c.open_space(space)
            blocks = [pattern(space.bytes(), k) for k in keys]
            reply = c.put(number, keys, b"".join(blocks), fields={2: 1})
            self.assertEqual(reply.statuses(), [OK] * 24)
        daemon.kill()
        daemon.start()
        with daemon.connect() as c:
            reply = c.call(LIST_SPACES)
            listed = fields(reply.fields[1][0])
            self.assertEqual(listed[2][0], space.fingerprint())
            self.assertEqual(listed[4][0], 24)
            number = c.open_space(space)
            self.assertEqual(c.lookup(number, keys).get(1), 24)
            reply = c.get(number, keys)
            self.assertEqual(reply.statuses(), [OK] * 24)
            self.assertEqual(reply.payload, b"".join(blocks))
            reply = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(keys)}))
            self.assertEqual((reply.status, reply.get(2)), (OK, 24 * 16))
        daemon.stop()
        shutil.rmtree(directory)

    def test_requests_under_way_end_before_the_daemon(self):
        daemon = Daemon()
        c = daemon.connect()
        space = Space.opaque(1 << 20)
        number = c.open_space(space)
        ids = [c.send(PUT, message({1: number, 3: key("end", i)}), pattern(1 << 20, i)) for i in range(20)]
        c.wait(ids[0])
        daemon.process.send_signal(signal.SIGTERM)
        statuses = []
        try:
            for i in ids[1:]:
                reply = c.wait(i)
                statuses.append(reply.status or reply.statuses()[0])
        except (EOFError, ConnectionResetError):
            pass  # closed, perhaps with frames that it had not read yet
        self.assertTrue(set(statuses) <= {OK, ECANCELLED}, statuses)
        self.assertEqual(daemon.process.wait(20 * SLOW), 0)
        c.close()
        daemon.stop()

    def test_a_second_sigterm_ends_at_once(self):
        daemon = Daemon(stop_timeout="60s")
        c = daemon.connect()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(10 * SLOW)
        self.assertIn(daemon.process.returncode, (0, 1))
        daemon.reader.join()
        c.close()
        shutil.rmtree(daemon.directory)

    def test_notify(self):
        directory = tempfile.mkdtemp(prefix="cairn-test-")
        path = os.path.join(directory, "notify")
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(path)
        notify.settimeout(60 * SLOW)
        process = subprocess.Popen(
            [CAIRND, "--socket", os.path.join(directory, "s"), "--data-dir", os.path.join(directory, "d"),
             "--ram-bytes", "8MiB", "--nvme-bytes", "64MiB"],
            env=dict(os.environ, NOTIFY_SOCKET=path, JOURNAL_STREAM="1:2"), stderr=subprocess.PIPE)
        self.assertIn(b"READY=1", notify.recv(4096))
        process.send_signal(signal.SIGTERM)
        self.assertIn(b"STOPPING=1", notify.recv(4096))
        _, errors = process.communicate(timeout=60 * SLOW)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(all(line.startswith(b"<") for line in errors.splitlines()), errors)
        notify.close()
        shutil.rmtree(directory)


class Configuration(unittest.TestCase):
    def scorers_of(self, pid):
        """Where its scorers may run, as the kernel says."""
        places = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status") as status:
                fields = {name: value for name, _, value in (line.strip().partition(":\t") for line in status)}
            if fields["Name"] == "scorer":
                places.append(fields["Cpus_allowed_list"])
        return places

    def test_scorers_run_where_they_are_told_to(self):
        allowed = sorted(os.sched_getaffinity(0))
        daemon = Daemon(scorers="3", scorer_cpus=",".join(map(str, allowed[:2])))
        self.addCleanup(daemon.stop)
        end = time.monotonic() + 10 * SLOW
        places = []
        while len(places) < 3 and time.monotonic() < end:  # a thread names itself once it runs
            places = self.scorers_of(daemon.process.pid)
        self.assertEqual(sorted(places), sorted(str(allowed[:2][i % len(allowed[:2])]) for i in range(3)))
        text = run("--dump-config", "--scorer-cpus", "0,5-7").stdout
        self.assertIn("scorers = auto ; 4 ", text, "one each")
        for wrong in ("0,0", "3-1", "a", "1024"):
            result = run("--check-config", "--scorer-cpus", wrong)
            self.assertEqual(result.returncode, 78)
            self.assertIn("scorer_cpus", result.stderr)
        with tempfile.TemporaryDirectory() as directory:
            result = run("--socket", directory + "/s", "--data-dir", directory + "/d", "--scorer-cpus", "1023")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("scorer_cpus", result.stderr)

    def cpus_of_node_0(self):
        with open("/sys/devices/system/node/node0/cpulist") as file:
            return numbers(file.read()) & os.sched_getaffinity(0)

    @NUMA
    def test_numa_nodes(self):
        cpus = self.cpus_of_node_0()
        daemon = Daemon(scorers="2", numa_nodes="0")
        self.addCleanup(daemon.stop)
        with daemon.connect() as c:  # everything that serves runs there, under the sandbox too
            self.assertEqual(c.call(PING).status, OK)
        tasks = f"/proc/{daemon.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status") as status:
                allowed = next(line for line in status if line.startswith("Cpus_allowed_list:"))
                self.assertEqual(numbers(allowed.split()[1]), cpus)
            with open(f"{tasks}/{task}/numa_maps") as maps:
                self.assertTrue(all(line.split()[1] == "bind:0" for line in maps))

    def test_numa_nodes_that_are_not_there(self):
        for wrong, why in (("7", "no memory node 7"), ("0,1023", "no memory node 1023"), ("0,0", "each memory node once"),
                           ("gpu", "each memory node once")):
            for check in (["--check-config"], []):
                with tempfile.TemporaryDirectory() as directory:
                    result = run(*check, "--socket", directory + "/s", "--data-dir", directory + "/d", "--numa-nodes", wrong)
                self.assertEqual(result.returncode, 78, wrong)
                self.assertIn("numa_nodes", result.stderr)
                self.assertIn(why, result.stderr)

    @NUMA
    def test_numa_nodes_count_their_processors(self):
        cores = sorted(self.cpus_of_node_0())
        self.assertIn(f"scorers = auto ; {max(1, len(cores) - 1)} ", run("--dump-config", "--numa-nodes", "0").stdout)
        text = subprocess.run(["taskset", "-c", str(cores[0]), CAIRND, "--dump-config", "--numa-nodes", "0"],
                              capture_output=True, text=True, timeout=60 * SLOW).stdout
        self.assertIn("scorers = auto ; 1 ", text)

    def test_case_38_a_misspelt_key(self):
        result = run("--ram-byte", "1GiB")
        self.assertEqual(result.returncode, 78)
        self.assertIn("ram_bytes", result.stderr)

    def test_case_38_values(self):
        for flag, value in (("--ram-bytes", "-1"), ("--ram-bytes", "lots"), ("--lease-max", "3"), ("--ack", "never"),
                            ("--scorers", "0"), ("--isa", "avx9000")):
            result = run(flag, value, "--socket", "/nonexistent/s", "--data-dir", "/nonexistent/d")
            self.assertEqual(result.returncode, 78, (flag, value, result.stderr))

    def test_check_and_dump(self):
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write("[cairnd]\nram_bytes = 3GiB\nack = disk\n")
            file.flush()
            self.assertEqual(run("--config", file.name, "--check-config").returncode, 0)
            result = run("--config", file.name, "--dump-config", "--queue-depth", "7",
                         env=dict(os.environ, CAIRN_LEASE_MAX="5s"))
        self.assertEqual(result.returncode, 0)
        self.assertIn("ram_bytes = 3GiB ; from file", result.stdout)
        self.assertIn("queue_depth = 7 ; from flag", result.stdout)
        self.assertIn("lease_max = 5s ; from environment", result.stdout)
        self.assertRegex(result.stdout, r"nvme_bytes = 25% ; \d+ ; from default")

    def test_help_names_every_key(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        dump = run("--dump-config").stdout
        for line in dump.splitlines()[1:]:
            self.assertIn("--" + line.split(" ")[0], result.stdout)


if __name__ == "__main__":
    unittest.main()
