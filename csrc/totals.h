/*
 * What images side by side have added, each for itself, is added up. Included by level_begin.h, once for each SIMD level
 * and so without a guard.
 */

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
