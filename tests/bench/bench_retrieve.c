// retrieve: one layer of a context, end to end through the socket, as every decode step does it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/daemon.h"

enum {
        SAMPLES_MAX = 100000,
        APPEND_TOKENS = 4096
};

struct setup {
        struct cairn_bench_daemon daemon;
        struct cairn_context context;
        struct cairn_space_config config;
        uint32_t space;
        uint32_t tokens;
        uint32_t group;
        uint32_t steps;
        double share;
        double seconds;
        bool rows;
        bool rest;
        float *queries; // in an arena
        void *result;   // in an arena
        uint64_t result_bytes;
        double *samples;
        double *floors;
        double *kernels;   // seconds of the kernels alone, of one thread's share
        double *overheads; // what is left of a sample beside them
        uint64_t bytes_scanned;
};

static int fail(const struct setup *setup, const char *what, int status)
{
        fprintf(stderr, "cairn-bench: %s: %s (%s)\n", what,
                cairn_client_error(setup->daemon.client), cairn_error_name(status));
        return -1;
}

// Gaussian numbers by a small generator: a benchmark is the same at every run.
static float gaussian(uint64_t *state)
{
        double sum = 0;

        for (int i = 0; i < 4; i++) {
                *state = *state * 6364136223846793005ull + 1442695040888963407ull;
                sum += (double)(*state >> 40) / (1 << 24);
        }
        return (float)((sum - 2) * 1.7320508);
}

static int append_all(struct setup *setup)
{
        const struct cairn_space_config *c = &setup->config;
        uint64_t floats = (uint64_t)APPEND_TOKENS * c->kv_heads * (c->k_dim + c->v_dim);
        float *rows = malloc(floats * sizeof(*rows));
        uint64_t state = 1;
        int status = rows ? CAIRN_OK : CAIRN_ENOMEM;

        for (uint32_t done = 0; done < setup->tokens && status == CAIRN_OK;) {
                uint32_t part =
                    setup->tokens - done < APPEND_TOKENS ? setup->tokens - done : APPEND_TOKENS;

                for (uint64_t i = 0; i < floats; i++)
                        rows[i] = gaussian(&state);
                status = cairn_append(setup->daemon.client, NULL, &setup->context, rows, part);
                done += part;
        }
        free(rows);
        return status;
}

static void fill_args(struct setup *setup, struct cairn_retrieve_args *ret_args)
{
        static const uint32_t layer = 0;

        *ret_args = (struct cairn_retrieve_args){
            .contexts = &setup->context,
            .contexts_count = 1,
            .layers = &layer,
            .layers_count = 1,
            .steps = setup->steps,
            .query_heads = setup->config.kv_heads * setup->group,
            .queries = setup->queries,
            .budget = {.share = setup->share},
            .rows = setup->rows,
            .rest = setup->rest,
        };
}

static int open_all(struct setup *setup)
{
        struct cairn_client *client = setup->daemon.client;
        struct cairn_retrieve_args args;
        struct cairn_arena *arena;
        uint64_t queries =
            (uint64_t)setup->steps * setup->config.kv_heads * setup->group * setup->config.k_dim;
        uint64_t state = 7;
        int status = cairn_client_open_space(client, &setup->config, &setup->space);

        if (status == CAIRN_OK)
                status = cairn_open_context(client, NULL, setup->space, NULL, 0, &setup->context);
        if (status == CAIRN_OK)
                status = append_all(setup);
        if (status == CAIRN_OK)
                status = cairn_client_arena_create(client, queries * sizeof(float), &arena);
        if (status != CAIRN_OK)
                return status;
        setup->queries = cairn_client_arena_data(arena);
        for (uint64_t i = 0; i < queries; i++)
                setup->queries[i] = 2 * gaussian(&state);
        fill_args(setup, &args);
        setup->result_bytes = cairn_retrieve_bytes(client, &args, false);
        status = cairn_client_arena_create(client, setup->result_bytes, &arena);
        if (status == CAIRN_OK)
                setup->result = cairn_client_arena_data(arena);
        return status;
}

// Reads `bytes` of memory once.
static double read_s(const uint64_t *memory, uint64_t bytes)
{
        double begin_s = cairn_bench_now_s();
        uint64_t sums[4] = {0};

        for (uint64_t i = 0; i + 4 <= bytes / 8; i += 4) {
                for (int lane = 0; lane < 4; lane++)
                        sums[lane] += memory[i + (uint64_t)lane];
        }
        __asm__ volatile("" ::"r"(sums[0] + sums[1] + sums[2] + sums[3]));
        return cairn_bench_now_s() - begin_s;
}

static int measure(struct setup *setup, size_t *ret_samples)
{
        struct cairn_retrieve_args args;
        struct cairn_selection selection;
        struct cairn_bench_echo echo;
        uint64_t *memory = NULL;
        double scorers = cairn_bench_daemon_stat(&setup->daemon, "cairn_scorer_threads", "");
        size_t samples = 0;
        double end_s;
        int status = CAIRN_OK;

        fill_args(setup, &args);
        if (cairn_bench_echo_start(160, 96, &echo) != 0) // the frames, with all bulk in arenas
                return CAIRN_EIO;
        for (int i = 0; i < 20 && status == CAIRN_OK; i++)
                status = cairn_retrieve(setup->daemon.client, NULL, &args, setup->result,
                                        setup->result_bytes, &selection);
        if (status == CAIRN_OK) {
                setup->bytes_scanned = selection.bytes_scanned;
                memory = aligned_alloc(64, (selection.bytes_scanned + 4095) & ~4095ull);
                if (!memory)
                        status = CAIRN_ENOMEM;
                else
                        memset(memory, 1, (selection.bytes_scanned + 4095) & ~4095ull);
        }
        end_s = cairn_bench_now_s() + setup->seconds;
        while (status == CAIRN_OK && cairn_bench_now_s() < end_s && samples < SAMPLES_MAX) {
                double begin_s = cairn_bench_now_s();

                status = cairn_retrieve(setup->daemon.client, NULL, &args, setup->result,
                                        setup->result_bytes, &selection);
                setup->samples[samples] = cairn_bench_now_s() - begin_s;
                setup->kernels[samples] =
                    1e-9 * (double)selection.kernel_ns / (scorers > 1 ? scorers : 1);
                setup->overheads[samples] = setup->samples[samples] - setup->kernels[samples];
                setup->floors[samples++] =
                    cairn_bench_echo_s(&echo) + read_s(memory, setup->bytes_scanned);
        }
        cairn_bench_echo_stop(&echo);
        free(memory);
        *ret_samples = samples;
        return status;
}

static void report_of(struct setup *setup, size_t samples, struct cairn_bench_report *report)
{
        double units = (double)setup->tokens * setup->config.kv_heads * setup->steps;

        (void)snprintf(report->params, sizeof(report->params),
                       "{\"tokens\": %u, \"kv_heads\": %u, \"group\": %u, \"dim\": %u, "
                       "\"steps\": %u, \"share\": %g, \"rows\": %s, \"rest\": %s}",
                       setup->tokens, setup->config.kv_heads, setup->group, setup->config.k_dim,
                       setup->steps, setup->share, setup->rows ? "true" : "false",
                       setup->rest ? "true" : "false");
        (void)snprintf(report->unit, sizeof(report->unit), "us");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name),
                       "bare round trip + one read of the scanned bytes");
        report->value = 1e6 * cairn_bench_quantile(setup->samples, samples, 0.5);
        report->baseline = 1e6 * cairn_bench_quantile(setup->floors, samples, 0.5);
        report->ratio = report->baseline / report->value; // 1: as fast as memory allows
        cairn_bench_extra(report, "p99_us",
                          1e6 * cairn_bench_quantile(setup->samples, samples, 0.99));
        cairn_bench_extra(report, "baseline_p99_us",
                          1e6 * cairn_bench_quantile(setup->floors, samples, 0.99));
        cairn_bench_extra(report, "ns_per_token_head", 1e3 * report->value / units);
        cairn_bench_extra(report, "kernel_us",
                          1e6 * cairn_bench_quantile(setup->kernels, samples, 0.5));
        cairn_bench_extra(report, "overhead_us",
                          1e6 * cairn_bench_quantile(setup->overheads, samples, 0.5));
        cairn_bench_extra(report, "bytes_scanned", (double)setup->bytes_scanned);
        cairn_bench_extra(report, "result_bytes", (double)setup->result_bytes);
        cairn_bench_extra(report, "samples", (double)samples);
}

int cairn_bench_retrieve(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct setup setup = {
            .tokens = (uint32_t)cairn_bench_flag_u64(argc, argv, "tokens", 32768),
            .group = (uint32_t)cairn_bench_flag_u64(argc, argv, "group", 4),
            .steps = (uint32_t)cairn_bench_flag_u64(argc, argv, "steps", 1),
            .share = cairn_bench_flag_double(argc, argv, "share", 0.03125),
            .seconds = cairn_bench_flag_double(argc, argv, "seconds", 3),
            .rows = !cairn_bench_flag_set(argc, argv, "no-rows"),
            .rest = cairn_bench_flag_set(argc, argv, "rest"),
        };
        struct cairn_space_config *c = &setup.config;
        size_t samples = 0;
        int status = CAIRN_ENOMEM;

        cairn_space_config_init(c);
        (void)snprintf(c->model, sizeof(c->model), "bench retrieve");
        c->layers = 1;
        c->kv_heads = (uint32_t)cairn_bench_flag_u64(argc, argv, "kv-heads", 2);
        c->k_dim = c->v_dim = (uint32_t)cairn_bench_flag_u64(argc, argv, "dim", 128);
        c->dtype = CAIRN_DTYPE_F32;
        setup.samples = calloc(SAMPLES_MAX, sizeof(*setup.samples));
        setup.floors = calloc(SAMPLES_MAX, sizeof(*setup.floors));
        setup.kernels = calloc(SAMPLES_MAX, sizeof(*setup.kernels));
        setup.overheads = calloc(SAMPLES_MAX, sizeof(*setup.overheads));
        if (setup.samples && setup.floors && setup.kernels && setup.overheads &&
            cairn_bench_daemon_start(argc, argv, 1ull << 30, 0, &setup.daemon) == 0) {
                status = open_all(&setup);
                if (status == CAIRN_OK)
                        status = measure(&setup, &samples);
                if (status == CAIRN_OK)
                        report_of(&setup, samples, ret_report);
                else
                        (void)fail(&setup, "retrieve", status);
                cairn_bench_daemon_stop(&setup.daemon);
        }
        free(setup.samples);
        free(setup.floors);
        free(setup.kernels);
        free(setup.overheads);
        return status == CAIRN_OK ? 0 : -1;
}
