"""kill -9 of a real cairnd at many points of real work; after each restart every promise is checked.

Three worker processes put (ack=disk and ack=memory), delete, put again, get, and search contexts. The daemon is killed
at a random time, now and then while it starts, and started again. Then:

  * a block acknowledged with ack=disk and not deleted since is there, with exact bytes; a deleted one is not
  * no block is torn or of a version that was never put; none is stored twice
  * free + used = the slots of all slab files, and used = the blocks found
  * the incarnation is another; leases and contexts of before match nothing

usage: kill.py [--points N] [--seed N] [--quick]     (CAIRND, CAIRN_LIBRARY, PYTHONPATH name what is tested)
"""

import argparse
import glob
import multiprocessing
import os
import random
import struct
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "crash"), os.path.join(ROOT, "tests", "integration"),
                os.path.join(ROOT, "client", "python")]
os.environ.setdefault("CAIRN_LIBRARY", os.path.join(ROOT, "build", "release", "libcairn.so"))

import cairn  # noqa: E402
import pattern  # noqa: E402
import wire  # noqa: E402
import worker  # noqa: E402

WORKERS = 3
QUICK_POINTS = 20
LONGEST_S = 0.4  # of work before a kill
SLAB_HEADER_BYTES = 8192


class Broken(Exception):
    """A promise that did not hold after a restart."""


def slab_bytes(directory):
    """Bytes of all slots of all slab files: what is free or used."""
    total = 0
    for path in glob.glob(os.path.join(directory, "data", "slabs", "*.slab")):
        with open(path, "rb") as slab:
            head = slab.read(28)
            slot_bytes, slots = struct.unpack_from("<QI", head, 16)
            total += min(slots, (os.fstat(slab.fileno()).st_size - SLAB_HEADER_BYTES) // slot_bytes) * slot_bytes
    return total


class Crash:
    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(seed)
        self.daemon = wire.Daemon(ram_bytes="2MiB", nvme_bytes="64MiB", slab_bytes="512KiB", context_bytes="8MiB",
                                  scratch_bytes="16MiB", stop_timeout="30s")
        self.client = cairn.Client(self.daemon.socket, reconnect_s=2)
        self.spaces = {name: self.client.open_space(config) for name, config in pattern.spaces().items()}
        self.incarnations = {self.client.ping().incarnation}
        self.pipes, self.processes = [], []
        self.observed = {}
        self.counts = dict(points=0, kills_at_work=0, kills_at_start=0, blocks_checked=0, blocks_found=0,
                           durable_found=0, memory_found=0, memory_lost=0, orphans_freed=0)
        self.starts_ms, self.work = [], {}

    def start_workers(self):
        spawn = multiprocessing.get_context("spawn")
        for number in range(WORKERS):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=worker.main, args=(theirs, self.daemon.socket, number, self.seed))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            self.answer(pipe)

    def answer(self, pipe):
        if not pipe.poll(60):
            raise Broken("a worker does not answer")
        kind, after, counts = pipe.recv()
        if kind == "wrong":
            raise Broken(after)
        return after, counts

    def go(self, until):
        for pipe in self.pipes:
            pipe.send((self.observed, until))

    def promises(self):
        """What all workers together say must be true, by (space, key)."""
        after, self.work = {}, {}
        for pipe in self.pipes:
            promised, counts = self.answer(pipe)
            for name_key, versions in promised.items():
                if name_key[0] == "shared":
                    versions = versions if versions == {0} else versions | {0}
                    if after.get(name_key) == {0}:
                        versions = {0}
                after[name_key] = versions
            for name, count in counts.items():
                self.work[name] = self.work.get(name, 0) + count
        return after

    def hold(self):
        """A lease and a context by hand, whose numbers must mean nothing after the kill."""
        connection = self.daemon.connect()
        shared = connection.open_space(wire.Space.opaque(8192, model="crash shared", revision="", layout=""))
        attention = connection.open_space(wire.Space(model="crash attention", revision="", kv_heads=1, dtype=wire.F32,
                                                     outliers=8))
        context = connection.call(wire.OPEN_CONTEXT, wire.message({1: attention}))
        assert context.status == wire.OK, context.text
        lease = connection.lookup(shared, worker.chains(self.spaces["shared"], None)[0][:1], 600000)
        return connection, {"lease": lease.get(2), "context": context.get(1)}

    def check_stale(self, numbers):
        with self.daemon.connect() as connection:
            if connection.incarnation in self.incarnations:
                raise Broken(f"incarnation {connection.incarnation} came twice")
            self.incarnations.add(connection.incarnation)
            if numbers["lease"]:
                status = connection.call(wire.RELEASE, wire.message({1: numbers["lease"]})).status
                if status != wire.ESTALE:
                    raise Broken(f"a lease of the killed daemon: status {status}")
            if numbers["context"]:
                status = connection.call(wire.CLOSE_CONTEXT, wire.message({1: numbers["context"]})).status
                if status != wire.ESTALE:
                    raise Broken(f"a context of the killed daemon: status {status}")

    def restart(self):
        if self.rng.random() < 0.1:  # killed while it starts
            self.daemon.launch()
            time.sleep(self.rng.uniform(0, 0.04))
            self.daemon.kill()
            self.counts["kills_at_start"] += 1
        begin = time.monotonic()
        self.daemon.start()
        self.starts_ms.append((time.monotonic() - begin) * 1000)

    def check(self, after):
        """Every key of every worker against what may be there."""
        self.observed = {}
        found = dict.fromkeys(self.spaces, 0)
        for name, space in self.spaces.items():
            keys = [key for space_name, key in after if space_name == name]
            for first in range(0, len(keys), 64):
                part = keys[first:first + 64]
                data, statuses = space.try_get(part)
                for key, block, status in zip(part, data, statuses):
                    version = self.check_one(space, name, key, block, status, after[name, key])
                    self.observed[name, key] = version
                    found[name] += version is not None
        self.counts["blocks_checked"] += len(after)
        self.counts["blocks_found"] += sum(found.values())
        self.check_numbers(found)

    def check_one(self, space, name, key, block, status, allowed):
        what = f"{name} {key.hex()[:8]}"
        if status == cairn.Status.ENOENT:
            if None not in allowed:
                raise Broken(f"lost: {what}, version {allowed}, was acknowledged on disk")
            self.counts["memory_lost"] += len(allowed) > 1
            return None
        if status != cairn.Status.OK:
            raise Broken(f"{what}: {status!r}; allowed were {allowed}")
        version = pattern.version_of(space, key, block)
        if version is None:
            raise Broken(f"torn: {what}: {pattern.describe(space, block)}")
        if version not in allowed:
            raise Broken(f"{what} has version {version}; allowed were {allowed}")
        self.counts["durable_found" if len(allowed) == 1 else "memory_found"] += 1
        return version

    def check_numbers(self, found):
        """None stored twice, and no slot lost: by Stats, and by the files themselves."""
        end = time.monotonic() + 10
        while True:
            stats = self.client.stats()
            used, free = stats['cairn_tier_used_bytes{tier="nvme"}'], stats["cairn_nvme_free_bytes"]
            total = slab_bytes(self.daemon.directory)
            quiet = (used + free == total and stats["cairn_blocks"] == sum(found.values())
                     and stats["cairn_holds"] == 0 and stats["cairn_io_inflight"] == 0)
            if quiet or time.monotonic() > end:
                break
            time.sleep(0.01)
        if not quiet:
            raise Broken(f"Stats: {stats['cairn_blocks']:.0f} blocks of {sum(found.values())} found, used {used:.0f} + free "
                         f"{free:.0f} of {total} bytes, {stats['cairn_holds']:.0f} holds")
        for name, space in self.spaces.items():
            blocks = [value for metric, value in stats.items()
                      if metric.startswith("cairn_space_blocks{") and f'model="{space.config.model}"' in metric]
            if blocks and sum(blocks) != found[name]:
                raise Broken(f"space {name}: {sum(blocks):.0f} blocks, {found[name]} found")
        if stats["cairn_blocks_corrupt_total"] or stats["cairn_io_errors_total"]:
            raise Broken("blocks were found corrupt, though only the process died")
        self.counts["orphans_freed"] += int(stats["cairn_orphans_recovered"])

    def point(self):
        held, numbers = self.hold()
        delay = self.rng.uniform(0, LONGEST_S) ** 2 / LONGEST_S + 0.01
        self.go(time.monotonic() + 3600)
        time.sleep(delay)
        self.daemon.kill()
        held.close()
        after = self.promises()
        self.restart()
        self.check_stale(numbers)
        self.check(after)
        self.counts["points"] += 1
        self.counts["kills_at_work"] += 1

    def last(self):
        """Work, SIGTERM, restart: then what was acknowledged in memory is there too."""
        self.go(time.monotonic() + 0.3)
        after = {name_key: versions - {None} or {None} if len(versions) > 1 and name_key[0] != "shared" else versions
                 for name_key, versions in self.promises().items()}
        self.daemon.own = False  # its directory stays
        self.daemon.stop()
        self.daemon.own = True
        self.daemon.lines.clear()
        self.daemon.start()
        self.check(after)

    def close(self):
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass  # it has ended already
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self.client.close()

    def report(self):
        starts = sorted(self.starts_ms)
        print("work:    " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.work.items()))
        print("checked: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.counts.items()))
        if starts:
            print(f"starts:  median {starts[len(starts) // 2]:.0f} ms, longest {starts[-1]:.0f} ms")


def run(points, seed):
    print(f"CAIRN_TEST_SEED={seed}", flush=True)
    crash = Crash(seed)
    begin = shown = time.monotonic()
    try:
        crash.start_workers()
        while crash.counts["points"] < points:
            crash.point()
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{crash.counts['points']} of {points} points, {shown - begin:.0f} s", flush=True)
        crash.last()
        crash.report()
        print(f"{crash.counts['points']} points in {time.monotonic() - begin:.0f} s: every promise held")
        return crash.counts
    except Exception:
        crash.report()
        print(f"FAILED at point {crash.counts['points']} of seed {seed}; the daemon said:\n"
              + "\n".join(crash.daemon.lines[-40:]), flush=True)
        raise
    finally:
        crash.close()
        crash.daemon.process.poll() is None and crash.daemon.kill()
        wire.shutil.rmtree(crash.daemon.directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time()))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_POINTS} points")
    options = parser.parse_args()
    try:
        run(QUICK_POINTS if options.quick else options.points, options.seed)
    except Broken as broken:
        print(f"kill.py: {broken}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
