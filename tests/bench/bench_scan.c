// Benchmarks of the landmark kernels: scan, select, rest, gather, quantize. One thread; memory well
// beyond the caches. Each compares with a plain read (or copy) of the same bytes, in turns with it
// in the same process.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/landmark/landmark.h"
#include "policy/landmark/selection.h"
#include "proto/status.h"
#include "tests/bench/bench.h"

enum {
        ROUNDS = 7
};

// Copies of one context, each with code runs of its own, so that going through them reads DRAM.
struct set {
        struct cairn_landmark_layout layout;
        uint32_t tokens;
        uint32_t blocks;
        uint32_t contexts;
        uint32_t queries;
        uint32_t k;
        size_t run_bytes; // of one block's code run, padded to its alignment
        uint8_t *runs;    // [contexts][blocks]
        float *k_rows;    // one context's raw rows
        float *v_rows;
        float *query;
        struct cairn_landmark_piece *pieces; // [contexts][blocks]
        void *scratch;
        size_t scratch_bytes;
};

static uint64_t random_state = 1;

static double uniform(void)
{
        uint64_t x = (random_state += 0x9e3779b97f4a7c15ull);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return ((double)((x ^ (x >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static float gauss(void)
{
        return (float)(sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

static void *allocate(size_t bytes)
{
        void *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
        if (!at) {
                fprintf(stderr, "out of memory: %zu bytes\n", bytes);
                exit(1);
        }
        return at;
}

static int set_init(struct set *s, int argc, char **argv, size_t least_bytes)
{
        struct cairn_landmark_shape shape = {
            .k_dim = (uint32_t)cairn_bench_flag_u64(argc, argv, "dim", 128),
            .block_tokens = (uint32_t)cairn_bench_flag_u64(argc, argv, "block", 256),
            .dtype = CAIRN_DTYPE_F32,
            .landmark_bits = (uint32_t)cairn_bench_flag_u64(argc, argv, "bits", 2),
            .outliers = (uint32_t)cairn_bench_flag_u64(argc, argv, "outliers", 8),
            .value_bits = (uint32_t)cairn_bench_flag_u64(argc, argv, "value-bits", 2),
            .k_codec = CAIRN_ROW_Q8,
            .v_codec = CAIRN_ROW_Q8,
        };
        shape.v_dim = shape.k_dim;
        memset(s, 0, sizeof *s);
        s->tokens = (uint32_t)cairn_bench_flag_u64(argc, argv, "tokens", 131072);
        s->queries = (uint32_t)cairn_bench_flag_u64(argc, argv, "queries", 4);
        double share = cairn_bench_flag_double(argc, argv, "share", 0.03125);
        s->k = (uint32_t)cairn_bench_flag_u64(argc, argv, "k", (uint64_t)ceil(share * s->tokens));
        const char *isa = cairn_bench_flag_text(argc, argv, "isa", "");
        if (cairn_isa_choose(isa) != CAIRN_OK) {
                fprintf(stderr, "--isa %s: not on this machine\n", isa);
                return -1;
        }
        if (cairn_landmark_layout_init(&shape, &s->layout) != CAIRN_OK || s->tokens == 0) {
                fprintf(stderr, "a flag is out of range\n");
                return -1;
        }
        s->blocks = (s->tokens + shape.block_tokens - 1) / shape.block_tokens;
        s->tokens = s->blocks * shape.block_tokens;
        s->run_bytes = (s->layout.total_bytes + 63) / 64 * 64;
        size_t bytes = (size_t)s->blocks * s->layout.resident_bytes;
        bool cold = !cairn_bench_flag_set(argc, argv, "warm");
        s->contexts = cold ? (uint32_t)((least_bytes + bytes - 1) / bytes) : 1;
        return 0;
}

static void set_fill(struct set *s)
{
        const struct cairn_landmark_shape *shape = &s->layout.shape;
        size_t elements = (size_t)s->tokens * shape->k_dim,
               context_bytes = s->blocks * s->run_bytes;
        s->k_rows = allocate(elements * sizeof(float));
        s->v_rows = allocate(elements * sizeof(float));
        s->query = allocate((size_t)s->queries * shape->k_dim * sizeof(float));
        s->runs = allocate(context_bytes * s->contexts);
        s->pieces = allocate((size_t)s->contexts * s->blocks * sizeof *s->pieces);
        void *scratch = allocate(cairn_landmark_encode_scratch_bytes(&s->layout));
        for (size_t i = 0; i < elements; i++) {
                s->k_rows[i] = gauss();
                s->v_rows[i] = gauss();
        }
        for (uint32_t i = 0; i < s->queries * shape->k_dim; i++)
                s->query[i] = gauss() * 2;
        for (uint32_t b = 0; b < s->blocks; b++) {
                size_t first = (size_t)b * shape->block_tokens * shape->k_dim;
                (void)cairn_landmark_encode(&s->layout, s->k_rows + first, s->v_rows + first,
                                            shape->block_tokens, s->runs + b * s->run_bytes,
                                            scratch); // arguments are fixed and valid
        }
        for (uint32_t c = 0; c < s->contexts; c++) {
                uint8_t *runs = s->runs + c * context_bytes;
                if (c > 0)
                        memcpy(runs, s->runs, context_bytes);
                for (uint32_t b = 0; b < s->blocks; b++)
                        s->pieces[(size_t)c * s->blocks + b] =
                            (struct cairn_landmark_piece){.code_run = runs + b * s->run_bytes,
                                                          .position = b * shape->block_tokens,
                                                          .n_tokens = shape->block_tokens};
        }
        free(scratch);
}

static void set_finish(struct set *s)
{
        free(s->k_rows);
        free(s->v_rows);
        free(s->query);
        free(s->runs);
        free(s->pieces);
        free(s->scratch);
}

static struct cairn_landmark_request request_of(const struct set *s, uint32_t context)
{
        return (struct cairn_landmark_request){
            .layout = &s->layout,
            .pieces = s->pieces + (size_t)context * s->blocks,
            .n_pieces = s->blocks,
            .queries = s->query,
            .n_queries = s->queries,
            .scale = 1.0f / sqrtf((float)s->layout.shape.k_dim),
            .k = s->k,
        };
}

// ---- The read of the same bytes ----

typedef uint64_t wide __attribute__((vector_size(64)));

static uint64_t read_bytes(const uint8_t *at, size_t bytes)
{
        wide sums[4] = {{0}};
        for (size_t i = 0; i + 256 <= bytes; i += 256)
                for (int j = 0; j < 4; j++) {
                        wide x;
                        memcpy(&x, at + i + j * 64, sizeof x);
                        sums[j] ^= x;
                }
        sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
        return sums[0][0] ^ sums[0][3] ^ sums[0][7];
}

static volatile uint64_t sink;

static double read_once(const struct set *s, size_t bytes)
{
        double start = cairn_bench_now_s();
        for (size_t b = 0; b < (size_t)s->contexts * s->blocks; b++)
                sink ^= read_bytes(s->pieces[b].code_run, bytes);
        return cairn_bench_now_s() - start;
}

// ---- Cases ----

// Seconds of one pass over all contexts.
typedef double (*pass_fn)(struct set *s);

// The code run that is scanned after a run.
static const uint8_t *next_of(const struct set *s, const struct cairn_landmark_request *r,
                              uint32_t block, uint32_t run)
{
        if (run + 1 < s->layout.runs)
                return r->pieces[block].code_run;
        return block + 1 < s->blocks ? r->pieces[block + 1].code_run : NULL;
}

static double scan_once(struct set *s)
{
        struct cairn_query query;
        struct cairn_scratch scratch = {.base = s->scratch};
        const struct cairn_kernels *kernels = cairn_kernels_chosen();
        uint32_t run_tokens = s->layout.shape.run_tokens;
        double start = cairn_bench_now_s();
        cairn_query_carve(&scratch, &s->layout, s->queries, &query);
        float *scores = cairn_scratch_take(&scratch, (size_t)s->queries * s->tokens * 4);
        float *max = cairn_scratch_take(&scratch, s->queries * 4);
        float *mean = cairn_scratch_take(&scratch, s->queries * 4);
        struct cairn_rotation *rotation = cairn_scratch_take(&scratch, sizeof *rotation);
        for (uint32_t c = 0; c < s->contexts; c++) {
                struct cairn_landmark_request r = request_of(s, c);
                cairn_query_prepare(kernels, &s->layout, r.queries, r.scale, rotation, &query);
                for (uint32_t b = 0; b < s->blocks; b++)
                        for (uint32_t run = 0; run < s->layout.runs; run++)
                                cairn_scan_codes(&s->layout, kernels, &query, r.pieces[b].code_run,
                                                 run, run_tokens, next_of(s, &r, b, run),
                                                 scores + r.pieces[b].position + run * run_tokens,
                                                 s->tokens, max, mean, 1);
                sink ^= (uint64_t)scores[s->tokens / 2];
        }
        return cairn_bench_now_s() - start;
}

static double select_all(struct set *s, bool rest)
{
        struct cairn_landmark_request first = request_of(s, 0);
        size_t select_bytes = cairn_landmark_select_scratch_bytes(&first);
        struct cairn_scratch scratch = {.base = s->scratch};
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
        double start = cairn_bench_now_s();
        for (uint32_t c = 0; c < s->contexts; c++) {
                struct cairn_landmark_request r = request_of(s, c);
                struct cairn_landmark_selection *selection;
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
        return cairn_bench_now_s() - start;
}

static double select_once(struct set *s)
{
        return select_all(s, false);
}

static double rest_once(struct set *s)
{
        return select_all(s, true);
}

static void write_params(const struct set *s, struct cairn_bench_report *report)
{
        const struct cairn_landmark_shape *shape = &s->layout.shape;
        snprintf(report->params, sizeof report->params,
                 "{\"bits\":%u,\"dim\":%u,\"queries\":%u,\"tokens\":%u,\"outliers\":%u,"
                 "\"value_bits\":%u,\"block\":%u,\"k\":%u,\"contexts\":%u,\"isa\":\"%s\"}",
                 shape->landmark_bits, shape->k_dim, s->queries, s->tokens, shape->outliers,
                 shape->value_bits, shape->block_tokens, s->k, s->contexts,
                 cairn_isa_name(cairn_isa_chosen()));
}

static int measure(int argc, char **argv, struct cairn_bench_report *ret_report, pass_fn pass,
                   bool values)
{
        struct set s;
        double ours[ROUNDS], reads[ROUNDS], our_cpu[ROUNDS], read_cpu[ROUNDS];
        if (set_init(&s, argc, argv, (size_t)256 << 20) < 0)
                return -1;
        set_fill(&s);
        struct cairn_landmark_request request = request_of(&s, 0);
        s.scratch_bytes = cairn_landmark_select_scratch_bytes(&request) +
                          cairn_landmark_rest_scratch_bytes(&request) +
                          (size_t)s.queries * (s.tokens + CAIRN_DIM_MAX) * 8 + s.k * 8 + 65536;
        s.scratch = allocate(s.scratch_bytes);
        memset(s.scratch, 0, s.scratch_bytes);
        size_t landmark_bytes = s.layout.value_codes == CAIRN_LANDMARK_NONE
                                    ? s.layout.resident_bytes
                                    : s.layout.value_codes;
        size_t bytes = values ? s.layout.resident_bytes : landmark_bytes;
        (void)pass(&s); // the first faults pages in
        for (int i = 0; i < ROUNDS; i++) {
                double before = cairn_bench_cpu_s();
                reads[i] = read_once(&s, bytes);
                read_cpu[i] = cairn_bench_cpu_s() - before;
                before = cairn_bench_cpu_s();
                ours[i] = pass(&s);
                our_cpu[i] = cairn_bench_cpu_s() - before;
        }
        double tokens = (double)s.contexts * s.tokens;
        double our = cairn_bench_quantile(ours, ROUNDS, 0.5);
        double read = cairn_bench_quantile(reads, ROUNDS, 0.5);
        write_params(&s, ret_report);
        snprintf(ret_report->unit, sizeof ret_report->unit, "ns/token");
        snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name,
                 "read of the same bytes");
        ret_report->value = our / tokens * 1e9;
        ret_report->baseline = read / tokens * 1e9;
        ret_report->ratio = read / our;
        cairn_bench_extra(ret_report, "bytes_per_token",
                          (double)bytes / s.layout.shape.block_tokens);
        cairn_bench_extra(ret_report, "read_gb_per_s",
                          (double)bytes * s.contexts * s.blocks / read * 1e-9);
        // CPU seconds of the best rounds: what a busy machine disturbs least.
        double our_best = cairn_bench_quantile(our_cpu, ROUNDS, 0);
        double read_best = cairn_bench_quantile(read_cpu, ROUNDS, 0);
        cairn_bench_extra(ret_report, "cpu_ns_per_token", our_best / tokens * 1e9);
        cairn_bench_extra(ret_report, "cpu_best_ratio", read_best / our_best);
        set_finish(&s);
        return 0;
}

int cairn_bench_scan(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        return measure(argc, argv, ret_report, scan_once, false);
}

int cairn_bench_select(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        return measure(argc, argv, ret_report, select_once, false);
}

int cairn_bench_rest(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        return measure(argc, argv, ret_report, rest_once, true);
}

// ---- Gather and quantize ----

// A gather with no arithmetic: the same coded rows copied out.
static double copy_rows(const struct set *s, const uint32_t *positions, uint8_t *to)
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

static double gather_rows(const struct set *s, const uint32_t *positions, uint32_t dtype,
                          uint8_t *to)
{
        double start = cairn_bench_now_s();
        size_t out = (size_t)s->k * s->layout.shape.k_dim * cairn_dtype_bytes(dtype);
        for (uint32_t c = 0; c < s->contexts; c++)
                if (cairn_landmark_gather(&s->layout, s->pieces + (size_t)c * s->blocks, s->blocks,
                                          positions, s->k, dtype, to, to + out) != CAIRN_OK)
                        abort();
        return cairn_bench_now_s() - start;
}

int cairn_bench_gather(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct set s;
        double ours[ROUNDS], copies[ROUNDS];
        uint32_t dtype =
            cairn_bench_flag_set(argc, argv, "f16") ? CAIRN_DTYPE_F16 : CAIRN_DTYPE_F32;
        if (set_init(&s, argc, argv, (size_t)128 << 20) < 0)
                return -1;
        set_fill(&s);
        uint32_t *positions = allocate(s.k * sizeof *positions);
        uint8_t *to = allocate((size_t)s.k * s.layout.shape.k_dim * 8 + 4096);
        memset(to, 0, (size_t)s.k * s.layout.shape.k_dim * 8);
        for (uint32_t i = 0; i < s.k; i++)
                positions[i] = (uint32_t)(((double)i + uniform()) / s.k * s.tokens);
        for (int i = 0; i < ROUNDS; i++) {
                copies[i] = copy_rows(&s, positions, to);
                ours[i] = gather_rows(&s, positions, dtype, to);
        }
        double rows = (double)s.contexts * s.k;
        double our = cairn_bench_quantile(ours, ROUNDS, 0.5);
        double copy = cairn_bench_quantile(copies, ROUNDS, 0.5);
        write_params(&s, ret_report);
        snprintf(ret_report->unit, sizeof ret_report->unit, "ns/row");
        snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name,
                 "copy of the same coded rows");
        ret_report->value = our / rows * 1e9;
        ret_report->baseline = copy / rows * 1e9;
        ret_report->ratio = copy / our;
        free(positions);
        free(to);
        set_finish(&s);
        return 0;
}

int cairn_bench_quantize(int argc, char **argv, struct cairn_bench_report *ret_report)
{
        struct set s;
        double ours[ROUNDS], copies[ROUNDS];
        if (set_init(&s, argc, argv, 1) < 0)
                return -1;
        set_fill(&s);
        const struct cairn_landmark_shape *shape = &s.layout.shape;
        size_t bytes = (size_t)s.tokens * shape->k_dim * sizeof(float);
        uint8_t *to = allocate(2 * bytes);
        void *scratch = allocate(cairn_landmark_encode_scratch_bytes(&s.layout));
        memset(to, 0, 2 * bytes);
        for (int i = 0; i < ROUNDS; i++) {
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
        double our = cairn_bench_quantile(ours, ROUNDS, 0.5);
        double copy = cairn_bench_quantile(copies, ROUNDS, 0.5);
        write_params(&s, ret_report);
        snprintf(ret_report->unit, sizeof ret_report->unit, "ns/token");
        snprintf(ret_report->baseline_name, sizeof ret_report->baseline_name, "memcpy of the rows");
        ret_report->value = our / s.tokens * 1e9;
        ret_report->baseline = copy / s.tokens * 1e9;
        ret_report->ratio = copy / our;
        free(to);
        free(scratch);
        set_finish(&s);
        return 0;
}
