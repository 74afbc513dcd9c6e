/* After the kernels of one SIMD level: the hand-written loops that profit from it too, and the table of both. */

#include "scan.h"

/* Bit k of rows[i]: input i of image k, of eight images at most, is active. */
static void AT_LEVEL(find_active_rows)(unsigned char *restrict rows, const input_type *const *images, int count)
{
    const unsigned char all = (unsigned char)((1U << count) - 1);
    for (int i = 0; i < INPUT_COUNT; i++)
        rows[i] = poisoned[i] ? all : 0;
    for (int k = 0; k < count; k++) {
        const input_type *const inputs = images[k];
        const unsigned char bit = (unsigned char)(1U << k);
        for (int i = 0; i < INPUT_COUNT; i++)
            rows[i] |= is_nonzero(inputs, i) ? bit : 0;
    }
}

/* p -= rate * g / batch, in this order. */
static inline void AT_LEVEL(descend)(real *restrict p, const real *restrict g, Py_ssize_t count,
                                     const struct step *step)
{
    const real rate = (real)step->rate, batch = (real)step->batch, share = (real)step->share;
    if (share == 1)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i];
    else if (share != 0)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] * share;
    else
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] / batch;
}

static real AT_LEVEL(largest)(const real *x, Py_ssize_t count) { return largest_magnitude(x, count); }

static void AT_LEVEL(update_span)(Py_ssize_t offset, Py_ssize_t count, const struct step *step)
{
    AT_LEVEL(descend)(data + offset, grad + offset, count, step);
}

static void AT_LEVEL(update_rows)(const int *inputs, int count, const struct step *step)
{
    for (int k = 0; k < count; k++)
        for (int t = 0; t < ROW_TENSOR_COUNT; t++)
            AT_LEVEL(update_span)(row_tensors[t].offset + inputs[k] * row_tensors[t].row_length,
                                  row_tensors[t].row_length, step);
}

/*
 * The same, with the gradients of one image's pending rows: each is 0 + input * factor. The last rows come first: they
 * are what forward has read last and still in the first-level cache, as the first ones will be for the next forward.
 */
static void AT_LEVEL(update_pending_rows)(const struct workspace *restrict w, const struct step *step)
{
    const real rate = (real)step->rate, batch = (real)step->batch, share = (real)step->share;
    for (int k = w->active_count - 1; k >= 0; k--) {
        const real x = w->active_value[k];
        for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
            const Py_ssize_t count = row_tensors[t].row_length;
            real *restrict const p = data + row_tensors[t].offset + w->active[k] * count;
            const real *restrict const factor = w->value + row_tensors[t].factor;
            if (share == 1)
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]);
            else if (share != 0)
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]) * share;
            else
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]) / batch;
        }
    }
}

/* The same for one input and the images of a block. */
static void AT_LEVEL(update_pending_row)(int input, uint64_t images, const struct step *step)
{
    ALIGNED real gradient[ROW_FACTORS] = {0};
    for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
        real *const sum = gradient + row_tensors[t].copy;
        AT_LEVEL(add_row)(t, sum, input, images);
        AT_LEVEL(descend)(data + row_tensors[t].offset + input * row_tensors[t].row_length, sum,
                          row_tensors[t].row_length, step);
    }
}

static const struct level AT_LEVEL(level) = {
    .name = LEVEL_NAME,
    .fuses = FUSES,
    .set_inputs = AT_LEVEL(set_inputs),
    .compute_loss = AT_LEVEL(compute_loss),
    .compute_adjoints = AT_LEVEL(compute_adjoints),
    .compute_gradients = AT_LEVEL(compute_gradients),
    .compute_row_gradients = AT_LEVEL(compute_row_gradients),
    .compute_prediction = AT_LEVEL(compute_prediction),
    .compute_outputs = AT_LEVEL(compute_outputs),
    .compute_evaluation = AT_LEVEL(compute_evaluation),
    .find_active_rows = AT_LEVEL(find_active_rows),
    .add_row = AT_LEVEL(add_row),
    .update_span = AT_LEVEL(update_span),
    .update_rows = AT_LEVEL(update_rows),
    .update_pending_rows = AT_LEVEL(update_pending_rows),
    .update_pending_row = AT_LEVEL(update_pending_row),
    .largest = AT_LEVEL(largest),
};

#include "level_pop.h"
