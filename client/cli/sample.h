// A snapshot of the daemon's numbers, and what happened between two of them.
// May be used by: client/cli. May use: the public API.
#ifndef CAIRN_CLI_SAMPLE_H
#define CAIRN_CLI_SAMPLE_H

#include "cairn/cairn.h"

enum {
        CAIRN_CLI_METRICS_MAX = 2048,
        CAIRN_CLI_METRIC_BYTES = 96
};

struct cairn_cli_metric {
        char name[CAIRN_CLI_METRIC_BYTES]; // with its labels, as in the text of metrics
        double value;
};

// Zero before the first use.
struct cairn_cli_sample {
        struct cairn_cli_metric metrics[CAIRN_CLI_METRICS_MAX];
        size_t count;
        double time_s; // monotonic
};

double cairn_cli_now_s(void);
// Fills ret_sample. An error as cairn_stats gives it.
int cairn_cli_sample_take(struct cairn_client *client, struct cairn_cli_sample *ret_sample);
// 0 for a metric that is not there.
double cairn_cli_sample_get(const struct cairn_cli_sample *sample, const char *name);
// Change a second between two samples; 0 after a restart of the daemon.
double cairn_cli_sample_rate(const struct cairn_cli_sample *from, const struct cairn_cli_sample *to,
                             const char *name);
// Quantile of the durations of requests of `kind` between the samples, in seconds; -1: none were
// answered. Interpolated inside a bucket, as Prometheus does.
double cairn_cli_sample_quantile(const struct cairn_cli_sample *from,
                                 const struct cairn_cli_sample *to, const char *kind,
                                 double quantile);

#endif
