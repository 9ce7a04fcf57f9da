/*
 * Callbacks of meta and peers may come as soon as those are open. They are passed up only once
 * every floor is open (cluster_start). A floor that starts after that (transfers_start,
 * mount_start) reads the tables again and so misses nothing.
 */
#include "floors.h"

#include "daemon.h"
#include "keeper/protocol.h"
#include "memory/store.h"
#include "mount/row_note.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "remembered.h"
#include "serve/serve.h"
#include "transfer/transfer.h"

/* ---- callbacks of the cluster ---- */

static void on_row_changed(void *arg, ramp_segment_t id, bool attributes)
{
	struct floors *f = arg;

	if (attributes)
		transfers_attributes_changed(f->transfers, id);
	else
		transfers_row_changed(f->transfers, id);
	mount_row_changed(f->mount, id);
}

static void on_rows_restored(void *arg)
{
	struct floors *f = arg;

	mount_rows_restored(f->mount);
}

static void on_node_fenced(void *arg, ramp_node_t node, ramp_incarnation_t fenced)
{
	struct floors *f = arg;

	pull_source_over(f->pull, node, fenced);
}

static void on_peer_changed(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up)
{
	struct floors *f = arg;

	transfers_peer_changed(f->transfers, node, incarnation, up);
}

static void on_meta_again(void *arg)
{
	struct floors *f = arg;

	f->config.ended(f->config.arg, MOUNT_UPGRADE);
}

/* ---- opening and closing ---- */

static int open_cluster(struct floors *f, struct ramp_err *err)
{
	const struct cluster_config config = {.loop = f->loop,
					      .dir = f->config.daemon->dir,
					      .store = f->store,
					      .living = f->config.daemon->living,
					      .incarnation = store_incarnation(f->store),
					      .transport = f->config.transport,
					      .streams = f->config.streams,
					      .limit_bytes_s =
						      f->config.daemon->options->limit_sent,
					      .row_changed = on_row_changed,
					      .rows_restored = on_rows_restored,
					      .node_fenced = on_node_fenced,
					      .peer_changed = on_peer_changed,
					      .meta_again = on_meta_again,
					      .arg = f};

	return cluster_open(&config, &f->cluster, err);
}

static int open_programs(struct floors *f, struct ramp_err *err)
{
	static const int fdstore[2] = {KEEPER_FD_FDSTORE, KEEPER_FD_LAST};
	const struct daemon_config *daemon = f->config.daemon;
	struct programs_config config = {.loop = f->loop,
					 .fdstore = fdstore,
					 .store = f->store,
					 .meta = f->cluster.meta,
					 .listen_fd = KEEPER_FD_SESSIONS,
					 .session_path = daemon->session_path,
					 .mountpoint = daemon->mountpoint,
					 .uffd_group = daemon->options->uffd_group};

	return programs_open(&config, &f->programs, err);
}

static int open_transfers(struct floors *f, struct ramp_err *err)
{
	struct transfers_config config = {.loop = f->loop,
					  .noted_name = row_note_name,
					  .store = f->store,
					  .meta = f->cluster.meta,
					  .peers = f->cluster.peers,
					  .tp = f->cluster.tp,
					  .programs = f->programs,
					  .serve = f->serve,
					  .limit_bytes_s = f->config.daemon->options->limit_sent,
					  .rollback_auto = f->config.daemon->options->rollback_auto,
					  .mode = f->config.daemon->options->move_mode,
					  .quiesce_ms =
						  (uint32_t)f->config.daemon->options->quiesce_ms};
	struct pull_config pull = {.store = f->store,
				   .programs = f->programs,
				   .tp = f->cluster.tp,
				   .streams = f->config.streams,
				   .limit_bytes_s = f->config.daemon->options->limit_received,
				   .finished = transfers_pull_finished};
	int rc = transfers_open(&config, &f->transfers, err);

	pull.arg = f->transfers;
	return rc ? rc : pull_open(&pull, &f->pull, err);
}

static int open_mount(struct floors *f, struct ramp_err *err)
{
	const struct daemon_config *daemon = f->config.daemon;
	struct mount_config config = {.loop = f->loop,
				      .store = f->store,
				      .meta = f->cluster.meta,
				      .peers = f->cluster.peers,
				      .programs = f->programs,
				      .pull = f->pull,
				      .transfers = f->transfers,
				      .connection = daemon->connection,
				      .session_path = daemon->session_path,
				      .mountpoint = daemon->mountpoint,
				      .adopt_argv = daemon->adopt_argv,
				      .threads = (uint32_t)daemon->options->threads,
				      .debug = daemon->options->debug,
				      .ended = f->config.ended,
				      .arg = f->config.arg};

	return mount_open(&config, &f->mount, err);
}

int floors_open(const struct floors_config *config, struct floors *f, struct ramp_err *err)
{
	int rc;

	f->config = *config;
	rc = loop_open(&f->loop, err);
	if (!rc)
		rc = store_open(config->daemon->dir->path, config->capacity_bytes, &f->store, err);
	if (!rc) {
		store_set_flags(f->store, config->daemon->options->mount_flags);
		remembered_save(f->store, config->daemon->dir);
		rc = open_cluster(f, err);
	}
	if (!rc)
		rc = open_programs(f, err);
	if (!rc)
		rc = cluster_open_members(&f->cluster, f->programs, err);
	if (!rc)
		rc = serve_open(f->cluster.tp, &f->serve, err);
	if (!rc)
		rc = open_transfers(f, err);
	return rc ? rc : open_mount(f, err);
}

int floors_start(struct floors *f, struct ramp_err *err)
{
	int rc;

	cluster_start(&f->cluster);
	rc = transfers_start(f->transfers, f->pull, err);
	return rc ? rc : mount_start(f->mount, err);
}

void floors_close(struct floors *f)
{
	cluster_silence(&f->cluster);
	if (f->mount)
		mount_stop(f->mount);
	cluster_close_members(&f->cluster);
	if (f->transfers)
		transfers_close(f->transfers);
	if (f->pull)
		pull_close(f->pull);
	if (f->serve)
		serve_close(f->serve);
	if (f->programs)
		programs_close(f->programs);
	cluster_stop(&f->cluster);
	if (f->transfers)
		transfers_free(f->transfers);
	cluster_close(&f->cluster);
	if (f->mount)
		mount_free(f->mount);
	if (f->store)
		store_close(f->store);
	if (f->loop)
		loop_close(f->loop);
}
