"""The systemd units: they verify, they are hardened, and they keep what cairnd needs."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CAIRN_BUILD", ROOT / "build/release"))
CAIRND = Path(os.environ.get("CAIRND", BUILD / "cairnd"))
UNITS = ROOT / "deploy/systemd"
SYSTEM_UNITS = ["cairnd.service", "cairnd@.service"]
EXPOSURE_MAX = 1.5


def settings(path, key):
    return re.findall(rf"^{key}=(.*)$", path.read_text(), re.M)


def load(path):
    """Blocks in and out, durably and not, so that every thread has worked."""
    import wire
    with wire.Connection(str(path)) as c:
        space = c.open_space(wire.Space.opaque(65536))
        arena = c.arena(1 << 20)
        for i in range(40):
            keys = [wire.key("load", i, j) for j in range(8)]
            c.put(space, keys, wire.pattern(8 * 65536, i), fields={2: i % 2})
            c.get(space, keys, fields={6: wire.region(arena.id, 0, 8 * 65536)})
        c.call(wire.DELETE, wire.message({1: space, 2: wire.key("load", 0, 0)}))
        arena.close()


def allowed_calls(path):
    """The system calls that a unit's filter lets through, as systemd reads the lines: in order."""
    sets = {}
    listing = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], text=True,
                             capture_output=True, check=True).stdout
    name = None
    for line in listing.splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].append(line.strip())

    def expand(word):
        return set().union(*map(expand, sets[word])) if word.startswith("@") else {word}

    allowed = set()
    for line in settings(path, "SystemCallFilter"):
        words = set().union(*map(expand, line.lstrip("~").split()))
        allowed = allowed - words if line.startswith("~") else allowed | words
    return allowed


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def test_system_units_verify(self):
        for name in [*SYSTEM_UNITS, "cairnd.socket"]:
            with self.subTest(unit=name), tempfile.TemporaryDirectory() as folder:
                for unit in [*SYSTEM_UNITS, "cairnd.socket"]:
                    text = (UNITS / unit).read_text().replace("/usr/sbin/cairnd", str(CAIRND))
                    (Path(folder) / unit).write_text(text)
                target = name.replace("@.", "@a.")
                run = subprocess.run(["systemd-analyze", "verify", "--man=no",
                                      str(Path(folder) / target)], text=True, capture_output=True)
                self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_user_unit_verifies(self):
        with tempfile.TemporaryDirectory() as folder:
            text = (UNITS / "user/cairnd.service").read_text()
            (Path(folder) / "cairnd.service").write_text(text.replace("/usr/sbin/cairnd", str(CAIRND)))
            run = subprocess.run(["systemd-analyze", "--user", "verify", "--man=no",
                                  str(Path(folder) / "cairnd.service")], text=True,
                                 capture_output=True, env={**os.environ, "XDG_RUNTIME_DIR": folder})
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_a_misspelt_setting_would_be_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            text = (UNITS / "cairnd.service").read_text().replace("/usr/sbin/cairnd", str(CAIRND))
            path = Path(folder) / "cairnd.service"
            path.write_text(text.replace("MemoryDenyWriteExecute", "MemoryDenyWriteExecutes"))
            run = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], text=True,
                                 capture_output=True)
            self.assertIn("MemoryDenyWriteExecutes", run.stderr)

    def test_exposure_is_low(self):
        for name in SYSTEM_UNITS:
            with self.subTest(unit=name):
                run = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                                      f"--threshold={round(EXPOSURE_MAX * 10)}",
                                      str(UNITS / name)], text=True, capture_output=True)
                exposure = float(re.search(r"exposure level for .*: ([\d.]+)", run.stdout)[1])
                self.assertEqual(run.returncode, 0, run.stdout[-300:])
                self.assertLessEqual(exposure, EXPOSURE_MAX)

    def test_filter_lets_uring_and_huge_pages_through(self):
        needed = {"io_uring_setup", "io_uring_enter", "io_uring_register", "mmap", "madvise", "mlock",
                  "memfd_create", "ftruncate", "fallocate", "fcntl", "flock", "recvmsg", "sendmsg",
                  "accept4", "epoll_wait", "epoll_pwait", "eventfd2", "signalfd4", "clone3", "futex",
                  "prlimit64", "sched_getaffinity", "getrandom", "fdatasync", "pread64", "pwrite64"}
        for name in SYSTEM_UNITS:
            with self.subTest(unit=name):
                allowed = allowed_calls(UNITS / name)
                self.assertEqual(needed - allowed, set())
                refused = {"ptrace", "mount", "bpf", "init_module", "setuid", "chown", "reboot",
                           "perf_event_open", "keyctl", "process_vm_readv", "userfaultfd"}
                self.assertEqual(refused & allowed, set())

    @unittest.skipIf("asan" in str(CAIRND) or "tsan" in str(CAIRND), "sanitizers make calls of their own")
    @unittest.skipUnless(shutil.which("strace"), "strace is not installed")
    def test_cairnd_uses_only_what_the_filter_lets_through(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace"
            process = subprocess.Popen(
                ["strace", "-f", "-qq", "-o", str(trace), str(CAIRND), f"--socket={folder}/s",
                 f"--data-dir={folder}/d", f"--metrics-address={folder}/m", "--ram-bytes=64MiB",
                 "--nvme-bytes=256MiB", "--context-bytes=16MiB"], stderr=subprocess.PIPE, text=True)
            for line in process.stderr:
                if "ready on" in line:
                    break
            load(Path(folder) / "s")
            child = re.match(r"(\d+) ", trace.read_text())[1]
            os.kill(int(child), 15)
            process.communicate(timeout=120)
            called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))
        self.assertIn("accept4", called)
        # What happens before the filter is in force, or is refused and done without.
        before = {"execve", "arch_prctl", "set_tid_address", "rseq"}
        for name in SYSTEM_UNITS:
            self.assertEqual(called - allowed_calls(UNITS / name) - before, set(), name)

    def test_configuration_errors_do_not_restart(self):
        run = subprocess.run([str(CAIRND), "--ram_byte=1"], capture_output=True, text=True)
        for path in [*(UNITS / name for name in SYSTEM_UNITS), UNITS / "user/cairnd.service"]:
            self.assertEqual(settings(path, "RestartPreventExitStatus"), [str(run.returncode)])
        self.assertIn('did you mean "ram_bytes"?', run.stderr)

    def test_a_service_uses_the_directories_that_systemd_made(self):
        environment = {"HOME": "/nonexistent", "STATE_DIRECTORY": "/var/lib/cairn-x", "RUNTIME_DIRECTORY": "/run/cairn-x"}
        said = subprocess.run([str(CAIRND), "--dump-config"], capture_output=True, text=True, env=environment).stdout
        self.assertIn("data_dir = /var/lib/cairn-x ;", said)
        self.assertIn("socket = /run/cairn-x/cairnd.sock ;", said)

    def test_template_differs_where_it_must(self):
        one, many = ((UNITS / name).read_text().splitlines() for name in SYSTEM_UNITS)
        keys = {line.split("=")[0] for line in set(one) ^ set(many) if not line.startswith("#")}
        self.assertEqual(keys, {"Description", "ExecStart", "RuntimeDirectory", "StateDirectory",
                                "RuntimeDirectoryPreserve", "Also", "Wants", "After"})


if __name__ == "__main__":
    unittest.main()
