/*
 * Threads for what may have to wait for a program's agent, or in a program's memory.
 *
 * Not libuv's pool: an agent that does not answer would hold up everybody's fallocate. There are two
 * kinds: what the daemon itself wants of sessions (one becomes ready, is looked at, is buried) goes
 * first and always has threads left, since others wait for it; the rest is what programs ask for.
 * In each, users take turns, and each has at most as many threads as are left then: one half, two of
 * them half and a quarter. So whoever comes after those that keep theirs for long finds one.
 */
#include <errno.h>
#include <stdlib.h>

#include "local.h"

#define POOL_OWN     16u
#define POOL_OTHERS  12u
#define POOL_THREADS (POOL_OWN + POOL_OTHERS) /* neither kind takes the other's */

struct job {
	STAILQ_ENTRY(job) link;
	struct line *line;
	pool_fn *fn;
	void *arg;
};
STAILQ_HEAD(jobs, job);

/* One user's in a kind of jobs, while he has any: what waits, and how much runs. */
struct line {
	TAILQ_ENTRY(line) link;
	struct kind *kind;
	uid_t uid;
	struct jobs jobs;
	unsigned int running;
};

struct kind {
	TAILQ_HEAD(lines, line) lines; /* whose turn is next first */
	unsigned int threads, running;
};

struct pool {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t more;
	struct kind own, others;
	bool closing;
	unsigned int idle; /* threads that sleep */
	unsigned int threads;
	pthread_t thread[POOL_THREADS];
};

/* pool->lock is held; so for those that follow. */
static struct job *first_of(const struct kind *kind)
{
	const struct line *line;

	TAILQ_FOREACH (line, &kind->lines, link)
		if (!STAILQ_EMPTY(&line->jobs) && line->running < kind->threads - kind->running)
			return STAILQ_FIRST(&line->jobs);
	return NULL;
}

static struct job *first_job(struct pool *pool)
{
	struct job *job = first_of(&pool->own);

	return job ? job : first_of(&pool->others);
}

static struct job *begin_job(struct pool *pool)
{
	struct job *job = first_job(pool);
	struct line *line;

	if (!job)
		return NULL;
	line = job->line;
	STAILQ_REMOVE_HEAD(&line->jobs, link);
	TAILQ_REMOVE(&line->kind->lines, line, link);
	TAILQ_INSERT_TAIL(&line->kind->lines, line, link);
	line->running++;
	line->kind->running++;
	return job;
}

static void end_job(struct job *job)
{
	struct line *line = job->line;

	line->running--;
	line->kind->running--;
	if (!line->running && STAILQ_EMPTY(&line->jobs)) {
		TAILQ_REMOVE(&line->kind->lines, line, link);
		free(line);
	}
	free(job);
}

/* One thread for the next job: it wakes one for the job behind that. All of them for each job would
   cost more than most jobs. */
static void wake_one(struct pool *pool)
{
	if (pool->idle && first_job(pool))
		pthread_cond_signal(&pool->more);
}

static bool waits_in(const struct kind *kind)
{
	const struct line *line;

	TAILQ_FOREACH (line, &kind->lines, link)
		if (!STAILQ_EMPTY(&line->jobs))
			return true;
	return false;
}

/* Some job, whose user has all the threads that he may have. */
static bool waits(const struct pool *pool)
{
	return waits_in(&pool->own) || waits_in(&pool->others);
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
	pool->own.threads = POOL_OWN;
	pool->others.threads = POOL_OTHERS;
	TAILQ_INIT(&pool->own.lines);
	TAILQ_INIT(&pool->others.lines);
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

static void *or_abort(void *memory)
{
	if (!memory)
		abort(); /* a lost job would hang a program; the keeper starts us again */
	return memory;
}

/* pool->lock is held. */
static struct line *line_of(struct kind *kind, uid_t uid)
{
	struct line *line;

	TAILQ_FOREACH (line, &kind->lines, link)
		if (line->uid == uid)
			return line;
	line = or_abort(malloc(sizeof(*line)));
	*line = (struct line){.uid = uid, .kind = kind};
	STAILQ_INIT(&line->jobs);
	TAILQ_INSERT_TAIL(&kind->lines, line, link);
	return line;
}

static void add(struct pool *pool, struct kind *kind, uid_t uid, pool_fn *fn, void *arg)
{
	struct job *job = or_abort(malloc(sizeof(*job)));

	*job = (struct job){.fn = fn, .arg = arg};
	pthread_mutex_lock(&pool->lock);
	job->line = line_of(kind, uid);
	STAILQ_INSERT_TAIL(&job->line->jobs, job, link);
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
