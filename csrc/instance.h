/*
 * INSTANCES: codegen.compile() loads private copies of a module, each with memory of its own. A copy has one Model at a
 * time, an object with the module's functions as methods. Bound methods and views of tensors keep it alive, and when
 * nothing refers to it any more, claim() makes another Model of the same memory, as new.
 */

#ifndef INSTANCE_H
#define INSTANCE_H

#if INSTANCES

#include "arguments.h"
#include "buffers.h"
#include "docs.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#include "pool.h"

#include <structmember.h>

static PyObject *model_type;
static shared_int model_alive;

static void model_dealloc(PyObject *self)
{
    struct model_object *const model = (struct model_object *)self;
    PyTypeObject *const type = Py_TYPE(self);
    if (model->weak_references != NULL)
        PyObject_ClearWeakRefs(self);
    Py_DECREF(model->module);
    PyObject_Free(self);
    Py_DECREF(type);
    shared_store(&model_alive, 0);
}

static PyObject *model_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromFormat("<codegen.Model%s%s: %zd parameters, %d inputs, %s %s, %s>",
                                sizeof(DESCRIPTION) > 1 ? " " : "", DESCRIPTION, (Py_ssize_t)PARAMETER_COUNT, INPUT_LEAVES,
                                FLOAT32 || FMA || REORDER ? "fast" : "strict", real_elements.noun, level->name);
}

/* The parameters and gradients of a new model: nothing of what the last one did is left. */
static int start_model(const double *initial)
{
    (void)initial;
#if !FROZEN
    if (lock_to_write() < 0)
        return -1;
    memset(data, 0, sizeof(data));
#if !HAS_DISTRIBUTIONS
    for (Py_ssize_t i = 0; i < PARAMETER_COUNT; i++)
        initial_data[parameter_place(i, NULL)] = (real)initial[i];
#endif
    draw_weights(SEED);
    clear_optimizer_state();
    mark_all_dirty();
    mark_all_words_dirty();
    run_zero_grad();
    forward_done = backward_done = 0;
    unlock();
#endif
    return 0;
}

static int initial_weights(PyObject *object, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return -1;
#if FROZEN || HAS_DISTRIBUTIONS
    const Py_ssize_t expected = 0;
#else
    const Py_ssize_t expected = PARAMETER_COUNT;
#endif
    if (view->len == expected * (Py_ssize_t)sizeof(double))
        return 0;
    PyErr_Format(PyExc_ValueError, "expected %zd float64, got %zd bytes", expected, view->len);
    PyBuffer_Release(view);
    return -1;
}

/* claim(initial, seed, learning_rate): a new Model; None while there is one. codegen/models.py has a lock. */
static PyObject *api_claim(PyObject *module, PyObject *args)
{
    PyObject *weights;
    unsigned long long seed;
    double rate;
    Py_buffer initial;
    if (!PyArg_ParseTuple(args, "OKd", &weights, &seed, &rate))
        return NULL;
    if (shared_load(&model_alive))
        Py_RETURN_NONE;
    if (choose_level() < 0 || initial_weights(weights, &initial) < 0)
        return NULL;
#if !FROZEN
    model_seed = seed;
    model_rate = rate;
#endif
    const int failed = start_model(initial.buf);
    PyBuffer_Release(&initial);
    if (failed < 0)
        return NULL;
    struct model_object *const model = PyObject_New(struct model_object, (PyTypeObject *)model_type);
    if (model == NULL)
        return NULL;
    Py_INCREF(module);
    model->module = module;
    model->weak_references = NULL;
    shared_store(&model_alive, 1);
    return (PyObject *)model;
}

static PyMethodDef claim_method[] = {
    {"claim", api_claim, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef model_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct model_object, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static int add_model_type(PyObject *module, PyMethodDef *methods, const char *doc)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, (void *)doc},
        {Py_tp_methods, methods},
        {Py_tp_members, model_members},
        {Py_tp_repr, (void *)model_repr},
        {Py_tp_dealloc, (void *)model_dealloc},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = "codegen.Model",
        .basicsize = sizeof(struct model_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    model_type = PyType_FromSpec(&spec);
    if (model_type == NULL || PyModule_AddFunctions(module, claim_method) < 0)
        return -1;
    Py_INCREF(model_type);
    if (PyModule_AddObject(module, "Model", model_type) == 0)
        return 0;
    Py_DECREF(model_type);
    return -1;
}

#endif

#endif
