/*
 * Row tensors: parameters stored as one row for each input, and the gradients of these rows.
 *
 * ROW_TENSORS(X) is the generated table, with constants for X(offset, lanes, width, length, block, factor, copy,
 * rule):
 *
 *     data[offset + length * input + lane]    a parameter, 0 <= lane < lanes; the rest of a row is padding, whose
 *                                             parameters are never read and may become anything
 *     width                                   lanes in whole cache lines: rows may lie one more apart
 *     value[factor + lane]                    the factors of an image
 *     row_factors[image][copy + lane]         their copy for an image of a block
 *     block                                   how many lanes are summed in registers at a time: BLOCK(wide, narrow) is
 *                                             a number for each kind of registers
 *     rule                                    the function that takes a step: see level.h
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
 * An update leaves the state as it is. While a view of grad[] is alive, no locked section of a call ends PENDING, and one
 * that clears grad[] or takes a step begins by finding the rows that have become dirty: see update.h.
 *
 * The caller holds model_lock. This header has two parts: the state, included once, and the loops, included once for
 * each SIMD level by level_end.h.
 */

#ifndef ROWS_H
#define ROWS_H

#include "level.h"
#include "model.h"
#include "ops.h"
#include "tokens.h" /* here, outside of any level */

struct row_tensor {
    Py_ssize_t offset, lanes, length, factor, copy;
};

#define ROW_TENSOR(offset, lanes, width, length, block, factor, copy, rule) {offset, lanes, length, factor, copy},
static const struct row_tensor row_tensors[] = {ROW_TENSORS(ROW_TENSOR){0, 0, 0, 0, 0}}; /* the last is never read */
#undef ROW_TENSOR

enum { MAX_LANES = 8 * CACHE_LINE }; /* of a block: see codegen/backends/c/module.py */

/*
 * A tile is at most TILE_ROWS rows. The factors of a group of images stay in the L1 cache while the rows of a tile add
 * them, and the sums of a tile stay in the L2 cache from one group to the next.
 */
enum {
    TILE_ROWS = 64,
    GROUP_IMAGES = 64, /* images in a mask of bits */
    GROUPS = (BLOCK_IMAGES + GROUP_IMAGES - 1) / GROUP_IMAGES,
    ROW_MASK_IMAGES = 8, /* images in one byte */
    GROUP_MASKS = GROUP_IMAGES / ROW_MASK_IMAGES,
    FEW_MASKS = 2, /* of small batches */
    STREAMED_BYTES = 1 << 17,
};

static ALIGNED real row_factors[BLOCK_IMAGES][ROW_FACTORS]; /* contiguous: every row reads those of all images */

/* The sums of a tile between two groups of images, for each worker: too many numbers for the stack of a small thread. */
static MAYBE_UNUSED ALIGNED real tile_gradients[MAX_WORKERS][TILE_ROWS * MAX_LANES];

/* The state of the gradients */

static struct {
    enum { CLEAN, PENDING, MATERIALISED } state;
    int images;    /* if PENDING: how many of block[] */
    int all_dirty; /* if MATERIALISED: any row may be dirty; otherwise those with a mark are */
    int some_dirty;
    unsigned char is_dirty[INPUT_SPACE];
} row_gradients;

static inline void mark_dirty(int input) { row_gradients.is_dirty[input] = 1; }

static inline void mark_active_dirty(const struct workspace *w)
{
    row_gradients.some_dirty = 1;
    for (int k = 0; k < w->active_count; k++)
        mark_dirty(w->active[k]);
}

/* Before the images of a block are added to grad[], tile by tile. */
static void expect_dirty_rows(void)
{
    row_gradients.state = MATERIALISED;
    row_gradients.some_dirty = 1;
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
    if (!is_pending())
        return;
    if (row_gradients.images == 1) {
        add_row_gradients(block);
        return;
    }
    expect_dirty_rows();
    level->add_images_to_rows(0, INPUT_COUNT, row_gradients.images);
}

/* After the dirty rows have been set to 0, and their marks. */
static void forget_row_gradients(void)
{
    row_gradients.some_dirty = 0;
    row_gradients.all_dirty = 0;
    row_gradients.state = CLEAN;
}

static int has_dirty_rows(void) { return row_gradients.all_dirty || row_gradients.some_dirty; }

static int is_dirty(int input) { return row_gradients.all_dirty || row_gradients.is_dirty[input]; }

/*
 * Bit k of active_rows[m][i]: input i of image m * ROW_MASK_IMAGES + k of the block is active. The last row is for the
 * rest of a group, and is all 0. Tiles may read past the last input.
 */
static ALIGNED unsigned char active_rows[GROUPS * GROUP_MASKS + 1][INPUT_SPACE + TILE_ROWS];

/* The rows of a tile that some image of a block needs. Bit k of images[g][r]: row r needs image k of group g. */
struct tile {
    int count, groups;
    int dense_images; /* how many images there are, if each of them needs each row, and rows are those of floats; or 0 */
    int input[TILE_ROWS + 1];
    uint64_t images[GROUPS][TILE_ROWS + 1]; /* one more: list_rows() writes before it counts */
};

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

#define CHECK(offset, lanes, width, length, block, factor, copy, rule) _Static_assert(block <= MAX_LANES, "sums do not fit");
ROW_TENSORS(CHECK)
#undef CHECK

/* The largest magnitude in the rows of each input, of data[] or grad[]. */
static void AT_LEVEL(find_largest_in_rows)(const real *restrict array, real *restrict largest)
{
    memset(largest, 0, INPUT_COUNT * sizeof(*largest));
#define LOOK(offset, lanes, width, length, block, factor, copy, rule) \
    for (int i = 0; i < INPUT_COUNT; i++) \
        largest[i] = larger(largest[i], largest_magnitude(array + offset + (ptrdiff_t)(length) * i, lanes));
    ROW_TENSORS(LOOK)
#undef LOOK
    (void)array;
}

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
#define ADD(offset, lanes, width, length, block, factor, copy, rule) \
    AT_LEVEL(add_outer_product)(w, offset, lanes, length, factor);
    ROW_TENSORS(ADD)
#undef ADD
    (void)w;
}

#include "row_tiles.h"

/* Adds the contributions of some images of a group, a bit each, to `lanes` elements of a row. */
SPECIALISED void AT_LEVEL(add_images)(real *restrict sum, ptrdiff_t lanes, ptrdiff_t copy, int input, int group,
                                      uint64_t images)
{
    const input_type *const *const inputs = block_images.inputs + group * GROUP_IMAGES;
    real(*const factors)[ROW_FACTORS] = row_factors + group * GROUP_IMAGES;
    for (; images; images &= images - 1) {
        const int image = lowest_bit(images);
        const real x = input_value(inputs[image], input);
        const real *restrict const factor = factors[image] + copy;
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            sum[lane] = MULTIPLY_ADD(x, factor[lane], sum[lane]);
    }
}

/* Adds the images of a tile, group after group, to its gradients in grad[]. */
SPECIALISED void AT_LEVEL(add_tile)(ptrdiff_t offset, ptrdiff_t width, ptrdiff_t length, ptrdiff_t block, ptrdiff_t copy,
                                    const struct tile *tile)
{
    if (DENSE_ROWS && tile->dense_images) {
        AT_LEVEL(sum_dense_tile)(NULL, offset, width, length, copy, tile, NULL);
        return;
    }
    for (ptrdiff_t first = 0; first < width; first += block)
        for (int g = 0; g < tile->groups; g++)
            for (int r = 0; r < tile->count; r++) {
                const ptrdiff_t lanes = width % block == 0 || first + block < width ? block : width - first;
                real *restrict const row = grad + offset + length * tile->input[r] + first;
                real sum[MAX_LANES];
                for (ptrdiff_t lane = 0; lane < lanes; lane++)
                    sum[lane] = row[lane];
                AT_LEVEL(add_images)(sum, lanes, copy + first, tile->input[r], g, tile->images[g][r]);
                for (ptrdiff_t lane = 0; lane < lanes; lane++)
                    row[lane] = sum[lane];
            }
}

/* Adds the first `images` images of the block to the gradients of rows first .. end - 1. */
static void AT_LEVEL(add_images_to_rows)(int first, int end, int images)
{
    for (; first < end; first += TILE_ROWS) {
        struct tile tile;
        AT_LEVEL(find_tile)(&tile, first, at_most(end - first, TILE_ROWS), images, 0);
        for (int r = 0; r < tile.count; r++)
            mark_dirty(tile.input[r]);
#define ADD(offset, lanes, width, length, block, factor, copy, rule) \
    AT_LEVEL(add_tile)(offset, width, length, block, copy, &tile);
        ROW_TENSORS(ADD)
#undef ADD
    }
}

/*
 * Steps. Like rules, these functions return whether a parameter has become inf or nan: see level.h.
 *
 * For an input's rows, with the gradients in grad[].
 */
static int AT_LEVEL(update_row)(int input, const struct step *step)
{
    int nonfinite = 0;
#define UPDATE(offset, lanes, width, length, block, factor, copy, rule) \
    nonfinite |= AT_LEVEL(rule)(offset + (ptrdiff_t)(length) * input, grad + offset + (ptrdiff_t)(length) * input, \
                                length, step);
    ROW_TENSORS(UPDATE)
#undef UPDATE
    (void)input;
    (void)step;
    return nonfinite;
}

#if RULES

SPECIALISED int AT_LEVEL(update_image_row)(update_function *rule, ptrdiff_t offset, ptrdiff_t width, ptrdiff_t block,
                                           const real *restrict factors, real x, const struct step *step)
{
    int nonfinite = 0;
    for (ptrdiff_t first = 0; first < width; first += block) {
        const ptrdiff_t lanes = width - first < block ? width - first : block;
        real sum[MAX_LANES];
        for (ptrdiff_t lane = 0; lane < lanes; lane++)
            sum[lane] = x == 0 ? 0 : MULTIPLY_ADD(x, factors[first + lane], 0);
        nonfinite |= rule(offset + first, sum, lanes, step);
    }
    return nonfinite;
}

/* For rows first .. end - 1, with the pending gradients of one image: each is 0 + input * factor. */
static int AT_LEVEL(update_image_rows)(const struct workspace *restrict w, int first, int end, const struct step *step)
{
    int nonfinite = 0, k = 0;
    while (k < w->active_count && w->active[k] < first)
        k++;
    for (int input = first; input < end; input++) {
        const int is_active = k < w->active_count && w->active[k] == input;
        const real x = is_active ? w->active_value[k] : 0;
        k += is_active;
        if (step->skips && !is_active)
            continue;
#define UPDATE(offset, lanes, width, length, block, factor, copy, rule) \
    nonfinite |= AT_LEVEL(update_image_row)(AT_LEVEL(rule), offset + (ptrdiff_t)(length) * input, width, block, \
                                            w->value + factor, x, step);
        ROW_TENSORS(UPDATE)
#undef UPDATE
        (void)x;
    }
    return nonfinite;
}

#else

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
 * begins with the first ones. Rows of more than STREAMED_BYTES are gone from there, and arrive faster in the order in
 * which they lie in memory.
 */
static void AT_LEVEL(update_pending_image)(const struct workspace *restrict w, const struct step *step)
{
    const int count = w->active_count, is_streamed = count > STREAMED_BYTES / (int)(ROW_FACTORS * sizeof(real));
    for (int a = 0; a < count; a++) {
        const int k = is_streamed ? a : count - 1 - a;
#define UPDATE(offset, lanes, width, length, block, factor, copy, rule) \
    AT_LEVEL(update_outer_product)(data + offset + (ptrdiff_t)(length) * w->active[k], w->value + factor, \
                                   w->active_value[k], length, step);
        ROW_TENSORS(UPDATE)
#undef UPDATE
        (void)k;
    }
    (void)step;
}

#endif

SPECIALISED int AT_LEVEL(update_pending_tile)(update_function *rule, ptrdiff_t offset, ptrdiff_t width, ptrdiff_t length,
                                              ptrdiff_t block, ptrdiff_t copy, const struct tile *tile,
                                              real *gradients, const struct step *step)
{
    int nonfinite = 0;
    if (DENSE_ROWS && tile->dense_images)
        return AT_LEVEL(sum_dense_tile)(rule, offset, width, length, copy, tile, step);
    for (ptrdiff_t first = 0; first < width; first += block)
        for (int g = 0; g < tile->groups; g++)
            for (int r = 0; r < tile->count; r++) {
                const ptrdiff_t lanes = width % block == 0 || first + block < width ? block : width - first;
                const int input = tile->input[r];
                real *restrict const so_far = gradients + r * block; /* more would leave parts of the cache unused */
                real sum[MAX_LANES];
                for (ptrdiff_t lane = 0; lane < lanes; lane++)
                    sum[lane] = g ? so_far[lane] : 0;
                AT_LEVEL(add_images)(sum, lanes, copy + first, input, g, tile->images[g][r]);
                if (g == tile->groups - 1)
                    nonfinite |= rule(offset + length * input + first, sum, lanes, step);
                else
                    for (ptrdiff_t lane = 0; lane < lanes; lane++)
                        so_far[lane] = sum[lane];
            }
    return nonfinite;
}

/* For rows first .. end - 1, with the pending gradients of the first `images` images of the block. */
static int AT_LEVEL(update_pending_rows)(int worker, int first, int end, int images, const struct step *step)
{
    int nonfinite = 0;
    for (; first < end; first += TILE_ROWS) {
        struct tile tile;
        AT_LEVEL(find_tile)(&tile, first, at_most(end - first, TILE_ROWS), images, !step->skips);
#define UPDATE(offset, lanes, width, length, block, factor, copy, rule) \
    nonfinite |= AT_LEVEL(update_pending_tile)(AT_LEVEL(rule), offset, width, length, block, copy, \
                                               &tile, tile_gradients[worker], step);
        ROW_TENSORS(UPDATE)
#undef UPDATE
    }
    (void)worker;
    return nonfinite;
}

#endif
