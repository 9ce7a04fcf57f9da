/*
 * Mapped segments: segments as programs of this node have them mapped (mapped_segment.c).
 *
 *   struct mapped_segment   one segment: state and attachments. Reference-counted.
 *   struct client_mappings  all mappings of one segment in one client.
 *   struct attachment       one mapping (a VMA) of it; found in /proc, never guessed.
 *   struct mapping_ref      a copy of an attachment, for callers that do not hold the lock.
 */
#ifndef RAMP_PROGRAMS_MAPPED_SEGMENT_H
#define RAMP_PROGRAMS_MAPPED_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv/tree.h>

#include "base/ids.h"
#include "programs/client/client.h"

/* Neighbouring VMAs that only differ in protection are one attachment. */
struct attachment {
	uint64_t start, end, offset;
	uint32_t prot; /* the union of the protections in it */
	bool writable; /* of the file description, not of prot */
	bool gone;     /* maps the empty file */
};

/* Each look makes a new one and puts it in place of the old one: so the locks are held for a
   short time only, also if a program has thousands of attachments. */
struct client_mappings {
	RB_ENTRY(client_mappings) in_mseg;   /* protected by mseg->lock */
	RB_ENTRY(client_mappings) in_client; /* protected by client->list */
	struct mapped_segment *mseg;	     /* a reference */
	struct client *client;		     /* a reference */
	ramp_segment_t id;		     /* of mseg */
	uint64_t end;			     /* of the last attachment */
	size_t count;			     /* at least 1 */
	struct attachment at[];		     /* sorted; written under both locks, and change */
};
RB_HEAD(attached_by_client, client_mappings); /* by client */
RB_PROTOTYPE(attached_by_end, client_mappings, in_client, compare_ends)
RB_PROTOTYPE(attached_by_client, client_mappings, in_mseg, compare_clients)

/*
 *   OPEN --programs_revoke--> FROZEN --programs_gone--> GONE --programs_back--> OPEN
 *                             FROZEN --programs_restore--> OPEN
 *                             FROZEN --programs_close_stores--> CLOSED
 *   CLOSED --programs_revoke--> FROZEN    CLOSED --programs_restore--> OPEN
 *   OPEN --programs_gone, in a daemon's life that never revoked--> GONE
 *
 * OPEN: not registered, or `pulling`: what is near a missing page is registered (stretches.c), and the pager
 * serves it.
 * FROZEN: every attachment is registered, accesses to it wait, no page fault is resolved.
 * CLOSED: every attachment that may be stored into is registered with the second userfaultfd, and
 * protected: loads continue, a store waits. New attachments are protected before programs get them.
 * GONE: attachments map the empty file, or accesses wait until their agents have mapped it.
 * For a daemon that starts, a record GIVEN means FROZEN, and no record means GONE.
 */
enum mseg_state { MSEG_OPEN, MSEG_FROZEN, MSEG_CLOSED, MSEG_GONE };

/* The counts at the time of a prelook (prelook.c). */
struct prelook {
	bool on;    /* a prelook was made, and nothing has outdated it so far */
	bool armed; /* attachments may be registered for it */
	uint64_t attaches, remaps;
	size_t live;
};

struct mapped_segment {
	LIST_ENTRY(mapped_segment)
	link;			  /* programs->msegs; protected by programs->lock */
	uint32_t refs, attaching; /* protected by programs->lock */
	uint64_t attaches;	  /* attaches that have begun; protected by programs->lock */
	bool held;	  /* attaches wait: its addresses are being given back; by programs->lock */
	uint64_t holds;	  /* how often that has begun, or ended; by programs->lock */
	atomic_uint late; /* GONEs of it that agents have not answered (agent_call.c) */
	ramp_segment_t id;
	pthread_mutex_t change;
	struct prelook prelook;	    /* protected by change */
	LIST_HEAD(, beside) beside; /* beside.c. Protected by change */
	struct watch *watch;	    /* watch.c; NULL: stores are not watched. Protected by change */
	pthread_rwlock_t lock;	    /* protects what follows */
	_Atomic int state;	    /* enum mseg_state; written under lock and change */
	atomic_bool coming;	    /* GONE, but programs_back is about to come */
	bool pulling;
	struct seg *seg;	 /* a reference, or NULL: not in this store */
	_Atomic uint64_t lo, hi; /* its extent; the arena if that is not known */
	struct attached_by_client attached;
	char owner[RAMP_NODE_NAME_MAX + 1]; /* GONE: where it is now, "": not known */
	bool poison_said;
	bool poisoned;	       /* in some client, perhaps; protected by change */
	atomic_uint poisoning; /* jobs that are about to poison pages of it */
	atomic_bool trimming;  /* a job of stretches.c is queued */
	atomic_uint resolving; /* threads that map pages of it, or are about to; counted up under
				  lock, while it is OPEN and pulling (resolve.c) */
};

/* A copy of an attachment, with a reference to its client. */
struct mapping_ref {
	struct client *client;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};

/* Finds the entry or makes one, with a reference. NULL: no memory. */
struct mapped_segment *mseg_get(struct programs *p, ramp_segment_t id);
struct mapped_segment *mseg_hold(struct programs *p, struct mapped_segment *mseg);
struct mapped_segment *mseg_find(struct programs *p, ramp_segment_t id); /* NULL: none */
/* The same, if the table shows that the client has it mapped: so a client that names a segment
   of another user does not reach its locks. */
struct mapped_segment *mseg_held(struct programs *p, ramp_segment_t id, struct client *client);
void mseg_put(struct programs *p, struct mapped_segment *mseg);
void mseg_free_all(struct programs *p); /* at the end */
/* Sets mseg->seg, with a reference of its own; NULL: to none. */
void mseg_set_seg(struct mapped_segment *mseg, struct seg *seg);
/* The only function that changes the state: aborts if it is not `from`, or if no arrow above
   leads from there to `to`. change is held. */
void mseg_go(struct programs *p, struct mapped_segment *mseg, enum mseg_state from,
	     enum mseg_state to);
bool mseg_armed(struct mapped_segment *mseg); /* attachments must be registered; change is held */
/* Returns that client's mappings of it, or NULL; mseg->lock or change is held. */
struct client_mappings *mseg_mappings_of(struct mapped_segment *mseg, struct client *client);
/* Returns the mappings of the segment that may be at that address, the first that end behind it,
   or NULL; client->list is held. */
struct client_mappings *client_mappings_at(struct client *client, uint64_t addr);
/* Returns the attachment at that address, or NULL. */
const struct attachment *attachment_at(const struct client_mappings *holding, uint64_t addr);
/* Returns the length of the part of an attachment that maps bytes [from, to) of the file, and
   its address; 0: none does. */
uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr);
/* Copies all attachments, sorted by client, then start. -ENOMEM. */
int mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count);
void mapping_refs_free(struct mapping_ref *refs, size_t count);
/* Returns the clients that have it mapped, with references; NULL: no memory. */
struct client **mseg_clients(struct mapped_segment *mseg, size_t *count);

#endif
