/*
 * learning_rate: a number, a sequence of one rate a step, or a schedule, which is any function of the step. train()
 * evaluates a schedule for all steps before the first one, so that no Python runs between two steps.
 */

#ifndef RATES_H
#define RATES_H

#include "arguments.h"
#include "buffers.h"

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

#endif
