/*
 * save_weights and load_weights: parameters in a file of the safetensors format, which holds numbers and no code. It is
 * eight bytes with the length of a JSON header, little-endian; the header, which maps each name to dtype, shape and
 * place; then the numbers in C order, little-endian. Python's own modules read and write the header and the file.
 */

#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "arguments.h"
#include "buffers.h"
#include "lock.h"
#include "model.h"
#include "narrow.h"
#include "views.h"

enum { MAX_HEADER = 1 << 24 }; /* bytes: many times those of any model that a C compiler can compile */

/* module.function(...) */
static PyObject *call_python(const char *module, const char *function, PyObject *arguments)
{
    PyObject *const found = arguments == NULL ? NULL : PyImport_ImportModule(module);
    PyObject *const callable = found == NULL ? NULL : PyObject_GetAttrString(found, function);
    PyObject *const result = callable == NULL ? NULL : PyObject_CallObject(callable, arguments);
    Py_XDECREF(callable);
    Py_XDECREF(found);
    Py_XDECREF(arguments);
    return result;
}

/* Whether a call, whose result is dropped, worked. */
static int works(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL;
}

/* A path as a str. */
static PyObject *path_name(PyObject *path) { return call_python("os", "fsdecode", Py_BuildValue("(O)", path)); }

static void store_little_endian(char *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = ((const char *)from)[is_little_endian() ? i : size - 1 - i];
}

/* The header as bytes, of a multiple of eight so that the numbers are aligned. */
static PyObject *weights_header(void)
{
    PyObject *entries = PyDict_New();
    Py_ssize_t begin = 0;
    for (const struct tensor *t = tensors; entries != NULL && t < tensors + TENSOR_COUNT; t++) {
        const Py_ssize_t end = begin + t->size * (Py_ssize_t)sizeof(real);
        PyObject *const shape = shape_tuple(t->dimensions, t->shape);
        PyObject *const entry = shape == NULL ? NULL : Py_BuildValue("{s:s,s:N,s:(nn)}", "dtype", FLOAT32 ? "F32" : "F64",
                                                                     "shape", shape, "data_offsets", begin, end);
        entries = with_item(entries, t->name, entry);
        begin = end;
    }
    PyObject *const text = call_python("json", "dumps", entries == NULL ? NULL : Py_BuildValue("(N)", entries));
    PyObject *const header = text == NULL ? NULL : PyUnicode_AsUTF8String(text);
    Py_XDECREF(text);
    if (header == NULL)
        return NULL;
    PyObject *const padded = PyObject_CallMethod(header, "ljust", "n", (PyBytes_Size(header) + 7) / 8 * 8);
    Py_DECREF(header);
    return padded;
}

/* The whole file as bytes, of one moment between two changes of the model. */
static PyObject *weights_content(void)
{
    PyObject *const header = weights_header();
    if (header == NULL)
        return NULL;
    const uint64_t length = (uint64_t)PyBytes_Size(header);
    PyObject *const content =
        PyBytes_FromStringAndSize(NULL, 8 + (Py_ssize_t)length + PARAMETER_COUNT * (Py_ssize_t)sizeof(real));
    if (content != NULL) {
        char *to = PyBytes_AsString(content);
        store_little_endian(to, &length, sizeof(length));
        memcpy(to + 8, PyBytes_AsString(header), (size_t)length);
        to += 8 + length;
        lock_to_read();
        for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++) {
            Py_ssize_t at[MAX_DIMENSIONS] = {0};
            for (Py_ssize_t i = 0; i < t->size; i++, to += sizeof(real))
                store_little_endian(to, &data[next_place(t, at)], sizeof(real));
        }
        unlock();
    }
    Py_DECREF(header);
    return content;
}

/* os.path.kind(name): 1, 0, or -1 if it raises. */
static int path_is(const char *kind, PyObject *name)
{
    PyObject *const found = call_python("os.path", kind, Py_BuildValue("(O)", name));
    Py_XDECREF(found);
    return found == NULL ? -1 : found == Py_True;
}

/* Fails for a name of something else, as a pipe, which may have no end, or a device, which no file replaces. */
static int expect_file(PyObject *name, const char *or_else)
{
    int is_one = path_is("exists", name);
    if (is_one > 0)
        is_one = path_is("isfile", name);
    else if (is_one == 0)
        return 0;
    if (is_one == 0)
        is_one = path_is(or_else, name);
    if (is_one == 0)
        PyErr_Format(PyExc_ValueError, "%U is not a file", name);
    return is_one > 0 ? 0 : -1;
}

/* Whatever happens, the name belongs to a whole file: the old one or the new one, which has the old one's permissions. */
static int write_file(PyObject *name, PyObject *content)
{
    PyObject *const number = expect_file(name, "isdir") < 0 ? NULL : call_python("os", "getpid", PyTuple_New(0));
    PyObject *const other =
        number == NULL ? NULL : PyUnicode_FromFormat("%U.%S-%lu.tmp", name, number, PyThread_get_thread_ident());
    PyObject *file = other == NULL ? NULL : call_python("io", "open", Py_BuildValue("(Os)", other, "xb"));
    if (file == NULL && other != NULL && PyErr_ExceptionMatches(PyExc_FileExistsError)) { /* of a process that died */
        PyErr_Clear();
        if (works(call_python("os", "unlink", Py_BuildValue("(O)", other))))
            file = call_python("io", "open", Py_BuildValue("(Os)", other, "xb"));
    }
    int failed = file == NULL;
    if (!failed) {
        failed = !works(PyObject_CallMethod(file, "write", "O", content)) ||
                 !works(PyObject_CallMethod(file, "flush", NULL)) ||
                 !works(call_python("os", "fsync", Py_BuildValue("(N)", PyObject_CallMethod(file, "fileno", NULL))));
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        const int closed = works(PyObject_CallMethod(file, "close", NULL));
        if (failed) {
            PyErr_Clear();
            PyErr_Restore(type, value, traceback);
        }
        const int is_old = failed || !closed ? -1 : path_is("isfile", name);
        failed = is_old < 0 || (is_old && !works(call_python("shutil", "copymode", Py_BuildValue("(OO)", name, other)))) ||
                 !works(call_python("os", "replace", Py_BuildValue("(OO)", other, name)));
        if (failed) {
            PyErr_Fetch(&type, &value, &traceback);
            if (!works(call_python("os", "unlink", Py_BuildValue("(O)", other))))
                PyErr_Clear();
            PyErr_Restore(type, value, traceback);
        }
    }
    Py_XDECREF(file);
    Py_XDECREF(other);
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

static PyObject *api_save_weights(PyObject *module, PyObject *path)
{
    PyObject *name = expect_usable(module) < 0 ? NULL : path_name(path);
    const int is_link = name == NULL ? 0 : path_is("islink", name); /* which stays one */
    if (is_link > 0)
        name = call_python("os.path", "realpath", Py_BuildValue("(N)", name));
    PyObject *const content = name == NULL || is_link < 0 ? NULL : weights_content();
    const int failed = content == NULL || write_file(name, content) < 0;
    Py_XDECREF(content);
    Py_XDECREF(name);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* At most as much of a file as a file of this model has. */
static PyObject *read_file(PyObject *name)
{
    PyObject *const file =
        expect_file(name, "isfile") < 0 ? NULL : call_python("io", "open", Py_BuildValue("(Os)", name, "rb"));
    const Py_ssize_t most = 8 + MAX_HEADER + PARAMETER_COUNT * (Py_ssize_t)sizeof(double) + 1;
    PyObject *content = file == NULL ? NULL : PyObject_CallMethod(file, "read", "n", most);
    if (file != NULL && content != NULL && !works(PyObject_CallMethod(file, "close", NULL)))
        Py_CLEAR(content);
    Py_XDECREF(file);
    return content;
}

/* The types of numbers, and their formats for Python's arrays, which have none for those of two bytes. */
static const struct {
    const char *name, *format;
} dtypes[] = {{"F64", "d"}, {"F32", "f"}, {"F16", "16"}, {"BF16", "b16"}};

/* (begin, end, name, format, shape) of an entry of the header. */
static PyObject *checked_entry(PyObject *name, PyObject *entry)
{
    Py_ssize_t begin, end;
    PyObject *result = NULL;
    PyObject *const dtype = PyMapping_GetItemString(entry, "dtype");
    PyObject *const shape = dtype == NULL ? NULL : PyMapping_GetItemString(entry, "shape");
    PyObject *const sizes = shape == NULL ? NULL : PySequence_Tuple(shape);
    PyObject *const offsets = sizes == NULL ? NULL : PyMapping_GetItemString(entry, "data_offsets");
    PyObject *const pair = offsets == NULL ? NULL : PySequence_Tuple(offsets);
    const char *format = NULL;
    if (pair != NULL && PyUnicode_Check(dtype))
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
            if (PyUnicode_CompareWithASCIIString(dtype, dtypes[i].name) == 0)
                format = dtypes[i].format;
    if (pair != NULL && format == NULL)
        PyErr_Format(PyExc_ValueError, "%R has the dtype %R, expected F64, F32, F16 or BF16", name, dtype);
    else if (pair != NULL && PyArg_ParseTuple(pair, "nn", &begin, &end))
        result = Py_BuildValue("nnOsO", begin, end, name, format, sizes);
    Py_XDECREF(pair);
    Py_XDECREF(offsets);
    Py_XDECREF(sizes);
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    return result;
}

/* All entries but the metadata, in the order of their places. */
static PyObject *sorted_entries(PyObject *header)
{
    PyObject *const items = PyDict_Check(header) ? PyDict_Items(header) : NULL;
    PyObject *const entries = items == NULL ? NULL : PyList_New(0);
    int failed = entries == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(items); i++) {
        PyObject *const item = PyList_GetItem(items, i), *const name = PyTuple_GetItem(item, 0);
        if (PyUnicode_CompareWithASCIIString(name, "__metadata__") == 0)
            continue;
        PyObject *const entry = checked_entry(name, PyTuple_GetItem(item, 1));
        failed = entry == NULL || PyList_Append(entries, entry) < 0;
        Py_XDECREF(entry);
    }
    Py_XDECREF(items);
    if (!failed && PyList_Sort(entries) == 0)
        return entries;
    Py_XDECREF(entries);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "its header is no JSON object");
    return NULL;
}

/* Numbers of two bytes as those of floats. */
static PyObject *widened_bytes(const char *from, Py_ssize_t size, int is_bfloat)
{
    PyObject *const bytes = PyBytes_FromStringAndSize(NULL, size * 2);
    float *const to = bytes == NULL ? NULL : (float *)(void *)PyBytes_AsString(bytes);
    for (Py_ssize_t i = 0; to != NULL && i < size / 2; i++) {
        const uint16_t half = (uint16_t)((unsigned char)from[2 * i] | (unsigned char)from[2 * i + 1] << 8);
        const float x = is_bfloat ? widen_bfloat16(half) : any_float16(half);
        memcpy(&to[i], &x, sizeof(x));
    }
    return bytes;
}

/* Numbers of a file as a memoryview. Those of two bytes are widened. */
static PyObject *stored_tensor(const char *from, Py_ssize_t size, const char *format, PyObject *shape)
{
    const int is_half = format[strlen(format) - 1] == '6';
    if (is_half && size % 2)
        return PyErr_Format(PyExc_ValueError, "%zd bytes for numbers of two", size);
    PyObject *const bytes = is_half ? widened_bytes(from, size, *format == 'b') : PyBytes_FromStringAndSize(from, size);
    if (is_half)
        format = "f";
    PyObject *array = call_python("array", "array", bytes == NULL ? NULL : Py_BuildValue("(sN)", format, bytes));
    if (array != NULL && !is_little_endian() && !is_half && !works(PyObject_CallMethod(array, "byteswap", NULL)))
        Py_CLEAR(array);
    PyObject *const pair = array == NULL ? NULL : Py_BuildValue("NO", array, shape);
    PyObject *const tensor = pair == NULL ? NULL : restored_tensor(pair);
    Py_XDECREF(pair);
    return tensor;
}

/* {name: memoryview} of a file's content. */
static PyObject *parsed_weights(PyObject *content)
{
    const unsigned char *const from = (unsigned char *)PyBytes_AsString(content);
    const Py_ssize_t size = PyBytes_Size(content);
    uint64_t length = 0;
    for (int i = 0; i < 8 && size >= 8; i++)
        length |= (uint64_t)from[i] << 8 * i;
    if (size < 8 || length > MAX_HEADER || length > (uint64_t)size - 8)
        return PyErr_Format(PyExc_ValueError, "%zd bytes with a header of %llu", size, (unsigned long long)length);
    const char *const numbers = (const char *)from + 8 + length;
    const Py_ssize_t bytes = size - 8 - (Py_ssize_t)length;
    PyObject *const text = PyUnicode_DecodeUTF8((const char *)from + 8, (Py_ssize_t)length, NULL);
    PyObject *const header = call_python("json", "loads", text == NULL ? NULL : Py_BuildValue("(N)", text));
    PyObject *const entries = header == NULL ? NULL : sorted_entries(header);
    PyObject *const found = entries == NULL ? NULL : PyDict_New();
    Py_XDECREF(header);
    Py_ssize_t place = 0;
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(entries); i++) {
        Py_ssize_t begin, end;
        PyObject *name, *shape;
        const char *format;
        failed = !PyArg_ParseTuple(PyList_GetItem(entries, i), "nnOsO", &begin, &end, &name, &format, &shape);
        if (!failed && (begin != place || end < begin || end > bytes)) {
            PyErr_Format(PyExc_ValueError, "%R is not where the header says", name);
            failed = 1;
        }
        PyObject *const tensor = failed ? NULL : stored_tensor(numbers + begin, end - begin, format, shape);
        failed = tensor == NULL || PyDict_SetItem(found, name, tensor) < 0;
        Py_XDECREF(tensor);
        place = end;
    }
    Py_XDECREF(entries);
    if (!failed && place != bytes) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of numbers, expected %zd", bytes, place);
        failed = 1;
    }
    if (!failed)
        return found;
    Py_XDECREF(found);
    return NULL;
}

static PyObject *api_load_weights(PyObject *module, PyObject *path)
{
    PyObject *const name = expect_usable(module) < 0 ? NULL : path_name(path);
    PyObject *const content = name == NULL ? NULL : read_file(name);
    PyObject *const found = content == NULL ? NULL : parsed_weights(content);
    PyObject *const result = found == NULL ? NULL : api_load_state_dict(module, found);
    if (content != NULL && found == NULL && !PyErr_ExceptionMatches(PyExc_MemoryError) &&
        PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyErr_Format(PyExc_ValueError, "%U is not a whole safetensors file: %S", name, value);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(found);
    Py_XDECREF(content);
    Py_XDECREF(name);
    return result;
}

#endif
