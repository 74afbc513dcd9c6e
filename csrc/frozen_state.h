/* A model that only predicts: its weights are constants, so no call leaves anything behind for the next. */

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
