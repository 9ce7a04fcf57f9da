/*
 * A segment that has left, and one that has come back.
 *
 * GONE: the agent puts an empty file over the range, and who waits there is woken to find SIGBUS.
 * The empty file lies in the store, without a name but `gone.ID.w` or `.r`, which /proc shows: so a
 * later daemon knows what belongs there, and with which access (mappers.c). BACK: the agent maps
 * the segment beside it, we register that where pages are missing, and SWAP moves it into place
 * with its registration, so that there is no moment in which a page could be read before it has
 * come.
 *
 * How it fails: an agent that does not answer (its process is stopped) has the message in its
 * socket; who waits in the range waits on until it has carried it out (agent_expect). A session
 * that is not there is told when it comes (gone_catch_up). What a program may have mapped
 * (RLIMIT_AS) may not suffice for a segment and the empty file in its place: then it comes back in
 * halves, and halves of those. A BACK that fails all the same leaves SIGBUS in place; the program
 * is told once, and it is tried again every second, as is what lacked memory here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/visible.h"
#include "memory/pages.h"
#include "programs/local.h"

#define GONE_MS		 1000u
#define BACK_MS		 5000u
#define HURRY_MS	 500u /* so long before others who have something to compute */
#define BACK_LEAST_BYTES RAMP_HUGE_BYTES
#define SESSION_LOOK_US	 5000u
#define STUCK_LOOK_US	 100000

void segment_name(struct programs *p, ramp_segment_t id, char *name, size_t cap)
{
	struct segment_row row;
	struct node_row self;

	if (meta_segment(p->meta, id, &row) || meta_node(p->meta, meta_self(p->meta), &self))
		snprintf(name, cap, "segment %llu", (unsigned long long)id);
	else
		snprintf(name, cap, "%s/%s", self.name, row.name);
}

static void owner_name(struct programs *p, struct pseg *pseg, char owner[RAMP_NODE_NAME_MAX + 1])
{
	struct segment_row row;
	struct node_row node;

	memcpy(owner, pseg->owner, RAMP_NODE_NAME_MAX + 1);
	if (owner[0] || meta_segment(p->meta, pseg->id, &row))
		return;
	if (!meta_node(p->meta, row.phase == SEGMENT_MOVING ? row.dst : row.node, &node))
		memcpy(owner, node.name, sizeof(node.name));
}

int gone_open(struct programs *p, ramp_segment_t id, bool writable)
{
	char name[64], link[32], path[4096];
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "gone.%llu.%c", (unsigned long long)id, writable ? 'w' : 'r');
	fd = store_open_private(p->store, name, O_RDONLY | O_CREAT, 0400);
	if (fd < 0)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n > 0) {
		path[n] = 0;
		unlink(path); /* where that fails, the next one of that name does it */
	}
	return fd;
}

int gone_range(struct programs *p, struct pseg *pseg, const struct piece *piece, bool say,
	       uint64_t until_ms)
{
	struct session_msg msg = {.type = SESSION_GONE,
				  .segment = pseg->id,
				  .addr = piece->start,
				  .len = piece->end - piece->start};
	char name[SESSION_TEXT_MAX - 160], raw[sizeof(name)], owner[RAMP_NODE_NAME_MAX + 1];
	int fd, rc;

	if (say) {
		segment_name(p, pseg->id, raw, sizeof(raw));
		visible(name, sizeof(name), raw);
		owner_name(p, pseg, owner);
		snprintf(msg.text, sizeof(msg.text),
			 "rampfs: %s is now on %s%s; touching it here is SIGBUS", name,
			 owner[0] ? "node " : "another node", owner);
	}
	fd = gone_open(p, pseg->id, piece->writable);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&piece->space->io);
	rc = agent_send(piece->space, &msg, fd);
	if (!rc)
		rc = agent_wait(piece->space, msg.serial, until_ms, NULL);
	if (rc == -ETIMEDOUT)
		agent_expect(piece->space, msg.serial, pseg, msg.addr, msg.len);
	pthread_mutex_unlock(&piece->space->io);
	close(fd);
	if (!rc)
		kernel_uffd_wake(piece->space->uffd, msg.addr, msg.len);
	return rc;
}

static const char *why_not(int rc)
{
	return rc == -ETIMEDOUT ? "its agent does not answer" : strerror(-rc);
}

/* Whether the process of that piece is another than the one that was told last, if any. */
static bool is_another(const struct piece *pieces, size_t i, size_t told)
{
	return told == SIZE_MAX || pieces[told].space != pieces[i].space;
}

/* Without memory: every process that maps it is looked at again in a second (space_catch_up). */
static void catch_up_soon(struct pseg *pseg)
{
	struct holding *h;

	pthread_rwlock_rdlock(&pseg->lock);
	RB_FOREACH (h, pseg_holdings, &pseg->holdings)
		atomic_store(&h->space->behind, true);
	pthread_rwlock_unlock(&pseg->lock);
}

/* Every live piece (of one space, or of all: NULL); change is held. One line a process. `again`:
   who does not answer is known by now. */
static void gone_all(struct programs *p, struct pseg *pseg, struct space *only, bool again)
{
	uint64_t until = now_ms() + GONE_MS;
	struct piece *pieces = NULL;
	size_t count = 0, told = SIZE_MAX;

	pseg_look_all(p, pseg, only);
	if (pseg_pieces(pseg, &pieces, &count)) {
		log_error("out of memory: programs are not told that segment %llu has gone",
			  (unsigned long long)pseg->id);
		catch_up_soon(pseg);
	}
	for (size_t i = 0; i < count; i++) {
		struct space *space = pieces[i].space;
		bool stopped;
		int rc;

		if (pieces[i].gone || (only && space != only))
			continue;
		/* A stopped one does it when it goes on; what it touches before waits, as now. */
		stopped = inject_stopped(space);
		rc = gone_range(p, pseg, &pieces[i], is_another(pieces, i, told),
				stopped ? 0 : until);
		if (rc && rc != -ESRCH && !stopped && !again)
			log_warn("process %d still waits for segment %llu, which has gone: %s",
				 (int)space->pid, (unsigned long long)pseg->id, why_not(rc));
		told = i;
		if (i + 1 == count || pieces[i + 1].space != space)
			pseg_look(p, pseg, space);
	}
	pieces_free(pieces, count);
}

void programs_gone(struct programs *p, struct seg *seg, const char *owner_node)
{
	struct pseg *pseg = pseg_find(p, seg_id(seg));
	bool again;

	if (!pseg)
		return;
	pthread_mutex_lock(&pseg->change);
	again = pseg->state == PSEG_GONE;
	snprintf(pseg->owner, sizeof(pseg->owner), "%s", owner_node ? owner_node : "");
	pthread_rwlock_wrlock(&pseg->lock);
	pseg->pulling = false;
	pthread_rwlock_unlock(&pseg->lock);
	if (!again)
		pseg_set_state(p, pseg, PSEG_GONE);
	gone_all(p, pseg, NULL, again);
	pseg_set_seg(pseg, NULL);
	pthread_mutex_unlock(&pseg->change);
	pseg_put(p, pseg);
}

/* ---- back ----------------------------------------------------------------------------------- */

static void unmap_scratch(struct space *space, uint64_t addr, uint64_t len, uint64_t until_ms)
{
	struct session_msg msg = {.type = SESSION_UNMAP, .addr = addr, .len = len};

	agent_call(space, &msg, -1, until_ms, NULL);
}

int back_range(struct programs *p, struct pseg *pseg, const struct piece *piece, uint32_t flags,
	       uint64_t until_ms)
{
	struct space *space = piece->space;
	uint64_t len = piece->end - piece->start, scratch = 0;
	struct session_msg back = {
		.type = SESSION_BACK,
		.flags = flags | (piece->writable ? 0 : SESSION_PRIVATE),
		.segment = pseg->id,
		.addr = piece->start,
		.len = len,
		.offset = piece->offset,
		.prot = piece->prot,
	};
	struct session_msg swap = {.type = SESSION_SWAP, .addr = piece->start, .len = len};
	int fd = space_open(space, pseg->seg, piece->writable), rc;

	(void)p;
	if (fd < 0)
		return fd;
	rc = agent_call(space, &back, fd, until_ms, &scratch);
	close(fd);
	/* Nobody would take its late scratch mapping. The agent drops it when it comes again, and
	   the new session catches up. */
	if (rc == -ETIMEDOUT)
		shutdown(space->sock, SHUT_RDWR);
	if (rc)
		return rc;
	if (!scratch || scratch & (RAMP_PAGE_BYTES - 1) || scratch + len < scratch)
		return -EPROTO;
	if (pseg_armed(pseg))
		rc = uffd_arm(space, scratch, scratch + len);
	if (rc) {
		unmap_scratch(space, scratch, len, until_ms);
		return rc;
	}
	/* From the swap on page faults arrive, and must be known. */
	pseg_mark_live(pseg, piece);
	swap.scratch = scratch;
	return agent_call(space, &swap, -1, until_ms, NULL);
}

/* As back_range; the halves that were put back stay where another is not. */
static int back_in_parts(struct programs *p, struct pseg *pseg, const struct piece *piece,
			 uint32_t flags, uint64_t until_ms)
{
	struct piece low = *piece, high = *piece;
	int rc = back_range(p, pseg, piece, flags, until_ms);

	low.end = piece->start + (piece->end - piece->start) / 2;
	low.end -= low.end % BACK_LEAST_BYTES;
	if (rc != -ENOMEM || low.end <= piece->start)
		return rc;
	high.start = low.end;
	high.offset += low.end - low.start;
	rc = back_in_parts(p, pseg, &low, flags, until_ms);
	if (rc)
		return rc;
	pseg_look(p, pseg, piece->space); /* one attachment has become two */
	return back_in_parts(p, pseg, &high, flags, until_ms);
}

static const char *why_not_back(int rc)
{
	if (rc == -ENOMEM)
		return "this process may map no more (RLIMIT_AS, mappings)";
	if (rc == -EAGAIN)
		return "something else is mapped there, or this process may lock no more";
	return strerror(-rc);
}

static void say_not_back(struct programs *p, struct pseg *pseg, struct space *space, int why)
{
	struct session_msg msg = {.type = SESSION_SAY};
	char name[SESSION_TEXT_MAX - 220], raw[sizeof(name)];

	log_warn("process %d does not get segment %llu back: %s; trying again", (int)space->pid,
		 (unsigned long long)pseg->id, strerror(-why));
	segment_name(p, pseg->id, raw, sizeof(raw));
	visible(name, sizeof(name), raw);
	snprintf(msg.text, sizeof(msg.text),
		 "rampfs: %s is here again, and could not be put in its place: %s; touching it is "
		 "SIGBUS until it can",
		 name, why_not_back(why));
	agent_call(space, &msg, -1, now_ms() + GONE_MS, NULL);
}

/* Every gone piece (of one space, or of all: NULL, who calls from kernel_rt_boost() on); change is
   held. `again`: who could not have it has been told. */
static void back_all(struct programs *p, struct pseg *pseg, struct space *only, bool again)
{
	uint64_t until = now_ms() + BACK_MS, calm = only ? UINT64_MAX : now_ms() + HURRY_MS;
	struct piece *pieces = NULL;
	struct segment_row row;
	uint32_t flags = 0;
	size_t count = 0, told = SIZE_MAX;

	if (!meta_segment(p->meta, pseg->id, &row) && row.pages == SEGMENT_PAGES_SMALL)
		flags = SESSION_NOHUGE;
	pseg_look_all(p, pseg, only);
	if (pseg_pieces(pseg, &pieces, &count)) {
		log_error("out of memory: programs stay without segment %llu",
			  (unsigned long long)pseg->id);
		catch_up_soon(pseg);
	}
	for (size_t i = 0; i < count; i++) {
		struct space *space = pieces[i].space;
		int rc;

		if (only && space != only)
			continue;
		if (now_ms() >= calm) {
			kernel_rt_boost(0);
			calm = UINT64_MAX;
		}
		rc = pieces[i].gone ? back_in_parts(p, pseg, &pieces[i], flags, until) : 0;
		if (rc && rc != -ESRCH) {
			atomic_store(&space->behind, true);
			if (!again && is_another(pieces, i, told))
				say_not_back(p, pseg, space, rc);
			told = i;
		}
		if (i + 1 == count || pieces[i + 1].space != space)
			pseg_look(p, pseg, space);
	}
	pieces_free(pieces, count);
}

/*
 * A daemon that has just begun has none of its programs' sessions. Each puts the segment back when
 * it comes (space_catch_up); that it has done so shows in /proc.
 */
void programs_await(struct programs *p, struct seg *seg, uint64_t until_ms)
{
	struct segment_row row;
	struct stat st;
	char name[64];
	pid_t pid = 0;
	int rc;

	if (now_ms() >= until_ms || meta_segment(p->meta, seg_id(seg), &row) || !row.extent_len ||
	    fstat(seg_fd(seg), &st))
		return;
	/* Who can't be looked into may have it. */
	while ((rc = mappers_replaced(p->store_dev, st.st_ino, row.extent_addr,
				      row.extent_addr + row.extent_len, &pid)) == 1 ||
	       rc == -EBUSY) {
		if (now_ms() >= until_ms || atomic_load(&p->closing)) {
			process_name(pid, name);
			log_warn("process %s %s segment %llu mapped and has not come back for it",
				 name, rc == 1 ? "had" : "can't be looked into, and may have had",
				 (unsigned long long)seg_id(seg));
			return;
		}
		usleep(rc == 1 ? SESSION_LOOK_US : STUCK_LOOK_US);
	}
}

static void back_now(struct programs *p, struct pseg *pseg, struct seg *seg)
{
	pthread_mutex_lock(&pseg->change);
	pseg_set_seg(pseg, seg);
	pthread_rwlock_wrlock(&pseg->lock);
	pseg->pulling = pages_missing(seg) > 0;
	pseg->owner[0] = 0;
	pthread_rwlock_unlock(&pseg->lock);
	if (pseg->state == PSEG_GONE)
		pseg_set_state(p, pseg, PSEG_OPEN);
	back_all(p, pseg, NULL, false);
	pthread_mutex_unlock(&pseg->change);
}

void programs_back(struct programs *p, struct seg *seg)
{
	struct pseg *pseg = pseg_find(p, seg_id(seg));

	if (!pseg)
		return;
	back_now(p, pseg, seg);
	pseg_put(p, pseg);
}

/* ---- a session that has come ---------------------------------------------------------------- */

/* Some of it is. */
static bool is_behind(const struct holding *h)
{
	int state = h->pseg->state;

	for (size_t i = 0; i < h->count; i++)
		if (state == (h->at[i].gone ? PSEG_OPEN : PSEG_GONE))
			return true;
	return false;
}

void space_catch_up(struct programs *p, struct space *space, bool again)
{
	struct pseg **list;
	struct holding *h;
	size_t n = 0, most = 0;

	pthread_mutex_lock(&space->list);
	RB_FOREACH (h, space_holdings, &space->holdings)
		most += is_behind(h);
	list = most ? calloc(most, sizeof(struct pseg *)) : NULL;
	if (most && !list) {
		log_error("out of memory: process %d is not told what has left and come back",
			  (int)space->pid);
		atomic_store(&space->behind, true);
	}
	RB_FOREACH (h, space_holdings, &space->holdings)
		if (list && n < most && is_behind(h))
			list[n++] = pseg_hold(p, h->pseg);
	pthread_mutex_unlock(&space->list);
	for (size_t i = 0; i < n; i++) {
		pthread_mutex_lock(&list[i]->change);
		if (list[i]->state == PSEG_GONE)
			gone_all(p, list[i], space, false);
		else if (list[i]->state == PSEG_OPEN && list[i]->seg)
			back_all(p, list[i], space, again);
		pthread_mutex_unlock(&list[i]->change);
		pseg_put(p, list[i]);
	}
	free(list);
}
