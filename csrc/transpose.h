/*
 * Copies images side by side from and to the workspaces of single images. Included once for each SIMD level and so
 * without a guard. Where vector registers hold one number of each image, or of half of them, it transposes blocks in
 * registers.
 */

#if LEVEL > 0 && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TRANSPOSES 1
#endif
#endif

#if TRANSPOSES

#define REGISTER_BYTES (LEVEL == 2 ? 64 : 32)
#define IN_REGISTER (LEVEL == 2 ? SIDE_BY_SIDE : SIDE_BY_SIDE / 2) /* numbers: rows of a block, and columns */

typedef real AT_LEVEL(row) __attribute__((vector_size(REGISTER_BYTES)));
typedef real AT_LEVEL(unaligned_row) __attribute__((vector_size(REGISTER_BYTES), aligned(1), may_alias));

/* Rows a and b exchange the blocks of 1, 2, 4, ... elements that are on the wrong side of the diagonal. */
#if FLOAT32 && LEVEL == 2
#define LEFT_1(a, b) __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define RIGHT_1(a, b) __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#define LEFT_2(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define RIGHT_2(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LEFT_4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define RIGHT_4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LEFT_8(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define RIGHT_8(a, b) __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#elif FLOAT32 || LEVEL == 2
#define LEFT_1(a, b) __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define RIGHT_1(a, b) __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define LEFT_2(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define RIGHT_2(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LEFT_4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define RIGHT_4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#else
#define LEFT_1(a, b) __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define RIGHT_1(a, b) __builtin_shufflevector(a, b, 1, 5, 3, 7)
#define LEFT_2(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define RIGHT_2(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#endif

#define EXCHANGE(rows, size) \
    for (int i = 0; i < IN_REGISTER; i += 2 * (size)) \
        for (int j = i; j < i + (size); j++) { \
            const AT_LEVEL(row) a = rows[j], b = rows[j + (size)]; \
            rows[j] = LEFT_##size(a, b); \
            rows[j + (size)] = RIGHT_##size(a, b); \
        }

SPECIALISED void AT_LEVEL(transpose)(AT_LEVEL(row) rows[IN_REGISTER])
{
    EXCHANGE(rows, 1)
    EXCHANGE(rows, 2)
#ifdef LEFT_4
    EXCHANGE(rows, 4)
#endif
#ifdef LEFT_8
    EXCHANGE(rows, 8)
#endif
}

/* The elements from `first` on that fill whole blocks; returns the first one after them. */
static int AT_LEVEL(transpose_into)(struct images *restrict images, const real *const *from, int first, int end)
{
    for (; first + IN_REGISTER <= end; first += IN_REGISTER)
        for (int image = 0; image < SIDE_BY_SIDE; image += IN_REGISTER) {
            AT_LEVEL(row) rows[IN_REGISTER];
            for (int k = 0; k < IN_REGISTER; k++)
                rows[k] = *(const AT_LEVEL(unaligned_row) *)(from[image + k] + first);
            AT_LEVEL(transpose)(rows);
            for (int k = 0; k < IN_REGISTER; k++)
                *(AT_LEVEL(unaligned_row) *)&images->value[first + k][image] = rows[k];
        }
    return first;
}

#if !FROZEN
static int AT_LEVEL(transpose_out_of)(const struct images *restrict images, real *const *to, int first, int end)
{
    for (; first + IN_REGISTER <= end; first += IN_REGISTER)
        for (int image = 0; image < SIDE_BY_SIDE; image += IN_REGISTER) {
            AT_LEVEL(row) rows[IN_REGISTER];
            for (int k = 0; k < IN_REGISTER; k++)
                rows[k] = *(const AT_LEVEL(unaligned_row) *)&images->value[first + k][image];
            AT_LEVEL(transpose)(rows);
            for (int k = 0; k < IN_REGISTER; k++)
                *(AT_LEVEL(unaligned_row) *)(to[image + k] + first) = rows[k];
        }
    return first;
}
#endif

#undef LEFT_1
#undef RIGHT_1
#undef LEFT_2
#undef RIGHT_2
#undef LEFT_4
#undef RIGHT_4
#undef LEFT_8
#undef RIGHT_8
#undef EXCHANGE
#undef REGISTER_BYTES
#undef IN_REGISTER

#endif

/* Some images, at most SIDE_BY_SIDE; the last one stands in for those that are missing. */
static void AT_LEVEL(copy_into)(struct images *restrict images, const struct workspace *w, int count)
{
    const real *from[SIDE_BY_SIDE];
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        from[k] = w[k < count ? k : count - 1].value;
    for EACH_PART(part, into) {
        int i = part->first;
#if TRANSPOSES
        i = AT_LEVEL(transpose_into)(images, from, i, part->first + part->count);
#endif
        for (; i < part->first + part->count; i++)
            for (int k = 0; k < SIDE_BY_SIDE; k++)
                images->value[i][k] = from[k][i];
    }
}

#if LOADS_GROUPS
/* The same from inputs, which come first in value[], and targets as they are. Floats may be misaligned. */
static void AT_LEVEL(load_group)(struct images *restrict images, int first, int count)
{
    const input_type *inputs[SIDE_BY_SIDE];
    const target_type *targets[SIDE_BY_SIDE];
    int i = 0;
    for (int k = 0; k < SIDE_BY_SIDE; k++) {
        inputs[k] = block_images.inputs[first + at_most(k, count - 1)];
        targets[k] = block_images.targets[first + at_most(k, count - 1)];
    }
#if TRANSPOSES
    i = AT_LEVEL(transpose_into)(images, inputs, 0, INPUT_COUNT);
#endif
    for (; i < INPUT_COUNT; i++)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            images->value[i][k] = input_value(inputs[k], i);
    for (i = 0; i < TARGET_COUNT; i++)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
#if TARGET_LABEL
            images->value[TARGET + i][k] = i == *targets[k];
#else
            memcpy(&images->value[TARGET + i][k], (const char *)targets[k] + (size_t)i * sizeof(real), sizeof(real));
#endif
}
#endif

#if !FROZEN
static void AT_LEVEL(copy_out_of)(const struct images *restrict images, struct workspace *w, int count,
                                  const struct values *list)
{
    real *to[SIDE_BY_SIDE];
    for (int k = 0; k < count; k++)
        to[k] = w[k].value;
    for EACH_PART(part, list) {
        int i = part->first;
#if TRANSPOSES
        if (count == SIDE_BY_SIDE)
            i = AT_LEVEL(transpose_out_of)(images, to, i, part->first + part->count);
#endif
        for (; i < part->first + part->count; i++)
            for (int k = 0; k < count; k++)
                to[k][i] = images->value[i][k];
    }
}
#endif

#undef TRANSPOSES
