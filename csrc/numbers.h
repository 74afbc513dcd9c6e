/* Arguments that only training takes: learning rates, seeds, and what is true or false. */

/* A finite float. */
static int parse_float(PyObject *object, const char *what, double *value)
{
    *value = PyFloat_AsDouble(object);
    if (*value == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s must be a number, not %R", what, (PyObject *)Py_TYPE(object));
        }
        else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%s must be finite, got an int beyond the range of float64", what);
        }
        return -1;
    }
    if (!is_finite(*value)) {
        PyErr_Format(PyExc_ValueError, "%s must be finite, got %S", what, object);
        return -1;
    }
    return 0;
}

static int parse_rate(PyObject *object, double *rate)
{
    if (parse_float(object, "learning_rate", rate) < 0)
        return -1;
    if (fabs(*rate) <= REAL_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "learning_rate must be finite in float32, got %S", object);
    return -1;
}

static int parse_bool(PyObject *object, const char *what)
{
    if (PyBool_Check(object))
        return object == Py_True;
    PyErr_Format(PyExc_TypeError, "%s must be True or False, not %R", what, (PyObject *)Py_TYPE(object));
    return -1;
}

/* None or a missing argument: no seed (0). Else 1 and the seed. */
static int parse_seed(PyObject *object, uint64_t *seed)
{
    if (object == NULL || object == Py_None)
        return 0;
    PyObject *const number = PyNumber_Index(object);
    if (number == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "seed must be an int or None, not %R", (PyObject *)Py_TYPE(object));
        }
        return -1;
    }
    *seed = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyObject *const got = text_of(number);
            if (got != NULL)
                PyErr_Format(PyExc_ValueError, "seed must be 0..2**64-1, got %U", got);
            Py_XDECREF(got);
        }
        Py_DECREF(number);
        return -1;
    }
    Py_DECREF(number);
    return 1;
}
