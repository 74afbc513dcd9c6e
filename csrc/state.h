/*
 * The model: parameters and their gradients, what one pass computes, and which rows of a row tensor can be left out.
 *
 * A row is left out where its input is 0 and all its weights are finite: then every term it adds is 0. An input is
 * *active* otherwise. A row of grad[] is *touched* when a backward pass has added to it since the last zero_grad().
 */

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

static struct {
    int all;
    int count;
    int list[INPUT_SPACE + 1]; /* one more: touch_active writes before it counts */
    unsigned char flag[INPUT_SPACE];
} touched;

static void find_active(struct workspace *w)
{
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        w->active[count] = i;
        count += (w->value[INPUT + i] != 0.0) | poisoned[i];
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

/* One step of gradient descent: its learning rate and the size of its batch. */
struct step {
    double rate, batch;
    double share; /* 1 / batch where that is exact, so that a product equals the quotient, else 0 */
};

#if INPUT_PIXELS
typedef unsigned char input_type;
#define INPUT_ELEMENTS byte_elements
#else
typedef double input_type;
#define INPUT_ELEMENTS double_elements
#endif

/* What is compiled once for each SIMD level. */
struct level {
    const char *name;
    void (*set_inputs)(struct workspace *, const input_type *);
    void (*compute_loss)(struct workspace *restrict);
    void (*compute_gradients)(struct workspace *restrict);
    void (*compute_prediction)(struct workspace *restrict);
    void (*compute_outputs)(struct workspace *restrict);
    void (*compute_evaluation)(struct workspace *restrict);
    void (*update_rows)(const int *inputs, int count, const struct step *);
    void (*update_tensor)(const struct tensor *, const struct step *);
};

#if !SINGLE_LEVEL && defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__))
#define X86_LEVELS 1
#else
#define X86_LEVELS 0
#endif
