/*
 * A pool of threads for the duration of one long call. The thread that makes the call is worker 0.
 *
 * pool_run(job, argument) runs job(worker, argument) on each worker and returns when all are done. How the workers
 * share the work never affects a result: each number is computed by one of them, in the order in which a single thread
 * would compute it. So if the system grants fewer threads than requested, or none, only the speed changes.
 *
 * Between two jobs a worker spins for some microseconds, because the next job usually comes at once, and then sleeps.
 *
 * The pool belongs to model_lock: it starts, runs jobs and ends while that lock is held.
 */

#ifndef POOL_H
#define POOL_H

#include "model.h"

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

#ifdef _WIN32
/* Declared here, because <windows.h> defines INPUT and other names that are used here. */
__declspec(dllimport) int __stdcall SwitchToThread(void);
static void yield_cpu(void) { SwitchToThread(); }
#else
#include <sched.h>
static void yield_cpu(void) { sched_yield(); }
#endif

enum { SPINS = 4000 };

typedef void (*pool_job)(int worker, void *argument);

static struct {
    int size; /* workers, including the caller */
    pool_job job;
    void *argument;
    shared_int jobs;    /* how many have been handed out */
    shared_int working; /* workers that have not finished the last one */
    shared_int alive;   /* threads that have not ended */
    shared_int next;    /* for jobs that hand out pieces of work: the first piece not taken yet */
    shared_int asleep[MAX_WORKERS];
    PyThread_type_lock wake[MAX_WORKERS]; /* held, except while a sleeper is being woken */
} pool = {.size = 1};

static void spin_once(unsigned round)
{
    if (round > SPINS / 8)
        yield_cpu();
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
    else
        __builtin_ia32_pause();
#endif
}

/*
 * Waits for the job after number `done`. The thread that handed out that one may look for sleepers late and wake a
 * worker that has already done it, so a worker checks again after it wakes up.
 */
static void wait_for_job(int worker, unsigned done)
{
    for (;;) {
        for (unsigned round = 0; round < SPINS; round++) {
            if ((unsigned)shared_load(&pool.jobs) != done)
                return;
            spin_once(round);
        }
        shared_store(&pool.asleep[worker], 1);
        if ((unsigned)shared_load(&pool.jobs) != done && shared_swap(&pool.asleep[worker], 1, 0))
            return; /* the job came just now, and no one has begun to wake this worker */
        PyThread_acquire_lock(pool.wake[worker], WAIT_LOCK);
    }
}

static void worker_main(void *number)
{
    const int worker = (int)(intptr_t)number;
    for (unsigned done = 0;;) {
        wait_for_job(worker, done);
        done++;
        if (pool.job == NULL)
            break;
        pool.job(worker, pool.argument);
        shared_add(&pool.working, -1);
    }
    shared_add(&pool.alive, -1);
}

static void hand_out(pool_job job, void *argument)
{
    pool.job = job;
    pool.argument = argument;
    shared_store(&pool.next, 0);
    shared_store(&pool.working, pool.size - 1);
    shared_add(&pool.jobs, 1);
    for (int worker = 1; worker < pool.size; worker++)
        if (shared_swap(&pool.asleep[worker], 1, 0))
            PyThread_release_lock(pool.wake[worker]);
}

static void pool_run(pool_job job, void *argument)
{
    hand_out(job, argument);
    job(0, argument);
    for (unsigned round = 0; shared_load(&pool.working); round++)
        spin_once(round);
}

/* The next `size` items of the current job; each item is handed out once. */
static int take_piece(int size) { return shared_add(&pool.next, size); }

/* Starts the threads. The caller holds model_lock, so that no job is running. */
static void pool_begin(int size)
{
    size = size < MAX_WORKERS ? size : MAX_WORKERS;
    pool.size = 1;
    shared_store(&pool.jobs, 0);
    shared_store(&pool.alive, 0);
    for (int worker = 1; HAS_THREADS && worker < size; worker++) {
        shared_store(&pool.asleep[worker], 0);
        if (pool.wake[worker] == NULL) {
            pool.wake[worker] = PyThread_allocate_lock();
            if (pool.wake[worker] == NULL)
                return;
            PyThread_acquire_lock(pool.wake[worker], WAIT_LOCK);
        }
        shared_add(&pool.alive, 1);
        if (PyThread_start_new_thread(worker_main, (void *)(intptr_t)worker) == (unsigned long)-1) {
            shared_add(&pool.alive, -1);
            return;
        }
        pool.size++;
    }
}

/* Ends the threads. The caller holds model_lock. */
static void pool_end(void)
{
    if (pool.size == 1)
        return;
    hand_out(NULL, NULL);
    for (unsigned round = 0; shared_load(&pool.alive); round++)
        spin_once(round);
    pool.size = 1;
}

#ifndef _WIN32
/* For a forked child, which has none of the threads. */
static void pool_forget(void)
{
    pool.size = 1;
    for (int worker = 0; worker < MAX_WORKERS; worker++)
        pool.wake[worker] = NULL;
}
#endif

#endif
