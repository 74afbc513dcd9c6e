/*
 * train(): whole epochs, batch after batch.
 *
 * train(check_finite=True) rolls back a step that makes a parameter infinite or nan. Parameters rarely need
 * scanning: while bounds of parameters and gradients stay far from overflow, no update can produce such a value. Both
 * bounds are known for row tensors (update.h); for the others, a step scans their gradients. If the bounds say nothing,
 * the parameters are copied before the step and scanned after it.
 */

#ifndef TRAIN_H
#define TRAIN_H

#include "arguments.h"
#include "images.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#include "ops.h"
#include "optimizer.h"
#include "passes.h"
#include "random.h"
#include "rows.h"
#include "update.h"

static int forward_done; /* whether there is a forward pass for backward() to start from */

/* The state of one train(check_finite=True). */
struct finite_check {
    real *before; /* room for the parameters and the state of their rules; NULL if no check was requested */
    /* The first such parameter, in the order of state_dict(), of the step that was rolled back. */
    const struct tensor *tensor;
    Py_ssize_t index[MAX_DIMENSIONS];
    double value;
};

/* The largest magnitude outside of rows. */
static double largest_dense(const real *array)
{
    real largest = 0;
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (!is_in_rows(&tensors[t]))
            largest = larger(largest, level->largest(array + tensors[t].offset, tensors[t].extent));
    return largest;
}

/* Whether a parameter is not finite; if so, stores the first one in the check. Padding does not count. */
static int find_not_finite(struct finite_check *check)
{
    if (weight_bound <= REAL_MAX && dense_bound <= REAL_MAX)
        return 0;
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++) {
        Py_ssize_t at[MAX_DIMENSIONS] = {0};
        for (Py_ssize_t i = 0; i < t->size; i++) {
            memcpy(check->index, at, sizeof(at));
            check->value = data[next_place(t, at)];
            check->tensor = t;
            if (!is_finite(check->value))
                return 1;
        }
    }
    return 0;
}

/* "layers.0.weight[3, 17]", or just the name for a tensor without dimensions; NULL if there is no memory. */
static PyObject *name_found(const struct finite_check *check)
{
    const int dimensions = check->tensor->dimensions;
    PyObject *text = PyUnicode_FromString(check->tensor->name);
    for (int d = 0; d < dimensions; d++)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat("%s%zd%s", d ? ", " : "[", check->index[d],
                                                           d + 1 < dimensions ? "" : "]"));
    return text;
}

static const char *value_name(const struct finite_check *check)
{
    return check->value > 0 ? "inf" : check->value < 0 ? "-inf" : "nan";
}

static void end_finite_check(struct finite_check *check)
{
    PyMem_Free(check->before);
    check->before = NULL;
}

/* Fails if a parameter is not finite. Needs the GIL. */
static int begin_finite_check(struct finite_check *check)
{
    check->before = PyMem_Malloc((STATE_SLOTS + 1) * sizeof(data));
    if (check->before == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    lock_to_read();
    notice_written_weights();
    dense_bound = largest_dense(data);
    const int failed = find_not_finite(check);
    unlock();
    if (!failed)
        return 0;
    PyObject *what = name_found(check);
    if (what != NULL)
        PyErr_Format(PyExc_FloatingPointError, "train() did not start: %U is %s", what, value_name(check));
    Py_XDECREF(what);
    return -1;
}

/* An update that may overflow: rolled back, with -1, if it does. */
static int update_and_look(struct finite_check *check, double rate, double batch)
{
    const int64_t steps_before = steps;
    memcpy(check->before, data, DATA_COUNT * sizeof(real));
#if STATE_SLOTS
    memcpy(check->before + DATA_COUNT, state, sizeof(state));
#endif
    run_update(rate, batch);
    if (RULES && dense_bound <= REAL_MAX && weight_bound <= REAL_MAX)
        return 0;
    find_nonfinite_rows();
    dense_bound = largest_dense(data);
    if (!find_not_finite(check))
        return 0;
    steps = steps_before;
    memcpy(data, check->before, DATA_COUNT * sizeof(real));
#if STATE_SLOTS
    memcpy(state, check->before + DATA_COUNT, sizeof(state));
#endif
    find_nonfinite_rows();
    return -1;
}

/* Returns 0 after an update, or -1 without one; then the check says why. */
static int run_checked_update(struct finite_check *check, double rate, double batch)
{
    if (RULES)
        return update_and_look(check, rate, batch);
    const double dense_move = fabs(rate) * largest_dense(grad), row_move = fabs(rate) * grad_bound;
    const int is_safe =
        dense_move < SAFE_BOUND && dense_bound < SAFE_BOUND && row_move < SAFE_BOUND && weight_bound < SAFE_BOUND;
    if (!is_safe)
        return update_and_look(check, rate, batch);
    run_update(rate, batch);
    dense_bound += dense_move / batch;
    return 0;
}

struct training_run {
    struct batch_view batch;
    Py_ssize_t batch_size, epochs;
    int threads;
    double rate;
    double *rates; /* one a step, or NULL: then all steps have `rate` */
    Py_ssize_t steps; /* of an epoch */
    double mean;     /* loss of an epoch, so far */
    uint32_t *order; /* NULL for the order of the images */
    struct random_state *random; /* that noise is drawn from */
    PyObject *progress;
    struct finite_check check;
    struct share *share; /* if other processes take part: see train_shared.h */
    int keeps_gradients; /* whether grad[] is read after the next images, as after the last step of a call */
};

static Py_ssize_t image_number(const struct training_run *run, Py_ssize_t i)
{
    return run->order == NULL ? i : (Py_ssize_t)run->order[i];
}

static Py_ssize_t batch_size_at(const struct training_run *run, Py_ssize_t first)
{
    const Py_ssize_t rest = run->batch.count - first;
    return rest < run->batch_size ? rest : run->batch_size;
}

/* The number of the step that begins with image `first` of an epoch, counted from 0 over all epochs. */
static Py_ssize_t step_number(const struct training_run *run, Py_ssize_t epoch, Py_ssize_t first)
{
    return epoch * run->steps + first / run->batch_size;
}

enum {
    IMAGES_AHEAD = 64, /* how far the loading of inputs is ahead, at most: they are to fit into a cache */
    MANY_INPUTS = INPUT_COUNT * sizeof(input_type) > 256, /* whose lines do not all come before they are read */
};

/* Puts the next images into a block, at most `rest`. */
static void fill_block(const struct training_run *run, Py_ssize_t i, Py_ssize_t rest)
{
    block_images.count = rest < BLOCK_IMAGES ? (int)rest : BLOCK_IMAGES;
    block_images.first = 0;
    block_images.end = block_images.count;
    block_images.are_shared = 0;
    block_images.is_last = 1;
    for (int k = 0; k < block_images.count; k++) {
        const Py_ssize_t image = image_number(run, i + k);
        block_images.inputs[k] = image_at(&run->batch, image);
        block_images.targets[k] = target_at(&run->batch, image);
        const Py_ssize_t later = i + k + at_most(block_images.count, IMAGES_AHEAD);
        block_images.later[k] = (run->order != NULL || MANY_INPUTS) && later < run->batch.count
                                    ? image_at(&run->batch, image_number(run, later))
                                    : NULL;
    }
}

/* The forward pass of one image: its loss. */
static inline double run_image(const struct training_run *run, Py_ssize_t i)
{
    fill_block(run, i, 1);
    prefetch_later(0, 0, INPUT_COUNT);
    return run_forward(block_images.targets[0], block_images.inputs[0], run->random);
}

/*
 * Forward and backward of the next images of the batch first .. first + size; returns how many. A batch of several blocks
 * pauses at `end`, where the caller reports progress.
 */
static int run_images(const struct training_run *run, Py_ssize_t i, Py_ssize_t end, Py_ssize_t first, Py_ssize_t size,
                      double *total)
{
    const Py_ssize_t last = first + size, rest = (size > BLOCK_IMAGES && end < last ? end : last) - i;
    forward_done = 1;
    if (size == 1) {
        *total += run_image(run, i);
        run_backward();
        return 1;
    }
    const int most = WORKER_IMAGES ? at_most(WORKER_IMAGES * pool_workers(), BLOCK_IMAGES) : BLOCK_IMAGES;
    fill_block(run, i, rest < most ? rest : most);
    block_images.is_last = i + block_images.count >= end || run->check.before != NULL; /* which may stop here */
    *total = run_block(*total, block_images.count == size && !run->keeps_gradients, run->random);
    return block_images.count;
}

/* Names the images of a batch for a message; NULL if there is no memory. */
static PyObject *name_images(const struct training_run *run, Py_ssize_t first, Py_ssize_t size)
{
    enum { MAX_NAMED = 8 };
    if (size == 1)
        return PyUnicode_FromFormat(INPUT_NOUN " %zd", image_number(run, first));
    if (run->order == NULL)
        return PyUnicode_FromFormat(INPUT_NOUN "s %zd..%zd", first, first + size - 1);
    PyObject *text = PyUnicode_FromString(INPUT_NOUN "s");
    for (Py_ssize_t i = 0; i < size && i < MAX_NAMED; i++)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat("%s %zd", i ? "," : "", image_number(run, first + i)));
    if (size > MAX_NAMED)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat(" and %zd more", size - MAX_NAMED));
    return text;
}

/* After run_checked_update() has refused the step that begins with image `first` of an epoch. */
static void raise_not_finite(const struct training_run *run, Py_ssize_t epoch, Py_ssize_t first)
{
    const Py_ssize_t size = batch_size_at(run, first);
    PyObject *where = run->epochs > 1 ? PyUnicode_FromFormat("epoch %zd, ", epoch + 1) : PyUnicode_FromString("");
    PyUnicode_AppendAndDel(&where, name_images(run, first, size));
    PyObject *what = name_found(&run->check);
    if (where != NULL && what != NULL)
        PyErr_Format(PyExc_FloatingPointError, "train() stopped before step %zd (%U), which makes %U %s",
                     step_number(run, epoch, first) + 1, where, what, value_name(&run->check));
    Py_XDECREF(where);
    Py_XDECREF(what);
}

/* What has been written through views since the last chunk. The next chunk begins with image i. */
static void notice_writes(const struct training_run *run, Py_ssize_t i)
{
    if (i % run->batch_size == 0 && is_pending())
        forget_row_gradients(); /* zero_grad comes next */
    notice_written_weights();
    notice_written_gradients();
    if (data_views && run->check.before != NULL)
        dense_bound = largest_dense(data);
}

/* The update of the batch first .. first + size; -1 if it was rolled back. */
static int take_step(struct training_run *run, Py_ssize_t epoch, Py_ssize_t first, Py_ssize_t size)
{
    const double rate = run->rates == NULL ? run->rate : run->rates[step_number(run, epoch, first)];
    if (run->check.before != NULL)
        return run_checked_update(&run->check, rate, (double)size);
    run_update(rate, (double)size);
    return 0;
}

static int train_epoch(struct training_run *run, Py_ssize_t epoch)
{
    const Py_ssize_t count = run->batch.count;
    Py_ssize_t refused = -1; /* the first image of a step that was rolled back */
    double total = 0.0;
    for (Py_ssize_t i = 0, first = 0; i < count;) {
        const Py_ssize_t end = chunk_end(i, count);
        Py_BEGIN_ALLOW_THREADS
        lock_chunk();
        const int pooled = take_pool(run->threads);
        version++;
        notice_writes(run, i);
#if TAKES_STEPS
        if (run->batch_size == 1 && run->check.before == NULL && !HAS_ROWS)
            for (at_once = 1; i + 1 < end; first = ++i) { /* nothing to clear, nothing that a step could wait for */
                total += run_image(run, i);
                level->compute_adjoints(training);
                take_step(run, epoch, i, 1);
            }
#endif
        while (i < end && refused < 0) {
            const Py_ssize_t size = batch_size_at(run, first);
#if TAKES_STEPS
            at_once = size == 1 && i + 1 < end && run->check.before == NULL;
#endif
            run->keeps_gradients = epoch + 1 == run->epochs && first + size == count;
            if (i == first)
                run_zero_grad();
            i += run_images(run, i, end, first, size, &total);
            if (i < first + size)
                continue;
            if (take_step(run, epoch, first, size) < 0)
                refused = first;
            first = i;
        }
        run->mean = total / (double)i;
        if (is_given(run->progress))
            show_gradients();
        release_pool(pooled);
        unlock();
        Py_END_ALLOW_THREADS
        if (refused >= 0) {
            raise_not_finite(run, epoch, refused);
            return -1;
        }
        if (report(run->progress, epoch * count + i, run->epochs * count, 1, run->mean) < 0)
            return -1;
    }
    return 0;
}

typedef int epoch_function(struct training_run *run, Py_ssize_t epoch);

/* `share`: NULL if this process trains alone. */
static PyObject *train_model(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             epoch_function *train_an_epoch, struct share *share)
{
    static const struct signature signature = {
        "train",
        2,
        2,
        9,
        {INPUTS_ARGUMENT, TARGETS_ARGUMENT, "batch_size", "learning_rate", "epochs", "seed", "threads", "progress",
         "check_finite"},
    };
    PyObject *values[9];
    struct training_run run = {
        .batch_size = 1, .epochs = 1, .rate = LEARNING_RATE, .share = share, .keeps_gradients = share != NULL};
    struct random_state random = {.position = 0};
    uint64_t seed = 0;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0 ||
        check_progress(values[7]) < 0)
        return NULL;
    if (values[2] != NULL && (run.batch_size = parse_int(values[2], "batch_size", 1, PY_SSIZE_T_MAX)) < 0)
        return NULL;
    const Py_ssize_t rates = is_given(values[3]) ? count_rates(values[3]) : ONE_RATE;
    if (rates == FAILED)
        return NULL;
    if (is_given(values[3]) && rates == ONE_RATE && parse_rate(values[3], "learning_rate", &run.rate) < 0)
        return NULL;
    if (values[4] != NULL && (run.epochs = parse_int(values[4], "epochs", 0, 1000000000)) < 0)
        return NULL;
    const int shuffled = parse_seed(values[5], &seed);
    run.random = shuffled > 0 ? &random : MODEL_RANDOM;
    run.threads = shuffled < 0 ? -1 : parse_threads(values[6]);
    const int checks = run.threads < 0 ? -1 : values[8] == NULL ? 0 : parse_bool(values[8], "check_finite");
    if (checks < 0)
        return NULL;
    run.progress = values[7];
    if (get_batch(values[0], values[1], &run.batch) < 0)
        return NULL;
    if (run.epochs > PY_SSIZE_T_MAX / run.batch.count) {
        PyErr_Format(PyExc_ValueError,
                     "%zd epochs of %zd " INPUT_NOUN "s are more than train() can count: at most %zd " INPUT_NOUN "s",
                     run.epochs, run.batch.count, PY_SSIZE_T_MAX);
        release_batch(&run.batch);
        return NULL;
    }

    run.steps = run.batch.count / run.batch_size + (run.batch.count % run.batch_size != 0);
    PyObject *losses = PyList_New(0);
    if (losses == NULL)
        goto fail;
    if (rates != ONE_RATE && (run.rates = parse_rates(values[3], rates, run.epochs * run.steps)) == NULL)
        goto fail;
    if (shuffled) {
        if ((uint64_t)run.batch.count > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "train() shuffles at most 2**32-1 " INPUT_NOUN "s");
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
    struct call *const call = begin_call(WRITES);
    if (call == NULL)
        goto fail;
    int failed = checks && begin_finite_check(&run.check) < 0;
    for (Py_ssize_t epoch = 0; epoch < run.epochs && !failed; epoch++) {
        if (shuffled)
            random_shuffle(&random, run.order, run.batch.count);
        failed = train_an_epoch(&run, epoch);
        if (!failed) {
            PyObject *const item = PyFloat_FromDouble(run.mean);
            failed = item == NULL || PyList_Append(losses, item) < 0;
            Py_XDECREF(item);
        }
    }
    lock_to_read();
    materialize_row_gradients(); /* while the images are still alive */
    forward_done &= share == NULL; /* of an image that other ranks may have computed */
    unlock();
    end_finite_check(&run.check);
    end_call(call);
    if (!failed)
        goto done;
fail:
    Py_CLEAR(losses);
done:
    PyMem_Free(run.rates);
    PyMem_Free(run.order);
    release_batch(&run.batch);
    return losses;
}

static PyObject *api_train(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return train_model(module, args, nargs, kwnames, train_epoch, NULL);
}

/* accumulate(): the gradients of a batch, without a step. */

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
