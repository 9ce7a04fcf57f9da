/*
 * Shared by the tests of RDMA: a source and a reader, whose device is fake_rdma, and a segment of the source in
 * which there is a hole. A test has one data connection.
 */
#ifndef VERBS_WORLD_H
#define VERBS_WORLD_H

#include "transport_node.h"

#define PAGE  ((size_t)RAMP_PAGE_BYTES)
#define PAGES ((size_t)1024)
#define HOLE  ((size_t)512) /* pages from here on are a hole, 16 of them */
#define BYTES (PAGES * PAGE)

extern struct node s, t; /* the source, node 1; the reader, node 2 */
extern struct tp_key key;
extern uint8_t *dst; /* where reads land, page by page */
extern struct tp_conn *conn;
extern struct ramp_err err;
extern bool no_hole;	       /* all of it is data; set before world_begin */
extern atomic_bool live;       /* programs store into it: no run of it may be registered */
extern atomic_uint live_looks; /* for such runs, while it is live */

/* Returns how many threads this process has more than before world_begin. */
unsigned threads(void);
/* Returns how many lines of the log there have been with that text ("LEVEL: TEXT"). */
unsigned said(const char *text);

/* Starts the source, whose segment is exported to the reader, and the reader. */
void world_begin(enum transport_choice choice_s, enum transport_choice choice_t);
/* The same; the connection has a queue pair, and all regions. */
void world_begin_rdma(enum tp_class class);
/* Stops both; nothing of the device is left, and no thread. */
void world_end(void);
void open_node(struct node *node, ramp_node_t id, enum transport_choice choice);
void export_to(ramp_node_t reader);
void link_to_source(enum tp_class class);
struct tp_peer figures(struct node *node, ramp_node_t of);

void post(size_t first, size_t count);
/* Waits for the end of reads. Returns 0, or the result of one that is none. */
int reap_all(unsigned n);
/* Fails the test unless pages are as the source has them. */
void check_pages(size_t first, size_t count);
void read_pages(size_t first, size_t count);
/* True once a read of page 0 would be a READ. */
bool is_rdma(void);

#endif
