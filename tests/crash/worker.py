"""A worker of the crash test: puts, gets and deletes until its daemon dies, and knows what must then be true.

For each key it keeps `live`, the version that a get must give now (None: a miss), and `after`, the set of what may be
found once the daemon was killed: an acknowledged ack=disk put or delete leaves one possibility, ack=memory two, and a
call that was cut off adds its own to those before.
"""

import random
import time

import numpy as np

import cairn
import pattern

Status = cairn.Status
UNKNOWN = object()
KEYS = {"opaque": 64, "attention": 32, "shared": 24}


class Wrong(Exception):
    """A promise that the daemon broke."""


class Entry:
    def __init__(self):
        self.live = None
        self.after = {None}
        self.version = 0  # the last one that was ever put


def chains(space, owner):
    """The keys of a worker in a space: chains of 8 blocks. `owner` None: those that all share."""
    n = space.config.block_tokens
    out = []
    for chain in range(KEYS[_name(space)] // 8):
        out.append(space.chain_keys(np.arange(8 * n), salt=f"{owner} {chain}".encode()))
    return out


def _name(space):
    return space.config.model.split()[1]


class Worker:
    def __init__(self, socket, number, seed):
        self.number = number
        self.rng = random.Random(f"{seed} {number}")
        self.client = cairn.Client(socket, reconnect_s=0.02, timeout_s=60)
        self.spaces = {name: self.client.open_space(config) for name, config in pattern.spaces().items()}
        self.chains = {name: chains(space, None if name == "shared" else number)
                       for name, space in self.spaces.items()}
        self.entries = {(name, key): Entry()
                        for name, found in self.chains.items() for chain in found for key in chain}
        self.counts = dict.fromkeys(("puts_disk", "puts_memory", "existing", "deletes", "gets", "misses", "retrievals",
                                     "cut_off"), 0)
        self.lease = self.context = None

    def learn(self, observed):
        """What a restarted daemon was found to have."""
        for name_key, version in observed.items():
            entry = self.entries.get(name_key)
            if entry:
                entry.live, entry.after = version, {version}

    def check_stale(self):
        """Leases and contexts of the killed daemon mean nothing to the next one."""
        if self.lease is not None and self.lease._struct.id:
            try:
                self.lease.release()
                raise Wrong("a lease of the killed daemon was released by the next one")
            except cairn.Stale:
                pass
        if self.context is not None:
            try:
                self.retrieve(self.context)
                raise Wrong("a context of the killed daemon was answered by the next one")
            except cairn.Stale:
                pass
        self.lease = self.context = None

    def run(self, until):
        """Works until the daemon is gone, or until that time of the monotonic clock; then says what must be true."""
        try:
            self.check_stale()
            while time.monotonic() < until:
                self.step()
        except cairn.Disconnected:
            self.counts["cut_off"] += 1
        return {name_key: set(entry.after) for name_key, entry in self.entries.items()}

    def step(self):
        kind = self.rng.random()
        name = self.rng.choices(("opaque", "attention", "shared"), (5, 3, 1))[0]
        chain = self.rng.choice(self.chains[name])
        begin = self.rng.randrange(len(chain))
        keys = chain[begin:begin + self.rng.randint(1, 6)]
        parent = chain[begin - 1] if begin > 0 else None
        if kind < 0.5:
            self.put(name, keys, parent, "disk" if self.rng.random() < 0.6 else "memory")
        elif kind < 0.75 and name != "shared":
            self.delete(name, keys)
        elif kind < 0.95:
            self.get(name, keys)
        elif self.lease is None:
            self.lease = self.spaces[name].lookup(chain, lease_s=600)
        elif name == "attention":
            self.use_context(chain)

    def put(self, name, keys, parent, ack):
        space = self.spaces[name]
        entries = [self.entries[name, key] for key in keys]
        before = [set(entry.after) for entry in entries]
        versions = [0 if name == "shared" else entry.version + 1 for entry in entries]
        for entry, version in zip(entries, versions):
            entry.after = entry.after | {version}
        blocks = [pattern.block(space, key, version) for key, version in zip(keys, versions)]
        live = [entry.live for entry in entries]
        for entry in entries:
            entry.live = UNKNOWN
        statuses = space.try_put(keys, blocks, parent=parent, ack=ack)
        for i, (entry, status) in enumerate(zip(entries, statuses)):
            if status == Status.OK:
                if live[i] not in (None, UNKNOWN) and name != "shared":
                    raise Wrong(f"a put of {name} {keys[i].hex()[:8]} was taken over version {live[i]}")
                entry.live = entry.version = versions[i]
                entry.after = {versions[i]} if ack == "disk" else {versions[i], None}
                self.counts["puts_" + ack] += 1
            elif status == Status.EEXIST:
                if live[i] is None and name != "shared":
                    raise Wrong(f"a put of {name} {keys[i].hex()[:8]} found a block that was deleted")
                entry.live, entry.after = (0 if name == "shared" else live[i]), before[i]
                self.counts["existing"] += 1
                if name == "shared":  # another worker's, whose promise is its own
                    entry.after = entry.after | {0}
            else:
                raise Wrong(f"a put of {name} {keys[i].hex()[:8]} ended with {status!r}")

    def delete(self, name, keys):
        entries = [self.entries[name, key] for key in keys]
        live = [entry.live for entry in entries]
        for entry in entries:
            entry.after = entry.after | {None}
            entry.live = UNKNOWN
        for i, (entry, status) in enumerate(zip(entries, self.spaces[name].delete(keys))):
            wanted = (Status.OK, Status.ENOENT) if live[i] is UNKNOWN else (
                Status.ENOENT if live[i] is None else Status.OK,)
            if status not in wanted:
                raise Wrong(f"a delete of {name} {keys[i].hex()[:8]} at version {live[i]} ended with {status!r}")
            entry.live, entry.after = None, {None}
            self.counts["deletes"] += 1

    def get(self, name, keys):
        space = self.spaces[name]
        data, statuses = space.try_get(keys)
        for key, block, status in zip(keys, data, statuses):
            entry = self.entries[name, key]
            if status not in (Status.OK, Status.ENOENT):
                raise Wrong(f"a get of {name} {key.hex()[:8]} ended with {status!r}")
            version = None
            if status == Status.OK:
                version = pattern.version_of(space, key, block)
                if version is None:
                    raise Wrong(f"torn: {name} {key.hex()[:8]}: {pattern.describe(space, block)}")
            if name == "shared" and entry.live is None:
                continue  # others put it, whenever they like
            if entry.live is not UNKNOWN and version != entry.live:
                raise Wrong(f"a get of {name} {key.hex()[:8]} gave version {version}, not {entry.live}")
            self.counts["gets" if status == Status.OK else "misses"] += 1

    def use_context(self, chain):
        present = 0
        while present < len(chain) and isinstance(self.entries["attention", chain[present]].live, int):
            present += 1
        if present == 0:
            return
        context = self.spaces["attention"].open_context(chain[:present])
        found = self.retrieve(context)
        positions = np.sort(found.positions[0, :found.counts[0]])
        if not np.array_equal(positions, np.arange(present * 16)):
            raise Wrong(f"a context of {present * 16} tokens found {positions.tolist()}")
        self.counts["retrievals"] += 1
        if self.context is None:
            self.context = context  # kept, to be stale after the kill
        else:
            context.close()

    def retrieve(self, context):
        return context.retrieve(0, np.ones((1, 16), np.float32), count=8 * 16)


def main(pipe, socket, number, seed):
    """A process: (observed, until) come in; what must be true, or what went wrong, goes out."""
    try:
        worker = Worker(socket, number, seed)
        pipe.send(("ready", None, None))
        while True:
            order = pipe.recv()
            if order is None:
                return
            worker.learn(order[0])
            after = worker.run(order[1])
            pipe.send(("paused", after, worker.counts))
    except (Wrong, cairn.Error) as error:
        pipe.send(("wrong", f"worker {number}: {type(error).__name__}: {error}", None))
