/*
 * Replacing mappings: of a segment that has left, and of one that has come back.
 *
 * GONE: the agent maps an empty file over the range, and accesses that wait there are woken and get
 * SIGBUS. The empty file is in the store, with no name except `gone.ID.w` or `.r`, which /proc
 * shows: so a later daemon knows which segment belongs there, and with which access (mappings.c).
 *
 * BACK: the agent maps the segment elsewhere, the daemon registers that mapping if pages are
 * missing, and SWAP moves it into place with its registration: at no time can a page be read before
 * it has come. Then the parts that are present are unregistered (stretches.c).
 *
 * The agent of a stopped process is let run for that, alone (lone_run.c).
 *
 * How it fails: an agent that does not answer (its process is stopped, and traced by another) has
 * the message in its socket; accesses that wait in the range continue to wait until it has carried the message out
 * (agent_expect). If there is no session, the agent is told when it connects (client_catch_up). The
 * process's limit (RLIMIT_AS) may not allow it to map the segment in addition to the empty file in
 * its place: then the segment comes back in halves, and halves of those. If a BACK fails all the
 * same, SIGBUS stays in place; the program is told once, and the daemon tries again every second.
 * It does so, too, if it lacked memory itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_call.h"
#include "attachments.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/visible.h"
#include "memory/pages.h"
#include "move_away.h"
#include "programs/client/away.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/proc/lone_run.h"
#include "programs/proc/process.h"
#include "programs/proc/search.h"
#include "programs/programs.h"
#include "replace.h"
#include "stretches.h"

#define GONE_MS		 1000u
#define BACK_MS		 5000u
#define BOOST_MS	 500u /* how long this has real-time priority over other threads */
#define BACK_LEAST_BYTES RAMP_HUGE_BYTES
#define LATE_LOOK_MS	 20u
#define TRIM_US		 2000u	/* then a worker does the rest */
#define LENT_MS		 2000u	/* for one stopped process */
#define LENT_ALL_MS	 10000u /* for all of them that have one segment mapped */
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

static void owner_name(struct programs *p, struct mapped_segment *mseg,
		       char owner[RAMP_NODE_NAME_MAX + 1])
{
	struct segment_row row;
	struct node_row node;

	memcpy(owner, mseg->owner, RAMP_NODE_NAME_MAX + 1);
	if (owner[0] || meta_segment(p->meta, mseg->id, &row))
		return;
	if (!meta_node(p->meta, row.phase == SEGMENT_MOVING ? row.dst : row.node, &node))
		memcpy(owner, node.name, sizeof(node.name));
}

int replace_open_empty(struct programs *p, ramp_segment_t id, bool writable)
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
		unlink(path); /* if that fails, the next call for that name does it */
	}
	return fd;
}

/* Waits for the answer to a GONE that was sent before: a second one would be said to the user once
   more. io is held. */
static int wait_for_late(struct mapped_segment *mseg, const struct mapping_ref *ref,
			 uint64_t until_ms)
{
	uint64_t len = ref->end - ref->start;
	int rc = -ETIMEDOUT;

	while (rc == -ETIMEDOUT && agent_expects(ref->client, mseg, ref->start, len)) {
		uint64_t soon_ms = clock_ms() + LATE_LOOK_MS;

		if (soon_ms > until_ms)
			return rc;
		rc = agent_wait(ref->client, 0, soon_ms, NULL);
	}
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int say_gone(struct mapped_segment *mseg, const struct mapping_ref *ref,
		    struct session_msg *msg, int fd, uint64_t until_ms)
{
	int rc = agent_send(ref->client, msg, fd);

	if (!rc)
		rc = agent_wait(ref->client, msg->serial, until_ms, NULL);
	if (rc == -ETIMEDOUT)
		agent_expect(ref->client, msg->serial, mseg, msg->addr, msg->len);
	return rc;
}

int replace_gone(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 bool say, uint64_t until_ms)
{
	struct session_msg msg = {.type = SESSION_GONE,
				  .segment = mseg->id,
				  .addr = ref->start,
				  .len = ref->end - ref->start};
	char name[SESSION_TEXT_MAX - 160], raw[sizeof(name)], owner[RAMP_NODE_NAME_MAX + 1];
	int fd, rc;

	if (say) {
		segment_name(p, mseg->id, raw, sizeof(raw));
		visible(name, sizeof(name), raw);
		owner_name(p, mseg, owner);
		snprintf(msg.text, sizeof(msg.text),
			 "rampfs: %s is now on %s%s; touching it here is SIGBUS", name,
			 owner[0] ? "node " : "another node", owner);
	}
	fd = replace_open_empty(p, mseg->id, ref->writable);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&ref->client->io);
	if (agent_expects(ref->client, mseg, msg.addr, msg.len))
		rc = wait_for_late(mseg, ref, until_ms);
	else
		rc = say_gone(mseg, ref, &msg, fd, until_ms);
	pthread_mutex_unlock(&ref->client->io);
	close(fd);
	if (!rc)
		kernel_uffd_wake(ref->client->uffd, msg.addr, msg.len);
	return rc;
}

static const char *why_not(int rc)
{
	return rc == -ETIMEDOUT ? "its agent does not answer" : strerror(-rc);
}

/* Whether the process of that range is another than the one that was told last, if any. */
static bool is_another(const struct mapping_ref *refs, size_t i, size_t told)
{
	return told == SIZE_MAX || refs[told].client != refs[i].client;
}

/* For want of memory: has every process that maps it looked at again in a second
   (client_catch_up). */
static void catch_up_soon(struct mapped_segment *mseg)
{
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		atomic_store(&cm->client->behind, true);
	pthread_rwlock_unlock(&mseg->lock);
}

/*
 * Time that the agent of a stopped process is lent: it runs alone. So the process does not keep the
 * bytes of a segment that has left, and has one that came back in its place when it continues.
 */
struct lent {
	struct client *client; /* the process that was looked at last; NULL: none yet */
	struct lone_run *run;  /* its agent's; NULL: it is not stopped, or may not run */
	bool stopped;
	uint64_t until_ms; /* when its time ends */
	uint64_t last_ms;  /* when the time of all ends */
};

static void lent_end(struct lent *lent)
{
	lone_run_end(lent->run);
	lent->run = NULL;
}

static void lent_begin(struct lent *lent, struct client *client)
{
	uint64_t now = clock_ms();

	if (lent->client == client)
		return;
	lent_end(lent);
	lent->client = client;
	lent->stopped = client_is(client, CLIENT_READY) &&
			(client_stopped(client) || process_state(client->pid) == 'T');
	lent->until_ms = now + LENT_MS < lent->last_ms ? now + LENT_MS : lent->last_ms;
	if (lent->stopped && client->pidfd >= 0 && now < lent->until_ms)
		lent->run = lone_run_begin(client->pid, client_agent_thread(client), client->pidfd,
					   lent->until_ms);
}

/* Sends GONE for every range that still maps the segment (of client `only`; NULL: of all). One
   line a process. `again`: which agents do not answer was logged already. change is held. */
static void gone_all(struct programs *p, struct mapped_segment *mseg, struct client *only,
		     bool again)
{
	uint64_t until = clock_ms() + GONE_MS;
	struct lent lent = {.last_ms = clock_ms() + LENT_ALL_MS};
	struct mapping_ref *refs = NULL;
	size_t count = 0, told = SIZE_MAX;

	mseg_look_all(p, mseg, only);
	if (mseg_refs(mseg, &refs, &count)) {
		log_error("out of memory: programs are not told that segment %llu has gone",
			  (unsigned long long)mseg->id);
		catch_up_soon(mseg);
	}
	for (size_t i = 0; i < count; i++) {
		struct client *client = refs[i].client;
		int rc;

		if (refs[i].gone || (only && client != only))
			continue;
		/* A stopped process whose agent can't be let run does it when it continues; its
		   accesses before that wait, as they do now. */
		lent_begin(&lent, client);
		rc = replace_gone(p, mseg, &refs[i], is_another(refs, i, told),
				  !lent.stopped ? until
				  : lent.run	? lent.until_ms
						: 0);
		if (rc && rc != -ESRCH && (!lent.stopped || lent.run) && !again)
			log_warn("process %d still waits for segment %llu, which has gone: %s",
				 (int)client->pid, (unsigned long long)mseg->id, why_not(rc));
		told = i;
		if (i + 1 == count || refs[i + 1].client != client) {
			if (lent.run)
				move_away_forget(p, mseg, client, true);
			mseg_look(p, mseg, client);
		}
	}
	lent_end(&lent);
	/* A program may have unmapped the segment since. */
	move_away_forget(p, mseg, only, false);
	mapping_refs_free(refs, count);
}

void programs_gone(struct programs *p, struct seg *seg, const char *owner_node)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	bool again;

	if (!mseg)
		return;
	pthread_mutex_lock(&mseg->change);
	again = mseg->state == MSEG_GONE;
	snprintf(mseg->owner, sizeof(mseg->owner), "%s", owner_node ? owner_node : "");
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = false;
	pthread_rwlock_unlock(&mseg->lock);
	if (!again)
		mseg_go(p, mseg, mseg->state, MSEG_GONE);
	gone_all(p, mseg, NULL, again);
	mseg_set_seg(mseg, NULL);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
}

/* ---- back ----------------------------------------------------------------------------------- */

void replace_unmap(struct client *client, uint64_t addr, uint64_t len, uint64_t until_ms)
{
	struct session_msg msg = {.type = SESSION_UNMAP, .addr = addr, .len = len};

	agent_call(client, &msg, -1, until_ms, NULL);
}

/* Registers a scratch mapping as the segment's state needs it. */
static int arm_scratch(struct mapped_segment *mseg, const struct mapping_ref *ref, bool second,
		       uint64_t scratch)
{
	uint64_t end = scratch + (ref->end - ref->start);

	if (second)
		return mseg_hold_stores(mseg, ref->client, scratch, end, ref->offset);
	return mseg_armed(mseg) ? uffd_arm(ref->client, scratch, end) : 0;
}

int replace_map(struct mapped_segment *mseg, const struct mapping_ref *ref, uint32_t flags,
		uint64_t until_ms, uint64_t *at)
{
	struct client *client = ref->client;
	uint64_t len = ref->end - ref->start, scratch = 0;
	struct session_msg back = {
		.type = SESSION_BACK,
		.flags = flags | (ref->writable ? 0 : SESSION_PRIVATE),
		.segment = mseg->id,
		.addr = ref->start,
		.len = len,
		.offset = ref->offset,
		.prot = ref->prot,
	};
	int fd = client_open_seg(client, mseg->seg, ref->writable), rc;

	if (fd < 0)
		return fd;
	rc = agent_call(client, &back, fd, until_ms, &scratch);
	close(fd);
	/* A late scratch mapping would never be used. The agent drops it when it connects again,
	   and the new session catches up. */
	if (rc == -ETIMEDOUT)
		shutdown(client->sock, SHUT_RDWR);
	if (rc)
		return rc;
	if (!scratch || scratch & (RAMP_PAGE_BYTES - 1) || scratch + len < scratch)
		return -EPROTO;
	*at = scratch;
	return 0;
}

int replace_swap(struct mapped_segment *mseg, const struct mapping_ref *ref, uint64_t at,
		 uint64_t until_ms)
{
	struct session_msg swap = {.type = SESSION_SWAP,
				   .addr = ref->start,
				   .len = ref->end - ref->start,
				   .scratch = at};
	int rc;

	/* From the SWAP on page faults arrive there, and the table must know the range. */
	mseg_mark_live(mseg, ref);
	if (mseg_armed(mseg)) /* its event may be handled after the answer */
		away_note_swap(ref->client, mseg->id, at, ref->start, swap.len);
	rc = agent_call(ref->client, &swap, -1, until_ms, NULL);
	if (rc)
		(void)away_take_swap(ref->client, at, ref->start, swap.len);
	return rc;
}

int replace_back(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		 uint32_t flags, uint64_t until_ms)
{
	bool second = mseg->state == MSEG_CLOSED && ref->writable;
	uint64_t scratch;
	int rc;

	(void)p;
	rc = replace_map(mseg, ref, flags | (second ? SESSION_SECOND : 0), until_ms, &scratch);
	if (rc)
		return rc;
	rc = arm_scratch(mseg, ref, second, scratch);
	if (rc) {
		replace_unmap(ref->client, scratch, ref->end - ref->start, until_ms);
		return rc;
	}
	return replace_swap(mseg, ref, scratch, until_ms);
}

/* As replace_back, in halves if memory lacks. Halves that were put back stay, also if another
   can't be. */
static int back_in_parts(struct programs *p, struct mapped_segment *mseg,
			 const struct mapping_ref *ref, uint32_t flags, uint64_t until_ms)
{
	struct mapping_ref low = *ref, high = *ref;
	int rc = replace_back(p, mseg, ref, flags, until_ms);

	low.end = ref->start + (ref->end - ref->start) / 2;
	low.end -= low.end % BACK_LEAST_BYTES;
	if (rc != -ENOMEM || low.end <= ref->start)
		return rc;
	high.start = low.end;
	high.offset += low.end - low.start;
	rc = back_in_parts(p, mseg, &low, flags, until_ms);
	if (rc)
		return rc;
	mseg_look(p, mseg, ref->client); /* one attachment has become two */
	return back_in_parts(p, mseg, &high, flags, until_ms);
}

static const char *why_not_back(int rc)
{
	if (rc == -ENOMEM)
		return "this process may map no more (RLIMIT_AS, mappings)";
	if (rc == -EAGAIN)
		return "something else is mapped there, or this process may lock no more";
	return strerror(-rc);
}

static void say_not_back(struct programs *p, struct mapped_segment *mseg, struct client *client,
			 int why)
{
	struct session_msg msg = {.type = SESSION_SAY};
	char name[SESSION_TEXT_MAX - 220], raw[sizeof(name)];

	log_warn("process %d does not get segment %llu back: %s; trying again", (int)client->pid,
		 (unsigned long long)mseg->id, strerror(-why));
	segment_name(p, mseg->id, raw, sizeof(raw));
	visible(name, sizeof(name), raw);
	snprintf(msg.text, sizeof(msg.text),
		 "rampfs: %s is here again, and could not be put in its place: %s; touching it is "
		 "SIGBUS until it can",
		 name, why_not_back(why));
	agent_call(client, &msg, -1, clock_ms() + GONE_MS, NULL);
}

/* As back_in_parts. -EINPROGRESS: the process is stopped and its agent can't be let run, so that it
   would not answer. */
static int back_one(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		    uint32_t flags, uint64_t until_ms, struct lent *lent)
{
	lent_begin(lent, ref->client);
	if (lent->stopped && !lent->run)
		return -EINPROGRESS;
	if (lent->run && lent->until_ms < until_ms)
		until_ms = lent->until_ms;
	return back_in_parts(p, mseg, ref, flags, until_ms);
}

/* Puts back every range that maps the empty file (of client `only`; NULL: of all, for a caller
   that has called kernel_rt_boost). `again`: processes that could not get it back were told
   already. change is held. */
static void back_all(struct programs *p, struct mapped_segment *mseg, struct client *only,
		     bool again)
{
	uint64_t until = clock_ms() + BACK_MS, calm = only ? UINT64_MAX : clock_ms() + BOOST_MS;
	struct lent lent = {.last_ms = until};
	struct mapping_ref *refs = NULL;
	struct segment_row row;
	uint32_t flags = 0;
	size_t count = 0, told = SIZE_MAX;

	if (!meta_segment(p->meta, mseg->id, &row) && row.pages == SEGMENT_PAGES_SMALL)
		flags = SESSION_NOHUGE;
	mseg_look_all(p, mseg, only);
	if (mseg_refs(mseg, &refs, &count)) {
		log_error("out of memory: programs stay without segment %llu",
			  (unsigned long long)mseg->id);
		catch_up_soon(mseg);
	}
	for (size_t i = 0; i < count; i++) {
		struct client *client = refs[i].client;
		int rc;

		if (only && client != only)
			continue;
		if (clock_ms() >= calm) {
			kernel_rt_boost(0);
			calm = UINT64_MAX;
		}
		rc = refs[i].gone ? back_one(p, mseg, &refs[i], flags, until, &lent) : 0;
		if (rc == -EINPROGRESS) {
			atomic_store(&client->behind, true);
		} else if (rc && rc != -ESRCH) {
			atomic_store(&client->behind, true);
			if (!again && is_another(refs, i, told))
				say_not_back(p, mseg, client, rc);
			told = i;
		}
		if (i + 1 == count || refs[i + 1].client != client)
			mseg_look(p, mseg, client);
	}
	lent_end(&lent);
	mapping_refs_free(refs, count);
	if (!stretches_trim(mseg, clock_us() + TRIM_US))
		stretches_trim_soon(p, mseg, seg_owner(mseg->seg).uid);
}

/*
 * A daemon that has just begun has no session of any program yet. Each puts the segment back when
 * it comes (client_catch_up); /proc shows when it has done so.
 */
void programs_await(struct programs *p, struct seg *seg, uint64_t until_ms)
{
	struct segment_row row;
	struct stat st;
	char name[64];
	pid_t pid = 0;
	int rc;

	if (clock_ms() >= until_ms || meta_segment(p->meta, seg_id(seg), &row) || !row.extent_len ||
	    fstat(seg_fd(seg), &st))
		return;
	/* A process that can't be looked into may have it mapped. */
	while ((rc = search_replaced(p->store_dev, st.st_ino, row.extent_addr,
				     row.extent_addr + row.extent_len, &pid)) == 1 ||
	       rc == -EBUSY) {
		if (clock_ms() >= until_ms || atomic_load(&p->closing)) {
			process_name(pid, name);
			log_warn("process %s %s segment %llu mapped and has not come back for it",
				 name, rc == 1 ? "had" : "can't be looked into, and may have had",
				 (unsigned long long)seg_id(seg));
			return;
		}
		usleep(rc == 1 ? SESSION_LOOK_US : STUCK_LOOK_US);
	}
}

static void back_now(struct programs *p, struct mapped_segment *mseg, struct seg *seg)
{
	pthread_mutex_lock(&mseg->change);
	mseg_set_seg(mseg, seg);
	if (mseg->state == MSEG_GONE) /* a look for the move by which it left */
		mseg->prelook = (struct prelook){0};
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = pages_missing(seg) > 0;
	mseg->owner[0] = 0;
	pthread_rwlock_unlock(&mseg->lock);
	if (mseg->state == MSEG_GONE)
		mseg_go(p, mseg, MSEG_GONE, MSEG_OPEN);
	back_all(p, mseg, NULL, false);
	pthread_mutex_unlock(&mseg->change);
}

void programs_back(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));

	if (!mseg)
		return;
	back_now(p, mseg, seg);
	mseg_put(p, mseg);
}

/* ---- a session that has come ---------------------------------------------------------------- */

/* Whether a range of it does not match the segment's state. */
static bool is_behind(const struct client_mappings *cm)
{
	int state = cm->mseg->state;

	for (size_t i = 0; i < cm->count; i++)
		if (state == (cm->at[i].gone ? MSEG_OPEN : MSEG_GONE))
			return true;
	return false;
}

void client_catch_up(struct programs *p, struct client *client, bool again)
{
	struct mapped_segment **list;
	struct client_mappings *cm;
	size_t n = 0, most = 0;

	pthread_mutex_lock(&client->list);
	RB_FOREACH (cm, attached_by_end, &client->attached)
		most += is_behind(cm);
	list = most ? calloc(most, sizeof(struct mapped_segment *)) : NULL;
	if (most && !list) {
		log_error("out of memory: process %d is not told what has left and come back",
			  (int)client->pid);
		atomic_store(&client->behind, true);
	}
	RB_FOREACH (cm, attached_by_end, &client->attached)
		if (list && n < most && is_behind(cm))
			list[n++] = mseg_hold(p, cm->mseg);
	pthread_mutex_unlock(&client->list);
	for (size_t i = 0; i < n; i++) {
		pthread_mutex_lock(&list[i]->change);
		if (list[i]->state == MSEG_GONE)
			gone_all(p, list[i], client, false);
		else if (list[i]->state == MSEG_OPEN && list[i]->seg)
			back_all(p, list[i], client, again);
		pthread_mutex_unlock(&list[i]->change);
		mseg_put(p, list[i]);
	}
	free(list);
}
