/*
 * train() with shares.h.
 */

#ifndef TRAIN_SHARED_H
#define TRAIN_SHARED_H

#include "arguments.h"
#include "lock.h"
#include "share_blocks.h"
#include "share_trees.h"
#include "shares.h"
#include "train.h"

static int train_shared_epoch(struct training_run *run, Py_ssize_t epoch)
{
    struct share *const share = run->share;
    const Py_ssize_t count = run->batch.count;
    Py_ssize_t reported = 0;
    double total = 0.0;
    for (Py_ssize_t i = 0; i < count;) {
        const Py_ssize_t first = i, size = batch_size_at(run, first);
        const int is_leaf = size <= LEAF_IMAGES;
        int refused;
        share->stop = 0;
        if ((share->mode == FAST                        ? add_fast
             : share->mode == EXACT || is_leaf ? add_exact
                                               : add_tree)(run, first, size, &total) < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        const int pooled = lock_section(run);
        refused = take_step(run, epoch, first, size);
        forward_done = 0;
        if (is_given(run->progress))
            show_gradients();
        unlock_section(pooled);
        Py_END_ALLOW_THREADS
        if (refused < 0) {
            raise_not_finite(run, epoch, first);
            return -1;
        }
        i += size;
        run->mean = total / (double)i;
        if (i - reported < CHUNK_IMAGES && i < count && !share->stop)
            continue;
        reported = i;
        if (report(run->progress, epoch * count + i, run->epochs * count, 1, run->mean) < 0)
            return -1;
        if (share->stop) {
            PyObject *const result = PyObject_CallMethod(share->exchange, "stopped", "n", step_number(run, epoch, first) + 1);
            Py_XDECREF(result);
            return -1;
        }
    }
    return 0;
}

/* _train_shared(exchange, mode, rank, ranks, images, labels, ...): the rest as train() has it. */
static PyObject *api_train_shared(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 4) {
        PyErr_Format(PyExc_TypeError, "_train_shared() takes at least 4 positional arguments, got %zd", nargs);
        return NULL;
    }
    const Py_ssize_t mode = parse_int(args[1], "mode", 0, MODES - 1), ranks = parse_int(args[3], "ranks", 1, MAX_RANKS);
    const Py_ssize_t rank = mode < 0 || ranks < 0 ? -1 : parse_int(args[2], "rank", 0, ranks - 1);
    if (rank < 0)
        return NULL;
    struct share share = {.exchange = args[0], .mode = (int)mode, .rank = (int)rank, .ranks = (int)ranks};
    PyObject *const losses = train_model(module, args + 4, nargs - 4, kwnames, train_shared_epoch, &share);
    Py_XDECREF(share.memory);
    return losses;
}

#endif
