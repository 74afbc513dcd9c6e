/* Included before and after code whose `real` is double in a model of floats, and so without a guard. */

#undef IN_LIBRARY
#ifndef IN_DOUBLE
#define IN_DOUBLE
#define real double
#define real_bits uint64_t
#define to_bits double_to_bits
#define from_bits double_from_bits
#define one_if double_one_if
#define IN_LIBRARY(function) function

#include "real_bits.h"
#else
#undef IN_DOUBLE
#undef real
#undef real_bits
#undef to_bits
#undef from_bits
#undef one_if
#define IN_LIBRARY(function) function##f
#endif
