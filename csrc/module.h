/*
 * The Python module around a generated model. Included last, into the one translation unit: everything is static. A
 * FROZEN model has constant weights and only predicts.
 */

#ifndef MODULE_H
#define MODULE_H

#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ == 2)
#error "compile without -ffast-math and -mfpmath=387"
#endif
_Static_assert(sizeof 0.1 == sizeof(double), "compile without -fsingle-precision-constant");

#include "arguments.h"
#include "docs.h"
#include "images.h"
#include "level.h"
#include "lock.h"
#include "model.h"
#include "outputs.h"
#include "predictions.h"
#if !FROZEN
#include "noise.h"
#include "optimizer.h"
#include "random.h"
#include "train.h"
#include "train_shared.h"
#include "views.h"
#include "weights.h"
#endif

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#if !FROZEN

/* One step at a time */

static int expect_count(const char *function, Py_ssize_t nargs, Py_ssize_t expected)
{
    if (nargs == expected)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd argument%s, got %zd", function, expected,
                 expected == 1 ? "" : "s", nargs);
    return -1;
}

static PyObject *api_forward(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer image_view, target_view;
    int image_held = 0, target_held = 0;
    const target_type *target = NULL;
    if (expect_usable(module) < 0 || expect_count("forward", nargs, 2) < 0)
        return NULL;
#if TARGET_LABEL
    const Py_ssize_t label = parse_int(args[0], "label", 0, TARGET_COUNT - 1);
    if (label < 0)
        return NULL;
    const target_type label_byte = (target_type)label;
    target = &label_byte;
#elif TARGET_PARTS
    struct row_count one = {.is_one = 1};
    if (get_parts(&all_targets, args[0], &one, &target_view) < 0)
        return NULL;
    target_held = 1;
    target = target_view.buf;
#else
    if (TARGET_COUNT) {
        if (get_buffer(args[0], "targets", &target_elements, TARGET_COUNT, 0, &target_view) < 0)
            return NULL;
        target_held = 1;
        target = target_view.buf;
    }
    else if (args[0] != Py_None) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be None: this model has no targets");
        return NULL;
    }
#endif
    PyObject *result = NULL;
    const input_type *const image = one_image(args[1], &image_view, &image_held);
    PyObject *room = image == NULL ? NULL : PyFloat_FromDouble(0.0); /* a loss that cannot be returned changes nothing */
    if (room != NULL && lock_to_write() == 0) {
        notice_written_weights();
        const double loss = run_forward(target, image, MODEL_RANDOM);
        show_gradients();
        forward_done = 1;
        unlock();
        Py_CLEAR(room); /* which the interpreter uses again */
        result = PyFloat_FromDouble(loss);
    }
    Py_XDECREF(room);
    if (image_held)
        PyBuffer_Release(&image_view);
    if (target_held)
        PyBuffer_Release(&target_view);
    return result;
}

static PyObject *api_backward(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    if (expect_usable(module) < 0 || lock_to_write() < 0)
        return NULL;
    const int possible = forward_done;
    if (possible) {
        run_backward();
        backward_done = 1;
        show_gradients();
    }
    unlock();
    if (!possible) {
        PyErr_SetString(PyExc_RuntimeError, "backward() needs a forward() before it");
        return NULL;
    }
    Py_RETURN_NONE;
}

#if INPUT_GRADIENTS
/* A tuple of floats; a dict of them by name if the inputs have names. */
static PyObject *named_inputs(const double *from)
{
#if INPUT_PARTS
    PyObject *dict = input_parts[0].name == NULL ? NULL : PyDict_New();
    for (int p = 0; dict != NULL && p < INPUT_PARTS; p++) {
        const struct argument_part *const part = &input_parts[p];
        dict = with_item(dict, part->name, float_tuple(from + part->leaf, part->leaves));
    }
    if (input_parts[0].name != NULL)
        return dict;
#endif
    return float_tuple(from, INPUT_LEAVES);
}
#endif

static PyObject *api_input_grad(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    if (expect_usable(module) < 0)
        return NULL;
#if INPUT_GRADIENTS
    double *const found = PyMem_Malloc(INPUT_LEAVES * sizeof(*found));
    if (found == NULL)
        return PyErr_NoMemory();
    lock_to_read();
    const int possible = backward_done;
    for (int i = 0; i < INPUT_LEAVES && possible; i++)
        found[i] = 0.0 + (input_gradients[i] < 0 ? 0.0 : training->value[input_gradients[i]]); /* as the engine's, from 0 */
    unlock();
    PyObject *const result = possible ? named_inputs(found) : NULL;
    PyMem_Free(found);
    if (!possible)
        PyErr_SetString(PyExc_RuntimeError, "input_grad() needs a forward() and a backward() before it");
    return result;
#else
    PyErr_SetString(PyExc_RuntimeError,
                    "this model keeps no gradients of inputs: declare Program(input_gradients=True)");
    return NULL;
#endif
}

static PyObject *api_zero_grad(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    if (expect_usable(module) < 0 || lock_to_write() < 0)
        return NULL;
    notice_written_gradients();
    run_zero_grad();
    unlock();
    Py_RETURN_NONE;
}

static PyObject *api_update(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {"update", 2, 0, 3, {"step", "batch_size", "learning_rate"}};
    PyObject *values[3];
    Py_ssize_t step = 0, batch_size = 1;
    double rate = LEARNING_RATE;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0)
        return NULL;
    if (values[0] != NULL && (step = parse_int(values[0], "step", 0, PY_SSIZE_T_MAX)) < 0)
        return NULL;
    if (values[1] != NULL && (batch_size = parse_int(values[1], "batch_size", 1, PY_SSIZE_T_MAX)) < 0)
        return NULL;
    if (is_given(values[2]) && parse_rate_of_step(values[2], step, &rate) < 0)
        return NULL;
    if (lock_to_write() < 0)
        return NULL;
    notice_written_gradients();
    run_update(rate, (double)batch_size);
    unlock();
    Py_RETURN_NONE;
}

/* The index in data[] of parameter i in the order of parameters(), and its tensor if `owner` is given. */
static Py_ssize_t parameter_place(Py_ssize_t i, const struct tensor **owner)
{
#if PARAMETER_TABLE
    const struct tensor *t = tensors;
    const Py_ssize_t place = parameter_places[i];
    while (place >= t->offset + t->extent)
        t++;
    if (owner != NULL)
        *owner = t;
    return place;
#else
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++) {
        /* A larger stride outweighs all smaller ones together, so the indices are the digits of the number. */
        Py_ssize_t rest = i - t->first, place = t->offset, last = PY_SSIZE_T_MAX;
        while (rest > 0) {
            int widest = -1;
            for (int d = 0; d < t->dimensions; d++)
                if (t->shape[d] > 1 && t->numbers[d] < last && (widest < 0 || t->numbers[d] > t->numbers[widest]))
                    widest = d;
            if (widest < 0 || rest / t->numbers[widest] >= t->shape[widest])
                break;
            last = t->numbers[widest];
            place += rest / last * t->strides[widest];
            rest %= last;
        }
        if (rest == 0) {
            if (owner != NULL)
                *owner = t;
            return place;
        }
    }
    Py_UNREACHABLE(); /* every parameter is in a tensor */
#endif
}

static PyObject *parameter_element(PyObject *module, PyObject *object, const real *array)
{
    if (expect_usable(module) < 0)
        return NULL;
    const Py_ssize_t i = parse_int(object, "the number of a parameter", 0, PARAMETER_COUNT - 1);
    if (i < 0)
        return NULL;
    lock_to_read();
    if (array == grad)
        materialize_row_gradients();
    const double x = array[parameter_place(i, NULL)];
    unlock();
    return PyFloat_FromDouble(x);
}

static PyObject *api_data(PyObject *module, PyObject *object) { return parameter_element(module, object, data); }

static PyObject *api_grad(PyObject *module, PyObject *object) { return parameter_element(module, object, grad); }

/*
 * Initial weights: drawn from the declared distributions in the order of parameters(), or those of the build. Noise is
 * drawn next.
 */
static void draw_weights(uint64_t seed)
{
#if HAS_DISTRIBUTIONS || NOISE_COUNT || SHIFT
    struct random_state random;
    random_seed(&random, seed);
#else
    (void)seed;
#endif
#if HAS_DISTRIBUTIONS
    for (Py_ssize_t i = 0; i < PARAMETER_COUNT; i++) {
        const struct tensor *t = NULL;
        const Py_ssize_t place = parameter_place(i, &t);
        data[place] = (real)random_number(&random, t->low, t->high, t->deviation, t->limit);
    }
#else
    memcpy(data, initial_data, DATA_COUNT * sizeof(real));
#endif
#if NOISE_COUNT || SHIFT
    model_random = random;
#endif
    find_nonfinite_rows();
}

static PyObject *api_reset(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const struct signature signature = {"reset", 1, 0, 1, {"seed"}};
    PyObject *values[1];
    uint64_t seed = SEED;
    if (expect_usable(module) < 0 || parse_arguments(&signature, args, nargs, kwnames, values) < 0)
        return NULL;
    const int given = parse_seed(values[0], &seed);
    if (given < 0)
        return NULL;
#if !(HAS_DISTRIBUTIONS || NOISE_COUNT || SHIFT)
    if (given)
        return PyErr_Format(PyExc_ValueError, "this model declares no initial distribution: reset() takes no seed");
#endif
    if (HAS_DISTRIBUTIONS && !given) {
        PyObject *const os = PyImport_ImportModule("os");
        PyObject *const entropy = os == NULL ? NULL : PyObject_CallMethod(os, "urandom", "i", (int)sizeof(seed));
        Py_XDECREF(os);
        if (entropy == NULL)
            return NULL;
        const char *const bytes = PyBytes_AsString(entropy);
        if (bytes != NULL)
            memcpy(&seed, bytes, sizeof(seed));
        Py_DECREF(entropy);
        if (bytes == NULL)
            return NULL;
    }
    if (lock_to_write() < 0)
        return NULL;
    draw_weights(seed);
    clear_optimizer_state();
    notice_written_gradients();
    run_zero_grad();
    forward_done = backward_done = 0;
    unlock();
    Py_RETURN_NONE;
}

#endif

#include "instance.h"

/* The module */

static PyObject *api_info(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *const sizes = expect_usable(module) < 0 ? NULL : output_sizes();
    if (sizes == NULL)
        return NULL;
#if FROZEN
    return Py_BuildValue(
        "{s:s,s:s,s:s,s:s,s:N,s:N,s:s,s:s,s:s,s:n,s:s,s:i,s:s,s:N,s:s,s:s}",
        "architecture", DESCRIPTION,
        "version", VERSION,
        "dtype", real_elements.noun,
        "mode", FLOAT32 || FMA || REORDER ? "fast" : "strict",
        "fma", PyBool_FromLong(level->fuses),
        "reorder", PyBool_FromLong(REORDER),
        "simd", level->name,
        "compiler", BUILT_BY,
        "lowering", LOWERING,
        "parameters", (Py_ssize_t)PARAMETER_COUNT,
        "weight_type", WEIGHT_TYPE,
        "inputs", INPUT_LEAVES,
        "input_type", INPUT_PARTS ? INPUT_TYPE : INPUT_PIXELS ? "uint8" : real_elements.noun,
        "outputs", sizes,
        "digest", DIGEST,
        "weights", WEIGHTS);
#else
    return Py_BuildValue(
        "{s:s,s:s,s:s,s:s,s:N,s:N,s:s,s:s,s:s,s:n,s:i,s:s,s:i,s:s,s:i,s:N,s:d,s:K,s:s}",
        "architecture", DESCRIPTION,
        "version", VERSION,
        "dtype", real_elements.noun,
        "mode", FLOAT32 || FMA || REORDER ? "fast" : "strict",
        "fma", PyBool_FromLong(level->fuses),
        "reorder", PyBool_FromLong(REORDER),
        "simd", level->name,
        "compiler", BUILT_BY,
        "lowering", LOWERING,
        "parameters", (Py_ssize_t)PARAMETER_COUNT,
        "inputs", INPUT_LEAVES,
        "input_type", INPUT_PARTS ? INPUT_TYPE : INPUT_PIXELS ? "uint8" : real_elements.noun,
        "targets", TARGET_COUNT,
        "target_type", TARGET_PARTS ? TARGET_TYPE : TARGET_LABEL ? "label" : TARGET_COUNT ? real_elements.noun : "none",
        "noise", NOISE_COUNT + (SHIFT ? 2 : 0),
        "outputs", sizes,
        "learning_rate", LEARNING_RATE,
        "seed", (unsigned long long)SEED,
        "digest", DIGEST);
#endif
}

static PyMethodDef methods[] = {
#if !FROZEN
    {"forward", FAST(api_forward), METH_FASTCALL, DOC_FORWARD},
    {"backward", api_backward, METH_NOARGS, DOC_BACKWARD},
    {"input_grad", api_input_grad, METH_NOARGS, DOC_INPUT_GRAD},
    {"zero_grad", api_zero_grad, METH_NOARGS, DOC_ZERO_GRAD},
    {"update", FAST(api_update), METH_FASTCALL | METH_KEYWORDS, DOC_UPDATE},
#endif
    {"predict", api_predict, METH_O, DOC_PREDICT},
    {"probabilities", api_probabilities, METH_O, DOC_PROBABILITIES},
    {"outputs", api_outputs, METH_O, DOC_OUTPUTS},
    {"predict_batch", FAST(api_predict_batch), METH_FASTCALL | METH_KEYWORDS, DOC_PREDICT_BATCH},
    {"outputs_batch", FAST(api_outputs_batch), METH_FASTCALL | METH_KEYWORDS, DOC_OUTPUTS_BATCH},
    {"probabilities_batch", FAST(api_probabilities_batch), METH_FASTCALL | METH_KEYWORDS, DOC_PROBABILITIES_BATCH},
#if !FROZEN
    {"evaluate", FAST(api_evaluate), METH_FASTCALL | METH_KEYWORDS, DOC_EVALUATE},
    {"accumulate", FAST(api_accumulate), METH_FASTCALL | METH_KEYWORDS, DOC_ACCUMULATE},
    {"metrics", FAST(api_metrics), METH_FASTCALL | METH_KEYWORDS, DOC_METRICS},
    {"train", FAST(api_train), METH_FASTCALL | METH_KEYWORDS, DOC_TRAIN},
    {"_train_shared", FAST(api_train_shared), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"state_dict", api_state_dict, METH_NOARGS, DOC_STATE_DICT},
    {"grad_dict", api_grad_dict, METH_NOARGS, DOC_GRAD_DICT},
    {"flat_data", api_flat_data, METH_NOARGS, DOC_FLAT_DATA},
    {"flat_grad", api_flat_grad, METH_NOARGS, DOC_FLAT_GRAD},
    {"load_state_dict", api_load_state_dict, METH_O, DOC_LOAD_STATE_DICT},
    {"optimizer_state", api_optimizer_state, METH_NOARGS, DOC_OPTIMIZER_STATE},
    {"load_optimizer_state", api_load_optimizer_state, METH_O, DOC_LOAD_OPTIMIZER_STATE},
    {"save_weights", api_save_weights, METH_O, DOC_SAVE_WEIGHTS},
    {"load_weights", api_load_weights, METH_O, DOC_LOAD_WEIGHTS},
    {"data", api_data, METH_O, DOC_DATA},
    {"grad", api_grad, METH_O, DOC_GRAD},
    {"reset", FAST(api_reset), METH_FASTCALL | METH_KEYWORDS, DOC_RESET},
#endif
    {"info", api_info, METH_NOARGS, DOC_INFO},
    {NULL, NULL, 0, NULL},
};

#if FROZEN
#define DOC_KIND "A trained micrograd model, compiled"
#else
#define DOC_KIND "A micrograd model, compiled"
#endif
#define DOC_MODULE sizeof(DESCRIPTION) > 1 ? DOC_KIND ": " DESCRIPTION ".\n\n" DOC_USE : DOC_KIND ".\n\n" DOC_USE

/*
 * Asks for pages of 2 MB for an array of several MB. Images of a batch lie a workspace apart, and rows of weights some KB: a
 * loop over either needs the address of another page in each iteration, and a core keeps some hundred of them at hand.
 */
static void prefer_large_pages(void *array, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t apart = (uintptr_t)array % page; /* arrays that are neighbours share a large page */
    if (bytes >= (size_t)1 << 21)
        (void)madvise((char *)array - apart, apart + bytes, MADV_HUGEPAGE);
#else
    (void)array, (void)bytes;
#endif
}

static int module_exec(PyObject *module)
{
    if (check_first_load() < 0 || PyModule_AddStringConstant(module, "__version__", VERSION) < 0 ||
        choose_level() < 0 || make_locks() < 0)
        return -1;
    fill_pixel_values();
    prefer_large_pages(inference, sizeof inference);
#if INSTANCES
    if (add_model_type(module, methods, DOC_MODULE) < 0)
        return -1;
#endif
#if !FROZEN
    if (add_view_types(module) < 0)
        return -1;
    prefer_large_pages(block, sizeof block);
    prefer_large_pages(data, sizeof data);
    prefer_large_pages(grad, sizeof grad);
    set_mean_noise(&at_model_lock);
    for (int place = 0; place < MAX_WORKERS; place++)
        set_mean_noise(&inference[place]);
    draw_weights(SEED);
    clear_optimizer_state();
#elif WIDENS
    widen_weights();
#endif
    loaded = 1;
    usable_module = module;
    return 0;
}

static int module_clear(PyObject *module)
{
    if (module == usable_module)
        usable_module = NULL;
#if !FROZEN
    clear_view_types(module);
#endif
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030C0000 && (!defined(Py_LIMITED_API) || Py_LIMITED_API + 0 >= 0x030C0000)
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000 && (!defined(Py_LIMITED_API) || Py_LIMITED_API + 0 >= 0x030D0000)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = MODULE_NAME,
    .m_doc = DOC_MODULE,
    .m_methods = methods,
    .m_slots = module_slots,
#if !FROZEN
    .m_size = sizeof(struct module_state),
    .m_traverse = module_traverse,
#endif
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC MODULE_INIT(void);
PyMODINIT_FUNC MODULE_INIT(void) { return PyModuleDef_Init(&module_definition); }

#endif
