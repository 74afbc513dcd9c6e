/*
 * One lock for the model, so that calls from several threads run one after the other, with or without a GIL.
 *
 * No one makes a Python call, or waits for the GIL, while holding model_lock: a thread that holds the GIL and waits for
 * the lock would never get it. Long calls (train, evaluate, predict_batch) release it now and then, for signals and
 * `progress`, and hold `long_lock` throughout. Until they are done, other threads can read the model (parameters are
 * those of a whole step, gradients perhaps those of half a batch), and wait to change it or to begin a long call.
 *
 * A long call takes model_lock again immediately, and would always beat a thread that has to wake up and get the GIL
 * first. So a thread that has to wait holds `turn_lock` until it has model_lock, and a long call takes its turn before
 * each chunk. The wait for a turn is bounded, because the holder may be a thread that Python has stopped forever.
 */

#ifndef LOCK_H
#define LOCK_H

#include "model.h"
#include "pool.h"

static PyThread_type_lock model_lock;
static PyThread_type_lock turn_lock;
static PyThread_type_lock long_lock;
static PyThread_type_lock next_lock; /* what turn_lock is to model_lock, for long_lock */
static unsigned long long_thread;    /* the holder of long_lock; written under model_lock */
static int long_running;

enum { TURN_MICROSECONDS = 100000, SIGNAL_MICROSECONDS = 50000 };

static int take_turn(void) { return PyThread_acquire_lock_timed(turn_lock, TURN_MICROSECONDS, 0) == PY_LOCK_ACQUIRED; }

/* Needs the GIL. */
static void lock_to_read(void)
{
    if (PyThread_acquire_lock(model_lock, NOWAIT_LOCK))
        return;
    int turn;
    Py_BEGIN_ALLOW_THREADS
    turn = take_turn();
    Py_END_ALLOW_THREADS
    while (!PyThread_acquire_lock(model_lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(model_lock, WAIT_LOCK);
        PyThread_release_lock(model_lock);
        Py_END_ALLOW_THREADS
    }
    if (turn)
        PyThread_release_lock(turn_lock);
}

static void unlock(void) { PyThread_release_lock(model_lock); }

/* The same for one chunk of a long call, which has released the GIL. */
static void lock_chunk(void)
{
    const int turn = take_turn();
    PyThread_acquire_lock(model_lock, WAIT_LOCK);
    if (turn)
        PyThread_release_lock(turn_lock);
}

static int lock_timed(PyThread_type_lock lock, PY_TIMEOUT_T microseconds)
{
    int locked;
    Py_BEGIN_ALLOW_THREADS
    locked = PyThread_acquire_lock_timed(lock, microseconds, 0) == PY_LOCK_ACQUIRED;
    Py_END_ALLOW_THREADS
    return locked;
}

/* While Python shuts down, no other thread gets the GIL again: a long call in a daemon thread never ends. */
static int check_shutdown(void)
{
    PyObject *const function = PySys_GetObject("is_finalizing");
    PyObject *const answer = function == NULL ? NULL : PyObject_CallObject(function, NULL);
    const int finalizing = answer == Py_True;
    Py_XDECREF(answer);
    if (finalizing)
        PyErr_SetString(PyExc_RuntimeError, "Python shuts down while another thread uses the model, and will not go on");
    return finalizing || PyErr_Occurred() ? -1 : 0;
}

/*
 * Waits until no long call runs, then takes long_lock. A waiting thread is next in line: otherwise a thread that makes
 * one long call after another would always win. Fails if a signal handler raises, and while Python shuts down. Needs
 * the GIL.
 */
static int wait_for_long_calls(void)
{
    const int turn = PyThread_acquire_lock(next_lock, NOWAIT_LOCK) || lock_timed(next_lock, TURN_MICROSECONDS);
    int failed = 0;
    while (!failed && !PyThread_acquire_lock(long_lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        if (PyThread_acquire_lock_timed(long_lock, SIGNAL_MICROSECONDS, 0) == PY_LOCK_ACQUIRED)
            PyThread_release_lock(long_lock);
        Py_END_ALLOW_THREADS
        failed = PyErr_CheckSignals() < 0 || check_shutdown() < 0;
    }
    if (turn)
        PyThread_release_lock(next_lock);
    return failed ? -1 : 0;
}

/*
 * Returns 1 if long_lock is now held and the pool has `threads` workers; 0 if this thread held it already, and so may
 * only read; -1 if a signal handler has raised, or Python is shutting down.
 *
 * "This thread" need not be the callback of the other call: with greenlets a call that got 0 may outlive the call that
 * held the lock. So between two chunks a long call relies on nothing but its own memory.
 */
static int begin_long_call(int threads)
{
    lock_to_read();
    const int nested = long_running && long_thread == PyThread_get_thread_ident();
    unlock();
    if (nested)
        return 0;
    if (wait_for_long_calls() < 0)
        return -1;
    lock_to_read();
    long_running = 1;
    long_thread = PyThread_get_thread_ident();
    pool_begin(threads);
    unlock();
    return 1;
}

static void end_long_call(int held)
{
    if (held <= 0)
        return;
    lock_to_read();
    pool_end();
    long_running = 0;
    unlock();
    PyThread_release_lock(long_lock);
}

#if !FROZEN
/* For calls that change the model. Fails as wait_for_long_calls() does, and inside a long call of the same thread. */
static int lock_to_write(void)
{
    lock_to_read();
    while (long_running) {
        const int mine = long_thread == PyThread_get_thread_ident();
        unlock();
        if (mine) {
            PyErr_SetString(PyExc_RuntimeError, "the model cannot be changed from inside a progress callback");
            return -1;
        }
        if (wait_for_long_calls() < 0)
            return -1;
        PyThread_release_lock(long_lock);
        lock_to_read();
    }
    return 0;
}
#endif

#ifndef _WIN32
#include <pthread.h>

static void before_fork(void) { PyThread_acquire_lock(model_lock, WAIT_LOCK); }

static void after_fork_in_parent(void) { PyThread_release_lock(model_lock); }

/* The child has one thread. Locks that other threads held, or were about to take, no longer have an owner. */
static void after_fork_in_child(void)
{
    PyThread_type_lock fresh = PyThread_allocate_lock();
    if (fresh != NULL)
        turn_lock = fresh;
    fresh = PyThread_allocate_lock();
    if (fresh != NULL)
        next_lock = fresh;
    pool_forget();
    if (!long_running || long_thread != PyThread_get_thread_ident()) {
        long_running = 0;
        fresh = PyThread_allocate_lock();
        if (fresh != NULL)
            long_lock = fresh;
    }
    PyThread_release_lock(model_lock);
}
#endif

/* Runs once per process: an import that fails later may be retried. */
static int make_locks(void)
{
    if (model_lock != NULL)
        return 0;
    PyThread_type_lock const fresh = PyThread_allocate_lock();
    turn_lock = PyThread_allocate_lock();
    long_lock = PyThread_allocate_lock();
    next_lock = PyThread_allocate_lock();
    if (fresh == NULL || turn_lock == NULL || next_lock == NULL || long_lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
#ifndef _WIN32
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
        return -1;
    }
#endif
    model_lock = fresh;
    return 0;
}

static int loaded; /* the arrays are static, so a process has one model */

static int check_first_load(void)
{
    if (!loaded)
        return 0;
    PyErr_SetString(PyExc_ImportError, "'" MODULE_NAME "' is loaded already, in this or another interpreter, and its "
                                       "arrays are static: build a changed model under another name, or start a "
                                       "new process");
    return -1;
}

#endif
