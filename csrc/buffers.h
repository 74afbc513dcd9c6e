/*
 * Arguments that hold many numbers: inputs, targets, labels. A buffer whose elements are those of the model is read in
 * place. Where the model computes with real numbers, any other real numbers are converted first, into memory of the
 * call: buffers of other types, strides and byte orders, lists, arrays that another library lends (`__array__`), single
 * numbers. So are labels of any integer type.
 */

#ifndef BUFFERS_H
#define BUFFERS_H

#include "arguments.h"
#include "model.h"
#include "narrow.h"

#include <string.h>

/* The elements of a buffer; `format` is that of Python's struct module. */
struct elements {
    const char *noun;
    char format;
    Py_ssize_t size;
    enum { AS_THEY_ARE, FROM_INTEGERS, FROM_REALS } conversion;
    int classes;     /* integers are below it */
    const char *one; /* what messages call one of them */
    struct example_shape shape;
};

#ifndef INPUT_SHAPE
#define INPUT_SHAPE {0, {0}}
#endif
#ifndef TARGET_SHAPE
#define TARGET_SHAPE {0, {0}}
#endif

#define BYTE_ELEMENTS "unsigned bytes", 'B', 1, AS_THEY_ARE, 0, NULL
#if FLOAT32
#define REAL_ELEMENTS "float32", 'f', sizeof(real), FROM_REALS, 0, NULL
#else
#define REAL_ELEMENTS "float64", 'd', sizeof(real), FROM_REALS, 0, NULL
#endif
static const struct elements real_elements = {REAL_ELEMENTS, {0, {0}}};
static MAYBE_UNUSED const struct elements byte_elements = {BYTE_ELEMENTS, {0, {0}}};

#if INPUT_PIXELS
static MAYBE_UNUSED const struct elements input_elements = {BYTE_ELEMENTS, INPUT_SHAPE};
#else
static MAYBE_UNUSED const struct elements input_elements = {REAL_ELEMENTS, INPUT_SHAPE};
#endif

#if !FROZEN
#if TARGET_LABEL
static MAYBE_UNUSED const struct elements target_elements = {
    "unsigned bytes", 'B', 1, FROM_INTEGERS, TARGET_COUNT, "label", {0, {0}}};
#else
static MAYBE_UNUSED const struct elements target_elements = {REAL_ELEMENTS, TARGET_SHAPE};
#endif
#endif

static int is_little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one;
}

static const char *format_of(const Py_buffer *view) { return view->format == NULL ? "B" : view->format; }

static int has_format(const Py_buffer *view, const struct elements *expected)
{
    const char *format = format_of(view);
    if (*format == '@' || *format == '=' || *format == (is_little_endian() ? '<' : '>'))
        format++;
    return format[0] == expected->format && format[1] == '\0' && view->itemsize == expected->size;
}

/* Not an error of the argument, but of the process. */
static int must_pass_on(void)
{
    return PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_RecursionError) ||
           !PyErr_ExceptionMatches(PyExc_Exception);
}

static const char *expected_things(const struct elements *expected)
{
    return expected->conversion == FROM_REALS ? "real numbers" : "ints";
}

/* Numbers in memory */

/* What a buffer holds: `kind` is one of '?' (bool), 'i', 'u', 'f'. */
struct number_type {
    char kind;
    int size, is_swapped;
};

/* Returns 0 if the elements are no real numbers. */
static int number_type_of(const Py_buffer *view, struct number_type *type)
{
    const char *format = format_of(view);
    type->is_swapped = 0;
    if (strchr("@=<>!", *format) != NULL && *format != '\0') {
        type->is_swapped = strchr(is_little_endian() ? ">!" : "<", *format) != NULL;
        format++;
    }
    if (format[0] == '\0' || format[1] != '\0' || view->itemsize > (Py_ssize_t)sizeof(double))
        return 0;
    type->size = (int)view->itemsize;
    type->kind = strchr("bhilqn", *format) != NULL   ? 'i'
                 : strchr("BHILQN", *format) != NULL ? 'u'
                 : strchr("efd", *format) != NULL    ? 'f'
                                                     : '?';
    return type->kind != '?' || *format == '?';
}

/* A float16 that may be infinite or nan, as no frozen weight is. */
static float any_float16(uint16_t half)
{
    const uint32_t rest = half & 0x7fff;
    return rest < 31u << 10 ? widen_float16(half)
                            : float_of((uint32_t)(half & 0x8000) << 16 | (rest + (224u << 10)) << 13);
}

/* Elements of one C type, `stride` bytes apart and perhaps misaligned; side by side in a loop of their own, for vectors. */
#define CONVERT(type, value) \
    do { \
        type x; \
        if (stride == (Py_ssize_t)sizeof(x)) \
            for (Py_ssize_t i = 0; i < count; i++) { \
                memcpy(&x, from + i * (Py_ssize_t)sizeof(x), sizeof(x)); \
                to[i] = (double)(value); \
            } \
        else \
            for (Py_ssize_t i = 0; i < count; i++) { \
                memcpy(&x, from + i * stride, sizeof(x)); \
                to[i] = (double)(value); \
            } \
    } while (0)

static void convert_native(struct number_type type, const char *from, Py_ssize_t stride, Py_ssize_t count, double *to)
{
    switch (type.kind << 8 | type.size) {
    case '?' << 8 | 1: CONVERT(unsigned char, x != 0); break;
    case 'i' << 8 | 1: CONVERT(int8_t, x); break;
    case 'i' << 8 | 2: CONVERT(int16_t, x); break;
    case 'i' << 8 | 4: CONVERT(int32_t, x); break;
    case 'i' << 8 | 8: CONVERT(int64_t, x); break;
    case 'u' << 8 | 1: CONVERT(uint8_t, x); break;
    case 'u' << 8 | 2: CONVERT(uint16_t, x); break;
    case 'u' << 8 | 4: CONVERT(uint32_t, x); break;
    case 'u' << 8 | 8: CONVERT(uint64_t, x); break;
    case 'f' << 8 | 2: CONVERT(uint16_t, any_float16(x)); break;
    case 'f' << 8 | 4: CONVERT(float, x); break;
    default: CONVERT(double, x); break;
    }
}

#undef CONVERT

static void convert_numbers(struct number_type type, const char *from, Py_ssize_t stride, Py_ssize_t count, double *to)
{
    if (!type.is_swapped) {
        convert_native(type, from, stride, count, to);
        return;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char native[sizeof(double)];
        for (int b = 0; b < type.size; b++)
            native[b] = from[i * stride + type.size - 1 - b];
        convert_native(type, native, type.size, 1, to + i);
    }
}

/* Conversion */

/* Where converted numbers go: a bytes object that grows no more. */
struct converted {
    const char *what;
    const struct elements *expected;
    PyObject *bytes;
    char *to;
    Py_ssize_t count, done;
};

static int begin_conversion(struct converted *c, Py_ssize_t count)
{
    c->bytes = count > PY_SSIZE_T_MAX / c->expected->size ? PyErr_NoMemory()
                                                          : PyBytes_FromStringAndSize(NULL, count * c->expected->size);
    if (c->bytes == NULL)
        return -1;
    c->to = PyBytes_AsString(c->bytes);
    c->count = count;
    c->done = 0;
    return 0;
}

static void raise_class(const char *one, Py_ssize_t i, int classes, double class)
{
    PyObject *const got = PyLong_FromDouble(class);
    if (got != NULL)
        PyErr_Format(PyExc_ValueError, "%s %zd must be 0..%d, got %S", one, i, classes - 1, got);
    Py_XDECREF(got);
}

static int add_numbers(struct converted *c, const double *from, Py_ssize_t count)
{
    const int classes = c->expected->classes;
    char *const to = c->to + c->done * c->expected->size;
    if (c->expected->conversion == FROM_REALS)
        for (Py_ssize_t i = 0; i < count; i++) {
            const real x = (real)from[i];
            memcpy(to + i * (Py_ssize_t)sizeof(x), &x, sizeof(x));
        }
    else {
        for (Py_ssize_t i = 0; i < count; i++)
            if (!(from[i] >= 0 && from[i] < classes)) {
                raise_class(c->expected->one, c->done + i, classes, from[i]);
                return -1;
            }
        for (Py_ssize_t i = 0; i < count && c->expected->size == 1; i++)
            to[i] = (char)(unsigned char)from[i];
        for (Py_ssize_t i = 0; i < count && c->expected->size > 1; i++) {
            const int32_t class = (int32_t)from[i];
            memcpy(to + i * (Py_ssize_t)sizeof(class), &class, sizeof(class));
        }
    }
    c->done += count;
    return 0;
}

/* 64-bit integers side by side; returns whether all are classes. */
static int convert_classes(struct converted *c, const char *from)
{
    const uint64_t classes = (uint64_t)c->expected->classes;
    int wrong = 0;
    for (Py_ssize_t i = 0; i < c->count; i++) {
        uint64_t x;
        memcpy(&x, from + i * (Py_ssize_t)sizeof(x), sizeof(x));
        wrong |= x >= classes;
        const int32_t class = (int32_t)x;
        memcpy(c->to + i * (Py_ssize_t)sizeof(class), &class, sizeof(class));
    }
    return !wrong;
}

enum { NUMBERS_AT_ONCE = 512, MAX_BUFFER_DIMENSIONS = 64 };

static int convert_buffer(struct converted *c, const Py_buffer *view)
{
    struct number_type type;
    if (!number_type_of(view, &type) || (c->expected->conversion == FROM_INTEGERS && type.kind == 'f')) {
        PyErr_Format(PyExc_TypeError, "%s must be %s, got a buffer with format '%s'", c->what,
                     expected_things(c->expected), format_of(view));
        return -1;
    }
    const int dimensions = PyBuffer_IsContiguous(view, 'C') ? 0 : view->ndim;
    if (begin_conversion(c, view->len / view->itemsize) < 0)
        return -1;
    const Py_ssize_t row = dimensions ? view->shape[dimensions - 1] : c->count;
    const Py_ssize_t stride = dimensions ? view->strides[dimensions - 1] : view->itemsize;
    Py_ssize_t at[MAX_BUFFER_DIMENSIONS] = {0};
    const char *from = view->buf;
    const int are_wide = type.size == sizeof(int64_t) && !type.is_swapped && !dimensions;
    if (are_wide && c->expected->conversion == FROM_INTEGERS && c->expected->size > 1 && convert_classes(c, from))
        return 0;
    while (c->done < c->count) {
        for (Py_ssize_t i = 0; i < row; i += NUMBERS_AT_ONCE) {
            double numbers[NUMBERS_AT_ONCE];
            const Py_ssize_t count = row - i < NUMBERS_AT_ONCE ? row - i : NUMBERS_AT_ONCE;
            convert_numbers(type, from + i * stride, stride, count, numbers);
            if (add_numbers(c, numbers, count) < 0)
                return -1;
        }
        for (int d = dimensions - 2; d >= 0; d--) { /* the next row */
            from += view->strides[d];
            if (++at[d] < view->shape[d])
                break;
            from -= at[d] * view->strides[d];
            at[d] = 0;
        }
    }
    return 0;
}

/* Sequences of numbers, perhaps nested; a number by itself is one without dimensions. */
struct shape {
    int dimensions;
    Py_ssize_t sizes[MAX_BUFFER_DIMENSIONS];
};

enum { NO_SEQUENCE = -1, FAILED = -2, ANY_COUNT = -1, LONG_SEQUENCE = 1 << 16 };

/* The length of a sequence of numbers, or NO_SEQUENCE, without an exception, or FAILED with one. */
static Py_ssize_t sequence_length(PyObject *object)
{
    if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object))
        return NO_SEQUENCE;
    const Py_ssize_t length = PySequence_Size(object);
    if (length >= 0)
        return length;
    if (must_pass_on())
        return FAILED;
    PyErr_Clear();
    return NO_SEQUENCE;
}

/* The shape that the first elements have. */
static int find_shape(PyObject *object, struct shape *shape)
{
    Py_ssize_t length = NO_SEQUENCE;
    shape->dimensions = 0;
    Py_INCREF(object);
    while (shape->dimensions < MAX_BUFFER_DIMENSIONS && (length = sequence_length(object)) >= 0) {
        shape->sizes[shape->dimensions++] = length;
        if (length == 0)
            break;
        PyObject *const first = PySequence_GetItem(object, 0);
        Py_DECREF(object);
        if (first == NULL)
            return -1;
        object = first;
    }
    Py_DECREF(object);
    return length == FAILED ? -1 : 0;
}

static void raise_no_number(const struct converted *c, PyObject *object)
{
    PyErr_Format(PyExc_TypeError, "%s must be %s, got %R", c->what, expected_things(c->expected),
                 (PyObject *)Py_TYPE(object));
}

static int add_number(struct converted *c, PyObject *object)
{
    double x = 0;
    if (c->expected->conversion == FROM_REALS)
        x = PyFloat_AsDouble(object);
    else {
        PyObject *const number = PyNumber_Index(object);
        x = number == NULL ? -1.0 : PyLong_AsDouble(number);
        Py_XDECREF(number);
    }
    if (x == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            raise_no_number(c, object);
        }
        else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%s: number %zd is an int beyond the range of float64", c->what, c->done);
        }
        return -1;
    }
    return add_numbers(c, &x, 1);
}

static int add_sequence(struct converted *c, PyObject *object, const struct shape *shape, int depth)
{
    if (depth == shape->dimensions)
        return add_number(c, object);
    const Py_ssize_t length = sequence_length(object), expected = shape->sizes[depth];
    if (length < 0) {
        if (length == NO_SEQUENCE)
            raise_no_number(c, object);
        return -1;
    }
    if (length != expected) {
        PyErr_Format(PyExc_ValueError, "%s must have rows of one length, got %zd and %zd", c->what, expected, length);
        return -1;
    }
    int failed = 0;
    for (Py_ssize_t i = 0; i < length && !failed; i++) {
        PyObject *const item = PySequence_GetItem(object, i);
        failed = item == NULL || add_sequence(c, item, shape, depth + 1) < 0;
        Py_XDECREF(item);
    }
    return failed ? -1 : 0;
}

static int raise_count(const char *what, const struct elements *expected, Py_ssize_t count, Py_ssize_t got)
{
    PyErr_Format(PyExc_ValueError, "%s must hold %zd %s, got %zd", what, count, expected->noun, got);
    return -1;
}

/*
 * Fails with a TypeError where the object is neither a sequence nor a number. What is wrong with an element comes before
 * what is wrong with their count, but for a sequence that claims to be longer than there may be memory for.
 */
static int convert_sequence(struct converted *c, PyObject *object, Py_ssize_t wanted, Py_ssize_t per_row)
{
    struct shape shape;
    Py_ssize_t count = 1;
    if (find_shape(object, &shape) < 0)
        return -1;
    for (int d = 0; d < shape.dimensions; d++) {
        if (shape.sizes[d] && count > PY_SSIZE_T_MAX / 16 / shape.sizes[d]) {
            PyErr_NoMemory();
            return -1;
        }
        count *= shape.sizes[d];
    }
    if (wanted != ANY_COUNT && count != wanted && count > LONG_SEQUENCE)
        return raise_count(c->what, c->expected, wanted, count);
    if (begin_conversion(c, count) < 0 || add_sequence(c, object, &shape, 0) < 0)
        return -1;
    return check_rows(c->what, shape.dimensions, shape.sizes, per_row, &c->expected->shape);
}

/* What an array of another library lends as a buffer; a new reference, NULL without an exception if it does not. */
static PyObject *lent_array(PyObject *object)
{
    PyObject *const method = PyObject_GetAttrString(object, "__array__");
    PyObject *const array = method == NULL ? NULL : PyObject_CallObject(method, NULL);
    Py_XDECREF(method);
    if (array == NULL && (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_TypeError)))
        PyErr_Clear();
    if (array != NULL && PyObject_CheckBuffer(array))
        return array;
    Py_XDECREF(array);
    return NULL;
}

/* Arguments */

/* Checks a buffer of other elements, or a sequence, and converts it to a buffer of the expected elements. */
static int get_converted(PyObject *object, const char *what, const struct elements *expected, Py_ssize_t wanted,
                         Py_ssize_t per_row, Py_buffer *view)
{
    struct converted c = {what, expected, NULL, NULL, 0, 0};
    int failed;
    if (expected->conversion == FROM_REALS && (PyBytes_Check(object) || PyByteArray_Check(object))) {
        raise_no_number(&c, object); /* its bytes may well be those of floats */
        return -1;
    }
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDED_RO | PyBUF_FORMAT) == 0) {
        failed = check_rows(what, view->ndim, view->shape, per_row, &expected->shape) < 0 ||
                 convert_buffer(&c, view) < 0;
        PyBuffer_Release(view);
    }
    else {
        if (must_pass_on())
            return -1;
        PyErr_Clear();
        failed = convert_sequence(&c, object, wanted, per_row) < 0;
    }
    failed = failed || PyObject_GetBuffer(c.bytes, view, PyBUF_SIMPLE) < 0;
    Py_XDECREF(c.bytes);
    return failed ? -1 : 0;
}

static int get_buffer_in_place(PyObject *object, const char *what, const struct elements *expected, Py_ssize_t per_row,
                               Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        if (must_pass_on())
            return -1;
        PyErr_Clear();
        if (expected->conversion == AS_THEY_ARE)
            PyErr_Format(PyExc_TypeError, "%s must be a C-contiguous buffer of %s, got %R", what, expected->noun,
                         (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (has_format(view, expected)) {
        if (check_rows(what, view->ndim, view->shape, per_row, &expected->shape) == 0)
            return 0;
    }
    else if (expected->conversion == AS_THEY_ARE)
        PyErr_Format(PyExc_TypeError, "%s must be a buffer of %s (format '%c'), got format '%s'", what,
                     expected->noun, expected->format, format_of(view));
    PyBuffer_Release(view);
    return -1;
}

/*
 * Gets a C-contiguous buffer of `wanted` expected elements, or of ANY_COUNT: that of the argument, to be read in place,
 * or a converted copy. `per_row`: the elements of an image, if the first dimension counts images, else 0.
 */
static int get_buffer(PyObject *object, const char *what, const struct elements *expected, Py_ssize_t wanted,
                      Py_ssize_t per_row, Py_buffer *view)
{
    int result = get_buffer_in_place(object, what, expected, per_row, view);
    if (result < 0 && !PyErr_Occurred()) {
        PyObject *const lent = PyObject_CheckBuffer(object) ? NULL : lent_array(object);
        PyObject *const source = lent == NULL ? object : lent;
        if (lent != NULL)
            result = get_buffer_in_place(lent, what, expected, per_row, view);
        if (result < 0 && !PyErr_Occurred())
            result = get_converted(source, what, expected, wanted, per_row, view);
        Py_XDECREF(lent); /* the view holds it */
    }
    if (result < 0 || wanted == ANY_COUNT || view->len == wanted * expected->size)
        return result;
    const Py_ssize_t got = view->len / expected->size;
    PyBuffer_Release(view);
    return raise_count(what, expected, wanted, got);
}

#endif
