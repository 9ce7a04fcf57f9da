/*
 * The messages between daemons: encoding, decoding, bounds.
 *
 * Happy path: a get function takes the fields in order and asks once, at the end, whether every
 * byte was there and none was left. It fails with -EBADMSG and then owns nothing: CONNECT's
 * ranges, the one thing that is allocated, are freed first.
 */
#include "proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool proto_name_ok(const char *name)
{
	return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static void put_version(struct wire_w *w)
{
	wire_put_u8(w, PROTO_VERSION);
}

static void get_version(struct wire_r *r)
{
	if (wire_get_u8(r) != PROTO_VERSION)
		r->bad = true;
}

static void put_bool(struct wire_w *w, bool v)
{
	wire_put_u8(w, v ? 1 : 0);
}

static bool get_bool(struct wire_r *r)
{
	uint8_t v = wire_get_u8(r);

	if (v > 1)
		r->bad = true;
	return v == 1;
}

static void put_k(struct wire_w *w, struct ramp_attempt k)
{
	wire_put_u64(w, k.source_id);
	wire_put_u64(w, k.ticket);
}

static struct ramp_attempt get_k(struct wire_r *r)
{
	struct ramp_attempt k;

	k.source_id = wire_get_u64(r);
	k.ticket = wire_get_u64(r);
	if (k.source_id == 0)
		r->bad = true;
	return k;
}

static ramp_segment_t get_id(struct wire_r *r)
{
	ramp_segment_t id = wire_get_u64(r);

	if (id < RAMP_SEGMENT_ID_MIN)
		r->bad = true;
	return id;
}

/* Decodes a number that is 0 in no valid message. */
static uint64_t get_set(struct wire_r *r)
{
	uint64_t v = wire_get_u64(r);

	if (v == 0)
		r->bad = true;
	return v;
}

static uint64_t get_size(struct wire_r *r)
{
	uint64_t v = wire_get_u64(r);

	if (v > PROTO_SIZE_MAX)
		r->bad = true;
	return v;
}

static void get_name(struct wire_r *r, char name[RAMP_NAME_MAX + 1])
{
	wire_get_str(r, name, RAMP_NAME_MAX + 1);
	if (r->bad || !proto_name_ok(name))
		r->bad = true;
}

static uint32_t get_errno(struct wire_r *r)
{
	uint32_t code = wire_get_u32(r);

	if (code > 4095) /* MAX_ERRNO of the kernel */
		r->bad = true;
	return code;
}

static int done(const struct wire_r *r)
{
	return wire_r_done(r) ? 0 : -EBADMSG;
}

size_t proto_connect_bytes(const struct msg_connect *m)
{
	return PROTO_SMALL_BYTES + (size_t)m->n_ranges * 16;
}

void proto_put_connect(struct wire_w *w, const struct msg_connect *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->source_id);
	wire_put_u64(w, m->epoch);
	wire_put_u64(w, m->size);
	wire_put_u64(w, m->slack_bytes);
	wire_put_u64(w, m->src_inc);
	put_bool(w, m->demand_only);
	put_bool(w, m->progress);
	put_bool(w, m->trace);
	put_bool(w, m->prefill);
	wire_put_u64(w, m->limit_bytes_s);
	wire_put_u64(w, m->batch);
	wire_put_str(w, m->name);
	wire_put_u32(w, m->n_ranges);
	for (uint32_t i = 0; i < m->n_ranges; i++) {
		wire_put_u64(w, m->ranges[i].offset);
		wire_put_u64(w, m->ranges[i].len);
	}
}

/* Decodes the ranges: in order, apart, whole pages, none beyond the page in which the file ends. */
static int get_ranges(struct wire_r *r, struct msg_connect *m)
{
	uint64_t end = (m->size + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	uint64_t at = 0;

	m->n_ranges = wire_get_u32(r);
	if (r->bad || m->n_ranges > PROTO_RANGES_MAX || (r->len - r->pos) / 16 < m->n_ranges)
		return -EBADMSG;
	if (m->n_ranges == 0)
		return done(r);
	m->ranges = calloc(m->n_ranges, sizeof(*m->ranges));
	if (!m->ranges)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n_ranges; i++) {
		struct msg_range *range = &m->ranges[i];

		range->offset = wire_get_u64(r);
		range->len = wire_get_u64(r);
		if (range->offset % RAMP_PAGE_BYTES || range->len % RAMP_PAGE_BYTES ||
		    range->len == 0 || range->offset < at || range->offset > end ||
		    range->len > end - range->offset)
			return -EBADMSG;
		at = range->offset + range->len;
	}
	return done(r);
}

int proto_get_connect(struct wire_r *r, struct msg_connect *m)
{
	int rc;

	memset(m, 0, sizeof(*m));
	get_version(r);
	m->id = get_id(r);
	m->source_id = get_set(r);
	m->epoch = wire_get_u64(r);
	m->size = get_size(r);
	m->slack_bytes = get_size(r);
	m->src_inc = get_set(r);
	m->demand_only = get_bool(r);
	m->progress = get_bool(r);
	m->trace = get_bool(r);
	m->prefill = get_bool(r);
	m->limit_bytes_s = wire_get_u64(r);
	m->batch = wire_get_u64(r);
	get_name(r, m->name);
	if (r->bad)
		return -EBADMSG;
	rc = get_ranges(r, m);
	if (rc) {
		free(m->ranges);
		m->ranges = NULL;
		m->n_ranges = 0;
	}
	return rc;
}

void proto_put_accept(struct wire_w *w, const struct msg_accept *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->source_id);
	wire_put_u64(w, m->ticket);
	wire_put_u64(w, m->dst_inc);
}

int proto_get_accept(struct wire_r *r, struct msg_accept *m)
{
	get_version(r);
	m->id = get_id(r);
	m->source_id = get_set(r);
	m->ticket = get_set(r);
	m->dst_inc = get_set(r);
	return done(r);
}

void proto_put_refuse(struct wire_w *w, const struct msg_refuse *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->source_id);
	wire_put_u32(w, m->code);
	wire_put_str(w, m->text);
}

int proto_get_refuse(struct wire_r *r, struct msg_refuse *m)
{
	get_version(r);
	m->id = get_id(r);
	m->source_id = get_set(r);
	m->code = get_errno(r);
	if (m->code == 0)
		r->bad = true;
	wire_get_str(r, m->text, sizeof(m->text));
	return done(r);
}

void proto_put_transfer(struct wire_w *w, const struct msg_transfer *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	wire_put_u64(w, m->epoch);
	wire_put_u64(w, m->size);
	wire_put_u64(w, m->src_inc);
	wire_put_u64(w, m->dst_inc);
	put_bool(w, m->unchanged);
	wire_put_u64(w, (uint64_t)m->mtime_s);
	wire_put_u32(w, m->mtime_ns);
	wire_put_u32(w, m->round);
	wire_put_u32(w, m->parts);
}

int proto_get_transfer(struct wire_r *r, struct msg_transfer *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->epoch = wire_get_u64(r);
	m->size = get_size(r);
	m->src_inc = get_set(r);
	m->dst_inc = get_set(r);
	m->unchanged = get_bool(r);
	m->mtime_s = (int64_t)wire_get_u64(r);
	m->mtime_ns = wire_get_u32(r);
	m->round = wire_get_u32(r);
	m->parts = wire_get_u32(r);
	if (m->mtime_ns >= 1000000000)
		r->bad = true;
	return done(r);
}

void proto_put_stored(struct wire_w *w, const struct msg_stored *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	wire_put_u32(w, m->round);
	wire_put_u32(w, m->part);
	wire_put_u64(w, m->first_page);
	for (size_t i = 0; i < PROTO_STORED_PAGES / 64; i++)
		wire_put_u64(w, m->bits[i]);
}

int proto_get_stored(struct wire_r *r, struct msg_stored *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->round = wire_get_u32(r);
	m->part = wire_get_u32(r);
	m->first_page = wire_get_u64(r);
	if (m->round == 0 || m->first_page % PROTO_STORED_PAGES ||
	    m->first_page >= PROTO_SIZE_MAX / RAMP_PAGE_BYTES)
		r->bad = true;
	for (size_t i = 0; i < PROTO_STORED_PAGES / 64; i++)
		m->bits[i] = wire_get_u64(r);
	return done(r);
}

void proto_put_round(struct wire_w *w, const struct msg_round *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	wire_put_u32(w, m->round);
	wire_put_u32(w, m->parts);
	wire_put_u64(w, m->size);
}

int proto_get_round(struct wire_r *r, struct msg_round *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->round = wire_get_u32(r);
	m->parts = wire_get_u32(r);
	m->size = get_size(r);
	return done(r);
}

void proto_put_prefill(struct wire_w *w, const struct msg_prefill *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	put_bool(w, m->prefill);
	put_bool(w, m->progress);
	wire_put_u64(w, m->limit_bytes_s);
	wire_put_u64(w, m->batch);
	wire_put_str(w, m->name);
}

int proto_get_prefill(struct wire_r *r, struct msg_prefill *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->prefill = get_bool(r);
	m->progress = get_bool(r);
	m->limit_bytes_s = wire_get_u64(r);
	m->batch = wire_get_u64(r);
	get_name(r, m->name);
	return done(r);
}

void proto_put_verdict(struct wire_w *w, const struct msg_verdict *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	wire_put_u64(w, m->epoch);
}

int proto_get_verdict(struct wire_r *r, struct msg_verdict *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->epoch = wire_get_u64(r);
	return done(r);
}

void proto_put_pulled(struct wire_w *w, const struct msg_pulled *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	put_k(w, m->k);
	wire_put_u64(w, m->done_pages);
	wire_put_u64(w, m->all_pages);
}

int proto_get_pulled(struct wire_r *r, struct msg_pulled *m)
{
	get_version(r);
	m->id = get_id(r);
	m->k = get_k(r);
	m->done_pages = wire_get_u64(r);
	m->all_pages = wire_get_u64(r);
	if (m->done_pages > m->all_pages)
		r->bad = true;
	return done(r);
}

void proto_put_limit(struct wire_w *w, const struct msg_limit *m)
{
	put_version(w);
	wire_put_u64(w, m->bytes_s);
}

int proto_get_limit(struct wire_r *r, struct msg_limit *m)
{
	get_version(r);
	m->bytes_s = wire_get_u64(r);
	return done(r);
}

void proto_put_figures(struct wire_w *w, const struct msg_figures *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->epoch);
	wire_put_u32(w, m->from);
	wire_put_u32(w, m->to);
	wire_put_u64(w, m->at_ms);
	put_bool(w, m->of_source);
	wire_put_u64(w, m->connect_us);
	wire_put_u64(w, m->rounds_us);
	wire_put_u64(w, m->prepare_us);
	wire_put_u64(w, m->asked_us);
	wire_put_u64(w, m->window_us);
	put_bool(w, m->of_target);
	put_bool(w, m->verbs);
	wire_put_u64(w, m->pull_us);
	wire_put_u64(w, m->round_pages);
	wire_put_u64(w, m->window_pages);
	wire_put_u64(w, m->demand_pages);
	wire_put_u64(w, m->prefetch_pages);
	wire_put_u64(w, m->hole_pages);
	wire_put_u64(w, m->local_pages);
	wire_put_u64(w, m->lost_pages);
}

int proto_get_figures(struct wire_r *r, struct msg_figures *m)
{
	get_version(r);
	m->id = get_id(r);
	m->epoch = get_set(r);
	m->from = wire_get_u32(r);
	m->to = wire_get_u32(r);
	if (m->from == 0 || m->to == 0)
		r->bad = true;
	m->at_ms = wire_get_u64(r);
	m->of_source = get_bool(r);
	m->connect_us = wire_get_u64(r);
	m->rounds_us = wire_get_u64(r);
	m->prepare_us = wire_get_u64(r);
	m->asked_us = wire_get_u64(r);
	m->window_us = wire_get_u64(r);
	m->of_target = get_bool(r);
	m->verbs = get_bool(r);
	m->pull_us = wire_get_u64(r);
	m->round_pages = get_size(r);
	m->window_pages = get_size(r);
	m->demand_pages = get_size(r);
	m->prefetch_pages = get_size(r);
	m->hole_pages = get_size(r);
	m->local_pages = get_size(r);
	m->lost_pages = get_size(r);
	return done(r);
}

void proto_put_migrate(struct wire_w *w, const struct msg_migrate *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
	wire_put_u64(w, m->id);
	wire_put_u32(w, m->dst);
	wire_put_str(w, m->name);
	wire_put_str(w, m->from_name);
	wire_put_u8(w, m->mode);
	wire_put_u8(w, m->max_rounds);
	put_bool(w, m->wait_stable);
	put_bool(w, m->progress);
	put_bool(w, m->trace);
	put_bool(w, m->force);
	put_bool(w, m->queues);
	wire_put_u32(w, m->timeout_ms);
	wire_put_u64(w, m->limit_bytes_s);
	wire_put_u64(w, m->batch);
}

int proto_get_migrate(struct wire_r *r, struct msg_migrate *m)
{
	get_version(r);
	m->request = get_set(r);
	m->id = get_id(r);
	m->dst = wire_get_u32(r);
	if (m->dst == 0)
		r->bad = true;
	get_name(r, m->name);
	wire_get_str(r, m->from_name, sizeof(m->from_name));
	if (!r->bad && m->from_name[0] && !proto_name_ok(m->from_name))
		r->bad = true;
	m->mode = wire_get_u8(r);
	m->max_rounds = wire_get_u8(r);
	m->wait_stable = get_bool(r);
	m->progress = get_bool(r);
	m->trace = get_bool(r);
	m->force = get_bool(r);
	m->queues = get_bool(r);
	m->timeout_ms = wire_get_u32(r);
	m->limit_bytes_s = wire_get_u64(r);
	m->batch = wire_get_u64(r);
	return done(r);
}

void proto_put_answer(struct wire_w *w, const struct msg_answer *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
	wire_put_u32(w, m->code);
	wire_put_u64(w, m->epoch);
	wire_put_str(w, m->text);
}

int proto_get_answer(struct wire_r *r, struct msg_answer *m)
{
	get_version(r);
	m->request = get_set(r);
	m->code = get_errno(r);
	m->epoch = wire_get_u64(r);
	wire_get_str(r, m->text, sizeof(m->text));
	return done(r);
}

void proto_put_give_back(struct wire_w *w, const struct msg_give_back *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->epoch);
	wire_put_u64(w, m->addr);
	wire_put_u64(w, m->len);
}

int proto_get_give_back(struct wire_r *r, struct msg_give_back *m)
{
	get_version(r);
	m->request = get_set(r);
	m->id = get_id(r);
	m->epoch = get_set(r);
	m->addr = get_set(r);
	m->len = get_set(r);
	if (m->len > UINT64_MAX - m->addr)
		r->bad = true;
	return done(r);
}

void proto_put_give_back_said(struct wire_w *w, const struct msg_give_back_said *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
	wire_put_u32(w, m->code);
	wire_put_str(w, m->text);
}

int proto_get_give_back_said(struct wire_r *r, struct msg_give_back_said *m)
{
	get_version(r);
	m->request = get_set(r);
	m->code = get_errno(r);
	wire_get_str(r, m->text, sizeof(m->text));
	return done(r);
}

void proto_put_progress(struct wire_w *w, const struct msg_progress *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
	wire_put_u64(w, m->done_pages);
	wire_put_u64(w, m->all_pages);
	wire_put_str(w, m->state);
}

int proto_get_progress(struct wire_r *r, struct msg_progress *m)
{
	get_version(r);
	m->request = get_set(r);
	m->done_pages = wire_get_u64(r);
	m->all_pages = wire_get_u64(r);
	if (m->done_pages > m->all_pages)
		r->bad = true;
	wire_get_str(r, m->state, sizeof(m->state));
	return done(r);
}

void proto_put_cancel(struct wire_w *w, const struct msg_cancel *m)
{
	put_version(w);
	wire_put_u64(w, m->request);
}

int proto_get_cancel(struct wire_r *r, struct msg_cancel *m)
{
	get_version(r);
	m->request = get_set(r);
	return done(r);
}

void proto_put_clock(struct wire_w *w, const struct msg_clock *m)
{
	put_version(w);
	wire_put_u64(w, m->id);
	wire_put_u64(w, m->source_id);
	wire_put_u64(w, m->sent_ns);
	put_bool(w, m->steps);
}

int proto_get_clock(struct wire_r *r, struct msg_clock *m)
{
	get_version(r);
	m->id = get_id(r);
	m->source_id = get_set(r);
	m->sent_ns = wire_get_u64(r);
	m->steps = get_bool(r);
	return done(r);
}

void proto_put_clocked(struct wire_w *w, const struct msg_clocked *m)
{
	put_version(w);
	wire_put_u64(w, m->source_id);
	wire_put_u64(w, m->sent_ns);
	wire_put_u64(w, m->came_ns);
	wire_put_u64(w, m->answered_ns);
	wire_put_u32(w, m->faults);
	put_bool(w, m->whole);
}

int proto_get_clocked(struct wire_r *r, struct msg_clocked *m)
{
	get_version(r);
	m->source_id = get_set(r);
	m->sent_ns = wire_get_u64(r);
	m->came_ns = wire_get_u64(r);
	m->answered_ns = wire_get_u64(r);
	if (m->answered_ns < m->came_ns)
		r->bad = true;
	m->faults = wire_get_u32(r);
	m->whole = get_bool(r);
	return done(r);
}

void proto_put_step(struct wire_w *w, const struct msg_step *m)
{
	put_version(w);
	wire_put_u64(w, m->about);
	wire_put_u32(w, m->node);
	wire_put_u64(w, m->page);
	wire_put_u64(w, m->at_ns);
	wire_put_str(w, m->name);
}

int proto_get_step(struct wire_r *r, struct msg_step *m)
{
	get_version(r);
	m->about = get_set(r);
	m->node = wire_get_u32(r);
	m->page = wire_get_u64(r);
	m->at_ns = wire_get_u64(r);
	wire_get_str(r, m->name, sizeof(m->name));
	return done(r);
}
