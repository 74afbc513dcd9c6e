/* What the generated definitions of ops need, and what keeps compilers from wrong code. Needs no Python. */

#ifndef OPS_H
#define OPS_H

#include "real.h"

#if FLOAT32
#define IN_LIBRARY(function) function##f
#else
#define IN_LIBRARY(function) function
#endif

/*
 * Goes into loops over images, and into those that add elements in another order than that in which they lie in memory.
 * gcc 12 vectorises such a sum, and then adds the wrong elements, or the right ones as they lie in memory. A sum whose
 * order is fixed gains nothing from vectors anyway: see codegen/schedule/marks.py.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define NOT_VECTORISED __asm__("")
#else
#define NOT_VECTORISED ((void)0)
#endif

/*
 * Begins a loop over a few lanes that lie side by side in memory. gcc would unroll it before it makes vectors, and then
 * find vectors of two numbers at best. This allows it to unroll half the iterations at most: those over vectors.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define PRAGMA(text) _Pragma(#text)
#define VECTORS(lanes) PRAGMA(GCC unroll (lanes) / 2 - 1)
#define UNROLLED(count) PRAGMA(GCC unroll count) /* a loop over sums: see codegen/schedule/in_registers.py */
#else
#define VECTORS(lanes)
#define UNROLLED(count)
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

/* Begins to load the cache line of an address that is read later; of a place `numbers` after one that there is. */
#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif
#define PREFETCH_LATER(place, numbers) \
    PREFETCH((const void *)((uintptr_t)(&(place)) + (uintptr_t)((numbers) * (ptrdiff_t)sizeof(place))))

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
 * A loop over images side by side. Unrolled too early, compilers would not see that it fills a vector. No iteration adds
 * to the sum of another one, so that vectors keep every bit. clang warns of loops that call a function.
 */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#if FLOAT32
#define IMAGE_VECTOR _Pragma("clang loop vectorize_width(16) interleave(disable) unroll(disable)")
#else
#define IMAGE_VECTOR _Pragma("clang loop vectorize_width(8) interleave(disable) unroll(disable)")
#endif
#define EACH_IMAGE(image) IMAGE_VECTOR for (ptrdiff_t image = 0; image < SIDE_BY_SIDE; image++)
#elif defined(__GNUC__)
#define EACH_IMAGE(image) _Pragma("GCC unroll 1") for (ptrdiff_t image = 0; image < SIDE_BY_SIDE; image++)
#else
#define EACH_IMAGE(image) for (ptrdiff_t image = 0; image < SIDE_BY_SIDE; image++)
#endif

/*
 * Code with AVX clears the upper halves of vector registers before it calls code without, or each instruction there waits
 * for them. gcc leaves that out if it knows that the function uses no such registers: it must not look into it.
 */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__TINYC__) && __GNUC__ >= 8
#define CALLED __attribute__((noipa))
#elif defined(__GNUC__) || defined(__clang__)
#define CALLED __attribute__((noinline))
#endif

/*
 * The definitions of ops are printed into each model that needs them: micrograd.definitions. Loops over lanes have them
 * inlined, as only then compilers make vectors of them.
 */
#if defined(_MSC_VER) && !defined(__clang__)
#define INLINED static __forceinline
#define NOT_INLINED static __declspec(noinline)
#elif defined(__GNUC__) || defined(__clang__)
#define INLINED static inline __attribute__((always_inline, unused))
#define NOT_INLINED static CALLED __attribute__((unused))
#else
#define INLINED static inline
#define NOT_INLINED static
#endif

/*
 * How many cache lines of numbers a long function takes through its stages at a time: micrograd/stages.py. Some vectors, so
 * that a stage is worth its loop; and few, so that what stages leave to one another stays in the cache. Two of them in an
 * iteration, or else gcc would have all in one; in a wheel, one.
 */
enum { STAGED_LINES = 10, STAGED = STAGED_LINES * CACHE_LINE };
#if defined(__OPTIMIZE_SIZE__)
#define STAGE UNROLLED(1)
#else
#define STAGE UNROLLED(2)
#endif

/* IEEE 754 defines these to the bit, so any compiler may compute them. */
#define SQRT(x) IN_LIBRARY(sqrt)(x)
#define FABS(x) IN_LIBRARY(fabs)(x)
#define COPYSIGN(x, y) IN_LIBRARY(copysign)(x, y)

#include "real_bits.h"

#endif
