// Samples of the daemon's numbers.
#include "client/cli/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
        BUCKETS_MAX = 32
};

double cairn_cli_now_s(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); // cannot fail with this clock
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        struct cairn_cli_sample *sample = arg;
        struct cairn_cli_metric *metric = &sample->metrics[sample->count];

        if (sample->count == CAIRN_CLI_METRICS_MAX)
                return;
        (void)snprintf(metric->name, sizeof(metric->name), *labels ? "%s{%s}" : "%s%s", name,
                       labels); // longer ones are not looked for
        metric->value = value;
        sample->count++;
}

int cairn_cli_sample_take(struct cairn_client *client, struct cairn_cli_sample *ret_sample)
{
        ret_sample->count = 0;
        ret_sample->time_s = cairn_cli_now_s();
        return cairn_stats(client, NULL, on_metric, ret_sample);
}

double cairn_cli_sample_get(const struct cairn_cli_sample *sample, const char *name)
{
        for (size_t i = 0; i < sample->count; i++)
                if (strcmp(sample->metrics[i].name, name) == 0)
                        return sample->metrics[i].value;
        return 0;
}

double cairn_cli_sample_rate(const struct cairn_cli_sample *from, const struct cairn_cli_sample *to,
                             const char *name)
{
        double change = cairn_cli_sample_get(to, name) - cairn_cli_sample_get(from, name);
        double seconds = to->time_s - from->time_s;

        return change > 0 && seconds > 0 ? change / seconds : 0;
}

// Upper bounds and counts of the kind's buckets between the samples. Returns how many there are.
static size_t take_buckets(const struct cairn_cli_sample *from, const struct cairn_cli_sample *to,
                           const char *kind, double *ret_bounds, double *ret_counts)
{
        char prefix[CAIRN_CLI_METRIC_BYTES];
        size_t count = 0;

        (void)snprintf(prefix, sizeof(prefix),
                       "cairn_request_duration_seconds_bucket{kind=\"%s\",le=\"", kind);
        for (size_t i = 0; i < to->count && count < BUCKETS_MAX; i++) {
                const struct cairn_cli_metric *metric = &to->metrics[i];

                if (strncmp(metric->name, prefix, strlen(prefix)) != 0)
                        continue;
                ret_bounds[count] = strtod(metric->name + strlen(prefix), NULL); // "+Inf" too
                ret_counts[count] = metric->value - cairn_cli_sample_get(from, metric->name);
                count++;
        }
        return count;
}

double cairn_cli_sample_quantile(const struct cairn_cli_sample *from,
                                 const struct cairn_cli_sample *to, const char *kind,
                                 double quantile)
{
        double bounds[BUCKETS_MAX];
        double counts[BUCKETS_MAX]; // cumulative
        size_t count = take_buckets(from, to, kind, bounds, counts);
        double rank;

        if (count < 2 || counts[count - 1] <= 0)
                return -1;
        rank = quantile * counts[count - 1];
        for (size_t i = 0; i + 1 < count; i++) {
                double below = i > 0 ? counts[i - 1] : 0;
                double lower = i > 0 ? bounds[i - 1] : 0;

                if (counts[i] >= rank)
                        return lower +
                               (bounds[i] - lower) *
                                   (counts[i] > below ? (rank - below) / (counts[i] - below) : 1);
        }
        return bounds[count - 2]; // above the last bound
}
