/*
 * A data connection of the reader: one over TCP, and beside it a queue pair where both ends have an
 * adapter. The operations are those of transport.h.
 *
 * Thread-safety: as transport.h says; verbs_conn_regions and verbs_conns_wake from any thread.
 */
#ifndef RAMP_VERBS_VERBS_CONN_H
#define RAMP_VERBS_VERBS_CONN_H

#include "core.h"

/* Connects queue pairs to that node, for the connections that come. */
void verbs_conn_expect(struct tp *tp, ramp_node_t node);
int verbs_conn_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		       enum tp_class class, struct tp_conn **out, struct ramp_err *err);
int verbs_conn_fd(struct tp_conn *base, uint32_t *events);
enum tp_state verbs_conn_state(struct tp_conn *base, struct ramp_err *err);
ramp_incarnation_t verbs_conn_incarnation(struct tp_conn *base);
void verbs_conn_will_read(struct tp_conn *base, const struct tp_key *key);
size_t verbs_conn_span(struct tp_conn *base, const struct tp_key *key, uint64_t offset, size_t len);
bool verbs_conn_lands(struct tp_conn *base, const struct tp_key *key, uint64_t offset);
int verbs_conn_read(struct tp_conn *base, const struct tp_read *read);
void verbs_conn_arrived(struct tp_conn *base, const struct tp_key *key, uint64_t upto);
int verbs_conn_reap(struct tp_conn *base, struct tp_done *done, int max, size_t max_bytes);
void verbs_conn_close(struct tp_conn *base);

/* Gives regions that a node has told to the connection that asked for them; takes told->regions. */
void verbs_conn_regions(struct verbs *verbs, ramp_node_t from, struct message_regions *told);
/* Makes the owner of each connection look at it. */
void verbs_conns_wake(struct verbs *verbs);

#endif
