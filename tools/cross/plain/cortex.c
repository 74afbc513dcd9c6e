/* The first words of a program for a Cortex-M4: the stack, and what starts newlib once the floating-point unit is on. */

#include <stdint.h>

extern char __stack[];
void _start(void);

static void start(void)
{
    *(volatile unsigned *)0xE000ED88 |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb");
    _start();
}

__attribute__((section(".vectors"), used)) static const struct {
    const char *stack;
    void (*start)(void);
    void (*others[14])(void);
} vectors = {__stack, start, {0}};

/*
 * libgcc 12 subtracts two doubles wrongly, by one unit in the last place, if one is a power of 2, the other about 2**33
 * times smaller, and the processor has no instruction for it: -0x1p+6 + 0x1.dda658ee76p-27 for instance. The linker
 * takes these instead: -Wl,--wrap=__aeabi_dadd,--wrap=__aeabi_dsub
 */
uint64_t __wrap___aeabi_dadd(uint64_t a, uint64_t b);
uint64_t __wrap___aeabi_dsub(uint64_t a, uint64_t b);

uint64_t __wrap___aeabi_dadd(uint64_t a, uint64_t b)
{
    const uint64_t sign = (uint64_t)1 << 63, one = (uint64_t)1 << 52, infinity = (uint64_t)0x7ff << 52;
    if ((a & ~sign) < (b & ~sign)) {
        const uint64_t other = a;
        a = b;
        b = other;
    }
    uint64_t x = a & ~sign, y = b & ~sign;
    if (x >= infinity)
        return x > infinity || (y == infinity && a != b) ? infinity | one >> 1 : a;
    if (y == 0)
        return x == 0 ? a & b : a;
    int exponent = (int)(x >> 52);
    const int least = (int)(y >> 52), shift = exponent - least + (exponent && !least);
    x = (exponent ? (x & (one - 1)) | one : x) << 10;
    y = (least ? (y & (one - 1)) | one : y) << 10;
    exponent += !exponent;
    if (shift)
        y = shift > 62 ? 1 : y >> shift | (y << (64 - shift) != 0); /* the last bit stands for all that are lost */
    x = (a ^ b) & sign ? x - y : x + y;
    if (x == 0)
        return 0;
    for (; x >> 63; exponent++)
        x = x >> 1 | (x & 1);
    for (; !(x >> 62) && exponent > 1; exponent--)
        x <<= 1;
    const uint64_t rest = x & 1023;
    x >>= 10;
    x += rest > 512 || (rest == 512 && x & 1);
    x += (uint64_t)(x >> 52 ? exponent - 1 : 0) << 52;
    return (x > infinity ? infinity : x) | (a & sign);
}

uint64_t __wrap___aeabi_dsub(uint64_t a, uint64_t b) { return __wrap___aeabi_dadd(a, b ^ (uint64_t)1 << 63); }
