/* zero_grad and update: whole tensors, or the touched rows of a row tensor. */

static double largest_in_row(int input)
{
    double largest = 0.0;
    for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
        const double *const row = data + row_tensors[t].offset + input * row_tensors[t].row_length;
        largest = op_max(largest, largest_magnitude(row, row_tensors[t].lanes)); /* a nan stays */
    }
    return largest;
}

/* After weights were written from outside, or may have overflowed. */
static void find_poisoned(void)
{
    if (!ROW_TENSOR_COUNT)
        return;
    weight_bound = 0.0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        const double largest = largest_in_row(i);
        poisoned[i] = !is_finite(largest);
        if (!(largest <= weight_bound))
            weight_bound = poisoned[i] ? (double)INFINITY : largest;
    }
}

static int is_row_tensor(const struct tensor *tensor)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        if (row_tensors[t].offset == tensor->offset)
            return 1;
    return 0;
}

/* Called through a pointer: gcc expands a memset of this known size into `rep stos`, which takes three times as long. */
static void *(*volatile const library_memset)(void *, int, size_t) = memset;

static void clear_span(Py_ssize_t offset, Py_ssize_t count)
{
    library_memset(grad + offset, 0, (size_t)count * sizeof(double));
}

/* Writes the gradients that the last backward pass left for later. */
static void settle(void)
{
    if (pending) {
        pending = 0;
        level->compute_row_gradients(&training);
    }
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
            clear_span(tensors[t].offset, tensors[t].extent);
    }
    if (!everything && !touched.all)
        for (int k = 0; k < touched.count; k++)
            for (int t = 0; t < ROW_TENSOR_COUNT; t++)
                clear_span(row_tensors[t].offset + touched.list[k] * row_tensors[t].row_length,
                           row_tensors[t].row_length);
    clear_touched();
    pending = 0;
    grad_bound = 0.0;
}

static struct step make_step(double rate, double batch)
{
    int exponent;
    return (struct step){rate, batch, frexp(batch, &exponent) == 0.5 ? 1.0 / batch : 0.0};
}

static void update_parameters(int everything, double rate, double batch)
{
    const struct step step = make_step(rate, batch);
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (!is_row_tensor(&tensors[t]))
            level->update_tensor(&tensors[t], &step);
    if (!ROW_TENSOR_COUNT)
        return;
    if (pending)
        level->update_pending_rows(&training, &step);
    else if (!everything && !touched.all)
        level->update_rows(touched.list, touched.count, &step);
    else
        for (int i = 0; i < INPUT_COUNT; i++)
            level->update_rows(&i, 1, &step);
    const double move = fabs(rate) * grad_bound; /* must not overflow either, before it is divided */
    weight_bound += move / batch;
    if (!(move < SAFE_BOUND && weight_bound < SAFE_BOUND))
        find_poisoned();
}
