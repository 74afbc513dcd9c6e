/*
 * Argument parsing. A wrong count or type is a TypeError; a wrong size or range is a ValueError that says what it got.
 */

#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "model.h"

/*
 * The one module whose functions work. A process may also have modules that were created and never executed, were
 * refused, or have been cleared: the model's arrays are not theirs.
 */
static PyObject *usable_module;

static int expect_usable(PyObject *self)
{
    if (module_of(self) == usable_module)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "this module object of '" MODULE_NAME "' was not imported to the end, or has "
                                        "been cleared: it has no model");
    return -1;
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

struct signature {
    const char *function;
    int positional; /* how many may be passed by position */
    int required;
    int count;
    const char *names[9];
};

/*
 * What arguments are called in help and messages: pixels and labels, or inputs and targets. Callers may always say
 * images and labels.
 */
#if INPUT_PIXELS && !INPUT_PARTS
#define INPUT_ARGUMENT "pixels"
#define INPUTS_ARGUMENT "images"
#else
#define INPUT_ARGUMENT "inputs"
#define INPUTS_ARGUMENT "inputs"
#endif
#if TARGET_LABEL
#define TARGET_ARGUMENT "label"
#define TARGETS_ARGUMENT "labels"
#else
#define TARGET_ARGUMENT "targets"
#define TARGETS_ARGUMENT "targets"
#endif

static int is_called(PyObject *name, const char *argument)
{
    const char *const other = strcmp(argument, INPUTS_ARGUMENT) == 0    ? "images"
                              : strcmp(argument, TARGETS_ARGUMENT) == 0 ? "labels"
                                                                        : argument;
    return PyUnicode_CompareWithASCIIString(name, argument) == 0 || PyUnicode_CompareWithASCIIString(name, other) == 0;
}

/* Fills values[] with borrowed references, NULL where an argument was not given. */
static int parse_arguments(const struct signature *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                           PyObject **values)
{
    if (nargs > s->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments, got %zd", s->function,
                     s->positional, nargs);
        return -1;
    }
    for (int i = 0; i < s->count; i++)
        values[i] = i < nargs ? args[i] : NULL;
    const Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
    for (Py_ssize_t k = 0; k < keywords; k++) {
        PyObject *const name = PyTuple_GetItem(kwnames, k);
        if (name == NULL)
            return -1;
        int i = 0;
        while (i < s->count && !is_called(name, s->names[i]))
            i++;
        if (i == s->count) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", s->function, name);
            return -1;
        }
        if (values[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got two values for the argument '%s'", s->function, s->names[i]);
            return -1;
        }
        values[i] = args[nargs + k];
    }
    for (int i = 0; i < s->required; i++) {
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", s->function, s->names[i]);
            return -1;
        }
    }
    return 0;
}

/* None means the same as a missing argument. */
static int is_given(PyObject *value) { return value != NULL && value != Py_None; }

/* In the place of a TypeError of Python's own, or of none. What else was raised stays. */
static void raise_type(const char *what, const char *expected, PyObject *object)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %R", what, expected, (PyObject *)Py_TYPE(object));
}

static PyObject *text_of(PyObject *number)
{
    PyObject *const text = PyObject_Str(number);
    if (text != NULL || PyErr_ExceptionMatches(PyExc_MemoryError))
        return text;
    PyErr_Clear(); /* Python refuses to print an int of more than 4300 digits */
    return PyUnicode_FromString("an int of very many digits");
}

static void raise_range(const char *what, Py_ssize_t low, Py_ssize_t high, PyObject *number)
{
    PyObject *const got = text_of(number);
    if (got != NULL && high == PY_SSIZE_T_MAX)
        PyErr_Format(PyExc_ValueError, "%s must be at least %zd and fit in %d bits, got %U", what, low,
                     (int)sizeof(Py_ssize_t) * 8, got);
    else if (got != NULL)
        PyErr_Format(PyExc_ValueError, "%s must be %zd..%zd, got %U", what, low, high, got);
    Py_XDECREF(got);
}

/* Parses an int in [low, high] from any object with __index__. Returns -1 with an exception set on failure, so low must
 * be >= 0. */
static Py_ssize_t parse_int(PyObject *object, const char *what, Py_ssize_t low, Py_ssize_t high)
{
    PyObject *const number = PyNumber_Index(object);
    if (number == NULL) {
        raise_type(what, "an int", object);
        return -1;
    }
    const Py_ssize_t value = PyLong_AsSsize_t(number);
    const int fits = !(value == -1 && PyErr_Occurred());
    if (!fits || value < low || value > high) {
        PyErr_Clear();
        raise_range(what, low, high, number);
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    return value;
}

#if !FROZEN /* only training takes learning rates, flags and seeds */

/* Parses a finite float. */
static int parse_float(PyObject *object, const char *what, double *value)
{
    *value = PyFloat_AsDouble(object);
    if (*value == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%s must be finite, got an int beyond the range of float64", what);
        }
        raise_type(what, "a number", object);
        return -1;
    }
    if (!is_finite(*value)) {
        PyErr_Format(PyExc_ValueError, "%s must be finite, got %S", what, object);
        return -1;
    }
    return 0;
}

static int parse_rate(PyObject *object, const char *what, double *rate)
{
    if (parse_float(object, what, rate) < 0)
        return -1;
    if (fabs(*rate) <= REAL_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s must be finite in float32, got %S", what, object);
    return -1;
}

static int parse_bool(PyObject *object, const char *what)
{
    if (PyBool_Check(object))
        return object == Py_True;
    raise_type(what, "True or False", object);
    return -1;
}

/* Returns 1 and stores the seed, 0 if there is none (missing or None), or -1 with an exception set. */
static int parse_seed(PyObject *object, uint64_t *seed)
{
    if (!is_given(object))
        return 0;
    PyObject *const number = PyNumber_Index(object);
    if (number == NULL) {
        raise_type("seed", "an int or None", object);
        return -1;
    }
    *seed = PyLong_AsUnsignedLongLong(number);
    const int fits = !PyErr_Occurred();
    if (!fits && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyObject *const got = text_of(number);
        if (got != NULL)
            PyErr_Format(PyExc_ValueError, "seed must be 0..2**64-1, got %U", got);
        Py_XDECREF(got);
    }
    Py_DECREF(number);
    return fits ? 1 : -1;
}

#endif

/* Puts a new reference into a new dict and returns the dict; NULL, and neither is left, if that fails or it is NULL. */
static PyObject *with_item(PyObject *dict, const char *name, PyObject *value)
{
    if (value == NULL || PyDict_SetItemString(dict, name, value) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(value);
    return dict;
}

/* Shapes of arguments that hold many numbers */

static PyObject *shape_tuple(int dimensions, const Py_ssize_t *sizes)
{
    PyObject *const tuple = PyTuple_New(dimensions);
    for (int d = 0; tuple != NULL && d < dimensions; d++) {
        PyObject *const size = PyLong_FromSsize_t(sizes[d]);
        if (size == NULL || PyTuple_SetItem(tuple, d, size) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static int has_shape(const struct example_shape *shape, int dimensions, const Py_ssize_t *sizes)
{
    int same = dimensions == shape->dimensions;
    for (int d = 0; same && d < dimensions; d++)
        same = sizes[d] == shape->sizes[d];
    return same;
}

/* Examples that were declared with two or more dimensions have these, or are rows of numbers. */
static int check_shape(const char *what, int dimensions, const Py_ssize_t *sizes, Py_ssize_t per_row,
                       const struct example_shape *declared)
{
    Py_ssize_t numbers = 1;
    for (int d = 0; d < declared->dimensions; d++)
        numbers *= declared->sizes[d];
    if (has_shape(declared, dimensions, sizes) || has_shape(declared, dimensions - 1, sizes + 1) ||
        (dimensions == 2 && sizes[1] == numbers))
        return 0;
    const char *const rows = per_row ? "n, " : "";
    PyObject *text = PyUnicode_FromFormat("(%s%d", rows, declared->sizes[0]);
    for (int d = 1; d < declared->dimensions; d++)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat(", %d", declared->sizes[d]));
    PyObject *const got = shape_tuple(dimensions, sizes);
    if (text != NULL && got != NULL)
        PyErr_Format(PyExc_ValueError, "%s must have the shape %U) or (%s%zd%s), got the shape %R", what, text, rows,
                     numbers, per_row ? "" : ",", got);
    Py_XDECREF(text);
    Py_XDECREF(got);
    return -1;
}

/*
 * With two or more dimensions, the first one counts rows, if they are not one: others would be read as scrambled rows.
 */
static int check_rows(const char *what, int dimensions, const Py_ssize_t *sizes, Py_ssize_t per_row,
                      const struct example_shape *declared)
{
    size_t in_row = 1; /* wraps around where the array is empty */
    if (dimensions >= 2 && declared->dimensions)
        return check_shape(what, dimensions, sizes, per_row, declared);
    for (int d = 1; d < dimensions; d++)
        in_row *= (size_t)sizes[d];
    if (per_row == 0 || dimensions < 2 || in_row == (size_t)per_row || in_row * (size_t)sizes[0] == (size_t)per_row ||
        sizes[0] == 0)
        return 0;
    PyObject *const shape = shape_tuple(dimensions, sizes);
    if (shape != NULL)
        PyErr_Format(PyExc_ValueError, "%s must have %zd numbers in each row, got the shape %R", what, per_row, shape);
    Py_XDECREF(shape);
    return -1;
}

#endif
