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
#include "noise.h"
#include "ops.h"
#include "pool.h"
#include "rows.h"
#include "tokens.h"
#include "update.h"

/* One image */

static void set_targets(struct workspace *w, const target_type *targets)
{
#if TARGET_LABEL
    memset(w->value + TARGET, 0, TARGET_COUNT * sizeof(real));
    w->value[TARGET + at_most(*targets, TARGET_COUNT - 1)] = 1; /* a caller may have overwritten it since it was checked */
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

static int backward_done; /* whether `training` has the adjoints of the last forward() */

static double run_forward(const target_type *targets, const input_type *inputs, struct random_state *random)
{
    materialize_row_gradients(); /* before the workspace is overwritten */
    backward_done = 0;
    training = with_list(block, &training_list);
    inputs = move_image(0, inputs, random);
    draw_noise(training, random);
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
    if (!at_once)
        level->compute_gradients(training, 1, 0, 1);
#if TOKEN_TABLE_COUNT
    const double bound = level->word_gradient_bound(training, 1);
    grad_bound += bound;
    expect_word_gradients(training, 1, bound);
    level->add_word_gradients(training, 1, 0, 1);
#endif
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

enum {
    TILE_BYTES = 1 << 16, /* of rows: more than an L1 cache, because many are not active */
    FEWEST_IN_GROUPS = 2 * SIDE_BY_SIDE, /* images of a block: see codegen/schedule/copies.py */
    SMALL_PIECE = SIDE_BY_SIDE > 16 ? SIDE_BY_SIDE : 16, /* whole groups of images side by side, and of row masks */
    PIECE = FEW_IMAGES ? 64 : ROW_TENSOR_COUNT ? 32 : SMALL_PIECE, /* images that a worker takes at a time, at most */
};

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

/* Whether an image of the block will be `training`, and read. */
static inline int is_training(int image) { return image == block_images.count - 1 && block_images.is_last; }

/* The active inputs of the images of a piece, except for the last one of the block: it will be `training`. */
static struct active_list lists[MAX_WORKERS][PIECE];

static void set_image(int image, struct active_list *list)
{
    struct workspace *const w = with_list(&block[image], image == block_images.count - 1 ? &training_list : list);
    level->set_inputs(w, block_images.inputs[image]);
    set_targets(w, block_images.targets[image]);
}

#if FEW_IMAGES
/* Whether all inputs before chunk `last` are active in each of some images. */
static int are_dense(const struct workspace *images, int count, int last)
{
    const int inputs = at_most(last * CHUNK_INPUTS, INPUT_COUNT);
    for (int k = 0; k < count; k++)
        if (images[k].active_before[last] != inputs)
            return 0;
    return 1;
}
#endif

/*
 * Adds the rows of active inputs from `chunk` on, before chunk `last`, to as many of `count` images as go together;
 * returns how many.
 */
static int add_rows(struct workspace *images, int count, int chunk, int last)
{
    const int *const before = images->active_before;
#if FEW_IMAGES
    if (level->add_more_dense_rows != NULL && count >= MORE_IMAGES && are_dense(images, MORE_IMAGES, last)) {
        level->add_more_dense_rows(images, before[chunk], before[last]);
        return MORE_IMAGES;
    }
    if (count >= FEW_IMAGES && are_dense(images, FEW_IMAGES, last)) {
        level->add_dense_rows(images, before[chunk], before[last]);
        return FEW_IMAGES;
    }
#endif
    level->add_rows(images, before[chunk], before[last]);
    (void)count;
    return 1;
}

enum { ROWS_BYTES = CHUNK_INPUTS * ROW_FACTORS * sizeof(real), CHUNKS_IN_TILE = TILE_BYTES / ROWS_BYTES };
enum { TILE_CHUNKS = CHUNKS_IN_TILE > 1 ? CHUNKS_IN_TILE : 1 };

/*
 * The sums over active inputs of some images; of a block, from image `first` on, else that is -1. The rows of a tile of
 * inputs stay in the L1 cache while all images add theirs, tile after tile: each sum still adds its terms in order.
 */
static void sum_rows(struct workspace *images, int first, int count)
{
    for (int image = 0; image < count; image++)
        level->start_row_sums(&images[image]);
    for (int chunk = 0; chunk < CHUNKS; chunk += TILE_CHUNKS) {
        const int last = at_most(chunk + TILE_CHUNKS, CHUNKS);
        for (int image = 0, next = 0; image < count; image++) {
            if (image == next)
                next += add_rows(&images[image], count - image, chunk, last);
            if (first >= 0)
                prefetch_later(first + image, chunk * CHUNK_INPUTS, last * CHUNK_INPUTS);
        }
    }
}

#if GROUP_GRADIENTS
/* The images of the block side by side, if they are so many that gradients are added from there. */
static struct images groups[(BLOCK_IMAGES + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE];
static int in_groups(void) { return block_images.count >= FEWEST_IN_GROUPS && !block_images.are_shared; }

#if GROUP_SUMS
static void clear_sums(void)
{
    for EACH_PART(part, sums)
        memset(computed_once.value + part->first, 0, (size_t)part->count * sizeof(real));
}

/* `argument`: the number of pieces. */
static void add_gradients_of_sums(int Py_UNUSED(worker), int piece, void *argument)
{
    level->add_gradients_of_sums(&computed_once, (real)block_images.count, piece, *(const int *)argument);
}

/* After the gradients of groups, which add up the sums too. */
static void use_sums(void)
{
    int pieces = pool_pieces();
    level->compute_from_sums(&computed_once, (real)block_images.count);
    pool_run(add_gradients_of_sums, pieces, &pieces);
}
#endif
#else
#define in_groups() 0
#endif

/* The other values and the adjoints of at most IMAGES_AT_ONCE images. */
static void compute_values(int worker, int first, int count)
{
    struct workspace *const w = &block[first];
#if SIDE_BY_SIDE
    if (lie_side_by_side(count) || in_groups()) {
        struct images *images = &inference[worker].side_by_side; /* no one else computes */
        const struct batch_passes *passes = level->training;
        const struct values *list = out_of;
#if GROUP_GRADIENTS
        if (in_groups()) {
            images = &groups[first / SIDE_BY_SIDE];
            list = out_of_groups;
#if GROUP_SUMS
            passes = &level->in_groups;
#endif
        }
#endif
#if LOADS_GROUPS
        if (in_groups()) {
            level->load_group(images, first, count);
            passes->side_by_side(images, &computed_once);
        }
        else
#endif
        {
            for (int k = 0; k < count; k++)
                copy_computed_once(&w[k], once);
            compute_side_by_side(images, passes, w, count, &computed_once);
            level->copy_out_of(images, w, count, list);
        }
        for (int k = 0; k < count; k++)
            block_images.loss[first + k] = images->value[LOSS][k];
        if (is_training(first + count - 1))
            copy_image(&w[count - 1], images, count - 1); /* it will be `training` */
        return;
    }
#endif
    for (int k = 0; k < count; k++) {
        level->compute_after_rows(&w[k]);
        block_images.loss[first + k] = w[k].value[LOSS];
        level->compute_adjoints(&w[k]);
    }
    (void)worker;
}

/* What the rows of some images will need. */
static void keep_row_factors(int first, int end)
{
    for (int image = first; HAS_ROWS && image < end; image++) {
        const struct workspace *const w = &block[image];
        block_images.factor[image] = largest_row_factor(w);
        block_images.gradient[image] = ROW_TENSOR_COUNT ? block_images.factor[image] * input_bound(w) : 0.0;
        for (int t = 0; t < ROW_TENSOR_COUNT; t++)
            memcpy(row_factors[image] + row_tensors[t].copy, w->value + row_tensors[t].factor,
                   (size_t)row_tensors[t].lanes * sizeof(real));
    }
#if TOKEN_TABLE_COUNT
    block_images.gradient[first] += level->word_gradient_bound(&block[first], end - first);
#endif
}

static void find_masks(int first, int end)
{
    for (int image = first; ROW_TENSOR_COUNT && image < end; image += ROW_MASK_IMAGES)
        level->find_active_rows(active_rows[image / ROW_MASK_IMAGES], block_images.inputs + image,
                                at_most(end - image, ROW_MASK_IMAGES));
}

/* How many images a worker takes at a time: at most PIECE, and so few that all workers have some. */
static int piece_size(int images)
{
    const int share = (images + pool_workers() - 1) / pool_workers();
    const int small = share > SMALL_PIECE ? (share + SMALL_PIECE - 1) / SMALL_PIECE : 1; /* one if there are no images */
    return at_most(small * SMALL_PIECE, PIECE);
}

static int pieces_of(int images) { return (images + piece_size(images) - 1) / piece_size(images); }

/* The images of a piece; of several processes, receive_block() finds the masks. */
static void compute_images(int worker, int piece, void *Py_UNUSED(argument))
{
    const int size = piece_size(block_images.end - block_images.first);
    const int first = block_images.first + piece * size, end = first + at_most(block_images.end - first, size);
    for (int image = first; image < end; image++) {
        if (!LOADS_GROUPS || !in_groups() || is_training(image))
            set_image(image, &lists[worker][image - first]);
        if (!ROW_TENSOR_COUNT)
            prefetch_later(image, 0, INPUT_COUNT);
    }
    if (ROW_TENSOR_COUNT)
        sum_rows(&block[first], first, end - first);
    for (int image = first; image < end; image += IMAGES_AT_ONCE)
        compute_values(worker, image, at_most(end - image, IMAGES_AT_ONCE));
    keep_row_factors(first, end);
    if (block_images.end - block_images.first == block_images.count)
        find_masks(first, end);
}

/*
 * Into how many pieces the gradients outside of row tensors should be cut. Each piece reads values of all images from
 * the caches of other workers, so few parameters beside many rows are left to one worker.
 */
static int dense_pieces(void)
{
    const int64_t in_rows = (int64_t)INPUT_COUNT * ROW_FACTORS, others = DATA_COUNT - in_rows;
    const int64_t most = 1 + 32 * others / (in_rows > 0 ? in_rows : 1);
    const int pieces = pool_pieces();
    return ROW_TENSOR_COUNT && most < pieces ? (int)most : pieces;
}

/* `argument`: the number of pieces. */
static void compute_dense_gradients(int Py_UNUSED(worker), int piece, void *argument)
{
    const int count = block_images.count, pieces = *(const int *)argument;
#if GROUP_GRADIENTS
    if (in_groups()) {
        const int whole = count / SIDE_BY_SIDE, rest = count % SIDE_BY_SIDE;
        level->compute_group_gradients(groups, &computed_once, whole, SIDE_BY_SIDE, piece, pieces);
        if (rest)
            level->compute_group_gradients(groups + whole, &computed_once, 1, rest, piece, pieces);
        level->compute_other_gradients(block, count, piece, pieces);
    }
    else
#endif
        level->compute_gradients(block, count, dense_share.part * pieces + piece, dense_share.parts * pieces);
#if TOKEN_TABLE_COUNT
    level->add_word_gradients(block, count, piece, pieces);
#endif
}

/* The same: the first pieces have dense gradients, and all have rows. */
static void compute_all_gradients(int worker, int piece, void *argument)
{
    const int pieces = pool_pieces(), part = row_share.part * pieces + piece, parts = row_share.parts * pieces;
    if (piece < *(const int *)argument)
        compute_dense_gradients(worker, piece, argument);
    level->add_images_to_rows(part_start(INPUT_COUNT, part, parts), part_start(INPUT_COUNT, part + 1, parts),
                              block_images.count);
}

/* The values and adjoints of the images of a block that are computed here; random numbers are drawn for all. */
static void compute_block(struct random_state *random)
{
    backward_done = 0;
    materialize_row_gradients();
    for (int image = 0; image < block_images.count; image++) {
        block_images.inputs[image] = move_image(image, block_images.inputs[image], random);
        draw_noise(&block[image], random);
    }
#if SIDE_BY_SIDE
    compute_once(level->training, &computed_once);
    copy_computed_once(&block[0], all_once);
#endif
    pool_run(compute_images, pieces_of(block_images.end - block_images.first), NULL);
}

/*
 * Then, the gradients of all images. `defers`: those of rows may wait for an update, because the images are a whole batch
 * and nothing else reads grad[]. Returns the sum of the losses so far.
 */
static double add_block(double total, int defers)
{
    training = &block[block_images.count - 1];
    double factor = 0.0, bound = 0.0; /* the largest factor; no gradient of these images is larger */
    for (int image = 0; image < block_images.count; image++) {
        total += block_images.loss[image];
        if (!HAS_ROWS)
            continue;
        if (factor == factor && !(block_images.factor[image] <= factor)) /* keeps a nan */
            factor = block_images.factor[image];
        bound += block_images.gradient[image];
    }
    grad_bound += bound;
#if TOKEN_TABLE_COUNT
    expect_word_gradients(block, block_images.count, bound);
#endif
    int pieces = pool_pieces();
    if (!ROW_TENSOR_COUNT || !is_finite(factor)) {
        pool_run(compute_dense_gradients, pieces, &pieces);
        for (int image = 0; ROW_TENSOR_COUNT && image < block_images.count; image++) {
            set_image(image, &lists[0][0]);
            add_row_gradients(&block[image]);
        }
        return total;
    }
    if (defers && row_share.parts == 1 && can_defer_row_gradients()) {
        pieces = block_images.count > GROUP_IMAGES ? pieces : dense_pieces();
        pool_run(compute_dense_gradients, pieces, &pieces);
        defer_row_gradients(block_images.count);
    }
    else {
        expect_dirty_rows();
        int dense = dense_pieces();
        pool_run(compute_all_gradients, pieces, &dense);
    }
    return total;
}

/* Forward and backward of block_images.count images. */
static double run_block(double total, int defers, struct random_state *random)
{
    compute_block(random);
#if GROUP_SUMS
    if (in_groups()) {
        clear_sums();
        total = add_block(total, defers);
        use_sums();
        return total;
    }
#endif
    return add_block(total, defers);
}

#endif
