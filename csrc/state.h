/*
 * The model: parameters and their gradients, what one pass computes, and which rows of a row tensor can be left out.
 *
 * A row is left out where its input is 0 and all its weights are finite: then every term it adds is 0. An input is
 * *active* otherwise. A row of grad[] is *touched* when a backward pass has added to it since the last zero_grad().
 */

#if TARGET_LABEL
typedef unsigned char target_type;
#define TARGET_ELEMENTS byte_elements
#define TARGETS_PER_IMAGE 1
#else
typedef real target_type;
#define TARGET_ELEMENTS real_elements
#define TARGETS_PER_IMAGE TARGET_COUNT
#endif

static ALIGNED real data[DATA_COUNT];
static ALIGNED real grad[DATA_COUNT];

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

static int data_views, grad_views; /* how many writable buffers of data[] and grad[] are out */

static struct workspace block[BLOCK_IMAGES];   /* forward and backward of some images of a batch */
static struct workspace *training = block;     /* the last image that has been forward */
static struct workspace inference[MAX_MEMBERS]; /* everything that must not disturb them */

/* Images of a batch: image k is in block[k]. */
static struct {
    int count;
    const input_type *inputs[BLOCK_IMAGES];
    const target_type *targets[BLOCK_IMAGES];
    double loss[BLOCK_IMAGES];
    double factor[BLOCK_IMAGES];   /* the largest in absolute value, inf or nan if one of them is */
    double gradient[BLOCK_IMAGES]; /* a bound of what the image adds to the gradients of row tensors */
} block_images;

/* Copies of the factors of row tensors, close together: all rows read those of all images of a block. */
static ALIGNED real row_factors[BLOCK_IMAGES][ROW_FACTORS];

static unsigned char poisoned[INPUT_SPACE]; /* inputs with a non-finite weight in their row */

static inline int is_poisoned(int input) { return poisoned[input]; }

/* Not 0 where one of eight inputs may be poisoned. */
static inline uint64_t poisoned_of_eight(int first)
{
    uint64_t eight = 1;
#if INPUT_COUNT >= 8
    if (first + 8 <= INPUT_COUNT)
        memcpy(&eight, poisoned + first, sizeof(eight));
#else
    (void)first;
#endif
    return eight;
}

/*
 * No weight of a row tensor, and no gradient, is larger in absolute value. While the bound stays far from overflow no
 * update can make a weight infinite, so none has to be looked at; inf where nothing is known.
 */
static double weight_bound, grad_bound;

/* The same of all other parameters, while somebody keeps it (check_finite.h). */
static double dense_bound;
#define SAFE_BOUND (REAL_MAX * 1e-8)

static struct {
    int all;
    int count;
    int list[INPUT_SPACE + 1]; /* one more: touch() writes before it counts */
    unsigned char flag[INPUT_SPACE];
} touched;

/*
 * The images, block[0] and so on, of which the last backward pass has not written the gradients of row tensors. They
 * were all zero before it, so they are the outer products of inputs and factors that the workspaces still hold.
 * settle() writes them when somebody is about to look, to add, or to overwrite a workspace. In a loop of zero_grad,
 * forward, backward, update nobody is.
 */
static int pending;

static inline void touch(int input)
{
    touched.list[touched.count] = input;
    touched.count += !touched.flag[input];
    touched.flag[input] = 1;
}

static inline void touch_active(const struct workspace *w)
{
    for (int k = 0; k < w->active_count; k++)
        touch(w->active[k]);
}

static inline void touch_all(void) { touched.all = 1; }

/* While a view of grad[] is out. */
static void expect_any_gradient(void)
{
    touch_all();
    grad_bound = (double)INFINITY;
}

/* One step of gradient descent: its learning rate and the size of its batch. */
struct step {
    double rate, batch;
    double share; /* 1 / batch where that is exact, so that a product equals the quotient, else 0 */
};

/* What is compiled once for each SIMD level. */
struct level {
    const char *name;
    int fuses; /* multiplies and adds with one rounding */
    void (*set_inputs)(struct workspace *, const input_type *);
    void (*compute_loss)(struct workspace *restrict);
    void (*compute_adjoints)(struct workspace *restrict);
    /* Adds the gradients of some images, in order; each of `parts` calls does its part of the parameters. */
    void (*compute_gradients)(const struct workspace *images, int count, int part, int parts);
    void (*compute_row_gradients)(struct workspace *restrict);
    /* Bit k of rows[i]: input i of image k, of eight images at most, is active. */
    void (*find_active_rows)(unsigned char *restrict rows, const input_type *const *images, int count);
    /* Adds what some images of the block, one a bit, give to one row of the gradient of row tensor t. */
    void (*add_row)(int t, real *restrict gradient, int input, uint64_t images);
    void (*compute_prediction)(struct workspace *restrict);
    void (*compute_outputs)(struct workspace *restrict);
    void (*compute_evaluation)(struct workspace *restrict);
    void (*update_rows)(const int *inputs, int count, const struct step *);
    void (*update_pending_rows)(const struct workspace *restrict, const struct step *);
    void (*update_pending_row)(int input, uint64_t images, const struct step *);
    void (*update_span)(Py_ssize_t offset, Py_ssize_t count, const struct step *);
    real (*largest)(const real *x, Py_ssize_t count);
};

/* Where only row tensors read the inputs, the active ones are all there is until somebody needs the others. */
static inline void expand_inputs(struct workspace *w)
{
    if (READS_INPUTS)
        return;
    for (int i = 0; i < INPUT_COUNT; i++)
        w->value[INPUT + i] = 0;
    for (int k = 0; k < w->active_count; k++)
        w->value[INPUT + w->active[k]] = w->active_value[k];
}
