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
    int has_images, has_labels;
    Py_ssize_t count;
};

static void release_batch(struct batch_view *b)
{
    if (b->has_images)
        PyBuffer_Release(&b->images);
    if (b->has_labels)
        PyBuffer_Release(&b->labels);
}

static const input_type *image_at(const struct batch_view *b, Py_ssize_t i)
{
    return b->has_images ? (const input_type *)b->images.buf + i * INPUT_NUMBERS : no_inputs;
}

/* Without inputs there is one image, or as many as there are targets. */
static int get_images(PyObject *images, struct batch_view *b)
{
    b->has_images = INPUT_NUMBERS > 0;
    b->has_labels = 0;
#if INPUT_LEAVES == 0
    b->count = 1;
    if (images == Py_None)
        return 0;
    PyErr_SetString(PyExc_TypeError, INPUT_NOUN "s must be None: this model has no inputs");
    return -1;
#elif INPUT_PARTS
    struct row_count count = {0};
    const int failed = get_parts(&all_inputs, images, &count, &b->images);
    b->count = count.rows;
    return failed;
#else
    if (get_buffer(images, INPUT_NOUN "s", &input_elements, ANY_COUNT, INPUT_COUNT, &b->images) < 0)
        return -1;
    const Py_ssize_t elements = b->images.len / input_elements.size;
    b->count = elements / INPUT_SPACE;
    if (elements == 0 || elements % INPUT_SPACE) {
        PyErr_Format(PyExc_ValueError, INPUT_NOUN "s must hold a multiple of %d %s, and at least one " INPUT_NOUN ", got %zd",
                     INPUT_COUNT, input_elements.noun, elements);
        PyBuffer_Release(&b->images);
        return -1;
    }
    return 0;
#endif
}

/* Runs between two chunks of a long call: handles signals, then calls progress(done, total, loss). */
static int report(PyObject *progress, Py_ssize_t done, Py_ssize_t total, int has_loss, double loss)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (!is_given(progress))
        return 0;
    PyObject *const result = has_loss ? PyObject_CallFunction(progress, "nnd", done, total, loss)
                                      : PyObject_CallFunction(progress, "nnO", done, total, Py_None);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int check_progress(PyObject *progress)
{
    if (!is_given(progress) || PyCallable_Check(progress))
        return 0;
    raise_type("progress", "callable", progress);
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

struct output_room; /* see outputs.h */

/* Some images of a batch, and room for their results. The call owns all of it: other calls run meanwhile. */
struct chunk {
    const struct batch_view *batch;
    const struct batch_passes *passes; /* NULL if there are no images side by side */
    /* The results of `count` images, at most IMAGES_AT_ONCE, from `at` on, whose workspaces have their inputs. */
    void (*compute)(struct inference *, struct workspace *, const struct chunk *, int at, int count);
    int threads;
    Py_ssize_t first;
    int count;
    unsigned char *all_classes; /* of all images */
    unsigned char *classes;     /* of the chunk, one byte each, so only the first 256 classes fit */
    double *losses;             /* of the chunk, for evaluate() */
    const struct output_room *rooms; /* for each output of the model, for outputs_batch() */
    double *metrics, *totals;   /* of the images of the chunk, and the sums so far, for metrics() */
    double total, mean;         /* of the losses so far */
    int classifies;             /* whether evaluate() has an accuracy: */
    Py_ssize_t right;
    double accuracy;
    struct workspace *once;     /* what depends on parameters alone, if anything does */
    void *memory;               /* of `once` */
};

enum { IMAGES_PER_PIECE = IMAGES_TOGETHER > 16 ? IMAGES_TOGETHER : 16 };

static int begin_chunks(struct chunk *chunk)
{
    if (chunk->passes == NULL || chunk->passes->once == NULL)
        return 0;
    chunk->memory = PyMem_Malloc(sizeof(struct workspace) + 64);
    if (chunk->memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    chunk->once = (struct workspace *)(((uintptr_t)chunk->memory + 63) / 64 * 64);
    return 0;
}

#if SIDE_BY_SIDE
static const struct images *run_side_by_side(struct inference *memory, struct workspace *w, const struct chunk *chunk,
                                             int count)
{
    compute_side_by_side(&memory->side_by_side, chunk->passes, w, count, chunk->once);
    return &memory->side_by_side;
}
#endif

static void predict_images(struct inference *memory, struct workspace *w, const struct chunk *chunk, int at, int count)
{
#if SIDE_BY_SIDE && HAS_PREDICTION
    if (lie_side_by_side(count)) {
        unsigned char classes[SIDE_BY_SIDE];
        classes_side_by_side(run_side_by_side(memory, w, chunk, count), &outputs[PREDICTION], classes);
        memcpy(chunk->classes + at, classes, (size_t)count);
        return;
    }
#endif
    for (int k = 0; k < count; k++) {
        level->compute_prediction(&w[k]);
        chunk->classes[at + k] = (unsigned char)class_of(&w[k], &outputs[PREDICTION]);
    }
    (void)memory;
}

#if !FROZEN
static const target_type *target_at(const struct batch_view *b, Py_ssize_t i)
{
    return b->has_labels ? (const target_type *)b->labels.buf + i * TARGETS_PER_IMAGE : NULL;
}
#endif

/* Sets the inputs of some images, their targets if they have any, and the sums of those that will be side by side. */
static void begin_images(struct workspace *w, const struct chunk *chunk, int at, int count)
{
    for (int k = 0; k < count; k++) {
        level->set_inputs(&w[k], image_at(chunk->batch, chunk->first + at + k));
#if !FROZEN
        if (chunk->batch->has_labels)
            set_targets(&w[k], target_at(chunk->batch, chunk->first + at + k));
#endif
    }
#if FEW_IMAGES && SIDE_BY_SIDE
    const int rest = count % IMAGES_AT_ONCE;
    if (chunk->metrics == NULL) /* which are computed one by one */
        sum_rows(w, -1, !lie_side_by_side(rest) ? count - rest : count);
#endif
}

static void compute_piece(int worker, int piece, void *argument)
{
    const struct chunk *const chunk = argument;
    const int first = piece * IMAGES_PER_PIECE, end = at_most(chunk->count, first + IMAGES_PER_PIECE);
    const int place = take_inference(worker);
    struct inference *const memory = &inference[place];
    for (int at = first; at < end; at += IMAGES_TOGETHER) {
        const int count = at_most(end - at, IMAGES_TOGETHER);
        struct workspace *const w = workspaces_of(memory, count);
        begin_images(w, chunk, at, count);
        for (int k = 0; k < count; k += IMAGES_AT_ONCE)
            chunk->compute(memory, &w[k], chunk, at + k, at_most(count - k, IMAGES_AT_ONCE));
    }
    release_inference(place);
}

#if !FROZEN
/* The class that is right: a label, or whether a float is above the threshold; -1 if it is none. */
static int target_class(const target_type *targets)
{
#if TARGET_LABEL
    return *targets;
#elif LABEL_COUNT
    int class = 0;
    while (class < LABEL_COUNT && targets[LABEL_FIRST + class] == 0)
        class++;
    return class < LABEL_COUNT ? class : -1;
#elif HAS_THRESHOLD
    real x;
    memcpy(&x, targets, sizeof(x));
    return x > (real)THRESHOLD;
#else
    (void)targets;
    return -1;
#endif
}

/* The mean loss so far and the accuracy, for evaluate(). The losses are added in order. */
static void add_results(struct chunk *chunk)
{
    const Py_ssize_t done = chunk->first + chunk->count;
    for (int at = 0; at < chunk->count; at++)
        chunk->total += chunk->losses[at];
    for (int at = 0; at < chunk->count && chunk->classifies; at++)
        chunk->right += chunk->classes[at] == target_class(target_at(chunk->batch, chunk->first + at));
    chunk->mean = chunk->total / (double)done;
    chunk->accuracy = (double)chunk->right / (double)done;
}
#endif

/* Computes the chunk from `first` on. Needs no GIL; returns -1 if the model is not the one that the call began with. */
static int run_chunk(const struct call *call, struct chunk *chunk, Py_ssize_t first)
{
#if FROZEN
    (void)call;
#else
    lock_chunk();
    const int changed = call->version != version;
    notice_written_weights();
    unlock();
    if (changed)
        return -1;
#endif
    const float_state floats = use_default_floats();
    chunk->first = first;
    chunk->count = (int)(chunk_end(first, chunk->batch->count) - first);
    chunk->classes = chunk->all_classes == NULL ? NULL : chunk->all_classes + first;
#if SIDE_BY_SIDE
    compute_once(chunk->passes, chunk->once);
#endif
    const int pieces = (chunk->count + IMAGES_PER_PIECE - 1) / IMAGES_PER_PIECE, pooled = take_pool(chunk->threads);
    (pooled ? pool_run : run_alone)(compute_piece, pieces, chunk);
    release_pool(pooled);
#if !FROZEN
    if (chunk->losses != NULL)
        add_results(chunk);
#if METRIC_COUNT
    for (int i = 0; chunk->metrics != NULL && i < chunk->count * METRIC_COUNT; i++)
        chunk->totals[i % METRIC_COUNT] += chunk->metrics[i];
#endif
#endif
    restore_floats(floats);
    return 0;
}

/* All images of a batch. */
static int run_chunks(struct chunk *chunk, PyObject *progress)
{
    struct call *const call = begin_chunks(chunk) < 0 ? NULL : begin_call(READS);
    const Py_ssize_t total = chunk->batch->count;
    const int has_loss = chunk->losses != NULL;
    int failed = call == NULL;
    for (Py_ssize_t done = 0; done < total && !failed; done += chunk->count) {
        int changed;
        Py_BEGIN_ALLOW_THREADS
        changed = run_chunk(call, chunk, done);
        Py_END_ALLOW_THREADS
        if (changed) {
            PyErr_SetString(PyExc_RuntimeError, "the model has changed since this call began: the train() whose progress "
                                                "callback made it went on before it was done");
            failed = -1;
        }
        else
            failed = report(progress, done + chunk->count, total, has_loss, chunk->mean);
    }
    end_call(call);
    PyMem_Free(chunk->memory);
    return failed ? -1 : 0;
}

static PyObject *api_predict_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static const struct signature signature = {"predict_batch", 1, 1, 3, {INPUTS_ARGUMENT, "threads", "progress"}};
    PyObject *values[3];
    struct batch_view b;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0 ||
        check_progress(values[2]) < 0 || check_prediction() < 0)
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
    PyObject *result = PyBytes_FromStringAndSize(NULL, b.count);
    if (result != NULL) {
        struct chunk chunk = {.batch = &b, .passes = level->prediction, .compute = predict_images, .threads = threads};
        chunk.all_classes = (unsigned char *)PyBytes_AsString(result);
        if (run_chunks(&chunk, values[2]) < 0)
            Py_CLEAR(result);
    }
    release_batch(&b);
    return result;
}

#if !FROZEN

/* With labels */

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

static int get_targets(PyObject *labels, struct batch_view *b)
{
#if TARGET_PARTS
    struct row_count count = {.rows = b->has_images ? b->count : 0, .known_from = "the inputs"};
    const int failed = get_parts(&all_targets, labels, &count, &b->labels);
    b->count = count.rows;
    return failed;
#else
    enum { PER_IMAGE = TARGETS_PER_IMAGE > 0 ? TARGETS_PER_IMAGE : 1 };
    if (b->has_images)
        return get_buffer(labels, TARGETS_NOUN, &target_elements, b->count * PER_IMAGE, PER_IMAGE, &b->labels);
    if (get_buffer(labels, TARGETS_NOUN, &target_elements, ANY_COUNT, PER_IMAGE, &b->labels) < 0)
        return -1;
    const Py_ssize_t elements = b->labels.len / target_elements.size;
    b->count = elements / PER_IMAGE;
    if (elements && elements % PER_IMAGE == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, TARGETS_NOUN " must hold a multiple of %d %s, and at least one, got %zd", PER_IMAGE,
                 target_elements.noun, elements);
    PyBuffer_Release(&b->labels);
    return -1;
#endif
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
    else if (get_targets(labels, b) == 0) {
        b->has_labels = 1;
        if (check_labels(b) == 0)
            return 0;
    }
    release_batch(b);
    return -1;
}

/* The arguments of a call that reads all images with their labels: release_batch() when it is done. */
struct batch_call {
    struct batch_view batch;
    PyObject *progress;
    int threads;
};

static int parse_batch_call(PyObject *module, const char *function, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames, struct batch_call *call)
{
    const struct signature signature = {function, 2, 2, 4, {INPUTS_ARGUMENT, TARGETS_ARGUMENT, "threads", "progress"}};
    PyObject *values[4];
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0 ||
        check_progress(values[3]) < 0)
        return -1;
    call->threads = parse_threads(values[2]);
    call->progress = values[3];
    return call->threads < 0 ? -1 : get_batch(values[0], values[1], &call->batch);
}

static void evaluate_images(struct inference *memory, struct workspace *w, const struct chunk *chunk, int at, int count)
{
#if SIDE_BY_SIDE
    if (lie_side_by_side(count)) {
        unsigned char classes[SIDE_BY_SIDE] = {0};
        const struct images *const images = run_side_by_side(memory, w, chunk, count);
        if (HAS_PREDICTION)
            classes_side_by_side(images, &outputs[PREDICTION], classes);
        memcpy(chunk->classes + at, classes, (size_t)count);
        for (int k = 0; k < count; k++)
            chunk->losses[at + k] = images->value[LOSS][k];
        return;
    }
#endif
    for (int k = 0; k < count; k++) {
        level->compute_evaluation(&w[k]);
        chunk->losses[at + k] = w[k].value[LOSS];
        chunk->classes[at + k] = HAS_PREDICTION ? (unsigned char)class_of(&w[k], &outputs[PREDICTION]) : 0;
    }
    (void)memory;
}

static PyObject *api_evaluate(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    struct batch_call call;
    if (parse_batch_call(module, "evaluate", args, nargs, kwnames, &call) < 0)
        return NULL;
    PyObject *result = NULL;
    double *const losses = PyMem_Malloc(CHUNK_IMAGES * sizeof(*losses));
    unsigned char *const classes = PyMem_Malloc((size_t)call.batch.count);
    struct chunk chunk = {
        .batch = &call.batch,
        .passes = level->evaluation,
        .compute = evaluate_images,
        .threads = call.threads,
        .all_classes = classes,
        .losses = losses,
        .classifies = HAS_CLASSES,
    };
    if (losses == NULL || classes == NULL)
        PyErr_NoMemory();
    else if (run_chunks(&chunk, call.progress) == 0)
        result = chunk.classifies ? Py_BuildValue("dd", chunk.mean, chunk.accuracy)
                                  : Py_BuildValue("dO", chunk.mean, Py_None);
    PyMem_Free(classes);
    PyMem_Free(losses);
    release_batch(&call.batch);
    return result;
}

#endif

#endif
