// Landmarks: low-bit codes of keys by which rows are found, value codes by which the rest is
// estimated, and the arithmetic over them: encode, select, gather, rest, attend. Design, section 6.
// May be used by: daemon, tests. May use: proto. Pure: no I/O, no clock, no allocation, no globals
// but the kernel table that cairn_isa_choose sets. Threads: any, as long as each call's outputs and
// scratch are its own.
//
// Words: a *head block* is one (block, layer, KV head): block_tokens tokens. Its raw bytes are
// K [tokens][k_dim], V [tokens][v_dim] in the dtype. Its *code run* is what encode makes of them
// (layout below). A *run* is run_tokens consecutive tokens of a head block: the unit of centring,
// of outlier channels and of log-sum-exp.
//
// Numbers that are no numbers. A key row that holds a NaN or an infinity scores -inf; so does every
// row for a query row that holds one (that query head is left out of the group's maximum). Tokens
// of score -inf are chosen after all others, lower positions first. Elements beyond +-1e16 count as
// +-1e16. Log-sum-exp of nothing is -inf. Values that are NaN or infinite count as 0 in codes;
// exact rows keep them. Every instruction set returns the same ids, scores and log-sum-exp, bit for
// bit.
#ifndef CAIRN_LANDMARK_H
#define CAIRN_LANDMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/space.h"

enum {
        CAIRN_LANDMARK_ALIGN = 32, // bytes; parts of a code run begin at multiples of it
        CAIRN_LANDMARK_OUTLIERS_MAX = 16,
        CAIRN_LANDMARK_RUN_TOKENS = 128, // the default run; a block if that is shorter
        CAIRN_LANDMARK_SCRATCH_ALIGN = 64,
        CAIRN_LANDMARK_NONE = UINT32_MAX, // offset of a part that is absent
};

// ---- Kernels

enum cairn_isa {
        CAIRN_ISA_SCALAR = 0,
        CAIRN_ISA_AVX2 = 1,
        CAIRN_ISA_AVX512 = 2,
        CAIRN_ISA_AMX = 3,
        CAIRN_ISA_NEON = 4,
        CAIRN_ISA_COUNT = 5,
};

// Chooses the kernels for the whole process: the best that CPU and OS offer, or the one named by
// `forced` (NULL or "": none; else scalar, avx2, avx512, amx, neon: the text of CAIRN_ISA). Call
// once at start, before other threads; without it the scalar kernels serve. CAIRN_EINVAL: unknown
// name; CAIRN_EUNSUPPORTED: this build or machine lacks it; the choice then stays as it was.
int cairn_isa_choose(const char *forced);
enum cairn_isa cairn_isa_chosen(void);
// What choosing found wrong with this machine, for the log; NULL: nothing.
const char *cairn_isa_warning(void);
bool cairn_isa_available(enum cairn_isa isa);
const char *cairn_isa_name(enum cairn_isa isa);

// ---- Shape and layout

// What encode and select must know of a space. Fill by hand or from a space.
struct cairn_landmark_shape {
        uint32_t k_dim; // 1..CAIRN_DIM_MAX
        uint32_t v_dim; // 0..CAIRN_DIM_MAX
        uint32_t block_tokens;
        uint32_t dtype;         // enum cairn_dtype, of raw rows
        uint32_t run_tokens;    // 0: the default
        uint32_t landmark_bits; // 0 (rows are scored instead), 1, 2, 4, 8
        uint32_t outliers;      // channels kept as int8, at most k_dim; 0 with 8 bits
        uint32_t value_bits;    // 0, 2, 4
        uint32_t k_codec;       // enum cairn_row_codec
        uint32_t v_codec;
        // Latent attention: values are the first v_prefix dims of the key (v_dim and v_codec are 0
        // then). Attend and the rest take them out of the K rows; value codes are made of them.
        uint32_t v_prefix;
        bool uncentred; // YAKV's scheme, to compare: means are kept as zero
};

// Byte offsets inside one code run, in this order; absent parts are CAIRN_LANDMARK_NONE. Landmarks
// and value codes come first (resident_bytes: what RAM must hold to select and to estimate the
// rest), then the row codecs. README.md has the bytes. `total_bytes` is the stride from one head
// block's code run to the next: [layer][KV head][code run].
struct cairn_landmark_layout {
        struct cairn_landmark_shape shape; // with defaults filled in
        uint32_t runs;                     // of a whole block
        uint32_t code_dim;     // k_dim padded to a multiple of 8: dims of the rotated key
        uint32_t value_dim;    // out dim padded to a multiple of 32: dims of the rotated value
        uint32_t codes;        // nibbles (or int8 at 8 bits)
        uint32_t scales;       // fp16 a token
        uint32_t outlier_rows; // u8
        uint32_t centres;      // int8 [runs][k_dim]
        uint32_t run_heads;    // what a run says of itself
        uint32_t value_codes;
        uint32_t value_scales; // fp16 a token
        uint32_t resident_bytes;
        uint32_t k_rows;
        uint32_t k_row_scales;
        uint32_t v_rows;
        uint32_t v_row_scales;
        uint32_t k_row_bytes; // stride of a coded row
        uint32_t v_row_bytes;
        uint32_t total_bytes;
        uint32_t raw_k_bytes; // of the head block's raw K rows; V rows follow them
        uint32_t raw_bytes;   // of its raw K and V rows: the stride of raw head blocks
};

// Dims of an attention output.
static inline uint32_t cairn_landmark_out_dim(const struct cairn_landmark_layout *layout)
{
        return layout->shape.v_prefix ? layout->shape.v_prefix : layout->shape.v_dim;
}

void cairn_landmark_shape_from_space(const struct cairn_space *space,
                                     struct cairn_landmark_shape *ret_shape);

// CAIRN_EINVAL when a field is out of range.
int cairn_landmark_layout_init(const struct cairn_landmark_shape *shape,
                               struct cairn_landmark_layout *ret_layout);

// ---- Encode

size_t cairn_landmark_encode_scratch_bytes(const struct cairn_landmark_layout *layout);

// Quantizes one head block: k_rows [n_tokens][k_dim], v_rows [n_tokens][v_dim] raw (v_rows may be
// NULL when no part needs it), 1 <= n_tokens <= block_tokens. Writes all total_bytes of
// `ret_code_run` (aligned to CAIRN_LANDMARK_ALIGN); what lies beyond n_tokens is inert. `scratch`
// is aligned to CAIRN_LANDMARK_SCRATCH_ALIGN. Raw rows need no alignment.
int cairn_landmark_encode(const struct cairn_landmark_layout *layout, const void *k_rows,
                          const void *v_rows, uint32_t n_tokens, void *ret_code_run, void *scratch);

// ---- Select

// A stretch of consecutive tokens of one (context, layer, KV head): a head block, or a part of it
// from its first token. code_run NULL: an unfinished tail, scored exactly from its raw rows (k_raw
// must be there). k_raw and v_raw may be NULL where the row codecs are not raw. The caller owns all
// bytes and keeps them until the last call that uses the piece.
struct cairn_landmark_piece {
        const void *code_run;
        const void *k_raw; // [n_tokens][k_dim]
        const void *v_raw; // [n_tokens][v_dim]
        uint32_t position; // of its first token
        uint32_t n_tokens; // 1..block_tokens with a code run, else 1..CAIRN_BLOCK_TOKENS_MAX
};

// Positions [first, end).
struct cairn_landmark_range {
        uint32_t first;
        uint32_t end;
};

enum cairn_landmark_kind {
        CAIRN_LANDMARK_TOKENS = 0,      // the codes (or rows, at 0 bits) of every token
        CAIRN_LANDMARK_CHUNK_MEAN = 1,  // to compare: means of chunk_tokens keys (ShadowKV)
        CAIRN_LANDMARK_CHUNK_BOUND = 2, // to compare: minimum and maximum of a chunk (Quest)
};
enum cairn_landmark_rule {
        CAIRN_LANDMARK_GROUP_MAX = 0,
        CAIRN_LANDMARK_GROUP_SUM = 1
};
enum cairn_landmark_budget {
        CAIRN_LANDMARK_COUNT = 0,
        CAIRN_LANDMARK_SHARE = 1,     // min(k, ceil(target * eligible))
        CAIRN_LANDMARK_THRESHOLD = 2, // estimated probability (by the rule) >= target; at most k
        CAIRN_LANDMARK_MASS =
            3, // the fewest that hold `target` of every query head's mass; at most k
};

struct cairn_landmark_request {
        const struct cairn_landmark_layout *layout;
        const struct cairn_landmark_piece *pieces; // ascending positions, no overlap
        uint32_t n_pieces;
        const float *queries; // [n_queries][k_dim], of one step
        uint32_t n_queries;   // query heads of the group, 1..CAIRN_GROUP_MAX
        float scale;          // usually 1/sqrt(head dim); log-sum-exps are of scale * q.k
        uint32_t k;           // the count, or the cap: at most CAIRN_ROWS_MAX
        enum cairn_landmark_budget budget;
        float target;
        float rerank; // candidates = ceil(rerank * k); 0: the default, 1.5; at least 1
        enum cairn_landmark_rule rule;
        enum cairn_landmark_kind kind;
        uint32_t chunk_tokens; // 2..16, of the chunk kinds
        const struct cairn_landmark_range
            *excluded; // ascending, no overlap: tokens the worker holds
        uint32_t n_excluded;
        // Rows that were dropped: 0 in bit p % 64 of word p / 64, of positions below present_end.
        // They count for nothing, as if no piece held them. NULL: every row is present.
        const uint64_t *present;
        uint32_t present_end;
        // [n_queries] or NULL: log-sum-exp of scale * q.k over all that the worker holds. It is
        // part of the softmax that ranks and thresholds are about, so that a query head whose mass
        // lies with the worker does not crowd out the others of its group. NULL: estimated from the
        // excluded tokens.
        const float *lse_held;
        bool without_rest; // cairn_landmark_rest will not be called: finish leaves nothing for it
};

// Positions and scores are caller's arrays of k entries; the rest of n_queries entries.
struct cairn_landmark_result {
        uint32_t n_chosen;   // min(k, eligible) with a count
        uint32_t n_eligible; // tokens present and not excluded
        uint32_t *positions; // ascending
        float *scores;       // log of the group's softmax probability, among held tokens too
        float *lse_chosen;   // [n_queries], from the re-rank scores
        float *lse_all;      // [n_queries], over all eligible tokens: candidates by re-rank scores
        float *mass_error; // [n_queries] or NULL: standard error of the estimate of exp(lse_chosen
                           // - lse_all)
};

// One call: all passes below on this thread. Scratch is the caller's, aligned to
// CAIRN_LANDMARK_SCRATCH_ALIGN. CAIRN_EINVAL: a request out of range (see the fields); nothing is
// written then.
// 0 for a request that is out of range.
size_t cairn_landmark_select_scratch_bytes(const struct cairn_landmark_request *request);
int cairn_landmark_select(const struct cairn_landmark_request *request, void *scratch,
                          size_t scratch_bytes, struct cairn_landmark_result *ret_result);

// The same in passes, so that a long context is shared among threads. Scratch is shared too. The
// result does not depend on how pieces are split.
//   begin                          one thread
//   scan(first piece, count)       any threads, disjoint pieces, all of them; then wait for all
//   weigh                          one thread: log-sum-exp of all
//   rank(first piece, count)       any threads, disjoint pieces, all of them; then wait for all
//   finish                         one thread: candidates, re-rank, choice
//   rest(first piece, count)       optional, after finish: any threads, disjoint pieces; partials
//   merge in piece order
// `selection` lies in the scratch and keeps a pointer to the request: both live until the last
// pass.
struct cairn_landmark_selection;
int cairn_landmark_select_begin(const struct cairn_landmark_request *request, void *scratch,
                                size_t scratch_bytes,
                                struct cairn_landmark_selection **ret_selection);
void cairn_landmark_select_scan(struct cairn_landmark_selection *selection, uint32_t first_piece,
                                uint32_t n_pieces);
void cairn_landmark_select_weigh(struct cairn_landmark_selection *selection);
void cairn_landmark_select_rank(struct cairn_landmark_selection *selection, uint32_t first_piece,
                                uint32_t n_pieces);
void cairn_landmark_select_finish(struct cairn_landmark_selection *selection,
                                  struct cairn_landmark_result *ret_result);

// ---- Partials: the rest, attention, merging

// Attention over a part of the tokens: out [n_queries][out dim], lse [n_queries]; of nothing: zeros
// and -inf.
struct cairn_landmark_partial {
        float *out;
        float *lse;
};

// The rest: all eligible tokens of the pieces that were not chosen, by 2-bit scores (candidates
// that were not chosen: by their re-rank scores) and value codes (v rows where value_bits is 0).
// Runs whose weight for a query head is below `skip` / (number of runs) of the whole are left out
// of its output, which is then the mean of what is left, not of the log-sum-exp: all in all they
// weigh less than `skip` (0: the default, 4e-3). The log-sum-exp is from the same scores.
size_t cairn_landmark_rest_scratch_bytes(const struct cairn_landmark_request *request);
void cairn_landmark_rest(const struct cairn_landmark_selection *selection, uint32_t first_piece,
                         uint32_t n_pieces, float skip, void *scratch,
                         struct cairn_landmark_partial *ret_partial);

// Attention over the rows at `positions` (ascending, each inside a piece), exact but for the row
// codecs. positions NULL: every token that is present and not excluded. CAIRN_ENOENT: a position
// lies in no piece.
size_t cairn_landmark_attend_scratch_bytes(const struct cairn_landmark_request *request);
int cairn_landmark_attend(const struct cairn_landmark_request *request, const uint32_t *positions,
                          uint32_t n_positions, void *scratch,
                          struct cairn_landmark_partial *ret_partial);

// The same over the rows that a selection chose, after finish, by its re-rank scores: keys are not
// read again. Scratch as for attend.
void cairn_landmark_attend_chosen(const struct cairn_landmark_selection *selection, void *scratch,
                                  struct cairn_landmark_partial *ret_partial);

// into = into merged with part: softmax over the union. Zeros and -inf are neutral.
void cairn_landmark_partial_merge(struct cairn_landmark_partial *into,
                                  const struct cairn_landmark_partial *part, uint32_t n_queries,
                                  uint32_t out_dim);

// ---- Gather

// Writes the K and V rows at `positions` (ascending, each inside a piece) as ret_k [n][k_dim],
// ret_v [n][v_dim] of out_dtype, from raw rows where a piece has them and its codec is raw, else
// from the row codecs. ret_k or ret_v may be NULL. CAIRN_ENOENT: a position lies in no piece, or
// its piece holds no such rows.
int cairn_landmark_gather(const struct cairn_landmark_layout *layout,
                          const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                          const uint32_t *positions, uint32_t n_positions, uint32_t out_dtype,
                          void *ret_k, void *ret_v);

#endif
