// What get, put and lookup share.
#include "tests/bench/io.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/checksum.h"

int cairn_bench_io_fail(const struct cairn_bench_io *io, const char *what, int status)
{
        fprintf(stderr, "cairn-bench: %s: %s (%s)\n", what, cairn_client_error(io->daemon.client),
                cairn_error_name(status));
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
static void fill(struct cairn_bench_io *io)
{
        uint64_t bytes = io->count * io->block_bytes;

        for (uint64_t i = 0; i + 2 <= bytes; i += 2) {
                uint16_t half = (uint16_t)(0x3000 + ((i * 2654435761u) >> 20 & 0x8fff));

                memcpy(io->blocks + i, &half, 2);
        }
        memset(io->copy, 1, bytes);
}

void cairn_bench_io_name_keys(struct cairn_bench_io *io, uint64_t round)
{
        uint32_t token[4] = {(uint32_t)round, (uint32_t)(round >> 32), 0, 0};
        struct cairn_key parent;
        struct cairn_key fingerprint;

        cairn_space_config_fingerprint(&io->config, &fingerprint);
        cairn_chain_keys(&fingerprint, 4, NULL, 0, NULL, 0, NULL, token, 4, &parent);
        for (uint64_t i = 0; i < io->count; i++) {
                token[2] = (uint32_t)i;
                cairn_chain_keys(&fingerprint, 4, NULL, 0, NULL, 0, i ? &io->keys[i - 1] : &parent,
                                 token, 4, &io->keys[i]);
        }
}

void cairn_bench_io_finish(struct cairn_bench_io *io)
{
        cairn_bench_redis_stop(io->redis);
        cairn_bench_daemon_stop(&io->daemon);
        free(io->copy);
        free(io->views);
        free(io->keys);
        free(io->samples);
}

int cairn_bench_io_begin(int argc, char **argv, uint64_t total_bytes, uint64_t ram_bytes,
                         uint64_t nvme_bytes, struct cairn_bench_io *io)
{
        uint64_t total;
        int status;

        io->block_bytes = cairn_bench_flag_bytes(argc, argv, "block", 1 << 20);
        io->batch = cairn_bench_flag_u64(argc, argv, "batch", 32);
        io->seconds = cairn_bench_flag_double(argc, argv, "seconds", 3);
        describe(&io->config, io->block_bytes, cairn_bench_flag_set(argc, argv, "attention"));
        io->block_bytes = cairn_space_config_block_bytes(&io->config);
        io->count = io->block_bytes ? total_bytes / io->block_bytes : 0;
        io->count = cairn_bench_flag_u64(argc, argv, "blocks",
                                         io->count < 2 * io->batch ? 2 * io->batch : io->count);
        if (io->block_bytes == 0 || io->count == 0 || io->count > CAIRN_BENCH_BLOCKS_MAX ||
            io->batch == 0 || io->batch > io->count || io->batch > CAIRN_KEYS_A_CALL_MAX) {
                fprintf(stderr, "cairn-bench: 1 to %d blocks, and no larger batch, please\n",
                        CAIRN_BENCH_BLOCKS_MAX);
                return -1;
        }
        total = io->count * io->block_bytes;
        io->copy = malloc(total);
        io->keys = calloc(io->count, sizeof(*io->keys));
        io->views = calloc(io->batch, sizeof(*io->views));
        io->view = cairn_bench_flag_set(argc, argv, "view");
        io->samples = calloc(CAIRN_BENCH_SAMPLES_MAX, sizeof(*io->samples));
        if (!io->copy || !io->keys || !io->views || !io->samples ||
            cairn_bench_daemon_start(argc, argv, ram_bytes ? ram_bytes : 4 * total + (256u << 20),
                                     nvme_bytes, &io->daemon) != 0) {
                cairn_bench_io_finish(io);
                return -1;
        }
        status = cairn_client_open_space(io->daemon.client, &io->config, &io->space);
        if (status == CAIRN_OK)
                status = cairn_client_arena_create(io->daemon.client, total, &io->arena);
        if (status != CAIRN_OK) {
                (void)cairn_bench_io_fail(io, "open", status);
                cairn_bench_io_finish(io);
                return -1;
        }
        io->threads = (uint64_t)cairn_bench_daemon_stat(&io->daemon, "cairn_scorer_threads", "");
        if (io->threads == 0 || io->threads > CAIRN_BENCH_THREADS_MAX)
                io->threads = io->threads ? CAIRN_BENCH_THREADS_MAX : 1;
        io->blocks = cairn_client_arena_data(io->arena);
        fill(io);
        cairn_bench_io_name_keys(io, 0);
        return 0;
}

uint64_t cairn_bench_io_batch_count(const struct cairn_bench_io *io, uint64_t first)
{
        return io->count - first < io->batch ? io->count - first : io->batch;
}

int cairn_bench_io_put_batch(struct cairn_bench_io *io, uint64_t first, uint32_t ack)
{
        uint64_t count = cairn_bench_io_batch_count(io, first);
        struct cairn_put_args args = {
            .space = io->space,
            .keys = io->keys + first,
            .count = count,
            .parent = first ? &io->keys[first - 1] : NULL,
            .blocks = io->blocks + first * io->block_bytes,
            .ack = ack,
        };

        return cairn_put(io->daemon.client, NULL, &args, NULL);
}

int cairn_bench_io_put_all(struct cairn_bench_io *io, uint32_t ack)
{
        int status = CAIRN_OK;

        for (uint64_t first = 0; first < io->count && status == CAIRN_OK; first += io->batch)
                status = cairn_bench_io_put_batch(io, first, ack);
        return status;
}

uint64_t cairn_bench_io_read(const void *bytes, uint64_t size)
{
        const uint64_t *words = bytes;
        uint64_t sums[8] = {0};

        for (uint64_t i = 0; i + 8 <= size / 8; i += 8)
                for (int j = 0; j < 8; j++)
                        sums[j] += words[i + j];
        return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

int cairn_bench_io_view_batch(struct cairn_bench_io *io, uint64_t first, struct cairn_lease lease)
{
        struct cairn_get_args args = {.space = io->space,
                                      .keys = io->keys + first,
                                      .count = cairn_bench_io_batch_count(io, first),
                                      .lease = lease};
        int status = cairn_get_views(io->daemon.client, NULL, &args, io->views, NULL);

        for (uint64_t i = 0; status == CAIRN_OK && i < args.count; i++)
                io->sum += cairn_bench_io_read(io->views[i].bytes, io->views[i].size_bytes);
        for (uint64_t i = 0; status == CAIRN_OK && i < args.count; i++)
                status = cairn_view_valid(&io->views[i]) ? CAIRN_OK : CAIRN_ESTALE;
        for (uint64_t i = 0; i < args.count; i++)
                cairn_view_release(&io->views[i]);
        return status;
}

static double read_batch_s(struct cairn_bench_io *io, uint64_t first)
{
        uint64_t bytes = cairn_bench_io_batch_count(io, first) * io->block_bytes;
        double begin_s = cairn_bench_now_s();

        io->sum += cairn_bench_io_read(io->copy + first * io->block_bytes, bytes);
        __asm__ volatile("" ::"r"(&io->sum) : "memory");
        return cairn_bench_now_s() - begin_s;
}

// What one thread copies of a batch.
struct share {
        const struct cairn_bench_io *io;
        uint64_t first;
        uint64_t count;
        double cpu_s;
};

static void *copy_share(void *arg)
{
        struct share *share = arg;
        const struct cairn_bench_io *io = share->io;
        uint8_t *to = io->copy + share->first * io->block_bytes;
        double cpu_s = cairn_bench_cpu_s();

        memcpy(to, io->blocks + share->first * io->block_bytes, share->count * io->block_bytes);
        for (uint64_t i = 0; io->checksum && i < share->count; i++) {
                struct cairn_checksum checksum;

                cairn_checksum_of(to + i * io->block_bytes, io->block_bytes, &checksum);
                __asm__ volatile("" ::"r"(&checksum) : "memory");
        }
        __asm__ volatile("" ::"r"(to) : "memory");
        share->cpu_s = cairn_bench_cpu_s() - cpu_s;
        return NULL;
}

// One copy of a batch, with its checksums if asked, by as many threads as the daemon has scorers,
// timed. The other threads' CPU seconds are added to *cpu_s.
static double copy_batch_s(struct cairn_bench_io *io, uint64_t first, double *cpu_s)
{
        uint64_t count = cairn_bench_io_batch_count(io, first);
        uint64_t threads = io->threads < count ? io->threads : count;
        struct share shares[CAIRN_BENCH_THREADS_MAX];
        pthread_t ids[CAIRN_BENCH_THREADS_MAX];
        double begin_s = cairn_bench_now_s();

        for (uint64_t i = 0; i < threads; i++) {
                uint64_t from = count * i / threads;

                shares[i] = (struct share){
                    .io = io, .first = first + from, .count = count * (i + 1) / threads - from};
                if (i > 0 && pthread_create(&ids[i], NULL, copy_share, &shares[i]) != 0)
                        return -1;
        }
        (void)copy_share(&shares[0]);
        for (uint64_t i = 1; i < threads; i++) {
                (void)pthread_join(ids[i], NULL); // ours, and joined once
                *cpu_s += shares[i].cpu_s;
        }
        return cairn_bench_now_s() - begin_s;
}

int cairn_bench_io_baseline(struct cairn_bench_io *io, struct cairn_bench_tally *tally)
{
        double cpu_s = cairn_bench_cpu_s();

        for (uint64_t first = 0; first < io->count; first += io->batch) {
                double one_s = io->redis
                                   ? cairn_bench_redis_get_s(io->redis, first,
                                                             cairn_bench_io_batch_count(io, first))
                               : io->view ? read_batch_s(io, first)
                                          : copy_batch_s(io, first, &tally->baseline_cpu_s);

                if (one_s < 0)
                        return -1;
                tally->baseline_s += one_s;
        }
        tally->baseline_cpu_s += cairn_bench_cpu_s() - cpu_s;
        return 0;
}

void cairn_bench_io_report(struct cairn_bench_io *io, const struct cairn_bench_tally *tally,
                           const char *baseline, const char *flags,
                           struct cairn_bench_report *report)
{
        double gb = tally->bytes / 1e9;

        (void)snprintf(report->params, sizeof(report->params),
                       "{\"block_bytes\": %llu, \"blocks\": %llu, \"batch\": %llu%s}",
                       (unsigned long long)io->block_bytes, (unsigned long long)io->count,
                       (unsigned long long)io->batch, flags);
        (void)snprintf(report->unit, sizeof(report->unit), "GB/s");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name), "%s", baseline);
        if (!io->view && tally->baseline_cpu_s > 0 && !io->redis)
                cairn_bench_extra(report, "threads", (double)io->threads);
        report->value = gb / tally->ours_s;
        report->baseline = gb / tally->baseline_s;
        report->ratio = report->value / report->baseline;
        cairn_bench_extra(report, "batch_p50_us",
                          1e6 * cairn_bench_quantile(io->samples, tally->samples, 0.5));
        cairn_bench_extra(report, "batch_p99_us",
                          1e6 * cairn_bench_quantile(io->samples, tally->samples, 0.99));
        cairn_bench_extra(report, "batches", (double)tally->samples);
        if (tally->whole_batches > 0) {
                cairn_bench_extra(report, "fio_whole_batches", tally->whole_batches / 1e9);
                cairn_bench_extra(report, "ratio_to_whole_batches",
                                  report->value / (tally->whole_batches / 1e9));
        }
        cairn_bench_extra(report, "daemon_cpu_s_per_gb", tally->cpu_s / gb);
        cairn_bench_extra(report, "client_cpu_s_per_gb", tally->client_cpu_s / gb);
        // On a machine that others keep busy, this says more than the ratio of wall times.
        if (tally->cpu_s > 0 && tally->baseline_cpu_s > 0 && !io->redis)
                cairn_bench_extra(report, "cpu_ratio",
                                  tally->baseline_cpu_s / (tally->cpu_s + tally->client_cpu_s));
}
