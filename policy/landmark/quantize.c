// Encode: what a head block's rows become, once, when they are put.
//
// For each run: centre, outlier channels, then token by token rotate, code and scale. An outlier
// channel's byte holds what the decoded code leaves of that channel, so that the sum of both is the
// channel itself and queries need no change a run.
#include <assert.h>

#include "policy/landmark/internal.h"
#include "proto/status.h"

// The scratch of one encode, and what all its runs share.
struct encoder {
        const struct cairn_landmark_layout *layout;
        const struct cairn_kernels *kernels;
        uint8_t *out;
        float *rows;   // [run_tokens][padded]
        float *saved;  // [run_tokens][channels] outlier channels, then what the codes leave of them
        float *centre; // [padded]
        float *energy; // [padded]
        float *work;   // one vector
        float *points; // one vector
        float *coded;  // one vector
        uint8_t *codes;
        bool *finite; // [run_tokens]
        struct cairn_rotation *key_rotation;
        struct cairn_rotation *value_rotation;
        struct cairn_grid_floats key_grid;
        struct cairn_grid_floats value_grid;
        uint32_t padded; // k_dim to a multiple of 16
};

static size_t carve(struct encoder *e, const struct cairn_landmark_layout *layout, void *base)
{
        struct cairn_scratch scratch = {.base = base};
        uint32_t tokens = layout->shape.run_tokens;
        size_t vector = CAIRN_DIM_PADDED_MAX * sizeof(float);
        e->padded = cairn_round_up(layout->shape.k_dim, CAIRN_LANES);
        e->rows = cairn_scratch_take(&scratch, (size_t)tokens * e->padded * sizeof(float));
        e->saved = cairn_scratch_take(&scratch,
                                      (size_t)tokens * CAIRN_LANDMARK_OUTLIERS_MAX * sizeof(float));
        e->centre = cairn_scratch_take(&scratch, vector);
        e->energy = cairn_scratch_take(&scratch, vector);
        e->work = cairn_scratch_take(&scratch, vector);
        e->points = cairn_scratch_take(&scratch, vector);
        e->coded = cairn_scratch_take(&scratch, vector);
        e->codes = cairn_scratch_take(&scratch, CAIRN_DIM_PADDED_MAX);
        e->finite = cairn_scratch_take(&scratch, tokens);
        e->key_rotation = cairn_scratch_take(&scratch, sizeof(struct cairn_rotation));
        e->value_rotation = cairn_scratch_take(&scratch, sizeof(struct cairn_rotation));
        return scratch.used;
}

size_t cairn_landmark_encode_scratch_bytes(const struct cairn_landmark_layout *layout)
{
        struct encoder e;
        return carve(&e, layout, NULL);
}

static void put_half(uint8_t *out, uint32_t offset, uint32_t index, uint16_t half)
{
        memcpy(out + offset + (size_t)index * 2, &half, 2);
}

static void put_float(uint8_t *out, uint32_t offset, uint32_t index, float x)
{
        memcpy(out + offset + (size_t)index * 4, &x, 4);
}

// ---- Centre ----

// The mean of the run's finite rows, as bytes i that stand for i * |i| * scale, so that channels of
// small means keep theirs beside a channel of a huge one (key biases).
static void find_centre(struct encoder *e, uint32_t run, uint32_t n, struct cairn_run_head *head)
{
        uint32_t finite = 0, padded = e->padded;
        int8_t *bytes = (int8_t *)e->out + e->layout->centres + run * padded;
        float largest = 0;
        memset(e->centre, 0, padded * sizeof(float));
        for (uint32_t t = 0; t < n; t++)
                finite += e->finite[t];
        for (uint32_t t = 0; t < n && finite && !e->layout->shape.uncentred; t++)
                e->kernels->axpy(e->rows + (size_t)t * padded, 1.0f / (float)finite, padded,
                                 e->centre);
        for (uint32_t j = 0; j < padded; j++)
                largest = fabsf(e->centre[j]) > largest ? fabsf(e->centre[j]) : largest;
        head->centre_scale = largest > 1e-30f ? largest / (CAIRN_CENTRE_MAX * CAIRN_CENTRE_MAX) : 0;
        for (uint32_t j = 0; j < padded; j++) {
                float size = largest > 1e-30f ? sqrtf(fabsf(e->centre[j]) / largest) : 0;
                int32_t i = cairn_round(size * CAIRN_CENTRE_MAX);
                bytes[j] = (int8_t)(e->centre[j] < 0 ? -i : i);
        }
}

static void subtract_centre(struct encoder *e, uint32_t run, uint32_t n)
{
        cairn_centre_read(e->layout, e->kernels, e->out, run, e->centre);
        for (uint32_t t = 0; t < n; t++)
                if (e->finite[t])
                        e->kernels->axpy(e->centre, -1.0f, e->padded,
                                         e->rows + (size_t)t * e->padded);
}

// ---- Outlier channels ----

// The channels of largest energy in descending order; ties: the lower channel.
static void find_outliers(struct encoder *e, uint32_t n, struct cairn_run_head *head)
{
        uint32_t k_dim = e->layout->shape.k_dim, outliers = e->layout->shape.outliers;
        memset(e->energy, 0, e->padded * sizeof(float));
        for (uint32_t t = 0; t < n; t++) {
                const float *row = e->rows + (size_t)t * e->padded;
                e->kernels->add_squares(row, e->padded, e->energy);
        }
        head->channels = cairn_outlier_channels(&e->layout->shape);
        for (uint32_t c = 0; c < head->channels; c++) {
                head->indices[c] = 0;
                head->scales[c] = 0;
                if (c >= outliers)
                        continue;
                uint32_t best = 0;
                for (uint32_t j = 1; j < k_dim; j++)
                        best = e->energy[j] > e->energy[best] ? j : best;
                head->indices[c] = (uint16_t)best;
                e->energy[best] = -1;
        }
}

// Scales and bytes of the run's outlier channels from what the codes left of them (e->saved).
static void write_outliers(struct encoder *e, uint32_t run, uint32_t n, struct cairn_run_head *head)
{
        const struct cairn_landmark_layout *l = e->layout;
        uint32_t first = run * l->shape.run_tokens, pairs = head->channels / 2;
        for (uint32_t c = 0; c < l->shape.outliers; c++) {
                float largest = 0;
                for (uint32_t t = 0; t < n; t++) {
                        float size = fabsf(e->saved[t * CAIRN_LANDMARK_OUTLIERS_MAX + c]);
                        largest = size > largest ? size : largest;
                }
                float unit = largest * (1.0f / 127.0f);
                unit = unit < 65504.0f ? unit : 65504.0f;
                uint16_t half = cairn_half_from_float(unit);
                if (cairn_half_to_float(half) < unit)
                        half++;
                head->scales[c] = cairn_half_to_float(half);
                float inverse = head->scales[c] > 0 ? 1.0f / head->scales[c] : 0;
                for (uint32_t t = 0; t < n; t++) {
                        float x = e->saved[t * CAIRN_LANDMARK_OUTLIERS_MAX + c] * inverse;
                        x = x > 127 ? 127 : x < -127 ? -127 : x;
                        uint32_t slot = first + t, group = slot / CAIRN_GROUP_TOKENS;
                        uint32_t at = (group * pairs + c / 2) * CAIRN_GROUP_TOKENS * 2 +
                                      slot % CAIRN_GROUP_TOKENS * 2 + c % 2;
                        e->out[l->outlier_rows + at] = (uint8_t)(cairn_round(x) + 128);
                }
        }
}

// ---- Codes ----

// The fp16 scale that makes inner products with the code unbiased, |y|^2 / <y, points>: the code is
// a projection, and the least-squares scale would shrink every score by the grid's error. Zero for
// a zero row.
static uint16_t code_scale(const struct cairn_kernels *kernels, const float *y, const float *points,
                           uint32_t dim)
{
        uint32_t even = dim / CAIRN_LANES * CAIRN_LANES;
        float energy = kernels->dot(y, y, even), along = kernels->dot(y, points, even);
        for (uint32_t j = even; j < dim; j++) {
                energy = energy + y[j] * y[j];
                along = along + y[j] * points[j];
        }
        if (!(along > 0) || !(energy > 0))
                return 0;
        float scale = energy / along;
        return cairn_half_from_float(scale < 65504.0f ? scale : 65504.0f);
}

// 1 / root mean square of a vector; 0 for zeros.
static float inverse_rms(const struct cairn_kernels *kernels, const float *y, uint32_t dim)
{
        uint32_t even = dim / CAIRN_LANES * CAIRN_LANES;
        float energy = kernels->dot(y, y, even);
        for (uint32_t j = even; j < dim; j++)
                energy = energy + y[j] * y[j];
        return energy > 1e-30f ? sqrtf((float)dim / energy) : 0;
}

static void put_key_codes(struct encoder *e, uint32_t slot, uint32_t subs)
{
        uint8_t *at = e->out + e->layout->codes +
                      (size_t)(slot / CAIRN_GROUP_TOKENS) * subs / 2 * CAIRN_GROUP_TOKENS +
                      slot % CAIRN_GROUP_TOKENS;
        for (uint32_t j = 0; j < subs / 2; j++)
                at[(size_t)j * CAIRN_GROUP_TOKENS] =
                    (uint8_t)(e->codes[2 * j] | e->codes[2 * j + 1] << 4);
}

// Codes one centred key; its outlier channels are saved first and left with the remainder.
static void code_key(struct encoder *e, const struct cairn_run_head *head, uint32_t token,
                     uint32_t slot)
{
        const struct cairn_landmark_layout *l = e->layout;
        const float *row = e->rows + (size_t)token * e->padded;
        float *saved = e->saved + (size_t)token * CAIRN_LANDMARK_OUTLIERS_MAX;
        uint32_t dim = l->code_dim, outliers = l->shape.outliers;
        uint32_t subs = dim / e->key_grid.dims;
        memset(e->work, 0, dim * sizeof(float));
        memcpy(e->work, row, l->shape.k_dim * sizeof(float));
        for (uint32_t c = 0; c < outliers; c++) {
                saved[c] = row[head->indices[c]];
                e->work[head->indices[c]] = 0;
        }
        cairn_rotate(e->kernels, e->key_rotation, e->work);
        e->kernels->nearest(e->work, subs, inverse_rms(e->kernels, e->work, dim), &e->key_grid,
                            e->codes, e->points);
        uint16_t scale = code_scale(e->kernels, e->work, e->points, dim);
        put_key_codes(e, slot, subs);
        put_half(e->out, l->scales, slot, e->finite[token] ? scale : 0x7e00u);
        if (outliers == 0)
                return;
        cairn_rotate_back(e->kernels, e->key_rotation, e->points);
        float unit = cairn_half_to_float(scale);
        for (uint32_t c = 0; c < outliers; c++)
                saved[c] = saved[c] - e->points[head->indices[c]] * unit;
}

static void code_key_int8(struct encoder *e, uint32_t token, uint32_t slot)
{
        const struct cairn_landmark_layout *l = e->layout;
        int8_t *bytes = (int8_t *)e->out + l->codes + (size_t)slot * e->padded;
        float scale = e->kernels->to_int8(e->rows + (size_t)token * e->padded, e->padded, bytes);
        uint16_t half = cairn_half_from_float(scale < 65504.0f ? scale : 65504.0f);
        put_half(e->out, l->scales, slot, e->finite[token] ? half : 0x7e00u);
}

static void code_value(struct encoder *e, const float *value, uint32_t slot)
{
        const struct cairn_landmark_layout *l = e->layout;
        uint32_t dim = l->value_dim, subs = dim / e->value_grid.dims;
        uint8_t *group = e->out + l->value_codes +
                         (size_t)(slot / CAIRN_GROUP_TOKENS) * subs * CAIRN_GROUP_TOKENS / 2;
        memcpy(e->work, value, dim * sizeof(float));
        cairn_rotate(e->kernels, e->value_rotation, e->work);
        e->kernels->nearest(e->work, subs, inverse_rms(e->kernels, e->work, dim), &e->value_grid,
                            e->codes, e->points);
        put_half(e->out, l->value_scales, slot, code_scale(e->kernels, e->work, e->points, dim));
        for (uint32_t s = 0; s < subs; s += CAIRN_VALUE_BLOCK_SUBS) {
                uint8_t *to = group + cairn_value_code_offset(s, slot % CAIRN_GROUP_TOKENS);
                for (uint32_t c = 0; c < CAIRN_VALUE_BLOCK_SUBS / 2; c++)
                        to[2 * c] = (uint8_t)(e->codes[s + c] | e->codes[s + 8 + c] << 4);
        }
}

// The value of latent attention: the first dims of the centred key. The centre is added when values
// are summed, so that only what differs within the run is coded.
static void code_prefix(struct encoder *e, uint32_t token, uint32_t slot)
{
        const struct cairn_landmark_layout *l = e->layout;
        memset(e->coded, 0, l->value_dim * sizeof(float));
        memcpy(e->coded, e->rows + (size_t)token * e->padded, l->shape.v_prefix * sizeof(float));
        code_value(e, e->coded, slot);
}

// ---- Rows and runs ----

static void code_key_row(struct encoder *e, uint32_t token, uint32_t slot)
{
        const struct cairn_landmark_layout *l = e->layout;
        const float *row = e->rows + (size_t)token * e->padded;
        uint8_t *bytes = e->out + l->k_rows + (size_t)slot * l->k_row_bytes;
        if (l->shape.k_codec == CAIRN_ROW_Q4) {
                cairn_q4_encode(row, l->shape.k_dim, bytes);
                if (!e->finite[token])
                        put_half(bytes, 0, 0, 0x7e00u); // the first group's scale: NaN
        }
        if (l->shape.k_codec != CAIRN_ROW_Q8)
                return;
        float scale = e->kernels->to_int8(row, e->padded, (int8_t *)bytes);
        put_float(e->out, l->k_row_scales, slot, e->finite[token] ? scale : NAN);
}

static void encode_key_run(struct encoder *e, const uint8_t *k_rows, uint32_t run, uint32_t n)
{
        const struct cairn_landmark_layout *l = e->layout;
        uint32_t first = run * l->shape.run_tokens, bits = l->shape.landmark_bits;
        size_t raw_bytes = (size_t)l->shape.k_dim * cairn_dtype_bytes(l->shape.dtype);
        struct cairn_run_head head = {0};
        if (l->centres == CAIRN_LANDMARK_NONE)
                return;
        for (uint32_t t = 0; t < n; t++)
                e->finite[t] =
                    cairn_row_from_raw(e->kernels, k_rows + (first + t) * raw_bytes, l->shape.dtype,
                                       l->shape.k_dim, e->padded, e->rows + (size_t)t * e->padded);
        for (uint32_t t = 0; t < n; t++)
                if (!e->finite[t])
                        memset(e->rows + (size_t)t * e->padded, 0, e->padded * sizeof(float));
        find_centre(e, run, n, &head);
        cairn_run_head_write(l, e->out, run, &head);
        subtract_centre(e, run, n);
        find_outliers(e, n, &head);
        for (uint32_t t = 0; t < n; t++) {
                if (l->shape.v_prefix && l->shape.value_bits)
                        code_prefix(e, t, first + t);
                code_key_row(e, t, first + t);
                if (bits == 8)
                        code_key_int8(e, t, first + t);
                else if (bits)
                        code_key(e, &head, t, first + t);
        }
        if (l->shape.outliers)
                write_outliers(e, run, n, &head);
        cairn_run_head_write(l, e->out, run, &head);
}

static void encode_values(struct encoder *e, const uint8_t *v_rows, uint32_t n)
{
        const struct cairn_landmark_layout *l = e->layout;
        uint32_t v_dim = l->shape.v_dim;
        size_t raw_bytes = (size_t)v_dim * cairn_dtype_bytes(l->shape.dtype);
        uint32_t padded = cairn_round_up(v_dim, 32); // as value codes want it
        for (uint32_t t = 0; t < n; t++) {
                uint8_t *bytes = e->out + l->v_rows + (size_t)t * l->v_row_bytes;
                (void)cairn_row_from_raw(e->kernels, v_rows + t * raw_bytes, l->shape.dtype, v_dim,
                                         padded, e->coded); // non-finite counts as 0
                if (l->shape.v_codec == CAIRN_ROW_Q8)
                        put_float(e->out, l->v_row_scales, t,
                                  e->kernels->to_int8(e->coded, l->v_row_bytes, (int8_t *)bytes));
                if (l->shape.v_codec == CAIRN_ROW_Q4)
                        cairn_q4_encode(e->coded, v_dim, bytes);
                if (l->shape.value_bits)
                        code_value(e, e->coded, t);
        }
}

int cairn_landmark_encode(const struct cairn_landmark_layout *layout, const void *k_rows,
                          const void *v_rows, uint32_t n_tokens, void *ret_code_run, void *scratch)
{
        const struct cairn_landmark_shape *shape = &layout->shape;
        struct encoder e = {
            .layout = layout, .kernels = cairn_kernels_chosen(), .out = ret_code_run};
        bool values = shape->v_dim > 0 && (layout->v_row_bytes > 0 || shape->value_bits > 0);
        if (n_tokens < 1 || n_tokens > shape->block_tokens || !k_rows || (values && !v_rows))
                return CAIRN_EINVAL;
        (void)carve(&e, layout, scratch);
        cairn_rotation_init(e.key_rotation, layout->code_dim);
        if (cairn_grid_of(shape->landmark_bits))
                cairn_grid_expand(cairn_grid_of(shape->landmark_bits), &e.key_grid);
        if (cairn_grid_of(shape->value_bits))
                cairn_grid_expand(cairn_grid_of(shape->value_bits), &e.value_grid);
        if (layout->value_dim)
                cairn_rotation_init(e.value_rotation, layout->value_dim);
        memset(ret_code_run, 0, layout->total_bytes);
        for (uint32_t run = 0; run < layout->runs; run++) {
                uint32_t first = run * shape->run_tokens;
                if (first >= n_tokens)
                        break;
                encode_key_run(&e, k_rows, run, cairn_min_u32(n_tokens - first, shape->run_tokens));
        }
        if (values)
                encode_values(&e, v_rows, n_tokens);
        return CAIRN_OK;
}
