/*
 * Plain C that trains and draws random numbers: first weights, noise, and by how much images are moved. The numbers are
 * those of the module after the same seed. The generated tables come before. Needs no Python.
 */

#ifndef PLAIN_RANDOM_H
#define PLAIN_RANDOM_H

#include "plain.h"
#include "random.h"

#if HAS_DISTRIBUTIONS
/* All parameters, in the order of parameters(). */
static void draw_weights(struct MODEL *w, struct random_state *random)
{
    for (size_t k = 0; k < sizeof(runs) / sizeof(*runs); k++)
        for (int32_t i = 0; i < runs[k].count; i++) {
            const double *const d = distributions[runs[k].distribution]; /* low, high, deviation and limit */
            w->data[runs[k].place + runs[k].step * i] = (real)random_number(random, d[0], d[1], d[2], d[3]);
        }
}
#endif

#if NOISE_COUNT
enum { NOISES = sizeof(noises) / sizeof(*noises) };

/* For a training example, or the means, for a prediction. */
static void set_noise(struct MODEL *w, int is_drawn)
{
    real *to = w->value + TARGET + TARGET_COUNT;
    for (int n = 0; n < NOISES; n++)
        for (int i = 0; i < noises[n].count; i++)
            *to++ = (real)(is_drawn ? random_noise(&w->random, &noises[n]) : noises[n].mean);
}
#endif

#if SHIFT
/* Moves the image in value[] at random; what enters is 0. */
static void move_image(struct MODEL *w)
{
    const int down = (int)random_below(&w->random, 2 * SHIFT + 1) - SHIFT;
    const int right = (int)random_below(&w->random, 2 * SHIFT + 1) - SHIFT;
    const int by = down * IMAGE_WIDTH + right;
    for (int k = 0; k < INPUT_COUNT; k++) {
        const int i = by > 0 ? INPUT_COUNT - 1 - k : k; /* no pixel is overwritten before it has been read */
        const int row = i / IMAGE_WIDTH % IMAGE_HEIGHT - down, column = i % IMAGE_WIDTH - right;
        const int is_inside = row >= 0 && row < IMAGE_HEIGHT && column >= 0 && column < IMAGE_WIDTH;
        w->value[INPUT + i] = is_inside ? w->value[INPUT + i - by] : 0;
    }
}
#endif

#endif
