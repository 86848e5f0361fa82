// Offsets of a result's parts.
#include "proto/result.h"

#include "proto/limits.h"
#include "proto/space.h"
#include "proto/status.h"

#define TOTAL_BYTES_MAX (1ull << 62)

// Places a part of count[0] * .. * count[3] items at *total, rounded up to 64 bytes.
static int place(uint64_t *total, uint64_t item_bytes, const uint64_t counts[4],
                 uint64_t *ret_offset)
{
        uint64_t bytes = item_bytes;
        uint64_t at = (*total + 63) & ~63ull;

        for (int i = 0; i < 4; i++) {
                if (__builtin_mul_overflow(bytes, counts[i], &bytes))
                        return CAIRN_EINVAL;
        }
        if (bytes > TOTAL_BYTES_MAX || at > TOTAL_BYTES_MAX - bytes)
                return CAIRN_EINVAL;
        *ret_offset = at;
        *total = at + bytes;
        return CAIRN_OK;
}

static int place_if(bool wanted, uint64_t *total, uint64_t item_bytes, const uint64_t counts[4],
                    uint64_t *ret_offset)
{
        if (!wanted) {
                *ret_offset = UINT64_MAX;
                return CAIRN_OK;
        }
        return place(total, item_bytes, counts, ret_offset);
}

int cairn_result_layout(const struct cairn_result_shape *shape,
                        struct cairn_result_layout *ret_layout)
{
        const uint64_t ps = (uint64_t)shape->pairs * shape->steps;
        const uint64_t heads = shape->kv_heads;
        const uint64_t queries = shape->query_heads;
        const uint64_t item = cairn_dtype_bytes(shape->row_dtype);
        const uint64_t out_dim = shape->v_prefix ? shape->v_prefix : shape->v_dim;
        struct cairn_result_layout out = {0};
        const struct {
                bool wanted;
                uint64_t item_bytes;
                uint64_t counts[4];
                uint64_t *ret_offset;
        } parts[] = {
            {true, 4, {ps, heads, 1, 1}, &out.counts},
            {true, 4, {ps, heads, shape->k_max, 1}, &out.positions},
            {true, 4, {ps, heads, shape->k_max, 1}, &out.scores},
            {true, 4, {ps, queries, 2, 1}, &out.lse},
            {true, 4, {ps, queries, 1, 1}, &out.mass_error},
            {shape->attend, 4, {ps, queries, 1, 1}, &out.part_lse},
            {shape->attend, 4, {ps, queries, out_dim, 1}, &out.part_out},
            {shape->rest, 4, {ps, queries, 1, 1}, &out.rest_lse},
            {shape->rest, 4, {ps, queries, out_dim, 1}, &out.rest_out},
            {shape->rows, item, {ps, heads, shape->k_max, shape->k_dim}, &out.k_rows},
            {shape->rows, item, {ps, heads, shape->k_max, shape->v_dim}, &out.v_rows},
        };

        if (shape->rows && item == 0)
                return CAIRN_EINVAL;
        for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                int status = place_if(parts[i].wanted, &out.total_bytes, parts[i].item_bytes,
                                      parts[i].counts, parts[i].ret_offset);

                if (status != CAIRN_OK)
                        return status;
        }
        *ret_layout = out;
        return CAIRN_OK;
}

int cairn_retain_layout(uint32_t layers, uint32_t kv_heads, uint64_t kept,
                        struct cairn_retain_layout *ret_layout)
{
        const uint64_t heads[4] = {layers, kv_heads, 1, 1};
        const uint64_t positions[4] = {kept, 1, 1, 1};
        struct cairn_retain_layout out = {0};

        if (place(&out.total_bytes, 4, heads, &out.counts) != CAIRN_OK ||
            place(&out.total_bytes, 4, heads, &out.mass) != CAIRN_OK ||
            place(&out.total_bytes, 4, positions, &out.positions) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_layout = out;
        return CAIRN_OK;
}

int cairn_plan_layout(uint32_t layers, uint32_t kv_heads, struct cairn_plan_layout *ret_layout)
{
        const uint64_t heads[4] = {layers, kv_heads, 1, 1};
        const uint64_t points[4] = {layers, kv_heads, CAIRN_CURVE_POINTS, 1};
        struct cairn_plan_layout out = {0};

        if (place(&out.total_bytes, 4, heads, &out.needed) != CAIRN_OK ||
            place(&out.total_bytes, 4, heads, &out.protected_tokens) != CAIRN_OK ||
            place(&out.total_bytes, 4, heads, &out.mass_needed) != CAIRN_OK ||
            place(&out.total_bytes, 4, heads, &out.mass_protected) != CAIRN_OK ||
            place(&out.total_bytes, 4, points, &out.kept) != CAIRN_OK ||
            place(&out.total_bytes, 4, points, &out.mass) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_layout = out;
        return CAIRN_OK;
}
