/*
 * Text for people (status), for scripts (nodes, segments) and for Prometheus (metrics).
 *
 * A read from the beginning goes once around the control loop, which alone knows the migrations
 * under way, and is rendered and answered by a worker, since many segments take a while. Reads
 * further on are answered from the text that the last such read made, so that a file that is read
 * in pieces fits together; the read that finds its end frees it.
 *
 * How it fails: with two readers at a time one may get the rest of the other's text. The first and
 * the last line of `segments` bear the same number, by which a reader knows that it has one text.
 */
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inode.h"
#include "ops.h"
#include "visible.h"

#define VIEWS	     4
#define MAX_MOVES    256
#define MAX_SEGMENTS 2000 /* lines of status, and those that want attention */
#define MAX_NODES    64

struct view {
	pthread_mutex_t lock;
	char *text[VIEWS]; /* protected by lock */
	size_t len[VIEWS]; /* protected by lock */
	uint64_t made;	   /* protected by lock: texts so far */
};

struct view_request {
	struct request r; /* first */
	fuse_ino_t ino;
	size_t size;
	uint64_t offset;
	struct transfer_row *moves;
	size_t n_moves;
};

/* ---- what is shown -------------------------------------------------------------------------- */

struct node_list {
	struct node_row row[MAX_NODES];
	size_t n;
};

static int add_node(void *arg, const struct node_row *row)
{
	struct node_list *list = arg;

	if (row->role != NODE_REMOVED)
		list->row[list->n++] = *row;
	return list->n == MAX_NODES;
}

static const struct node_row *find_node(const struct node_list *list, ramp_node_t node)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->row[i].node == node)
			return &list->row[i];
	return NULL;
}

static const char *node_name(const struct node_list *list, ramp_node_t node)
{
	const struct node_row *row = find_node(list, node);

	return row ? row->name : "?";
}

static bool node_up(struct mount *m, const struct node_row *row)
{
	if (!row->incarnation || row->fenced == row->incarnation)
		return false;
	if (row->node == m->self)
		return row->incarnation == m->incarnation;
	return peer_up(m->config.peers, row->node);
}

static const char *node_state(struct mount *m, const struct node_row *row)
{
	if (node_up(m, row))
		return "up";
	return row->fenced && row->fenced == row->incarnation ? "fenced" : "down";
}

static bool silent(struct mount *m, ramp_node_t node)
{
	return node != m->self && !peer_up(m->config.peers, node);
}

/* The state of a STABLE row: its bytes may be gone with an incarnation. */
static const char *stable_state(struct mount *m, const struct segment_row *row,
				const struct node_row *owner)
{
	struct seg *seg;
	const char *state = "stable";

	if (owner && owner->incarnation &&
	    (owner->incarnation != row->node_inc || owner->fenced == row->node_inc))
		return "lost";
	seg = store_find(m->config.store, row->id);
	if (seg) {
		if (seg_damaged(seg))
			state = "damaged";
		seg_put(seg);
	}
	if (transfers_rolled_back(m->config.transfers, row->id))
		state = "rolled back";
	return state;
}

const char *view_state(struct mount *m, const struct segment_row *row, const struct node_row *owner)
{
	switch (row->phase) {
	case SEGMENT_STABLE:
		return stable_state(m, row, owner);
	case SEGMENT_MOVING:
		return silent(m, row->node) || silent(m, row->dst) ? "in doubt" : "moving";
	case SEGMENT_PULLING:
		return "pulling";
	case SEGMENT_ORPHAN:
		return "orphan";
	}
	return "?";
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void put_nodes(struct mount *m, const struct node_list *nodes, FILE *out)
{
	ramp_node_t leader = meta_leader(m->config.meta);

	for (size_t i = 0; i < nodes->n; i++) {
		const struct node_row *row = &nodes->row[i];

		fprintf(out, "%s %s %s %s capacity=%" PRIu64 " incarnation=%016" PRIx64 "%s%s\n",
			row->name, row->role == NODE_VOTER ? "voter" : "standby",
			node_state(m, row), row->address, row->capacity, row->incarnation,
			row->node == leader ? " leader" : "", row->node == m->self ? " here" : "");
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

/* A name in a line: it may hold a newline, or what a terminal would obey. With `whole` a backslash
   is escaped, too, so that the bytes can be found again. */
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

/* `seg`: NULL where it is not here. */
static uint64_t size_of(const struct segment_row *row, struct seg *seg)
{
	struct stat st;

	return seg && inode_is_local(seg) && seg_stat(seg, &st) == 0 ? (uint64_t)st.st_size
								     : row->size;
}

/* How far it has come. True: some of it is lost, or its source is silent. */
static bool put_progress(struct mount *m, ramp_segment_t id, FILE *out)
{
	struct pull_progress progress;
	bool quiet;

	if (pull_progress(m->config.pull, id, &progress) || !progress.pages_all)
		return false;
	fprintf(out, ", %" PRIu64 " %% here",
		100 - progress.pages_missing * 100 / progress.pages_all);
	/* A pull that nobody asks anything of has no connection to say so by. */
	quiet = progress.source_silent && silent(m, progress.source);
	if (quiet)
		fputs(", source is silent", out);
	if (progress.pages_lost)
		fprintf(out, ", %" PRIu64 " pages lost", progress.pages_lost);
	return quiet || progress.pages_lost;
}

/* True: somebody should look at it. */
static bool put_segment(struct mount *m, const struct node_list *nodes,
			const struct segment_row *row, struct seg *seg, FILE *out)
{
	const char *state = view_state(m, row, find_node(nodes, row->node));
	bool bad;

	fprintf(out, "  %s/", node_name(nodes, row->node));
	put_name(out, row->name, false);
	fputs("  ", out);
	put_bytes(out, size_of(row, seg));
	fprintf(out, "  %s", state);
	if (row->phase == SEGMENT_MOVING)
		fprintf(out, " to %s", node_name(nodes, row->dst));
	if (row->phase == SEGMENT_PULLING)
		fprintf(out, " from %s", node_name(nodes, row->src));
	bad = seg && put_progress(m, row->id, out);
	if (row->extent_len)
		fprintf(out, "  at 0x%" PRIx64, row->extent_addr);
	fputc('\n', out);
	return bad || !(strcmp(state, "stable") == 0 || strcmp(state, "moving") == 0 ||
			strcmp(state, "pulling") == 0 || strcmp(state, "orphan") == 0);
}

struct segment_lines {
	struct mount *m;
	const struct node_list *nodes;
	FILE *out;
	size_t n, left_out;
	char *line; /* of one that may be left out */
	size_t line_len;
	FILE *one;
	struct node_row node; /* facts_put's */
};

/* Of very many, the first; and each that wants attention. */
static int add_status_line(void *arg, const struct segment_row *row)
{
	struct segment_lines *l = arg;
	struct seg *seg = store_find(l->m->config.store, row->id);

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
	char *lines = NULL;
	size_t len = 0;

	l.out = open_memstream(&lines, &len);
	l.one = l.out ? open_memstream(&l.line, &l.line_len) : NULL;
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
	free(lines);
	free(l.line);
}

/* ---- segments: all that is known of each, for programs ----------------------------------------
 */

static int add_facts(void *arg, const struct segment_row *row)
{
	struct segment_lines *l = arg;
	struct seg *seg;

	if (row->unlinked || row->phase == SEGMENT_ORPHAN)
		return 0;
	seg = store_find(l->m->config.store, row->id);
	fputs(node_name(l->nodes, row->node), l->out);
	fputc('\t', l->out);
	put_name(l->out, row->name, true);
	fprintf(l->out, "\t%" PRIu64, size_of(row, seg));
	facts_put(l->m, row, seg, &l->node, l->out);
	fputc('\n', l->out);
	if (seg)
		seg_put(seg);
	return 0;
}

static void put_facts(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct segment_lines l = {.m = m, .nodes = nodes, .out = out};
	uint64_t number;

	pthread_mutex_lock(&m->view->lock);
	number = ++m->view->made;
	pthread_mutex_unlock(&m->view->lock);
	fprintf(out, "%" PRIu64 "\nnode\tname\tsize", number);
	facts_put_names(out);
	fputc('\n', out);
	meta_each_segment(m->config.meta, 0, 0, add_facts, &l);
	fprintf(out, "%" PRIu64 "\n", number);
}

static void put_moves(const struct view_request *v, const struct node_list *nodes, FILE *out)
{
	fprintf(out, "\nmigrations: %zu\n", v->n_moves);
	for (size_t i = 0; i < v->n_moves; i++) {
		const struct transfer_row *t = &v->moves[i];

		fputs("  ", out);
		put_name(out, t->name, true);
		fprintf(out, "  %s -> %s  %s  %" PRIu64 " ms  (%s)\n", node_name(nodes, t->from),
			node_name(nodes, t->to), t->state, t->age_ms,
			t->source ? "source" : "target");
	}
}

static void put_status(const struct view_request *v, const struct node_list *nodes, FILE *out)
{
	struct mount *m = v->r.mount;
	ramp_node_t leader = meta_leader(m->config.meta);
	struct programs_status programs;
	struct store_space space;
	bool removed = nodes->n && !find_node(nodes, m->self);

	programs_status(m->config.programs, &programs);
	store_space(m->config.store, &space);
	fprintf(out, "rampfs %s, node %s\n", RAMPFS_VERSION, node_name(nodes, m->self));
	/* What the others decide does not reach it any more. */
	if (removed)
		fputs("member: no, this node was removed from the cluster\n", out);
	fprintf(out, "quorum: %s\n", !removed && meta_has_quorum(m->config.meta) ? "yes" : "no");
	fprintf(out, "leader: %s\n", leader ? node_name(nodes, leader) : "none");
	fputs("store: ", out);
	put_bytes(out, space.used_bytes);
	fputs(" used of ", out);
	put_bytes(out, space.capacity_bytes);
	fprintf(out, "\nprograms: %u, with %u mappings\n", programs.sessions, programs.attachments);
	fprintf(out, "requests waiting: %u\n", park_count(m->park));
	fprintf(out, "\nnodes: %zu\n", nodes->n);
	for (size_t i = 0; i < nodes->n; i++)
		fprintf(out, "  %s  %s  %s\n", nodes->row[i].name, node_state(m, &nodes->row[i]),
			nodes->row[i].address);
	put_segments(m, nodes, out);
	put_moves(v, nodes, out);
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void metric(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	fprintf(out, "# HELP rampfs_%s %s\n# TYPE rampfs_%s %s\nrampfs_%s %" PRIu64 "\n", name,
		help, name, type, name, value);
}

static int count_segment(void *arg, const struct segment_row *row)
{
	uint64_t *counts = arg;

	counts[row->phase <= SEGMENT_ORPHAN ? row->phase : SEGMENT_ORPHAN]++;
	return 0;
}

static void put_segment_metrics(struct mount *m, FILE *out)
{
	static const char *const names[] = {"stable", "moving", "pulling", "orphan"};
	uint64_t counts[SEGMENT_ORPHAN + 1] = {0};

	meta_each_segment(m->config.meta, 0, 0, count_segment, counts);
	fputs("# HELP rampfs_segments segments of the cluster by phase\n"
	      "# TYPE rampfs_segments gauge\n",
	      out);
	for (int i = 0; i <= SEGMENT_ORPHAN; i++)
		fprintf(out, "rampfs_segments{phase=\"%s\"} %" PRIu64 "\n", names[i], counts[i]);
}

/* A label's value: a name may hold any byte but / and NUL, the format is UTF-8 in quotes. */
static void put_label(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	for (; *at; at++) {
		if (*at == '\\' || *at == '"')
			fprintf(out, "\\%c", *at);
		else if (*at < ' ' || *at >= 0x7f)
			fprintf(out, "\\\\x%02x", *at);
		else
			fputc(*at, out);
	}
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP rampfs_%s %s\n# TYPE rampfs_%s %s\n", name, help, name, type);
}

/* Buckets by powers of two of microseconds, counted from below as the format wants it. */
static void histogram(FILE *out, const char *name, const char *help, const uint64_t *us, int n,
		      uint64_t sum_us)
{
	uint64_t below = 0;

	head(out, name, "histogram", help);
	for (int i = 0; i < n; i++) {
		below += us[i];
		/* The last one holds what is longer, too. */
		if (i < n - 1)
			fprintf(out, "rampfs_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
				(double)(UINT64_C(1) << i) / 1e6, below);
	}
	fprintf(out, "rampfs_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, below);
	fprintf(out, "rampfs_%s_sum %.6f\n", name, (double)sum_us / 1e6);
	fprintf(out, "rampfs_%s_count %" PRIu64 "\n", name, below);
}

static void put_pull_metrics(struct mount *m, FILE *out)
{
	struct pull_status p;

	pull_status(m->config.pull, &p);
	metric(out, "page_faults_total", "counter", "page faults on remote pages", p.faults);
	metric(out, "demand_pages_total", "counter", "pages pulled on demand", p.demand_pages);
	metric(out, "prefetch_pages_total", "counter", "pages pulled ahead", p.prefetch_pages);
	metric(out, "hole_pages_total", "counter", "pages that were holes", p.hole_pages);
	metric(out, "pulled_bytes_total", "counter", "bytes pulled", p.bytes);
	metric(out, "served_bytes_total", "counter", "bytes served to others", p.served_bytes);
	metric(out, "pull_reconnects_total", "counter", "data connections made again",
	       p.reconnects);
	histogram(out, "fault_seconds", "from the page fault's message to its end", p.fault_us,
		  PULL_HISTOGRAM, p.faults_us);
}

/* ---- metrics of each node -------------------------------------------------------------------- */

struct peer_counts {
	const struct node_list *nodes;
	struct peer_status control[MAX_NODES];
	struct pull_peer pull[PULL_PEERS];
	size_t n_control, n_pull;
};

static void peer_line(FILE *out, const struct peer_counts *c, const char *name, ramp_node_t node,
		      const char *more, uint64_t value)
{
	fprintf(out, "rampfs_%s{peer=\"", name);
	put_label(out, node_name(c->nodes, node));
	fprintf(out, "\"%s} %" PRIu64 "\n", more, value);
}

static void put_peer_pulls(const struct peer_counts *c, FILE *out)
{
	head(out, "peer_pulled_pages_total", "counter", "pages pulled from a node");
	for (size_t i = 0; i < c->n_pull; i++) {
		peer_line(out, c, "peer_pulled_pages_total", c->pull[i].node, ",by=\"demand\"",
			  c->pull[i].demand_pages);
		peer_line(out, c, "peer_pulled_pages_total", c->pull[i].node, ",by=\"prefetch\"",
			  c->pull[i].prefetch_pages);
	}
	head(out, "peer_pulled_bytes_total", "counter", "bytes pulled from a node");
	for (size_t i = 0; i < c->n_pull; i++)
		peer_line(out, c, "peer_pulled_bytes_total", c->pull[i].node, "", c->pull[i].bytes);
}

static void put_peer_metrics(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct peer_counts *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->nodes = nodes;
	c->n_control = peers_status(m->config.peers, c->control, MAX_NODES);
	if (c->n_control > MAX_NODES)
		c->n_control = MAX_NODES;
	c->n_pull = pull_peers(m->config.pull, c->pull, PULL_PEERS);
	head(out, "peer_up", "gauge", "1 while this node sees that one");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "peer_up", c->control[i].node, "", c->control[i].up);
	head(out, "peer_control_bytes_total", "counter", "bytes of control messages");
	for (size_t i = 0; i < c->n_control; i++) {
		peer_line(out, c, "peer_control_bytes_total", c->control[i].node,
			  ",direction=\"in\"", c->control[i].bytes_in);
		peer_line(out, c, "peer_control_bytes_total", c->control[i].node,
			  ",direction=\"out\"", c->control[i].bytes_out);
	}
	head(out, "peer_reconnects_total", "counter", "control connections made again");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "peer_reconnects_total", c->control[i].node, "",
			  c->control[i].reconnects);
	put_peer_pulls(c, out);
	free(c);
}

/* ---- metrics of each segment that is being pulled -------------------------------------------- */

struct pulled_segment {
	struct segment_row row;
	struct pull_progress progress;
};

struct pulled_list {
	struct mount *m;
	struct pulled_segment *at;
	size_t n;
};

static int add_pulled(void *arg, const struct segment_row *row)
{
	struct pulled_list *list = arg;

	if (pull_progress(list->m->config.pull, row->id, &list->at[list->n].progress))
		return 0;
	list->at[list->n++].row = *row;
	return list->n == MAX_MOVES;
}

static void segment_line(FILE *out, const struct pulled_segment *s, const char *name,
			 const char *by, uint64_t value)
{
	fprintf(out, "rampfs_%s{id=\"%" PRIu64 "\",segment=\"", name, s->row.id);
	put_label(out, s->row.name);
	fprintf(out, "\"%s} %" PRIu64 "\n", by, value);
}

static void put_pulled_metrics(struct mount *m, FILE *out)
{
	struct pulled_list list = {.m = m, .at = calloc(MAX_MOVES, sizeof(*list.at))};

	if (!list.at)
		return;
	meta_each_segment(m->config.meta, m->self, 0, add_pulled, &list);
	head(out, "segment_pages", "gauge", "pages of a segment that is being pulled here");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_pages", "", list.at[i].progress.pages_all);
	head(out, "segment_missing_pages", "gauge", "those that are not here yet");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_missing_pages", "",
			     list.at[i].progress.pages_missing);
	head(out, "segment_lost_pages", "gauge", "those that went with their source");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_lost_pages", "",
			     list.at[i].progress.pages_lost);
	head(out, "segment_pulled_pages", "gauge", "those that have come");
	for (size_t i = 0; i < list.n; i++) {
		segment_line(out, &list.at[i], "segment_pulled_pages", ",by=\"demand\"",
			     list.at[i].progress.demand_pages);
		segment_line(out, &list.at[i], "segment_pulled_pages", ",by=\"prefetch\"",
			     list.at[i].progress.prefetch_pages);
		segment_line(out, &list.at[i], "segment_pulled_pages", ",by=\"hole\"",
			     list.at[i].progress.hole_pages);
	}
	free(list.at);
}

static void put_metadata_metrics(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct meta_status meta;

	meta_get_status(m->config.meta, &meta);
	metric(out, "quorum", "gauge", "1 while a leader and a quorum answer", meta.quorum);
	metric(out, "raft_term", "gauge", "the metadata's term", meta.term);
	metric(out, "raft_commit_index", "gauge", "the last log entry that is committed",
	       meta.commit);
	metric(out, "raft_applied_index", "gauge", "the last log entry that is applied",
	       meta.applied);
	metric(out, "raft_log_entries", "gauge", "log entries kept", meta.log_entries);
	metric(out, "raft_snapshots_sent_total", "counter", "snapshots sent", meta.snapshots_sent);
	metric(out, "raft_snapshots_taken_total", "counter", "snapshots taken over",
	       meta.snapshots_taken);
	metric(out, "journal_bytes", "gauge", "size of the journal", meta.journal_bytes);
	metric(out, "journal_commits_total", "counter", "the journal's transactions", meta.commits);
	head(out, "raft_leader", "gauge", "1: that node leads, as this one knows");
	for (size_t i = 0; i < nodes->n; i++) {
		fputs("rampfs_raft_leader{node=\"", out);
		put_label(out, nodes->row[i].name);
		fprintf(out, "\"} %d\n", nodes->row[i].node == meta.leader);
	}
}

static void put_program_metrics(struct mount *m, FILE *out)
{
	struct programs_status programs;

	programs_status(m->config.programs, &programs);
	metric(out, "sessions", "gauge", "programs with a session", programs.sessions);
	metric(out, "attachments", "gauge", "mappings of segments", programs.attachments);
	metric(out, "revokes_total", "counter", "revokes", programs.revokes);
	metric(out, "revoke_last_microseconds", "gauge", "the last revoke",
	       programs.revoke_last_us);
	metric(out, "revoke_max_microseconds", "gauge", "the longest revoke",
	       programs.revoke_max_us);
}

static void put_move_metrics(const struct view_request *v, FILE *out)
{
	struct transfers_status moves;

	transfers_status(v->r.mount->config.transfers, &moves);
	metric(out, "migrations_started_total", "counter", "migrations begun", moves.started);
	metric(out, "migrations_done_total", "counter", "migrations that went through", moves.done);
	metric(out, "migrations_failed_total", "counter", "migrations given up", moves.failed);
	metric(out, "migrations", "gauge", "migrations under way here", v->n_moves);
	metric(out, "window_last_microseconds", "gauge", "the last transfer's window",
	       moves.window_last_us);
	metric(out, "window_max_microseconds", "gauge", "the longest window", moves.window_max_us);
	histogram(out, "window_seconds", "how long neither end could touch a segment",
		  moves.window_us, TRANSFER_HISTOGRAM, moves.windows_us);
}

static void put_metrics(const struct view_request *v, const struct node_list *nodes, FILE *out)
{
	struct mount *m = v->r.mount;
	struct store_space space;
	uint64_t up = 0;

	store_space(m->config.store, &space);
	for (size_t i = 0; i < nodes->n; i++)
		up += node_up(m, &nodes->row[i]);
	metric(out, "uptime_seconds", "gauge", "since this daemon began to serve",
	       (park_now_ms() - m->since_ms) / 1000);
	metric(out, "nodes", "gauge", "members of the cluster", nodes->n);
	metric(out, "nodes_up", "gauge", "members that this node sees", up);
	metric(out, "store_capacity_bytes", "gauge", "the store's capacity", space.capacity_bytes);
	metric(out, "store_used_bytes", "gauge", "bytes in the store", space.used_bytes);
	put_metadata_metrics(m, nodes, out);
	put_program_metrics(m, out);
	put_move_metrics(v, out);
	put_segment_metrics(m, out);
	put_pull_metrics(m, out);
	put_peer_metrics(m, nodes, out);
	put_pulled_metrics(m, out);
	metric(out, "fuse_requests_total", "counter", "requests of this daemon's life",
	       __atomic_load_n(&m->requests, __ATOMIC_RELAXED));
	metric(out, "fuse_resent_total", "counter", "requests that a former daemon left",
	       __atomic_load_n(&m->resent, __ATOMIC_RELAXED));
	metric(out, "fuse_waiting", "gauge", "requests that wait", park_count(m->park));
}

/* ---- reading -------------------------------------------------------------------------------- */

static int render(const struct view_request *v, char **text, size_t *len)
{
	struct node_list *nodes = calloc(1, sizeof(*nodes));
	FILE *out = nodes ? open_memstream(text, len) : NULL;

	if (!out) {
		free(nodes);
		return -ENOMEM;
	}
	meta_each_node(v->r.mount->config.meta, add_node, nodes);
	if (v->ino == INODE_NODES)
		put_nodes(v->r.mount, nodes, out);
	else if (v->ino == INODE_METRICS)
		put_metrics(v, nodes, out);
	else if (v->ino == INODE_SEGMENTS)
		put_facts(v->r.mount, nodes, out);
	else
		put_status(v, nodes, out);
	free(nodes);
	return fclose(out) ? -ENOMEM : 0;
}

static void reply_part(struct view *view, fuse_req_t req, fuse_ino_t ino, size_t size,
		       uint64_t offset)
{
	size_t i = ino - INODE_STATUS;

	pthread_mutex_lock(&view->lock);
	if (offset < view->len[i]) {
		fuse_reply_buf(req, view->text[i] + offset,
			       size < view->len[i] - offset ? size : view->len[i] - offset);
	} else {
		fuse_reply_buf(req, NULL, 0);
		free(view->text[i]);
		view->text[i] = NULL;
		view->len[i] = 0;
	}
	pthread_mutex_unlock(&view->lock);
}

static void render_and_reply(struct view_request *v)
{
	struct view *view = v->r.mount->view;
	size_t i = v->ino - INODE_STATUS, len;
	char *text = NULL;
	int rc = render(v, &text, &len);

	if (rc) {
		request_reply_err(&v->r, rc);
		return;
	}
	pthread_mutex_lock(&view->lock);
	free(view->text[i]);
	view->text[i] = text;
	view->len[i] = len;
	pthread_mutex_unlock(&view->lock);
	reply_part(view, v->r.fuse, v->ino, v->size, v->offset);
	request_end(&v->r);
}

struct rendering {
	struct mount *mount;
	struct view_request *v;
};

static void render_work(void *arg)
{
	struct rendering *job = arg;

	if (mount_work_enter(job->mount)) {
		render_and_reply(job->v);
		mount_work_leave(job->mount);
	} else {
		job->v->r.parked.drop(&job->v->r.parked);
	}
}

static void rendered(void *arg)
{
	struct rendering *job = arg;

	mount_put(job->mount);
	free(job);
}

static void add_move(void *arg, const struct transfer_row *row)
{
	struct view_request *v = arg;

	if (v->n_moves < MAX_MOVES)
		v->moves[v->n_moves++] = *row;
}

static void collect(void *arg)
{
	struct view_request *v = arg;
	struct mount *m = v->r.mount;
	struct rendering *job = malloc(sizeof(*job));

	if (!job) {
		request_reply_err(&v->r, -ENOMEM);
		return;
	}
	if (!mount_work_enter(m)) {
		v->r.parked.drop(&v->r.parked);
		free(job);
		return;
	}
	v->moves = calloc(MAX_MOVES, sizeof(*v->moves));
	if (v->moves)
		transfers_each(m->config.transfers, add_move, v);
	*job = (struct rendering){.mount = mount_get(m), .v = v};
	loop_work(m->config.loop, render_work, rendered, job);
	mount_work_leave(m);
}

static void release(struct request *r)
{
	free(((struct view_request *)r)->moves);
}

void view_read(fuse_req_t req, fuse_ino_t ino, size_t size, uint64_t offset)
{
	struct mount *m = mount_of(req);
	struct view_request *v;
	bool cached;

	pthread_mutex_lock(&m->view->lock);
	cached = m->view->text[ino - INODE_STATUS] != NULL;
	pthread_mutex_unlock(&m->view->lock);
	if (offset && cached) {
		reply_part(m->view, req, ino, size, offset);
		return;
	}
	v = request_new(req, sizeof(*v));
	if (!v)
		return;
	v->ino = ino;
	v->size = size;
	v->offset = offset;
	v->r.release = release;
	loop_post(m->config.loop, collect, v);
}

int view_open(struct mount *m, struct ramp_err *err)
{
	m->view = calloc(1, sizeof(*m->view));
	if (!m->view)
		return ramp_err_sys(err, ENOMEM, "view");
	pthread_mutex_init(&m->view->lock, NULL);
	return 0;
}

void view_close(struct mount *m)
{
	if (!m->view)
		return;
	for (int i = 0; i < VIEWS; i++)
		free(m->view->text[i]);
	pthread_mutex_destroy(&m->view->lock);
	free(m->view);
}
