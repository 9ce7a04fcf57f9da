/*
 * Looking into processes on a thread that the caller can leave behind.
 *
 * To look into a process takes locks of that process: the one that an execve(2) holds until it has
 * closed its descriptors, and the mmap lock of its memory. A user with a FUSE filesystem whose
 * server never answers can hold either as long as it likes, and every thread that looks waits.
 *
 * Happy path: the thread says which process it is about to look into (bounded_enter), one after the
 * other; the caller waits for the thread's end. A thread that has looked waits for more to look at,
 * for IDLE_MS: a batch of moves needs thousands of looks, and to make a thread costs more than many of
 * them.
 *
 * How it fails: one process blocks the thread for 3 s. Then the caller continues without it, and is
 * told which process that is. The thread ends when the process lets it. Until then no other thread
 * waits there: bounded_enter says -EBUSY at once. A process of which only the mmap lock is held can
 * still be looked into (Linux 6.17 answers without that lock which files are mapped); only a thread
 * that needs that lock (bounded_enter_memory) gets -EBUSY.
 */
#include <errno.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "bounded.h"
#include "process.h"

/* Within one process, where thousands of mappings take milliseconds. STUCK_ROUNDS of these in a
   row without progress are 3 s; they are short, so that only one of them is used up if the whole
   daemon was stopped meanwhile. */
#define ROUND_MS     100u
#define STUCK_ROUNDS 30u
#define IDLE_MS	     1000u

struct bounded {
	LIST_ENTRY(bounded) link; /* in `stuck_ones` */
	STAILQ_ENTRY(bounded) in_line;
	bounded_fn *fn;
	bounded_forget *forget;
	void *arg;
	bool looks;   /* its thread may do other work afterwards */
	int priority; /* the caller's real-time priority; 0: none */
	int rc;	      /* the thread's result, valid when it is done */

	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t ended;
	bool done;    /* the thread has ended its work */
	bool left;    /* the caller has left: the thread frees this */
	pid_t at;     /* the process that is looked into; 0: none so far */
	bool memory;  /* its mmap lock is needed, too */
	uint64_t nth; /* counts the processes that were entered */
};

/* Those whose callers have left. */
static pthread_mutex_t stuck_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, bounded) stuck_ones = LIST_HEAD_INITIALIZER(stuck_ones);

/* Threads without work, and work that one of them is about to take. */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t idle_once = PTHREAD_ONCE_INIT;
static pthread_cond_t idle_more; /* on the monotonic clock */
static STAILQ_HEAD(, bounded) idle_line = STAILQ_HEAD_INITIALIZER(idle_line);
static unsigned idle_threads, idle_work;

static bool is_stuck(pid_t pid, bool memory)
{
	const struct bounded *a;
	bool stuck = false;

	pthread_mutex_lock(&stuck_lock);
	LIST_FOREACH (a, &stuck_ones, link)
		stuck |= a->at == pid && (memory || !a->memory);
	pthread_mutex_unlock(&stuck_lock);
	return stuck;
}

static struct timespec bounded_until(uint32_t ms)
{
	uint64_t until_ms = clock_ms() + ms;

	return (struct timespec){.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};
}

static void init_monotonic(pthread_cond_t *cond)
{
	pthread_condattr_t clock;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &clock);
	pthread_condattr_destroy(&clock);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int bounded_begin(struct bounded *a, pid_t pid, bool memory)
{
	bool left;

	pthread_mutex_lock(&a->lock);
	left = a->left;
	if (!left) {
		a->at = pid;
		a->memory = memory;
		a->nth++;
	}
	pthread_mutex_unlock(&a->lock);
	if (left)
		return -ECANCELED;
	return is_stuck(pid, memory) ? -EBUSY : 0;
}

int bounded_enter(struct bounded *a, pid_t pid)
{
	return bounded_begin(a, pid, false);
}

int bounded_enter_memory(struct bounded *a, pid_t pid)
{
	return bounded_begin(a, pid, true);
}

static bool same_memory(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}

/* kcmp(2) may wait for either process: each is compared with itself first, so that the one that
   blocks is known. */
int bounded_same_memory(struct bounded *bounded, pid_t a, pid_t b)
{
	const pid_t both[] = {a, b};

	if (a == b)
		return 1;
	for (int i = 0; i < 2; i++) {
		int rc = bounded_enter(bounded, both[i]);

		if (rc)
			return rc;
		(void)same_memory(both[i], both[i]);
	}
	return same_memory(a, b);
}

static void bounded_free(struct bounded *a)
{
	pthread_cond_destroy(&a->ended);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static void bounded_work(struct bounded *a)
{
	bool left;

	a->rc = a->fn(a, a->arg);
	pthread_mutex_lock(&a->lock);
	a->done = true;
	left = a->left;
	pthread_cond_signal(&a->ended);
	pthread_mutex_unlock(&a->lock);
	if (!left)
		return;
	pthread_mutex_lock(&stuck_lock);
	LIST_REMOVE(a, link);
	pthread_mutex_unlock(&stuck_lock);
	a->forget(a->arg);
	bounded_free(a);
}

/* Waits for more work. NULL: there is none. */
static struct bounded *bounded_next(void)
{
	struct timespec until = bounded_until(IDLE_MS);
	struct bounded *a;
	int rc = 0;

	pthread_mutex_lock(&idle_lock);
	idle_threads++;
	while (!(a = STAILQ_FIRST(&idle_line)) && !rc)
		rc = pthread_cond_timedwait(&idle_more, &idle_lock, &until);
	idle_threads--;
	if (a) {
		STAILQ_REMOVE_HEAD(&idle_line, in_line);
		idle_work--;
	}
	pthread_mutex_unlock(&idle_lock);
	return a;
}

static void *bounded_main(void *arg)
{
	struct bounded *a = arg;
	bool looks = a->looks;
	int priority = 0;

	for (; a; a = looks ? bounded_next() : NULL) {
		/* Programs may be frozen meanwhile. */
		if (a->priority != priority)
			(void)kernel_rt_boost(a->priority);
		priority = a->priority;
		bounded_work(a);
	}
	return NULL;
}

/* ---- the caller ----------------------------------------------------------------------------- */

static int own_priority(void)
{
	struct sched_param param = {0};

	return (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_RR &&
			       !sched_getparam(0, &param)
		       ? param.sched_priority
		       : 0;
}

static void idle_init(void)
{
	init_monotonic(&idle_more);
}

static struct bounded *bounded_make(bounded_fn *fn, void *arg, bounded_forget *forget, bool looks)
{
	struct bounded *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->looks = looks;
	a->fn = fn;
	a->arg = arg;
	a->forget = forget;
	a->priority = own_priority();
	pthread_mutex_init(&a->lock, NULL);
	init_monotonic(&a->ended);
	return a;
}

/* Gives it to a thread without work. False: there is none. */
static bool bounded_hand_over(struct bounded *a)
{
	bool taken;

	pthread_once(&idle_once, idle_init);
	pthread_mutex_lock(&idle_lock);
	taken = idle_threads > idle_work;
	if (taken) {
		STAILQ_INSERT_TAIL(&idle_line, a, in_line);
		idle_work++;
		pthread_cond_signal(&idle_more);
	}
	pthread_mutex_unlock(&idle_lock);
	return taken;
}

static int bounded_start(struct bounded *a)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (a->looks && bounded_hand_over(a))
		return 0;
	rc = pthread_attr_init(&attr);
	if (rc)
		return -rc;
	rc = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (!rc)
		rc = pthread_create(&thread, &attr, bounded_main, a);
	pthread_attr_destroy(&attr);
	return -rc;
}

static void wait_a_round(struct bounded *a)
{
	struct timespec until = bounded_until(ROUND_MS);

	pthread_cond_timedwait(&a->ended, &a->lock, &until);
}

/* Waits for the thread. False: it is stuck in process *stuck (0: it has not come to any), and
   owns the struct now. */
static bool bounded_wait(struct bounded *a, pid_t *stuck, bool *memory)
{
	unsigned int rounds = 0;
	bool done;

	pthread_mutex_lock(&a->lock);
	while (!a->done && rounds < STUCK_ROUNDS) {
		uint64_t nth = a->nth;

		wait_a_round(a);
		rounds = a->nth == nth ? rounds + 1 : 0;
	}
	done = a->done;
	if (!done) {
		pthread_mutex_lock(&stuck_lock);
		LIST_INSERT_HEAD(&stuck_ones, a, link);
		pthread_mutex_unlock(&stuck_lock);
		a->left = true;
		*stuck = a->at;
		*memory = a->memory;
	}
	pthread_mutex_unlock(&a->lock);
	return done;
}

static void say_stuck(pid_t pid, bool memory)
{
	char name[64];

	process_name(pid, name);
	if (memory) {
		log_warn("process %s holds its mmap lock (a page of its memory that a filesystem "
			 "does not answer for): no segment that it has mapped moves until it lets "
			 "go of it or ends",
			 name);
		return;
	}
	log_warn("process %s can't be looked into (an execve, or a page of its memory, that a "
		 "filesystem does not answer for): its mappings are not known, and no segment "
		 "moves until it can or the process ends",
		 name);
}

static bool bounded_do(bounded_fn *fn, void *arg, bounded_forget *forget, bool looks, int *rc,
		       pid_t *stuck)
{
	struct bounded *a = bounded_make(fn, arg, forget, looks);
	bool memory;

	*stuck = 0;
	*rc = a ? bounded_start(a) : -ENOMEM;
	if (*rc) {
		if (a)
			bounded_free(a);
		return true;
	}
	if (!bounded_wait(a, stuck, &memory)) {
		if (*stuck)
			say_stuck(*stuck, memory);
		return false;
	}
	*rc = a->rc;
	if (*rc == -EBUSY)
		*stuck = a->at;
	bounded_free(a);
	return true;
}

bool bounded_run(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck)
{
	return bounded_do(fn, arg, forget, false, rc, stuck);
}

bool bounded_look(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck)
{
	return bounded_do(fn, arg, forget, true, rc, stuck);
}
