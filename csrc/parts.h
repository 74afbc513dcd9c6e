/*
 * Inputs and targets that a caller passes as a mapping of names to parts, or as tokens. Whatever the parts are, they are
 * converted at the call into one array, which has all inputs of the first example, those of the second one, and so on:
 * bytes times a scale and numbers as they are, classes and tokens as 1 among zeros, or as numbers if they are read by index.
 */

#ifndef PARTS_H
#define PARTS_H

#include "arguments.h"
#include "buffers.h"
#include "model.h"

#include <string.h>

/* All parts of the inputs, or of the targets, and what an example of them takes: `total` numbers, bytes or reals. */
struct parts {
    const char *what, *names;
    const struct argument_part *parts;
    int count, total, as_bytes;
};

/* How many examples there are, 0 if that is not known yet, and what says so. */
struct row_count {
    int is_one; /* an example by itself, of any shape */
    Py_ssize_t rows;
    const char *known_from;
};

static MAYBE_UNUSED struct elements elements_of(const struct argument_part *part)
{
    static const struct elements classes = {"ints", 'i', sizeof(int32_t), FROM_INTEGERS, 0, NULL, {0, {0}}};
    struct elements found = part->kind == PIXEL_PART ? byte_elements : part->kind == REAL_PART ? real_elements : classes;
    found.classes = part->classes;
    found.one = part->one;
    found.shape = part->shape;
    return found;
}

/* Gets the buffer of a part, and finds or checks the number of examples. */
static int get_part(const struct argument_part *part, PyObject *object, struct row_count *count, Py_buffer *view)
{
    const struct elements elements = elements_of(part);
    if (count->is_one)
        return get_buffer(object, part->what, &elements, part->numbers, 0, view);
    if (get_buffer(object, part->what, &elements, ANY_COUNT, part->numbers, view) < 0)
        return -1;
    const Py_ssize_t numbers = view->len / elements.size, rows = numbers / part->numbers;
    if (numbers == 0 || numbers % part->numbers)
        PyErr_Format(PyExc_ValueError, "%s must hold a multiple of %d %s, and at least one row, got %zd", part->what,
                     part->numbers, elements.noun, numbers);
    else if (count->rows == 0) {
        count->rows = rows;
        count->known_from = part->what;
        return 0;
    }
    else if (rows == count->rows)
        return 0;
    else
        PyErr_Format(PyExc_ValueError, "%s must have as many rows as %s, %zd, got %zd of %d", part->what,
                     count->known_from, count->rows, rows, part->numbers);
    PyBuffer_Release(view);
    return -1;
}

static void set_real(char *to, Py_ssize_t i, real x) { memcpy(to + i * (Py_ssize_t)sizeof(x), &x, sizeof(x)); }

/* Puts a part of all examples into their array, which was all 0. */
static int put_part(const struct parts *all, const struct argument_part *part, const char *from, Py_ssize_t rows, char *to)
{
    for (Py_ssize_t row = 0; row < rows; row++)
        for (int i = 0; i < part->numbers; i++) {
            const Py_ssize_t number = row * part->numbers + i, at = row * all->total + part->first;
            real x = 1;
            int32_t class = 0;
            if (part->kind == PIXEL_PART && all->as_bytes)
                to[at + i] = from[number];
            else if (part->kind == PIXEL_PART)
                set_real(to, at + i, (unsigned char)from[number] * part->scale);
            else if (part->kind == REAL_PART) {
                memcpy(&x, from + number * (Py_ssize_t)sizeof(x), sizeof(x));
                set_real(to, at + i, x);
            }
            else {
                memcpy(&class, from + number * (Py_ssize_t)sizeof(class), sizeof(class));
                if (class < 0 || class >= part->classes) {
                    raise_class(part->one, number, part->classes, class);
                    return -1;
                }
                const Py_ssize_t hot = at + (Py_ssize_t)i * part->classes + class;
                if (part->by_index)
                    set_real(to, at + i, (real)class);
                else if (all->as_bytes)
                    to[hot] = 1;
                else
                    set_real(to, hot, x);
            }
        }
    return 0;
}

static int raise_names(const struct parts *all, const char *format, PyObject *name)
{
    PyObject *const got = PyUnicode_FromFormat(format, name);
    if (got != NULL)
        PyErr_Format(PyExc_ValueError, "%s must have the names %s: %U", all->what, all->names, got);
    Py_XDECREF(got);
    return -1;
}

/* Whether a key is the name of a part; -1 with an exception. */
static int is_part_name(const struct parts *all, PyObject *key)
{
    int same = 0;
    for (int p = 0; p < all->count && !same && PyUnicode_Check(key); p++) {
        PyObject *const name = PyUnicode_FromString(all->parts[p].name);
        same = name == NULL ? -1 : PyObject_RichCompareBool(key, name, Py_EQ);
        Py_XDECREF(name);
    }
    return same;
}

/* Fails for what is no mapping, and for names that are none of the parts. */
static int check_part_names(const struct parts *all, PyObject *object)
{
    PyObject *const keys = PyMapping_Keys(object);
    if (keys == NULL) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must be a mapping with the names %s, got %R", all->what, all->names,
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyList_Size(keys) && !failed; k++) {
        PyObject *const key = PyList_GetItem(keys, k);
        const int known = is_part_name(all, key);
        failed = known > 0 ? 0 : known < 0 ? -1 : raise_names(all, "%R is none of them", key);
    }
    Py_DECREF(keys);
    return failed;
}

/* The argument of a part, a new reference. */
static PyObject *part_argument(const struct parts *all, const struct argument_part *part, PyObject *object)
{
    if (part->name == NULL) {
        Py_INCREF(object);
        return object;
    }
    PyObject *const item = PyMapping_GetItemString(object, part->name);
    if (item == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        PyObject *const name = PyUnicode_FromString(part->name);
        if (name != NULL)
            raise_names(all, "%R is missing", name);
        Py_XDECREF(name);
    }
    return item;
}

/* Gets a buffer of all examples, as the model stores them. */
static int get_parts(const struct parts *all, PyObject *object, struct row_count *count, Py_buffer *view)
{
    const Py_ssize_t size = all->as_bytes ? 1 : (Py_ssize_t)sizeof(real);
    Py_buffer *const buffers = PyMem_Malloc((size_t)all->count * sizeof(*buffers));
    if (buffers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *bytes = NULL;
    int held = 0, failed = all->parts[0].name == NULL ? 0 : check_part_names(all, object);
    while (held < all->count && !failed) {
        PyObject *const item = part_argument(all, &all->parts[held], object);
        failed = item == NULL || get_part(&all->parts[held], item, count, &buffers[held]) < 0;
        Py_XDECREF(item);
        held += !failed;
    }
    const Py_ssize_t rows = count->is_one ? 1 : count->rows;
    if (!failed && rows > PY_SSIZE_T_MAX / (all->total * size)) {
        PyErr_NoMemory();
        failed = -1;
    }
    if (!failed)
        bytes = PyBytes_FromStringAndSize(NULL, rows * all->total * size);
    failed = failed || bytes == NULL;
    if (!failed)
        memset(PyBytes_AsString(bytes), 0, (size_t)(rows * all->total * size));
    for (int p = 0; p < all->count && !failed; p++)
        failed = put_part(all, &all->parts[p], buffers[p].buf, rows, PyBytes_AsString(bytes)) < 0;
    for (int p = 0; p < held; p++)
        PyBuffer_Release(&buffers[p]);
    PyMem_Free(buffers);
    failed = failed || PyObject_GetBuffer(bytes, view, PyBUF_SIMPLE) < 0;
    Py_XDECREF(bytes);
    return failed ? -1 : 0;
}

#if INPUT_PARTS
static const struct parts all_inputs = {"inputs", INPUT_NAMES, input_parts, INPUT_PARTS, INPUT_NUMBERS, INPUT_PIXELS};
#endif
#if TARGET_PARTS
static const struct parts all_targets = {"targets", TARGET_NAMES, target_parts, TARGET_PARTS, TARGET_COUNT, 0};
#endif

#endif
