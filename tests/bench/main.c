// cairn-bench: one case, one number beside a baseline of the same process and minute.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "policy/landmark/landmark.h"
#include "tests/bench/bench.h"

// A case whose file is not built is left out of the table.
#pragma weak cairn_bench_scan
#pragma weak cairn_bench_select
#pragma weak cairn_bench_rest
#pragma weak cairn_bench_gather
#pragma weak cairn_bench_quantize
#pragma weak cairn_bench_trace

#define DAEMON_FLAGS                                                                        \
        "  --socket PATH    a running cairnd; without it, a private one is started\n"       \
        "  --cairnd PATH    the program of the private one (default: beside cairn-bench)\n" \
        "  --directory DIR  where the private one keeps its data (default $TMPDIR, /tmp)\n" \
        "  --seconds S      how long to measure (default 3)\n"

static const struct cairn_bench_case cases[] = {
    {"scan",
     "ns a token of scoring landmarks, against a DRAM read of the same bytes\n"
     "  --bits 2 --dim 128 --queries 4 --tokens 131072 --block 256 --outliers 8\n"
     "  --isa NAME       scalar, avx2, avx512\n"
     "  --threads N      that share the contexts, beside one thread (default 1)\n"
     "  --warm           bytes that stay in the caches (default, --cold: from DRAM)\n",
     cairn_bench_scan},
    {"select",
     "ns a token of exact top-k with its re-rank, against a DRAM read; flags of scan, and\n"
     "  --share 0.03125  of the tokens, or --k N\n"
     "  --vs WORD        faiss or numpy: their search over the same keys instead, with the mass "
     "held\n",
     cairn_bench_select},
    {"rest",
     "ns a token of select and the estimate of the rest; flags of select, and\n"
     "  --value-bits 2\n",
     cairn_bench_rest},
    {"gather",
     "ns a row of gathering chosen rows, against a copy of the same coded rows; flags of select, "
     "and\n"
     "  --f16            as half floats\n",
     cairn_bench_gather},
    {"quantize", "ns a token of encoding keys and values, against memcpy; flags of scan\n",
     cairn_bench_quantize},
    {"trace",
     "eviction policies over a trace, against Belady's rule\n"
     "  --trace NAME --file PATH --uses N --seed N --sizes 1,5,10 --any-order --second-use\n",
     cairn_bench_trace},
    {"growth",
     "us of a select from 8 K to 4 M tokens; ratio: the worst deviation from a straight line\n"
     "  --min-tokens 8192 --tokens 4194304 --share 0.015625\n"
     "  --plot FILE      as SVG\n",
     cairn_bench_growth},
    {"bytes",
     "bytes of RAM a token and head that an open context takes, against bf16 K and V\n"
     "  --dim 128 --blocks 8\n" DAEMON_FLAGS,
     cairn_bench_bytes},
    {"start",
     "ms until a daemon serves an empty directory, and its memory when idle\n" DAEMON_FLAGS,
     cairn_bench_start},
    {"audit",
     "puts/s into full tiers with the audit of evictions, against the same without\n"
     "  --block SIZE     of a block (default 1MiB)\n"
     "  --batch N        blocks a request (default 32)\n"
     "  --evictions N    from NVMe, to measure (default 100000)\n" DAEMON_FLAGS,
     cairn_bench_audit},
    {"put",
     "GB/s from an arena, against memcpy and XXH3\n"
     "  --block SIZE     of a block (default 1MiB)\n"
     "  --blocks N       blocks in one round (default: 128 MiB of them)\n"
     "  --batch N        blocks a request (default 32)\n"
     "  --attention      an attention space of about that size, encoded as it comes in\n"
     "  --ack WORD       memory or disk (default memory)\n"
     "  --vs fio         its writes with a fdatasync a batch instead\n" DAEMON_FLAGS,
     cairn_bench_put},
    {"get",
     "GB/s into an arena, against memcpy\n"
     "  --tier WORD      ram or nvme, cold (default ram)\n"
     "  --block SIZE     of a block (default 1MiB)\n"
     "  --blocks N       that take turns (default: 128 MiB of them, of NVMe 1 GiB)\n"
     "  --batch N        blocks a request (default 32)\n"
     "  --flight N       requests under way (default 1)\n"
     "  --view           read in place, against reads of a local copy\n"
     "  --vs WORD        fio: its reads at the same depth instead; redis: redis-server by "
     "hiredis\n" DAEMON_FLAGS,
     cairn_bench_get},
    {"lookup",
     "us of a Lookup of a whole chain, against a bare socket round trip of the same bytes\n"
     "  --chain N        keys of a chain (default 64)\n"
     "  --blocks N       that are stored, in such chains (default: one chain)\n"
     "  --lease-ms N     of each (default 30000; 0: none)\n"
     "  --restart        start the daemon anew on them before, timed\n" DAEMON_FLAGS,
     cairn_bench_lookup},
    {"retrieve",
     "us of a Retrieve of one layer end to end, against a bare round trip of the same bytes and "
     "one\n"
     "read of the bytes that it scanned\n"
     "  --tokens N       of the context (default 32768)\n"
     "  --kv-heads N     (default 2)   --group N  query heads a KV head (default 4)\n"
     "  --dim N          (default 128) --steps N  (default 1)\n"
     "  --share X        of the tokens (default 0.03125)\n"
     "  --no-rows        positions and scores alone\n"
     "  --rest           estimate the rest too\n" DAEMON_FLAGS,
     cairn_bench_retrieve},
};
enum {
        CASES = sizeof(cases) / sizeof(cases[0])
};

static int usage(void)
{
        puts("usage: cairn-bench CASE [flags] [--json]   one case\n"
             "       cairn-bench --all [--json]          every case with its defaults\n"
             "\n"
             "Prints one number beside a baseline that ran in the same process and minute. "
             "CAIRN_ISA\n"
             "forces an instruction set. Cases:\n");
        for (int i = 0; i < CASES; i++) {
                if (cases[i].run)
                        printf("%s: %s\n", cases[i].name, cases[i].help);
        }
        return 0;
}

// "model name" of /proc/cpuinfo.
static void cpu_model(char *ret_text, size_t size)
{
        FILE *file = fopen("/proc/cpuinfo", "r");
        char line[512];

        (void)snprintf(ret_text, size, "unknown");
        while (file && fgets(line, sizeof(line), file)) {
                char *colon = strchr(line, ':');

                if (strncmp(line, "model name", 10) != 0 || !colon)
                        continue;
                line[strcspn(line, "\n")] = '\0';
                (void)snprintf(ret_text, size, "%.*s", (int)size - 1, colon + 2);
                break;
        }
        if (file)
                (void)fclose(file);
}

static void print_number(double value)
{
        if (isfinite(value))
                printf("%.6g", value);
        else
                fputs("null", stdout);
}

static void print_json(const char *name, const struct cairn_bench_report *r)
{
        char cpu[256];

        cpu_model(cpu, sizeof(cpu));
        printf(
            "{\"case\": \"%s\", \"machine\": {\"cpu\": \"%s\", \"isa\": \"%s\", \"cores\": %ld}, "
            "\"params\": %s, \"value\": ",
            name, cpu, cairn_isa_name(cairn_isa_chosen()), sysconf(_SC_NPROCESSORS_ONLN),
            r->params[0] ? r->params : "{}");
        print_number(r->value);
        printf(", \"unit\": \"%s\", \"baseline\": {\"name\": \"%s\", \"value\": ", r->unit,
               r->baseline_name);
        print_number(r->baseline);
        printf("}, \"ratio\": ");
        print_number(r->ratio);
        for (size_t i = 0; i < r->extras_count; i++) {
                printf(", \"%s\": ", r->extras[i].name);
                print_number(r->extras[i].value);
        }
        puts("}");
}

static void print_table(const char *name, const struct cairn_bench_report *r)
{
        char cpu[256];

        cpu_model(cpu, sizeof(cpu));
        printf("%s  %s\n", name, r->params);
        printf("  machine        %s, %s\n", cpu, cairn_isa_name(cairn_isa_chosen()));
        printf("  %-14s %.4g %s\n", "value", r->value, r->unit);
        printf("  %-14s %.4g %s   %s\n", "baseline", r->baseline, r->unit, r->baseline_name);
        printf("  %-14s %.3f\n", "ratio", r->ratio);
        for (size_t i = 0; i < r->extras_count; i++)
                printf("  %-14s %.5g\n", r->extras[i].name, r->extras[i].value);
}

static int run_case(const struct cairn_bench_case *one, int argc, char **argv)
{
        static struct cairn_bench_report report;

        memset(&report, 0, sizeof(report));
        if (one->run(argc, argv, &report) != 0)
                return 1;
        if (cairn_bench_flag_set(argc, argv, "json"))
                print_json(one->name, &report);
        else
                print_table(one->name, &report);
        return fflush(stdout) == 0 ? 0 : 1;
}

static int run_all(int argc, char **argv)
{
        static char short_run[] = "--seconds=1"; // after the caller's own, which counts
        char **all = calloc((size_t)argc + 2, sizeof(*all));
        int failed = all ? 0 : 1;

        for (int i = 0; all && i < argc; i++)
                all[i] = argv[i];
        if (all)
                all[argc] = short_run;
        for (int i = 0; all && i < CASES; i++) {
                if (cases[i].run && run_case(&cases[i], argc + 1, all) != 0) {
                        fprintf(stderr, "cairn-bench: %s failed\n", cases[i].name);
                        failed = 1;
                }
        }
        free(all);
        return failed;
}

int main(int argc, char **argv)
{
        const char *forced = getenv("CAIRN_ISA");

        if (argc < 2 || strcmp(argv[1], "--help") == 0)
                return argc < 2 ? (usage(), 2) : usage();
        if (cairn_isa_choose(forced) != 0) {
                fprintf(stderr, "cairn-bench: CAIRN_ISA=%s is not to be had here\n", forced);
                return 2;
        }
        if (strcmp(argv[1], "--all") == 0)
                return run_all(argc - 1, argv + 1);
        for (int i = 0; i < CASES; i++) {
                if (strcmp(argv[1], cases[i].name) != 0 || !cases[i].run)
                        continue;
                if (cairn_bench_flag_set(argc - 1, argv + 1, "help")) {
                        printf("cairn-bench %s: %s", cases[i].name, cases[i].help);
                        return 0;
                }
                return run_case(&cases[i], argc - 1, argv + 1);
        }
        fprintf(stderr, "cairn-bench: no case is called %s; try cairn-bench --help\n", argv[1]);
        return 2;
}
