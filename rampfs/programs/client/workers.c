/*
 * Threads for what may have to wait for a program's agent, or in a program's memory.
 *
 * Not the control loop's workers: an agent that does not answer would hold up everybody's fallocate.
 * There are two kinds: what the daemon itself wants of sessions (one becomes ready, is looked at, is
 * buried) goes first and always has threads left, since others wait for it; the rest is what
 * programs ask for. In each, users have shares (fair_queue.h).
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fair_queue.h"
#include "programs/local.h"

#define POOL_OWN     16u
#define POOL_OTHERS  12u
#define POOL_THREADS (POOL_OWN + POOL_OTHERS) /* neither kind takes the other's */

struct job {
	struct fair_queue_entry entry; /* first */
	struct fair_queue *kind;
	pool_fn *fn;
	void *arg;
};

struct pool {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t more;
	struct fair_queue own, others;
	bool closing;
	unsigned int idle; /* threads that sleep */
	unsigned int threads;
	pthread_t thread[POOL_THREADS];
};

/* pool->lock is held; so for those that follow. */
static struct job *begin_job(struct pool *pool)
{
	struct fair_queue_entry *entry = fair_queue_next(&pool->own);

	return (struct job *)(entry ? entry : fair_queue_next(&pool->others));
}

static void end_job(struct job *job)
{
	fair_queue_end(&job->entry, job->kind);
	free(job);
}

/* One thread for the next job: it wakes one for the job behind that. All of them for each job would
   cost more than most jobs. */
static void wake_one(struct pool *pool)
{
	if (pool->idle && (fair_queue_ready(&pool->own) || fair_queue_ready(&pool->others)))
		pthread_cond_signal(&pool->more);
}

/* Some job, whose user has all the threads that he may have. */
static bool waits(const struct pool *pool)
{
	return pool->own.waiting || pool->others.waiting;
}

static void *work(void *arg)
{
	struct pool *pool = arg;
	struct job *job;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		job = begin_job(pool);
		if (!job && pool->closing && !waits(pool))
			break;
		if (!job) {
			pool->idle++;
			pthread_cond_wait(&pool->more, &pool->lock);
			pool->idle--;
			continue;
		}
		wake_one(pool);
		pthread_mutex_unlock(&pool->lock);
		job->fn(job->arg);
		pthread_mutex_lock(&pool->lock);
		end_job(job);
	}
	/* Those that sleep until the last job is taken may end, too. */
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int pool_open(struct pool **out, struct ramp_err *err)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return ramp_err_sys(err, ENOMEM, "threads for programs");
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->more, NULL);
	fair_queue_init(&pool->own, POOL_OWN);
	fair_queue_init(&pool->others, POOL_OTHERS);
	for (; pool->threads < POOL_THREADS; pool->threads++) {
		int rc = pthread_create(&pool->thread[pool->threads], NULL, work, pool);

		if (rc) {
			pool_close(pool);
			return ramp_err_sys(err, rc, "threads for programs");
		}
		pthread_setname_np(pool->thread[pool->threads], "programs");
	}
	*out = pool;
	return 0;
}

void pool_close(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->closing = true;
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned int i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->more);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static void add(struct pool *pool, struct fair_queue *kind, uid_t uid, pool_fn *fn, void *arg)
{
	struct job *job = malloc(sizeof(*job));

	if (!job)
		abort(); /* a lost job would hang a program; the keeper starts us again */
	*job = (struct job){.kind = kind, .fn = fn, .arg = arg};
	pthread_mutex_lock(&pool->lock);
	fair_queue_add(kind, uid, &job->entry);
	wake_one(pool);
	pthread_mutex_unlock(&pool->lock);
}

void pool_run(struct pool *pool, uid_t uid, pool_fn *fn, void *arg)
{
	add(pool, &pool->others, uid, fn, arg);
}

void pool_run_own(struct pool *pool, uid_t uid, pool_fn *fn, void *arg)
{
	add(pool, &pool->own, uid, fn, arg);
}
