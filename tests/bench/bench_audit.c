// audit: what the records of evictions cost. Two private daemons, one with an audit and one
// without, take turns at putting new blocks into tiers that are full. A round ends when its last
// block is on disk, so that neither writes in the other's time: who is a little slower would be
// held up by full RAM while the other has all of both turns to empty its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/io.h"

enum {
        SIDES = 2, // with, without
        ROUNDS_MAX = 65536,
        ROUND_PUTS_MIN = 2048, // enough records for the audit's files to be written in each round
};
#define RAM_BYTES   (64ull << 20)
#define NVME_BYTES  (256ull << 20)
#define ROUND_BYTES (8ull << 20)

struct side {
        struct cairn_bench_io io;
        double *rounds_s; // owned
        size_t rounds;
        double total_s;
        double cpu_s;
        double puts;
        double evicted_before;
        double commits_before;
};

static double evictions(const struct side *side)
{
        return cairn_bench_daemon_stat(&side->io.daemon, "cairn_evictions_total", "nvme");
}

static double commits(const struct side *side)
{
        return cairn_bench_daemon_stat(&side->io.daemon, "cairn_commits_total", "");
}

static int begin(int argc, char **argv, struct side *side, bool audited)
{
        int status;

        if (setenv("CAIRN_AUDIT_BYTES", audited ? "256MiB" : "0", 1) != 0)
                return -1;
        status = cairn_bench_io_begin(argc, argv, ROUND_BYTES, RAM_BYTES, NVME_BYTES, &side->io);
        (void)unsetenv("CAIRN_AUDIT_BYTES"); // it was there a moment ago
        side->rounds_s = calloc(ROUNDS_MAX, sizeof(*side->rounds_s));
        if (status == 0 && !side->rounds_s) {
                cairn_bench_io_finish(&side->io);
                status = -1;
        }
        return status;
}

// Each batch is a chain of its own: looking for circles in long ones would be what is measured.
static int put_all(struct cairn_bench_io *io, bool last)
{
        int status = CAIRN_OK;

        for (uint64_t first = 0; first < io->count && status == CAIRN_OK; first += io->batch) {
                bool ends = last && first + io->batch >= io->count;
                struct cairn_put_args args = {.space = io->space,
                                              .keys = io->keys + first,
                                              .count = cairn_bench_io_batch_count(io, first),
                                              .blocks = io->blocks + first * io->block_bytes,
                                              .ack =
                                                  ends ? CAIRN_PUT_ACK_DISK : CAIRN_PUT_ACK_MEMORY};

                status = cairn_put(io->daemon.client, NULL, &args, NULL);
        }
        return status;
}

static uint64_t passes(const struct cairn_bench_io *io)
{
        return (ROUND_PUTS_MIN + io->count - 1) / io->count;
}

static int put_round(struct side *side, uint64_t round, bool counted)
{
        struct cairn_bench_io *io = &side->io;
        double cpu_s = cairn_bench_daemon_cpu_s(&io->daemon);
        double begin_s = cairn_bench_now_s();
        double round_s;

        for (uint64_t i = 0; i < passes(io); i++) {
                int status;

                cairn_bench_io_name_keys(io, round * passes(io) + i);
                status = put_all(io, i + 1 == passes(io));
                if (status != CAIRN_OK)
                        return cairn_bench_io_fail(io, "put", status);
        }
        round_s = cairn_bench_now_s() - begin_s;
        if (!counted)
                return 0;
        if (side->rounds < ROUNDS_MAX)
                side->rounds_s[side->rounds++] = round_s;
        side->total_s += round_s;
        side->cpu_s += cairn_bench_daemon_cpu_s(&io->daemon) - cpu_s;
        side->puts += (double)(io->count * passes(io));
        return 0;
}

// Both take turns, the first of each pair in turn too, so that the disk's moods are shared.
static int measure(struct side *sides, double wanted)
{
        uint64_t rounds_full =
            2 * NVME_BYTES / (ROUND_BYTES * passes(&sides[0].io)); // a slot is larger than a block
        uint64_t round = 1;

        for (; round <= rounds_full; round++)
                for (int i = 0; i < SIDES; i++)
                        if (put_round(&sides[i], round, false) != 0)
                                return -1;
        for (int i = 0; i < SIDES; i++) {
                sides[i].evicted_before = evictions(&sides[i]);
                sides[i].commits_before = commits(&sides[i]);
        }
        while (evictions(&sides[0]) - sides[0].evicted_before < wanted) {
                for (int i = 0; i < SIDES; i++)
                        if (put_round(&sides[(i + round) % SIDES], round, true) != 0)
                                return -1;
                round++;
        }
        return 0;
}

// Puts a second in a round as good as the median.
static double rate(const struct side *side)
{
        return (double)(side->io.count * passes(&side->io)) /
               cairn_bench_quantile(side->rounds_s, side->rounds, 0.5);
}

static void report(const struct side *sides, struct cairn_bench_report *ret_report)
{
        const struct side *with = &sides[0], *without = &sides[1];

        (void)snprintf(ret_report->params, sizeof(ret_report->params),
                       "{\"block_bytes\": %llu, \"batch\": %llu, \"evictions\": %.0f}",
                       (unsigned long long)with->io.block_bytes, (unsigned long long)with->io.batch,
                       evictions(with) - with->evicted_before);
        (void)snprintf(ret_report->unit, sizeof(ret_report->unit), "puts/s");
        (void)snprintf(ret_report->baseline_name, sizeof(ret_report->baseline_name),
                       "the same without an audit");
        ret_report->value = rate(with);
        ret_report->baseline = rate(without);
        ret_report->ratio = ret_report->value / ret_report->baseline;
        cairn_bench_extra(ret_report, "ratio_of_means",
                          with->puts / with->total_s * without->total_s / without->puts);
        cairn_bench_extra(ret_report, "puts_a_commit",
                          with->puts / (commits(with) - with->commits_before));
        cairn_bench_extra(ret_report, "baseline_puts_a_commit",
                          without->puts / (commits(without) - without->commits_before));
        cairn_bench_extra(ret_report, "cpu_us_a_put", 1e6 * with->cpu_s / with->puts);
        cairn_bench_extra(ret_report, "baseline_cpu_us_a_put",
                          1e6 * without->cpu_s / without->puts);
}

int cairn_bench_audit(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        double wanted = (double)cairn_bench_flag_u64(argc, argv, "evictions", 100000);
        struct side *sides = calloc(SIDES, sizeof(*sides));
        int status = -1;

        if (!sides)
                return -1;
        if (cairn_bench_flag_text(argc, argv, "socket", NULL)) {
                fprintf(stderr, "cairn-bench: audit: with private daemons alone: no --socket\n");
        } else if (begin(argc, argv, &sides[0], true) == 0) {
                if (begin(argc, argv, &sides[1], false) == 0) {
                        status = measure(sides, wanted);
                        if (status == 0)
                                report(sides, ret_report);
                        cairn_bench_io_finish(&sides[1].io);
                }
                cairn_bench_io_finish(&sides[0].io);
        }
        for (int i = 0; i < SIDES; i++)
                free(sides[i].rounds_s);
        free(sides);
        return status;
}
