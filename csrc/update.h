/* zero_grad and update: whole tensors, or the touched rows of a row tensor. */

static real largest_in_row(int input)
{
    real largest = 0;
    for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
        const real *const row = data + row_tensors[t].offset + input * row_tensors[t].row_length;
        largest = op_max(largest, largest_magnitude(row, row_tensors[t].lanes)); /* a nan stays */
    }
    return largest;
}

/* After weights were written from outside, or may have overflowed. */
static void find_poisoned(void)
{
    dense_bound = (double)INFINITY;
    if (!ROW_TENSOR_COUNT)
        return;
    weight_bound = 0.0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        const real largest = largest_in_row(i);
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
    library_memset(grad + offset, 0, (size_t)count * sizeof(real));
}

/* Writes the gradients that the last backward pass left for later. */
static void settle(void)
{
    for (int image = 0; image < pending; image++)
        level->compute_row_gradients(&block[image]);
    pending = 0;
}

/* The same where the last backward pass had several images: an update of these needs to see them. */
static void settle_block(void)
{
    if (pending > 1)
        settle();
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

/* One update, shared by the members of the team: a part of each dense tensor, and the rows that each of them owns. */
static struct {
    struct step step;
    int everything;
} update;

static void update_dense_tensors(int part, int parts)
{
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (is_row_tensor(&tensors[t]))
            continue;
        const Py_ssize_t lines = (tensors[t].extent + CACHE_LINE - 1) / CACHE_LINE;
        const Py_ssize_t first = lines * part / parts * CACHE_LINE;
        Py_ssize_t end = lines * (part + 1) / parts * CACHE_LINE;
        end = end < tensors[t].extent ? end : tensors[t].extent;
        level->update_span(tensors[t].offset + first, end - first, &update.step);
    }
}

static void update_member(int member)
{
    update_dense_tensors(member, team.size);
    if (!ROW_TENSOR_COUNT)
        return;
    const int in_batch = pending > 1, all = update.everything || touched.all;
    const int count = in_batch ? active_rows.count : all ? INPUT_COUNT : touched.count;
    for (int k = 0; k < count; k++) {
        const int input = in_batch ? active_rows.list[k] : all ? k : touched.list[k];
        if (!owns_row(member, input))
            continue;
        if (in_batch)
            level->update_pending_row(input, images_of_row(input), &update.step);
        else
            level->update_rows(&input, 1, &update.step);
    }
}

/* With `everything`, also the rows that no backward pass has touched. */
static void update_parameters(int everything, double rate, double batch)
{
    update.step = make_step(rate, batch);
    update.everything = everything;
    if (pending == 1) {
        update_dense_tensors(0, 1);
        level->update_pending_rows(training, &update.step);
    }
    else
        team_run(update_member);
    if (!ROW_TENSOR_COUNT)
        return;
    const double move = fabs(rate) * grad_bound; /* must not overflow either, before it is divided */
    weight_bound += move / batch;
    if (!(move < SAFE_BOUND && weight_bound < SAFE_BOUND))
        find_poisoned();
}
