// Synthetic contexts for benchmarks of the landmark kernels.
#include "tests/bench/keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/status.h"

enum {
        DRAWN_BLOCKS_MAX = 1024, // longer contexts repeat them
        HUGE_PAGE_BYTES = 2 << 20
};

static uint64_t random_state = 1;

double cairn_bench_uniform(void)
{
        uint64_t x = (random_state += 0x9e3779b97f4a7c15ull);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return ((double)((x ^ (x >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static float gauss(void)
{
        return (float)(sqrt(-2 * log(cairn_bench_uniform())) *
                       cos(6.283185307179586 * cairn_bench_uniform()));
}

void *cairn_bench_allocate(size_t bytes)
{
        size_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 64;
        size_t padded = (bytes + 64 + align - 1) / align * align;
        void *at = aligned_alloc(align, padded);
        if (!at) {
                fprintf(stderr, "out of memory: %zu bytes\n", bytes);
                exit(1);
        }
        if (align == HUGE_PAGE_BYTES)
                (void)madvise(at, padded,
                              MADV_HUGEPAGE); // as the RAM tier does; small pages serve too
        return at;
}

int cairn_bench_keys_init(struct cairn_bench_keys *s, int argc, char **argv, size_t least_bytes)
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
        s->drawn = s->blocks < DRAWN_BLOCKS_MAX ? s->blocks : DRAWN_BLOCKS_MAX;
        s->run_bytes = (s->layout.total_bytes + 63) / 64 * 64;
        size_t bytes = (size_t)s->blocks * s->layout.resident_bytes;
        bool cold = !cairn_bench_flag_set(argc, argv, "warm");
        s->contexts = cold ? (uint32_t)((least_bytes + bytes - 1) / bytes) : 1;
        return 0;
}

void cairn_bench_keys_fill(struct cairn_bench_keys *s)
{
        const struct cairn_landmark_shape *shape = &s->layout.shape;
        size_t elements = (size_t)s->drawn * shape->block_tokens * shape->k_dim;
        size_t context_bytes = s->blocks * s->run_bytes;
        s->k_rows = cairn_bench_allocate(elements * sizeof(float));
        s->v_rows = cairn_bench_allocate(elements * sizeof(float));
        s->query = cairn_bench_allocate((size_t)s->queries * shape->k_dim * sizeof(float));
        s->runs = cairn_bench_allocate(context_bytes * s->contexts);
        s->pieces = cairn_bench_allocate((size_t)s->contexts * s->blocks * sizeof *s->pieces);
        void *scratch = cairn_bench_allocate(cairn_landmark_encode_scratch_bytes(&s->layout));
        for (size_t i = 0; i < elements; i++) {
                s->k_rows[i] = gauss();
                s->v_rows[i] = gauss();
        }
        for (uint32_t i = 0; i < s->queries * shape->k_dim; i++)
                s->query[i] = gauss() * 2;
        for (uint32_t b = 0; b < s->drawn; b++) {
                size_t first = (size_t)b * shape->block_tokens * shape->k_dim;
                (void)cairn_landmark_encode(&s->layout, s->k_rows + first, s->v_rows + first,
                                            shape->block_tokens, s->runs + b * s->run_bytes,
                                            scratch); // arguments are fixed and valid
        }
        for (uint32_t b = s->drawn; b < s->blocks; b++)
                memcpy(s->runs + b * s->run_bytes, s->runs + b % s->drawn * s->run_bytes,
                       s->run_bytes);
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

void cairn_bench_keys_finish(struct cairn_bench_keys *s)
{
        free(s->k_rows);
        free(s->v_rows);
        free(s->query);
        free(s->runs);
        free(s->pieces);
}

struct cairn_landmark_request cairn_bench_keys_request(const struct cairn_bench_keys *s,
                                                       uint32_t context)
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

void cairn_bench_keys_params(const struct cairn_bench_keys *s, struct cairn_bench_report *report)
{
        const struct cairn_landmark_shape *shape = &s->layout.shape;
        snprintf(report->params, sizeof report->params,
                 "{\"bits\":%u,\"dim\":%u,\"queries\":%u,\"tokens\":%u,\"outliers\":%u,"
                 "\"value_bits\":%u,\"block\":%u,\"k\":%u,\"contexts\":%u,\"isa\":\"%s\"}",
                 shape->landmark_bits, shape->k_dim, s->queries, s->tokens, shape->outliers,
                 shape->value_bits, shape->block_tokens, s->k, s->contexts,
                 cairn_isa_name(cairn_isa_chosen()));
}

size_t cairn_bench_keys_scratch_bytes(const struct cairn_bench_keys *s)
{
        struct cairn_landmark_request request = cairn_bench_keys_request(s, 0);

        return cairn_landmark_select_scratch_bytes(&request) +
               cairn_landmark_rest_scratch_bytes(&request) +
               (size_t)s->queries * (s->tokens + CAIRN_DIM_MAX) * 8 + s->k * 8 + 65536;
}

size_t cairn_bench_keys_bytes(const struct cairn_bench_keys *s, bool values)
{
        if (values || s->layout.value_codes == CAIRN_LANDMARK_NONE)
                return s->layout.resident_bytes;
        return s->layout.value_codes;
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

static _Thread_local volatile uint64_t sink;

double cairn_bench_keys_read_s(const struct cairn_bench_keys *s, size_t bytes, uint32_t first,
                               uint32_t end)
{
        double start = cairn_bench_now_s();
        for (size_t b = (size_t)first * s->blocks; b < (size_t)end * s->blocks; b++)
                sink ^= read_bytes(s->pieces[b].code_run, bytes);
        return cairn_bench_now_s() - start;
}
