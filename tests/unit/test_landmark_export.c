// Exports: parts follow each other, presence is kept and padded, code runs are copied whole.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "policy/landmark/export.h"
#include "proto/status.h"

static struct cairn_landmark_layout layout_of(uint32_t bits)
{
        struct cairn_landmark_shape shape = {.k_dim = 40,
                                             .v_dim = 40,
                                             .block_tokens = 32,
                                             .dtype = CAIRN_DTYPE_F32,
                                             .landmark_bits = bits,
                                             .outliers = 2,
                                             .value_bits = 2,
                                             .k_codec = CAIRN_ROW_Q8,
                                             .v_codec = CAIRN_ROW_Q8};
        struct cairn_landmark_layout layout;

        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_OK);
        return layout;
}

static uint32_t u32_at(const uint8_t *bytes, uint32_t at)
{
        uint32_t x;

        memcpy(&x, bytes + at, sizeof(x));
        return x;
}

Test(landmark_export, parts_follow_each_other)
{
        struct cairn_landmark_layout layout = layout_of(2);
        struct cairn_landmark_export plan;

        cr_assert_eq(cairn_landmark_export_plan(&layout, 3, 100, &plan), CAIRN_OK);
        cr_assert_eq(plan.blocks, 3);
        cr_assert_eq(plan.tail_tokens, 4);
        cr_assert_eq(plan.block_bytes, layout.value_codes, "values stay behind");
        cr_assert_geq(plan.present, CAIRN_EXPORT_SIGNS_AT + 2 * layout.code_dim);
        cr_assert_geq(plan.landmarks, plan.present + 3 * 2 * 8);
        cr_assert_geq(plan.tail, plan.landmarks + 3 * 3 * plan.block_bytes);
        cr_assert_eq(plan.total_bytes, plan.tail + 3 * 4 * 40 * 4);
        cr_assert_eq((plan.present | plan.landmarks | plan.tail) % 64, 0);
        layout = layout_of(0);
        cr_assert_eq(cairn_landmark_export_plan(&layout, 3, 100, &plan), CAIRN_EUNSUPPORTED);
}

Test(landmark_export, every_byte_is_where_the_header_says)
{
        struct cairn_landmark_layout layout = layout_of(2);
        struct cairn_landmark_export plan;
        uint64_t dropped[2] = {~(1ull << 5), ~(1ull << 6)}; // tokens 5 and 70; 80 and on came later
        float tail[4 * 40];
        uint8_t *runs = malloc(3 * (size_t)layout.total_bytes);
        struct cairn_landmark_piece pieces[4];
        uint64_t bits[2];
        uint8_t *out;

        cr_assert_eq(cairn_landmark_export_plan(&layout, 2, 100, &plan), CAIRN_OK);
        out = aligned_alloc(64, (plan.total_bytes + 63) & ~63ull);
        memset(out, 0xcd, plan.total_bytes);
        for (uint32_t i = 0; i < 3 * layout.total_bytes; i++)
                runs[i] = (uint8_t)(i * 31 >> 3);
        for (uint32_t i = 0; i < 4 * 40; i++)
                tail[i] = (float)i;
        for (uint32_t i = 0; i < 4; i++)
                pieces[i] = (struct cairn_landmark_piece){
                    .code_run = i < 3 ? runs + (size_t)i * layout.total_bytes : NULL,
                    .k_raw = i < 3 ? NULL : tail,
                    .position = 32 * i,
                    .n_tokens = i < 3 ? 32 : 4};
        cairn_landmark_export_header(&layout, &plan, out);
        dropped[1] &= (1ull << 16) - 1; // what lies beyond the end is not read as presence
        for (uint32_t head = 0; head < 2; head++)
                cairn_landmark_export_head(&layout, &plan, head, pieces, 4, head ? dropped : NULL,
                                           80, out);
        cr_assert_eq(memcmp(out, "CAIRNLM1", 8), 0);
        cr_assert_eq(u32_at(out, 16), 2);
        cr_assert_eq(u32_at(out, 20), 40);
        cr_assert_eq(u32_at(out, 60), 2, "coordinates a nibble stands for");
        cr_assert_eq(u32_at(out, 84), plan.block_bytes);
        cr_assert_eq(u32_at(out, 112), plan.total_bytes);
        for (uint32_t i = 0; i < 2 * layout.code_dim; i++)
                cr_assert(out[CAIRN_EXPORT_SIGNS_AT + i] == 1 ||
                          out[CAIRN_EXPORT_SIGNS_AT + i] == 0xff);
        memcpy(bits, out + plan.present, sizeof(bits));
        cr_assert_eq(bits[0], UINT64_MAX);
        cr_assert_eq(bits[1], (1ull << 36) - 1);
        memcpy(bits, out + plan.present + sizeof(bits), sizeof(bits));
        cr_assert_eq(bits[0], ~(1ull << 5));
        cr_assert_eq(bits[1], ((1ull << 36) - 1) & ~(1ull << 6));
        for (uint32_t i = 0; i < 6; i++)
                cr_assert_eq(memcmp(out + plan.landmarks + (uint64_t)i * plan.block_bytes,
                                    pieces[i % 3].code_run, plan.block_bytes),
                             0);
        cr_assert_eq(memcmp(out + plan.tail + sizeof(tail), tail, sizeof(tail)), 0);
        free(out);
        free(runs);
}
