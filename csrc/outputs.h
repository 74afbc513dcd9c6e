/* Where the named outputs stand in value[]. */

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

static inline real output_element(const struct workspace *w, const struct output *output, int element)
{
    const struct span *span = output->spans;
    for (; element >= span->count; span++)
        element -= span->count;
    return w->value[span->first + element * span->step];
}

/* The index of the largest element, the first one on a tie; a nan is never larger. */
static inline int argmax(const struct workspace *w, const struct output *output)
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
