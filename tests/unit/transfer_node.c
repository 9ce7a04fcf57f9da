/*
 * One node of the tests' cluster: a daemon with the real store, peers and transfer floor, and the
 * doubles around it; it obeys the story's orders from a socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transfer/move_request.h"
#include "transfer/tool_moves.h"
#include "transfer_world.h"

static struct daemon {
	ramp_node_t self;
	int sock;
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct programs *programs;
	struct pull *pull;
	struct transfers *transfers;
	uint64_t handles[ASKS];
	pthread_t orders;
} d;

ramp_node_t world_self(void)
{
	return d.self;
}

static void die(const char *what, const struct ramp_err *err)
{
	fprintf(stderr, "node %u: %s: %s\n", d.self, what, err->text);
	_exit(3);
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct posted_order {
	struct command command;
};

static void answered(void *arg, int result, const char *text)
{
	struct answer *answer = arg;

	answer->result = result;
	snprintf(answer->text, sizeof(answer->text), "%s", text);
	atomic_store(&answer->done, true);
}

static void held(void *arg, enum session_step step, uint32_t ms)
{
	struct answer *answer = arg;

	(void)ms;
	atomic_store(&answer->held, (uint8_t)step);
}

static void go(const struct command *c)
{
	struct move_request *req = move_request_find(d.transfers, d.handles[c->ask]);

	if (req)
		move_request_go_on(req, c->step, c->hold_ms);
}

static void migrate(const struct command *c)
{
	struct migrate_request request = {
		.id = c->id,
		.from = atomic_load(&world->from),
		.dst = c->dst,
		.timeout_ms = c->timeout_ms,
		.wait_stable = c->wait,
		.in_steps = c->step != 0,
		.first_step = c->step,
		.hold_ms = c->hold_ms,
		.held = held,
		.force = atomic_load(&world->forced),
		.mode = (enum transfer_mode)atomic_load(&world->mode),
		.max_rounds = (uint8_t)atomic_load(&world->max_rounds),
		.queues = atomic_load(&world->queues),
		.limit_bytes_s = atomic_load(&world->limit_bytes_s),
	};

	snprintf(request.dst_name, sizeof(request.dst_name), "%s",
		 world->to_name[0] ? world->to_name : c->name);
	snprintf(request.from_name, sizeof(request.from_name), "%s", world->from_name);
	d.handles[c->ask] =
		transfers_migrate(d.transfers, &request, answered, &world->answers[c->ask]);
}

static void create(const struct command *c, struct command_reply *reply)
{
	struct ramp_err err = {0};
	struct seg *seg;

	reply->result = store_create(d.store, c->id, RECORD_OWNED, 1, &seg, &err);
	if (!reply->result)
		seg_put(seg);
}

static void count_move(void *arg, const struct transfer_row *row)
{
	struct command_reply *reply = arg;

	if (strcmp(row->state, "reserved") == 0)
		reply->reserved = true;
	else
		reply->moves++;
}

static void look(const struct command *c, struct command_reply *reply)
{
	struct seg *seg = store_find(d.store, c->id);
	struct transfers_status status;
	struct segment_row row;

	reply->known = meta_segment(d.meta, c->id, &row) == 0;
	reply->shown = reply->known && row.node == d.self;
	if (seg) {
		record_get(seg, &reply->record);
		reply->copying = seg_copying(seg);
		seg_put(seg);
	}
	transfers_each(d.transfers, count_move, reply);
	for (ramp_node_t n = 1; n <= NODES; n++)
		reply->peers_up += peer_up(d.peers, n);
	reply->rolled_back = transfers_rolled_back(d.transfers, c->id);
	transfers_status(d.transfers, &status);
	reply->failed = status.failed;
	if (transfers_prefill(d.transfers, c->id, &reply->prefill))
		snprintf(reply->prefill_state, sizeof(reply->prefill_state), "%s",
			 reply->prefill.state);
	if (transfers_move(d.transfers, c->id, &reply->move))
		snprintf(reply->move_state, sizeof(reply->move_state), "%s", reply->move.state);
	if (!transfers_figures(d.transfers, c->id, &reply->figures))
		reply->figures.id = 0;
	atomic_store(&world->window_us[d.self], status.window_last_us);
}

static void tool_answered_it(int result)
{
	struct command_reply reply = {.result = result};

	send(d.sock, &reply, sizeof(reply), MSG_NOSIGNAL);
}

/* As rampfs-migrate asks, to a node without a name, through the tools' door. */
static void tool_asks(const struct command *c)
{
	static struct tool_request request = {tool_answered_it};
	struct tool_migrate what = {
		.id = c->id, .mode = c->mode, .limit_bytes_s = c->limit_bytes_s};

	double_programs_tools(d.programs)->migrate(d.transfers, &request, &what);
}

static void set_peer(ramp_node_t node)
{
	char address[64];

	world_address(node, address);
	peers_set(d.peers, node, "?", address);
}

static void hang_up(ramp_node_t node)
{
	peers_remove(d.peers, node);
	set_peer(node);
}

static void carry_out(void *arg)
{
	struct posted_order *order = arg;
	struct command_reply reply = {0};

	switch (order->command.order) {
	case ORDER_MIGRATE:
		migrate(&order->command);
		break;
	case ORDER_CANCEL:
		transfers_cancel(d.transfers, d.handles[order->command.ask]);
		break;
	case ORDER_GO:
		go(&order->command);
		break;
	case ORDER_CREATE:
		create(&order->command, &reply);
		break;
	case ORDER_FINISHED:
		transfers_pull_finished(d.transfers, order->command.id, &(struct pull_figures){0});
		break;
	case ORDER_ANSWERED:
		double_programs_answered(order->command.id);
		break;
	case ORDER_TOOL:
		tool_asks(&order->command);
		free(order);
		return; /* its answer is the reply */
	case ORDER_QUIT:
		loop_stop(d.loop);
		break;
	case ORDER_TAKE_NO_MORE:
		transfers_refuse_new(d.transfers);
		break;
	case ORDER_HANG_UP:
		hang_up(order->command.dst);
		break;
	default:
		look(&order->command, &reply);
	}
	send(d.sock, &reply, sizeof(reply), MSG_NOSIGNAL);
	free(order);
}

static void *take_orders(void *arg)
{
	(void)arg;
	for (;;) {
		struct posted_order *order = calloc(1, sizeof(*order));
		bool quit;

		if (recv(d.sock, &order->command, sizeof(order->command), 0) <= 0) {
			free(order);
			return NULL;
		}
		quit = order->command.order == ORDER_QUIT;
		loop_post(d.loop, carry_out, order);
		if (quit)
			return NULL;
	}
}

/* ---- wiring, as rampfs/main does it ---------------------------------------------------------- */

static void on_changed(void *arg, ramp_segment_t id, bool attributes)
{
	(void)arg;
	if (!attributes && atomic_load(&world->running[d.self]))
		transfers_row_changed(d.transfers, id);
}

static void on_peer(void *arg, ramp_node_t node, ramp_incarnation_t incarnation, bool up)
{
	(void)arg;
	if (d.transfers)
		transfers_peer_changed(d.transfers, node, incarnation, up);
}

static void open_peers(struct ramp_err *err)
{
	char address[64];
	struct peers_config config = {
		.loop = d.loop,
		.self = d.self,
		.incarnation = store_incarnation(d.store),
		.instance = 1000 + d.self,
		.listen_address = address,
		.up = on_peer,
	};

	world_address(d.self, address);
	if (peers_open(&config, &d.peers, err))
		die("peers", err);
}

static void open_transfers(struct ramp_err *err)
{
	struct transfers_config config = {
		.loop = d.loop,
		.store = d.store,
		.meta = d.meta,
		.peers = d.peers,
		.programs = d.programs,
		.quiesce_ms = atomic_load(&world->quiesce_ms),
		.prefill_rest_ms = 30,
	};
	struct pull_config pull = {.store = d.store, .finished = transfers_pull_finished};

	if (transfers_open(&config, &d.transfers, err))
		die("transfers", err);
	pull.arg = d.transfers;
	pull_open(&pull, &d.pull, err);
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (n != d.self)
			set_peer(n);
}

/* As the programs floor does at its start: programs get access to segments that may be served. */
static void known_again(void *arg, struct seg *seg)
{
	struct record record;

	(void)arg;
	record_get(seg, &record);
	if (record_serves(&record) && !atomic_load(&world->sessions_away))
		programs_restore(d.programs, seg);
}

static void end(void)
{
	atomic_store(&world->running[d.self], false);
	fault_late_wait();
	transfers_close(d.transfers);
	/* As programs_close and others run the loop until their own work is done. */
	while (atomic_load(&world->linger)) {
		atomic_store(&world->lingers[d.self], true);
		uv_run(loop_uv(d.loop), UV_RUN_NOWAIT);
		usleep(200);
	}
	pull_close(d.pull);
	meta_close(d.meta);
	peers_close(d.peers);
	transfers_free(d.transfers);
	pthread_join(d.orders, NULL); /* it may be waking the loop yet */
	loop_close(d.loop);
	store_close(d.store);
	free(d.programs);
}

int world_node_main(ramp_node_t node, int sock)
{
	struct meta_config meta = {.changed = on_changed};
	struct ramp_err err = {0};
	char dir[PATH_LEN];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	d.self = node;
	d.sock = sock;
	log_open(node == 1   ? "a"
		 : node == 2 ? "b"
			     : "c",
		 0, getenv("TRANSFER_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
	snprintf(dir, sizeof(dir), "%s/%u", world->base, node);
	if (loop_open(&d.loop, &err))
		die("loop", &err);
	if (store_open(dir, CAPACITY, &d.store, &err))
		die("store", &err);
	d.programs = double_programs_open();
	d.meta = double_meta_open(&meta);
	open_peers(&err);
	open_transfers(&err);
	store_each(d.store, known_again, NULL);
	atomic_store(&world->running[d.self], true);
	if (transfers_start(d.transfers, d.pull, &err))
		die("start", &err);
	pthread_create(&d.orders, NULL, take_orders, NULL);
	loop_run(d.loop);
	end();
	return 0;
}
