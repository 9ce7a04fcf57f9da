/*
 * The trace of one migration (rampfs-migrate --trace): both ends' steps on one clock.
 *
 * Happy path: each end notes its own steps while the segment moves (base/trace.h); CONNECT tells
 * the target to. When the source knows the answer it holds it back, and asks the target: for the
 * time, in TRIPS round trips, of which the shortest tells how far the clocks are apart, and how
 * exactly; for page faults, until one has been resolved or none can come any more; then for the
 * steps. The source sorts them among its own by its own clock, and sends all of them to the
 * request, then the answer.
 *
 * How it fails: a target that is down or silent, or has another daemon by now, gives no steps. A
 * remark says so, the source's own steps are shown, and the answer comes all the same.
 */
#include "traces.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move_message.h"

#define TRIPS	     8u
#define FAULT_MS     50u   /* between two looks for a page fault */
#define FAULTS_MS    2000u /* without a page fault, until none is waited for */
#define ANSWER_MS    1000u /* without an answer of the target, until none is waited for */
#define NS_OF_MS(ms) ((uint64_t)(ms)*1000000)

struct traced_step {
	int64_t at_ns; /* by our clock */
	uint64_t page;
	ramp_node_t node;
	char name[TRACE_NAME_MAX];
};

struct tracing {
	LIST_ENTRY(tracing) link; /* of transfers.tracings */
	struct transfers *t;
	uint64_t handle; /* of the request that waits */
	trace_show *show;
	trace_answer *answer;
	int result;
	char text[RAMP_ERR_TEXT_BYTES];
	ramp_segment_t id;
	uint64_t source_id;
	ramp_node_t peer;
	char peer_name[RAMP_NODE_NAME_MAX + 1];
	struct trace *trace;
	uv_timer_t timer;
	uint64_t began_ns, heard_ns;
	unsigned trips;
	uint64_t trip_ns; /* the shortest */
	int64_t ahead_ns; /* the target's clock before ours, by the shortest trip */
	bool last;	  /* the steps are asked for; the answer ends it */
	size_t n;
	struct traced_step steps[2 * TRACE_STEPS];
};

/* ---- the two ends, while they move ----------------------------------------------------------- */

void trace_source(struct move *m, bool wanted)
{
	trace_put(m->trace);
	m->trace = wanted ? trace_new() : NULL;
	trace_step(m->trace, "the move begins");
}

void trace_target(struct move *m)
{
	struct transfers *t = m->t;
	struct kept_trace *kept = &t->traces[t->n_traces++ % TRACES_KEPT];

	m->trace = trace_new();
	trace_step(m->trace, "CONNECT has come");
	trace_put(kept->trace);
	*kept = (struct kept_trace){m->k.source_id, trace_get(m->trace)};
}

static struct trace *kept_find(struct transfers *t, uint64_t source_id)
{
	for (size_t i = 0; i < TRACES_KEPT; i++)
		if (t->traces[i].trace && t->traces[i].source_id == source_id)
			return t->traces[i].trace;
	return NULL;
}

/* ---- the target is asked --------------------------------------------------------------------- */

static void steps_send(struct transfers *t, ramp_node_t to, uint64_t source_id,
		       const struct trace *trace)
{
	struct trace_step steps[TRACE_STEPS];
	size_t n = trace_read(trace, steps, TRACE_STEPS);

	for (size_t i = 0; i < n; i++) {
		struct msg_step s = {
			.about = source_id,
			.node = t->self,
			.page = steps[i].page,
			.at_ns = steps[i].at_ns,
		};

		snprintf(s.name, sizeof(s.name), "%s", steps[i].name);
		MOVE_SEND(t, to, PROTO_STEP, proto_put_step, &s);
	}
}

static void on_clock(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_clocked answer = {.came_ns = clock_ns()};
	struct trace *trace;
	struct msg_clock c;
	struct move *m;

	(void)incarnation;
	if (!move_decoded(body, proto_get_clock(body, &c)))
		return;
	trace = kept_find(t, c.source_id);
	m = move_with(t, from, c.id);
	if (trace && c.steps)
		steps_send(t, from, c.source_id, trace);
	answer.source_id = c.source_id;
	answer.sent_ns = c.sent_ns;
	answer.faults = trace ? trace_faults(trace) : 0;
	answer.whole = !trace || !m || m->target.has_every_page;
	answer.answered_ns = clock_ns();
	MOVE_SEND(t, from, PROTO_CLOCKED, proto_put_clocked, &answer);
}

/* ---- the source asks ------------------------------------------------------------------------- */

static struct tracing *tracing_find(struct transfers *t, uint64_t source_id, ramp_node_t peer)
{
	struct tracing *tr;

	LIST_FOREACH (tr, &t->tracings, link)
		if (tr->source_id == source_id && tr->peer == peer)
			return tr;
	return NULL;
}

static void add_step(struct tracing *tr, ramp_node_t node, uint64_t page, int64_t at_ns,
		     const char *name)
{
	struct traced_step *s = &tr->steps[tr->n];

	if (tr->n == sizeof(tr->steps) / sizeof(tr->steps[0]))
		return;
	tr->n++;
	*s = (struct traced_step){.at_ns = at_ns, .page = page, .node = node};
	snprintf(s->name, sizeof(s->name), "%.*s", TRACE_NAME_MAX - 1, name);
}

static int compare_steps(const void *a, const void *b)
{
	const struct traced_step *x = a, *y = b;

	return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static void tracing_remark(struct tracing *tr, bool far)
{
	char text[PROTO_TEXT_BYTES];
	struct transfer_step step = {0, "", TRACE_NO_PAGE, 0, text};

	if (far)
		snprintf(text, sizeof(text),
			 "node %s's clock is put %+.1f us beside the source's, within %.1f us: by "
			 "the shortest of %u round trips",
			 tr->peer_name, (double)tr->ahead_ns / 1e3, (double)tr->trip_ns / 2e3,
			 tr->trips);
	else
		snprintf(text, sizeof(text), "node %s has no steps to show, or does not answer",
			 tr->peer_name);
	tr->show(tr->t, tr->handle, &step);
}

static void tracing_show(struct tracing *tr)
{
	size_t far = tr->n, n;
	struct trace_step near[TRACE_STEPS];
	char self[RAMP_NODE_NAME_MAX + 1];

	n = trace_read(tr->trace, near, TRACE_STEPS);
	for (size_t i = 0; i < n; i++)
		add_step(tr, tr->t->self, near[i].page, (int64_t)near[i].at_ns, near[i].name);
	qsort(tr->steps, tr->n, sizeof(tr->steps[0]), compare_steps);
	move_node_name(tr->t, tr->t->self, self);
	tracing_remark(tr, far > 0);
	for (size_t i = 0; i < tr->n; i++) {
		const struct traced_step *s = &tr->steps[i];
		struct transfer_step step = {
			.node = s->node,
			.node_name = s->node == tr->peer ? tr->peer_name : self,
			.page = s->page,
			.at_ns = (uint64_t)(s->at_ns - tr->steps[0].at_ns),
			.name = s->name,
		};

		tr->show(tr->t, tr->handle, &step);
	}
}

static void tracing_free(uv_handle_t *timer)
{
	struct tracing *tr = timer->data;

	trace_put(tr->trace);
	free(tr);
}

static void tracing_end(struct tracing *tr)
{
	LIST_REMOVE(tr, link);
	uv_close((uv_handle_t *)&tr->timer, tracing_free);
}

static void tracing_finish(struct tracing *tr)
{
	tracing_show(tr);
	tr->answer(tr->t, tr->handle, tr->result, tr->text);
	tracing_end(tr);
}

static void tracing_on_timer(uv_timer_t *timer);

static void clock_send(struct tracing *tr)
{
	struct msg_clock c = {.id = tr->id, .source_id = tr->source_id, .steps = tr->last};

	uv_timer_start(&tr->timer, tracing_on_timer, ANSWER_MS, 0);
	c.sent_ns = clock_ns();
	MOVE_SEND(tr->t, tr->peer, PROTO_CLOCK, proto_put_clock, &c);
}

/* The pause after an answer is over, or the target was silent. */
static void tracing_on_timer(uv_timer_t *timer)
{
	struct tracing *tr = timer->data;

	if (clock_ns() - tr->heard_ns >= NS_OF_MS(ANSWER_MS))
		tracing_finish(tr);
	else
		clock_send(tr);
}

/* Takes both ways as equally long: the error is at most half of the trip. */
static void count_trip(struct tracing *tr, const struct msg_clocked *c, uint64_t now)
{
	uint64_t trip = now - c->sent_ns - (c->answered_ns - c->came_ns);

	if (tr->trips++ > 0 && trip >= tr->trip_ns)
		return;
	tr->trip_ns = trip;
	tr->ahead_ns = ((int64_t)(c->came_ns - c->sent_ns) + (int64_t)(c->answered_ns - now)) / 2;
}

static void on_clocked(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		       struct wire_r *body)
{
	struct transfers *t = arg;
	uint64_t now = clock_ns();
	struct msg_clocked c;
	struct tracing *tr;

	(void)incarnation;
	if (!move_decoded(body, proto_get_clocked(body, &c)))
		return;
	tr = tracing_find(t, c.source_id, from);
	if (!tr)
		return;
	tr->heard_ns = now;
	if (tr->last) {
		tracing_finish(tr);
		return;
	}
	if (tr->trips < TRIPS)
		count_trip(tr, &c, now);
	tr->last = tr->trips == TRIPS &&
		   (c.faults || c.whole || tr->result || now - tr->began_ns >= NS_OF_MS(FAULTS_MS));
	if (tr->trips == TRIPS && !tr->last)
		uv_timer_start(&tr->timer, tracing_on_timer, FAULT_MS, 0);
	else
		clock_send(tr);
}

bool trace_take_step(struct transfers *t, ramp_node_t from, const struct msg_step *s)
{
	struct tracing *tr = tracing_find(t, s->about, from);

	if (tr)
		add_step(tr, from, s->page, (int64_t)s->at_ns - tr->ahead_ns, s->name);
	return tr != NULL;
}

bool trace_collect(struct move *m, uint64_t handle, int result, const char *text, trace_show *show,
		   trace_answer *answer)
{
	struct transfers *t = m->t;
	struct tracing *tr = m->trace && !t->closing ? calloc(1, sizeof(*tr)) : NULL;

	if (!tr)
		return false;
	tr->t = t;
	tr->handle = handle;
	tr->show = show;
	tr->answer = answer;
	tr->result = result;
	snprintf(tr->text, sizeof(tr->text), "%s", text);
	tr->id = m->id;
	tr->source_id = m->k.source_id;
	tr->peer = m->peer;
	memcpy(tr->peer_name, m->peer_name, sizeof(tr->peer_name));
	tr->trace = trace_get(m->trace);
	tr->began_ns = tr->heard_ns = clock_ns();
	uv_timer_init(loop_uv(t->loop), &tr->timer);
	tr->timer.data = tr;
	LIST_INSERT_HEAD(&t->tracings, tr, link);
	clock_send(tr);
	return true;
}

void traces_close(struct transfers *t)
{
	while (!LIST_EMPTY(&t->tracings))
		tracing_end(LIST_FIRST(&t->tracings));
	for (size_t i = 0; i < TRACES_KEPT; i++)
		trace_put(t->traces[i].trace);
}

void traces_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_CLOCK, on_clock, t);
	peers_on(t->peers, PROTO_CLOCKED, on_clocked, t);
}
