/*
 * The files of .ramp: text for people (status), for scripts (nodes, segments) and for Prometheus
 * (metrics.c).
 *
 * A read from the beginning goes once through the control loop, which alone knows the migrations
 * under way. A worker then renders the text and replies, since many segments take a while. Later
 * reads are answered from the text that was made for the same open, so that a file that is read in
 * pieces fits together. The read that finds its end frees the text, or the RELEASE.
 *
 * How it fails: of very many texts at a time, or very long ones, the oldest are freed, and a new
 * daemon has none of them; a reader that was in the middle of one gets the rest of a new one. The
 * first and the last line of `segments` bear the same number, by which a reader knows that it has
 * read one text.
 */
#include "ramp_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "fuse_request.h"
#include "inode.h"
#include "metrics.h"
#include "ramp_status.h"
#include "request.h"

#define MAX_TEXTS 64
#define MAX_BYTES (64u << 20) /* of all texts, where there is more than one */

struct text {
	TAILQ_ENTRY(text) link;
	uint64_t open; /* fh of the open file */
	char *bytes;
	size_t len;
};

struct ramp_files {
	pthread_mutex_t lock;	  /* protects all */
	TAILQ_HEAD(, text) texts; /* the oldest first */
	size_t n, bytes;
	uint64_t made; /* the number of `segments` texts so far */
};

struct ramp_read {
	struct parked_request r; /* first */
	fuse_ino_t ino;
	uint64_t open;
	size_t size;
	uint64_t offset;
	struct transfer_row *moves; /* the first METRICS_MAX_MOVES of them */
	size_t n_moves;
};

/* ---- reading -------------------------------------------------------------------------------- */

static int add_member(void *arg, const struct node_row *row)
{
	struct node_list *list = arg;

	if (row->role != NODE_REMOVED)
		list->row[list->n++] = *row;
	return list->n == FACTS_MAX_NODES;
}

static void put_segments(struct mount *m, const struct node_list *nodes, FILE *out)
{
	uint64_t number;

	pthread_mutex_lock(&m->ramp_files->lock);
	number = ++m->ramp_files->made;
	pthread_mutex_unlock(&m->ramp_files->lock);
	status_put_segments(m, nodes, number, out);
}

static int ramp_files_render(const struct ramp_read *v, char **text, size_t *len)
{
	struct node_list *nodes = calloc(1, sizeof(*nodes));
	FILE *out = nodes ? open_memstream(text, len) : NULL;

	if (!out) {
		free(nodes);
		return -ENOMEM;
	}
	meta_each_node(v->r.mount->config.meta, add_member, nodes);
	if (v->ino == INODE_NODES)
		status_put_nodes(v->r.mount, nodes, out);
	else if (v->ino == INODE_METRICS)
		metrics_put(v->r.mount, nodes, v->n_moves, out);
	else if (v->ino == INODE_SEGMENTS)
		put_segments(v->r.mount, nodes, out);
	else
		status_put(v->r.mount, nodes, v->moves, v->n_moves, out);
	free(nodes);
	return fclose(out) ? -ENOMEM : 0;
}

/* ramp_files.lock is held from here to reply_part. */
static struct text *find_text(struct ramp_files *files, uint64_t open)
{
	struct text *text;

	TAILQ_FOREACH (text, &files->texts, link)
		if (text->open == open)
			return text;
	return NULL;
}

static void drop_text(struct ramp_files *files, struct text *text)
{
	TAILQ_REMOVE(&files->texts, text, link);
	files->n--;
	files->bytes -= text->len;
	free(text->bytes);
	free(text);
}

static void add_text(struct ramp_files *files, struct text *text)
{
	struct text *other = find_text(files, text->open), *next;

	if (other)
		drop_text(files, other);
	for (other = TAILQ_FIRST(&files->texts);
	     other && (files->n >= MAX_TEXTS || files->bytes + text->len > MAX_BYTES);
	     other = next) {
		next = TAILQ_NEXT(other, link);
		drop_text(files, other);
	}
	TAILQ_INSERT_TAIL(&files->texts, text, link);
	files->n++;
	files->bytes += text->len;
}

static void reply_part(struct ramp_files *files, struct text *text, fuse_req_t req, size_t size,
		       uint64_t offset)
{
	if (offset < text->len) {
		fuse_reply_buf(req, text->bytes + offset,
			       size < text->len - offset ? size : text->len - offset);
	} else {
		fuse_reply_buf(req, NULL, 0);
		drop_text(files, text);
	}
}

/* Replies from the text of that open. False: there is none. */
static bool reply_rest(struct ramp_files *files, fuse_req_t req, uint64_t open, size_t size,
		       uint64_t offset)
{
	struct text *text;

	pthread_mutex_lock(&files->lock);
	text = find_text(files, open);
	if (text)
		reply_part(files, text, req, size, offset);
	pthread_mutex_unlock(&files->lock);
	return text != NULL;
}

static void render_and_reply(struct ramp_read *v)
{
	struct ramp_files *files = v->r.mount->ramp_files;
	struct text *text = calloc(1, sizeof(*text));
	int rc = text ? ramp_files_render(v, &text->bytes, &text->len) : -ENOMEM;

	if (rc) {
		if (text)
			free(text->bytes);
		free(text);
		request_reply_err(&v->r, rc);
		return;
	}
	text->open = v->open;
	pthread_mutex_lock(&files->lock);
	add_text(files, text);
	reply_part(files, text, v->r.fuse, v->size, v->offset);
	pthread_mutex_unlock(&files->lock);
	request_end(&v->r);
}

struct rendering {
	struct mount *mount;
	struct ramp_read *v;
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

static void ramp_files_rendered(void *arg)
{
	struct rendering *job = arg;

	mount_put(job->mount);
	free(job);
}

static void add_move(void *arg, const struct transfer_row *row)
{
	struct ramp_read *v = arg;

	if (v->n_moves < METRICS_MAX_MOVES)
		v->moves[v->n_moves] = *row;
	v->n_moves++;
}

static void ramp_files_collect(void *arg)
{
	struct ramp_read *v = arg;
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
	v->moves = calloc(METRICS_MAX_MOVES, sizeof(*v->moves));
	if (!v->moves) {
		request_reply_err(&v->r, -ENOMEM);
		mount_work_leave(m);
		free(job);
		return;
	}
	transfers_each(m->config.transfers, add_move, v);
	*job = (struct rendering){.mount = mount_get(m), .v = v};
	loop_work(m->config.loop, render_work, ramp_files_rendered, job);
	mount_work_leave(m);
}

static void ramp_read_release(struct parked_request *r)
{
	free(((struct ramp_read *)r)->moves);
}

uint64_t ramp_files_fh(void)
{
	return fuse_request_unique();
}

void ramp_files_read(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, uint64_t offset)
{
	struct mount *m = mount_of(req);
	struct ramp_read *v;

	if (offset && reply_rest(m->ramp_files, req, fh, size, offset))
		return;
	v = request_new(req, sizeof(*v));
	if (!v)
		return;
	v->ino = ino;
	v->open = fh;
	v->size = size;
	v->offset = offset;
	v->r.release = ramp_read_release;
	loop_post(m->config.loop, ramp_files_collect, v);
}

void ramp_files_released(struct mount *m, uint64_t fh)
{
	struct text *text;

	pthread_mutex_lock(&m->ramp_files->lock);
	text = find_text(m->ramp_files, fh);
	if (text)
		drop_text(m->ramp_files, text);
	pthread_mutex_unlock(&m->ramp_files->lock);
}

int ramp_files_open(struct mount *m, struct ramp_err *err)
{
	m->ramp_files = calloc(1, sizeof(*m->ramp_files));
	if (!m->ramp_files)
		return ramp_err_sys(err, ENOMEM, ".ramp");
	pthread_mutex_init(&m->ramp_files->lock, NULL);
	TAILQ_INIT(&m->ramp_files->texts);
	return 0;
}

void ramp_files_close(struct mount *m)
{
	struct text *text, *next;

	if (!m->ramp_files)
		return;
	for (text = TAILQ_FIRST(&m->ramp_files->texts); text; text = next) {
		next = TAILQ_NEXT(text, link);
		drop_text(m->ramp_files, text);
	}
	pthread_mutex_destroy(&m->ramp_files->lock);
	free(m->ramp_files);
}
