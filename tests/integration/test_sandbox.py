"""What the daemon gives up once it runs: other files, and system calls that it never needs."""
import shutil

from wire import *

SANITIZED = SLOW > 1
# Run by gdb in the daemon: a call that it would never make, and what came of it.
PROBE = """
set pagination off
set confirm off
print (long) syscall({number}, {arguments})
print *(int *) __errno_location()
detach
"""


def status(pid, field):
    out = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as f:
            out.append(int(re.search(rf"^{field}:\s+(\d+)", f.read(), re.M)[1]))
    return out


@unittest.skipIf(SANITIZED, "the sanitizers' run-time needs the calls")
class Sandbox(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")

    def tearDown(self):
        shutil.rmtree(self.directory)

    def test_every_thread_is_filtered(self):
        daemon = Daemon(self.directory, log_level="debug")
        filters = status(daemon.process.pid, "Seccomp")
        self.assertGreater(len(filters), 2)
        self.assertEqual(set(filters), {2})
        self.assertEqual(set(status(daemon.process.pid, "NoNewPrivs")), {1})
        self.assertTrue(daemon.log("sandbox: files on, system calls on"))
        daemon.stop()

    def test_it_can_be_left_out(self):
        with open(os.path.join(self.directory, "c"), "w") as f:
            f.write("sandbox = no\n")
        daemon = Daemon(self.directory, config=f.name)
        self.assertEqual(set(status(daemon.process.pid, "Seccomp")), {0})
        daemon.stop()

    @unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
    def test_forbidden_calls_are_refused(self):
        daemon = Daemon(self.directory)
        # execve, socket(AF_INET6...) is allowed; fork by clone without CLONE_THREAD, ptrace, mount, setuid, bpf, kill
        forbidden = {"execve": (59, '"/bin/true", 0, 0'), "ptrace": (101, "0, 0, 0, 0"), "mount": (165, "0, 0, 0, 0, 0"),
                     "setuid": (105, "0"), "bpf": (321, "0, 0, 0"), "clone": (56, "17, 0, 0, 0, 0"), "kill": (62, "1, 0"),
                     "unshare": (272, "0x10000000")}
        for name, (number, arguments) in forbidden.items():
            with self.subTest(call=name):
                answer = self.inside(daemon, number, arguments)
                self.assertEqual(answer, [-1, 1], "EPERM")
        self.assertEqual(self.inside(daemon, 39, "0")[0], daemon.process.pid, "getpid is let through")
        with daemon.connect() as c:
            self.assertEqual(c.call(PING).status, OK)
        daemon.stop()

    @unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
    def test_other_files_are_out_of_reach(self):
        outside = tempfile.mkdtemp(prefix="cairn-test-outside-")
        with open(os.path.join(outside, "secret"), "w") as f:
            f.write("secret")
        daemon = Daemon(self.directory)
        self.assertEqual(self.inside(daemon, 2, f'"{outside}/secret", 0'), [-1, 13], "EACCES")
        self.assertEqual(self.inside(daemon, 2, f'"{outside}/new", 0101, 0600'), [-1, 13])
        self.assertGreaterEqual(self.inside(daemon, 2, f'"{self.directory}/data/catalog.mdb", 0')[0], 0)
        self.assertFalse(os.path.exists(f"{outside}/new"))
        daemon.stop()
        shutil.rmtree(outside)

    def inside(self, daemon, number, arguments):
        script = os.path.join(self.directory, "probe")
        with open(script, "w") as f:
            f.write(PROBE.format(number=number, arguments=arguments))
        said = subprocess.run(["gdb", "-nx", "-batch", "-p", str(daemon.process.pid), "-x", script], capture_output=True, text=True)
        values = re.findall(r"^\$\d+ = (-?\d+)", said.stdout, re.M)
        self.assertEqual(len(values), 2, said.stdout[-500:] + said.stderr[-500:])
        return [int(value) for value in values]


if __name__ == "__main__":
    unittest.main()
