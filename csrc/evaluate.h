/* Many images with their labels, and evaluate(). */

static const target_type *target_at(const struct batch_view *b, Py_ssize_t i)
{
    return b->has_labels ? (const target_type *)b->labels.buf + i * TARGETS_PER_IMAGE : NULL;
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

static void evaluate_chunk(int member)
{
    struct workspace *const w = &inference[member];
    for (int first; (first = take_piece(IMAGES_A_PIECE)) < chunk.count;)
        for (int at = first; at < first + IMAGES_A_PIECE && at < chunk.count; at++) {
            const Py_ssize_t image = chunk.first + at;
            level->set_inputs(w, image_at(chunk.batch, image));
            set_targets(w, target_at(chunk.batch, image));
            level->compute_evaluation(w);
            chunk.loss[at] = w->value[LOSS];
            chunk.class[at] = HAS_PREDICTION ? argmax(w, &outputs[PREDICTION]) : 0;
        }
}

static PyObject *api_evaluate(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {"evaluate", 2, 2, 4, {"images", "labels", "threads", "progress"}};
    PyObject *values[4];
    struct batch_view b;
    if (parse_arguments(&signature, args, nargs, kwnames, values) < 0 || check_progress(values[3]) < 0)
        return NULL;
    const int threads = parse_threads(values[2]);
    if (threads < 0 || get_batch(values[0], values[1], &b) < 0)
        return NULL;
    const int classifies = TARGET_LABEL && HAS_PREDICTION && outputs[PREDICTION].count == TARGET_COUNT;
    const int held = begin_long_call(threads);
    double total = 0.0;
    Py_ssize_t right = 0;
    int failed = held < 0;
    for (Py_ssize_t done = 0; done < b.count && !failed;) {
        Py_BEGIN_ALLOW_THREADS
        run_chunk(evaluate_chunk, &b, done);
        Py_END_ALLOW_THREADS
        for (int at = 0; at < chunk.count; at++, done++) {
            total += chunk.loss[at];
            if (classifies)
                right += chunk.class[at] == *target_at(&b, done);
        }
        failed = report(values[3], done, b.count, 1, total / (double)done);
    }
    end_long_call(held);
    release_batch(&b);
    if (failed)
        return NULL;
    const double loss = total / (double)b.count;
    return classifies ? Py_BuildValue("dd", loss, (double)right / (double)b.count) : Py_BuildValue("dO", loss, Py_None);
}
