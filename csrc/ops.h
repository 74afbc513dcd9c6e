/* The ops of the ir in C, as codegen/ops.py and micrograd/ieee.py define them. */

#include <float.h>
#include <math.h>

/*
 * Library functions are called through volatile pointers: a compiler that knew the callee would turn pow(x, 2) into
 * x * x, or fold a call with its own arithmetic, and round differently from the interpreted engine.
 */
typedef double (*unary_function)(double);
static double (*volatile const library_pow)(double, double) = pow;
static volatile const unary_function library_exp = exp;
static volatile const unary_function library_log = log;
static volatile const unary_function library_tanh = tanh;

static inline double op_pow(double x, double y)
{
    if (y == 1.0)
        return x;
    if (y == 0.0)
        return 1.0;
    return library_pow(x, y);
}

static inline double op_exp(double x) { return library_exp(x); }
static inline double op_log(double x) { return library_log(x); }
static inline double op_tanh(double x) { return library_tanh(x); }
static inline double op_sigmoid(double x) { return 1.0 / (1.0 + library_exp(-x)); }

/* Not fmax(x, 0): a nan must stay one. */
static inline double op_relu(double x) { return x < 0.0 ? 0.0 : x; }
static inline double op_step(double x) { return x > 0.0 ? 1.0 : 0.0; }

/* The left operand on a tie, nan if either is nan. */
static inline double op_max(double a, double b) { return (a >= b || a != a) ? a : b; }
static inline double op_left(double a, double b) { return (a >= b || a != a) ? 1.0 : 0.0; }
static inline double op_right(double a, double b) { return (a >= b || a != a) ? 0.0 : 1.0; }

static inline int is_finite(double x) { return fabs(x) <= DBL_MAX; }

/*
 * The largest absolute value. Bit patterns without the sign are in the order of the numbers, infinity after all finite
 * ones and nan after infinity, so a result that is not finite says that one of the numbers is not.
 */
static inline double largest_magnitude(const double *x, Py_ssize_t count)
{
    uint64_t largest = 0;
    double result;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= INT64_MAX;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&result, &largest, sizeof(result));
    return result;
}

static inline int all_finite(const double *x, Py_ssize_t count) { return is_finite(largest_magnitude(x, count)); }
