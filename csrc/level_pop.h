/* The end of one SIMD level: see level_begin.h. */

#if defined(__clang__)
#if LEVEL > 0
#pragma clang attribute pop
#endif
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#undef AT_LEVEL
#undef LEVEL_NAME
#undef LEVEL
#undef MULTIPLY_ADD
#undef FUSES
