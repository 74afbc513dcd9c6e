/* The bits of a real and back. Included without a guard: in_double.h has another `real`. */

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

/* 1 if the condition holds, else 0. Of `condition ? 1 : 0` times a number gcc makes a branch, often mispredicted. */
INLINED real one_if(int condition)
{
    const real_bits mask = condition ? ~(real_bits)0 : 0;
    return from_bits(mask & to_bits(1));
}
