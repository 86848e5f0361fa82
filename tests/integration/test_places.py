"""Case 24: data directories and limits that a machine may have. One warning at most for each, and the same answers.

A place that this machine cannot make (mounts are root's, and not everywhere allowed) is skipped, by name.
"""
import ctypes
import json
import os
import platform
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from wire import CAIRND, EEXIST, OK, ROOT, SLOW, Arena, Daemon, Space, key, pattern, region

SIZE = 1 << 16
COUNT = 48
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_SET_THP_DISABLE = 22, 38, 41


class PlacedDaemon(Daemon):
    """Started by a shell in mounts of its own, if there is one."""

    def __init__(self, mounts="", **flags):
        self.mounts = mounts
        super().__init__(log_format="json", **flags)

    def command(self):
        command = super().command()
        if not self.mounts:
            return command
        script = self.mounts.format(directory=self.directory) + ' && exec "$@"'
        return ["unshare", "-m", "sh", "-c", "set -e; " + script, "sh", *command]

    def _read(self, process):
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))
            if "ready on " in line:
                self.ready.set()
        self.ready.set()
        process.stderr.close()

    def warnings(self):
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line["message"] for line in found if line["level"] in ("warning", "error")]


def refuse(io_uring, o_direct):
    """In a child: a filter of system calls, as a container's: io_uring_setup and open(O_DIRECT) fail."""
    def statement(code, value, on_true=0, on_false=0):
        return struct.pack("<HBBI", code, on_true, on_false, value)

    load, equal, bits, answer = 0x20, 0x15, 0x45, 0x06
    allow, errno = 0x7FFF0000, 0x00050000
    program = [statement(load, 0)]  # the number of the call
    if io_uring:
        program += [statement(equal, 425, 0, 1), statement(answer, errno | 1)]  # EPERM
    if o_direct:
        program += [statement(equal, 257, 0, 3), statement(load, 32),  # openat's flags
                    statement(bits, os.O_DIRECT, 0, 1), statement(answer, errno | 22)]  # EINVAL
    program += [statement(answer, allow)]
    filters = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) != 0:
        os._exit(126)


def answers(daemon):
    """What a worker gets for a script of everything: the same wherever the daemon runs."""
    said = []
    space = Space.opaque(SIZE)
    keys = [key("place", i) for i in range(COUNT)]
    for run in range(2):
        with daemon.connect() as c:
            number = c.open_space(space)
            for i, k in enumerate(keys):
                said.append(c.put(number, [k], pattern(SIZE, k), keys[i - 1] if i else b"",
                                  fields={2: i % 2}).statuses())
            said.append(c.lookup(number, keys + [key("absent")]).get(1))
            arena = c.arena(COUNT * SIZE)
            reply = c.get(number, keys, fields={6: region(arena.id, 0, arena.size)})
            said.append(reply.statuses())
            said.append([arena.map[i * SIZE:(i + 1) * SIZE] == pattern(SIZE, k) for i, k in enumerate(keys)])
            arena.close()
        if run == 0:
            daemon.own, own = False, daemon.own
            daemon.stop()
            daemon.own = own
            daemon.start()
    return said


EXPECTED = ([[OK]] * COUNT + [COUNT, [OK] * COUNT, [True] * COUNT]
            + [[EEXIST]] * COUNT + [COUNT, [OK] * COUNT, [True] * COUNT])


def can_mount(script):
    directory = tempfile.mkdtemp(prefix="cairn-test-")
    try:
        done = subprocess.run(["unshare", "-m", "sh", "-c", "set -e; " + script.format(directory=directory)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return done.returncode == 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Places(unittest.TestCase):
    def try_place(self, mounts="", warnings=0, **flags):
        if mounts and not can_mount(mounts):
            self.skipTest("no such mount is allowed here")
        daemon = PlacedDaemon(mounts, **{"ram_bytes": "16MiB", "nvme_bytes": "64MiB", **flags})
        self.addCleanup(shutil.rmtree, daemon.directory, ignore_errors=True)
        daemon.own = False
        try:
            self.assertEqual(answers(daemon), EXPECTED)
        finally:
            daemon.stop()
        found = daemon.warnings()
        print(f"{len(found)} warnings of two starts: {sorted(set(found))}")
        self.assertLessEqual(len(set(found)), warnings)
        for text in set(found):
            self.assertLessEqual(found.count(text), 2, "once a start")
        return found

    def test_case_24_an_ordinary_directory(self):
        self.assertEqual(self.try_place(), [])

    def test_case_24_overlayfs(self):
        """As in a container: the upper layer is a directory of the disk, kept from start to start."""
        mounts = ("mkdir -p {directory}/lower {directory}/upper {directory}/work {directory}/data && "
                  "mount -t overlay overlay -o "
                  "lowerdir={directory}/lower,upperdir={directory}/upper,workdir={directory}/work {directory}/data")
        self.try_place(mounts, warnings=1)

    def test_case_24_tmpfs(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("no /dev/shm here")
        directory = tempfile.mkdtemp(prefix="cairn-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.try_place(warnings=1, data_dir=os.path.join(directory, "data"))

    def test_case_24_dev_shm_is_full(self):
        """Arenas and RAM segments are memfds: they want memory, not room in a file system."""
        self.try_place("mount -t tmpfs -o size=64k none /dev/shm && ! dd if=/dev/zero of=/dev/shm/full bs=4k count=64")

    def test_case_24_io_uring_is_refused(self):
        self.assertIn("io_uring", self.refused(io_uring=True, o_direct=False)[0])

    def test_case_24_o_direct_is_refused(self):
        self.assertIn("direct I/O", self.refused(io_uring=False, o_direct=True)[0])

    def test_case_24_both_are_refused(self):
        self.assertEqual(len(set(self.refused(io_uring=True, o_direct=True))), 2)

    def refused(self, io_uring, o_direct):
        if platform.machine() != "x86_64":
            self.skipTest("the filter is written in x86-64's system calls")
        return self.try_place(warnings=io_uring + o_direct, limits=lambda: refuse(io_uring, o_direct))

    def test_case_24_little_memory_may_be_locked(self):
        self.try_place(limits=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10)))

    def test_case_24_no_huge_pages(self):
        """A RAM tier that asks for them, in a process that gets none."""
        found = []

        def without():
            if ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
                os._exit(126)

        daemon = PlacedDaemon(ram_bytes="1GiB", nvme_bytes="64MiB", limits=without)
        self.addCleanup(shutil.rmtree, daemon.directory, ignore_errors=True)
        daemon.own = False
        try:
            self.assertEqual(answers(daemon), EXPECTED)
            with open(f"/proc/{daemon.process.pid}/smaps_rollup", encoding="ascii") as file:
                found = re.findall(r"AnonHugePages:\s+(\d+) kB", file.read())
        finally:
            daemon.stop()
        self.assertEqual(found, ["0"], "the test shows nothing with huge pages")
        self.assertLessEqual(len(daemon.warnings()), 2, daemon.warnings())


class PythonClient(unittest.TestCase):
    def test_case_24_a_worker_whose_dev_shm_is_full(self):
        """libcairn's arenas do not need it either."""
        full = "mount -t tmpfs -o size=64k none /dev/shm && ! dd if=/dev/zero of=/dev/shm/full bs=4k count=64"
        if not can_mount(full):
            self.skipTest("no such mount is allowed here")
        daemon = Daemon(ram_bytes="64MiB", nvme_bytes="64MiB")
        self.addCleanup(daemon.stop)
        code = ("import cairn\n"
                f"with cairn.Client({daemon.socket!r}) as client:\n"
                f"    space = client.open_space(cairn.SpaceConfig.opaque('full', {1 << 20}, 16))\n"
                "    keys = space.chain_keys(range(16 * 8))\n"
                f"    blocks = [bytes([i + 1]) * {1 << 20} for i in range(8)]\n"
                "    space.put(keys, blocks)\n"
                "    data, statuses = space.try_get(keys)\n"
                "    assert [bytes(b) for b in data] == blocks, statuses\n"
                "print('same')\n")
        library = os.environ.get("CAIRN_LIBRARY", os.path.join(ROOT, "build", "release", "libcairn.so"))
        environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "client", "python"), CAIRN_LIBRARY=library)
        done = subprocess.run(["unshare", "-m", "sh", "-c", f'set -e; {full} && exec "$@"', "sh", sys.executable,
                               "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                              env=environment, timeout=60 * SLOW)
        self.assertEqual(done.stdout.strip()[-4:], "same", done.stderr)


if __name__ == "__main__":
    print(f"cairnd: {CAIRND}")
    unittest.main()
