// Case 35: offsets beyond 2^32 bytes inside one selection, and positions up to 2^32. Nothing of
// that size is filled: memory is mapped and mostly never touched, blocks are the same bytes over
// and over, and all tokens but those of two blocks are excluded.
#include <criterion/criterion.h>

#include "tests/unit/landmark_fixture.h"

enum {
        QUERIES = 32,
        PIECES = 36000,
        K_DIM = 8,
};
static const uint32_t last_position = UINT32_MAX - CAIRN_BLOCK_TOKENS_MAX; // of the last piece

static void make_block(struct context *c, struct rng *rng, uint32_t needle)
{
        struct cairn_landmark_shape shape = shape_of(K_DIM, 0);
        shape.block_tokens = CAIRN_BLOCK_TOKENS_MAX;
        shape.outliers = 0;
        context_alloc(c, &shape, CAIRN_BLOCK_TOKENS_MAX);
        for (size_t i = 0; i < (size_t)c->n * K_DIM; i++)
                c->k[i] = (float)rng_uniform(rng) - 0.5f;
        for (int j = 0; j < K_DIM; j++)
                c->k[(size_t)needle * K_DIM + j] = 2;
        context_encode(c, false);
        cr_assert_eq(c->n_pieces, 1);
}

static struct cairn_landmark_piece *make_pieces(const struct context *first,
                                                const struct context *last)
{
        struct cairn_landmark_piece *pieces = calloc(PIECES, sizeof *pieces);
        for (uint32_t p = 0; p < PIECES; p++) {
                pieces[p] = p < PIECES - 1 ? first->pieces[0] : last->pieces[0];
                pieces[p].position = p < PIECES - 1 ? p * CAIRN_BLOCK_TOKENS_MAX : last_position;
        }
        return pieces;
}

Test(landmark_large, case_35_offsets_beyond_4_gib)
{
        struct rng rng = rng_start("landmark_large");
        struct context first, last;
        float queries[QUERIES * K_DIM], lse_chosen[QUERIES], lse_all[QUERIES], scores[2];
        uint32_t positions[2];
        (void)cairn_isa_choose(NULL);
        make_block(&first, &rng, 7);
        make_block(&last, &rng, CAIRN_BLOCK_TOKENS_MAX - 1);
        for (int q = 0; q < QUERIES; q++)
                for (int j = 0; j < K_DIM; j++)
                        queries[q * K_DIM + j] = (float)(6 + q % 5);
        struct cairn_landmark_piece *pieces = make_pieces(&first, &last);
        struct cairn_landmark_range middle = {CAIRN_BLOCK_TOKENS_MAX, last_position};
        struct cairn_landmark_request r = {.layout = &first.layout,
                                           .pieces = pieces,
                                           .n_pieces = PIECES,
                                           .queries = queries,
                                           .n_queries = QUERIES,
                                           .scale = 0.35f,
                                           .k = 2,
                                           .excluded = &middle,
                                           .n_excluded = 1,
                                           .without_rest = true};
        size_t bytes = cairn_landmark_select_scratch_bytes(&r);
        cr_assert_gt(bytes, (size_t)UINT32_MAX);
        void *scratch = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (scratch == MAP_FAILED)
                cr_skip("no address space for %zu bytes", bytes);
        struct cairn_landmark_selection *s;
        cr_assert_eq(cairn_landmark_select_begin(&r, scratch, bytes, &s), CAIRN_OK);
        cairn_landmark_select_scan(s, 0, 1);
        cairn_landmark_select_scan(s, PIECES - 1, 1);
        cairn_landmark_select_weigh(s);
        cairn_landmark_select_rank(s, 0, PIECES);
        struct cairn_landmark_result result = {
            .positions = positions, .scores = scores, .lse_chosen = lse_chosen, .lse_all = lse_all};
        cairn_landmark_select_finish(s, &result);
        cr_assert_eq(result.n_chosen, 2);
        cr_assert_eq(result.n_eligible, 2 * CAIRN_BLOCK_TOKENS_MAX);
        cr_assert_eq(positions[0], 7);
        cr_assert_eq(positions[1], UINT32_MAX - 1);
        for (uint32_t q = 0; q < QUERIES; q++) { // the last query's scores lie beyond 4 GiB
                double needle = exact_score(&first, queries + (size_t)q * K_DIM, r.scale, 7);
                cr_assert_float_eq(lse_chosen[q], needle + log(2), 0.02 * needle, "%u: %g %g", q,
                                   lse_chosen[q], needle);
        }
        (void)munmap(scratch, bytes);
        pieces[PIECES - 1].position++; // the last token's position would be 2^32 - 1, its end 2^32
        pieces[PIECES - 1].n_tokens = CAIRN_BLOCK_TOKENS_MAX;
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&r), 0);
        free(pieces);
        context_free(&first);
        context_free(&last);
}
