// What benchmark cases share: flags, clocks, quantiles, extras.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/bench.h"

// Value of `--name value` or `--name=value`; "" for a flag without one; NULL when it is absent.
static const char *find(int argc, char **argv, const char *name)
{
        size_t size = strlen(name);

        for (int i = 1; i < argc; i++) {
                if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, size) != 0)
                        continue;
                if (argv[i][2 + size] == '=')
                        return argv[i] + 2 + size + 1;
                if (argv[i][2 + size] == '\0')
                        return i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0 ? argv[i + 1]
                                                                                  : "";
        }
        return NULL;
}

static _Noreturn void refuse(const char *name, const char *value, const char *wanted)
{
        fprintf(stderr, "cairn-bench: --%s %s: %s, please\n", name, value, wanted);
        exit(2);
}

uint64_t cairn_bench_flag_u64(int argc, char **argv, const char *name, uint64_t fallback)
{
        const char *value = find(argc, argv, name);
        char *end;
        uint64_t number;

        if (!value)
                return fallback;
        number = strtoull(value, &end, 10);
        if (end == value || *end != '\0' || value[0] == '-')
                refuse(name, value, "a whole number");
        return number;
}

uint64_t cairn_bench_flag_bytes(int argc, char **argv, const char *name, uint64_t fallback)
{
        static const char *const units[] = {"", "KiB", "MiB", "GiB"};
        const char *value = find(argc, argv, name);
        char *end;
        uint64_t number;

        if (!value)
                return fallback;
        number = strtoull(value, &end, 10);
        for (int i = 0; end != value && i < 4; i++) {
                if (strcmp(end, units[i]) == 0)
                        return number << (10 * i);
        }
        refuse(name, value, "bytes, such as 64KiB or 1MiB");
}

double cairn_bench_flag_double(int argc, char **argv, const char *name, double fallback)
{
        const char *value = find(argc, argv, name);
        char *end;
        double number;

        if (!value)
                return fallback;
        number = strtod(value, &end);
        if (end == value || *end != '\0')
                refuse(name, value, "a number");
        return number;
}

const char *cairn_bench_flag_text(int argc, char **argv, const char *name, const char *fallback)
{
        const char *value = find(argc, argv, name);

        if (value && *value == '\0')
                refuse(name, value, "a value");
        return value ? value : fallback;
}

bool cairn_bench_flag_set(int argc, char **argv, const char *name)
{
        return find(argc, argv, name) != NULL;
}

static double seconds_of(clockid_t clock)
{
        struct timespec now;

        (void)clock_gettime(clock, &now); // cannot fail with these clocks
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cairn_bench_now_s(void)
{
        return seconds_of(CLOCK_MONOTONIC);
}

double cairn_bench_cpu_s(void)
{
        return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

void cairn_bench_extra(struct cairn_bench_report *report, const char *name, double value)
{
        struct cairn_bench_extra *extra;

        assert(report->extras_count < CAIRN_BENCH_EXTRAS_MAX);
        extra = &report->extras[report->extras_count++];
        (void)snprintf(extra->name, sizeof(extra->name), "%s", name);
        extra->value = value;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a;
        double y = *(const double *)b;

        return (x > y) - (x < y);
}

double cairn_bench_quantile(double *values, size_t count, double q)
{
        assert(count > 0);
        qsort(values, count, sizeof(values[0]), compare);
        return values[(size_t)(q * (double)(count - 1) + 0.5)];
}
