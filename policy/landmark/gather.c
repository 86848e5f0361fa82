// Gather: the rows at chosen positions, out of raw rows or row codecs, as a dtype.
#include "policy/landmark/selection.h"
#include "proto/status.h"

enum {
        PREFETCH_AHEAD = 8
};

bool cairn_cursor_seek(struct cairn_cursor *cursor, uint32_t position)
{
        const struct cairn_landmark_piece *pieces = cursor->pieces;
        if (cursor->piece >= cursor->n_pieces || pieces[cursor->piece].position > position)
                cursor->piece = 0;
        if (cursor->n_pieces == 0 || pieces[0].position > position)
                return false;
        if (position - pieces[cursor->piece].position >= pieces[cursor->piece].n_tokens) {
                uint32_t low = cursor->piece, high = cursor->n_pieces; // low begins at or before
                while (high - low > 1) {
                        uint32_t middle = low + (high - low) / 2;
                        if (pieces[middle].position <= position)
                                low = middle;
                        else
                                high = middle;
                }
                cursor->piece = low;
        }
        cursor->token = position - pieces[cursor->piece].position;
        return cursor->token < pieces[cursor->piece].n_tokens;
}

// Where one gather writes.
struct gather {
        const struct cairn_landmark_layout *layout;
        const struct cairn_kernels *kernels;
        struct cairn_row_reader reader;
        uint32_t out_dtype;
};

// One raw row to out_dtype.
static void write_raw(const struct gather *g, const void *raw, uint32_t token, uint32_t dim,
                      uint8_t *ret)
{
        float row[CAIRN_DIM_PADDED_MAX];
        uint32_t dtype = g->layout->shape.dtype;
        size_t bytes = (size_t)dim * cairn_dtype_bytes(dtype);
        const uint8_t *at = (const uint8_t *)raw + token * bytes;
        if (g->out_dtype == dtype) {
                memcpy(ret, at, bytes);
                return;
        }
        cairn_row_exact(at, dtype, dim, row);
        cairn_row_to_raw(g->kernels, row, g->out_dtype, dim, ret);
}

static void write_k(struct gather *g, const struct cairn_landmark_piece *piece, uint32_t token,
                    uint8_t *ret)
{
        float row[CAIRN_DIM_PADDED_MAX];
        uint32_t dim = g->layout->shape.k_dim;
        if (cairn_piece_is_raw(piece, g->layout->shape.k_codec)) {
                write_raw(g, piece->k_raw, token, dim, ret);
                return;
        }
        bool direct = g->out_dtype == CAIRN_DTYPE_F32 && dim % CAIRN_LANES == 0 &&
                      (uintptr_t)ret % sizeof(float) == 0;
        float *to = direct ? (float *)(void *)ret : row;
        (void)cairn_row_read_k(&g->reader, piece, token, to); // NaN rows pass
        if (!direct)
                cairn_row_to_raw(g->kernels, row, g->out_dtype, dim, ret);
}

static void write_v(struct gather *g, const struct cairn_landmark_piece *piece, uint32_t token,
                    uint8_t *ret)
{
        float row[CAIRN_DIM_PADDED_MAX];
        uint32_t dim = g->layout->shape.v_dim;
        if (cairn_piece_is_raw(piece, g->layout->shape.v_codec)) {
                write_raw(g, piece->v_raw, token, dim, ret);
                return;
        }
        bool direct = g->out_dtype == CAIRN_DTYPE_F32 && dim % CAIRN_LANES == 0 &&
                      (uintptr_t)ret % sizeof(float) == 0;
        float *to = direct ? (float *)(void *)ret : row;
        (void)cairn_row_read_v(g->layout, g->kernels, piece, token, to);
        if (!direct)
                cairn_row_to_raw(g->kernels, row, g->out_dtype, dim, ret);
}

// Inline, or the compiler drops the calls: they seem to do nothing.
static inline __attribute__((always_inline)) void prefetch(const uint8_t *at, uint32_t bytes)
{
        for (const uint8_t *end = at + bytes; at < end; at += 64)
                __builtin_prefetch(at);
}

// Coded rows and their scales: the scales are as far from the cache as the rows.
static inline __attribute__((always_inline)) void prefetch_rows(
    const struct cairn_landmark_layout *l, const struct cairn_landmark_piece *piece, uint32_t token)
{
        const uint8_t *code_run = piece->code_run;
        if (!code_run)
                return;
        if (l->k_row_scales != CAIRN_LANDMARK_NONE)
                __builtin_prefetch(code_run + l->k_row_scales + (size_t)token * 4);
        if (l->v_row_scales != CAIRN_LANDMARK_NONE)
                __builtin_prefetch(code_run + l->v_row_scales + (size_t)token * 4);
        if (l->k_rows != CAIRN_LANDMARK_NONE)
                prefetch(code_run + l->k_rows + (size_t)token * l->k_row_bytes, l->k_row_bytes);
        if (l->k_rows != CAIRN_LANDMARK_NONE && l->centres != CAIRN_LANDMARK_NONE) {
                uint32_t run = token / l->shape.run_tokens;
                uint32_t centre = cairn_round_up(l->shape.k_dim, CAIRN_LANES);
                prefetch(code_run + l->centres + (size_t)run * centre, centre);
                __builtin_prefetch(code_run + l->run_heads +
                                   (size_t)run * cairn_run_head_bytes(&l->shape));
        }
        if (l->v_rows != CAIRN_LANDMARK_NONE)
                prefetch(code_run + l->v_rows + (size_t)token * l->v_row_bytes, l->v_row_bytes);
}

int cairn_landmark_gather(const struct cairn_landmark_layout *layout,
                          const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                          const uint32_t *positions, uint32_t n_positions, uint32_t out_dtype,
                          void *ret_k, void *ret_v)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        struct cairn_cursor cursor = {.pieces = pieces, .n_pieces = n_pieces}, ahead = cursor;
        struct gather g = {
            .layout = layout, .kernels = cairn_kernels_chosen(), .out_dtype = out_dtype};
        size_t out_k = (size_t)s->k_dim * cairn_dtype_bytes(out_dtype);
        size_t out_v = (size_t)s->v_dim * cairn_dtype_bytes(out_dtype);
        if (out_k == 0)
                return CAIRN_EINVAL;
        g.reader.layout = layout;
        g.reader.kernels = g.kernels;
        ret_v = s->v_dim ? ret_v : NULL;
        for (uint32_t i = 0; i < n_positions; i++) {
                if (i + PREFETCH_AHEAD < n_positions &&
                    cairn_cursor_seek(&ahead, positions[i + PREFETCH_AHEAD]))
                        prefetch_rows(layout, &pieces[ahead.piece], ahead.token);
                if (!cairn_cursor_seek(&cursor, positions[i]))
                        return CAIRN_ENOENT;
                const struct cairn_landmark_piece *piece = &pieces[cursor.piece];
                if ((ret_k && cairn_piece_is_raw(piece, s->k_codec) && !piece->k_raw) ||
                    (ret_v && cairn_piece_is_raw(piece, s->v_codec) && !piece->v_raw))
                        return CAIRN_ENOENT;
                if (ret_k)
                        write_k(&g, piece, cursor.token, (uint8_t *)ret_k + i * out_k);
                if (ret_v)
                        write_v(&g, piece, cursor.token, (uint8_t *)ret_v + i * out_v);
        }
        return CAIRN_OK;
}
