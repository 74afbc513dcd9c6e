/* predict, outputs and probabilities: one image per call. */

#ifndef PREDICTIONS_H
#define PREDICTIONS_H

#include "arguments.h"
#include "buffers.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#if INPUT_PARTS || TARGET_PARTS
#include "parts.h"
#endif
#if !FROZEN
#include "update.h"
#endif

static int check_prediction(void)
{
    if (HAS_PREDICTION)
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "this model declares no prediction, as it has no classes: outputs() has its outputs");
    return -1;
}

/* The class of one image. */
static int classify(struct workspace *w, const input_type *inputs)
{
    level->set_inputs(w, inputs);
    level->compute_prediction(w);
    return class_of(w, &outputs[PREDICTION]);
}

/* Memory to compute one image in, and what has to be undone afterwards. */
struct reading {
    struct inference *memory;
    int place;             /* of it; -1 if this thread has model_lock instead */
    PyThreadState *thread; /* NULL if it keeps the GIL */
    float_state floats;
};

#if !FROZEN
static struct inference at_model_lock; /* belongs to it */
#endif

/* Needs the GIL, and perhaps releases it. */
static struct reading begin_reading(void)
{
    struct reading reading = {.place = -1};
#if !FROZEN
    lock_to_read();
    notice_written_weights();
    if (!READS_IN_PARALLEL || writing || writers_waiting) {
        reading.memory = &at_model_lock;
        return reading;
    }
    begin_unfinished();
    unlock();
#endif
    if (READS_IN_PARALLEL)
        reading.thread = PyEval_SaveThread();
    reading.place = take_inference(0);
    reading.memory = &inference[reading.place];
    reading.floats = use_default_floats();
    return reading;
}

static void end_reading(const struct reading *reading)
{
    if (reading->place >= 0) {
        restore_floats(reading->floats);
        release_inference(reading->place);
        if (reading->thread != NULL)
            PyEval_RestoreThread(reading->thread);
    }
#if !FROZEN
    if (reading->place >= 0) {
        lock_to_read();
        end_unfinished();
    }
    unlock();
#endif
}

static const input_type no_inputs[1]; /* an address */

/* The inputs of one image. The fast paths are for bytes, which need no buffer request, and for a model without inputs. */
static const input_type *one_image(PyObject *object, Py_buffer *view, int *held)
{
    *held = 0;
#if INPUT_PARTS
    struct row_count one = {.is_one = 1};
    if (get_parts(&all_inputs, object, &one, view) < 0)
        return NULL;
    *held = 1;
    return view->buf;
#else
    if (!INPUT_COUNT && object == Py_None)
        return no_inputs;
#if INPUT_PIXELS
    if (PyBytes_CheckExact(object) && PyBytes_Size(object) == INPUT_COUNT)
        return (const input_type *)PyBytes_AsString(object);
#endif
    if (get_buffer(object, INPUT_PIXELS ? "pixels" : "inputs", &input_elements, INPUT_COUNT, 0, view) < 0)
        return NULL;
    *held = 1;
    return view->buf;
#endif
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
    const struct reading reading = begin_reading();
    const int best = classify(workspaces_of(reading.memory, 1), image);
    end_reading(&reading);
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
        const struct reading reading = begin_reading();
        struct workspace *const w = workspaces_of(reading.memory, 1);
        level->set_inputs(w, image);
        level->compute_outputs(w);
        double *to = copy;
        for (int o = 0; o < OUTPUT_COUNT; o++)
            for (int i = 0; i < outputs[o].count; i++)
                *to++ = output_element(w, &outputs[o], i);
        end_reading(&reading);
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
        dict = with_item(dict, outputs[o].name, float_tuple(from, outputs[o].count));
        from += outputs[o].count;
    }
    PyMem_Free(elements);
    return dict;
}

/* The number of the output that has this name; -1 with an exception set if there is none. */
static int find_probabilities(void)
{
    for (int o = 0; o < OUTPUT_COUNT; o++)
        if (strcmp(outputs[o].name, "probabilities") == 0)
            return o;
    PyErr_SetString(PyExc_RuntimeError, "this model declares no output named 'probabilities'");
    return -1;
}

static PyObject *api_probabilities(PyObject *module, PyObject *object)
{
    const int o = expect_usable(module) < 0 ? -1 : find_probabilities();
    double *const elements = o < 0 ? NULL : all_outputs(object);
    if (elements == NULL)
        return NULL;
    int start = 0;
    for (int before = 0; before < o; before++)
        start += outputs[before].count;
    PyObject *const tuple = float_tuple(elements + start, outputs[o].count);
    PyMem_Free(elements);
    return tuple;
}

/* {name of an output: its number of elements} */
static PyObject *output_sizes(void)
{
    PyObject *sizes = PyDict_New();
    for (int o = 0; sizes != NULL && o < OUTPUT_COUNT; o++)
        sizes = with_item(sizes, outputs[o].name, PyLong_FromLong(outputs[o].count));
    return sizes;
}

#endif
