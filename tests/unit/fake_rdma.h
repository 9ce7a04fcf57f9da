/*
 * An RDMA device in this process, in place of libibverbs and librdmacm: what the verbs transport calls
 * of them, between nodes of one test. A READ is a copy, made when it is posted or, if the test says so,
 * later; it obeys protection domains, addresses, keys and lengths. Faults are injected by number.
 */
#ifndef FAKE_RDMA_H
#define FAKE_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Faults to inject; all zero: none. Set by the test while nothing else runs, or atomic. */
struct fake_rdma {
	atomic_bool no_device;	 /* there is none */
	atomic_bool no_address;	 /* none has the node's address */
	atomic_uint taken_ports; /* how many rdma_listen find their port taken */
	atomic_int reg_errno;	 /* of registrations for remote reads */
	atomic_int local_errno;	 /* of registrations for local writes */
	atomic_int post_errno;	 /* of ibv_post_send */
	atomic_int status; /* enum ibv_wc_status of the next READ, which loses its queue pair */
	atomic_bool hold;  /* READs are not done, and complete never */
	atomic_int connect_errno; /* of rdma_connect itself */
	/* enum rdma_cm_event_type in answer to rdma_connect, or, ADDR_ERROR and ROUTE_ERROR, to what resolves; 0: as
	   it is */
	atomic_int answer;
	atomic_uint mute;	  /* how many rdma_connect nothing answers */
	atomic_bool block;	  /* while it is set rdma_connect does not return, as with iWARP */
	_Atomic uint64_t dial_ms; /* what a thread that connects takes for the time; 0: as it is */
	atomic_bool silent;	  /* the other end hears of no end */
	atomic_bool forge;	  /* a byte of each answer's private data is another one */
	/* Figures. */
	atomic_uint regions;  /* registered for remote reads, now */
	atomic_uint objects;  /* all that must be freed, now */
	atomic_uint reads;    /* done */
	atomic_uint refused;  /* READs with a key, an address or a domain that is wrong */
	atomic_uint rejected; /* requests to connect */
	atomic_uint connects; /* calls of rdma_connect */
};

extern struct fake_rdma fake_rdma;

/* Sends an event to each queue pair of readers. */
void fake_rdma_event(enum rdma_cm_event_type type);
/* Tells each listener that the device is being removed; readers' connections, too. */
void fake_rdma_remove(void);
/* Makes an asynchronous event of the device. */
void fake_rdma_async(enum ibv_event_type type);
/* Sends a request to connect with that private data to the listener at `port`, as any host may. Returns true if it was
   accepted. */
bool fake_rdma_knock(uint16_t port, const void *data, uint8_t len);
/* Returns the private data of the last request, 56 bytes, and where it went. */
uint16_t fake_rdma_overheard(uint8_t data[56]);
/* Reads as the queue pair of a reader would: `node` is the position of its protection domain. Returns the status. */
enum ibv_wc_status fake_rdma_read(unsigned queue, uint64_t address, uint32_t rkey, void *dst,
				  uint32_t len);
/* The first region that is registered for remote reads. False: there is none. */
bool fake_rdma_region(uint64_t *address, uint32_t *rkey, uint32_t *len);
/* The device's descriptors are /dev/null: the kernel's removal of it waits for nothing. */
bool fake_rdma_is_closed(void);

#endif
