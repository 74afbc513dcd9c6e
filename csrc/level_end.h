/*
 * Included at the end of the kernels, once for each SIMD level and so without a guard. It has the hand-written loops
 * that benefit from the level too, and the table of everything that was compiled for it.
 */

#if LEVEL > 0 && INPUT_PIXELS
#include "scan_avx.h"
#endif
#if !FROZEN && !RULES
/* p -= rate * g / batch, in this order. */
static inline int AT_LEVEL(descend)(ptrdiff_t at, const real *restrict g, ptrdiff_t count, const struct step *step)
{
    real *restrict const p = data + at;
    const real rate = (real)step->rate, batch = (real)step->batch, share = (real)step->share;
    if (share == 1)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i];
    else if (share != 0)
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] * share;
    else
        for (Py_ssize_t i = 0; i < count; i++)
            p[i] -= rate * g[i] / batch;
    return 0;
}

static update_function *const AT_LEVEL(rules)[] = {AT_LEVEL(descend)};
#endif
#include "tokens.h"
#include "scan.h"
#if !FROZEN
static real AT_LEVEL(largest)(const real *x, Py_ssize_t count) { return largest_magnitude(x, count); }

#include "rows.h"
#endif
#if SIDE_BY_SIDE
#include "transpose.h"
#endif

static const struct level AT_LEVEL(level) = {
    .name = LEVEL_NAME,
    .fuses = FUSES,
    .set_inputs = AT_LEVEL(set_inputs),
    .compute_prediction = AT_LEVEL(compute_prediction),
    .compute_outputs = AT_LEVEL(compute_outputs),
#if !FROZEN
    .compute_loss = AT_LEVEL(compute_loss),
    .start_row_sums = AT_LEVEL(start_row_sums),
    .add_rows = AT_LEVEL(add_rows),
#if FEW_IMAGES
    .add_dense_rows = AT_LEVEL(add_dense_rows),
#if MORE_IMAGES && WIDE_REGISTERS
    .add_more_dense_rows = AT_LEVEL(add_more_dense_rows),
#endif
#endif
    .compute_after_rows = AT_LEVEL(compute_after_rows),
    .compute_adjoints = AT_LEVEL(compute_adjoints),
    .compute_evaluation = AT_LEVEL(compute_evaluation),
#if METRIC_COUNT
    .compute_metrics = AT_LEVEL(compute_metrics),
#endif
    .compute_gradients = AT_LEVEL(compute_gradients),
#if GROUP_GRADIENTS
    .compute_group_gradients = AT_LEVEL(compute_group_gradients),
    .compute_other_gradients = AT_LEVEL(compute_other_gradients),
#endif
#if GROUP_SUMS
    .compute_from_sums = AT_LEVEL(compute_from_sums),
    .add_gradients_of_sums = AT_LEVEL(add_gradients_of_sums),
    .in_groups = {NULL, NULL, AT_LEVEL(training_in_groups)},
#endif
#if TAKES_STEPS
    .take_steps = AT_LEVEL(take_steps),
#endif
    .rules = AT_LEVEL(rules),
    .largest = AT_LEVEL(largest),
    .find_largest_in_rows = AT_LEVEL(find_largest_in_rows),
    .compute_row_gradients = AT_LEVEL(compute_row_gradients),
    .find_active_rows = AT_LEVEL(find_active_rows),
    .add_images_to_rows = AT_LEVEL(add_images_to_rows),
    .update_row = AT_LEVEL(update_row),
#if TOKEN_TABLE_COUNT
    .word_gradient_bound = AT_LEVEL(word_gradient_bound),
    .add_word_gradients = AT_LEVEL(add_word_gradients),
    .clear_words = AT_LEVEL(clear_words),
    .update_words = AT_LEVEL(update_words),
#endif
#if RULES
    .update_image_rows = AT_LEVEL(update_image_rows),
#else
    .update_pending_image = AT_LEVEL(update_pending_image),
#endif
    .update_pending_rows = AT_LEVEL(update_pending_rows),
#endif
#if SIDE_BY_SIDE
    .copy_into = AT_LEVEL(copy_into),
#if LOADS_GROUPS
    .load_group = AT_LEVEL(load_group),
#endif
#if HAS_PREDICTION
    .prediction = &AT_LEVEL(prediction_passes),
#endif
#if OUTPUT_COUNT
    .outputs = &AT_LEVEL(outputs_passes),
#endif
#if !FROZEN
    .copy_out_of = AT_LEVEL(copy_out_of),
    .training = &AT_LEVEL(training_passes),
    .evaluation = &AT_LEVEL(evaluation_passes),
#endif
#endif
};

#if defined(__clang__)
#if LEVEL > 0
#pragma clang attribute pop
#endif
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#undef AT_LEVEL
#undef LEVEL_NAME
#undef LEVEL
#undef WIDE_REGISTERS
#undef BLOCK
#undef MULTIPLY_ADD
#undef FUSES
