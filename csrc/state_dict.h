/*
 * What state_dict() and grad_dict() return: a dict of memoryviews that pickles and deep-copies, which memoryviews
 * themselves do not. The copy has numbers of its own, as {name: (array.array, shape)}, which any Python can read.
 */

#ifndef STATE_DICT_H
#define STATE_DICT_H

#include "model.h"

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

#endif
