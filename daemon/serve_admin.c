// Stats, Reload and Drain.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/operate.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "proto/status.h"

enum {
        METRICS_MAX = 1536, // 32 kinds with a histogram each, and the rest
        LABEL_BYTES = 64,
        NAME_BYTES = 64,
};

struct sheet {
        Cairn__Metric *pointers[METRICS_MAX];
        Cairn__Metric metrics[METRICS_MAX];
        char names[METRICS_MAX][NAME_BYTES];
        char labels[METRICS_MAX][LABEL_BYTES];
        size_t count;
};

static void on_sample(void *arg, const struct cairn_sample *sample)
{
        struct sheet *sheet = arg;
        size_t at = sheet->count;
        Cairn__Metric *metric;

        if (at == METRICS_MAX)
                return;
        metric = &sheet->metrics[at];
        *metric = (Cairn__Metric)CAIRN__METRIC__INIT;
        (void)snprintf(sheet->names[at], NAME_BYTES, "%s%s", sample->name, sample->suffix);
        (void)snprintf(sheet->labels[at], LABEL_BYTES, "%s", sample->labels);
        metric->name = sheet->names[at];
        metric->labels = sheet->labels[at];
        metric->value = sample->value;
        sheet->pointers[at] = metric;
        sheet->count++;
}

void cairn_serve_stats(struct cairn_request *request)
{
        struct sheet *sheet = cairn_request_op(request, sizeof(*sheet), NULL);
        Cairn__StatsReply reply = CAIRN__STATS_REPLY__INIT;

        if (!sheet) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        cairn_stats_visit(request->server, false, on_sample, sheet); // spaces: ListSpaces
        reply.metrics = sheet->pointers;
        reply.n_metrics = sheet->count;
        cairn_request_reply(request, &reply);
}

void cairn_serve_reload(struct cairn_request *request)
{
        Cairn__ReloadReply reply = CAIRN__RELOAD_REPLY__INIT;
        char text[CAIRN_TEXT_BYTES_MAX];
        int status = cairn_operate_reload(request->server, text);

        if (status != CAIRN_OK) {
                cairn_request_fail(request, status, "%s", text);
                return;
        }
        reply.text = text;
        cairn_request_reply(request, &reply);
}

// Answers, then stops as SIGTERM does: what is under way ends, and all blocks go to disk.
void cairn_serve_drain(struct cairn_request *request)
{
        const Cairn__DrainRequest *message = request->message;
        Cairn__DrainReply reply = CAIRN__DRAIN_REPLY__INIT;
        struct cairn_server *server = request->server;
        uint64_t limit_ms = message->limit_ms ? message->limit_ms : server->config->stop_timeout_ms;

        cairn_request_reply(request, &reply);
        cairn_server_stop(server, limit_ms);
}
