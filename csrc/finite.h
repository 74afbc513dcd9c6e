/* Which numbers are finite. */

#include <float.h>

#if FLOAT32
#define REAL_MAX FLT_MAX
typedef uint32_t real_bits;
#else
#define REAL_MAX DBL_MAX
typedef uint64_t real_bits;
#endif

static inline int is_finite(double x) { return fabs(x) <= DBL_MAX; }

/*
 * The largest absolute value. Bit patterns without the sign are in the order of the numbers, infinity after all finite
 * ones and nan after infinity, so a result that is not finite says that one of the numbers is not.
 */
static inline real largest_magnitude(const real *x, Py_ssize_t count)
{
    real_bits largest = 0;
    real result;
    for (Py_ssize_t i = 0; i < count; i++) {
        real_bits bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= (real_bits)-1 >> 1;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&result, &largest, sizeof(result));
    return result;
}

static inline int all_finite(const real *x, Py_ssize_t count) { return is_finite(largest_magnitude(x, count)); }
