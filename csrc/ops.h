/* The ops of micrograd/ops.py in C, as micrograd/ieee.py defines them. Needs no Python. */

#ifndef OPS_H
#define OPS_H

#include <math.h>

#include "real.h"

#if FLOAT32
#define IN_LIBRARY(function) function##f
#else
#define IN_LIBRARY(function) function
#endif

/*
 * Goes into loops that add elements in descending order. gcc 12 vectorises such a sum if an outer loop continues it,
 * and then adds the wrong elements. A sum whose order is fixed gains nothing from vectors anyway.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define NOT_VECTORISED __asm__("")
#else
#define NOT_VECTORISED ((void)0)
#endif

/*
 * Ends each loop nest, and the loading of inputs: the next nest must read from memory what was stored. Otherwise gcc
 * (12.2 and 14.2, fixed in 15.3) takes elements out of vector registers, and gets some permutations of eight doubles
 * wrong with AVX-512: {0, 1, 2, 6, 4, 5, 6, 7} becomes a vpermilpd, which cannot move element 6 there.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define STORE_BARRIER __asm__ volatile("" ::: "memory")
#else
#define STORE_BARRIER ((void)0)
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MAYBE_UNUSED __attribute__((unused))
#else
#define MAYBE_UNUSED
#endif

/*
 * gcc before 14 fuses products with alternating additions and subtractions side by side, even with -ffp-contract=off.
 * TABLE hides the signs of a table's numbers from it. In straight-line code anything may end up side by side, so
 * NOT_JOINED keeps gcc from joining statements into vectors.
 */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14 && (defined(__x86_64__) || defined(__i386__))
#define TABLE static __attribute__((used)) /* gcc must assume that other code changes it */
#define NOT_JOINED __attribute__((optimize("no-tree-slp-vectorize")))
#else
#define TABLE static const MAYBE_UNUSED /* a frozen model may have weights that no output depends on */
#define NOT_JOINED
#endif

/*
 * Library functions are called through volatile pointers: a compiler that knew the callee would turn pow(x, 2) into
 * x * x or fold the call with its own arithmetic, which rounds differently from the interpreted engine.
 */
typedef real (*unary_function)(real);
static real (*volatile const library_pow)(real, real) = IN_LIBRARY(pow);
static volatile const unary_function library_exp = IN_LIBRARY(exp);
static volatile const unary_function library_log = IN_LIBRARY(log);
static volatile const unary_function library_tanh = IN_LIBRARY(tanh);
static volatile const unary_function library_sin = IN_LIBRARY(sin);
static volatile const unary_function library_cos = IN_LIBRARY(cos);
static volatile const unary_function library_erf = IN_LIBRARY(erf);
static volatile const unary_function library_log1p = IN_LIBRARY(log1p);

static inline real op_pow(real x, real y)
{
    if (y == 1)
        return x;
    if (y == 0)
        return 1;
    return library_pow(x, y);
}

static inline real op_exp(real x) { return library_exp(x); }
static inline real op_log(real x) { return library_log(x); }
static inline real op_tanh(real x) { return library_tanh(x); }
static inline real op_sigmoid(real x) { return 1 / (1 + library_exp(-x)); }

static inline real op_sin(real x) { return library_sin(x); }
static inline real op_cos(real x) { return library_cos(x); }
static inline real op_erf(real x) { return library_erf(x); }

/* IEEE 754 defines these to the bit, so any compiler may compute them. */
static inline real op_sqrt(real x) { return IN_LIBRARY(sqrt)(x); }
static inline real op_abs(real x) { return IN_LIBRARY(fabs)(x); }

/* Not fmax(x, 0): a nan must stay a nan. */
static inline real op_relu(real x) { return x < 0 ? 0 : x; }
static inline real op_step(real x) { return x > 0 ? 1 : 0; }

/* The left operand on a tie, nan if either is nan. left and right say which one max takes. */
static inline real op_max(real a, real b) { return (a >= b || a != a) ? a : b; }
static inline real op_left(real a, real b) { return (a >= b || a != a) ? 1 : 0; }
static inline real op_right(real a, real b) { return (a >= b || a != a) ? 0 : 1; }
static inline real op_min(real a, real b) { return (a <= b || a != a) ? a : b; }

static inline real op_softplus(real x) { return op_relu(x) + library_log1p(library_exp(-op_abs(x))); }

#endif
