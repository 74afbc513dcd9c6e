/* Which SIMD level runs: the best that the processor has, or the one that the environment's NN_SIMD names. */

static const struct level *level = &level_baseline;

static int choose_level(void)
{
#if X86_LEVELS
    static const struct level *const levels[] = {&level_baseline, &level_avx2, &level_avx512};
    __builtin_cpu_init();
    const int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const int has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    const int best = has_avx512 ? 2 : has_avx2 ? 1 : 0;
#else
    static const struct level *const levels[] = {&level_baseline};
    const int best = 0;
#endif
    const char *const wanted = getenv("NN_SIMD");
    level = levels[best];
    if (wanted == NULL || *wanted == '\0')
        return 0;
    for (int i = 0; i <= best; i++) {
        if (strcmp(wanted, levels[i]->name) == 0) {
            level = levels[i];
            return 0;
        }
    }
    PyErr_Format(PyExc_ImportError, "NN_SIMD=%s, but the levels of this module on this processor are: baseline%s%s",
                 wanted, best > 0 ? ", avx2" : "", best > 1 ? ", avx512" : "");
    return -1;
}
