/*
 * Included at the start of the kernels, once for each SIMD level and so without a guard. It says which instructions the
 * compiler may use at this LEVEL, and what the names of its functions end in.
 *
 * All levels give the same bits: lanes are independent sums, and nothing is contracted to a fused multiply-add.
 * gcc's loop interchange would exchange two loops over the terms of a sum, and so add them in another order. Its
 * unroll-and-jam would interleave two terms of a sum with scalar code where the lanes alone fill the registers.
 * Its patterns would load a Local's first values by memcpy, in pieces of 16 bytes that the next wider load must wait for.
 * If it knew which registers a callee leaves alone, it would keep numbers in them, and then could not clear the upper halves
 * of all registers before the call: Intel's processors take 0.05 us for an instruction of SSE while these are in use.
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

/*
 * Whether the registers are WIDE or NARROW in codegen/schedule/target.py, which says how many sums they hold. BLOCK() has a
 * number for either.
 */
#define WIDE_REGISTERS (LEVEL == 2)
#define BLOCK(wide, narrow) (WIDE_REGISTERS ? (wide) : (narrow))

/* a * b + c; with a single rounding if the model asks for that and the processor has an instruction for it. */
#if FMA && (LEVEL > 0 || HAS_FMA)
#define MULTIPLY_ADD(a, b, c) IN_LIBRARY(__builtin_fma)(a, b, c)
#define FUSES 1
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define FUSES 0
#endif

#if defined(__clang__)
#if LEVEL == 1
#pragma clang attribute push(__attribute__((target("avx2,fma,popcnt"))), apply_to = function)
#elif LEVEL == 2
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,popcnt"))), apply_to = function)
#endif
#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(KERNELS_O3) /* everything else is compiled in half the time */
#pragma GCC optimize("O3,no-ipa-ra,no-loop-interchange,no-loop-unroll-and-jam,no-tree-loop-distribute-patterns")
#else
#pragma GCC optimize("no-ipa-ra,no-loop-interchange,no-loop-unroll-and-jam,no-tree-loop-distribute-patterns")
#endif
#if LEVEL == 1
#pragma GCC target("avx2,fma,popcnt")
#elif LEVEL == 2
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma,popcnt,prefer-vector-width=512")
#endif
#endif

/* Numbers of four rows of a matrix as `count` columns, `apart` from one another: see codegen/schedule/transpose.py. */
SPECIALISED void AT_LEVEL(transpose_rows)(real *restrict to, ptrdiff_t apart, const real *restrict from, ptrdiff_t distance,
                                          int count)
{
    int column = 0;
#if defined(SHUFFLES) && FLOAT32
    for (; column + 4 <= count; column += 4) {
        const real *const row = from + column;
        real *const columns = to + apart * column;
        const four a = *(const four *)row, b = *(const four *)(row + distance);
        const four c = *(const four *)(row + 2 * distance), d = *(const four *)(row + 3 * distance);
        const four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5), bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
        const four ca = __builtin_shufflevector(a, c, 2, 6, 3, 7), db = __builtin_shufflevector(b, d, 2, 6, 3, 7);
        *(four *)columns = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
        *(four *)(columns + apart) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
        *(four *)(columns + 2 * apart) = __builtin_shufflevector(ca, db, 0, 4, 1, 5);
        *(four *)(columns + 3 * apart) = __builtin_shufflevector(ca, db, 2, 6, 3, 7);
    }
#elif defined(SHUFFLES)
    for (; column + 2 <= count; column += 2) {
        const real *const row = from + column;
        real *const columns = to + apart * column;
        const two a = *(const two *)row, b = *(const two *)(row + distance);
        const two c = *(const two *)(row + 2 * distance), d = *(const two *)(row + 3 * distance);
#if LEVEL > 0
        const four even = __builtin_shufflevector(a, c, 0, 1, 2, 3), odd = __builtin_shufflevector(b, d, 0, 1, 2, 3);
        *(four *)columns = __builtin_shufflevector(even, odd, 0, 4, 2, 6);
        *(four *)(columns + apart) = __builtin_shufflevector(even, odd, 1, 5, 3, 7);
#else
        *(two *)columns = __builtin_shufflevector(a, b, 0, 2);
        *(two *)(columns + 2) = __builtin_shufflevector(c, d, 0, 2);
        *(two *)(columns + apart) = __builtin_shufflevector(a, b, 1, 3);
        *(two *)(columns + apart + 2) = __builtin_shufflevector(c, d, 1, 3);
#endif
    }
#endif
    for (; column < count; column++)
        for (int i = 0; i < 4; i++)
            to[apart * column + i] = from[column + i * distance];
}

#if GROUP_GRADIENTS /* what images side by side have added, each for itself, is added up */
#if defined(SHUFFLES) && (FLOAT32 || LEVEL > 0)
/*
 * The totals of four sums at once: half of their numbers is added to the other half, until one of each is left. In
 * vectors as wide as registers, which hold two sums after the first step and four after the second.
 */
#if FLOAT32 && LEVEL == 2
typedef real AT_LEVEL(all) __attribute__((vector_size(16 * sizeof(real)), aligned(sizeof(real)), may_alias));

SPECIALISED four AT_LEVEL(add_up_four)(const real *a, const real *b, const real *c, const real *d)
{
#define ALL(x) (*(const AT_LEVEL(all) *)(x))
#define PAIR(x, y, i, j) \
    __builtin_shufflevector(x, y, i, i + 1, i + 2, i + 3, j, j + 1, j + 2, j + 3, i + 16, i + 17, i + 18, i + 19, j + 16, \
                            j + 17, j + 18, j + 19)
    const AT_LEVEL(all) ab = PAIR(ALL(a), ALL(b), 0, 4) + PAIR(ALL(a), ALL(b), 8, 12);
    const AT_LEVEL(all) cd = PAIR(ALL(c), ALL(d), 0, 4) + PAIR(ALL(c), ALL(d), 8, 12);
    const AT_LEVEL(all) x = PAIR(ab, cd, 0, 8) + PAIR(ab, cd, 4, 12);
    const AT_LEVEL(all) y = x + __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    const AT_LEVEL(all) z = y + __builtin_shufflevector(y, y, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    return __builtin_shufflevector(z, z, 0, 4, 8, 12);
#undef ALL
#undef PAIR
}
#else
SPECIALISED four AT_LEVEL(add_up_four)(const real *a, const real *b, const real *c, const real *d)
{
    const real *const sums[] = {a, b, c, d};
    four x[4];
    for (int i = 0; i < 4; i++) {
        const four *const parts = (const four *)sums[i];
        x[i] = FLOAT32 ? (parts[0] + parts[2]) + (parts[1] + parts[3]) : parts[0] + parts[1];
    }
#if FLOAT32
    const four y = __builtin_shufflevector(x[0], x[2], 0, 4, 1, 5) + __builtin_shufflevector(x[0], x[2], 2, 6, 3, 7);
    const four z = __builtin_shufflevector(x[1], x[3], 0, 4, 1, 5) + __builtin_shufflevector(x[1], x[3], 2, 6, 3, 7);
    return __builtin_shufflevector(y, z, 0, 4, 1, 5) + __builtin_shufflevector(y, z, 2, 6, 3, 7);
#else
    const four y = __builtin_shufflevector(x[0], x[2], 0, 1, 4, 5) + __builtin_shufflevector(x[0], x[2], 2, 3, 6, 7);
    const four z = __builtin_shufflevector(x[1], x[3], 0, 1, 4, 5) + __builtin_shufflevector(x[1], x[3], 2, 3, 6, 7);
    return __builtin_shufflevector(y, z, 0, 4, 2, 6) + __builtin_shufflevector(y, z, 1, 5, 3, 7);
#endif
}
#endif
#endif

/* Each total is that of a sum over the first `count` images, added in pairs: the second half to the first half. */
SPECIALISED void AT_LEVEL(add_up)(real *restrict total, real (*restrict sum)[SIDE_BY_SIDE], int sums, int count)
{
    for (int k = 0; count < SIDE_BY_SIDE && k < sums; k++)
        memset(sum[k] + count, 0, (size_t)(SIDE_BY_SIDE - count) * sizeof(real));
#if defined(SHUFFLES) && (FLOAT32 || LEVEL > 0)
    for (int k = 0; k < sums; k += 4) {
        const int first = sums < 4 ? 0 : at_most(k, sums - 4), last = sums - 1 - first; /* some may be added up twice */
        const real(*const four_of)[SIDE_BY_SIDE] = (const real(*)[SIDE_BY_SIDE])sum + first;
        const four found = AT_LEVEL(add_up_four)(four_of[0], four_of[at_most(1, last)], four_of[at_most(2, last)],
                                                 four_of[at_most(3, last)]);
        memcpy(total + first, &found, (size_t)at_most(sums, 4) * sizeof(real));
    }
#else
    for (int k = 0; k < sums; k++) {
        for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++)
                sum[k][i] += sum[k][i + half];
        total[k] = sum[k][0];
    }
#endif
}
#endif
