/* Many images a call: evaluate, predict_batch, train. The GIL is released, and taken again every few milliseconds. */

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

static const target_type *target_at(const struct batch_view *b, Py_ssize_t i)
{
    return b->has_labels ? (const target_type *)b->labels.buf + i * TARGETS_PER_IMAGE : NULL;
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

/* Labels must be classes: found out before anything is computed. */
static int check_labels(const struct batch_view *b)
{
#if TARGET_LABEL
    const unsigned char *const label = b->labels.buf;
    for (Py_ssize_t i = 0; i < b->count; i++) {
        const int class = label[i]; /* with 256 classes every byte is one, and a compiler would warn */
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
        PyErr_SetString(PyExc_TypeError, "labels must be None: this model has no targets");
    }
    else if (get_buffer_of(labels, "labels", &TARGET_ELEMENTS, b->count * TARGETS_PER_IMAGE, &b->labels) == 0) {
        b->has_labels = 1;
        if (check_labels(b) == 0)
            return 0;
    }
    release_batch(b);
    return -1;
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

static PyObject *api_predict_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames)
{
    static const struct signature signature = {"predict_batch", 1, 1, 2, {"images", "progress"}};
    PyObject *values[2];
    struct batch_view b;
    if (parse_arguments(&signature, args, nargs, kwnames, values) < 0 || check_progress(values[1]) < 0 ||
        check_prediction() < 0)
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
    const int held = begin_long_call();
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        const Py_ssize_t end = chunk_end(done, b.count);
        Py_BEGIN_ALLOW_THREADS
        lock_chunk();
        for (; done < end; done++) {
            set_inputs(&inference, image_at(&b, done));
            level->compute_prediction(&inference);
            classes[done] = (unsigned char)argmax(&inference, &outputs[PREDICTION]);
        }
        PyThread_release_lock(model_lock);
        Py_END_ALLOW_THREADS
        failed = report(values[1], done, b.count, 0, 0.0);
    }
    end_long_call(held);
    release_batch(&b);
    if (failed) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static PyObject *api_evaluate(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {"evaluate", 2, 2, 3, {"images", "labels", "progress"}};
    PyObject *values[3];
    struct batch_view b;
    if (parse_arguments(&signature, args, nargs, kwnames, values) < 0 || check_progress(values[2]) < 0 ||
        get_batch(values[0], values[1], &b) < 0)
        return NULL;
    const int classifies = TARGET_LABEL && HAS_PREDICTION && outputs[PREDICTION].count == TARGET_COUNT;
    const int held = begin_long_call();
    double total = 0.0;
    Py_ssize_t right = 0;
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        const Py_ssize_t end = chunk_end(done, b.count);
        Py_BEGIN_ALLOW_THREADS
        lock_chunk();
        for (; done < end; done++) {
            const target_type *const target = target_at(&b, done);
            set_inputs(&inference, image_at(&b, done));
            set_targets(&inference, target);
            level->compute_evaluation(&inference);
            total += inference.value[LOSS];
            if (classifies)
                right += argmax(&inference, &outputs[PREDICTION]) == *target;
        }
        PyThread_release_lock(model_lock);
        Py_END_ALLOW_THREADS
        failed = report(values[2], done, b.count, 1, total / (double)done);
    }
    end_long_call(held);
    release_batch(&b);
    if (failed)
        return NULL;
    const double loss = total / (double)b.count;
    return classifies ? Py_BuildValue("dd", loss, (double)right / (double)b.count) : Py_BuildValue("dO", loss, Py_None);
}

struct training_run {
    struct batch_view batch;
    Py_ssize_t batch_size, epochs;
    double rate;
    uint32_t *order; /* NULL: as the images stand */
    PyObject *progress;
};

/* One epoch. `done` images of all epochs are behind; returns the mean loss through `loss`. */
static int train_epoch(struct training_run *run, Py_ssize_t done, double *loss)
{
    const Py_ssize_t count = run->batch.count;
    double total = 0.0;
    for (Py_ssize_t i = 0; i < count;) {
        const Py_ssize_t end = chunk_end(i, count);
        Py_BEGIN_ALLOW_THREADS
        lock_chunk();
        for (; i < end; i++) {
            const Py_ssize_t image = run->order == NULL ? i : (Py_ssize_t)run->order[i];
            const Py_ssize_t first = i - i % run->batch_size;
            if (i == first)
                run_zero_grad();
            total += run_forward(&training, target_at(&run->batch, image), image_at(&run->batch, image));
            forward_done = 1;
            run_backward(&training);
            const Py_ssize_t size = count - first < run->batch_size ? count - first : run->batch_size;
            if (i == first + size - 1)
                run_update(run->rate, (double)size);
        }
        PyThread_release_lock(model_lock);
        Py_END_ALLOW_THREADS
        if (report(run->progress, done + i, run->epochs * count, 1, total / (double)i) < 0)
            return -1;
    }
    *loss = total / (double)count;
    return 0;
}

static PyObject *api_train(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {
        "train",
        2,
        2,
        8,
        {"images", "labels", "batch_size", "learning_rate", "epochs", "seed", "threads", "progress"},
    };
    PyObject *values[8];
    struct training_run run = {.batch_size = 1, .epochs = 1, .rate = LEARNING_RATE};
    struct random_state random = {.position = 0};
    uint64_t seed = 0;
    if (parse_arguments(&signature, args, nargs, kwnames, values) < 0 || check_progress(values[7]) < 0)
        return NULL;
    if (values[2] != NULL && (run.batch_size = parse_int(values[2], "batch_size", 1, PY_SSIZE_T_MAX)) < 0)
        return NULL;
    if (is_given(values[3]) && parse_float(values[3], "learning_rate", &run.rate) < 0)
        return NULL;
    if (values[4] != NULL && (run.epochs = parse_int(values[4], "epochs", 0, 1000000000)) < 0)
        return NULL;
    const int shuffled = parse_seed(values[5], &seed);
    if (shuffled < 0 || (values[6] != NULL && parse_int(values[6], "threads (only one so far)", 1, 1) < 0))
        return NULL;
    run.progress = values[7];
    if (get_batch(values[0], values[1], &run.batch) < 0)
        return NULL;

    PyObject *losses = PyList_New(0);
    if (losses == NULL)
        goto fail;
    if (shuffled) {
        if ((uint64_t)run.batch.count > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "train() shuffles at most 2**32-1 images");
            goto fail;
        }
        run.order = PyMem_Malloc(sizeof(uint32_t) * (size_t)run.batch.count);
        if (run.order == NULL) {
            PyErr_NoMemory();
            goto fail;
        }
        for (Py_ssize_t i = 0; i < run.batch.count; i++)
            run.order[i] = (uint32_t)i;
        random_seed(&random, seed);
    }
    if (lock_to_write() < 0)
        goto fail;
    unlock();
    const int held = begin_long_call();
    int failed = held < 0;
    for (Py_ssize_t epoch = 0; epoch < run.epochs && !failed; epoch++) {
        double loss = 0.0;
        if (shuffled)
            random_shuffle(&random, run.order, run.batch.count);
        failed = train_epoch(&run, epoch * run.batch.count, &loss);
        if (!failed) {
            PyObject *const item = PyFloat_FromDouble(loss);
            failed = item == NULL || PyList_Append(losses, item) < 0;
            Py_XDECREF(item);
        }
    }
    end_long_call(held);
    if (failed)
        goto fail;
    PyMem_Free(run.order);
    release_batch(&run.batch);
    return losses;
fail:
    Py_XDECREF(losses);
    PyMem_Free(run.order);
    release_batch(&run.batch);
    return NULL;
}
