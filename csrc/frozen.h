/* The Python module around a model that only predicts. Included last, into the one translation unit. */

#include "threads.h"
#include "lock.h"
#include "levels.h"
#include "arguments.h"
#include "docs.h"
#include "predictions.h"
#include "images.h"

static PyObject *api_info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *const sizes = output_sizes();
    if (sizes == NULL)
        return NULL;
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:N,s:N,s:s,s:s,s:s,s:n,s:s,s:i,s:s,s:N,s:s,s:s}",
                         "architecture", DESCRIPTION, "version", VERSION, "dtype", real_elements.noun,
                         "mode", FLOAT32 || FMA || REORDER ? "fast" : "strict", "fma", PyBool_FromLong(level->fuses),
                         "reorder", PyBool_FromLong(REORDER), "simd", level->name, "compiler", BUILT_BY,
                         "lowering", LOWERING, "parameters", (Py_ssize_t)PARAMETER_COUNT,
                         "weight_type", FLOAT32 || WIDENS ? "float32" : "float64",
                         "inputs", INPUT_COUNT, "input_type", INPUT_PIXELS ? "uint8" : real_elements.noun,
                         "outputs", sizes, "digest", DIGEST, "weights", WEIGHTS);
}

static PyMethodDef methods[] = {
    PREDICTION_METHODS,
    {"info", api_info, METH_NOARGS, DOC_INFO},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (check_first_load() < 0 || PyModule_AddStringConstant(module, "__version__", VERSION) < 0 ||
        choose_level() < 0 || make_locks() < 0)
        return -1;
#if WIDENS
    for (Py_ssize_t i = 0; i < DATA_COUNT; i++)
        data[i] = weights[i];
#endif
    loaded = 1;
    return 0;
}

#include "slots.h"

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = MODULE_NAME,
    .m_doc = sizeof(DESCRIPTION) > 1 ? "A trained micrograd model, compiled: " DESCRIPTION ".\n\n" DOC_USE
                                     : "A trained micrograd model, compiled.\n\n" DOC_USE,
    .m_size = 0,
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC MODULE_INIT(void);
PyMODINIT_FUNC MODULE_INIT(void) { return PyModuleDef_Init(&module_definition); }
