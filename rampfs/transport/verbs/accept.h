/*
 * The source's side of RDMA connections: takes those that prove themselves (proof.h). Such a
 * connection has a queue pair in the domain of its node, which answers READs by itself: nothing runs
 * here while pages are read.
 *
 * Thread-safety: the verbs thread's, but for accept_count.
 */
#ifndef RAMP_VERBS_ACCEPT_H
#define RAMP_VERBS_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

struct accept;
struct peers;

/* For one device. NULL: no memory. */
struct accept *accept_open(struct peers *peers, struct device *device, uint64_t life);
/* Handles the events that have come. False: the device is being taken away. */
bool accept_events(struct accept *accept);
/* Returns how many connections of that node there are. Any thread, while it is open. */
unsigned accept_count(struct accept *accept, ramp_node_t node);
/* Ends all connections. */
void accept_close(struct accept *accept);

#endif
