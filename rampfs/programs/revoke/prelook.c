/*
 * Whether a full look at who maps a segment still holds when the window comes.
 *
 * A look at all mappings of a process takes milliseconds where it has thousands, too long for the
 * window. So it is made right before (programs_watch), and in the window only the arena is asked.
 * What can appear between the two, outside of the arena, comes from a mapping that was there, by an
 * mremap(2) of the program's own: the look comes after the attachments were registered, and what is
 * made of a registered range is registered too and raises an event, which is counted (uffd.c). Or
 * it comes with a new attach, which is counted as well. A fork's child has no session: the look of
 * CONNECT and the lease before the bytes are freed are for those.
 *
 * The last thing that the look does is to drop what programs have mapped (ahead.c).
 *
 * Registered for write protection only: with WP_ASYNC no page fault comes to us for that, and the
 * program goes on.
 *
 * How it fails: what does not hold any more, or was never watched, costs a full look within the
 * window (watch_holds is false). A mapping out of place is -EBUSY, here or there. A program that
 * keeps the lock of its memory is -EBUSY, and known by name, before anything waits for it
 * (watch_reach). One that takes it a moment later, within the window perhaps, keeps this move, and
 * of its owner's others as many as have threads (loop_work_of).
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/local.h"

#define NOWHERE UINT64_C(0x100000) /* above mmap_min_addr, below all that is mapped by itself */

/* The ready sessions, with references. -ENOMEM. */
int spaces_ready(struct programs *p, struct space ***spaces, size_t *count)
{
	struct space *space;
	size_t cap = 0;

	*count = 0;
	pthread_mutex_lock(&p->lock);
	TAILQ_FOREACH (space, &p->spaces, link)
		cap++;
	*spaces = calloc(cap + 1, sizeof(struct space *));
	if (*spaces)
		TAILQ_FOREACH (space, &p->spaces, link)
			if (space->state == SPACE_READY)
				(*spaces)[(*count)++] = space_get(space);
	pthread_mutex_unlock(&p->lock);
	return *spaces ? 0 : -ENOMEM;
}

void spaces_free(struct space **spaces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		space_put(spaces[i]);
	free(spaces);
}

/* What spaces_look does, on a thread that may outlive it. */
struct looking {
	struct programs *programs;
	struct space **spaces;
	size_t count;
	space_fn *fn;
	pid_t pid; /* the last one */
	max_align_t arg[];
};

static int look_at_spaces(struct apart *apart, void *arg)
{
	struct looking *l = arg;
	int rc = 0;

	for (size_t i = 0; i < l->count && !rc; i++) {
		l->pid = l->spaces[i]->pid;
		rc = apart_enter(apart, l->pid);
		if (!rc)
			rc = l->fn(apart, l->arg, l->spaces[i]);
	}
	return rc;
}

static void looking_free(void *arg)
{
	struct looking *l = arg;
	struct programs *p = l->programs;

	spaces_free(l->spaces, l->count);
	free(l);
	atomic_fetch_sub(&p->looking, 1); /* programs_close may free it now */
}

int spaces_look(struct space **spaces, size_t count, space_fn *fn, void *arg, size_t len,
		pid_t *pid)
{
	struct looking *l = count ? malloc(sizeof(*l) + len) : NULL;
	int rc;

	*pid = 0;
	if (!l) {
		spaces_free(spaces, count);
		return count ? -ENOMEM : 0;
	}
	*l = (struct looking){
		.programs = spaces[0]->programs, .spaces = spaces, .count = count, .fn = fn};
	atomic_fetch_add(&l->programs->looking, 1);
	if (len)
		memcpy(l->arg, arg, len);
	if (!apart_run(look_at_spaces, l, looking_free, &rc, pid))
		return -EBUSY;
	if (rc != -EBUSY) /* else who is stuck */
		*pid = l->pid;
	if (len)
		memcpy(arg, l->arg, len);
	looking_free(l);
	return rc;
}

/* ---- whose memory is locked ------------------------------------------------------------------ */

struct space **pseg_holders(struct pseg *pseg, size_t *count)
{
	struct space **list;
	struct holding *h;
	size_t cap = 1;

	*count = 0;
	pthread_rwlock_rdlock(&pseg->lock);
	RB_FOREACH (h, pseg_holdings, &pseg->holdings)
		cap++;
	list = calloc(cap, sizeof(struct space *));
	if (list)
		RB_FOREACH (h, pseg_holdings, &pseg->holdings)
			list[(*count)++] = space_get(h->space);
	pthread_rwlock_unlock(&pseg->lock);
	return list;
}

/* Takes that lock for writing, as every REGISTER does, and changes nothing. Should a program have
   mapped something there, it is not registered. */
static int look_reach(struct apart *apart, void *arg, struct space *space)
{
	int rc = apart_enter_memory(apart, space->pid);

	(void)arg;
	if (!rc)
		(void)kernel_uffd_unregister(space->uffd, NOWHERE, RAMP_PAGE_BYTES);
	return rc;
}

int watch_reach(struct pseg *pseg, struct ramp_err *err)
{
	struct space **spaces;
	char name[64];
	size_t count;
	pid_t pid;
	int rc;

	spaces = pseg_holders(pseg, &count);
	if (!spaces)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = spaces_look(spaces, count, look_reach, NULL, 0, &pid);
	if (!rc)
		return 0;
	if (!pid)
		return ramp_err_sys(err, -rc, "looking into sessions");
	process_name(pid, name);
	return ramp_err_set(err, EBUSY,
			    "process %s maps it and keeps the lock of its memory: a filesystem "
			    "that it uses does not answer",
			    name);
}

/* ---- the look -------------------------------------------------------------------------------- */

/* Live pieces, and the remap events of their spaces. False: an mremap is under way. */
static bool count_all(const struct piece *pieces, size_t count, size_t *live, uint64_t *remaps)
{
	const struct space *last = NULL;
	uint64_t one;

	*live = *remaps = 0;
	for (size_t i = 0; i < count; i++) {
		if (pieces[i].gone)
			continue;
		++*live;
		if (pieces[i].space == last)
			continue;
		last = pieces[i].space;
		if (!uffd_remaps(pieces[i].space, &one))
			return false;
		*remaps += one;
	}
	return true;
}

/* How many attaches there ever were. False: one is under way. */
static bool count_attaches(struct programs *p, struct pseg *pseg, uint64_t *attaches)
{
	bool none;

	pthread_mutex_lock(&p->lock);
	*attaches = pseg->attaches;
	none = pseg->attaching == 0;
	pthread_mutex_unlock(&p->lock);
	return none;
}

bool watch_holds(struct programs *p, struct pseg *pseg, const struct piece *pieces, size_t count)
{
	const struct watch *w = &pseg->watch;
	uint64_t remaps, attaches;
	size_t live;

	return w->on && count_attaches(p, pseg, &attaches) && attaches == w->attaches &&
	       count_all(pieces, count, &live, &remaps) && live == w->live && remaps == w->remaps;
}

/* False: one of them is not there any more. */
static bool arm_early(struct pseg *pseg, const struct piece *pieces, size_t count)
{
	uint64_t modes = pseg->pulling ? KERNEL_UFFD_MODES : UFFDIO_REGISTER_MODE_WP;

	for (size_t i = 0; i < count; i++)
		if (!pieces[i].gone && kernel_uffd_register(pieces[i].space->uffd, pieces[i].start,
							    pieces[i].end - pieces[i].start, modes))
			return false;
	return true;
}

struct extent {
	uint64_t lo, hi, ino;
};

static int look_outside(struct apart *apart, void *arg, struct space *space)
{
	const struct extent *e = arg;

	(void)apart;
	return mappers_outside(space, e->lo, e->hi, e->ino);
}

int watch_look(struct programs *p, struct pseg *pseg, uint64_t ino, struct ramp_err *err)
{
	struct extent extent = {pseg->lo, pseg->hi, ino};
	struct space **spaces;
	char name[64];
	pid_t pid;
	size_t n;
	int rc;

	if (spaces_ready(p, &spaces, &n))
		return ramp_err_sys(err, ENOMEM, "asking who maps it");
	rc = spaces_look(spaces, n, look_outside, &extent, sizeof(extent), &pid);
	if (!rc)
		return 0;
	if (!pid)
		return ramp_err_sys(err, -rc, "looking into sessions");
	process_name(pid, name);
	return rc > 0 ? ramp_err_set(err, EBUSY, "process %s maps it outside of its extent", name)
		      : ramp_err_set(err, EBUSY, "looking into process %s: %s", name,
				     strerror(-rc));
}

static void note_stopped(const struct piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (i == 0 || pieces[i].space != pieces[i - 1].space)
			atomic_store(&pieces[i].space->stopped, inject_stopped(pieces[i].space));
}

/* change is held. */
static int watch(struct programs *p, struct pseg *pseg, uint64_t ino, struct ramp_err *err)
{
	struct watch *w = &pseg->watch;
	struct piece *pieces = NULL;
	size_t count = 0;
	int rc;

	/* CONNECT was a while ago. */
	pseg_look_all(p, pseg, NULL);
	if (pseg_pieces(pseg, &pieces, &count))
		return ramp_err_sys(err, ENOMEM, "attachments");
	w->armed = true;
	w->on = count_attaches(p, pseg, &w->attaches) && arm_early(pseg, pieces, count) &&
		count_all(pieces, count, &w->live, &w->remaps);
	rc = watch_look(p, pseg, ino, err);
	note_stopped(pieces, count);
	if (!rc)
		ahead_last(pseg, pieces, count);
	pieces_free(pieces, count);
	if (rc)
		watch_end(pseg);
	return rc;
}

void watch_end(struct pseg *pseg)
{
	struct holding *h;

	pseg->watch.on = pseg->watch.armed = false;
	if (pseg_armed(pseg))
		return;
	RB_FOREACH (h, pseg_holdings, &pseg->holdings)
		for (size_t i = 0; i < h->count; i++)
			if (!h->at[i].gone)
				uffd_disarm(h->space, h->at[i].start, h->at[i].end);
}

int programs_watch(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	struct pseg *pseg = pseg_get(p, seg_id(seg));
	struct stat st;
	int rc;

	if (!pseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = watch_reach(pseg, err);
	if (rc) {
		pseg_put(p, pseg);
		return rc;
	}
	pthread_mutex_lock(&pseg->change);
	if (fstat(seg_fd(seg), &st))
		rc = ramp_err_sys(err, errno, "the segment's file");
	else if (pseg->state == PSEG_OPEN)
		rc = watch(p, pseg, st.st_ino, err);
	pthread_mutex_unlock(&pseg->change);
	pseg_put(p, pseg);
	return rc;
}
