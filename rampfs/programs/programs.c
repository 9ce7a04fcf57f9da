/*
 * Opens and closes the local programs: struct programs, the workers, the broker and the listener.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach/agent_call.h"
#include "attach/mapped_segment.h"
#include "attach/replace.h"
#include "base/kernel.h"
#include "base/log.h"
#include "client/broker.h"
#include "client/broker_release.h"
#include "client/clients.h"
#include "client/quota.h"
#include "client/tokens.h"
#include "client/workers.h"
#include "client_life.h"
#include "listener.h"
#include "session_start.h"

#define CONNECT_MS 5000u
#define TOKEN_MS   30000u

static int find_store(struct programs *p, struct ramp_err *err)
{
	struct stat st;
	int fd = replace_open_empty(p, 0, false), rc;

	if (fd < 0)
		return ramp_err_sys(err, -fd, "the store");
	rc = fstat(fd, &st) ? -errno : 0;
	close(fd);
	if (rc)
		return ramp_err_sys(err, -rc, "the store");
	p->store_dev = st.st_dev;
	return 0;
}

static struct programs *programs_make(const struct programs_config *config)
{
	struct programs *p = calloc(1, sizeof(*p));
	pthread_condattr_t clock;
	uint64_t len;

	if (!p)
		return NULL;
	p->quota = quota_open();
	if (!p->quota) {
		free(p);
		return NULL;
	}
	atomic_init(&p->refs, 1);
	p->client_released = agent_forget_late;
	p->loop = config->loop;
	p->store = config->store;
	p->meta = config->meta;
	p->fdstore[0] = config->fdstore ? config->fdstore[0] : -1;
	p->fdstore[1] = config->fdstore ? config->fdstore[1] : -1;
	p->fdstore_round = (uint32_t)ramp_random64();
	p->uffd_group = config->uffd_group;
	p->connect_ms = config->connect_ms ? config->connect_ms : CONNECT_MS;
	p->token_ms = config->token_ms ? config->token_ms : TOKEN_MS;
	p->user_sessions = config->user_sessions;
	meta_arena(p->meta, &p->arena_lo, &len);
	p->arena_hi = p->arena_lo + len;
	if (kernel_slice(getpid(), &p->slice_ns))
		p->slice_ns = 0;
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->priority_lock, NULL);
	pthread_mutex_init(&p->fdstore_lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &clock);
	pthread_condattr_destroy(&clock);
	pthread_rwlock_init(&p->pager_lock, NULL);
	pthread_rwlock_init(&p->ending, NULL);
	TAILQ_INIT(&p->clients);
	TAILQ_INIT(&p->orphans);
	TAILQ_INIT(&p->releases);
	TAILQ_INIT(&p->subscribers);
	p->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (p->uffd_dev < 0)
		log_warn("no program can attach: /dev/userfaultfd: %s", strerror(errno));
	return p;
}

static void free_programs(struct programs *p)
{
	tokens_close(p);
	free(p->promises);
	mseg_free_all(p);
	broker_release_close(p);
	if (p->uffd_dev >= 0)
		close(p->uffd_dev);
	pthread_rwlock_destroy(&p->pager_lock);
	pthread_rwlock_destroy(&p->ending);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->priority_lock);
	pthread_mutex_destroy(&p->fdstore_lock);
	pthread_mutex_destroy(&p->lock);
	programs_let_go(p);
}

int programs_open(const struct programs_config *config, struct programs **out, struct ramp_err *err)
{
	struct programs *p = programs_make(config);
	int rc;

	if (!p)
		return ramp_err_sys(err, ENOMEM, "programs");
	rc = find_store(p, err);
	if (rc)
		goto err_free;
	rc = workers_open(&p->workers, err);
	if (rc)
		goto err_free;
	rc = broker_open(p->loop, &session_broker_ops, p, &p->broker, err);
	if (rc)
		goto err_pool;
	rc = listener_open(p, config->listen_fd, err);
	if (rc)
		goto err_broker;
	*out = p;
	return 0;

err_broker:
	broker_close(p->broker);
err_pool:
	workers_close(p->workers);
err_free:
	free_programs(p);
	return rc;
}

/* Returns true where a program keeps a thread that maps pages there, and needs the tables. The
   process does not end before that thread does. */
static bool is_kept(struct programs *p)
{
	bool kept;

	pthread_rwlock_wrlock(&p->ending);
	p->ended = true;
	kept = atomic_load(&p->resolving) > 0;
	pthread_rwlock_unlock(&p->ending);
	return kept;
}

void programs_close(struct programs *p)
{
	bool kept;

	atomic_store(&p->closing, true);
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	listener_stop(p);
	workers_close(p->workers);
	kept = is_kept(p);
	clients_sweep(p);
	broker_release_run(p);
	broker_close(p->broker);
	listener_close(p);
	/* A thread that still looks into a process needs it, too; such a thread ends with the
	   daemon. */
	if (!kept && !atomic_load(&p->looking))
		free_programs(p);
}

void programs_set_pager(struct programs *p, const struct programs_pager *pager)
{
	pthread_rwlock_wrlock(&p->pager_lock);
	p->pager = pager ? *pager : (struct programs_pager){0};
	pthread_rwlock_unlock(&p->pager_lock);
}

void programs_status(struct programs *p, struct programs_status *status)
{
	pthread_mutex_lock(&p->lock);
	*status = p->status;
	pthread_mutex_unlock(&p->lock);
}
