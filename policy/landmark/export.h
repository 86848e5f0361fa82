// The landmarks of one (context, layer), all KV heads, laid out to be copied elsewhere: with them
// and nothing else, a worker scores tokens itself (on a GPU, say) and asks for rows by position.
//
// Bytes, little-endian; the header first:
//
//   offset size
//        0    8 "CAIRNLM1"
//        8    8 tokens             of chain and tail
//       16    4 kv_heads
//       20    4 k_dim
//       24    4 block_tokens
//       28    4 run_tokens
//       32    4 landmark_bits      1, 2, 4, 8
//       36    4 outliers           channels a run, a multiple of 2
//       40    4 code_dim           dims of a rotated key
//       44    4 runs               a block
//       48    4 blocks             whole ones, coded; token t < blocks * block_tokens lies in them
//       52    4 tail_tokens        the others, as raw keys
//       56    4 dtype              of these (enum cairn_dtype)
//       60    4 grid_dims          coordinates a nibble stands for; 0 at 8 bits (int8, not rotated)
//       64   20 u32 codes, scales, outlier_rows, centres, run_heads: where these parts lie inside a
//               head block (2^32 - 1: there is none); their bytes are in this folder's README
//       84    4 block_bytes        from one head block to the next
//       88    8 present            where, from the first byte of all: u64 [KV head][words]; bit
//                                  t % 64 of word t / 64: token t has not been dropped
//       96    8 landmarks          where: [KV head][blocks][block_bytes]
//      104    8 tail               where: [KV head][tail_tokens][k_dim] in dtype
//      112    8 total_bytes
//      120    8 zeros
//      128  256 f32 [16][4]        what a nibble stands for, times a token's scale
//      384    . int8 [2][code_dim] signs of the rotation's two passes, 1 or -1
//
// Parts begin at multiples of 64. A key is centre + rotated-back code * scale + outlier bytes; a
// rotation multiplies by the signs of pass 0 and transforms the first 2^n elements (Hadamard, over
// sqrt(2^n), the largest power that fits), then, if that is not all of code_dim, does the same to
// the whole by the signs of pass 1 and transforms the last 2^n elements.
//
// May be used by: daemon, tests. May use: proto. Pure. Threads: any.
#ifndef CAIRN_LANDMARK_EXPORT_H
#define CAIRN_LANDMARK_EXPORT_H

#include "policy/landmark/landmark.h"

enum {
        CAIRN_EXPORT_GRID_AT = 128,
        CAIRN_EXPORT_SIGNS_AT = 384
};

struct cairn_landmark_export {
        uint64_t tokens;
        uint32_t kv_heads;
        uint32_t blocks;
        uint32_t tail_tokens;
        uint32_t block_bytes;
        uint64_t words; // of presence, a head
        uint64_t present;
        uint64_t landmarks;
        uint64_t tail;
        uint64_t total_bytes;
};

// CAIRN_EUNSUPPORTED: keys have no landmarks (landmark_bits 0).
int cairn_landmark_export_plan(const struct cairn_landmark_layout *layout, uint32_t kv_heads,
                               uint64_t tokens, struct cairn_landmark_export *ret_plan);
// Writes the header with grid and signs: ret_bytes [0, present).
void cairn_landmark_export_header(const struct cairn_landmark_layout *layout,
                                  const struct cairn_landmark_export *plan, uint8_t *ret_bytes);
// Writes all of one head into the export at ret_bytes. `pieces` are those of the plan's tokens:
// whole blocks with code runs, then at most one without. present NULL: all are; beyond present_end,
// too.
void cairn_landmark_export_head(const struct cairn_landmark_layout *layout,
                                const struct cairn_landmark_export *plan, uint32_t head,
                                const struct cairn_landmark_piece *pieces, uint32_t n_pieces,
                                const uint64_t *present, uint64_t present_end, uint8_t *ret_bytes);

#endif
