/*
 * Noise: numbers of value[], behind the targets, that each training example draws anew from the generator of random.h.
 * Everywhere else they are the means of their distributions. The caller holds model_lock.
 */

#ifndef NOISE_H
#define NOISE_H

#include "model.h"
#include "random.h"

#if NOISE_COUNT

enum { NOISES = sizeof(noises) / sizeof(*noises) };

/* The model's own generator. train(seed=...) has another one, which also shuffles. */
static struct random_state model_random;
#define MODEL_RANDOM (&model_random)

static real draw_noise_number(struct random_state *random, const struct noise *noise)
{
    if (noise->probability >= 0)
        return (real)(random_double(random) < noise->probability ? noise->high : 0.0);
    return (real)random_number(random, noise->low, noise->high, noise->deviation, noise->limit);
}

/* Of one image, in the order of declaration. */
static void draw_noise(struct workspace *w, struct random_state *random)
{
    real *to = w->value + NOISE;
    for (int n = 0; n < NOISES; n++)
        for (int i = 0; i < noises[n].count; i++)
            *to++ = draw_noise_number(random, &noises[n]);
}

/* What predictions and evaluations compute in; nothing else is ever written there. */
static void set_mean_noise(struct inference *memory)
{
    for (int image = 0; image < IMAGES_AT_ONCE; image++) {
        real *to = memory->images[image].value + NOISE;
        for (int n = 0; n < NOISES; n++)
            for (int i = 0; i < noises[n].count; i++)
                *to++ = (real)noises[n].mean;
    }
}

#else
#define MODEL_RANDOM NULL
#define draw_noise(w, random) ((void)(random))
#define set_mean_noise(memory) ((void)(memory))
#endif

#endif
