// Gather: the rows at chosen positions, out of raw rows or row codecs, as a dtype.
#include "policy/landmark/selection.h"
#include "proto/status.h"

enum {
        PREFETCH_AHEAD = 8,
        FOUND_MAX = 16,                // rows found and not yet written
        STREAM_BYTES_MIN = 512 * 1024, // answers that the caches near a core could not hold
};

bool cairn_cursor_seek(struct cairn_cursor *cursor, uint32_t position)
{
        const struct cairn_landmark_piece *pieces = cursor->pieces;
        if (cursor->piece >= cursor->n_pieces || pieces[cursor->piece].position > position)
                cursor->piece = 0;
        if (cursor->n_pieces == 0 || pieces[0].position > position)
                return false;
        if (position - pieces[cursor->piece].position >= pieces[cursor->piece].n_tokens) {
                // Low begins at or before it; sorted positions are often in the next piece.
                uint32_t low = cursor->piece, high = cursor->n_pieces;
                if (low + 2 < high && pieces[low + 2].position > position)
                        high = low + 2;
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
        struct cairn_cursor cursor; // the row found last
        uint32_t run_piece;         // of the centre prefetched last
        uint32_t run_first;
        struct cairn_row_reader reader;
        const struct cairn_landmark_piece *centre_piece; // of the centre read last
        uint32_t centre_first;
        uint32_t out_dtype;
        bool decodes_k; // coded rows go from bytes to out_dtype at once
        bool decodes_v;
        bool streamed; // past the caches
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

static const float *centre_of(struct gather *g, const struct cairn_landmark_piece *piece,
                              uint32_t token)
{
        uint32_t run_tokens = g->layout->shape.run_tokens;
        if (piece != g->centre_piece || token - g->centre_first >= run_tokens) {
                uint32_t run = token / run_tokens;
                g->centre_piece = piece;
                g->centre_first = run * run_tokens;
                (void)cairn_row_centre(&g->reader, piece->code_run, run);
        }
        return g->reader.centre;
}

static void write_k(struct gather *g, const struct cairn_landmark_piece *piece, uint32_t token,
                    uint8_t *ret)
{
        const struct cairn_landmark_layout *l = g->layout;
        const uint8_t *code_run = piece->code_run;
        float row[CAIRN_DIM_PADDED_MAX], scale;
        uint32_t dim = l->shape.k_dim;
        if (g->decodes_k && code_run) {
                const uint8_t *bytes = code_run + l->k_rows + (size_t)token * l->k_row_bytes;
                memcpy(&scale, code_run + l->k_row_scales + (size_t)token * 4, sizeof scale);
                g->kernels->decode((const int8_t *)bytes, scale, centre_of(g, piece, token), dim,
                                   g->out_dtype, g->streamed, ret);
        } else if (cairn_piece_is_raw(piece, l->shape.k_codec)) {
                write_raw(g, piece->k_raw, token, dim, ret);
        } else {
                (void)cairn_row_read_k(&g->reader, piece, token, row); // NaN rows pass
                cairn_row_to_raw(g->kernels, row, g->out_dtype, dim, ret);
        }
}

static void write_v(struct gather *g, const struct cairn_landmark_piece *piece, uint32_t token,
                    uint8_t *ret)
{
        const struct cairn_landmark_layout *l = g->layout;
        const uint8_t *code_run = piece->code_run;
        float row[CAIRN_DIM_PADDED_MAX], scale;
        uint32_t dim = l->shape.v_dim;
        if (g->decodes_v && code_run) {
                const uint8_t *bytes = code_run + l->v_rows + (size_t)token * l->v_row_bytes;
                memcpy(&scale, code_run + l->v_row_scales + (size_t)token * 4, sizeof scale);
                g->kernels->decode((const int8_t *)bytes, scale, NULL, dim, g->out_dtype,
                                   g->streamed, ret);
        } else if (cairn_piece_is_raw(piece, l->shape.v_codec)) {
                write_raw(g, piece->v_raw, token, dim, ret);
        } else {
                (void)cairn_row_read_v(l, g->kernels, piece, token, row);
                cairn_row_to_raw(g->kernels, row, g->out_dtype, dim, ret);
        }
}

static void gather_init(struct gather *g, const struct cairn_landmark_layout *layout,
                        uint32_t n_positions, uint32_t out_dtype, const void *k, const void *v)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        uint32_t element = cairn_dtype_bytes(out_dtype);
        size_t bytes = (size_t)n_positions * (s->k_dim + s->v_dim) * element;
        uintptr_t bits = (uintptr_t)k | (uintptr_t)v | s->k_dim * element | s->v_dim * element;
        bool decodes = (out_dtype == CAIRN_DTYPE_F32 || out_dtype == CAIRN_DTYPE_F16 ||
                        out_dtype == CAIRN_DTYPE_BF16) &&
                       bits % element == 0;
        g->layout = layout;
        g->kernels = cairn_kernels_chosen();
        g->run_piece = UINT32_MAX;
        g->reader.layout = layout;
        g->reader.kernels = g->kernels;
        g->reader.code_run = NULL;
        g->centre_piece = NULL;
        g->out_dtype = out_dtype;
        g->decodes_k = decodes && s->k_codec == CAIRN_ROW_Q8 && s->k_dim % CAIRN_LANES == 0;
        g->decodes_v = decodes && s->v_codec == CAIRN_ROW_Q8 && s->v_dim % CAIRN_LANES == 0;
        g->streamed = bytes >= STREAM_BYTES_MIN && bits % CAIRN_STREAM_ALIGN == 0;
}

// Seeks a row and prefetches it.
static int find_row(struct gather *g, uint32_t position, bool k, bool v)
{
        const struct cairn_landmark_shape *s = &g->layout->shape;
        if (!cairn_cursor_seek(&g->cursor, position))
                return CAIRN_ENOENT;
        const struct cairn_landmark_piece *piece = &g->cursor.pieces[g->cursor.piece];
        uint32_t token = g->cursor.token;
        if ((k && cairn_piece_is_raw(piece, s->k_codec) && !piece->k_raw) ||
            (v && cairn_piece_is_raw(piece, s->v_codec) && !piece->v_raw))
                return CAIRN_ENOENT;
        if (k)
                cairn_prefetch_k(g->layout, piece, token);
        if (k && (g->cursor.piece != g->run_piece || token - g->run_first >= s->run_tokens)) {
                g->run_piece = g->cursor.piece;
                g->run_first = token / s->run_tokens * s->run_tokens;
                cairn_prefetch_centre(g->layout, piece, token);
        }
        if (v)
                cairn_prefetch_v(g->layout, piece, token);
        return CAIRN_OK;
}

int cairn_landmark_gather(const struct cairn_landmark_layout *layout,
                          const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                          const uint32_t *positions, uint32_t n_positions, uint32_t out_dtype,
                          void *ret_k, void *ret_v)
{
        struct cairn_cursor found[FOUND_MAX];
        size_t out_k = (size_t)layout->shape.k_dim * cairn_dtype_bytes(out_dtype);
        size_t out_v = (size_t)layout->shape.v_dim * cairn_dtype_bytes(out_dtype);
        struct gather g;
        int status = CAIRN_OK;
        if (out_k == 0)
                return CAIRN_EINVAL;
        ret_v = layout->shape.v_dim ? ret_v : NULL;
        gather_init(&g, layout, n_positions, out_dtype, ret_k, ret_v);
        g.cursor = (struct cairn_cursor){.pieces = pieces, .n_pieces = n_pieces};
        for (uint32_t ahead = 0; ahead < n_positions + PREFETCH_AHEAD; ahead++) {
                if (ahead < n_positions) {
                        status = find_row(&g, positions[ahead], ret_k, ret_v);
                        if (status != CAIRN_OK)
                                break;
                        found[ahead % FOUND_MAX] = g.cursor;
                }
                if (ahead < PREFETCH_AHEAD)
                        continue;
                uint32_t i = ahead - PREFETCH_AHEAD;
                const struct cairn_cursor *row = &found[i % FOUND_MAX];
                if (ret_k)
                        write_k(&g, &pieces[row->piece], row->token, (uint8_t *)ret_k + i * out_k);
                if (ret_v)
                        write_v(&g, &pieces[row->piece], row->token, (uint8_t *)ret_v + i * out_v);
        }
        g.kernels->fence();
        return status;
}
