// Arithmetic that every instruction set does in the same order: half floats, exp, log, ordered
// keys. The vector kernels (score_body.h) repeat these operations one for one; change both or
// neither. fmaf rounds once, everywhere: as an instruction, or by the C library. Used by
// policy/landmark alone. Threads: any; pure.
#ifndef CAIRN_LANDMARK_NUMERIC_H
#define CAIRN_LANDMARK_NUMERIC_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
        CAIRN_LANES = 16
}; // sums run in lanes: lane = index mod 16, then halves are added: +8, +4, +2, +1

#define CAIRN_ELEMENT_MAX \
        1e16f // elements beyond it are clamped: squares of a whole run stay finite

static inline uint32_t cairn_bits_of(float x)
{
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return bits;
}

static inline float cairn_float_of(uint32_t bits)
{
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
}

static inline float cairn_half_to_float(uint16_t half)
{
        uint32_t magnitude = half & 0x7fffu;
        uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
        if (magnitude >= 0x7c00u)
                return cairn_float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) |
                                      (magnitude > 0x7c00u ? 0x00400000u : 0));
        float value = cairn_float_of(magnitude << 13) * 0x1p112f;
        return cairn_float_of(cairn_bits_of(value) | sign);
}

// Round to nearest even; overflow gives an infinity, NaN a quiet NaN.
static inline uint16_t cairn_half_from_float(float x)
{
        uint32_t bits = cairn_bits_of(x);
        uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
        uint32_t magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u)
                return sign | 0x7e00u;
        if (magnitude >= 0x477ff000u) // 65520: rounds to infinity
                return sign | 0x7c00u;
        if (magnitude < 0x38800000u) { // below 2^-14: subnormal; the addition rounds
                float shifted = cairn_float_of(magnitude) + 0.5f;
                return (uint16_t)(sign | (cairn_bits_of(shifted) - 0x3f000000u));
        }
        uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

static inline float cairn_bf16_to_float(uint16_t bits)
{
        return cairn_float_of((uint32_t)bits << 16);
}

// Round to nearest even; NaN stays NaN.
static inline uint16_t cairn_bf16_from_float(float x)
{
        uint32_t bits = cairn_bits_of(x);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        return (uint16_t)(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// Nearest integer, ties to even, for |x| < 2^22.
static inline int32_t cairn_round(float x)
{
        return (int32_t)cairn_bits_of(x + 12582912.0f) - 0x4b400000;
}

// exp(x) for x <= 0 as a power of two: an integer part added to the exponent, and a polynomial of
// degree 5 (relative error 4e-7 + 8e-8 |x|). Below CAIRN_EXP_LOWEST, and for NaN,
// cairn_exp_floor stays at exp(CAIRN_EXP_LOWEST), which is 4e-38 and lost in any sum that holds a
// 1; cairn_exp_negative gives 0 there.
#define CAIRN_EXP_LOWEST (-86.0f)
#define CAIRN_EXP_LOG2E  1.44269504f
#define CAIRN_EXP_ROUND  12582912.0f // 1.5 * 2^23: adding it rounds to an integer
#define CAIRN_EXP_C1     0.693147004f
#define CAIRN_EXP_C2     0.240222424f
#define CAIRN_EXP_C3     0.0555073358f
#define CAIRN_EXP_C4     0.00967151299f
#define CAIRN_EXP_C5     0.00132647203f

static inline float cairn_exp_floor(float x)
{
        float t = x > CAIRN_EXP_LOWEST ? x : CAIRN_EXP_LOWEST;
        float shifted = fmaf(t, CAIRN_EXP_LOG2E, CAIRN_EXP_ROUND);
        float f = fmaf(t, CAIRN_EXP_LOG2E, CAIRN_EXP_ROUND - shifted);
        float p = fmaf(CAIRN_EXP_C5, f, CAIRN_EXP_C4);
        p = fmaf(p, f, CAIRN_EXP_C3);
        p = fmaf(p, f, CAIRN_EXP_C2);
        p = fmaf(p, f, CAIRN_EXP_C1);
        p = fmaf(p, f, 1.0f);
        return cairn_float_of(cairn_bits_of(p) + (cairn_bits_of(shifted) << 23));
}

static inline float cairn_exp_negative(float x)
{
        return x > CAIRN_EXP_LOWEST ? cairn_exp_floor(x) : 0.0f;
}

// log(x) in double for x >= 0 by atanh's series, the same on every machine; -inf for 0. Error below
// 1e-14.
static inline double cairn_log(double x)
{
        if (!(x > 0))
                return -INFINITY;
        if (x < 0x1p-1000)
                return cairn_log(x * 0x1p200) - 200 * 0.693147180559945309417;
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        int64_t exponent = (int64_t)(bits >> 52) - 1023;
        bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
        double m;
        memcpy(&m, &bits, sizeof m);
        if (m > 1.41421356237309515) {
                m *= 0.5;
                exponent += 1;
        }
        double z = (m - 1) / (m + 1), z2 = z * z, sum = 0;
        for (int k = 21; k >= 3; k -= 2)
                sum = (sum + 1.0 / k) * z2;
        return (double)exponent * 0.693147180559945309417 + 2 * z * (1 + sum);
}

// A score from an integer product: NaN becomes -inf, +inf the largest float.
static inline float cairn_score_of(int32_t dot, float unit, float mean)
{
        float score = fmaf((float)dot, unit, mean);
        score = score > -INFINITY ? score : -INFINITY;
        return score < FLT_MAX ? score : FLT_MAX;
}

// Bytes a unit for n weights: their sum stays within 520 after rounding (n / 2 more at worst), each
// within 255.
static inline float cairn_byte_weights_inverse(float total, float max, uint32_t n)
{
        if (!(max > 1e-30f))
                return 0;
        float by_total = (519.0f - 0.5f * (float)n) / total, by_max = 255.0f / max;
        return by_total < by_max ? by_total : by_max;
}

// Bytes a unit of a row whose largest size is `max`.
static inline float cairn_int8_inverse(float max)
{
        return max > 1e-30f ? 127.0f / max : 0;
}

// A signed integer that orders as the float does; -0 equals +0. Floats must not be NaN.
static inline int32_t cairn_order_key(float x)
{
        int32_t bits = (int32_t)cairn_bits_of(x + 0.0f);
        return bits ^ (int32_t)((uint32_t)(bits >> 31) & 0x7fffffffu);
}

static inline float cairn_order_value(int32_t key)
{
        return cairn_float_of((uint32_t)(key ^ (int32_t)((uint32_t)(key >> 31) & 0x7fffffffu)));
}

// Key of what may never be chosen: below the key of -inf.
#define CAIRN_KEY_NEVER INT32_MIN

#endif
