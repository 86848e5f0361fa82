// Few tasks over long contexts: each is shared by all scorers, step by step, so that one decode
// step over 128 K tokens uses every core though it has few KV heads. The steps and chunks are those
// of a task on one thread; so are the answers.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/retrieve.h"
#include "daemon/scorer.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        WIDE_TOKENS_MIN = 64 * 1024
}; // below it, the hops between steps cost more than they give

enum step {
        STEP_BEGIN,
        STEP_SCAN, // by chunks
        STEP_WEIGH,
        STEP_RANK, // by chunks
        STEP_CHOOSE,
        STEP_REST, // by chunks
        STEP_ANSWER,
        STEP_COUNT,
};

struct wide_task;

struct wide_worker {
        struct cairn_work work;
        struct wide_task *owner;
        uint32_t chunk;
        uint64_t ns;
        int status;
};

struct wide_task {
        struct cairn_retrieve *retrieve;
        struct cairn_retrieve_task task;
        uint64_t index;
        enum step step;
        uint32_t next_chunk;
        uint32_t running;
        struct wide_worker *workers; // one a scorer thread
};

struct cairn_retrieve_wide {
        void (*on_done)(struct cairn_retrieve *retrieve);
        uint64_t tasks_left;
        uint32_t workers_count;
        struct wide_task *tasks;
        struct wide_worker *workers;
};

bool cairn_retrieve_is_wide(const struct cairn_retrieve *r)
{
        uint64_t tokens = UINT64_MAX;

        for (uint32_t i = 0; i < r->views_count; i++)
                if (r->views[i].tokens < tokens)
                        tokens = r->views[i].tokens;
        return !r->all && tokens >= WIDE_TOKENS_MIN &&
               2 * r->tasks <= cairn_scorer_threads(r->request->server->scorer);
}

static bool is_chunked(enum step step)
{
        return step == STEP_SCAN || step == STEP_RANK || step == STEP_REST;
}

static void run_step(struct cairn_work *work)
{
        struct wide_worker *worker =
            (struct wide_worker *)((uint8_t *)work - offsetof(struct wide_worker, work));
        struct wide_task *owner = worker->owner;
        struct cairn_retrieve_task *task = &owner->task;
        uint64_t begun_ns = cairn_clock_ns();

        switch (owner->step) {
        case STEP_BEGIN:
                worker->status =
                    cairn_retrieve_task_begin(task, owner->retrieve, owner->index, true);
                break;
        case STEP_SCAN: cairn_retrieve_task_scan(task, worker->chunk); break;
        case STEP_WEIGH: cairn_retrieve_task_weigh(task); break;
        case STEP_RANK: cairn_retrieve_task_rank(task, worker->chunk); break;
        case STEP_CHOOSE: cairn_retrieve_task_choose(task); break;
        case STEP_REST: worker->status = cairn_retrieve_task_rest(task, worker->chunk); break;
        case STEP_ANSWER: worker->status = cairn_retrieve_task_answer(task); break;
        case STEP_COUNT: assert(!"no such step"); break;
        }
        worker->ns += cairn_clock_ns() - begun_ns;
}

// False: the step has no work left to hand out.
static bool submit(struct wide_worker *worker)
{
        struct wide_task *owner = worker->owner;
        uint32_t chunks = is_chunked(owner->step) ? owner->task.chunks : 1;

        if (owner->next_chunk == chunks)
                return false;
        worker->chunk = owner->next_chunk++;
        owner->running++;
        cairn_scorer_submit(owner->retrieve->request->server->scorer, &worker->work);
        return true;
}

static void start_step(struct wide_task *owner)
{
        uint32_t count = owner->retrieve->wide->workers_count;

        owner->next_chunk = 0;
        for (uint32_t i = 0; i < count; i++)
                if (!submit(&owner->workers[i]))
                        break;
}

static void end_task(struct wide_task *owner)
{
        struct cairn_retrieve *r = owner->retrieve;
        struct cairn_retrieve_wide *wide = r->wide;

        if (r->status == CAIRN_OK) {
                r->tokens_scanned +=
                    r->views[r->views_count == 1 ? 0 : owner->task.place.pair].tokens;
                r->bytes_scanned += cairn_retrieve_task_bytes(&owner->task);
        }
        for (uint32_t i = 0; i < wide->workers_count; i++)
                r->kernel_ns += owner->workers[i].ns;
        cairn_retrieve_task_end(&owner->task);
        if (--wide->tasks_left == 0)
                wide->on_done(r);
}

static void on_step_done(struct cairn_work *work)
{
        struct wide_worker *worker =
            (struct wide_worker *)((uint8_t *)work - offsetof(struct wide_worker, work));
        struct wide_task *owner = worker->owner;
        struct cairn_retrieve *r = owner->retrieve;

        owner->running--;
        if (r->status == CAIRN_OK)
                r->status = worker->status;
        if (r->status == CAIRN_OK && cairn_request_abandoned(r->request))
                r->status = CAIRN_ECANCELLED;
        if (r->status == CAIRN_OK && cairn_request_late(r->request))
                r->status = CAIRN_EDEADLINE;
        if (r->status == CAIRN_OK && submit(worker))
                return;
        if (owner->running > 0)
                return;
        do
                owner->step++;
        while (owner->step == STEP_REST && !r->shape.rest);
        if (r->status == CAIRN_OK && owner->step < STEP_COUNT)
                start_step(owner);
        else
                end_task(owner);
}

int cairn_retrieve_start_wide(struct cairn_retrieve *r,
                              void (*on_done)(struct cairn_retrieve *retrieve))
{
        struct cairn_retrieve_wide *wide = calloc(1, sizeof(*wide));
        uint32_t threads = cairn_scorer_threads(r->request->server->scorer);

        if (!wide)
                return CAIRN_ENOMEM;
        r->wide = wide;
        wide->on_done = on_done;
        wide->tasks_left = r->tasks;
        wide->workers_count = threads;
        wide->tasks = calloc(r->tasks, sizeof(wide->tasks[0]));
        wide->workers = calloc(r->tasks * threads, sizeof(wide->workers[0]));
        if (!wide->tasks || !wide->workers)
                return CAIRN_ENOMEM;
        for (uint64_t t = 0; t < r->tasks; t++) {
                struct wide_task *owner = &wide->tasks[t];

                owner->retrieve = r;
                owner->index = t;
                owner->workers = &wide->workers[t * threads];
                for (uint32_t i = 0; i < threads; i++)
                        owner->workers[i] =
                            (struct wide_worker){.work = {.run = run_step, .on_done = on_step_done},
                                                 .owner = owner};
        }
        for (uint64_t t = 0; t < r->tasks; t++)
                start_step(&wide->tasks[t]);
        return CAIRN_OK;
}

void cairn_retrieve_end_wide(struct cairn_retrieve *r)
{
        if (!r->wide)
                return;
        free(r->wide->tasks);
        free(r->wide->workers);
        free(r->wide);
        r->wide = NULL;
}
