/* Included after code that computes in double in a model of floats, and so without a guard: see double_begin.h. */

#undef real
#undef real_bits
#undef to_bits
#undef from_bits
#undef one_if
#undef IN_LIBRARY
#define IN_LIBRARY(function) function##f
