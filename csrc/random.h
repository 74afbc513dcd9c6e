/*
 * The part of Python's random module that is needed here: random.seed(n), random.uniform, random.normalvariate and
 * random.shuffle give the same numbers for the same seed. MT19937 is from Matsumoto and Nishimura, ACM TOMACS 8 (1998).
 */

#ifndef RANDOM_H
#define RANDOM_H

#if !FREESTANDING /* else the model has its own */
#include "model.h"

struct random_state {
    uint32_t word[624];
    int position;
};
#endif

static void random_start(struct random_state *r, uint32_t seed)
{
    r->word[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        r->word[i] = 1812433253U * (r->word[i - 1] ^ (r->word[i - 1] >> 30)) + i;
    r->position = 624;
}

/* random.seed(seed): the key is the number in 32-bit digits, the lowest first. */
static void random_seed(struct random_state *r, uint64_t seed)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t length = key[1] ? 2 : 1;
    uint32_t i = 1, j = 0;
    random_start(r, 19650218U);
    for (int k = 0; k < 624; k++) {
        r->word[i] = (r->word[i] ^ ((r->word[i - 1] ^ (r->word[i - 1] >> 30)) * 1664525U)) + key[j] + j;
        if (++i == 624) {
            r->word[0] = r->word[623];
            i = 1;
        }
        if (++j == length)
            j = 0;
    }
    for (int k = 0; k < 623; k++) {
        r->word[i] = (r->word[i] ^ ((r->word[i - 1] ^ (r->word[i - 1] >> 30)) * 1566083941U)) - i;
        if (++i == 624) {
            r->word[0] = r->word[623];
            i = 1;
        }
    }
    r->word[0] = 0x80000000U;
}

static uint32_t random_word(struct random_state *r)
{
    if (r->position == 624) {
        for (int k = 0; k < 624; k++) {
            uint32_t y = (r->word[k] & 0x80000000U) | (r->word[(k + 1) % 624] & 0x7fffffffU);
            r->word[k] = r->word[(k + 397) % 624] ^ (y >> 1) ^ ((y & 1U) ? 0x9908b0dfU : 0U);
        }
        r->position = 0;
    }
    uint32_t y = r->word[r->position++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

#if HAS_DISTRIBUTIONS || NOISE_COUNT
/* random.random() */
static double random_double(struct random_state *r)
{
    const double a = random_word(r) >> 5, b = random_word(r) >> 6;
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

/* The logarithm of 0 < x <= 1, to about two units in the last place: 2 atanh((x - 1) / (x + 1)) of x near 1. */
static double random_log(double x)
{
    int halvings = 0;
    for (; x < 0.7071067811865476; halvings++)
        x *= 2.0;
    const double s = (x - 1.0) / (x + 1.0), square = s * s;
    double sum = 0.0;
    for (int n = 21; n > 0; n -= 2)
        sum = sum * square + 1.0 / n;
    return 2.0 * s * sum - halvings * 0.6931471805599453;
}

/*
 * random.normalvariate(0.0, 1.0): Kinderman and Monahan, ACM TOMACS 3 (1977). The logarithm decides only whether z is
 * drawn again. Another one decides otherwise for about one in 10**15 numbers.
 */
static double random_normal(struct random_state *r)
{
    for (;;) {
        const double u = random_double(r), v = 1.0 - random_double(r);
        const double z = 1.7155277699214135 * (u - 0.5) / v;
        if (z * z / 4.0 <= -random_log(v))
            return z;
    }
}

/* random.uniform(low, high), or a normal number around low, or a constant, which draws nothing. */
static double random_number(struct random_state *r, double low, double high, double deviation, double limit)
{
    if (deviation != 0.0) {
        double z = random_normal(r);
        while (z > limit || z < -limit)
            z = random_normal(r);
        return low + z * deviation;
    }
    return low == high ? low : low + (high - low) * random_double(r);
}
#endif

#if NOISE_COUNT
/* A number of the noise of a training example. */
static double random_noise(struct random_state *r, const struct noise *n)
{
    if (n->probability >= 0)
        return random_double(r) < n->probability ? n->high : 0.0;
    return random_number(r, n->low, n->high, n->deviation, n->limit);
}
#endif

/* random.randrange(limit), for 1 or more */
static uint32_t random_below(struct random_state *r, uint32_t limit)
{
    int bits = 0;
    while (bits < 32 && limit >> bits)
        bits++;
    uint32_t found;
    do
        found = random_word(r) >> (32 - bits);
    while (found >= limit);
    return found;
}

#if !FREESTANDING
/* random.shuffle(order) */
static void random_shuffle(struct random_state *r, uint32_t *order, Py_ssize_t count)
{
    for (Py_ssize_t i = count - 1; i > 0; i--) {
        const uint32_t j = random_below(r, (uint32_t)i + 1U);
        const uint32_t other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}
#endif

#endif
