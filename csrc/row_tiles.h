/*
 * The rows that the images of a block need, tile by tile. Included once for each SIMD level, by rows.h, which has the
 * tables, and so without a guard.
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
