/* After the kernels of one SIMD level: the hand-written loops that profit from it too, and the table of both. */

static void AT_LEVEL(set_inputs)(struct workspace *w, const input_type *inputs)
{
#if INPUT_PIXELS
    for (int i = 0; i < INPUT_COUNT; i++)
        w->value[INPUT + i] = inputs[i] * INPUT_SCALE;
#else
    memcpy(w->value + INPUT, inputs, INPUT_COUNT * sizeof(double));
#endif
}

/* data -= rate * grad / batch, in this order. */
static inline void AT_LEVEL(update_span)(Py_ssize_t offset, Py_ssize_t count, const struct step *step)
{
    double *restrict const p = data + offset;
    const double *restrict const g = grad + offset;
    const double rate = step->rate, batch = step->batch, share = step->share;
    if (share == 1.0)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i];
    else if (share != 0.0)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] * share;
    else
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] / batch;
}

static void AT_LEVEL(update_rows)(const int *inputs, int count, const struct step *step)
{
    for (int k = 0; k < count; k++)
        for (int t = 0; t < ROW_TENSOR_COUNT; t++)
            AT_LEVEL(update_span)(row_tensors[t].offset + inputs[k] * row_tensors[t].row_length,
                                  row_tensors[t].row_length, step);
}

/* The same, with the gradients of pending rows: each is 0 + input * factor. */
static void AT_LEVEL(update_pending_rows)(const struct workspace *restrict w, const struct step *step)
{
    const double rate = step->rate, batch = step->batch, share = step->share;
    for (int k = 0; k < w->active_count; k++) {
        const int input = w->active[k];
        const double x = w->value[INPUT + input];
        for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
            const Py_ssize_t count = row_tensors[t].row_length;
            double *restrict const p = data + row_tensors[t].offset + input * count;
            const double *restrict const factor = w->value + row_tensors[t].factor;
            if (share == 1.0)
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]);
            else if (share != 0.0)
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]) * share;
            else
                for (Py_ssize_t i = 0; i < count; i++)
                    p[i] -= rate * (x * factor[i]) / batch;
        }
    }
}

static void AT_LEVEL(update_tensor)(const struct tensor *tensor, const struct step *step)
{
    AT_LEVEL(update_span)(tensor->offset, tensor->extent, step);
}

static const struct level AT_LEVEL(level) = {
    .name = LEVEL_NAME,
    .set_inputs = AT_LEVEL(set_inputs),
    .compute_loss = AT_LEVEL(compute_loss),
    .compute_gradients = AT_LEVEL(compute_gradients),
    .compute_row_gradients = AT_LEVEL(compute_row_gradients),
    .compute_prediction = AT_LEVEL(compute_prediction),
    .compute_outputs = AT_LEVEL(compute_outputs),
    .compute_evaluation = AT_LEVEL(compute_evaluation),
    .update_rows = AT_LEVEL(update_rows),
    .update_pending_rows = AT_LEVEL(update_pending_rows),
    .update_tensor = AT_LEVEL(update_tensor),
};

#if defined(__clang__)
#if LEVEL > 0
#pragma clang attribute pop
#endif
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#undef AT_LEVEL
#undef LEVEL_NAME
#undef LEVEL
