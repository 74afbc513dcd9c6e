/* accumulate(): the gradients of a batch, without a step. */

#ifndef ACCUMULATE_H
#define ACCUMULATE_H

#include "arguments.h"
#include "images.h"
#include "lock.h"
#include "passes.h"
#include "train.h"
#include "update.h"

/* All images are one batch of train(). Adds their losses to *total. */
static int accumulate_images(const struct training_run *run, double *total)
{
    const Py_ssize_t count = run->batch.count;
    for (Py_ssize_t i = 0; i < count;) {
        const Py_ssize_t end = chunk_end(i, count);
        Py_BEGIN_ALLOW_THREADS
        lock_chunk();
        const int pooled = take_pool(run->threads);
        notice_written_weights();
        while (i < end)
            i += run_images(run, i, end, 0, count, total);
        if (is_given(run->progress))
            show_gradients();
        release_pool(pooled);
        unlock();
        Py_END_ALLOW_THREADS
        if (report(run->progress, i, count, 1, *total / (double)i) < 0)
            return -1;
    }
    return 0;
}

static PyObject *api_accumulate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    struct batch_call arguments;
    if (parse_batch_call(module, "accumulate", args, nargs, kwnames, &arguments) < 0)
        return NULL;
    struct training_run run = {
        .batch = arguments.batch,
        .batch_size = arguments.batch.count,
        .threads = arguments.threads,
        .progress = arguments.progress,
        .random = MODEL_RANDOM,
        .keeps_gradients = 1,
    };
    double total = 0.0;
    PyObject *room = PyFloat_FromDouble(0.0); /* a sum that cannot be returned changes nothing */
    struct call *const call = room == NULL ? NULL : begin_call(WRITES);
    int failed = call == NULL;
    if (!failed) {
        failed = accumulate_images(&run, &total) < 0;
        lock_to_read();
        materialize_row_gradients(); /* while the images are still alive */
        unlock();
        end_call(call);
    }
    release_batch(&run.batch);
    Py_XDECREF(room); /* which the interpreter uses again */
    return failed ? NULL : PyFloat_FromDouble(total);
}

#endif
