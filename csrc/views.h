/* state_dict, grad_dict, flat_data, flat_grad and load_state_dict: memoryviews that share the model's memory. */

#ifndef VIEWS_H
#define VIEWS_H

#include "arguments.h"
#include "buffers.h"
#include "lock.h"
#include "model.h"
#include "state_dict.h"
#include "update.h"

struct tensor_object {
    PyObject_HEAD
    PyObject *owner; /* the module or Model, which it keeps alive */
    const struct tensor *tensor; /* NULL for the number of steps */
    real *base;                  /* data, grad or the state of rules */
};

struct module_state {
    PyObject *tensor_type, *state_dict_type;
};

/* All of data[] or grad[], padding included. */
static const struct tensor flat = {
    .name = "flat", .dimensions = 1, .shape = {FLAT_COUNT}, .strides = {1}, .size = FLAT_COUNT, .extent = FLAT_COUNT};

static Py_ssize_t flat_byte_strides[] = {sizeof(real)};
static Py_ssize_t tensor_byte_strides[TENSOR_COUNT ? TENSOR_COUNT : 1][MAX_DIMENSIONS];

static void count_view(const struct tensor_object *object, int change)
{
    const struct tensor *const t = object->tensor;
    const int in_rows = (t == &flat ? HAS_ROWS : t != NULL && is_in_rows(t)) ? change : 0;
    if (object->base == grad)
        row_grad_views += in_rows;
    else if (object->base == data) {
        data_views += change;
        row_data_views += in_rows;
    }
}

/* The number of steps, as an int64 that cannot be written: load_optimizer_state() checks it. */
static int steps_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    static char format[] = "q";
    if (PyBuffer_FillInfo(view, self, &steps, sizeof(steps), 1, flags) < 0)
        return -1;
    view->itemsize = sizeof(steps);
    view->ndim = 0;
    view->shape = view->strides = NULL;
    view->format = flags & PyBUF_FORMAT ? format : NULL;
    return 0;
}

static int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct tensor_object *const object = (struct tensor_object *)self;
    const struct tensor *const t = object->tensor;
    if (t == NULL)
        return steps_getbuffer(self, view, flags);
    static char format[] = {FLOAT32 ? 'f' : 'd', '\0'};
    Py_buffer full = {
        .buf = object->base + t->offset,
        .len = t->size * (Py_ssize_t)sizeof(real),
        .itemsize = sizeof(real),
        .readonly = 0,
        .ndim = t->dimensions,
        .format = format,
        .shape = t->dimensions ? (Py_ssize_t *)t->shape : NULL,
        .strides = t == &flat ? flat_byte_strides : t->dimensions ? tensor_byte_strides[t - tensors] : NULL,
    };
    const int is_c = PyBuffer_IsContiguous(&full, 'C'), is_fortran = PyBuffer_IsContiguous(&full, 'F');
    const int wants_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if (((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !is_c) ||
        ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_fortran) ||
        ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !is_c && !is_fortran) ||
        (!wants_strides && !is_c)) {
        PyErr_Format(PyExc_BufferError, "%s is stored with strides and cannot be exported as a contiguous buffer",
                     t->name);
        view->obj = NULL;
        return -1;
    }
    *view = full;
    if (!(flags & PyBUF_FORMAT))
        view->format = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND)
        view->shape = NULL;
    if (!wants_strides)
        view->strides = NULL;
    Py_INCREF(self);
    view->obj = self;
    lock_to_read();
    count_view(object, 1);
    show_gradients();
    unlock();
    return 0;
}

static void tensor_releasebuffer(PyObject *self, Py_buffer *Py_UNUSED(view))
{
    const real *const base = ((struct tensor_object *)self)->base;
    if (base != data && base != grad)
        return;
    lock_to_read();
    notice_written_weights(); /* for the last time */
    notice_written_gradients();
    dense_bound = (double)INFINITY;
    count_view((struct tensor_object *)self, -1);
    unlock();
}

static void tensor_dealloc(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    PyObject *const owner = ((struct tensor_object *)self)->owner;
    PyObject_Free(self);
    Py_DECREF(type);
    Py_DECREF(owner);
}

static PyType_Slot tensor_slots[] = {
    {Py_bf_getbuffer, (void *)tensor_getbuffer},
    {Py_bf_releasebuffer, (void *)tensor_releasebuffer},
    {Py_tp_dealloc, (void *)tensor_dealloc},
    {0, NULL},
};

static PyType_Spec tensor_spec = {
    .name = MODULE_NAME ".Tensor",
    .basicsize = sizeof(struct tensor_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_slots,
};

static int add_view_types(PyObject *module)
{
    struct module_state *const state = PyModule_GetState(module);
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int d = 0; d < tensors[t].dimensions; d++)
            tensor_byte_strides[t][d] = tensors[t].strides[d] * (Py_ssize_t)sizeof(real);
    state->tensor_type = PyType_FromModuleAndSpec(module, &tensor_spec, NULL);
    state->state_dict_type = state->tensor_type == NULL ? NULL : add_state_dict_type(module);
    return state->state_dict_type == NULL ? -1 : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const struct module_state *const state = PyModule_GetState(module);
    if (state != NULL) {
        Py_VISIT(state->tensor_type);
        Py_VISIT(state->state_dict_type);
    }
    return 0;
}

static void clear_view_types(PyObject *module)
{
    struct module_state *const state = PyModule_GetState(module);
    if (state != NULL) {
        Py_CLEAR(state->tensor_type);
        Py_CLEAR(state->state_dict_type);
    }
}

/* An empty dict for views; NULL with an exception set if there is none. */
static PyObject *new_views(PyObject *owner)
{
    if (expect_usable(owner) < 0)
        return NULL;
    const struct module_state *const found = PyModule_GetState(module_of(owner));
    return PyObject_CallObject(found->state_dict_type, NULL);
}

/* A view of a tensor, or of the number of steps. */
static PyObject *new_view(PyObject *owner, const struct tensor *tensor, real *base)
{
    const struct module_state *const found = PyModule_GetState(module_of(owner));
    struct tensor_object *const object = PyObject_New(struct tensor_object, (PyTypeObject *)found->tensor_type);
    if (object == NULL)
        return NULL;
    Py_INCREF(owner);
    object->owner = owner;
    object->tensor = tensor;
    object->base = base;
    PyObject *const view = PyMemoryView_FromObject((PyObject *)object);
    Py_DECREF(object);
    return view;
}

/* Puts it into a dict. */
static int add_view(PyObject *dict, PyObject *owner, const char *name, const struct tensor *tensor, real *base)
{
    PyObject *const view = new_view(owner, tensor, base);
    if (view == NULL)
        return -1;
    const int failed = PyDict_SetItemString(dict, name, view);
    Py_DECREF(view);
    return failed;
}

static PyObject *tensor_views(PyObject *owner, real *base)
{
    PyObject *dict = new_views(owner);
    for (int t = 0; t < TENSOR_COUNT && dict != NULL; t++)
        if (add_view(dict, owner, tensors[t].name, &tensors[t], base) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *api_state_dict(PyObject *module, PyObject *Py_UNUSED(ignored)) { return tensor_views(module, data); }

static PyObject *api_grad_dict(PyObject *module, PyObject *Py_UNUSED(ignored)) { return tensor_views(module, grad); }

static PyObject *api_flat_data(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return expect_usable(module) < 0 ? NULL : new_view(module, &flat, data);
}

static PyObject *api_flat_grad(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return expect_usable(module) < 0 ? NULL : new_view(module, &flat, grad);
}

static void raise_wrong_shape(const struct tensor *t, const Py_buffer *view)
{
    PyObject *const expected = shape_tuple(t->dimensions, t->shape);
    PyObject *const got = expected == NULL ? NULL : shape_tuple(view->ndim, view->shape);
    if (got != NULL)
        PyErr_Format(PyExc_ValueError, "%s must have the shape %R, got %R", t->name, expected, got);
    Py_XDECREF(expected);
    Py_XDECREF(got);
}

/* Checks one tensor and copies it to `to`, in C order. */
static int read_tensor(PyObject *object, const struct tensor *t, real *to)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
            return -1;
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must be a buffer of %s, got %R", t->name, real_elements.noun,
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    int failed = -1;
    if (!has_format(&view, &real_elements)) {
        PyErr_Format(PyExc_TypeError, "%s must be a buffer of %s (format '%c'), got format '%s'", t->name,
                     real_elements.noun, real_elements.format, view.format == NULL ? "B" : view.format);
        goto done;
    }
    int same = view.ndim == t->dimensions;
    for (int d = 0; same && d < t->dimensions; d++)
        same = view.shape[d] == t->shape[d];
    if (!same) {
        raise_wrong_shape(t, &view);
        goto done;
    }
    failed = PyBuffer_ToContiguous(to, &view, view.len, 'C');
done:
    PyBuffer_Release(&view);
    return failed;
}

/* The place in data[] of an element of a tensor; then moves to the next one, in C order. */
static Py_ssize_t next_place(const struct tensor *t, Py_ssize_t *at)
{
    Py_ssize_t place = t->offset;
    for (int d = 0; d < t->dimensions; d++)
        place += at[d] * t->strides[d];
    for (int d = t->dimensions - 1; d >= 0 && ++at[d] == t->shape[d]; d--)
        at[d] = 0;
    return place;
}

/* Copies a tensor in C order to its place in data[], or in the state of rules. */
static void place_tensor(real *to, const struct tensor *t, const real *from)
{
    Py_ssize_t at[MAX_DIMENSIONS] = {0};
    for (Py_ssize_t i = 0; i < t->size; i++)
        to[next_place(t, at)] = from[i];
}

/* What load_state_dict() and load_optimizer_state() take: a name for each i, NULL after the last one. */
struct loading {
    const char *function, *what;
    const char *(*name)(int i);
};

static const char *tensor_name(int i) { return i < TENSOR_COUNT ? tensors[i].name : NULL; }

static void raise_not_a_mapping(const struct loading *loading, PyObject *object)
{
    PyErr_Format(PyExc_TypeError, "%s() takes a mapping of names to buffers, not %R", loading->function,
                 (PyObject *)Py_TYPE(object));
}

/* Whether a key is a name; -1 with an exception set if there is no memory to find out. */
static int is_a_name(const struct loading *loading, PyObject *key)
{
    Py_ssize_t length;
    const char *const name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &length) : NULL;
    if (name == NULL) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError))
            return -1;
        PyErr_Clear(); /* a lone surrogate, so not one of our names */
        return 0;
    }
    for (int i = 0; loading->name(i) != NULL; i++)
        if ((size_t)length == strlen(loading->name(i)) && memcmp(name, loading->name(i), (size_t)length) == 0)
            return 1;
    return 0;
}

/* It must be a mapping, and know all of its names. */
static int check_names(const struct loading *loading, PyObject *mapping)
{
    if (!PyMapping_Check(mapping) || PyUnicode_Check(mapping) || PyList_Check(mapping) || PyTuple_Check(mapping) ||
        PyBytes_Check(mapping)) {
        raise_not_a_mapping(loading, mapping);
        return -1;
    }
    PyObject *const keys = PyMapping_Keys(mapping);
    if (keys == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) { /* a sequence or a buffer */
            PyErr_Clear();
            raise_not_a_mapping(loading, mapping);
        }
        return -1;
    }
    int failed = 0;
    const Py_ssize_t count = PyList_Size(keys);
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *const key = PyList_GetItem(keys, i);
        const int known = is_a_name(loading, key);
        if (known == 0)
            PyErr_Format(PyExc_ValueError, "%R is not %s of this model", key, loading->what);
        failed = known > 0 ? 0 : -1;
    }
    Py_DECREF(keys);
    return failed;
}

/* The item of a name, which must be there. */
static PyObject *named_item(PyObject *mapping, const char *what, const char *name)
{
    PyObject *const item = PyMapping_GetItemString(mapping, name);
    if (item == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s '%s' is missing", what, name);
    }
    return item;
}

static PyObject *api_load_state_dict(PyObject *module, PyObject *mapping)
{
    static const struct loading loading = {"load_state_dict", "a parameter", tensor_name};
    if (expect_usable(module) < 0)
        return NULL;
    real *const copy = PyMem_Malloc(sizeof(real) * DATA_COUNT);
    if (copy == NULL)
        return PyErr_NoMemory();
    if (check_names(&loading, mapping) < 0)
        goto fail;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        PyObject *const item = named_item(mapping, "the parameter", tensors[t].name);
        if (item == NULL)
            goto fail;
        const int failed = read_tensor(item, &tensors[t], copy + tensors[t].offset);
        Py_DECREF(item);
        if (failed < 0)
            goto fail;
    }
    if (lock_to_write() < 0)
        goto fail;
    for (int t = 0; t < TENSOR_COUNT; t++)
        place_tensor(data, &tensors[t], copy + tensors[t].offset);
    find_nonfinite_rows();
    unlock();
    PyMem_Free(copy);
    Py_RETURN_NONE;
fail:
    PyMem_Free(copy);
    return NULL;
}

#endif
