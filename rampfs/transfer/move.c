/*
 * The states of a migration: their drawing, and the one door that guards them.
 *
 * Happy path: a request (move_request.c) makes a move at the source S [source_start], CONNECT makes
 * one at the target T [connect_new]. Each goes through its half of the drawing and ends. It is
 * driven by messages, by workers that return, by proposals that are answered, and by rows that
 * change. All of them end in move_look, which reads the record beside the bytes and the row in this
 * node's tables, and does what the two call for. So the steps after a restart are the same as those
 * after a message.
 *
 * How it fails: before GIVEN the source gives everything back (R4). From GIVEN on only the tables
 * decide, and time proves nothing (R5): TRANSFER, taken, settled and abort are repeated with a
 * growing pause until the tables show a newer row.
 *
 * k is the attempt, e the epoch of its prepare. A life is the time from a daemon's start to its
 * end.
 *
 *   source                                                   what holds in the state
 *   NEW -> S_CHECKING                     [source_start]     record OWNED, programs run
 *   S_CHECKING -> S_CONNECTING            [checked]          the same; populated pages are known
 *   S_CONNECTING -> S_PREPARING           [source_prepare]   the same; T has room for k
 *   S_CONNECTING -> S_WEIGHING            [source_weigh]     mode auto: OWNED, stores are watched a moment
 *   S_WEIGHING -> S_PREPARING             [source_prepare]   another mode pays; the watch has ended
 *   S_WEIGHING -> S_ROUNDS                [source_rounds_watched] as from S_CONNECTING
 *   S_CONNECTING -> S_ROUNDS              [source_rounds_begin] mode precopy: OWNED, T reads, programs run
 *   S_ROUNDS -> S_RESTING                 [source_prefill_read] a prefill: T has read the round; as S_ROUNDS
 *   S_RESTING -> S_ROUNDS                 [prefill_looked]   stores were found, or a request has joined
 *   S_ROUNDS -> S_CHECKING                [source_again]     it goes lazily after all; the watch has ended
 *   S_ROUNDS -> S_PREPARING               [source_prepare]   stores are watched until the freeze (R10)
 *   S_ROUNDS -> S_READ_AHEAD              [close_wait]       the same; the client says when
 *   S_ROUNDS, S_READ_AHEAD -> S_QUIESCING [source_close]     as S_READ_AHEAD; programs are asked to let go of it
 *   S_QUIESCING -> S_CLOSING              [source_close_look] the same; they have
 *   S_ROUNDS, S_READ_AHEAD -> S_CLOSING   [source_close]     OWNED; programs are about to be closed to stores
 *   S_READ_AHEAD -> S_PREPARING           [source_prepare]   as from S_ROUNDS
 *   S_CLOSING -> S_CLOSED                 [closed]           OWNED, programs load, no store anywhere; T reads
 *   S_CLOSED -> S_PREPARING               [source_prepare]   the same; T has every page
 *   S_CONNECTING -> S_CONNECTED           [hold_connected]   the same; the client says when
 *   S_CONNECTED -> S_CONNECTING           [source_connect_again] T is asked whether it has
 *   S_CONNECTED -> S_PREPARING            [source_prepare]   the same
 *   S_CONNECTED -> S_ROUNDS               [source_rounds_begin] mode precopy, as from S_CONNECTING
 *   S_CONNECTED -> S_CHECKING             [hold_look, source_go] row or size changed
 *   S_PREPARING -> S_PREPARED             [hold_prepared]    row MOVING(k), of this life (R3)
 *   S_PREPARING -> S_ASKING               [departure_wait]   the same
 *   S_PREPARED -> S_ASKING                [departure_wait]   the same; the client says when
 *   S_ASKING -> S_FREEZING                [freeze]           the same; programs have let go of it
 *   S_PREPARING -> S_CHECKING             [prepare_failed]   row changed by something else
 *   S_FREEZING -> S_GIVEN                 [source_given]     record GIVEN, no access here
 *   S_FREEZING -> S_COPYING               [copy_begin]       mode copy: OWNED, frozen; T reads
 *   S_COPYING -> S_GIVEN                  [source_given]     T has every page
 *   S_GIVEN -> S_LEAVING                  [given_leave]      T has taken k; programs are being told
 *   S_LEAVING -> S_LEFT                   [left]             programs have been told
 *   S_LEFT -> S_FREEING                   [free_it]          row newer, S in neither role (R7)
 *   S_FREEING -> END, S_LEFT              [freed]            file removed; or still mapped: later
 *   S_GIVEN, S_LEFT -> S_REVERTING        [revert]           row STABLE(S), newer than e (R5)
 *   S_GIVEN, S_LEFT -> S_ROLLED_BACK      [revert]           the same, but T may have served
 *   S_ROLLED_BACK -> S_REVERTING          [revert]           --reclaim accepts that; or ORPHAN
 *   S_ROLLED_BACK -> S_FREEING            [free_it]          the segment is unlinked
 *   S_REVERTING -> END                    [reverted]         record OWNED
 *   S_CHECKING, S_CONNECTING -> END       [source_fail_now]  given up, prepare was not proposed
 *   S_CONNECTED -> END                    [source_fail_now]  the same
 *   S_WEIGHING, S_ROUNDS, S_RESTING -> END [source_fail_now] the same; the watch has ended
 *   S_READ_AHEAD to S_CLOSED -> END       [source_fail_now]  the same; stores continue
 *   S_PREPARING -> END                    [source_fail_now]  given up, and the row is not in k
 *   S_CONNECTING, S_PREPARING -> END      [source_prepare_late] row in an earlier k, aborted first
 *   S_CONNECTED -> END                    [source_prepare_late] the same
 *   S_PREPARING, S_PREPARED -> ABORTING   [source_give_up]   row in k, nothing frozen (R4)
 *   S_ASKING -> ABORTING                  [source_give_up]   the same
 *   S_FREEZING, S_COPYING -> ABORTING     [source_give_up]   the same; record OWNED, access back
 *   NEW -> ABORTING                       [sweep]            the same, left by an earlier life
 *   NEW -> S_GIVEN                        [given_take_up]    found GIVEN
 *   ABORTING -> END, S_CHECKING           [aborting_look]    row not in k; perhaps another attempt
 *
 *   target
 *   NEW -> T_RESERVING                    [connect_new]      record NONE, a worker takes room
 *   T_RESERVING -> T_RESERVED             [reserved]         ticket given, memory only (R2)
 *   T_RESERVING -> END                    [reserved]         no room, and nothing to drop
 *   T_RESERVED -> T_TAKEN                 [target_take]      record TAKEN: serving, pulling (R11)
 *   T_RESERVED -> T_TAKING                [target_take]      a worker widens CONNECT's list
 *   T_TAKING -> T_TAKEN                   [widened]          as above
 *   T_RESERVED -> T_COPYING               [keys_come]        mode copy: record NONE, pulling
 *   T_COPYING -> T_TAKEN                  [target_take]      every page is here
 *   T_RESERVED -> T_ROUNDS                [on_round]         mode precopy: record NONE, pulling
 *   T_ROUNDS -> T_TAKEN                   [target_take]      pages that TRANSFER names are REMOTE
 *   T_ROUNDS -> T_TAKING                  [target_take]      a worker makes them so
 *   T_RESERVING, T_RESERVED -> T_DROPPING [target_drop]      k is never taken any more (R2)
 *   T_COPYING, T_ROUNDS, T_TAKING -> T_DROPPING [target_drop] the same
 *   T_TAKEN -> T_DROPPING                 [taken_look]       reverted: this incarnation is over
 *   T_TAKEN -> T_SETTLING                 [settle]           row newer, and ours
 *   T_SETTLING -> END                     [settled]          record OWNED
 *   T_DROPPING -> END                     [dropped]          record NONE, no file
 *   NEW -> T_TAKEN                        [target_take_up]   found TAKEN
 *
 *   neither
 *   NEW -> ABORTING                       [sweep]            S is over, or both ends are (R6)
 */
#include "move.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "base/trace.h"
#include "memory/reserve.h"

#include "rounds.h"

#define BIT(s) (1u << (s))

static const struct {
	const char *name;
	uint32_t next; /* states that may follow */
} states[MOVE_STATES] = {
	[MOVE_NEW] = {"new", BIT(S_CHECKING) | BIT(S_GIVEN) | BIT(ABORTING) | BIT(T_RESERVING) |
				     BIT(T_TAKEN)},
	[S_CHECKING] = {"checking", BIT(S_CONNECTING) | BIT(MOVE_END)},
	[S_CONNECTING] = {"connecting", BIT(S_CONNECTED) | BIT(S_WEIGHING) | BIT(S_ROUNDS) |
						BIT(S_PREPARING) | BIT(MOVE_END)},
	[S_WEIGHING] = {"weighing", BIT(S_ROUNDS) | BIT(S_PREPARING) | BIT(MOVE_END)},
	[S_CONNECTED] = {"connected", BIT(S_CONNECTING) | BIT(S_CHECKING) | BIT(S_ROUNDS) |
					      BIT(S_PREPARING) | BIT(MOVE_END)},
	[S_PREPARING] = {"preparing", BIT(S_PREPARED) | BIT(S_ASKING) | BIT(ABORTING) |
					      BIT(S_CHECKING) | BIT(MOVE_END)},
	[S_PREPARED] = {"prepared", BIT(S_ASKING) | BIT(ABORTING)},
	[S_ASKING] = {"asking programs", BIT(S_FREEZING) | BIT(ABORTING)},
	[S_ROUNDS] = {"pre-copying", BIT(S_RESTING) | BIT(S_PREPARING) | BIT(S_CHECKING) |
					     BIT(S_READ_AHEAD) | BIT(S_QUIESCING) | BIT(S_CLOSING) |
					     BIT(MOVE_END)},
	[S_RESTING] = {"keeping near", BIT(S_ROUNDS) | BIT(MOVE_END)},
	[S_READ_AHEAD] = {"read ahead",
			  BIT(S_QUIESCING) | BIT(S_CLOSING) | BIT(S_PREPARING) | BIT(MOVE_END)},
	[S_QUIESCING] = {"asking before it is closed", BIT(S_CLOSING) | BIT(MOVE_END)},
	[S_CLOSING] = {"closing writes", BIT(S_CLOSED) | BIT(MOVE_END)},
	[S_CLOSED] = {"writes closed", BIT(S_PREPARING) | BIT(MOVE_END)},
	[S_FREEZING] = {"freezing", BIT(S_COPYING) | BIT(S_GIVEN) | BIT(ABORTING)},
	[S_COPYING] = {"copying", BIT(S_GIVEN) | BIT(ABORTING)},
	[S_GIVEN] = {"given", BIT(S_LEAVING) | BIT(S_REVERTING) | BIT(S_ROLLED_BACK)},
	[S_LEAVING] = {"leaving", BIT(S_LEFT)},
	[S_LEFT] = {"left", BIT(S_FREEING) | BIT(S_REVERTING) | BIT(S_ROLLED_BACK)},
	[S_FREEING] = {"freeing", BIT(S_LEFT) | BIT(MOVE_END)},
	[S_REVERTING] = {"reverting", BIT(MOVE_END)},
	[S_ROLLED_BACK] = {"rolled back", BIT(S_REVERTING) | BIT(S_FREEING)},
	[ABORTING] = {"aborting", BIT(S_CHECKING) | BIT(MOVE_END)},
	[T_RESERVING] = {"reserving", BIT(T_RESERVED) | BIT(T_DROPPING) | BIT(MOVE_END)},
	[T_RESERVED] = {"reserved", BIT(T_COPYING) | BIT(T_ROUNDS) | BIT(T_TAKING) | BIT(T_TAKEN) |
					    BIT(T_DROPPING)},
	[T_ROUNDS] = {"pre-copying here", BIT(T_TAKING) | BIT(T_TAKEN) | BIT(T_DROPPING)},
	[T_COPYING] = {"copying here", BIT(T_TAKEN) | BIT(T_DROPPING)},
	[T_TAKING] = {"taking", BIT(T_TAKEN) | BIT(T_DROPPING)},
	[T_TAKEN] = {"taken", BIT(T_SETTLING) | BIT(T_DROPPING)},
	[T_SETTLING] = {"settling", BIT(MOVE_END)},
	[T_DROPPING] = {"dropping", BIT(MOVE_END)},
	[MOVE_END] = {"end", 0},
};

const char *move_state_name(enum move_state state)
{
	return states[state].name;
}

uint32_t move_backoff(uint32_t *backoff_ms)
{
	uint32_t ms = *backoff_ms ? *backoff_ms : BACKOFF_MIN_MS;

	*backoff_ms = ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms * 2;
	return ms;
}

/* ---- moves ----------------------------------------------------------------------------------- */

struct move *move_find(struct transfers *t, ramp_segment_t id)
{
	struct move *m;

	LIST_FOREACH (m, &t->moves[id % MOVE_BUCKETS], link)
		if (m->id == id)
			return m;
	return NULL;
}

void move_look(struct transfers *t, ramp_segment_t id)
{
	t->hooks->look(t, id);
}

static void move_on_timer(uv_timer_t *timer)
{
	struct move *m = timer->data;

	m->t->hooks->tick(m);
}

static uid_t owner_of(struct transfers *t, ramp_segment_t id, struct seg *seg)
{
	struct segment_row row;

	if (!meta_segment(t->meta, id, &row))
		return row.uid;
	return seg ? seg_owner(seg).uid : 0; /* unlinked, and still open */
}

struct move *move_new(struct transfers *t, ramp_segment_t id, struct seg *seg)
{
	struct move *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->t = t;
	m->id = id;
	m->serial = ++t->serials;
	m->seg = seg;
	m->owner = owner_of(t, id, seg);
	m->since_ms = clock_ms();
	m->backoff_ms = BACKOFF_MIN_MS;
	uv_timer_init(loop_uv(t->loop), &m->timer);
	m->timer.data = m;
	pthread_mutex_lock(&t->lock);
	LIST_INSERT_HEAD(&t->moves[id % MOVE_BUCKETS], m, link);
	pthread_mutex_unlock(&t->lock);
	return m;
}

/* Returns whether the record is as the state needs it. In the other states a worker may be changing
   it. */
static bool holds(struct move *m)
{
	struct record record;

	if (!m->seg)
		return m->state != S_GIVEN && m->state != T_TAKEN;
	record_get(m->seg, &record);
	switch (m->state) {
	case S_CHECKING:
	case S_CONNECTING:
	case S_CONNECTED:
	case S_WEIGHING:
	case S_ROUNDS:
	case S_RESTING:
	case S_READ_AHEAD:
	case S_QUIESCING:
	case S_CLOSING:
	case S_CLOSED:
	case S_PREPARING:
	case S_PREPARED:
	case S_ASKING:
	case S_COPYING:
		return record.kind == RECORD_OWNED;
	case S_GIVEN:
	case S_LEAVING:
	case S_LEFT:
	case S_ROLLED_BACK:
		return record.kind == RECORD_GIVEN && ramp_attempt_equal(record.k, m->k);
	case T_RESERVED:
	case T_ROUNDS:
	case T_COPYING:
		return record.kind == RECORD_NONE;
	case T_TAKEN:
		return record.kind == RECORD_TAKEN && ramp_attempt_equal(record.k, m->k);
	default:
		return true;
	}
}

static void admit_posted(void *arg)
{
	struct transfers *t = arg;

	t->admitting = false;
	if (t->started && !t->closing)
		t->hooks->admit(t);
	transfers_put(t);
}

/* Counts it as under way until the target has it. */
static void count_in_pair(struct move *m)
{
	struct transfers *t = m->t;
	bool counts = m->queues && m->state >= S_CHECKING && m->state <= S_GIVEN;
	struct pair *pair = pair_of(t, m->peer);

	if (counts == m->counted)
		return;
	m->counted = counts;
	pair->under_way += counts ? 1u : -1u;
	pair->many = pair->under_way > PAIR_FEW || (pair->many && pair->under_way);
	if (counts || t->admitting || TAILQ_EMPTY(&pair->queue))
		return;
	t->admitting = true; /* posted: this move is in the middle of a step */
	transfers_get(t);
	loop_post(t->loop, admit_posted, t);
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void show_state(struct move *m)
{
	bool target = m->state >= T_RESERVING;

	pthread_mutex_lock(&m->t->lock);
	m->shown.from = target ? m->peer : m->t->self;
	m->shown.to = target ? m->t->self : m->peer;
	m->shown.state = m->prefill ? NULL : states[m->state].name;
	m->shown.since_ms = m->since_ms;
	m->shown.in_rounds &= m->state >= S_ROUNDS && m->state <= S_ASKING;
	pthread_mutex_unlock(&m->t->lock);
}

void move_show_round(struct move *m, uint32_t round, uint64_t left_pages)
{
	pthread_mutex_lock(&m->t->lock);
	m->shown.in_rounds = true;
	m->shown.round = round;
	m->shown.left_bytes = left_pages * RAMP_PAGE_BYTES;
	pthread_mutex_unlock(&m->t->lock);
}

bool transfers_move(struct transfers *t, ramp_segment_t id, struct transfer_move *out)
{
	struct move *m;
	bool found;

	pthread_mutex_lock(&t->lock);
	m = move_find(t, id);
	found = m && m->shown.state;
	if (found) {
		*out = m->shown;
		out->since_ms = clock_ms() - m->shown.since_ms;
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

/* ---- the door -------------------------------------------------------------------------------- */

/*
 * The one door. A step that the drawing does not have, or a state whose invariant does not hold,
 * ends the daemon: the records remain, and the next daemon takes them up.
 */
void move_go(struct move *m, enum move_state from, enum move_state to)
{
	if (m->state != from || !(states[from].next & BIT(to))) {
		log_error("segment %llu: no step from %s (expected %s) to %s",
			  (unsigned long long)m->id, states[m->state].name, states[from].name,
			  states[to].name);
		abort();
	}
	m->state = to;
	m->since_ms = clock_ms();
	m->backoff_ms = BACKOFF_MIN_MS;
	uv_timer_stop(&m->timer);
	if (!holds(m)) {
		log_error("segment %llu: its record is not as the state '%s' needs it",
			  (unsigned long long)m->id, states[to].name);
		abort();
	}
	log_debug("segment %llu: %s -> %s", (unsigned long long)m->id, states[from].name,
		  states[to].name);
	count_in_pair(m);
	show_state(m);
}

struct move *move_take_up(struct transfers *t, struct seg *seg, const struct record *record)
{
	struct move *m = move_new(t, seg_id(seg), seg);
	struct segment_row row;

	if (!m) {
		seg_put(seg);
		return NULL;
	}
	m->peer = record->peer;
	m->peer_inc = record->peer_inc;
	m->k = record->k;
	m->epoch = record->epoch;
	m->size = record->size;
	m->unchanged = record->unchanged;
	m->demand_only = record->demand_only;
	move_node_name(t, m->peer, m->peer_name);
	if (meta_segment(t->meta, m->id, &row) == 0)
		memcpy(m->name, row.name, sizeof(m->name));
	return m;
}

int move_record(struct move *m, enum record_kind kind)
{
	struct record record = {
		.kind = kind,
		.epoch = m->epoch,
		.k = m->k,
		.peer = m->peer,
		.peer_inc = m->peer_inc,
		.unchanged = m->unchanged,
		.demand_only = m->demand_only,
		.size = m->size,
	};

	return record_change(m->seg, &record, &m->work_err);
}

static void free_move(uv_handle_t *handle)
{
	free(handle->data);
}

uint64_t move_populated(const struct move *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->n_ranges; i++)
		bytes += m->ranges[i].len;
	return bytes;
}

void move_forget_ranges(struct move *m)
{
	free(m->ranges);
	m->ranges = NULL;
	m->n_ranges = 0;
}

void move_let_go(struct move *m)
{
	if (!m->seg)
		return;
	seg_set_leaving(m->seg, false);
	seg_forget_layout(m->seg);
	seg_put(m->seg);
	m->seg = NULL;
}

void move_drop(struct move *m)
{
	pthread_mutex_lock(&m->t->lock);
	LIST_REMOVE(m, link);
	pthread_mutex_unlock(&m->t->lock);
	move_let_go(m);
	move_forget_ranges(m);
	rounds_free(m);
	page_set_free(&m->target.stored);
	trace_put(m->trace);
	uv_close((uv_handle_t *)&m->timer, free_move);
}

void move_end(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;

	move_go(m, m->state, MOVE_END);
	move_drop(m);
	t->hooks->ended(t, id);
}

void move_tick_in(struct move *m, uint32_t ms)
{
	uv_timer_start(&m->timer, move_on_timer, ms, 0);
}

void move_retry(struct move *m)
{
	move_tick_in(m, move_backoff(&m->backoff_ms));
}

/* ---- workers --------------------------------------------------------------------------------- */

static void run_work(void *arg)
{
	struct move *m = arg;

	m->work(m);
}

static void back_from_work(void *arg)
{
	struct move *m = arg;
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;
	bool look = m->look_again;

	t->jobs--;
	m->working = m->look_again = false;
	if (t->closing)
		return;
	m->work_done(m);
	if (look)
		move_look(t, id);
}

void move_work_begin(struct move *m, move_fn *done)
{
	m->working = true;
	m->work_done = done;
	m->work_rc = 0;
	m->work_err.code = 0;
	m->work_err.text[0] = 0;
	m->t->jobs++;
}

void move_work_over(struct move *m)
{
	loop_post(m->t->loop, back_from_work, m);
}

void move_work_alone(struct move *m, move_fn *work)
{
	m->work = work;
	loop_work_of(m->t->loop, m->owner, run_work, back_from_work, m);
}

/* A move exists at least until its worker returns. A program that has the segment may delay the
   worker (seg_hand_out; a program that holds its mmap lock). */
void move_work(struct move *m, move_fn *work, move_fn *done)
{
	move_work_begin(m, done);
	move_work_alone(m, work);
}
