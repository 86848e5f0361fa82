// get, put and lookup through the socket and the arena, as a worker sees them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/daemon.h"

enum {
        SAMPLES_MAX = 200000
};

// Blocks of one space, in an arena, with keys of their own.
struct setup {
        struct cairn_bench_daemon daemon;
        struct cairn_space_config config;
        struct cairn_arena *arena;
        uint8_t *blocks;
        uint8_t *copy; // where the baseline copies to
        struct cairn_key *keys;
        double *samples;
        uint32_t space;
        uint64_t block_bytes;
        uint64_t count;
        uint64_t batch;
        double seconds;
};

static int fail(const struct setup *setup, const char *what, int status)
{
        fprintf(stderr, "cairn-bench: %s: %s (%s)\n", what,
                cairn_client_error(setup->daemon.client), cairn_error_name(status));
        return -1;
}

static void describe(struct cairn_space_config *config, uint64_t block_bytes, bool attention)
{
        cairn_space_config_init(config);
        (void)snprintf(config->model, sizeof(config->model), "bench");
        if (attention) { // f16, 2 KV heads of 128: 1 MiB is 4 layers of 256 tokens
                config->kv_heads = 2;
                config->k_dim = config->v_dim = 128;
                config->layers = (uint32_t)(block_bytes / (2 * 256 * 256 * 2));
                if (config->layers == 0)
                        config->layers = 1;
                return;
        }
        memset(config, 0, sizeof(*config));
        (void)snprintf(config->model, sizeof(config->model), "bench");
        config->kind = CAIRN_SPACE_OPAQUE;
        config->block_tokens = 16;
        config->tp_size = 1;
        config->block_bytes = block_bytes;
}

// A pattern in every page, and in attention spaces numbers that are none too wild.
static void fill(struct setup *setup)
{
        uint64_t bytes = setup->count * setup->block_bytes;

        for (uint64_t i = 0; i + 2 <= bytes; i += 2) {
                uint16_t half = (uint16_t)(0x3000 + ((i * 2654435761u) >> 20 & 0x8fff));

                memcpy(setup->blocks + i, &half, 2);
        }
        memset(setup->copy, 1, bytes);
}

static void name_keys(struct setup *setup, uint64_t round)
{
        uint32_t token[4] = {(uint32_t)round, (uint32_t)(round >> 32), 0, 0};
        struct cairn_key parent;
        struct cairn_key fingerprint;

        cairn_space_config_fingerprint(&setup->config, &fingerprint);
        cairn_chain_keys(&fingerprint, 4, NULL, 0, NULL, 0, NULL, token, 4, &parent);
        for (uint64_t i = 0; i < setup->count; i++) {
                token[2] = (uint32_t)i;
                cairn_chain_keys(&fingerprint, 4, NULL, 0, NULL, 0,
                                 i ? &setup->keys[i - 1] : &parent, token, 4, &setup->keys[i]);
        }
}

static void finish(struct setup *setup)
{
        cairn_bench_daemon_stop(&setup->daemon);
        free(setup->copy);
        free(setup->keys);
        free(setup->samples);
}

static int begin(int argc, char **argv, struct setup *setup, uint64_t nvme_bytes)
{
        uint64_t total;
        int status;

        *setup = (struct setup){0};
        setup->block_bytes = cairn_bench_flag_u64(argc, argv, "block-bytes", 1 << 20);
        setup->count = cairn_bench_flag_u64(argc, argv, "blocks", 64);
        setup->batch = cairn_bench_flag_u64(argc, argv, "batch", 8);
        setup->seconds = cairn_bench_flag_double(argc, argv, "seconds", 3);
        if (setup->count == 0 || setup->count > 4096 || setup->batch == 0 ||
            setup->batch > setup->count || setup->block_bytes == 0) {
                fprintf(stderr, "cairn-bench: 1 to 4096 blocks, and no larger batch, please\n");
                return -1;
        }
        describe(&setup->config, setup->block_bytes, cairn_bench_flag_set(argc, argv, "attention"));
        setup->block_bytes = cairn_space_config_block_bytes(&setup->config);
        total = setup->count * setup->block_bytes;
        setup->copy = malloc(total);
        setup->keys = calloc(setup->count, sizeof(*setup->keys));
        setup->samples = calloc(SAMPLES_MAX, sizeof(*setup->samples));
        if (!setup->copy || !setup->keys || !setup->samples ||
            cairn_bench_daemon_start(argc, argv, 4 * total + (256u << 20), nvme_bytes,
                                     &setup->daemon) != 0) {
                finish(setup);
                return -1;
        }
        status = cairn_client_open_space(setup->daemon.client, &setup->config, &setup->space);
        if (status == CAIRN_OK)
                status = cairn_client_arena_create(setup->daemon.client, total, &setup->arena);
        if (status != CAIRN_OK) {
                (void)fail(setup, "open", status);
                finish(setup);
                return -1;
        }
        setup->blocks = cairn_client_arena_data(setup->arena);
        fill(setup);
        name_keys(setup, 0);
        return 0;
}

static int put_batch(struct setup *setup, uint64_t first, uint32_t ack)
{
        uint64_t count = setup->count - first < setup->batch ? setup->count - first : setup->batch;
        struct cairn_put_args args = {
            .space = setup->space,
            .keys = setup->keys + first,
            .count = count,
            .parent = first ? &setup->keys[first - 1] : NULL,
            .blocks = setup->blocks + first * setup->block_bytes,
            .ack = ack,
        };

        return cairn_put(setup->daemon.client, NULL, &args, NULL);
}

static int put_all(struct setup *setup, uint32_t ack)
{
        int status = CAIRN_OK;

        for (uint64_t first = 0; first < setup->count && status == CAIRN_OK; first += setup->batch)
                status = put_batch(setup, first, ack);
        return status;
}

// One memcpy of a batch, timed.
static double copy_batch_s(struct setup *setup, uint64_t first)
{
        uint64_t count = setup->count - first < setup->batch ? setup->count - first : setup->batch;
        double begin_s = cairn_bench_now_s();

        memcpy(setup->copy + first * setup->block_bytes, setup->blocks + first * setup->block_bytes,
               count * setup->block_bytes);
        __asm__ volatile("" ::"r"(setup->copy) : "memory");
        return cairn_bench_now_s() - begin_s;
}

// What was measured: `ours` beside as many bytes of memcpy.
struct tally {
        size_t samples;
        double ours_s;
        double copies_s;
        double bytes;
        double cpu_s;        // of the daemon
        double client_cpu_s; // of this thread, while it waited for the daemon
        double copies_cpu_s;
};

// The baseline's part of a round.
static void copy_all(struct setup *setup, struct tally *tally)
{
        double cpu_s = cairn_bench_cpu_s();

        for (uint64_t first = 0; first < setup->count; first += setup->batch)
                tally->copies_s += copy_batch_s(setup, first);
        tally->copies_cpu_s += cairn_bench_cpu_s() - cpu_s;
        tally->bytes += (double)(setup->count * setup->block_bytes);
}

static void report_of(struct setup *setup, const struct tally *tally, const char *flags,
                      struct cairn_bench_report *report)
{
        (void)snprintf(report->params, sizeof(report->params),
                       "{\"block_bytes\": %llu, \"blocks\": %llu, \"batch\": %llu%s}",
                       (unsigned long long)setup->block_bytes, (unsigned long long)setup->count,
                       (unsigned long long)setup->batch, flags);
        (void)snprintf(report->unit, sizeof(report->unit), "GB/s");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name),
                       "memcpy of the same batches");
        report->value = tally->bytes / tally->ours_s / 1e9;
        report->baseline = tally->bytes / tally->copies_s / 1e9;
        report->ratio = report->value / report->baseline;
        cairn_bench_extra(report, "batch_p50_us",
                          1e6 * cairn_bench_quantile(setup->samples, tally->samples, 0.5));
        cairn_bench_extra(report, "batch_p99_us",
                          1e6 * cairn_bench_quantile(setup->samples, tally->samples, 0.99));
        cairn_bench_extra(report, "batches", (double)tally->samples);
        cairn_bench_extra(report, "daemon_cpu_s_per_gb", tally->cpu_s / (tally->bytes / 1e9));
        cairn_bench_extra(report, "client_cpu_s_per_gb",
                          tally->client_cpu_s / (tally->bytes / 1e9));
        // On a machine that others keep busy, this says more than the ratio of wall times.
        if (tally->cpu_s > 0)
                cairn_bench_extra(report, "cpu_ratio",
                                  tally->copies_cpu_s / (tally->cpu_s + tally->client_cpu_s));
}

// ---- get ----

static int get_batch(struct setup *setup, uint64_t first)
{
        uint64_t count = setup->count - first < setup->batch ? setup->count - first : setup->batch;
        struct cairn_get_args args = {
            .space = setup->space,
            .keys = setup->keys + first,
            .count = count,
            .blocks = setup->blocks + first * setup->block_bytes,
        };

        return cairn_get(setup->daemon.client, NULL, &args, NULL);
}

static int measure_get(struct setup *setup, struct tally *tally)
{
        double end_s = cairn_bench_now_s() + setup->seconds;
        double cpu_s = cairn_bench_daemon_cpu_s(&setup->daemon);
        int status = CAIRN_OK;

        while (cairn_bench_now_s() < end_s && tally->samples < SAMPLES_MAX) {
                double own_s = cairn_bench_cpu_s();

                for (uint64_t first = 0; first < setup->count; first += setup->batch) {
                        double begin_s = cairn_bench_now_s();

                        status = get_batch(setup, first);
                        if (status != CAIRN_OK)
                                return status;
                        if (tally->samples == SAMPLES_MAX)
                                break;
                        setup->samples[tally->samples] = cairn_bench_now_s() - begin_s;
                        tally->ours_s += setup->samples[tally->samples++];
                }
                tally->client_cpu_s += cairn_bench_cpu_s() - own_s;
                copy_all(setup, tally);
        }
        tally->cpu_s = cairn_bench_daemon_cpu_s(&setup->daemon) - cpu_s;
        return CAIRN_OK;
}

int cairn_bench_get(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct setup setup;
        struct tally tally = {0};
        int status;

        if (begin(argc, argv, &setup, 0) != 0)
                return -1;
        status = put_all(&setup, CAIRN_PUT_ACK_MEMORY);
        memcpy(setup.copy, setup.blocks, setup.count * setup.block_bytes);
        memset(setup.blocks, 0, setup.count * setup.block_bytes);
        for (uint64_t first = 0; first < setup.count && status == CAIRN_OK; first += setup.batch)
                status = get_batch(&setup, first); // warm
        if (status == CAIRN_OK &&
            memcmp(setup.copy, setup.blocks, setup.count * setup.block_bytes) != 0) {
                fprintf(stderr, "cairn-bench: get returned other bytes than were put\n");
                finish(&setup);
                return -1;
        }
        if (status == CAIRN_OK)
                status = measure_get(&setup, &tally);
        if (status == CAIRN_OK)
                report_of(&setup, &tally, "", ret_report);
        else
                (void)fail(&setup, "get", status);
        finish(&setup);
        return status == CAIRN_OK ? 0 : -1;
}

// ---- put ----

static int measure_put(struct setup *setup, uint32_t ack, struct tally *tally)
{
        double end_s = cairn_bench_now_s() + setup->seconds;
        int status = CAIRN_OK;

        for (uint64_t round = 1; cairn_bench_now_s() < end_s && tally->samples < SAMPLES_MAX;
             round++) {
                double cpu_s = cairn_bench_daemon_cpu_s(&setup->daemon);
                double own_s = cairn_bench_cpu_s();

                name_keys(setup, round);
                for (uint64_t first = 0; first < setup->count; first += setup->batch) {
                        double begin_s = cairn_bench_now_s();

                        status = put_batch(setup, first, ack);
                        if (status != CAIRN_OK)
                                return status;
                        if (tally->samples == SAMPLES_MAX)
                                break;
                        setup->samples[tally->samples] = cairn_bench_now_s() - begin_s;
                        tally->ours_s += setup->samples[tally->samples++];
                }
                tally->cpu_s += cairn_bench_daemon_cpu_s(&setup->daemon) - cpu_s;
                tally->client_cpu_s += cairn_bench_cpu_s() - own_s;
                copy_all(setup, tally);
                // Leaves first, so that the next round finds the room that this one took.
                for (uint64_t i = setup->count; i > 0 && status == CAIRN_OK; i--)
                        status = cairn_delete(setup->daemon.client, NULL, setup->space,
                                              &setup->keys[i - 1], 1, false, NULL);
                if (status != CAIRN_OK)
                        return status;
        }
        return CAIRN_OK;
}

int cairn_bench_put(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        const char *ack = cairn_bench_flag_text(argc, argv, "ack", "memory");
        bool attention = cairn_bench_flag_set(argc, argv, "attention");
        bool disk = strcmp(ack, "disk") == 0;
        struct setup setup;
        struct tally tally = {0};
        char flags[96];
        int status;

        if (!disk && strcmp(ack, "memory") != 0) {
                fprintf(stderr, "cairn-bench: --ack %s: memory or disk, please\n", ack);
                return -1;
        }
        if (begin(argc, argv, &setup, disk ? 4ull << 30 : 0) != 0)
                return -1;
        status = put_all(&setup, disk ? CAIRN_PUT_ACK_DISK : CAIRN_PUT_ACK_MEMORY); // warm
        if (status == CAIRN_OK)
                status =
                    measure_put(&setup, disk ? CAIRN_PUT_ACK_DISK : CAIRN_PUT_ACK_MEMORY, &tally);
        (void)snprintf(flags, sizeof(flags), ", \"ack\": \"%s\", \"space\": \"%s\"", ack,
                       attention ? "attention" : "opaque");
        if (status == CAIRN_OK)
                report_of(&setup, &tally, flags, ret_report);
        else
                (void)fail(&setup, "put", status);
        finish(&setup);
        return status == CAIRN_OK ? 0 : -1;
}

// ---- lookup ----

static int measure_lookup(struct setup *setup, uint32_t lease_ms, struct cairn_bench_echo *echo,
                          double *echo_samples, size_t *ret_samples)
{
        double end_s = cairn_bench_now_s() + setup->seconds;
        size_t samples = 0;

        while (cairn_bench_now_s() < end_s && samples < SAMPLES_MAX) {
                struct cairn_lease lease = {0};
                size_t found = 0;
                double begin_s = cairn_bench_now_s();
                int status = cairn_lookup(setup->daemon.client, NULL, setup->space, setup->keys,
                                          setup->count, lease_ms, &found, lease_ms ? &lease : NULL);

                setup->samples[samples] = cairn_bench_now_s() - begin_s;
                if (status != CAIRN_OK || found != setup->count) {
                        fprintf(stderr, "cairn-bench: %zu of %llu keys found\n", found,
                                (unsigned long long)setup->count);
                        return status != CAIRN_OK ? status : CAIRN_ENOENT;
                }
                if (lease.id)
                        status = cairn_release(setup->daemon.client, NULL, &lease);
                if (status != CAIRN_OK)
                        return status;
                echo_samples[samples++] = cairn_bench_echo_s(echo);
        }
        *ret_samples = samples;
        return CAIRN_OK;
}

static void report_lookup(struct setup *setup, double *echo_samples, size_t samples,
                          uint32_t lease_ms, struct cairn_bench_report *report)
{
        (void)snprintf(report->params, sizeof(report->params),
                       "{\"blocks\": %llu, \"lease_ms\": %u}", (unsigned long long)setup->count,
                       lease_ms);
        (void)snprintf(report->unit, sizeof(report->unit), "us");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name),
                       "bare round trip to a process, same bytes");
        report->value = 1e6 * cairn_bench_quantile(setup->samples, samples, 0.5);
        report->baseline = 1e6 * cairn_bench_quantile(echo_samples, samples, 0.5);
        report->ratio = report->value / report->baseline; // latency over latency
        cairn_bench_extra(report, "p99_us",
                          1e6 * cairn_bench_quantile(setup->samples, samples, 0.99));
        cairn_bench_extra(report, "baseline_p99_us",
                          1e6 * cairn_bench_quantile(echo_samples, samples, 0.99));
        cairn_bench_extra(report, "samples", (double)samples);
}

int cairn_bench_lookup(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        static char *small[] = {"lookup", "--block-bytes", "4096"};
        uint32_t lease_ms = (uint32_t)cairn_bench_flag_u64(argc, argv, "lease-ms", 30000);
        char **all = calloc((size_t)argc + 3, sizeof(*all));
        double *echo_samples = calloc(SAMPLES_MAX, sizeof(*echo_samples));
        struct cairn_bench_echo echo;
        struct setup setup;
        size_t samples = 0;
        int status;

        if (!all || !echo_samples)
                return -1;
        memcpy(all, argv, (size_t)argc * sizeof(*all));
        memcpy(all + argc, small + 1, 2 * sizeof(*all)); // blocks whose bytes do not matter
        status = begin(argc + 2, all, &setup, 0);
        free(all);
        if (status != 0) {
                free(echo_samples);
                return -1;
        }
        // A Lookup's frames: 32 bytes of header, a few of message, the keys; a tier a key comes
        // back.
        if (cairn_bench_echo_start(32 + 8 + 32 * setup.count, 32 + 16 + setup.count, &echo) != 0)
                return -1;
        status = put_all(&setup, CAIRN_PUT_ACK_MEMORY);
        if (status == CAIRN_OK)
                status = measure_lookup(&setup, lease_ms, &echo, echo_samples, &samples);
        if (status == CAIRN_OK)
                report_lookup(&setup, echo_samples, samples, lease_ms, ret_report);
        else
                (void)fail(&setup, "lookup", status);
        cairn_bench_echo_stop(&echo);
        finish(&setup);
        free(echo_samples);
        return status == CAIRN_OK ? 0 : -1;
}
