/* After the kernels of one SIMD level of a model that only predicts: level_end.h has more. */

#include "scan.h"

static const struct level AT_LEVEL(level) = {
    .name = LEVEL_NAME,
    .fuses = FUSES,
    .set_inputs = AT_LEVEL(set_inputs),
    .compute_prediction = AT_LEVEL(compute_prediction),
    .compute_outputs = AT_LEVEL(compute_outputs),
};

#include "level_pop.h"
