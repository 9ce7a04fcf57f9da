/*
 * Changes of members: the queue and its worker. See members.h.
 *
 * Happy path: a request is put at the queue's end. The worker takes the first, reads this node's
 * tables after a linearizable read, checks and proposes. A tool's answer goes back from the control
 * loop; a new node's goes back from the worker itself, over the new node's own connection.
 *
 * How it fails: with one sentence that names the obstacle. The state machine has the last word: its
 * errno tells of a change between the check and the proposal.
 */
#include "members.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/session.h"
#include "member_change.h"
#include "member_join.h"
#include "member_view.h"

#define QUEUE_MAX 16

struct member_job {
	STAILQ_ENTRY(member_job) link;
	struct members *members;
	struct tool_request *tool; /* a tool's; NULL: a new node's */
	struct tool_member what;
	int fd; /* a new node's */
	struct hello hello;
	struct ramp_err err;
	int result;
};

struct members {
	struct loop *loop;
	struct member_view view;
	STAILQ_HEAD(, member_job) queue; /* control loop: the worker has the first */
	unsigned int n;
};

static void serve_tool(struct member_job *job)
{
	struct member_view *v = &job->members->view;
	const struct tool_member *what = &job->what;
	struct ramp_err *err = &job->err;
	int rc = member_catch_up(v, err);

	if (!rc && what->verb == SESSION_MEMBER_FENCE)
		rc = member_fence(v, what->node, what->incarnation, what->force, err);
	else if (!rc && what->verb == SESSION_MEMBER_REMOVE)
		rc = member_remove(v, what->node, err);
	else if (!rc && what->verb == SESSION_MEMBER_ADD)
		rc = member_add(v, what->node, what->address, what->capacity_bytes, NULL, err);
	else if (!rc && what->verb == SESSION_MEMBER_PROMOTE)
		rc = member_promote(v, what->node, err);
	else if (!rc && what->verb == SESSION_MEMBER_SET)
		rc = member_set(v, what->node, what->capacity_bytes, err);
	else if (!rc)
		rc = ramp_err_set(err, EINVAL, "no such change of members");
	job->result = rc;
}

static void job_work(void *arg)
{
	struct member_job *job = arg;

	if (atomic_load(&job->members->view.closing))
		job->result = ramp_err_set(&job->err, ESHUTDOWN, "the daemon ends");
	else if (job->tool)
		serve_tool(job);
	else
		member_join(&job->members->view, job->fd, &job->hello);
}

static void job_done(void *arg);

static void begin_next(struct members *m)
{
	struct member_job *job = STAILQ_FIRST(&m->queue);

	if (job)
		loop_work(m->loop, job_work, job_done, job);
}

static void job_end(struct member_job *job)
{
	if (job->tool)
		tool_answer(job->tool, job->result, job->err.text);
	else
		close(job->fd);
	free(job);
}

static void job_done(void *arg)
{
	struct member_job *job = arg;
	struct members *m = job->members;

	STAILQ_REMOVE_HEAD(&m->queue, link);
	m->n--;
	job_end(job);
	begin_next(m);
}

/* Takes the job. */
static void enqueue(struct members *m, struct member_job *job)
{
	job->members = m;
	if (m->n >= QUEUE_MAX || atomic_load(&m->view.closing)) {
		job->result =
			ramp_err_set(&job->err, EBUSY, "too many changes of members are under way");
		job_end(job);
		return;
	}
	STAILQ_INSERT_TAIL(&m->queue, job, link);
	if (m->n++ == 0)
		begin_next(m);
}

void members_asked(void *members, struct tool_request *request, const struct tool_member *what)
{
	struct member_job *job = calloc(1, sizeof(*job));

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
	struct member_job *job = calloc(1, sizeof(*job));

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
	m->loop = config->loop;
	m->view.meta = config->meta;
	m->view.peers = config->peers;
	m->view.cluster = config->cluster;
	STAILQ_INIT(&m->queue);
	*out = m;
	return 0;
}

void members_close(struct members *m)
{
	struct member_job *job;

	atomic_store(&m->view.closing, true);
	STAILQ_FOREACH (job, &m->queue, link)
		if (!job->tool)
			shutdown(job->fd, SHUT_RDWR); /* it need not be waited for */
	while (m->n)
		uv_run(loop_uv(m->loop), UV_RUN_ONCE);
	free(m);
}
