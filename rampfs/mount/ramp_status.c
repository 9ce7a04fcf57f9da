/*
 * The text of .ramp/status, .ramp/nodes and .ramp/segments.
 */
#include "ramp_status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/visible.h"
#include "inode.h"
#include "metrics.h"

#define MAX_SEGMENTS 2000 /* lines of status, without those that want attention */
#define MAX_USERS    100  /* of the arena: those that have most of it */

/* ---- nodes ---------------------------------------------------------------------------------- */

/* Returns true for a voter that can't vote: it was formatted again, or is an old copy. */
static bool has_no_vote(struct mount *m, const struct node_row *row)
{
	return row->role == NODE_VOTER && meta_gets_no_vote(m->config.meta, row->node);
}

/* Returns whether pages of that node are read over RDMA, or, of this node, whether it has a device. */
static bool is_rdma(struct mount *m, ramp_node_t node)
{
	struct tp_peer peer = {.node = node};

	return pull_rdma(m->config.pull, &peer) && (peer.offers || node == m->self);
}

/* By enum tp_left. */
static const char *const left_reasons[TP_LEFT_REASONS] = {"short", "memory", "cut", "other"};

/* Writes the figures of RDMA with another node, while this one has a device. */
static void put_rdma_words(struct mount *m, ramp_node_t node, FILE *out)
{
	struct tp_peer peer = {.node = node};

	if (node == m->self || !pull_rdma(m->config.pull, &peer))
		return;
	fprintf(out, " rdma_queue_pairs=%u rdma_registered_bytes=%" PRIu64,
		peer.reading + peer.read_by, peer.registered_bytes);
	for (int why = 0; why < TP_LEFT_REASONS; why++)
		fprintf(out, " rdma_%s_parts=%" PRIu64, left_reasons[why], peer.left[why]);
}

void status_put_nodes(struct mount *m, const struct node_list *nodes, FILE *out)
{
	ramp_node_t leader = meta_leader(m->config.meta);

	for (size_t i = 0; i < nodes->n; i++) {
		const struct node_row *row = &nodes->row[i];

		fprintf(out,
			"%s %s %s %s capacity=%" PRIu64 " incarnation=%016" PRIx64 " transport=%s",
			row->name, row->role == NODE_VOTER ? "voter" : "standby",
			facts_node_state(m, row), row->address, row->capacity, row->incarnation,
			is_rdma(m, row->node) ? "verbs" : "tcp");
		put_rdma_words(m, row->node, out);
		fprintf(out, "%s%s%s\n", row->node == leader ? " leader" : "",
			row->node == m->self ? " here" : "", has_no_vote(m, row) ? " no-vote" : "");
	}
}

/* ---- status --------------------------------------------------------------------------------- */

static void put_bytes(FILE *out, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes;
	int unit = 0;

	while (v >= 1024 && unit < 4) {
		v /= 1024;
		unit++;
	}
	fprintf(out, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

/* Writes "  RDMA", and of another node "  RDMA: 2 queue pairs, 48.0 MiB registered, 3 parts over TCP (short 1, cut 2)". */
static void put_rdma(struct mount *m, ramp_node_t node, FILE *out)
{
	struct tp_peer peer = {.node = node};
	uint64_t parts = 0;
	bool first = true;

	fputs("  RDMA", out);
	if (node == m->self)
		return;
	pull_rdma(m->config.pull, &peer);
	fprintf(out, ": %u queue pairs, ", peer.reading + peer.read_by);
	put_bytes(out, peer.registered_bytes);
	fputs(" registered", out);
	for (int why = 0; why < TP_LEFT_REASONS; why++)
		parts += peer.left[why];
	if (!parts)
		return;
	fprintf(out, ", %" PRIu64 " parts over TCP (", parts);
	for (int why = 0; why < TP_LEFT_REASONS; why++) {
		if (!peer.left[why])
			continue;
		fprintf(out, "%s%s %" PRIu64, first ? "" : ", ", left_reasons[why], peer.left[why]);
		first = false;
	}
	fputc(')', out);
}

/* Writes a name into a line, with newlines and control characters escaped. With `whole` a backslash
   is escaped, too, so that the bytes can be restored. */
static void put_name(FILE *out, const char *name, bool whole)
{
	size_t len;

	for (; *name; name += len ? len : 1) {
		len = whole && *name == '\\' ? 0 : visible_length(name);
		if (len)
			fwrite(name, 1, len, out);
		else
			fprintf(out, "\\x%02x", (unsigned char)*name);
	}
}

/* `seg`: NULL where the segment is not here. */
static uint64_t size_of(const struct segment_row *row, struct seg *seg)
{
	struct stat st;

	return seg && inode_is_local(seg) && seg_stat(seg, &st) == 0 ? (uint64_t)st.st_size
								     : row->size;
}

/* Returns false if the segment is not being pulled. */
static bool find_progress(struct mount *m, ramp_segment_t id, struct pull_progress *progress)
{
	return pull_progress(m->config.pull, id, progress) == 0 && progress->pages_all;
}

/* Returns true if the source is silent. A pull without requests has no connection, so the control
   connection has to be down, too. */
static bool source_is_silent(struct mount *m, const struct pull_progress *progress)
{
	return progress->source_silent && facts_is_silent(m, progress->source);
}

/* Writes the progress of a pull. Returns true if some of it is lost, or its source is silent. */
static bool put_progress(struct mount *m, ramp_segment_t id, FILE *out)
{
	struct pull_progress progress;
	bool quiet;

	if (!find_progress(m, id, &progress))
		return false;
	fprintf(out, ", %" PRIu64 " %% here",
		100 - progress.pages_missing * 100 / progress.pages_all);
	if (progress.streams > 1)
		fprintf(out, ", over %u connections", progress.streams);
	if (progress.limit_bytes_s) {
		fputs(", at most ", out);
		put_bytes(out, progress.limit_bytes_s);
		fputs("/s", out);
	}
	quiet = source_is_silent(m, &progress);
	if (quiet)
		fputs(", source is silent", out);
	if (progress.pages_lost)
		fprintf(out, ", %" PRIu64 " pages lost", progress.pages_lost);
	return quiet || progress.pages_lost;
}

/* Writes a line of status. Returns true if the segment wants attention. */
static bool put_segment(struct mount *m, const struct node_list *nodes,
			const struct segment_row *row, struct seg *seg, FILE *out)
{
	const char *state = facts_state(m, row, facts_find_node(nodes, row->node));
	bool bad;

	fprintf(out, "  %s/", facts_node_name(nodes, row->node));
	put_name(out, row->name, false);
	fputs("  ", out);
	put_bytes(out, size_of(row, seg));
	fprintf(out, "  %s", state);
	if (row->phase == SEGMENT_MOVING)
		fprintf(out, " to %s", facts_node_name(nodes, row->dst));
	if (row->phase == SEGMENT_PULLING)
		fprintf(out, " from %s", facts_node_name(nodes, row->src));
	bad = seg && put_progress(m, row->id, out);
	if (row->extent_len)
		fprintf(out, "  at 0x%" PRIx64, row->extent_addr);
	fputc('\n', out);
	return bad || !(strcmp(state, "stable") == 0 || strcmp(state, "moving") == 0 ||
			strcmp(state, "pulling") == 0 || strcmp(state, "orphan") == 0 ||
			strncmp(state, "writes closed", 13) == 0);
}

/* Writes "  a/cache  a -> b  keeping  64.0 MiB there, 12.0 KiB behind  3 s  ()"; in brackets why it is not. */
static void put_prefill(struct mount *m, const struct node_list *nodes,
			const struct segment_row *row, const struct transfer_prefill *p, FILE *out)
{
	fprintf(out, "  %s/", facts_node_name(nodes, row->node));
	put_name(out, row->name, false);
	fprintf(out, "  %s -> %s  %s  ", facts_node_name(nodes, m->self),
		facts_node_name(nodes, row->prefill), p->state);
	put_bytes(out, p->have_bytes);
	fputs(" there, ", out);
	put_bytes(out, p->behind_bytes);
	fprintf(out, " behind  %" PRIu64 " s  (%s", p->since_ms / 1000, p->why);
	if (p->again_ms)
		fprintf(out, "; again in %" PRIu64 " s", p->again_ms / 1000 + 1);
	fputs(")\n", out);
}

struct segment_lines {
	struct mount *m;
	const struct node_list *nodes;
	FILE *out;
	FILE *prefills;
	size_t n_prefills;
	size_t n, left_out;
	char *line; /* of a segment that may be left out */
	size_t line_len;
	FILE *one;
	struct node_row node; /* facts_put's */
};

/* Adds the line of one of the first MAX_SEGMENTS, or of one that wants attention. */
static int add_status_line(void *arg, const struct segment_row *row)
{
	struct segment_lines *l = arg;
	struct seg *seg = store_find(l->m->config.store, row->id);
	struct transfer_prefill prefill;

	if (row->prefill && transfers_prefill(l->m->config.transfers, row->id, &prefill) &&
	    l->n_prefills++ < MAX_SEGMENTS)
		put_prefill(l->m, l->nodes, row, &prefill, l->prefills);
	if (l->n++ < MAX_SEGMENTS) {
		put_segment(l->m, l->nodes, row, seg, l->out);
	} else {
		rewind(l->one);
		if (put_segment(l->m, l->nodes, row, seg, l->one) && !fflush(l->one))
			fwrite(l->line, 1, l->line_len, l->out);
		else
			l->left_out++;
	}
	if (seg)
		seg_put(seg);
	return 0;
}

static void put_segments(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct segment_lines l = {.m = m, .nodes = nodes};
	char *lines = NULL, *prefills = NULL;
	size_t len = 0, prefills_len = 0;

	l.out = open_memstream(&lines, &len);
	l.prefills = open_memstream(&prefills, &prefills_len);
	l.one = l.out && l.prefills ? open_memstream(&l.line, &l.line_len) : NULL;
	if (l.one) {
		meta_each_segment(m->config.meta, 0, 0, add_status_line, &l);
		fclose(l.one);
	}
	if (l.out && !fclose(l.out) && l.one) {
		fprintf(out, "\nsegments: %zu\n", l.n);
		fwrite(lines, 1, len, out);
		if (l.left_out)
			fprintf(out, "... and %zu more\n", l.left_out);
	}
	if (l.prefills && !fclose(l.prefills) && l.n_prefills) {
		fprintf(out, "\nprefills: %zu\n", l.n_prefills);
		fwrite(prefills, 1, prefills_len, out);
	}
	free(lines);
	free(prefills);
	free(l.line);
}

/* ---- segments: all facts of each, for programs ---------------------------------------------- */

static int add_facts(void *arg, const struct segment_row *row)
{
	struct segment_lines *l = arg;
	struct pull_progress progress;
	struct seg *seg;
	bool quiet;

	if (row->unlinked || row->phase == SEGMENT_ORPHAN)
		return 0;
	seg = store_find(l->m->config.store, row->id);
	fputs(facts_node_name(l->nodes, row->node), l->out);
	fputc('\t', l->out);
	put_name(l->out, row->name, true);
	fprintf(l->out, "\t%" PRIu64, size_of(row, seg));
	facts_put(l->m, row, seg, &l->node, l->out);
	quiet = seg && find_progress(l->m, row->id, &progress) && source_is_silent(l->m, &progress);
	fprintf(l->out, "\t%s\n", quiet ? "yes" : "no");
	if (seg)
		seg_put(seg);
	return 0;
}

void status_put_segments(struct mount *m, const struct node_list *nodes, uint64_t number, FILE *out)
{
	struct segment_lines l = {.m = m, .nodes = nodes, .out = out};

	fprintf(out, "%" PRIu64 "\nnode\tname\tsize", number);
	facts_put_names(out);
	fputs("\tsource_silent\n", out);
	meta_each_segment(m->config.meta, 0, 0, add_facts, &l);
	fprintf(out, "%" PRIu64 "\n", number);
}

static void put_moves(const struct node_list *nodes, const struct transfer_row *moves,
		      size_t n_moves, FILE *out)
{
	fprintf(out, "\nmigrations: %zu\n", n_moves);
	for (size_t i = 0; i < n_moves && i < METRICS_MAX_MOVES; i++) {
		const struct transfer_row *t = &moves[i];

		fputs("  ", out);
		put_name(out, t->name, true);
		fprintf(out, "  %s -> %s  %s  %" PRIu64 " ms  (%s", facts_node_name(nodes, t->from),
			facts_node_name(nodes, t->to), t->state, t->age_ms,
			t->source ? "source" : "target");
		if (t->source && t->why[0])
			fprintf(out, ", mode %s: %s", t->mode, t->why);
		fputs(")\n", out);
	}
}

/* ---- the arena ------------------------------------------------------------------------------ */

static void put_arena(struct mount *m, const struct meta_settings *settings, uint64_t used_bytes,
		      FILE *out)
{
	uint64_t addr, len;

	meta_arena(m->config.meta, &addr, &len);
	fputs("arena: ", out);
	put_bytes(out, used_bytes);
	fputs(" given of ", out);
	put_bytes(out, len);
	if (settings->level >= META_LEVEL_ARENA_USER) {
		fputs(", at most ", out);
		put_bytes(out, settings->arena_user_max);
		fputs(" a user", out);
	}
	fputc('\n', out);
	if (settings->level < META_LEVEL_KNOWN)
		fprintf(out, "level: %" PRIu64 " of %d, until every member says that it knows %d\n",
			settings->level, META_LEVEL_KNOWN, META_LEVEL_KNOWN);
}

static void put_users(const struct arena_use *uses, int n, FILE *out)
{
	fprintf(out, "\nusers of the arena: %d\n", n);
	for (int i = 0; i < n; i++) {
		fprintf(out, "  %u  ", uses[i].uid);
		put_bytes(out, uses[i].bytes);
		fputc('\n', out);
	}
}

static void put_rate(FILE *out, const char *what, uint64_t bytes_s)
{
	fputs(what, out);
	if (bytes_s) {
		put_bytes(out, bytes_s);
		fputs("/s", out);
	} else {
		fputs("no limit", out);
	}
}

/* The mount option; no line where it was not given. */
static void put_limits(struct mount *m, FILE *out)
{
	struct transfers_status transfers;
	struct pull_status pull;

	transfers_status(m->config.transfers, &transfers);
	pull_status(m->config.pull, &pull);
	if (!transfers.limit_bytes_s && !pull.limit_bytes_s)
		return;
	put_rate(out, "limit of pages ahead: sent ", transfers.limit_bytes_s);
	put_rate(out, ", received ", pull.limit_bytes_s);
	fputc('\n', out);
}

/* Segments of a batch that wait until others are taken; no line where there are none. */
static void put_queued(struct mount *m, FILE *out)
{
	struct transfers_status transfers;

	transfers_status(m->config.transfers, &transfers);
	if (transfers.queued)
		fprintf(out, "moves queued: %" PRIu64 "\n", transfers.queued);
}

void status_put(struct mount *m, const struct node_list *nodes, const struct transfer_row *moves,
		size_t n_moves, FILE *out)
{
	ramp_node_t leader = meta_leader(m->config.meta);
	struct programs_status programs;
	struct arena_use uses[MAX_USERS];
	struct meta_settings settings;
	struct store_space space;
	uint64_t arena_used;
	int n_users = meta_arena_uses(m->config.meta, uses, MAX_USERS, &arena_used);
	bool removed = nodes->n && !facts_find_node(nodes, m->self);

	programs_status(m->config.programs, &programs);
	store_space(m->config.store, &space);
	fprintf(out, "rampfs %s, node %s\n", RAMPFS_VERSION, facts_node_name(nodes, m->self));
	/* Decisions of the cluster do not reach it any more. */
	if (removed)
		fputs("member: no, this node was removed from the cluster\n", out);
	fprintf(out, "quorum: %s\n", !removed && meta_has_quorum(m->config.meta) ? "yes" : "no");
	if (meta_why_copy(m->config.meta))
		fprintf(out, "metadata: none, names are read-only: %s\n",
			meta_why_copy(m->config.meta));
	fprintf(out, "leader: %s\n", leader ? facts_node_name(nodes, leader) : "none");
	fputs("store: ", out);
	put_bytes(out, space.used_bytes);
	fputs(" used of ", out);
	put_bytes(out, space.capacity_bytes);
	fputc('\n', out);
	if (!meta_get_settings(m->config.meta, &settings))
		put_arena(m, &settings, arena_used, out);
	put_limits(m, out);
	put_queued(m, out);
	fprintf(out, "programs: %u, with %u mappings\n", programs.sessions, programs.attachments);
	fprintf(out, "requests waiting: %u\n", park_count(m->park));
	fprintf(out, "\nnodes: %zu\n", nodes->n);
	for (size_t i = 0; i < nodes->n; i++) {
		fprintf(out, "  %s  %s  %s", nodes->row[i].name,
			facts_node_state(m, &nodes->row[i]), nodes->row[i].address);
		if (is_rdma(m, nodes->row[i].node))
			put_rdma(m, nodes->row[i].node, out);
		fputc('\n', out);
	}
	put_segments(m, nodes, out);
	put_moves(nodes, moves, n_moves, out);
	put_users(uses, n_users, out);
}
