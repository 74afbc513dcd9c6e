/*
 * Plain C that trains: the parts that all models have. The generated constants, `struct MODEL` and tables come before.
 * There is one level, no thread and nothing that a call leaves behind, except in the struct. Needs no Python.
 */

#ifndef PLAIN_H
#define PLAIN_H

#include "ops.h"

#define MAX_STEPS 9007199254740992.0 /* 2**53: rules take the number of steps as a double */

static void fill(real *to, ptrdiff_t count, real x)
{
    for (ptrdiff_t i = 0; i < count; i++)
        to[i] = x;
}

/* Where element i of a tensor, in C order, is in data[] and grad[]. */
static int32_t place_of(const struct tensor *tensor, int32_t i)
{
    int32_t place = tensor->offset;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        place += i % tensor->shape[axis] * tensor->strides[axis];
        i /= tensor->shape[axis];
    }
    return place;
}

/* One tensor after the other, each in C order. */
static void copy_out(const real *array, real *to)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int32_t i = 0; i < tensors[t].size; i++)
            *to++ = array[place_of(&tensors[t], i)];
}

static void copy_in(struct MODEL *w, const real *from)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int32_t i = 0; i < tensors[t].size; i++)
            w->data[place_of(&tensors[t], i)] = *from++;
    w->nonfinite = !all_finite(w->data, DATA_COUNT);
}

/* What divides the gradients of a step: `share` is 1 / batch if that is exact, so that a product is the quotient. */
struct divisor {
    real batch, share;
};

static struct divisor divisor_of(double batch)
{
    uint64_t bits;
    memcpy(&bits, &batch, sizeof(bits));
    struct divisor found;
    found.batch = (real)batch;
    found.share = bits << 12 ? (real)0 : (real)(1.0 / batch); /* a power of 2 has no digits behind its first one */
    return found;
}

static inline real divided(real x, struct divisor by) { return by.share != 0 ? x * by.share : x / by.batch; }

#if TAKES_NORM
/* 2**n, also where that is denormal or too large. */
static double power_of_two(int n)
{
    const uint64_t bits = (uint64_t)(n < -1022 ? n + 1123 : n > 1023 ? 2047 : n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof(x));
    return n < -1022 ? x * 0x1p-100 : x;
}

/* See update.h: no bit depends on the order of the numbers. */
static double gradient_norm(const real *grad, struct divisor by)
{
    const double high = NORM_HIGH, low = NORM_LOW;
    double largest = 0.0, total = 0.0, rest = 0.0;
    for (ptrdiff_t i = 0; i < DATA_COUNT; i++) {
        const double x = fabs((double)divided(grad[i], by));
        largest = largest >= x || largest != largest ? largest : x; /* keeps a nan */
    }
    if (!(largest > 0) || !is_finite(largest))
        return largest;
    uint64_t bits;
    memcpy(&bits, &largest, sizeof(bits));
    int exponent = (int)(bits >> 52) - 1022;
    exponent = exponent < -1000 ? -1000 : exponent;
    const double scale = power_of_two(-exponent);
    for (ptrdiff_t i = 0; i < DATA_COUNT; i++) {
        const double x = divided(grad[i], by) * scale;
        const double square = x * x, part = (square + high) - high;
        total += part;
        rest += ((square - part) + low) - low;
    }
    const int half = exponent / 2;
    return square_root(total + rest) * power_of_two(half) * power_of_two(exponent - half);
}
#endif

#endif
