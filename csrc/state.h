/*
 * The model: parameters and their gradients, what one pass computes, and which rows of a row tensor can be left out.
 *
 * A row is left out where its input is 0 and all its weights are finite: then every term it adds is 0. An input is
 * *active* otherwise. A row of grad[] is *touched* when a backward pass has added to it since the last zero_grad().
 */

#if INPUT_PIXELS
typedef unsigned char input_type;
#define INPUT_ELEMENTS byte_elements
#else
typedef double input_type;
#define INPUT_ELEMENTS double_elements
#endif

static ALIGNED double data[DATA_COUNT];
static ALIGNED double grad[DATA_COUNT];

struct workspace {
    ALIGNED double value[VALUE_COUNT];
    int active_count;
    int active[INPUT_SPACE];
};

static int data_views, grad_views; /* how many writable buffers of data[] and grad[] are out */

static struct workspace training;  /* forward and backward */
static struct workspace inference; /* everything that must not disturb them */

static unsigned char poisoned[INPUT_SPACE]; /* inputs with a non-finite weight in their row */

/*
 * No weight of a row tensor, and no gradient, is larger in absolute value. While the bound stays far from overflow no
 * update can make a weight infinite, so none has to be looked at; inf where nothing is known.
 */
static double weight_bound, grad_bound;
#define SAFE_BOUND 1e300

static struct {
    int all;
    int count;
    int list[INPUT_SPACE + 1]; /* one more: touch_active writes before it counts */
    unsigned char flag[INPUT_SPACE];
} touched;

/*
 * The last backward pass has not written the gradients of row tensors: they were all zero before it, so they are the
 * outer products of inputs and factors that the training workspace still holds. settle() writes them when somebody
 * is about to look, to add, or to overwrite the workspace. In a loop of zero_grad, forward, backward, update nobody is.
 */
static int pending;

/* The active inputs, in order. `inputs` are as they came: a pixel is a byte, and most are 0 in runs of eight. */
static void find_active(struct workspace *w, const input_type *inputs)
{
    enum { IN_EIGHTS = INPUT_PIXELS ? INPUT_COUNT / 8 * 8 : 0 };
    int count = 0;
    for (int i = 0; i < IN_EIGHTS; i += 8) {
        uint64_t pixels, rows;
        memcpy(&pixels, inputs + i, sizeof(pixels));
        memcpy(&rows, poisoned + i, sizeof(rows));
        if (pixels | rows) {
            for (int j = i; j < i + 8; j++) {
                w->active[count] = j;
                count += (inputs[j] != 0) | poisoned[j];
            }
        }
    }
    for (int i = IN_EIGHTS; i < INPUT_COUNT; i++) {
        w->active[count] = i;
        count += (w->value[INPUT + i] != 0.0) | poisoned[i]; /* floats may stand at an odd address in `inputs` */
    }
    w->active_count = count;
}

static inline void touch_active(const struct workspace *w)
{
    int count = touched.count;
    for (int k = 0; k < w->active_count; k++) {
        int i = w->active[k];
        touched.list[count] = i;
        count += !touched.flag[i];
        touched.flag[i] = 1;
    }
    touched.count = count;
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
    void (*set_inputs)(struct workspace *, const input_type *);
    void (*compute_loss)(struct workspace *restrict);
    void (*compute_gradients)(struct workspace *restrict);
    void (*compute_row_gradients)(struct workspace *restrict);
    void (*compute_prediction)(struct workspace *restrict);
    void (*compute_outputs)(struct workspace *restrict);
    void (*compute_evaluation)(struct workspace *restrict);
    void (*update_rows)(const int *inputs, int count, const struct step *);
    void (*update_pending_rows)(const struct workspace *restrict, const struct step *);
    void (*update_tensor)(const struct tensor *, const struct step *);
};

#if !SINGLE_LEVEL && defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__))
#define X86_LEVELS 1
#else
#define X86_LEVELS 0
#endif
