/* find_active() of scan.h for pixels, with AVX2 and AVX-512: included for both SIMD levels and so without a guard. */

#if LEVEL == 1
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
    UNROLLED(2) for (int i = 0; i < 32; i += 8) {
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

#else
/* The bytes of 64 pixels from the first one on, 0 beyond the last, and which of them are active. */
static inline __m512i AT_LEVEL(load_pixels)(const input_type *inputs, int first, __mmask64 *active)
{
    const __mmask64 inside = INPUT_COUNT - first >= 64 ? ~0ULL : (1ULL << (INPUT_COUNT - first)) - 1;
    const __m512i pixels = _mm512_maskz_loadu_epi8(inside, inputs + first);
#if FROZEN
    *active = _mm512_test_epi8_mask(pixels, pixels);
#else
    const __m512i either = _mm512_or_si512(pixels, _mm512_maskz_loadu_epi8(inside, nonfinite_row + first));
    *active = _mm512_test_epi8_mask(either, either);
#endif
    return pixels;
}

/* Stores first + each of sixteen bytes. */
static inline void AT_LEVEL(store_numbers)(int *active, __m128i bytes, int first)
{
    _mm512_storeu_si512(active, _mm512_add_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(first)));
}

/* Lists the active pixels and their bytes, 64 at a time. */
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512vbmi2,fma,popcnt"))) static int
AT_LEVEL(list_by_64)(struct workspace *restrict w, unsigned char *bytes, const input_type *inputs)
{
    static const ALIGNED unsigned char numbers[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
    };
    const __m512i all = _mm512_load_si512(numbers);
    int count = 0;
    for (int first = 0; first < INPUT_COUNT; first += 64) {
        int *const active = w->active + count;
        __mmask64 mask;
        begin_chunk(w, first, count);
        const __m512i pixels = AT_LEVEL(load_pixels)(inputs, first, &mask);
        const __m512i chosen = _mm512_maskz_compress_epi8(mask, all);
        const int found = (int)__builtin_popcountll(mask);
        _mm512_storeu_si512(bytes + count, _mm512_maskz_compress_epi8(mask, pixels));
        AT_LEVEL(store_numbers)(active, _mm512_castsi512_si128(chosen), first);
        AT_LEVEL(store_numbers)(active + 16, _mm512_extracti32x4_epi32(chosen, 1), first);
        if (found > 32) {
            AT_LEVEL(store_numbers)(active + 32, _mm512_extracti32x4_epi32(chosen, 2), first);
            AT_LEVEL(store_numbers)(active + 48, _mm512_extracti32x4_epi32(chosen, 3), first);
        }
        count += found;
    }
    return count;
}

/* The same 16 at a time, for processors that compress nothing smaller than 32 bits. */
static int AT_LEVEL(list_by_16)(struct workspace *restrict w, unsigned char *bytes, const input_type *inputs)
{
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int count = 0;
    for (int first = 0; first < INPUT_COUNT; first += 64) {
        __mmask64 mask;
        ALIGNED unsigned char pixels[64];
        begin_chunk(w, first, count);
        _mm512_store_si512(pixels, AT_LEVEL(load_pixels)(inputs, first, &mask));
        for (int i = 0; i < 64; i += 16, mask >>= 16) {
            const __mmask16 some = (__mmask16)mask;
            const __m512i part = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(pixels + i)));
            _mm512_storeu_si512(w->active + count, _mm512_maskz_compress_epi32(some, number));
            _mm_storeu_si128((__m128i *)(bytes + count), _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(some, part)));
            count += __builtin_popcount(some);
            number = _mm512_add_epi32(number, _mm512_set1_epi32(16));
        }
    }
    return count;
}

static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    unsigned char bytes[INPUT_SPACE + 64];
    const int count =
        has_vbmi2 ? AT_LEVEL(list_by_64)(w, bytes, inputs) : AT_LEVEL(list_by_16)(w, bytes, inputs);
    for (int k = 0; k < count; k++)
        w->active_value[k] = bytes[k] * INPUT_SCALE;
    return count;
}
#endif
