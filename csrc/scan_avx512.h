/* find_active() of scan.h for pixels and AVX-512. Included for that SIMD level alone and so without a guard. */

/* Sixteen pixels at a time: a mask of the active ones, whose indices and bytes are compressed together. */
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i += 16) {
        const __mmask16 inside = INPUT_COUNT - i >= 16 ? 0xFFFF : (__mmask16)((1U << (INPUT_COUNT - i)) - 1);
        const __m128i pixels = _mm_maskz_loadu_epi8(inside, inputs + i);
#if FROZEN
        const __mmask16 active = _mm_test_epi8_mask(pixels, pixels);
#else
        const __m128i either = _mm_or_si128(pixels, _mm_maskz_loadu_epi8(inside, nonfinite_row + i));
        const __mmask16 active = _mm_test_epi8_mask(either, either);
#endif
        _mm512_storeu_si512(w->active + count, _mm512_maskz_compress_epi32(active, index));
        _mm512_storeu_si512(w->active_byte + count, _mm512_maskz_compress_epi32(active, _mm512_cvtepu8_epi32(pixels)));
        count += __builtin_popcount(active);
        index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
    for (int k = 0; k < count; k++)
        w->active_value[k] = w->active_byte[k] * INPUT_SCALE;
    return count;
}
