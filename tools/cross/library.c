/*
 * The C library's functions on their own: library COUNT prints, for each of COUNT arguments, what the eight functions give
 * that a model may call, as little-endian doubles. The arguments are the same everywhere: no library has a part in them.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double uniform(double low, double high)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005U + 1442695040888963407U;
    return low + (high - low) * ((double)(state >> 11) * 0x1p-53);
}

static void print_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    for (int shift = 0; shift < 64; shift += 8)
        putchar((int)(bits >> shift & 255));
}

int main(int argc, char **argv)
{
    const long count = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 0; i < count; i++) {
        const double power = uniform(-30, 5), positive = uniform(0, 20), base = uniform(0, 4), exponent = uniform(-4, 4);
        const double any = uniform(-10, 10);
        const float powerf = (float)power, positivef = (float)positive, basef = (float)base;
        const double results[] = {
            exp(power),   log(positive),   pow(base, exponent),          tanh(any),
            expf(powerf), logf(positivef), powf(basef, (float)exponent), tanhf((float)any),
        };
        for (int k = 0; k < 8; k++)
            print_double(results[k]);
    }
    return fflush(stdout) != 0;
}
