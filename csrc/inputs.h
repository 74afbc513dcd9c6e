/* The inputs of one image, as they come. */

#if INPUT_PIXELS
typedef unsigned char input_type;
#else
typedef real input_type;
#endif

/* Floats may stand at an odd address. */
static inline real input_value(const input_type *inputs, int i)
{
#if INPUT_PIXELS
    return inputs[i] * INPUT_SCALE;
#else
    real x;
    memcpy(&x, (const char *)inputs + (size_t)i * sizeof(x), sizeof(x));
    return x;
#endif
}

static inline int is_nonzero(const input_type *inputs, int i)
{
#if INPUT_PIXELS
    return inputs[i] != 0;
#else
    return input_value(inputs, i) != 0;
#endif
}
