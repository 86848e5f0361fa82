"""A long run of a real cairnd: its small NVMe tier turned over many times, connections by the hundred thousand.

One process puts chains of blocks, reads some back and compares them; another connects, registers arenas, opens spaces
and contexts, takes leases, and closes or just goes. Memory and descriptors are sampled every second. They must be flat
after the first fifth, the tiers always within their limits, and everything quiet at the end. Prints one JSON object;
exits 1 if something was not so.

usage: soak.py [--minutes N] [--turnovers N] [--connects N] [--json FILE] [--seed N]
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import time

import kill
import pattern  # noqa: F401  (kill has set the path)
import wire

import cairn

BLOCK_BYTES = 64 << 10
NVME_BYTES = 16 << 20
RAM_BYTES = 4 << 20
CHAIN = 4
GROWTH_BYTES = 2 << 20  # what memory may differ between the second fifth and the last
ARENA_BYTES = 64 << 10
USED, LIMIT = "cairn_tier_used_bytes", "cairn_tier_limit_bytes"


def pace(done, total, begin, seconds):
    """Waits while the work is ahead of the time."""
    ahead = begin + seconds * done / total - time.monotonic()
    if ahead > 0:
        time.sleep(min(ahead, 1))


def turn_over(pipe, socket, seed, blocks, seconds):
    """Puts that many blocks, evenly over the time; reads and compares one chain in four."""
    rng = random.Random(seed)
    counts = dict(puts=0, reads=0, gone=0)
    wrong = []
    begin = time.monotonic()
    with cairn.Client(socket, timeout_s=60) as client:
        space = client.open_space(cairn.SpaceConfig.opaque("soak", BLOCK_BYTES, 16))
        recent = []
        while counts["puts"] < blocks:
            salt = counts["puts"].to_bytes(8, "little") + seed.to_bytes(8, "little")
            keys = space.chain_keys(range(16 * CHAIN), salt=salt)
            space.put(keys, [pattern.block(space, key, 1) for key in keys], ack=rng.choice(("disk", "memory")))
            counts["puts"] += CHAIN
            recent = (recent + [keys])[-64:]
            if rng.random() < 0.25:
                keys = rng.choice(recent)
                data, statuses = space.try_get(keys)
                for key, block, status in zip(keys, data, statuses):
                    counts["reads" if status == cairn.Status.OK else "gone"] += 1
                    if status not in (cairn.Status.OK, cairn.Status.ENOENT) or (
                            status == cairn.Status.OK and pattern.version_of(space, key, block) != 1):
                        wrong.append(f"{key.hex()[:8]}: {status!r}")
            pace(counts["puts"], blocks, begin, seconds)
    pipe.send((counts, wrong[:10], time.monotonic() - begin))


def connect(pipe, socket, seed, connects, seconds):
    """Connections, one after the other, each leaving in one of five ways."""
    rng = random.Random(seed + 1)
    opaque = wire.Space.opaque(BLOCK_BYTES, model="soak", revision="", layout="")
    attention = wire.Space(model="soak contexts")
    counts = dict(connects=0, arenas=0, contexts=0, leases=0)
    wrong = []
    begin = time.monotonic()
    while counts["connects"] < connects:
        try:
            with wire.Connection(socket) as connection:
                arena = connection.arena(ARENA_BYTES)
                counts["arenas"] += 1
                way = rng.randrange(5)
                if way == 0:
                    connection.call(wire.RELEASE_ARENA, wire.message({1: arena.id}))
                elif way == 1:
                    number = connection.open_space(attention)
                    reply = connection.call(wire.OPEN_CONTEXT, wire.message({1: number}))
                    counts["contexts"] += reply.status == wire.OK
                elif way == 2:
                    reply = connection.lookup(connection.open_space(opaque), [wire.key(rng.random())], 600000)
                    counts["leases"] += reply.status == wire.OK
                elif way == 3:  # gone with a frame half sent
                    connection.socket.sendall(wire.frame(wire.PING)[:20])
                arena.close()
        except (OSError, EOFError, AssertionError) as error:
            wrong.append(repr(error))
            if len(wrong) > 10:
                break
        counts["connects"] += 1
        pace(counts["connects"], connects, begin, seconds)
    pipe.send((counts, wrong[:10], time.monotonic() - begin))


class Sampler:
    """Memory and descriptors of the daemon over time."""

    def __init__(self, daemon):
        self.daemon, self.samples, self.passed = daemon, [], []

    def take(self):
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="ascii") as status:
            text = status.read()
        memory = {name: int(re.search(rf"{name}:\s+(\d+)", text).group(1)) * 1024
                  for name in ("VmRSS", "RssAnon", "RssFile", "RssShmem")}
        memory["descriptors"] = len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))
        self.samples.append(memory)

    def take_stats(self, client):
        stats = client.stats()
        for tier in ("ram", "nvme"):
            used, limit = stats[f'{USED}{{tier="{tier}"}}'], stats[f'{LIMIT}{{tier="{tier}"}}']
            if used > limit:
                self.passed.append(f"{tier}: {used:.0f} of {limit:.0f} bytes")

    def fifth(self, which, name):
        """Median of a fifth of the time: 1 is the second."""
        size = len(self.samples) // 5
        part = sorted(sample[name] for sample in self.samples[which * size:(which + 1) * size])
        return part[len(part) // 2]


def quiet(daemon, client, gauges, descriptors):
    """What is not as it was at the start, after a while to settle."""
    end = time.monotonic() + 15
    while True:
        stats = client.stats()
        total = kill.slab_bytes(daemon.directory)
        found = [f"{name}: {stats[name]:.0f}, was {value:.0f}" for name, value in gauges.items() if stats[name] != value]
        if daemon.descriptors() != descriptors:
            found.append(f"{daemon.descriptors()} descriptors, were {descriptors}")
        if stats[f'{USED}{{tier="nvme"}}'] + stats["cairn_nvme_free_bytes"] != total:
            found.append(f"used and free are not the {total} bytes of the slabs")
        if not found or time.monotonic() > end:
            return found, stats
        time.sleep(0.1)


def run(options, daemon):
    seconds = options.minutes * 60
    blocks = int(options.turnovers * NVME_BYTES / BLOCK_BYTES)
    client = cairn.Client(daemon.socket)
    client.open_space(cairn.SpaceConfig.opaque("soak", BLOCK_BYTES, 16))
    gauges = {name: client.stats()[name] for name in wire.GAUGES}
    descriptors = daemon.descriptors()
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for work, amount in ((turn_over, blocks), (connect, options.connects)):
        ours, theirs = spawn.Pipe()
        processes.append(spawn.Process(target=work, args=(theirs, daemon.socket, options.seed, amount, seconds)))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    sampler, begin = Sampler(daemon), time.monotonic()
    while any(process.is_alive() for process in processes):
        time.sleep(min(1, seconds / 60))
        if daemon.process.poll() is not None:
            raise SystemExit("the daemon died:\n" + "\n".join(daemon.lines[-40:]))
        sampler.take()
        sampler.take_stats(client)
        if len(sampler.samples) % 60 == 0:
            print(f"{time.monotonic() - begin:.0f} s: {sampler.samples[-1]}", file=sys.stderr, flush=True)
    results = [pipe.recv() if pipe.poll() else ({}, ["a worker ended without a word"], 0.0) for pipe in pipes]
    restless, stats = quiet(daemon, client, gauges, descriptors)
    client.close()
    return report(options, sampler, results, restless, stats)


def report(options, sampler, results, restless, stats):
    evicted = stats['cairn_evictions_total{tier="nvme"}']
    limit = stats[f'{LIMIT}{{tier="nvme"}}']
    memory = {name: {"second_fifth": sampler.fifth(1, name), "last_fifth": sampler.fifth(4, name),
                     "highest": max(sample[name] for sample in sampler.samples)} for name in sampler.samples[0]}
    failures = [f"restless: {text}" for text in restless] + [f"limit passed: {text}" for text in sampler.passed[:5]]
    failures += [f"wrong: {text}" for _, wrong, _ in results for text in wrong]
    for name in ("VmRSS", "RssAnon", "RssShmem"):
        growth = memory[name]["last_fifth"] - memory[name]["second_fifth"]
        if growth > GROWTH_BYTES:
            failures.append(f"{name} grew by {growth} bytes")
    if memory["descriptors"]["last_fifth"] > memory["descriptors"]["second_fifth"] + 4:
        failures.append("descriptors grew")
    if evicted < (options.turnovers - 1) * 0.9 * NVME_BYTES / BLOCK_BYTES:
        failures.append(f"only {evicted:.0f} blocks were evicted")
    for name in ("cairn_blocks_corrupt_total", "cairn_io_errors_total", "cairn_puts_failed_total"):
        if stats[name]:
            failures.append(f"{name} is {stats[name]:.0f}")
    return {
        "case": "soak", "seed": options.seed, "minutes": options.minutes,
        "seconds": round(max(result[2] for result in results), 1), "nvme_limit_bytes": limit,
        "turnovers": round(results[0][0].get("puts", 0) * BLOCK_BYTES / NVME_BYTES, 1), "evicted_blocks": evicted,
        "turn_over": results[0][0], "connections": results[1][0],
        "memory": memory, "samples": len(sampler.samples), "failures": failures,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--turnovers", type=float, help="of the NVMe tier (10 a minute)")
    parser.add_argument("--connects", type=int, help="(10,000 a minute)")
    parser.add_argument("--json", help="the report's file too")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time()))
    options = parser.parse_args()
    options.turnovers = options.turnovers or 10 * options.minutes
    options.connects = options.connects or int(10000 * options.minutes)
    print(f"CAIRN_TEST_SEED={options.seed}", file=sys.stderr, flush=True)
    daemon = wire.Daemon(ram_bytes=RAM_BYTES, nvme_bytes=NVME_BYTES, slab_bytes="1MiB", context_bytes="8MiB",
                         scratch_bytes="16MiB")
    try:
        found = run(options, daemon)
    finally:
        daemon.stop()
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            file.write(text + "\n")
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
