"""Case 39: a scripted run with known counts, then idle: numbers exact, gauges back to 0. And what the numbers are of."""
import shutil

from test_operate import http_get, samples, wait_for
from wire import *

IDLE_S = float(os.environ.get("CAIRN_IDLE_SECONDS", "2"))
AT_REST = ("cairn_connections", "cairn_requests_inflight", "cairn_requests_bytes", "cairn_leases", "cairn_block_pins",
           "cairn_contexts", "cairn_context_bytes", "cairn_arenas", "cairn_arena_bytes", "cairn_holds", "cairn_pins",
           "cairn_io_inflight", "cairn_puts_waiting", "cairn_blocks_dirty", "cairn_writes_queued", "cairn_commits_pending",
           "cairn_scorer_pending")


class Numbers(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="cairn-test-")
        self.address = os.path.join(self.directory, "metrics")
        self.daemon = None

    def tearDown(self):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.stop()
        shutil.rmtree(self.directory)

    def start(self, **flags):
        self.daemon = Daemon(self.directory, metrics_address=self.address, **flags)

    def page(self):
        return http_get(self.address, "/metrics")[1]

    def numbers(self):
        return samples(self.page())

    def expect(self, exact):
        got = self.numbers()
        self.assertEqual({name: got.get(name) for name in exact}, exact)

    def rest(self):
        """Waits until all gauges that nobody's work holds up are 0, and then that they stay so."""
        def moving():
            got = self.numbers()
            return {name: got[name] for name in AT_REST if got[name] != 0}
        wait_for("gauges at 0", lambda: not moving())
        before = self.numbers()
        time.sleep(IDLE_S)
        after = self.numbers()
        changed = {name: (before.get(name), value) for name, value in after.items() if before.get(name) != value}
        changed.pop("cairn_uptime_seconds", None)
        self.assertEqual(changed, {}, "numbers that moved while idle")
        self.assertEqual(moving(), {})

    def test_case_39_every_number_of_a_scripted_run(self):
        self.start()
        space = Space(dtype=F32, layers=2, kv_heads=2)
        size = space.bytes()
        chain, parent = [], None
        for i in range(6):
            chain.append(block_key(space, parent, range(16 * i, 16 * i + 16)))
            parent = chain[-1]
        absent = [key("absent", i) for i in range(3)]
        with self.daemon.connect() as c:
            number = c.open_space(space)
            blocks = b"".join(struct.pack("<I", 0x3F000000 + i % 251 * 4096) for i in range(4 * size // 4))
            self.assertEqual(c.put(number, chain[:4], blocks).statuses(), [OK] * 4)
            self.assertEqual(c.put(number, chain[:4], blocks).statuses(), [EEXIST] * 4)
            arena = c.arena(1 << 20)
            lease = c.lookup(number, chain, lease_ms=60000)
            self.assertEqual(lease.get(1), 4)
            self.assertEqual(c.get(number, [chain[0], chain[3], *absent]).statuses(), [OK, OK, ENOENT, ENOENT, ENOENT])
            context = c.call(OPEN_CONTEXT, message({1: number, 2: b"".join(chain[:4])})).get(1)
            queries = b"".join(struct.pack("<f", 0.25) for _ in range(4 * space.k_dim))
            for _ in range(3):  # 1 pair, 1 step, 4 query heads: 4 observations each
                body = {1: [context], 2: [0], 3: 1, 4: 4, 5: region(0, 0, len(queries)), 7: message({1: 8})}
                self.assertEqual(c.call(RETRIEVE, message(body), queries).status, OK)
            self.assertEqual(c.call(PIN, message({1: number, 2: chain[0], 4: 0, 5: "me"})).statuses(), [OK])
            self.assertEqual(self.numbers()["cairn_block_pins"], 1)
            self.assertEqual(c.call(UNPIN, message({1: number, 2: chain[0], 3: "me"})).statuses(), [OK])
            self.assertEqual(self.numbers()["cairn_leases"], 1)
            self.assertEqual(self.numbers()["cairn_arena_bytes"], arena.size)
            c.call(RELEASE, message({1: lease.get(2)}))
            c.call(CLOSE_CONTEXT, message({1: context}))
            self.assertEqual(c.call(DELETE, message({1: number, 2: chain[3]})).statuses(), [OK])
            self.assertEqual(c.lookup(number, chain[3:4]).get(1), 0)
            self.assertEqual(c.get(number, [chain[3]]).statuses(), [ENOENT])
            self.assertEqual(c.call(GET, message({1: 99})).status < 0, True)
            arena.close()
        self.rest()
        uid = os.getuid()
        self.expect({
            "cairn_blocks": 3, 'cairn_tier_blocks{tier="ram"}': 3, 'cairn_tier_blocks{tier="nvme"}': 3,
            'cairn_put_blocks_total{status="CAIRN_OK"}': 4, 'cairn_put_blocks_total{status="CAIRN_EEXIST"}': 4,
            "cairn_put_bytes_total": 4 * size, "cairn_get_bytes_total": 2 * size,
            'cairn_get_blocks_total{status="CAIRN_OK"}': 2, 'cairn_get_blocks_total{status="CAIRN_ENOENT"}': 4,
            'cairn_lookup_blocks_total{tier="ram"}': 4, 'cairn_lookup_blocks_total{tier="none"}': 3,
            "cairn_lookup_tokens_total": 64, "cairn_prefill_saved_bytes_total": 4 * size,
            'cairn_misses_total{request="lookup",reason="absent"}': 1,
            'cairn_misses_total{request="lookup",reason="prefix"}': 1,
            'cairn_misses_total{request="lookup",reason="deleted"}': 1,
            'cairn_misses_total{request="get",reason="absent"}': 3,
            'cairn_misses_total{request="get",reason="deleted"}': 1,
            "cairn_retrieve_mass_held_count": 12, 'cairn_retrieve_mass_held_bucket{le="+Inf"}': 12,
            'cairn_requests_total{kind="Retrieve"}': 3, 'cairn_requests_total{kind="Put"}': 2,
            'cairn_requests_total{kind="Get"}': 3, 'cairn_requests_failed_total{kind="Get"}': 1,
            'cairn_request_duration_seconds_count{kind="Retrieve"}': 3,
            "cairn_blocks_deleted_total": 1, "cairn_connections_total": 1, "cairn_leases_total": 1,
            f'cairn_tenant_blocks{{tenant="{uid}"}}': 3,
            f'cairn_tenant_evicted_blocks_total{{tenant="{uid}",reason="capacity"}}': 0,
            f'cairn_tenant_evicted_blocks_total{{tenant="{uid}",reason="expired"}}': 0,
        })
        got = self.numbers()
        self.assertTrue(0 < got["cairn_retrieve_mass_held_sum"] <= 12)
        tenant_ram = got[f'cairn_tenant_used_bytes{{tenant="{uid}",tier="ram"}}']
        self.assertGreaterEqual(tenant_ram, 3 * size)
        spaces = {name: value for name, value in got.items() if name.startswith("cairn_space_ram_bytes")}
        self.assertEqual(list(spaces.values()), [tenant_ram])
        for k in chain + absent:
            self.assertNotIn(k.hex(), self.page())

    def test_all_mass_is_held_where_all_is_chosen(self):
        self.start()
        space = Space(dtype=F32, layers=1, kv_heads=1)
        k = block_key(space, None, range(16))
        with self.daemon.connect() as c:
            number = c.open_space(space)
            c.put(number, [k], b"".join(struct.pack("<f", i % 7 - 3) for i in range(space.bytes() // 4)))
            context = c.call(OPEN_CONTEXT, message({1: number, 2: k})).get(1)
            queries = b"".join(struct.pack("<f", 0.5) for _ in range(space.k_dim))
            body = {1: [context], 2: [0], 3: 1, 4: 1, 5: region(0, 0, len(queries)), 7: message({1: 16})}
            self.assertEqual(c.call(RETRIEVE, message(body), queries).status, OK)
            body[7] = message({1: 1})
            self.assertEqual(c.call(RETRIEVE, message(body), queries).status, OK)
        got = self.numbers()
        self.assertEqual(got["cairn_retrieve_mass_held_count"], 2)
        self.assertGreater(got["cairn_retrieve_mass_held_sum"], 0.999)
        self.assertLess(got["cairn_retrieve_mass_held_sum"], 2)

    def test_policies_are_named(self):
        self.start(eviction="s3fifo", admission="tinylfu")
        self.assertEqual(self.numbers()['cairn_policy_info{eviction="s3fifo",admission="tinylfu"}'], 1)

    def test_misses_of_what_was_evicted(self):
        self.start(ram_bytes="4MiB", nvme_bytes="8MiB", slab_bytes="4MiB")
        with self.daemon.connect() as c:
            space = c.open_space(Space.opaque(65536))
            keys = [key("evicted", i) for i in range(300)]
            for i, k in enumerate(keys):
                self.assertEqual(c.put(space, [k], pattern(65536, i), fields={2: 1}).statuses(), [OK])
            self.assertEqual(c.lookup(space, keys[:1]).get(1), 0)
            self.assertEqual(c.get(space, keys[:5]).statuses(), [ENOENT] * 5)
        got = self.numbers()
        self.assertEqual(got['cairn_misses_total{request="lookup",reason="evicted"}'], 1)
        self.assertEqual(got['cairn_misses_total{request="get",reason="evicted"}'], 5)
        self.assertEqual(300 - got["cairn_blocks"], got['cairn_evictions_total{tier="nvme"}'])

    def test_series_are_bounded(self):
        """More spaces than have series of their own: the others share one."""
        self.start(slab_bytes="1MiB")
        with self.daemon.connect() as c:
            for i in range(140):
                c.put(c.open_space(Space.opaque(4096, model=f"m{i}")), [key(i)], pattern(4096, i))
        wait_for("the connection to end", lambda: self.numbers()["cairn_connections"] == 0)
        blocks = {name: value for name, value in self.numbers().items() if name.startswith("cairn_space_blocks")}
        self.assertEqual(len(blocks), 129)
        self.assertEqual(blocks['cairn_space_blocks{space="other",model="",tenant=""}'], 12)
        self.assertEqual(sum(blocks.values()), 140)


if __name__ == "__main__":
    unittest.main()
