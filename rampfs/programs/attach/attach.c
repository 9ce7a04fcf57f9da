/*
 * ATTACH and DETACH: how a mapping comes into a process. For the child of a fork, see fork_adopt.c.
 *
 * Happy path of an ATTACH: the token says which segment it is and with which access; the segment
 * gets its extent, if it has none; a freeze is waited out; the agent maps the file without access
 * (MAP); the table learns of the mapping, and it is registered if pages are missing; the agent
 * gives the access (PROTECT). The order matters: the program can't touch the range before it is
 * registered.
 *
 * How it fails: before MAP nothing has happened. After it, UNMAP takes the mapping back, also if
 * the thread that asked has given up. That thread may have asked again, and the mapping it got then
 * must not be taken back on account of the first request. So a request that was given up gets no
 * MAP, and after a later MAP there is no UNMAP for an earlier one (the rest of that goes with the
 * later MAP, or with the program's next mmap). Everything runs on the workers and may wait, for a
 * session, a freeze, Raft or the agent, each with a bound.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent_call.h"
#include "ahead.h"
#include "attach.h"
#include "attachments.h"
#include "base/clock.h"
#include "base/session.h"
#include "extent.h"
#include "memory/pages.h"
#include "memory/record.h"
#include "programs/client/clients.h"
#include "programs/client/request.h"
#include "programs/client/tokens.h"
#include "programs/programs.h"
#include "replace.h"

#define REPLACE_MS 1000u

/* ---- the freeze ----------------------------------------------------------------------------- */

/*
 * Opens a segment that the table shows as GONE although its record serves: it has come back, or its
 * table entry was made while it was only reserved. Only if no attachment waits to be put back.
 * True: it was opened; look again.
 */
static bool open_again(struct programs *p, struct mapped_segment *mseg, struct seg *seg)
{
	struct record record;
	bool opened = false;

	record_get(seg, &record);
	if (!record_serves(&record))
		return false;
	pthread_mutex_lock(&mseg->change);
	if (mseg->state == MSEG_GONE && RB_EMPTY(&mseg->attached)) {
		mseg_set_seg(mseg, seg);
		pthread_rwlock_wrlock(&mseg->lock);
		mseg->pulling = pages_missing(seg) > 0;
		pthread_rwlock_unlock(&mseg->lock);
		mseg_go(p, mseg, MSEG_GONE, MSEG_OPEN);
		opened = true;
	}
	pthread_mutex_unlock(&mseg->change);
	return opened;
}

/* `holds`: NULL, or the number of holds that the caller has seen; -EAGAIN: there was another. */
static int attach_try(struct programs *p, struct mapped_segment *mseg, const uint64_t *holds,
		      struct ramp_err *err)
{
	uint64_t until = clock_ms() + FREEZE_WAIT_MS;
	bool passes, open, held, again;
	int state;

	pthread_mutex_lock(&p->lock);
	do {
		/* Read before the state, since it is set after that. */
		passes = atomic_load(&mseg->coming);
		state = mseg->state;
		open = state == MSEG_OPEN || state == MSEG_CLOSED;
		held = open && mseg->held;
		again = open && !held && holds && *holds != mseg->holds;
		if (open && !held && !again) {
			mseg->attaching++;
			mseg->attaches++;
		}
		passes = held || state == MSEG_FROZEN || (state == MSEG_GONE && passes);
	} while (passes && programs_wait(p, until));
	pthread_mutex_unlock(&p->lock);
	if (held)
		return ramp_err_set(err, EBUSY, "its addresses are being given back");
	if (state == MSEG_FROZEN)
		return extent_is_moved_long(err);
	if (state == MSEG_GONE)
		return ramp_err_set(err, EREMOTE, "it is on another node");
	return again ? -EAGAIN : 0;
}

int attach_enter(struct programs *p, struct mapped_segment *mseg, struct ramp_err *err)
{
	return attach_try(p, mseg, NULL, err);
}

void attach_leave(struct programs *p, struct mapped_segment *mseg)
{
	pthread_mutex_lock(&p->lock);
	mseg->attaching--;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

int attach_enter_extent(struct programs *p, struct mapped_segment *mseg, struct seg *seg,
			struct attach_range *wish, struct segment_row *row, struct ramp_err *err)
{
	uint64_t holds;
	int rc;

	do {
		pthread_mutex_lock(&p->lock);
		holds = mseg->holds;
		pthread_mutex_unlock(&p->lock);
		rc = extent_find(p, mseg, seg, wish, row, err);
		rc = rc ? rc : attach_try(p, mseg, &holds, err);
		if (!rc && extent_row_is_behind(seg, row)) { /* it has come here since */
			attach_leave(p, mseg);
			rc = -EAGAIN;
		}
	} while (rc == -EAGAIN && !err->code && !atomic_load(&p->closing));
	if (rc)
		return rc;
	/* Only now: from here on it stays the extent until the attach has left. */
	extent_note(mseg, row);
	return 0;
}

/* ---- mapping -------------------------------------------------------------------------------- */

static int attach_look(struct programs *p, struct mapped_segment *mseg, struct client *client)
{
	int rc;

	pthread_mutex_lock(&mseg->change);
	rc = mseg_look(p, mseg, client);
	pthread_mutex_unlock(&mseg->change);
	return rc;
}

static int unmap(struct programs *p, struct mapped_segment *mseg, struct client *client,
		 const struct session_msg *mapped)
{
	struct session_msg msg = {.type = SESSION_UNMAP, .addr = mapped->addr, .len = mapped->len};
	int rc = 0;

	pthread_mutex_lock(&client->io);
	if (mapped->serial && mapped->serial == client->mapped)
		rc = agent_ask(client, &msg, -1, clock_ms() + p->connect_ms, NULL);
	pthread_mutex_unlock(&client->io);
	attach_look(p, mseg, client);
	return rc;
}

/* Sends MAP, unless the request was given up. A thread that asks again has hung up its first
   request before: so that is checked with io held. */
static int send_map(struct client *client, struct session_msg *map, int fd,
		    const struct client_request *asker)
{
	int rc = -EPIPE;

	pthread_mutex_lock(&client->io);
	if (!asker || !request_is_for_nobody(asker)) {
		rc = agent_ask(client, map, fd, clock_ms() + client->programs->connect_ms, NULL);
		client->mapped = map->serial;
	}
	pthread_mutex_unlock(&client->io);
	return rc;
}

int attach_failed(int rc, const struct attach_range *wish, struct ramp_err *err)
{
	unsigned long long addr = wish->addr;

	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT, "the process's agent does not answer");
	if (rc == -ESRCH || rc == -EPROTO)
		return ramp_err_set(err, ESRCH, "the process's session has ended");
	if (rc == -EOPNOTSUPP)
		return ramp_err_set(err, EOPNOTSUPP,
				    "it is closed to stores until it has moved, which the agent of "
				    "this process is too old for");
	if (rc == -EEXIST)
		return ramp_err_set(err, EEXIST,
				    "something else is mapped at its address 0x%llx (\"arena\" in "
				    "rampfs-cluster.conf(5))",
				    addr);
	if (rc == -EADDRNOTAVAIL)
		return ramp_err_set(err, EADDRNOTAVAIL, "its address 0x%llx was given back", addr);
	if (rc == -EBUSY)
		return ramp_err_set(err, EBUSY,
				    "the program changes its mappings at 0x%llx while it is mapped",
				    addr);
	return ramp_err_sys(err, -rc, "mapping it at 0x%llx", addr);
}

/* Whether the last look has found the whole range: a part that it has not found is not
   registered, and no revoke would stop accesses to it. */
static bool is_found(struct mapped_segment *mseg, struct client *client,
		     const struct attach_range *wish)
{
	uint64_t at = wish->addr, end = wish->addr + wish->len;
	const struct attachment *a;
	struct client_mappings *h;

	pthread_rwlock_rdlock(&mseg->lock);
	h = mseg_mappings_of(mseg, client);
	for (size_t i = 0; h && i < h->count; i++) {
		a = &h->at[i];
		if (!a->gone && a->start <= at && a->end > at && (a->writable || !wish->writable))
			at = a->end;
	}
	pthread_rwlock_unlock(&mseg->lock);
	return at >= end;
}

/* Puts a mapping with more access in place of one with less. */
static int replace_range(struct programs *p, struct mapped_segment *mseg, struct client *client,
			 const struct attach_range *wish)
{
	struct mapping_ref ref = {
		.client = client,
		.start = wish->addr,
		.end = wish->addr + wish->len,
		.offset = wish->offset,
		.prot = wish->prot,
		.writable = wish->writable,
	};
	int rc, looked;

	pthread_mutex_lock(&mseg->change);
	/* Other threads wait for the lock, so an agent that is silent for longer is hung up on. */
	rc = replace_back(p, mseg, &ref, wish->flags & SESSION_NOHUGE, clock_ms() + REPLACE_MS);
	looked = mseg_look(p, mseg, client); /* the table must be right also after a failure */
	if (!rc && !looked && !is_found(mseg, client, wish))
		rc = -EBUSY; /* the program has unmapped it or mapped over it in part meanwhile */
	pthread_mutex_unlock(&mseg->change);
	return rc ? rc : looked;
}

int attach_map(struct programs *p, struct mapped_segment *mseg, struct client *client,
	       struct seg *seg, struct attach_range *wish)
{
	struct session_msg map = {
		.type = SESSION_MAP,
		.segment = wish->id,
		.addr = wish->addr,
		.len = wish->len,
		.offset = wish->offset,
		.prot = wish->prot,
		.flags = (wish->flags & SESSION_NOHUGE) | (wish->writable ? 0 : SESSION_PRIVATE) |
			 (mseg->state == MSEG_CLOSED && wish->writable ? SESSION_SECOND : 0),
	};
	struct session_msg protect = {
		.type = SESSION_PROTECT, .addr = wish->addr, .len = wish->len, .prot = wish->prot};
	int fd, rc, undone = 0;

	if (map.flags & SESSION_SECOND && client->second < 0)
		return -EOPNOTSUPP;
	if (wish->flags & SESSION_REPLACE)
		return replace_range(p, mseg, client, wish);
	fd = client_open_seg(client, seg, wish->writable);
	if (fd < 0)
		return fd;
	rc = send_map(client, &map, fd, wish->asker);
	close(fd);
	if (rc)
		return rc;
	wish->serial = map.serial;
	rc = attach_look(p, mseg, client);
	if (!rc && !is_found(mseg, client, wish))
		rc = -EBUSY;
	if (!rc)
		rc = client_look_at_others(p, client, wish->id, wish->addr, wish->addr + wish->len);
	if (!rc) /* the look may have waited for others: that is not the agent's time */
		rc = agent_call(client, &protect, -1, clock_ms() + p->connect_ms, NULL);
	if (rc)
		undone = unmap(p, mseg, client, &map);
	return undone && rc != -ETIMEDOUT ? undone : rc;
}

/* ---- ATTACH --------------------------------------------------------------------------------- */

static int check(struct client_request *r, const struct token *token, struct ramp_err *err)
{
	const struct session_msg *msg = &r->msg;
	uint64_t mask = RAMP_PAGE_BYTES - 1;
	int rc;

	if (!token || !token->id)
		return token_refused(err);
	rc = token_check(token, r, err);
	if (rc)
		return rc;
	if (!msg->len || msg->len & mask || msg->offset & mask ||
	    msg->offset + msg->len < msg->offset || msg->prot & ~7u)
		return ramp_err_set(err, EINVAL, "offset, length or protection make no sense");
	if (token->access_mode == O_WRONLY ||
	    (msg->prot & PROT_WRITE && token->access_mode != O_RDWR))
		return ramp_err_set(err, EACCES, "the file is not open for that access");
	return 0;
}

/* Attaches a segment that is on its way here. Takes the reference mseg. On success *client has a
   reference for the caller. */
static int attach_ahead(struct client_request *r, struct mapped_segment *mseg,
			struct attach_range *wish, struct client **client,
			struct session_msg *result, struct ramp_err *err)
{
	struct programs *p = r->programs;
	struct segment_row row;
	int rc = meta_segment(p->meta, wish->id, &row);

	if (!rc && !row.extent_len)
		rc = ramp_err_set(err, ENXIO, "it has no addresses yet");
	if (!rc)
		rc = extent_use(wish, &row, err);
	if (!rc) {
		extent_note(mseg, &row);
		*client = request_client(r, clock_ms() + p->connect_ms);
		rc = *client ? client_look_at_others(p, *client, wish->id, wish->addr,
						     wish->addr + wish->len)
			     : -ESRCH;
		rc = rc ? rc : ahead_map(p, mseg, *client, wish);
		if (rc)
			attach_failed(rc, wish, err);
	}
	if (rc && *client) {
		client_put(*client);
		*client = NULL;
	}
	result->segment = wish->id;
	result->addr = wish->addr;
	result->len = wish->len;
	result->all = row.extent_len;
	mseg_put(p, mseg);
	return rc;
}

/* Attaches a segment, to which the caller has a reference. On success *client has a reference
   for the caller. */
static int attach_seg(struct client_request *r, struct seg *seg, struct attach_range *wish,
		      struct client **client, struct session_msg *result, struct ramp_err *err)
{
	struct programs *p = r->programs;
	struct mapped_segment *mseg = mseg_get(p, wish->id);
	struct segment_row row;
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	if (wish->flags & SESSION_AHEAD)
		return attach_ahead(r, mseg, wish, client, result, err);
	rc = attach_enter_extent(p, mseg, seg, wish, &row, err);
	if (rc == -EREMOTE && open_again(p, mseg, seg)) {
		err->code = 0;
		rc = attach_enter_extent(p, mseg, seg, wish, &row, err);
	}
	if (rc)
		goto out_put;
	*client = request_client(r, clock_ms() + p->connect_ms);
	if (!*client) {
		rc = ramp_err_set(err, ESRCH, "the process has no session");
		goto out_end;
	}
	rc = attach_map(p, mseg, *client, seg, wish);
	if (rc) {
		rc = attach_failed(rc, wish, err);
		client_put(*client);
		*client = NULL;
		goto out_end;
	}
	result->segment = wish->id;
	result->addr = wish->addr;
	result->len = wish->len;
	result->all = row.extent_len;
	result->serial = wish->serial; /* is not sent */
out_end:
	attach_leave(p, mseg);
out_put:
	mseg_put(p, mseg);
	return rc;
}

static int attach(struct client_request *r, struct token *token, struct client **client,
		  struct session_msg *result, struct ramp_err *err)
{
	struct attach_range wish = {.len = r->msg.len,
				    .offset = r->msg.offset,
				    .prot = r->msg.prot,
				    .flags = r->msg.flags &
					     (SESSION_NOHUGE | SESSION_REPLACE | SESSION_AHEAD),
				    .asker = r};
	struct seg *seg;
	int rc = check(r, token, err);

	if (rc)
		return rc;
	wish.id = token->id;
	wish.writable = token->access_mode == O_RDWR;
	seg = store_find(r->programs->store, wish.id);
	if (!seg)
		return extent_not_here(r->programs, wish.id, err);
	if (seg_damaged(seg))
		rc = ramp_err_set(err, EIO, "its state file is damaged");
	else
		rc = attach_seg(r, seg, &wish, client, result, err);
	seg_put(seg);
	return rc;
}

void attach_begin(struct client_request *r)
{
	struct session_msg result = {.type = SESSION_RESULT};
	struct token *token = token_take(r->programs, r->msg.token);
	struct client *client = NULL;
	struct ramp_err err = {0};
	int rc = attach(r, token, &client, &result, &err);

	result.result = (uint32_t)-rc;
	memcpy(result.text, err.text, sizeof(err.text));
	if (request_answer(r, &result) && !rc && client) {
		struct mapped_segment *mseg = mseg_find(r->programs, result.segment);

		/* The thread that asked has gone, and would never unmap it. */
		if (mseg) {
			unmap(r->programs, mseg, client, &result);
			mseg_put(r->programs, mseg);
		}
	}
	if (client)
		client_put(client);
	token_free(token);
	request_free(r);
}

/* ---- DETACH --------------------------------------------------------------------------------- */

void detach_begin(struct client_request *r)
{
	struct session_msg result = {.type = SESSION_RESULT};
	struct programs *p = r->programs;
	struct client *client = request_client(r, 0);
	struct mapped_segment *mseg = client ? mseg_held(p, r->msg.segment, client) : NULL;

	if (mseg) {
		attach_look(p, mseg, client);
		mseg_put(p, mseg);
	}
	if (client)
		client_put(client);
	request_answer(r, &result);
	request_free(r);
}
