/* The number type that a model computes in, its alignment, and tests for finite values. Needs no Python. */

#ifndef REAL_H
#define REAL_H

#include <stddef.h>
#include <stdint.h>

#if FREESTANDING
#include "freestanding.h"
#else
#include <float.h>
#include <math.h>
#include <string.h>
#endif

#if FLOAT32
typedef float real;
typedef uint32_t real_bits;
#define REAL_MAX FLT_MAX
#else
typedef double real;
typedef uint64_t real_bits;
#define REAL_MAX DBL_MAX
#endif

#if defined(_MSC_VER)
#define ALIGNED __declspec(align(64))
#elif defined(__GNUC__) || defined(__clang__) || defined(__TINYC__)
#define ALIGNED __attribute__((aligned(64)))
#else
#define ALIGNED _Alignas(64)
#endif

enum { CACHE_LINE = 64 / sizeof(real) }; /* in elements */

/* The larger one, a nan if either is nan. */
static inline real larger(real a, real b) { return (a >= b || a != a) ? a : b; }

static inline int is_finite(double x) { return fabs(x) <= DBL_MAX; }

/*
 * The bits of a number without its sign, which sort as magnitudes do: infinity after all finite numbers, and nan after
 * infinity. The sign goes to the lowest bit, which is at most one step up, so that -0.0 counts too.
 */
static inline real_bits magnitude(real x)
{
    real_bits bits;
    memcpy(&bits, &x, sizeof(bits));
    return (bits & (real_bits)-1 >> 1) | bits >> (8 * sizeof(bits) - 1);
}

/* No absolute value is larger. It is finite if and only if all numbers are, and 0 if and only if all bits of all are. */
static inline real largest_magnitude(const real *x, ptrdiff_t count)
{
    real_bits largest = 0;
    real result;
    for (ptrdiff_t i = 0; i < count; i++)
        largest = magnitude(x[i]) > largest ? magnitude(x[i]) : largest;
    memcpy(&result, &largest, sizeof(result));
    return result;
}

static inline int all_finite(const real *x, ptrdiff_t count) { return is_finite(largest_magnitude(x, count)); }

#if !FROZEN
/* Its top bit is set if and only if a number is inf or nan: a carry from the exponent gets there. */
static inline real_bits nonfinite_bits(real x)
{
    const real_bits one = (real_bits)1 << (sizeof(x) == 4 ? 23 : 52); /* of the exponent */
    real_bits bits;
    memcpy(&bits, &x, sizeof(bits));
    return (bits & (real_bits)-1 >> 1) + one;
}

static inline int top_bit(real_bits bits) { return (int)(bits >> (8 * sizeof(bits) - 1)); }
#endif

#endif
