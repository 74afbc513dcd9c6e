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

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* A float16: a sign, 5 bits of exponent, 10 of a fraction, which counts units of 2**-24 below 2**-14. No branches. */
static inline float widen_float16(uint16_t half)
{
    const uint32_t rest = half & 0x7fff, bits = (rest + (112u << 10)) << 13;
    const float magnitude = rest < 1u << 10 ? float_of(bits + (1u << 23)) - 0x1p-14f : float_of(bits);
    return float_of(bits_of(magnitude) | (uint32_t)(half & 0x8000) << 16);
}

/* A bfloat16: the upper half of a float. */
static inline float widen_bfloat16(uint16_t half) { return float_of((uint32_t)half << 16); }

#endif
