/* The model: its parameters and gradients, the workspaces of its passes, and the types that describe them. */

#ifndef MODEL_H
#define MODEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* What most models do not have. The generated constants of those that do come first. */

/* Inputs and targets that are converted: see parts.h. */
#ifndef INPUT_PARTS
#define INPUT_PARTS 0
#define INPUT_NAMES ""
#define INPUT_TYPE ""
#endif
#ifndef TARGET_PARTS
#define TARGET_PARTS 0
#define TARGET_NAMES ""
#define TARGET_TYPE ""
#endif

#ifndef SHIFT
#define SHIFT 0
#endif
#ifndef NOISE_COUNT
#define NOISE_COUNT 0
#endif
#ifndef METRIC_COUNT
#define METRIC_COUNT 0
#endif
#ifndef GROUP_GRADIENTS
#define GROUP_GRADIENTS 0
#endif
#ifndef GROUP_SUMS
#define GROUP_SUMS 0
#endif
#ifndef TAKES_STEPS
#define TAKES_STEPS 0
#endif
#ifndef DENSE_ROWS
#define DENSE_ROWS 0
#endif
#ifndef FEW_IMAGES /* that add their rows together */
#define FEW_IMAGES 0
#endif
#ifndef MORE_IMAGES /* with AVX-512 */
#define MORE_IMAGES 0
#endif
#ifndef INPUT_GRADIENTS
#define INPUT_GRADIENTS 0
#endif

/* Rules of updates: see optimizer.h. */
#ifndef RULES
#define RULES 0
#endif
#ifndef STATE_SLOTS
#define STATE_SLOTS 0
#endif
#ifndef TAKES_NORM
#define TAKES_NORM 0
#endif

#include "real.h"
#include "side_by_side.h"
#include "workspace.h"

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

/* Whether codegen.compile() makes copies of the module, each with a Model that has its functions as methods. */
#ifndef INSTANCES
#define INSTANCES 0
#endif

#if INSTANCES
struct model_object { /* see instance.h */
    PyObject_HEAD
    PyObject *module;
    PyObject *weak_references;
};

/* The module that a function was called on, or on a Model of. */
static PyObject *module_of(PyObject *self)
{
    return PyModule_Check(self) ? self : ((struct model_object *)self)->module;
}

#if !FROZEN
static uint64_t model_seed = SEED;
static double model_rate = LEARNING_RATE;
#undef SEED
#undef LEARNING_RATE
#define SEED model_seed
#define LEARNING_RATE model_rate
#endif
#else
#define module_of(self) (self)
#endif

enum {
    IMAGES_AT_ONCE = SIDE_BY_SIDE ? SIDE_BY_SIDE : 1,
    IMAGES_TOGETHER = FEW_IMAGES > 0 && SIDE_BY_SIDE > 0 ? 32 : IMAGES_AT_ONCE, /* while rows of weights are in the caches */
};

/* What a thread computes images in: a workspace for each, and the values of some side by side. */
struct inference {
    struct workspace images[IMAGES_TOGETHER];
    struct active_list lists[IMAGES_TOGETHER];
#if SIDE_BY_SIDE
    struct images side_by_side;
#endif
};

static struct inference inference[MAX_WORKERS];

/* For `count` images, at most IMAGES_TOGETHER. */
static struct workspace *workspaces_of(struct inference *memory, int count)
{
    for (int k = 0; k < count; k++)
        with_list(&memory->images[k], &memory->lists[k]);
    return memory->images;
}

/* How an example was declared; no dimensions if as a list. */
struct example_shape {
    int dimensions, sizes[8];
};

/* Some of the inputs, or of the targets, which a caller passes together: see parts.h. */
struct argument_part {
    const char *name; /* NULL if there is no mapping of names */
    const char *what; /* in messages, like one: a class or a token */
    const char *one;
    enum { PIXEL_PART, REAL_PART, CLASS_PART } kind;
    int first, numbers; /* where it begins, and how many numbers a caller passes for an example, */
    int classes;        /* each of which is below this, and 1 among so many zeros */
    int by_index;       /* if it is not stored as the number that it is, */
    real scale;         /* or times this */
    struct example_shape shape;
    int leaf, leaves;   /* its first one of all Values that are inputs or targets, and how many they are */
};

#if !FROZEN

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
    double low, high; /* initial values are drawn from uniform(low, high), or are constant if low == high */
    int rule;         /* which of the level's rules takes its steps */
    double deviation; /* if not 0, from a normal distribution around low instead, */
    double limit;     /* within so many deviations */
};

/* Numbers that are drawn for each training example, from a distribution as in struct tensor, */
struct noise {
    int count;
    double low, high, deviation, limit;
    double probability; /* or `high` with this probability, else 0; negative for a distribution */
    double mean;
};

/* The target of one image: a label, or floats. */
#if TARGET_LABEL
typedef unsigned char target_type;
#define TARGETS_PER_IMAGE 1
#else
typedef real target_type;
#define TARGETS_PER_IMAGE TARGET_COUNT
#endif

/* Behind the last number of data[] and grad[]: room for two doubles, which nothing here reads or writes but shares.h. */
enum { SPARE = 16 / sizeof(real), FLAT_COUNT = DATA_COUNT + SPARE };

static ALIGNED real data[FLAT_COUNT]; /* the parameters */
static ALIGNED real grad[FLAT_COUNT];

/* How many writable buffers of data[] are alive, and how many of them, and of grad[], are those of row tensors. */
static int data_views, row_data_views, row_grad_views;

/* Up to BLOCK_IMAGES images of a batch, which run forward and backward together: image k is in block[k]. */
static struct workspace block[BLOCK_IMAGES];
static struct workspace *training = block; /* the image of the last forward pass */
static struct active_list training_list;    /* its active inputs */

static struct {
    int count;
    int first, end; /* those whose values are computed here; others come from other processes: see shares.h */
    int are_shared; /* whether others do */
    int is_last;    /* whether a caller may read the last image, as `training`, before the next block */
    const input_type *inputs[BLOCK_IMAGES];
    const target_type *targets[BLOCK_IMAGES];
    const input_type *later[BLOCK_IMAGES]; /* the inputs of images that come after the block; NULL if none is known */
    double loss[BLOCK_IMAGES];
    double factor[BLOCK_IMAGES];   /* the largest row factor in absolute value; inf or nan if one of them is */
    double gradient[BLOCK_IMAGES]; /* all together, a bound on what the images add to gradients of row tensors and words */
} block_images;

/* Whose gradients are computed here, of all rows and of all parameters outside of rows: part `part` of `parts`. */
static struct gradient_share {
    int part, parts;
} row_share = {0, 1}, dense_share = {0, 1};

#if STATE_SLOTS
static ALIGNED real state[STATE_SLOTS][DATA_COUNT]; /* what rules keep for each parameter, placed as in data[] */
#endif

/* A number of the state of a rule, of all parameters of a tensor. */
struct state_tensor {
    const char *name;
    int tensor, slot;
    double initial;
};

#define MAX_STEPS ((int64_t)1 << 53) /* rules take it as a double */
static int64_t steps;                /* since the start or the last reset() */

/* One step: its learning rate and the size of its batch. */
struct step {
    double rate, batch;
    double share; /* 1 / batch if that is exact, so that a product equals the quotient, else 0 */
    int skips;    /* whether rows whose gradients are all 0 stay as they are */
#if RULES
    real number[STEP_NUMBERS]; /* what the rules compute once for all parameters */
    unsigned char nonfinite[MAX_WORKERS]; /* whether a worker has seen a parameter become inf or nan */
#endif
};

/* The place in data[] of an element of a tensor; then moves to the next one, in C order. */
static Py_ssize_t next_place(const struct tensor *t, Py_ssize_t *at)
{
    Py_ssize_t place = t->offset;
    for (int d = 0; d < t->dimensions; d++)
        place += at[d] * t->strides[d];
    for (int d = t->dimensions - 1; d >= 0 && ++at[d] == t->shape[d]; d--)
        at[d] = 0;
    return place;
}

/* Copies a tensor in C order to its place in data[], or in the state of rules. */
static void place_tensor(real *to, const struct tensor *t, const real *from)
{
    Py_ssize_t at[MAX_DIMENSIONS] = {0};
    for (Py_ssize_t i = 0; i < t->size; i++)
        to[next_place(t, at)] = from[i];
}

#endif

#endif
