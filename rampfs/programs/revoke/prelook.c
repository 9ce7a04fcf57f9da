/*
 * Makes a full look at the mappings of a segment, and says whether it still holds when the window
 * comes.
 *
 * A look at all mappings of a process takes milliseconds where it has thousands, too long for the
 * window. So it is made right before (programs_prelook), and in the window only the segment's extent is
 * asked. A mapping outside of it can appear between the two in two ways. The program's own mremap(2)
 * makes it from a mapping that was there: but the look comes after the attachments were registered,
 * and a mapping that is made of a registered range is registered too and raises an event, which is
 * counted (uffd.c). Or it comes with a new attach, which is counted as well. A fork's child has no
 * session: the look of CONNECT, and the lease before the bytes are freed, are for such children.
 *
 * The last step of the look is to find places for the page tables that the revoke moves away
 * (move_away.c).
 *
 * Attachments are registered for write protection only: with WP_ASYNC no page fault comes to the
 * daemon for that, and the program continues.
 *
 * How it fails: where the look does not hold any more, or was never made, a full look is made
 * within the window (prelook_holds is false). A mapping out of place is -EBUSY, here or there. A
 * program that keeps the lock of its memory is -EBUSY, and known by name, before anything waits for
 * it (prelook_reach). One that takes the lock later, within the window perhaps, keeps this move,
 * and as many other moves of the segment's owner as have threads (loop_work_of).
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "close_stores.h"
#include "outside.h"
#include "prelook.h"
#include "programs/attach/attachments.h"
#include "programs/attach/beside.h"
#include "programs/attach/move_away.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"
#include "programs/programs.h"

/* above mmap_min_addr, below everything that is mapped unless a program asks for such an address */
#define NOWHERE	       UINT64_C(0x100000)
#define COUNT_TRIES    400 /* for an mremap that is under way: 20 ms and more */
#define HOLD_TRIES     10 /* the same in the window, where a full look takes a millisecond or more */
#define COUNT_PAUSE_US 50

#define UNMAP_MS 1000u

/* ---- locked memories ------------------------------------------------------------------------ */

/* Takes the lock of the memory for writing, as every REGISTER does, and changes nothing: if the
   program has mapped something at NOWHERE, that is not registered. */
static int look_reach(struct bounded *bounded, void *arg, struct client *client)
{
	int rc = bounded_enter_memory(bounded, client->pid);

	(void)arg;
	if (!rc)
		(void)kernel_uffd_unregister(client->uffd, NOWHERE, RAMP_PAGE_BYTES);
	return rc;
}

int prelook_reach(struct mapped_segment *mseg, struct ramp_err *err)
{
	struct client **clients;
	char name[64];
	size_t count;
	pid_t pid;
	int rc;

	clients = mseg_clients(mseg, &count);
	if (!clients)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = clients_look(clients, count, look_reach, NULL, 0, &pid);
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

static bool is_among(struct client *const *clients, size_t n, const struct client *client)
{
	for (size_t i = 0; i < n; i++)
		if (clients[i] == client)
			return true;
	return false;
}

/* ---- the look ------------------------------------------------------------------------------- */

/* Counts the live refs, and the remap events of their clients. False: an mremap is under way. */
static bool count_all(const struct mapping_ref *refs, size_t count, size_t *live, uint64_t *remaps)
{
	const struct client *last = NULL;
	uint64_t one;

	*live = *remaps = 0;
	for (size_t i = 0; i < count; i++) {
		if (refs[i].gone)
			continue;
		++*live;
		if (refs[i].client == last)
			continue;
		last = refs[i].client;
		if (!uffd_remaps(refs[i].client, &one))
			return false;
		*remaps += one;
	}
	return true;
}

/* Counts the attaches that there ever were. False: one is under way. */
static bool count_attaches(struct programs *p, struct mapped_segment *mseg, uint64_t *attaches)
{
	bool none;

	pthread_mutex_lock(&p->lock);
	*attaches = mseg->attaches;
	none = mseg->attaching == 0;
	pthread_mutex_unlock(&p->lock);
	return none;
}

/* The agent that has just moved page tables away, here or for another segment, ends its mremap when it has had a
   processor once more. Without a count all pages would be sent again, or all mappings looked at in the
   window. */
static bool count_soon(struct programs *p, struct mapped_segment *mseg,
		       const struct mapping_ref *refs, size_t count, int tries,
		       struct prelook *counts)
{
	if (!count_attaches(p, mseg, &counts->attaches))
		return false; /* it needs `change` to end */
	for (int i = 0; !count_all(refs, count, &counts->live, &counts->remaps); i++) {
		if (i == tries)
			return false;
		usleep(COUNT_PAUSE_US);
	}
	return true;
}

bool prelook_count(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count, struct prelook *counts)
{
	return count_soon(p, mseg, refs, count, COUNT_TRIES, counts);
}

bool prelook_holds(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *refs,
		   size_t count)
{
	const struct prelook *w = &mseg->prelook;
	struct prelook now;

	return w->on && count_soon(p, mseg, refs, count, HOLD_TRIES, &now) &&
	       now.attaches == w->attaches && now.live == w->live && now.remaps == w->remaps;
}

/* Registers all live refs. False: one of them is not there any more. */
static bool arm_early(struct mapped_segment *mseg, const struct mapping_ref *refs, size_t count)
{
	uint64_t modes = mseg->pulling ? KERNEL_UFFD_MODES : UFFDIO_REGISTER_MODE_WP;

	for (size_t i = 0; i < count; i++)
		if (!refs[i].gone && kernel_uffd_register(refs[i].client->uffd, refs[i].start,
							  refs[i].end - refs[i].start, modes))
			return false;
	return true;
}

/* *last: the process that was looked at last, just now; NULL: none. */
static void note_stopped(struct mapped_segment *mseg, const struct client **last)
{
	struct client **clients;
	size_t count;

	clients = mseg_clients(mseg, &count);
	if (!clients) /* no memory: the revoke finds out */
		return;
	for (size_t i = 0; i < count; i++) {
		if (clients[i] != *last)
			atomic_store(&clients[i]->stopped, client_stopped(clients[i]));
		*last = clients[i];
	}
	clients_free(clients, count);
}

/* Registers, and counts what would outdate the look that comes next. change is held. */
static int prelook_begin(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err)
{
	struct prelook *w = &mseg->prelook;
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	/* The table may be old: CONNECT was a while ago. */
	mseg_look_all(p, mseg, NULL);
	if (mseg_refs(mseg, &refs, &count))
		return ramp_err_sys(err, ENOMEM, "attachments");
	w->armed = true;
	w->on = arm_early(mseg, refs, count) && prelook_count(p, mseg, refs, count, w);
	mapping_refs_free(refs, count);
	return 0;
}

void prelook_end(struct programs *p, struct mapped_segment *mseg)
{
	struct client_mappings *cm;

	mseg->prelook.on = mseg->prelook.armed = false;
	beside_drop(mseg, clock_ms() + UNMAP_MS);
	move_away_return(p, mseg);
	if (mseg_armed(mseg))
		return;
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (!cm->at[i].gone)
				uffd_disarm(cm->client, cm->at[i].start, cm->at[i].end);
}

/* ---- of one segment, or of many -------------------------------------------------------------- */

/* Adds the clients of one segment that are not there yet. Returns 0 or -ENOMEM. */
static int add_clients(struct mapped_segment *mseg, struct client ***all, size_t *n)
{
	size_t count, before = *n;
	struct client **some = mseg_clients(mseg, &count), **more;

	if (!some)
		return -ENOMEM;
	more = reallocarray(*all, before + count + 1, sizeof(*more));
	if (!more) {
		clients_free(some, count);
		return -ENOMEM;
	}
	*all = more;
	for (size_t i = 0; i < count; i++)
		if (is_among(more, before, some[i]))
			client_put(some[i]);
		else
			more[(*n)++] = some[i];
	free(some);
	return 0;
}

/* Checks the memories of all of them by one look. False: one can't be had, or there is no memory. */
static bool reach_together(const struct prelook_one *ones, size_t n)
{
	struct client **all = NULL;
	size_t count = 0;
	pid_t pid;

	for (size_t i = 0; i < n; i++) {
		if (!ones[i].mseg || add_clients(ones[i].mseg, &all, &count)) {
			clients_free(all, count);
			return false;
		}
	}
	return !clients_look(all, count, look_reach, NULL, 0, &pid);
}

static void reach_all(struct prelook_one *ones, size_t n)
{
	if (n > 1 && reach_together(ones, n))
		return;
	for (size_t i = 0; i < n; i++)
		if (ones[i].mseg)
			ones[i].rc = prelook_reach(ones[i].mseg, ones[i].err);
}

static int begin_one(struct programs *p, struct prelook_one *one)
{
	struct mapped_segment *mseg = one->mseg;
	struct stat st;
	int rc = 0;

	pthread_mutex_lock(&mseg->change);
	if (fstat(seg_fd(one->seg), &st)) {
		rc = ramp_err_sys(one->err, errno, "the segment's file");
	} else if (mseg->state == MSEG_OPEN) {
		one->ino = st.st_ino;
		rc = prelook_begin(p, mseg, one->err);
		one->looks = !rc;
	} else if (mseg->state == MSEG_CLOSED) {
		rc = close_stores_prepare(p, mseg, one->err);
	}
	pthread_mutex_unlock(&mseg->change);
	return rc;
}

static void end_one(struct programs *p, struct prelook_one *one, const struct outside_run *run,
		    const struct client **last)
{
	pthread_mutex_lock(&one->mseg->change);
	one->rc = run ? outside_find(run, one->mseg, one->ino, one->err)
		      : ramp_err_sys(one->err, ENOMEM, "asking which sessions map it");
	if (one->rc) {
		prelook_end(p, one->mseg);
	} else {
		note_stopped(one->mseg, last);
		move_away_prepare(p, one->mseg);
	}
	pthread_mutex_unlock(&one->mseg->change);
}

/* Between its two steps no segment is locked: an attach meanwhile is counted. */
void programs_prelook_many(struct programs *p, struct prelook_one *ones, size_t n)
{
	const struct client *last = NULL;
	struct outside_run *run = NULL;
	bool looks = false;

	for (size_t i = 0; i < n; i++) {
		ones[i].looks = false;
		ones[i].mseg = mseg_get(p, seg_id(ones[i].seg));
		ones[i].rc = ones[i].mseg ? 0 : ramp_err_sys(ones[i].err, ENOMEM, "attachments");
	}
	reach_all(ones, n);
	for (size_t i = 0; i < n; i++) {
		if (!ones[i].rc)
			ones[i].rc = begin_one(p, &ones[i]);
		looks |= ones[i].looks;
	}
	if (looks)
		run = outside_look(p);
	for (size_t i = 0; i < n; i++) {
		if (ones[i].looks)
			end_one(p, &ones[i], run, &last);
		if (ones[i].mseg)
			mseg_put(p, ones[i].mseg);
	}
	outside_put(run);
}

int programs_prelook(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	struct prelook_one one = {.seg = seg, .err = err};

	programs_prelook_many(p, &one, 1);
	return one.rc;
}
