/*
 * What each training example draws anew from the generator of random.h: by how much its image is moved, and then its
 * noise, numbers of value[] behind the targets. Everywhere else images are where they are, and noise has the means of its
 * distributions. The caller holds model_lock.
 */

#ifndef NOISE_H
#define NOISE_H

#include "model.h"
#include "random.h"

#include <stdlib.h>

#if NOISE_COUNT || SHIFT
/* The model's own generator. train(seed=...) has another one, which also shuffles. */
static struct random_state model_random;
#define MODEL_RANDOM (&model_random)
#else
#define MODEL_RANDOM NULL
#endif

#if SHIFT
static input_type moved_images[BLOCK_IMAGES][INPUT_COUNT];

/* The image, moved, in the memory of image `place` of a block. */
static const input_type *move_image(int place, const input_type *image, struct random_state *random)
{
    const int down = (int)random_below(random, 2 * SHIFT + 1) - SHIFT;
    const int right = (int)random_below(random, 2 * SHIFT + 1) - SHIFT;
    const size_t width = (size_t)(IMAGE_WIDTH - abs(right));
    input_type *to = moved_images[place];
    memset(to, 0, INPUT_COUNT);
    for (int row = 0; row < INPUT_COUNT / IMAGE_WIDTH; row++, to += IMAGE_WIDTH) {
        const int from = row % IMAGE_HEIGHT - down; /* in the same plane */
        if (from >= 0 && from < IMAGE_HEIGHT)
            memcpy(to + (right > 0 ? right : 0), image + (row - down) * IMAGE_WIDTH + (right < 0 ? -right : 0), width);
    }
    return moved_images[place];
}
#else
#define move_image(place, image, random) (image)
#endif

#if NOISE_COUNT

enum { NOISES = sizeof(noises) / sizeof(*noises) };

/* Of one image, in the order of declaration. */
static void draw_noise(struct workspace *w, struct random_state *random)
{
    real *to = w->value + NOISE;
    for (int n = 0; n < NOISES; n++)
        for (int i = 0; i < noises[n].count; i++)
            *to++ = (real)random_noise(random, &noises[n]);
}

/* What predictions and evaluations compute in; nothing else is ever written there. */
static void set_mean_noise(struct inference *memory)
{
    for (int image = 0; image < IMAGES_TOGETHER; image++) {
        real *to = memory->images[image].value + NOISE;
        for (int n = 0; n < NOISES; n++)
            for (int i = 0; i < noises[n].count; i++)
                *to++ = (real)noises[n].mean;
    }
}

#else
#define draw_noise(w, random) ((void)(random))
#define set_mean_noise(memory) ((void)(memory))
#endif

#endif
