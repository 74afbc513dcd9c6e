/* All weights are finite constants, so the row of an input that is 0 can always be left out. */

static inline int is_poisoned(int input)
{
    (void)input;
    return 0;
}

static inline uint64_t poisoned_of_eight(int first)
{
    (void)first;
    return 0;
}
