/*
 * Subscribers hear of segments that their users may read (the permission bits of the segment's
 * row), and that LISTEN names by number or by a pattern.
 *
 * An armed subscriber is a receiver: of all armed ones that match, the one that came first hears of
 * an arrival, and the others do not. It alone hears ahead of what is
 * coming. A subscriber that does not read is hung up on (conn_send), and
 * comes again.
 *
 * A subscriber that wants to be asked has an entry for each segment that was asked of it, from ASKED to
 * LEFT or FAILED. It is asked only for what its process has mapped, and only that process is waited
 * for; where it ends it has answered.
 */
#include "subscribers.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "attach/mapped_segment.h"
#include "client/clients.h"
#include "client/conn.h"
#include "proc/process.h"

struct asked_of {
	LIST_ENTRY(asked_of) link;
	ramp_segment_t id;
	bool answered;
};

struct subscriber {
	TAILQ_ENTRY(subscriber) link; /* in programs->subscribers, the oldest first */
	struct programs *programs;
	struct session_conn *conn;
	ramp_segment_t id; /* 0: any */
	char pattern[RAMP_NAME_MAX + 1];
	bool armed, phases, asks, demand;
	LIST_HEAD(, asked_of) asked;
	gid_t *groups; /* supplementary ones, from when it connected */
	size_t n_groups;
};

/* ---- what it may hear of -------------------------------------------------------------------- */

/* Returns -errno; 0: the groups are known (there may be none). */
static int read_groups(struct subscriber *s)
{
	socklen_t len = 0;

	if (getsockopt(s->conn->fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0)
		return 0;
	if (errno != ERANGE)
		return -errno;
	s->groups = malloc(len);
	if (!s->groups)
		return -ENOMEM;
	if (getsockopt(s->conn->fd, SOL_SOCKET, SO_PEERGROUPS, s->groups, &len))
		return -errno;
	s->n_groups = len / sizeof(gid_t);
	return 0;
}

static bool subscriber_in_group(const struct subscriber *s, gid_t group)
{
	if (s->conn->gid == group)
		return true;
	for (size_t i = 0; i < s->n_groups; i++)
		if (s->groups[i] == group)
			return true;
	return false;
}

static bool may_read(const struct subscriber *s, const struct programs_event *event)
{
	if (s->conn->uid == 0)
		return true;
	if (s->conn->uid == event->uid)
		return event->mode & 0400;
	return event->mode & (subscriber_in_group(s, event->gid) ? 0040 : 0004);
}

static bool matches(const struct subscriber *s, const struct programs_event *event)
{
	return (!s->id || s->id == event->id) &&
	       (!s->pattern[0] || fnmatch(s->pattern, event->name, 0) == 0) && may_read(s, event);
}

/* ---- telling -------------------------------------------------------------------------------- */

static void tell(struct subscriber *s, const struct programs_event *event)
{
	struct session_msg msg = {
		.type = SESSION_EVENT,
		.mode = (uint8_t)event->kind,
		.segment = event->id,
		.len = event->size,
		.done = event->pages,
		.all = event->epoch,
		.result = event->kind == SESSION_FAILED ? (uint32_t)event->code : 0,
	};

	if (event->kind == SESSION_ASKED)
		msg.done = event->within_ms;
	memcpy(msg.node, event->node, sizeof(msg.node));
	memcpy(msg.name, event->name, sizeof(msg.name));
	snprintf(msg.text, sizeof(msg.text), "%s", event->text ? event->text : event->name_there);
	conn_send(s->conn, &msg);
}

static bool is_for_receivers(uint8_t kind)
{
	return kind == SESSION_COMING || kind == SESSION_HERE;
}

static struct asked_of *find_asked(const struct subscriber *s, ramp_segment_t id)
{
	struct asked_of *asked;

	LIST_FOREACH (asked, &s->asked, link)
		if (asked->id == id)
			return asked;
	return NULL;
}

static void drop_asked(struct asked_of *asked)
{
	LIST_REMOVE(asked, link);
	free(asked);
}

static bool hears(const struct subscriber *s, const struct programs_event *event)
{
	if (is_for_receivers(event->kind) && !s->armed)
		return false;
	if (find_asked(s, event->id))
		return true;
	return !event->asked_alone && (event->kind < SESSION_ASKED || s->phases) &&
	       matches(s, event);
}

void programs_announce(struct programs *p, const struct programs_event *event)
{
	bool received = false;
	struct subscriber *s, *next;
	struct asked_of *asked;

	for (s = TAILQ_FIRST(&p->subscribers); s; s = next) {
		next = TAILQ_NEXT(s, link); /* conn_send may end it */
		if (!hears(s, event))
			continue;
		asked = find_asked(s, event->id);
		if (asked && (event->kind == SESSION_LEFT || event->kind == SESSION_FAILED))
			drop_asked(asked);
		if (s->armed && (event->kind == SESSION_ARRIVED || is_for_receivers(event->kind))) {
			if (received)
				continue;
			received = true;
		}
		tell(s, event);
	}
}

/* Prefetch frees the source's memory: only the owner of a segment, and root, may do without. */
bool programs_wants_demand(struct programs *p, const struct programs_event *coming)
{
	const struct subscriber *s;

	TAILQ_FOREACH (s, &p->subscribers, link)
		if (s->armed && hears(s, coming))
			return s->demand && (s->conn->uid == 0 || s->conn->uid == coming->uid);
	return false;
}

/* ---- asking --------------------------------------------------------------------------------- */

static bool has_mapped(struct programs *p, const struct subscriber *s, ramp_segment_t id)
{
	struct client *client = client_find(p, s->conn->pid, 0);
	struct mapped_segment *mseg = client ? mseg_held(p, id, client) : NULL;

	if (mseg)
		mseg_put(p, mseg);
	if (client)
		client_put(client);
	return mseg != NULL;
}

void programs_ask(struct programs *p, const struct programs_event *event)
{
	struct subscriber *s, *next;
	struct asked_of *asked;

	for (s = TAILQ_FIRST(&p->subscribers); s; s = next) {
		next = TAILQ_NEXT(s, link); /* conn_send may end it */
		if (!s->asks || find_asked(s, event->id) || !matches(s, event) ||
		    !has_mapped(p, s, event->id))
			continue;
		asked = calloc(1, sizeof(*asked));
		if (!asked)
			continue;
		asked->id = event->id;
		LIST_INSERT_HEAD(&s->asked, asked, link);
		tell(s, event);
	}
}

unsigned programs_unanswered(struct programs *p, ramp_segment_t id, char name[PROGRAMS_KEEPER])
{
	const struct subscriber *s;
	const struct asked_of *asked;
	char process[64];
	unsigned n = 0;

	name[0] = 0;
	TAILQ_FOREACH (s, &p->subscribers, link) {
		asked = find_asked(s, id);
		if (!asked || asked->answered || n++)
			continue;
		process_name(s->conn->pid, process);
		snprintf(name, PROGRAMS_KEEPER, "process %s", process);
	}
	return n;
}

void programs_set_answered(struct programs *p, programs_answered *fn, void *arg)
{
	p->answered = fn;
	p->answered_arg = arg;
}

static void tell_answered(struct programs *p, ramp_segment_t id)
{
	if (p->answered && !atomic_load(&p->closing))
		p->answered(p->answered_arg, id);
}

void subscriber_answered(struct subscriber *s, ramp_segment_t id)
{
	struct asked_of *asked = find_asked(s, id);

	if (!asked) /* it has left, or stays: that was told */
		return;
	asked->answered = true;
	tell_answered(s->programs, id);
}

/* ---- one of them ---------------------------------------------------------------------------- */

static bool is_taken(const struct programs *p, const struct session_msg *listen)
{
	const struct subscriber *s;

	TAILQ_FOREACH (s, &p->subscribers, link)
		if (s->armed && s->id == listen->segment && strcmp(s->pattern, listen->name) == 0)
			return true;
	return false;
}

static void subscriber_answer(struct session_conn *conn, int result, const char *text)
{
	struct session_msg msg = {
		.type = SESSION_EVENT,
		.mode = SESSION_LISTENING,
		.result = (uint32_t)result,
		.done = SESSION_KNOWS_ASKS,
	};

	memcpy(msg.text, text, strlen(text) + 1);
	session_send(conn->fd, &msg, NULL, 0, MSG_DONTWAIT);
}

static void subscriber_free(struct subscriber *s)
{
	free(s->groups);
	free(s);
}

struct subscriber *subscriber_begin(struct programs *p, struct session_conn *conn,
				    const struct session_msg *listen)
{
	struct subscriber *s = calloc(1, sizeof(*s));

	if (!s) {
		subscriber_answer(conn, ENOMEM, "the daemon is out of memory");
		return NULL;
	}
	s->programs = p;
	s->conn = conn;
	s->id = listen->segment;
	s->armed = listen->flags & SESSION_ARM;
	s->phases = listen->flags & SESSION_PHASES;
	s->asks = listen->flags & SESSION_ASKS;
	s->demand = listen->flags & SESSION_DEMAND;
	LIST_INIT(&s->asked);
	memcpy(s->pattern, listen->name, sizeof(s->pattern));
	if (s->armed && is_taken(p, listen))
		subscriber_answer(conn, EBUSY, "another program receives that already");
	else if (read_groups(s))
		subscriber_answer(conn, EIO,
				  "the groups of the process that has connected can't be read");
	else {
		TAILQ_INSERT_TAIL(&p->subscribers, s, link);
		subscriber_answer(conn, 0, "");
		return s;
	}
	subscriber_free(s);
	return NULL;
}

void subscriber_end(struct subscriber *s)
{
	struct asked_of *asked, *next;

	TAILQ_REMOVE(&s->programs->subscribers, s, link);
	for (asked = LIST_FIRST(&s->asked); asked; asked = next) {
		next = LIST_NEXT(asked, link);
		tell_answered(s->programs, asked->id);
		free(asked);
	}
	subscriber_free(s);
}
