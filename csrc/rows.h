/*
 * Row tensors: parameters stored as one row for each input, and the gradients of these rows.
 *
 * ROW_TENSORS(X) is the generated table, with constants for X(offset, lanes, length, block, factor, copy):
 *
 *     data[offset + length * input + lane]    a parameter, 0 <= lane < lanes; the rest of a row is padding, whose
 *                                             parameters are never read and may become anything
 *     value[factor + lane]                    the factors of an image
 *     row_factors[image][copy + lane]         their copy for an image of a block
 *     block                                   how many lanes are summed in registers at a time
 *
 * The gradient of a row is an outer product by definition:
 *
 *     grad[offset + length * input + lane] += value[input] * value[factor + lane]
 *
 * so it need not be stored while its factors are still there. In a loop of zero_grad, forward, backward, update nothing
 * reads it, and the update multiplies the factors itself. The gradients of all row tensors are in one of three states:
 *
 *     CLEAN          grad[] is 0 in all rows
 *     PENDING        the same, but block[0], block[1], ... have yet to add their outer products
 *     MATERIALISED   grad[] is complete; rows that are not dirty are 0
 *
 *     from \ event   zero_grad   a pass begins, or grad[] is read   backward
 *     CLEAN          CLEAN       CLEAN                              PENDING or MATERIALISED
 *     PENDING        CLEAN       MATERIALISED                       -
 *     MATERIALISED   CLEAN       MATERIALISED                       MATERIALISED
 *
 * A backward pass stays PENDING if its factors are finite and its images, all of them in block[], are the whole batch.
 * While a view of grad[] is alive, someone may write to any row: the state is MATERIALISED and all rows are dirty. An
 * update leaves the state as it is.
 *
 * The caller holds model_lock. This header has two parts: the state, included once, and the loops, included once for
 * each SIMD level by level_end.h.
 */

#ifndef ROWS_H
#define ROWS_H

#include "level.h"
#include "model.h"
#include "ops.h"

struct row_tensor {
    Py_ssize_t offset, lanes, length, factor, copy;
};

#define ROW_TENSOR(offset, lanes, length, block, factor, copy) {offset, lanes, length, factor, copy},
static const struct row_tensor row_tensors[] = {ROW_TENSORS(ROW_TENSOR){0, 0, 0, 0, 0}}; /* the last is never read */
#undef ROW_TENSOR

/* Target.max_lanes in codegen/schedule/target.py: half the vector registers of AVX-512. */
enum { MAX_LANES = 16 * CACHE_LINE };

#define CHECK(offset, lanes, length, block, factor, copy) _Static_assert(block <= MAX_LANES, "sums do not fit");
ROW_TENSORS(CHECK)
#undef CHECK

static ALIGNED real row_factors[BLOCK_IMAGES][ROW_FACTORS]; /* contiguous: every row reads those of all images */

/* The state of the gradients */

static struct {
    enum { CLEAN, PENDING, MATERIALISED } state;
    int images;    /* if PENDING: how many of block[] */
    int all_dirty; /* if MATERIALISED: any row may be dirty; otherwise those of the list are */
    int dirty_count;
    int dirty[INPUT_SPACE + 1]; /* one more: mark_dirty() writes before it counts */
    unsigned char is_dirty[INPUT_SPACE];
} row_gradients;

static inline void mark_dirty(int input)
{
    row_gradients.dirty[row_gradients.dirty_count] = input;
    row_gradients.dirty_count += !row_gradients.is_dirty[input];
    row_gradients.is_dirty[input] = 1;
}

static inline void mark_active_dirty(const struct workspace *w)
{
    for (int k = 0; k < w->active_count; k++)
        mark_dirty(w->active[k]);
}

static void mark_all_dirty(void)
{
    row_gradients.state = MATERIALISED;
    row_gradients.all_dirty = 1;
}

/* Whether the gradients would hold nothing but the images of one backward pass. */
static int can_defer_row_gradients(void) { return row_gradients.state == CLEAN; }

static void defer_row_gradients(int images)
{
    row_gradients.state = PENDING;
    row_gradients.images = images;
}

static int is_pending(void) { return row_gradients.state == PENDING; }

/* Adds one image to grad[]. */
static void add_row_gradients(const struct workspace *w)
{
    row_gradients.state = MATERIALISED;
    level->compute_row_gradients(w);
}

/* Before anyone reads or adds to the gradients of row tensors, or overwrites the workspaces of pending images. */
static void materialize_row_gradients(void)
{
    if (is_pending())
        for (int image = 0; image < row_gradients.images; image++)
            add_row_gradients(&block[image]);
}

/* After the dirty rows have been set to 0. */
static void forget_row_gradients(void)
{
    for (int k = 0; k < row_gradients.dirty_count; k++)
        row_gradients.is_dirty[row_gradients.dirty[k]] = 0;
    row_gradients.dirty_count = 0;
    row_gradients.all_dirty = 0;
    row_gradients.state = CLEAN;
}

/* Which images of a block need which rows */

#define ROW_MASK_IMAGES 8 /* images in one byte */

static struct {
    int count;
    int list[INPUT_SPACE]; /* inputs that are active in some image */
    unsigned char any[INPUT_SPACE];
    /* bit k of images[m][i]: input i of image m * ROW_MASK_IMAGES + k is active */
    unsigned char images[(BLOCK_IMAGES + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES][INPUT_SPACE];
} active_rows;

static void list_active_rows(void)
{
    const int masks = (block_images.count + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES;
    int count = 0;
    memset(active_rows.any, 0, sizeof(active_rows.any));
    for (int m = 0; m < masks; m++)
        for (int i = 0; i < INPUT_COUNT; i++)
            active_rows.any[i] |= active_rows.images[m][i];
    for (int i = 0; i < INPUT_COUNT; i++) {
        active_rows.list[count] = i;
        count += active_rows.any[i] != 0;
    }
    active_rows.count = count;
}

/* Before the images of a block are added to grad[], row by row. */
static void mark_rows_dirty(void)
{
    row_gradients.state = MATERIALISED;
    for (int k = 0; k < active_rows.count; k++)
        mark_dirty(active_rows.list[k]);
}

/* Bit k: this input of image k is active. */
static uint64_t images_of_row(int input)
{
    uint64_t images = 0;
    for (int first = 0; first < block_images.count; first += ROW_MASK_IMAGES)
        images |= (uint64_t)active_rows.images[first / ROW_MASK_IMAGES][input] << first;
    return images;
}

/* The position of the lowest set bit. */
static inline int lowest_bit(uint64_t mask)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(mask);
#else
    int bit = 0;
    for (; !(mask & 1); mask >>= 1)
        bit++;
    return bit;
#endif
}

#endif

/* The loops at one SIMD level. Each function goes through the table, with constants for each tensor. */

#ifdef AT_LEVEL

/* The outer product of one image's inputs and factors. A zero input adds nothing, unless a factor is inf or nan. */
SPECIALISED void AT_LEVEL(add_outer_product)(const struct workspace *w, ptrdiff_t offset, ptrdiff_t lanes,
                                             ptrdiff_t length, ptrdiff_t factor)
{
    const real *restrict const factors = w->value + factor;
    if (all_finite(factors, lanes)) {
        mark_active_dirty(w);
        for (int k = 0; k < w->active_count; k++) {
            real *restrict const row = grad + offset + length * w->active[k];
            const real x = w->active_value[k];
            for (ptrdiff_t lane = 0; lane < length; lane++)
                row[lane] = MULTIPLY_ADD(x, factors[lane], row[lane]);
        }
    }
    else {
        mark_all_dirty();
        for (int input = 0, k = 0; input < INPUT_COUNT; input++) {
            real *restrict const row = grad + offset + length * input;
            const int is_active = k < w->active_count && w->active[k] == input;
            const real x = is_active ? w->active_value[k] : 0;
            k += is_active;
            for (ptrdiff_t lane = 0; lane < length; lane++)
                row[lane] = MULTIPLY_ADD(x, factors[lane], row[lane]);
        }
    }
}

static void AT_LEVEL(compute_row_gradients)(const struct workspace *w)
{
#define ADD(offset, lanes, length, block, factor, copy) AT_LEVEL(add_outer_product)(w, offset, lanes, length, factor);
    ROW_TENSORS(ADD)
#undef ADD
    (void)w;
}

/* Sets bit k of rows[i] if input i of image k is active, for at most eight images. */
static void AT_LEVEL(find_active_rows)(unsigned char *restrict rows, const input_type *const *images, int count)
{
    const unsigned char all = (unsigned char)((1U << count) - 1);
    for (int i = 0; i < INPUT_COUNT; i++)
        rows[i] = nonfinite_row[i] ? all : 0;
    for (int k = 0; k < count; k++) {
        const input_type *const inputs = images[k];
        const unsigned char bit = (unsigned char)(1U << k);
        for (int i = 0; i < INPUT_COUNT; i++)
            rows[i] |= is_nonzero(inputs, i) ? bit : 0;
    }
}

/* Adds the contributions of some images of the block, a bit each, to `lanes` elements of a row. */
SPECIALISED void AT_LEVEL(add_images)(real *restrict sum, ptrdiff_t lanes, ptrdiff_t copy, int input, uint64_t images)
{
    for (; images; images &= images - 1) {
        const int image = lowest_bit(images);
        const real x = input_value(block_images.inputs[image], input);
        const real *restrict const factor = row_factors[image] + copy;
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            sum[lane] = MULTIPLY_ADD(x, factor[lane], sum[lane]);
    }
}

SPECIALISED void AT_LEVEL(add_row_of)(ptrdiff_t offset, ptrdiff_t length, ptrdiff_t block, ptrdiff_t copy, int input,
                                      uint64_t images)
{
    for (ptrdiff_t first = 0; first < length; first += block) {
        const ptrdiff_t lanes = length % block == 0 || first + block < length ? block : length - first;
        real *restrict const row = grad + offset + length * input + first;
        real sum[MAX_LANES];
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            sum[lane] = row[lane];
        AT_LEVEL(add_images)(sum, lanes, copy + first, input, images);
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            row[lane] = sum[lane];
    }
}

/* Adds the contributions of some images of the block, a bit each, to the gradients of an input's rows. */
static void AT_LEVEL(add_row)(int input, uint64_t images)
{
#define ADD(offset, lanes, length, block, factor, copy) \
    AT_LEVEL(add_row_of)(offset, length, block, copy, input, images);
    ROW_TENSORS(ADD)
#undef ADD
    (void)input;
    (void)images;
}

/* Takes one step for an input's rows, with the gradients in grad[]. */
static void AT_LEVEL(update_row)(int input, const struct step *step)
{
#define UPDATE(offset, lanes, length, block, factor, copy) \
    AT_LEVEL(update_span)(offset + (ptrdiff_t)(length) * input, length, step);
    ROW_TENSORS(UPDATE)
#undef UPDATE
    (void)input;
    (void)step;
}

SPECIALISED void AT_LEVEL(update_outer_product)(real *restrict p, const real *restrict factor, real x,
                                                ptrdiff_t length, const struct step *step)
{
    const real rate = (real)step->rate, batch = (real)step->batch, share = (real)step->share;
    if (share == 1)
        for (ptrdiff_t i = 0; i < length; i++)
            p[i] -= rate * (x * factor[i]);
    else if (share != 0)
        for (ptrdiff_t i = 0; i < length; i++)
            p[i] -= rate * (x * factor[i]) * share;
    else
        for (ptrdiff_t i = 0; i < length; i++)
            p[i] -= rate * (x * factor[i]) / batch;
}

/*
 * Takes one step for all rows, with the pending gradients of one image: each is 0 + input * factor. It goes from the
 * last row to the first: forward read the last rows last, so they are still in the L1 cache, and the next forward
 * begins with the first ones.
 */
static void AT_LEVEL(update_pending_image)(const struct workspace *restrict w, const struct step *step)
{
    for (int k = w->active_count - 1; k >= 0; k--) {
#define UPDATE(offset, lanes, length, block, factor, copy) \
    AT_LEVEL(update_outer_product)(data + offset + (ptrdiff_t)(length) * w->active[k], w->value + factor, \
                                   w->active_value[k], length, step);
        ROW_TENSORS(UPDATE)
#undef UPDATE
    }
    (void)step;
}

SPECIALISED void AT_LEVEL(update_pending_row_of)(ptrdiff_t offset, ptrdiff_t length, ptrdiff_t block, ptrdiff_t copy,
                                                 int input, uint64_t images, const struct step *step)
{
    for (ptrdiff_t first = 0; first < length; first += block) {
        const ptrdiff_t lanes = length % block == 0 || first + block < length ? block : length - first;
        const int image = lowest_bit(images);
        const real x = input_value(block_images.inputs[image], input);
        real gradient[MAX_LANES];
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            gradient[lane] = x * row_factors[image][copy + first + lane];
        AT_LEVEL(add_images)(gradient, lanes, copy + first, input, images & (images - 1));
        AT_LEVEL(descend)(data + offset + length * input + first, gradient, lanes, step);
    }
}

/* Takes one step for an input's rows, with the pending gradients of a block of images. */
static void AT_LEVEL(update_pending_row)(int input, uint64_t images, const struct step *step)
{
#define UPDATE(offset, lanes, length, block, factor, copy) \
    AT_LEVEL(update_pending_row_of)(offset, length, block, copy, input, images, step);
    ROW_TENSORS(UPDATE)
#undef UPDATE
    (void)input;
    (void)images;
    (void)step;
}

#endif
