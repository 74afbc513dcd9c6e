/*
 * train() of several processes, the ranks of micrograd/mpi.py. All have all parameters and all examples, and take every
 * step; they share the work on its batch, and end up with its whole gradient in grad[]. There are three ways:
 *
 *     FAST     Each rank adds up the gradients of a part of the images, and all gradients are added in whatever order.
 *     EXACT    A block of images is divided for values and adjoints, as among threads. The ranks send one another the
 *              values that gradients of parameters read, `sent`, which codegen/schedule/copies.py finds. Then each adds the
 *              gradients of all images in order, of its share of the parameters, or, in a small batch, of all of them.
 *     TREE     The batch is cut into leaves of LEAF_IMAGES images. The gradients of each are added up in order, those of
 *              leaves along a fixed tree: that of n leaves is the sum of those of the first n / 2 and of the others. A
 *              rank has neighbouring leaves and adds up whole subtrees; then each rank adds those of all ranks for its
 *              slice of grad[]. A batch that is one leaf is shared as EXACT.
 *
 * So no bit depends on the number of ranks in EXACT and TREE, and EXACT has those of train().
 *
 * `exchange` is a Python object. Its methods are called without model_lock and take buffers of bytes, and tuples of the
 * number of bytes for each rank:
 *
 *     stop                                                           whether this rank is to stop
 *     sum(buffer)                                                    adds the reals of all ranks
 *     gather(buffer, counts)                                         each rank has its part; then each has all
 *     trade(sent, received, sent_counts, received_counts)            a part of `sent` to each rank, and one from each
 *     stopped(steps)                                                 raises, on all ranks after the same step
 */

#ifndef SHARES_H
#define SHARES_H

#include "arguments.h"
#include "images.h"
#include "lock.h"
#include "passes.h"
#include "train.h"
#include "update.h"

enum {
    MAX_RANKS = 4096,
    LEAF_IMAGES = 256,
    IMAGE_BYTES = sizeof(double) + (SENT_VALUES * sizeof(real) + 7) / 8 * 8, /* its loss, and its values in `sent` */
    FLAG_BYTES = sizeof(double), /* before the images of a rank: whether it is to stop */
    READS_IMAGES = READS_INPUTS || TOKEN_COUNT > 0 || !INPUT_PIXELS, /* so the inputs of all images have to be set */
};

struct share {
    PyObject *exchange;
    enum { TREE, EXACT, FAST, MODES } mode;
    int rank, ranks, stop;
    PyObject *memory; /* a bytearray: what is sent and received */
    char *bytes;
    Py_ssize_t size;
};

/* Memory for an exchange, as large as needed. What it held is lost. */
static int take_memory(struct share *share, Py_ssize_t size)
{
    if (size <= share->size)
        return 0;
    Py_CLEAR(share->memory);
    share->size = 0;
    share->memory = PyByteArray_FromStringAndSize(NULL, size);
    if (share->memory == NULL)
        return -1;
    share->bytes = PyByteArray_AsString(share->memory);
    share->size = size;
    return 0;
}

/* The first of `count` items of a rank, and their bytes as a tuple with an entry for each rank. */
static Py_ssize_t rank_start(Py_ssize_t count, int rank, int ranks)
{
    return (Py_ssize_t)((int64_t)count * rank / ranks);
}

typedef Py_ssize_t bytes_of_rank(int rank, const void *what);

static PyObject *tuple_of_bytes(const struct share *share, bytes_of_rank *bytes, const void *what)
{
    PyObject *const counts = PyTuple_New(share->ranks);
    for (int rank = 0; counts != NULL && rank < share->ranks; rank++) {
        PyObject *const count = PyLong_FromSsize_t(bytes(rank, what));
        if (count == NULL || PyTuple_SetItem(counts, rank, count) < 0) {
            Py_DECREF(counts);
            return NULL;
        }
    }
    return counts;
}

static PyObject *view_of(void *bytes, Py_ssize_t size) { return PyMemoryView_FromMemory(bytes, size, PyBUF_WRITE); }

/* The memory of share->memory lives as long as the call, and grad[] as long as the process. */
static int call_gather(const struct share *share, void *bytes, Py_ssize_t size, bytes_of_rank *of_rank, const void *what)
{
    PyObject *const view = view_of(bytes, size), *const counts = tuple_of_bytes(share, of_rank, what);
    PyObject *const result =
        view == NULL || counts == NULL ? NULL : PyObject_CallMethod(share->exchange, "gather", "OO", view, counts);
    Py_XDECREF(view);
    Py_XDECREF(counts);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int call_sum(const struct share *share, real *numbers, Py_ssize_t count)
{
    PyObject *const view = view_of(numbers, count * (Py_ssize_t)sizeof(real));
    PyObject *const result = view == NULL ? NULL : PyObject_CallMethod(share->exchange, "sum", "O", view);
    Py_XDECREF(view);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Whether this rank is to stop; -1 with an exception set if that cannot be found out. */
static int is_to_stop(const struct share *share)
{
    PyObject *const stop = PyObject_GetAttrString(share->exchange, "stop");
    const int is_true = stop == NULL ? -1 : PyObject_IsTrue(stop);
    Py_XDECREF(stop);
    return is_true;
}

/* Sections with model_lock, and perhaps with the pool, that compute without the GIL. */

static int lock_section(const struct training_run *run)
{
    lock_chunk();
    return take_pool(run->threads);
}

static void unlock_section(int pooled)
{
    release_pool(pooled);
    unlock();
}

/* After grad[] has come from outside. */
static void end_exchange(void)
{
    lock_to_read();
    find_dirty_rows();
    unlock();
}

/* The random numbers of images that other ranks compute. */
static void skip_images(const struct training_run *run, Py_ssize_t first, Py_ssize_t end)
{
#if NOISE_COUNT || SHIFT
    lock_to_read();
    for (Py_ssize_t i = first; i < end; i++) {
        (void)move_image(0, image_at(&run->batch, image_number(run, i)), run->random);
        draw_noise(block, run->random);
    }
    unlock();
#else
    (void)run;
    (void)first;
    (void)end;
#endif
}

/* zero_grad for the batch that begins with image `first`; those before `own` are for other ranks. */
static void begin_step(const struct training_run *run, Py_ssize_t first, Py_ssize_t own)
{
    lock_to_read();
    version++;
    notice_writes(run, first);
    run_zero_grad();
    unlock();
    skip_images(run, first, own);
}

/* The gradients of images first .. end - 1, added to grad[]. */
static int add_range(const struct training_run *run, Py_ssize_t first, Py_ssize_t end, double *loss)
{
    for (Py_ssize_t i = first; i < end;) {
        const Py_ssize_t pause = i + chunk_end(0, end - i);
        Py_BEGIN_ALLOW_THREADS
        const int pooled = lock_section(run);
        while (i < pause)
            i += run_images(run, i, pause, first, end - first, loss);
        materialize_row_gradients();
        unlock_section(pooled);
        Py_END_ALLOW_THREADS
        if (i < end && PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

/* FAST */

static int add_fast(const struct training_run *run, Py_ssize_t first, Py_ssize_t size, double *total)
{
    struct share *const share = run->share;
    const Py_ssize_t own = first + rank_start(size, share->rank, share->ranks);
    const Py_ssize_t end = first + rank_start(size, share->rank + 1, share->ranks);
    const int stop = is_to_stop(share);
    double loss = 0.0;
    begin_step(run, first, own);
    if (stop < 0 || add_range(run, own, end, &loss) < 0)
        return -1;
    skip_images(run, end, first + size);
    grad[DATA_COUNT] = (real)loss;
    grad[DATA_COUNT + 1] = (real)stop;
    if (call_sum(share, grad, DATA_COUNT + 2) < 0)
        return -1;
    *total += (double)grad[DATA_COUNT];
    share->stop = grad[DATA_COUNT + 1] != 0;
    end_exchange();
    return 0;
}

#endif
