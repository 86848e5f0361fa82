"""A cairnd of one's own for a test: private socket and directory, gone with the block."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cairn

ROOT = Path(__file__).resolve().parents[2]


def cairnd_path() -> str:
    """$CAIRND, or the release build's."""
    return os.environ.get("CAIRND") or str(ROOT / "build" / "release" / "cairnd")


class PrivateDaemon:
    """`with PrivateDaemon(ram_bytes="1GiB") as daemon: cairn.Client(daemon.socket)`."""

    def __init__(self, *, folder=None, **options):
        self.options = options
        self.folder = folder
        self.process = None

    def __enter__(self):
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # or the daemon would outlive us
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self.work = Path(tempfile.mkdtemp(prefix="cairn-e2e-", dir=self.folder))
        self.socket = str(self.work / "cairnd.sock")
        self.start()
        return self

    def start(self):
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.options.items()]
        with open(self.work / "log", "ab") as log:
            self.process = subprocess.Popen(
                [cairnd_path(), "--socket", self.socket, "--data-dir", str(self.work / "data"), *flags],
                stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                with cairn.Client(self.socket) as client:
                    client.ping()
                return
            except cairn.Error as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("cairnd did not start:\n" + (self.work / "log").read_text()) from error
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.work, ignore_errors=True)
