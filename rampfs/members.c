/*
 * Changes of members: the worker, its queue, and what a change does. See members.h.
 *
 * Happy path: a request is put at the queue's end; the worker takes the first, reads this node's
 * tables after a linearizable read, checks, proposes, and its answer goes back from the control
 * loop (a tool's) or from the worker itself (a newcomer's, which has its own connection).
 *
 * How it fails: by one sentence that says what stands in the way. The state machine has the last
 * word: what changed between the look and the proposal is its errno.
 */
#include "members.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/session.h"
#include "base/visible.h"
#include "transport/peers/join.h"

#define QUEUE_MAX      16
#define SETTLE_TRIES   100
#define SETTLE_WAIT_US 100000
#define VOICE_TRIES    50 /* with the same wait */

struct job {
	STAILQ_ENTRY(job) link;
	struct members *members;
	struct tool_request *tool; /* a tool's; NULL: a newcomer's */
	struct tool_member what;
	int fd; /* a newcomer's */
	struct hello hello;
	struct ramp_err err;
	int result;
};

struct members {
	struct members_config config;
	STAILQ_HEAD(, job) queue; /* control loop: the first is with the worker */
	unsigned int n;
	atomic_bool closing;
};

/* ---- asking meta ---------------------------------------------------------------------------- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int result;
};

static void wake(void *arg, const struct meta_reply *reply)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->lock);
	w->result = reply->result;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static int explain(int rc, struct ramp_err *err)
{
	if (rc == -EROFS)
		return ramp_err_set(err, EROFS, "there is no quorum: nothing was changed");
	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT,
				    "not done within 5 s; it may still happen (rampfs-node list "
				    "shows it)");
	if (rc == -ESHUTDOWN)
		return ramp_err_set(err, ESHUTDOWN, "the daemon ends");
	return ramp_err_sys(err, -rc, "the cluster refuses");
}

/* What was committed anywhere before this is in our tables after it. */
static int catch_up(struct members *m, struct ramp_err *err)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

	meta_sync(m->config.meta, wake, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	return w.result ? explain(w.result, err) : 0;
}

static int propose(struct members *m, struct meta_command *command, struct meta_reply *reply)
{
	if (atomic_load(&m->closing))
		return -ESHUTDOWN;
	command->cid = meta_own_command(m->config.meta);
	return meta_propose_wait(m->config.meta, command, reply);
}

/* ---- looking -------------------------------------------------------------------------------- */

static int find(struct members *m, const char *name, struct node_row *row, struct ramp_err *err)
{
	return meta_node_by_name(m->config.meta, name, row)
		       ? ramp_err_set(err, ENOENT, "no such node: %s", name)
		       : 0;
}

static bool is_self(struct members *m, const struct node_row *row)
{
	return row->node == meta_self(m->config.meta);
}

static bool is_heard(struct members *m, ramp_node_t node)
{
	return node == meta_self(m->config.meta) || peer_up(m->config.peers, node);
}

struct use {
	ramp_node_t node;
	unsigned int n, others; /* rows that name it; those of them where it is not the owner */
	char first[RAMP_NAME_MAX + 1];
};

static int count_use(void *arg, const struct segment_row *row)
{
	struct use *u = arg;

	if (row->node != u->node && row->dst != u->node && row->src != u->node)
		return 0;
	if (u->n++ == 0)
		memcpy(u->first, row->name, sizeof(u->first));
	u->others += row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING;
	return 0;
}

static void look_at_use(struct members *m, ramp_node_t node, struct use *u)
{
	*u = (struct use){.node = node};
	meta_each_segment(m->config.meta, 0, 0, count_use, u);
}

struct voters {
	struct members *members;
	ramp_node_t without;
	unsigned int all, heard, voiceless; /* the last: of those that are heard */
};

static int count_voter(void *arg, const struct node_row *row)
{
	struct voters *v = arg;

	if (row->role != NODE_VOTER || row->node == v->without)
		return 0;
	v->all++;
	if (!is_heard(v->members, row->node))
		return 0;
	v->heard++;
	v->voiceless += meta_is_voiceless(v->members->config.meta, row->node);
	return 0;
}

/* The others must be able to decide without it: a configuration without a quorum is one that
   nobody can ever change back. */
static int check_rest(struct members *m, const struct node_row *row, struct ramp_err *err)
{
	struct voters v = {.members = m, .without = row->node};

	if (row->role != NODE_VOTER)
		return 0;
	meta_each_node(m->config.meta, count_voter, &v);
	if (v.all == 0)
		return ramp_err_set(err, EBUSY, "%s is the last voter", row->name);
	if (v.heard < v.all / 2 + 1)
		return ramp_err_set(err, EBUSY,
				    "without %s there are %u voters, and this node hears %u of "
				    "them: no quorum",
				    row->name, v.all, v.heard);
	if (v.heard - v.voiceless < v.all / 2 + 1)
		return ramp_err_set(err, EBUSY,
				    "without %s there are %u voters; this node hears %u, of which "
				    "%u have no vote (rampfs-node list): no quorum",
				    row->name, v.all, v.heard, v.voiceless);
	return 0;
}

/* ---- the verbs ------------------------------------------------------------------------------ */

static int fence(struct members *m, const char *name, ramp_incarnation_t incarnation, bool force,
		 struct ramp_err *err)
{
	struct meta_command command = {.type = META_NODE_FENCE};
	struct node_row row;
	int rc = find(m, name, &row, err);

	if (rc)
		return rc;
	if (!row.incarnation)
		return ramp_err_set(err, EINVAL, "%s was never up: nothing of it can be over",
				    name);
	if (incarnation && incarnation != row.incarnation)
		return ramp_err_set(err, ESTALE, "%s has another incarnation by now: %016" PRIx64,
				    name, row.incarnation);
	if (row.fenced == row.incarnation)
		return 0;
	if (is_heard(m, row.node) && !force)
		return ramp_err_set(err, EBUSY,
				    "%s is alive: this node hears it. End it first (its segments "
				    "are lost by a fence; --force if it must be)",
				    name);
	command.node = row.node;
	command.node_inc = row.incarnation;
	rc = propose(m, &command, NULL);
	if (rc == -ESTALE)
		return ramp_err_set(err, ESTALE, "%s has come up with another incarnation", name);
	if (!rc)
		log_warn("node %s was fenced: its incarnation %016" PRIx64 " is over", name,
			 row.incarnation);
	return rc ? explain(rc, err) : 0;
}

/* `node` is to become what its row says, and has not yet. */
static int under_way(struct members *m, ramp_node_t node, struct ramp_err *err)
{
	struct node_row row;

	if (meta_node(m->config.meta, node, &row))
		return ramp_err_set(err, EBUSY, "another member's change is under way: try again");
	if (row.role == NODE_VOTER && !is_heard(m, node))
		return ramp_err_set(
			err, EBUSY,
			"%s is to vote once it has caught up, and is down: start it, or "
			"fence and remove it, before another member changes",
			row.name);
	return ramp_err_set(err, EBUSY, "the change of %s is under way: try again", row.name);
}

/* Removes a member that nothing names any more. */
static int take_away(struct members *m, const struct node_row *row, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_REMOVE, .node = row->node};
	struct meta_reply reply;
	struct use use;
	int rc;

	look_at_use(m, row->node, &use);
	if (use.n && row->incarnation && row->fenced == row->incarnation)
		return ramp_err_set(err, EBUSY,
				    "%u segments are still named as %s's, and lost with it (%s): "
				    "unlink them first",
				    use.n, row->name, use.first);
	if (use.n)
		return ramp_err_set(err, EBUSY,
				    "%u segments are still at %s (%s): move or unlink them first; "
				    "if it will never come back, fence it",
				    use.n, row->name, use.first);
	rc = check_rest(m, row, err);
	if (rc)
		return rc;
	rc = propose(m, &command, &reply);
	if (rc == -EBUSY && reply.node != row->node)
		return under_way(m, reply.node, err);
	if (rc == -EBUSY)
		return ramp_err_set(err, EBUSY,
				    "%s has just got a segment, or is the last voter: try again",
				    row->name);
	if (!rc)
		log_warn("node %s was removed from the cluster", row->name);
	return rc ? explain(rc, err) : 0;
}

static int remove_member(struct members *m, const char *name, struct ramp_err *err)
{
	struct node_row row;
	int rc = find(m, name, &row, err);

	if (rc)
		return rc;
	if (is_self(m, &row))
		return ramp_err_set(err, EINVAL,
				    "this is %s itself: ask another member to remove it", name);
	return take_away(m, &row, err);
}

struct same_address {
	const char *address, *but; /* not this node's */
	char name[RAMP_NODE_NAME_MAX + 1];
};

static int find_address(void *arg, const struct node_row *row)
{
	struct same_address *s = arg;

	if (row->role == NODE_REMOVED || strcmp(row->address, s->address) != 0 ||
	    strcmp(row->name, s->but) == 0)
		return 0;
	memcpy(s->name, row->name, sizeof(s->name));
	return 1;
}

/* `name` may have it already. */
static int check_address(struct members *m, const char *name, const char *address,
			 struct ramp_err *err)
{
	struct same_address same = {.address = address, .but = name};

	if (!config_address_ok(address))
		return ramp_err_set(err, EINVAL, "an address is HOST:PORT, not \"%s\"", address);
	if (meta_each_node(m->config.meta, find_address, &same) == 1)
		return ramp_err_set(err, EEXIST, "node %s has the address %s", same.name, address);
	return 0;
}

static int add(struct members *m, const char *name, const char *address, uint64_t capacity_bytes,
	       ramp_node_t *node, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_ADD, .capacity = capacity_bytes};
	struct meta_reply reply;
	int rc;

	if (!config_name_ok(name))
		return ramp_err_set(err, EINVAL, "not a node's name: %s", name);
	rc = check_address(m, name, address, err);
	if (rc)
		return rc;
	if (capacity_bytes < CONFIG_CAPACITY_MIN)
		return ramp_err_set(err, EINVAL, "its capacity is less than 16M");
	snprintf(command.new_name, sizeof(command.new_name), "%s", name);
	snprintf(command.address, sizeof(command.address), "%s", address);
	rc = propose(m, &command, &reply);
	if (rc == -EEXIST)
		return ramp_err_set(err, EEXIST, "%s is a member already", name);
	if (rc == -ENOSPC)
		return ramp_err_set(err, ENOSPC, "the cluster has as many nodes as it can (64)");
	if (rc == -EADDRINUSE) /* it was given away meanwhile; our tables say to whom */
		return check_address(m, name, address, err) ? -err->code : explain(rc, err);
	if (rc == -EBUSY)
		return under_way(m, reply.node, err);
	if (rc)
		return explain(rc, err);
	log_info("node %s at %s was added as number %u", name, address, reply.node);
	if (node)
		*node = reply.node;
	return 0;
}

/* A newcomer gets its voice in the second in which it comes up; until it has one, its change would
   stand in the way of all others. */
static bool has_voice(struct members *m, ramp_node_t node)
{
	for (int i = 0; i < VOICE_TRIES && !atomic_load(&m->closing); i++) {
		if (!meta_is_voiceless(m->config.meta, node))
			return true;
		usleep(SETTLE_WAIT_US);
	}
	return !meta_is_voiceless(m->config.meta, node);
}

static int promote(struct members *m, const char *name, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_PROMOTE};
	struct meta_reply reply;
	struct node_row row;
	int rc = find(m, name, &row, err);

	if (rc || row.role == NODE_VOTER)
		return rc;
	if (!row.incarnation)
		return ramp_err_set(err, EHOSTDOWN, "%s was never up: start it first", name);
	if (row.fenced == row.incarnation)
		return ramp_err_set(err, EHOSTDOWN, "%s is fenced", name);
	if (!is_heard(m, row.node))
		return ramp_err_set(err, EHOSTDOWN, "%s is down: a voter that is down is no help",
				    name);
	if (!has_voice(m, row.node))
		return ramp_err_set(err, EPERM,
				    "%s gets no vote: its state directory was formatted again, or "
				    "put back from a backup: it needs --rejoin",
				    name);
	command.node = row.node;
	rc = propose(m, &command, &reply);
	if (rc == -EBUSY)
		return under_way(m, reply.node, err);
	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT,
				    "%s has not caught up within 5 s; it votes as soon as it has",
				    name);
	if (!rc)
		log_info("node %s is a voter", name);
	return rc ? explain(rc, err) : 0;
}

/* ---- joining -------------------------------------------------------------------------------- */

static int join_new(struct members *m, const struct join_request *request,
		    struct join_answer *answer, struct ramp_err *err)
{
	struct node_row row;

	if (meta_node_by_name(m->config.meta, request->name, &row)) {
		if (!request->address[0] || !request->capacity_bytes)
			return ramp_err_set(err, EINVAL,
					    "%s is no member yet: its address and capacity are "
					    "needed",
					    request->name);
		return add(m, request->name, request->address, request->capacity_bytes,
			   &answer->node, err);
	}
	if (row.incarnation || row.instance || is_self(m, &row))
		return ramp_err_set(err, EEXIST,
				    "%s is a member already; if its state directory is lost, it "
				    "comes back with --rejoin",
				    request->name);
	if (row.role == NODE_VOTER)
		return ramp_err_set(err, EEXIST,
				    "%s is a founder: it is made with the cluster's configuration",
				    request->name);
	if (request->address[0] && strcmp(request->address, row.address) != 0)
		return ramp_err_set(err, EEXIST, "%s was added with the address %s", row.name,
				    row.address);
	answer->node = row.node;
	return 0;
}

/* Others that pull from the node, or gave to it, settle with what they have once it is fenced. */
static void let_settle(struct members *m, ramp_node_t node)
{
	struct use use;

	look_at_use(m, node, &use);
	for (int i = 0; i < SETTLE_TRIES && use.others && !atomic_load(&m->closing); i++) {
		usleep(SETTLE_WAIT_US);
		look_at_use(m, node, &use);
	}
}

/*
 * The old number never votes again: whoever lost its log and its votes must not pretend to have
 * them. --rejoin is the operator's word that nothing of the old incarnation runs any more, and so
 * the fence of R12.
 */
static int join_again(struct members *m, const struct join_request *request,
		      struct join_answer *answer, struct ramp_err *err)
{
	struct node_row row;
	int rc;

	if (meta_node_by_name(m->config.meta, request->name, &row))
		return ramp_err_set(err, ENOENT, "%s is no member: it joins with --join",
				    request->name);
	if (is_heard(m, row.node))
		return ramp_err_set(err, EBUSY, "%s is alive: this node hears it", row.name);
	/* What would refuse it at the end is asked before anything of it is given up. */
	rc = request->address[0] ? check_address(m, row.name, request->address, err) : 0;
	if (rc)
		return rc;
	if (row.incarnation) {
		rc = fence(m, row.name, row.incarnation, false, err);
		if (rc)
			return rc;
		let_settle(m, row.node);
		if (meta_node(m->config.meta, row.node, &row))
			return ramp_err_set(err, ENOENT, "%s has gone meanwhile", request->name);
	}
	if (take_away(m, &row, err))
		return -err->code;
	return add(m, row.name, request->address[0] ? request->address : row.address,
		   request->capacity_bytes ? request->capacity_bytes : row.capacity, &answer->node,
		   err);
}

static int tell_member(void *arg, const struct node_row *row)
{
	struct join_answer *answer = arg;
	struct join_member *m = &answer->members[answer->n_members];

	if (row->role == NODE_REMOVED)
		return 0;
	m->node = row->node;
	memcpy(m->name, row->name, sizeof(m->name));
	memcpy(m->address, row->address, sizeof(m->address));
	m->capacity_bytes = row->capacity;
	m->voter = row->role == NODE_VOTER;
	return ++answer->n_members == JOIN_MEMBERS_MAX;
}

static int take_in(struct members *m, const struct join_request *request,
		   struct join_answer *answer, struct ramp_err *err)
{
	int rc;

	/* First: who is taken in must be told of it. */
	answer->members = calloc(JOIN_MEMBERS_MAX, sizeof(*answer->members));
	rc = answer->members ? catch_up(m, err) : ramp_err_sys(err, ENOMEM, "a join");
	if (!rc)
		rc = request->kind == JOIN_AGAIN ? join_again(m, request, answer, err)
						 : join_new(m, request, answer, err);
	answer->result = rc;
	if (rc) {
		visible(answer->text, sizeof(answer->text), err->text);
		return rc;
	}
	snprintf(answer->cluster, sizeof(answer->cluster), "%s", m->config.cluster);
	meta_arena(m->config.meta, &answer->arena_addr, &answer->arena_len);
	meta_each_node(m->config.meta, tell_member, answer);
	return 0;
}

static void serve_newcomer(struct job *job)
{
	struct join_request request = {0};
	struct join_answer answer = {0};
	struct ramp_err err = {0};
	int rc = join_receive(job->fd, &job->hello, &request, &err);

	if (!rc) {
		rc = take_in(job->members, &request, &answer, &err);
		if (join_reply(job->fd, &job->hello, &answer, rc ? NULL : &err) && !rc)
			rc = -err.code;
	}
	if (rc)
		log_warn("a node that wants to join%s%s: %s", request.name[0] ? " as " : "",
			 request.name, err.text);
	free(answer.members);
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void serve_tool(struct job *job)
{
	struct members *m = job->members;
	const struct tool_member *what = &job->what;
	struct ramp_err *err = &job->err;
	int rc = catch_up(m, err);

	if (!rc && what->verb == SESSION_MEMBER_FENCE)
		rc = fence(m, what->node, what->incarnation, what->force, err);
	else if (!rc && what->verb == SESSION_MEMBER_REMOVE)
		rc = remove_member(m, what->node, err);
	else if (!rc && what->verb == SESSION_MEMBER_ADD)
		rc = add(m, what->node, what->address, what->capacity_bytes, NULL, err);
	else if (!rc && what->verb == SESSION_MEMBER_PROMOTE)
		rc = promote(m, what->node, err);
	else if (!rc)
		rc = ramp_err_set(err, EINVAL, "no such change of members");
	job->result = rc;
}

static void job_work(void *arg)
{
	struct job *job = arg;

	if (atomic_load(&job->members->closing))
		job->result = ramp_err_set(&job->err, ESHUTDOWN, "the daemon ends");
	else if (job->tool)
		serve_tool(job);
	else
		serve_newcomer(job);
}

static void job_done(void *arg);

static void begin(struct members *m)
{
	struct job *job = STAILQ_FIRST(&m->queue);

	if (job)
		loop_work(m->config.loop, job_work, job_done, job);
}

static void job_end(struct job *job)
{
	if (job->tool)
		tool_answer(job->tool, job->result, job->err.text);
	else
		close(job->fd);
	free(job);
}

static void job_done(void *arg)
{
	struct job *job = arg;
	struct members *m = job->members;

	STAILQ_REMOVE_HEAD(&m->queue, link);
	m->n--;
	job_end(job);
	begin(m);
}

/* Takes the job. */
static void enqueue(struct members *m, struct job *job)
{
	job->members = m;
	if (m->n >= QUEUE_MAX || atomic_load(&m->closing)) {
		job->result =
			ramp_err_set(&job->err, EBUSY, "too many changes of members are under way");
		job_end(job);
		return;
	}
	STAILQ_INSERT_TAIL(&m->queue, job, link);
	if (m->n++ == 0)
		begin(m);
}

void members_asked(void *members, struct tool_request *request, const struct tool_member *what)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		tool_answer(request, -ENOMEM, "the daemon is out of memory");
		return;
	}
	job->tool = request;
	job->what = *what;
	enqueue(members, job);
}

void members_join(struct members *members, int fd, const struct hello *hello)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		close(fd);
		return;
	}
	job->fd = fd;
	job->hello = *hello;
	enqueue(members, job);
}

int members_open(const struct members_config *config, struct members **out, struct ramp_err *err)
{
	struct members *m = calloc(1, sizeof(*m));

	if (!m)
		return ramp_err_sys(err, ENOMEM, "members");
	m->config = *config;
	STAILQ_INIT(&m->queue);
	*out = m;
	return 0;
}

void members_close(struct members *m)
{
	struct job *job;

	atomic_store(&m->closing, true);
	STAILQ_FOREACH (job, &m->queue, link)
		if (!job->tool)
			shutdown(job->fd, SHUT_RDWR); /* it need not be waited for */
	while (m->n)
		uv_run(loop_uv(m->config.loop), UV_RUN_ONCE);
	free(m);
}
