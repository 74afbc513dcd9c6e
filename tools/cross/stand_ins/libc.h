/* What csrc/ and Python's limited API ask of a C library, for systems whose own headers are not to be had. */

#ifndef CROSS_LIBC_H
#define CROSS_LIBC_H

#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct file FILE;

char *getenv(const char *);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
int strcmp(const char *, const char *);
size_t strlen(const char *);
char *strchr(const char *, int);
int snprintf(char *, size_t, const char *, ...);

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
double fabs(double), copysign(double, double), sqrt(double), frexp(double, int *), ldexp(double, int);
float fabsf(float), copysignf(float, float), sqrtf(float);

typedef struct {
    unsigned state;
} fenv_t;
#define FE_DFL_ENV ((const fenv_t *)0)
int fegetenv(fenv_t *), fesetenv(const fenv_t *);

#ifdef _WIN32
long _InterlockedOr(long volatile *, long);
long _InterlockedExchange(long volatile *, long);
long _InterlockedExchangeAdd(long volatile *, long);
long _InterlockedCompareExchange(long volatile *, long, long);
unsigned _mm_getcsr(void);
void _mm_setcsr(unsigned);
#else
typedef ptrdiff_t ssize_t;
#define SSIZE_MAX LONG_MAX
int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
struct timespec {
    long tv_sec, tv_nsec;
};
#define CLOCK_MONOTONIC 1
int clock_gettime(int clock, struct timespec *time);
#endif

#endif
