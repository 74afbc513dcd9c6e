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
        largest = larger(largest, level->largest(w->value + row_tensors[t].factor, row_tensors[t].lanes));
    return largest;
}

/* At least as large as any input of the image. */
static double input_bound(const struct workspace *w)
{
    return INPUT_PIXELS ? 255.0 * fabs(INPUT_SCALE) : level->largest(w->active_value, w->active_count);
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

enum { TILE_BYTES = 1 << 16 }; /* of rows: more than an L1 cache, because many are not active */

/*
 * Begins to load inputs first .. end - 1 of an image that comes later: caches expect the next image of an array, but
 * not the next one of a shuffled epoch. Few at a time, because a core waits for few cache lines at a time.
 */
static void prefetch_later(int image, int first, int end)
{
    enum { LINE = 64 / sizeof(input_type) };
    const input_type *const inputs = block_images.later[image];
    for (int i = first; inputs != NULL && i < end && i < INPUT_COUNT; i += LINE)
        PREFETCH(inputs + i);
}

/* The images of a worker: eight neighbours at a time, as one byte of active_rows has them. */
static int next_image(int image)
{
    return (image + 1) % ROW_MASK_IMAGES ? image + 1 : image + 1 + (pool.size - 1) * ROW_MASK_IMAGES;
}

/*
 * Computes the sums over active inputs for the images of a worker. The rows of a tile of inputs stay in the L1 cache
 * while all images add theirs, tile after tile: each sum still adds its terms in order.
 */
static void compute_row_sums(int worker)
{
    enum { ROWS_BYTES = CHUNK_INPUTS * ROW_FACTORS * sizeof(real), IN_TILE = TILE_BYTES / ROWS_BYTES };
    enum { TILE_CHUNKS = IN_TILE > 1 ? IN_TILE : 1 };
    for (int image = worker * ROW_MASK_IMAGES; image < block_images.count; image = next_image(image)) {
        level->set_inputs(&block[image], block_images.inputs[image]);
        level->start_row_sums(&block[image]);
    }
    for (int chunk = 0; chunk < CHUNKS; chunk += TILE_CHUNKS)
        for (int image = worker * ROW_MASK_IMAGES; image < block_images.count; image = next_image(image)) {
            const int *const before = block[image].active_before, end = chunk + TILE_CHUNKS;
            prefetch_later(image, chunk * CHUNK_INPUTS, end * CHUNK_INPUTS);
            level->add_rows(&block[image], before[chunk], before[end < CHUNKS ? end : CHUNKS]);
        }
}

/* Computes the other values and the adjoints of one image, and what its rows will need. */
static void compute_image(int image)
{
    struct workspace *const w = &block[image];
    set_targets(w, block_images.targets[image]);
    level->compute_after_rows(w);
    block_images.loss[image] = w->value[LOSS];
    level->compute_adjoints(w);
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
    compute_row_sums(worker);
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
