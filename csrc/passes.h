/*
 * Forward and backward passes over one image or a block of images. The caller holds model_lock.
 *
 * In a block, the workers first share out the images and compute values and adjoints, each image in a workspace of its
 * own. Then the loops are interchanged: for each parameter, the contributions of the images are added in order. So each
 * gradient has the bits that one image at a time would give, whatever the number of workers.
 */

#ifndef PASSES_H
#define PASSES_H

#include "level.h"
#include "model.h"
#include "ops.h"
#include "pool.h"
#include "rows.h"
#include "update.h"

/* One image */

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
    materialize_row_gradients(); /* before the workspace is overwritten */
    expect_any_weight();
    training = block;
    return compute_loss(training, targets, inputs);
}

/* The largest factor of a row tensor's gradient, inf or nan if one of them is. */
static real largest_row_factor(const struct workspace *w)
{
    real largest = 0;
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        largest = larger(largest, largest_magnitude(w->value + row_tensors[t].factor, row_tensors[t].lanes));
    return largest;
}

/* At least as large as any input of the image. */
static double input_bound(const struct workspace *w)
{
    return INPUT_PIXELS ? 255.0 * fabs(INPUT_SCALE) : largest_magnitude(w->active_value, w->active_count);
}

static void run_backward(void)
{
    materialize_row_gradients();
    level->compute_adjoints(training);
    level->compute_gradients(training, 1, 0, 1);
    if (!ROW_TENSOR_COUNT)
        return;
    const double factor = largest_row_factor(training);
    grad_bound += factor * input_bound(training);
    if (training == block && can_defer_row_gradients() && is_finite(factor))
        defer_row_gradients(1);
    else
        add_row_gradients(training);
}

/* A block of images */

/*
 * Begins to load the inputs of an image that comes later: the caches of processors expect the next image of an array,
 * but not the next one of a shuffled epoch.
 */
static void prefetch_later(int image, int part, int parts)
{
    const char *const inputs = (const char *)block_images.later[image];
    enum { LINE = 64, BYTES = INPUT_COUNT * sizeof(input_type) };
    const int end = inputs == NULL ? 0 : BYTES * (part + 1) / parts;
    for (int i = LINE * (BYTES * part / parts / LINE); i < end; i += LINE)
        PREFETCH(inputs + i);
}

/* Computes the values and adjoints of one image, and what its rows will need. */
static void compute_image(int image)
{
    struct workspace *const w = &block[image];
    prefetch_later(image, 0, 3);
    block_images.loss[image] = compute_loss(w, block_images.targets[image], block_images.inputs[image]);
    prefetch_later(image, 1, 3);
    level->compute_adjoints(w);
    prefetch_later(image, 2, 3);
    if (!ROW_TENSOR_COUNT)
        return;
    block_images.factor[image] = largest_row_factor(w);
    block_images.gradient[image] = block_images.factor[image] * input_bound(w);
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        memcpy(row_factors[image] + row_tensors[t].copy, w->value + row_tensors[t].factor,
               (size_t)row_tensors[t].lanes * sizeof(real));
}

static void compute_images(int worker, void *Py_UNUSED(argument))
{
    for (int first = worker * ROW_MASK_IMAGES; first < block_images.count; first += pool.size * ROW_MASK_IMAGES) {
        const int rest = block_images.count - first, count = rest < ROW_MASK_IMAGES ? rest : ROW_MASK_IMAGES;
        for (int image = first; image < first + count; image++)
            compute_image(image);
        if (ROW_TENSOR_COUNT)
            level->find_active_rows(active_rows.images[first / ROW_MASK_IMAGES], block_images.inputs + first, count);
    }
}

static void compute_dense_gradients(int worker, void *Py_UNUSED(argument))
{
    level->compute_gradients(block, block_images.count, worker, pool.size);
}

static void compute_all_gradients(int worker, void *Py_UNUSED(argument))
{
    level->compute_gradients(block, block_images.count, worker, pool.size);
    for (int k = 0; k < active_rows.count; k++)
        if (owns_row(worker, pool.size, active_rows.list[k]))
            level->add_row(active_rows.list[k], images_of_row(active_rows.list[k]));
}

/* Forward and backward of block_images.count images, perhaps a `whole_batch`. Returns the sum of the losses so far. */
static double run_block(double total, int whole_batch)
{
    materialize_row_gradients();
    expect_any_weight();
    pool_run(compute_images, NULL);
    training = &block[block_images.count - 1];
    double factor = 0.0; /* the largest of all */
    for (int image = 0; image < block_images.count; image++) {
        total += block_images.loss[image];
        if (factor == factor && !(block_images.factor[image] <= factor)) /* keeps a nan */
            factor = block_images.factor[image];
        grad_bound += block_images.gradient[image];
    }
    if (!ROW_TENSOR_COUNT || !is_finite(factor)) {
        pool_run(compute_dense_gradients, NULL);
        for (int image = 0; ROW_TENSOR_COUNT && image < block_images.count; image++)
            add_row_gradients(&block[image]);
        return total;
    }
    list_active_rows();
    if (whole_batch && can_defer_row_gradients()) {
        pool_run(compute_dense_gradients, NULL);
        defer_row_gradients(block_images.count);
    }
    else {
        mark_rows_dirty();
        pool_run(compute_all_gradients, NULL);
    }
    return total;
}

#endif
