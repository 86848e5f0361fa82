// Passes of scan, select and rest over contexts, and the threads that share them.
#include "tests/bench/passes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/landmark/selection.h"
#include "proto/status.h"

static _Thread_local volatile uint64_t sink;

void cairn_bench_pass_read(struct cairn_bench_pass *pass)
{
        (void)cairn_bench_keys_read_s(pass->keys, pass->bytes, pass->first, pass->end);
}

// The code run that is scanned after a run.
static const uint8_t *next_of(const struct cairn_bench_keys *s,
                              const struct cairn_landmark_request *r, uint32_t block, uint32_t run)
{
        if (run + 1 < s->layout.runs)
                return r->pieces[block].code_run;
        return block + 1 < s->blocks ? r->pieces[block + 1].code_run : NULL;
}

void cairn_bench_pass_scan(struct cairn_bench_pass *pass)
{
        const struct cairn_bench_keys *s = pass->keys;
        struct cairn_query query;
        struct cairn_scratch scratch = {.base = pass->scratch};
        const struct cairn_kernels *kernels = cairn_kernels_chosen();
        uint32_t run_tokens = s->layout.shape.run_tokens;
        cairn_query_carve(&scratch, &s->layout, s->queries, &query);
        float *scores = cairn_scratch_take(&scratch, (size_t)s->queries * s->tokens * 4);
        float *max = cairn_scratch_take(&scratch, s->queries * 4);
        float *mean = cairn_scratch_take(&scratch, s->queries * 4);
        struct cairn_run_records records = {.max = max, .mean = mean, .stride = 1};
        struct cairn_rotation *rotation = cairn_scratch_take(&scratch, sizeof *rotation);
        for (uint32_t c = pass->first; c < pass->end; c++) {
                struct cairn_landmark_request r = cairn_bench_keys_request(s, c);
                cairn_query_prepare(kernels, &s->layout, r.queries, r.scale, rotation, &query);
                for (uint32_t b = 0; b < s->blocks; b++)
                        for (uint32_t run = 0; run < s->layout.runs; run++)
                                cairn_scan_codes(&s->layout, kernels, &query, r.pieces[b].code_run,
                                                 run, run_tokens, next_of(s, &r, b, run),
                                                 scores + r.pieces[b].position + run * run_tokens,
                                                 s->tokens, &records);
                sink ^= (uint64_t)scores[s->tokens / 2];
        }
}

static void select_all(struct cairn_bench_pass *pass, bool rest)
{
        const struct cairn_bench_keys *s = pass->keys;
        struct cairn_landmark_request first = cairn_bench_keys_request(s, 0);
        size_t select_bytes = cairn_landmark_select_scratch_bytes(&first);
        struct cairn_scratch scratch = {.base = pass->scratch};
        void *selection_at = cairn_scratch_take(&scratch, select_bytes);
        void *rest_at = cairn_scratch_take(&scratch, cairn_landmark_rest_scratch_bytes(&first));
        struct cairn_landmark_result result = {
            .positions = cairn_scratch_take(&scratch, s->k * sizeof(uint32_t)),
            .scores = cairn_scratch_take(&scratch, s->k * sizeof(float)),
            .lse_chosen = cairn_scratch_take(&scratch, s->queries * sizeof(float)),
            .lse_all = cairn_scratch_take(&scratch, s->queries * sizeof(float))};
        struct cairn_landmark_partial partial = {
            .out = cairn_scratch_take(&scratch, (size_t)s->queries * s->layout.shape.v_dim * 4),
            .lse = cairn_scratch_take(&scratch, s->queries * sizeof(float))};
        for (uint32_t c = pass->first; c < pass->end; c++) {
                struct cairn_landmark_request r = cairn_bench_keys_request(s, c);
                struct cairn_landmark_selection *selection;
                r.without_rest = !rest;
                if (cairn_landmark_select_begin(&r, selection_at, select_bytes, &selection) !=
                    CAIRN_OK)
                        abort();
                cairn_landmark_select_scan(selection, 0, r.n_pieces);
                cairn_landmark_select_weigh(selection);
                cairn_landmark_select_rank(selection, 0, r.n_pieces);
                cairn_landmark_select_finish(selection, &result);
                if (rest)
                        cairn_landmark_rest(selection, 0, r.n_pieces, 0, rest_at, &partial);
                sink ^= result.positions[0];
        }
        if (pass->chosen && pass->end > pass->first) {
                pass->n_chosen = result.n_chosen;
                memcpy(pass->chosen, result.positions, result.n_chosen * sizeof(uint32_t));
        }
}

void cairn_bench_pass_select(struct cairn_bench_pass *pass)
{
        select_all(pass, false);
}

void cairn_bench_pass_rest(struct cairn_bench_pass *pass)
{
        select_all(pass, true);
}

// ---- Threads ----

struct worker {
        pthread_t thread;
        pthread_barrier_t *barrier;
        cairn_bench_pass_fn fn;
        struct cairn_bench_pass pass;
};

static void *work(void *arg)
{
        struct worker *worker = arg;

        (void)pthread_barrier_wait(worker->barrier); // all are there: the clock starts
        worker->fn(&worker->pass);
        (void)pthread_barrier_wait(worker->barrier);
        return NULL;
}

static double run_many(struct worker *workers, uint32_t threads)
{
        pthread_barrier_t barrier;
        double begin_s, seconds;

        if (pthread_barrier_init(&barrier, NULL, threads + 1) != 0)
                abort();
        for (uint32_t i = 0; i < threads; i++) {
                workers[i].barrier = &barrier;
                if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                        abort();
        }
        (void)pthread_barrier_wait(&barrier);
        begin_s = cairn_bench_now_s();
        (void)pthread_barrier_wait(&barrier);
        seconds = cairn_bench_now_s() - begin_s;
        for (uint32_t i = 0; i < threads; i++)
                (void)pthread_join(workers[i].thread, NULL);
        (void)pthread_barrier_destroy(&barrier);
        return seconds;
}

double cairn_bench_pass_run(const struct cairn_bench_keys *s, cairn_bench_pass_fn fn, size_t bytes,
                            uint32_t threads)
{
        struct worker workers[CAIRN_BENCH_THREADS_MAX];
        size_t scratch_bytes = cairn_bench_keys_scratch_bytes(s);
        double begin_s, seconds;

        for (uint32_t i = 0; i < threads; i++) {
                workers[i] = (struct worker){
                    .fn = fn,
                    .pass = {.keys = s,
                             .first = (uint32_t)((uint64_t)s->contexts * i / threads),
                             .end = (uint32_t)((uint64_t)s->contexts * (i + 1) / threads),
                             .bytes = bytes,
                             .scratch = cairn_bench_allocate(scratch_bytes)}};
                memset(workers[i].pass.scratch, 0, scratch_bytes);
        }
        if (threads > 1) {
                seconds = run_many(workers, threads);
        } else {
                begin_s = cairn_bench_now_s();
                fn(&workers[0].pass);
                seconds = cairn_bench_now_s() - begin_s;
        }
        for (uint32_t i = 0; i < threads; i++)
                free(workers[i].pass.scratch);
        return seconds;
}

uint32_t cairn_bench_pass_choose(const struct cairn_bench_keys *s, uint32_t *ret_positions)
{
        struct cairn_bench_pass pass = {
            .keys = s, .end = 1, .chosen = ret_positions, .scratch = NULL};

        pass.scratch = cairn_bench_allocate(cairn_bench_keys_scratch_bytes(s));
        cairn_bench_pass_select(&pass);
        free(pass.scratch);
        return pass.n_chosen;
}
