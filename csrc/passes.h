/* One image: inputs and targets into a workspace, then the generated passes. The caller holds the lock. */

/* Somebody may have written a nan to the weights just now. */
static void expect_any_weight(void)
{
    if (data_views)
        find_poisoned();
}

static void set_targets(struct workspace *w, const target_type *targets)
{
#if TARGET_LABEL
    for (int i = 0; i < TARGET_COUNT; i++)
        w->value[TARGET + i] = i == *targets;
#else
    if (TARGET_COUNT)
        memcpy(w->value + TARGET, targets, TARGET_COUNT * sizeof(real));
#endif
}

static double compute_loss(struct workspace *w, const target_type *targets, const input_type *inputs)
{
    level->set_inputs(w, inputs);
    set_targets(w, targets);
    level->compute_loss(w);
    return w->value[LOSS];
}

static double run_forward(const target_type *targets, const input_type *inputs)
{
    settle(); /* before the workspace is overwritten */
    expect_any_weight();
    training = block;
    return compute_loss(training, targets, inputs);
}

/* The largest factor of a row tensor's gradient, inf or nan if one of them is. */
static real largest_row_factor(const struct workspace *w)
{
    real largest = 0;
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        largest = op_max(largest, largest_magnitude(w->value + row_tensors[t].factor, row_tensors[t].lanes));
    return largest;
}

/* At least as large as any input of the image. */
static double input_bound(const struct workspace *w)
{
    return INPUT_PIXELS ? 255.0 * fabs(INPUT_SCALE) : largest_magnitude(w->active_value, w->active_count);
}

static void run_backward(void)
{
    settle();
    if (grad_views)
        touch_all();
    level->compute_adjoints(training);
    level->compute_gradients(training, 1, 0, 1);
    if (!ROW_TENSOR_COUNT)
        return;
    const double factor = largest_row_factor(training);
    grad_bound += factor * input_bound(training);
    if (training == block && !touched.count && !touched.all && is_finite(factor))
        pending = 1;
    else
        level->compute_row_gradients(training);
}

static void run_update(double rate, double batch) { update_parameters(grad_views > 0, rate, batch); }

static void run_zero_grad(void)
{
    clear_gradients(grad_views > 0);
    if (grad_views)
        expect_any_gradient();
}
