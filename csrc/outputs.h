/* outputs_batch and probabilities_batch: the outputs of many images, in memory that NumPy reads without a copy. */

#ifndef OUTPUTS_H
#define OUTPUTS_H

#include "arguments.h"
#include "buffers.h"
#include "images.h"
#include "level.h"
#include "model.h"
#include "predictions.h"
#if !FROZEN
#include "passes.h"
#endif

/* Room for one output of all images: memory of its own, or of the caller. */
struct output_room {
    PyObject *result; /* what the call returns */
    Py_buffer view;   /* writable; its buf is NULL if the output is not wanted */
};

static real *room_of(const struct chunk *chunk, int output, int image)
{
    real *const room = chunk->rooms[output].view.buf;
    return room == NULL ? NULL : room + (chunk->first + image) * outputs[output].count;
}

static void outputs_of_images(struct inference *memory, struct workspace *w, const struct chunk *chunk, int at, int count)
{
#if SIDE_BY_SIDE && OUTPUT_COUNT
    if (lie_side_by_side(count)) {
        const struct images *const images = run_side_by_side(memory, w, chunk, count);
        for (int o = 0; o < OUTPUT_COUNT; o++) {
            real *const room = room_of(chunk, o, at);
            if (room != NULL)
                outputs_side_by_side(images, &outputs[o], count, room);
        }
        return;
    }
#endif
    for (int k = 0; k < count; k++) {
        level->compute_outputs(&w[k]);
        for (int o = 0; o < OUTPUT_COUNT; o++) {
            real *const room = room_of(chunk, o, at + k);
            for (int i = 0; room != NULL && i < outputs[o].count; i++)
                room[i] = output_element(&w[k], &outputs[o], i);
        }
    }
    (void)memory;
}

static void release_room(struct output_room *room)
{
    if (room->view.buf != NULL)
        PyBuffer_Release(&room->view);
    Py_CLEAR(room->result);
}

/* New memory, as a memoryview of the shape (images, elements). */
static int make_room(struct output_room *room, const struct output *output, Py_ssize_t images)
{
    if (images > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(real) / output->count) {
        PyErr_NoMemory();
        return -1;
    }
    /* Made empty: without memory for its bytes, CPython would destroy an object that is not yet complete. */
    PyObject *const memory = PyByteArray_FromStringAndSize(NULL, 0);
    PyObject *bytes = NULL;
    if (memory != NULL && PyByteArray_Resize(memory, images * output->count * (Py_ssize_t)sizeof(real)) == 0)
        bytes = PyMemoryView_FromObject(memory);
    Py_XDECREF(memory);
    if (bytes == NULL)
        return -1;
    const char format[] = {real_elements.format, '\0'};
    room->result = PyObject_CallMethod(bytes, "cast", "s(ni)", format, images, output->count);
    Py_DECREF(bytes);
    return room->result == NULL ? -1 : PyObject_GetBuffer(room->result, &room->view, PyBUF_WRITABLE);
}

/* Memory of the caller, of any shape. */
static int take_room(struct output_room *room, const struct output *output, Py_ssize_t images, PyObject *out)
{
    const Py_ssize_t elements = images * output->count;
    Py_buffer *const view = &room->view;
    if (PyObject_GetBuffer(out, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
        if (must_pass_on())
            return -1;
        PyErr_Clear();
        view->buf = NULL;
        PyErr_Format(PyExc_TypeError, "out for '%s' must be a writable C-contiguous buffer of %s, got %R", output->name,
                     real_elements.noun, (PyObject *)Py_TYPE(out));
        return -1;
    }
    if (!has_format(view, &real_elements))
        PyErr_Format(PyExc_TypeError, "out for '%s' must be a buffer of %s (format '%c'), got format '%s'", output->name,
                     real_elements.noun, real_elements.format, format_of(view));
    else if (view->len != elements * real_elements.size)
        PyErr_Format(PyExc_ValueError, "out for '%s' must hold %zd %s, got %zd", output->name, elements,
                     real_elements.noun, view->len / real_elements.size);
    else if ((uintptr_t)view->buf % sizeof(real))
        PyErr_Format(PyExc_ValueError, "out for '%s' must be aligned to %d bytes", output->name, (int)sizeof(real));
    else {
        Py_INCREF(out);
        room->result = out;
        return 0;
    }
    PyBuffer_Release(view);
    view->buf = NULL;
    return -1;
}

static void raise_not_outputs(PyObject *out)
{
    PyObject *const sizes = output_sizes(), *const keys = sizes == NULL ? NULL : PyMapping_Keys(out);
    PyObject *const names = keys == NULL ? NULL : PyMapping_Keys(sizes);
    if (names != NULL)
        PyErr_Format(PyExc_ValueError, "out must name outputs of this model, of %R, got %R", names, keys);
    Py_XDECREF(names);
    Py_XDECREF(keys);
    Py_XDECREF(sizes);
}

/* Room for each output, or for those that are in `out`. */
static int make_rooms(struct output_room *rooms, Py_ssize_t images, PyObject *out)
{
    Py_ssize_t taken = 0;
    for (int o = 0; o < OUTPUT_COUNT; o++) {
        PyObject *const given = out == NULL ? NULL : PyMapping_GetItemString(out, outputs[o].name);
        if (out == NULL) {
            if (make_room(&rooms[o], &outputs[o], images) < 0)
                return -1;
        }
        else if (given != NULL) {
            const int failed = take_room(&rooms[o], &outputs[o], images, given) < 0;
            Py_DECREF(given);
            if (failed)
                return -1;
            taken++;
        }
        else if (PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
        else
            return -1;
    }
    const Py_ssize_t names = out == NULL ? 0 : PyMapping_Size(out);
    if (names >= 0 && names != taken)
        raise_not_outputs(out);
    return names == taken ? 0 : -1;
}

static int overlap(const Py_buffer *a, const Py_buffer *b)
{
    const char *const first = a->buf, *const second = b->buf;
    return a->buf != NULL && b->buf != NULL && first < second + b->len && second < first + a->len;
}

/* Each room must have memory of its own. */
static int check_apart(const struct output_room *rooms, const struct batch_view *b)
{
    for (int o = 0; o < OUTPUT_COUNT; o++) {
        int shared = b->has_images && overlap(&rooms[o].view, &b->images);
        for (int other = 0; other < o; other++)
            shared |= overlap(&rooms[o].view, &rooms[other].view);
        if (shared) {
            PyErr_Format(PyExc_ValueError, "out for '%s' must not overlap the inputs or another output",
                         outputs[o].name);
            return -1;
        }
    }
    return 0;
}

static PyObject *dict_of_rooms(const struct output_room *rooms)
{
    PyObject *dict = PyDict_New();
    for (int o = 0; dict != NULL && o < OUTPUT_COUNT; o++)
        if (rooms[o].result != NULL && PyDict_SetItemString(dict, outputs[o].name, rooms[o].result) < 0)
            Py_CLEAR(dict);
    return dict;
}

enum { ROOMS = OUTPUT_COUNT > 0 ? OUTPUT_COUNT : 1 };

/* `only`: the number of the one output whose room is returned, -1 for a dict of all. */
static PyObject *compute_outputs_batch(const struct signature *signature, int only, PyObject *const *args,
                                       Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *values[4], *result = NULL;
    struct batch_view b;
    if (parse_arguments(signature, args, nargs, kwnames, values) < 0 || check_progress(values[3]) < 0)
        return NULL;
    const int threads = parse_threads(values[2]);
    PyObject *const out = is_given(values[1]) ? values[1] : NULL;
    if (threads < 0)
        return NULL;
    if (only < 0 && out != NULL && !PyDict_Check(out) &&
        !(PyMapping_Check(out) && PyObject_HasAttrString(out, "keys"))) {
        PyErr_Format(PyExc_TypeError, "out must map names of outputs to buffers, not %R", (PyObject *)Py_TYPE(out));
        return NULL;
    }
    if (get_images(values[0], &b) < 0)
        return NULL;
    struct output_room *const rooms = PyMem_Calloc(ROOMS, sizeof(*rooms));
    if (rooms == NULL)
        PyErr_NoMemory();
    else if ((only < 0      ? make_rooms(rooms, b.count, out)
              : out == NULL ? make_room(&rooms[only], &outputs[only], b.count)
                            : take_room(&rooms[only], &outputs[only], b.count, out)) == 0 &&
             check_apart(rooms, &b) == 0) {
        struct chunk chunk = {
            .batch = &b,
            .passes = level->outputs,
            .compute = outputs_of_images,
            .threads = threads,
            .rooms = rooms,
        };
        if (run_chunks(&chunk, values[3]) == 0) {
            result = only < 0 ? dict_of_rooms(rooms) : rooms[only].result;
            if (only >= 0)
                Py_INCREF(result);
        }
    }
    for (int o = 0; rooms != NULL && o < OUTPUT_COUNT; o++)
        release_room(&rooms[o]);
    PyMem_Free(rooms);
    release_batch(&b);
    return result;
}

static PyObject *api_outputs_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {
        "outputs_batch", 1, 1, 4, {INPUTS_ARGUMENT, "out", "threads", "progress"}};
    return expect_usable(module) < 0 ? NULL : compute_outputs_batch(&signature, -1, args, nargs, kwnames);
}

static PyObject *api_probabilities_batch(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {
        "probabilities_batch", 1, 1, 4, {INPUTS_ARGUMENT, "out", "threads", "progress"}};
    const int o = expect_usable(module) < 0 ? -1 : find_probabilities();
    return o < 0 ? NULL : compute_outputs_batch(&signature, o, args, nargs, kwnames);
}

#if !FROZEN
/* metrics(): the means of numbers that may depend on targets, over many images. */

#if METRIC_COUNT
static void metrics_of_images(struct inference *memory, struct workspace *w, const struct chunk *chunk, int at, int count)
{
    for (int k = 0; k < count; k++) {
        level->compute_metrics(&w[k]);
        for (int m = 0; m < METRIC_COUNT; m++)
            chunk->metrics[(at + k) * METRIC_COUNT + m] = w[k].value[metrics[m].place];
    }
    (void)memory;
}

static PyObject *metric_means(const double *totals, Py_ssize_t count)
{
    PyObject *dict = PyDict_New();
    for (int m = 0; dict != NULL && m < METRIC_COUNT; m++)
        dict = with_item(dict, metrics[m].name, PyFloat_FromDouble(totals[m] / (double)count));
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

#endif
