/*
 * Images of a batch side by side: element n of image k is value[n][k], so that a vector register holds one number of
 * each image. Parts of value[] are copied between images side by side and the workspaces of single images: the generated
 * lists are `into`, `out_of`, and `once`, from the workspace in which what depends on parameters alone is computed once;
 * and `all_side_by_side` and `all_once`, all that is computed so. Of the latter, a block's first image has what gradients
 * read of nothing else.
 *
 * The copies themselves are in transpose.h.
 */

#ifndef SIDE_BY_SIDE_H
#define SIDE_BY_SIDE_H

#include "workspace.h"

struct images; /* side by side */
struct values; /* a part of value[] */

/* The phases of a pass over a batch, in order; NULL if there is nothing to do. */
struct batch_passes {
    void (*once)(struct workspace *restrict);
    void (*by_image)(struct workspace *restrict);
    void (*side_by_side)(struct images *restrict, const struct workspace *restrict once);
};

#if SIDE_BY_SIDE

struct images {
    ALIGNED real value[VALUES_SIDE_BY_SIDE][SIDE_BY_SIDE]; /* without those that single images alone have */
};

/* Never, where the fewest that gain are several groups. */
static inline int lie_side_by_side(int count)
{
    return FEWEST_SIDE_BY_SIDE <= SIDE_BY_SIDE && count >= FEWEST_SIDE_BY_SIDE;
}

static void compute_once(const struct batch_passes *passes, struct workspace *once)
{
    if (passes->once != NULL)
        passes->once(once);
}

/* For each part of value[] in a list that ends with an empty one. */
#define EACH_PART(part, list) (const struct values *part = list; part->count; part++)

#if !FROZEN
static struct workspace computed_once; /* by train() */

static void copy_computed_once(struct workspace *w, const struct values *list)
{
    for EACH_PART(part, list)
        memcpy(w->value + part->first, computed_once.value + part->first, (size_t)part->count * sizeof(real));
}

/* The values that one image has in neither its workspace nor in another one. */
static inline void copy_image(struct workspace *w, const struct images *images, int image)
{
    copy_computed_once(w, all_once);
    for EACH_PART(part, all_side_by_side)
        for (int i = part->first; i < part->first + part->count; i++)
            w->value[i] = images->value[i][image];
}
#endif

/* The class of each image, as class_of() has it. */
static inline void classes_side_by_side(const struct images *images, const struct output *output, unsigned char *classes)
{
    real largest[SIDE_BY_SIDE];
    int best[SIDE_BY_SIDE] = {0};
    if (HAS_THRESHOLD) {
        for (int image = 0; image < SIDE_BY_SIDE; image++)
            classes[image] = images->value[output->spans[0].first][image] > (real)THRESHOLD;
        return;
    }
    memcpy(largest, images->value[output->spans[0].first], sizeof(largest));
    for (int s = 0, i = 0; s < output->span_count; s++) {
        const struct span *const span = &output->spans[s];
        for (int k = 0; k < span->count; k++, i++)
            for (int image = 0; image < SIDE_BY_SIDE; image++) {
                const real x = images->value[span->first + k * span->step][image];
                const int is_larger = x > largest[image];
                largest[image] = is_larger ? x : largest[image];
                best[image] = is_larger ? i : best[image];
            }
    }
    for (int image = 0; image < SIDE_BY_SIDE; image++)
        classes[image] = (unsigned char)best[image];
}

/* One output of some images, one image after the other. */
static inline void outputs_side_by_side(const struct images *images, const struct output *output, int count, real *to)
{
    for (int s = 0, i = 0; s < output->span_count; s++) {
        const struct span *const span = &output->spans[s];
        for (int k = 0; k < span->count; k++, i++)
            for (int image = 0; image < count; image++)
                to[image * output->count + i] = images->value[span->first + k * span->step][image];
    }
}

#endif

#endif
