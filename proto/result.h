// Where each part of an answer lies in its result region: of Retrieve and Attend, of Retain and
// Plan (below). One function serves daemon and clients. May be used by: daemon, client, tests. May
// use: proto. Threads: any; pure.
//
// Parts, each at a multiple of 64 bytes, in this order; P pairs, S steps, H KV heads, Q query
// heads, k = k_max:
//   counts     u32 [P][S][H]            rows chosen, <= k
//   positions  u32 [P][S][H][k]         ascending; the tail beyond the count is zero
//   scores     f32 [P][S][H][k]         log of the group's softmax probability
//   lse        f32 [P][S][Q][2]         log-sum-exp of the chosen; of all not excluded
//   mass_error f32 [P][S][Q]            standard error of exp(lse of chosen - lse of all)
//   part_lse   f32 [P][S][Q]            Attend: log-sum-exp of the attended rows
//   part_out   f32 [P][S][Q][out dim]   Attend: attention output over them
//   rest_lse   f32 [P][S][Q]            if asked: log-sum-exp of the rest (-inf: nothing left)
//   rest_out   f32 [P][S][Q][out dim]   if asked: attention output of the rest
//   k_rows     dtype [P][S][H][k][k_dim]  if rows were asked
//   v_rows     dtype [P][S][H][k][v_dim]
// The out dim is v_dim, or v_prefix where values are a part of the key.
#ifndef CAIRN_RESULT_H
#define CAIRN_RESULT_H

#include <stdbool.h>
#include <stdint.h>

struct cairn_result_shape {
        uint32_t pairs;
        uint32_t steps;
        uint32_t kv_heads;
        uint32_t query_heads;
        uint32_t k_max;
        uint32_t k_dim;
        uint32_t v_dim;
        uint32_t v_prefix;  // of a space of latent attention; else 0
        uint32_t row_dtype; // enum cairn_dtype
        bool attend;
        bool rest;
        bool rows;
};

// Byte offsets; parts that are absent have offset UINT64_MAX.
struct cairn_result_layout {
        uint64_t counts;
        uint64_t positions;
        uint64_t scores;
        uint64_t lse;
        uint64_t mass_error;
        uint64_t part_lse;
        uint64_t part_out;
        uint64_t rest_lse;
        uint64_t rest_out;
        uint64_t k_rows;
        uint64_t v_rows;
        uint64_t total_bytes;
};

// CAIRN_EINVAL when the sizes overflow 2^62 bytes.
int cairn_result_layout(const struct cairn_result_shape *shape,
                        struct cairn_result_layout *ret_layout);

// Retain; L layers (those asked for), H KV heads:
//   counts     u32 [L][H]           tokens kept
//   mass       f32 [L][H]           share of the head's attention mass that they hold
//   positions  u32 [sum of counts]  of the kept, ascending, head after head
struct cairn_retain_layout {
        uint64_t counts;
        uint64_t mass;
        uint64_t positions;
        uint64_t total_bytes;
};
int cairn_retain_layout(uint32_t layers, uint32_t kv_heads, uint64_t kept,
                        struct cairn_retain_layout *ret_layout);

// Plan; P = CAIRN_CURVE_POINTS, whose shares of the tokens are in the reply:
//   needed          u32 [L][H]      the fewest tokens that hold the target mass
//   protected       u32 [L][H]      tokens that stay in any case
//   mass_needed     f32 [L][H]      what the needed ones hold
//   mass_protected  f32 [L][H]
//   kept            u32 [L][H][P]   tokens at each point of the curve
//   mass            f32 [L][H][P]   what they hold
struct cairn_plan_layout {
        uint64_t needed;
        uint64_t protected_tokens;
        uint64_t mass_needed;
        uint64_t mass_protected;
        uint64_t kept;
        uint64_t mass;
        uint64_t total_bytes;
};
int cairn_plan_layout(uint32_t layers, uint32_t kv_heads, struct cairn_plan_layout *ret_layout);

#endif
