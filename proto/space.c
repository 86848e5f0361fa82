// Spaces: defaults, checks, fingerprint, sizes.
#include "proto/space.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

void cairn_space_defaults(struct cairn_space *ret_space)
{
        *ret_space = (struct cairn_space){
            .kind = CAIRN_SPACE_ATTENTION,
            .layout = "lhkv",
            .dtype = CAIRN_DTYPE_F16,
            .block_tokens = 256,
            .tp_size = 1,
            .rope = CAIRN_ROPE_APPLIED,
            .landmark_bits = 2,
            .outliers = 8,
            .run_tokens = 128,
            .value_bits = 2,
            .k_codec = CAIRN_ROW_Q8,
            .v_codec = CAIRN_ROW_Q8,
        };
}

__attribute__((format(printf, 3, 4))) static int refuse(char *ret_text, size_t text_bytes,
                                                        const char *format, ...)
{
        va_list args;

        if (!ret_text || text_bytes == 0)
                return CAIRN_EINVAL;
        va_start(args, format);
        (void)vsnprintf(ret_text, text_bytes, format, args); // cut short is fine
        va_end(args);
        return CAIRN_EINVAL;
}

struct bound {
        const char *field;
        uint32_t value;
        uint32_t min;
        uint32_t max;
};

static int check_bounds(const struct bound *bounds, size_t count, char *ret_text, size_t text_bytes)
{
        for (size_t i = 0; i < count; i++) {
                const struct bound *b = &bounds[i];

                if (b->value < b->min || b->value > b->max)
                        return refuse(ret_text, text_bytes, "space: %s is %u; it may be %u to %u",
                                      b->field, b->value, b->min, b->max);
        }
        return CAIRN_OK;
}

static int check_codes(const struct cairn_space *s, char *ret_text, size_t text_bytes)
{
        uint32_t bits = s->landmark_bits;

        if (bits != 0 && bits != 1 && bits != 2 && bits != 4 && bits != 8)
                return refuse(ret_text, text_bytes,
                              "space: landmark_bits is %u; it may be 0, 1, 2, 4 or 8", bits);
        if (s->value_bits != 0 && s->value_bits != 2 && s->value_bits != 4)
                return refuse(ret_text, text_bytes, "space: value_bits is %u; it may be 0, 2 or 4",
                              s->value_bits);
        if (bits == 0 && (s->value_bits != 0 || s->outliers != 0))
                return refuse(ret_text, text_bytes,
                              "space: value codes and outliers need landmarks: set landmark_bits");
        if (s->outliers >= s->k_dim && s->outliers > 0)
                return refuse(ret_text, text_bytes,
                              "space: outliers is %u; it must be below k_dim %u", s->outliers,
                              s->k_dim);
        if (bits != 0 && (s->run_tokens == 0 || s->run_tokens > s->block_tokens ||
                          s->block_tokens % s->run_tokens != 0))
                return refuse(ret_text, text_bytes,
                              "space: run_tokens is %u; it must divide block_tokens %u",
                              s->run_tokens, s->block_tokens);
        return CAIRN_OK;
}

static int check_attention(const struct cairn_space *s, char *ret_text, size_t text_bytes)
{
        const struct bound bounds[] = {
            {"layers", s->layers, 1, CAIRN_LAYERS_MAX},
            {"kv_heads", s->kv_heads, 1, CAIRN_KV_HEADS_MAX},
            {"k_dim", s->k_dim, 1, CAIRN_DIM_MAX},
            {"v_dim", s->v_dim, 0, CAIRN_DIM_MAX},
            {"dtype", s->dtype, CAIRN_DTYPE_F32, CAIRN_DTYPE_F8E5M2},
            {"rope", s->rope, CAIRN_ROPE_APPLIED, CAIRN_ROPE_NONE},
            {"outliers", s->outliers, 0, 16},
            {"k_codec", s->k_codec, CAIRN_ROW_RAW, CAIRN_ROW_NONE},
            {"v_codec", s->v_codec, CAIRN_ROW_RAW, CAIRN_ROW_NONE},
            {"v_prefix", s->v_prefix, 0, s->k_dim},
        };
        int status = check_bounds(bounds, sizeof(bounds) / sizeof(bounds[0]), ret_text, text_bytes);

        if (status != CAIRN_OK)
                return status;
        if (s->v_prefix != 0 && s->v_dim != 0)
                return refuse(ret_text, text_bytes,
                              "space: v_prefix is %u and v_dim %u; values that are a part of the "
                              "key have no rows of their own: leave v_dim 0",
                              s->v_prefix, s->v_dim);
        if (s->block_bytes != 0)
                return refuse(ret_text, text_bytes,
                              "space: block_bytes is for opaque spaces; leave it 0");
        if (cairn_space_block_bytes(s) > CAIRN_BLOCK_BYTES_MAX)
                return refuse(ret_text, text_bytes,
                              "space: a block would take %llu bytes, above the limit of %llu; "
                              "use fewer block_tokens",
                              (unsigned long long)cairn_space_block_bytes(s),
                              (unsigned long long)CAIRN_BLOCK_BYTES_MAX);
        return check_codes(s, ret_text, text_bytes);
}

static int check_opaque(const struct cairn_space *s, char *ret_text, size_t text_bytes)
{
        if (s->block_bytes == 0 || s->block_bytes > CAIRN_BLOCK_BYTES_MAX)
                return refuse(ret_text, text_bytes,
                              "space: block_bytes is %llu; an opaque space needs 1 to %llu",
                              (unsigned long long)s->block_bytes,
                              (unsigned long long)CAIRN_BLOCK_BYTES_MAX);
        if (s->landmark_bits != 0 || s->value_bits != 0 || s->outliers != 0 || s->run_tokens != 0 ||
            s->v_prefix != 0)
                return refuse(ret_text, text_bytes,
                              "space: an opaque space has no landmarks; leave landmark_bits, "
                              "value_bits, outliers, run_tokens and v_prefix 0");
        return CAIRN_OK;
}

int cairn_space_check(const struct cairn_space *space, char *ret_text, size_t text_bytes)
{
        const struct bound bounds[] = {
            {"kind", space->kind, CAIRN_SPACE_ATTENTION, CAIRN_SPACE_OPAQUE},
            {"block_tokens", space->block_tokens, 1, CAIRN_BLOCK_TOKENS_MAX},
            {"tp_size", space->tp_size, 1, 4096},
            {"tp_rank", space->tp_rank, 0, space->tp_size ? space->tp_size - 1 : 0},
            {"shared", space->shared, 0, 1},
        };
        int status = check_bounds(bounds, sizeof(bounds) / sizeof(bounds[0]), ret_text, text_bytes);

        if (status != CAIRN_OK)
                return status;
        if (space->model[0] == '\0')
                return refuse(ret_text, text_bytes, "space: model is empty; name the model");
        return space->kind == CAIRN_SPACE_ATTENTION ? check_attention(space, ret_text, text_bytes)
                                                    : check_opaque(space, ret_text, text_bytes);
}

void cairn_space_fingerprint(const struct cairn_space *space, struct cairn_key *ret_fingerprint)
{
        const uint64_t numbers[] = {
            space->kind,     space->layers,      space->kv_heads,     space->k_dim,
            space->v_dim,    space->dtype,       space->block_tokens, space->cache_group,
            space->tp_rank,  space->tp_size,     space->rope,         space->landmark_bits,
            space->outliers, space->run_tokens,  space->value_bits,   space->k_codec,
            space->v_codec,  space->block_bytes,
        };
        struct cairn_key_hash hash;

        cairn_key_hash_init(&hash, "cairn space 1");
        cairn_key_hash_field(&hash, 2, space->model, strlen(space->model));
        cairn_key_hash_field(&hash, 3, space->revision, strlen(space->revision));
        cairn_key_hash_field(&hash, 4, space->layout, strlen(space->layout));
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
                cairn_key_hash_u64(&hash, (uint8_t)(16 + i), numbers[i]);
        if (space->shared) // fingerprints from before it was there stay as they were
                cairn_key_hash_u64(&hash, 34, space->shared);
        if (space->v_prefix) // likewise
                cairn_key_hash_u64(&hash, 35, space->v_prefix);
        cairn_key_hash_finish(&hash, ret_fingerprint);
}

uint32_t cairn_space_out_dim(const struct cairn_space *space)
{
        return space->v_prefix ? space->v_prefix : space->v_dim;
}

uint32_t cairn_dtype_bytes(uint32_t dtype)
{
        switch (dtype) {
        case CAIRN_DTYPE_F32: return 4;
        case CAIRN_DTYPE_F16:
        case CAIRN_DTYPE_BF16: return 2;
        case CAIRN_DTYPE_F8E4M3:
        case CAIRN_DTYPE_F8E5M2: return 1;
        default: return 0;
        }
}

uint64_t cairn_space_head_bytes(const struct cairn_space *space, uint64_t tokens)
{
        return tokens * ((uint64_t)space->k_dim + space->v_dim) * cairn_dtype_bytes(space->dtype);
}

uint64_t cairn_space_layer_bytes(const struct cairn_space *space)
{
        if (space->kind == CAIRN_SPACE_OPAQUE)
                return space->block_bytes;
        return space->kv_heads * cairn_space_head_bytes(space, space->block_tokens);
}

uint64_t cairn_space_block_bytes(const struct cairn_space *space)
{
        if (space->kind == CAIRN_SPACE_OPAQUE)
                return space->block_bytes;
        return space->layers * cairn_space_layer_bytes(space);
}
