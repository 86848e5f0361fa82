"""A daemon with all hands full: many workers at once served evenly, and memory within the sum of the budgets."""
import os
import random
import selectors
import struct
import time
import unittest

from wire import (APPEND, ENOMEM, GET, HEADER, OK, OPEN_CONTEXT, PUT, RETRIEVE, SLOW, DaemonCase, Space, fields, frame,
                  key, message, numbers, region, zigzag)

MIB = 1 << 20
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or int(time.time())


class Worker:
    """A batch of blocks asked for by requests of some, so many under way at once."""

    def __init__(self, connection, number, keys, blocks, depth):
        self.connection, self.number, self.keys, self.blocks, self.depth = connection, number, keys, blocks, depth
        self.kind, self.a_request, self.sent, self.served, self.lost = None, 0, 0, 0, []
        self.input, self.output = bytearray(), bytearray()
        connection.socket.setblocking(False)

    def begin(self, kind, a_request):
        self.kind, self.a_request, self.sent, self.served = kind, a_request, 0, 0
        for _ in range(self.depth):
            self.ask()

    def ask(self):
        if self.sent >= len(self.keys):
            return
        some = slice(self.sent, self.sent + self.a_request)
        body, payload = {1: self.number, 2: b"".join(self.keys[some])}, b""
        if self.kind == PUT:
            body = {1: self.number, 3: b"".join(self.keys[some])}
            payload = b"".join(self.blocks[some])
        self.output += frame(self.kind, message(body), payload, id=self.sent + 1000)
        self.sent += len(self.keys[some])

    def write(self):
        try:
            while self.output:
                del self.output[:self.connection.socket.send(self.output[:1 << 18])]
        except BlockingIOError:
            pass

    def read(self):
        """One piece; the replies that are whole are looked at."""
        try:
            piece = self.connection.socket.recv(1 << 18)
        except BlockingIOError:
            return
        assert piece, "the daemon closed the connection"
        self.input += piece
        while len(self.input) >= HEADER.size:
            header = HEADER.unpack_from(self.input)
            size = HEADER.size + header[5] + header[6]
            if len(self.input) < size:
                return
            body, payload = bytes(self.input[HEADER.size:size - header[6]]), bytes(self.input[size - header[6]:size])
            del self.input[:size]
            self.take(header[3] - 1000, header[4], body, payload)
            self.ask()

    def take(self, first, status, body, payload):
        last = min(first + self.a_request, len(self.keys))
        statuses = [zigzag(v) for v in numbers(fields(body).get(1, []))] if status == OK else [status]
        if statuses != [OK] * (last - first):
            self.lost.append((first, statuses[:4]))
        elif self.kind == GET and payload != b"".join(self.blocks[first:last]):
            self.lost.append((first, "other bytes"))
        self.served += last - first


def drive(workers, kind, a_request, seconds):
    """Serves all until they are done. Returns what each had got when the first was."""
    selector = selectors.DefaultSelector()
    spread = None
    for worker in workers:
        worker.begin(kind, a_request)
        selector.register(worker.connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, worker)
    until = time.monotonic() + seconds
    while any(worker.served < len(worker.keys) for worker in workers):
        assert time.monotonic() < until, [worker.served for worker in workers]
        for event, mask in selector.select(1):
            worker = event.data
            if mask & selectors.EVENT_READ:
                worker.read()
            worker.write()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.output else 0)
            if wanted != event.events:
                selector.modify(worker.connection.socket, wanted, worker)
        if spread is None and any(worker.served == len(worker.keys) for worker in workers):
            spread = [worker.served for worker in workers]
    selector.close()
    return spread


class Crowd(DaemonCase):
    """Case 26: queue depth 8 and a batch of 4,096 blocks from 32 workers."""
    flags = dict(ram_bytes="256MiB", nvme_bytes="1GiB")
    SIZE, BATCH, WORKERS, DEPTH = 1024, 4096, 32, 8

    def test_case_26_a_batch_of_4096_from_32_workers(self):
        """Each puts its share of 4,096 blocks, then each gets all of them."""
        space = Space.opaque(self.SIZE)
        keys = [key("crowd", n) for n in range(self.BATCH)]
        blocks = [struct.pack("<Q", n) * (self.SIZE // 8) for n in range(self.BATCH)]
        share = self.BATCH // self.WORKERS
        workers = []
        for i in range(self.WORKERS):
            connection = self.daemon.connect()
            self.addCleanup(connection.close)
            workers.append(Worker(connection, connection.open_space(space), keys[i * share:(i + 1) * share],
                                  blocks[i * share:(i + 1) * share], self.DEPTH))
        self.serve(workers, PUT, 4)
        for worker in workers:
            worker.keys, worker.blocks = keys, blocks
        self.serve(workers, GET, 64)
        for worker in workers:
            worker.connection.close()

    def serve(self, workers, kind, a_request):
        spread = drive(workers, kind, a_request, 120 * SLOW)
        self.assertEqual([worker.lost for worker in workers], [[]] * len(workers), "nothing lost")
        even, whole = sum(spread) / len(spread), len(workers[0].keys)
        square = sum(n * n for n in spread) / len(spread)
        print(f"{'put' if kind == PUT else 'get'}: when the first of {len(workers)} workers had its {whole} blocks, "
              f"they had {min(spread)} to {max(spread)}, {even:.0f} on average; Jain's {even * even / square:.3f}")
        self.assertGreaterEqual(min(spread), whole // 2, "nobody waits for somebody else's batch")


class Memory(DaemonCase):
    """All budgets used at once: what the process takes is their sum, measured."""
    RAM, CONTEXT = (192 * MIB, 96 * MIB) if SLOW == 1 else (32 * MIB, 16 * MIB)
    SCRATCH, REQUEST = 32 * MIB, 32 * MIB
    flags = dict(ram_bytes=RAM, context_bytes=CONTEXT, scratch_bytes=SCRATCH, request_bytes=REQUEST, scorers=2,
                 nvme_bytes=1 << 30)
    space = Space(layers=4, kv_heads=2, k_dim=64, v_dim=64, block_tokens=128, run_tokens=128)

    def values(self, rng, tokens):
        """K and V rows of so many tokens, as halves between 1 and 2, either sign."""
        count = self.space.bytes() // self.space.block_tokens * tokens // 2
        return b"".join(struct.pack("<H", 0x3C00 | rng.getrandbits(10) | rng.getrandbits(1) << 15)
                        for _ in range(min(count, 1 << 14))) * (max(count >> 14, 1))

    def test_memory_is_the_sum_of_the_budgets(self):
        print(f"CAIRN_TEST_SEED={SEED}")
        rng = random.Random(SEED)
        block = self.values(rng, self.space.block_tokens)
        self.assertEqual(len(block), self.space.bytes())
        with self.daemon.connect() as c:
            number = c.open_space(self.space)
            idle = self.daemon.memory()
            for i in range(int(1.5 * self.RAM / len(block))):
                self.assertEqual(c.put(number, [key("memory", SEED, i)], block).statuses(), [OK])
            contexts = []
            while len(contexts) < 64:
                reply = c.call(OPEN_CONTEXT, message({1: number}))
                self.assertEqual(reply.status, OK, reply.text)
                contexts.append(reply.get(1))
                for _ in range(32):
                    body = message({1: contexts[-1], 2: self.space.block_tokens, 3: region(0, 0, len(block))})
                    reply = c.call(APPEND, body, block)
                    if reply.status != OK:
                        break
                if reply.status != OK:
                    break
            self.assertEqual(reply.status, ENOMEM, "contexts are bounded")
            queries = struct.pack("<f", 0.5) * (4 * self.space.k_dim)
            for context in contexts[:-1] * 4:
                body = message({1: [context], 2: [0], 3: 1, 4: 4, 7: message({1: 64}), 11: 1, 13: 1})
                self.assertEqual(c.call(RETRIEVE, body, queries).status, OK)
            stats = c.stats()
            ram, context = stats['cairn_tier_used_bytes{tier="ram"}'], stats["cairn_context_bytes"]
            self.assertGreater(ram, 0.9 * self.RAM, "the RAM tier is full")
            self.assertGreater(context, 0.75 * self.CONTEXT, "and so are the contexts")
            budget = self.RAM + self.CONTEXT + 2 * self.SCRATCH + self.REQUEST
            highest = self.daemon.memory()
            print(f"VmRSS {highest / MIB:.1f} MiB ({idle / MIB:.1f} idle); budgets {budget / MIB:.0f} MiB, of which "
                  f"RAM tier {ram / MIB:.1f} and contexts {context / MIB:.1f} MiB are used")
            self.assertGreater(highest, 0.9 * (ram + context), "else this measures something else")
            if SLOW == 1:  # sanitizers have memory of their own
                self.assertLessEqual(highest, 1.05 * budget + 64 * MIB)
                self.assertLessEqual(highest, 1.05 * (ram + context) + 64 * MIB, "what is not used is not taken")


if __name__ == "__main__":
    unittest.main()
