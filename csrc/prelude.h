/* What a generated module needs before its own constants. Included first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What the model computes in. */
#if FLOAT32
typedef float real;
#else
typedef double real;
#endif

#if defined(_MSC_VER)
#define ALIGNED __declspec(align(64))
#elif defined(__GNUC__) || defined(__clang__) || defined(__TINYC__)
#define ALIGNED __attribute__((aligned(64)))
#else
#define ALIGNED _Alignas(64)
#endif

#if defined(__clang__)
#define BUILT_BY "clang " __clang_version__
#elif defined(__GNUC__)
#define BUILT_BY "gcc " __VERSION__
#elif defined(_MSC_VER)
#define BUILT_BY "msvc"
#elif defined(__TINYC__)
#define BUILT_BY "tcc"
#else
#define BUILT_BY "unknown"
#endif

enum { CACHE_LINE = 64 / sizeof(real) }; /* in elements */

/*
 * A named tensor of parameters. Element (i, j, ...) is data[offset + i * strides[0] + j * strides[1] + ...]; it is
 * parameter number first + i * numbers[0] + j * numbers[1] + ... in the order of the model's parameters().
 */
#define MAX_DIMENSIONS 8

struct tensor {
    const char *name;
    int dimensions;
    Py_ssize_t shape[MAX_DIMENSIONS];
    Py_ssize_t strides[MAX_DIMENSIONS];
    Py_ssize_t offset;
    Py_ssize_t size;   /* its own elements */
    Py_ssize_t extent; /* with the padding between them */
    Py_ssize_t first;
    Py_ssize_t numbers[MAX_DIMENSIONS];
    double low, high; /* initial values are drawn from uniform(low, high); low == high is a constant */
};

/*
 * A tensor stored as one row for each input; see codegen/sparse.py. A backward pass adds value[input] times
 * value[factor ...] to the row of each input.
 */
struct row_tensor {
    Py_ssize_t offset;
    Py_ssize_t lanes;
    Py_ssize_t row_length; /* with padding, whose weights nobody reads: they may become anything */
    Py_ssize_t factor;
    Py_ssize_t copy; /* where a block keeps a copy of the factors of an image: see csrc/batch.h */
};
