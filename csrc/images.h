/* predict_batch and evaluate: many images per call. They release the GIL and reacquire it every few milliseconds. */

#ifndef IMAGES_H
#define IMAGES_H

#include "arguments.h"
#include "buffers.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#include "pool.h"
#include "predictions.h"
#if !FROZEN
#include "passes.h"
#endif

struct batch_view {
    Py_buffer images, labels;
    int has_labels;
    Py_ssize_t count;
};

static void release_batch(struct batch_view *b)
{
    PyBuffer_Release(&b->images);
    if (b->has_labels)
        PyBuffer_Release(&b->labels);
}

static const input_type *image_at(const struct batch_view *b, Py_ssize_t i)
{
    return (const input_type *)b->images.buf + i * INPUT_COUNT;
}

static int get_images(PyObject *images, struct batch_view *b)
{
    b->has_labels = 0;
    if (INPUT_COUNT == 0) {
        PyErr_SetString(PyExc_RuntimeError, "this model has no inputs, so there is nothing to loop over");
        return -1;
    }
    if (get_buffer(images, INPUT_NOUN "s", &INPUT_ELEMENTS, INPUT_COUNT, &b->images) < 0)
        return -1;
    const Py_ssize_t elements = b->images.len / INPUT_ELEMENTS.size;
    b->count = elements / INPUT_SPACE;
    if (elements == 0 || elements % INPUT_SPACE) {
        PyErr_Format(PyExc_ValueError, INPUT_NOUN "s must hold a multiple of %d %s, and at least one " INPUT_NOUN ", got %zd",
                     INPUT_COUNT, INPUT_ELEMENTS.noun, elements);
        PyBuffer_Release(&b->images);
        return -1;
    }
    return 0;
}

/* Runs between two chunks of a long call: handles signals, then calls progress(done, total, loss). */
static int report(PyObject *progress, Py_ssize_t done, Py_ssize_t total, int has_loss, double loss)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (progress == NULL || progress == Py_None)
        return 0;
    PyObject *const result = has_loss ? PyObject_CallFunction(progress, "nnd", done, total, loss)
                                      : PyObject_CallFunction(progress, "nnO", done, total, Py_None);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int check_progress(PyObject *progress)
{
    if (progress == NULL || progress == Py_None || PyCallable_Check(progress))
        return 0;
    PyErr_Format(PyExc_TypeError, "progress must be callable, not %R", (PyObject *)Py_TYPE(progress));
    return -1;
}

static Py_ssize_t chunk_end(Py_ssize_t done, Py_ssize_t total)
{
    return total - done < CHUNK_IMAGES ? total : done + CHUNK_IMAGES;
}

/* The number of threads, 1 by default; a large model runs on fewer. Returns -1 with an exception set on failure. */
static int parse_threads(PyObject *object)
{
    return is_given(object) ? (int)parse_int(object, "threads", 1, MAX_THREADS) : 1;
}

/* Some images of a batch, and room for their results. The call owns all of it: another call may run meanwhile. */
struct chunk {
    const struct batch_view *batch;
    const struct batch_passes *passes; /* NULL if there are no images side by side */
    Py_ssize_t first;
    int count;
    unsigned char *classes; /* one byte each, so only the first 256 classes fit */
    double *losses;         /* for evaluate() */
};

enum { IMAGES_PER_PIECE = 16 };

static int images_at_once(int rest) { return rest < IMAGES_AT_ONCE ? rest : IMAGES_AT_ONCE; }

#if SIDE_BY_SIDE
/* Some images, whose inputs and targets have been set in the workspaces of a worker. */
static const struct images *run_side_by_side(int worker, const struct chunk *chunk, int count)
{
    compute_side_by_side(&side_by_side[worker], chunk->passes, inference[worker], count);
    return &side_by_side[worker];
}
#endif

/* The classes of at most IMAGES_AT_ONCE images from `at` on. */
static void predict_images(int worker, const struct chunk *chunk, int at, int count)
{
    struct workspace *const w = inference_of(worker);
#if SIDE_BY_SIDE && HAS_PREDICTION
    if (count >= FEWEST_SIDE_BY_SIDE) {
        unsigned char classes[SIDE_BY_SIDE];
        for (int k = 0; k < count; k++)
            level->set_inputs(&w[k], image_at(chunk->batch, chunk->first + at + k));
        argmax_side_by_side(run_side_by_side(worker, chunk, count), &outputs[PREDICTION], classes);
        memcpy(chunk->classes + at, classes, (size_t)count);
        return;
    }
#endif
    for (int k = 0; k < count; k++)
        chunk->classes[at + k] = (unsigned char)classify(w, image_at(chunk->batch, chunk->first + at + k));
}

static void predict_piece(int worker, int piece, void *argument)
{
    const struct chunk *const chunk = argument;
    const int first = piece * IMAGES_PER_PIECE;
    for (int at = first; at < first + IMAGES_PER_PIECE && at < chunk->count; at += IMAGES_AT_ONCE)
        predict_images(worker, chunk, at, images_at_once(chunk->count - at));
}

/* Runs a job on the next images of a batch. Does not need the GIL. */
static void run_chunk(pool_job job, struct chunk *chunk, Py_ssize_t first)
{
    lock_chunk();
    chunk->first = first;
    chunk->count = (int)(chunk_end(first, chunk->batch->count) - first);
    expect_any_weight();
#if SIDE_BY_SIDE
    compute_once(chunk->passes);
#endif
    pool_run(job, (chunk->count + IMAGES_PER_PIECE - 1) / IMAGES_PER_PIECE, chunk);
    unlock();
}

static PyObject *api_predict_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static const struct signature signature = {"predict_batch", 1, 1, 3, {"images", "threads", "progress"}};
    PyObject *values[3];
    struct batch_view b;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0 ||
        check_progress(values[2]) < 0 ||
        check_prediction() < 0)
        return NULL;
    const int threads = parse_threads(values[1]);
    if (threads < 0)
        return NULL;
    if (outputs[PREDICTION].count > 256) {
        PyErr_Format(PyExc_RuntimeError, "predict_batch() returns bytes, but this model has %d classes",
                     outputs[PREDICTION].count);
        return NULL;
    }
    if (get_images(values[0], &b) < 0)
        return NULL;
    PyObject *const result = PyBytes_FromStringAndSize(NULL, b.count);
    if (result == NULL) {
        release_batch(&b);
        return NULL;
    }
    struct chunk chunk = {.batch = &b, .passes = level->prediction};
    const int held = begin_long_call(threads);
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        chunk.classes = (unsigned char *)PyBytes_AsString(result) + done;
        Py_BEGIN_ALLOW_THREADS
        run_chunk(predict_piece, &chunk, done);
        Py_END_ALLOW_THREADS
        done += chunk.count;
        failed = report(values[2], done, b.count, 0, 0.0);
    }
    end_long_call(held);
    release_batch(&b);
    if (failed) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

#if !FROZEN

/* With labels */

static const target_type *target_at(const struct batch_view *b, Py_ssize_t i)
{
    return b->has_labels ? (const target_type *)b->labels.buf + i * TARGETS_PER_IMAGE : NULL;
}

/* Checks that every label is a class, before anything is computed. */
static int check_labels(const struct batch_view *b)
{
#if TARGET_LABEL
    const unsigned char *const label = b->labels.buf;
    for (Py_ssize_t i = 0; i < b->count; i++) {
        const int class = label[i]; /* an int: with 256 classes, compilers would warn that a byte is always below */
        if (class >= TARGET_COUNT) {
            PyErr_Format(PyExc_ValueError, "label %zd must be 0..%d, got %d", i, TARGET_COUNT - 1, class);
            return -1;
        }
    }
#else
    (void)b;
#endif
    return 0;
}

static int get_batch(PyObject *images, PyObject *labels, struct batch_view *b)
{
    if (get_images(images, b) < 0)
        return -1;
    if (TARGET_COUNT == 0) {
        if (labels == Py_None)
            return 0;
        PyErr_SetString(PyExc_TypeError, TARGETS_NOUN " must be None: this model has no targets");
    }
    else if (get_buffer_of(labels, TARGETS_NOUN, &TARGET_ELEMENTS, b->count * TARGETS_PER_IMAGE, TARGETS_PER_IMAGE,
                           &b->labels) == 0) {
        b->has_labels = 1;
        if (check_labels(b) == 0)
            return 0;
    }
    release_batch(b);
    return -1;
}

/* Losses and classes of at most IMAGES_AT_ONCE images from `at` on. */
static void evaluate_images(int worker, const struct chunk *chunk, int at, int count)
{
    struct workspace *const w = inference_of(worker);
    for (int k = 0; k < count; k++) {
        level->set_inputs(&w[k], image_at(chunk->batch, chunk->first + at + k));
        set_targets(&w[k], target_at(chunk->batch, chunk->first + at + k));
    }
#if SIDE_BY_SIDE
    if (count >= FEWEST_SIDE_BY_SIDE) {
        unsigned char classes[SIDE_BY_SIDE] = {0};
        const struct images *const images = run_side_by_side(worker, chunk, count);
        if (HAS_PREDICTION)
            argmax_side_by_side(images, &outputs[PREDICTION], classes);
        memcpy(chunk->classes + at, classes, (size_t)count);
        for (int k = 0; k < count; k++)
            chunk->losses[at + k] = images->value[LOSS][k];
        return;
    }
#endif
    for (int k = 0; k < count; k++) {
        level->compute_evaluation(&w[k]);
        chunk->losses[at + k] = w[k].value[LOSS];
        chunk->classes[at + k] = HAS_PREDICTION ? (unsigned char)argmax(&w[k], &outputs[PREDICTION]) : 0;
    }
}

static void evaluate_piece(int worker, int piece, void *argument)
{
    const struct chunk *const chunk = argument;
    const int first = piece * IMAGES_PER_PIECE;
    for (int at = first; at < first + IMAGES_PER_PIECE && at < chunk->count; at += IMAGES_AT_ONCE)
        evaluate_images(worker, chunk, at, images_at_once(chunk->count - at));
}

static PyObject *api_evaluate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {"evaluate", 2, 2, 4, {"images", "labels", "threads", "progress"}};
    PyObject *values[4];
    struct batch_view b;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0 ||
        check_progress(values[3]) < 0)
        return NULL;
    const int threads = parse_threads(values[2]);
    if (threads < 0 || get_batch(values[0], values[1], &b) < 0)
        return NULL;
    const int classifies = TARGET_LABEL && HAS_PREDICTION && outputs[PREDICTION].count == TARGET_COUNT;
    struct {
        double losses[CHUNK_IMAGES];
        unsigned char classes[CHUNK_IMAGES];
    } *const results = PyMem_Malloc(sizeof(*results));
    if (results == NULL) {
        release_batch(&b);
        return PyErr_NoMemory();
    }
    struct chunk chunk = {.batch = &b, .passes = level->evaluation, .classes = results->classes, .losses = results->losses};
    const int held = begin_long_call(threads);
    double total = 0.0;
    Py_ssize_t right = 0;
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        Py_BEGIN_ALLOW_THREADS
        run_chunk(evaluate_piece, &chunk, done);
        Py_END_ALLOW_THREADS
        for (int at = 0; at < chunk.count; at++, done++) {
            total += results->losses[at];
            if (classifies)
                right += results->classes[at] == *target_at(&b, done);
        }
        failed = report(values[3], done, b.count, 1, total / (double)done);
    }
    end_long_call(held);
    PyMem_Free(results);
    release_batch(&b);
    if (failed)
        return NULL;
    const double loss = total / (double)b.count;
    return classifies ? Py_BuildValue("dd", loss, (double)right / (double)b.count) : Py_BuildValue("dO", loss, Py_None);
}

#endif

#endif
