/*
 * The session socket: misbehaving clients, requests that wait, and tools.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "programs/attach/attachments.h"
#include "programs/client/clients.h"
#include "programs/client/fdstore.h"
#include "programs/client/uffd.h"
#include "programs/client_life.h"
#include "programs_world.h"

/* ---- hostile input --------------------------------------------------------------------------- */

static int connect_raw(void)
{
	int sock = session_connect(world.socket);

	ck_assert_int_ge(sock, 0);
	return sock;
}

/* Returns true when the daemon has hung up, within 30 s. */
static bool hung_up(int sock)
{
	struct pollfd at = {.fd = sock, .events = POLLIN};
	char buf[4096];
	ssize_t n;

	do {
		if (poll(&at, 1, 30000) <= 0)
			return false;
		n = recv(sock, buf, sizeof(buf), 0);
	} while (n > 0);
	return true;
}

START_TEST(garbage_ends_the_connection_and_nothing_else)
{
	struct seg *seg = world_segment("x", 5);
	static const uint8_t texts[][8] = {{0}, {1}, {1, 0, 1}, {1, 0, 255, 255}, {1, 0, 13, 0, 9}};
	uint8_t big[SESSION_PACKET_MAX + 100] = {1, 0, 1, 0};
	struct session_msg msg;
	struct prog prog;
	int sock;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		sock = connect_raw();
		ck_assert_int_gt(send(sock, texts[i], i + 1, 0), 0);
		ck_assert(hung_up(sock));
		close(sock);
	}
	sock = connect_raw();
	ck_assert_int_gt(send(sock, big, sizeof(big), 0), 0);
	ck_assert(hung_up(sock));
	close(sock);

	/* A message of another version is answered with EPROTO. */
	sock = connect_raw();
	ck_assert_int_gt(send(sock, (uint8_t[]){9, 0, SESSION_HELLO, 0, 7}, 5, 0), 0);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_WELCOME);
	ck_assert_uint_eq(msg.result, EPROTO);
	close(sock);

	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* The pager can't take its userfaultfd: the program would wait in its first page fault for ever. */
START_TEST(a_program_whose_page_faults_nobody_would_serve_is_refused)
{
	struct seg *seg = world_segment("x", 5);
	struct prog prog;

	world.no_pager = ENOMEM;
	prog_start(&prog, world.socket);
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_SESSION}).result, -ENOMEM);
	world.no_pager = 0;
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_SESSION}).result, 0);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

struct look {
	struct mapped_segment *mseg;
	struct client *client;
};

static void *look_at_it(void *arg)
{
	struct look *look = arg;

	pthread_mutex_lock(&look->mseg->change);
	ck_assert_int_eq(mseg_look(world.programs, look->mseg, look->client), 0);
	pthread_mutex_unlock(&look->mseg->change);
	return NULL;
}

/* The look has found a mapping. Before that is in the table, the process ends, and its client,
   which has nothing in the table, is buried. No code would take the mapping out of the table
   again. */
START_TEST(a_session_that_ends_during_a_look_leaves_nothing_in_the_table)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct programs *p = world.programs;
	struct look look = {.mseg = mseg_find(p, seg_id(x.seg)),
			    .client = client_find(p, x.prog.pid, clock_ms() + 5000)};
	struct programs_status status;
	pthread_t thread;
	int n = 0;

	ck_assert_ptr_nonnull(look.mseg);
	ck_assert_ptr_nonnull(look.client);
	client_forget(p, look.client);
	/* The look blocks here, after it has found the mapping. */
	pthread_rwlock_rdlock(&look.mseg->lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, look_at_it, &look), 0);
	usleep(BLOCKED_MS * 1000);
	prog_end(&x.prog);
	for (; atomic_load(&look.client->orphan) || !client_dead(look.client); n++) {
		ck_assert_int_lt(n, 1000);
		usleep(10000);
	}
	usleep(BLOCKED_MS * 1000); /* until what the client has in the table is taken out */
	pthread_rwlock_unlock(&look.mseg->lock);
	pthread_join(thread, NULL);

	programs_status(p, &status);
	ck_assert_uint_eq(status.attachments, 0);
	client_put(look.client);
	mseg_put(p, look.mseg);
	seg_put(x.seg);
}
END_TEST

struct seen {
	uint64_t from, to; /* seen so far */
	unsigned int holes, doubles, unwritable;
};

static int see(void *arg, const struct proc_mapping *m)
{
	struct seen *seen = arg;

	seen->holes += m->start > seen->to;
	seen->doubles += m->start < seen->to;
	seen->unwritable += !m->writable;
	seen->to = m->end;
	return 0;
}

static void protect(struct attached *x, uint64_t len, uint32_t prot)
{
	struct prog_order order = {.op = PROG_MPROTECT, .addr = x->addr, .len = len, .prot = prot};

	ck_assert_int_eq(prog_do(&x->prog, &order).result, 0);
}

int __real_fsopen(const char *name, unsigned int flags);
int __wrap_fsopen(const char *name, unsigned int flags);

static struct attached *splits; /* its mapping is split before the next fsopen(2) */

int __wrap_fsopen(const char *name, unsigned int flags)
{
	if (splits)
		protect(splits, SEG_BYTES / 4, PROT_NONE);
	splits = NULL;
	return __real_fsopen(name, flags);
}

/* The mapping is split in the same place as it was while the segment was gone: the kernel
   remembers the empty file's mode there, so the mapping is looked at a second time, through a
   fresh /proc. Before that look it is split once more. */
START_TEST(a_mapping_that_is_split_while_it_is_looked_at_is_not_taken_for_read_only)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct seen seen = {.to = x.addr};
	struct client *client;

	world_freeze(x.seg);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	protect(&x, SEG_BYTES / 2, PROT_READ);
	world_revert(x.seg);
	programs_back(world.programs, x.seg);
	protect(&x, SEG_BYTES / 2, PROT_READ); /* as an agent does according to its table */
	client = client_find(world.programs, x.prog.pid, clock_ms() + 5000);
	ck_assert_ptr_nonnull(client);
	splits = &x;
	ck_assert_int_eq(mappings_each(&client->mappings, x.addr, x.addr + SEG_BYTES, see, &seen),
			 0);
	ck_assert_ptr_null(splits);
	ck_assert_uint_eq(seen.to, x.addr + SEG_BYTES);
	ck_assert_uint_eq(seen.unwritable, 0);
	client_put(client);
	world_detached(&x);
}
END_TEST

int __real_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes);
int __wrap_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes);

static struct attached *unmaps; /* it unmaps a range before that is registered */
static int unmaps_after;	/* how many others are registered before */

/* Only for the test's own thread: looks on the workers register ranges, too. */
static _Thread_local int slow_register_ms; /* how long each call takes */
/* The thread's scheduling policy in the first call and in the last. */
static _Thread_local int hurried_first, hurried_last;

int __wrap_kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes)
{
	struct prog_order order = {.op = PROG_MUNMAP, .addr = start, .len = len};
	struct attached *x = unmaps && unmaps_after-- == 0 ? unmaps : NULL;

	if (x) {
		unmaps = NULL;
		ck_assert_int_eq(prog_do(&x->prog, &order).result, 0);
	}
	if (slow_register_ms) {
		hurried_last = sched_getscheduler(0);
		if (hurried_first < 0)
			hurried_first = hurried_last;
		usleep((useconds_t)slow_register_ms * 1000);
	}
	return __real_kernel_uffd_register(uffd, start, len, modes);
}

/* A thread of the program unmaps a range while another thread maps another range of the segment. */
START_TEST(a_mapping_that_goes_before_it_is_registered_is_no_error)
{
	struct seg *seg = world_take(world_segment("x", 1), 0, 100);
	struct programs *p = world.programs;
	struct attached x;
	struct look look;

	programs_pulling(p, seg, NULL);
	x = world_attached(seg, O_RDWR);
	look = (struct look){.mseg = mseg_find(p, seg_id(x.seg)),
			     .client = client_find(p, x.prog.pid, clock_ms() + 5000)};
	ck_assert_ptr_nonnull(look.client);
	unmaps = &x;
	unmaps_after = 0;
	look_at_it(&look);
	ck_assert_ptr_null(unmaps);
	ck_assert(RB_EMPTY(&look.mseg->attached));
	client_put(look.client);
	mseg_put(p, look.mseg);
	world_detached(&x);
}
END_TEST

/* The ranges that the prelook has registered are unregistered again: an mremap of a registered
   range would wait for a daemon. */
START_TEST(a_watch_that_came_halfway_is_taken_back)
{
	struct attached x = world_attached(world_segment("x", 3), O_RDWR);
	struct prog_order order = {.op = PROG_MUNMAP, .addr = x.addr + MIB, .len = MIB};
	struct ramp_err err = {0};

	ck_assert_int_eq(prog_do(&x.prog, &order).result, 0);
	unmaps = &x;
	unmaps_after = 1;
	must(programs_prelook(world.programs, x.seg, &err), &err);
	ck_assert_ptr_null(unmaps);
	programs_restore(world.programs, x.seg);
	world_programs_stop();
	order = (struct prog_order){.op = PROG_REMAP,
				    .addr = x.addr,
				    .offset = MIB,
				    .len = MIB,
				    .value = x.addr + 16 * MIB};
	ck_assert_int_eq(prog_do(&x.prog, &order).result, 0);
	world_programs_start();
	world_detached(&x);
}
END_TEST

START_TEST(a_mapping_that_changes_all_the_time_is_seen_as_one_and_as_it_is)
{
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct prog_order order = {.op = PROG_SPLIT, .addr = x.addr, .len = SEG_BYTES, .value = 1};
	struct seen all = {0};
	struct client *client;
	uint64_t until;
	int looks = 0;

	client = client_find(world.programs, x.prog.pid, clock_ms() + 5000);
	ck_assert_ptr_nonnull(client);
	ck_assert_int_eq(prog_do(&x.prog, &order).result, 0);
	until = clock_ms() + 10000; /* on a slow machine fewer than 20,000 looks suffice */
	for (int i = 0; i < 20000 && clock_ms() < until; i++) {
		struct seen seen = {.to = x.addr};
		int rc = mappings_each(&client->mappings, x.addr, x.addr + SEG_BYTES, see, &seen);

		ck_assert(rc == 0 || rc == -EBUSY);
		if (rc)
			continue;
		looks++;
		all.holes += seen.holes + (seen.to != x.addr + SEG_BYTES);
		all.doubles += seen.doubles;
		all.unwritable += seen.unwritable;
	}
	order.value = 0;
	ck_assert_int_eq(prog_do(&x.prog, &order).result, 0);
	ck_assert_msg(!all.holes && !all.doubles && !all.unwritable,
		      "%u holes, %u seen twice, %u not writable in %d looks", all.holes,
		      all.doubles, all.unwritable, looks);
	ck_assert_int_gt(looks, 1000);
	client_put(client);
	world_detached(&x);
}
END_TEST

static void wait_until_mapped(struct seg *seg)
{
	for (int ms = 0; !programs_mapped(world.programs, seg); ms++) {
		ck_assert_int_lt(ms, 5000);
		usleep(1000);
	}
}

/* The daemon blocks until the program has given up, has unmapped what there was, and has asked
   again. */
START_TEST(an_attach_that_was_given_up_takes_nothing_from_the_next)
{
	struct prog_order attach = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};
	struct prog_order take_back = {.op = PROG_MUNMAP, .len = SEG_BYTES};
	struct seg *seg = world_segment("x", 3);
	struct mapped_segment *mseg = mseg_get(world.programs, seg_id(seg));
	struct segment_row row;
	struct prog_report r;
	struct prog prog;

	world_prog(&prog);
	pthread_mutex_lock(&mseg->change);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, attach.token, NULL);
	attach.value = 1000;
	ck_assert_int_eq(prog_do(&prog, &attach).result, -EAGAIN);
	wait_until_mapped(seg);
	ck_assert_int_eq(meta_segment(world.meta, seg_id(seg), &row), 0);
	take_back.addr = row.extent_addr;
	ck_assert_int_eq(prog_do(&prog, &take_back).result, 0);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, attach.token, NULL);
	attach.value = 0;
	prog_send(&prog, &attach);
	wait_until_mapped(seg);
	pthread_mutex_unlock(&mseg->change);
	ck_assert(prog_wait(&prog, &r, ANSWER_MS));
	ck_assert_msg(!r.result, "%s", r.text);
	for (int i = 0; i < 100; i++) {
		ck_assert_uint_eq(prog_load(&prog, row.extent_addr), UINT64_C(0x0303030303030303));
		usleep(3000);
	}
	mseg_put(world.programs, mseg);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* By then the child has reported that it lacks the mapping, and may have mapped something else
   in its place. */
START_TEST(a_child_that_has_given_up_is_given_nothing)
{
	struct prog_order order = {.op = PROG_FORK, .len = 500};
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct prog_report r;

	order.addr = x.addr;
	world_freeze(x.seg);
	prog_send(&x.prog, &order);
	sleep(3);
	programs_restore(world.programs, x.seg);
	ck_assert(prog_wait(&x.prog, &r, ANSWER_MS));
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.value, 0);
	world_detached(&x);
}
END_TEST

static const uint32_t silent[] = {1, 11}; /* kinds of agents (PROG_SESSION) */

/* The range may get mapped when its agent continues, and it would not be registered. */
START_TEST(a_child_whose_agent_is_silent_is_told_so_whatever_else_has_failed)
{
	struct prog_order order = {.op = PROG_FORK, .flags = silent[_i]};
	struct attached x = world_attached(world_segment("x", 5), O_RDWR);
	struct seg *y = world_segment("y", 6);
	struct prog_report r;

	order.addr = x.addr;
	world_attach(&x.prog, y, O_RDWR);
	r = prog_do(&x.prog, &order);
	ck_assert_int_ne(r.result, 0);
	ck_assert_uint_eq(r.value, ETIMEDOUT);
	world_detached(&x);
	seg_put(y);
}
END_TEST

static void *let_it_go(void *seg)
{
	programs_gone(world.programs, seg, "b");
	return NULL;
}

/* While the agent replaces a mapping, /proc shows nothing there for a while. The kernel's
   mremap(2), too, shows nothing for a short time when it puts one mapping in place of another. */
START_TEST(a_fork_while_something_is_put_in_its_place_misses_nothing)
{
	struct seg *seg = world_segment("x", 5);
	struct prog prog;
	struct prog_report r;
	pthread_t thread;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 9}).result, 0);
	world_attach(&prog, seg, O_RDWR);
	world_freeze(seg);
	world_give(seg);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_it_go, seg), 0);
	usleep(BLOCKED_MS * 1000);
	r = prog_at(&prog, PROG_TICKET, 0);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(r.all, 1);
	pthread_join(thread, NULL);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* Decodes random bytes: they are accepted or refused, and if accepted, encoding gives the same
   bytes again. */
START_TEST(decoding_survives_any_bytes)
{
	uint64_t random = 88172645463325252u;
	uint8_t in[SESSION_PACKET_MAX], out[SESSION_PACKET_MAX];
	struct session_msg msg;
	int taken = 0;

	for (int i = 0; i < 300000; i++) {
		size_t len;
		int n;

		for (size_t j = 0; j < 64; j++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			in[j] = random % 3 ? 0 : (uint8_t)(random >> 8);
		}
		len = random % 64;
		in[0] = SESSION_VERSION;
		in[1] = 0;
		in[2] = (uint8_t)(i % (SESSION_TYPES + 2));
		in[3] = 0;
		if (session_decode(in, len, &msg))
			continue;
		n = session_encode(&msg, out, sizeof(out));
		ck_assert_int_eq(n, (int)len);
		ck_assert_int_eq(memcmp(in, out, len), 0);
		taken++;
	}
	ck_assert_int_gt(taken, 100);
}
END_TEST

START_TEST(a_flood_of_connections_shuts_nobody_out_for_long)
{
	struct seg *seg = world_segment("x", 5);
	struct prog prog;
	int socks[400];

	for (int i = 0; i < 400; i++)
		socks[i] = connect_raw();
	/* The silent ones are hung up on, or time out; then there is room. */
	prog_start(&prog, world.socket);
	for (int i = 0; i < 100; i++) {
		if (!prog_do(&prog, &(struct prog_order){.op = PROG_SESSION}).result)
			break;
		usleep(100000);
	}
	world_attach(&prog, seg, O_RDWR);
	for (int i = 0; i < 400; i++)
		close(socks[i]);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

static struct tool_request *_Atomic asked;
static struct tool_migrate what_asked;
static _Atomic int cancels;

static void on_migrate(void *arg, struct tool_request *request, const struct tool_migrate *what)
{
	(void)arg;
	what_asked = *what;
	asked = request;
	if (what->progress)
		tool_progress(request, 1, 2, "PULLING");
	if (!what->wait)
		tool_answer(request, -EBUSY, "on the move");
}

static void on_cancel(void *arg, struct tool_request *request)
{
	(void)arg;
	cancels++;
	tool_answer(request, -EINTR, "cancelled");
}

static _Atomic bool flood_over;
static _Atomic unsigned flood_came;

static void *flood(void *arg)
{
	int sock;

	(void)arg;
	while (!atomic_load(&flood_over)) {
		sock = session_connect(world.socket);
		if (sock >= 0) {
			atomic_fetch_add(&flood_came, 1);
			close(sock);
		}
	}
	return NULL;
}

struct computed {
	_Atomic bool known;
	uint64_t us;
};

static void look_what_was_computed(void *arg)
{
	struct computed *computed = arg;
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	computed->us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
		       (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
	atomic_store(&computed->known, true);
}

static uint64_t control_thread_computed(void)
{
	struct computed computed = {0};

	loop_post(world.loop, look_what_was_computed, &computed);
	while (!atomic_load(&computed.known))
		usleep(100);
	return computed.us;
}

START_TEST(a_flood_of_connections_gets_little_of_the_control_thread)
{
	struct session_msg msg = {.type = SESSION_MIGRATE, .flags = SESSION_WAIT};
	uint64_t before, us;
	pthread_t thread;
	unsigned came;
	int tool;

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_migrate, .cancel = on_cancel};
	world_programs_start();
	tool = connect_raw();
	ck_assert_int_eq(session_send(tool, &msg, NULL, 0, 0), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, flood, NULL), 0);
	sleep(2); /* by then the burst that is allowed at once is used up */
	before = control_thread_computed();
	came = atomic_load(&flood_came);
	sleep(2);
	us = control_thread_computed() - before;
	ck_assert_uint_gt(atomic_load(&flood_came), came);
	if (kernel_processors() <= 8) /* with more processors, pending connections may take more */
		ck_assert_uint_lt(us, 2 * 1000000 / 4);
	msg.type = SESSION_CANCEL;
	ck_assert_int_eq(session_send(tool, &msg, NULL, 0, 0), 0);
	ck_assert_int_eq(session_recv(tool, &msg, NULL, NULL, 0), 0);
	ck_assert_uint_eq(msg.result, EINTR);
	close(tool);
	atomic_store(&flood_over, true);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(descriptors_that_are_sent_to_the_daemon_never_arrive)
{
	struct session_msg msg = {.type = SESSION_FORK};
	int sock = connect_raw(), pipefd[2], rc;
	char byte;

	ck_assert_int_eq(pipe(pipefd), 0);
	rc = session_send(sock, &msg, &pipefd[1], 1, 0);
	ck_assert(rc == -EPERM || rc == 0); /* 0 before Linux 6.16 (test_doors.c) */
	close(pipefd[1]);
	/* While the connection is still open, no copy of the descriptor is left. */
	ck_assert_int_eq(read(pipefd[0], &byte, 1), 0);
	close(sock);
	close(pipefd[0]);
}
END_TEST

START_TEST(what_is_no_userfaultfd_is_refused_by_the_broker)
{
	struct prog prog;
	struct seg *seg = world_segment("x", 5);

	prog_start(&prog, world.socket);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 2}).result,
		-EBADF);
	/* No message at all: the session is hung up on, at once when the socket is closed. */
	ck_assert_int_ne(
		prog_do(&prog, &(struct prog_order){.op = PROG_SESSION, .value = 3}).result, 0);
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_SESSION}).result, 0);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

/* Waking all worker threads for nothing costs the machine more than the refusal does. */
START_TEST(a_refused_request_wakes_one_thread_of_the_pool)
{
	const struct session_msg bad = {.type = SESSION_ATTACH, .len = 4096, .token = {1, 2}};
	struct session_msg msg;
	const long requests = 300;
	long before = sleeps();

	for (long i = 0; i < requests; i++) {
		int sock = connect_raw();

		ck_assert_int_eq(session_send(sock, &bad, NULL, 0, 0), 0);
		ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
		ck_assert_int_eq(msg.type, SESSION_RESULT);
		ck_assert_uint_ne(msg.result, 0);
		close(sock);
	}
	ck_assert_int_lt(sleeps() - before, 10 * requests);
}
END_TEST

START_TEST(a_first_message_that_does_not_come_ends_the_connection)
{
	int sock = connect_raw();

	ck_assert(hung_up(sock));
	close(sock);
}
END_TEST

/* ---- tools ----------------------------------------------------------------------------------- */

START_TEST(a_tool_is_answered_and_may_cancel)
{
	struct session_msg msg = {.type = SESSION_MIGRATE,
				  .segment = 5000,
				  .mode = 16,
				  .flags = SESSION_WATCH,
				  .node = "b"};
	int sock;

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_migrate, .cancel = on_cancel};
	world_programs_start();
	sock = connect_raw();
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_PROGRESS);
	ck_assert_uint_eq(msg.all, 2);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_ANSWER);
	ck_assert_uint_eq(msg.result, EBUSY);
	ck_assert_str_eq(msg.text, "on the move");
	ck_assert_uint_eq(what_asked.mode, 16);
	ck_assert_str_eq(what_asked.dst_node, "b");
	ck_assert(hung_up(sock));
	close(sock);

	sock = connect_raw();
	msg = (struct session_msg){.type = SESSION_MIGRATE, .flags = SESSION_WAIT};
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	msg.type = SESSION_CANCEL;
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_uint_eq(msg.result, EINTR);
	close(sock);
	ck_assert_int_eq(cancels, 1);

	sock = connect_raw();
	asked = NULL;
	msg = (struct session_msg){.type = SESSION_MIGRATE, .flags = SESSION_WAIT};
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	while (!asked)
		usleep(1000);
	close(sock);
	for (int i = 0; i < 5000 && cancels < 2; i++)
		usleep(1000);
	ck_assert_int_eq(cancels, 2);
}
END_TEST

#define BATCH 300u /* more than a socket holds, and more than one message names */

/* Answers all but every tenth at once; those wait for a cancel. */
static void on_one_of_a_batch(void *arg, struct tool_request *request,
			      const struct tool_migrate *what)
{
	(void)arg;
	what_asked = *what;
	if (what->id % 10 == 1)
		tool_answer(request, -EEXIST, "something is named so there");
	else if (what->id % 10)
		tool_answer(request, 0, "");
}

static void send_batch(int sock)
{
	struct session_msg msg = {.type = SESSION_BATCH,
				  .flags = SESSION_MORE,
				  .mode = 1,
				  .node = "b",
				  .limit = 1 << 20,
				  .batch = 9};

	for (uint32_t i = 0; i < BATCH; i++) {
		msg.ranges[msg.count++].addr = 5000 + i;
		if (msg.count < SESSION_RANGES_MAX && i < BATCH - 1)
			continue;
		if (i == BATCH - 1)
			msg.flags = 0;
		ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
		msg.count = 0;
	}
}

/* Counts verdicts, each of another segment, until `count` have come. */
static void take_verdicts(int sock, uint32_t count, bool seen[BATCH])
{
	struct session_msg msg;

	while (count--) {
		ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
		ck_assert_int_eq(msg.type, SESSION_VERDICT);
		ck_assert(msg.segment >= 5000 && msg.segment < 5000 + BATCH);
		ck_assert(!seen[msg.segment - 5000]);
		seen[msg.segment - 5000] = true;
		ck_assert_uint_eq(msg.result, msg.segment % 10 == 1   ? EEXIST
					      : msg.segment % 10 == 0 ? EINTR
								      : 0);
		ck_assert_str_eq(msg.text, msg.segment % 10 == 1   ? "something is named so there"
					   : msg.segment % 10 == 0 ? "cancelled"
								   : "");
	}
}

START_TEST(each_segment_of_a_batch_has_a_verdict)
{
	struct session_msg msg = {.type = SESSION_CANCEL};
	bool seen[BATCH] = {false};
	int sock, before;

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_one_of_a_batch, .cancel = on_cancel};
	world_programs_start();
	sock = connect_raw();
	send_batch(sock);
	usleep(100000); /* verdicts that the socket does not hold are sent later */
	take_verdicts(sock, BATCH - BATCH / 10, seen);
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	take_verdicts(sock, BATCH / 10, seen);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_ANSWER);
	ck_assert_uint_eq(msg.result, 0);
	ck_assert(hung_up(sock));
	close(sock);
	ck_assert(what_asked.queues && what_asked.mode == 1 && what_asked.batch == 9);
	ck_assert_str_eq(what_asked.dst_node, "b");

	before = cancels;
	sock = connect_raw();
	send_batch(sock);
	memset(seen, 0, sizeof(seen));
	take_verdicts(sock, BATCH - BATCH / 10, seen);
	close(sock); /* as a cancel */
	for (int i = 0; i < 5000 && cancels < before + (int)BATCH / 10; i++)
		usleep(1000);
	ck_assert_int_eq(cancels, before + (int)BATCH / 10);
}
END_TEST

static struct session_msg went; /* with what the handler was called */

static void on_go(void *arg, struct tool_request *request, uint8_t step, uint32_t hold_ms)
{
	(void)arg;
	went = (struct session_msg){.step = step, .len = hold_ms};
	tool_held(request, SESSION_PREPARED, 4000);
	tool_answer(request, 0, "");
}

START_TEST(a_move_in_steps_hears_its_program)
{
	struct session_msg msg = {.type = SESSION_CONNECT,
				  .flags = SESSION_WAIT,
				  .step = SESSION_CONNECTED,
				  .len = 1000,
				  .rounds = 3};
	int sock;

	world_programs_stop();
	world.tools =
		(struct programs_tools){.migrate = on_migrate, .cancel = on_cancel, .go = on_go};
	world_programs_start();
	sock = connect_raw();
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	msg = (struct session_msg){.type = SESSION_GO, .step = SESSION_PREPARED, .len = 5};
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_HELD);
	ck_assert_uint_eq(msg.step, SESSION_PREPARED);
	ck_assert_uint_eq(msg.len, 4000);
	ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	ck_assert_int_eq(msg.type, SESSION_ANSWER);
	ck_assert(hung_up(sock));
	close(sock);
	ck_assert(what_asked.in_steps && what_asked.step == SESSION_CONNECTED);
	ck_assert_uint_eq(what_asked.hold_ms, 1000);
	ck_assert_uint_eq(what_asked.rounds, 3);
	ck_assert(went.step == SESSION_PREPARED && went.len == 5);

	/* GO is for moves in steps alone. */
	sock = connect_raw();
	msg = (struct session_msg){.type = SESSION_MIGRATE, .flags = SESSION_WAIT};
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	msg = (struct session_msg){.type = SESSION_GO, .step = SESSION_TAKEN};
	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	ck_assert(hung_up(sock));
	close(sock);
}
END_TEST

static struct tool_pull pull_asked;

static void on_pull(void *arg, struct tool_request *request, const struct tool_pull *what)
{
	(void)arg;
	pull_asked = *what;
	tool_progress(request, 0, 7, "pulling");
	tool_answer(request, -EIO, "lost");
}

static struct tool_give_up give_up_asked;

static void on_give_up(void *arg, struct tool_request *request, const struct tool_give_up *what)
{
	(void)arg;
	give_up_asked = *what;
	tool_answer(request, -ENOENT, "");
}

static uint32_t ask_by(uint16_t type, const uint64_t token[2])
{
	struct session_msg msg = {.type = type,
				  .flags = SESSION_ZEROS,
				  .offset = 4096,
				  .len = 8192,
				  .token = {token[0], token[1]}};
	int sock = connect_raw();

	ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
	do
		ck_assert_int_eq(session_recv(sock, &msg, NULL, NULL, 0), 0);
	while (msg.type == SESSION_PROGRESS && msg.all == 7);
	ck_assert_int_eq(msg.type, SESSION_ANSWER);
	ck_assert(hung_up(sock));
	close(sock);
	return msg.result;
}

static uint32_t pull_by(const uint64_t token[2])
{
	return ask_by(SESSION_PULL, token);
}

/* A token is good once. */
static uint32_t give_up_by_open(int access_mode)
{
	uint64_t token[2];

	ck_assert_int_eq(programs_token(world.programs, 4712, access_mode, getpid(), token, NULL),
			 0);
	return ask_by(SESSION_GIVE_UP, token);
}

START_TEST(a_pull_needs_the_token_of_an_open)
{
	uint64_t token[2] = {1, 2};

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_migrate, .cancel = on_cancel};
	world_programs_start();
	ck_assert_int_eq(programs_token(world.programs, 4711, O_RDONLY, getpid(), token, NULL), 0);
	ck_assert_uint_eq(pull_by(token), EOPNOTSUPP);
	world_programs_stop();
	world.tools.pull = on_pull;
	world_programs_start();
	ck_assert_uint_eq(pull_by(token), EPERM); /* made up, or of an earlier daemon */
	ck_assert_int_eq(programs_token(world.programs, 4711, O_RDONLY, getpid(), token, NULL), 0);
	ck_assert_uint_eq(pull_by(token), EIO);
	ck_assert(pull_asked.id == 4711 && pull_asked.offset == 4096 && pull_asked.len == 8192);
	pull_asked.id = 0;
	ck_assert_uint_eq(pull_by(token), EPERM); /* it is used */
	ck_assert_uint_eq(pull_asked.id, 0);
	ck_assert_uint_eq(give_up_by_open(O_RDWR), EOPNOTSUPP);
	world_programs_stop();
	world.tools.give_up = on_give_up;
	world_programs_start();
	ck_assert_uint_eq(give_up_by_open(O_RDONLY), EACCES);
	ck_assert_uint_eq(give_up_asked.id, 0);
	ck_assert_uint_eq(give_up_by_open(O_RDWR), ENOENT);
	ck_assert(give_up_asked.id == 4712 && give_up_asked.zeros);
}
END_TEST

/* This thread alone connects as that user, and finds the socket as root does. */
static void connect_as(uid_t uid)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {0};

	ck_assert_int_eq(syscall(SYS_setresuid, -1, uid, -1), 0);
	ck_assert_int_eq(syscall(SYS_capget, &head, caps), 0);
	caps[0].effective = caps[0].permitted;
	caps[1].effective = caps[1].permitted;
	ck_assert_int_eq(syscall(SYS_capset, &head, caps), 0);
}

/* Each keeps room at its target. */
START_TEST(one_user_has_few_moves_in_steps)
{
	struct session_msg msg = {
		.type = SESSION_CONNECT, .flags = SESSION_WAIT, .step = SESSION_CONNECTED};
	struct pollfd ready[65];
	int socks[65];

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_migrate, .cancel = on_cancel};
	world_programs_start();
	connect_as(1001);
	for (int i = 0; i < 65; i++) {
		socks[i] = connect_raw();
		ready[i] = (struct pollfd){.fd = socks[i], .events = POLLIN};
		ck_assert_int_eq(session_send(socks[i], &msg, NULL, 0, 0), 0);
	}
	connect_as(0);
	ck_assert_int_eq(poll(ready, 65, 20000), 1); /* which of them is the last is not known */
	for (int i = 0; i < 65; i++) {
		if (!ready[i].revents)
			continue;
		ck_assert_int_eq(session_recv(socks[i], &msg, NULL, NULL, 0), 0);
		ck_assert_int_eq(msg.type, SESSION_ANSWER);
		ck_assert_uint_eq(msg.result, EUSERS);
	}
	for (int i = 0; i < 65; i++)
		close(socks[i]);
	for (int i = 0; i < 20000 && cancels < 64; i++)
		usleep(1000);
	ck_assert_int_eq(cancels, 64);
}
END_TEST

/* A tool that never reads must not make the daemon keep verdicts without bound. */
START_TEST(verdicts_that_are_not_read_count)
{
	const uint32_t most = 65536, all = most + 256 * SESSION_RANGES_MAX;
	struct session_msg msg = {.type = SESSION_BATCH, .flags = SESSION_MORE, .node = "b"};
	uint32_t verdicts = 0;
	int sock;

	world_programs_stop();
	world.tools = (struct programs_tools){.migrate = on_one_of_a_batch};
	world_programs_start();
	connect_as(1001);
	sock = connect_raw();
	connect_as(0);
	for (uint32_t i = 0; i < all; i++) {
		msg.ranges[msg.count++].addr = 10 * (uint64_t)i + 1;
		if (msg.count < SESSION_RANGES_MAX)
			continue;
		msg.flags = i < all - 1 ? SESSION_MORE : 0;
		ck_assert_int_eq(session_send(sock, &msg, NULL, 0, 0), 0);
		msg.count = 0;
	}
	while (session_recv(sock, &msg, NULL, NULL, 0) == 0 && msg.type == SESSION_VERDICT)
		verdicts++;
	ck_assert_int_eq(msg.type, SESSION_ANSWER);
	ck_assert_uint_eq(msg.result, EUSERS);
	ck_assert_str_eq(msg.text, "too many segments of this user are to be moved already");
	/* The socket takes some while the rest is still coming. */
	ck_assert_uint_ge(verdicts, most);
	ck_assert_uint_lt(verdicts, all);
	close(sock);
}
END_TEST

/* ---- requests that wait ---------------------------------------------------------------------- */

static _Atomic unsigned begun;
static _Atomic bool over;

static void keep_a_thread(void *arg)
{
	atomic_fetch_add((_Atomic unsigned *)arg, 1);
	while (!atomic_load(&over))
		usleep(1000);
}

static bool grows_to(_Atomic unsigned *count, unsigned to)
{
	for (int i = 0; i < 10000 && atomic_load(count) < to; i++)
		usleep(1000);
	usleep(50000); /* does not grow further */
	return atomic_load(count) == to;
}

START_TEST(users_whose_requests_wait_leave_threads_to_others)
{
	_Atomic unsigned first = 0, second = 0, third = 0;

	begun = 0;
	over = false;
	for (int i = 0; i < 20; i++)
		workers_run(world.programs->workers, 1001, keep_a_thread, &first);
	ck_assert(grows_to(&first, 6));
	for (int i = 0; i < 20; i++)
		workers_run(world.programs->workers, 1002, keep_a_thread, &second);
	ck_assert(grows_to(&second, 3));
	workers_run(world.programs->workers, 0, keep_a_thread, &third);
	ck_assert(grows_to(&third, 1));
	atomic_store(&over, true);
	ck_assert(grows_to(&first, 20));
	ck_assert(grows_to(&second, 20));
}
END_TEST

static unsigned turns[60], n_turns; /* written by one thread at a time */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void take_turn(void *arg)
{
	pthread_mutex_lock(&turn);
	if (n_turns < 60)
		turns[n_turns++] = *(unsigned *)arg;
	pthread_mutex_unlock(&turn);
	atomic_fetch_add(&begun, 1);
	usleep(5000);
}

/* A user with many requests does not delay one with few that come later. */
START_TEST(users_take_turns)
{
	static unsigned users[] = {1001, 1002, 1003, 1004, 1005};
	_Atomic unsigned kept = 0;
	unsigned i;

	begun = n_turns = 0;
	over = false;
	for (i = 0; i < 12; i++) /* all threads except those for the daemon's own jobs */
		workers_run(world.programs->workers, 2000 + i, keep_a_thread, &kept);
	ck_assert(grows_to(&kept, 12));
	for (i = 0; i < 50; i++)
		workers_run(world.programs->workers, users[0], take_turn, &users[0]);
	for (i = 1; i < 5; i++)
		workers_run(world.programs->workers, users[i], take_turn, &users[i]);
	atomic_store(&over, true);
	ck_assert(grows_to(&begun, 54));
	for (i = 0; i < 54 && turns[i] != users[4]; i++)
		;
	ck_assert_uint_lt(i, 30);
}
END_TEST

/* Each request would keep its thread for as long as a session of its process is awaited. */
START_TEST(who_has_hung_up_keeps_no_thread)
{
	struct seg *seg = world_segment("x", 5);
	struct session_msg msg = {.type = SESSION_FORK};
	struct prog prog;
	int sock[20];

	world_programs_stop();
	world.connect_ms = 1000000;
	world_programs_start();
	for (int i = 0; i < 20; i++) {
		sock[i] = connect_raw();
		ck_assert_int_eq(session_send(sock[i], &msg, NULL, 0, 0), 0);
	}
	usleep(300000); /* until they have begun */
	for (int i = 0; i < 20; i++)
		close(sock[i]);
	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	world.connect_ms = 0;
	seg_put(seg);
}
END_TEST

/* Its extent can be given only when it is decided which node it is on. */
START_TEST(a_first_attach_waits_while_the_segment_is_moved)
{
	struct seg *seg = world_segment("x", 7);
	struct prog prog;
	struct prog_report r;
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};

	world_prog(&prog);
	world_step(seg, META_PREPARE);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	prog_send(&prog, &order);
	ck_assert(!prog_wait(&prog, &r, BLOCKED_MS));
	if (_i)
		world_give(seg);
	world_step(seg, _i ? META_TAKEN : META_ABORT);
	ck_assert(prog_wait(&prog, &r, ANSWER_MS));
	ck_assert_msg(r.result == (_i ? -EREMOTE : 0), "%d: %s", r.result, r.text);
	if (_i)
		ck_assert_str_eq(r.text, "it is on node b");
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

/* It takes long to put many ranges back: the thread that does so has priority for a bounded time
   only. */
START_TEST(what_is_put_back_for_long_is_in_no_hurry)
{
	struct attached x = world_attached(world_segment("x", 1), O_RDWR);
	struct prog_order hole = {.op = PROG_MUNMAP, .len = MIB / 4};

	for (uint64_t at = MIB / 4; at < SEG_BYTES; at += MIB / 2) { /* eight ranges are left */
		hole.addr = x.addr + at;
		ck_assert_int_eq(prog_do(&x.prog, &hole).result, 0);
	}
	world_freeze(x.seg);
	world_give(x.seg);
	programs_gone(world.programs, x.seg, "b");
	x.seg = world_take(x.seg, 0, SEG_BYTES / RAMP_PAGE_BYTES);
	ck_assert_int_eq(programs_pulling(world.programs, x.seg, NULL), 0);
	slow_register_ms = 100;
	hurried_first = -1;
	ck_assert_int_eq(kernel_rt_boost(KERNEL_WINDOW_PRIORITY), 0);
	programs_back(world.programs, x.seg);
	slow_register_ms = 0;
	kernel_rt_boost(0);
	ck_assert_int_eq(hurried_first & ~SCHED_RESET_ON_FORK, SCHED_RR);
	ck_assert_int_eq(hurried_last & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
	world_detached(&x);
}
END_TEST

/* ---- the fdstore ----------------------------------------------------------------------------- */

static size_t count_orphans(void)
{
	struct client *client;
	size_t n = 0;

	pthread_mutex_lock(&world.programs->lock);
	TAILQ_FOREACH (client, &world.programs->orphans, link)
		n++;
	pthread_mutex_unlock(&world.programs->lock);
	return n;
}

/* Leaves one more memory to the next daemon. False: the fdstore is full. */
static bool leave_another(void)
{
	struct client *client = client_make(world.programs, getpid(), getuid());
	bool stored;

	ck_assert_ptr_nonnull(client);
	client->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	ck_assert_int_eq(uffd_handshake(client->uffd, NULL), 0);
	ck_assert_int_eq(kernel_maps_open(&client->mappings.maps, getpid()), 0);
	client->mappings.maps_open = true;
	fdstore_put(client);
	stored = client->stored;
	client_put(client);
	return stored;
}

START_TEST(all_that_is_on_a_full_shelf_is_found_and_can_go)
{
	struct programs *p = world.programs;
	struct seg *seg = world_segment("x", 3);
	size_t n = 0;
	char byte;
	void *at;

	clients_sweep(p); /* adopts what is in the fdstore: nothing */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->fdstore), 0);
	setsockopt(p->fdstore[0], SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int));
	at = mmap((void *)(uintptr_t)p->arena_lo, SEG_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED,
		  seg_fd(seg), 0);
	ck_assert_ptr_eq(at, (void *)(uintptr_t)p->arena_lo);
	while (leave_another())
		n++;
	ck_assert_uint_gt(n, 2);
	fdstore_adopt(p, client_adopt);
	ck_assert_uint_eq(count_orphans(), n);
	munmap(at, SEG_BYTES);
	clients_sweep(p); /* ends each orphan, on the workers */
	for (int ms = 0; recv(p->fdstore[1], &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0; ms++) {
		ck_assert_int_lt(ms, 20000);
		usleep(1000);
	}
	ck_assert_uint_eq(count_orphans(), 0);
	close(p->fdstore[0]);
	close(p->fdstore[1]);
	p->fdstore[0] = p->fdstore[1] = -1;
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, users_whose_requests_wait_leave_threads_to_others);
	tcase_add_test(tc, users_take_turns);
	tcase_add_test(tc, who_has_hung_up_keeps_no_thread);
	tcase_add_loop_test(tc, a_first_attach_waits_while_the_segment_is_moved, 0, 2);
	tcase_add_test(tc, garbage_ends_the_connection_and_nothing_else);
	tcase_add_test(tc, a_program_whose_page_faults_nobody_would_serve_is_refused);
	tcase_add_test(tc, a_session_that_ends_during_a_look_leaves_nothing_in_the_table);
	tcase_add_test(tc,
		       a_mapping_that_is_split_while_it_is_looked_at_is_not_taken_for_read_only);
	tcase_add_test(tc, a_mapping_that_goes_before_it_is_registered_is_no_error);
	tcase_add_test(tc, a_watch_that_came_halfway_is_taken_back);
	tcase_add_test(tc, a_mapping_that_changes_all_the_time_is_seen_as_one_and_as_it_is);
	tcase_add_test(tc, an_attach_that_was_given_up_takes_nothing_from_the_next);
	tcase_add_test(tc, a_child_that_has_given_up_is_given_nothing);
	tcase_add_loop_test(tc, a_child_whose_agent_is_silent_is_told_so_whatever_else_has_failed,
			    0, (int)(sizeof(silent) / sizeof(silent[0])));
	tcase_add_test(tc, a_fork_while_something_is_put_in_its_place_misses_nothing);
	tcase_add_test(tc, what_is_put_back_for_long_is_in_no_hurry);
	tcase_add_test(tc, all_that_is_on_a_full_shelf_is_found_and_can_go);
	tcase_add_test(tc, decoding_survives_any_bytes);
	tcase_add_test(tc, a_flood_of_connections_shuts_nobody_out_for_long);
	tcase_add_test(tc, a_flood_of_connections_gets_little_of_the_control_thread);
	tcase_add_test(tc, descriptors_that_are_sent_to_the_daemon_never_arrive);
	tcase_add_test(tc, what_is_no_userfaultfd_is_refused_by_the_broker);
	tcase_add_test(tc, a_refused_request_wakes_one_thread_of_the_pool);
	tcase_add_test(tc, a_first_message_that_does_not_come_ends_the_connection);
	tcase_add_test(tc, a_tool_is_answered_and_may_cancel);
	tcase_add_test(tc, each_segment_of_a_batch_has_a_verdict);
	tcase_add_test(tc, verdicts_that_are_not_read_count);
	tcase_add_test(tc, a_move_in_steps_hears_its_program);
	tcase_add_test(tc, a_pull_needs_the_token_of_an_open);
	tcase_add_test(tc, one_user_has_few_moves_in_steps);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "sessions", add_tests);
}
