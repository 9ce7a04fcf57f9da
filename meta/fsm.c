/*
 * The state machine's roof: retries, stale copies, and the dispatch of commands. See fsm.h. One
 * function a command, the rule that it obeys beside it (fsm_segments.c, fsm_moves.c, fsm_members.c;
 * R1 to R13 are defined in contrib/doc/design.md).
 *
 * The happy path: fsm_apply decodes the command, finds that it is new, and calls its function,
 * which reads the rows, checks, and writes the rows. The result is kept for retries.
 *
 * How it fails: a rule that forbids a command gives an errno as its result, and nothing but that
 * result is written then. An entry that this program does not know is not applied, and so is no
 * later one (replica.c): skipped, it would leave these tables different from the others'.
 */
#include "fsm.h"

#include <errno.h>
#include <string.h>

#include "fsm_core.h"
#include "fsm_level.h"
#include "fsm_members.h"
#include "fsm_moves.h"
#include "fsm_recovered.h"
#include "fsm_segments.h"
#include "fsm_settings.h"
#include "journal_nodes.h"
#include "journal_results.h"

static int (*const commands[])(struct apply *a) = {
	[META_CREATE] = fsm_create,
	[META_UNLINK] = fsm_unlink,
	[META_RENAME] = fsm_rename,
	[META_SETATTR] = fsm_setattr,
	[META_EXTENT] = fsm_extent,
	[META_PREPARE] = fsm_prepare,
	[META_TAKEN] = fsm_taken,
	[META_SETTLED] = fsm_settled,
	[META_ABORT] = fsm_abort,
	[META_FREED] = fsm_freed,
	[META_NODE_UP] = fsm_node_up,
	[META_NODE_FENCE] = fsm_node_fence,
	[META_MEMBER_ADD] = fsm_member_add,
	[META_MEMBER_PROMOTE] = fsm_member_promote,
	[META_MEMBER_REMOVE] = fsm_member_remove,
	[META_LEVEL_UP] = fsm_level_up,
	[META_SET] = fsm_set,
	[META_RECOVERED] = fsm_recovered,
	[META_MEMBER_AGAIN] = fsm_member_again,
	[META_UNEXTENT] = fsm_unextent,
};

/* Returns 1 where the command is below its node's floor, a late copy; else 0, and raises the
   floor. */
static int is_stale(struct journal *j, const struct meta_origin *o)
{
	uint64_t life, lowest;
	int rc;

	if (o->node == 0)
		return 0;
	rc = journal_get_floor(j, o->node, &life, &lowest);
	if (rc < 0)
		return rc;
	if (o->life < life || (o->life == life && o->number < lowest))
		return 1;
	if (o->life == life && o->lowest <= lowest)
		return 0;
	return journal_put_floor(j, o->node, o->life, o->lowest);
}

static int apply_command(struct journal *j, uint64_t index, const struct raft_entry *entry,
			 struct fsm_result *res)
{
	struct meta_command c;
	struct apply a = {.j = j, .c = &c, .res = res};
	int rc;

	if (!fsm_decode(entry, &res->origin, &c))
		return -EPROTO;
	rc = is_stale(j, &res->origin);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	res->command = true;
	res->cid = c.cid;
	res->type = c.type;
	rc = journal_get_result(j, c.cid, &res->reply);
	if (rc != -ENOENT) {
		/* A retry of MEMBER_* still waits for the configuration. */
		res->subject = res->reply.node;
		return rc;
	}
	res->first = true;
	memset(&res->reply, 0, sizeof(res->reply));
	res->reply.result = fsm_check_level(j, &c);
	if (res->reply.result == 0)
		res->reply.result = commands[c.type](&a);
	if (journal_dead(j))
		return -EIO;
	return journal_put_result(j, c.cid, &res->reply, index);
}

int fsm_apply(struct journal *j, uint64_t index, const struct raft_entry *entry,
	      struct fsm_result *result)
{
	struct raft_conf conf;
	int rc;

	memset(result, 0, sizeof(*result));
	if (entry->type != RAFT_NOOP && !entry->data)
		return -EPROTO;
	switch (entry->type) {
	case RAFT_COMMAND:
		return apply_command(j, index, entry, result);
	case RAFT_CONF:
		if (raft_conf_decode(entry->data->bytes, entry->data->len, &conf) < 0)
			return -EPROTO;
		result->members = true;
		rc = journal_put_members(j, &conf);
		return rc ? rc : fsm_member_has_left(j, &conf);
	case RAFT_NOOP:
		return journal_dead(j) ? -EIO : 0;
	default:
		return -EPROTO;
	}
}
