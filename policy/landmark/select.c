// Selection: its passes, from a checked request to ranked tokens. choose.c makes the choice.
#include <assert.h>

#include "policy/landmark/selection.h"
#include "proto/status.h"

// Scores of the query heads lie apart by no multiple of 4 KiB: a run's would fall on the same cache
// sets, and loads would wait for stores that only look alike.
enum {
        SCORE_PAGE = 1024,
        SCORE_SKEW = 272
};
static const float rerank_default = 1.5f;

static bool pieces_are_valid(const struct cairn_landmark_request *r)
{
        const struct cairn_landmark_shape *shape = &r->layout->shape;
        bool raw_keys = shape->k_codec == CAIRN_ROW_RAW || shape->k_codec == CAIRN_ROW_NONE;
        uint64_t end = 0, slots = 0;
        for (uint32_t p = 0; p < r->n_pieces; p++) {
                const struct cairn_landmark_piece *piece = &r->pieces[p];
                uint32_t most =
                    piece->code_run ? shape->block_tokens : (uint32_t)CAIRN_BLOCK_TOKENS_MAX;
                if (piece->n_tokens < 1 || piece->n_tokens > most || piece->position < end)
                        return false;
                if ((!piece->code_run || raw_keys) && !piece->k_raw)
                        return false;
                end = (uint64_t)piece->position + piece->n_tokens;
                slots += cairn_round_up(piece->n_tokens, CAIRN_GROUP_TOKENS);
        }
        return end <= UINT32_MAX && slots <= UINT32_MAX - 2048;
}

static bool request_is_valid(const struct cairn_landmark_request *r)
{
        uint32_t end = 0;
        bool chunks = r->kind == CAIRN_LANDMARK_CHUNK_MEAN || r->kind == CAIRN_LANDMARK_CHUNK_BOUND;
        for (uint32_t i = 0; i < r->n_excluded; i++) {
                if (r->excluded[i].first < end || r->excluded[i].end <= r->excluded[i].first)
                        return false;
                end = r->excluded[i].end;
        }
        return r->n_queries >= 1 && r->n_queries <= CAIRN_GROUP_MAX && r->k <= CAIRN_ROWS_MAX &&
               fabsf(r->scale) <= FLT_MAX && (r->rerank == 0 || r->rerank >= 1) &&
               r->rerank <= 64 && r->rule <= CAIRN_LANDMARK_GROUP_SUM &&
               r->kind <= CAIRN_LANDMARK_CHUNK_BOUND && r->budget <= CAIRN_LANDMARK_MASS &&
               (r->budget == CAIRN_LANDMARK_COUNT || (r->target >= 0 && r->target <= 1)) &&
               (!chunks || (r->chunk_tokens >= 2 && r->chunk_tokens <= 16)) && pieces_are_valid(r);
}

// Rows to re-rank for a choice of k.
static uint32_t candidates_for(const struct cairn_landmark_request *r, uint32_t k, uint32_t n)
{
        float factor = r->rerank == 0 ? rerank_default : r->rerank;
        if (r->kind != CAIRN_LANDMARK_TOKENS)
                factor = 1;
        double wanted = ceil((double)factor * k);
        return wanted < n ? (uint32_t)wanted : n;
}

// Present tokens of [first, end).
static uint32_t count_present(const struct cairn_landmark_request *r, uint32_t first, uint32_t end)
{
        uint32_t n = end - first;
        if (!r->present)
                return n;
        for (uint32_t at = first, next; at < end && at < r->present_end; at = next) {
                next = cairn_min_u32((at / 64 + 1) * 64, cairn_min_u32(end, r->present_end));
                uint64_t gone = ~r->present[at / 64] >> at % 64;
                if (next - at < 64)
                        gone &= (1ull << (next - at)) - 1;
                n -= (uint32_t)__builtin_popcountll(gone);
        }
        return n;
}

static uint32_t count_eligible(const struct cairn_landmark_request *r)
{
        uint32_t n = 0, from, to;
        for (uint32_t p = 0; p < r->n_pieces; p++) {
                uint32_t at = r->pieces[p].position, end = at + r->pieces[p].n_tokens;
                n += count_present(r, at, end);
                for (; cairn_excluded_next(r, at, end, &from, &to); at = to)
                        n -= count_present(r, from, to);
        }
        return n;
}

static void count(struct cairn_landmark_selection *s, const struct cairn_landmark_request *r)
{
        s->request = r;
        s->layout = r->layout;
        s->kernels = cairn_kernels_chosen();
        s->n_queries = r->n_queries;
        s->n_slots = s->n_runs = 0;
        for (uint32_t p = 0; p < r->n_pieces; p++) {
                uint32_t run = cairn_piece_run_tokens(r->layout, &r->pieces[p]);
                s->n_slots += cairn_round_up(r->pieces[p].n_tokens, CAIRN_GROUP_TOKENS);
                s->n_runs += (r->pieces[p].n_tokens + run - 1) / run;
        }
        s->score_stride = cairn_round_up(s->n_slots, SCORE_PAGE) + SCORE_SKEW;
        s->n_runs_padded = cairn_round_up(s->n_runs, CAIRN_GROUP_TOKENS);
        s->n_eligible = count_eligible(r);
        s->k = r->k;
        if (r->budget == CAIRN_LANDMARK_SHARE) {
                double share = ceil((double)r->target * s->n_eligible);
                s->k = share < r->k ? (uint32_t)share : r->k;
        }
        s->k = cairn_min_u32(s->k, s->n_eligible);
        s->candidates_max = candidates_for(r, s->k, s->n_eligible);
        s->stride = cairn_round_up(s->candidates_max, CAIRN_GROUP_TOKENS);
        if (s->stride % SCORE_PAGE == 0) // see there
                s->stride += 2 * CAIRN_GROUP_TOKENS;
}

static size_t carve(struct cairn_landmark_selection *s, void *base)
{
        struct cairn_scratch scratch = {.base = base};
        size_t queries = s->n_queries, records = queries * s->n_runs_padded;
        (void)cairn_scratch_take(&scratch, sizeof *s);
        cairn_query_carve(&scratch, s->layout, s->n_queries, &s->query);
        s->slot_base = cairn_scratch_take(&scratch, (s->request->n_pieces + 1) * sizeof(uint32_t));
        s->run_base = cairn_scratch_take(&scratch, (s->request->n_pieces + 1) * sizeof(uint32_t));
        s->scores = cairn_scratch_take(&scratch, queries * s->score_stride * sizeof(float));
        s->keys = cairn_scratch_take(&scratch, (size_t)s->n_slots * sizeof(int32_t));
        s->run_max = cairn_scratch_take(&scratch, records * sizeof(float));
        s->run_sum = cairn_scratch_take(&scratch, records * sizeof(float));
        s->run_mean = cairn_scratch_take(&scratch, records * sizeof(float));
        s->held_max = cairn_scratch_take(&scratch, records * sizeof(float));
        s->held_sum = cairn_scratch_take(&scratch, records * sizeof(float));
        s->lse_held = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->run_work = cairn_scratch_take(&scratch, s->n_runs_padded * sizeof(float));
        s->lse = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->lse_others = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->lse_scan = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->lse_rest = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->lse_rank = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->candidate_landmarks = cairn_scratch_take(&scratch, queries * s->stride * sizeof(float));
        s->noise = cairn_scratch_take(&scratch, queries * sizeof(float));
        s->slots = cairn_scratch_take(&scratch, ((size_t)s->n_slots + 16) * sizeof(uint32_t));
        s->slot_keys = cairn_scratch_take(&scratch, ((size_t)s->n_slots + 16) * sizeof(int32_t));
        s->touched = cairn_scratch_take(&scratch, s->n_runs);
        s->candidates = cairn_scratch_take(&scratch, s->stride * sizeof(uint32_t));
        s->candidate_pieces = cairn_scratch_take(&scratch, s->stride * sizeof(uint32_t));
        s->candidate_scores = cairn_scratch_take(&scratch, queries * s->stride * sizeof(float));
        s->candidate_keys = cairn_scratch_take(&scratch, s->stride * sizeof(int32_t));
        s->candidate_work = cairn_scratch_take(&scratch, s->stride * sizeof(float));
        s->chosen = cairn_scratch_take(&scratch, s->stride * sizeof(int32_t));
        return scratch.used;
}

size_t cairn_landmark_select_scratch_bytes(const struct cairn_landmark_request *request)
{
        struct cairn_landmark_selection s;
        if (!request_is_valid(request))
                return 0;
        count(&s, request);
        return carve(&s, NULL) + sizeof(struct cairn_rotation);
}

int cairn_landmark_select_begin(const struct cairn_landmark_request *request, void *scratch,
                                size_t scratch_bytes,
                                struct cairn_landmark_selection **ret_selection)
{
        struct cairn_landmark_selection *s = scratch;
        size_t needed = cairn_landmark_select_scratch_bytes(request);
        if (needed == 0 || scratch_bytes < needed || !scratch)
                return CAIRN_EINVAL;
        assert((uintptr_t)scratch % CAIRN_LANDMARK_SCRATCH_ALIGN == 0);
        count(s, request);
        uint8_t *end = (uint8_t *)scratch + carve(s, scratch);
        s->n_candidates = 0;
        s->slot_base[0] = s->run_base[0] = 0;
        for (uint32_t p = 0; p < request->n_pieces; p++) {
                uint32_t n = request->pieces[p].n_tokens;
                uint32_t run = cairn_piece_run_tokens(s->layout, &request->pieces[p]);
                s->slot_base[p + 1] = s->slot_base[p] + cairn_round_up(n, CAIRN_GROUP_TOKENS);
                s->run_base[p + 1] = s->run_base[p] + (n + run - 1) / run;
        }
        for (uint32_t q = 0; q < s->n_queries; q++) {
                for (uint32_t i = s->n_runs; i < s->n_runs_padded; i++) {
                        s->run_max[(size_t)q * s->n_runs_padded + i] = -INFINITY;
                        s->run_sum[(size_t)q * s->n_runs_padded + i] = 0;
                }
        }
        memset(s->run_mean, 0, (size_t)s->n_queries * s->n_runs_padded * sizeof(float));
        for (size_t i = 0; i < (size_t)s->n_queries * s->n_runs_padded; i++) {
                s->held_max[i] = -INFINITY;
                s->held_sum[i] = 0;
        }
        cairn_query_prepare(s->kernels, s->layout, request->queries, request->scale,
                            (struct cairn_rotation *)(void *)end, &s->query);
        *ret_selection = s;
        return CAIRN_OK;
}

void cairn_selection_set_lse(struct cairn_landmark_selection *s, uint32_t q, float lse)
{
        float all = cairn_lse_add(lse, s->lse_held[q]);

        s->lse[q] = all > -INFINITY && all <= FLT_MAX ? all : 0;
}

void cairn_landmark_select_weigh(struct cairn_landmark_selection *s)
{
        for (uint32_t q = 0; q < s->n_queries; q++) {
                size_t at = (size_t)q * s->n_runs_padded;
                float lse = cairn_lse_of_runs(s->kernels, s->run_max + at, s->run_sum + at,
                                              s->n_runs_padded, s->run_work);
                s->lse_held[q] =
                    s->request->lse_held
                        ? s->request->lse_held[q]
                        : cairn_lse_of_runs(s->kernels, s->held_max + at, s->held_sum + at,
                                            s->n_runs_padded, s->run_work);
                s->lse_scan[q] = lse;
                cairn_selection_set_lse(s, q, lse);
                s->lse_rank[q] = s->lse[q];
        }
}

void cairn_landmark_select_rank(struct cairn_landmark_selection *s, uint32_t first_piece,
                                uint32_t n_pieces)
{
        bool sum = s->request->rule == CAIRN_LANDMARK_GROUP_SUM;
        for (uint32_t p = first_piece; p < first_piece + n_pieces; p++) {
                const struct cairn_landmark_piece *piece = &s->request->pieces[p];
                uint32_t base = s->slot_base[p], slots = s->slot_base[p + 1] - base;
                uint32_t at = piece->position, end = at + piece->n_tokens, from, to;
                int32_t *keys = s->keys + base;
                (sum ? s->kernels->rank_sum : s->kernels->rank_max)(
                    s->scores + base, s->score_stride, s->n_queries, s->lse, slots, keys);
                for (uint32_t i = piece->n_tokens; i < slots; i++)
                        keys[i] = CAIRN_KEY_NEVER;
                for (uint32_t x = at; cairn_excluded_next(s->request, x, end, &from, &to); x = to)
                        for (uint32_t i = from - at; i < to - at; i++)
                                keys[i] = CAIRN_KEY_NEVER;
                for (uint32_t i = 0; s->request->present && i < piece->n_tokens; i++)
                        if (!cairn_is_present(s->request, at + i))
                                keys[i] = CAIRN_KEY_NEVER;
        }
}

int cairn_landmark_select(const struct cairn_landmark_request *request, void *scratch,
                          size_t scratch_bytes, struct cairn_landmark_result *ret_result)
{
        struct cairn_landmark_selection *s;
        int status = cairn_landmark_select_begin(request, scratch, scratch_bytes, &s);
        if (status != CAIRN_OK)
                return status;
        cairn_landmark_select_scan(s, 0, request->n_pieces);
        cairn_landmark_select_weigh(s);
        cairn_landmark_select_rank(s, 0, request->n_pieces);
        cairn_landmark_select_finish(s, ret_result);
        return CAIRN_OK;
}
