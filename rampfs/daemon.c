/*
 * The daemon: opens every floor from the bottom up, wires what calls up, runs the control loop, and
 * closes everything in the opposite order.
 *
 * What calls up is wired in two steps: callbacks of meta and peers may come as soon as those are
 * open, so they look at `running`, which is set when all floors stand; whoever starts after that
 * (transfers_start, mount_start) reads the tables anew and so misses nothing.
 *
 * How it ends: umount takes the names away, not the memory, so the daemon first finishes what is
 * being pulled in both directions (for as long as it gets on; the records let the next start go
 * on), hands over leadership, and exits. SIGTERM, also after an umount, waits for no pull; but a
 * move that is prepared and not given is ended first in either case, since its row could not be
 * changed until the next start. An upgrade exits at once: the next daemon takes all up.
 */
#include "daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cpu_weight.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/statedir.h"
#include "keeper/inherited.h"
#include "keeper/protocol.h"
#include "members.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "mount/mount.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "serve/serve.h"
#include "transfer/transfer.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"
#include "transport/transport.h"

#define DESCRIPTORS    1048576
#define LINGER_LOOK_MS 20
#define LINGER_IDLE_MS 5000
#define UNDECIDED_MS   2000 /* for an abort to be committed */
#define HANDOVER_MS    500  /* for the next leader to be heard of */
#define ALONE_MS       10000

struct daemon {
	const struct daemon_config *config;
	struct statedir dir;
	uint64_t connection;
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct members *members;
	struct tp *tp;
	struct programs *programs;
	struct transfers *transfers;
	struct serve *serve;
	struct pull *pull;
	struct mount *mount;
	atomic_bool running;	 /* all floors stand */
	atomic_bool nodes_asked; /* refresh_nodes is posted */
	uv_timer_t linger;	 /* control loop; and what it saw last, and when that changed */
	uint64_t linger_seen, linger_since_ms;
	uv_timer_t alone; /* control loop: once, where nobody was heard by then */
	bool heard;	  /* control loop: some other member, ever */
};

/* ---- what calls up ----------------------------------------------------------------------------
 */

static int refresh_node(void *arg, const struct node_row *row)
{
	struct daemon *d = arg;

	if (row->node == meta_self(d->meta))
		return 0;
	/* Until the configuration says so, too, its voice may be needed for that. */
	if (row->role == NODE_REMOVED && !meta_in_configuration(d->meta, row->node))
		peers_remove(d->peers, row->node);
	else
		peers_set(d->peers, row->node, row->name, row->address);
	if (row->fenced)
		pull_source_over(d->pull, row->node, row->fenced);
	return 0;
}

/* The membership has changed: control loop. */
static void refresh_nodes(void *arg)
{
	struct daemon *d = arg;

	if (!atomic_load(&d->running))
		return;
	atomic_store(&d->nodes_asked, false);
	meta_each_node(d->meta, refresh_node, d);
	transfers_row_changed(d->transfers, 0);
	mount_row_changed(d->mount, 0);
}

static void on_meta_changed(void *arg, ramp_segment_t id, bool attributes)
{
	struct daemon *d = arg;

	if (!atomic_load(&d->running))
		return;
	if (id) {
		if (!attributes)
			transfers_row_changed(d->transfers, id);
		mount_row_changed(d->mount, id);
	} else if (!atomic_exchange(&d->nodes_asked, true)) {
		loop_post(d->loop, refresh_nodes, d);
	}
}

static void on_meta_restored(void *arg)
{
	struct daemon *d = arg;

	if (atomic_load(&d->running))
		mount_rows_restored(d->mount);
}

/* A member that our tables do not know yet. */
struct heard_of {
	struct daemon *daemon;
	struct node_row row;
};

static void find_member(void *arg)
{
	struct heard_of *h = arg;
	struct daemon *d = h->daemon;
	struct node_row known;

	if (atomic_load(&d->running) && meta_node(d->meta, h->row.node, &known) == -ENOENT)
		peers_set(d->peers, h->row.node, h->row.name, h->row.address);
	free(h);
}

static void on_meta_heard_of(void *arg, const struct node_row *row)
{
	struct daemon *d = arg;
	struct heard_of *h = atomic_load(&d->running) ? malloc(sizeof(*h)) : NULL;

	if (!h)
		return;
	*h = (struct heard_of){.daemon = d, .row = *row};
	loop_post(d->loop, find_member, h);
}

static void on_meta_send(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	struct daemon *d = arg;

	if (atomic_load(&d->running))
		peer_send(d->peers, to, PROTO_RAFT, bytes, len);
}

static void on_raft(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		    struct wire_r *body)
{
	struct daemon *d = arg;

	(void)incarnation;
	meta_receive(d->meta, from, peer_instance(d->peers, from), body->buf + body->pos,
		     body->len - body->pos);
}

static void on_peer(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up)
{
	struct daemon *d = arg;

	log_info("node %u is %s", node, up ? "up" : "down");
	d->heard |= up;
	meta_peer(d->meta, node, up);
	if (atomic_load(&d->running))
		transfers_peer_changed(d->transfers, node, incarnation, up);
}

static int is_other_member(void *arg, const struct node_row *row)
{
	struct daemon *d = arg;

	return row->role != NODE_REMOVED && row->node != meta_self(d->meta);
}

/*
 * Of two nodes the one with the smaller number connects, so a newcomer waits for all of them. An
 * address by which nobody finds it can't be seen from here, only that nobody comes.
 */
static void on_alone(uv_timer_t *timer)
{
	struct daemon *d = timer->data;
	struct node_row self;

	if (d->heard || meta_each_node(d->meta, is_other_member, d) != 1 ||
	    meta_node(d->meta, meta_self(d->meta), &self) || self.role == NODE_REMOVED)
		return;
	log_warn("no other member is heard, %d s after the start: they are down, or do not reach "
		 "this node at %s",
		 ALONE_MS / 1000, self.address);
	if (self.role == NODE_STANDBY && !self.incarnation)
		log_warn("if that address is wrong: rampfs-node remove %s at a member, and "
			 "mkfs.rampfs --join with another",
			 self.name);
}

/* Somebody wants to be a member: whoever comes before all floors stand comes again. */
static void on_join(void *arg, int fd, const struct hello *hello)
{
	struct daemon *d = arg;

	if (atomic_load(&d->running))
		members_join(d->members, fd, hello);
	else
		close(fd);
}

/* ---- the end ------------------------------------------------------------------------------------
 */

static void count_under_way(void *arg, struct seg *seg)
{
	unsigned *n = arg;
	struct record record;

	record_get(seg, &record);
	*n += record.kind == RECORD_GIVEN || record.kind == RECORD_TAKEN;
}

/* As on_linger, in a hurry: only what nobody else could end, with moves that began meanwhile. */
static void on_undecided(uv_timer_t *timer)
{
	struct daemon *d = timer->data;

	if (transfers_undecided(d->transfers, true) &&
	    uv_now(loop_uv(d->loop)) - d->linger_since_ms < UNDECIDED_MS)
		return;
	uv_timer_stop(timer);
	loop_stop(d->loop);
}

static int is_other_voter(void *arg, const struct node_row *row)
{
	struct daemon *d = arg;

	return row->role == NODE_VOTER && row->node != meta_self(d->meta);
}

static bool leads(struct daemon *d)
{
	return meta_leader(d->meta) == meta_self(d->meta);
}

static void on_handing_over(uv_timer_t *timer)
{
	struct daemon *d = timer->data;

	if (leads(d) && uv_now(loop_uv(d->loop)) - d->linger_since_ms < HANDOVER_MS) {
		meta_transfer_leadership(d->meta); /* the others may have lagged until now */
		return;
	}
	uv_timer_start(timer, on_undecided, 0, LINGER_LOOK_MS);
}

/* Who leads next is told to: an election time-out is a time in which nobody creates or moves. */
static void leave_cluster(struct daemon *d)
{
	d->linger_since_ms = uv_now(loop_uv(d->loop));
	if (!leads(d) || meta_each_node(d->meta, is_other_voter, d) != 1) {
		uv_timer_start(&d->linger, on_undecided, 0, LINGER_LOOK_MS);
		return;
	}
	meta_transfer_leadership(d->meta);
	uv_timer_start(&d->linger, on_handing_over, LINGER_LOOK_MS, LINGER_LOOK_MS);
}

static void on_linger(uv_timer_t *timer)
{
	struct daemon *d = timer->data;
	uint64_t now = uv_now(loop_uv(d->loop));
	struct pull_status pull;
	unsigned left = 0;

	store_each(d->store, count_under_way, &left);
	left += transfers_undecided(d->transfers, false);
	pull_status(d->pull, &pull);
	if (pull.bytes + pull.served_bytes != d->linger_seen) {
		d->linger_seen = pull.bytes + pull.served_bytes;
		d->linger_since_ms = now;
	}
	if (left && now - d->linger_since_ms < LINGER_IDLE_MS)
		return;
	if (left)
		log_warn("%u segments are still on their way and do not get on; the next start "
			 "goes on with them",
			 left);
	leave_cluster(d);
}

static void on_ended(void *arg, enum mount_end why)
{
	struct daemon *d = arg;

	if (why == MOUNT_UPGRADE) {
		log_info("handing over to a new daemon");
		loop_stop(d->loop);
		return;
	}
	d->linger_since_ms = uv_now(loop_uv(d->loop));
	if (why == MOUNT_TERMINATE) {
		log_info("told to end; the next start goes on with what is on its way");
		leave_cluster(d);
		return;
	}
	log_info("unmounted; finishing what is on its way");
	transfers_take_no_more(d->transfers);
	uv_timer_start(&d->linger, on_linger, 0, LINGER_LOOK_MS);
}

/* ---- opening and closing ------------------------------------------------------------------------
 */

static int open_meta(struct daemon *d, struct ramp_err *err)
{
	char journal[PATH_MAX];
	struct meta_config config = {.journal_path = journal,
				     .send = on_meta_send,
				     .changed = on_meta_changed,
				     .restored = on_meta_restored,
				     .heard_of = on_meta_heard_of,
				     .arg = d};
	int rc = statedir_file(d->dir.path, "journal.db", journal, err);

	return rc ? rc : meta_open(&config, &d->meta, err);
}

/* The others know where it listens from the tables: that is not changed by a file here. */
static void check_address(const struct daemon *d, const struct node_row *self)
{
	const struct config_node *own = config_find(&d->dir.config, d->dir.node);

	if (own && strcmp(own->address, self->address) != 0)
		log_warn("%s/cluster.conf: address=%s does not count: the cluster knows this node "
			 "at %s (mkfs.rampfs --rejoin gives it another)",
			 d->dir.path, own->address, self->address);
}

static int open_peers(struct daemon *d, struct ramp_err *err)
{
	struct peers_config config = {.loop = d->loop,
				      .self = meta_self(d->meta),
				      .incarnation = store_incarnation(d->store),
				      .instance = meta_instance(d->meta),
				      .up = on_peer,
				      .join = on_join,
				      .arg = d};
	struct node_row self;
	int rc = meta_node(d->meta, config.self, &self);

	if (rc)
		return ramp_err_sys(err, -rc, "the journal has no row of this node");
	check_address(d, &self);
	meta_cluster_id(d->meta, config.cluster_id);
	memcpy(config.key, d->dir.key, sizeof(config.key));
	config.listen_address = self.address;
	rc = peers_open(&config, &d->peers, err);
	if (!rc)
		peers_on(d->peers, PROTO_RAFT, on_raft, d);
	return rc ? rc : transport_open(d->peers, &d->tp, err);
}

static int open_programs(struct daemon *d, struct ramp_err *err)
{
	static const int shelf[2] = {KEEPER_FD_SHELF, KEEPER_FD_LAST};
	struct programs_config config = {.loop = d->loop,
					 .shelf = shelf,
					 .store = d->store,
					 .meta = d->meta,
					 .listen_fd = KEEPER_FD_SESSIONS,
					 .session_path = d->config->session_path,
					 .mountpoint = d->config->mountpoint,
					 .uffd_group = d->config->options->uffd_group};

	return programs_open(&config, &d->programs, err);
}

static int open_members(struct daemon *d, struct ramp_err *err)
{
	struct members_config config = {
		.loop = d->loop, .meta = d->meta, .peers = d->peers, .cluster = d->dir.config.name};
	int rc = members_open(&config, &d->members, err);

	if (!rc)
		programs_set_members(d->programs, members_asked, d->members);
	return rc;
}

static int open_transfers(struct daemon *d, struct ramp_err *err)
{
	struct transfers_config config = {.loop = d->loop,
					  .store = d->store,
					  .meta = d->meta,
					  .peers = d->peers,
					  .tp = d->tp,
					  .programs = d->programs,
					  .serve = d->serve,
					  .rollback_auto = d->config->options->rollback_auto};
	struct pull_config pull = {.store = d->store,
				   .programs = d->programs,
				   .tp = d->tp,
				   .finished = transfers_pull_finished};
	int rc = transfers_open(&config, &d->transfers, err);

	pull.arg = d->transfers;
	return rc ? rc : pull_open(&pull, &d->pull, err);
}

static int open_mount(struct daemon *d, struct ramp_err *err)
{
	struct mount_config config = {.loop = d->loop,
				      .store = d->store,
				      .meta = d->meta,
				      .peers = d->peers,
				      .programs = d->programs,
				      .pull = d->pull,
				      .transfers = d->transfers,
				      .connection = d->connection,
				      .session_path = d->config->session_path,
				      .mountpoint = d->config->mountpoint,
				      .adopt_argv = d->config->adopt_argv,
				      .threads = (uint32_t)d->config->options->threads,
				      .debug = d->config->options->debug,
				      .ended = on_ended,
				      .arg = d};

	return mount_open(&config, &d->mount, err);
}

static int open_all(struct daemon *d, struct ramp_err *err)
{
	const struct config_node *self;
	int rc = keeper_inherited(&d->connection, err);

	if (!rc)
		rc = statedir_read(d->config->state_dir, &d->dir, err);
	if (rc)
		return rc;
	self = config_find(&d->dir.config, d->dir.node);
	if (!self)
		return ramp_err_set(err, EINVAL, "%s/cluster.conf: has no [node %s]", d->dir.path,
				    d->dir.node);
	if (self->transport == CONFIG_TRANSPORT_VERBS)
		return ramp_err_set(err, ENOTSUP,
				    "node %s asks for transport=verbs, which this version does not "
				    "have (transport=auto or tcp)",
				    d->dir.node);
	rc = loop_open(&d->loop, err);
	if (!rc)
		rc = store_open(d->dir.path, self->capacity_bytes, &d->store, err);
	if (!rc)
		store_set_flags(d->store, d->config->options->mount_flags);
	if (!rc)
		rc = open_meta(d, err);
	if (!rc)
		rc = open_peers(d, err);
	if (!rc)
		rc = open_programs(d, err);
	if (!rc)
		rc = open_members(d, err);
	if (!rc)
		rc = serve_open(d->tp, &d->serve, err);
	if (!rc)
		rc = open_transfers(d, err);
	return rc ? rc : open_mount(d, err);
}

static void close_all(struct daemon *d)
{
	atomic_store(&d->running, false);
	if (d->mount)
		mount_stop(d->mount);
	if (d->members)
		members_close(d->members);
	if (d->transfers)
		transfers_close(d->transfers);
	if (d->pull)
		pull_close(d->pull);
	if (d->serve)
		serve_close(d->serve);
	if (d->programs)
		programs_close(d->programs);
	if (d->tp)
		d->tp->ops->stop(d->tp);
	if (d->meta)
		meta_close(d->meta);
	if (d->transfers)
		transfers_free(d->transfers);
	if (d->peers)
		peers_close(d->peers);
	if (d->mount)
		mount_free(d->mount);
	if (d->store)
		store_close(d->store);
	if (d->loop)
		loop_close(d->loop);
	statedir_free(&d->dir);
}

/* Five descriptors a program, two a segment: as many as the kernel lets a process have. */
static void raise_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};

	if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int daemon_run(const struct daemon_config *config, struct ramp_err *err)
{
	struct daemon d = {.config = config};
	int rc;

	/* The keeper says when to end (mount_config.ended). A broken pipe and a limit that could not be
	   lifted are an errno to us; a lease is let go of at once, whoever breaks it (fanotify does). */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	raise_descriptors();
	kernel_slice_set(0, 0); /* whoever has begun us may page fault (slice.c) */
	cpu_weight_set((int)config->options->nice);
	rc = open_all(&d, err);
	if (!rc) {
		uv_timer_init(loop_uv(d.loop), &d.linger);
		d.linger.data = &d;
		uv_timer_init(loop_uv(d.loop), &d.alone);
		d.alone.data = &d;
		uv_timer_start(&d.alone, on_alone, ALONE_MS, 0);
		atomic_store(&d.running, true);
		refresh_nodes(&d);
		rc = transfers_start(d.transfers, d.pull, err);
	}
	if (!rc)
		rc = mount_start(d.mount, err);
	if (!rc) {
		log_info("node %s of cluster %s serves %s", d.dir.node, d.dir.config.name,
			 config->mountpoint);
		loop_run(d.loop);
	}
	close_all(&d);
	return rc;
}
