/*
 * state_dict, grad_dict, flat_data, flat_grad and load_state_dict: memoryviews that share the model's memory, in a dict
 * that pickles and deep-copies, which memoryviews themselves do not. The copy has numbers of its own, as
 * {name: (array.array, shape)}, which any Python can read.
 */

#ifndef VIEWS_H
#define VIEWS_H

#include "arguments.h"
#include "buffers.h"
#include "lock.h"
#include "model.h"
#include "update.h"

/* (array.array, shape) of a buffer. */
static PyObject *copied_tensor(PyObject *buffer)
{
    PyObject *const view = PyMemoryView_FromObject(buffer);
    PyObject *const format = view == NULL ? NULL : PyObject_GetAttrString(view, "format");
    PyObject *const shape = format == NULL ? NULL : PyObject_GetAttrString(view, "shape");
    PyObject *const bytes = shape == NULL ? NULL : PyObject_CallMethod(view, "tobytes", NULL);
    PyObject *const module = bytes == NULL ? NULL : PyImport_ImportModule("array");
    PyObject *const array = module == NULL ? NULL : PyObject_CallMethod(module, "array", "OO", format, bytes);
    PyObject *const pair = array == NULL ? NULL : PyTuple_Pack(2, array, shape);
    Py_XDECREF(array);
    Py_XDECREF(module);
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    Py_XDECREF(format);
    Py_XDECREF(view);
    return pair;
}

/* A memoryview of (array.array, shape). */
static PyObject *restored_tensor(PyObject *pair)
{
    PyObject *array, *shape;
    if (!PyArg_ParseTuple(pair, "OO!", &array, &PyTuple_Type, &shape))
        return NULL;
    PyObject *const view = PyMemoryView_FromObject(array);
    PyObject *const format = view == NULL ? NULL : PyObject_GetAttrString(view, "format");
    PyObject *const flat = format == NULL ? NULL : PyObject_CallMethod(view, "cast", "s", "B");
    PyObject *const tensor = flat == NULL ? NULL : PyObject_CallMethod(flat, "cast", "OO", format, shape);
    Py_XDECREF(flat);
    Py_XDECREF(format);
    Py_XDECREF(view);
    return tensor;
}

/* Puts of(value) into `to` for each item of a dict. */
static int convert_items(PyObject *from, PyObject *to, PyObject *(*of)(PyObject *))
{
    PyObject *const items = PyDict_Items(from); /* `of` may run other code, so the dict may change */
    int failed = items == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(items); i++) {
        PyObject *const item = PyList_GetItem(items, i);
        PyObject *const value = of(PyTuple_GetItem(item, 1));
        failed = value == NULL || PyDict_SetItem(to, PyTuple_GetItem(item, 0), value) < 0;
        Py_XDECREF(value);
    }
    Py_XDECREF(items);
    return failed ? -1 : 0;
}

static PyObject *state_dict_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
#if INSTANCES /* the module is a private copy, which no other process can import */
    PyObject *const type = PyImport_ImportModule("codegen.models");
    PyObject *const restore = type == NULL ? NULL : PyObject_GetAttrString(type, "restore_state");
    Py_XDECREF(type);
#else
    PyObject *const restore = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "_restore");
#endif
    PyObject *const copies = restore == NULL ? NULL : PyDict_New();
    PyObject *result = NULL;
    if (copies != NULL && convert_items(self, copies, copied_tensor) == 0)
        result = Py_BuildValue("O(O)", restore, copies);
    Py_XDECREF(copies);
    Py_XDECREF(restore);
    return result;
}

static PyObject *state_dict_restore(PyObject *type, PyObject *copies)
{
    if (!PyDict_Check(copies))
        return PyErr_Format(PyExc_TypeError, "expected a dict, not %R", (PyObject *)Py_TYPE(copies));
    PyObject *result = PyObject_CallObject(type, NULL);
    if (result != NULL && convert_items(copies, result, restored_tensor) < 0)
        Py_CLEAR(result);
    return result;
}

static PyMethodDef state_dict_methods[] = {
    {"__reduce__", state_dict_reduce, METH_NOARGS, NULL},
    {"_restore", state_dict_restore, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot state_dict_slots[] = {
    {Py_tp_methods, state_dict_methods},
    {0, NULL},
};

static PyType_Spec state_dict_spec = {
    .name = MODULE_NAME "._StateDict",
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = state_dict_slots,
};

/* A pickle finds the type by its name in the module. */
static PyObject *add_state_dict_type(PyObject *module)
{
    PyObject *const type = PyType_FromModuleAndSpec(module, &state_dict_spec, (PyObject *)&PyDict_Type);
    if (type == NULL)
        return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, "_StateDict", type) == 0)
        return type;
    Py_DECREF(type);
    Py_DECREF(type);
    return NULL;
}

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

static PyObject *tensor_views(PyObject *owner, real *base)
{
    PyObject *dict = new_views(owner);
    for (int t = 0; t < TENSOR_COUNT && dict != NULL; t++)
        dict = with_item(dict, tensors[t].name, new_view(owner, &tensors[t], base));
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

/* Fails where a buffer, or nested sequences, have another shape than a tensor. */
static int check_tensor_shape(PyObject *object, const struct tensor *t)
{
    struct shape shape = {0};
    Py_buffer view;
    if (PyObject_CheckBuffer(object) && PyObject_GetBuffer(object, &view, PyBUF_STRIDED_RO) == 0) {
        shape.dimensions = at_most(view.ndim, MAX_BUFFER_DIMENSIONS); /* arrays of ctypes may have more */
        for (int d = 0; d < shape.dimensions; d++)
            shape.sizes[d] = view.shape[d];
        PyBuffer_Release(&view);
    }
    else if (PyErr_Occurred() || find_shape(object, &shape) < 0)
        return -1;
    PyObject *const expected = shape_tuple(t->dimensions, t->shape);
    PyObject *const got = expected == NULL ? NULL : shape_tuple(shape.dimensions, shape.sizes);
    const int same = got == NULL ? -1 : PyObject_RichCompareBool(expected, got, Py_EQ);
    if (same == 0)
        PyErr_Format(PyExc_ValueError, "%s must have the shape %R, got %R", t->name, expected, got);
    Py_XDECREF(expected);
    Py_XDECREF(got);
    return same > 0 ? 0 : -1;
}

/* Checks one tensor and copies it to `to`, in C order. Other real numbers are converted. */
static int read_tensor(PyObject *object, const struct tensor *t, real *to)
{
    Py_buffer view;
    PyObject *const lent = PyObject_CheckBuffer(object) ? NULL : lent_array(object);
    PyObject *const source = lent == NULL ? object : lent;
    const Py_ssize_t wanted = PyObject_CheckBuffer(source) ? ANY_COUNT : t->size; /* else its shape says more */
    int failed = PyErr_Occurred() ? -1 : get_buffer(source, t->name, &real_elements, wanted, 0, &view);
    if (failed == 0) {
        failed = check_tensor_shape(source, t);
        if (failed == 0 && view.len != t->size * real_elements.size)
            failed = raise_count(t->name, &real_elements, t->size, view.len / real_elements.size);
        if (failed == 0)
            memcpy(to, view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    Py_XDECREF(lent);
    return failed;
}

/* What load_state_dict() and load_optimizer_state() take: a name for each i, NULL after the last one. */
struct loading {
    const char *function, *what;
    const char *(*name)(int i);
};

static const char *tensor_name(int i) { return i >= 0 && i < TENSOR_COUNT ? tensors[i].name : NULL; }

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
