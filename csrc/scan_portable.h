/* Lists the active inputs. */

#if INPUT_PIXELS
/* Eight pixels at a time, as most are 0 in runs of eight. */
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    enum { IN_EIGHTS = INPUT_COUNT / 8 * 8 };
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i += 8) {
        uint64_t pixels = 1;
        if (i < IN_EIGHTS)
            memcpy(&pixels, inputs + i, sizeof(pixels));
        if (pixels | poisoned_of_eight(i)) {
            for (int j = i; j < i + 8 && j < INPUT_COUNT; j++) {
                w->active[count] = j;
                w->active_value[count] = inputs[j] * INPUT_SCALE;
                count += is_nonzero(inputs, j) | is_poisoned(j);
            }
        }
    }
    return count;
}
#else
static int AT_LEVEL(find_active)(struct workspace *restrict w, const input_type *inputs)
{
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i++) {
        const real x = input_value(inputs, i);
        w->active[count] = i;
        w->active_value[count] = x;
        count += is_nonzero(inputs, i) | is_poisoned(i);
    }
    return count;
}
#endif
