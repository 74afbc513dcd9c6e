/* The bits of a real and back. Included without a guard: double_begin.h has another `real`. */

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
