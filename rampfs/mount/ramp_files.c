/*
 * Text for people (status), for scripts (nodes, segments) and for Prometheus (metrics.c).
 *
 * A read from the beginning goes once around the control loop, which alone knows the migrations
 * under way, and is rendered and answered by a worker, since many segments take a while. Reads
 * further on are answered from the text that was made for the same open, so that a file that is
 * read in pieces fits together; the read that finds its end frees it, or the RELEASE.
 *
 * How it fails: of very many texts at a time, or very long ones, the oldest are freed, and so are
 * all when the daemon is another; who is in the middle of one gets the rest of a new one. The first
 * and the last line of `segments` bear the same number, by which a reader knows that it has one
 * text.
 */
#include "ramp_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/visible.h"
#include "inode.h"
#include "ops.h"
#include "ramp_files_impl.h"

#define MAX_SEGMENTS 2000 /* lines of status, and those that want attention */
#define MAX_TEXTS    64
#define MAX_BYTES    (64u << 20) /* of all texts, where there is more than one */

struct text {
	TAILQ_ENTRY(text) link;
	uint64_t open; /* the file's fh */
	char *bytes;
	size_t len;
};

struct view {
	pthread_mutex_t lock;	  /* protects all */
	TAILQ_HEAD(, text) texts; /* the oldest first */
	size_t n, bytes;
	uint64_t made; /* of `segments`, so far */
};

struct view_request {
	struct request r; /* first */
	fuse_ino_t ino;
	uint64_t open;
	size_t size;
	uint64_t offset;
	struct transfer_row *moves;
	size_t n_moves;
};

/* ---- what is shown -------------------------------------------------------------------------- */

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

const char *view_node_name(const struct node_list *list, ramp_node_t node)
{
	const struct node_row *row = find_node(list, node);

	return row ? row->name : "?";
}

bool view_node_up(struct mount *m, const struct node_row *row)
{
	if (!row->incarnation || row->fenced == row->incarnation)
		return false;
	if (row->node == m->self)
		return row->incarnation == m->incarnation;
	return peer_up(m->config.peers, row->node);
}

static const char *node_state(struct mount *m, const struct node_row *row)
{
	if (view_node_up(m, row))
		return "up";
	return row->fenced && row->fenced == row->incarnation ? "fenced" : "down";
}

static bool silent(struct mount *m, ramp_node_t node)
{
	return node != m->self && !peer_up(m->config.peers, node);
}

static bool is_lost(const struct segment_row *row, const struct node_row *owner)
{
	return owner->incarnation &&
	       (owner->incarnation != row->node_inc || owner->fenced == row->node_inc);
}

/* The state of a STABLE row: its bytes may be gone with an incarnation. `owner` may have been read
   long before the row, and its node have come with new memory and made this in it: what was read
   after the row decides. */
static const char *stable_state(struct mount *m, const struct segment_row *row,
				const struct node_row *owner)
{
	struct seg *seg;
	const char *state = "stable";
	struct node_row now;

	if (owner && is_lost(row, owner) && !meta_node(m->config.meta, row->node, &now) &&
	    is_lost(row, &now))
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

/* It is to vote and can't: formatted again, or an old copy. */
static bool has_no_vote(struct mount *m, const struct node_row *row)
{
	return row->role == NODE_VOTER && meta_is_voiceless(m->config.meta, row->node);
}

static void put_nodes(struct mount *m, const struct node_list *nodes, FILE *out)
{
	ramp_node_t leader = meta_leader(m->config.meta);

	for (size_t i = 0; i < nodes->n; i++) {
		const struct node_row *row = &nodes->row[i];

		fprintf(out, "%s %s %s %s capacity=%" PRIu64 " incarnation=%016" PRIx64 "%s%s%s\n",
			row->name, row->role == NODE_VOTER ? "voter" : "standby",
			node_state(m, row), row->address, row->capacity, row->incarnation,
			row->node == leader ? " leader" : "", row->node == m->self ? " here" : "",
			has_no_vote(m, row) ? " no-vote" : "");
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

/* False: it is not being pulled. */
static bool find_progress(struct mount *m, ramp_segment_t id, struct pull_progress *progress)
{
	return pull_progress(m->config.pull, id, progress) == 0 && progress->pages_all;
}

/* A pull that nobody asks anything of has no connection to say so by. */
static bool source_is_silent(struct mount *m, const struct pull_progress *progress)
{
	return progress->source_silent && silent(m, progress->source);
}

/* How far it has come. True: some of it is lost, or its source is silent. */
static bool put_progress(struct mount *m, ramp_segment_t id, FILE *out)
{
	struct pull_progress progress;
	bool quiet;

	if (!find_progress(m, id, &progress))
		return false;
	fprintf(out, ", %" PRIu64 " %% here",
		100 - progress.pages_missing * 100 / progress.pages_all);
	quiet = source_is_silent(m, &progress);
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

	fprintf(out, "  %s/", view_node_name(nodes, row->node));
	put_name(out, row->name, false);
	fputs("  ", out);
	put_bytes(out, size_of(row, seg));
	fprintf(out, "  %s", state);
	if (row->phase == SEGMENT_MOVING)
		fprintf(out, " to %s", view_node_name(nodes, row->dst));
	if (row->phase == SEGMENT_PULLING)
		fprintf(out, " from %s", view_node_name(nodes, row->src));
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
	struct pull_progress progress;
	struct seg *seg;
	bool quiet;

	if (row->unlinked || row->phase == SEGMENT_ORPHAN)
		return 0;
	seg = store_find(l->m->config.store, row->id);
	fputs(view_node_name(l->nodes, row->node), l->out);
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

static void put_facts(struct mount *m, const struct node_list *nodes, FILE *out)
{
	struct segment_lines l = {.m = m, .nodes = nodes, .out = out};
	uint64_t number;

	pthread_mutex_lock(&m->view->lock);
	number = ++m->view->made;
	pthread_mutex_unlock(&m->view->lock);
	fprintf(out, "%" PRIu64 "\nnode\tname\tsize", number);
	facts_put_names(out);
	fputs("\tsource_silent\n", out);
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
		fprintf(out, "  %s -> %s  %s  %" PRIu64 " ms  (%s)\n",
			view_node_name(nodes, t->from), view_node_name(nodes, t->to), t->state,
			t->age_ms, t->source ? "source" : "target");
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
	fprintf(out, "rampfs %s, node %s\n", RAMPFS_VERSION, view_node_name(nodes, m->self));
	/* What the others decide does not reach it any more. */
	if (removed)
		fputs("member: no, this node was removed from the cluster\n", out);
	fprintf(out, "quorum: %s\n", !removed && meta_has_quorum(m->config.meta) ? "yes" : "no");
	fprintf(out, "leader: %s\n", leader ? view_node_name(nodes, leader) : "none");
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
		metrics_put(v->r.mount, nodes, v->n_moves, out);
	else if (v->ino == INODE_SEGMENTS)
		put_facts(v->r.mount, nodes, out);
	else
		put_status(v, nodes, out);
	free(nodes);
	return fclose(out) ? -ENOMEM : 0;
}

/* view->lock is held in these. */
static struct text *find_text(struct view *view, uint64_t open)
{
	struct text *text;

	TAILQ_FOREACH (text, &view->texts, link)
		if (text->open == open)
			return text;
	return NULL;
}

static void drop_text(struct view *view, struct text *text)
{
	TAILQ_REMOVE(&view->texts, text, link);
	view->n--;
	view->bytes -= text->len;
	free(text->bytes);
	free(text);
}

static void add_text(struct view *view, struct text *text)
{
	struct text *other = find_text(view, text->open), *next;

	if (other)
		drop_text(view, other);
	for (other = TAILQ_FIRST(&view->texts);
	     other && (view->n >= MAX_TEXTS || view->bytes + text->len > MAX_BYTES); other = next) {
		next = TAILQ_NEXT(other, link);
		drop_text(view, other);
	}
	TAILQ_INSERT_TAIL(&view->texts, text, link);
	view->n++;
	view->bytes += text->len;
}

static void reply_part(struct view *view, struct text *text, fuse_req_t req, size_t size,
		       uint64_t offset)
{
	if (offset < text->len) {
		fuse_reply_buf(req, text->bytes + offset,
			       size < text->len - offset ? size : text->len - offset);
	} else {
		fuse_reply_buf(req, NULL, 0);
		drop_text(view, text);
	}
}

/* False: there is no text of that open. */
static bool reply_rest(struct view *view, fuse_req_t req, uint64_t open, size_t size,
		       uint64_t offset)
{
	struct text *text;

	pthread_mutex_lock(&view->lock);
	text = find_text(view, open);
	if (text)
		reply_part(view, text, req, size, offset);
	pthread_mutex_unlock(&view->lock);
	return text != NULL;
}

static void render_and_reply(struct view_request *v)
{
	struct view *view = v->r.mount->view;
	struct text *text = calloc(1, sizeof(*text));
	int rc = text ? render(v, &text->bytes, &text->len) : -ENOMEM;

	if (rc) {
		if (text)
			free(text->bytes);
		free(text);
		request_reply_err(&v->r, rc);
		return;
	}
	text->open = v->open;
	pthread_mutex_lock(&view->lock);
	add_text(view, text);
	reply_part(view, text, v->r.fuse, v->size, v->offset);
	pthread_mutex_unlock(&view->lock);
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

uint64_t view_fh(void)
{
	return fuse_loop_unique();
}

void view_read(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, uint64_t offset)
{
	struct mount *m = mount_of(req);
	struct view_request *v;

	if (offset && reply_rest(m->view, req, fh, size, offset))
		return;
	v = request_new(req, sizeof(*v));
	if (!v)
		return;
	v->ino = ino;
	v->open = fh;
	v->size = size;
	v->offset = offset;
	v->r.release = release;
	loop_post(m->config.loop, collect, v);
}

void view_released(struct mount *m, uint64_t fh)
{
	struct text *text;

	pthread_mutex_lock(&m->view->lock);
	text = find_text(m->view, fh);
	if (text)
		drop_text(m->view, text);
	pthread_mutex_unlock(&m->view->lock);
}

int view_open(struct mount *m, struct ramp_err *err)
{
	m->view = calloc(1, sizeof(*m->view));
	if (!m->view)
		return ramp_err_sys(err, ENOMEM, "view");
	pthread_mutex_init(&m->view->lock, NULL);
	TAILQ_INIT(&m->view->texts);
	return 0;
}

void view_close(struct mount *m)
{
	struct text *text, *next;

	if (!m->view)
		return;
	for (text = TAILQ_FIRST(&m->view->texts); text; text = next) {
		next = TAILQ_NEXT(text, link);
		drop_text(m->view, text);
	}
	pthread_mutex_destroy(&m->view->lock);
	free(m->view);
}
