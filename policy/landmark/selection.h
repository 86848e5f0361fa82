// A selection under way: what its passes hand to one another. Lies whole in the caller's scratch.
// Used by policy/landmark alone. Threads: see landmark.h.
//
// Tokens are numbered by *slots*: each piece begins at a multiple of 32, so kernels work on whole
// groups; the slots behind a piece's last token are never chosen. Runs are numbered through all
// pieces.
#ifndef CAIRN_LANDMARK_SELECTION_H
#define CAIRN_LANDMARK_SELECTION_H

#include "policy/landmark/internal.h"

// The query rows of one step, prepared.
struct cairn_query {
        uint32_t n;
        uint32_t padded;    // k_dim to a multiple of 16
        uint32_t subs;      // sub-quantizers of a key: tables a query
        float *rows;        // [n][padded], times the scale
        float *turned;      // [n / 4 rounded up][padded][4]: the same
        int16_t *whole;     // [n][padded], in units of whole_units
        float *whole_units; // [n]; NaN for a query row that is not finite
        uint8_t *tables;    // [n][subs][16]
        float *table_units; // [n]
        float *table_bases; // [n]; NaN likewise
};

struct cairn_landmark_selection {
        const struct cairn_landmark_request *request;
        const struct cairn_landmark_layout *layout;
        const struct cairn_kernels *kernels;
        struct cairn_query query;
        uint32_t n_queries;
        uint32_t n_slots;
        uint32_t score_stride; // of scores, at least n_slots
        uint32_t n_runs;
        uint32_t n_runs_padded; // to a multiple of 32
        uint32_t n_eligible;
        uint32_t k;              // rows to choose at most
        uint32_t candidates_max; // rows to re-rank at most
        uint32_t *slot_base;     // [n_pieces + 1]
        uint32_t *run_base;      // [n_pieces + 1]
        float *scores;      // [n_queries][score_stride]; in the end by re-rank for candidates, and
                            // -inf for the chosen and the ineligible
        int32_t *keys;      // [n_slots]
        float *run_max;     // [n_queries][n_runs_padded]
        float *run_sum;     // same: sum of exp(score - run_max)
        float *run_mean;    // same: query . centre
        float *run_work;    // [n_runs_padded]
        float *held_max;    // same as run_max, of the excluded tokens
        float *held_sum;    // same as run_sum, of the excluded tokens
        float *lse_held;    // [n_queries], of what the worker holds
        float *lse;         // [n_queries], 0 where it is -inf: ranks are relative to it
        float *lse_scan;    // [n_queries], by landmarks alone
        float *lse_rank;    // [n_queries], what the scan's ranks are relative to
        float *lse_rest;    // [n_queries], of what was not chosen
        float *lse_others;  // [n_queries], of what is no candidate
        uint32_t *slots;    // [n_slots + 16]
        int32_t *slot_keys; // [n_slots + 16]
        uint8_t *touched;   // [n_runs]: whether the run has a candidate
        int32_t cutoff;     // least rank of a candidate by the scan
        uint32_t n_candidates;
        uint32_t stride;            // candidates_max to a multiple of 32
        uint32_t *candidates;       // slots, ascending
        uint32_t *candidate_pieces; // of which piece
        float *candidate_scores;    // [n_queries][stride], re-ranked
        int32_t *candidate_keys;    // [stride]
        float *candidate_landmarks; // [n_queries][stride], by the scan
        float *noise;               // [n_queries]: sum of squares of re-rank less landmark score
        float *candidate_work;      // [stride]
        int32_t *chosen;            // [stride], -1: yes
};

// select.c
// Sets what ranks of query q are relative to, from the log-sum-exp of the eligible tokens.
void cairn_selection_set_lse(struct cairn_landmark_selection *s, uint32_t q, float lse);

// bound.c
// What the candidates' bytes say of rounding: means over some of them.
struct cairn_bound {
        double row_unit2;   // square of what a unit of a coded K row stands for; 0: raw rows
        double code_scale2; // square of a token's code scale
};
void cairn_bound_sample(const struct cairn_landmark_selection *s, struct cairn_bound *ret_bound);
// Standard error of the mass held, m = C / (C + U + R): rows chosen, candidates left, and the
// others, known by landmarks alone. What is uncertain above all is R, whose logarithm errs by some
//
//   s^2 = 0.6 v largest + (0.15 v)^2 + table,
//
// v being the mean square that re-ranking moved the candidates, whose scores are known both ways:
// the noise of this head's codes for this query, measured. Of what differs from token to token,
// only the largest weight (at most `largest` of R) does not average out. Of what all have in
// common, noise raises an average of exponentials by v / 2, and picking the highest scores takes
// about as much away again: 0.15 v is what that leaves. `table` is the variance of the rounding of
// the query's byte tables, of which each entry is wrong in the same way for every token it serves.
// Where m goes while the logarithm goes from 2 s below to 2 s above says the rest: half of the way
// up, or a quarter of all of it if that is more (so at most a half, and m R s where s is small).
// The chosen rows' rounding comes on top: m (1 - m) sqrt(row noise * largest chosen weight).
// largest_chosen: of the chosen rows' scores.
float cairn_bound_mass_error(const struct cairn_landmark_selection *s,
                             const struct cairn_bound *bound, uint32_t q, float largest_chosen,
                             float lse_chosen, float lse_all);

// query.c
void cairn_query_carve(struct cairn_scratch *scratch, const struct cairn_landmark_layout *layout,
                       uint32_t n_queries, struct cairn_query *ret_query);
void cairn_query_prepare(const struct cairn_kernels *kernels,
                         const struct cairn_landmark_layout *layout, const float *queries,
                         float scale, struct cairn_rotation *rotation, struct cairn_query *query);

// scan.c
// Scores of one token by its best row (codec or raw): what re-ranking uses. mean: query . centre of
// its run, [n] at a stride of one run record.
void cairn_score_row(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const struct cairn_landmark_piece *piece, uint32_t token, const float *means,
                     uint32_t mean_stride, float *ret_scores, uint32_t score_stride);

// codes.c
// Where a run's records go, each [n_queries] at a stride. sum may be NULL: no exponentials.
struct cairn_run_records {
        float *max;
        float *sum;
        float *mean;
        uint32_t stride;
};
// Scores of the tokens of one run by their codes, as the scan does, and its records; the benchmark
// of the bare scan uses it too. next: the code run to be scanned after this one, or NULL; it is
// prefetched.
void cairn_scan_codes(const struct cairn_landmark_layout *layout,
                      const struct cairn_kernels *kernels, const struct cairn_query *query,
                      const uint8_t *code_run, uint32_t run, uint32_t n_tokens, const uint8_t *next,
                      float *ret_scores, uint64_t score_stride,
                      const struct cairn_run_records *records);
// q . centre of a run for every query.
void cairn_run_means(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const uint8_t *code_run, uint32_t run, float *ret_mean, uint32_t stride);

// scan_rows.c
// Scores of n tokens from `first` of a piece whose rows are scored as int8, for many queries; false
// (and nothing written): not such a piece, too few queries, or no kernel for it.
bool cairn_scan_rows(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const struct cairn_landmark_piece *piece, uint32_t first, uint32_t n,
                     const float *means, uint32_t mean_stride, float *ret_scores,
                     uint64_t score_stride);

// Whether a piece's rows of this codec are its raw rows.
static inline bool cairn_piece_is_raw(const struct cairn_landmark_piece *piece, uint32_t codec)
{
        return !piece->code_run || codec == CAIRN_ROW_RAW || codec == CAIRN_ROW_NONE;
}

// A row's K as floats with its centre added, padded with zeros to a multiple of 16; false when it
// is not finite. The reader keeps the centre of the run last seen.
struct cairn_row_reader {
        const struct cairn_landmark_layout *layout;
        const struct cairn_kernels *kernels;
        const void *code_run;
        uint32_t run;
        float centre[CAIRN_DIM_PADDED_MAX];
};
const float *cairn_row_centre(struct cairn_row_reader *reader, const void *code_run, uint32_t run);
bool cairn_row_read_k(struct cairn_row_reader *reader, const struct cairn_landmark_piece *piece,
                      uint32_t token, float *ret_row);
bool cairn_row_read_v(const struct cairn_landmark_layout *layout,
                      const struct cairn_kernels *kernels, const struct cairn_landmark_piece *piece,
                      uint32_t token, float *ret_row);

// Prefetches bytes that are read soon. Inline, or the compiler drops the calls: they seem to do
// nothing.
static inline __attribute__((always_inline)) void cairn_prefetch(const void *at, size_t bytes)
{
        const uint8_t *line = at;
        for (const uint8_t *end = line + bytes; line < end; line += 64)
                __builtin_prefetch(line);
}

// A K row of a piece, with its scale, which is as far from the cache as the row.
static inline __attribute__((always_inline)) void cairn_prefetch_k(
    const struct cairn_landmark_layout *l, const struct cairn_landmark_piece *piece, uint32_t token)
{
        const uint8_t *code_run = piece->code_run;
        if (cairn_piece_is_raw(piece, l->shape.k_codec)) {
                size_t bytes = l->raw_k_bytes / l->shape.block_tokens;
                if (piece->k_raw)
                        cairn_prefetch((const uint8_t *)piece->k_raw + token * bytes, bytes);
                return;
        }
        cairn_prefetch(code_run + l->k_rows + (size_t)token * l->k_row_bytes, l->k_row_bytes);
        if (l->k_row_scales != CAIRN_LANDMARK_NONE)
                __builtin_prefetch(code_run + l->k_row_scales + (size_t)token * 4);
}

// The centre of a K row's run.
static inline __attribute__((always_inline)) void cairn_prefetch_centre(
    const struct cairn_landmark_layout *l, const struct cairn_landmark_piece *piece, uint32_t token)
{
        const uint8_t *code_run = piece->code_run;
        if (!code_run || l->centres == CAIRN_LANDMARK_NONE)
                return;
        uint32_t run = token / l->shape.run_tokens;
        uint32_t centre = cairn_round_up(l->shape.k_dim, CAIRN_LANES);
        cairn_prefetch(code_run + l->centres + (size_t)run * centre, centre);
        __builtin_prefetch(code_run + l->run_heads + (size_t)run * cairn_run_head_bytes(&l->shape));
}

// A V row of a piece, with its scale.
static inline __attribute__((always_inline)) void cairn_prefetch_v(
    const struct cairn_landmark_layout *l, const struct cairn_landmark_piece *piece, uint32_t token)
{
        const uint8_t *code_run = piece->code_run;
        if (l->v_rows == CAIRN_LANDMARK_NONE || !code_run) {
                size_t bytes = (l->raw_bytes - l->raw_k_bytes) / l->shape.block_tokens;
                if (piece->v_raw)
                        cairn_prefetch((const uint8_t *)piece->v_raw + token * bytes, bytes);
                return;
        }
        cairn_prefetch(code_run + l->v_rows + (size_t)token * l->v_row_bytes, l->v_row_bytes);
        if (l->v_row_scales != CAIRN_LANDMARK_NONE)
                __builtin_prefetch(code_run + l->v_row_scales + (size_t)token * 4);
}

// Where a position lies. Seeking ascending positions is quick. False when no piece holds it.
struct cairn_cursor {
        const struct cairn_landmark_piece *pieces;
        uint32_t n_pieces;
        uint32_t piece;
        uint32_t token; // within the piece
};
bool cairn_cursor_seek(struct cairn_cursor *cursor, uint32_t position);

// The first stretch of [first, end) that lies in an excluded range; false when there is none.
bool cairn_excluded_next(const struct cairn_landmark_request *request, uint32_t first, uint32_t end,
                         uint32_t *ret_first, uint32_t *ret_end);

static inline bool cairn_is_present(const struct cairn_landmark_request *request, uint32_t position)
{
        return !request->present || position >= request->present_end ||
               (request->present[position / 64] >> position % 64 & 1);
}

// topk.c
// The slots of the `k` largest of n keys above CAIRN_KEY_NEVER, ascending; of equal keys the lower
// slots. There must be at least k such keys. slots and work have room for n + 16; n is a multiple
// of 32. Time is linear.
// Returns the least of those k keys.
int32_t cairn_topk(const struct cairn_kernels *kernels, const int32_t *keys, uint32_t n, uint32_t k,
                   uint32_t *slots, int32_t *work, uint32_t *ret_slots);
// The k-th largest (1 <= k <= n) of n keys, which are reordered. Linear time.
int32_t cairn_kth_largest(int32_t *keys, uint32_t n, uint32_t k);

// mass.c
// Log-sum-exp from run maxima and sums; n a multiple of 32; work has room for n.
float cairn_lse_of_runs(const struct cairn_kernels *kernels, const float *run_max,
                        const float *run_sum, uint32_t n, float *work);
// Of scores; n a multiple of 32 (padding: -inf).
float cairn_lse_of_scores(const struct cairn_kernels *kernels, const float *scores, uint32_t n);
// log(exp(a) + exp(b)).
float cairn_lse_add(float a, float b);

#endif
