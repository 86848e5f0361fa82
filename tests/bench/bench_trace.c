// cairn-bench trace: eviction policies over a trace, beside Belady's rule. Prints, for tiers of
// some shares of the footprint, the hit ratio by bytes and the share of recompute seconds saved.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/eviction/eviction.h"
#include "tests/bench/bench.h"
#include "tests/bench/trace.h"

enum {
        SIZES_MAX = 8,
        ROWS_MAX = 5 // policies, Belady's, and a tier that holds everything
};

struct table {
        double shares[SIZES_MAX]; // of the footprint
        size_t n_shares;
        const char *names[ROWS_MAX];
        size_t n_rows;
        double bytes[ROWS_MAX][SIZES_MAX];
        double seconds[ROWS_MAX][SIZES_MAX];
        double written[ROWS_MAX][SIZES_MAX]; // bytes taken in over bytes used
};

static int parse_sizes(const char *text, struct table *table)
{
        while (*text) {
                char *end;
                double percent = strtod(text, &end);

                if (end == text || !(percent > 0 && percent <= 100) ||
                    table->n_shares == SIZES_MAX || (*end != 0 && *end != ',')) {
                        fprintf(stderr, "--sizes: 1 to %d percentages, as in 1,5,10\n", SIZES_MAX);
                        return -1;
                }
                table->shares[table->n_shares++] = percent / 100;
                text = *end ? end + 1 : end;
        }
        return table->n_shares > 0 ? 0 : -1;
}

static int load(int argc, char **argv, struct cairn_trace *trace, const char **ret_name)
{
        const char *file = cairn_bench_flag_text(argc, argv, "file", NULL);
        const char *name = cairn_bench_flag_text(argc, argv, "trace", "chat");
        const char *write = cairn_bench_flag_text(argc, argv, "write", NULL);
        uint64_t uses = cairn_bench_flag_u64(argc, argv, "uses", 300000);

        *ret_name = file ? file : name;
        if (uses < 1 || uses > CAIRN_TRACE_USES_MAX) {
                fprintf(stderr, "--uses: 1 to %d\n", CAIRN_TRACE_USES_MAX);
                return -1;
        }
        if (file)
                return cairn_trace_read(trace, file);
        if (cairn_trace_make(trace, name, cairn_bench_flag_u64(argc, argv, "seed", 1),
                             (uint32_t)uses) != 0) {
                fprintf(stderr, "--trace: zipf, scan, chat or shared, not '%s'\n", name);
                return -1;
        }
        return write ? cairn_trace_save(trace, write) : 0;
}

static double part(uint64_t of, uint64_t whole)
{
        return whole ? (double)of / (double)whole : 0;
}

static void fill(const struct cairn_trace *trace, const struct cairn_trace_options *common,
                 struct table *table)
{
        while (cairn_eviction_name(table->n_rows)) {
                table->names[table->n_rows] = cairn_eviction_name(table->n_rows);
                table->n_rows++;
        }
        table->names[table->n_rows++] = "belady";
        table->names[table->n_rows++] = "infinite";
        for (size_t r = 0; r < table->n_rows; r++) {
                for (size_t s = 0; s < table->n_shares; s++) {
                        struct cairn_trace_options options = *common;
                        struct cairn_trace_result result;

                        options.policy = cairn_eviction_by_name(table->names[r]);
                        options.capacity_bytes =
                            (uint64_t)(table->shares[s] * (double)trace->footprint_bytes);
                        if (r + 1 == table->n_rows) {
                                options.policy = &cairn_eviction_lru;
                                options.capacity_bytes = trace->footprint_bytes;
                        }
                        if (r + 2 >= table->n_rows)
                                options.second_use = false;
                        cairn_trace_run(trace, &options, &result);
                        table->bytes[r][s] = part(result.hit_bytes, result.used_bytes);
                        table->seconds[r][s] = part(result.hit_us, result.used_us);
                        table->written[r][s] = part(result.admitted_bytes, result.used_bytes);
                }
        }
}

static void print_block(const struct table *table, const char *title,
                        const double values[ROWS_MAX][SIZES_MAX])
{
        printf("%-28s", title);
        for (size_t s = 0; s < table->n_shares; s++)
                printf(" %7.4g%%", 100 * table->shares[s]);
        printf("\n");
        for (size_t r = 0; r < table->n_rows; r++) {
                printf("  %-26s", table->names[r]);
                for (size_t s = 0; s < table->n_shares; s++)
                        printf(" %8.4f", values[r][s]);
                printf("\n");
        }
}

static double mean(const double *values, size_t count)
{
        double sum = 0;

        for (size_t i = 0; i < count; i++)
                sum += values[i];
        return sum / (double)count;
}

// Every number, for --json.
static void list_all(const struct table *table, struct cairn_bench_report *ret_report)
{
        for (size_t r = 0; r < table->n_rows; r++) {
                for (size_t s = 0; s < table->n_shares; s++) {
                        char name[CAIRN_BENCH_TEXT_MAX];
                        double percent = 100 * table->shares[s];

                        snprintf(name, sizeof(name), "%s.bytes.%g", table->names[r], percent);
                        cairn_bench_extra(ret_report, name, table->bytes[r][s]);
                        snprintf(name, sizeof(name), "%s.seconds.%g", table->names[r], percent);
                        cairn_bench_extra(ret_report, name, table->seconds[r][s]);
                }
        }
}

// The policy with the best mean, beside Belady's rule.
static void report(const struct table *table, struct cairn_bench_report *ret_report)
{
        size_t belady = table->n_rows - 2;
        size_t best = 0;

        for (size_t r = 1; r < belady; r++) {
                if (mean(table->bytes[r], table->n_shares) >
                    mean(table->bytes[best], table->n_shares))
                        best = r;
        }
        snprintf(ret_report->unit, sizeof(ret_report->unit), "hit ratio by bytes");
        snprintf(ret_report->baseline_name, sizeof(ret_report->baseline_name),
                 "belady; value is %s, both the mean of sizes", table->names[best]);
        ret_report->value = mean(table->bytes[best], table->n_shares);
        ret_report->baseline = mean(table->bytes[belady], table->n_shares);
        ret_report->ratio = ret_report->baseline > 0 ? ret_report->value / ret_report->baseline : 0;
}

int cairn_bench_trace(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct cairn_trace trace;
        struct table table = {0};
        struct cairn_trace_options common = {
            .any_order = cairn_bench_flag_set(argc, argv, "any-order"),
            .second_use = cairn_bench_flag_set(argc, argv, "second-use")};
        const char *name;
        int status = -1;

        cairn_trace_init(&trace);
        if (parse_sizes(cairn_bench_flag_text(argc, argv, "sizes", "1,2,5,10,20,50"), &table) != 0)
                return -1;
        if (load(argc, argv, &trace, &name) != 0)
                goto finish;
        fill(&trace, &common, &table);
        snprintf(ret_report->params, sizeof(ret_report->params),
                 "{\"trace\":\"%.200s\",\"uses\":%u,\"blocks\":%u,\"footprint_gib\":%.2f,"
                 "\"leaf_first\":%s,\"second_use\":%s}",
                 strpbrk(name, "\"\\") ? "file" : name, trace.n_uses, trace.n_blocks,
                 (double)trace.footprint_bytes / (1 << 30), common.any_order ? "false" : "true",
                 common.second_use ? "true" : "false");
        if (cairn_bench_flag_set(argc, argv, "json")) {
                list_all(&table, ret_report);
        } else {
                printf("%s: %u uses of %u blocks, %.1f GiB\n", name, trace.n_uses, trace.n_blocks,
                       (double)trace.footprint_bytes / (1 << 30));
                print_block(&table, "hit ratio by bytes at", table.bytes);
                print_block(&table, "recompute seconds saved at", table.seconds);
                print_block(&table, "bytes written a byte used at", table.written);
        }
        report(&table, ret_report);
        status = 0;
finish:
        cairn_trace_finish(&trace);
        return status;
}
