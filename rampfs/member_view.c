#include "member_view.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/config.h"
#include "meta/meta.h"
#include "transport/peers/peer.h"

/* ---- asking meta ---- */

struct sync_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int result;
};

static void sync_done(void *arg, const struct meta_reply *reply)
{
	struct sync_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	w->result = reply->result;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int member_explain(int rc, struct ramp_err *err)
{
	if (rc == -EROFS)
		return ramp_err_set(err, EROFS, "there is no quorum: nothing was changed");
	if (rc == -ETIMEDOUT)
		return ramp_err_set(err, ETIMEDOUT,
				    "not done within 5 s; it may still happen (rampfs-node list "
				    "shows it)");
	if (rc == -ESHUTDOWN)
		return ramp_err_set(err, ESHUTDOWN, "the daemon ends");
	return ramp_err_sys(err, -rc, "the cluster refuses");
}

int member_catch_up(struct member_view *v, struct ramp_err *err)
{
	struct sync_wait w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

	meta_sync(v->meta, sync_done, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	return w.result ? member_explain(w.result, err) : 0;
}

int member_propose(struct member_view *v, struct meta_command *command, struct meta_reply *reply)
{
	if (atomic_load(&v->closing))
		return -ESHUTDOWN;
	command->cid = meta_own_command(v->meta);
	return meta_propose_wait(v->meta, command, reply);
}

int member_find(struct member_view *v, const char *name, struct node_row *row, struct ramp_err *err)
{
	return meta_node_by_name(v->meta, name, row)
		       ? ramp_err_set(err, ENOENT, "no such node: %s", name)
		       : 0;
}

bool member_is_self(struct member_view *v, const struct node_row *row)
{
	return row->node == meta_self(v->meta);
}

bool member_is_heard(struct member_view *v, ramp_node_t node)
{
	return node == meta_self(v->meta) || peer_up(v->peers, node);
}

static int count_use(void *arg, const struct segment_row *row)
{
	struct member_use *u = arg;

	if (row->node != u->node && row->dst != u->node && row->src != u->node)
		return 0;
	if (u->n++ == 0)
		memcpy(u->first, row->name, sizeof(u->first));
	u->others += row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING;
	return 0;
}

void member_look_at_use(struct member_view *v, ramp_node_t node, struct member_use *u)
{
	*u = (struct member_use){.node = node};
	meta_each_segment(v->meta, 0, 0, count_use, u);
}

struct voters {
	struct member_view *view;
	ramp_node_t without;
	unsigned int all, heard, voiceless; /* the last: of those that are heard */
};

static int count_voter(void *arg, const struct node_row *row)
{
	struct voters *n = arg;

	if (row->role != NODE_VOTER || row->node == n->without)
		return 0;
	n->all++;
	if (!member_is_heard(n->view, row->node))
		return 0;
	n->heard++;
	n->voiceless += meta_is_nonvoting(n->view->meta, row->node);
	return 0;
}

int member_check_rest(struct member_view *v, const struct node_row *row, struct ramp_err *err)
{
	struct voters n = {.view = v, .without = row->node};

	if (row->role != NODE_VOTER)
		return 0;
	meta_each_node(v->meta, count_voter, &n);
	if (n.all == 0)
		return ramp_err_set(err, EBUSY, "%s is the last voter", row->name);
	if (n.heard < n.all / 2 + 1)
		return ramp_err_set(err, EBUSY,
				    "without %s there are %u voters, and this node hears %u of "
				    "them: no quorum",
				    row->name, n.all, n.heard);
	if (n.heard - n.voiceless < n.all / 2 + 1)
		return ramp_err_set(err, EBUSY,
				    "without %s there are %u voters; this node hears %u, of which "
				    "%u have no vote (rampfs-node list): no quorum",
				    row->name, n.all, n.heard, n.voiceless);
	return 0;
}

struct same_address {
	const char *address, *but; /* but: a node that may have it */
	char name[RAMP_NODE_NAME_MAX + 1];
};

static int find_address(void *arg, const struct node_row *row)
{
	struct same_address *s = arg;

	if (row->role == NODE_REMOVED || strcmp(row->address, s->address) != 0 ||
	    strcmp(row->name, s->but) == 0)
		return 0;
	memcpy(s->name, row->name, sizeof(s->name));
	return 1;
}

int member_check_address(struct member_view *v, const char *name, const char *address,
			 struct ramp_err *err)
{
	struct same_address same = {.address = address, .but = name};

	if (!config_address_ok(address))
		return ramp_err_set(err, EINVAL, "an address is HOST:PORT, not \"%s\"", address);
	if (meta_each_node(v->meta, find_address, &same) == 1)
		return ramp_err_set(err, EEXIST, "node %s has the address %s", same.name, address);
	return 0;
}
