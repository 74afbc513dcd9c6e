/* Loops that call a function, given by its address so that it is neither inlined nor replaced. They return seconds. */

#include "real.h"

#include <time.h>

#define TIMED(PARAMETERS, BODY)                                                                                       \
    PARAMETERS                                                                                                        \
    {                                                                                                                 \
        struct timespec start, end;                                                                                   \
        clock_gettime(CLOCK_MONOTONIC, &start);                                                                       \
        for (int k = 0; k < repeat; k++) {                                                                            \
            BODY;                                                                                                     \
            __asm__ volatile("" ::: "memory");                                                                        \
        }                                                                                                             \
        clock_gettime(CLOCK_MONOTONIC, &end);                                                                         \
        (void)z;                                                                                                      \
        return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);                    \
    }

#define ARRAYS const real *x, const real *z, real *y, long n, int repeat

TIMED(double unary(real (*f)(real), ARRAYS), for (long i = 0; i < n; i++) y[i] = f(x[i]))
TIMED(double binary(real (*f)(real, real), ARRAYS), for (long i = 0; i < n; i++) y[i] = f(x[i], z[i]))
TIMED(double lanes(void (*f)(const real *, const real *, real *, long), ARRAYS), f(x, z, y, n))

/* The vector library's functions: one vector a call. */
#define VECTORS(NAME, TARGET, BYTES)                                                                                  \
    typedef real vector_##NAME __attribute__((vector_size(BYTES), may_alias));                                        \
    __attribute__((target(TARGET))) TIMED(double unary_##NAME(vector_##NAME (*f)(vector_##NAME), ARRAYS),             \
        for (long i = 0; i < n; i += BYTES / (long)sizeof(real))                                                      \
            *(vector_##NAME *)(y + i) = f(*(const vector_##NAME *)(x + i)))                                           \
    __attribute__((target(TARGET))) TIMED(                                                                            \
        double binary_##NAME(vector_##NAME (*f)(vector_##NAME, vector_##NAME), ARRAYS),                               \
        for (long i = 0; i < n; i += BYTES / (long)sizeof(real))                                                      \
            *(vector_##NAME *)(y + i) = f(*(const vector_##NAME *)(x + i), *(const vector_##NAME *)(z + i)))

VECTORS(avx2, "avx2", 32)
VECTORS(avx512, "avx512f", 64)
