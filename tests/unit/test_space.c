// Spaces: every field is part of the fingerprint, wrong ones are refused by name.
#include <criterion/criterion.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/space.h"
#include "proto/status.h"

static struct cairn_space good(void)
{
        struct cairn_space space;

        cairn_space_defaults(&space);
        strcpy(space.model, "smollm2-135m");
        strcpy(space.revision, "q4_1");
        space.layers = 30;
        space.kv_heads = 3;
        space.k_dim = 64;
        space.v_dim = 64;
        return space;
}

Test(space, case_5_any_changed_field_changes_the_fingerprint)
{
        struct cairn_space base = good();
        struct cairn_space v[23];
        const size_t count = sizeof(v) / sizeof(v[0]);
        struct cairn_key prints[24];

        for (size_t i = 0; i < count; i++)
                v[i] = base;
        strcpy(v[0].model, "smollm2-135M");
        strcpy(v[1].revision, "q4_0");
        strcpy(v[2].layout, "lhkw");
        v[3].layers++;
        v[4].kv_heads++;
        v[5].k_dim++;
        v[6].v_dim++;
        v[7].dtype = CAIRN_DTYPE_BF16;
        v[8].block_tokens = 128;
        v[9].cache_group++;
        v[10].tp_size = 2;
        v[11].tp_size = 2;
        v[11].tp_rank = 1;
        v[12].rope = CAIRN_ROPE_NOT_APPLIED;
        v[13].landmark_bits = 4;
        v[14].outliers = 4;
        v[15].run_tokens = 64;
        v[16].value_bits = 4;
        v[17].k_codec = CAIRN_ROW_RAW;
        v[18].v_codec = CAIRN_ROW_Q4;
        v[19].shared = 1;
        v[20].v_dim = 0;
        v[21].v_dim = 0;
        v[21].v_prefix = 48;
        v[22].v_dim = 0;
        v[22].v_prefix = 64;
        cairn_space_fingerprint(&base, &prints[count]);
        for (size_t i = 0; i < count; i++) {
                cr_assert_eq(cairn_space_check(&v[i], NULL, 0), CAIRN_OK, "variant %zu", i);
                cairn_space_fingerprint(&v[i], &prints[i]);
        }
        for (size_t i = 0; i <= count; i++) {
                for (size_t j = i + 1; j <= count; j++)
                        cr_assert_not(cairn_key_equal(&prints[i], &prints[j]), "%zu, %zu", i, j);
        }
}

Test(space, refusals_name_the_field)
{
        static const char *const fields[] = {"layers",        "kv_heads",      "k_dim",
                                             "dtype",         "block_tokens",  "tp_rank",
                                             "landmark_bits", "run_tokens",    "model",
                                             "outliers",      "value_bits",    "shared",
                                             "v_prefix",      "leave v_dim 0", "block_bytes"};
        char text[256];

        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
                struct cairn_space space = good();

                switch (i) {
                case 0: space.layers = 0; break;
                case 1: space.kv_heads = CAIRN_KV_HEADS_MAX + 1; break;
                case 2: space.k_dim = CAIRN_DIM_MAX + 1; break;
                case 3: space.dtype = 9; break;
                case 4: space.block_tokens = 0; break;
                case 5: space.tp_rank = 1; break;
                case 6: space.landmark_bits = 3; break;
                case 7: space.run_tokens = 100; break;
                case 8: space.model[0] = '\0'; break;
                case 9: space.outliers = 17; break;
                case 10: space.value_bits = 1; break;
                case 11: space.shared = 2; break;
                case 12: space.v_prefix = space.k_dim + 1; break;
                case 13: space.v_prefix = space.k_dim; break;
                default: space.block_bytes = 1; break;
                }
                cr_assert_eq(cairn_space_check(&space, text, sizeof(text)), CAIRN_EINVAL);
                cr_assert(strstr(text, fields[i]), "'%s' does not name %s", text, fields[i]);
        }
}

Test(space, opaque_spaces_have_bytes_and_no_landmarks)
{
        struct cairn_space space = {.kind = CAIRN_SPACE_OPAQUE,
                                    .model = "m",
                                    .block_tokens = 16,
                                    .tp_size = 1,
                                    .block_bytes = 65536};
        char text[256];

        cr_assert_eq(cairn_space_check(&space, text, sizeof(text)), CAIRN_OK);
        cr_assert_eq(cairn_space_block_bytes(&space), 65536);
        space.landmark_bits = 2;
        cr_assert_eq(cairn_space_check(&space, text, sizeof(text)), CAIRN_EINVAL);
        space.landmark_bits = 0;
        space.v_prefix = 1;
        cr_assert_eq(cairn_space_check(&space, text, sizeof(text)), CAIRN_EINVAL);
        space.v_prefix = 0;
        space.block_bytes = CAIRN_BLOCK_BYTES_MAX + 1;
        cr_assert_eq(cairn_space_check(&space, text, sizeof(text)), CAIRN_EINVAL);
}

Test(space, sizes)
{
        struct cairn_space space = good();

        cr_assert_eq(cairn_space_head_bytes(&space, 256), 256u * 128 * 2);
        cr_assert_eq(cairn_space_layer_bytes(&space), 3u * 256 * 128 * 2);
        cr_assert_eq(cairn_space_block_bytes(&space), 30u * 3 * 256 * 128 * 2);
        space.dtype = CAIRN_DTYPE_F8E4M3;
        cr_assert_eq(cairn_space_head_bytes(&space, 1), 128);
        cr_assert_eq(cairn_space_out_dim(&space), 64);
        space.v_dim = 0; // latent attention: blocks hold keys alone
        space.v_prefix = 48;
        cr_assert_eq(cairn_space_head_bytes(&space, 1), 64);
        cr_assert_eq(cairn_space_out_dim(&space), 48);
}

Test(space, message_round_trip_keeps_the_fingerprint)
{
        struct cairn_space space = good();
        struct cairn_space back;
        struct cairn_key a;
        struct cairn_key b;
        Cairn__Space message;
        char name[CAIRN_NAME_BYTES_MAX + 2];

        space.v_dim = 0;
        space.v_prefix = 64;
        cairn_codec_space_to(&space, &message);
        cr_assert_eq(cairn_codec_space_from(&message, &back), CAIRN_OK);
        cairn_space_fingerprint(&space, &a);
        cairn_space_fingerprint(&back, &b);
        cr_assert(cairn_key_equal(&a, &b));
        memset(name, 'n', sizeof(name));
        name[sizeof(name) - 1] = '\0';
        message.model = name;
        cr_assert_eq(cairn_codec_space_from(&message, &back), CAIRN_EINVAL, "129 bytes of name");
}
