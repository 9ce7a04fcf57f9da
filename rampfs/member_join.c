#include "member_join.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/visible.h"
#include "member_change.h"
#include "meta/meta.h"
#include "transport/peers/join.h"

#define SETTLE_TRIES   100
#define SETTLE_WAIT_US 100000

static int join_new(struct member_view *v, const struct join_request *request,
		    struct join_answer *answer, struct ramp_err *err)
{
	struct node_row row;

	if (meta_node_by_name(v->meta, request->name, &row)) {
		if (!request->address[0] || !request->capacity_bytes)
			return ramp_err_set(err, EINVAL,
					    "%s is no member yet: its address and capacity are "
					    "needed",
					    request->name);
		return member_add(v, request->name, request->address, request->capacity_bytes,
				  &answer->node, err);
	}
	if (row.incarnation || row.instance || member_is_self(v, &row))
		return ramp_err_set(err, EEXIST,
				    "%s is a member already; if its state directory is lost, it "
				    "comes back with --rejoin",
				    request->name);
	if (row.role == NODE_VOTER)
		return ramp_err_set(err, EEXIST,
				    "%s is a founder: it is made with the cluster's configuration",
				    request->name);
	if (request->address[0] && strcmp(request->address, row.address) != 0)
		return ramp_err_set(err, EEXIST, "%s was added with the address %s", row.name,
				    row.address);
	answer->node = row.node;
	return 0;
}

/* Waits for the nodes that pull from the fenced node or gave to it: they settle with the pages they
   have. */
static void let_settle(struct member_view *v, ramp_node_t node)
{
	struct member_use use;

	member_look_at_use(v, node, &use);
	for (int i = 0; i < SETTLE_TRIES && use.others && !atomic_load(&v->closing); i++) {
		usleep(SETTLE_WAIT_US);
		member_look_at_use(v, node, &use);
	}
}

/*
 * Joins a known node again under a new number. The old number never votes again: a node that lost
 * its log and its votes must not pretend to have them. --rejoin is the operator's word that nothing
 * of the old incarnation runs any more, and so the fence of R12.
 */
static int join_again(struct member_view *v, const struct join_request *request,
		      struct join_answer *answer, struct ramp_err *err)
{
	struct node_row row;
	int rc;

	if (meta_node_by_name(v->meta, request->name, &row))
		return ramp_err_set(err, ENOENT, "%s is no member: it joins with --join",
				    request->name);
	if (member_is_heard(v, row.node))
		return ramp_err_set(err, EBUSY, "%s is alive: this node hears it", row.name);
	/* A reason to refuse it at the end is checked before anything of the old node is given
	   up. */
	rc = request->address[0] ? member_check_address(v, row.name, request->address, err) : 0;
	if (rc)
		return rc;
	if (row.incarnation) {
		rc = member_fence(v, row.name, row.incarnation, false, err);
		if (rc)
			return rc;
		let_settle(v, row.node);
		if (meta_node(v->meta, row.node, &row))
			return ramp_err_set(err, ENOENT, "%s was removed meanwhile", request->name);
	}
	if (member_take_away(v, &row, err))
		return -err->code;
	return member_add(v, row.name, request->address[0] ? request->address : row.address,
			  request->capacity_bytes ? request->capacity_bytes : row.capacity,
			  &answer->node, err);
}

/* Words that the store is not that of the member any more. The rows win: its segments are lost, or another
   store's. */
static int store_is_over(struct member_view *v, const struct node_row *row,
			 const struct join_request *request, struct ramp_err *err)
{
	struct member_use use;

	member_look_at_use(v, row->node, &use);
	if (row->incarnation != request->incarnation)
		return ramp_err_set(
			err, ESTALE,
			"%s has come up with another store since (incarnation %016" PRIx64
			", here %016" PRIx64 ")",
			row->name, row->incarnation, request->incarnation);
	return ramp_err_set(err, EPERM,
			    "the incarnation %016" PRIx64
			    " of %s was fenced: %u segments are named as its, and lost",
			    row->incarnation, row->name, use.n);
}

/*
 * Takes a node back that has lost its journal, and has its store. It keeps number and incarnation, so that
 * no row and no record changes: for the transfer of its segments it was down for a while. Its votes and
 * acknowledgements are lost, which fsm_members.c deals with.
 */
static int join_kept(struct member_view *v, const struct join_request *request,
		     struct join_answer *answer, struct ramp_err *err)
{
	struct node_row row;

	if (meta_node_by_name(v->meta, request->name, &row))
		return ramp_err_set(err, ENOENT, "%s is no member: it joins with --join",
				    request->name);
	if (member_is_heard(v, row.node))
		return ramp_err_set(err, EBUSY, "%s is alive: this node hears it", row.name);
	if (row.incarnation != request->incarnation || row.fenced == row.incarnation)
		return store_is_over(v, &row, request, err);
	if (request->address[0] && strcmp(request->address, row.address) != 0)
		return ramp_err_set(
			err, EINVAL,
			"%s keeps its address %s (rampfs-node recover --address gives it "
			"another, once it is back)",
			row.name, row.address);
	answer->node = row.node;
	return member_again(v, &row, request->instance, &answer->life, err);
}

static int tell_member(void *arg, const struct node_row *row)
{
	struct join_answer *answer = arg;
	struct join_member *to = &answer->members[answer->n_members];

	if (row->role == NODE_REMOVED)
		return 0;
	to->node = row->node;
	memcpy(to->name, row->name, sizeof(to->name));
	memcpy(to->address, row->address, sizeof(to->address));
	to->capacity_bytes = row->capacity;
	to->voter = row->role == NODE_VOTER;
	return ++answer->n_members == JOIN_MEMBERS_MAX;
}

static int take_in(struct member_view *v, const struct join_request *request,
		   struct join_answer *answer, struct ramp_err *err)
{
	int rc;

	/* First: a node that is taken in must get the answer. */
	answer->members = calloc(JOIN_MEMBERS_MAX, sizeof(*answer->members));
	rc = answer->members ? member_catch_up(v, err) : ramp_err_sys(err, ENOMEM, "a join");
	if (!rc)
		rc = (request->kind == JOIN_KEPT    ? join_kept
		      : request->kind == JOIN_AGAIN ? join_again
						    : join_new)(v, request, answer, err);
	answer->result = rc;
	if (rc) {
		visible(answer->text, sizeof(answer->text), err->text);
		return rc;
	}
	snprintf(answer->cluster, sizeof(answer->cluster), "%s", v->cluster);
	meta_arena(v->meta, &answer->arena_addr, &answer->arena_len);
	meta_each_node(v->meta, tell_member, answer);
	return 0;
}

void member_join(struct member_view *v, int fd, const struct hello *hello)
{
	struct join_request request = {0};
	struct join_answer answer = {0};
	struct ramp_err err = {0};
	int rc = join_receive(fd, hello, &request, &err);

	if (!rc) {
		rc = take_in(v, &request, &answer, &err);
		if (join_reply(fd, hello, &answer, rc ? NULL : &err) && !rc)
			rc = -err.code;
	}
	if (rc == -ENOMSG)
		log_info("a program has asked whether this node lives (rampfs-node recover does)");
	else if (rc)
		log_warn("a node that wants to join%s%s: %s", request.name[0] ? " as " : "",
			 request.name, err.text);
	free(answer.members);
}
