/*
 * What plain C that trains takes instead of <math.h>, <string.h> and <float.h>, which a freestanding compiler lacks.
 * IEEE 754 defines all of it to the bit. Needs no Python.
 */

#ifndef FREESTANDING_H
#define FREESTANDING_H

#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define memcpy __builtin_memcpy
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define copysign __builtin_copysign
#define copysignf __builtin_copysignf
#else
#define INFINITY ((float)(1e300 * 1e300))
#define NAN (INFINITY * 0.0f)
#define memcpy copy_bytes
#define fabs(x) copysign(x, 1.0)
#define fabsf(x) copysignf(x, 1.0f)
static inline void copy_bytes(void *to, const void *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
}

static inline double copysign(double x, double y)
{
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t a, b;
    copy_bytes(&a, &x, sizeof(a));
    copy_bytes(&b, &y, sizeof(b));
    a = (a & ~sign) | (b & sign);
    copy_bytes(&x, &a, sizeof(x));
    return x;
}

static inline float copysignf(float x, float y)
{
    const uint32_t sign = (uint32_t)1 << 31;
    uint32_t a, b;
    copy_bytes(&a, &x, sizeof(a));
    copy_bytes(&b, &y, sizeof(b));
    a = (a & ~sign) | (b & sign);
    copy_bytes(&x, &a, sizeof(x));
    return x;
}
#endif

#define FLT_MAX 0x1.fffffep127f
#define DBL_MAX 0x1.fffffffffffffp1023

/* An instruction where there is one. A compiler's own sqrt() would call a library's for numbers below 0. */
#define sqrt square_root
#define sqrtf square_root_float
#if defined(__TINYC__) || !(defined(__GNUC__) || defined(__clang__))
#elif defined(__wasm__)
#define HARDWARE_SQRT __builtin_sqrt(x)
#define HARDWARE_SQRTF __builtin_sqrtf(x)
#elif defined(__SSE2__) && defined(__AVX__)
#define SQRT_INSTRUCTION __asm__("vsqrtsd %1, %1, %0" : "=x"(root) : "x"(x))
#define SQRTF_INSTRUCTION __asm__("vsqrtss %1, %1, %0" : "=x"(root) : "x"(x))
#elif defined(__SSE2__)
#define SQRT_INSTRUCTION __asm__("sqrtsd %1, %0" : "=x"(root) : "x"(x))
#define SQRTF_INSTRUCTION __asm__("sqrtss %1, %0" : "=x"(root) : "x"(x))
#elif defined(__aarch64__)
#define SQRT_INSTRUCTION __asm__("fsqrt %d0, %d1" : "=w"(root) : "w"(x))
#define SQRTF_INSTRUCTION __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(x))
#elif defined(__s390x__)
#define SQRT_INSTRUCTION __asm__("sqdbr %0, %1" : "=f"(root) : "f"(x))
#define SQRTF_INSTRUCTION __asm__("sqebr %0, %1" : "=f"(root) : "f"(x))
#elif defined(__arm__) && defined(__ARM_FP) && !defined(__SOFTFP__)
#if __ARM_FP & 8
#define SQRT_INSTRUCTION __asm__("vsqrt.f64 %P0, %P1" : "=w"(root) : "w"(x))
#endif
#if __ARM_FP & 4
#define SQRTF_INSTRUCTION __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x))
#endif
#endif

static inline double square_root(double x)
{
#if defined(HARDWARE_SQRT)
    return HARDWARE_SQRT;
#elif defined(SQRT_INSTRUCTION)
    double root;
    SQRT_INSTRUCTION;
    return root;
#else
    /* Bit by bit, as in fdlibm: m * 4**e with 1 <= m < 4, and one bit more than the result has, which rounds it. */
    uint64_t m, root = 0, s = 0;
    if (!(x > 0) || x > DBL_MAX)
        return x < 0 ? (double)NAN : x;
    memcpy(&m, &x, sizeof(m));
    int e = (int)(m >> 52) - 1023;
    m &= ((uint64_t)1 << 52) - 1;
    if (e == -1023)
        for (e++; !(m >> 52); e--)
            m <<= 1;
    m |= (uint64_t)1 << 52;
    m <<= 1 + (e & 1);
    e = (e - (e & 1)) / 2;
    for (uint64_t bit = (uint64_t)1 << 53; bit; bit >>= 1, m <<= 1)
        if (s + bit <= m) {
            m -= s + bit;
            s += 2 * bit;
            root += bit;
        }
    root += root & (m != 0);
    root = (root >> 1) + ((uint64_t)(e + 1022) << 52);
    memcpy(&x, &root, sizeof(x));
    return x;
#endif
}

static inline float square_root_float(float x)
{
#if defined(HARDWARE_SQRTF)
    return HARDWARE_SQRTF;
#elif defined(SQRTF_INSTRUCTION)
    float root;
    SQRTF_INSTRUCTION;
    return root;
#else
    return (float)square_root(x); /* rounded twice, to the same number: double has more than twice the digits */
#endif
}

#endif
