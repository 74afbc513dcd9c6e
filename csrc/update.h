/* zero_grad and update: whole tensors, or the touched rows of a row tensor. */

static int row_is_finite(int input)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        if (!all_finite(data + row_tensors[t].offset + input * row_tensors[t].row_length,
                        (int)row_tensors[t].row_length))
            return 0;
    return 1;
}

/* After weights were written from outside. */
static void find_poisoned(void)
{
    if (ROW_TENSOR_COUNT)
        for (int i = 0; i < INPUT_COUNT; i++)
            poisoned[i] = !row_is_finite(i);
}

static int is_row_tensor(const struct tensor *tensor)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        if (row_tensors[t].offset == tensor->offset)
            return 1;
    return 0;
}

static void clear_touched(void)
{
    for (int k = 0; k < touched.count; k++)
        touched.flag[touched.list[k]] = 0;
    touched.count = 0;
    touched.all = 0;
}

/* With `everything`, also the rows that no backward pass has touched: somebody else may have written to them. */
static void clear_gradients(int everything)
{
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (everything || touched.all || !is_row_tensor(&tensors[t]))
            memset(grad + tensors[t].offset, 0, (size_t)tensors[t].size * sizeof(double));
    }
    if (!everything && !touched.all)
        for (int k = 0; k < touched.count; k++)
            for (int t = 0; t < ROW_TENSOR_COUNT; t++)
                memset(grad + row_tensors[t].offset + touched.list[k] * row_tensors[t].row_length, 0,
                       (size_t)row_tensors[t].row_length * sizeof(double));
    clear_touched();
}

/*
 * data -= rate * grad / batch, in this order. Where 1 / batch is exact, the division is a multiplication with the
 * same result.
 */
static void update_span(Py_ssize_t offset, Py_ssize_t count, double rate, double batch)
{
    double *restrict const p = data + offset;
    const double *restrict const g = grad + offset;
    int exponent;
    if (frexp(batch, &exponent) == 0.5) {
        const double share = 1.0 / batch;
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] * share;
    }
    else {
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] / batch;
    }
}

static void update_row(int input, double rate, double batch)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        update_span(row_tensors[t].offset + input * row_tensors[t].row_length, row_tensors[t].row_length, rate,
                    batch);
    poisoned[input] = !row_is_finite(input);
}

static void update_parameters(int everything, double rate, double batch)
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (!is_row_tensor(&tensors[t]))
            update_span(tensors[t].offset, tensors[t].size, rate, batch);
    if (!ROW_TENSOR_COUNT)
        return;
    if (everything || touched.all) {
        for (int i = 0; i < INPUT_COUNT; i++)
            update_row(i, rate, batch);
    }
    else {
        for (int k = 0; k < touched.count; k++)
            update_row(touched.list[k], rate, batch);
    }
}
