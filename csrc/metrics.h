/* metrics(): the means of numbers that may depend on targets, over many images. */

#ifndef METRICS_H
#define METRICS_H

#include "arguments.h"
#include "images.h"
#include "level.h"
#include "model.h"
#include "passes.h"

#if METRIC_COUNT
static void metrics_of_images(struct inference *memory, const struct chunk *chunk, int at, int count)
{
    struct workspace *const w = workspaces_of(memory);
    for (int k = 0; k < count; k++) {
        level->set_inputs(&w[k], image_at(chunk->batch, chunk->first + at + k));
        set_targets(&w[k], target_at(chunk->batch, chunk->first + at + k));
        level->compute_metrics(&w[k]);
        for (int m = 0; m < METRIC_COUNT; m++)
            chunk->metrics[(at + k) * METRIC_COUNT + m] = w[k].value[metrics[m].place];
    }
}

static PyObject *metric_means(const double *totals, Py_ssize_t count)
{
    PyObject *const dict = PyDict_New();
    for (int m = 0; dict != NULL && m < METRIC_COUNT; m++) {
        PyObject *const mean = PyFloat_FromDouble(totals[m] / (double)count);
        const int failed = mean == NULL || PyDict_SetItemString(dict, metrics[m].name, mean) < 0;
        Py_XDECREF(mean);
        if (failed) {
            Py_DECREF(dict);
            return NULL;
        }
    }
    return dict;
}
#endif

static PyObject *api_metrics(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    struct batch_call call;
    if (parse_batch_call(module, "metrics", args, nargs, kwnames, &call) < 0)
        return NULL;
    PyObject *result = NULL;
#if METRIC_COUNT
    double *const found = PyMem_Calloc((CHUNK_IMAGES + 1) * METRIC_COUNT, sizeof(*found)); /* of a chunk, and the totals */
    struct chunk chunk = {
        .batch = &call.batch,
        .passes = level->evaluation,
        .compute = metrics_of_images,
        .threads = call.threads,
        .metrics = found,
        .totals = found == NULL ? NULL : found + CHUNK_IMAGES * METRIC_COUNT,
    };
    if (found == NULL)
        PyErr_NoMemory();
    else if (run_chunks(&chunk, call.progress) == 0)
        result = metric_means(chunk.totals, call.batch.count);
    PyMem_Free(found);
#else
    PyErr_SetString(PyExc_RuntimeError, "this model declares no metrics");
#endif
    release_batch(&call.batch);
    return result;
}

#endif
