// What a benchmark case fills in: one number beside a baseline taken in the same process and
// minute. Used by tests/bench/ alone.
#ifndef CAIRN_BENCH_H
#define CAIRN_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        CAIRN_BENCH_EXTRAS_MAX = 96,
        CAIRN_BENCH_TEXT_MAX = 64
};

// A further number worth printing (percentile, CPU seconds, physical limit).
struct cairn_bench_extra {
        char name[CAIRN_BENCH_TEXT_MAX];
        double value;
};

// The result of one case. `params` is a JSON object text, e.g. {"dim":128}. `ratio` is ours over
// the baseline's throughput (or, where the case says so, latency over latency), computed by the
// case.
struct cairn_bench_report {
        char params[512];
        char unit[CAIRN_BENCH_TEXT_MAX];
        char baseline_name[CAIRN_BENCH_TEXT_MAX];
        double value;
        double baseline;
        double ratio;
        size_t extras_count;
        struct cairn_bench_extra extras[CAIRN_BENCH_EXTRAS_MAX];
};

// A case: parses its own flags (argv[0] is the case's name), fills `ret_report`; returns 0, or -1
// after printing what was wrong to stderr.
struct cairn_bench_case {
        const char *name;
        const char *help; // one line a flag
        int (*run)(int argc, char **argv, struct cairn_bench_report *ret_report);
};

// Flag helpers: `--name value` or `--name=value`; the default where the flag is absent.
uint64_t cairn_bench_flag_u64(int argc, char **argv, const char *name, uint64_t fallback);
// With KiB, MiB or GiB, or a plain number.
uint64_t cairn_bench_flag_bytes(int argc, char **argv, const char *name, uint64_t fallback);
double cairn_bench_flag_double(int argc, char **argv, const char *name, double fallback);
const char *cairn_bench_flag_text(int argc, char **argv, const char *name, const char *fallback);
bool cairn_bench_flag_set(int argc, char **argv, const char *name);

// Seconds of CLOCK_MONOTONIC, and of this thread's CPU.
double cairn_bench_now_s(void);
double cairn_bench_cpu_s(void);
void cairn_bench_extra(struct cairn_bench_report *report, const char *name, double value);
// Sorts `values` and returns the q-quantile (0..1).
double cairn_bench_quantile(double *values, size_t count, double q);

int cairn_bench_scan(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_select(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_rest(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_gather(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_quantize(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_trace(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_get(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_put(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_lookup(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_audit(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_growth(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_bytes(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_start(int argc, char **argv, struct cairn_bench_report *ret_report);
int cairn_bench_retrieve(int argc, char **argv, struct cairn_bench_report *ret_report);

#endif
