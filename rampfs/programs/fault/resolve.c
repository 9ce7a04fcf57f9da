/*
 * Pages that have come are mapped where they are attached, and who waits for them goes on.
 *
 * Happy path: the table says where the segment is attached, and CONTINUE maps the pages there.
 * Nothing is locked meanwhile: the kernel takes the lock of the program's memory where it can't do
 * with less (a private mapping before its first page, no mapping any more, or before Linux 6.9),
 * and a program can keep that lock for as long as it likes. Whoever is in there is counted in
 * pseg->resolving instead, which a freeze waits for: a page that were mapped behind it would be a
 * program's way to a segment that has left.
 *
 * How it fails: what is not LOCAL any more, frozen, or attached elsewhere by now is left to the
 * page fault that comes again. Who keeps his memory keeps the caller; of the pager and the prefetch
 * thread another one goes on (pull/turn.c). A program that has kept the pager does it no more, nor
 * does its user by another: for APART_MS pages are mapped for him on the pool, in his share. So is
 * what a write(2) has brought, which goes on after a moment. Whoever is about to go where somebody
 * is kept passes it over, and who is back wakes all that wait there.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "memory/pages.h"
#include "programs/local.h"

#define EAGAIN_TRIES 2000
#define HASTY_TRIES  8	 /* no sleep: it may have tens of such page faults to look at */
#define KEPT_MS	     50u /* so long in one program's memory: it keeps whoever goes there */
#define WRITTEN_MS   100u
#define APART_MS     600000u
#define SPANS	     16u /* looked up at once */

/* A part of an attachment. */
struct span {
	uint64_t addr, len;
	bool gone;
};

static void resolve_range(struct space *space, uint64_t addr, uint64_t len, bool patient)
{
	int tries = 0, most = patient ? EAGAIN_TRIES : HASTY_TRIES;
	uint64_t done = 0;

	while (done < len) {
		int64_t n = kernel_uffd_continue(space->uffd, addr + done, len - done, true);

		if (n > 0) {
			done += (uint64_t)n;
		} else if (n == -EAGAIN && tries++ < most &&
			   !atomic_load(&space->programs->closing)) {
			uffd_drain(space);
			uffd_let_others(tries);
		} else if (n == -EFAULT) {
			/* Past the end of the file: the access finds that out by itself. */
			space_wake(space, addr + done);
			done += RAMP_PAGE_BYTES;
		} else {
			kernel_uffd_wake(space->uffd, addr + done, len - done);
			return;
		}
	}
}

/* ---- counting ------------------------------------------------------------------------------- */

/* pseg->lock is held: whoever sets another state from here on sees it. */
static bool begin(struct programs *p, struct pseg *pseg)
{
	if (pseg->state != PSEG_OPEN || !pseg->pulling)
		return false;
	atomic_fetch_add(&p->resolving, 1);
	atomic_fetch_add(&pseg->resolving, 1);
	return true;
}

static void end(struct programs *p, struct pseg *pseg)
{
	atomic_fetch_sub(&pseg->resolving, 1);
	if (pseg->state != PSEG_OPEN) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->changed);
		pthread_mutex_unlock(&p->lock);
	}
}

/* The last of it. Where programs_close has been and gone, what is left is the process's to free. */
static void let_go(struct programs *p, struct pseg *pseg, struct space *space)
{
	pthread_rwlock_rdlock(&p->ending);
	if (!p->ended) {
		if (pseg)
			pseg_put(p, pseg);
		if (space)
			space_put(space);
	}
	atomic_fetch_sub(&p->resolving, 1);
	pthread_rwlock_unlock(&p->ending);
}

static bool keeps(const struct space *space)
{
	uint64_t now = now_ms(), since;

	for (int i = 0; i < RESOLVERS; i++) {
		since = atomic_load(&space->resolving_ms[i]);
		if (since && now > since + KEPT_MS)
			return true;
	}
	return false;
}

/* When it began; *noted: as the first of them. */
static uint64_t enter(struct space *space, enum resolver who, bool *noted)
{
	uint64_t now = now_ms(), nobody = 0;

	*noted = atomic_compare_exchange_strong(&space->resolving_ms[who], &nobody, now);
	return now;
}

static void leave(struct space *space, enum resolver who, uint64_t since_ms, bool noted)
{
	if (noted)
		atomic_store(&space->resolving_ms[who], 0);
	/* What has passed it over. The pager's space was parked as well. */
	if (now_ms() > since_ms + KEPT_MS)
		space_wake_all(space);
}

/* ---- where somebody waits ------------------------------------------------------------------- */

/* How many of these pages are LOCAL. Since they came the segment may have left, and come again.
   pseg->lock is held. */
static uint64_t local_pages(struct pseg *pseg, uint64_t first, uint64_t count)
{
	enum page_state state;
	uint64_t run = pseg->seg ? pages_run(pseg->seg, first, count, &state) : 0;

	return run && state == PAGE_LOCAL ? run : 0;
}

/* How many bytes of it are attached at that address; 0: something else is there by now. pseg->lock is
   held. */
static uint64_t attached_at(struct pseg *pseg, struct space *space, uint64_t addr, uint64_t first,
			    uint64_t count)
{
	struct holding *h = pseg_holding(pseg, space);
	const struct attachment *a = h ? holding_at(h, addr) : NULL;
	uint64_t len = local_pages(pseg, first, count) * RAMP_PAGE_BYTES;

	if (!a || a->gone || a->offset + (addr - a->start) != first * RAMP_PAGE_BYTES)
		return 0;
	return len < a->end - addr ? len : a->end - addr;
}

static void resolve_at(struct space *space, ramp_segment_t id, uint64_t addr, uint64_t first,
		       uint64_t count, enum resolver who)
{
	struct programs *p = space->programs;
	struct pseg *pseg = pseg_find(p, id);
	bool begun = false, noted;
	uint64_t len = 0, since_ms;

	if (!pseg)
		return;
	if (pthread_rwlock_tryrdlock(&pseg->lock)) {
		space_wake(space, addr);
	} else {
		begun = begin(p, pseg);
		if (begun)
			len = attached_at(pseg, space, addr, first, count);
		pthread_rwlock_unlock(&pseg->lock);
	}
	if (!begun) {
		pseg_put(p, pseg);
		return;
	}
	since_ms = enter(space, who, &noted);
	if (len)
		resolve_range(space, addr, len, false);
	else
		space_wake(space, addr);
	leave(space, who, since_ms, noted);
	end(p, pseg);
	let_go(p, pseg, NULL);
}

struct apart_job {
	struct space *space; /* a reference */
	ramp_segment_t id;
	uint64_t addr, first, count;
};

static void run_apart(void *arg)
{
	struct apart_job *job = arg;

	if (!keeps(job->space))
		resolve_at(job->space, job->id, job->addr, job->first, job->count, RESOLVER_POOL);
	space_put(job->space);
	free(job);
}

static void resolve_apart(struct space *space, ramp_segment_t id, uint64_t addr, uint64_t first,
			  uint64_t count)
{
	struct apart_job *job = malloc(sizeof(*job));

	if (!job) {
		space_wake(space, addr); /* until there is memory */
		return;
	}
	*job = (struct apart_job){space_get(space), id, addr, first, count};
	pool_run_own(space->programs->pool, space->uid, run_apart, job);
}

static _Atomic uint64_t *apart_until(struct space *space)
{
	return &space->programs->apart_until_ms[space->uid % GREEDY_SLOTS];
}

void space_kept(struct space *space)
{
	if (atomic_exchange(apart_until(space), now_ms() + APART_MS) <= now_ms())
		log_warn("process %d keeps the lock of its memory, where pages of it are to be "
			 "mapped: page faults of user %u are served apart for %u minutes",
			 (int)space->pid, (unsigned int)space->uid, APART_MS / 60000u);
}

void space_resolve(struct space *space, ramp_segment_t id, uint64_t addr, uint64_t first,
		   uint64_t count)
{
	if (atomic_load(apart_until(space)) > now_ms())
		resolve_apart(space, id, addr, first, count);
	else
		resolve_at(space, id, addr, first, count, RESOLVER_PAGER);
}

/* ---- wherever it is attached ---------------------------------------------------------------- */

/* The part of an attachment that maps bytes [from, to) of the file: its address, and length. */
uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr)
{
	uint64_t a_to = a->offset + (a->end - a->start);
	uint64_t lo = from > a->offset ? from : a->offset;
	uint64_t hi = to < a_to ? to : a_to;

	if (lo >= hi)
		return 0;
	*addr = a->start + (lo - a->offset);
	return hi - lo;
}

/* Where the space has these pages, from that address on; pseg->lock is held. */
static size_t find_spans(struct pseg *pseg, struct space *space, uint64_t from_addr, uint64_t first,
			 uint64_t count, struct span *spans)
{
	const struct holding *h = pseg_holding(pseg, space);
	uint64_t from = first * RAMP_PAGE_BYTES, to = from + count * RAMP_PAGE_BYTES, addr, len;
	size_t n = 0;

	for (size_t i = 0; h && i < h->count && n < SPANS; i++) {
		if (h->at[i].end <= from_addr)
			continue;
		len = attachment_overlap(&h->at[i], from, to, &addr);
		if (len && addr >= from_addr)
			spans[n++] = (struct span){addr, len, h->at[i].gone};
	}
	return n;
}

/* Nobody wakes who was told SIGBUS: where it is only that processors are busy, that is waited for. */
static bool is_passed_over(const struct space *space, bool patient)
{
	uint64_t until_ms = now_ms() + WRITTEN_MS;

	while (patient && keeps(space) && now_ms() < until_ms &&
	       !atomic_load(&space->programs->closing))
		usleep(1000);
	return keeps(space);
}

/* As it is attached in that space. `space` and `pseg`: references, which it gives back. */
static void resolve_space(struct programs *p, struct pseg *pseg, struct space *space,
			  uint64_t first, uint64_t count, bool patient)
{
	uint64_t from_addr = 0, left = 0, since_ms;
	struct span spans[SPANS];
	const enum resolver who = patient ? RESOLVER_POOL : RESOLVER_PREFETCH;
	size_t n = SPANS;
	bool begun, noted;

	pthread_rwlock_rdlock(&pseg->lock);
	begun = begin(p, pseg);
	pthread_rwlock_unlock(&pseg->lock);
	if (!begun) {
		pseg_put(p, pseg);
		space_put(space);
		return;
	}
	for (; n == SPANS && !is_passed_over(space, patient) &&
	       !(from_addr && atomic_load(&p->closing));
	     from_addr = spans[n - 1].addr + spans[n - 1].len) {
		pthread_rwlock_rdlock(&pseg->lock);
		left = local_pages(pseg, first, count);
		n = pseg->state == PSEG_OPEN
			    ? find_spans(pseg, space, from_addr, first, left, spans)
			    : 0;
		pthread_rwlock_unlock(&pseg->lock);
		if (n == 0)
			break;
		since_ms = enter(space, who, &noted);
		for (size_t i = 0; i < n; i++)
			if (spans[i].gone) /* as the table has it; the access finds out */
				kernel_uffd_wake(space->uffd, spans[i].addr, spans[i].len);
			else
				resolve_range(space, spans[i].addr, spans[i].len, patient);
		leave(space, who, since_ms, noted);
	}
	end(p, pseg);
	let_go(p, pseg, space);
}

/* The space after `last` (NULL: the first) that has it attached, with a reference; NULL: none. It
   compares addresses alone: the last one may be gone. */
static struct space *next_space(struct pseg *pseg, const struct space *last)
{
	struct holding key = {.space = (struct space *)((uintptr_t)last + 1)};
	struct space *next;
	struct holding *h;

	pthread_rwlock_rdlock(&pseg->lock);
	h = RB_NFIND(pseg_holdings, &pseg->holdings, &key);
	next = h ? space_get(h->space) : NULL;
	pthread_rwlock_unlock(&pseg->lock);
	return next;
}

void programs_resolve(struct programs *p, ramp_segment_t id, uint64_t first, uint64_t count,
		      _Atomic uint64_t *since_us)
{
	struct space *space = NULL;
	struct pseg *pseg;

	/* From one space to the next, too: who was kept may be on his way there while the daemon ends. */
	atomic_fetch_add(&p->resolving, 1);
	pseg = pseg_find(p, id);
	while (pseg && !atomic_load(&p->closing) && (space = next_space(pseg, space))) {
		atomic_store(since_us, now_us());
		resolve_space(p, pseg_hold(p, pseg), space, first, count, false);
	}
	let_go(p, pseg, NULL);
}

/* ---- after a write(2) ----------------------------------------------------------------------- */

/* Whoever gives back the last reference frees it. */
struct written {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t mapped;
	uint32_t refs; /* of those who map it, and one of who waits */
};

struct written_job {
	struct written *written; /* references */
	struct pseg *pseg;
	struct space *space;
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

	resolve_space(job->space->programs, job->pseg, job->space, job->first, job->count, true);
	written_put(job->written);
	free(job);
}

static void written_wait(struct written *written)
{
	uint64_t until_us = now_us() + WRITTEN_MS * 1000u;
	struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
				 .tv_nsec = (long)(until_us % 1000000) * 1000};
	int rc = 0;

	pthread_mutex_lock(&written->lock);
	while (written->refs > 1 && !rc)
		rc = pthread_cond_timedwait(&written->mapped, &written->lock, &until);
	pthread_mutex_unlock(&written->lock);
}

/* False: no memory. `space` is the job's, or given back. */
static bool written_in(struct programs *p, struct pseg *pseg, struct space *space,
		       struct written *written, uint64_t first, uint64_t count)
{
	struct written_job *job = malloc(sizeof(*job));

	if (!job) {
		space_put(space);
		return false;
	}
	*job = (struct written_job){written, pseg_hold(p, pseg), space, first, count};
	pthread_mutex_lock(&written->lock);
	written->refs++;
	pthread_mutex_unlock(&written->lock);
	pool_run_own(p->pool, space->uid, run_written, job);
	return true;
}

/* Reads the table as it goes; what attaches meanwhile finds the page by itself. */
static void map_written(struct programs *p, struct pseg *pseg, struct space *space, uint64_t first,
			uint64_t count)
{
	struct written *written = written_new();
	struct space *next = space;
	bool room = written != NULL;

	if (!written)
		space_put(space);
	while (room && next) {
		space = next;
		room = written_in(p, pseg, space, written, first, count);
		next = room ? next_space(pseg, space) : NULL;
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
	struct pseg *pseg = pseg_find(p, id);
	struct space *space = pseg ? next_space(pseg, NULL) : NULL;

	if (space)
		map_written(p, pseg, space, first, count);
	if (pseg)
		pseg_put(p, pseg);
}
