/*
 * Threads for what may have to wait for a program's agent.
 *
 * Not libuv's pool: an agent that does not answer would hold up everybody's fallocate. What belongs
 * to the daemon itself (a session that becomes ready, one that is buried) goes first and always has
 * threads left, since others wait for it; requests of one user take at most half of the rest.
 */
#include <errno.h>
#include <stdlib.h>

#include "local.h"

#define POOL_THREADS 16u
#define POOL_OTHERS  12u /* that run requests of programs */
#define POOL_ONE_UID 6u

struct job {
	STAILQ_ENTRY(job) link;
	uid_t uid;
	pool_fn *fn;
	void *arg;
};

struct pool {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t more;
	STAILQ_HEAD(jobs, job) own, others;
	bool closing;
	unsigned int idle; /* threads that sleep */
	unsigned int running_others;
	uid_t running[POOL_THREADS]; /* POOL_SELF: idle, or the daemon's own */
	unsigned int threads;
	pthread_t thread[POOL_THREADS];
};

struct worker {
	struct pool *pool;
	unsigned int n;
};

static bool may_run(struct pool *pool, uid_t uid)
{
	unsigned int n = 0;

	if (pool->running_others >= POOL_OTHERS)
		return false;
	for (unsigned int i = 0; i < POOL_THREADS; i++)
		n += pool->running[i] == uid;
	return n < POOL_ONE_UID;
}

/* pool->lock is held; so for the next two. */
static struct job *first_job(struct pool *pool)
{
	struct job *job = STAILQ_FIRST(&pool->own);

	if (job)
		return job;
	STAILQ_FOREACH (job, &pool->others, link)
		if (may_run(pool, job->uid))
			return job;
	return NULL;
}

static struct job *next_job(struct pool *pool)
{
	struct job *job = first_job(pool);

	if (!job)
		return NULL;
	if (job == STAILQ_FIRST(&pool->own))
		STAILQ_REMOVE_HEAD(&pool->own, link);
	else
		STAILQ_REMOVE(&pool->others, job, job, link);
	return job;
}

/* One thread for the next job: it wakes one for the job behind that. All of them for each job would
   cost more than most jobs. */
static void wake_one(struct pool *pool)
{
	if (pool->idle && first_job(pool))
		pthread_cond_signal(&pool->more);
}

static void *work(void *arg)
{
	struct worker *me = arg;
	struct pool *pool = me->pool;
	struct job *job;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		job = next_job(pool);
		if (!job && pool->closing && STAILQ_EMPTY(&pool->others))
			break;
		if (!job) {
			pool->idle++;
			pthread_cond_wait(&pool->more, &pool->lock);
			pool->idle--;
			continue;
		}
		pool->running[me->n] = job->uid;
		pool->running_others += job->uid != POOL_SELF;
		wake_one(pool);
		pthread_mutex_unlock(&pool->lock);
		job->fn(job->arg);
		pthread_mutex_lock(&pool->lock);
		pool->running[me->n] = POOL_SELF;
		pool->running_others -= job->uid != POOL_SELF;
		free(job);
	}
	/* Those that sleep until the last job is taken may end, too. */
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	free(me);
	return NULL;
}

int pool_open(struct pool **out, struct ramp_err *err)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return ramp_err_sys(err, ENOMEM, "threads for programs");
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->more, NULL);
	STAILQ_INIT(&pool->own);
	STAILQ_INIT(&pool->others);
	for (unsigned int i = 0; i < POOL_THREADS; i++)
		pool->running[i] = POOL_SELF;
	for (; pool->threads < POOL_THREADS; pool->threads++) {
		struct worker *me = malloc(sizeof(*me));
		int rc = ENOMEM;

		if (me) {
			*me = (struct worker){pool, pool->threads};
			rc = pthread_create(&pool->thread[pool->threads], NULL, work, me);
		}
		if (rc) {
			free(me);
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

void pool_run(struct pool *pool, uid_t uid, pool_fn *fn, void *arg)
{
	struct job *job = malloc(sizeof(*job));

	if (!job)
		abort(); /* a lost job would hang a program; the keeper starts us again */
	*job = (struct job){.uid = uid, .fn = fn, .arg = arg};
	pthread_mutex_lock(&pool->lock);
	if (uid == POOL_SELF)
		STAILQ_INSERT_TAIL(&pool->own, job, link);
	else
		STAILQ_INSERT_TAIL(&pool->others, job, link);
	wake_one(pool);
	pthread_mutex_unlock(&pool->lock);
}
