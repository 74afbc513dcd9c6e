/*
 * train(check_finite=True): a step that would make a parameter infinite or nan is taken back.
 *
 * Mostly no parameter has to be looked at. While bounds of the parameters and of the gradients stay far from overflow,
 * no update can leave the finite numbers. For row tensors both bounds are known (state.h); for the others a step looks
 * at their gradients. Where the bounds say nothing, as while a view is alive, the parameters are copied before the step
 * and looked at after it.
 */

static struct {
    real *before; /* room for the parameters; NULL: train() was not asked to check */
    /* Of the step that was taken back, the first such parameter in the order of state_dict(). */
    const struct tensor *tensor;
    Py_ssize_t index[MAX_DIMENSIONS];
    double value;
} finite_check;

/* Of what is not in row tensors. */
static double largest_dense(const real *array)
{
    real largest = 0;
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (!is_row_tensor(&tensors[t]))
            largest = op_max(largest, level->largest(array + tensors[t].offset, tensors[t].extent)); /* a nan stays */
    return largest;
}

/* Finds the first parameter that is not finite, if there is one. Padding is none. */
static int find_not_finite(void)
{
    if (weight_bound <= REAL_MAX && dense_bound <= REAL_MAX)
        return 0;
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++)
        for (Py_ssize_t i = 0; i < t->size; i++) {
            Py_ssize_t rest = i, place = t->offset;
            for (int d = t->dimensions - 1; d >= 0; d--) {
                finite_check.index[d] = rest % t->shape[d];
                place += finite_check.index[d] * t->strides[d];
                rest /= t->shape[d];
            }
            if (!is_finite(data[place])) {
                finite_check.tensor = t;
                finite_check.value = data[place];
                return 1;
            }
        }
    return 0;
}

/* "layers.0.weight[3, 17]", or no more than the name for a tensor of no dimensions; NULL without memory. */
static PyObject *name_found(void)
{
    const int dimensions = finite_check.tensor->dimensions;
    PyObject *text = PyUnicode_FromString(finite_check.tensor->name);
    for (int d = 0; d < dimensions; d++)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat("%s%zd%s", d ? ", " : "[", finite_check.index[d],
                                                           d + 1 < dimensions ? "" : "]"));
    return text;
}

static const char *value_name(void)
{
    return finite_check.value > 0 ? "inf" : finite_check.value < 0 ? "-inf" : "nan";
}

static void end_finite_check(void)
{
    PyMem_Free(finite_check.before);
    finite_check.before = NULL;
}

/* Fails where a parameter is not finite. Needs the GIL; the caller holds long_lock. */
static int begin_finite_check(void)
{
    finite_check.before = PyMem_Malloc(sizeof(data));
    if (finite_check.before == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    lock_to_read();
    expect_any_weight();
    dense_bound = largest_dense(data);
    const int failed = find_not_finite();
    unlock();
    if (!failed)
        return 0;
    PyObject *what = name_found();
    if (what != NULL)
        PyErr_Format(PyExc_FloatingPointError, "train() did not start: %U is %s", what, value_name());
    Py_XDECREF(what);
    return -1;
}

/* An update that may leave the finite numbers. */
static int update_and_look(double rate, double batch)
{
    memcpy(finite_check.before, data, sizeof(data));
    run_update(rate, batch);
    find_poisoned();
    dense_bound = largest_dense(data);
    if (!find_not_finite())
        return 0;
    memcpy(data, finite_check.before, sizeof(data));
    find_poisoned();
    return -1;
}

/* One update, or none: then -1, and finite_check says why. */
static int run_checked_update(double rate, double batch)
{
    const double dense_move = fabs(rate) * largest_dense(grad), row_move = fabs(rate) * grad_bound;
    const int is_safe =
        dense_move < SAFE_BOUND && dense_bound < SAFE_BOUND && row_move < SAFE_BOUND && weight_bound < SAFE_BOUND;
    if (data_views || !is_safe)
        return update_and_look(rate, batch);
    run_update(rate, batch);
    dense_bound += dense_move / batch;
    return 0;
}
