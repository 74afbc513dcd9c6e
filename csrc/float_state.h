/*
 * The processor's floating-point state: rounding direction, and whether denormals are flushed to zero. Other libraries
 * leave it changed, and would change bits. Whatever computes runs in the default state and restores the caller's.
 */

#ifndef FLOAT_STATE_H
#define FLOAT_STATE_H

#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__) && defined(__SSE2__)
typedef unsigned int float_state;
#define READ_FLOAT_STATE() __builtin_ia32_stmxcsr()
#define WRITE_FLOAT_STATE(state) __builtin_ia32_ldmxcsr(state)
#elif defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
typedef unsigned int float_state;
#define READ_FLOAT_STATE() _mm_getcsr()
#define WRITE_FLOAT_STATE(state) _mm_setcsr(state)
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
typedef unsigned long long float_state;
static inline float_state read_fpcr(void)
{
    float_state state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
}
#define READ_FLOAT_STATE() read_fpcr()
#define WRITE_FLOAT_STATE(state) __asm__ volatile("msr fpcr, %0" : : "r"((float_state)(state)) : "memory")
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__s390x__)
typedef unsigned int float_state;
static inline float_state read_fpc(void)
{
    float_state state;
    __asm__ volatile("efpc %0" : "=d"(state));
    return state;
}
#define READ_FLOAT_STATE() read_fpc()
#define WRITE_FLOAT_STATE(state) __asm__ volatile("sfpc %0" : : "d"((float_state)(state)) : "memory")
#endif

#ifdef READ_FLOAT_STATE
#if defined(__aarch64__)
enum { DEFAULT_FLOATS = 0, FLOAT_STATE_BITS = -1 };
#elif defined(__s390x__)
enum { DEFAULT_FLOATS = 0, FLOAT_STATE_BITS = -0x07ffff89 }; /* trap masks and rounding, 0xf8000077; not the flags */
#else
enum { DEFAULT_FLOATS = 0x1f80, FLOAT_STATE_BITS = 0xffc0 }; /* no exception traps; not the flags of those raised */
#endif

/* Writing the state is slow, so it is written only if it differs. */
static inline int is_default(float_state state) { return (state & (float_state)FLOAT_STATE_BITS) == DEFAULT_FLOATS; }

/* Returns the state for restore_floats(). */
static inline float_state use_default_floats(void)
{
    const float_state state = READ_FLOAT_STATE();
    if (!is_default(state))
        WRITE_FLOAT_STATE(DEFAULT_FLOATS);
    return state;
}

static inline void restore_floats(float_state state)
{
    if (!is_default(state))
        WRITE_FLOAT_STATE(state);
}
#else
#include <fenv.h>
typedef fenv_t float_state;

static inline float_state use_default_floats(void)
{
    float_state state;
    fegetenv(&state);
    fesetenv(FE_DFL_ENV);
    return state;
}

static inline void restore_floats(float_state state) { fesetenv(&state); }
#endif

#endif
