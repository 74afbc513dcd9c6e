/* find_active() of scan.h for pixels and AVX2. Included for that SIMD level alone and so without a guard. */

#if FROZEN
static const unsigned char nonfinite_row[INPUT_SPACE]; /* none is: the weights are constants */
#endif

/*
 * The numbers of the set bits of eight, a byte each, lowest first; bytes behind them may hold anything. Those of four bits
 * come from a table.
 */
static inline uint64_t AT_LEVEL(bits_set)(unsigned eight)
{
    static const uint32_t of_four[16] = {
        0,    0x00,   0x01,   0x0100,   0x02,   0x0200,   0x0201,   0x020100,
        0x03, 0x0300, 0x0301, 0x030100, 0x0302, 0x030200, 0x030201, 0x03020100,
    };
    const unsigned low = eight & 15;
    return of_four[low] | (uint64_t)(of_four[eight >> 4] + 0x04040404) << 8 * __builtin_popcount(low);
}

/* Lists the active ones of 32 pixels from the first one on, eight at a time; returns how many there are so far. */
static inline int AT_LEVEL(list_32)(struct workspace *restrict w, unsigned char *bytes, const unsigned char *pixels,
                                    const unsigned char *nonfinite, int first, int count)
{
    const __m256i some = _mm256_loadu_si256((const __m256i *)pixels);
    const __m256i either = _mm256_or_si256(some, _mm256_loadu_si256((const __m256i *)nonfinite));
    const unsigned zeros = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(either, _mm256_setzero_si256()));
    if (zeros == ~0U)
        return count;
    for (int i = 0; i < 32; i += 8) {
        const unsigned active = ~zeros >> i & 255;
        const __m128i chosen = _mm_cvtsi64_si128((long long)AT_LEVEL(bits_set)(active));
        const __m128i eight = _mm_loadl_epi64((const __m128i *)(pixels + i));
        const __m256i numbers = _mm256_add_epi32(_mm256_cvtepu8_epi32(chosen), _mm256_set1_epi32(first + i));
        _mm256_storeu_si256((__m256i *)(w->active + count), numbers);
        _mm_storel_epi64((__m128i *)(bytes + count), _mm_shuffle_epi8(eight, chosen));
        count += __builtin_popcount(active);
    }
    return count;
}

static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    enum { WHOLE = INPUT_COUNT / 32 * 32, REST = INPUT_COUNT - WHOLE };
    unsigned char bytes[INPUT_SPACE + LIST_SLACK], rest[32] = {0}, nonfinite_rest[32] = {0};
    int count = 0;
    for (int first = 0; first < WHOLE; first += 32) {
        begin_chunk(w, first, count);
        count = AT_LEVEL(list_32)(w, bytes, inputs + first, nonfinite_row + first, first, count);
    }
    if (REST) {
        memcpy(rest, inputs + WHOLE, REST);
        memcpy(nonfinite_rest, nonfinite_row + WHOLE, REST);
        begin_chunk(w, WHOLE, count);
        count = AT_LEVEL(list_32)(w, bytes, rest, nonfinite_rest, WHOLE, count);
    }
    for (int k = 0; k < count; k++)
        w->active_value[k] = bytes[k] * INPUT_SCALE;
    return count;
}
