// Gather: the rows at chosen positions, out of raw rows or row codecs, as a dtype.
#include "policy/landmark/selection.h"
#include "proto/status.h"

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

// Raw bytes to out_dtype.
static void write_raw(const struct cairn_landmark_shape *shape, const void *raw, uint32_t token,
                      uint32_t dim, uint32_t out_dtype, uint8_t *ret)
{
        float row[CAIRN_DIM_PADDED_MAX];
        size_t bytes = (size_t)dim * cairn_dtype_bytes(shape->dtype);
        const uint8_t *at = (const uint8_t *)raw + token * bytes;
        if (out_dtype == shape->dtype) {
                memcpy(ret, at, bytes);
                return;
        }
        cairn_row_exact(at, shape->dtype, dim, row);
        cairn_row_to_raw(row, out_dtype, dim, ret);
}

static void prefetch_rows(const struct cairn_landmark_layout *l,
                          const struct cairn_landmark_piece *piece, uint32_t token)
{
        const uint8_t *code_run = piece->code_run;
        if (!code_run)
                return;
        if (l->k_rows != CAIRN_LANDMARK_NONE)
                for (uint32_t at = 0; at < l->k_row_bytes; at += 64)
                        __builtin_prefetch(code_run + l->k_rows + (size_t)token * l->k_row_bytes +
                                           at);
        if (l->v_rows != CAIRN_LANDMARK_NONE)
                for (uint32_t at = 0; at < l->v_row_bytes; at += 64)
                        __builtin_prefetch(code_run + l->v_rows + (size_t)token * l->v_row_bytes +
                                           at);
}

int cairn_landmark_gather(const struct cairn_landmark_layout *layout,
                          const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                          const uint32_t *positions, uint32_t n_positions, uint32_t out_dtype,
                          void *ret_k, void *ret_v)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        struct cairn_cursor cursor = {.pieces = pieces, .n_pieces = n_pieces}, ahead = cursor;
        const struct cairn_kernels *kernels = cairn_kernels_chosen();
        struct cairn_row_reader reader = {.layout = layout, .kernels = kernels};
        size_t out_k = (size_t)s->k_dim * cairn_dtype_bytes(out_dtype);
        size_t out_v = (size_t)s->v_dim * cairn_dtype_bytes(out_dtype);
        float row[CAIRN_DIM_PADDED_MAX];
        if (out_k == 0)
                return CAIRN_EINVAL;
        for (uint32_t i = 0; i < n_positions; i++) {
                if (i + 8 < n_positions && cairn_cursor_seek(&ahead, positions[i + 8]))
                        prefetch_rows(layout, &pieces[ahead.piece], ahead.token);
                if (!cairn_cursor_seek(&cursor, positions[i]))
                        return CAIRN_ENOENT;
                const struct cairn_landmark_piece *piece = &pieces[cursor.piece];
                bool raw_k = cairn_piece_is_raw(piece, s->k_codec),
                     raw_v = cairn_piece_is_raw(piece, s->v_codec);
                if ((ret_k && raw_k && !piece->k_raw) ||
                    (ret_v && s->v_dim && raw_v && !piece->v_raw))
                        return CAIRN_ENOENT;
                if (ret_k && raw_k)
                        write_raw(s, piece->k_raw, cursor.token, s->k_dim, out_dtype,
                                  (uint8_t *)ret_k + i * out_k);
                else if (ret_k) {
                        (void)cairn_row_read_k(&reader, piece, cursor.token, row); // NaN rows pass
                        cairn_row_to_raw(row, out_dtype, s->k_dim, (uint8_t *)ret_k + i * out_k);
                }
                if (ret_v && s->v_dim && raw_v)
                        write_raw(s, piece->v_raw, cursor.token, s->v_dim, out_dtype,
                                  (uint8_t *)ret_v + i * out_v);
                else if (ret_v && s->v_dim) {
                        (void)cairn_row_read_v(layout, kernels, piece, cursor.token, row);
                        cairn_row_to_raw(row, out_dtype, s->v_dim, (uint8_t *)ret_v + i * out_v);
                }
        }
        return CAIRN_OK;
}
