// Stats: the numbers of daemon and store, one metric each.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        METRICS_MAX = 256,
        LABEL_BYTES = 48
};

struct sheet {
        Cairn__Metric *pointers[METRICS_MAX];
        Cairn__Metric metrics[METRICS_MAX];
        char labels[METRICS_MAX][LABEL_BYTES];
        size_t count;
};

static void put(struct sheet *sheet, const char *name, const char *label, const char *label_value,
                double value)
{
        Cairn__Metric *metric;

        assert(sheet->count < METRICS_MAX);
        metric = &sheet->metrics[sheet->count];
        *metric = (Cairn__Metric)CAIRN__METRIC__INIT;
        metric->name = (char *)name;
        if (label)
                (void)snprintf(sheet->labels[sheet->count], LABEL_BYTES, "%s=\"%s\"", label,
                               label_value);
        metric->labels = sheet->labels[sheet->count];
        metric->value = value;
        sheet->pointers[sheet->count++] = metric;
}

static void put_daemon(struct sheet *sheet, const struct cairn_server *server)
{
        const struct cairn_counters *c = &server->counters;
        const struct {
                const char *name;
                uint64_t value;
        } numbers[] = {
            {"cairn_connections", c->connections},
            {"cairn_requests_inflight", c->requests_inflight},
            {"cairn_requests_bytes", c->requests_bytes},
            {"cairn_leases", c->leases},
            {"cairn_contexts", c->contexts},
            {"cairn_context_bytes", c->context_bytes},
            {"cairn_arenas", c->arenas},
            {"cairn_arena_bytes", c->arena_bytes},
            {"cairn_scorer_pending", cairn_scorer_pending(server->scorer)},
            {"cairn_scorer_threads", cairn_scorer_threads(server->scorer)},
            {"cairn_connections_total", c->connections_total},
            {"cairn_connections_refused_total", c->connections_refused},
            {"cairn_connections_timed_out_total", c->connections_timed_out},
            {"cairn_leases_total", c->leases_total},
            {"cairn_leases_expired_total", c->leases_expired},
            {"cairn_protocol_errors_total", c->protocol_errors},
            {"cairn_descriptors_refused_total", c->descriptors_refused},
            {"cairn_received_bytes_total", c->received_bytes},
            {"cairn_sent_bytes_total", c->sent_bytes},
            {"cairn_tokens_scanned_total", c->tokens_scanned},
            {"cairn_rows_fetched_total", c->rows_fetched},
            {"cairn_uptime_seconds", (cairn_clock_ms() - server->started_ms) / 1000},
        };

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                put(sheet, numbers[i].name, NULL, NULL, (double)numbers[i].value);
        for (uint32_t kind = 0; kind < CAIRN_KIND_COUNT; kind++) {
                if (!cairn_kind_known(kind))
                        continue;
                put(sheet, "cairn_requests_total", "kind", cairn_kind_name(kind),
                    (double)c->requests_total[kind]);
                put(sheet, "cairn_requests_failed_total", "kind", cairn_kind_name(kind),
                    (double)c->requests_failed[kind]);
        }
}

static void put_store(struct sheet *sheet, const struct cairn_store_stats *s)
{
        const struct {
                const char *name;
                uint64_t value;
        } numbers[] = {
            {"cairn_blocks", s->blocks},
            {"cairn_blocks_dirty", s->dirty_blocks},
            {"cairn_spaces", s->spaces},
            {"cairn_holds", s->holds},
            {"cairn_pins", s->pins},
            {"cairn_io_inflight", s->io_inflight},
            {"cairn_puts_waiting", s->waiting_puts},
            {"cairn_puts_total", s->puts},
            {"cairn_puts_failed_total", s->puts_failed},
            {"cairn_puts_existing_total", s->puts_existing},
            {"cairn_ram_hits_total", s->ram_hits},
            {"cairn_nvme_reads_total", s->nvme_reads},
            {"cairn_nvme_read_bytes_total", s->nvme_read_bytes},
            {"cairn_nvme_writes_total", s->nvme_writes},
            {"cairn_nvme_write_bytes_total", s->nvme_write_bytes},
            {"cairn_io_errors_total", s->io_errors},
            {"cairn_blocks_corrupt_total", s->corrupt_blocks},
            {"cairn_blocks_deleted_total", s->deleted},
            {"cairn_commits_total", s->commits},
            {"cairn_blocks_recovered", s->recovered_blocks},
            {"cairn_orphans_recovered", s->recovered_orphans},
            {"cairn_nvme_free_bytes", s->nvme_free_bytes},
            {"cairn_device_uring", s->device_uring},
            {"cairn_device_direct", s->device_direct},
            {"cairn_nvme_failed", s->nvme_failed},
        };

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                put(sheet, numbers[i].name, NULL, NULL, (double)numbers[i].value);
        put(sheet, "cairn_tier_blocks", "tier", "ram", (double)s->ram_blocks);
        put(sheet, "cairn_tier_blocks", "tier", "nvme", (double)s->nvme_blocks);
        put(sheet, "cairn_tier_used_bytes", "tier", "ram", (double)s->ram_used_bytes);
        put(sheet, "cairn_tier_used_bytes", "tier", "nvme", (double)s->nvme_used_bytes);
        put(sheet, "cairn_tier_limit_bytes", "tier", "ram", (double)s->ram_limit_bytes);
        put(sheet, "cairn_tier_limit_bytes", "tier", "nvme", (double)s->nvme_limit_bytes);
        put(sheet, "cairn_evictions_total", "tier", "ram", (double)s->evicted_ram);
        put(sheet, "cairn_evictions_total", "tier", "nvme", (double)s->evicted_nvme);
}

void cairn_serve_stats(struct cairn_request *request)
{
        struct sheet *sheet = cairn_request_op(request, sizeof(*sheet), NULL);
        Cairn__StatsReply reply = CAIRN__STATS_REPLY__INIT;
        struct cairn_store_stats stats;

        if (!sheet) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        cairn_store_stats(request->server->store, &stats);
        put_daemon(sheet, request->server);
        put_store(sheet, &stats);
        reply.metrics = sheet->pointers;
        reply.n_metrics = sheet->count;
        cairn_request_reply(request, &reply);
}
