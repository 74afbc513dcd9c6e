/* Many images a call, as predict_batch: the GIL is released, and taken again every few milliseconds. */

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
    if (get_buffer(images, "images", &INPUT_ELEMENTS, &b->images) < 0)
        return -1;
    const Py_ssize_t elements = b->images.len / INPUT_ELEMENTS.size;
    b->count = elements / INPUT_SPACE;
    if (elements == 0 || elements % INPUT_SPACE) {
        PyErr_Format(PyExc_ValueError, "images must hold a multiple of %d %s, and at least one image, got %zd",
                     INPUT_COUNT, INPUT_ELEMENTS.noun, elements);
        PyBuffer_Release(&b->images);
        return -1;
    }
    return 0;
}

/* Between two chunks of a long call: signals, then progress(done, total, loss). */
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

/* None, or a number of threads; a large model runs on fewer. -1 with an exception set otherwise. */
static int parse_threads(PyObject *object)
{
    return is_given(object) ? (int)parse_int(object, "threads", 1, MAX_THREADS) : 1;
}

/* What a member of the team does to image `at` of a chunk, with a workspace of its own. */
static struct {
    const struct batch_view *batch;
    Py_ssize_t first;
    int count;
    double loss[CHUNK_IMAGES];
    int class[CHUNK_IMAGES];
} chunk;

enum { IMAGES_A_PIECE = 16 };

static void predict_chunk(int member)
{
    for (int first; (first = take_piece(IMAGES_A_PIECE)) < chunk.count;)
        for (int at = first; at < first + IMAGES_A_PIECE && at < chunk.count; at++)
            chunk.class[at] = classify(&inference[member], image_at(chunk.batch, chunk.first + at));
}

/* The next images of a batch. Without the GIL. */
static void run_chunk(team_job job, const struct batch_view *b, Py_ssize_t done)
{
    lock_chunk();
    chunk.batch = b;
    chunk.first = done;
    chunk.count = (int)(chunk_end(done, b->count) - done);
    expect_any_weight();
    team_run(job);
    PyThread_release_lock(model_lock);
}

static PyObject *api_predict_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static const struct signature signature = {"predict_batch", 1, 1, 3, {"images", "threads", "progress"}};
    PyObject *values[3];
    struct batch_view b;
    if (parse_arguments(&signature, args, nargs, kwnames, values) < 0 || check_progress(values[2]) < 0 ||
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
    unsigned char *const classes = (unsigned char *)PyBytes_AsString(result);
    const int held = begin_long_call(threads);
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        Py_BEGIN_ALLOW_THREADS
        run_chunk(predict_chunk, &b, done);
        Py_END_ALLOW_THREADS
        for (int at = 0; at < chunk.count; at++)
            classes[done++] = (unsigned char)chunk.class[at];
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

/* The functions that every module has. */
#define PREDICTION_METHODS \
    {"predict", api_predict, METH_O, DOC_PREDICT}, {"probabilities", api_probabilities, METH_O, DOC_PROBABILITIES}, \
    {"outputs", api_outputs, METH_O, DOC_OUTPUTS}, \
    {"predict_batch", FAST(api_predict_batch), METH_FASTCALL | METH_KEYWORDS, DOC_PREDICT_BATCH}
