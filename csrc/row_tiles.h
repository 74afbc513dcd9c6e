/*
 * The rows that the images of a block need, tile by tile, and those that all need. Included once for each SIMD level, by
 * rows.h, which has the tables, and so without a guard.
 *
 * A byte for each row says which of eight images need it. Eight such masks of a row are one of 64 bits, and the rows of a
 * tile whose masks are not all 0 are those to visit.
 */

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

/* Bit k of images[r]: row first + r needs image k of a group, which has at most `most` of all `masks` masks. */
SPECIALISED void AT_LEVEL(join_masks)(uint64_t *restrict images, int first, int group, int masks, int most)
{
    const unsigned char *rows[GROUP_MASKS];
    for (int m = 0; m < most; m++) {
        const int mask = group * GROUP_MASKS + m;
        rows[m] = active_rows[mask < masks ? mask : GROUPS * GROUP_MASKS] + first;
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        uint64_t joined = 0;
        if (LEVEL < 2)
            NOT_VECTORISED; /* SSE2 and AVX2 take many instructions to widen bytes */
        for (int m = 0; m < most; m++)
            joined |= (uint64_t)rows[m][r] << (ROW_MASK_IMAGES * m);
        images[r] = joined;
    }
}

/*
 * Lists the rows of a tile that some image of some group needs, or all of them; `groups` is a constant wherever that is
 * faster.
 */
SPECIALISED void AT_LEVEL(list_rows)(struct tile *tile, uint64_t (*found)[TILE_ROWS], int first, int count, int groups,
                                     int all)
{
    int listed = 0;
    for (int r = 0; r < count; r++) {
        uint64_t any = 0;
        for (int g = 0; g < groups; g++)
            any |= tile->images[g][listed] = found[g][r];
        tile->input[listed] = first + r;
        listed += all || any != 0;
    }
    tile->count = listed;
    tile->groups = groups;
}

/* Whether each of the first `images` images needs each row of a tile. */
SPECIALISED int AT_LEVEL(is_dense)(const struct tile *tile, int images)
{
    uint64_t all = ~0ULL;
    for (int g = 0; g < tile->groups; g++) {
        const int rest = images - g * GROUP_IMAGES;
        const uint64_t absent = rest < GROUP_IMAGES ? ~0ULL << rest : 0;
        for (int r = 0; r < tile->count; r++)
            all &= tile->images[g][r] | absent;
    }
    return all == ~0ULL;
}

/*
 * Finds the rows first .. first + count - 1 that some of the first `images` images of the block need, or all of them. A
 * function of its own: it runs once a tile, and is as long as all else that its callers do.
 */
NOT_INLINED void AT_LEVEL(find_tile)(struct tile *tile, int first, int count, int images, int all)
{
    const int masks = (images + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES;
    const int groups = masks <= FEW_MASKS ? 1 : (images + GROUP_IMAGES - 1) / GROUP_IMAGES;
    uint64_t found[GROUPS][TILE_ROWS];
    if (masks <= FEW_MASKS)
        AT_LEVEL(join_masks)(found[0], first, 0, masks, FEW_MASKS);
    else
        for (int g = 0; g < groups; g++)
            AT_LEVEL(join_masks)(found[g], first, g, masks, GROUP_MASKS);
    if (groups == 1)
        AT_LEVEL(list_rows)(tile, found, first, count, 1, all);
    else
        AT_LEVEL(list_rows)(tile, found, first, count, groups, all);
    tile->dense_images = DENSE_ROWS && AT_LEVEL(is_dense)(tile, images) ? images : 0;
}

/*
 * Gradients of rows that all images need, as where inputs are floats.
 *
 * One row at a time loads a factor for each product. Several rows at a time load it for as many products, and the sums of
 * few lanes of each stay in registers while all images add theirs, in order. The factors for these lanes stay in the L2
 * cache while some more rows add them.
 */

#ifndef ROW_TILES_H
#define ROW_TILES_H

enum { ROWS_TOGETHER = 16, QUAD = 4 }; /* rows whose inputs lie side by side: gcc would take vectors of more apart */
typedef real quad_inputs[BLOCK_IMAGES][QUAD];
enum { FAR_FACTORS = 1024 / sizeof(real), FACTORS_AHEAD = 8 }; /* see codegen/schedule/prefetch.py */

#endif

/* Target.tile_width() and tile_rows() in codegen/schedule/target.py; but 16 rows only if all inputs almost fill them. */
#define TILE_LINES (FUSES || (INPUT_COUNT + 15) / 16 * 256 > INPUT_COUNT * 17 ? BLOCK(4, 1) : 1)
#define ROWS_AT_ONCE (BLOCK(16, 4) / TILE_LINES)
#define LANES_AT_ONCE (TILE_LINES * CACHE_LINE)
#define EACH_ROW(r) UNROLLED(16) for (int r = 0; r < ROWS_AT_ONCE; r++)
#define EACH_LANE(lanes) VECTORS(CACHE_LINE) for (ptrdiff_t lane = 0; lane < (lanes); lane++)

/* Adds the images to `lanes` lanes of some rows; `inputs` are those of all images that belong to these rows. */
SPECIALISED void AT_LEVEL(add_to_rows)(real sum[ROWS_AT_ONCE][LANES_AT_ONCE], ptrdiff_t lanes, ptrdiff_t copy,
                                       const quad_inputs *inputs, int images)
{
    for (int image = 0; image < images; image++) {
        const real *restrict const factor = row_factors[image] + copy;
        for (ptrdiff_t lane = 0; ROW_FACTORS >= FAR_FACTORS && lane < lanes; lane += CACHE_LINE)
            PREFETCH_LATER(factor[lane], FACTORS_AHEAD * ROW_FACTORS);
        EACH_ROW(r) {
            const real x = inputs[r / QUAD][image][r % QUAD];
            EACH_LANE(lanes)
                sum[r][lane] = MULTIPLY_ADD(x, factor[lane], sum[r][lane]);
        }
    }
}

/* The sums of `rows` rows, for lanes first .. first + lanes - 1: added to grad[], or the gradients of a step. */
SPECIALISED int AT_LEVEL(sum_rows)(update_function *rule, ptrdiff_t offset, ptrdiff_t length, ptrdiff_t copy,
                                   ptrdiff_t first, ptrdiff_t lanes, const int *input, int rows,
                                   const quad_inputs *inputs, int images, const struct step *step)
{
    int nonfinite = 0;
    real sum[ROWS_AT_ONCE][LANES_AT_ONCE];
    EACH_ROW(r) {
        const real *restrict const row = grad + offset + length * input[r < rows ? r : 0] + first;
        EACH_LANE(lanes)
            sum[r][lane] = rule == NULL ? row[lane] : 0;
    }
    AT_LEVEL(add_to_rows)(sum, lanes, copy + first, inputs, images);
    for (int r = 0; r < rows; r++) {
        real *restrict const row = grad + offset + length * input[r] + first;
        if (rule != NULL)
            nonfinite |= rule(offset + length * input[r] + first, sum[r], lanes, step);
        else
            EACH_LANE(lanes)
                row[lane] = sum[r][lane];
    }
    return nonfinite;
}

/* The inputs of all images that belong to some rows, and 0 beyond the last one. */
SPECIALISED void AT_LEVEL(copy_inputs)(quad_inputs *inputs, const int *input, int rows, int images)
{
    for (int image = 0; image < images; image++)
        for (int r = 0; r < ROWS_TOGETHER; r++)
            inputs[r / QUAD][image][r % QUAD] = r < rows ? input_value(block_images.inputs[image], input[r]) : 0;
}

/* The gradients of a dense tile, added to grad[] or, with a rule, taken as a step. */
SPECIALISED int AT_LEVEL(sum_dense_tile)(update_function *rule, ptrdiff_t offset, ptrdiff_t width, ptrdiff_t length,
                                         ptrdiff_t copy, const struct tile *tile, const struct step *step)
{
    const int images = tile->dense_images;
    int nonfinite = 0;
    for (int together = 0; together < tile->count; together += ROWS_TOGETHER) {
        const int *const input = tile->input + together;
        const int count = at_most(tile->count - together, ROWS_TOGETHER);
        ALIGNED quad_inputs inputs[ROWS_TOGETHER / QUAD];
        AT_LEVEL(copy_inputs)(inputs, input, count, images);
        for (ptrdiff_t first = 0; first < width;) {
            const ptrdiff_t lanes = width - first < LANES_AT_ONCE ? width - first : LANES_AT_ONCE;
            for (int r = 0; r < count; r += ROWS_AT_ONCE) {
                const int rows = at_most(count - r, ROWS_AT_ONCE);
#define SUM(lanes) \
    AT_LEVEL(sum_rows)(rule, offset, length, copy, first, lanes, input + r, rows, inputs + r / QUAD, images, step)
                if (lanes == LANES_AT_ONCE)
                    nonfinite |= SUM(LANES_AT_ONCE);
                else if (width % LANES_AT_ONCE) /* a constant, so that these sums are in registers too */
                    nonfinite |= SUM(width % LANES_AT_ONCE);
#undef SUM
            }
            first += lanes;
        }
    }
    return nonfinite;
}

#undef TILE_LINES
#undef ROWS_AT_ONCE
#undef LANES_AT_ONCE
#undef EACH_ROW
#undef EACH_LANE
