/*
 * Maps pages that have come where they are attached, and wakes the threads that wait for them.
 *
 * Happy path: the table says where the segment is attached, and CONTINUE maps the pages there. No
 * lock of the daemon is held meanwhile: the kernel takes the lock of the program's memory
 * (mmap_lock) where it can't do with less (for a private mapping before its first page, where no
 * mapping is any more, or before Linux 6.9), and a program can keep that lock for as long as it
 * likes. Each thread in there is counted in mseg->resolving instead, and a freeze waits for these
 * threads: a page that was mapped after the freeze would let a program reach a segment that has
 * left.
 *
 * How it fails: a page that is not LOCAL any more, or frozen, or attached elsewhere by now, is left
 * to its page fault, which comes again. A program that keeps the lock of its memory keeps the
 * calling thread. Where that is the pager or the prefetch thread, a new thread continues in its
 * place (pull/takeover.c). After a program has kept the pager, neither it nor another program of
 * its user can do so again: for BY_WORKER_MS a worker maps their pages, in that user's share.
 * Workers map the pages that a write(2) has brought, too, and the writer continues after WRITTEN_MS
 * at most. A thread that is about to enter a program in which another thread is kept passes it
 * over, and the kept thread, once it is back, wakes all that wait there.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "memory/pages.h"
#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/client/workers.h"
#include "programs/programs.h"

#define EAGAIN_TRIES 2000
#define HASTY_TRIES  8	 /* no sleep: the caller may have tens of such page faults */
#define KEPT_MS	     50u /* a thread in one program's memory for longer is kept there */
#define WRITTEN_MS   100u
#define BY_WORKER_MS 600000u
#define SPANS	     16u /* looked up at once */

/* A part of an attachment. */
struct span {
	uint64_t addr, len;
	bool gone;
};

static void resolve_range(struct client *client, uint64_t addr, uint64_t len, bool patient)
{
	int tries = 0, most = patient ? EAGAIN_TRIES : HASTY_TRIES;
	uint64_t done = 0;

	while (done < len) {
		int64_t n = kernel_uffd_continue(client->uffd, addr + done, len - done, true);

		if (n > 0) {
			done += (uint64_t)n;
		} else if (n == -EAGAIN && tries++ < most &&
			   !atomic_load(&client->programs->closing)) {
			uffd_drain(client);
			uffd_let_others(tries);
		} else if (n == -EFAULT) {
			/* Past the end of the file: the woken access finds that out by itself. */
			client_wake(client, addr + done);
			done += RAMP_PAGE_BYTES;
		} else if (n != -EAGAIN && len - done > RAMP_PAGE_BYTES) {
			/* It lies in two mappings (part of it is locked, say): the first page alone. */
			kernel_uffd_wake(client->uffd, addr + done + RAMP_PAGE_BYTES,
					 len - done - RAMP_PAGE_BYTES);
			len = done + RAMP_PAGE_BYTES;
		} else {
			kernel_uffd_wake(client->uffd, addr + done, len - done);
			return;
		}
	}
}

/* ---- counting ------------------------------------------------------------------------------- */

/* Counts this thread as one that maps pages of the segment. False: nothing is to be mapped.
   mseg->lock is held: a thread that sets another state from here on sees the count. */
static bool resolve_begin(struct programs *p, struct mapped_segment *mseg)
{
	if (mseg->state != MSEG_OPEN || !mseg->pulling)
		return false;
	atomic_fetch_add(&p->resolving, 1);
	atomic_fetch_add(&mseg->resolving, 1);
	return true;
}

static void resolve_end(struct programs *p, struct mapped_segment *mseg)
{
	atomic_fetch_sub(&mseg->resolving, 1);
	if (mseg->state != MSEG_OPEN) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->changed);
		pthread_mutex_unlock(&p->lock);
	}
}

/* Gives the references back. After programs_close it gives back nothing: the end of the process
   frees what is left. */
static void resolve_let_go(struct programs *p, struct mapped_segment *mseg, struct client *client)
{
	pthread_rwlock_rdlock(&p->ending);
	if (!p->ended) {
		if (mseg)
			mseg_put(p, mseg);
		if (client)
			client_put(client);
	}
	atomic_fetch_sub(&p->resolving, 1);
	pthread_rwlock_unlock(&p->ending);
}

/* Returns true where a thread is kept in that client: it has been there for longer than KEPT_MS. */
static bool keeps_a_thread(const struct client *client)
{
	uint64_t now = clock_ms(), since;

	for (int i = 0; i < RESOLVERS; i++) {
		since = atomic_load(&client->resolving_ms[i]);
		if (since && now > since + KEPT_MS)
			return true;
	}
	return false;
}

/* Returns the time at which the thread enters the client. *noted: the time is noted, since it is
   the first one of its kind. */
static uint64_t resolve_enter(struct client *client, enum resolver kind, bool *noted)
{
	uint64_t now = clock_ms(), none = 0;

	*noted = atomic_compare_exchange_strong(&client->resolving_ms[kind], &none, now);
	return now;
}

static void resolve_leave(struct client *client, enum resolver kind, uint64_t since_ms, bool noted)
{
	if (noted)
		atomic_store(&client->resolving_ms[kind], 0);
	/* Wakes page faults that were passed over meanwhile. The pager has parked the client,
	   too. */
	if (clock_ms() > since_ms + KEPT_MS)
		client_wake_all(client);
}

/* ---- where a thread waits ------------------------------------------------------------------- */

/* Returns how many of these pages are LOCAL, from the first on. Since they came the segment may
   have left and come back. mseg->lock is held. */
static uint64_t local_pages(struct mapped_segment *mseg, uint64_t first, uint64_t count)
{
	enum page_state state;
	uint64_t run = mseg->seg ? pages_run(mseg->seg, first, count, &state) : 0;

	return run && state == PAGE_LOCAL ? run : 0;
}

/* Returns how many bytes of these pages are LOCAL and attached at that address; 0: something else
   is there by now. mseg->lock is held. */
static uint64_t attached_at(struct mapped_segment *mseg, struct client *client, uint64_t addr,
			    uint64_t first, uint64_t count)
{
	struct client_mappings *cm = mseg_mappings_of(mseg, client);
	const struct attachment *a = cm ? attachment_at(cm, addr) : NULL;
	uint64_t len = local_pages(mseg, first, count) * RAMP_PAGE_BYTES;

	if (!a || a->gone || a->offset + (addr - a->start) != first * RAMP_PAGE_BYTES)
		return 0;
	return len < a->end - addr ? len : a->end - addr;
}

static void resolve_at(struct client *client, ramp_segment_t id, uint64_t addr, uint64_t first,
		       uint64_t count, enum resolver kind)
{
	struct programs *p = client->programs;
	struct mapped_segment *mseg = mseg_find(p, id);
	bool begun = false, noted;
	uint64_t len = 0, since_ms;

	if (!mseg)
		return;
	if (pthread_rwlock_tryrdlock(&mseg->lock)) {
		client_wake(client, addr);
	} else {
		begun = resolve_begin(p, mseg);
		if (begun)
			len = attached_at(mseg, client, addr, first, count);
		pthread_rwlock_unlock(&mseg->lock);
	}
	if (!begun) {
		mseg_put(p, mseg);
		return;
	}
	since_ms = resolve_enter(client, kind, &noted);
	if (len)
		resolve_range(client, addr, len, false);
	else
		client_wake(client, addr);
	resolve_leave(client, kind, since_ms, noted);
	resolve_end(p, mseg);
	resolve_let_go(p, mseg, NULL);
}

struct by_worker_job {
	struct client *client; /* a reference */
	ramp_segment_t id;
	uint64_t addr, first, count;
};

static void run_by_worker(void *arg)
{
	struct by_worker_job *job = arg;

	if (!keeps_a_thread(job->client))
		resolve_at(job->client, job->id, job->addr, job->first, job->count,
			   RESOLVER_WORKER);
	client_put(job->client);
	free(job);
}

static void resolve_by_worker(struct client *client, ramp_segment_t id, uint64_t addr,
			      uint64_t first, uint64_t count)
{
	struct by_worker_job *job = malloc(sizeof(*job));

	if (!job) {
		client_wake(client, addr); /* the page fault comes again, until there is memory */
		return;
	}
	*job = (struct by_worker_job){client_get(client), id, addr, first, count};
	workers_run_own(client->programs->workers, client->uid, run_by_worker, job);
}

static _Atomic uint64_t *by_worker_until(struct client *client)
{
	return &client->programs->by_worker_until_ms[client->uid % UID_SLOTS];
}

void client_blocked(struct client *client)
{
	if (atomic_exchange(by_worker_until(client), clock_ms() + BY_WORKER_MS) <= clock_ms())
		log_warn("process %d keeps the lock of its memory while a page is to be mapped "
			 "there: "
			 "workers map the pages of user %u for %u minutes",
			 (int)client->pid, (unsigned int)client->uid, BY_WORKER_MS / 60000u);
}

void client_resolve(struct client *client, ramp_segment_t id, uint64_t addr, uint64_t first,
		    uint64_t count)
{
	if (atomic_load(by_worker_until(client)) > clock_ms())
		resolve_by_worker(client, id, addr, first, count);
	else
		resolve_at(client, id, addr, first, count, RESOLVER_PAGER);
}

/* ---- wherever the segment is attached ------------------------------------------------------- */

/* Finds where the client has these pages attached, from that address on, SPANS places at most.
   mseg->lock is held. */
static size_t find_spans(struct mapped_segment *mseg, struct client *client, uint64_t from_addr,
			 uint64_t first, uint64_t count, struct span *spans)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);
	uint64_t from = first * RAMP_PAGE_BYTES, to = from + count * RAMP_PAGE_BYTES, addr, len;
	size_t n = 0;

	for (size_t i = 0; cm && i < cm->count && n < SPANS; i++) {
		if (cm->at[i].end <= from_addr)
			continue;
		len = attachment_overlap(&cm->at[i], from, to, &addr);
		if (len && addr >= from_addr)
			spans[n++] = (struct span){addr, len, cm->at[i].gone};
	}
	return n;
}

/* Returns true where a thread is kept in the client. After a SIGBUS no page fault waits that could
   be woken later: so a patient caller waits first, WRITTEN_MS at most, since the processors may
   only be busy. */
static bool is_passed_over(const struct client *client, bool patient)
{
	uint64_t until_ms = clock_ms() + WRITTEN_MS;

	while (patient && keeps_a_thread(client) && clock_ms() < until_ms &&
	       !atomic_load(&client->programs->closing))
		usleep(1000);
	return keeps_a_thread(client);
}

/* Maps the pages wherever that client has them attached. Gives the references `client` and `mseg`
   back. */
static void resolve_client(struct programs *p, struct mapped_segment *mseg, struct client *client,
			   uint64_t first, uint64_t count, bool patient)
{
	uint64_t from_addr = 0, left = 0, since_ms;
	struct span spans[SPANS];
	const enum resolver kind = patient ? RESOLVER_WORKER : RESOLVER_PREFETCH;
	size_t n = SPANS;
	bool begun, noted;

	pthread_rwlock_rdlock(&mseg->lock);
	begun = resolve_begin(p, mseg);
	pthread_rwlock_unlock(&mseg->lock);
	if (!begun) {
		mseg_put(p, mseg);
		client_put(client);
		return;
	}
	for (; n == SPANS && !is_passed_over(client, patient) &&
	       !(from_addr && atomic_load(&p->closing));
	     from_addr = spans[n - 1].addr + spans[n - 1].len) {
		pthread_rwlock_rdlock(&mseg->lock);
		left = local_pages(mseg, first, count);
		n = mseg->state == MSEG_OPEN
			    ? find_spans(mseg, client, from_addr, first, left, spans)
			    : 0;
		pthread_rwlock_unlock(&mseg->lock);
		if (n == 0)
			break;
		since_ms = resolve_enter(client, kind, &noted);
		for (size_t i = 0; i < n; i++)
			if (spans[i].gone) /* by the table; the woken access finds out */
				kernel_uffd_wake(client->uffd, spans[i].addr, spans[i].len);
			else
				resolve_range(client, spans[i].addr, spans[i].len, patient);
		resolve_leave(client, kind, since_ms, noted);
	}
	resolve_end(p, mseg);
	resolve_let_go(p, mseg, client);
}

/* Returns the client after `last` (NULL: the first) that has the segment attached, with a
   reference; NULL: none. Compares addresses alone, since `last` may be freed. */
static struct client *next_client(struct mapped_segment *mseg, const struct client *last)
{
	struct client_mappings key = {.client = (struct client *)((uintptr_t)last + 1)};
	struct client *next;
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	cm = RB_NFIND(attached_by_client, &mseg->attached, &key);
	next = cm ? client_get(cm->client) : NULL;
	pthread_rwlock_unlock(&mseg->lock);
	return next;
}

void programs_resolve(struct programs *p, ramp_segment_t id, uint64_t first, uint64_t count,
		      _Atomic uint64_t *since_us)
{
	struct client *client = NULL;
	struct mapped_segment *mseg;

	/* Counted between two clients, too: a thread that was kept may be on its way to the next
	   one while the daemon ends. */
	atomic_fetch_add(&p->resolving, 1);
	mseg = mseg_find(p, id);
	while (mseg && !atomic_load(&p->closing) && (client = next_client(mseg, client))) {
		atomic_store(since_us, clock_us());
		resolve_client(p, mseg_hold(p, mseg), client, first, count, false);
	}
	resolve_let_go(p, mseg, NULL);
}

/* ---- after a write(2) ----------------------------------------------------------------------- */

/* The pages of one write(2) on their way into programs. The last reference frees it. */
struct written {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t mapped;
	uint32_t refs; /* one of each job, and one of the thread that waits */
};

struct written_job {
	struct written *written; /* references */
	struct mapped_segment *mseg;
	struct client *client;
	uint64_t first, count;
};

static struct written *written_new(void)
{
	struct written *written = calloc(1, sizeof(*written));
	pthread_condattr_t clock;

	if (!written)
		return NULL;
	written->refs = 1;
	pthread_mutex_init(&written->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&written->mapped, &clock);
	pthread_condattr_destroy(&clock);
	return written;
}

static void written_put(struct written *written)
{
	bool last;

	pthread_mutex_lock(&written->lock);
	last = --written->refs == 0;
	if (written->refs == 1)
		pthread_cond_signal(&written->mapped);
	pthread_mutex_unlock(&written->lock);
	if (!last)
		return;
	pthread_cond_destroy(&written->mapped);
	pthread_mutex_destroy(&written->lock);
	free(written);
}

static void run_written(void *arg)
{
	struct written_job *job = arg;

	resolve_client(job->client->programs, job->mseg, job->client, job->first, job->count, true);
	written_put(job->written);
	free(job);
}

static void written_wait(struct written *written)
{
	uint64_t until_us = clock_us() + WRITTEN_MS * 1000u;
	struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
				 .tv_nsec = (long)(until_us % 1000000) * 1000};
	int rc = 0;

	pthread_mutex_lock(&written->lock);
	while (written->refs > 1 && !rc)
		rc = pthread_cond_timedwait(&written->mapped, &written->lock, &until);
	pthread_mutex_unlock(&written->lock);
}

/* Begins to map the pages in one client. False: no memory. Takes the reference `client` over. */
static bool written_in(struct programs *p, struct mapped_segment *mseg, struct client *client,
		       struct written *written, uint64_t first, uint64_t count)
{
	struct written_job *job = malloc(sizeof(*job));

	if (!job) {
		client_put(client);
		return false;
	}
	*job = (struct written_job){written, mseg_hold(p, mseg), client, first, count};
	pthread_mutex_lock(&written->lock);
	written->refs++;
	pthread_mutex_unlock(&written->lock);
	workers_run_own(p->workers, client->uid, run_written, job);
	return true;
}

/* Reads the table client by client: a program that attaches meanwhile finds the page by itself. */
static void map_written(struct programs *p, struct mapped_segment *mseg, struct client *client,
			uint64_t first, uint64_t count)
{
	struct written *written = written_new();
	struct client *next = client;
	bool room = written != NULL;

	if (!written)
		client_put(client);
	while (room && next) {
		client = next;
		room = written_in(p, mseg, client, written, first, count);
		next = room ? next_client(mseg, client) : NULL;
	}
	if (!room)
		log_error("out of memory: a page that was written may stay SIGBUS");
	if (!written)
		return;
	written_wait(written);
	written_put(written);
}

void programs_written(struct programs *p, ramp_segment_t id, uint64_t first, uint64_t count)
{
	struct mapped_segment *mseg = mseg_find(p, id);
	struct client *client = mseg ? next_client(mseg, NULL) : NULL;

	if (client)
		map_written(p, mseg, client, first, count);
	if (mseg)
		mseg_put(p, mseg);
}
