/*
 * Worker threads for work that may have to wait for a program's agent, or in a program's memory.
 *
 * They are not the control loop's workers: an agent that does not answer would hold up fallocate of
 * all users. There are two kinds of jobs. Those that the daemon itself has for sessions (make one
 * ready, look into it, bury it) go first and always have threads left, since others wait for them;
 * the other kind is requests of programs. In each kind, users have shares (fair_queue.h).
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/fair_queue.h"
#include "workers.h"

#define WORKERS_OWN    16u
#define WORKERS_OTHERS 12u
/* Neither kind of job takes the other's threads. */
#define WORKERS_THREADS (WORKERS_OWN + WORKERS_OTHERS)

struct worker_job {
	struct fair_queue_entry entry; /* first */
	struct fair_queue *kind;
	worker_fn *fn;
	void *arg;
};

struct workers {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t more;
	struct fair_queue own, others;
	bool closing;
	unsigned int idle; /* threads that sleep */
	unsigned int threads;
	pthread_t thread[WORKERS_THREADS];
};

/* workers->lock is held; so for the functions that follow. */
static struct worker_job *begin_job(struct workers *workers)
{
	struct fair_queue_entry *entry = fair_queue_next(&workers->own);

	return (struct worker_job *)(entry ? entry : fair_queue_next(&workers->others));
}

static void end_job(struct worker_job *job)
{
	fair_queue_end(&job->entry, job->kind);
	free(job);
}

/* Wakes one thread for the next job; that one wakes another for the job behind it. To wake all
   threads for each job would cost more than most jobs. */
static void wake_one(struct workers *workers)
{
	if (workers->idle &&
	    (fair_queue_ready(&workers->own) || fair_queue_ready(&workers->others)))
		pthread_cond_signal(&workers->more);
}

/* Whether a job waits since its user has all the threads that it may have. */
static bool waits(const struct workers *workers)
{
	return workers->own.waiting || workers->others.waiting;
}

static void *work(void *arg)
{
	struct workers *workers = arg;
	struct worker_job *job;

	pthread_mutex_lock(&workers->lock);
	for (;;) {
		job = begin_job(workers);
		if (!job && workers->closing && !waits(workers))
			break;
		if (!job) {
			workers->idle++;
			pthread_cond_wait(&workers->more, &workers->lock);
			workers->idle--;
			continue;
		}
		wake_one(workers);
		pthread_mutex_unlock(&workers->lock);
		job->fn(job->arg);
		pthread_mutex_lock(&workers->lock);
		end_job(job);
	}
	/* Threads that slept until the last job was taken may end now, too. */
	pthread_cond_broadcast(&workers->more);
	pthread_mutex_unlock(&workers->lock);
	return NULL;
}

int workers_open(struct workers **out, struct ramp_err *err)
{
	struct workers *workers = calloc(1, sizeof(*workers));

	if (!workers)
		return ramp_err_sys(err, ENOMEM, "threads for programs");
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->more, NULL);
	fair_queue_init(&workers->own, WORKERS_OWN);
	fair_queue_init(&workers->others, WORKERS_OTHERS);
	for (; workers->threads < WORKERS_THREADS; workers->threads++) {
		int rc = pthread_create(&workers->thread[workers->threads], NULL, work, workers);

		if (rc) {
			workers_close(workers);
			return ramp_err_sys(err, rc, "threads for programs");
		}
		pthread_setname_np(workers->thread[workers->threads], "programs");
	}
	*out = workers;
	return 0;
}

void workers_close(struct workers *workers)
{
	pthread_mutex_lock(&workers->lock);
	workers->closing = true;
	pthread_cond_broadcast(&workers->more);
	pthread_mutex_unlock(&workers->lock);
	for (unsigned int i = 0; i < workers->threads; i++)
		pthread_join(workers->thread[i], NULL);
	pthread_cond_destroy(&workers->more);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
}

static void workers_add(struct workers *workers, struct fair_queue *kind, uid_t uid, worker_fn *fn,
			void *arg)
{
	struct worker_job *job = malloc(sizeof(*job));

	if (!job)
		abort(); /* a lost job would hang a program; the keeper starts the daemon again */
	*job = (struct worker_job){.kind = kind, .fn = fn, .arg = arg};
	pthread_mutex_lock(&workers->lock);
	fair_queue_add(kind, uid, &job->entry);
	wake_one(workers);
	pthread_mutex_unlock(&workers->lock);
}

void workers_run(struct workers *workers, uid_t uid, worker_fn *fn, void *arg)
{
	workers_add(workers, &workers->others, uid, fn, arg);
}

void workers_run_own(struct workers *workers, uid_t uid, worker_fn *fn, void *arg)
{
	workers_add(workers, &workers->own, uid, fn, arg);
}
