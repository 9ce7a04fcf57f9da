/*
 * Segments as local programs have them (mapped_segment.c).
 *
 *   struct mapped_segment   one segment: state and attachments. Counted.
 *   struct client_mappings  all that one client has mapped of one segment.
 *   struct attachment       one mapping (a VMA) of it; found in /proc, never guessed.
 *   struct mapping_ref      a copy of one, for those who do not want to hold the lock.
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

/* Neighbours that are protected in different ways are one. */
struct attachment {
	uint64_t start, end, offset;
	uint32_t prot; /* all that is allowed somewhere in it */
	bool writable; /* of the file description, not of prot */
	bool gone;     /* maps the empty file */
};

/* Each look makes it anew and puts it in the place of the one before: whoever waits for the locks
   meanwhile does not wait for longer where a program has thousands of attachments. */
struct client_mappings {
	RB_ENTRY(client_mappings) in_mseg;   /* protected by mseg->lock */
	RB_ENTRY(client_mappings) in_client; /* protected by client->list */
	struct mapped_segment *mseg;	     /* a reference */
	struct space *client;		     /* a reference */
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
 *   OPEN --programs_gone, in a daemon's life that never revoked--> GONE
 *
 * OPEN: not registered, or `pulling`: every attachment is registered and the pager serves it.
 * FROZEN: every attachment is registered, what touches it waits, nothing resolves it.
 * GONE: attachments map the empty file, or wait until their agents do it.
 * A daemon that starts finds FROZEN by a record GIVEN, GONE by none.
 */
enum mseg_state { MSEG_OPEN, MSEG_FROZEN, MSEG_GONE };

/* What stood when a full look was made (prelook.c). */
struct prelook {
	bool on;    /* and nothing has come between so far */
	bool armed; /* attachments may be registered for it */
	uint64_t attaches, remaps;
	size_t live;
};

struct mapped_segment {
	LIST_ENTRY(mapped_segment)
	link;			  /* programs->mapped segments; protected by programs->lock */
	uint32_t refs, attaching; /* protected by programs->lock */
	uint64_t attaches;	  /* how many began; protected by programs->lock */
	ramp_segment_t id;
	pthread_mutex_t change;
	struct prelook prelook; /* protected by change */
	pthread_rwlock_t lock;	/* protects what follows */
	_Atomic int state;	/* enum mseg_state; written under lock and change */
	atomic_bool coming;	/* GONE, but programs_back is about to come */
	bool pulling;
	struct seg *seg;	 /* a reference, or NULL: not in this store */
	_Atomic uint64_t lo, hi; /* its extent, or the arena where it is not known */
	struct attached_by_client attached;
	char owner[RAMP_NODE_NAME_MAX + 1]; /* GONE: where it is now, "": not known */
	bool poison_said;
	bool poisoned;	       /* somewhere, perhaps; protected by change */
	atomic_uint poisoning; /* how often it is about to be */
	atomic_uint resolving; /* threads that map pages of it, or are about to; counted up under
				  lock, while it is OPEN and pulling (resolve.c) */
};

/* A copy of an attachment, with a reference to its client. */
struct mapping_ref {
	struct space *client;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};

/* Finds or makes; NULL: no memory. */
struct mapped_segment *mseg_get(struct programs *p, ramp_segment_t id);
struct mapped_segment *mseg_hold(struct programs *p, struct mapped_segment *mseg);
struct mapped_segment *mseg_find(struct programs *p, ramp_segment_t id); /* NULL: none */
/* The same where the table knows that the client has it mapped: whoever names another's segment
   does not get to its locks. */
struct mapped_segment *mseg_held(struct programs *p, ramp_segment_t id, struct space *client);
void mseg_put(struct programs *p, struct mapped_segment *mseg);
void mseg_free_all(struct programs *p); /* at the end */
/* Makes mseg->seg this one (takes a reference of its own), or NULL. */
void mseg_set_seg(struct mapped_segment *mseg, struct seg *seg);
/* The one door for its state: aborts where it is not `from`, or where no arrow leads to `to`.
   change is held. */
void mseg_go(struct programs *p, struct mapped_segment *mseg, enum mseg_state from,
	     enum mseg_state to);
bool mseg_armed(struct mapped_segment *mseg); /* attachments must be registered; change is held */
/* What that client has of it, or NULL; mseg->lock or change is held. */
struct client_mappings *mseg_mappings_of(struct mapped_segment *mseg, struct space *client);
/* What is attached at that address, or NULL; client->list is held. */
struct client_mappings *client_mappings_at(struct space *client, uint64_t addr);
const struct attachment *attachment_at(const struct client_mappings *holding, uint64_t addr);
/* The part of an attachment that maps bytes [from, to) of the file: how long it is, and where. */
uint64_t attachment_overlap(const struct attachment *a, uint64_t from, uint64_t to, uint64_t *addr);
/* -ENOMEM. Sorted by client, then start. */
int mseg_refs(struct mapped_segment *mseg, struct mapping_ref **refs, size_t *count);
void mapping_refs_free(struct mapping_ref *refs, size_t count);
/* Those that have it mapped, with references; NULL: no memory. */
struct space **mseg_clients(struct mapped_segment *mseg, size_t *count);

#endif
