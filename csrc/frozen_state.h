/* A model that only predicts. Its weights are finite constants, so a row of a zero input can always be left out. */

static inline int is_poisoned(int Py_UNUSED(input)) { return 0; }
static inline uint64_t poisoned_of_eight(int Py_UNUSED(first)) { return 0; }
static void expect_any_weight(void) {}

static struct workspace inference[MAX_MEMBERS]; /* one for each thread of a long call */

/* What is compiled once for each SIMD level. */
struct level {
    const char *name;
    int fuses; /* multiplies and adds with one rounding */
    void (*set_inputs)(struct workspace *, const input_type *);
    void (*compute_prediction)(struct workspace *restrict);
    void (*compute_outputs)(struct workspace *restrict);
};
