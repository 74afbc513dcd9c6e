/*
 * Which calls run at the same time, with or without a GIL.
 *
 * Everything that changes the model, and every short look at it, holds model_lock. No one makes a Python call, or waits
 * for the GIL, while holding it: a thread that holds the GIL and waits for the lock would never get it. Whoever holds it
 * computes in the default floating-point state.
 *
 * A long call (train, evaluate, predict_batch) lets signals and `progress` in between two chunks. It is in the list
 * `calls` from its beginning to its end. One that writes (train) is alone, and holds model_lock during a chunk. Those
 * that only read run side by side, and compute without model_lock: while they are in the list, no one writes. So do
 * predictions of one image, if the model is so large that it pays. Other threads wait until they may change the model or
 * begin a long call; predictions and looks at the model go on between the chunks of a train().
 *
 * A call begun inside another one's `progress` is a call of the same thread, which would wait forever for itself. If it
 * only reads, it joins, and sees the model between two chunks; else it is refused. With greenlets it may outlive the
 * other call, or see it go on: a call that reads stops with an error as soon as the model is not the one that it began
 * with. All that a call needs between two chunks is its own.
 *
 * A train() takes model_lock again immediately, and would always beat a thread that has to wake up and get the GIL first.
 * So a thread that has to wait holds `turn_lock` until it has model_lock, and a chunk takes its turn before. The wait for
 * a turn is bounded, because the holder may be a thread that Python has stopped forever. `next_lock` is the same for long
 * calls, and no one joins those that read while someone waits to write.
 *
 * A FROZEN model cannot change, and has none of these locks.
 */

#ifndef LOCK_H
#define LOCK_H

#include "float_state.h"
#include "model.h"
#include "pool.h"

/* Whether predictions of single images run side by side. From ten microseconds on it pays to release the GIL. */
#ifndef PARALLEL_OPERATIONS
#ifdef Py_GIL_DISABLED
#define PARALLEL_OPERATIONS 10000
#else
#define PARALLEL_OPERATIONS 150000
#endif
#endif
#define READS_IN_PARALLEL (OPERATIONS / (FROZEN ? 1 : 3) >= PARALLEL_OPERATIONS)

/* Memory to compute images in */

static PyThread_type_lock inference_locks[MAX_WORKERS];

/* Takes a place in inference[], that of this worker if it is free. Its holder does not wait for the GIL. */
static int take_inference(int worker)
{
    for (int i = 0; i < MAX_WORKERS; i++) {
        const int place = (worker + i) % MAX_WORKERS;
        if (PyThread_acquire_lock(inference_locks[place], NOWAIT_LOCK))
            return place;
    }
    PyThread_acquire_lock(inference_locks[worker], WAIT_LOCK);
    return worker;
}

static void release_inference(int place) { PyThread_release_lock(inference_locks[place]); }

static PyThread_type_lock pool_lock; /* whose holder runs jobs on the pool; the others run theirs alone */

/* Returns whether the caller has the pool now. */
static int take_pool(int threads)
{
    if (threads == 1 || !PyThread_acquire_lock(pool_lock, NOWAIT_LOCK))
        return 0;
    pool_begin(threads);
    return 1;
}

static void release_pool(int taken)
{
    if (!taken)
        return;
    pool_end();
    PyThread_release_lock(pool_lock);
}

/* Long calls */

enum call_kind { READS, WRITES };

/* Not on a stack, which a greenlet leaves to others. */
struct call {
    struct call *next;
    unsigned long thread;
    enum call_kind kind;
    unsigned long version; /* of the model, when it began */
};

#if FROZEN

static struct call any_call;

static struct call *begin_call(enum call_kind Py_UNUSED(kind)) { return &any_call; }

static void end_call(struct call *Py_UNUSED(call)) {}

#else

static PyThread_type_lock model_lock;
static PyThread_type_lock turn_lock;
static PyThread_type_lock next_lock;
static PyThread_type_lock busy_lock; /* held while calls or reads are unfinished: whoever waits for them waits for it */

/* All of these belong to model_lock. */
static float_state callers_floats;
static struct call *calls;
static int unfinished;        /* calls, and predictions that run without model_lock */
static int writing;           /* whether one of the calls writes */
static int waiting;           /* threads that wait until they may begin something */
static int writers_waiting;   /* those that wait until nothing is unfinished */
static unsigned long version; /* of the model: another one in each chunk of train() */

enum { TURN_MICROSECONDS = 100000, SIGNAL_MICROSECONDS = 50000 };

static int take_turn(void) { return PyThread_acquire_lock_timed(turn_lock, TURN_MICROSECONDS, 0) == PY_LOCK_ACQUIRED; }

/* Needs the GIL. */
static void lock_to_read(void)
{
    if (!PyThread_acquire_lock(model_lock, NOWAIT_LOCK)) {
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
    callers_floats = use_default_floats();
}

static void unlock(void)
{
    const float_state floats = callers_floats;
    PyThread_release_lock(model_lock);
    restore_floats(floats);
}

/* The same for one chunk of a long call, which has released the GIL. */
static void lock_chunk(void)
{
    const int turn = take_turn();
    PyThread_acquire_lock(model_lock, WAIT_LOCK);
    if (turn)
        PyThread_release_lock(turn_lock);
    callers_floats = use_default_floats();
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

/* The caller of these two holds model_lock. While nothing is unfinished, others hold busy_lock for a moment at most, and
 * do not wait for the GIL. */
static void begin_unfinished(void)
{
    if (unfinished++ == 0)
        PyThread_acquire_lock(busy_lock, WAIT_LOCK);
}

static void end_unfinished(void)
{
    if (--unfinished == 0)
        PyThread_release_lock(busy_lock);
}

static int may_begin(enum call_kind kind) { return kind == WRITES ? !unfinished : !writing && !writers_waiting; }

/*
 * Waits until something of this kind may begin, and returns with model_lock. A waiting thread is next in line: otherwise
 * a thread that makes one long call after another would always win. Fails, without the lock, if a signal handler raises,
 * and while Python shuts down. Needs the GIL.
 */
static int wait_to_begin(enum call_kind kind)
{
    const int turn = PyThread_acquire_lock(next_lock, NOWAIT_LOCK) || lock_timed(next_lock, TURN_MICROSECONDS);
    int failed = 0;
    lock_to_read();
    waiting++;
    writers_waiting += kind == WRITES;
    while (!failed && !may_begin(kind)) {
        unlock();
        Py_BEGIN_ALLOW_THREADS
        if (PyThread_acquire_lock_timed(busy_lock, SIGNAL_MICROSECONDS, 0) == PY_LOCK_ACQUIRED)
            PyThread_release_lock(busy_lock);
        Py_END_ALLOW_THREADS
        lock_to_read();
        writers_waiting -= kind == WRITES; /* a signal handler may read the model: it must not wait for its own thread */
        unlock();
        failed = PyErr_CheckSignals() < 0 || check_shutdown() < 0;
        lock_to_read();
        writers_waiting += kind == WRITES;
    }
    waiting--;
    writers_waiting -= kind == WRITES;
    if (turn)
        PyThread_release_lock(next_lock);
    if (failed)
        unlock();
    return failed ? -1 : 0;
}

/* Whether a long call of this thread is unfinished. */
static int is_inside_call(void)
{
    const struct call *call = calls;
    while (call != NULL && call->thread != PyThread_get_thread_ident())
        call = call->next;
    return call != NULL;
}

/* For what changes the model. Fails as wait_to_begin() does, and inside a long call of the same thread. */
static int lock_to_write(void)
{
    lock_to_read();
    if (!unfinished && !waiting)
        return 0;
    const int inside = is_inside_call();
    unlock();
    if (!inside)
        return wait_to_begin(WRITES);
    PyErr_SetString(PyExc_RuntimeError, "the model cannot be changed from inside a progress callback");
    return -1;
}

/* The same for calls that read, which join others. */
static int lock_to_begin_reading(void)
{
    lock_to_read();
    if (may_begin(READS) || is_inside_call())
        return 0;
    unlock();
    return wait_to_begin(READS);
}

/* Returns NULL with an exception if the call cannot begin. */
static struct call *begin_call(enum call_kind kind)
{
    struct call *const call = PyMem_Malloc(sizeof(*call));
    if (call == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if ((kind == WRITES ? lock_to_write() : lock_to_begin_reading()) < 0) {
        PyMem_Free(call);
        return NULL;
    }
    *call = (struct call){calls, PyThread_get_thread_ident(), kind, version};
    calls = call;
    writing += kind == WRITES;
    begin_unfinished();
    unlock();
    return call;
}

static void end_call(struct call *call)
{
    if (call == NULL)
        return;
    lock_to_read();
    struct call **place = &calls;
    while (*place != call)
        place = &(*place)->next;
    *place = call->next;
    writing -= call->kind == WRITES;
    end_unfinished();
    unlock();
    PyMem_Free(call);
}
#endif

#ifndef _WIN32
#include <pthread.h>

/* Called through data: in code, tcc has 32 bits for the distance to a C library that may be further away. */
static int (*const volatile at_fork)(void (*)(void), void (*)(void), void (*)(void)) = pthread_atfork;

static void renew(PyThread_type_lock *lock)
{
    PyThread_type_lock const fresh = PyThread_allocate_lock();
    if (fresh != NULL)
        *lock = fresh;
}

#if !FROZEN
static void before_fork(void) { PyThread_acquire_lock(model_lock, WAIT_LOCK); }

static void after_fork_in_parent(void) { PyThread_release_lock(model_lock); }

/* Only the calls of this thread go on. */
static void forget_calls_of_other_threads(void)
{
    unfinished = writing = waiting = writers_waiting = 0;
    for (struct call **place = &calls; *place != NULL;)
        if ((*place)->thread == PyThread_get_thread_ident()) {
            unfinished++;
            writing += (*place)->kind == WRITES;
            place = &(*place)->next;
        }
        else
            *place = (*place)->next;
}
#endif

/* The child has one thread. Locks that other threads held, or were about to take, no longer have an owner. */
static void after_fork_in_child(void)
{
    pool_forget();
    renew(&pool_lock);
    for (int place = 0; place < MAX_WORKERS; place++)
        renew(&inference_locks[place]);
#if !FROZEN
    forget_calls_of_other_threads();
    renew(&turn_lock);
    renew(&next_lock);
    renew(&busy_lock);
    if (unfinished)
        PyThread_acquire_lock(busy_lock, NOWAIT_LOCK);
    PyThread_release_lock(model_lock);
#endif
}
#endif

/* Runs once per process: an import that fails later may be retried. */
static int make_locks(void)
{
    static int made;
    if (made)
        return 0;
    int failed = (pool_lock = PyThread_allocate_lock()) == NULL;
    for (int place = 0; place < MAX_WORKERS; place++)
        failed |= (inference_locks[place] = PyThread_allocate_lock()) == NULL;
#if !FROZEN
    PyThread_type_lock *const locks[] = {&model_lock, &turn_lock, &next_lock, &busy_lock};
    for (size_t i = 0; i < sizeof(locks) / sizeof(*locks); i++)
        failed |= (*locks[i] = PyThread_allocate_lock()) == NULL;
#endif
    if (failed) {
        PyErr_NoMemory();
        return -1;
    }
#ifndef _WIN32
#if FROZEN
    failed = at_fork(NULL, NULL, after_fork_in_child);
#else
    failed = at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
#endif
    if (failed) {
        PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
        return -1;
    }
#endif
    made = 1;
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
