// A Retrieve or Attend under way: its plan, made on the loop, and its tasks, run by scorers.
// A *task* is one (pair, step, KV head): it selects, estimates the rest, attends or gathers, and
// writes its own part of the result. Tasks are independent, so the answer is the same alone or in a
// batch. May be used by: daemon (serve_retrieve.c, retrieve_*.c). May use:
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
struct cairn_retrieve_wide;

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
        struct cairn_bulk held_lse; // base NULL: not told
        struct cairn_mass *mass;    // the daemon's: what selections hold
        struct cairn_result_memory result;
        uint64_t tasks;
        uint64_t tasks_next;
        uint64_t tasks_slice; // tasks a worker takes at once
        uint32_t running;
        uint64_t tokens_scanned;
        uint64_t bytes_scanned;
        uint64_t kernel_ns;
        int status;
        struct cairn_retrieve_wide *wide; // owned; NULL: each task on one thread
        struct cairn_retrieve_worker workers[CAIRN_RETRIEVE_WORKERS_MAX];
};

// Where a task stands in the request.
struct cairn_retrieve_place {
        uint32_t pair;
        uint32_t step;
        uint32_t head;
        uint64_t row;   // (pair * steps + step) * KV heads + head
        uint64_t query; // index of the group's first query head among all
};

// The memory of a task, carved from one piece.
struct cairn_retrieve_bench {
        struct cairn_landmark_piece *pieces;
        float *queries;      // [group][k_dim]
        uint32_t *positions; // [k_max]
        float *scores;       // [k_max]
        float *lse_chosen;   // [group]
        float *lse_all;      // [group]
        float *lse_held;     // [group]
        float *mass_error;   // [group]
        float *part_lse;     // [group]
        float *part_out;     // [group][out dim]
        float *rest_lse;     // [chunk][group]
        float *rest_out;     // [chunk][group][out dim]
        uint8_t *policy;     // for one call of the policy at a time, but for the selection
        uint8_t *selection;
        size_t selection_bytes;
};

// A task under way. Its pieces are cut into chunks of a fixed number of tokens, whoever works on
// them, so that the answer does not depend on that.
struct cairn_retrieve_task {
        const struct cairn_retrieve *retrieve;
        struct cairn_retrieve_place place;
        struct cairn_retrieve_bench bench;
        struct cairn_landmark_request request;
        struct cairn_landmark_selection *selection;
        struct cairn_landmark_result result;
        uint32_t chunk_pieces;
        uint32_t chunks;
        size_t policy_bytes;
        bool shared;  // several threads work on it: its memory is its own, not a thread's scratch
        void *memory; // if so
        size_t memory_bytes;
};

// retrieve_plan.c: checks the message and fills everything up to the tasks. False: answered.
bool cairn_retrieve_plan(struct cairn_retrieve *retrieve);

// retrieve_task.c: scorer threads. A whole task on this thread:
void cairn_retrieve_run_task(const struct cairn_retrieve *retrieve, uint64_t task,
                             struct cairn_retrieve_worker *worker);
// The same in steps. Chunked ones may run on any threads at once, a step after the other.
int cairn_retrieve_task_begin(struct cairn_retrieve_task *task, const struct cairn_retrieve *r,
                              uint64_t index, bool shared);
void cairn_retrieve_task_scan(struct cairn_retrieve_task *task, uint32_t chunk);
void cairn_retrieve_task_weigh(struct cairn_retrieve_task *task);
void cairn_retrieve_task_rank(struct cairn_retrieve_task *task, uint32_t chunk);
void cairn_retrieve_task_choose(struct cairn_retrieve_task *task);
int cairn_retrieve_task_rest(struct cairn_retrieve_task *task, uint32_t chunk);
int cairn_retrieve_task_answer(struct cairn_retrieve_task *task);
uint64_t cairn_retrieve_task_bytes(const struct cairn_retrieve_task *task); // that a scan reads
void cairn_retrieve_task_end(struct cairn_retrieve_task *task); // frees memory of its own

// retrieve_wide.c: few tasks over long contexts, each shared by all scorers.
bool cairn_retrieve_is_wide(const struct cairn_retrieve *retrieve);
// `on_done` runs on the loop when all tasks are; the status and the counts are in `retrieve`.
int cairn_retrieve_start_wide(struct cairn_retrieve *retrieve,
                              void (*on_done)(struct cairn_retrieve *retrieve));
void cairn_retrieve_end_wide(struct cairn_retrieve *retrieve);

#endif
