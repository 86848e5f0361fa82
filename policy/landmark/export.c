// Landmarks laid out for another memory; the bytes are in export.h.
#include "policy/landmark/export.h"

#include <assert.h>

#include "policy/landmark/internal.h"
#include "proto/status.h"

static uint64_t align(uint64_t at)
{
        return (at + 63) & ~63ull;
}

int cairn_landmark_export_plan(const struct cairn_landmark_layout *layout, uint32_t kv_heads,
                               uint64_t tokens, struct cairn_landmark_export *ret_plan)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        struct cairn_landmark_export p = {.tokens = tokens, .kv_heads = kv_heads};
        uint64_t row_bytes = (uint64_t)s->k_dim * cairn_dtype_bytes(s->dtype);

        if (s->landmark_bits == 0)
                return CAIRN_EUNSUPPORTED;
        p.blocks = (uint32_t)(tokens / s->block_tokens);
        p.tail_tokens = (uint32_t)(tokens % s->block_tokens);
        p.block_bytes = layout->value_codes == CAIRN_LANDMARK_NONE ? layout->resident_bytes
                                                                   : layout->value_codes;
        p.words = (tokens + 63) / 64;
        p.present = align(CAIRN_EXPORT_SIGNS_AT + 2 * (uint64_t)layout->code_dim);
        p.landmarks = align(p.present + kv_heads * p.words * sizeof(uint64_t));
        p.tail = align(p.landmarks + (uint64_t)kv_heads * p.blocks * p.block_bytes);
        p.total_bytes = p.tail + kv_heads * p.tail_tokens * row_bytes;
        *ret_plan = p;
        return CAIRN_OK;
}

static void put_u32(uint8_t *bytes, uint32_t at, uint32_t x)
{
        memcpy(bytes + at, &x, sizeof(x));
}

static void put_u64(uint8_t *bytes, uint32_t at, uint64_t x)
{
        memcpy(bytes + at, &x, sizeof(x));
}

// The grid, and the signs.
static void put_code(const struct cairn_landmark_layout *layout, uint8_t *bytes)
{
        const struct cairn_grid *grid = cairn_grid_of(layout->shape.landmark_bits);
        struct cairn_grid_floats floats;
        struct cairn_rotation rotation;

        put_u32(bytes, 60, grid ? grid->dims : 0);
        if (!grid)
                return;
        cairn_grid_expand(grid, &floats);
        static_assert(sizeof(floats.points) == CAIRN_EXPORT_SIGNS_AT - CAIRN_EXPORT_GRID_AT,
                      "the grid's place");
        memcpy(bytes + CAIRN_EXPORT_GRID_AT, floats.points, sizeof(floats.points));
        cairn_rotation_init(&rotation, layout->code_dim);
        for (uint32_t pass = 0; pass < 2; pass++)
                for (uint32_t j = 0; j < layout->code_dim; j++)
                        bytes[CAIRN_EXPORT_SIGNS_AT + pass * layout->code_dim + j] =
                            rotation.signs[pass][j] < 0 ? 0xff : 1;
}

void cairn_landmark_export_header(const struct cairn_landmark_layout *layout,
                                  const struct cairn_landmark_export *plan, uint8_t *ret_bytes)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        const uint32_t fields[] = {
            plan->kv_heads,    s->k_dim,          s->block_tokens,
            s->run_tokens,     s->landmark_bits,  cairn_outlier_channels(s),
            layout->code_dim,  layout->runs,      plan->blocks,
            plan->tail_tokens, s->dtype,          0,
            layout->codes,     layout->scales,    layout->outlier_rows,
            layout->centres,   layout->run_heads, plan->block_bytes,
        };

        memset(ret_bytes, 0, plan->present);
        memcpy(ret_bytes, "CAIRNLM1", 8);
        put_u64(ret_bytes, 8, plan->tokens);
        for (uint32_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                put_u32(ret_bytes, 16 + 4 * i, fields[i]);
        put_u64(ret_bytes, 88, plan->present);
        put_u64(ret_bytes, 96, plan->landmarks);
        put_u64(ret_bytes, 104, plan->tail);
        put_u64(ret_bytes, 112, plan->total_bytes);
        put_code(layout, ret_bytes);
}

void cairn_landmark_export_head(const struct cairn_landmark_layout *layout,
                                const struct cairn_landmark_export *plan, uint32_t head,
                                const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                                const uint64_t *present, uint64_t present_end, uint8_t *ret_bytes)
{
        uint64_t row_bytes = (uint64_t)layout->shape.k_dim * cairn_dtype_bytes(layout->shape.dtype);
        uint8_t *bits = ret_bytes + plan->present + head * plan->words * sizeof(uint64_t);
        uint8_t *to =
            ret_bytes + plan->landmarks + (uint64_t)head * plan->blocks * plan->block_bytes;

        assert(n_pieces == plan->blocks + (plan->tail_tokens > 0));
        for (uint64_t word = 0; word < plan->words; word++) {
                uint64_t first = word * 64;
                uint64_t value = present && first < present_end ? present[word] : UINT64_MAX;

                if (present && first < present_end && present_end - first < 64)
                        value |= UINT64_MAX << (present_end - first);
                if (plan->tokens - first < 64)
                        value &= ~(UINT64_MAX << (plan->tokens - first));
                memcpy(bits + word * sizeof(value), &value, sizeof(value));
        }
        for (uint32_t i = 0; i < plan->blocks; i++, to += plan->block_bytes)
                memcpy(to, pieces[i].code_run, plan->block_bytes);
        if (plan->tail_tokens > 0)
                memcpy(ret_bytes + plan->tail + head * plan->tail_tokens * row_bytes,
                       pieces[plan->blocks].k_raw, plan->tail_tokens * row_bytes);
}
