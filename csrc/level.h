/* SIMD levels: which ones the compiler can build, and which one runs. */

#ifndef LEVEL_H
#define LEVEL_H

#include "model.h"
#include "side_by_side.h"

#include <stdlib.h>
#include <string.h>

/* Levels besides the compiler's baseline. In MSVC mode clang's immintrin.h hides what the baseline does not have. */
#if !SINGLE_LEVEL && defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__)) && !defined(_MSC_VER)
#define X86_LEVELS 1
#include <cpuid.h>
#if INPUT_PIXELS
#include <immintrin.h> /* only for scan_avx.h: it takes half the time of an unoptimised compilation */
#endif
#else
#define X86_LEVELS 0
#endif

/* codegen.compile() may want one level only. It knows that the processor has it, and loads the module on no other one. */
#ifndef ONLY_LEVEL
#define ONLY_LEVEL -1
#endif
#define HAS_LEVEL(n) (X86_LEVELS ? ONLY_LEVEL < 0 || ONLY_LEVEL == (n) : (n) == 0)

/* Whether the baseline has fused multiply-add, as arm64 does. */
#if defined(__GNUC__) && (FLOAT32 ? defined(__FP_FAST_FMAF) : defined(__FP_FAST_FMA)) || defined(__aarch64__)
#define HAS_FMA 1
#else
#define HAS_FMA 0
#endif

/* Small functions that are called with constants: the compiler is to inline and specialise each call. */
#if defined(_MSC_VER) && !defined(__clang__)
#define SPECIALISED static __forceinline
#elif defined(__GNUC__) || defined(__clang__)
#define SPECIALISED static inline __attribute__((always_inline))
#else
#define SPECIALISED static inline
#endif

/* Numbers side by side, anywhere in memory, where the compiler can shuffle them. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
typedef real two __attribute__((vector_size(2 * sizeof(real)), aligned(sizeof(real)), may_alias));
typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));
#endif
#endif

/* Another pointer to the same array, of which gcc does not know that: see codegen/schedule/in_registers.py. */
SPECIALISED const real *apart_from(const real *array)
{
#if defined(__GNUC__) && !defined(__clang__)
    __asm__("" : "+r"(array));
#endif
    return array;
}

#if !FROZEN
/*
 * Takes a step for `count` parameters from data[at] on. `gradient` is theirs, not yet divided by the size of the batch.
 * Returns whether one of them has become inf or nan; 0 without RULES, where update.h has bounds for that.
 */
typedef int update_function(ptrdiff_t at, const real *restrict gradient, ptrdiff_t count, const struct step *);
#endif

/* The functions that are compiled once for each SIMD level: see level_begin.h and level_end.h. */
struct level {
    const char *name;
    int fuses; /* rounds once when it multiplies and adds */
    void (*set_inputs)(struct workspace *, const input_type *);
    void (*compute_prediction)(struct workspace *restrict);
    void (*compute_outputs)(struct workspace *restrict);
#if !FROZEN
    void (*compute_loss)(struct workspace *restrict);
    /* The same in parts: where sums over active inputs begin, the rows of some of these inputs, and all else. */
    void (*start_row_sums)(struct workspace *restrict);
    void (*add_rows)(struct workspace *restrict, int first, int end);
#if FEW_IMAGES
    /* The rows of inputs first .. end - 1, for FEW_IMAGES images of which all inputs before the end are active. */
    void (*add_dense_rows)(struct workspace *restrict images, int first, int end);
    void (*add_more_dense_rows)(struct workspace *restrict images, int first, int end); /* for MORE_IMAGES; or NULL */
#endif
    void (*compute_after_rows)(struct workspace *restrict);
    void (*compute_adjoints)(struct workspace *restrict);
    void (*compute_evaluation)(struct workspace *restrict);
#if METRIC_COUNT
    void (*compute_metrics)(struct workspace *restrict);
#endif
    /* Adds the gradients of some images, in order; each of `parts` calls covers its part of the parameters. */
    void (*compute_gradients)(const struct workspace *images, int count, int part, int parts);
#if GROUP_GRADIENTS
    /* The same from groups of images side by side, `count` of each; and for the parameters that these leave out. */
    void (*compute_group_gradients)(const struct images *images, struct workspace *once, int groups, int count, int part,
                                    int parts);
    void (*compute_other_gradients)(const struct workspace *images, int count, int part, int parts);
#endif
#if GROUP_SUMS
    /* What follows from sums over the images of groups, and the gradients of which it is a part. */
    void (*compute_from_sums)(struct workspace *restrict once, real image_count);
    void (*add_gradients_of_sums)(struct workspace *restrict once, real image_count, int part, int parts);
    struct batch_passes in_groups; /* training without it */
#endif
#if TAKES_STEPS
    /* Steps with the gradients of one image, which are not stored. step[0] is minus the rate. */
    void (*take_steps)(const struct workspace *restrict, int part, int parts, const real *restrict step);
#endif
    update_function *const *rules;
    real (*largest)(const real *x, Py_ssize_t count);
    /* Row tensors: see rows.h. */
    void (*find_largest_in_rows)(const real *restrict array, real *restrict largest);
    void (*compute_row_gradients)(const struct workspace *);
    void (*find_active_rows)(unsigned char *restrict rows, const input_type *const *images, int count);
    void (*add_images_to_rows)(int first, int end, int images);
#if TOKEN_TABLE_COUNT
    real (*word_gradient_bound)(const struct workspace *images, int count); /* see tokens.h */
    void (*add_word_gradients)(const struct workspace *images, int count, int part, int parts);
    void (*clear_words)(int begin, int end);
    int (*update_words)(const struct step *, int begin, int end);
#endif
    int (*update_row)(int input, const struct step *);
#if RULES
    int (*update_image_rows)(const struct workspace *, int first, int end, const struct step *);
#else
    void (*update_pending_image)(const struct workspace *, const struct step *);
#endif
    int (*update_pending_rows)(int worker, int first, int end, int images, const struct step *);
#endif
    /* Images side by side; all of these are NULL if the model has none. */
    void (*copy_into)(struct images *restrict, const struct workspace *, int count);
#if LOADS_GROUPS
    void (*load_group)(struct images *restrict, int first, int count); /* of block_images */
#endif
    void (*copy_out_of)(const struct images *restrict, struct workspace *, int count, const struct values *list);
    const struct batch_passes *prediction, *outputs, *training, *evaluation;
};

static const struct level *level; /* the one that runs */
#if X86_LEVELS && INPUT_PIXELS
static int has_vbmi2; /* AVX-512 that moves single bytes: scan_avx.h works without it, but in smaller steps */
#endif

#if HAS_LEVEL(0)
static const struct level level_baseline;
#define BASELINE &level_baseline
#else
#define BASELINE NULL
#endif
#if HAS_LEVEL(1)
static const struct level level_avx2;
#define AVX2 &level_avx2
#else
#define AVX2 NULL
#endif
#if HAS_LEVEL(2)
static const struct level level_avx512;
#define AVX512 &level_avx512
#else
#define AVX512 NULL
#endif

#if X86_LEVELS
/*
 * Bits of cpuid, and whether the system saves the registers: macOS saves those of AVX-512 from their first use on, and
 * says no until then. __builtin_cpu_supports() says no to everything where zig links, and brings 4 KB with gcc.
 */
static void find_features(int *avx2, int *avx512, int *vbmi2)
{
    const unsigned ymm = 0x6, levels = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* avx512f, dq, bw, vl */
    unsigned a, b = 0, c = 0, d, saved = 0;
    *avx2 = *avx512 = *vbmi2 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 12 & c >> 27 & c >> 28 & 1)) /* fma, osxsave, avx */
        return;
    __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if ((saved & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
#if defined(__APPLE__)
    const unsigned zmm = ymm;
#else
    const unsigned zmm = 0xe6;
#endif
    *avx2 = (int)(b >> 5 & 1);
    *avx512 = *avx2 && (saved & zmm) == zmm && (b & levels) == levels;
    *vbmi2 = *avx512 && (c >> 6 & 1);
}
#endif

/* The best level that this processor has. */
static int best_level(void)
{
#if X86_LEVELS
    int avx2, avx512, vbmi2;
    find_features(&avx2, &avx512, &vbmi2);
#if INPUT_PIXELS
    has_vbmi2 = vbmi2;
#endif
    return ONLY_LEVEL >= 0 ? ONLY_LEVEL : avx512 ? 2 : avx2 ? 1 : 0;
#else
    return 0;
#endif
}

/* Chooses the best level of this processor and module, or the one that NN_SIMD names in the environment. */
static int choose_level(void)
{
    static const struct {
        const struct level *level;
        const char *name, *listed;
    } levels[] = {{BASELINE, "baseline", " baseline"}, {AVX2, "avx2", ", avx2"}, {AVX512, "avx512", ", avx512"}};
    const char *const wanted = getenv("NN_SIMD");
    const char *listed[3] = {"", "", ""};
    const int best = best_level(), any = wanted == NULL || *wanted == '\0';
    level = NULL;
    for (int i = 0; i <= best; i++)
        if (levels[i].level != NULL) {
            listed[i] = levels[i].listed;
            if (any || strcmp(wanted, levels[i].name) == 0)
                level = levels[i].level;
        }
    if (level != NULL)
        return 0;
    PyErr_Format(PyExc_ImportError, "NN_SIMD=%s, but the levels of this module on this processor are:%s%s%s", wanted,
                 listed[0], listed[1], listed[2]);
    return -1;
}

#if SIDE_BY_SIDE
/* The values of some images, whose inputs and targets have been set in their workspaces. */
static void compute_side_by_side(struct images *images, const struct batch_passes *passes, struct workspace *w,
                                 int count, const struct workspace *once)
{
    for (int k = 0; passes->by_image != NULL && k < count; k++)
        passes->by_image(&w[k]);
    level->copy_into(images, w, count);
    if (passes->side_by_side != NULL)
        passes->side_by_side(images, once);
}
#endif

#endif
