/* What most models do not have. The generated constants of those that do come first. */

#ifndef ABSENT_H
#define ABSENT_H

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

#endif
