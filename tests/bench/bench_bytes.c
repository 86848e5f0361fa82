// bytes: what landmarks and value codes take in RAM, from the layout and from a real process.
// start: how soon a daemon serves an empty directory, and what it takes when idle.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/landmark/landmark.h"
#include "tests/bench/bench.h"
#include "tests/bench/daemon.h"

extern char **environ;

enum {
        LAYERS = 32, // with 8 KV heads: a model of 8 B parameters
        KV_HEADS = 8,
        BLOCK_TOKENS = 256,
        STARTS = 7
};

// ---- bytes ----

// What a context costs a process that has just started: opened from NVMe. Bytes a token and head.
// The rows of the row codec, of which the layout says the exact size, are left out; all that the
// process needs besides (headers, padding, tables) counts.
struct measured {
        double layout_bytes;
        double rss_bytes;
        double tier_bytes;
        double row_bytes;
};

static void describe(uint32_t dim, uint32_t value_bits, struct cairn_space_config *ret_config)
{
        cairn_space_config_init(ret_config);
        (void)snprintf(ret_config->model, sizeof(ret_config->model), "bench bytes");
        ret_config->layers = LAYERS;
        ret_config->kv_heads = KV_HEADS;
        ret_config->k_dim = ret_config->v_dim = dim;
        ret_config->dtype = CAIRN_DTYPE_BF16;
        ret_config->block_tokens = BLOCK_TOKENS;
        ret_config->value_bits = value_bits;
}

static void from_layout(uint32_t dim, uint32_t value_bits, struct measured *ret)
{
        struct cairn_landmark_shape shape = {.k_dim = dim,
                                             .v_dim = dim,
                                             .block_tokens = BLOCK_TOKENS,
                                             .dtype = CAIRN_DTYPE_BF16,
                                             .landmark_bits = 2,
                                             .outliers = 8,
                                             .value_bits = value_bits,
                                             .k_codec = CAIRN_ROW_Q8,
                                             .v_codec = CAIRN_ROW_Q8};
        struct cairn_landmark_layout layout;

        if (cairn_landmark_layout_init(&shape, &layout) != CAIRN_OK)
                abort();
        ret->layout_bytes = (double)layout.resident_bytes / BLOCK_TOKENS;
        ret->row_bytes = (double)(layout.total_bytes - layout.resident_bytes) / BLOCK_TOKENS;
}

static int put_all(struct cairn_bench_daemon *daemon, const struct cairn_space_config *config,
                   uint32_t blocks, struct cairn_key *keys)
{
        uint64_t bytes = cairn_space_config_block_bytes(config), state = 1;
        uint16_t *rows = malloc(bytes);
        uint32_t *tokens = calloc((size_t)blocks * BLOCK_TOKENS, sizeof(*tokens)), space;
        struct cairn_key fingerprint;
        int status = rows && tokens ? CAIRN_OK : CAIRN_ENOMEM;

        cairn_space_config_fingerprint(config, &fingerprint);
        if (status == CAIRN_OK)
                (void)cairn_chain_keys(&fingerprint, BLOCK_TOKENS, NULL, 0, NULL, 0, NULL, tokens,
                                       (size_t)blocks * BLOCK_TOKENS, keys);
        for (uint64_t i = 0; status == CAIRN_OK && i < bytes / 2; i++) {
                state = state * 6364136223846793005ull + 1442695040888963407ull;
                rows[i] = (uint16_t)(0x3f00 + (state >> 57) + (state >> 40 & 0x8000)); // about 1
        }
        if (status == CAIRN_OK)
                status = cairn_client_open_space(daemon->client, config, &space);
        for (uint32_t i = 0; i < blocks && status == CAIRN_OK; i++) {
                struct cairn_put_args args = {.space = space,
                                              .keys = &keys[i],
                                              .count = 1,
                                              .parent = i ? &keys[i - 1] : NULL,
                                              .blocks = rows,
                                              .ack = CAIRN_PUT_ACK_DISK};

                status = cairn_put(daemon->client, NULL, &args, NULL);
        }
        free(rows);
        free(tokens);
        return status;
}

static int open_measured(struct cairn_bench_daemon *daemon, const struct cairn_space_config *config,
                         const struct cairn_key *keys, uint32_t blocks, struct measured *ret)
{
        double heads = (double)blocks * BLOCK_TOKENS * LAYERS * KV_HEADS;
        double rss = cairn_bench_daemon_memory(daemon, "VmRSS");
        struct cairn_context context;
        uint32_t space;
        int status = cairn_client_open_space(daemon->client, config, &space);

        if (status == CAIRN_OK)
                status = cairn_open_context(daemon->client, NULL, space, keys, blocks, &context);
        if (status == CAIRN_OK) {
                (void)usleep(200000); // reads that were begun have ended
                ret->rss_bytes =
                    (cairn_bench_daemon_memory(daemon, "VmRSS") - rss) / heads - ret->row_bytes;
                ret->tier_bytes =
                    cairn_bench_daemon_stat(daemon, "cairn_tier_used_bytes", "ram") / heads -
                    ret->row_bytes;
        }
        return status;
}

static int measure_bytes(int argc, char **argv, uint32_t dim, uint32_t value_bits, uint32_t blocks,
                         struct measured *ret)
{
        struct cairn_key *keys = calloc(blocks, sizeof(*keys));
        struct cairn_space_config config;
        struct cairn_bench_daemon daemon;
        int status = -1;

        describe(dim, value_bits, &config);
        from_layout(dim, value_bits, ret);
        if (keys && cairn_bench_daemon_start(argc, argv, 1ull << 30, 4ull << 30, &daemon) == 0) {
                status = put_all(&daemon, &config, blocks, keys);
                if (status == CAIRN_OK && cairn_bench_daemon_restart(&daemon) < 0)
                        status = CAIRN_EDISCONNECTED;
                if (status == CAIRN_OK)
                        status = open_measured(&daemon, &config, keys, blocks, ret);
                if (status != CAIRN_OK)
                        fprintf(stderr, "cairn-bench: bytes: %s\n", cairn_error_name(status));
                cairn_bench_daemon_stop(&daemon);
        }
        free(keys);
        return status == CAIRN_OK ? 0 : -1;
}

int cairn_bench_bytes(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        uint32_t dim = (uint32_t)cairn_bench_flag_u64(argc, argv, "dim", 128);
        uint32_t blocks = (uint32_t)cairn_bench_flag_u64(argc, argv, "blocks", 8);
        double raw = 2.0 * 2 * dim; // bf16 K and V
        struct measured landmarks, all;

        if (dim == 0 || dim > CAIRN_DIM_MAX || blocks == 0 || blocks > 64) {
                fprintf(stderr, "cairn-bench: bytes: --dim or --blocks is out of range\n");
                return -1;
        }
        if (measure_bytes(argc, argv, dim, 0, blocks, &landmarks) != 0 ||
            measure_bytes(argc, argv, dim, 2, blocks, &all) != 0)
                return -1;
        (void)snprintf(ret_report->params, sizeof(ret_report->params),
                       "{\"dim\": %u, \"layers\": %d, \"kv_heads\": %d, \"bits\": 2, "
                       "\"value_bits\": 2, \"tokens\": %u}",
                       dim, LAYERS, KV_HEADS, blocks * BLOCK_TOKENS);
        (void)snprintf(ret_report->unit, sizeof(ret_report->unit), "bytes/token/head");
        (void)snprintf(ret_report->baseline_name, sizeof(ret_report->baseline_name),
                       "bf16 K and V");
        ret_report->value = all.rss_bytes;
        ret_report->baseline = raw;
        ret_report->ratio = all.rss_bytes / raw;
        cairn_bench_extra(ret_report, "landmarks_share_layout", landmarks.layout_bytes / raw);
        cairn_bench_extra(ret_report, "landmarks_share_rss", landmarks.rss_bytes / raw);
        cairn_bench_extra(ret_report, "landmarks_share_tier", landmarks.tier_bytes / raw);
        cairn_bench_extra(ret_report, "with_values_share_layout", all.layout_bytes / raw);
        cairn_bench_extra(ret_report, "with_values_share_rss", all.rss_bytes / raw);
        cairn_bench_extra(ret_report, "with_values_share_tier", all.tier_bytes / raw);
        cairn_bench_extra(ret_report, "rows_share", all.row_bytes / raw);
        return 0;
}

// ---- start ----

// Seconds to run a program that does nothing.
static double spawn_s(void)
{
        static char *argv[] = {"true", NULL};
        double begin_s = cairn_bench_now_s();
        pid_t pid;

        if (posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0)
                (void)waitpid(pid, NULL, 0);
        return cairn_bench_now_s() - begin_s;
}

int cairn_bench_start(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        double starts[STARTS], spawns[STARTS], rss = 0;
        struct cairn_bench_daemon daemon;

        for (int i = 0; i < STARTS; i++) {
                double begin_s = cairn_bench_now_s();

                if (cairn_bench_daemon_start(argc, argv, 1ull << 30, 4ull << 30, &daemon) != 0)
                        return -1;
                starts[i] = cairn_bench_now_s() - begin_s;
                if (i == STARTS - 1) {
                        (void)usleep(200000);
                        rss = cairn_bench_daemon_memory(&daemon, "VmRSS");
                }
                cairn_bench_daemon_stop(&daemon);
                spawns[i] = spawn_s();
        }
        (void)snprintf(ret_report->unit, sizeof(ret_report->unit), "ms");
        (void)snprintf(ret_report->baseline_name, sizeof(ret_report->baseline_name),
                       "running a program that does nothing");
        ret_report->value = 1e3 * cairn_bench_quantile(starts, STARTS, 0.5);
        ret_report->baseline = 1e3 * cairn_bench_quantile(spawns, STARTS, 0.5);
        ret_report->ratio = ret_report->value / ret_report->baseline;
        cairn_bench_extra(ret_report, "idle_rss_mib", rss / (1 << 20));
        return 0;
}
