// Stats, Reload and Drain.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/operate.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "daemon/stats_walk.h"
#include "proto/status.h"

enum {
        NAME_BYTES = 48,
        ROWS_FIRST = 512, // most often enough
};

// One metric of the reply, and the texts that it does not share.
struct row {
        Cairn__Metric metric;
        char name[NAME_BYTES];
        char labels[CAIRN_STATS_LABELS_BYTES];
};

struct sheet {
        struct row *rows;
        size_t count;
        size_t capacity;
        bool failed; // no memory
};

static bool grow(struct sheet *sheet)
{
        size_t capacity = sheet->capacity > 0 ? 2 * sheet->capacity : ROWS_FIRST;
        struct row *rows = realloc(sheet->rows, capacity * sizeof(*rows));

        if (!rows)
                return false;
        sheet->rows = rows;
        sheet->capacity = capacity;
        return true;
}

static void on_sample(void *arg, const struct cairn_sample *sample)
{
        struct sheet *sheet = arg;
        struct row *row;
        size_t labels = strnlen(sample->labels, sizeof(row->labels) - 1);

        if (sheet->failed || (sheet->count == sheet->capacity && !grow(sheet))) {
                sheet->failed = true;
                return;
        }
        row = &sheet->rows[sheet->count++];
        row->metric = (Cairn__Metric)CAIRN__METRIC__INIT;
        row->metric.name = (char *)sample->name; // a constant
        row->name[0] = '\0';
        if (sample->suffix[0] != '\0')
                (void)snprintf(row->name, NAME_BYTES, "%s%s", sample->name, sample->suffix);
        memcpy(row->labels, sample->labels, labels);
        row->labels[labels] = '\0';
        row->metric.value = sample->value;
}

void cairn_serve_stats(struct cairn_request *request)
{
        Cairn__StatsReply reply = CAIRN__STATS_REPLY__INIT;
        struct sheet sheet = {.count = 0};

        cairn_stats_visit(request->server, false, on_sample, &sheet); // spaces: ListSpaces
        if (!sheet.failed)
                reply.metrics = malloc(sheet.count * sizeof(*reply.metrics));
        if (!reply.metrics) {
                free(sheet.rows);
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (size_t i = 0; i < sheet.count; i++) { // rows stay where they are from here on
                struct row *row = &sheet.rows[i];

                if (row->name[0] != '\0')
                        row->metric.name = row->name;
                row->metric.labels = row->labels;
                reply.metrics[i] = &row->metric;
        }
        reply.n_metrics = sheet.count;
        cairn_request_reply(request, &reply);
        free(reply.metrics);
        free(sheet.rows);
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
