/*
 * What the passes over one image read and write: inputs as they come, the workspace, outputs. Nothing here knows Python.
 *
 * An input is *active* where it is not 0, or where a weight of its row is not finite: codegen/sparse.py.
 */

#if INPUT_PIXELS
typedef unsigned char input_type;
#define INPUT_ELEMENTS byte_elements
#else
typedef real input_type;
#define INPUT_ELEMENTS real_elements
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

enum { VECTOR_OF_INPUTS = 16 }; /* what fills the lists of active inputs may write so many too many */

/* What the passes compute for one image. */
struct workspace {
    ALIGNED real value[VALUE_COUNT]; /* the inputs stand here too where anything but a row tensor reads them */
    int active_count;
    int active[INPUT_SPACE + VECTOR_OF_INPUTS];
    real active_value[INPUT_SPACE + VECTOR_OF_INPUTS];
#if INPUT_PIXELS
    int active_byte[INPUT_SPACE + VECTOR_OF_INPUTS];
#endif
};

/* Elements first, first + step, ... of value[]. */
struct span {
    int first, step, count;
};

struct output {
    const char *name;
    int count;
    int span_count;
    const struct span *spans;
};

static real output_element(const struct workspace *w, const struct output *output, int element)
{
    const struct span *span = output->spans;
    for (; element >= span->count; span++)
        element -= span->count;
    return w->value[span->first + element * span->step];
}

/* The index of the largest element, the first one on a tie; a nan is never larger. */
static int argmax(const struct workspace *w, const struct output *output)
{
    int best = 0, i = 0;
    real largest = output_element(w, output, 0);
    for (int s = 0; s < output->span_count; s++) {
        const struct span *const span = &output->spans[s];
        for (int k = 0; k < span->count; k++, i++) {
            const real x = w->value[span->first + k * span->step];
            if (x > largest) {
                largest = x;
                best = i;
            }
        }
    }
    return best;
}
