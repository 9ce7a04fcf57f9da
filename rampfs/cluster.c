/*
 * Happy path: Raft's messages go to peers and come from them, a change of the membership makes the
 * peers those that the tables name, and all else is passed up.
 *
 * How it fails: callbacks of meta and peers may come as soon as those are open. Until every floor
 * is open (cluster_start), and from cluster_silence on, they are passed up no more, and nothing is
 * lost by that: a floor that starts reads the tables, Raft sends again, and a node that wants to
 * join asks again.
 */
#include "cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "by_records.h"
#include "members.h"
#include "meta/meta.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"
#include "transport/transport.h"

#define ALONE_MS 10000

/* ---- callbacks of meta and peers ---- */

static int refresh_node(void *arg, const struct node_row *row)
{
	struct cluster *c = arg;
	struct node_row dialed = *row;

	if (row->node == meta_self(c->meta))
		return 0;
	meta_overrule_address(c->meta, &dialed);
	/* A removed node stays a peer until the configuration says so, too: its vote may be needed
	   for that. */
	if (row->role == NODE_REMOVED && !meta_in_configuration(c->meta, row->node))
		peers_remove(c->peers, row->node);
	else
		peers_set(c->peers, row->node, row->name, dialed.address);
	/* LOST never follows from a copy. */
	if (row->fenced && !meta_why_copy(c->meta))
		c->config.node_fenced(c->config.arg, row->node, row->fenced);
	return 0;
}

/* Takes over a changed membership. Control loop. */
static void refresh_nodes(void *arg)
{
	struct cluster *c = arg;

	if (!atomic_load(&c->running))
		return;
	atomic_store(&c->nodes_asked, false);
	meta_each_node(c->meta, refresh_node, c);
	if (!meta_why_copy(c->meta))
		by_records_keep(c->config.store, c->meta);
	c->config.row_changed(c->config.arg, 0, false);
}

static void on_meta_changed(void *arg, ramp_segment_t id, bool attributes)
{
	struct cluster *c = arg;

	if (!atomic_load(&c->running))
		return;
	if (id)
		c->config.row_changed(c->config.arg, id, attributes);
	else if (!atomic_exchange(&c->nodes_asked, true))
		loop_post(c->config.loop, refresh_nodes, c);
}

static void on_meta_restored(void *arg)
{
	struct cluster *c = arg;

	if (atomic_load(&c->running))
		c->config.rows_restored(c->config.arg);
}

/* A member that this node's tables do not know yet. */
struct heard_of {
	struct cluster *cluster;
	struct node_row row;
};

static void find_member(void *arg)
{
	struct heard_of *h = arg;
	struct cluster *c = h->cluster;
	struct node_row known;

	if (atomic_load(&c->running) && meta_node(c->meta, h->row.node, &known) == -ENOENT)
		peers_set(c->peers, h->row.node, h->row.name, h->row.address);
	free(h);
}

static void on_meta_heard_of(void *arg, const struct node_row *row)
{
	struct cluster *c = arg;
	struct heard_of *h = atomic_load(&c->running) ? malloc(sizeof(*h)) : NULL;

	if (!h)
		return;
	*h = (struct heard_of){.cluster = c, .row = *row};
	loop_post(c->config.loop, find_member, h);
}

static void on_meta_send(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	struct cluster *c = arg;

	if (atomic_load(&c->running))
		peer_send(c->peers, to, PROTO_RAFT, bytes, len);
}

static void on_raft(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		    struct wire_r *body)
{
	struct cluster *c = arg;

	(void)incarnation;
	meta_receive(c->meta, from, peer_instance(c->peers, from), body->buf + body->pos,
		     body->len - body->pos);
}

static void on_peer(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up)
{
	struct cluster *c = arg;

	log_info("node %u is %s", node, up ? "up" : "down");
	c->heard |= up;
	meta_peer(c->meta, node, up);
	if (atomic_load(&c->running))
		c->config.peer_changed(c->config.arg, node, incarnation, up);
}

static int is_other_member(void *arg, const struct node_row *row)
{
	struct cluster *c = arg;

	return row->role != NODE_REMOVED && row->node != meta_self(c->meta);
}

/*
 * Warns where no other member was heard. Of two nodes the one with the smaller number connects, so
 * a new node waits for all of them. An address by which the others can't reach this node is not
 * visible from here, only that no member connects.
 */
static void on_alone(uv_timer_t *timer)
{
	struct cluster *c = timer->data;
	struct node_row self;

	if (c->heard || meta_each_node(c->meta, is_other_member, c) != 1 ||
	    meta_node(c->meta, meta_self(c->meta), &self) || self.role == NODE_REMOVED)
		return;
	log_warn("no other member is heard, %d s after the start: they are down, or do not reach "
		 "this node at %s",
		 ALONE_MS / 1000, self.address);
	if (self.role == NODE_STANDBY && !self.incarnation)
		log_warn("if that address is wrong: rampfs-node remove %s at a member, and "
			 "mkfs.rampfs --join with another",
			 self.name);
}

/* Takes a node that wants to be a member. One that comes before every floor is open comes again. */
static void on_join(void *arg, int fd, const struct hello *hello)
{
	struct cluster *c = arg;

	if (atomic_load(&c->running))
		members_join(c->members, fd, hello);
	else
		close(fd);
}

/* ---- opening and closing ---- */

static void on_turn_failed(void *arg, const char *text, bool of_copy)
{
	struct cluster *c = arg;

	without_meta_note(c->config.dir, text, of_copy);
}

static void on_disk_recovered(void *arg)
{
	struct cluster *c = arg;

	if (!atomic_load(&c->running))
		return;
	without_meta_forget(c->config.dir);
	c->config.meta_again(c->config.arg);
}

static int open_meta(struct cluster *c, struct ramp_err *err)
{
	struct meta_config config = {.send = on_meta_send,
				     .changed = on_meta_changed,
				     .restored = on_meta_restored,
				     .heard_of = on_meta_heard_of,
				     .turn_failed = on_turn_failed,
				     .arg = c};
	const struct without_meta_config wc = {
		.dir = c->config.dir, .store = c->config.store, .living = c->config.living};

	return without_meta_open(&config, &wc, &c->meta, &c->without, err);
}

/* Warns where this node's file names another address: the others know its address from the tables,
   which a file here does not change. */
static void check_address(const struct cluster *c, const struct node_row *self)
{
	const struct config_node *own = config_find(&c->config.dir->config, c->config.dir->node);

	if (own && strcmp(own->address, self->address) != 0)
		log_warn("%s/cluster.conf: address=%s does not count: the cluster knows this node "
			 "at %s (rampfs-node recover --address gives it another)",
			 c->config.dir->path, own->address, self->address);
}

static int open_peers(struct cluster *c, struct ramp_err *err)
{
	struct peers_config config = {.loop = c->config.loop,
				      .self = meta_self(c->meta),
				      .incarnation = c->config.incarnation,
				      .instance = meta_instance(c->meta),
				      .up = on_peer,
				      .join = on_join,
				      .arg = c};
	struct transport_config tp = {.loop = c->config.loop,
				      .choice = c->config.transport,
				      .streams = c->config.streams,
				      .limit_bytes_s = c->config.limit_bytes_s};
	struct node_row self;
	int rc = meta_node(c->meta, config.self, &self);

	if (rc)
		return ramp_err_sys(err, -rc, "the journal has no row of this node");
	meta_overrule_address(c->meta, &self);
	check_address(c, &self);
	meta_cluster_id(c->meta, config.cluster_id);
	memcpy(config.key, c->config.dir->key, sizeof(config.key));
	config.listen_address = self.address;
	config.listen_later = c->config.living;
	rc = peers_open(&config, &c->peers, err);
	if (rc)
		return rc;
	peers_on(c->peers, PROTO_RAFT, on_raft, c);
	tp.peers = c->peers;
	tp.address = self.address;
	return transport_open(&tp, &c->tp, err);
}

int cluster_open(const struct cluster_config *config, struct cluster *c, struct ramp_err *err)
{
	int rc;

	c->config = *config;
	rc = open_meta(c, err);
	return rc ? rc : open_peers(c, err);
}

int cluster_open_members(struct cluster *c, struct programs *programs, struct ramp_err *err)
{
	struct members_config config = {.loop = c->config.loop,
					.meta = c->meta,
					.peers = c->peers,
					.cluster = c->config.dir->config.name};
	int rc = members_open(&config, &c->members, err);

	if (!rc)
		programs_set_members(programs, members_asked, c->members);
	return rc;
}

void cluster_start(struct cluster *c)
{
	uv_timer_init(loop_uv(c->config.loop), &c->alone);
	c->alone.data = c;
	uv_timer_start(&c->alone, on_alone, ALONE_MS, 0);
	atomic_store(&c->running, true);
	if (meta_why_copy(c->meta)) {
		c->probe = (struct disk_probe){.loop = c->config.loop,
					       .dir = c->config.dir,
					       .needs_journal = c->without.needs_journal,
					       .journal = c->without.journal,
					       .recovered = on_disk_recovered,
					       .arg = c};
		disk_probe_start(&c->probe);
	}
	refresh_nodes(c);
}

void cluster_silence(struct cluster *c)
{
	atomic_store(&c->running, false);
}

void cluster_close_members(struct cluster *c)
{
	if (c->members)
		members_close(c->members);
}

void cluster_stop(struct cluster *c)
{
	if (c->tp)
		c->tp->ops->stop(c->tp);
	if (c->meta)
		meta_close(c->meta);
}

void cluster_close(struct cluster *c)
{
	if (c->peers)
		peers_close(c->peers);
}
