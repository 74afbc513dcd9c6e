/*
 * learning_rate: a number, a sequence of one rate a step, or a schedule, which is any function of the step. train()
 * evaluates a schedule for all steps before the first one, so that no Python runs between two steps.
 *
 * optimizer_state() and load_optimizer_state(): what rules keep for each parameter, as memoryviews that share the model's
 * memory, and the number of steps. Plain gradient descent has the latter alone.
 */

#ifndef OPTIMIZER_H
#define OPTIMIZER_H

#include "arguments.h"
#include "buffers.h"
#include "lock.h"
#include "model.h"
#include "views.h"

#include <stdio.h>

#define ONE_RATE NO_SEQUENCE
#define SCHEDULE (NO_SEQUENCE - 2) /* below FAILED */

/* The length of a sequence of rates, else ONE_RATE or SCHEDULE, or FAILED with an exception set. */
static Py_ssize_t count_rates(PyObject *object)
{
    return PyCallable_Check(object) ? SCHEDULE : sequence_length(object);
}

/* The rate of a step: an element of a sequence, or the value of a schedule. */
static int get_rate(PyObject *object, Py_ssize_t step, double *rate)
{
    const int is_schedule = PyCallable_Check(object);
    char what[sizeof("learning_rate(9223372036854775807)")];
    PyObject *const number = is_schedule ? PyLong_FromSsize_t(step) : NULL;
    if (is_schedule && number == NULL)
        return -1;
    PyObject *const item =
        is_schedule ? PyObject_CallFunctionObjArgs(object, number, NULL) : PySequence_GetItem(object, step);
    Py_XDECREF(number);
    snprintf(what, sizeof(what), is_schedule ? "learning_rate(%lld)" : "learning_rate[%lld]", (long long)step);
    const int result = item == NULL ? -1 : parse_rate(item, what, rate);
    Py_XDECREF(item);
    return result;
}

/* For update(): what is given for `step`, or the number itself. */
static int parse_rate_of_step(PyObject *object, Py_ssize_t step, double *rate)
{
    const Py_ssize_t count = count_rates(object);
    if (count == FAILED)
        return -1;
    if (count == ONE_RATE)
        return parse_rate(object, "learning_rate", rate);
    if (count == SCHEDULE || step < count)
        return get_rate(object, step, rate);
    PyErr_Format(PyExc_ValueError, "learning_rate holds %zd rates, none for step %zd", count, step);
    return -1;
}

#define MAX_SCHEDULED_STEPS ((Py_ssize_t)100000000) /* 800 MB of rates */

/* For train(): the rates of all steps, to be freed with PyMem_Free(); NULL with an exception set on failure. */
static double *parse_rates(PyObject *object, Py_ssize_t count, Py_ssize_t steps)
{
    if (count != SCHEDULE && count != steps) {
        PyErr_Format(PyExc_ValueError, "learning_rate must hold one rate for each of the %zd steps, got %zd", steps,
                     count);
        return NULL;
    }
    if (steps > MAX_SCHEDULED_STEPS) {
        PyErr_Format(PyExc_ValueError,
                     "train() asks for the rates of all %zd steps before the first one, but for at most %zd: call it several "
                     "times", steps, MAX_SCHEDULED_STEPS);
        return NULL;
    }
    double *const rates = PyMem_Malloc(sizeof(double) * (size_t)steps);
    if (rates == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t step = 0; rates != NULL && step < steps; step++)
        if (get_rate(object, step, rates + step) < 0) {
            PyMem_Free(rates);
            return NULL;
        }
    return rates;
}

#define STEP_NAME "step"

/* As after the import. The caller holds model_lock. */
static void clear_optimizer_state(void)
{
    steps = 0;
#if STATE_SLOTS
    memset(state, 0, sizeof(state));
    for (const struct state_tensor *s = state_tensors; s->name != NULL; s++)
        for (Py_ssize_t i = 0; i < tensors[s->tensor].extent; i++)
            state[s->slot][tensors[s->tensor].offset + i] = (real)s->initial;
#endif
}

static PyObject *api_optimizer_state(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = new_views(module);
    if (dict != NULL)
        dict = with_item(dict, STEP_NAME, new_view(module, NULL, NULL));
#if STATE_SLOTS
    for (const struct state_tensor *s = state_tensors; s->name != NULL && dict != NULL; s++)
        dict = with_item(dict, s->name, new_view(module, &tensors[s->tensor], state[s->slot]));
#endif
    return dict;
}

static const char *state_name(int i)
{
#if STATE_SLOTS
    return i == 0 ? STEP_NAME : state_tensors[i - 1].name;
#else
    return i == 0 ? STEP_NAME : NULL;
#endif
}

/* An int, or a memoryview of one; -1 with an exception set if it is neither. */
static Py_ssize_t parse_steps(PyObject *object)
{
    PyObject *number = NULL;
    if (PyMemoryView_Check(object) && (number = PyObject_CallMethod(object, "tolist", NULL)) == NULL)
        return -1;
    const Py_ssize_t found = parse_int(number == NULL ? object : number, "the number of steps", 0, MAX_STEPS);
    Py_XDECREF(number);
    return found;
}

#if STATE_SLOTS
/* Checks all tensors of the state and copies them to `copy`, one after the other. */
static int read_state(PyObject *mapping, real *copy)
{
    for (const struct state_tensor *s = state_tensors; s->name != NULL; s++) {
        struct tensor named = tensors[s->tensor];
        named.name = s->name;
        PyObject *const item = named_item(mapping, "the state", s->name);
        const int failed = item == NULL || read_tensor(item, &named, copy) < 0;
        Py_XDECREF(item);
        if (failed)
            return -1;
        copy += named.size;
    }
    return 0;
}

static void place_state(const real *copy)
{
    for (const struct state_tensor *s = state_tensors; s->name != NULL; s++) {
        place_tensor(state[s->slot], &tensors[s->tensor], copy);
        copy += tensors[s->tensor].size;
    }
}
#else
#define read_state(mapping, copy) ((void)(copy), 0)
#define place_state(copy) ((void)(copy))
#endif

static PyObject *api_load_optimizer_state(PyObject *module, PyObject *mapping)
{
    static const struct loading loading = {"load_optimizer_state", "in the optimizer's state", state_name};
    PyObject *result = NULL;
    if (expect_usable(module) < 0 || check_names(&loading, mapping) < 0)
        return NULL;
    PyObject *const item = named_item(mapping, "the state", STEP_NAME);
    const Py_ssize_t found = item == NULL ? -1 : parse_steps(item);
    Py_XDECREF(item);
    if (found < 0)
        return NULL;
    real *const copy = PyMem_Malloc((STATE_SLOTS + 1) * sizeof(data));
    if (copy == NULL)
        return PyErr_NoMemory();
    if (read_state(mapping, copy) == 0 && lock_to_write() == 0) {
        steps = found;
        place_state(copy);
        unlock();
        Py_INCREF(Py_None);
        result = Py_None;
    }
    PyMem_Free(copy);
    return result;
}

#endif
