/*
 * A cluster whose quorum is lost for good, and the journal of a node that survives: all offline,
 * in the place of the daemon (contrib/doc/design.md, "A quorum that is lost for good").
 *
 *   recovery_found	The node becomes the one voter of a new cluster, with all that its journal
 *			holds, committed or not. The other members are standbys; those that the
 *			operator declares lost are fenced (R1). Its first daemon then carries out
 *			R5 and R6 as after any fence.
 *   recovery_adopt	Another survivor becomes a standby of that cluster, under its number and
 *			its instance, with the segments that its records tell of.
 *
 * What a record tells of and the tables don't have, the daemons propose as RECOVERED (meta.h).
 *
 * Each change is one transaction of SQLite: a process that is killed leaves the old state or the
 * new one. It fails as journal.h says. Thread-safety: one thread.
 */
#ifndef RAMP_META_RECOVERY_H
#define RAMP_META_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "meta.h"

struct recovery;

/* The last entry of a log. The survivor where it is the greatest has all that any survivor has
   seen committed. */
struct recovery_position {
	uint64_t term, index;
};
/* Returns true where `a` is before `b`. */
bool recovery_is_before(struct recovery_position a, struct recovery_position b);

struct recovery_facts {
	uint8_t cluster_id[32];
	ramp_node_t self;
	uint64_t instance;
	struct recovery_position last;
	bool old_copy; /* the journal was restored from a backup */
	bool founded;  /* recovery_found was the last that changed it: no daemon has run since */
};

/* A node's address from now on, on this node alone, until that node has committed its own. */
struct recovery_address {
	ramp_node_t node;
	const char *address;
};

struct recovery_change {
	uint8_t cluster_id[32];
	const char *certificate; /* of that id; kept in the journal */
	const struct recovery_address *addresses;
	size_t n_addresses;
	/* recovery_found: the nodes that are declared lost. */
	const ramp_node_t *lost;
	size_t n_lost;
	/* recovery_adopt: the members as the new cluster named them. */
	const struct node_row *members;
	size_t n_members;
	const char
		*copy; /* the file for a copy of the journal as it was; replaced where it exists */
};

/* Opens the journal of a node that does not run. -EBUSY: it runs. */
int recovery_open(const char *journal, struct recovery **out, struct ramp_err *err);
void recovery_close(struct recovery *r);

void recovery_facts(const struct recovery *r, struct recovery_facts *facts);
/* Calls fn for each row, as after all entries of the journal's log, until fn returns nonzero;
   returns that, or -EIO. */
int recovery_each_node(struct recovery *r, int (*fn)(void *arg, const struct node_row *row),
		       void *arg);
int recovery_each_segment(struct recovery *r, int (*fn)(void *arg, const struct segment_row *row),
			  void *arg);
/* Returns the certificate in *text, malloc'ed. -ENOENT: there is none. */
int recovery_certificate(struct recovery *r, char **text, struct ramp_err *err);

int recovery_found(struct recovery *r, const struct recovery_change *change, struct ramp_err *err);
int recovery_adopt(struct recovery *r, const struct recovery_change *change, struct ramp_err *err);
/* Notes the addresses and nothing else. */
int recovery_readdress(struct recovery *r, const struct recovery_change *change,
		       struct ramp_err *err);

#endif
