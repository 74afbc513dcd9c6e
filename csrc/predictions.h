/* predict, outputs and probabilities: one image per call. */

#ifndef PREDICTIONS_H
#define PREDICTIONS_H

#include "arguments.h"
#include "buffers.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#if !FROZEN
#include "update.h"
#endif

#if FROZEN
static void expect_any_weight(void) {} /* its weights are constants */
#endif

static int check_prediction(void)
{
    if (HAS_PREDICTION)
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "this model declares no prediction, as it has no classes: outputs() has its outputs");
    return -1;
}

/* The most likely class of one image. */
static int classify(struct workspace *w, const input_type *inputs)
{
    level->set_inputs(w, inputs);
    level->compute_prediction(w);
    return argmax(w, &outputs[PREDICTION]);
}

/* The inputs of one image. The fast path is for bytes, which need no buffer request. */
static const input_type *one_image(PyObject *object, Py_buffer *view, int *held)
{
    *held = 0;
#if INPUT_PIXELS
    if (PyBytes_CheckExact(object) && PyBytes_Size(object) == INPUT_COUNT)
        return (const input_type *)PyBytes_AsString(object);
#endif
    if (get_buffer_of(object, INPUT_PIXELS ? "pixels" : "inputs", &INPUT_ELEMENTS, INPUT_COUNT, 0, view) < 0)
        return NULL;
    *held = 1;
    return view->buf;
}

static PyObject *api_predict(PyObject *module, PyObject *object)
{
    Py_buffer view;
    int held;
    if (expect_usable(module) < 0 || check_prediction() < 0)
        return NULL;
    const input_type *const image = one_image(object, &view, &held);
    if (image == NULL)
        return NULL;
    lock_to_read();
    expect_any_weight();
    const int best = classify(inference_of(0), image);
    unlock();
    if (held)
        PyBuffer_Release(&view);
    return PyLong_FromLong(best);
}

/* The elements of all outputs for one image, in memory that the caller frees. */
static double *all_outputs(PyObject *object)
{
    Py_buffer view;
    int held, count = 0;
    const input_type *const image = one_image(object, &view, &held);
    if (image == NULL)
        return NULL;
    for (int o = 0; o < OUTPUT_COUNT; o++)
        count += outputs[o].count;
    double *const copy = PyMem_Malloc(sizeof(double) * (size_t)(count + 1));
    if (copy == NULL)
        PyErr_NoMemory();
    else {
        lock_to_read();
        expect_any_weight();
        level->set_inputs(inference_of(0), image);
        level->compute_outputs(inference[0]);
        double *to = copy;
        for (int o = 0; o < OUTPUT_COUNT; o++)
            for (int i = 0; i < outputs[o].count; i++)
                *to++ = output_element(inference[0], &outputs[o], i);
        unlock();
    }
    if (held)
        PyBuffer_Release(&view);
    return copy;
}

static PyObject *float_tuple(const double *from, int count)
{
    PyObject *const tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *const item = PyFloat_FromDouble(from[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static PyObject *api_outputs(PyObject *module, PyObject *object)
{
    double *const elements = expect_usable(module) < 0 ? NULL : all_outputs(object);
    if (elements == NULL)
        return NULL;
    PyObject *dict = PyDict_New();
    const double *from = elements;
    for (int o = 0; dict != NULL && o < OUTPUT_COUNT; o++) {
        PyObject *const tuple = float_tuple(from, outputs[o].count);
        if (tuple == NULL || PyDict_SetItemString(dict, outputs[o].name, tuple) < 0) {
            Py_DECREF(dict);
            dict = NULL;
        }
        Py_XDECREF(tuple);
        from += outputs[o].count;
    }
    PyMem_Free(elements);
    return dict;
}

static PyObject *api_probabilities(PyObject *module, PyObject *object)
{
    if (expect_usable(module) < 0)
        return NULL;
    int o = 0, start = 0;
    while (o < OUTPUT_COUNT && strcmp(outputs[o].name, "probabilities") != 0)
        start += outputs[o++].count;
    if (o == OUTPUT_COUNT) {
        PyErr_SetString(PyExc_RuntimeError, "this model declares no output named 'probabilities'");
        return NULL;
    }
    double *const elements = all_outputs(object);
    if (elements == NULL)
        return NULL;
    PyObject *const tuple = float_tuple(elements + start, outputs[o].count);
    PyMem_Free(elements);
    return tuple;
}

/* {name of an output: its number of elements} */
static PyObject *output_sizes(void)
{
    PyObject *const sizes = PyDict_New();
    if (sizes == NULL)
        return NULL;
    for (int o = 0; o < OUTPUT_COUNT; o++) {
        PyObject *const size = PyLong_FromLong(outputs[o].count);
        if (size == NULL || PyDict_SetItemString(sizes, outputs[o].name, size) < 0) {
            Py_XDECREF(size);
            Py_DECREF(sizes);
            return NULL;
        }
        Py_DECREF(size);
    }
    return sizes;
}

#endif
