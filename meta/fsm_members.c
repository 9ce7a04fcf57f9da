/*
 * The state machine's rules about nodes: incarnations and fences (R1), and membership. See
 * fsm_members.h.
 *
 * A node's row has the role that the node is to have. Raft's configuration follows, one change at a
 * time, by entries that the leader proposes (fsm_next_conf). Until it has, every change of another
 * node is -EBUSY; a change of the same node may be taken back.
 *
 * A node that has lost its journal, with its votes and acknowledgements, comes back under its number:
 *
 *	VOTER, STANDBY -> RETURNING	[fsm_member_again] the next configuration lacks it
 *	RETURNING -> STANDBY		[fsm_member_has_left] that one is applied; the one after it has
 *					the node again, of which the leader knows nothing
 *
 * No configuration from then on counts what the node has promised before: those that do are older than
 * one that the others have committed without it, and no log without that one can win a vote.
 */
#include "fsm_members.h"

#include <errno.h>
#include <string.h>

#include "fsm_core.h"
#include "journal_nodes.h"
#include "journal_recovery.h"
#include "journal_results.h"
#include "journal_segments.h"

#define LIVES_UNSEEN                                                                               \
	(UINT64_C(1) << 20) /* lives of a lost journal of which no command was applied */

/* Deletes the orphans of an incarnation that is over: no process of it maps an extent any more
   (R12). */
static int end_incarnation(struct apply *a, ramp_node_t node, ramp_incarnation_t inc)
{
	ramp_segment_t id;
	int rc;

	while ((rc = journal_find_orphan(a->j, node, inc, &id)) == 0) {
		rc = journal_delete_segment(a->j, id);
		if (rc < 0)
			return rc;
	}
	return rc == -ENOENT ? 0 : rc;
}

/* R1: an incarnation takes part once it is committed, and never comes back. */
int fsm_node_up(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct node_row row;
	int rc = journal_get_node(a->j, c->node, &row);

	if (rc < 0)
		return rc;
	a->res->reply.node = c->node;
	if (row.role == NODE_REMOVED || c->node_inc == 0 || c->node_inc == row.fenced ||
	    (row.instance != 0 && row.instance != c->instance))
		return -EPERM;
	rc = journal_is_past(a->j, c->node, c->node_inc);
	if (rc != 0)
		return rc < 0 ? rc : -EPERM;
	if (row.incarnation != 0 && row.incarnation != c->node_inc) {
		rc = journal_put_past(a->j, c->node, row.incarnation);
		rc = rc ? rc : end_incarnation(a, c->node, row.incarnation);
		if (rc < 0)
			return rc;
	}
	row.incarnation = c->node_inc;
	row.instance = c->instance;
	row.capacity = c->capacity;
	if (c->address[0])
		memcpy(row.address, c->address, sizeof(row.address));
	a->res->members = true;
	rc = journal_settle_address(a->j, &row);
	return rc ? rc : journal_put_node(a->j, &row);
}

int fsm_node_fence(struct apply *a)
{
	struct node_row row;
	int rc = journal_get_node(a->j, a->c->node, &row);

	if (rc < 0)
		return rc;
	a->res->reply.node = row.node;
	if (a->c->node_inc == 0 || row.incarnation != a->c->node_inc)
		return -ESTALE;
	row.fenced = row.incarnation;
	a->res->members = true;
	rc = end_incarnation(a, row.node, row.incarnation);
	return rc ? rc : journal_put_node(a->j, &row);
}

static enum raft_role wanted_role(const struct node_row *row)
{
	return row->role == NODE_VOTER ? RAFT_VOTER : RAFT_LEARNER;
}

/* Returns 1 where the configuration as applied gives the node the role of its row; else 0. */
static int settled(struct journal *j, const struct node_row *row)
{
	enum raft_role role;
	int rc = journal_get_member(j, row->node, &role);

	if (row->role == NODE_RETURNING)
		return rc < 0 && rc != -ENOENT ? rc : 0;
	if (rc == -ENOENT)
		return row->role == NODE_REMOVED;
	if (rc < 0)
		return rc;
	return row->role != NODE_REMOVED && role == wanted_role(row);
}

int fsm_member_settled(struct journal *j, ramp_node_t node)
{
	struct node_row row;
	int rc = journal_get_node(j, node, &row);

	return rc < 0 ? rc : settled(j, &row);
}

struct member_scan {
	struct journal *j;
	ramp_node_t but;     /* a change of this node may be under way */
	const char *address; /* NULL, or an address that no member may have */
	ramp_node_t in_way;  /* the node at which the scan ended with an errno */
	uint32_t members, voters;
};

static int scan_member(void *arg, const struct node_row *row)
{
	struct member_scan *s = arg;
	int rc = row->node == s->but ? 1 : settled(s->j, row);

	s->in_way = row->node;
	if (rc != 1)
		return rc < 0 ? rc : -EBUSY;
	if (s->address && row->role != NODE_REMOVED && strcmp(row->address, s->address) == 0)
		return -EADDRINUSE;
	s->members += row->role != NODE_REMOVED;
	s->voters += row->role == NODE_VOTER;
	return 0;
}

/* Scans the members. Where another node is the reason of a refusal, the reply names it. */
static int look_at_members(struct apply *a, struct member_scan *scan)
{
	int rc = journal_walk_nodes(a->j, scan_member, scan);

	if (rc < 0)
		a->res->reply.node = scan->in_way;
	return rc;
}

int fsm_member_add(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct member_scan scan = {.j = a->j, .address = c->address};
	struct node_row row = {.role = NODE_STANDBY, .capacity = c->capacity};
	int rc = strlen(c->new_name) > RAMP_NODE_NAME_MAX
			 ? -ENAMETOOLONG
			 : journal_find_node(a->j, c->new_name, &row);

	if (rc != -ENOENT)
		return rc ? rc : -EEXIST;
	rc = look_at_members(a, &scan);
	if (rc < 0)
		return rc;
	if (scan.members >= RAFT_NODES_MAX)
		return -ENOSPC;
	rc = journal_next_node(a->j, &row.node);
	if (rc < 0)
		return rc;
	memcpy(row.name, c->new_name, sizeof(row.name) - 1);
	memcpy(row.address, c->address, sizeof(row.address));
	a->res->reply.node = a->res->subject = row.node;
	a->res->members = true;
	return journal_put_node(a->j, &row);
}

int fsm_member_promote(struct apply *a)
{
	struct member_scan scan = {.j = a->j, .but = a->c->node};
	struct node_row row;
	int rc = journal_get_node(a->j, a->c->node, &row);

	if (rc < 0)
		return rc;
	if (row.role == NODE_REMOVED)
		return -ENOENT;
	a->res->reply.node = row.node;
	if (row.role == NODE_RETURNING)
		return -EBUSY;
	rc = look_at_members(a, &scan);
	if (rc < 0)
		return rc;
	a->res->subject = row.node;
	row.role = NODE_VOTER;
	a->res->members = true;
	return journal_put_node(a->j, &row);
}

/* A node that owns a segment or holds bytes of one can't be removed, nor can the last voter. */
int fsm_member_remove(struct apply *a)
{
	struct member_scan scan = {.j = a->j, .but = a->c->node};
	struct node_row row;
	int rc = journal_get_node(a->j, a->c->node, &row);

	if (rc < 0)
		return rc;
	a->res->reply.node = a->res->subject = row.node;
	if (row.role == NODE_REMOVED)
		return 0;
	rc = look_at_members(a, &scan);
	rc = rc ? rc : journal_node_used(a->j, row.node);
	if (rc != 0)
		return rc < 0 ? rc : -EBUSY;
	if (row.role == NODE_VOTER && scan.voters == 1)
		return -EBUSY;
	row.role = NODE_REMOVED;
	a->res->members = true;
	return journal_put_node(a->j, &row);
}

/* The numbers of the lost journal's commands are all below those of the next one's, so that a late copy
   of such a command is stale. */
static int end_lives(struct apply *a)
{
	uint64_t life, lowest;
	int rc = journal_get_floor(a->j, a->c->node, &life, &lowest);

	if (rc < 0)
		return rc;
	a->res->reply.other = life + LIVES_UNSEEN;
	return journal_put_floor(a->j, a->c->node, life + LIVES_UNSEEN, 0);
}

int fsm_member_again(struct apply *a)
{
	const struct meta_command *c = a->c;
	struct member_scan scan = {.j = a->j, .but = c->node};
	struct node_row row;
	enum raft_role role;
	int rc = journal_get_node(a->j, c->node, &row);

	if (rc < 0)
		return rc;
	a->res->reply.node = row.node;
	if (row.role == NODE_REMOVED)
		return -ENOENT;
	if (c->instance == 0)
		return -EINVAL;
	if (c->node_inc == 0 || row.incarnation != c->node_inc || row.fenced == c->node_inc)
		return -ESTALE;
	rc = look_at_members(a, &scan);
	if (rc < 0)
		return rc;
	a->res->subject = row.node;
	if (row.role == NODE_VOTER && scan.voters == 1)
		return -EBUSY;
	rc = journal_get_member(a->j, row.node, &role);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	row.role = rc == 0 ? NODE_RETURNING : NODE_STANDBY;
	row.instance = c->instance;
	a->res->members = true;
	rc = end_lives(a);
	return rc ? rc : journal_put_node(a->j, &row);
}

static int find_returning(void *arg, const struct node_row *row)
{
	struct node_row *found = arg;

	if (row->role == NODE_RETURNING)
		*found = *row;
	return row->role == NODE_RETURNING;
}

int fsm_member_has_left(struct journal *j, const struct raft_conf *conf)
{
	struct node_row row = {0};
	int rc = journal_walk_nodes(j, find_returning, &row);

	if (rc < 0 || row.node == 0 || raft_conf_find(conf, row.node))
		return rc < 0 ? rc : 0;
	row.role = NODE_STANDBY;
	return journal_put_node(j, &row);
}

struct conf_scan {
	const struct raft_conf *conf;
	struct node_row differs; /* the first node whose role differs; node 0: none */
};

/* Whether the next configuration is to have the node. */
static bool belongs(const struct node_row *row)
{
	return row->role != NODE_REMOVED && row->role != NODE_RETURNING;
}

static int scan_conf(void *arg, const struct node_row *row)
{
	struct conf_scan *s = arg;
	const struct raft_member *m = raft_conf_find(s->conf, row->node);
	bool same = m ? belongs(row) && m->role == wanted_role(row) : !belongs(row);

	if (same)
		return 0;
	s->differs = *row;
	return 1;
}

int fsm_next_conf(struct journal *j, const struct raft_conf *in_force, struct raft_conf *next,
		  ramp_node_t *subject)
{
	struct conf_scan s = {.conf = in_force};
	struct raft_member want;
	uint32_t i, n = 0;
	int rc = journal_walk_nodes(j, scan_conf, &s);

	if (rc != 1)
		return rc;
	/* A new voter is a learner first, so that it can catch up (4.2.1). */
	want.node = s.differs.node;
	want.role = raft_conf_find(in_force, want.node) ? wanted_role(&s.differs) : RAFT_LEARNER;
	memset(next, 0, sizeof(*next));
	for (i = 0; i < in_force->n && in_force->member[i].node < want.node; i++)
		next->member[n++] = in_force->member[i];
	if (belongs(&s.differs)) {
		if (n == RAFT_NODES_MAX)
			return 0;
		next->member[n++] = want;
	}
	for (; i < in_force->n && n < RAFT_NODES_MAX; i++)
		if (in_force->member[i].node != want.node)
			next->member[n++] = in_force->member[i];
	next->n = n;
	*subject = want.node;
	return 1;
}
