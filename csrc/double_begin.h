/*
 * Included before code that computes in double in a model of floats, and so without a guard: `real` is double there. The
 * generated definitions of ops between this and double_end.h have names of their own.
 */

#define real double
#define real_bits uint64_t
#define to_bits double_to_bits
#define from_bits double_from_bits
#undef IN_LIBRARY
#define IN_LIBRARY(function) function

INLINED real_bits to_bits(real x)
{
    real_bits bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINED real from_bits(real_bits bits)
{
    real x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
