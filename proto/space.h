// A space in plain C: the immutable description of a KV cache, its check, its fingerprint and its
// sizes. May be used by: all folders. May use: proto. Threads: any; pure.
#ifndef CAIRN_SPACE_H
#define CAIRN_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/key.h"
#include "proto/limits.h"

enum cairn_space_kind {
        CAIRN_SPACE_ATTENTION = 0,
        CAIRN_SPACE_OPAQUE = 1
};
enum cairn_dtype {
        CAIRN_DTYPE_NONE = 0,
        CAIRN_DTYPE_F32 = 1,
        CAIRN_DTYPE_F16 = 2,
        CAIRN_DTYPE_BF16 = 3,
        CAIRN_DTYPE_F8E4M3 = 4,
        CAIRN_DTYPE_F8E5M2 = 5,
};
enum cairn_row_codec {
        CAIRN_ROW_RAW = 0,
        CAIRN_ROW_Q8 = 1,
        CAIRN_ROW_Q4 = 2,
        CAIRN_ROW_NONE = 3,
};
enum cairn_rope {
        CAIRN_ROPE_APPLIED = 0,
        CAIRN_ROPE_NOT_APPLIED = 1,
        CAIRN_ROPE_NONE = 2
};

// All fields are part of the fingerprint. Strings end with a zero. Opaque spaces use kind, model,
// revision, layout, cache_group, tp_*, block_tokens and block_bytes; the rest must be zero.
struct cairn_space {
        uint32_t kind;
        char model[CAIRN_NAME_BYTES_MAX + 1];
        char revision[CAIRN_NAME_BYTES_MAX + 1];
        char layout[CAIRN_NAME_BYTES_MAX + 1];
        uint32_t layers;
        uint32_t kv_heads;
        uint32_t k_dim;
        uint32_t v_dim; // of the V rows; 0: there are none
        uint32_t dtype;
        uint32_t block_tokens;
        uint32_t cache_group;
        uint32_t tp_rank;
        uint32_t tp_size;
        uint32_t rope;
        uint32_t landmark_bits; // 0: no landmarks (no retrieval), 1, 2, 4 or 8
        uint32_t outliers;
        uint32_t run_tokens;
        uint32_t value_bits; // 0, 2 or 4
        uint32_t k_codec;
        uint32_t v_codec;
        uint64_t block_bytes; // opaque spaces; 0 in attention spaces
        uint32_t shared;      // 1: every tenant may use it; hashed only then
        uint32_t v_prefix; // latent attention: values are the first v_prefix dims of K, and there
                           // are no V rows; 0: not so, and then not hashed
};

// An attention space with the defaults of the design: blocks of 256 tokens, runs of 128, 2-bit
// landmarks, 8 outlier channels, 2-bit value codes, q8 rows, f16, one rank.
void cairn_space_defaults(struct cairn_space *ret_space);

// CAIRN_OK, or CAIRN_EINVAL with the field and what it may be in ret_text (may be NULL).
int cairn_space_check(const struct cairn_space *space, char *ret_text, size_t text_bytes);

// The fingerprint: BLAKE2b-256 over every field, tagged.
void cairn_space_fingerprint(const struct cairn_space *space, struct cairn_key *ret_fingerprint);

// Dims of an attention output: v_prefix, or v_dim.
uint32_t cairn_space_out_dim(const struct cairn_space *space);

// Bytes of one element of a dtype (0: unknown).
uint32_t cairn_dtype_bytes(uint32_t dtype);

// Raw bytes of one (layer, KV head) of a block: K [tokens][k_dim] then V [tokens][v_dim], in the
// dtype.
uint64_t cairn_space_head_bytes(const struct cairn_space *space, uint64_t tokens);
// Raw bytes of one layer ([KV head] of the above) and of a whole block ([layer] of that). Opaque: a
// block is one layer.
uint64_t cairn_space_layer_bytes(const struct cairn_space *space);
uint64_t cairn_space_block_bytes(const struct cairn_space *space);

#endif
