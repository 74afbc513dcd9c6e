/*
 * Included before code that computes in double in a model of floats, and so without a guard: `real` is double there. The
 * generated definitions of ops between this and double_end.h have names of their own.
 */

#define real double
#define real_bits uint64_t
#define to_bits double_to_bits
#define from_bits double_from_bits
#define one_if double_one_if
#undef IN_LIBRARY
#define IN_LIBRARY(function) function

#include "real_bits.h"
