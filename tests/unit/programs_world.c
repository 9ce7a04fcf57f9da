#include "programs_world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WATCHES_MAX	  64
#define OTHER_INCARNATION 3

#ifdef __SANITIZE_THREAD__ /* its shadow lies where the default arena is */
#define ARENA_ADDR UINT64_C(0x1000000000)
#define ARENA_LEN  (UINT64_C(64) << 30)
#else
#define ARENA_ADDR UINT64_C(0x200000000000)
#define ARENA_LEN  (UINT64_C(1) << 45)
#endif

struct world world;

static struct {
	pthread_t loop_thread, thread;
	int epoll, wake;
	atomic_bool stop;
	_Atomic uint64_t faults;
	pthread_mutex_t lock;
	struct watch {
		struct client *space;
		int uffd;
		bool gone;
	} watches[WATCHES_MAX];
	int n_watches;
} pager = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the pager ------------------------------------------------------------------------------ */

static int client_added(void *arg, struct client *space, int uffd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = space};

	(void)arg;
	if (world.no_pager)
		return -world.no_pager;
	pthread_mutex_lock(&pager.lock);
	ck_assert_int_lt(pager.n_watches, WATCHES_MAX);
	pager.watches[pager.n_watches++] = (struct watch){.space = space, .uffd = uffd};
	pthread_mutex_unlock(&pager.lock);
	ck_assert_int_eq(epoll_ctl(pager.epoll, EPOLL_CTL_ADD, uffd, &event), 0);
	return 0;
}

static void client_gone(void *arg, struct client *space)
{
	uint64_t one = 1;

	(void)arg;
	pthread_mutex_lock(&pager.lock);
	for (int i = 0; i < pager.n_watches; i++)
		pager.watches[i].gone |= pager.watches[i].space == space;
	pthread_mutex_unlock(&pager.lock);
	ck_assert_int_eq(write(pager.wake, &one, sizeof(one)), (ssize_t)sizeof(one));
}

static void fill(struct seg *seg, uint64_t page)
{
	uint64_t words[RAMP_PAGE_BYTES / 8];

	if (pages_claim(seg, page, 1) != 1)
		return;
	for (size_t i = 0; i < RAMP_PAGE_BYTES / 8; i++)
		words[i] = FILLED;
	ck_assert_int_eq(pwrite(seg_fd(seg), words, sizeof(words), (off_t)(page * RAMP_PAGE_BYTES)),
			 (ssize_t)sizeof(words));
	pages_arrive(seg, page, 1);
}

static void serve(struct client *space)
{
	struct client_fault faults[16];
	bool more; /* the next wait says it again: this epoll is level-triggered */
	int n = client_read(space, faults, 16, &more);

	ck_assert(n >= 0 || n == -EAGAIN);
	for (int i = 0; i < n; i++) {
		pager.faults++;
		if (world.apart)
			client_blocked(space);
		if (!world.deaf) {
			fill(faults[i].seg, faults[i].page);
			client_resolve(space, seg_id(faults[i].seg),
				       faults[i].addr & ~(uint64_t)(RAMP_PAGE_BYTES - 1),
				       faults[i].page, 1);
		}
		seg_put(faults[i].seg);
	}
}

static void forget_gone(void)
{
	uint64_t count;

	if (read(pager.wake, &count, sizeof(count)) < 0)
		return;
	pthread_mutex_lock(&pager.lock);
	for (int i = 0; i < pager.n_watches;) {
		struct watch *w = &pager.watches[i];

		if (!w->gone) {
			i++;
			continue;
		}
		/* The program has the file, too, so that closing it here does not take it out. */
		epoll_ctl(pager.epoll, EPOLL_CTL_DEL, w->uffd, NULL);
		client_put(w->space);
		*w = pager.watches[--pager.n_watches];
	}
	pthread_mutex_unlock(&pager.lock);
}

static void *run_pager(void *arg)
{
	struct epoll_event events[16];

	while (!pager.stop) {
		int n = epoll_wait(pager.epoll, events, 16, -1);

		for (int i = 0; i < n; i++)
			if (events[i].data.ptr)
				serve(events[i].data.ptr);
		forget_gone();
	}
	return arg;
}

uint64_t world_faults(void)
{
	return pager.faults;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

static void *run_loop(void *arg)
{
	loop_run(world.loop);
	return arg;
}

void world_programs_start(void)
{
	struct programs_config config = {.listen_fd = world.listen_fd,
					 .session_path = world.socket,
					 .mountpoint = "/nowhere",
					 .uffd_group = (gid_t)-1,
					 .connect_ms = world.connect_ms ? world.connect_ms : 1000,
					 .user_sessions = world.user_sessions,
					 .token_ms = world.token_ms};
	struct programs_pager callbacks = {client_added, client_gone, NULL, NULL};
	struct epoll_event event = {.events = EPOLLIN};
	struct ramp_err err = {0};

	ck_assert_int_eq(loop_open(&world.loop, &err), 0);
	config.loop = world.loop;
	config.store = world.store;
	config.meta = world.meta;
	ck_assert_msg(programs_open(&config, &world.programs, &err) == 0, "%s", err.text);
	pager.epoll = epoll_create1(EPOLL_CLOEXEC);
	pager.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	epoll_ctl(pager.epoll, EPOLL_CTL_ADD, pager.wake, &event);
	pager.stop = false;
	pager.n_watches = 0;
	programs_set_pager(world.programs, &callbacks);
	programs_set_punch(world.programs, world.punch, NULL, NULL);
	programs_set_tools(world.programs, &world.tools);
	ck_assert_int_eq(pthread_create(&pager.thread, NULL, run_pager, NULL), 0);
	ck_assert_int_eq(pthread_create(&pager.loop_thread, NULL, run_loop, NULL), 0);
}

/* Stops the pager, as pull_close does: it reads nothing any more when programs_close begins. */
static void stop_pager(void)
{
	const struct programs_pager none = {0};
	uint64_t one = 1;

	programs_set_pager(world.programs, &none);
	pager.stop = true;
	ck_assert_int_eq(write(pager.wake, &one, sizeof(one)), (ssize_t)sizeof(one));
	pthread_join(pager.thread, NULL);
	while (pager.n_watches)
		client_put(pager.watches[--pager.n_watches].space);
}

void world_programs_stop(void)
{
	loop_stop(world.loop);
	pthread_join(pager.loop_thread, NULL);
	stop_pager();
	programs_close(world.programs);
	loop_close(world.loop);
	close(pager.epoll);
	close(pager.wake);
}

static void listen_somewhere(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(world.socket, sizeof(world.socket), "%s/sock", memory_dir());
	snprintf(at.sun_path, sizeof(at.sun_path), "%.107s", world.socket);
	unlink(world.socket);
	world.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(world.listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(world.listen_fd, 128), 0);
}

static void drop_message(void *arg, ramp_node_t to, const void *bytes, size_t len)
{
	(void)arg;
	(void)to;
	(void)bytes;
	(void)len;
}

static void ignore_change(void *arg, ramp_segment_t id, bool attributes)
{
	(void)arg;
	(void)id;
	(void)attributes;
}

static void propose(struct meta_command *command, struct meta_reply *reply)
{
	command->cid = meta_own_command(world.meta);
	ck_assert_int_eq(meta_propose_wait(world.meta, command, reply), 0);
}

static void open_meta(void)
{
	struct node_row nodes[] = {
		{.node = 1, .name = "a", .address = "localhost:1", .capacity = MIB},
		{.node = 2, .name = "b", .address = "localhost:2", .role = NODE_STANDBY},
	};
	struct meta_founding founding = {.instance = 7,
					 .self = 1,
					 .arena_addr = ARENA_ADDR,
					 .arena_len = ARENA_LEN,
					 .nodes = nodes,
					 .n_nodes = 2};
	struct meta_config config = {.journal_path = world.journal,
				     .heartbeat_ms = 20,
				     .election_ms = 50,
				     .send = drop_message,
				     .changed = ignore_change};
	struct meta_command up = {.type = META_NODE_UP, .node = 1, .instance = 7, .capacity = MIB};
	struct meta_reply reply;
	struct ramp_err err = {0};
	char other[320];
	int rc;

	for (int i = 0; i < 3; i++) {
		static const char *const suffix[] = {"", "-wal", "-shm"};

		snprintf(other, sizeof(other), "%s%s", world.journal, suffix[i]);
		unlink(other);
	}
	ck_assert_msg(meta_format(world.journal, &founding, &err) == 0, "%s", err.text);
	/* Children of the previous test have its lock until they have ended. */
	for (int ms = 0; (rc = meta_open(&config, &world.meta, &err)) == -EBUSY && ms < ANSWER_MS;
	     ms++)
		usleep(1000);
	ck_assert_msg(rc == 0, "%s", err.text);
	while (!meta_has_quorum(world.meta))
		usleep(1000);
	up.node_inc = store_incarnation(world.store);
	propose(&up, &reply);
	up = (struct meta_command){
		.type = META_NODE_UP, .node = 2, .node_inc = OTHER_INCARNATION, .instance = 8};
	propose(&up, &reply);
}

void world_setup(void)
{
	memory_fresh(MEMORY_CAPACITY);
	world.store = memory_open();
	snprintf(world.journal, sizeof(world.journal), "%s/journal.db", memory_dir());
	open_meta();
	listen_somewhere();
	world_programs_start();
}

void world_teardown(void)
{
	world_programs_stop();
	meta_close(world.meta);
	store_close(world.store);
	close(world.listen_fd);
}

/* ---- segments ------------------------------------------------------------------------------- */

struct seg *world_segment(const char *name, uint8_t byte)
{
	struct meta_command create = {.type = META_CREATE, .node = 1, .attr.mode = 0600};
	struct meta_reply reply = {0};
	struct ramp_err err = {0};
	struct seg *seg;

	snprintf(create.name, sizeof(create.name), "%s", name);
	propose(&create, &reply);
	ck_assert_msg(store_create(world.store, reply.id, RECORD_OWNED, reply.epoch, &seg, &err) ==
			      0,
		      "%s", err.text);
	memory_fill(seg, byte, 0, SEG_BYTES);
	return seg;
}

static void change(struct seg *seg, enum record_kind kind)
{
	struct record record = {.kind = kind,
				/* Of a record that serves, the row is as new. */
				.epoch = kind == RECORD_GIVEN ? 10 : 1,
				.k = {1, 2},
				.peer = 2,
				.peer_inc = OTHER_INCARNATION,
				.size = SEG_BYTES};
	struct ramp_err err = {0};

	ck_assert_msg(record_change(seg, &record, &err) == 0, "%s", err.text);
}

void world_give(struct seg *seg)
{
	change(seg, RECORD_GIVEN);
}

void world_step(struct seg *seg, enum meta_command_type type)
{
	struct meta_command command = {.type = type, .id = seg_id(seg), .k = {1, 2}};
	struct meta_reply reply;
	struct segment_row row;

	ck_assert_int_eq(meta_segment(world.meta, seg_id(seg), &row), 0);
	command.epoch = row.epoch;
	command.node = 2;
	command.node_inc = OTHER_INCARNATION;
	command.src = 1;
	command.src_inc = store_incarnation(world.store);
	propose(&command, &reply);
}

void world_revert(struct seg *seg)
{
	change(seg, RECORD_OWNED);
}

struct seg *world_take(struct seg *seg, uint64_t first, uint64_t count)
{
	ramp_segment_t id = seg_id(seg);
	struct ramp_err err = {0};

	ck_assert_msg(store_remove(seg, false, &err) == 0, "%s", err.text);
	seg_put(seg);
	ck_assert_msg(store_create(world.store, id, RECORD_NONE, 0, &seg, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(ftruncate(seg_fd(seg), SEG_BYTES), 0);
	memory_fill(seg, 0x11, 0, SEG_BYTES);
	ck_assert_msg(pages_prepare(seg, SEG_BYTES, &err) == 0, "%s", err.text);
	ck_assert_msg(pages_mark_remote(seg, first, count, &err) == 0, "%s", err.text);
	change(seg, RECORD_TAKEN);
	return seg;
}

void world_path(struct seg *seg, char path[256])
{
	snprintf(path, 256, "%s/store/%llu", memory_dir(), (unsigned long long)seg_id(seg));
}

/* ---- programs ------------------------------------------------------------------------------- */

void world_prog(struct prog *prog)
{
	prog_start(prog, world.socket);
	ck_assert_int_eq(prog_do(prog, &(struct prog_order){.op = PROG_SESSION}).result, 0);
}

struct prog_report world_try_attach(struct prog *prog, struct seg *seg, int access_mode,
				    uint32_t prot, uint64_t offset, uint64_t len)
{
	struct prog_order order = {.op = PROG_ATTACH, .offset = offset, .len = len, .prot = prot};
	struct ramp_err err = {0};

	ck_assert_int_eq(programs_token(world.programs, seg_id(seg), access_mode, prog->pid,
					order.token, &err),
			 0);
	return prog_do(prog, &order);
}

uint64_t world_attach(struct prog *prog, struct seg *seg, int access_mode)
{
	uint32_t prot = access_mode == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
	struct prog_report r = world_try_attach(prog, seg, access_mode, prot, 0, SEG_BYTES);

	ck_assert_msg(r.result == 0, "attach: %d %s", r.result, r.text);
	return r.addr;
}

struct attached world_attached(struct seg *seg, int access_mode)
{
	struct attached x = {.seg = seg};

	world_prog(&x.prog);
	x.addr = world_attach(&x.prog, seg, access_mode);
	return x;
}

void world_detached(struct attached *x)
{
	prog_end(&x->prog);
	seg_put(x->seg);
}

struct prog_report prog_at(struct prog *prog, enum prog_op what, uint64_t addr)
{
	return prog_do(prog, &(struct prog_order){.op = what, .addr = addr});
}

uint64_t prog_load(struct prog *prog, uint64_t addr)
{
	struct prog_report r = prog_at(prog, PROG_LOAD, addr);

	ck_assert_int_eq(r.result, 0);
	return r.value;
}

void world_wait_session(struct prog *prog, uint64_t n)
{
	for (int i = 0; i < 20000 && prog_at(prog, PROG_SESSIONS, 0).value < n; i++)
		usleep(1000);
	ck_assert_uint_ge(prog_at(prog, PROG_SESSIONS, 0).value, n);
}

/* ---- a whole test --------------------------------------------------------------------------- */

void must(int rc, const struct ramp_err *err)
{
	ck_assert_msg(rc == 0, "%s", err->text);
}

void world_pulled(struct seg *seg)
{
	while (!programs_pulled(world.programs, seg))
		usleep(1000);
}

void world_may_move(struct seg *seg)
{
	struct ramp_err err = {0};
	int rc, tries = 10;

	do {
		rc = programs_may_move(world.programs, seg, &err);
	} while (rc && strstr(err.text, "does not answer") && --tries);
	must(rc, &err);
}

void world_freeze(struct seg *seg)
{
	struct ramp_err err = {0};

	world_may_move(seg);
	must(programs_prelook(world.programs, seg, &err), &err);
	must(programs_revoke(world.programs, seg, REVOKE_MS, &err), &err);
}

uint8_t *world_contents(struct seg *seg)
{
	uint8_t *bytes = malloc(SEG_BYTES);

	ck_assert_int_eq(pread(seg_fd(seg), bytes, SEG_BYTES, 0), (ssize_t)SEG_BYTES);
	return bytes;
}

static Suite *make_suite(const char *name, void (*add_tests)(TCase *tc))
{
	Suite *suite = suite_create(name);
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, world_setup, world_teardown);
	add_tests(tc);
	suite_add_tcase(suite, tc);
	return suite;
}

int world_main(int argc, char **argv, const char *name, void (*add_tests)(TCase *tc))
{
	int rc;

	programs_broker(argc, argv);
	rc = memory_namespace();
	return rc ? rc : memory_run(make_suite(name, add_tests));
}
