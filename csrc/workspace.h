/*
 * What the passes over one image read and write. An input is *active* where it is not 0, or where a weight of its row
 * is not finite: codegen/sparse.py.
 */

enum { VECTOR_OF_INPUTS = 16 }; /* what fills the lists of active inputs may write so many too many */

/* What the passes compute for one image. */
struct workspace {
    ALIGNED real value[VALUE_COUNT]; /* the inputs stand here too where anything but a row tensor reads them */
    int active_count;
    int active[INPUT_SPACE + VECTOR_OF_INPUTS];
    real active_value[INPUT_SPACE + VECTOR_OF_INPUTS];
#if INPUT_PIXELS
    int active_byte[INPUT_SPACE + VECTOR_OF_INPUTS];
#endif
};
