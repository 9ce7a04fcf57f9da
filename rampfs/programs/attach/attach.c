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
#include "memory/pages.h"
#include "memory/record.h"
#include "programs/client/clients.h"
#include "programs/client/request.h"
#include "programs/client/tokens.h"
#include "programs/programs.h"
#include "replace.h"

#define REPLACE_MS     1000u
#define MOVING_LOOK_MS 10u /* between looks at its row while it is being moved */

/* ---- the extent ----------------------------------------------------------------------------- */

/*
 * Makes a row for a segment that was unlinked. The extent is given in the segment's row. A segment
 * that was never mapped before has lost its row with its name; as long as it is open, its owner
 * gets one again, which goes when no process has the file open or mapped any more
 * (mount/orphans.c). The row's contents are beside the bytes.
 */
static int row_of_unlinked(struct programs *p, struct seg *seg, struct segment_row *row,
			   struct ramp_err *err)
{
	struct seg_owner owner = seg_owner(seg);
	struct record record;
	struct stat st;
	int rc = seg_stat(seg, &st);

	if (rc)
		return ramp_err_sys(err, -rc, "its size and times");
	record_get(seg, &record);
	if (record.kind != RECORD_OWNED)
		return ramp_err_set(err, EAGAIN, "it was unlinked, and its record is still %s",
				    record_kind_name(record.kind));
	*row = (struct segment_row){
		.id = seg_id(seg),
		.epoch = record.epoch,
		.phase = SEGMENT_ORPHAN,
		.node = meta_self(p->meta),
		.node_inc = store_incarnation(p->store),
		.size = (uint64_t)st.st_size,
		.mode = owner.mode,
		.uid = owner.uid,
		.gid = owner.gid,
		.atime = {.sec = st.st_atim.tv_sec, .nsec = (uint32_t)st.st_atim.tv_nsec},
		.mtime = {.sec = st.st_mtim.tv_sec, .nsec = (uint32_t)st.st_mtim.tv_nsec},
		.ctime = {.sec = st.st_ctim.tv_sec, .nsec = (uint32_t)st.st_ctim.tv_nsec},
		.pages = seg_small(seg) ? SEGMENT_PAGES_SMALL : SEGMENT_PAGES_AUTO,
	};
	return 0;
}

static int not_here(struct programs *p, ramp_segment_t id, struct ramp_err *err)
{
	struct segment_row row;
	struct node_row node;

	if (meta_segment(p->meta, id, &row))
		return ramp_err_set(err, ENOENT, "there is no such segment any more");
	if (row.node == meta_self(p->meta))
		return ramp_err_set(err, EIO, "its bytes are lost");
	if (meta_node(p->meta, row.node, &node))
		return ramp_err_set(err, EREMOTE, "it is on another node");
	return ramp_err_set(err, EREMOTE, "it is on node %s", node.name);
}

static int is_moved_long(struct ramp_err *err)
{
	return ramp_err_set(err, ETIMEDOUT, "it is being moved, and that takes long");
}

/* Waits until a move is decided. False: that takes too long. */
static bool wait_moved(struct programs *p, ramp_segment_t id, uint64_t until_ms)
{
	struct segment_row row;

	do {
		pthread_mutex_lock(&p->lock);
		programs_wait(p, clock_ms() + MOVING_LOOK_MS);
		pthread_mutex_unlock(&p->lock);
		if (clock_ms() >= until_ms || atomic_load(&p->closing))
			return false;
	} while (!meta_segment(p->meta, id, &row) && row.phase == SEGMENT_MOVING);
	return true;
}

static bool segment_has_left(struct programs *p, struct seg *seg)
{
	struct segment_row row;
	struct record record;

	record_get(seg, &record);
	return !record_serves(&record) && !meta_segment(p->meta, seg_id(seg), &row) &&
	       row.node != meta_self(p->meta);
}

/* Words that the user has as many addresses as it may have. */
static int has_no_more(struct programs *p, const struct segment_row *row, struct ramp_err *err)
{
	struct meta_settings settings;

	if (meta_get_settings(p->meta, &settings))
		return ramp_err_sys(err, EDQUOT, "its extent");
	return ramp_err_set(err, EDQUOT,
			    "the segments of user %u would have more than %llu MiB of addresses; "
			    "unlink some that were mapped, ask for a smaller extent "
			    "(user.ramp.extent), or root raises it: rampfs-node set arena-user-max",
			    row->uid, (unsigned long long)settings.arena_user_max >> 20);
}

static int propose_extent(struct programs *p, struct seg *seg, uint64_t end,
			  struct segment_row *row, struct ramp_err *err)
{
	struct meta_command command = {.cid = meta_own_command(p->meta),
				       .type = META_EXTENT,
				       .id = row->id,
				       .length = row->extent_asked};
	struct meta_reply reply;
	uint64_t size = seg_size(seg), until = clock_ms() + FREEZE_WAIT_MS;
	struct timespec now;
	int rc;

	clock_gettime(CLOCK_REALTIME, &now);
	command.now = (struct meta_time){.sec = now.tv_sec, .nsec = (uint32_t)now.tv_nsec};
	command.map_len = end > size ? end : size;
	/* Only if its row has gone: a segment with a name may be on another node by the time of
	   the commit. */
	if (row->phase == SEGMENT_ORPHAN) {
		command.epoch = row->epoch;
		command.node = row->node;
		command.node_inc = row->node_inc;
		command.attr = *row;
	}
	while ((rc = meta_propose_wait(p->meta, &command, &reply)) == -EBUSY) {
		if (!wait_moved(p, row->id, until))
			return is_moved_long(err);
		if (segment_has_left(p, seg))
			return not_here(p, row->id, err);
		command.cid = meta_own_command(p->meta);
	}
	if (rc == -EROFS)
		return ramp_err_set(err, EROFS,
				    row->extent_len ? "its addresses may have been given back, and "
						      "there is no quorum that could tell"
						    : "its first mapping needs an extent, and "
						      "there is no quorum");
	if (rc == -ENOSPC) /* of addresses; mmap(2) says ENOMEM for that */
		return ramp_err_set(err, ENOMEM,
				    "the cluster's arena has no free range that is large enough "
				    "for it (four times its size, at least 64 MiB, or what "
				    "user.ramp.extent asks for); unlink segments that were mapped, "
				    "or found a cluster with a larger arena");
	if (rc == -EDQUOT)
		return has_no_more(p, row, err);
	if (rc)
		return ramp_err_sys(err, -rc, "its extent");
	row->extent_addr = reply.extent_addr;
	row->extent_len = reply.extent_len;
	return 0;
}

static int read_row(struct programs *p, struct seg *seg, struct segment_row *row,
		    struct ramp_err *err)
{
	int rc = meta_segment(p->meta, seg_id(seg), row);

	if (rc == -ENOENT)
		return row_of_unlinked(p, seg, row, err);
	return rc ? ramp_err_sys(err, -rc, "the segment's row") : 0;
}

/* Returns whether this node serves by a record that is newer than the row. */
static bool row_is_behind(struct seg *seg, const struct segment_row *row)
{
	struct record record;

	record_get(seg, &record);
	return record_serves(&record) && row->epoch < record.epoch;
}

/*
 * Reads its row, which must be as new as the record: a target serves before its tables show it (R11),
 * and they may show an extent that was given back since. Waits for them.
 */
static int read_new_row(struct programs *p, struct seg *seg, struct segment_row *row,
			struct ramp_err *err)
{
	uint64_t until = clock_ms() + (meta_why_copy(p->meta) ? 0 : FREEZE_WAIT_MS);
	bool wait = true;

	for (;;) {
		int rc = read_row(p, seg, row, err);

		if (rc || !row_is_behind(seg, row))
			return rc;
		if (!wait)
			return ramp_err_set(
				err, EROFS,
				"this node's metadata do not show yet that it came here");
		pthread_mutex_lock(&p->lock);
		programs_wait(p, clock_ms() + MOVING_LOOK_MS);
		pthread_mutex_unlock(&p->lock);
		wait = clock_ms() < until && !atomic_load(&p->closing);
	}
}

/*
 * Finds out whether the segment has an extent, and has one given if not. Where its addresses may have
 * been given back by a proposal whose result is not known, an EXTENT says it: when that is applied the
 * earlier proposal is carried out, or stale (command.h, the floor).
 */
static int find_row(struct programs *p, struct mapped_segment *mseg, struct seg *seg, uint64_t end,
		    struct segment_row *row, struct ramp_err *err)
{
	uint64_t holds, giving;
	int rc;

	pthread_mutex_lock(&p->lock);
	holds = mseg->holds;
	pthread_mutex_unlock(&p->lock);
	giving = seg_giving(seg);
	rc = read_new_row(p, seg, row, err);
	if (rc || (row->extent_len && giving < row->epoch))
		return rc;
	rc = propose_extent(p, seg, end, row, err);
	pthread_mutex_lock(&p->lock);
	if (!rc && mseg->holds == holds && !mseg->held)
		seg_end_giving(seg, giving + 1);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* Sets the address of the range, and checks that it fits. */
static int use_extent(struct attach_range *wish, const struct segment_row *row, struct ramp_err *err)
{
	uint64_t end = wish->offset + wish->len;

	if (end > row->extent_len)
		return ramp_err_set(
			err, ENOMEM,
			"the mapping ends at %llu MiB, its extent at %llu MiB for life; copy it to "
			"a new segment and set user.ramp.extent there before it is mapped",
			(unsigned long long)((end + (1 << 20) - 1) >> 20),
			(unsigned long long)(row->extent_len >> 20));
	wish->addr = row->extent_addr + wish->offset;
	if (row->pages == SEGMENT_PAGES_SMALL)
		wish->flags |= SESSION_NOHUGE;
	return 0;
}

/* Finds the segment's extent, has one given if it has none, and checks that the mapping fits. */
static int find_extent(struct programs *p, struct mapped_segment *mseg, struct seg *seg,
		       struct attach_range *wish, struct segment_row *row, struct ramp_err *err)
{
	uint64_t end = wish->offset + wish->len;
	int rc = find_row(p, mseg, seg, end, row, err);

	if (rc == -ENOENT) /* it was unlinked after its row was read */
		rc = find_row(p, mseg, seg, end, row, err);
	return rc ? rc : use_extent(wish, row, err);
}

static void note_extent(struct mapped_segment *mseg, const struct segment_row *row)
{
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->lo = row->extent_addr;
	mseg->hi = row->extent_addr + row->extent_len;
	pthread_rwlock_unlock(&mseg->lock);
}

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
	bool passes, held, again;
	int state;

	pthread_mutex_lock(&p->lock);
	do {
		/* Read before the state, since it is set after that. */
		passes = atomic_load(&mseg->coming);
		state = mseg->state;
		held = state == MSEG_OPEN && mseg->held;
		again = state == MSEG_OPEN && !held && holds && *holds != mseg->holds;
		if (state == MSEG_OPEN && !held && !again) {
			mseg->attaching++;
			mseg->attaches++;
		}
		passes = held || state == MSEG_FROZEN || (state == MSEG_GONE && passes);
	} while (passes && programs_wait(p, until));
	pthread_mutex_unlock(&p->lock);
	if (held)
		return ramp_err_set(err, EBUSY, "its addresses are being given back");
	if (state == MSEG_FROZEN)
		return is_moved_long(err);
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
		rc = find_extent(p, mseg, seg, wish, row, err);
		rc = rc ? rc : attach_try(p, mseg, &holds, err);
		if (!rc && row_is_behind(seg, row)) { /* it has come here since */
			attach_leave(p, mseg);
			rc = -EAGAIN;
		}
	} while (rc == -EAGAIN && !err->code && !atomic_load(&p->closing));
	if (rc)
		return rc;
	/* Only now: from here on it stays the extent until the attach has left. */
	note_extent(mseg, row);
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
		.flags = (wish->flags & SESSION_NOHUGE) | (wish->writable ? 0 : SESSION_PRIVATE),
	};
	struct session_msg protect = {
		.type = SESSION_PROTECT, .addr = wish->addr, .len = wish->len, .prot = wish->prot};
	int fd, rc, undone = 0;

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
		rc = use_extent(wish, &row, err);
	if (!rc) {
		note_extent(mseg, &row);
		*client = request_client(r, clock_ms() + p->connect_ms);
		rc = *client ? ahead_map(p, mseg, *client, wish) : -ESRCH;
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
		return not_here(r->programs, wish.id, err);
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
