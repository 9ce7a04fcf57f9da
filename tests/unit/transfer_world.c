/*
 * The cluster as a story sees it: processes that are started, killed and asked.
 */
#include "transfer_world.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "own_mounts.h"
#include "transfer/tool_moves.h"

struct world *world;

static struct {
	pid_t pid;
	int sock;
} nodes[NODES + 1];

static struct {
	uint64_t pages, every, first; /* first: that is populated */
	uint64_t cut;		      /* pages from here on are holes; 0: no */
	uint8_t seed;
} made[ROWS];
static int n_made, n_asks;

int world_namespace(void)
{
	const char *tmp = getenv("TMPDIR");

	if (geteuid() != 0) {
		fprintf(stderr, "skipped: a store is a mount, which takes root\n");
		return 77;
	}
	if (own_mounts()) {
		perror("a mount namespace of our own");
		return 1;
	}
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (world == MAP_FAILED) {
		perror("memory that all share");
		return 1;
	}
	snprintf(world->base, sizeof(world->base), "%s/rampfs-transfer-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(world->base)) {
		perror(world->base);
		return 1;
	}
	return 0;
}

void world_lock(void)
{
	if (pthread_mutex_lock(&world->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&world->lock);
}

void world_unlock(void)
{
	pthread_mutex_unlock(&world->lock);
}

/* Each story has an address of its own: a killed node's port must still be free when it comes back,
   and other stories may run at the same time. */
void world_address(ramp_node_t node, char address[64])
{
	unsigned pid = (unsigned)world->pid;

	snprintf(address, 64, "127.%u.%u.%u:%u", 64 + (pid >> 16) % 64, pid >> 8 & 255, pid & 255,
		 12000 + node);
}

static void node_dir(ramp_node_t node, char path[PATH_LEN])
{
	snprintf(path, PATH_LEN, "%s/%u", world->base, node);
}

void world_path(ramp_node_t node, ramp_segment_t id, char path[PATH_LEN])
{
	snprintf(path, PATH_LEN, "%s/%u/store/%llu", world->base, node, (unsigned long long)id);
}

static void wipe(ramp_node_t node)
{
	struct ramp_err err = {0};
	char dir[PATH_LEN];
	int rc;

	node_dir(node, dir);
	/* Processes of a failed story die with it, but not at once. */
	for (int ms = 0; (rc = store_destroy(dir, true, &err)) == -EBUSY && ms < 5000; ms++)
		usleep(1000);
	ck_assert_msg(rc == 0, "%s", err.text);
	ck_assert(!mkdir(dir, 0700) || errno == EEXIST);
}

/* ---- processes ------------------------------------------------------------------------------- */

static struct command_reply order(ramp_node_t node, struct command command)
{
	struct command_reply reply = {.result = -EPIPE};

	if (nodes[node].pid && send(nodes[node].sock, &command, sizeof(command), MSG_NOSIGNAL) > 0)
		if (recv(nodes[node].sock, &reply, sizeof(reply), 0) != sizeof(reply))
			reply.result = -EPIPE;
	return reply;
}

static bool node_is_up(ramp_node_t node)
{
	bool up;

	world_lock();
	up = atomic_load(&world->running[node]) && world->nodes[node].incarnation;
	world_unlock();
	return up;
}

/* Returns whether all running nodes are connected to each other. */
static bool together(void)
{
	uint32_t up = 0;

	for (ramp_node_t n = 1; n <= NODES; n++)
		up += nodes[n].pid != 0;
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (nodes[n].pid &&
		    order(n, (struct command){.order = ORDER_STATUS}).peers_up != up - 1)
			return false;
	return true;
}

void world_start(ramp_node_t node)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	nodes[node].pid = fork();
	ck_assert_int_ge(nodes[node].pid, 0);
	if (nodes[node].pid == 0) {
		for (ramp_node_t n = 1; n <= NODES; n++)
			if (n != node && nodes[n].sock > 0)
				close(nodes[n].sock);
		close(pair[0]);
		_exit(world_node_main(node, pair[1]));
	}
	close(pair[1]);
	nodes[node].sock = pair[0];
	eventually(node_is_up(node));
	eventually(together());
}

static void reap(ramp_node_t node, int want_signal)
{
	int status;

	ck_assert_int_eq(waitpid(nodes[node].pid, &status, 0), nodes[node].pid);
	if (want_signal)
		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == want_signal,
			      "node %u ended by itself (status %x)", node, (unsigned)status);
	else
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			      "node %u ended badly (status %x)", node, (unsigned)status);
	close(nodes[node].sock);
	nodes[node].pid = 0;
	nodes[node].sock = -1;
	atomic_store(&world->running[node], false);
	atomic_store(&world->fault[node].point, 0);
	world_lock();
	for (int i = 0; i < EXPORTS; i++) /* its grants end with the daemon */
		if (world->exports[i].node == node)
			world->exports[i].used = false;
	world_unlock();
}

void world_kill(ramp_node_t node)
{
	kill(nodes[node].pid, SIGKILL);
	reap(node, SIGKILL);
}

static bool dead(ramp_node_t node)
{
	siginfo_t info = {0};

	ck_assert_int_eq(waitid(P_PID, (id_t)nodes[node].pid, &info, WEXITED | WNOHANG | WNOWAIT),
			 0);
	return info.si_pid != 0;
}

void world_wait_dead(ramp_node_t node)
{
	eventually(dead(node));
	reap(node, SIGKILL);
}

/* Repeats the request where the move is given up: a machine that is stopped for seconds looks like
   a silent target. */
void world_ask_many(ramp_node_t node, ramp_node_t dst, int n, ramp_segment_t *ids, int *asks)
{
	atomic_store(&world->mode, TRANSFER_LAZY); /* rounds do not wait for windows */
	atomic_store(&world->queues, true);
	atomic_store(&world->hold_revoke, true);
	world_arm(node, POINT(AT_REVOKE, 0), DO_DELAY, 0, 1);
	for (int i = 0; i < n; i++) {
		ids[i] = world_segment(node, (char[]){(char)('a' + i), 0}, 10, 0);
		world_hold(node, ids[i]);
	}
	for (int i = 0; i < n; i++)
		asks[i] = world_ask(node, ids[i], dst, 0, false);
	for (int i = 0; i < n; i++)
		eventually(world_row(ids[i]).phase == SEGMENT_MOVING);
	eventually(atomic_load(&world->fault[node].hits));
	usleep(50000); /* its daemon sees the last commits, too */
}

void world_ask_dead(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, ramp_node_t victim)
{
	int ask = world_ask(node, id, dst, 0, false);
	struct answer *answer = &world->answers[ask];

	for (int ms = 0; ms < REST_MS && !dead(victim); ms++) {
		if (atomic_load(&answer->done) && answer->result == -EHOSTUNREACH)
			answer = &world->answers[world_ask(node, id, dst, 0, false)];
		usleep(1000);
	}
	ck_assert_msg(dead(victim), "node %u never came to its point; last answer: %s %d %s",
		      victim, atomic_load(&answer->done) ? "done" : "none", answer->result,
		      answer->text);
	reap(victim, SIGKILL);
}

void world_reboot(ramp_node_t node)
{
	ramp_incarnation_t old = world->nodes[node].incarnation;

	if (nodes[node].pid)
		world_kill(node);
	world_lock();
	memset(world->programs[node], 0, sizeof(world->programs[node]));
	world_unlock();
	wipe(node);
	world_start(node);
	eventually(world->nodes[node].incarnation != old); /* committed */
}

void world_fence(ramp_node_t node)
{
	world_lock();
	world->nodes[node].fenced = world->nodes[node].incarnation;
	world->nodes_version = ++world->version;
	world_unlock();
}

void world_arm(ramp_node_t node, uint32_t point, enum what what, uint32_t skip, uint32_t times)
{
	struct fault *fault = &world->fault[node];

	fault->what = what;
	fault->skip = skip;
	fault->times = times;
	atomic_store(&fault->hits, 0);
	atomic_store(&fault->point, point);
}

void world_hold_reservation(ramp_node_t node)
{
	atomic_store(&world->hold, true);
	world_arm(node, POINT(AT_RESERVE, 0), DO_DELAY, 0, 1);
}

void world_wait_reservation(ramp_node_t node)
{
	eventually(atomic_load(&world->fault[node].hits));
}

void world_open_precopy(void)
{
	world_open();
	atomic_store(&world->mode, TRANSFER_PRECOPY);
}

void world_open_copy(void)
{
	world_open();
	atomic_store(&world->mode, TRANSFER_COPY);
}

void world_open(void)
{
	pthread_mutexattr_t attr;
	char base[sizeof(world->base)];

	memcpy(base, world->base, sizeof(base));
	memset(world, 0, sizeof(*world));
	memcpy(world->base, base, sizeof(base));
	world->pid = getpid();
	n_made = n_asks = 0;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&world->lock, &attr);
	atomic_store(&world->quorum, true);
	world->nodes_version = world->version = 1;
	for (ramp_node_t n = 1; n <= NODES; n++) {
		world->nodes[n].node = n;
		snprintf(world->nodes[n].name, sizeof(world->nodes[n].name), "%c",
			 'a' + (int)n - 1);
		wipe(n);
	}
	for (ramp_node_t n = 1; n <= NODES; n++)
		world_start(n);
}

void world_close_nodes(void)
{
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (nodes[n].pid)
			order(n, (struct command){.order = ORDER_QUIT});
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (nodes[n].pid)
			reap(n, 0);
}

void world_begin_end(ramp_node_t node)
{
	atomic_store(&world->linger, true);
	order(node, (struct command){.order = ORDER_QUIT});
	eventually(!atomic_load(&world->running[node]));
}

void world_take_no_more(ramp_node_t node)
{
	order(node, (struct command){.order = ORDER_TAKE_NO_MORE});
}

void world_hang_up(ramp_node_t node, ramp_node_t peer)
{
	order(node, (struct command){.order = ORDER_HANG_UP, .dst = peer});
	eventually(together());
}

void world_end(ramp_node_t node)
{
	world_begin_end(node);
	eventually(world->lingers[node]);
}

void world_let_end(ramp_node_t node)
{
	atomic_store(&world->linger, false);
	reap(node, 0);
}

void world_close(void)
{
	world_close_nodes();
	for (ramp_node_t n = 1; n <= NODES; n++) {
		char dir[PATH_LEN], store[PATH_LEN + 8];

		wipe(n);
		node_dir(n, dir);
		snprintf(store, sizeof(store), "%s/store", dir);
		rmdir(store);
		rmdir(dir);
	}
}

/* ---- segments -------------------------------------------------------------------------------- */

static int row_of(ramp_segment_t id)
{
	return (int)(id - RAMP_SEGMENT_ID_MIN);
}

static bool populated(int i, uint64_t page)
{
	if (made[i].cut && page >= made[i].cut)
		return false;
	return made[i].every == 0 || page % made[i].every == made[i].first;
}

static void fill(int i, uint64_t page, uint8_t bytes[RAMP_PAGE_BYTES])
{
	for (size_t b = 0; b < RAMP_PAGE_BYTES; b++)
		bytes[b] = populated(i, page) ? (uint8_t)(made[i].seed + page * 7 + b) : 0;
}

static void write_pattern(ramp_node_t node, ramp_segment_t id)
{
	int i = row_of(id);
	uint8_t bytes[RAMP_PAGE_BYTES];
	char path[PATH_LEN];
	int fd;

	world_path(node, id, path);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)(made[i].pages * RAMP_PAGE_BYTES)), 0);
	for (uint64_t p = made[i].first; p < made[i].pages;
	     p += made[i].every ? made[i].every : 1) {
		fill(i, p, bytes);
		ck_assert_int_eq(pwrite(fd, bytes, sizeof(bytes), (off_t)(p * RAMP_PAGE_BYTES)),
				 (ssize_t)sizeof(bytes));
	}
	close(fd);
}

ramp_segment_t world_segment(ramp_node_t node, const char *name, uint64_t pages, uint64_t every)
{
	int i = n_made++;
	ramp_segment_t id = RAMP_SEGMENT_ID_MIN + (ramp_segment_t)i;
	struct segment_row row = {.id = id, .epoch = 1, .node = node};

	ck_assert_int_lt(i, ROWS);
	made[i].pages = pages;
	made[i].every = every;
	made[i].first = made[i].cut = 0;
	made[i].seed = (uint8_t)(17 * i + 3);
	ck_assert_int_eq(order(node, (struct command){.order = ORDER_CREATE, .id = id}).result, 0);
	write_pattern(node, id);
	world_lock();
	row.node_inc = world->nodes[node].incarnation;
	snprintf(row.name, sizeof(row.name), "%s", name);
	world->rows[i] = row;
	world->row_used[i] = true;
	world->row_version[i] = ++world->version;
	world_unlock();
	for (ramp_node_t n = 1; n <= NODES; n++)
		eventually(!nodes[n].pid ||
			   order(n, (struct command){.order = ORDER_STATUS, .id = id}).known);
	return id;
}

void world_fill_holes(ramp_segment_t id)
{
	made[row_of(id)].every = 0;
	made[row_of(id)].first = 0;
	write_pattern(world_owner(id), id);
}

void world_move_data(ramp_segment_t id)
{
	char path[PATH_LEN];

	world_path(world_owner(id), id, path);
	ck_assert_int_eq(truncate(path, 0), 0);
	made[row_of(id)].first = made[row_of(id)].every / 2;
	write_pattern(world_owner(id), id);
}

void world_cut(ramp_segment_t id, uint64_t pages, bool punch)
{
	int i = row_of(id);
	off_t from = (off_t)(pages * RAMP_PAGE_BYTES);
	off_t size = (off_t)(made[i].pages * RAMP_PAGE_BYTES);
	char path[PATH_LEN];
	int fd;

	world_path(world_owner(id), id, path);
	fd = open(path, O_RDWR);
	if (punch)
		ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from,
					   size - from),
				 0);
	else
		ck_assert(!ftruncate(fd, from) && !ftruncate(fd, size));
	close(fd);
	made[i].cut = pages;
}

void world_resize(ramp_segment_t id, uint64_t pages)
{
	made[row_of(id)].pages = pages;
	write_pattern(world_owner(id), id);
}

void world_unmovable(ramp_node_t node, ramp_segment_t id)
{
	world_lock();
	world->programs[node][row_of(id)].unmovable = true;
	world_unlock();
}

struct segment_row world_row(ramp_segment_t id)
{
	struct segment_row row;

	world_lock();
	row = world->rows[row_of(id)];
	world_unlock();
	return row;
}

ramp_node_t world_owner(ramp_segment_t id)
{
	return world_row(id).node;
}

void world_unlink(ramp_segment_t id)
{
	world_lock();
	world->rows[row_of(id)].unlinked = true;
	if (world->rows[row_of(id)].phase == SEGMENT_STABLE)
		world->row_used[row_of(id)] = false;
	world->row_version[row_of(id)] = ++world->version;
	world_unlock();
}

void world_rename(ramp_segment_t id, const char *name)
{
	struct segment_row *row = &world->rows[row_of(id)];

	world_lock();
	snprintf(row->name, sizeof(row->name), "%s", name);
	row->epoch++;
	world->row_version[row_of(id)] = ++world->version;
	world_unlock();
}

void world_prefill(ramp_segment_t id, ramp_node_t node)
{
	world_lock();
	world->rows[row_of(id)].prefill = node;
	world->row_version[row_of(id)] = ++world->version;
	world_unlock();
}

const char *world_prefill_state(ramp_node_t node, ramp_segment_t id, struct transfer_prefill *out)
{
	static char state[16];
	struct command_reply reply = order(node, (struct command){.order = ORDER_STATUS, .id = id});

	memcpy(state, reply.prefill_state, sizeof(state));
	*out = reply.prefill;
	return state;
}

const char *world_move_state(ramp_node_t node, ramp_segment_t id, struct transfer_move *out)
{
	static char state[32];
	struct command_reply reply = order(node, (struct command){.order = ORDER_STATUS, .id = id});

	memcpy(state, reply.move_state, sizeof(state));
	*out = reply.move;
	return state;
}

struct msg_figures world_figures(ramp_node_t node, ramp_segment_t id)
{
	return order(node, (struct command){.order = ORDER_STATUS, .id = id}).figures;
}

void world_hold(ramp_node_t node, ramp_segment_t id)
{
	world_lock();
	world->programs[node][row_of(id)].mapped = true;
	world->programs[node][row_of(id)].access = world->rows[row_of(id)].node == node;
	world_unlock();
}

struct local_program world_program(ramp_node_t node, ramp_segment_t id)
{
	struct local_program program;

	world_lock();
	program = world->programs[node][row_of(id)];
	world_unlock();
	return program;
}

bool world_has_file(ramp_node_t node, ramp_segment_t id)
{
	char path[PATH_LEN];

	world_path(node, id, path);
	return access(path, F_OK) == 0;
}

uint64_t world_blocks(ramp_node_t node, ramp_segment_t id)
{
	char path[PATH_LEN];
	struct stat st;

	world_path(node, id, path);
	ck_assert_int_eq(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

uint64_t world_used(ramp_node_t node)
{
	char path[PATH_LEN];
	struct statvfs st;

	snprintf(path, sizeof(path), "%s/%u/store", world->base, node);
	ck_assert_int_eq(statvfs(path, &st), 0);
	return (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize;
}

/* ---- asking ---------------------------------------------------------------------------------- */

int world_ask(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, uint32_t timeout_ms, bool wait)
{
	struct command command = {
		.order = ORDER_MIGRATE,
		.ask = n_asks++ % ASKS,
		.id = id,
		.dst = dst,
		.timeout_ms = timeout_ms,
		.wait = wait,
	};

	memset(&world->answers[command.ask], 0, sizeof(world->answers[0]));
	snprintf(command.name, sizeof(command.name), "%s", world_row(id).name);
	order(node, command);
	return command.ask;
}

int world_connect(ramp_node_t node, ramp_segment_t id, ramp_node_t dst, enum session_step step,
		  uint32_t hold_ms)
{
	struct command command = {
		.order = ORDER_MIGRATE,
		.ask = n_asks++ % ASKS,
		.id = id,
		.dst = dst,
		.step = (uint8_t)step,
		.hold_ms = hold_ms,
	};

	memset(&world->answers[command.ask], 0, sizeof(world->answers[0]));
	snprintf(command.name, sizeof(command.name), "%s", world_row(id).name);
	order(node, command);
	return command.ask;
}

void world_go(ramp_node_t node, int ask, enum session_step step, uint32_t hold_ms)
{
	order(node,
	      (struct command){
		      .order = ORDER_GO, .ask = ask, .step = (uint8_t)step, .hold_ms = hold_ms});
}

int world_answer(int ask)
{
	eventually(atomic_load(&world->answers[ask].done));
	return world->answers[ask].result;
}

const char *world_text(int ask)
{
	return world->answers[ask].text;
}

void world_cancel(ramp_node_t node, int ask)
{
	order(node, (struct command){.order = ORDER_CANCEL, .ask = ask});
}

int world_move(ramp_node_t node, ramp_segment_t id, ramp_node_t dst)
{
	return world_answer(world_ask(node, id, dst, 10000, false));
}

int world_reclaim(ramp_node_t node, ramp_segment_t id)
{
	struct command c = {.order = ORDER_TOOL, .id = id, .mode = TOOL_RECLAIM};

	return order(node, c).result;
}

int world_limited(ramp_node_t node, ramp_segment_t id, uint64_t limit_bytes_s)
{
	struct command c = {.order = ORDER_TOOL,
			    .id = id,
			    .mode = TRANSFER_LAZY,
			    .limit_bytes_s = limit_bytes_s};

	return order(node, c).result;
}

void world_say_finished(ramp_node_t node, ramp_segment_t id)
{
	order(node, (struct command){.order = ORDER_FINISHED, .id = id});
}

void world_say_answered(ramp_node_t node, ramp_segment_t id)
{
	order(node, (struct command){.order = ORDER_ANSWERED, .id = id});
}

bool world_shows(ramp_node_t node, ramp_segment_t id)
{
	return order(node, (struct command){.order = ORDER_STATUS, .id = id}).shown;
}

bool world_rolled_back(ramp_node_t node, ramp_segment_t id)
{
	return order(node, (struct command){.order = ORDER_STATUS, .id = id}).rolled_back;
}

bool world_copying(ramp_node_t node, ramp_segment_t id)
{
	return order(node, (struct command){.order = ORDER_STATUS, .id = id}).copying;
}

uint64_t world_failed(ramp_node_t node)
{
	return order(node, (struct command){.order = ORDER_STATUS}).failed;
}

/* ---- at rest --------------------------------------------------------------------------------- */

/* Returns false where it is at rest; else writes the reason to `why`. */
static bool restless(ramp_segment_t id, char why[200])
{
	struct segment_row row = world_row(id);
	bool gone = !world->row_used[row_of(id)];

	if (!gone && row.phase != SEGMENT_STABLE) {
		snprintf(why, 200, "row in phase %d at node %u", row.phase, row.node);
		return true;
	}
	for (ramp_node_t n = 1; n <= NODES; n++) {
		struct command_reply r;
		enum record_kind want = n == row.node && !gone ? RECORD_OWNED : RECORD_NONE;

		if (!nodes[n].pid)
			continue;
		r = order(n, (struct command){.order = ORDER_STATUS, .id = id});
		if (r.result || r.moves || r.copying || (r.record.kind != want && !gone)) {
			snprintf(why, 200, "node %u: %d, %u moves, record %s%s, row of node %u", n,
				 r.result, r.moves, record_kind_name(r.record.kind),
				 r.copying ? ", held for a copy" : "", row.node);
			return true;
		}
	}
	return false;
}

static void wait_rest(ramp_segment_t id)
{
	char why[200];
	struct timespec from, now;

	clock_gettime(CLOCK_MONOTONIC, &from);
	while (restless(id, why)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ck_assert_msg(now.tv_sec - from.tv_sec < REST_MS / 1000, "never at rest: %s", why);
		usleep(2000);
	}
	ck_assert_uint_eq(world->double_access, 0);
	ck_assert_uint_eq(world->keys_at_return, 0);
	ck_assert_uint_eq(world->taken_blind, 0);
}

void world_rest_lost(ramp_segment_t id)
{
	wait_rest(id);
}

bool world_reserved(ramp_node_t node)
{
	return order(node, (struct command){.order = ORDER_STATUS}).reserved;
}

void world_wait_peers(ramp_node_t node, uint32_t up)
{
	eventually(order(node, (struct command){.order = ORDER_STATUS}).peers_up == up);
}

void world_rest(ramp_segment_t id)
{
	int i = row_of(id);
	uint8_t want[RAMP_PAGE_BYTES], have[RAMP_PAGE_BYTES];
	ramp_node_t owner;
	char path[PATH_LEN];
	struct stat st;
	int fd;

	wait_rest(id);
	owner = world_owner(id);
	world_path(owner, id, path);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)(made[i].pages * RAMP_PAGE_BYTES));
	for (uint64_t p = 0; p<made[i].pages; p += made[i].every> 1000 ? made[i].every : 1) {
		fill(i, p, want);
		ck_assert_int_eq(pread(fd, have, sizeof(have), (off_t)(p * RAMP_PAGE_BYTES)),
				 (ssize_t)sizeof(have));
		ck_assert_msg(memcmp(want, have, sizeof(have)) == 0,
			      "page %llu of segment %llu at node %u is wrong",
			      (unsigned long long)p, (unsigned long long)id, owner);
	}
	close(fd);
	for (ramp_node_t n = 1; n <= NODES; n++) {
		if (n != owner) {
			/* A reservation and its file may go between the two looks. */
			eventually(!world_has_file(n, id) || world_reserved(n));
			ck_assert(!world_program(n, id).access);
		}
		if (world_program(n, id).mapped && n == owner)
			ck_assert(world_program(n, id).access);
	}
}
