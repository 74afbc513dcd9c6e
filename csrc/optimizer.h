/*
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
    if (dict != NULL && add_view(dict, module, STEP_NAME, NULL, NULL) < 0)
        Py_CLEAR(dict);
#if STATE_SLOTS
    for (const struct state_tensor *s = state_tensors; s->name != NULL && dict != NULL; s++)
        if (add_view(dict, module, s->name, &tensors[s->tensor], state[s->slot]) < 0)
            Py_CLEAR(dict);
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
