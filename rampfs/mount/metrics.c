/*
 * The text for Prometheus.
 */
#include "metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ask_leader.h"

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

/* Writes a label's value. A name may hold any byte but / and NUL; the format wants UTF-8 in quotes.
   Other bytes, and a backslash, are written as \xHH. */
static void put_label(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	for (; *at; at++) {
		if (*at == '"')
			fputs("\\\"", out);
		else if (*at < ' ' || *at >= 0x7f || *at == '\\')
			fprintf(out, "\\\\x%02x", *at);
		else
			fputc(*at, out);
	}
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP rampfs_%s %s\n# TYPE rampfs_%s %s\n", name, help, name, type);
}

/* Writes a histogram with buckets by powers of two of microseconds, counted from below as the
   format wants it. */
static void histogram(FILE *out, const char *name, const char *help, const uint64_t *us, int n,
		      uint64_t sum_us)
{
	uint64_t below = 0;

	head(out, name, "histogram", help);
	for (int i = 0; i < n; i++) {
		below += us[i];
		/* The last bucket holds longer times, too. */
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

/* ---- of each node --------------------------------------------------------------------------- */

struct peer_counts {
	const struct node_list *nodes;
	struct peer_status control[FACTS_MAX_NODES];
	struct pull_peer pull[PULL_PEERS];
	size_t n_control, n_pull;
};

static void peer_line(FILE *out, const struct peer_counts *c, const char *name, ramp_node_t node,
		      const char *more, uint64_t value)
{
	fprintf(out, "rampfs_%s{peer=\"", name);
	put_label(out, facts_node_name(c->nodes, node));
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
	head(out, "peer_prefetch_connections", "gauge",
	     "connections over which pages are pulled ahead from a node");
	for (size_t i = 0; i < c->n_pull; i++)
		peer_line(out, c, "peer_prefetch_connections", c->pull[i].node, "",
			  c->pull[i].streams);
}

static void put_rdma_left(const struct peer_counts *c, const struct tp_peer *rdma, FILE *out)
{
	static const char *const reasons[] = {[TP_LEFT_SHORT] = ",reason=\"short\"",
					      [TP_LEFT_MEMORY] = ",reason=\"memory\"",
					      [TP_LEFT_CUT] = ",reason=\"cut\"",
					      [TP_LEFT_OTHER] = ",reason=\"other\""};

	head(out, "rdma_left_to_tcp_total", "counter",
	     "parts of segments that were not registered for a node");
	for (size_t i = 0; i < c->n_control; i++)
		for (int why = 0; why < TP_LEFT_REASONS; why++)
			peer_line(out, c, "rdma_left_to_tcp_total", rdma[i].node, reasons[why],
				  rdma[i].left[why]);
}

static void put_rdma_reads(const struct peer_counts *c, const struct tp_peer *rdma, FILE *out)
{
	head(out, "rdma_read_bytes_total", "counter", "bytes read from a node by RDMA READs");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_read_bytes_total", rdma[i].node, "", rdma[i].read_bytes);
	head(out, "rdma_reads_total", "counter", "RDMA READs of a node's memory");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_reads_total", rdma[i].node, "", rdma[i].reads);
	head(out, "rdma_reads_again_total", "counter", "reads that were made again over TCP");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_reads_again_total", rdma[i].node, "", rdma[i].again);
	head(out, "rdma_queue_pairs_lost_total", "counter",
	     "queue pairs lost with reads under way");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_queue_pairs_lost_total", rdma[i].node, "", rdma[i].lost);
}

static void put_rdma_metrics(struct mount *m, const struct peer_counts *c, FILE *out)
{
	struct tp_peer *rdma = calloc(c->n_control + 1, sizeof(*rdma));
	bool device = false;

	if (!rdma)
		return;
	/* One more than there are peers: it says whether there is a device. */
	for (size_t i = 0; i <= c->n_control; i++) {
		rdma[i].node = i < c->n_control ? c->control[i].node : m->self;
		device = pull_rdma(m->config.pull, &rdma[i]);
	}
	metric(out, "rdma_device", "gauge", "1 while this node has an RDMA device", device);
	head(out, "rdma_queue_pairs", "gauge", "connections over RDMA, by which end reads");
	for (size_t i = 0; i < c->n_control; i++) {
		peer_line(out, c, "rdma_queue_pairs", rdma[i].node, ",reader=\"here\"",
			  rdma[i].reading);
		peer_line(out, c, "rdma_queue_pairs", rdma[i].node, ",reader=\"there\"",
			  rdma[i].read_by);
	}
	head(out, "rdma_registered_bytes", "gauge", "memory here that a node may read");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_registered_bytes", rdma[i].node, "",
			  rdma[i].registered_bytes);
	head(out, "rdma_chunks_total", "counter", "parts of segments registered for a node");
	for (size_t i = 0; i < c->n_control; i++)
		peer_line(out, c, "rdma_chunks_total", rdma[i].node, "", rdma[i].chunks);
	put_rdma_left(c, rdma, out);
	put_rdma_reads(c, rdma, out);
	free(rdma);
}

static void put_peer_metrics(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct peer_counts *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->nodes = nodes;
	c->n_control = peers_status(m->config.peers, c->control, FACTS_MAX_NODES);
	if (c->n_control > FACTS_MAX_NODES)
		c->n_control = FACTS_MAX_NODES;
	c->n_pull = pull_peers(m->config.pull, c->pull, PULL_PEERS);
	head(out, "peer_up", "gauge", "1 while this node has a connection to that one");
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
	put_rdma_metrics(m, c, out);
	free(c);
}

/* ---- of each segment that is being pulled --------------------------------------------------- */

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
	return list->n == METRICS_MAX_MOVES;
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
	struct pulled_list list = {.m = m, .at = calloc(METRICS_MAX_MOVES, sizeof(*list.at))};

	if (!list.at)
		return;
	meta_each_segment(m->config.meta, m->self, 0, add_pulled, &list);
	head(out, "segment_pages", "gauge", "pages of a segment that is being pulled here");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_pages", "", list.at[i].progress.pages_all);
	head(out, "segment_missing_pages", "gauge", "its pages that are not here yet");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_missing_pages", "",
			     list.at[i].progress.pages_missing);
	head(out, "segment_lost_pages", "gauge", "its pages that were lost with their source");
	for (size_t i = 0; i < list.n; i++)
		segment_line(out, &list.at[i], "segment_lost_pages", "",
			     list.at[i].progress.pages_lost);
	head(out, "segment_pulled_pages", "gauge", "its pages that have come");
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

/* ---- of the arena --------------------------------------------------------------------------- */

static void put_arena_metrics(struct mount *m, FILE *out)
{
	struct arena_use uses[METRICS_MAX_USERS];
	struct meta_settings settings;
	uint64_t addr, len, used;
	int n = meta_arena_uses(m->config.meta, uses, METRICS_MAX_USERS, &used);

	if (n < 0 || meta_get_settings(m->config.meta, &settings))
		return;
	meta_arena(m->config.meta, &addr, &len);
	metric(out, "metadata_level", "gauge", "the level of the metadata's rules", settings.level);
	metric(out, "arena_bytes", "gauge", "addresses of the arena", len);
	metric(out, "arena_used_bytes", "gauge", "addresses that segments have", used);
	metric(out, "arena_user_max_bytes", "gauge", "addresses that each user's segments may have",
	       settings.arena_user_max);
	head(out, "arena_user_bytes", "gauge", "addresses that a user's segments have");
	for (int i = 0; i < n; i++)
		fprintf(out, "rampfs_arena_user_bytes{uid=\"%u\"} %" PRIu64 "\n", uses[i].uid,
			uses[i].bytes);
}

/* ---- of the node as a whole ----------------------------------------------------------------- */

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
	head(out, "raft_leader", "gauge", "1: that node leads, as far as this one knows");
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

static void put_move_metrics(struct mount *m, size_t n_moves, FILE *out)
{
	struct transfers_status moves;
	struct pull_status pull;

	transfers_status(m->config.transfers, &moves);
	metric(out, "migrations_started_total", "counter", "migrations begun", moves.started);
	metric(out, "migrations_done_total", "counter", "migrations that went through", moves.done);
	metric(out, "migrations_failed_total", "counter", "migrations given up", moves.failed);
	metric(out, "migrations", "gauge", "migrations under way here", n_moves);
	metric(out, "migrations_queued", "gauge",
	       "requests of many at once that wait for their turn", moves.queued);
	head(out, "limit_bytes", "gauge", "of pages ahead of need, a second; 0: no limit");
	fprintf(out, "rampfs_limit_bytes{direction=\"sent\"} %" PRIu64 "\n", moves.limit_bytes_s);
	pull_status(m->config.pull, &pull);
	fprintf(out, "rampfs_limit_bytes{direction=\"received\"} %" PRIu64 "\n",
		pull.limit_bytes_s);
	metric(out, "window_last_microseconds", "gauge", "the last transfer's window",
	       moves.window_last_us);
	metric(out, "window_max_microseconds", "gauge", "the longest window", moves.window_max_us);
	histogram(out, "window_seconds", "time in which neither end could touch a segment",
		  moves.window_us, TRANSFER_HISTOGRAM, moves.windows_us);
}

void metrics_put(struct mount *m, const struct node_list *nodes, size_t n_moves, FILE *out)
{
	struct store_space space;
	uint64_t up = 0;

	store_space(m->config.store, &space);
	for (size_t i = 0; i < nodes->n; i++)
		up += facts_node_up(m, &nodes->row[i]);
	metric(out, "uptime_seconds", "gauge", "since this daemon began to serve",
	       (park_now_ms() - m->since_ms) / 1000);
	metric(out, "nodes", "gauge", "members of the cluster", nodes->n);
	metric(out, "nodes_up", "gauge", "members that are up, as this node sees it", up);
	metric(out, "store_capacity_bytes", "gauge", "the store's capacity", space.capacity_bytes);
	metric(out, "store_used_bytes", "gauge", "bytes in the store", space.used_bytes);
	put_metadata_metrics(m, nodes, out);
	put_arena_metrics(m, out);
	put_program_metrics(m, out);
	put_move_metrics(m, n_moves, out);
	put_segment_metrics(m, out);
	put_pull_metrics(m, out);
	put_peer_metrics(m, nodes, out);
	put_pulled_metrics(m, out);
	metric(out, "fuse_requests_total", "counter", "requests of this daemon's life",
	       atomic_load_explicit(&m->requests, memory_order_relaxed));
	metric(out, "fuse_resent_total", "counter", "requests that an earlier daemon left",
	       atomic_load_explicit(&m->resent, memory_order_relaxed));
	metric(out, "name_questions_total", "counter",
	       "questions to the leader before a name was said not to be there",
	       ask_leader_count(m));
	metric(out, "fuse_waiting", "gauge", "parked requests", park_count(m->park));
}
