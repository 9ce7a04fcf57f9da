/*
 * Facts of a node or a segment for status files and extended attributes: in one place, so that they
 * agree.
 */
#include "facts.h"

#include <inttypes.h>
#include <string.h>

#include "base/page.h"
#include "base/transfer_mode.h"
#include "inode.h"
#include "memory/pages.h"

#define VALUE_BYTES   4096
#define WRITES_CLOSED "writes closed"

/* ---- nodes ---------------------------------------------------------------------------------- */

const struct node_row *facts_find_node(const struct node_list *list, ramp_node_t node)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->row[i].node == node)
			return &list->row[i];
	return NULL;
}

const char *facts_node_name(const struct node_list *list, ramp_node_t node)
{
	const struct node_row *row = facts_find_node(list, node);

	return row ? row->name : "?";
}

bool facts_node_up(struct mount *m, const struct node_row *row)
{
	if (!row->incarnation || row->fenced == row->incarnation)
		return false;
	if (row->node == m->self)
		return row->incarnation == m->incarnation;
	return peer_up(m->config.peers, row->node);
}

const char *facts_node_state(struct mount *m, const struct node_row *row)
{
	if (facts_node_up(m, row))
		return "up";
	return row->fenced && row->fenced == row->incarnation ? "fenced" : "down";
}

/* ---- a segment's state ---------------------------------------------------------------------- */

bool facts_is_silent(struct mount *m, ramp_node_t node)
{
	return node != m->self && !peer_up(m->config.peers, node);
}

static bool is_lost(const struct segment_row *row, const struct node_row *owner)
{
	return owner->incarnation &&
	       (owner->incarnation != row->node_inc || owner->fenced == row->node_inc);
}

/* Returns the state of a STABLE row, whose bytes may be lost with an incarnation. `owner` may have
   been read long before the row, and its node may have come with new memory and made this segment
   in it: a row of the node read after the segment's decides. */
static const char *stable_state(struct mount *m, const struct segment_row *row,
				const struct node_row *owner)
{
	struct seg *seg;
	const char *state = "stable";
	struct node_row now;
	uint64_t left_bytes;

	if (owner && is_lost(row, owner) && !meta_node(m->config.meta, row->node, &now) &&
	    is_lost(row, &now))
		return "lost";
	seg = store_find(m->config.store, row->id);
	if (seg) {
		if (seg_damaged(seg))
			state = "damaged";
		else if (seg_closed_to_stores(seg, &left_bytes))
			state = WRITES_CLOSED;
		seg_put(seg);
	}
	if (transfers_rolled_back(m->config.transfers, row->id))
		state = "rolled back";
	return state;
}

const char *facts_state(struct mount *m, const struct segment_row *row,
			const struct node_row *owner)
{
	switch (row->phase) {
	case SEGMENT_STABLE:
		return stable_state(m, row, owner);
	case SEGMENT_MOVING:
		return facts_is_silent(m, row->node) || facts_is_silent(m, row->dst) ? "in doubt"
										     : "moving";
	case SEGMENT_PULLING:
		return "pulling";
	case SEGMENT_ORPHAN:
		return "orphan";
	}
	return "?";
}

/* ---- a segment's facts ---------------------------------------------------------------------- */

struct facts {
	struct mount *m;
	struct segment_row row;
	struct seg *seg;       /* NULL: no bytes of it are on this node */
	struct node_row *node; /* the row of the node that was looked up last */
};

typedef void fact_fn(const struct facts *f, FILE *out);

static void fact_id(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.id);
}

static void fact_addr(const struct facts *f, FILE *out)
{
	if (f->row.extent_len)
		fprintf(out, "0x%" PRIx64, f->row.extent_addr);
	else
		fputs("none", out);
}

static void fact_extent(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.extent_len ? f->row.extent_len : f->row.extent_asked);
}

/* NULL: there is no such node. */
static const struct node_row *fact_find_node(const struct facts *f, ramp_node_t node)
{
	if (!node || (f->node->node != node && meta_node(f->m->config.meta, node, f->node)))
		return NULL;
	return f->node;
}

static void fact_put_node(const struct facts *f, ramp_node_t node, FILE *out)
{
	const struct node_row *row = fact_find_node(f, node);

	fputs(row ? row->name : "none", out);
}

static void fact_owner(const struct facts *f, FILE *out)
{
	fact_put_node(f, f->row.node, out);
}

static void fact_state(const struct facts *f, FILE *out)
{
	const char *state = facts_state(f->m, &f->row, fact_find_node(f, f->row.node));
	uint64_t left_bytes;

	fputs(state, out);
	if (strcmp(state, WRITES_CLOSED) == 0 && f->seg &&
	    seg_closed_to_stores(f->seg, &left_bytes))
		fprintf(out, ", %" PRIu64 " bytes left", left_bytes);
}

static void fact_epoch(const struct facts *f, FILE *out)
{
	fprintf(out, "%" PRIu64, f->row.epoch);
}

static void fact_resident(const struct facts *f, FILE *out)
{
	struct stat st;
	uint64_t have = 0, missing;

	if (f->seg && seg_stat(f->seg, &st) == 0) {
		have = (uint64_t)st.st_blocks * 512; /* at a target: reserved before it is pulled */
		missing = pages_missing(f->seg) * RAMP_PAGE_BYTES;
		have = have > missing ? have - missing : 0;
	}
	fprintf(out, "%" PRIu64, have);
}

static void fact_source(const struct facts *f, FILE *out)
{
	fact_put_node(f, f->row.phase == SEGMENT_PULLING ? f->row.src : 0, out);
}

static void fact_target(const struct facts *f, FILE *out)
{
	fact_put_node(f, f->row.phase == SEGMENT_MOVING ? f->row.dst : 0, out);
}

/* Writes the byte ranges that are lost: "0-4096 8192-12288", cut with "..." where there are too
   many. */
static void fact_lost(const struct facts *f, FILE *out)
{
	uint64_t page = 0, pages, n;
	enum page_state state;
	long begin;

	if (!f->seg || !pages_lost(f->seg)) {
		fputs("none", out);
		return;
	}
	begin = ftell(out);
	pages = page_count(seg_size(f->seg));
	for (bool first = true; page < pages; page += n) {
		n = pages_run(f->seg, page, pages - page, &state);
		if (!n)
			break;
		if (state != PAGE_LOST)
			continue;
		if (ftell(out) - begin > VALUE_BYTES - 64) {
			fputs(" ...", out);
			break;
		}
		fprintf(out, "%s%" PRIu64 "-%" PRIu64, first ? "" : " ", page * RAMP_PAGE_BYTES,
			(page + n) * RAMP_PAGE_BYTES);
		first = false;
	}
}

static void fact_pages(const struct facts *f, FILE *out)
{
	static const char *const names[] = {"auto", "small", "huge"};

	fputs(f->row.pages < 3 ? names[f->row.pages] : "auto", out);
}

static void fact_mmap(const struct facts *f, FILE *out)
{
	fputs(f->row.mmap == SEGMENT_MMAP_PASSTHROUGH ? "passthrough" : "none", out);
}

static void fact_mode(const struct facts *f, FILE *out)
{
	fputs(transfer_mode_name(f->row.move - 1u), out);
}

/* "b", or "b 200M": as it is set. */
static void fact_prefill(const struct facts *f, FILE *out)
{
	fact_put_node(f, f->row.prefill, out);
	if (f->row.prefill && f->row.prefill_mib_s)
		fprintf(out, " %uM", f->row.prefill_mib_s);
}

/* "state=keeping have_bytes=N behind_bytes=N since_ms=N again_ms=N", and where it is not under way
   " why=WORDS". */
static void fact_prefill_state(const struct facts *f, FILE *out)
{
	struct transfer_prefill p;

	if (!f->row.prefill || !transfers_prefill(f->m->config.transfers, f->row.id, &p)) {
		fputs("none", out);
		return;
	}
	fprintf(out,
		"state=%s have_bytes=%" PRIu64 " behind_bytes=%" PRIu64 " since_ms=%" PRIu64
		" again_ms=%" PRIu64,
		p.state, p.have_bytes, p.behind_bytes, p.since_ms, p.again_ms);
	if (p.why[0])
		fprintf(out, " why=%s", p.why);
}

/* "from=a to=b at_ms=N", then what the source has measured, and what the target has pulled: words
   that are missing are not known here, or not yet. */
static void fact_last_move(const struct facts *f, FILE *out)
{
	struct msg_figures m;

	if (!transfers_figures(f->m->config.transfers, f->row.id, &m)) {
		fputs("none", out);
		return;
	}
	fputs("from=", out);
	fact_put_node(f, m.from, out);
	fputs(" to=", out);
	fact_put_node(f, m.to, out);
	fprintf(out, " at_ms=%" PRIu64, m.at_ms);
	if (m.of_source)
		fprintf(out,
			" connect_us=%" PRIu64 " rounds_us=%" PRIu64 " prepare_us=%" PRIu64
			" asked_us=%" PRIu64 " window_us=%" PRIu64,
			m.connect_us, m.rounds_us, m.prepare_us, m.asked_us, m.window_us);
	if (!m.of_target)
		return;
	fprintf(out,
		" transport=%s pull_us=%" PRIu64 " round_pages=%" PRIu64 " window_pages=%" PRIu64
		" demand_pages=%" PRIu64 " prefetch_pages=%" PRIu64 " hole_pages=%" PRIu64
		" local_pages=%" PRIu64 " lost_pages=%" PRIu64,
		m.verbs ? "verbs" : "tcp", m.pull_us, m.round_pages, m.window_pages, m.demand_pages,
		m.prefetch_pages, m.hole_pages, m.local_pages, m.lost_pages);
}

/* "from=a to=b since_ms=N", in a pre-copy's rounds " round=N left_bytes=N", and " state=WORDS". */
static void fact_move(const struct facts *f, FILE *out)
{
	struct transfer_move m;

	if (!transfers_move(f->m->config.transfers, f->row.id, &m)) {
		fputs("none", out);
		return;
	}
	fputs("from=", out);
	fact_put_node(f, m.from, out);
	fputs(" to=", out);
	fact_put_node(f, m.to, out);
	fprintf(out, " since_ms=%" PRIu64, m.since_ms);
	if (m.in_rounds)
		fprintf(out, " round=%" PRIu32 " left_bytes=%" PRIu64, m.round, m.left_bytes);
	fprintf(out, " state=%s", m.state);
}

static const struct {
	const char *name;
	fact_fn *get;
} facts[] = {
	{"id", fact_id},
	{"addr", fact_addr},
	{"extent", fact_extent},
	{"owner", fact_owner},
	{"state", fact_state},
	{"epoch", fact_epoch},
	{"resident_bytes", fact_resident},
	{"source", fact_source},
	{"target", fact_target},
	{"lost", fact_lost},
	{"pages", fact_pages},
	{"mmap", fact_mmap},
	{"mode", fact_mode},
	{"prefill", fact_prefill},
	{"prefill_state", fact_prefill_state},
	{"last_move", fact_last_move},
	{"move", fact_move},
};

static fact_fn *find_fact(const char *name)
{
	if (strncmp(name, FACTS_PREFIX, sizeof(FACTS_PREFIX) - 1) != 0)
		return NULL;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		if (strcmp(facts[i].name, name + sizeof(FACTS_PREFIX) - 1) == 0)
			return facts[i].get;
	return NULL;
}

bool facts_has(const char *name)
{
	return find_fact(name) != NULL;
}

void facts_put_one(struct mount *m, const struct segment_row *row, struct seg *seg,
		   const char *name, FILE *out)
{
	struct node_row node = {0};
	struct facts f = {.m = m, .row = *row, .seg = seg, .node = &node};
	fact_fn *get = find_fact(name);

	if (get)
		get(&f, out);
}

void facts_put_names(FILE *out)
{
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
		fprintf(out, "\t%s", facts[i].name);
}

void facts_put(struct mount *m, const struct segment_row *row, struct seg *seg,
	       struct node_row *node, FILE *out)
{
	struct facts f = {.m = m, .row = *row, .seg = seg, .node = node};

	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		fputc('\t', out);
		facts[i].get(&f, out);
	}
}
