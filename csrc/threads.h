/*
 * A team of threads for the length of one long call. The thread that makes the call is its first member.
 *
 * team_run(job) runs job(member) on each member and returns when all are done. How the members share the work never
 * shows in a result: each number is computed by one of them, in the order in which one thread alone would do it. So a
 * system that gives us fewer threads than were asked for, or none, changes the speed and nothing else.
 *
 * Between two jobs a member spins for some microseconds, as the next job mostly comes at once, and then sleeps.
 */

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
/* A compiler without atomics: every team has one member. */
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
/* Declared here: <windows.h> has names of its own for INPUT and others. */
__declspec(dllimport) int __stdcall SwitchToThread(void);
static void give_way(void) { SwitchToThread(); }
#else
#include <sched.h>
static void give_way(void) { sched_yield(); }
#endif

enum { SPINS = 4000 };

typedef void (*team_job)(int member);

static struct {
    int size;             /* members, with the caller */
    team_job job;
    shared_int jobs;      /* how many have been handed out */
    shared_int working;   /* members that are not done with the last one */
    shared_int alive;     /* threads that have not ended */
    shared_int next;      /* for jobs that hand out pieces of work: the first that nobody has taken */
    shared_int asleep[MAX_MEMBERS];
    PyThread_type_lock wake[MAX_MEMBERS]; /* held, but for the moment in which a sleeper is woken */
} team = {.size = 1};

static void spin_once(unsigned round)
{
    if (round > SPINS / 8)
        give_way();
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
    else
        __builtin_ia32_pause();
#endif
}

/*
 * Waits for the job after number `done`. Whoever handed out that one may be late to look for sleepers, and wake one that
 * has done it already: so a sleeper that wakes up looks again.
 */
static void wait_for_job(int member, unsigned done)
{
    for (;;) {
        for (unsigned round = 0; round < SPINS; round++) {
            if ((unsigned)shared_load(&team.jobs) != done)
                return;
            spin_once(round);
        }
        shared_store(&team.asleep[member], 1);
        if ((unsigned)shared_load(&team.jobs) != done && shared_swap(&team.asleep[member], 1, 0))
            return; /* it came just now, and nobody has begun to wake us */
        PyThread_acquire_lock(team.wake[member], WAIT_LOCK);
    }
}

static void member_main(void *number)
{
    const int member = (int)(intptr_t)number;
    for (unsigned done = 0;;) {
        wait_for_job(member, done);
        done++;
        if (team.job == NULL)
            break;
        team.job(member);
        shared_add(&team.working, -1);
    }
    shared_add(&team.alive, -1);
}

static void hand_out(team_job job)
{
    team.job = job;
    shared_store(&team.next, 0);
    shared_store(&team.working, team.size - 1);
    shared_add(&team.jobs, 1);
    for (int member = 1; member < team.size; member++)
        if (shared_swap(&team.asleep[member], 1, 0))
            PyThread_release_lock(team.wake[member]);
}

static void team_run(team_job job)
{
    hand_out(job);
    job(0);
    for (unsigned round = 0; shared_load(&team.working); round++)
        spin_once(round);
}

/* The next piece of `size` of the current job; each number is handed out once. */
static int take_piece(int size) { return shared_add(&team.next, size); }

/* Needs the GIL; the caller holds long_lock. */
static void team_begin(int size)
{
    size = size < MAX_MEMBERS ? size : MAX_MEMBERS;
    team.size = 1;
    shared_store(&team.jobs, 0);
    shared_store(&team.alive, 0);
    for (int member = 1; HAS_THREADS && member < size; member++) {
        shared_store(&team.asleep[member], 0);
        if (team.wake[member] == NULL) {
            team.wake[member] = PyThread_allocate_lock();
            if (team.wake[member] == NULL)
                return;
            PyThread_acquire_lock(team.wake[member], WAIT_LOCK);
        }
        shared_add(&team.alive, 1);
        if (PyThread_start_new_thread(member_main, (void *)(intptr_t)member) == (unsigned long)-1) {
            shared_add(&team.alive, -1);
            return;
        }
        team.size++;
    }
}

static void team_end(void)
{
    if (team.size == 1)
        return;
    hand_out(NULL);
    for (unsigned round = 0; shared_load(&team.alive); round++)
        spin_once(round);
    team.size = 1;
}

#ifndef _WIN32
/* In a child process, which has none of the threads. */
static void team_forget(void)
{
    team.size = 1;
    for (int member = 0; member < MAX_MEMBERS; member++)
        team.wake[member] = NULL;
}
#endif
