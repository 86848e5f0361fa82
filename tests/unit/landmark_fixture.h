// Random keys, contexts made of coded blocks, and plain double-precision answers, for the landmark
// tests.
#ifndef CAIRN_LANDMARK_FIXTURE_H
#define CAIRN_LANDMARK_FIXTURE_H

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "policy/landmark/internal.h"
#include "policy/landmark/landmark.h"
#include "proto/status.h"

struct rng {
        uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
        uint64_t x = (rng->state += 0x9e3779b97f4a7c15ull);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
}

static inline double rng_uniform(struct rng *rng)
{
        return ((double)(rng_next(rng) >> 11) + 0.5) * 0x1p-53;
}

static inline float rng_gauss(struct rng *rng)
{
        return (float)(sqrt(-2 * log(rng_uniform(rng))) *
                       cos(6.283185307179586 * rng_uniform(rng)));
}

static inline uint32_t rng_below(struct rng *rng, uint32_t n)
{
        return (uint32_t)(rng_next(rng) % n);
}

// Prints its seed; CAIRN_TEST_SEED replays one.
static inline struct rng rng_start(const char *test)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)getpid() * 2654435761u;
        fprintf(stderr, "%s: CAIRN_TEST_SEED=%llu\n", test, (unsigned long long)seed);
        return (struct rng){seed};
}

// `bytes` bytes that end right at a page that traps.
static inline void *guarded(size_t bytes)
{
        size_t page = 4096, pages = (bytes + page - 1) / page;
        uint8_t *base = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(base != MAP_FAILED);
        (void)mprotect(base + pages * page, page, PROT_NONE);
        return base + pages * page - bytes;
}

static inline void guarded_free(void *at, size_t bytes)
{
        size_t page = 4096, pages = (bytes + page - 1) / page;
        (void)munmap((uint8_t *)at + bytes - pages * page, (pages + 1) * page);
}

// One (layer, KV head) of a context: f32 rows, raw rows in the dtype, code runs, pieces.
struct context {
        struct cairn_landmark_layout layout;
        uint32_t n;
        float *k; // [n][k_dim], as the dtype holds it
        float *v;
        uint8_t *raw_k;
        uint8_t *raw_v;
        uint8_t *code_runs;
        uint32_t n_pieces;
        struct cairn_landmark_piece *pieces;
};

static inline struct cairn_landmark_shape shape_of(uint32_t k_dim, uint32_t v_dim)
{
        return (struct cairn_landmark_shape){.k_dim = k_dim,
                                             .v_dim = v_dim,
                                             .block_tokens = 256,
                                             .dtype = CAIRN_DTYPE_F32,
                                             .landmark_bits = 2,
                                             .outliers = 8,
                                             .value_bits = 2,
                                             .k_codec = CAIRN_ROW_Q8,
                                             .v_codec = CAIRN_ROW_Q8};
}

// Makes blocks of the rows k, v (filled by the caller, [n][dim]); the last n % block_tokens tokens
// become a raw tail when `tail`, else a partly filled block.
static inline void context_encode(struct context *c, bool tail)
{
        const struct cairn_landmark_shape *s = &c->layout.shape;
        uint32_t block = s->block_tokens, blocks = (c->n + block - 1) / block;
        size_t element = cairn_dtype_bytes(s->dtype);
        c->raw_k = malloc((size_t)c->n * s->k_dim * element + 1);
        c->raw_v = malloc((size_t)c->n * s->v_dim * element + 1);
        for (uint32_t t = 0; t < c->n; t++) {
                cairn_row_to_raw(&cairn_kernels_scalar, c->k + (size_t)t * s->k_dim, s->dtype,
                                 s->k_dim, c->raw_k + (size_t)t * s->k_dim * element);
                cairn_row_exact(c->raw_k + (size_t)t * s->k_dim * element, s->dtype, s->k_dim,
                                c->k + (size_t)t * s->k_dim);
                cairn_row_to_raw(&cairn_kernels_scalar, c->v + (size_t)t * s->v_dim, s->dtype,
                                 s->v_dim, c->raw_v + (size_t)t * s->v_dim * element);
                cairn_row_exact(c->raw_v + (size_t)t * s->v_dim * element, s->dtype, s->v_dim,
                                c->v + (size_t)t * s->v_dim);
        }
        size_t run_bytes = cairn_round_up(c->layout.total_bytes + 1, 64);
        c->code_runs = aligned_alloc(64, run_bytes * (blocks + 1));
        void *scratch = aligned_alloc(64, cairn_landmark_encode_scratch_bytes(&c->layout));
        c->pieces = calloc(blocks + 1, sizeof *c->pieces);
        c->n_pieces = 0;
        for (uint32_t first = 0; first < c->n; first += block) {
                uint32_t n = c->n - first < block ? c->n - first : block;
                struct cairn_landmark_piece *piece = &c->pieces[c->n_pieces];
                *piece = (struct cairn_landmark_piece){
                    .k_raw = c->raw_k + (size_t)first * s->k_dim * element,
                    .v_raw = c->raw_v + (size_t)first * s->v_dim * element,
                    .position = first,
                    .n_tokens = n};
                if (n == block || !tail) {
                        uint8_t *run = c->code_runs + run_bytes * c->n_pieces;
                        int status = cairn_landmark_encode(&c->layout, piece->k_raw, piece->v_raw,
                                                           n, run, scratch);
                        assert(status == CAIRN_OK);
                        (void)status;
                        piece->code_run = run;
                }
                c->n_pieces++;
        }
        free(scratch);
}

static inline void context_alloc(struct context *c, const struct cairn_landmark_shape *shape,
                                 uint32_t n)
{
        memset(c, 0, sizeof *c);
        int status = cairn_landmark_layout_init(shape, &c->layout);
        assert(status == CAIRN_OK);
        (void)status;
        c->n = n;
        c->k = calloc((size_t)n * shape->k_dim + 1, sizeof(float));
        c->v = calloc((size_t)n * shape->v_dim + 1, sizeof(float));
}

static inline void context_fill(struct context *c, struct rng *rng, float k_size)
{
        const struct cairn_landmark_shape *s = &c->layout.shape;
        for (size_t i = 0; i < (size_t)c->n * s->k_dim; i++)
                c->k[i] = rng_gauss(rng) * k_size;
        for (size_t i = 0; i < (size_t)c->n * s->v_dim; i++)
                c->v[i] = rng_gauss(rng);
}

static inline void context_free(struct context *c)
{
        free(c->k);
        free(c->v);
        free(c->raw_k);
        free(c->raw_v);
        free(c->code_runs);
        free(c->pieces);
}

// A selection with memory of its own.
struct answer {
        struct cairn_landmark_result result;
        struct cairn_landmark_selection *selection;
        void *scratch;
        size_t scratch_bytes;
};

static inline int answer_select(const struct cairn_landmark_request *request, struct answer *a)
{
        memset(a, 0, sizeof *a);
        a->scratch_bytes = cairn_landmark_select_scratch_bytes(request);
        a->scratch = aligned_alloc(64, (a->scratch_bytes + 127) / 64 * 64);
        a->result.positions = calloc(request->k + 1, sizeof(uint32_t));
        a->result.scores = calloc(request->k + 1, sizeof(float));
        a->result.lse_chosen = calloc(request->n_queries, sizeof(float));
        a->result.lse_all = calloc(request->n_queries, sizeof(float));
        int status =
            cairn_landmark_select_begin(request, a->scratch, a->scratch_bytes, &a->selection);
        if (status != CAIRN_OK)
                return status;
        cairn_landmark_select_scan(a->selection, 0, request->n_pieces);
        cairn_landmark_select_weigh(a->selection);
        cairn_landmark_select_rank(a->selection, 0, request->n_pieces);
        cairn_landmark_select_finish(a->selection, &a->result);
        return status;
}

static inline void answer_free(struct answer *a)
{
        free(a->scratch);
        free(a->result.positions);
        free(a->result.scores);
        free(a->result.lse_chosen);
        free(a->result.lse_all);
}

// Exact score of a token.
static inline double exact_score(const struct context *c, const float *query, double scale,
                                 uint32_t token)
{
        double sum = 0;
        for (uint32_t j = 0; j < c->layout.shape.k_dim; j++)
                sum += (double)query[j] * c->k[(size_t)token * c->layout.shape.k_dim + j];
        return sum * scale;
}

#endif
