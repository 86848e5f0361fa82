// Retrieve and Attend: the plan is checked, its tasks go to the scorers by slices, the result's
// layout is answered.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/connection.h"
#include "daemon/retrieve.h"
#include "daemon/server.h"
#include "proto/probe.h"
#include "proto/status.h"

enum {
        SLICE_TOKENS = 256 * 1024
}; // scanned by a worker before others get their turn

static void retrieve_end(void *arg)
{
        struct cairn_retrieve *r = arg;

        for (uint32_t i = 0; i < r->views_count; i++)
                cairn_context_unref((struct cairn_context *)r->views[i].context);
        free(r->views);
        cairn_retrieve_end_wide(r);
        cairn_bulk_finish(&r->queries);
        cairn_bulk_finish(&r->held_lse);
        cairn_result_memory_finish(&r->result);
}

static void finish(struct cairn_retrieve *r)
{
        struct cairn_counters *counters = &r->request->server->counters;
        Cairn__RetrieveReply reply = CAIRN__RETRIEVE_REPLY__INIT;
        uint8_t *payload = r->result.payload;

        counters->tokens_scanned += r->tokens_scanned;
        CAIRN_PROBE4(retrieve, r->request->id, r->status, r->tokens_scanned, r->kernel_ns);
        if (r->status != CAIRN_OK) {
                cairn_request_fail(r->request, r->status,
                                   r->status == CAIRN_EINVAL && r->held_lse.base
                                       ? "held_lse: a log-sum-exp is NaN or +infinity; -infinity "
                                         "says that nothing is held"
                                       : NULL);
                return;
        }
        if (r->shape.rows)
                counters->rows_fetched += r->tasks * r->shape.k_max;
        reply.k_max = r->shape.k_max;
        reply.result_bytes = r->layout.total_bytes;
        reply.tokens_scanned = r->tokens_scanned;
        reply.bytes_scanned = r->bytes_scanned;
        reply.kernel_ns = r->kernel_ns;
        r->result.payload = NULL;
        if (payload)
                cairn_request_reply_payload(r->request, &reply, payload, r->layout.total_bytes);
        else
                cairn_request_reply(r->request, &reply);
}

static void run_slice(struct cairn_work *work)
{
        struct cairn_retrieve_worker *worker =
            (struct cairn_retrieve_worker *)((uint8_t *)work -
                                             offsetof(struct cairn_retrieve_worker, work));

        for (uint64_t i = 0; i < worker->task_count && worker->status == CAIRN_OK; i++)
                cairn_retrieve_run_task(worker->retrieve, worker->task_first + i, worker);
}

// Hands the worker its next tasks. False: none left.
static bool submit_slice(struct cairn_retrieve_worker *worker)
{
        struct cairn_retrieve *r = worker->retrieve;
        uint64_t left = r->tasks - r->tasks_next;

        if (left == 0)
                return false;
        worker->task_first = r->tasks_next;
        worker->task_count = left < r->tasks_slice ? left : r->tasks_slice;
        worker->tokens = 0;
        worker->bytes = 0;
        worker->ns = 0;
        worker->status = CAIRN_OK;
        r->tasks_next += worker->task_count;
        r->running++;
        cairn_scorer_submit(r->request->server->scorer, &worker->work);
        return true;
}

static void on_slice_done(struct cairn_work *work)
{
        struct cairn_retrieve_worker *worker =
            (struct cairn_retrieve_worker *)((uint8_t *)work -
                                             offsetof(struct cairn_retrieve_worker, work));
        struct cairn_retrieve *r = worker->retrieve;

        r->running--;
        r->tokens_scanned += worker->tokens;
        r->bytes_scanned += worker->bytes;
        r->kernel_ns += worker->ns;
        if (r->status == CAIRN_OK)
                r->status = worker->status;
        if (r->status == CAIRN_OK && cairn_request_abandoned(r->request))
                r->status = CAIRN_ECANCELLED;
        if (r->status == CAIRN_OK && r->tasks_next < r->tasks && cairn_request_late(r->request))
                r->status = CAIRN_EDEADLINE;
        if (r->status == CAIRN_OK && submit_slice(worker))
                return;
        if (r->running == 0)
                finish(r);
}

void cairn_serve_retrieve(struct cairn_request *request)
{
        struct cairn_retrieve *r = cairn_request_op(request, sizeof(*r), retrieve_end);
        uint32_t workers = cairn_scorer_threads(request->server->scorer);
        uint64_t tokens = 1;

        if (!r) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        r->request = request;
        r->mass = &request->server->counters.mass;
        if (!cairn_retrieve_plan(r))
                return;
        if (cairn_retrieve_is_wide(r)) {
                if (cairn_retrieve_start_wide(r, finish) != CAIRN_OK)
                        cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (uint32_t i = 0; i < r->views_count; i++)
                if (r->views[i].tokens > tokens)
                        tokens = r->views[i].tokens;
        r->tasks_slice = SLICE_TOKENS / tokens + 1;
        if (workers > CAIRN_RETRIEVE_WORKERS_MAX)
                workers = CAIRN_RETRIEVE_WORKERS_MAX;
        if (r->tasks_slice > (r->tasks + workers - 1) / workers)
                r->tasks_slice = (r->tasks + workers - 1) / workers; // all threads get some
        for (uint32_t i = 0; i < workers; i++) {
                struct cairn_retrieve_worker *worker = &r->workers[i];

                worker->retrieve = r;
                worker->work = (struct cairn_work){.run = run_slice, .on_done = on_slice_done};
                if (!submit_slice(worker))
                        break;
        }
}
