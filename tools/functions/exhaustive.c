/*
 * The float32 functions against the C library's of double, in ulp of the exact value: unary ones at every step-th
 * float32, and power at random and at special pairs. FUNCTIONS is the translated source. Prints a line each; exits with
 * 1 if an error is above 1 ulp or an edge is wrong.
 *
 *     exhaustive STEP [NAME ...]
 */

#include FUNCTIONS

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 1 << 16 };

static double exact_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double exact_softplus(double x) { return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double exact_gelu(double x) { return x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440); }

static const struct function {
    const char *name;
    void (*array)(const float *restrict, const float *restrict, float *restrict, long);
    double (*exact)(double);
    int is_monotone;
} functions[] = {
    {"exp", array_exp, exp, 1},
    {"expm1", array_expm1, expm1, 1},
    {"log", array_log, log, 1},
    {"log1p", array_log1p, log1p, 1},
    {"tanh", array_tanh, tanh, 1},
    {"sigmoid", array_sigmoid, exact_sigmoid, 1},
    {"softplus", array_softplus, exact_softplus, 1},
    {"sin", array_sin, sin, 0},
    {"cos", array_cos, cos, 0},
    {"erf", array_erf, erf, 1},
    {"gelu", array_gelu, exact_gelu, 0},
};

struct errors {
    double worst;
    float at[2], at_wrong[2];
    long count, misrounded, wrong; /* wrong: a nan, an infinity, the sign of 0 */
};

static int is_bad; /* the program's exit code */

/* float32's unit in the last place at a double. */
static double ulp(double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static double error_of(float y, double exact)
{
    if (isnan(exact) || isnan(y))
        return isnan(exact) && isnan(y) ? 0.0 : INFINITY;
    if (!signbit(y) != !signbit(exact))
        return INFINITY;
    if (fabs(exact) >= 0x1.ffffffp127) /* overflows when it is rounded; below 0x1.0p128, FLT_MAX is within an ulp */
        return isinf(y) || (fabs(exact) < 0x1.0p128 && fabsf(y) == FLT_MAX) ? 0.0 : INFINITY;
    return isinf(y) ? INFINITY : fabs(y - exact) / ulp(exact);
}

static void add(struct errors *e, float y, double exact, float x, float z)
{
    const double error = error_of(y, exact);
    e->count++;
    e->misrounded += error > 0.5;
    if (error == INFINITY) {
        if (!e->wrong++)
            e->at_wrong[0] = x, e->at_wrong[1] = z;
    } else if (error > e->worst) {
        e->worst = error, e->at[0] = x, e->at[1] = z;
    }
}

static void report(const char *name, const struct errors *e, int is_binary, long reversals, float first)
{
    const double share = 100.0 * e->misrounded / e->count;
    printf("%-15s%12ld%9.4f  %-15a", name, e->count, e->worst, e->at[0]);
    if (is_binary)
        printf(" %-15a", e->at[1]);
    printf("%9.4f%%", share);
    if (reversals)
        printf("  %ld reversals, the last at %a", reversals, first);
    if (e->wrong)
        printf("  WRONG: %ld, first at %a %a", e->wrong, e->at_wrong[0], e->at_wrong[1]);
    printf("\n");
    fflush(stdout);
    is_bad |= e->worst > 1.0 || e->wrong;
}

static void measure(const struct function *f, uint32_t step)
{
    static float x[BLOCK], y[BLOCK];
    struct errors e = {0};
    float previous = NAN, reversed_at = 0.0f;
    long reversals = 0;
    for (uint64_t start = 0; start < 1ull << 32; start += (uint64_t)step * BLOCK) {
        long n = 0;
        for (; n < BLOCK && start + (uint64_t)n * step < 1ull << 32; n++)
            x[n] = from_bits((uint32_t)(start + (uint64_t)n * step));
        f->array(x, x, y, n);
        for (long i = 0; i < n; i++) {
            add(&e, y[i], f->exact(x[i]), x[i], 0.0f);
            /* Ascending from 0 to inf, and then descending from -0. */
            if (f->is_monotone && x[i] != 0.0f && (signbit(x[i]) ? y[i] > previous : y[i] < previous))
                reversals++, reversed_at = x[i];
            previous = y[i];
        }
    }
    report(f->name, &e, 0, reversals, reversed_at);
}

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double uniform(double from, double to) { return from + (to - from) * 0x1p-53 * (double)(random_bits() >> 11); }

/* An exponent for which x**y is within the range, or next to it. */
static float in_range(float x) { return (float)(uniform(-105.0, 90.0) / log(x)); }

static void any_bits(float *x, float *y) { *x = from_bits(random_bits() >> 20), *y = from_bits(random_bits() >> 20); }
static void any_base(float *x, float *y) { *x = from_bits(random_bits() >> 33), *y = in_range(*x); }
static void octaves(float *x, float *y) { *x = (float)uniform(0.5, 2.0), *y = in_range(*x); }
static void near_1(float *x, float *y) { *x = from_bits(0x3F7F0000 + (random_bits() >> 47)), *y = in_range(*x); }
static void integers(float *x, float *y) { *x = (float)uniform(-20.0, 20.0), *y = rintf(uniform(-30.0, 30.0)); }
static void ordinary(float *x, float *y) { *x = (float)uniform(0.0, 10.0), *y = (float)uniform(-4.0, 4.0); }

static void special(float *x, float *y)
{
    static const float values[] = {
        0.0f, 1.0f, 2.0f, 3.0f, 5.0f, 7.0f, 0.1f, 0.25f, 0.75f, 1.5f, 10.0f, 100.0f, 1e10f, 1e-10f, 1e38f, 1e-38f,
        0x1p-149f, 0x1p-126f, 0x1.fffffep127f, 0x1.000002p0f, 0x1.fffffep-1f, INFINITY, NAN,
        4194303.5f, 4194304.5f, 8388607.0f, 8388607.5f, 8388608.0f, 8388609.0f, 16777215.0f, 16777216.0f, 16777218.0f,
    };
    const uint64_t n = random_bits();
    *x = values[(n >> 8 & 0xFFFF) % (sizeof values / sizeof *values)] * (n >> 62 & 1 ? -1.0f : 1.0f);
    *y = values[(n >> 32 & 0xFFFF) % (sizeof values / sizeof *values)] * (n >> 63 ? -1.0f : 1.0f);
}

/* Whether x**y is a product, a root or a quotient by definition, and not pow's approximation. */
static int is_defined(float y)
{
    const float a = fabsf(y);
    return a == 0.5f || a == 2.0f || a == 3.0f || a == 4.0f;
}

static void measure_power(long pairs)
{
    static const struct { const char *name; void (*next)(float *, float *); } kinds[] = {
        {"power special", special}, {"power any bits", any_bits}, {"power any base", any_base},
        {"power octaves", octaves}, {"power near 1", near_1},     {"power integers", integers},
        {"power ordinary", ordinary},
    };
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct errors e = {0};
        for (long block = 0; block * BLOCK < pairs; block++) {
            for (long i = 0; i < BLOCK; i++)
                kinds[kind].next(&x[i], &y[i]);
            array_power(x, y, z, BLOCK);
            for (long i = 0; i < BLOCK; i++)
                if (!is_defined(y[i]))
                    add(&e, z[i], pow(x[i], y[i]), x[i], y[i]);
        }
        report(kinds[kind].name, &e, 1, 0, 0.0f);
    }
}

static int is_wanted(const char *name, int count, char **wanted)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(wanted[i], name))
            return 1;
    return !count;
}

int main(int count, char **arguments)
{
    const uint32_t step = count > 1 ? (uint32_t)atol(arguments[1]) : 1;
    printf("%-15s%12s%9s  %-15s%10s\n", "function", "arguments", "ulp", "at", "> 0.5 ulp");
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
        if (is_wanted(functions[i].name, count - 2, arguments + 2))
            measure(&functions[i], step);
    if (is_wanted("power", count - 2, arguments + 2))
        measure_power((1l << 24) / step);
    return is_bad;
}
