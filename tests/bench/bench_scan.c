// Benchmarks of the landmark kernels: scan, select, rest. Memory well beyond the caches. Each
// compares with a plain read of the same bytes by as many threads, in turns with it in the same
// process; --vs compares with another program's search over the same keys.
#include "tests/bench/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/status.h"
#include "tests/bench/versus.h"

static double cpu_s(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); // cannot fail with this clock
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Rounds of one pass and of the read, in turns.
struct times {
        double ours_s; // median
        double reads_s;
        double our_cpu_s; // of the best round: what a busy machine disturbs least
        double read_cpu_s;
};

static struct times measure_rounds(struct cairn_bench_keys *s, cairn_bench_pass_fn pass,
                                   size_t bytes, uint32_t threads)
{
        double ours[CAIRN_BENCH_ROUNDS], reads[CAIRN_BENCH_ROUNDS];
        double our_cpu[CAIRN_BENCH_ROUNDS], read_cpu[CAIRN_BENCH_ROUNDS];

        (void)cairn_bench_pass_run(s, pass, 0, threads); // the first faults pages in
        for (int i = 0; i < CAIRN_BENCH_ROUNDS; i++) {
                double before = cpu_s();

                reads[i] = cairn_bench_pass_run(s, cairn_bench_pass_read, bytes, threads);
                read_cpu[i] = cpu_s() - before;
                before = cpu_s();
                ours[i] = cairn_bench_pass_run(s, pass, 0, threads);
                our_cpu[i] = cpu_s() - before;
        }
        return (struct times){cairn_bench_quantile(ours, CAIRN_BENCH_ROUNDS, 0.5),
                              cairn_bench_quantile(reads, CAIRN_BENCH_ROUNDS, 0.5),
                              cairn_bench_quantile(our_cpu, CAIRN_BENCH_ROUNDS, 0),
                              cairn_bench_quantile(read_cpu, CAIRN_BENCH_ROUNDS, 0)};
}

static void report_of(const struct cairn_bench_keys *s, const struct times *t, size_t bytes,
                      struct cairn_bench_report *ret_report)
{
        double tokens = (double)s->contexts * s->tokens;

        cairn_bench_keys_params(s, ret_report);
        (void)snprintf(ret_report->unit, sizeof ret_report->unit, "ns/token");
        (void)snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name,
                       "read of the same bytes");
        ret_report->value = t->ours_s / tokens * 1e9;
        ret_report->baseline = t->reads_s / tokens * 1e9;
        ret_report->ratio = t->reads_s / t->ours_s;
        cairn_bench_extra(ret_report, "bytes_per_token",
                          (double)bytes / s->layout.shape.block_tokens);
        cairn_bench_extra(ret_report, "read_gb_per_s",
                          (double)bytes * s->contexts * s->blocks / t->reads_s * 1e-9);
        cairn_bench_extra(ret_report, "cpu_ns_per_token", t->our_cpu_s / tokens * 1e9);
        cairn_bench_extra(ret_report, "cpu_best_ratio", t->read_cpu_s / t->our_cpu_s);
}

// The passes of --threads N beside those of one thread, and how the read itself scales.
static int measure_threads(struct cairn_bench_keys *s, cairn_bench_pass_fn pass, size_t bytes,
                           uint32_t threads, struct cairn_bench_report *ret_report)
{
        struct times one, many;

        if (threads > CAIRN_BENCH_THREADS_MAX || s->contexts < threads) {
                fprintf(stderr, "cairn-bench: --threads: at most %d, and --cold\n",
                        CAIRN_BENCH_THREADS_MAX);
                return -1;
        }
        one = measure_rounds(s, pass, bytes, 1);
        many = measure_rounds(s, pass, bytes, threads);
        report_of(s, &many, bytes, ret_report);
        cairn_bench_extra(ret_report, "threads", threads);
        cairn_bench_extra(ret_report, "speedup", one.ours_s / many.ours_s);
        cairn_bench_extra(ret_report, "read_speedup", one.reads_s / many.reads_s);
        return 0;
}

static int measure(int argc, char **argv, struct cairn_bench_report *ret_report,
                   cairn_bench_pass_fn pass, bool values)
{
        uint32_t threads = (uint32_t)cairn_bench_flag_u64(argc, argv, "threads", 1);
        struct cairn_bench_keys s;
        size_t bytes;
        int status = 0;

        if (cairn_bench_keys_init(&s, argc, argv, (size_t)256 << 20) < 0)
                return -1;
        s.contexts = s.contexts / threads * threads;
        cairn_bench_keys_fill(&s);
        bytes = cairn_bench_keys_bytes(&s, values);
        if (threads > 1) {
                status = measure_threads(&s, pass, bytes, threads, ret_report);
        } else {
                struct times times = measure_rounds(&s, pass, bytes, 1);

                report_of(&s, &times, bytes, ret_report);
        }
        cairn_bench_keys_finish(&s);
        return status;
}

int cairn_bench_scan(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        return measure(argc, argv, ret_report, cairn_bench_pass_scan, false);
}

int cairn_bench_select(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        const char *versus = cairn_bench_flag_text(argc, argv, "vs", NULL);

        if (versus)
                return cairn_bench_versus(argc, argv, versus, ret_report);
        return measure(argc, argv, ret_report, cairn_bench_pass_select, false);
}

int cairn_bench_rest(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        return measure(argc, argv, ret_report, cairn_bench_pass_rest, true);
}
