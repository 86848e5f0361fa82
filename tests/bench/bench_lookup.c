// Lookup of a chain through the socket, as a worker sees it, among as many blocks as asked.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/io.h"

enum {
        TURN = 256 // look-ups, then as many round trips
};

// Chains of `chain` keys each: all blocks, the last chain may be shorter.
struct lookup {
        struct cairn_bench_io io;
        struct cairn_bench_echo echo;
        double *echo_samples;
        uint64_t chain;
        uint32_t lease_ms;
        double restart_s; // with all blocks there; 0: not tried
};

static int put_chains(struct lookup *l)
{
        struct cairn_bench_io *io = &l->io;
        int status = CAIRN_OK;

        for (uint64_t first = 0; first < io->count && status == CAIRN_OK; first += io->batch) {
                struct cairn_put_args args = {
                    .space = io->space,
                    .keys = io->keys + first,
                    .count = cairn_bench_io_batch_count(io, first),
                    .parent = first % l->chain ? &io->keys[first - 1] : NULL,
                    .blocks = io->blocks + first * io->block_bytes,
                };

                status = cairn_put(io->daemon.client, NULL, &args, NULL);
        }
        return status;
}

// Keys of one chain after another: name_keys makes one long chain, which is cut here.
static void name_chains(struct lookup *l)
{
        struct cairn_bench_io *io = &l->io;
        struct cairn_key fingerprint;
        uint32_t *tokens = calloc(l->chain, io->config.block_tokens * sizeof(*tokens));

        cairn_space_config_fingerprint(&io->config, &fingerprint);
        for (uint64_t first = 0; tokens && first < io->count; first += l->chain) {
                uint64_t count = io->count - first < l->chain ? io->count - first : l->chain;

                tokens[0] = (uint32_t)first;
                (void)cairn_chain_keys(&fingerprint, io->config.block_tokens, NULL, 0, NULL, 0,
                                       NULL, tokens, count * io->config.block_tokens,
                                       io->keys + first);
        }
        free(tokens);
}

static int look_up(struct lookup *l, const struct cairn_key *keys, double *ret_s)
{
        struct cairn_bench_io *io = &l->io;
        struct cairn_lease lease = {0};
        size_t found = 0;
        double begin_s = cairn_bench_now_s();
        int status = cairn_lookup(io->daemon.client, NULL, io->space, keys, l->chain, l->lease_ms,
                                  &found, l->lease_ms ? &lease : NULL);

        *ret_s = cairn_bench_now_s() - begin_s;
        if (status != CAIRN_OK || found != l->chain) {
                fprintf(stderr, "cairn-bench: %zu of %llu keys found\n", found,
                        (unsigned long long)l->chain);
                return status != CAIRN_OK ? status : CAIRN_ENOENT;
        }
        return lease.id ? cairn_release(io->daemon.client, NULL, &lease) : CAIRN_OK;
}

// In turns of many: a round trip between two look-ups would find its processors busy with looking
// for answers, and take twice as long as one among its like.
static int measure_lookup(struct lookup *l, size_t *ret_samples)
{
        struct cairn_bench_io *io = &l->io;
        uint64_t chains = io->count / l->chain, at = 0;
        double end_s = cairn_bench_now_s() + io->seconds;
        size_t samples = 0;

        while (cairn_bench_now_s() < end_s && samples + TURN <= CAIRN_BENCH_SAMPLES_MAX) {
                for (size_t i = 0; i < TURN; i++) {
                        int status =
                            look_up(l, io->keys + at * l->chain, &io->samples[samples + i]);

                        if (status != CAIRN_OK)
                                return status;
                        at = (at + 7919) % chains; // another chain, far off
                }
                for (size_t i = 0; i < TURN; i++)
                        l->echo_samples[samples + i] = cairn_bench_echo_s(&l->echo);
                samples += TURN;
        }
        *ret_samples = samples;
        return CAIRN_OK;
}

static void report_lookup(struct lookup *l, size_t samples, struct cairn_bench_report *report)
{
        double *ours = l->io.samples, *echo = l->echo_samples;
        double p99 = cairn_bench_quantile(ours, samples, 0.99);
        double echo_p99 = cairn_bench_quantile(echo, samples, 0.99);

        (void)snprintf(report->params, sizeof(report->params),
                       "{\"chain\": %llu, \"blocks\": %llu, \"lease_ms\": %u}",
                       (unsigned long long)l->chain, (unsigned long long)l->io.count, l->lease_ms);
        (void)snprintf(report->unit, sizeof(report->unit), "us");
        (void)snprintf(report->baseline_name, sizeof(report->baseline_name),
                       "bare round trip to a process, same bytes");
        report->value = 1e6 * cairn_bench_quantile(ours, samples, 0.5);
        report->baseline = 1e6 * cairn_bench_quantile(echo, samples, 0.5);
        report->ratio = report->value / report->baseline; // latency over latency
        cairn_bench_extra(report, "p99_us", 1e6 * p99);
        cairn_bench_extra(report, "baseline_p99_us", 1e6 * echo_p99);
        cairn_bench_extra(report, "p99_ratio", p99 / echo_p99);
        cairn_bench_extra(report, "samples", (double)samples);
        if (l->restart_s > 0)
                cairn_bench_extra(report, "restart_s", l->restart_s);
}

// Restarts the daemon on all the blocks, and goes on with it.
static int restart(struct lookup *l)
{
        l->restart_s = cairn_bench_daemon_restart(&l->io.daemon);
        if (l->restart_s < 0)
                return CAIRN_EDISCONNECTED;
        return cairn_client_open_space(l->io.daemon.client, &l->io.config, &l->io.space);
}

static int run_lookup(struct lookup *l, bool restarts, struct cairn_bench_report *report)
{
        size_t samples = 0;
        int status;

        // A Lookup's frames: 32 bytes of header, a few of message, the keys; a tier a key comes
        // back.
        if (cairn_bench_echo_start(32 + 8 + 32 * l->chain, 32 + 16 + l->chain, &l->echo) != 0)
                return -1;
        name_chains(l);
        status = put_chains(l);
        if (status == CAIRN_OK && restarts)
                status = restart(l);
        if (status == CAIRN_OK)
                status = measure_lookup(l, &samples);
        if (status == CAIRN_OK)
                report_lookup(l, samples, report);
        else
                (void)cairn_bench_io_fail(&l->io, "lookup", status);
        cairn_bench_echo_stop(&l->echo);
        return status == CAIRN_OK ? 0 : -1;
}

int cairn_bench_lookup(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct lookup l = {
            .chain = cairn_bench_flag_u64(argc, argv, "chain", 64),
            .lease_ms = (uint32_t)cairn_bench_flag_u64(argc, argv, "lease-ms", 30000),
        };
        bool restarts = cairn_bench_flag_set(argc, argv, "restart");
        uint64_t count = cairn_bench_flag_u64(argc, argv, "blocks", l.chain);
        char text[3][32], **all = calloc((size_t)argc + 6, sizeof(*all));
        int status = -1;

        if (!all || l.chain == 0 || l.chain > CAIRN_KEYS_A_CALL_MAX || count < l.chain) {
                fprintf(stderr, "cairn-bench: lookup: --chain 1 to %d, and as many --blocks\n",
                        CAIRN_KEYS_A_CALL_MAX);
                free(all);
                return -1;
        }
        count = count / l.chain * l.chain;
        (void)snprintf(text[0], sizeof(text[0]), "--block=%d", 64); // bytes that do not matter
        (void)snprintf(text[1], sizeof(text[1]), "--batch=%llu", (unsigned long long)l.chain);
        (void)snprintf(text[2], sizeof(text[2]), "--blocks=%llu", (unsigned long long)count);
        all[0] = argv[0];
        for (int i = 0; i < 3; i++)
                all[1 + i] = text[i];
        memcpy(all + 4, argv + 1, ((size_t)argc - 1) * sizeof(*all)); // the first one counts
        // A slot is 8 KiB at least; few of the blocks stay in RAM.
        if (cairn_bench_io_begin(argc + 3, all, 0, 512u << 20, count * 8192 * 5 / 4 + (1u << 30),
                                 &l.io) == 0) {
                l.echo_samples = calloc(CAIRN_BENCH_SAMPLES_MAX, sizeof(*l.echo_samples));
                status = l.echo_samples ? run_lookup(&l, restarts, ret_report) : -1;
                cairn_bench_io_finish(&l.io);
        }
        free(l.echo_samples);
        free(all);
        return status;
}
