/* Instead of Python's header, for programs without Python: what csrc/ needs to train on one thread. */

#ifndef PLAIN_PYTHON_H
#define PLAIN_PYTHON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef ptrdiff_t Py_ssize_t;

#define Py_UNUSED(name) unused_##name __attribute__((unused))
#define PyErr_Format(kind, ...) fprintf(stderr, __VA_ARGS__)

/* No thread starts, so no lock is ever taken. */
enum { NOWAIT_LOCK, WAIT_LOCK, PY_LOCK_ACQUIRED = 1 };
typedef int64_t PY_TIMEOUT_T;
typedef void *PyThread_type_lock;
#define PyThread_allocate_lock() NULL
#define PyThread_acquire_lock(lock, mode) ((void)(lock), 1)
#define PyThread_acquire_lock_timed(lock, microseconds, interrupted) ((void)(lock), (void)(microseconds), PY_LOCK_ACQUIRED)
#define PyThread_release_lock(lock) ((void)(lock))
#define PyThread_start_new_thread(function, argument) ((void)(function), (void)(argument), (unsigned long)-1)

#endif
