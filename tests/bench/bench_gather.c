// Benchmarks of gather (chosen rows, decoded) and quantize (rows encoded), against copies.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "tests/bench/keys.h"

// A gather with no arithmetic: the same coded rows copied out.
static double copy_rows(const struct cairn_bench_keys *s, const uint32_t *positions, uint8_t *to)
{
        const struct cairn_landmark_layout *l = &s->layout;
        uint32_t block = l->shape.block_tokens;
        double start = cairn_bench_now_s();
        for (uint32_t c = 0; c < s->contexts; c++)
                for (uint32_t i = 0; i < s->k; i++) {
                        const uint8_t *run =
                            s->pieces[(size_t)c * s->blocks + positions[i] / block].code_run;
                        uint32_t token = positions[i] % block;
                        uint8_t *at = to + (size_t)i * (l->k_row_bytes + l->v_row_bytes);
                        memcpy(at, run + l->k_rows + (size_t)token * l->k_row_bytes,
                               l->k_row_bytes);
                        memcpy(at + l->k_row_bytes,
                               run + l->v_rows + (size_t)token * l->v_row_bytes, l->v_row_bytes);
                }
        return cairn_bench_now_s() - start;
}

static double gather_rows(const struct cairn_bench_keys *s, const uint32_t *positions,
                          uint32_t dtype, uint8_t *to)
{
        double start = cairn_bench_now_s();
        size_t out = (size_t)s->k * s->layout.shape.k_dim * cairn_dtype_bytes(dtype);
        for (uint32_t c = 0; c < s->contexts; c++)
                if (cairn_landmark_gather(&s->layout, s->pieces + (size_t)c * s->blocks, s->blocks,
                                          positions, s->k, dtype, to, to + out) != CAIRN_OK)
                        abort();
        return cairn_bench_now_s() - start;
}

// Selections whose chosen rows are gathered, one a context, made before the clock starts.
struct selections {
        struct cairn_landmark_request *requests;
        struct cairn_landmark_selection **made;
        uint8_t *scratch;
};

static void selections_init(struct selections *all, const struct cairn_bench_keys *s,
                            uint32_t *positions)
{
        struct cairn_landmark_request first = cairn_bench_keys_request(s, 0);
        size_t bytes = (cairn_landmark_select_scratch_bytes(&first) + 63) / 64 * 64;
        float *floats = cairn_bench_allocate(((size_t)s->k + 2 * s->queries) * sizeof(float));
        struct cairn_landmark_result result = {.positions = positions,
                                               .scores = floats,
                                               .lse_chosen = floats + s->k,
                                               .lse_all = floats + s->k + s->queries};
        all->scratch = cairn_bench_allocate(bytes * s->contexts);
        all->requests = cairn_bench_allocate(s->contexts * sizeof *all->requests);
        all->made = cairn_bench_allocate(s->contexts * sizeof(all->made[0]));
        for (uint32_t c = 0; c < s->contexts; c++) {
                struct cairn_landmark_request *r = &all->requests[c];
                *r = cairn_bench_keys_request(s, c);
                if (cairn_landmark_select_begin(r, all->scratch + c * bytes, bytes,
                                                &all->made[c]) != CAIRN_OK)
                        abort();
                cairn_landmark_select_scan(all->made[c], 0, r->n_pieces);
                cairn_landmark_select_weigh(all->made[c]);
                cairn_landmark_select_rank(all->made[c], 0, r->n_pieces);
                cairn_landmark_select_finish(all->made[c], &result);
        }
        free(floats);
}

static void selections_finish(struct selections *all)
{
        free(all->scratch);
        free(all->requests);
        free(all->made);
}

// Attention over the same rows, by all queries of the group: by the selection's scores, as after a
// select, or by the rows' keys.
static double attend_rows(const struct cairn_bench_keys *s, const struct selections *all,
                          const uint32_t *positions, void *scratch,
                          struct cairn_landmark_partial *partial)
{
        double start = cairn_bench_now_s();
        for (uint32_t c = 0; c < s->contexts; c++) {
                if (!positions)
                        cairn_landmark_attend_chosen(all->made[c], scratch, partial);
                else if (cairn_landmark_attend(&all->requests[c], positions, s->k, scratch,
                                               partial) != CAIRN_OK)
                        abort();
        }
        return cairn_bench_now_s() - start;
}

int cairn_bench_gather(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct cairn_bench_keys s;
        double ours[CAIRN_BENCH_ROUNDS], copies[CAIRN_BENCH_ROUNDS], attends[CAIRN_BENCH_ROUNDS];
        double by_keys[CAIRN_BENCH_ROUNDS];
        struct selections all;
        uint32_t dtype =
            cairn_bench_flag_set(argc, argv, "f16") ? CAIRN_DTYPE_F16 : CAIRN_DTYPE_F32;
        if (cairn_bench_keys_init(&s, argc, argv, (size_t)128 << 20) < 0)
                return -1;
        cairn_bench_keys_fill(&s);
        uint32_t *positions = cairn_bench_allocate(s.k * sizeof *positions);
        uint8_t *to = cairn_bench_allocate((size_t)s.k * s.layout.shape.k_dim * 8 + 4096);
        memset(to, 0, (size_t)s.k * s.layout.shape.k_dim * 8);
        selections_init(&all, &s, positions);
        struct cairn_landmark_request request = cairn_bench_keys_request(&s, 0);
        void *scratch = cairn_bench_allocate(cairn_landmark_attend_scratch_bytes(&request));
        struct cairn_landmark_partial partial = {
            .out = cairn_bench_allocate((size_t)s.queries * s.layout.shape.v_dim * sizeof(float)),
            .lse = cairn_bench_allocate(s.queries * sizeof(float))};
        for (int i = 0; i < CAIRN_BENCH_ROUNDS; i++) {
                copies[i] = copy_rows(&s, positions, to);
                ours[i] = gather_rows(&s, positions, dtype, to);
                attends[i] = attend_rows(&s, &all, NULL, scratch, &partial);
                by_keys[i] = attend_rows(&s, &all, positions, scratch, &partial);
        }
        double rows = (double)s.contexts * s.k;
        double our = cairn_bench_quantile(ours, CAIRN_BENCH_ROUNDS, 0.5);
        double copy = cairn_bench_quantile(copies, CAIRN_BENCH_ROUNDS, 0.5);
        cairn_bench_keys_params(&s, ret_report);
        snprintf(ret_report->unit, sizeof ret_report->unit, "ns/row");
        snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name,
                 "copy of the same coded rows");
        ret_report->value = our / rows * 1e9;
        ret_report->baseline = copy / rows * 1e9;
        ret_report->ratio = copy / our;
        double attend = cairn_bench_quantile(attends, CAIRN_BENCH_ROUNDS, 0.5);
        cairn_bench_extra(ret_report, "attend_ns_per_row", attend / rows * 1e9);
        cairn_bench_extra(ret_report, "attend_to_gather", attend / our);
        double keys = cairn_bench_quantile(by_keys, CAIRN_BENCH_ROUNDS, 0.5);
        cairn_bench_extra(ret_report, "attend_by_keys_ns_per_row", keys / rows * 1e9);
        selections_finish(&all);
        free(scratch);
        free(partial.out);
        free(partial.lse);
        free(positions);
        free(to);
        cairn_bench_keys_finish(&s);
        return 0;
}

int cairn_bench_quantize(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct cairn_bench_keys s;
        double ours[CAIRN_BENCH_ROUNDS], copies[CAIRN_BENCH_ROUNDS];
        if (cairn_bench_keys_init(&s, argc, argv, 1) < 0)
                return -1;
        if (s.drawn < s.blocks) {
                fprintf(stderr, "cairn-bench: fewer --tokens, please\n");
                return -1;
        }
        cairn_bench_keys_fill(&s);
        const struct cairn_landmark_shape *shape = &s.layout.shape;
        size_t bytes = (size_t)s.tokens * shape->k_dim * sizeof(float);
        uint8_t *to = cairn_bench_allocate(2 * bytes);
        void *scratch = cairn_bench_allocate(cairn_landmark_encode_scratch_bytes(&s.layout));
        memset(to, 0, 2 * bytes);
        for (int i = 0; i < CAIRN_BENCH_ROUNDS; i++) {
                double start = cairn_bench_now_s();
                memcpy(to, s.k_rows, bytes);
                memcpy(to + bytes, s.v_rows, bytes);
                copies[i] = cairn_bench_now_s() - start;
                start = cairn_bench_now_s();
                for (uint32_t b = 0; b < s.blocks; b++) {
                        size_t first = (size_t)b * shape->block_tokens * shape->k_dim;
                        (void)cairn_landmark_encode(&s.layout, s.k_rows + first, s.v_rows + first,
                                                    shape->block_tokens, s.runs + b * s.run_bytes,
                                                    scratch); // arguments are fixed and valid
                }
                ours[i] = cairn_bench_now_s() - start;
        }
        double our = cairn_bench_quantile(ours, CAIRN_BENCH_ROUNDS, 0.5);
        double copy = cairn_bench_quantile(copies, CAIRN_BENCH_ROUNDS, 0.5);
        cairn_bench_keys_params(&s, ret_report);
        snprintf(ret_report->unit, sizeof ret_report->unit, "ns/token");
        snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name, "memcpy of the rows");
        ret_report->value = our / s.tokens * 1e9;
        ret_report->baseline = copy / s.tokens * 1e9;
        ret_report->ratio = copy / our;
        free(to);
        free(scratch);
        cairn_bench_keys_finish(&s);
        return 0;
}
