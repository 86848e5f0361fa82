// Scores tokens by their codes, a run at a time, while the codes of the run behind it come from
// memory. A core has room for some twenty lines under way: asking for a run's lines all at once
// would stall it, so they are asked for a few at a time, in all parts of the work.
#include "policy/landmark/selection.h"

// Four query rows at a time.
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t v4i __attribute__((vector_size(16), aligned(4), may_alias));

// Weights of a run's outlier channels for four queries, given by element (cairn_query.turned), as
// bytes whose sizes add up to less than the kernels' limit: [4][channels].
static void outlier_weights(const struct cairn_run_head *head, const float *turned,
                            int8_t *ret_weights, float *ret_units)
{
        v4 weights[CAIRN_LANDMARK_OUTLIERS_MAX], total = {0};
        uint32_t channels = head->channels;
        for (uint32_t c = 0; c < channels; c++) {
                weights[c] = *(const v4 *)(turned + (size_t)head->indices[c] * CAIRN_BATCH);
                weights[c] = weights[c] * head->scales[c];
                total = total + (v4)((v4i)weights[c] & INT32_MAX);
        }
        v4i any = (total > 1e-30f) & (total <= FLT_MAX);
        v4 sane = (v4)((v4i)total & any) + (v4)(~any & 0x3f800000); // 1 where there is none
        float room = (float)(CAIRN_OUTLIER_WEIGHTS_MAX - 2) - (float)channels * 0.5f;
        v4 inverse = (v4)((v4i)(room / sane) & any);
        *(v4 *)ret_units = (v4)((v4i)(total / room) & any);
        for (uint32_t c = 0; c < channels; c += 2) {              // two bytes of a query at a time
                v4 low = (v4)((v4i)(weights[c] * inverse) & any); // else NaN, or not finite
                v4 high = (v4)((v4i)(weights[c + 1] * inverse) & any);
                v4i bytes = ((v4i)(low + 12582912.0f) - 0x4b400000) & 255;
                bytes |= ((v4i)(high + 12582912.0f) - 0x4b400000) << 8;
                for (uint32_t q = 0; q < CAIRN_BATCH; q++) {
                        uint16_t both = (uint16_t)bytes[q];
                        memcpy(ret_weights + q * channels + c, &both, sizeof both);
                }
        }
}

void cairn_run_means(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const uint8_t *code_run, uint32_t run, float *ret_mean, uint32_t stride)
{
        uint32_t bytes = cairn_run_head_bytes(&layout->shape);
        float means[CAIRN_GROUP_MAX], scale;
        memcpy(&scale, code_run + layout->run_heads + (size_t)run * bytes, sizeof scale);
        kernels->centre_dots((const int8_t *)code_run + layout->centres +
                                 (size_t)run * query->padded,
                             scale, query->padded, query->rows, query->n, means);
        for (uint32_t q = 0; q < query->n; q++)
                ret_mean[(size_t)q * stride] = means[q];
}

// ---- What is read next ----

// The next run: its codes, what lies beside them.
struct ahead {
        const uint8_t *codes; // NULL: there is none
        uint32_t code_bytes;
        const uint8_t *outliers;
        uint32_t outlier_bytes;
};

// The part-th of so many parts of some bytes.
static void prefetch_part(const uint8_t *at, uint32_t bytes, uint32_t part, uint32_t parts)
{
        uint32_t lines = (bytes + 63) / 64;
        for (uint32_t i = lines * part / parts; i < lines * (part + 1) / parts; i++)
                __builtin_prefetch(at + (size_t)i * 64);
}

// Where the next run lies; what is small of it is prefetched at once.
static struct ahead look_ahead(const struct cairn_landmark_layout *layout, uint32_t columns,
                               const uint8_t *code_run, uint32_t run)
{
        uint32_t run_tokens = layout->shape.run_tokens, first = run * run_tokens;
        uint32_t channels = cairn_outlier_channels(&layout->shape);
        prefetch_part(code_run + layout->scales + (size_t)first * 2, run_tokens * 2, 0, 1);
        prefetch_part(code_run + layout->centres +
                          (size_t)run * cairn_round_up(layout->shape.k_dim, CAIRN_LANES),
                      layout->shape.k_dim, 0, 1);
        __builtin_prefetch(code_run + layout->run_heads +
                           run * cairn_run_head_bytes(&layout->shape));
        return (struct ahead){
            .codes = code_run + layout->codes + (size_t)first * columns,
            .code_bytes = run_tokens * columns,
            .outliers = code_run + layout->outlier_rows + (size_t)first * channels,
            .outlier_bytes = run_tokens * channels,
        };
}

// ---- The scan ----

void cairn_scan_codes(const struct cairn_landmark_layout *layout,
                      const struct cairn_kernels *kernels, const struct cairn_query *query,
                      const uint8_t *code_run, uint32_t run, uint32_t n_tokens, const uint8_t *next,
                      float *ret_scores, uint64_t score_stride,
                      const struct cairn_run_records *records)
{
        uint16_t sums[CAIRN_BATCH * CAIRN_RUN_TOKENS_MAX];
        int16_t outliers[CAIRN_RUN_TOKENS_MAX];
        int8_t weights[CAIRN_BATCH * CAIRN_LANDMARK_OUTLIERS_MAX];
        float units[CAIRN_BATCH], scales[CAIRN_RUN_TOKENS_MAX];
        uint32_t first = run * layout->shape.run_tokens, columns = query->subs / 2;
        uint32_t groups = cairn_round_up(n_tokens, CAIRN_GROUP_TOKENS) / CAIRN_GROUP_TOKENS;
        struct cairn_run_head head;
        struct ahead ahead = {0};
        cairn_run_head_read(layout, kernels, code_run, run, &head);
        if (next)
                ahead = look_ahead(layout, columns, next, next != code_run ? 0 : run + 1);
        cairn_run_means(layout, kernels, query, code_run, run, records->mean, records->stride);
        const uint8_t *codes = code_run + layout->codes + (size_t)first * columns;
        const uint8_t *rows = code_run + layout->outlier_rows + (size_t)first * head.channels;
        kernels->halves((const uint16_t *)(const void *)(code_run + layout->scales +
                                                         (size_t)first * 2),
                        groups * CAIRN_GROUP_TOKENS, scales);
        for (uint32_t q = 0; q < query->n; q++) {
                uint32_t i = q % CAIRN_BATCH, n = cairn_min_u32(query->n - q, CAIRN_BATCH);
                size_t record = (size_t)q * records->stride;
                if (i == 0) {
                        kernels->table_sums(
                            codes, columns, groups,
                            query->tables + (size_t)q * query->subs * CAIRN_GRID_POINTS, n, sums,
                            CAIRN_RUN_TOKENS_MAX, q == 0 ? ahead.codes : NULL);
                        outlier_weights(&head, query->turned + (size_t)q * query->padded, weights,
                                        units);
                }
                if (ahead.codes) { // table_sums has asked for one half of the codes
                        prefetch_part(ahead.codes + ahead.code_bytes / 2, ahead.code_bytes / 2, q,
                                      query->n);
                        prefetch_part(ahead.outliers, ahead.outlier_bytes, q, query->n);
                }
                if (head.channels)
                        kernels->outlier_sums(rows, head.channels / 2, groups,
                                              weights + (size_t)i * head.channels, 1, outliers,
                                              CAIRN_RUN_TOKENS_MAX);
                struct cairn_score_terms terms = {
                    .unit = query->table_units[q],
                    .base = query->table_bases[q],
                    .outlier_unit = units[i],
                    .mean = records->mean[record],
                };
                records->max[record] =
                    kernels->finish(sums + i * CAIRN_RUN_TOKENS_MAX,
                                    head.channels ? outliers : NULL, scales, groups, &terms,
                                    ret_scores + q * score_stride);
        }
        if (records->sum)
                kernels->exp_sums(ret_scores, score_stride, query->n, groups * CAIRN_GROUP_TOKENS,
                                  records->max, records->sum, records->stride);
}
