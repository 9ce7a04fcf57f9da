/*
 * What a recovery keeps, and what may be lost by it. See recover_report.h.
 *
 * A row may name nodes that are no members any more: only the fates that are given count.
 */
#include "recover_report.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/visible.h"

#define NAMES_SHOWN 3

/* Segments with one thing in common. */
struct tally {
	uint64_t n;
	char names[NAMES_SHOWN][RAMP_NAME_MAX + 1];
};

struct report {
	const struct certificate *members;
	ramp_incarnation_t store; /* of this node's store; 0: it has none */
	struct tally here, gone_here;
	struct tally lost[CONFIG_NODES_MAX], kept[CONFIG_NODES_MAX];
	struct tally half_pulled, coming, leaving, left;
};

static void count(struct tally *t, const struct segment_row *row)
{
	if (t->n < NAMES_SHOWN)
		memcpy(t->names[t->n], row->name, sizeof(t->names[0]));
	t->n++;
}

static bool is_lost(const struct report *r, ramp_node_t node)
{
	const struct certificate_member *m = certificate_find(r->members, node);

	return !m || m->fate == FATE_LOST;
}

/* Counts what becomes of a segment of this node's own. */
static void count_own(struct report *r, const struct segment_row *row)
{
	if (row->node_inc != r->store)
		count(&r->gone_here, row);
	else if (row->phase == SEGMENT_MOVING && is_lost(r, row->dst))
		count(&r->leaving, row);
	else if (row->phase == SEGMENT_PULLING && is_lost(r, row->src))
		count(&r->half_pulled, row);
	else
		count(&r->here, row);
}

static int report_count_segment(void *arg, const struct segment_row *row)
{
	struct report *r = arg;
	ramp_node_t self = r->members->by;
	const struct certificate_member *m = certificate_find(r->members, row->node);

	if (row->phase == SEGMENT_ORPHAN || row->unlinked)
		return 0;
	if (row->node == self)
		count_own(r, row);
	else if (row->phase == SEGMENT_MOVING && row->dst == self && is_lost(r, row->node))
		count(&r->coming, row);
	else if (row->phase == SEGMENT_PULLING && row->src == self && is_lost(r, row->node))
		count(&r->left, row);
	else if (m)
		count(m->fate == FATE_LOST ? &r->lost[m - r->members->members]
					   : &r->kept[m - r->members->members],
		      row);
	return 0;
}

/* Prints "N segments (a, b, c, ...)", and what becomes of them. */
static void print_tally(const char *head, const struct tally *t, const char *tail)
{
	char shown[RAMP_NAME_MAX + 1];

	printf("  %s%" PRIu64 " segment%s (", head, t->n, t->n == 1 ? "" : "s");
	for (uint64_t i = 0; i < t->n && i < NAMES_SHOWN; i++) {
		visible(shown, sizeof(shown), t->names[i]);
		printf("%s%s", i ? ", " : "", shown);
	}
	printf("%s)%s\n", t->n > NAMES_SHOWN ? ", ..." : "", tail);
}

static void print_if_any(const struct tally *t, const char *tail)
{
	if (t->n)
		print_tally("", t, tail);
}

/* Reads the incarnation of the store, which is gone with the memory where the machine was started
   again since. */
static ramp_incarnation_t store_here(const char *state_dir)
{
	char path[PATH_MAX + 32], text[20] = "";
	FILE *from;

	snprintf(path, sizeof(path), "%s/store/incarnation", state_dir);
	from = fopen(path, "re");
	if (!from)
		return 0;
	if (!fgets(text, sizeof(text), from))
		text[0] = '\0';
	fclose(from);
	return strtoull(text, NULL, 16);
}

static void print_members(const struct report *r)
{
	const struct certificate *c = r->members;

	for (size_t i = 0; i < c->n_members; i++) {
		const struct certificate_member *m = &c->members[i];

		if (m->fate == FATE_RECOVERED)
			continue;
		printf("node %s %s\n", m->row.name,
		       m->fate == FATE_LOST
			       ? "is declared lost, for good: your word that no program of it runs"
			       : "survives, and is a standby once it is adopted");
		if (r->lost[i].n)
			print_tally("lost: ", &r->lost[i], "");
		if (r->kept[i].n)
			print_tally("", &r->kept[i], " remain its own");
	}
}

int recover_report(struct recovery *recovery, const struct certificate *members,
		   const char *state_dir)
{
	struct report *r = calloc(1, sizeof(*r));
	struct recovery_facts facts;
	int rc;

	if (!r)
		return -ENOMEM;
	r->members = members;
	r->store = store_here(state_dir);
	recovery_facts(recovery, &facts);
	rc = recovery_each_segment(recovery, report_count_segment, r);
	if (rc) {
		free(r);
		return rc;
	}
	printf("\nnode %s becomes the only voter of a new cluster. Its journal ends with term "
	       "%" PRIu64 ", entry %" PRIu64 ".%s\n",
	       certificate_find(members, members->by)->row.name, facts.last.term, facts.last.index,
	       facts.old_copy ? " It is an old copy, put back from a backup." : "");
	print_if_any(&r->here, " are here, whole or being moved among survivors");
	print_if_any(&r->half_pulled,
		     " are here in part: pages that were still at a lost node are lost");
	print_if_any(&r->coming, " were coming from a lost node: here if they had been taken over, "
				 "else lost");
	print_if_any(&r->leaving, " were leaving for a lost node: they come back; of one that had "
				  "left, what was written there is lost");
	print_if_any(&r->left, " had left for a lost node: they come back as they were then; what "
			       "was written there is lost (rampfs-migrate --reclaim accepts that)");
	print_if_any(&r->gone_here, " were lost when this machine was started again");
	print_members(r);
	printf("Names, moves and attributes that the lost nodes alone had agreed on are lost, too: "
	       "a segment of which only its bytes are here gets its noted name, or "
	       "recovered-ID.\n");
	free(r);
	return 0;
}
