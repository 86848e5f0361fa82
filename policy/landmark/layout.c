// Where each part of a code run lies. README.md shows the bytes.
#include <assert.h>
#include <string.h>

#include "policy/landmark/internal.h"
#include "proto/status.h"

static_assert(CAIRN_GROUP_TOKENS == 32 && CAIRN_GRID_POINTS == 16, "the format's constants");
static_assert(CAIRN_VALUE_BLOCK_BYTES == CAIRN_GROUP_TOKENS * CAIRN_VALUE_BLOCK_SUBS / 2,
              "a value block holds its sub-quantizers as nibbles");
static_assert(CAIRN_Q4_GROUP_BYTES == 2 + CAIRN_Q4_GROUP / 2, "an fp16 scale and nibbles");

void cairn_landmark_shape_from_space(const struct cairn_space *space,
                                     struct cairn_landmark_shape *ret_shape)
{
        *ret_shape = (struct cairn_landmark_shape){
            .k_dim = space->k_dim,
            .v_dim = space->v_dim,
            .block_tokens = space->block_tokens,
            .dtype = space->dtype,
            .run_tokens = space->run_tokens,
            .landmark_bits = space->landmark_bits,
            .outliers = space->outliers,
            .value_bits = space->value_bits,
            .k_codec = space->k_codec,
            .v_codec = space->v_codec,
            .v_prefix = space->v_prefix,
        };
}

static bool shape_is_valid(const struct cairn_landmark_shape *s)
{
        bool landmark_ok = s->landmark_bits == 0 || s->landmark_bits == 1 ||
                           s->landmark_bits == 2 || s->landmark_bits == 4 || s->landmark_bits == 8;
        bool value_ok = s->value_bits == 0 || s->value_bits == 2 || s->value_bits == 4;
        bool run_ok = s->run_tokens <= CAIRN_RUN_TOKENS_MAX &&
                      (s->run_tokens >= s->block_tokens || s->run_tokens % CAIRN_GROUP_TOKENS == 0);
        return s->k_dim >= 1 && s->k_dim <= CAIRN_DIM_MAX && s->v_dim <= CAIRN_DIM_MAX &&
               s->v_prefix <= s->k_dim && (s->v_prefix == 0 || s->v_dim == 0) &&
               s->block_tokens >= 1 && s->block_tokens <= CAIRN_BLOCK_TOKENS_MAX &&
               cairn_dtype_bytes(s->dtype) > 0 && landmark_ok && value_ok && run_ok &&
               s->outliers <= CAIRN_LANDMARK_OUTLIERS_MAX && s->k_codec <= CAIRN_ROW_NONE &&
               s->v_codec <= CAIRN_ROW_NONE;
}

static void drop_unused(struct cairn_landmark_shape *s)
{
        if (s->landmark_bits == 0 || s->landmark_bits == 8)
                s->outliers = 0;
        if (s->outliers > s->k_dim)
                s->outliers = s->k_dim;
        if (s->v_dim == 0 && s->v_prefix == 0)
                s->value_bits = 0;
}

// Takes `bytes` at the end of what `total` counts; absent when there are none.
static uint32_t take(uint32_t *total, uint32_t bytes)
{
        if (bytes == 0)
                return CAIRN_LANDMARK_NONE;
        uint32_t offset = *total;
        *total += cairn_round_up(bytes, CAIRN_LANDMARK_ALIGN);
        return offset;
}

static uint32_t row_bytes(uint32_t codec, uint32_t dim)
{
        if (codec == CAIRN_ROW_Q8)
                return cairn_round_up(dim, CAIRN_LANES);
        if (codec == CAIRN_ROW_Q4)
                return cairn_round_up(dim, CAIRN_Q4_GROUP) / CAIRN_Q4_GROUP * CAIRN_Q4_GROUP_BYTES;
        return 0;
}

static void place(struct cairn_landmark_layout *l)
{
        const struct cairn_landmark_shape *s = &l->shape;
        uint32_t slots = cairn_round_up(s->block_tokens, CAIRN_GROUP_TOKENS), total = 0;
        uint32_t bits = s->landmark_bits, element = cairn_dtype_bytes(s->dtype);
        uint32_t code_bytes =
            bits == 8 ? cairn_round_up(s->k_dim, CAIRN_LANES) : l->code_dim * bits / 8;
        uint32_t channels = cairn_round_up(s->outliers, 2);
        bool centred = bits != 0 || s->k_codec == CAIRN_ROW_Q8 || s->k_codec == CAIRN_ROW_Q4 ||
                       (s->v_prefix && s->value_bits);
        l->codes = take(&total, slots * code_bytes);
        l->scales = take(&total, bits ? slots * 2 : 0);
        l->outlier_rows = take(&total, slots * channels);
        l->centres = take(&total, centred ? l->runs * cairn_round_up(s->k_dim, CAIRN_LANES) : 0);
        l->run_heads = take(&total, centred ? l->runs * cairn_run_head_bytes(s) : 0);
        l->value_codes = take(&total, slots * l->value_dim * s->value_bits / 8);
        l->value_scales = take(&total, s->value_bits ? slots * 2 : 0);
        l->resident_bytes = total;
        l->k_row_bytes = row_bytes(s->k_codec, s->k_dim);
        l->v_row_bytes = row_bytes(s->v_codec, s->v_dim);
        l->k_rows = take(&total, slots * l->k_row_bytes);
        l->k_row_scales = take(&total, s->k_codec == CAIRN_ROW_Q8 ? slots * 4 : 0);
        l->v_rows = take(&total, slots * l->v_row_bytes);
        l->v_row_scales = take(&total, s->v_codec == CAIRN_ROW_Q8 && s->v_dim ? slots * 4 : 0);
        l->total_bytes = total;
        l->raw_k_bytes = s->block_tokens * s->k_dim * element;
        l->raw_bytes = l->raw_k_bytes + s->block_tokens * s->v_dim * element;
}

int cairn_landmark_layout_init(const struct cairn_landmark_shape *shape,
                               struct cairn_landmark_layout *ret_layout)
{
        struct cairn_landmark_layout layout = {.shape = *shape};
        if (layout.shape.run_tokens == 0)
                layout.shape.run_tokens = CAIRN_LANDMARK_RUN_TOKENS;
        if (layout.shape.run_tokens > layout.shape.block_tokens)
                layout.shape.run_tokens = layout.shape.block_tokens;
        if (!shape_is_valid(&layout.shape))
                return CAIRN_EINVAL;
        drop_unused(&layout.shape);
        const struct cairn_landmark_shape *s = &layout.shape;
        layout.runs = (s->block_tokens + s->run_tokens - 1) / s->run_tokens;
        layout.code_dim = cairn_round_up(s->k_dim, 8);
        layout.value_dim = s->value_bits ? cairn_round_up(cairn_landmark_out_dim(&layout), 32) : 0;
        place(&layout);
        *ret_layout = layout;
        return CAIRN_OK;
}
