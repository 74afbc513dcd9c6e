/* Some images of a batch, and which of them have an input active: what turns the work from images to rows. */

#define ROW_MASK_IMAGES 8 /* in one byte */

/* The number of the lowest bit that is set. */
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

static struct {
    int count;
    const input_type *inputs[BLOCK_IMAGES];
    const target_type *targets[BLOCK_IMAGES];
    double loss[BLOCK_IMAGES];
    double factor[BLOCK_IMAGES];   /* the largest in absolute value, inf or nan if one of them is */
    double gradient[BLOCK_IMAGES]; /* a bound of what the image adds to the gradients of row tensors */
} block_images;

static struct {
    int count;
    int list[INPUT_SPACE];
    unsigned char images[(BLOCK_IMAGES + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES][INPUT_SPACE];
} active_rows;

/* Which rows have an active input in some image. */
static void list_active_rows(void)
{
    const int masks = (block_images.count + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES;
    active_rows.count = 0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        int any = 0;
        for (int m = 0; m < masks; m++)
            any |= active_rows.images[m][i];
        active_rows.list[active_rows.count] = i;
        active_rows.count += any != 0;
    }
}

/* What each image that has this input active adds to its row, in the order of the images; returns how many. */
static int row_terms(int input, struct row_term *terms)
{
    uint64_t mask = 0;
    int count = 0;
    for (int first = 0; first < block_images.count; first += ROW_MASK_IMAGES)
        mask |= (uint64_t)active_rows.images[first / ROW_MASK_IMAGES][input] << first;
    for (; mask; mask &= mask - 1) {
        const int image = lowest_bit(mask);
        terms[count].image = image;
        terms[count++].input = input_value(block_images.inputs[image], input);
    }
    return count;
}
