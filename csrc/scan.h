/*
 * Loads the inputs of an image into its workspace. Included once for each SIMD level and so without a guard; at the
 * highest level, find_active() for pixels is in scan_avx512.h instead.
 */

#if !INPUT_PIXELS
/* Lists the active inputs; returns how many. */
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        const real x = input_value(inputs, i);
        begin_chunk(w, i, count);
        w->active[count] = i;
        w->active_value[count] = x;
        count += is_nonzero(inputs, i) | is_nonfinite_row(i);
    }
    return count;
}
#elif LEVEL != 2
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
