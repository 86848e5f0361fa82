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
        LABEL_BYTES = 64,
        NAME_BYTES = 48,
};

// One metric of the reply, and the texts that it does not share.
struct row {
        Cairn__Metric metric;
        char name[NAME_BYTES];
        char labels[LABEL_BYTES];
};

struct sheet {
        Cairn__Metric **pointers; // NULL: only counting
        struct row *rows;
        size_t count;
};

static void on_sample(void *arg, const struct cairn_sample *sample)
{
        struct sheet *sheet = arg;
        struct row *row;

        if (!sheet->pointers) {
                sheet->count++;
                return;
        }
        row = &sheet->rows[sheet->count];
        row->metric = (Cairn__Metric)CAIRN__METRIC__INIT;
        row->metric.name = (char *)sample->name;
        if (sample->suffix[0] != '\0') {
                (void)snprintf(row->name, NAME_BYTES, "%s%s", sample->name, sample->suffix);
                row->metric.name = row->name;
        }
        (void)snprintf(row->labels, LABEL_BYTES, "%s", sample->labels);
        row->metric.labels = row->labels;
        row->metric.value = sample->value;
        sheet->pointers[sheet->count++] = &row->metric;
}

void cairn_serve_stats(struct cairn_request *request)
{
        Cairn__StatsReply reply = CAIRN__STATS_REPLY__INIT;
        struct sheet sheet = {.count = 0};
        uint8_t *memory;

        cairn_stats_visit(request->server, false, on_sample, &sheet); // spaces: ListSpaces
        memory =
            cairn_request_op(request, sheet.count * (sizeof(struct row) + sizeof(Cairn__Metric *)),
                             NULL);
        if (!memory) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        sheet.rows = (struct row *)(void *)memory;
        sheet.pointers = (Cairn__Metric **)(void *)(memory + sheet.count * sizeof(struct row));
        sheet.count = 0;
        cairn_stats_visit(request->server, false, on_sample, &sheet); // the same ones again
        reply.metrics = sheet.pointers;
        reply.n_metrics = sheet.count;
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
