#include "member_change.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "meta/meta.h"

#define VOTE_TRIES   50
#define VOTE_WAIT_US 100000

int member_fence(struct member_view *v, const char *name, ramp_incarnation_t incarnation,
		 bool force, struct ramp_err *err)
{
	struct meta_command command = {.type = META_NODE_FENCE};
	struct node_row row;
	int rc = member_find(v, name, &row, err);

	if (rc)
		return rc;
	if (!row.incarnation)
		return ramp_err_set(err, EINVAL,
				    "%s was never up: no incarnation of it can be over", name);
	if (incarnation && incarnation != row.incarnation)
		return ramp_err_set(err, ESTALE, "%s has another incarnation by now: %016" PRIx64,
				    name, row.incarnation);
	if (row.fenced == row.incarnation)
		return 0;
	if (member_is_heard(v, row.node) && !force)
		return ramp_err_set(err, EBUSY,
				    "%s is alive: this node hears it. End it first (its segments "
				    "are lost by a fence; --force if it must be)",
				    name);
	command.node = row.node;
	command.node_inc = row.incarnation;
	rc = member_propose(v, &command, NULL);
	if (rc == -ESTALE)
		return ramp_err_set(err, ESTALE, "%s has come up with another incarnation", name);
	if (!rc)
		log_warn("node %s was fenced: its incarnation %016" PRIx64 " is over", name,
			 row.incarnation);
	return rc ? member_explain(rc, err) : 0;
}

/* Words the refusal of a change while an earlier change of `node` is under way: its row is ahead of
   the configuration. */
static int change_under_way(struct member_view *v, ramp_node_t node, struct ramp_err *err)
{
	struct node_row row;

	if (meta_node(v->meta, node, &row))
		return ramp_err_set(err, EBUSY, "another member's change is under way: try again");
	if (row.role == NODE_VOTER && !member_is_heard(v, node))
		return ramp_err_set(
			err, EBUSY,
			"%s is to vote once it has caught up, and is down: start it, or "
			"fence and remove it, before another member changes",
			row.name);
	return ramp_err_set(err, EBUSY, "the change of %s is under way: try again", row.name);
}

int member_take_away(struct member_view *v, const struct node_row *row, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_REMOVE, .node = row->node};
	struct meta_reply reply;
	struct member_use use;
	int rc;

	member_look_at_use(v, row->node, &use);
	if (use.n && row->incarnation && row->fenced == row->incarnation)
		return ramp_err_set(err, EBUSY,
				    "%u segments are still named as %s's, and lost with it (%s): "
				    "unlink them first",
				    use.n, row->name, use.first);
	if (use.n)
		return ramp_err_set(err, EBUSY,
				    "%u segments are still at %s (%s): move or unlink them first; "
				    "if it will never come back, fence it",
				    use.n, row->name, use.first);
	rc = member_check_rest(v, row, err);
	if (rc)
		return rc;
	rc = member_propose(v, &command, &reply);
	if (rc == -EBUSY && reply.node != row->node)
		return change_under_way(v, reply.node, err);
	if (rc == -EBUSY)
		return ramp_err_set(err, EBUSY,
				    "%s has just got a segment, or is the last voter: try again",
				    row->name);
	if (!rc)
		log_warn("node %s was removed from the cluster", row->name);
	return rc ? member_explain(rc, err) : 0;
}

int member_remove(struct member_view *v, const char *name, struct ramp_err *err)
{
	struct node_row row;
	int rc = member_find(v, name, &row, err);

	if (rc)
		return rc;
	if (member_is_self(v, &row))
		return ramp_err_set(err, EINVAL,
				    "this is %s itself: ask another member to remove it", name);
	return member_take_away(v, &row, err);
}

int member_add(struct member_view *v, const char *name, const char *address,
	       uint64_t capacity_bytes, ramp_node_t *node, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_ADD, .capacity = capacity_bytes};
	struct meta_reply reply;
	int rc;

	if (!config_name_ok(name))
		return ramp_err_set(err, EINVAL, "not a node's name: %s", name);
	rc = member_check_address(v, name, address, err);
	if (rc)
		return rc;
	if (capacity_bytes < CONFIG_CAPACITY_MIN)
		return ramp_err_set(err, EINVAL, "its capacity is less than 16M");
	snprintf(command.new_name, sizeof(command.new_name), "%s", name);
	snprintf(command.address, sizeof(command.address), "%s", address);
	rc = member_propose(v, &command, &reply);
	if (rc == -EEXIST)
		return ramp_err_set(err, EEXIST, "%s is a member already", name);
	if (rc == -ENOSPC)
		return ramp_err_set(err, ENOSPC, "the cluster has as many nodes as it can (64)");
	if (rc == -EADDRINUSE) /* another node got it meanwhile; the tables name that node */
		return member_check_address(v, name, address, err) ? -err->code
								   : member_explain(rc, err);
	if (rc == -EBUSY)
		return change_under_way(v, reply.node, err);
	if (rc)
		return member_explain(rc, err);
	log_info("node %s at %s was added as number %u", name, address, reply.node);
	if (node)
		*node = reply.node;
	return 0;
}

/* Waits until the node may vote: a new node gets its vote within the second in which it comes up.
   Until then its change would block all others. */
static bool may_vote(struct member_view *v, ramp_node_t node)
{
	for (int i = 0; i < VOTE_TRIES && !atomic_load(&v->closing); i++) {
		if (!meta_is_nonvoting(v->meta, node))
			return true;
		usleep(VOTE_WAIT_US);
	}
	return !meta_is_nonvoting(v->meta, node);
}

int member_promote(struct member_view *v, const char *name, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_PROMOTE};
	struct meta_reply reply;
	struct node_row row;
	int rc = member_find(v, name, &row, err);

	if (rc || row.role == NODE_VOTER)
		return rc;
	if (!row.incarnation)
		return ramp_err_set(err, EHOSTDOWN, "%s was never up: start it first", name);
	if (row.fenced == row.incarnation)
		return ramp_err_set(err, EHOSTDOWN, "%s is fenced", name);
	if (!member_is_heard(v, row.node))
		return ramp_err_set(err, EHOSTDOWN,
				    "%s is down: a voter that is down does not help", name);
	if (!may_vote(v, row.node))
		return ramp_err_set(err, EPERM,
				    "%s gets no vote: its state directory was formatted again, or "
				    "put back from a backup: it needs --rejoin",
				    name);
	command.node = row.node;
	rc = member_propose(v, &command, &reply);
	if (rc == -EBUSY)
		return change_under_way(v, reply.node, err);
	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT,
				    "%s has not caught up within 5 s; it votes as soon as it has",
				    name);
	if (!rc)
		log_info("node %s is a voter", name);
	return rc ? member_explain(rc, err) : 0;
}

int member_again(struct member_view *v, const struct node_row *row, uint64_t instance,
		 uint64_t *life, struct ramp_err *err)
{
	struct meta_command command = {.type = META_MEMBER_AGAIN,
				       .node = row->node,
				       .node_inc = row->incarnation,
				       .instance = instance};
	struct meta_reply reply;
	int rc = member_check_rest(v, row, err);

	if (rc)
		return rc;
	rc = member_propose(v, &command, &reply);
	if (rc == -EBUSY && reply.node != row->node)
		return change_under_way(v, reply.node, err);
	if (rc == -EBUSY)
		return ramp_err_set(err, EBUSY, "%s is the last voter", row->name);
	if (rc == -ESTALE)
		return ramp_err_set(err, ESTALE, "%s has just been fenced, or has come up",
				    row->name);
	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT, "not done within 5 s: try again");
	if (rc)
		return member_explain(rc, err);
	*life = reply.other;
	log_warn("node %s comes again with its store and an empty journal: it is a standby",
		 row->name);
	return 0;
}

int member_set(struct member_view *v, const char *name, uint64_t value, struct ramp_err *err)
{
	struct meta_command command = {
		.type = META_SET, .setting = META_ARENA_USER_MAX, .value = value};
	struct meta_settings now;
	int rc;

	if (strcmp(name, "arena-user-max") != 0)
		return ramp_err_set(err, EINVAL,
				    "there is no such setting; the one that there is: "
				    "arena-user-max");
	if (value != META_DEFAULT && value < RAMP_EXTENT_MIN)
		return ramp_err_set(err, EINVAL, "less than 64M, which is one extent");
	rc = member_propose(v, &command, NULL);
	if (rc == -EOPNOTSUPP)
		return ramp_err_set(err, EOPNOTSUPP,
				    "not every member has said that its version knows this: each "
				    "must be up, or removed (rampfs-node list), and none older "
				    "than %s",
				    RAMPFS_VERSION);
	if (rc)
		return member_explain(rc, err);
	if (!meta_get_settings(v->meta, &now))
		log_info("arena-user-max is %llu MiB%s",
			 (unsigned long long)now.arena_user_max >> 20,
			 now.arena_user_set ? "" : ", an eighth of the arena");
	return 0;
}
