/* Which images of a block have an input active: what turns the work from images to rows. */

#define ROW_MASK_IMAGES 8 /* in one byte */

static struct {
    int count;
    int list[INPUT_SPACE];
    /* bit k of images[m][i]: input i of image m * ROW_MASK_IMAGES + k is active */
    unsigned char images[(BLOCK_IMAGES + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES][INPUT_SPACE];
} active_rows;

/* Which rows have an active input in some image. */
static void list_active_rows(void)
{
    const int masks = (block_images.count + ROW_MASK_IMAGES - 1) / ROW_MASK_IMAGES;
    static unsigned char any[INPUT_SPACE];
    int count = 0;
    memset(any, 0, sizeof(any));
    for (int m = 0; m < masks; m++)
        for (int i = 0; i < INPUT_COUNT; i++)
            any[i] |= active_rows.images[m][i];
    for (int i = 0; i < INPUT_COUNT; i++) {
        active_rows.list[count] = i;
        count += any[i] != 0;
    }
    active_rows.count = count;
}

/* Rows belong to members in turns, for good: what a member has written last time is still in its own cache. */
static int owns_row(int member, int input)
{
    enum { NEIGHBOURS = 8 };
    return input / NEIGHBOURS % team.size == member;
}

/* Bit k: this input of image k is active. */
static uint64_t images_of_row(int input)
{
    uint64_t images = 0;
    for (int first = 0; first < block_images.count; first += ROW_MASK_IMAGES)
        images |= (uint64_t)active_rows.images[first / ROW_MASK_IMAGES][input] << first;
    return images;
}
