// A Retrieve or Attend under way: its plan, made on the loop, and its tasks, run by scorers.
// A *task* is one (pair, step, KV head): it selects, estimates the rest, attends or gathers, and
// writes its own part of the result. Tasks are independent, so the answer is the same alone or in a
// batch. May be used by: daemon (serve_retrieve.c, retrieve_plan.c, retrieve_task.c). May use:
// proto, policy.
#ifndef CAIRN_RETRIEVE_H
#define CAIRN_RETRIEVE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/context.h"
#include "daemon/serve.h"
#include "policy/landmark/landmark.h"
#include "proto/result.h"

enum {
        CAIRN_RETRIEVE_WORKERS_MAX = 64
};

struct cairn_retrieve;

// One of the pieces of work that a Retrieve has with the scorers at a time.
struct cairn_retrieve_worker {
        struct cairn_work work;
        struct cairn_retrieve *retrieve;
        uint64_t task_first;
        uint64_t task_count;
        uint64_t tokens;
        uint64_t bytes;
        uint64_t ns;
        int status;
};

struct cairn_retrieve {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        struct cairn_context_view *views; // one a context; contexts are in use
        uint32_t views_count;
        uint32_t group; // query heads a KV head
        float scale;
        struct cairn_landmark_range excluded[CAIRN_EXCLUDED_MAX];
        uint32_t excluded_count;
        enum cairn_landmark_budget budget;
        float target;
        enum cairn_landmark_kind kind;
        bool exact; // score rows, not codes
        bool all;   // attend over every row: nothing is selected
        struct cairn_result_shape shape;
        struct cairn_result_layout layout;
        struct cairn_bulk queries;
        struct cairn_result_memory result;
        uint64_t tasks;
        uint64_t tasks_next;
        uint64_t tasks_slice; // tasks a worker takes at once
        uint32_t running;
        uint64_t tokens_scanned;
        uint64_t bytes_scanned;
        uint64_t kernel_ns;
        int status;
        struct cairn_retrieve_worker workers[CAIRN_RETRIEVE_WORKERS_MAX];
};

// retrieve_plan.c: checks the message and fills everything up to the tasks. False: answered.
bool cairn_retrieve_plan(struct cairn_retrieve *retrieve);
// retrieve_task.c: scorer thread.
void cairn_retrieve_run_task(const struct cairn_retrieve *retrieve, uint64_t task,
                             struct cairn_retrieve_worker *worker);

#endif
