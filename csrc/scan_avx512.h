/* find_active() of scan.h for pixels and AVX-512. Included for that SIMD level alone and so without a guard. */

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
