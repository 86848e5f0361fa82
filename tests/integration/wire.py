"""The wire by hand, for tests: protobuf varints, frames, descriptors and a cairnd of one's own.

Nothing here comes from the daemon's or the client's code, so hostile bytes are as easy to send as good ones. Standard
library only.
"""
import array
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CAIRND = os.environ.get("CAIRND", os.path.join(ROOT, "build", "release", "cairnd"))
SLOW = 5 if "asan" in CAIRND or "tsan" in CAIRND else 1  # sanitizers take their time

MAGIC = b"CRN1"
HEADER = struct.Struct("<4sHHQiIII")
REPLY = 0x8000
MESSAGE_MAX = 512 * 1024
PAYLOAD_MAX = 4 * 1024 * 1024

HELLO, PING, REGISTER_ARENA, RELEASE_ARENA, OPEN_SPACE, LIST_SPACES = range(1, 7)
LOOKUP, PUT, GET, PIN, UNPIN, RELEASE, DELETE, PREFETCH = range(16, 24)
OPEN_CONTEXT, APPEND, FORK, SEAL, CLOSE_CONTEXT, RETRIEVE, FETCH_ROWS, EXPORT_LANDMARKS, ATTEND = range(32, 41)
RETAIN, PLAN, SET_QUOTA, LIST_TENANTS, SET_HOLD, LIST_HOLDS = range(48, 54)
STATS, WHY, AUDIT, VERIFY, DRAIN, RELOAD = range(64, 70)
LIST_BLOCKS, LIST_CONTEXTS, LIST_LEASES, SHOW_CONFIG = range(80, 84)

OK, EINVAL, EPROTO, EVERSION, EUNSUPPORTED, ENOENT, EEXIST, ECORRUPT, ENOSPC, ENOMEM, EBUSY = range(0, -11, -1)
EAGAIN, EDEADLINE, ECANCELLED, EIO, EPERM, EMISMATCH, ERANGE, ESTALE, EHELD, EDISCONNECTED = range(-11, -21, -1)

F32, F16, BF16, F8E4M3, F8E5M2 = range(1, 6)
RAW, Q8, Q4, NO_ROWS = range(4)
ELEMENT = {F32: 4, F16: 2, BF16: 2, F8E4M3: 1, F8E5M2: 1}

F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 1033, 2, 4, 8


# ---- protobuf ----

def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value):
    return value >> 1 ^ -(value & 1)


class F32bits(float):
    """A float that goes out as protobuf's float."""


class F64bits(float):
    """A float that goes out as protobuf's double."""


def message(fields):
    """{number: value}; ints are varints, lists of ints packed, bytes and str length-delimited."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, F32bits):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, F64bits):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            if isinstance(value, str):
                value = value.encode()
            elif isinstance(value, (list, tuple)):
                value = b"".join(varint(v) for v in value)
            out += varint(number << 3 | 2) + varint(len(value)) + bytes(value)
    return out


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """A message as {number: [value, ...]}."""
    out = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif tag & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        out.setdefault(tag >> 3, []).append(value)
    return out


def numbers(values):
    """A repeated varint field, packed or not."""
    out = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = read_varint(value, at)
            out.append(number)
    return out


def frame(kind, body=b"", payload=b"", id=1, deadline=0, version=1, magic=MAGIC, message_bytes=None,
          payload_bytes=None, reserved=0):
    return HEADER.pack(magic, version, kind, id, deadline, len(body) if message_bytes is None else message_bytes,
                       len(payload) if payload_bytes is None else payload_bytes, reserved) + body + payload


class Reply:
    def __init__(self, header, body, payload):
        self.kind, self.id, self.status = header[2], header[3], header[4]
        self.fields = fields(body)
        self.payload = payload

    def get(self, number, default=0):
        return self.fields.get(number, [default])[-1]

    def list(self, number):
        return numbers(self.fields.get(number, []))

    def statuses(self):
        return [zigzag(v) for v in self.list(1)]

    @property
    def text(self):
        return self.get(1, b"").decode() if self.status < 0 else ""


# ---- a connection ----

class Connection:
    def __init__(self, path, hello=True, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout * SLOW)
        self.socket.connect(path)
        self.id = 0
        self.kept = {}
        if hello:
            reply = self.call(HELLO, message({1: 1, 2: 1, 4: "test"}))
            assert reply.status == OK, reply.text
            self.incarnation = reply.get(3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, kind, body=b"", payload=b"", deadline=0, fds=()):
        self.id += 1
        data = frame(kind, body, payload, self.id, deadline)
        if fds:
            sent = self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            data = data[sent:]
        self.socket.sendall(data)
        return self.id

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError(f"the daemon closed the connection after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def receive(self):
        """The next reply, whichever it is."""
        header = HEADER.unpack(self.read(HEADER.size))
        assert header[0] == MAGIC and header[2] & REPLY, header
        header = header[:2] + (header[2] & ~REPLY,) + header[3:]
        body = self.read(header[5])
        return Reply(header, body, self.read(header[6]))

    def wait(self, id):
        """The reply of that id; others are kept."""
        while id not in self.kept:
            reply = self.receive()
            self.kept[reply.id] = reply
        return self.kept.pop(id)

    def call(self, kind, body=b"", payload=b"", deadline=0, fds=()):
        return self.wait(self.send(kind, body, payload, deadline, fds))

    def ended(self):
        """True once the daemon has closed; replies before that are dropped."""
        try:
            while self.socket.recv(65536):
                pass
        except (ConnectionError, BrokenPipeError):
            pass
        return True

    # -- requests --

    def arena(self, size):
        arena = Arena(size)
        reply = self.call(REGISTER_ARENA, message({1: size}), fds=[arena.fd])
        assert reply.status == OK, reply.text
        arena.id = reply.get(1)
        return arena

    def open_space(self, space):
        reply = self.call(OPEN_SPACE, message({1: space.packed()}))
        assert reply.status == OK, reply.text
        return reply.get(1)

    def put(self, space, keys, payload=b"", parent=b"", **more):
        body = {1: space, 3: b"".join(keys), 4: parent}
        body.update(more.get("fields", {}))
        return self.call(PUT, message(body), payload, more.get("deadline", 0))

    def get(self, space, keys, **more):
        body = {1: space, 2: b"".join(keys)}
        body.update(more.get("fields", {}))
        return self.call(GET, message(body), deadline=more.get("deadline", 0))

    def lookup(self, space, keys, lease_ms=0):
        return self.call(LOOKUP, message({1: space, 2: b"".join(keys), 3: lease_ms}))

    def stats(self):
        reply = self.call(STATS)
        out = {}
        for metric in reply.fields[1]:
            f = fields(metric)
            labels = f.get(2, [b""])[0].decode()
            out[f[1][0].decode() + ("{" + labels + "}" if labels else "")] = f.get(3, [0.0])[0]
        return out


class Arena:
    """A memfd of our own, sealed as asked and mapped."""

    def __init__(self, size, seals=F_SEAL_SHRINK):
        import mmap
        self.fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        if seals:
            fcntl.fcntl(self.fd, F_ADD_SEALS, seals)
        self.map = mmap.mmap(self.fd, size)
        self.size = size
        self.id = 0

    def close(self):
        self.map.close()
        os.close(self.fd)


def region(arena, offset, size):
    return message({1: arena, 2: offset, 3: size})


# ---- spaces and keys, written down once more ----

class Space:
    NAMES = ("kind", "model", "revision", "layers", "kv_heads", "k_dim", "v_dim", "dtype", "block_tokens", "layout",
             "cache_group", "tp_rank", "tp_size", "rope", "landmark_bits", "outliers", "run_tokens", "value_bits",
             "k_codec", "v_codec", "block_bytes", "shared", "v_prefix")
    shared = v_prefix = 0

    def __init__(self, **values):
        base = dict(kind=0, model="test", revision="1", layers=2, kv_heads=2, k_dim=16, v_dim=16, dtype=F16,
                    block_tokens=16, layout="lhkv", cache_group=0, tp_rank=0, tp_size=1, rope=0, landmark_bits=2,
                    outliers=0, run_tokens=16, value_bits=2, k_codec=Q8, v_codec=Q8, block_bytes=0)
        base.update(values)
        self.__dict__.update(base)

    @classmethod
    def opaque(cls, size, **values):
        base = dict(kind=1, layers=0, kv_heads=0, k_dim=0, v_dim=0, dtype=0, layout="free", rope=0, landmark_bits=0,
                    outliers=0, run_tokens=0, value_bits=0, k_codec=0, v_codec=0, block_bytes=size)
        base.update(values)
        return cls(**base)

    def packed(self):
        return message({i + 1: getattr(self, name) for i, name in enumerate(self.NAMES)})

    def bytes(self):
        if self.kind == 1:
            return self.block_bytes
        return self.layers * self.kv_heads * self.block_tokens * (self.k_dim + self.v_dim) * ELEMENT[self.dtype]

    def fingerprint(self):
        h = hashlib.blake2b(digest_size=32)
        for tag, text in ((1, "cairn space 1"), (2, self.model), (3, self.revision), (4, self.layout)):
            h.update(struct.pack("<BQ", tag, len(text.encode())) + text.encode())
        for i, name in enumerate(("kind", "layers", "kv_heads", "k_dim", "v_dim", "dtype", "block_tokens",
                                  "cache_group", "tp_rank", "tp_size", "rope", "landmark_bits", "outliers",
                                  "run_tokens", "value_bits", "k_codec", "v_codec", "block_bytes")):
            h.update(struct.pack("<BQQ", 16 + i, 8, getattr(self, name)))
        if self.shared:
            h.update(struct.pack("<BQQ", 34, 8, 1))
        if self.v_prefix:
            h.update(struct.pack("<BQQ", 35, 8, self.v_prefix))
        return h.digest()


def block_key(space, parent, tokens, salt=b"", adapter=b""):
    h = hashlib.blake2b(digest_size=32)
    packed = b"".join(struct.pack("<I", t) for t in tokens)
    for tag, data in ((1, b"cairn block key 1"), (2, space.fingerprint()), (3, parent or b""), (4, packed), (5, salt),
                      (6, adapter)):
        h.update(struct.pack("<BQ", tag, len(data)) + data)
    return h.digest()


def key(*parts):
    """Any 32 bytes, the same for the same parts."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=32).digest()


def pattern(size, *parts):
    """Bytes that name where they belong: the key, the version and the offset."""
    seed = key("pattern", *parts)
    out = bytearray()
    while len(out) < size:
        out += (seed[:24] + struct.pack("<Q", len(out))) * 32  # a kilobyte of each offset
    return bytes(out[:size])


# ---- a daemon ----

class Daemon:
    def __init__(self, directory=None, wait=True, limits=None, **flags):
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp(prefix="cairn-test-")
        self.socket = flags.pop("socket", os.path.join(self.directory, "s"))
        self.lines = []
        self.flags = dict(ram_bytes="64MiB", nvme_bytes="512MiB", context_bytes="64MiB", scorers="2")
        self.flags.update(flags)
        self.limits = limits
        self.process = None
        if wait:
            self.start()

    def command(self):
        data = self.flags.get("data_dir", os.path.join(self.directory, "data"))
        command = [CAIRND, "--socket", self.socket, "--data-dir", data]
        for name, value in self.flags.items():
            if value in ("yes", "no"):
                command += [f"--{name.replace('_', '-')}={value}"]
            elif name != "data_dir":
                command += ["--" + name.replace("_", "-"), str(value)]
        return command

    def launch(self):
        environment = dict(os.environ)
        for name, more in (("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0:exitcode=99"),
                           ("TSAN_OPTIONS", "halt_on_error=1:exitcode=98")):
            environment[name] = environment.get(name, "") + ":" + more
        environment = {k: v for k, v in environment.items()
                       if not k.startswith("CAIRN_") and k not in ("NOTIFY_SOCKET", "JOURNAL_STREAM")}
        self.process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                        errors="replace", env=environment, preexec_fn=self.limits)
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()

    def _read(self, process):
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))
            if "ready on " in line:
                self.ready.set()
        self.ready.set()
        process.stderr.close()

    def start(self):
        self.launch()
        if not self.ready.wait(60 * SLOW) or self.process.poll() is not None or not self.log("ready on"):
            raise AssertionError("cairnd did not start:\n" + "\n".join(self.lines))
        return self

    def log(self, pattern):
        return [line for line in self.lines if re.search(pattern, line)]

    def connect(self, **more):
        return Connection(self.socket, **more)

    def descriptors(self):
        """Open descriptors, but for slabs and RAM segments, whose number follows what is stored."""
        count = 0
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{self.process.pid}/fd/{name}")
            except FileNotFoundError:
                continue
            count += not target.startswith((self.directory + "/", "/memfd:cairn"))
        return count

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            parts = f.read().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.lines.clear()

    def stop(self, expected=0):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join()
        code = self.process.returncode
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)
        assert code == expected, f"cairnd exited with {code}:\n" + "\n".join(self.lines[-60:])


GAUGES = ("cairn_connections", "cairn_requests_inflight", "cairn_leases", "cairn_views", "cairn_view_bytes",
          "cairn_block_pins", "cairn_contexts",
          "cairn_context_bytes", "cairn_arenas", "cairn_arena_bytes", "cairn_scorer_pending", "cairn_holds", "cairn_pins",
          "cairn_io_inflight", "cairn_puts_waiting", "cairn_blocks_dirty")


class DaemonCase(unittest.TestCase):
    """Tests against one daemon a class; after each the quiet state must be back."""
    flags = {}

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(**cls.flags)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def setUp(self):
        with self.daemon.connect() as monitor:
            self.quiet = self.settle(monitor, None)
            self.quiet_descriptors = self.daemon.descriptors()

    def tearDown(self):
        self.assertIsNone(self.daemon.process.poll(), "the daemon died:\n" + "\n".join(self.daemon.lines[-60:]))
        with self.daemon.connect() as monitor:
            now = self.settle(monitor, self.quiet)
            for name in GAUGES:
                self.assertEqual(now[name], self.quiet[name], name)
            self.assertEqual(self.daemon.descriptors(), self.quiet_descriptors)

    def settle(self, monitor, wanted):
        """The gauges once they are still (and as wanted), or as they are after a while."""
        end = time.monotonic() + 10 * SLOW
        last = None
        while True:
            now = {name: value for name, value in monitor.stats().items()}
            gauges = {name: now[name] for name in GAUGES}
            quiet = gauges["cairn_io_inflight"] == 0 and gauges["cairn_blocks_dirty"] == 0
            if (quiet and gauges == (last if wanted is None else {n: wanted[n] for n in GAUGES})
                    and (wanted is None or self.daemon.descriptors() == self.quiet_descriptors)):
                return now
            if time.monotonic() > end:
                return now
            last = gauges
            time.sleep(0.05)

    def assertHealthy(self):
        with self.daemon.connect() as connection:
            self.assertEqual(connection.call(PING).status, OK)
