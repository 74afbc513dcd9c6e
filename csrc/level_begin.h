/*
 * Before the kernels of one SIMD level: what the compiler may use, and how the names of this level end.
 *
 * All levels give the same bits: lanes are independent sums, and nothing is contracted to a fused multiply-add.
 * gcc's unroll-and-jam would interleave two terms of a sum with scalar code where the lanes alone fill the registers.
 */

#if LEVEL == 0
#define AT_LEVEL(name) name##_baseline
#define LEVEL_NAME "baseline"
#elif LEVEL == 1
#define AT_LEVEL(name) name##_avx2
#define LEVEL_NAME "avx2"
#else
#define AT_LEVEL(name) name##_avx512
#define LEVEL_NAME "avx512"
#endif

#if defined(__clang__)
#if LEVEL == 1
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#elif LEVEL == 2
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#endif
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("no-loop-unroll-and-jam")
#if LEVEL == 1
#pragma GCC target("avx2")
#elif LEVEL == 2
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#endif
#endif
