/* A pool of threads for regions of some 10 microseconds, hundreds per step.
 *
 * A region is a count of chunks. Any thread that is awake takes the next chunk, and the caller waits only for chunks
 * that were taken: a thread that is not scheduled costs at most the chunk it holds. Between regions a thread looks for
 * work for a short while, then sleeps. One caller at a time is served; others run their chunks themselves.
 */
#define _GNU_SOURCE
#include "kernels.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    MAX_THREADS = 64,
    YIELD_AFTER = 4000,
    PAUSES = 16, /* between two looks at the clock */
};

static struct {
    /* High half: number of the region. Low half: chunks not taken yet. A chunk is taken by compare-and-swap, so a
     * thread that read the fields below for an older region cannot take one of a newer region. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int done;
    _Alignas(64) _Atomic uint32_t region; /* threads sleep on this */
    _Atomic int sleepers;
    _Atomic(chunk_fn) fn;
    _Atomic(void *) job;
    _Atomic int count;
} pool;

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
static int num_threads = 1; /* the caller included */
static int num_started = 1;
static int64_t spin_ns = 14000;

/* Some ten nanoseconds in which the core's other work goes on. */
INLINE void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleeps unless the region is no longer the one seen; wakes all that sleep. */
#if defined(__linux__)
static void sleep_in(uint32_t seen) { syscall(SYS_futex, &pool.region, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); }
static void wake_all(void) { syscall(SYS_futex, &pool.region, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0); }
#else
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t alarm_bell = PTHREAD_COND_INITIALIZER;

static void sleep_in(uint32_t seen) {
    pthread_mutex_lock(&bed);
    while (atomic_load(&pool.region) == seen) pthread_cond_wait(&alarm_bell, &bed);
    pthread_mutex_unlock(&bed);
}

static void wake_all(void) {
    pthread_mutex_lock(&bed);
    pthread_cond_broadcast(&alarm_bell);
    pthread_mutex_unlock(&bed);
}
#endif

static void take_chunks(void) {
    uint64_t ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    while ((uint32_t)ticket != 0) {
        chunk_fn fn = atomic_load_explicit(&pool.fn, memory_order_relaxed);
        void *job = atomic_load_explicit(&pool.job, memory_order_relaxed);
        int count = atomic_load_explicit(&pool.count, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&pool.ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            fn(job, count - (int)(uint32_t)ticket);
            atomic_fetch_add_explicit(&pool.done, 1, memory_order_release);
            ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire);
        }
    }
}

static int is_new_region_soon(uint32_t seen) {
    int64_t end = now_ns() + spin_ns;
    do {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&pool.region, memory_order_acquire) != seen) return 1;
            pause_core();
        }
    } while (now_ns() < end);
    return 0;
}

static void *serve(void *unused) {
    (void)unused;
    for (;;) {
        uint32_t seen = atomic_load(&pool.region);
        take_chunks();
        if (is_new_region_soon(seen)) continue;
        atomic_fetch_add(&pool.sleepers, 1);
        sleep_in(seen);
        atomic_fetch_sub(&pool.sleepers, 1);
    }
    return NULL;
}

/* A forked child has none of the threads. */
static void forget_threads(void) {
    num_started = 1;
    atomic_store(&pool.ticket, 0);
    atomic_store(&pool.sleepers, 0);
    pthread_mutex_init(&owner, NULL);
}

static void start_threads(void) {
    static int is_registered = 0;
    if (!is_registered) is_registered = pthread_atfork(NULL, NULL, forget_threads) == 0;
    while (num_started < num_threads) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, NULL) != 0) return; /* the others do its work */
        pthread_detach(thread);
        num_started++;
    }
}

void pool_run(chunk_fn fn, void *job, int count) {
    if (count <= 1 || num_threads == 1 || pthread_mutex_trylock(&owner) != 0) {
        for (int i = 0; i < count; i++) fn(job, i);
        return;
    }
    if (num_started < num_threads) start_threads();
    atomic_store_explicit(&pool.fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool.job, job, memory_order_relaxed);
    atomic_store_explicit(&pool.count, count, memory_order_relaxed);
    atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
    uint32_t region = atomic_load_explicit(&pool.region, memory_order_relaxed) + 1;
    atomic_store(&pool.ticket, (uint64_t)region << 32 | (uint32_t)count);
    atomic_store(&pool.region, region);
    if (atomic_load(&pool.sleepers) > 0) wake_all();
    take_chunks();
    for (int spins = 0; atomic_load_explicit(&pool.done, memory_order_acquire) != count; spins++) {
        if (spins < YIELD_AFTER)
            pause_core();
        else
            sched_yield(); /* a chunk's thread may be waiting for this very core */
    }
    pthread_mutex_unlock(&owner);
}

int pool_threads(void) { return num_threads; }

/* Threads beyond the number in use go on sleeping. */
EXPORT void chairlift_set_threads(int threads, int64_t spin) {
    pthread_mutex_lock(&owner);
    num_threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    spin_ns = spin;
    pthread_mutex_unlock(&owner);
}

