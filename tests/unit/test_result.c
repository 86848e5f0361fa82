// Results, checksums and statuses: layouts do not overlap, copies hash like wholes, every code has
// its words.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/checksum.h"
#include "proto/result.h"
#include "proto/space.h"
#include "proto/status.h"

Test(result, parts_follow_each_other_without_overlap)
{
        struct cairn_result_shape shape = {.pairs = 3,
                                           .steps = 2,
                                           .kv_heads = 3,
                                           .query_heads = 9,
                                           .k_max = 101,
                                           .k_dim = 64,
                                           .v_dim = 80,
                                           .row_dtype = CAIRN_DTYPE_F16,
                                           .attend = true,
                                           .rest = true,
                                           .rows = true};
        struct cairn_result_layout layout;

        cr_assert_eq(cairn_result_layout(&shape, &layout), CAIRN_OK);
        cr_assert_eq(layout.counts, 0);
        cr_assert_geq(layout.positions, layout.counts + 3 * 2 * 3 * 4);
        cr_assert_geq(layout.scores, layout.positions + 3 * 2 * 3 * 101 * 4);
        cr_assert_geq(layout.lse, layout.scores + 3 * 2 * 3 * 101 * 4);
        cr_assert_geq(layout.mass_error, layout.lse + 3 * 2 * 9 * 2 * 4);
        cr_assert_geq(layout.part_lse, layout.mass_error + 3 * 2 * 9 * 4);
        cr_assert_geq(layout.part_out, layout.part_lse + 3 * 2 * 9 * 4);
        cr_assert_geq(layout.rest_lse, layout.part_out + 3 * 2 * 9 * 80 * 4);
        cr_assert_geq(layout.rest_out, layout.rest_lse + 3 * 2 * 9 * 4);
        cr_assert_geq(layout.k_rows, layout.rest_out + 3 * 2 * 9 * 80 * 4);
        cr_assert_geq(layout.v_rows, layout.k_rows + 3 * 2 * 3 * 101 * 64 * 2);
        cr_assert_geq(layout.total_bytes, layout.v_rows + 3 * 2 * 3 * 101 * 80 * 2);
        cr_assert_eq(layout.v_rows % 64, 0);
        shape.v_dim = 0; // latent attention: outputs have the prefix's dims, and no V rows follow
        shape.v_prefix = 48;
        cr_assert_eq(cairn_result_layout(&shape, &layout), CAIRN_OK);
        cr_assert_geq(layout.rest_lse, layout.part_out + 3 * 2 * 9 * 48 * 4);
        cr_assert_geq(layout.k_rows, layout.rest_out + 3 * 2 * 9 * 48 * 4);
        cr_assert_lt(layout.k_rows, layout.rest_out + 3 * 2 * 9 * 48 * 4 + 64);
        cr_assert_lt(layout.total_bytes, layout.k_rows + 3 * 2 * 3 * 101 * 64 * 2 + 64);
}

Test(result, absent_parts_and_overflow)
{
        struct cairn_result_shape shape = {.pairs = 1, .steps = 1, .kv_heads = 1, .query_heads = 1};
        struct cairn_result_layout layout;

        cr_assert_eq(cairn_result_layout(&shape, &layout), CAIRN_OK);
        cr_assert_eq(layout.k_rows, UINT64_MAX);
        cr_assert_eq(layout.rest_out, UINT64_MAX);
        shape = (struct cairn_result_shape){.pairs = UINT32_MAX,
                                            .steps = UINT32_MAX,
                                            .kv_heads = UINT32_MAX,
                                            .query_heads = 1,
                                            .k_max = UINT32_MAX};
        cr_assert_eq(cairn_result_layout(&shape, &layout), CAIRN_EINVAL);
}

Test(result, parts_of_retain_and_plan)
{
        struct cairn_retain_layout retain;
        struct cairn_plan_layout plan;

        cr_assert_eq(cairn_retain_layout(3, 5, 17, &retain), CAIRN_OK);
        cr_assert_eq(retain.counts, 0);
        cr_assert_eq(retain.mass, 64);
        cr_assert_eq(retain.positions, 128);
        cr_assert_eq(retain.total_bytes, 128 + 17 * 4);
        cr_assert_eq(cairn_retain_layout(3, 5, UINT64_MAX / 2, &retain), CAIRN_EINVAL);
        cr_assert_eq(cairn_plan_layout(3, 5, &plan), CAIRN_OK);
        cr_assert_geq(plan.protected_tokens, plan.needed + 3 * 5 * 4);
        cr_assert_geq(plan.mass_needed, plan.protected_tokens + 3 * 5 * 4);
        cr_assert_geq(plan.mass_protected, plan.mass_needed + 3 * 5 * 4);
        cr_assert_geq(plan.kept, plan.mass_protected + 3 * 5 * 4);
        cr_assert_geq(plan.mass, plan.kept + 3 * 5 * 64 * 4);
        cr_assert_eq(plan.total_bytes, plan.mass + 3 * 5 * 64 * 4);
        cr_assert_eq(plan.mass % 64, 0);
}

Test(checksum, copy_hashes_like_the_whole)
{
        static uint8_t from[200000];
        static uint8_t to[200000];
        static const size_t sizes[] = {0, 1, 16, 17, 4096, 32768, 32769, 200000};

        for (size_t i = 0; i < sizeof(from); i++)
                from[i] = (uint8_t)(i * 7 + i / 251);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                struct cairn_checksum a;
                struct cairn_checksum b;

                cairn_checksum_of(from, sizes[i], &a);
                cairn_checksum_copy(to, from, sizes[i], &b);
                cr_assert(cairn_checksum_equal(&a, &b), "size %zu", sizes[i]);
                cr_assert_eq(memcmp(to, from, sizes[i]), 0);
        }
}

Test(status, every_code_has_name_text_and_remedy)
{
        for (int status = 0; status > -CAIRN_STATUS_COUNT; status--) {
                cr_assert(strncmp(cairn_status_name(status), "CAIRN_", 6) == 0, "%d", status);
                cr_assert_gt(strlen(cairn_status_text(status)), 3);
                cr_assert_gt(strlen(cairn_status_remedy(status)), 3);
        }
        cr_assert_str_eq(cairn_status_name(-CAIRN_STATUS_COUNT), "unknown status");
        cr_assert_str_eq(cairn_status_name(5), "unknown status");
}
