// The numbers of daemon and store, a sample each. Names follow Prometheus' conventions.
#include "daemon/stats.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/server.h"
#include "daemon/stats_walk.h"
#include "policy/eviction/eviction.h"
#include "proto/status.h"

// ---- where numbers lie ----

struct number {
        const char *name;
        const char *type;
        size_t offset;
        const char *help;
};

#define GAUGE(struct_type, field, name, help)                     \
        {                                                         \
                name, "gauge", offsetof(struct_type, field), help \
        }
#define COUNTER(struct_type, field, name, help)                     \
        {                                                           \
                name, "counter", offsetof(struct_type, field), help \
        }
#define OWN   struct cairn_counters
#define STORE struct cairn_store_stats

static const struct number own_numbers[] = {
    GAUGE(OWN, connections, "cairn_connections", "Open connections."),
    GAUGE(OWN, requests_inflight, "cairn_requests_inflight", "Requests under way."),
    GAUGE(OWN, requests_bytes, "cairn_requests_bytes",
          "Memory of requests under way and of replies not yet sent."),
    GAUGE(OWN, leases, "cairn_leases", "Leases held by workers."),
    GAUGE(OWN, views, "cairn_views", "Blocks that leases pin in RAM, to be read in place."),
    GAUGE(OWN, view_bytes, "cairn_view_bytes", "Bytes of the blocks that leases pin in RAM."),
    GAUGE(OWN, block_pins, "cairn_block_pins", "Pins of workers on blocks."),
    GAUGE(OWN, contexts, "cairn_contexts", "Open contexts."),
    GAUGE(OWN, context_bytes, "cairn_context_bytes", "Memory of what was appended to contexts."),
    GAUGE(OWN, arenas, "cairn_arenas", "Registered arenas."),
    GAUGE(OWN, arena_bytes, "cairn_arena_bytes", "Size of the registered arenas."),
    COUNTER(OWN, connections_total, "cairn_connections_total", "Connections accepted."),
    COUNTER(OWN, connections_refused, "cairn_connections_refused_total",
            "Connections turned away, because too many were open or the peer may not connect."),
    COUNTER(OWN, connections_timed_out, "cairn_connections_timed_out_total",
            "Connections closed because the peer stopped midway."),
    COUNTER(OWN, leases_total, "cairn_leases_total", "Leases given."),
    COUNTER(OWN, leases_expired, "cairn_leases_expired_total",
            "Leases that ended by their deadline."),
    COUNTER(OWN, ram_checks, "cairn_ram_checks_total",
            "Blocks in RAM whose checksums were taken again, as ram_check asks."),
    COUNTER(OWN, protocol_errors, "cairn_protocol_errors_total",
            "Connections that sent what is no frame."),
    COUNTER(OWN, descriptors_refused, "cairn_descriptors_refused_total",
            "File descriptors that came where none may."),
    COUNTER(OWN, received_bytes, "cairn_received_bytes_total", "Bytes read from sockets."),
    COUNTER(OWN, sent_bytes, "cairn_sent_bytes_total", "Bytes written to sockets."),
    COUNTER(OWN, tokens_scanned, "cairn_tokens_scanned_total",
            "Tokens whose landmarks were scored, a token once a layer and KV head."),
    COUNTER(OWN, rows_fetched, "cairn_rows_fetched_total", "Rows gathered for workers."),
    COUNTER(OWN, lookup_tokens, "cairn_lookup_tokens_total",
            "Tokens of blocks found by lookups: prefill that need not be computed again."),
    COUNTER(OWN, saved_bytes, "cairn_prefill_saved_bytes_total",
            "Bytes of K and V in blocks found by lookups: what prefill need not make again."),
    COUNTER(OWN, get_bytes, "cairn_get_bytes_total", "Bytes of blocks given to workers."),
    COUNTER(OWN, put_bytes, "cairn_put_bytes_total", "Bytes of blocks taken from workers."),
};

static const struct number store_numbers[] = {
    GAUGE(STORE, blocks, "cairn_blocks", "Blocks stored."),
    GAUGE(STORE, dirty_blocks, "cairn_blocks_dirty", "Blocks in RAM that are not yet on NVMe."),
    GAUGE(STORE, spaces, "cairn_spaces", "Spaces known."),
    GAUGE(STORE, holds, "cairn_holds", "Holds on blocks by leases, contexts and requests."),
    GAUGE(STORE, pins, "cairn_pins", "Parts of blocks pinned in RAM."),
    GAUGE(STORE, io_inflight, "cairn_io_inflight", "Reads and writes in flight on the disk."),
    GAUGE(STORE, waiting_puts, "cairn_puts_waiting", "Puts that wait for room in RAM."),
    GAUGE(STORE, writes_queued, "cairn_writes_queued", "Blocks that wait to be written to NVMe."),
    GAUGE(STORE, commits_pending, "cairn_commits_pending",
          "Blocks written, whose commit to the catalog is under way."),
    GAUGE(STORE, nvme_free_bytes, "cairn_nvme_free_bytes", "Free slots in allocated slabs."),
    GAUGE(STORE, recovered_blocks, "cairn_blocks_recovered", "Blocks found at the start."),
    GAUGE(STORE, recovered_orphans, "cairn_orphans_recovered",
          "Slots without a block that were freed at the start."),
    COUNTER(STORE, puts, "cairn_puts_total", "Blocks committed."),
    COUNTER(STORE, puts_failed, "cairn_puts_failed_total", "Blocks that could not be stored."),
    COUNTER(STORE, puts_existing, "cairn_puts_existing_total",
            "Puts of blocks that were there already."),
    COUNTER(STORE, ram_hits, "cairn_ram_hits_total", "Reads of blocks that RAM held."),
    COUNTER(STORE, nvme_reads, "cairn_nvme_reads_total", "Reads of blocks from NVMe."),
    COUNTER(STORE, nvme_read_bytes, "cairn_nvme_read_bytes_total", "Bytes read from NVMe."),
    COUNTER(STORE, nvme_writes, "cairn_nvme_writes_total", "Writes of blocks to NVMe."),
    COUNTER(STORE, nvme_write_bytes, "cairn_nvme_write_bytes_total", "Bytes written to NVMe."),
    COUNTER(STORE, io_errors, "cairn_io_errors_total", "Reads and writes that failed."),
    COUNTER(STORE, corrupt_blocks, "cairn_blocks_corrupt_total",
            "Blocks whose bytes failed their checksum; each became a miss."),
    COUNTER(STORE, corrupt_copies, "cairn_ram_copies_corrupt_total",
            "Copies in RAM that failed their checksum and were read from NVMe again."),
    COUNTER(STORE, deleted, "cairn_blocks_deleted_total", "Blocks deleted on request."),
    COUNTER(STORE, commits, "cairn_commits_total", "Transactions of the catalog."),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// ---- visiting ----

static size_t append(char *labels, size_t used, const char *text)
{
        while (*text != '\0' && used < CAIRN_STATS_LABELS_BYTES - 1)
                labels[used++] = *text++;
        labels[used] = '\0';
        return used;
}

size_t cairn_stats_label(char *labels, size_t used, const char *name, const char *value)
{
        if (used > 0)
                used = append(labels, used, ",");
        used = append(labels, used, name);
        used = append(labels, used, "=\"");
        used = append(labels, used, value);
        return append(labels, used, "\"");
}

void cairn_stats_give(const struct cairn_stats_walk *walk, const char *name, const char *type,
                      const char *help, const char *labels, double value)
{
        struct cairn_sample sample = {.name = name,
                                      .type = type,
                                      .help = help,
                                      .suffix = "",
                                      .labels = labels,
                                      .value = value};

        walk->visit(walk->arg, &sample);
}

static void give_numbers(const struct cairn_stats_walk *walk, const struct number *numbers,
                         size_t count, const void *base)
{
        for (size_t i = 0; i < count; i++) {
                uint64_t value;

                memcpy(&value, (const uint8_t *)base + numbers[i].offset, sizeof(value));
                cairn_stats_give(walk, numbers[i].name, numbers[i].type, numbers[i].help, "",
                                 (double)value);
        }
}

static void give_tiers(const struct cairn_stats_walk *walk, const struct cairn_store_stats *s)
{
        static const char ram[] = "tier=\"ram\"";
        static const char nvme[] = "tier=\"nvme\"";
        const struct {
                const char *name;
                const char *type;
                const char *help;
                uint64_t ram;
                uint64_t nvme;
        } pairs[] = {
            {"cairn_tier_blocks", "gauge", "Blocks in a tier.", s->ram_blocks, s->nvme_blocks},
            {"cairn_tier_used_bytes", "gauge", "Bytes used in a tier.", s->ram_used_bytes,
             s->nvme_used_bytes},
            {"cairn_tier_limit_bytes", "gauge", "Configured bound of a tier.", s->ram_limit_bytes,
             s->nvme_limit_bytes},
            {"cairn_evictions_total", "counter", "Blocks that left a tier to make room.",
             s->evicted_ram, s->evicted_nvme},
        };

        for (size_t i = 0; i < COUNT(pairs); i++) {
                cairn_stats_give(walk, pairs[i].name, pairs[i].type, pairs[i].help, ram,
                                 (double)pairs[i].ram);
                cairn_stats_give(walk, pairs[i].name, pairs[i].type, pairs[i].help, nvme,
                                 (double)pairs[i].nvme);
        }
}

static void give_flags(const struct cairn_stats_walk *walk, const struct cairn_server *server,
                       const struct cairn_store_stats *s)
{
        cairn_stats_give(walk, "cairn_device_uring", "gauge",
                         "1 if blocks are read and written by io_uring.", "", s->device_uring);
        cairn_stats_give(walk, "cairn_device_direct", "gauge", "1 if O_DIRECT is in use.", "",
                         s->device_direct);
        cairn_stats_give(walk, "cairn_nvme_failed", "gauge",
                         "1 if the data directory cannot be written: RAM alone serves.", "",
                         s->nvme_failed);
        cairn_stats_give(walk, "cairn_scorer_pending", "gauge", "Work that waits for a scorer.", "",
                         cairn_scorer_pending(server->scorer));
        cairn_stats_give(walk, "cairn_scorer_threads", "gauge", "Scorer threads.", "",
                         cairn_scorer_threads(server->scorer));
        cairn_stats_give(walk, "cairn_draining", "gauge", "1 once the daemon is stopping.", "",
                         server->state >= CAIRN_SERVER_DRAINING);
        cairn_stats_give(walk, "cairn_nvme_read_busy_seconds_total", "counter",
                         "Time in which one read of NVMe or more were under way: bytes read over "
                         "this is what the disk gives.",
                         "", (double)s->nvme_read_busy_ms / 1000);
        cairn_stats_give(walk, "cairn_uptime_seconds", "gauge", "Time since the start.", "",
                         (double)((cairn_clock_ms() - server->started_ms) / 1000));
}

// ---- blocks asked for ----

static const char *tier_name(size_t tier)
{
        static const char *const names[CAIRN_TIERS_COUNT] = {"none", "ram", "nvme", "remote"};

        return names[tier];
}

static void give_outcomes(const struct cairn_stats_walk *walk, const char *name, const char *help,
                          const uint64_t blocks[CAIRN_STATUS_COUNT])
{
        char labels[CAIRN_STATS_LABELS_BYTES];

        for (int status = 0; status < CAIRN_STATUS_COUNT; status++) {
                if (blocks[status] == 0 && status != 0)
                        continue; // most never happen
                (void)cairn_stats_label(labels, 0, "status", cairn_status_name(-status));
                cairn_stats_give(walk, name, "counter", help, labels, (double)blocks[status]);
        }
}

static void give_blocks(const struct cairn_stats_walk *walk, const struct cairn_counters *c)
{
        char labels[CAIRN_STATS_LABELS_BYTES];

        for (size_t tier = 0; tier < CAIRN_TIERS_COUNT; tier++) {
                (void)cairn_stats_label(labels, 0, "tier", tier_name(tier));
                cairn_stats_give(
                    walk, "cairn_lookup_blocks_total", "counter",
                    "Blocks asked for by lookups, by the tier that had them; none: a miss.", labels,
                    (double)c->lookup_blocks[tier]);
        }
        give_outcomes(walk, "cairn_get_blocks_total",
                      "Blocks asked for by Get, by the status answered.", c->get_blocks);
        give_outcomes(walk, "cairn_put_blocks_total",
                      "Blocks offered by Put, by the status answered.", c->put_blocks);
}

// ---- requests by kind ----

static void give_kinds(const struct cairn_stats_walk *walk, const char *name, const char *help,
                       const uint64_t *values)
{
        char labels[CAIRN_STATS_LABELS_BYTES];

        for (uint32_t kind = 0; kind < CAIRN_KIND_COUNT; kind++) {
                if (!cairn_kind_known(kind))
                        continue;
                (void)cairn_stats_label(labels, 0, "kind", cairn_kind_name(kind));
                cairn_stats_give(walk, name, "counter", help, labels, (double)values[kind]);
        }
}

// Seconds, and as the label has them: printing a number takes longer than all else here.
static const struct {
        double seconds;
        const char *text;
} bounds[CAIRN_LATENCY_BUCKETS - 1] = {
    {1e-5, "1e-05"},  {2e-5, "2e-05"}, {5e-5, "5e-05"}, {1e-4, "0.0001"}, {2e-4, "0.0002"},
    {5e-4, "0.0005"}, {1e-3, "0.001"}, {2e-3, "0.002"}, {5e-3, "0.005"},  {0.01, "0.01"},
    {0.02, "0.02"},   {0.05, "0.05"},  {0.1, "0.1"},    {0.2, "0.2"},     {0.5, "0.5"},
    {1, "1"},         {2, "2"},        {5, "5"},        {10, "10"}};

double cairn_latency_bound(size_t bucket)
{
        return bucket < COUNT(bounds) ? bounds[bucket].seconds : (double)INFINITY;
}

void cairn_stats_add_latency(struct cairn_latency *latency, uint64_t duration_ns)
{
        size_t bucket = 0;

        while ((double)duration_ns > cairn_latency_bound(bucket) * 1e9)
                bucket++;
        assert(bucket < CAIRN_LATENCY_BUCKETS);
        latency->buckets[bucket]++;
        latency->sum_ns += duration_ns;
        latency->count++;
}

void cairn_stats_add_blocks(uint64_t blocks[CAIRN_STATUS_COUNT], uint64_t *bytes_total,
                            const int32_t *statuses, size_t count, uint64_t bytes)
{
        for (size_t i = 0; i < count; i++) {
                assert(statuses[i] <= 0 && statuses[i] > -CAIRN_STATUS_COUNT);
                blocks[-statuses[i]]++;
                *bytes_total += statuses[i] == CAIRN_OK ? bytes : 0;
        }
}

static void give_latency(const struct cairn_stats_walk *walk, uint32_t kind,
                         const struct cairn_latency *latency)
{
        char labels[CAIRN_STATS_LABELS_BYTES];
        struct cairn_sample sample = {
            .name = "cairn_request_duration_seconds",
            .type = "histogram",
            .help = "From the receipt of a request to its answer; kinds that were asked for.",
            .suffix = "_bucket",
            .labels = labels};
        size_t own = cairn_stats_label(labels, 0, "kind", cairn_kind_name(kind));
        uint64_t below = 0;

        for (size_t i = 0; i < CAIRN_LATENCY_BUCKETS; i++) {
                below += latency->buckets[i];
                (void)cairn_stats_label(labels, own, "le",
                                        i < COUNT(bounds) ? bounds[i].text : "+Inf");
                sample.value = (double)below;
                walk->visit(walk->arg, &sample);
        }
        labels[own] = '\0';
        sample.suffix = "_sum";
        sample.value = (double)latency->sum_ns / 1e9;
        walk->visit(walk->arg, &sample);
        sample.suffix = "_count";
        sample.value = (double)latency->count;
        walk->visit(walk->arg, &sample);
}

// Counters of evictions carry no policy, since a daemon has one: a query joins them with this.
static void give_policies(const struct cairn_stats_walk *walk, const struct cairn_server *server)
{
        static const char *const admissions[] = {[CAIRN_CONFIG_ALWAYS] = "always",
                                                 [CAIRN_CONFIG_SECOND_USE] = "second-use",
                                                 [CAIRN_CONFIG_TINYLFU] = "tinylfu"};
        char labels[CAIRN_STATS_LABELS_BYTES];

        (void)cairn_stats_label(labels,
                                cairn_stats_label(labels, 0, "eviction",
                                                  cairn_eviction_name(server->config->eviction)),
                                "admission", admissions[server->config->admission]);
        cairn_stats_give(walk, "cairn_policy_info", "gauge", "1; the policies are in the labels.",
                         labels, 1);
}

void cairn_stats_visit(const struct cairn_server *server, bool spaces, cairn_stats_visitor visit,
                       void *arg)
{
        struct cairn_stats_walk walk = {visit, arg};
        const struct cairn_counters *c = &server->counters;
        struct cairn_store_stats stats;

        cairn_store_stats(server->store, &stats);
        cairn_stats_give(&walk, "cairn_build_info", "gauge", "1; the version is in the label.",
                         "version=\"" CAIRN_VERSION "\"", 1);
        give_policies(&walk, server);
        give_numbers(&walk, own_numbers, COUNT(own_numbers), c);
        give_numbers(&walk, store_numbers, COUNT(store_numbers), &stats);
        give_tiers(&walk, &stats);
        give_flags(&walk, server, &stats);
        give_blocks(&walk, c);
        give_kinds(&walk, "cairn_requests_total", "Requests by kind.", c->requests_total);
        give_kinds(&walk, "cairn_requests_failed_total",
                   "Requests answered with an error, by kind.", c->requests_failed);
        for (uint32_t kind = 0; kind < CAIRN_KIND_COUNT; kind++)
                if (c->latency[kind].count > 0)
                        give_latency(&walk, kind, &c->latency[kind]);
        cairn_stats_give_misses(&walk, c);
        cairn_stats_give_mass(&walk, &c->mass);
        if (spaces) {
                cairn_stats_give_spaces(&walk, server);
                cairn_stats_give_tenants(&walk, server);
        }
}
