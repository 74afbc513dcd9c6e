/* How inputs get into a workspace, at one SIMD level. */

#if LEVEL == 2 && INPUT_PIXELS
#include "scan_avx512.h"
#else
#include "scan_portable.h"
#endif
#include "set_inputs.h"
