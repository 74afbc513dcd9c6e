/*
 * Loads the inputs of an image into its workspace. Included once for each SIMD level and so without a guard. The
 * find_active() of pixels is for levels without one of their own: see scan_avx.h.
 */

#if !INPUT_PIXELS
/* Whether none of the inputs of a cache line is 0. Integers are as wide as reals, so that they share vectors. */
static inline int AT_LEVEL(are_nonzero)(const real *x)
{
    real_bits zeros = 0;
    VECTORS(CACHE_LINE) for (int i = 0; i < CACHE_LINE; i++)
        zeros |= x[i] == 0 ? (real_bits)-1 : 0;
    return zeros == 0;
}

/* Lists the active inputs; returns how many. A cache line at a time, because floats are rarely 0. */
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    enum { IN_LINES = INPUT_COUNT / CACHE_LINE * CACHE_LINE };
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i += CACHE_LINE) {
        real line[CACHE_LINE];
        begin_chunk(w, i, count);
        if (IN_LINES > 0 && i < IN_LINES) { /* else gcc warns of what it does not reach */
            memcpy(line, (const char *)inputs + (size_t)i * sizeof(real), sizeof(line));
            if (AT_LEVEL(are_nonzero)(line)) {
                memcpy(w->active_value + count, line, sizeof(line));
                VECTORS(CACHE_LINE) for (int j = 0; j < CACHE_LINE; j++)
                    w->active[count + j] = i + j;
                count += CACHE_LINE;
                continue;
            }
        }
        for (int j = i; j < i + CACHE_LINE && j < INPUT_COUNT; j++) {
            w->active[count] = j;
            w->active_value[count] = input_value(inputs, j);
            count += is_nonzero(inputs, j) | is_nonfinite_row(j);
        }
    }
    return count;
}
#elif LEVEL == 0
/* The same for pixels, eight at a time, because most of them are in runs of eight zeros. */
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    enum { IN_EIGHTS = INPUT_COUNT / 8 * 8 };
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i += 8) {
        uint64_t pixels = 1;
        begin_chunk(w, i, count);
        if (i < IN_EIGHTS)
            memcpy(&pixels, inputs + i, sizeof(pixels));
        if (pixels | nonfinite_rows_of_eight(i)) {
            for (int j = i; j < i + 8 && j < INPUT_COUNT; j++) {
                w->active[count] = j;
                w->active_value[count] = input_value(inputs, j);
                count += is_nonzero(inputs, j) | is_nonfinite_row(j);
            }
        }
    }
    return count;
}
#endif

static void AT_LEVEL(set_inputs)(struct workspace *w, const input_type *inputs)
{
    if (READS_INPUTS)
        for (int i = 0; i < INPUT_COUNT; i++)
            w->value[INPUT + i] = input_value(inputs, i);
#if TOKEN_COUNT
    AT_LEVEL(set_tokens)(w, inputs);
#endif
    STORE_BARRIER;
    if (ROW_TENSOR_COUNT) {
        w->active_count = AT_LEVEL(find_active)(w, inputs);
        begin_chunk(w, CHUNKS * CHUNK_INPUTS, w->active_count);
    }
}
