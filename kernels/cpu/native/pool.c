/* Threads that sleep when there is nothing to do.
 *
 * A job is a count of tasks; the caller and whoever is awake take them one by one, and the caller is done
 * when the tasks are. A thread that the system has not woken yet holds up nobody, which a barrier would.
 * After a job a thread looks for the next one for `spin_ns` (so that the operations of one model step need no
 * system call each) and then sleeps on a futex.
 */
#define _GNU_SOURCE
#include "common.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define MOST 256

static struct {
  _Alignas(64) atomic_uint generation; /* a new job began */
  atomic_int sleepers;
  _Alignas(64) atomic_int is_open;
  _Alignas(64) atomic_int inside; /* workers that may still look at the job */
  atomic_int is_waiting;          /* the caller sleeps until they have left */
  _Alignas(64) atomic_llong next;
  ck_task task;
  void *context;
  int64_t count;
  int wanted;  /* threads, the caller included */
  int started; /* workers that exist */
  long spin_ns;
  pthread_mutex_t busy;
} pool = {.wanted = 1, .spin_ns = 50000, .busy = PTHREAD_MUTEX_INITIALIZER};

static __thread int is_worker;

INLINE void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void sleep_while(void *word, int value) {
#ifdef __linux__
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
  (void)word, (void)value;
  struct timespec t = {0, 200000};
  nanosleep(&t, NULL);
#endif
}

static void wake(void *word) {
#ifdef __linux__
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
  (void)word;
#endif
}

static void take_tasks(void) {
  for (;;) {
    long long index = atomic_fetch_add(&pool.next, 1);
    if (index >= pool.count) return;
    pool.task(pool.context, index);
  }
}

static unsigned wait_for_job(unsigned seen) {
  long until = 0;
  for (unsigned turn = 0;; turn++) {
    unsigned generation = atomic_load(&pool.generation);
    if (generation != seen) return generation;
    if (turn % 64 == 63) {
      long now = now_ns();
      if (!until) until = now + pool.spin_ns;
      if (now >= until) break;
    }
    relax();
  }
  atomic_fetch_add(&pool.sleepers, 1);
  while (atomic_load(&pool.generation) == seen) sleep_while(&pool.generation, (int)seen);
  atomic_fetch_sub(&pool.sleepers, 1);
  return atomic_load(&pool.generation);
}

static void *work(void *argument) {
  int number = (int)(intptr_t)argument;
  unsigned seen = 0;
  is_worker = 1;
  for (;;) {
    seen = wait_for_job(seen);
    /* Entering first and asking second, against closing first and counting second: one of the two sides always
     * sees the other, so the fields of a job never change under a worker that reads them. */
    atomic_fetch_add(&pool.inside, 1);
    if (atomic_load(&pool.is_open) && number < pool.wanted) take_tasks();
    if (atomic_fetch_sub(&pool.inside, 1) == 1 && atomic_load(&pool.is_waiting)) wake(&pool.inside);
  }
  return NULL;
}

static void start_workers(void) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before); /* signals belong to the threads of Python */
  while (pool.started < pool.wanted - 1) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)(intptr_t)(pool.started + 1))) break;
    pthread_detach(thread);
    pool.started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ck_parallel(ck_task task, void *context, int64_t count) {
  /* Inside a task, or while another thread has the pool: the result is the same without help. */
  if (count <= 1 || pool.wanted <= 1 || is_worker || pthread_mutex_trylock(&pool.busy)) {
    for (int64_t i = 0; i < count; i++) task(context, i);
    return;
  }
  start_workers();
  pool.task = task;
  pool.context = context;
  pool.count = count;
  atomic_store(&pool.next, 0);
  atomic_store(&pool.is_open, 1);
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleepers)) wake(&pool.generation);
  is_worker = 1;
  take_tasks();
  is_worker = 0;
  atomic_store(&pool.is_open, 0);
  for (int turn = 0;; turn++) {
    int inside = atomic_load(&pool.inside);
    if (!inside) break;
    if (turn < 2000) {
      relax();
    } else {
      atomic_store(&pool.is_waiting, 1);
      sleep_while(&pool.inside, inside);
    }
  }
  atomic_store(&pool.is_waiting, 0);
  pthread_mutex_unlock(&pool.busy);
}

int ck_threads(void) { return pool.wanted; }

void ck_set_threads(int threads, long spin_ns) {
  pthread_mutex_lock(&pool.busy);
  pool.wanted = threads < 1 ? 1 : threads > MOST ? MOST : threads;
  pool.spin_ns = spin_ns;
  pthread_mutex_unlock(&pool.busy);
}

/* The child of a fork has none of the workers. */
static void after_fork(void) {
  pool.started = 0;
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.inside, 0);
  atomic_store(&pool.is_open, 0);
  atomic_store(&pool.generation, 0);
  pthread_mutex_init(&pool.busy, NULL);
  is_worker = 0;
}

#define SLOTS 4
typedef struct { void *start; size_t bytes; } buffer;
static pthread_key_t buffers_key;
static __thread buffer *buffers;

static void free_buffers(void *p) {
  buffer *all = p;
  for (int i = 0; i < SLOTS; i++) free(all[i].start);
  free(all);
}

static int is_poisoned;

/* For tests: memory is handed out full of NaN. */
void ck_poison(int on) { is_poisoned = on; }

void *ck_scratch(int slot, size_t bytes) {
  if (!buffers) {
    buffers = calloc(SLOTS, sizeof *buffers);
    if (!buffers) return NULL;
    pthread_setspecific(buffers_key, buffers);
  }
  buffer *b = &buffers[slot];
  if (b->bytes < bytes) {
    free(b->start);
    b->bytes = (bytes + 4095) / 4096 * 4096;
    b->start = aligned_alloc(64, b->bytes);
    if (!b->start) b->bytes = 0;
  }
  if (is_poisoned && b->start) memset(b->start, 0xff, b->bytes);
  return b->start;
}

__attribute__((constructor)) static void begin(void) {
  pthread_key_create(&buffers_key, free_buffers);
  pthread_atfork(NULL, NULL, after_fork);
}
