/*
 * Shared by the tests of real devices (in a guest): nodes in this process, each with an address of its own on a
 * device, and segments of the first one. A test binary has --wrap for queue_post: rdma_post is called for each
 * READ that is about to be posted.
 */
#ifndef RDMA_WORLD_H
#define RDMA_WORLD_H

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "transport/verbs/queue.h"
#include "unit/transport_node.h"

#define PAGE  ((size_t)RAMP_PAGE_BYTES)
#define NODES 3

extern const char *rdma_hosts[NODES];
extern struct node rdma_nodes[NODES]; /* the source first */
extern struct ramp_err rdma_err;

/* A segment at the source. */
struct image {
	int fd;
	size_t len;
	uint8_t *at;
	struct tp_key key;
};

void image_make(struct image *image, ramp_segment_t id, uint8_t salt, size_t len);
void image_export(struct image *image, ramp_node_t reader);
/* Takes it back, too. */
void image_free(struct image *image);

/* Starts one node, by its position; rdma_begin: all, which know each other. */
void rdma_open(int i);
void rdma_begin(void);
void rdma_end(void);
/* Of RDMA between a node and another one, by their positions. */
struct tp_peer rdma_figures(int of, int with);
/* Connects a reader, by its position, with the source. */
struct tp_conn *rdma_link(int reader, enum tp_class class);
void rdma_post_read(struct tp_conn *conn, const struct tp_key *key, size_t first, size_t count,
		    uint8_t *dst);
/* Waits for `n` reads. Returns 0, or the result of one that is none. */
int rdma_reap(struct tp_conn *conn, unsigned n);
/* Returns the result of one read, whose bytes are then in `dst`. */
int rdma_read(struct tp_conn *conn, const struct tp_key *key, size_t first, size_t count,
	      uint8_t *dst);
/* Reads until READs do it, for at most a minute: a software device stands still at times. */
void rdma_until(int reader, struct tp_conn *conn, const struct image *image, uint8_t *dst);

/* Runs one case. Returns the process' status. */
int rdma_run(TCase *tcase);

#endif
