/*
 * This node's RDMA device: the one that has the node's own address. It holds the listener of the
 * connection manager, and one protection domain for each node that reads here: what is registered for
 * one node is out of reach for the queue pairs of every other, whatever they guess.
 *
 * Thread-safety: device_domain from any thread; the rest is the verbs thread's.
 */
#ifndef RAMP_VERBS_DEVICE_H
#define RAMP_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/ids.h"
#include "proof.h"

struct device;

/* The addresses of this node, resolved once. */
struct device_addresses {
	struct sockaddr_storage at[8]; /* port 0 */
	unsigned n;
};

/* Resolves HOST:PORT; blocks. An address that needs a scope is refused. */
int device_resolve(const char *address, struct device_addresses *out, struct ramp_err *err);
/* Opens the device that has one of the addresses, and listens there at a port of the kernel's
   choice. -ENODEV: none has, and `err` says why. */
int device_open(const struct device_addresses *addresses, struct device **out,
		struct ramp_err *err);
/* Every queue pair and every region that was made of the device by others is gone. */
void device_close(struct device *device);
/* Closes the device under librdmacm, which keeps its descriptors for life, or until another device is
   there: the kernel's removal of a software device waits for them. Only of one that is being removed, before
   device_close; all that was made of it is gone but what the device itself has. */
void device_abandon(struct device *device);
/* Lets go of devices that are being removed: librdmacm keeps them open, and some kernel modules wait
   for that. */
void device_let_go(void);

const char *device_name(const struct device *device);
struct ibv_context *device_context(const struct device *device);
/* Connection manager's events of the listener and of the connections that it took. Non-blocking. */
struct rdma_event_channel *device_channel(const struct device *device);
/* Where it listens, with port 0, and at which port. */
const struct sockaddr_storage *device_address(const struct device *device);
uint16_t device_port(const struct device *device);
const uint8_t *device_challenge(const struct device *device);
/* Returns how many reads at a time it answers on one connection. */
uint8_t device_reads(const struct device *device);
/* Returns the protection domain of a node's connections and regions; NULL: errno says why. */
struct ibv_pd *device_domain(struct device *device, ramp_node_t node);

#endif
