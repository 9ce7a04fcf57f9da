/*
 * Requests that go up: a tool's MIGRATE or MEMBER, and a program's PUNCH.
 *
 * A move in steps (CONNECT) is a tool's request, too, with GO on the way; and so is a program's PULL or GIVE_UP,
 * for which the token of an open stands: no other process has seen it.
 *
 * A tool_request is counted. Its connection has a reference until it hangs up, its handler until
 * tool_answer, and a message on its way between the two has one. A tool that hangs up, or says
 * CANCEL, asks once to cancel. The answer still comes, and goes nowhere where the tool has hung up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attachments.h"
#include "base/clock.h"
#include "base/transfer_mode.h"
#include "base/visible.h"
#include "client/clients.h"
#include "client/conn.h"
#include "client/request.h"
#include "client/tokens.h"
#include "tool_requests.h"

struct tool_request {
	struct programs *programs;
	struct session_conn *conn; /* NULL: it has hung up, or it is one of a batch */
	tool_answered *told;	   /* of a batch, until it is answered; else NULL */
	void *told_arg;
	struct tool_migrate what;   /* MIGRATE */
	struct tool_member *member; /* MEMBER; NULL: it is none */
	/* PULL, GIVE_UP: by this token, which says the segment. 0: it is none. */
	uint16_t by_token;
	uint64_t token[2];
	struct tool_pull pull;
	struct tool_give_up give_up;
	unsigned int refs;
	bool begun, cancelled, answered;
};

static void tool_put(struct tool_request *tool, unsigned int refs)
{
	tool->refs -= refs;
	if (tool->refs)
		return;
	free(tool->member);
	free(tool);
}

static void tool_send_answer(struct tool_request *tool, int result, const char *text)
{
	struct session_msg msg = {.type = SESSION_ANSWER,
				  .result = (uint32_t)(result < 0 ? -result : result)};

	tool->answered = true;
	if (tool->told)
		tool->told(tool->told_arg, result, text);
	tool->told = NULL;
	visible(msg.text, sizeof(msg.text), text ? text : "");
	if (tool->conn)
		conn_send(tool->conn, &msg);
	tool->conn = NULL;
}

static void run_member(struct tool_request *tool)
{
	struct programs *p = tool->programs;

	if (tool->what.uid != 0)
		tool_send_answer(tool, -EPERM,
				 "only root may change the cluster's members or settings");
	else if (!p->member)
		tool_send_answer(tool, -EOPNOTSUPP, "this daemon changes no members");
	if (tool->answered)
		tool_put(tool, 2);
	else
		p->member(p->member_arg, tool, tool->member);
}

static void run_by_token(struct tool_request *tool)
{
	const struct programs_tools *tools = &tool->programs->tools;
	struct token *token = token_take(tool->programs, tool->token);
	bool pulls = tool->by_token == SESSION_PULL;

	if (!token || !token->id)
		tool_send_answer(tool, -EPERM, "the token is used, old or made up");
	else if (!pulls && token->access_mode != O_RDWR)
		tool_send_answer(tool, -EACCES, "it is not open for writing");
	else if (!(pulls ? (void *)tools->pull : (void *)tools->give_up))
		tool_send_answer(tool, -EOPNOTSUPP, "this daemon pulls nothing");
	else
		tool->pull.id = tool->give_up.id = token->id;
	token_free(token);
	if (tool->answered) {
		tool_put(tool, 2);
		return;
	}
	tool->begun = true;
	if (pulls)
		tools->pull(tools->arg, tool, &tool->pull);
	else
		tools->give_up(tools->arg, tool, &tool->give_up);
}

/* Where it has no connection, conn_send of the ANSWER or tool_gone has ended the connection's
   pointer to it. */
static void run_tool(void *arg)
{
	struct tool_request *tool = arg;
	struct programs *p = tool->programs;

	if (tool->told && atomic_load(&p->closing)) {
		tool_send_answer(tool, -ESHUTDOWN, "the daemon ends");
		tool_put(tool, 2);
	} else if ((!tool->conn && !tool->told) || atomic_load(&p->closing)) {
		tool_put(tool, 1);
	} else if (tool->member) {
		run_member(tool);
	} else if (tool->by_token) {
		run_by_token(tool);
	} else if (!p->tools.migrate) {
		tool_send_answer(tool, -EOPNOTSUPP, "this daemon moves nothing");
		tool_put(tool, 2);
	} else {
		tool->begun = true; /* the reference is the handler's from now on */
		p->tools.migrate(p->tools.arg, tool, &tool->what);
	}
}

static struct tool_member *member_of(const struct session_msg *msg)
{
	struct tool_member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->verb = msg->mode;
	memcpy(member->node, msg->node, sizeof(member->node));
	memcpy(member->address, msg->name, sizeof(member->address));
	member->capacity_bytes = msg->len;
	member->incarnation = msg->addr;
	member->force = msg->flags & SESSION_FORCE;
	return member;
}

static uint32_t tool_ms(uint64_t ms)
{
	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static void set_by_token(struct tool_request *tool, const struct session_msg *msg)
{
	tool->by_token = msg->type;
	memcpy(tool->token, msg->token, sizeof(tool->token));
	tool->what.progress = true;
	tool->pull = (struct tool_pull){.offset = msg->offset, .len = msg->len};
	tool->give_up =
		(struct tool_give_up){.uid = tool->what.uid, .zeros = msg->flags & SESSION_ZEROS};
}

struct tool_request *tool_begin(struct programs *p, struct session_conn *conn,
				const struct session_msg *msg, uid_t uid)
{
	struct tool_request *tool = calloc(1, sizeof(*tool));

	if (!tool)
		return NULL;
	tool->programs = p;
	tool->conn = conn;
	tool->refs = 2; /* the connection's, and the handler's */
	tool->what.id = msg->segment;
	memcpy(tool->what.dst_node, msg->node, sizeof(tool->what.dst_node));
	memcpy(tool->what.dst_name, msg->name, sizeof(tool->what.dst_name));
	tool->what.mode = msg->flags & SESSION_UNSAID ? TRANSFER_UNSAID : msg->mode;
	tool->what.rounds = msg->rounds;
	tool->what.limit_bytes_s = msg->limit;
	tool->what.batch = msg->batch;
	tool->what.wait = msg->flags & SESSION_WAIT;
	tool->what.progress = msg->flags & SESSION_WATCH;
	tool->what.trace = msg->flags & SESSION_TRACE;
	tool->what.in_steps = msg->type == SESSION_CONNECT;
	tool->what.step = msg->step;
	tool->what.hold_ms = tool_ms(msg->len);
	tool->what.force = msg->type == SESSION_MIGRATE && (msg->flags & SESSION_FORCE);
	tool->what.uid = uid;
	if (msg->type == SESSION_PULL || msg->type == SESSION_GIVE_UP)
		set_by_token(tool, msg);
	if (msg->type == SESSION_MEMBER) {
		tool->member = member_of(msg);
		if (!tool->member) {
			free(tool);
			return NULL;
		}
	}
	loop_post(p->loop, run_tool, tool);
	return tool;
}

struct tool_request *tool_begin_of(struct programs *p, const struct tool_migrate *what,
				   tool_answered *answered, void *arg)
{
	struct tool_request *tool = calloc(1, sizeof(*tool));

	if (!tool)
		return NULL;
	tool->programs = p;
	tool->told = answered;
	tool->told_arg = arg;
	tool->refs = 2; /* the batch's, until it is answered, and the handler's */
	tool->what = *what;
	loop_post(p->loop, run_tool, tool);
	return tool;
}

static void run_cancel(void *arg)
{
	struct tool_request *tool = arg;
	struct programs *p = tool->programs;

	if (tool->begun && !tool->answered && p->tools.cancel && !atomic_load(&p->closing))
		p->tools.cancel(p->tools.arg, tool);
	tool_put(tool, 1);
}

void tool_cancel(struct tool_request *tool)
{
	if (tool->cancelled || tool->answered)
		return;
	tool->cancelled = true;
	tool->refs++;
	/* Posted, not called: this may run inside of the handler, which has just sent something. */
	loop_post(tool->programs->loop, run_cancel, tool);
}

/* A GO on its way to the handler. */
struct going {
	struct tool_request *tool;
	uint8_t step;
	uint32_t hold_ms;
};

static void run_go(void *arg)
{
	struct going *going = arg;
	struct tool_request *tool = going->tool;
	struct programs *p = tool->programs;

	if (tool->begun && !tool->answered && p->tools.go && !atomic_load(&p->closing))
		p->tools.go(p->tools.arg, tool, going->step, going->hold_ms);
	tool_put(tool, 1);
	free(going);
}

/* Posted, as tool_cancel is. Without memory it is as if the program had exited. */
void tool_go(struct tool_request *tool, const struct session_msg *go)
{
	struct going *going = malloc(sizeof(*going));

	if (!going) {
		tool_cancel(tool);
		return;
	}
	*going = (struct going){.tool = tool, .step = go->step, .hold_ms = tool_ms(go->len)};
	tool->refs++;
	loop_post(tool->programs->loop, run_go, going);
}

void tool_gone(struct tool_request *tool)
{
	tool_cancel(tool);
	tool->conn = NULL;
	tool_put(tool, 1);
}

void tool_answer(struct tool_request *tool, int result, const char *text)
{
	bool connected = tool->conn || tool->told;

	tool_send_answer(tool, result, text);
	tool_put(tool, connected ? 2 : 1);
}

void tool_progress(struct tool_request *tool, uint64_t done_pages, uint64_t all_pages,
		   const char *state)
{
	struct session_msg msg = {.type = SESSION_PROGRESS, .done = done_pages, .all = all_pages};

	if (!tool->conn || !tool->what.progress)
		return;
	snprintf(msg.text, sizeof(msg.text), "%s", state);
	conn_send(tool->conn, &msg);
}

void tool_held(struct tool_request *tool, uint8_t step, uint32_t ms)
{
	struct session_msg msg = {.type = SESSION_HELD, .step = step, .len = ms};

	if (tool->conn)
		conn_send(tool->conn, &msg);
}

void tool_step(struct tool_request *tool, const char *node, uint64_t page, uint64_t at_ns,
	       const char *name)
{
	struct session_msg msg = {.type = SESSION_STEP, .done = at_ns, .all = page + 1};

	if (!tool->conn)
		return;
	snprintf(msg.node, sizeof(msg.node), "%s", node);
	snprintf(msg.text, sizeof(msg.text), "%s", name);
	conn_send(tool->conn, &msg);
}

void programs_set_tools(struct programs *p, const struct programs_tools *tools)
{
	p->tools = *tools;
}

void programs_set_members(struct programs *p, programs_member *fn, void *arg)
{
	p->member = fn;
	p->member_arg = arg;
}

/* ---- holes ---------------------------------------------------------------------------------- */

struct punch_request {
	struct client_request *request;
	bool keeps_setid;
};

/*
 * Returns true where the client's process may write to all of [from, to) of the file. Asks /proc,
 * since an mremap that grows a mapping raises no event.
 */
static bool may_punch(struct programs *p, struct client_request *r, struct client *client)
{
	uint64_t from = r->msg.offset, to = from + r->msg.len;
	struct mapped_segment *mseg = mseg_held(p, r->msg.segment, client);
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	bool more = true;

	if (!mseg)
		return false;
	pthread_mutex_lock(&mseg->change);
	if (mseg_look(p, mseg, client) || mseg_refs(mseg, &refs, &count))
		count = 0;
	pthread_mutex_unlock(&mseg->change);
	/* The refs of one process are sorted by address, not by offset. */
	while (from < to && more) {
		more = false;
		for (size_t i = 0; i < count; i++) {
			uint64_t end = refs[i].offset + (refs[i].end - refs[i].start);

			if (refs[i].client == client && refs[i].writable && !refs[i].gone &&
			    refs[i].offset <= from && end > from) {
				from = end;
				more = true;
			}
		}
	}
	mapping_refs_free(refs, count);
	mseg_put(p, mseg);
	return from >= to;
}

static void run_punch(void *arg)
{
	struct punch_request *punch = arg;
	struct programs *p = punch->request->programs;
	const struct session_msg *msg = &punch->request->msg;

	if (atomic_load(&p->closing))
		punch_answer(punch, -ESHUTDOWN);
	else if (p->punch)
		p->punch(p->punch_arg, punch, msg->segment, msg->offset, msg->len);
	else
		punch_answer(punch, -EOPNOTSUPP);
}

void punch_begin(struct client_request *r)
{
	uint64_t mask = RAMP_PAGE_BYTES - 1;
	struct punch_request *punch = malloc(sizeof(*punch));
	struct client *client;
	int rc = 0;

	if (!punch) {
		request_free(r);
		return;
	}
	programs_hold(r->programs);
	*punch = (struct punch_request){.request = r};
	if (!r->msg.len || (r->msg.offset | r->msg.len) & mask ||
	    r->msg.offset + r->msg.len < r->msg.offset)
		rc = -EINVAL;
	client = rc ? NULL : request_client(r, 0);
	if (!rc && !client)
		rc = -EPERM;
	else if (!rc && !may_punch(r->programs, r, client))
		rc = -EACCES;
	if (client)
		client_put(client);
	/* Asked here, in the user's share: the process may keep a thread that looks into it
	   waiting. */
	if (!rc && r->programs->keeps_setid)
		punch->keeps_setid = r->programs->keeps_setid(r->pid);
	if (rc)
		punch_answer(punch, rc);
	else
		loop_post(r->programs->loop, run_punch, punch);
}

bool punch_is_late(const struct punch_request *punch)
{
	return clock_ms() > punch->request->since_ms + SESSION_PUNCH_MS ||
	       request_is_for_nobody(punch->request);
}

void punch_answer(struct punch_request *punch, int result)
{
	struct session_msg msg = {.type = SESSION_RESULT,
				  .result = (uint32_t)(result < 0 ? -result : result)};
	struct programs *p = punch->request->programs;

	if (result != -ESHUTDOWN)
		request_answer(punch->request, &msg);
	request_free(punch->request);
	free(punch);
	programs_let_go(p);
}

bool punch_caller(const struct punch_request *punch, pid_t *pid, gid_t *gid)
{
	*pid = punch->request->pid;
	*gid = punch->request->gid;
	return punch->keeps_setid;
}

void programs_set_punch(struct programs *p, programs_punch *fn, void *arg,
			programs_keeps_setid *keeps_setid)
{
	p->punch = fn;
	p->punch_arg = arg;
	p->keeps_setid = keeps_setid;
}
