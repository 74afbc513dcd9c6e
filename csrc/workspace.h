/*
 * What the passes over one image read and write: its inputs, its workspace, and the named outputs in that workspace.
 * Needs no Python.
 *
 * An input is *active* if it is not 0, or if a weight in its row is not finite: see codegen/schedule/rows.py. The rows
 * of all other inputs add nothing and are skipped.
 */

#ifndef WORKSPACE_H
#define WORKSPACE_H

#include <stdint.h>
#include <string.h>

#include "real.h"

/* Inputs */

#if INPUT_PIXELS
typedef unsigned char input_type;
#else
typedef real input_type;
#endif

#ifndef TOKEN_COUNT
#define TOKEN_COUNT 0
#define INPUT_LEAVES INPUT_COUNT /* all inputs, as the Program declares them */
#endif
#ifndef TOKEN_TABLE_COUNT
#define TOKEN_TABLE_COUNT 0
#endif

enum { INPUT_NUMBERS = INPUT_COUNT + TOKEN_COUNT }; /* of an example: inputs, and tokens that are read by index */

#if INPUT_PIXELS && !STANDALONE
/* The value of each byte. A load is cheaper than a conversion, which would compete with the sums for vector units. */
static real pixel_values[256];
#endif

/* When the module is imported, as a file without the table is smaller. */
static inline void fill_pixel_values(void)
{
#if INPUT_PIXELS && !STANDALONE
    for (int byte = 0; byte < 256; byte++)
        pixel_values[byte] = byte * INPUT_SCALE;
#endif
}

/* Floats may be misaligned. */
static inline real input_value(const input_type *inputs, int i)
{
#if INPUT_PIXELS && !STANDALONE
    return pixel_values[inputs[i]];
#elif INPUT_PIXELS
    return inputs[i] * INPUT_SCALE;
#else
    real x;
    memcpy(&x, (const char *)inputs + (size_t)i * sizeof(x), sizeof(x));
    return x;
#endif
}

static inline int is_nonzero(const input_type *inputs, int i)
{
#if INPUT_PIXELS
    return inputs[i] != 0;
#else
    return input_value(inputs, i) != 0;
#endif
}

#if FROZEN
/* All weights are finite constants, so the row of a zero input can always be skipped. */
static inline int is_nonfinite_row(int input)
{
    (void)input;
    return 0;
}

static inline uint64_t nonfinite_rows_of_eight(int first)
{
    (void)first;
    return 0;
}
#else
static unsigned char nonfinite_row[INPUT_SPACE]; /* 1: a weight in the row of this input is inf or nan */

static inline int is_nonfinite_row(int input) { return nonfinite_row[input]; }

/* Nonzero if one of the eight rows from `first` on may be non-finite. */
static inline uint64_t nonfinite_rows_of_eight(int first)
{
    uint64_t eight = 1;
#if INPUT_COUNT >= 8
    if (first + 8 <= INPUT_COUNT)
        memcpy(&eight, nonfinite_row + first, sizeof(eight));
#else
    (void)first;
#endif
    return eight;
}
#endif

/* The workspace of one image. Plain C declares it in its own header. */

#if !STANDALONE
enum { CHUNK_INPUTS = 64, CHUNKS = (INPUT_COUNT + CHUNK_INPUTS - 1) / CHUNK_INPUTS };
enum { LIST_SLACK = 32 }; /* list writers store whole vectors and may overrun by this much */

/* Both of an odd number of cache lines, so that the same element of different images is in different sets of a cache. */
enum {
    LISTED = INPUT_SPACE + LIST_SLACK,
    LIST_BYTES = LISTED * (sizeof(real) + sizeof(int)),
    LIST_TO_ODD = (LIST_BYTES + 63) / 64 % 2 ? 0 : 64 / sizeof(int),
    VALUE_BYTES = (VALUE_COUNT * sizeof(real) + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *),
    WORKSPACE_BYTES = VALUE_BYTES + 2 * sizeof(void *) + (TOKEN_COUNT + 1 + CHUNKS + 1) * sizeof(int),
    LINE_TO_ODD = (WORKSPACE_BYTES + 63) / 64 % 2 ? 0 : 64 / sizeof(int),
};

/* Room for the active inputs of an image. Images of a batch reuse it, so that it stays in a cache. */
struct active_list {
    ALIGNED real value[LISTED];
    int input[LISTED + LIST_TO_ODD];
};

struct workspace {
    ALIGNED real value[VALUE_COUNT]; /* includes the inputs only if something besides a row tensor reads them */
    real *active_value;
    int *active; /* active inputs in ascending order */
#if TOKEN_COUNT
    int token[TOKEN_COUNT]; /* those that are read by index: see tokens.h */
#endif
    int active_count;
    int active_before[CHUNKS + 1 + LINE_TO_ODD]; /* how many of them come before input CHUNK_INPUTS * chunk */
};

enum { WORKSPACE_NUMBERS = sizeof(struct workspace) / sizeof(real) }; /* from one image to the next */

/* Before the inputs of an image are set. */
static inline struct workspace *with_list(struct workspace *w, struct active_list *list)
{
    w->active_value = list->value;
    w->active = list->input;
    return w;
}

#if defined(__GNUC__) && !defined(__TINYC__)
_Static_assert(sizeof(struct workspace) / 64 % 2 == 1, "workspaces are an odd number of cache lines apart");
#endif

/* Before the scan of an input: so many are active so far. */
static inline void begin_chunk(struct workspace *w, int input, int count)
{
    if (input % CHUNK_INPUTS == 0)
        w->active_before[input / CHUNK_INPUTS] = count;
}
#else
#define begin_chunk(w, input, count) ((void)0)
#endif

/* Outputs */

/* A number of an image, whose mean metrics() returns. */
struct metric {
    const char *name;
    int place; /* in value[] */
};

/* Elements first, first + step, ... of value[]. */
struct span {
    int first, step, count;
};

struct output {
    const char *name;
    int count;
    int span_count;
    const struct span *spans;
};

static inline real output_element(const struct workspace *w, const struct output *output, int element)
{
    const struct span *span = output->spans;
    for (; element >= span->count; span++)
        element -= span->count;
    return w->value[span->first + element * span->step];
}

/* The index of the largest element, the first one on a tie; a nan is never larger. */
static inline int argmax(const struct workspace *w, const struct output *output)
{
    int best = 0, i = 0;
    real largest = output_element(w, output, 0);
    for (int s = 0; s < output->span_count; s++) {
        const struct span *const span = &output->spans[s];
        for (int k = 0; k < span->count; k++, i++) {
            const real x = w->value[span->first + k * span->step];
            if (x > largest) {
                largest = x;
                best = i;
            }
        }
    }
    return best;
}

/* The class of the output that predicts: the index of its largest element, or whether its one is above the threshold. */
static inline int class_of(const struct workspace *w, const struct output *output)
{
#if HAS_THRESHOLD
    return output_element(w, output, 0) > (real)THRESHOLD;
#else
    return argmax(w, output);
#endif
}

#endif
