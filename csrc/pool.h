/*
 * A pool of threads for one long call. The thread that makes the call is worker 0; the others are its helpers.
 *
 * pool_run(job, pieces, argument) runs job(worker, piece, argument) once for each piece, 0 <= piece < pieces. Each worker
 * begins with a share of its own, the same pieces every time, because their data may still be in its cache; then it takes
 * pieces from the shares of others. Who computes a piece never affects a result.
 *
 * The caller waits only for pieces that a helper has begun. If the system grants no helper, or runs something else in
 * its place, the caller does all the work. It also keeps account of what the helpers gain: time saved by the pieces they
 * complete, less time spent on waking them and waiting for them. When that goes wrong, because other processes need the
 * processors or because the jobs are too short, the caller works alone for a multiple of the time lost, then tries again.
 *
 * Whoever waits spins for some microseconds, because the next job usually comes at once, and then sleeps: spinning and
 * yielding on a busy machine would take the processor from the very thread that is waited for. A helper that has slept
 * for LINGER_MICROSECONDS ends. So calls in quick succession share their threads, and no call waits for a thread to end.
 *
 * The pool belongs to pool_lock: a call has it for a chunk. Whoever does not have it may run jobs alone, all at once.
 * Threads inherit the floating-point state of whoever starts them, so helpers set their own.
 */

#ifndef POOL_H
#define POOL_H

#include "model.h" /* first, for Python.h, which makes the C library declare functions of Linux */

#include "float_state.h"

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
typedef volatile long shared_int;
static int shared_load(shared_int *x) { return _InterlockedOr(x, 0); }
static int shared_add(shared_int *x, int amount) { return _InterlockedExchangeAdd(x, amount); }
static void shared_store(shared_int *x, int value) { _InterlockedExchange(x, value); }
static int shared_swap(shared_int *x, int expected, int value)
{
    return _InterlockedCompareExchange(x, value, expected) == expected;
}
#define HAS_THREADS 1
#elif defined(__GNUC__) || defined(__clang__)
#include <stdatomic.h>
typedef atomic_int shared_int;
static int shared_load(shared_int *x) { return atomic_load(x); }
static int shared_add(shared_int *x, int amount) { return atomic_fetch_add(x, amount); }
static void shared_store(shared_int *x, int value) { atomic_store(x, value); }
static int shared_swap(shared_int *x, int expected, int value)
{
    return atomic_compare_exchange_strong(x, &expected, value);
}
#define HAS_THREADS 1
#else
/* A compiler without atomics: every pool has one worker. */
typedef int shared_int;
static int shared_load(shared_int *x) { return *x; }
static int shared_add(shared_int *x, int amount) { return (*x += amount) - amount; }
static void shared_store(shared_int *x, int value) { *x = value; }
static int shared_swap(shared_int *x, int expected, int value)
{
    const int same = *x == expected;
    if (same)
        *x = value;
    return same;
}
#define HAS_THREADS 0
#endif

/* Seconds on a clock that only affects who does what. */
#ifdef _WIN32
/* Declared here, because <windows.h> defines INPUT and other names that are used here. */
__declspec(dllimport) int __stdcall QueryPerformanceCounter(int64_t *);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(int64_t *);
static double now(void)
{
    int64_t count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count / (double)frequency;
}
#else
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
#endif

#define SPIN_SECONDS 30e-6      /* longer than it takes to wake a sleeper */
#define MAX_CREDIT_SECONDS 1e-3 /* past gains that later losses may consume */
#define ALONE_FACTOR 16         /* at most one part in so many of the time is lost */

enum { LINGER_MICROSECONDS = 20000, PIECES_PER_WORKER = 4 };
enum { NO_THREAD, STARTED, PLACED };

typedef void (*pool_job)(int worker, int piece, void *argument);

static struct {
    shared_int size; /* workers, including the caller; at least 1 during a call */
    /* The job. It changes only while no piece is left or unfinished, so whoever has taken a piece may read it. */
    pool_job job;
    void *argument;
    int pieces;
    double credit;      /* seconds that helpers have saved */
    double alone_until; /* by now() */
    struct {
        shared_int left; /* pieces of the worker's share that no one has taken */
        shared_int asleep;
        shared_int alive;        /* whether the helper has a thread: NO_THREAD, STARTED or PLACED, after which it may end */
        PyThread_type_lock wake; /* held, except while the sleeper is being woken */
        char in_its_own_cache_lines[128];
    } workers[MAX_WORKERS];
    shared_int unfinished; /* pieces that are not known to be complete */
    char in_another_cache_line[64];
    shared_int begun, finished; /* how many jobs */
} pool;

#if !FROZEN
static int pool_workers(void)
{
    const int size = shared_load(&pool.size);
    return size > 1 ? size : 1;
}

/* Into how many pieces a job should be cut that has no natural ones. */
static int pool_pieces(void) { return pool_workers() > 1 ? pool_workers() * PIECES_PER_WORKER : 1; }
#endif

/*
 * Processors. Some kernels, above all in virtual machines, start and wake a thread on the processor of whoever does so, and
 * leave both there for milliseconds, as long as many calls take. So helpers keep off the processor of the caller.
 */
#if defined(__linux__) && HAS_THREADS
#include <pthread.h>
#include <sched.h>
#endif
#if HAS_THREADS && defined(CPU_SETSIZE) /* by Linux, if _GNU_SOURCE was defined in time */

static cpu_set_t others;          /* the processors that the caller may use, without the one that it is on */
static int caller_processor = -1; /* -1 if there are no others; both change only like the job */

/* For the caller, before a job. */
static void find_processors(void)
{
    const int processor = sched_getcpu();
    if (processor == caller_processor)
        return;
    caller_processor = -1;
    if (processor < 0 || processor >= CPU_SETSIZE || sched_getaffinity(0, sizeof(others), &others) != 0)
        return;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) > 0)
        caller_processor = processor;
}

/* For a helper that has just been started. */
static void place_helper(unsigned long thread)
{
    if (caller_processor >= 0)
        pthread_setaffinity_np((pthread_t)thread, sizeof(others), &others);
}

/* For a helper that has taken a piece. */
static void leave_caller(void)
{
    if (caller_processor >= 0 && sched_getcpu() == caller_processor)
        sched_setaffinity(0, sizeof(others), &others);
}
#else
static int caller_processor;
static void find_processors(void) {}
static void place_helper(unsigned long thread) { (void)thread; }
static void leave_caller(void) {}
#endif

static int at_most(int count, int most) { return count < most ? count : most; }

/* The first of `count` items that belong to a piece, or to a share. */
static int part_start(int count, int part, int parts) { return (int)((int64_t)count * part / parts); }

/* Waiting */

static void spin_once(void)
{
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#endif
}

/*
 * Waits until *counter is no longer `old`; returns 0 if that takes longer than a timeout, which -1 switches off. Whoever
 * changes the counter may look for sleepers late and wake a worker that has already seen the change, so a worker checks
 * again after it wakes up.
 */
static int wait_for_change(int worker, shared_int *counter, int old, PY_TIMEOUT_T microseconds)
{
    for (;;) {
        if (shared_load(counter) != old)
            return 1;
        for (const double start = now(); now() - start < SPIN_SECONDS; spin_once())
            if (shared_load(counter) != old)
                return 1;
        shared_store(&pool.workers[worker].asleep, 1);
        if (shared_load(counter) != old && shared_swap(&pool.workers[worker].asleep, 1, 0))
            return 1; /* it changed just now, and no one has begun to wake this worker */
        if (PyThread_acquire_lock_timed(pool.workers[worker].wake, microseconds, 0) == PY_LOCK_ACQUIRED)
            continue;
        if (shared_swap(&pool.workers[worker].asleep, 1, 0))
            return shared_load(counter) != old;
        PyThread_acquire_lock(pool.workers[worker].wake, WAIT_LOCK); /* someone is releasing it */
    }
}

/* Returns 1 if the worker was asleep. */
static int wake_up(int worker)
{
    if (!shared_swap(&pool.workers[worker].asleep, 1, 0))
        return 0;
    PyThread_release_lock(pool.workers[worker].wake);
    return 1;
}

/* Jobs */

/* Takes a piece from someone's share; returns -1 if there is none. */
static int take_from(int owner)
{
    int left;
    while ((left = shared_load(&pool.workers[owner].left)) > 0)
        if (shared_swap(&pool.workers[owner].left, left, left - 1))
            return part_start(pool.pieces, owner + 1, shared_load(&pool.size)) - left;
    return -1;
}

/* Runs pieces of the current job until all are taken; returns how many. */
static int run_pieces(int worker)
{
    const int size = shared_load(&pool.size);
    int count = 0;
    for (int i = 0; worker < size && i < size; i++)
        for (int piece; (piece = take_from((worker + i) % size)) >= 0; count++) {
            if (worker > 0 && count == 0)
                leave_caller();
            pool.job(worker, piece, pool.argument);
        }
    if (count && shared_add(&pool.unfinished, -count) == count) {
        shared_add(&pool.finished, 1);
        wake_up(0);
    }
    return count;
}

static void helper_main(void *number)
{
    const int worker = (int)(intptr_t)number;
    int begun;
    use_default_floats();
    do {
        begun = shared_load(&pool.begun);
        run_pieces(worker);
    } while (wait_for_change(worker, &pool.begun, begun, LINGER_MICROSECONDS) ||
             !shared_swap(&pool.workers[worker].alive, PLACED, NO_THREAD));
}

/* Returns how many helpers had to be woken. */
static int hand_out(pool_job job, int pieces, void *argument)
{
    const int size = shared_load(&pool.size);
    pool.job = job;
    pool.argument = argument;
    pool.pieces = pieces;
    shared_store(&pool.unfinished, pieces);
    for (int worker = 0; worker < size; worker++)
        shared_store(&pool.workers[worker].left, part_start(pieces, worker + 1, size) - part_start(pieces, worker, size));
    shared_add(&pool.begun, 1);
    int woken = 0;
    for (int worker = 1; worker < size; worker++)
        woken += wake_up(worker);
    return woken;
}

/* After a job: `own` of its pieces took the caller from `handed_out` to `done`. */
static void keep_account(int pieces, int own, double start, double handed_out, double done, double end)
{
    /* A helper that was woken in the caller's place may have done all of it: then nothing was saved or lost. */
    const double saved = own ? (done - handed_out) * (pieces - own) / own : handed_out - start;
    pool.credit += saved - (handed_out - start) - (end - done);
    if (pool.credit > MAX_CREDIT_SECONDS)
        pool.credit = MAX_CREDIT_SECONDS;
    if (pool.credit < 0) {
        pool.alone_until = end - pool.credit * ALONE_FACTOR;
        pool.credit = 0;
    }
}

static void run_alone(pool_job job, int pieces, void *argument)
{
    for (int piece = 0; piece < pieces; piece++)
        job(0, piece, argument);
}

static void pool_run(pool_job job, int pieces, void *argument)
{
    double start;
    if (pieces <= 1 || shared_load(&pool.size) <= 1 || (start = now()) < pool.alone_until) {
        run_alone(job, pieces, argument);
        return;
    }
    find_processors();
    const int finished = shared_load(&pool.finished);
    const double handed_out = hand_out(job, pieces, argument) ? now() : start;
    const int own = run_pieces(0);
    const double done = now();
    wait_for_change(0, &pool.finished, finished, -1);
    keep_account(pieces, own, start, handed_out, done, now());
}

/* Calls */

/* Whether the worker has a lock to sleep on. */
static int prepare_to_sleep(int worker)
{
    if (pool.workers[worker].wake != NULL)
        return 1;
    pool.workers[worker].wake = PyThread_allocate_lock();
    return pool.workers[worker].wake != NULL && PyThread_acquire_lock(pool.workers[worker].wake, WAIT_LOCK);
}

/*
 * Begins a call with helpers, if possible `size` - 1. One that is about to end may be taken for alive: then the call has
 * a helper less. The caller holds pool_lock, so that no job is running.
 */
static void pool_begin(int size)
{
    int worker = 1;
    size = at_most(size, MAX_WORKERS);
    caller_processor = -1; /* what it may use can have changed */
    if (size > 1)
        find_processors();
    for (; HAS_THREADS && worker < size && prepare_to_sleep(0) && prepare_to_sleep(worker); worker++) {
        if (!shared_swap(&pool.workers[worker].alive, NO_THREAD, STARTED))
            continue;
        const unsigned long thread = PyThread_start_new_thread(helper_main, (void *)(intptr_t)worker);
        if (thread == (unsigned long)-1) {
            shared_store(&pool.workers[worker].alive, NO_THREAD);
            break;
        }
        place_helper(thread);
        shared_store(&pool.workers[worker].alive, PLACED);
    }
    shared_store(&pool.size, worker);
}

/* Ends a call. The helpers linger. */
static void pool_end(void) { shared_store(&pool.size, 1); }

#ifndef _WIN32
/* For a forked child, which has none of the threads. A job may have been running in another one. */
static void pool_forget(void)
{
    shared_store(&pool.size, 1);
    for (int worker = 0; worker < MAX_WORKERS; worker++) {
        shared_store(&pool.workers[worker].left, 0);
        shared_store(&pool.workers[worker].alive, NO_THREAD);
        shared_store(&pool.workers[worker].asleep, 0);
        pool.workers[worker].wake = NULL;
    }
}
#endif

#endif
