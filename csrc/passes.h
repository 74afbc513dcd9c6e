/* One image: inputs and targets into a workspace, then the generated passes. The caller holds the lock. */

#if TARGET_LABEL
typedef unsigned char target_type;
#define TARGET_ELEMENTS byte_elements
#define TARGETS_PER_IMAGE 1
#else
typedef double target_type;
#define TARGET_ELEMENTS double_elements
#define TARGETS_PER_IMAGE TARGET_COUNT
#endif

static void set_inputs(struct workspace *w, const input_type *inputs)
{
    level->set_inputs(w, inputs);
    if (ROW_TENSOR_COUNT) {
        if (data_views)
            find_poisoned(); /* somebody may have written a nan just now */
        find_active(w, inputs);
    }
}

static void set_targets(struct workspace *w, const target_type *targets)
{
#if TARGET_LABEL
    for (int i = 0; i < TARGET_COUNT; i++)
        w->value[TARGET + i] = i == *targets;
#else
    if (TARGET_COUNT)
        memcpy(w->value + TARGET, targets, TARGET_COUNT * sizeof(double));
#endif
}

static double run_forward(struct workspace *w, const target_type *targets, const input_type *inputs)
{
    settle(); /* before the workspace is overwritten */
    set_inputs(w, inputs);
    set_targets(w, targets);
    level->compute_loss(w);
    return w->value[LOSS];
}

static void run_backward(struct workspace *w)
{
    settle();
    if (grad_views)
        touch_all();
    level->compute_gradients(w);
    if (!ROW_TENSOR_COUNT)
        return;
    double factor = 0.0;
    for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
        const double x = largest_magnitude(w->value + row_tensors[t].factor, row_tensors[t].lanes);
        factor = op_max(factor, x); /* a nan stays */
    }
    grad_bound += factor * (INPUT_PIXELS ? 255.0 * fabs(INPUT_SCALE) : largest_magnitude(w->value + INPUT, INPUT_COUNT));
    pending = !touched.count && !touched.all && is_finite(factor);
    if (!pending)
        level->compute_row_gradients(w);
}

static void run_update(double rate, double batch) { update_parameters(grad_views > 0, rate, batch); }

static void run_zero_grad(void)
{
    clear_gradients(grad_views > 0);
    if (grad_views)
        expect_any_gradient();
}

static double output_element(const struct workspace *w, const struct output *output, int element)
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
    double largest = output_element(w, output, 0);
    for (int s = 0; s < output->span_count; s++) {
        const struct span *const span = &output->spans[s];
        for (int k = 0; k < span->count; k++, i++) {
            const double x = w->value[span->first + k * span->step];
            if (x > largest) {
                largest = x;
                best = i;
            }
        }
    }
    return best;
}
