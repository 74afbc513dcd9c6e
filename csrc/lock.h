/*
 * One lock for the model, so that calls from several threads happen one after the other, also without a GIL.
 *
 * Nobody makes a Python call, or waits for the GIL, while holding model_lock: whoever waits for it with the GIL in
 * hand would never get it. Long calls (train, evaluate, predict_batch) let go of it now and then, for signals and
 * `progress`, and hold `long_lock` throughout. Until they are done, other threads can read the model (it is as of a
 * whole step), and wait to change it.
 */

static PyThread_type_lock model_lock;
static PyThread_type_lock long_lock;
static unsigned long long_thread; /* who holds long_lock; written under model_lock */
static int long_running;

/* Needs the GIL. */
static void wait_for(PyThread_type_lock lock)
{
    while (!PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(lock, WAIT_LOCK);
        PyThread_release_lock(lock);
        Py_END_ALLOW_THREADS
    }
}

static void lock_to_read(void) { wait_for(model_lock); }

static void unlock(void) { PyThread_release_lock(model_lock); }

/* Fails only inside the `progress` of a long call of this very thread. */
static int lock_to_write(void)
{
    wait_for(model_lock);
    while (long_running) {
        const int mine = long_thread == PyThread_get_thread_ident();
        unlock();
        if (mine) {
            PyErr_SetString(PyExc_RuntimeError, "the model cannot be changed from inside a progress callback");
            return -1;
        }
        wait_for(long_lock);
        PyThread_release_lock(long_lock);
        wait_for(model_lock);
    }
    return 0;
}

/* 1: long_lock is held. 0: this thread holds it already, and may only read. */
static int begin_long_call(void)
{
    wait_for(model_lock);
    const int nested = long_running && long_thread == PyThread_get_thread_ident();
    unlock();
    if (nested)
        return 0;
    wait_for(long_lock);
    wait_for(model_lock);
    long_running = 1;
    long_thread = PyThread_get_thread_ident();
    unlock();
    return 1;
}

static void end_long_call(int held)
{
    if (!held)
        return;
    wait_for(model_lock);
    long_running = 0;
    unlock();
    PyThread_release_lock(long_lock);
}

#ifndef _WIN32
#include <pthread.h>

static void before_fork(void) { PyThread_acquire_lock(model_lock, WAIT_LOCK); }

static void after_fork_in_parent(void) { PyThread_release_lock(model_lock); }

/* The thread of a long call does not exist in the child, unless it is the one that forked. */
static void after_fork_in_child(void)
{
    if (long_running && long_thread != PyThread_get_thread_ident()) {
        long_running = 0;
        PyThread_type_lock fresh = PyThread_allocate_lock();
        if (fresh != NULL)
            long_lock = fresh;
    }
    PyThread_release_lock(model_lock);
}
#endif

static int make_locks(void)
{
    model_lock = PyThread_allocate_lock();
    long_lock = PyThread_allocate_lock();
    if (model_lock == NULL || long_lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
#ifndef _WIN32
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
        return -1;
    }
#endif
    return 0;
}
