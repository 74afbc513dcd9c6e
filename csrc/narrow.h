/*
 * Weights of two bytes as floats, by integer operations: a _Float16 is not in every compiler, and not everywhere in a
 * processor. Weights are finite. Needs no Python.
 */

#ifndef NARROW_H
#define NARROW_H

#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A float16: a sign, 5 bits of exponent, 10 of a fraction. Below 2**-14 the fraction counts units of 2**-24. */
static inline float widen_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    const float small = (float)(int32_t)rest * 0x1p-24f, normal = float_of((rest + (112u << 10)) << 13);
    const float magnitude = rest < 1u << 10 ? small : normal;
    return sign ? -magnitude : magnitude;
}

/* A bfloat16: the upper half of a float. */
static inline float widen_bfloat16(uint16_t half) { return float_of((uint32_t)half << 16); }

#endif
