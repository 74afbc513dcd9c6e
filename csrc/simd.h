/* Which SIMD levels there are, besides the compiler's baseline. */

/* In MSVC's mode clang's immintrin.h leaves out what the baseline does not have. */
#if !SINGLE_LEVEL && defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__)) && !defined(_MSC_VER)
#define X86_LEVELS 1
#if INPUT_PIXELS
#include <immintrin.h> /* for scan_avx512.h alone: half of what a compiler without optimisation has to do */
#endif
#else
#define X86_LEVELS 0
#endif

/* Whether the baseline has fused multiply-add, as on arm64. */
#if defined(__GNUC__) && (FLOAT32 ? defined(__FP_FAST_FMAF) : defined(__FP_FAST_FMA)) || defined(__aarch64__)
#define HAS_FMA 1
#else
#define HAS_FMA 0
#endif
