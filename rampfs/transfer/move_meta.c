/*
 * What moves ask of the metadata.
 *
 * Happy path: a proposal carries the move's segment and serial number; its answer comes on the meta
 * thread, is posted to the control loop, and goes to the move, which it finds by both.
 *
 * How it fails: a move that has ended meanwhile hears nothing. An answer that is an error is the
 * caller's to handle; proposals of abort and reads are repeated with a growing pause.
 */
#include "move_meta.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

struct proposal {
	struct transfers *t;
	ramp_segment_t id;
	uint64_t serial;
	move_proposed *done;
	struct meta_reply reply;
};

static void proposal_back(void *arg)
{
	struct proposal *p = arg;
	struct transfers *t = p->t;
	struct move *m = t->closing ? NULL : move_find(t, p->id);

	if (m && m->serial == p->serial) {
		m->proposing = false;
		p->done(m, &p->reply);
	}
	free(p);
	transfers_put(t);
}

/* Meta thread. */
static void on_proposed(void *arg, const struct meta_reply *reply)
{
	struct proposal *p = arg;

	p->reply = *reply;
	loop_post(p->t->loop, proposal_back, p);
}

static struct proposal *proposal_new(struct move *m, move_proposed *done)
{
	struct proposal *p = calloc(1, sizeof(*p));

	if (!p)
		abort(); /* a proposal that is never answered would block its move */
	p->t = m->t;
	p->id = m->id;
	p->serial = m->serial;
	p->done = done;
	transfers_get(m->t);
	return p;
}

void move_propose(struct move *m, struct meta_command *command, move_proposed *done)
{
	command->cid = meta_own_command(m->t->meta);
	command->id = m->id;
	command->k = m->k;
	m->proposing = true;
	meta_propose(m->t->meta, command, on_proposed, proposal_new(m, done));
}

static void synced(struct move *m, const struct meta_reply *reply)
{
	m->syncing = false;
	if (reply->result) {
		move_retry(m);
		return;
	}
	m->synced = true;
	move_look(m->t, m->id);
}

void move_sync(struct move *m)
{
	if (m->syncing)
		return;
	m->syncing = m->proposing = true;
	meta_sync(m->t->meta, on_proposed, proposal_new(m, synced));
}

static void abort_proposed(struct move *m, const struct meta_reply *reply)
{
	if (reply->result && reply->result != -ESTALE)
		move_retry(m);
	else
		move_look(m->t, m->id);
}

void move_propose_abort(struct move *m, enum meta_proof proof)
{
	struct meta_command command = {
		.type = META_ABORT,
		.epoch = m->epoch,
		.proof = proof,
		.proof_node = proof == PROOF_OVER ? m->peer : 0,
		.proof_inc = proof == PROOF_OVER ? m->peer_inc : 0,
	};

	if (m->proposing)
		return;
	log_info("segment %llu: abort proposed (%s)", (unsigned long long)m->id,
		 proof == PROOF_OVER	  ? "the target is over"
		 : proof == PROOF_REFUSED ? "the target refused"
					  : "the source gave up");
	move_propose(m, &command, abort_proposed);
}
