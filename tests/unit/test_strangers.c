/*
 * Users against each other: who takes all of something gets no more, and everybody else goes on.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs_world.h"

#define STRANGER   1234u /* a user */
#define DOORS	   16	 /* of one user at a time */
#define GREETED_MS 1000	 /* a HELLO that has no answer by then waits for a door */
#define PATIENCE   20000 /* milliseconds; then a test has failed */

static struct prog_report op(struct prog *prog, enum prog_op what, uint64_t value)
{
	return prog_do(prog, &(struct prog_order){.op = what, .value = value});
}

/* ---- a process of another user, that does one thing and then stands still -------------------- */

struct stranger {
	pid_t pid;
	int from;
};

/* In there: the session socket by a path that needs no rights on the way. */
static char door_path[32];
/* What root opens for it there, and nowhere else: whoever has it hangs at his end. */
static const char *given_path;
static int given_file = -1;

static struct stranger stranger_start(uid_t uid, int (*act)(const void *arg), const void *arg)
{
	int at = open(world.socket, O_PATH | O_CLOEXEC), pipefd[2], n;
	struct stranger s;

	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(chmod(world.socket, 0666), 0);
	ck_assert_int_eq(pipe2(pipefd, O_CLOEXEC), 0);
	s.pid = fork();
	ck_assert_int_ge(s.pid, 0);
	if (s.pid == 0) {
		snprintf(door_path, sizeof(door_path), "/proc/self/fd/%d", at);
		if (given_path)
			given_file = open(given_path, O_RDWR | O_CLOEXEC);
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		n = act(arg);
		if (write(pipefd[1], &n, sizeof(n)) != sizeof(n))
			_exit(1);
		for (;;)
			pause();
	}
	close(at);
	close(pipefd[1]);
	s.from = pipefd[0];
	return s;
}

/* What it found. */
static int stranger_said(struct stranger *s)
{
	struct pollfd at = {.fd = s->from, .events = POLLIN};
	int n = -1;

	ck_assert_int_eq(poll(&at, 1, PATIENCE), 1);
	ck_assert_int_eq(read(s->from, &n, sizeof(n)), (ssize_t)sizeof(n));
	return n;
}

static void stranger_end(struct stranger *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	close(s->from);
}

/* A connection that has said HELLO. */
static int say_hello(void)
{
	struct session_msg m = {.type = SESSION_HELLO, .tid = 1};
	int sock = session_connect(door_path);

	if (sock >= 0 && session_send(sock, &m, NULL, 0, 0)) {
		close(sock);
		return -1;
	}
	return sock;
}

/* WELCOME's result, with the door; -EAGAIN: it has not come in that time. */
static int hear_welcome(int sock, int ms, int *door)
{
	struct pollfd at = {.fd = sock, .events = POLLIN};
	int fds[SESSION_FDS_MAX], nfds = 0, rc;
	struct session_msg m;

	*door = -1;
	if (poll(&at, 1, ms) != 1)
		return -EAGAIN;
	rc = session_recv(sock, &m, fds, &nfds, 0);
	if (rc)
		return rc;
	if (nfds > 0)
		*door = fds[0];
	for (int i = 1; i < nfds; i++)
		close(fds[i]);
	return (int)m.result;
}

/* ---- priority ------------------------------------------------------------------------------- */

static bool is_lifted(uint64_t tid)
{
	int policy = sched_getscheduler((pid_t)tid);

	return (policy & ~SCHED_RESET_ON_FORK) == SCHED_RR ||
	       getpriority(PRIO_PROCESS, (id_t)tid) == -20;
}

static void wait_until_normal(uint64_t tid)
{
	for (int i = 0; i < PATIENCE && is_lifted(tid); i++)
		usleep(1000);
	ck_assert(!is_lifted(tid));
}

START_TEST(one_thread_of_a_program_has_priority_and_none_that_is_not_its_own)
{
	struct prog_order shared = {.op = PROG_NAME, .flags = 1};
	struct prog prog, next;
	struct prog_report one, other;

	prog_start(&prog, world.socket);
	one = op(&prog, PROG_NAME, 0);
	ck_assert_int_eq(one.result, 0);
	ck_assert(is_lifted(one.value));
	other = op(&prog, PROG_NAME, 0);
	ck_assert_int_eq(other.result, 0);
	ck_assert(is_lifted(other.value));
	ck_assert(!is_lifted(one.value));
	/* With its session it goes. */
	ck_assert_int_eq(op(&prog, PROG_UNNAME, 0).result, 0);
	wait_until_normal(other.value);
	/* A stranger's thread: this test's. */
	ck_assert_int_eq(op(&prog, PROG_NAME, (uint64_t)getpid()).result, 0);
	ck_assert(!is_lifted((uint64_t)getpid()));
	prog_end(&prog);

	/* Another process of the same memory is no other program. */
	prog_start(&next, world.socket);
	one = op(&next, PROG_NAME, 0);
	ck_assert(is_lifted(one.value));
	other = prog_do(&next, &shared);
	ck_assert_int_eq(other.result, 0);
	ck_assert(is_lifted(other.value));
	ck_assert(!is_lifted(one.value));
	kill((pid_t)other.value, SIGKILL);
	prog_end(&next);
}
END_TEST

/* ---- shares --------------------------------------------------------------------------------- */

static int idle_connections(const void *arg)
{
	int n = 0;

	for (int i = 0; i < 1000; i++)
		n += session_connect(door_path) >= 0;
	(void)arg;
	return n;
}

START_TEST(idle_connections_of_one_user_keep_nobody_out)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s = stranger_start(STRANGER, idle_connections, NULL);
	struct prog prog;

	ck_assert_int_gt(stranger_said(&s), 500);
	world_prog(&prog); /* at its first try */
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	stranger_end(&s);
	seg_put(seg);
}
END_TEST

/* Three sessions are fine, the fourth is not; those that are over do not count. The doors stay
   open: a session ends with its own. */
static int four_sessions(const void *arg)
{
	int sock[4], door[4], rc;

	(void)arg;
	for (int i = 0; i < 4; i++) {
		sock[i] = say_hello();
		rc = hear_welcome(sock[i], PATIENCE, &door[i]);
		if (rc != (i < 3 ? 0 : EUSERS))
			return -1;
	}
	close(sock[0]);
	for (int i = 0; i < PATIENCE; i++) { /* until the daemon has seen that */
		sock[0] = say_hello();
		rc = hear_welcome(sock[0], PATIENCE, &door[0]);
		if (!rc)
			return 1;
		close(sock[0]);
		usleep(1000);
	}
	return 0;
}

START_TEST(a_user_has_so_many_sessions_and_no_more)
{
	struct seg *seg = world_segment("x", 5);
	struct prog prog[5];
	struct stranger s;

	world_programs_stop();
	world.user_sessions = 3;
	world_programs_start();
	s = stranger_start(STRANGER, four_sessions, NULL);
	ck_assert_int_eq(stranger_said(&s), 1);
	/* Others have their own. */
	for (int i = 0; i < 3; i++) {
		world_prog(&prog[i]);
		world_attach(&prog[i], seg, O_RDWR);
	}
	for (int i = 0; i < 3; i++)
		prog_end(&prog[i]);
	stranger_end(&s);
	world.user_sessions = 0;
	seg_put(seg);
}
END_TEST

/* ---- doors ---------------------------------------------------------------------------------- */

/* Of one process's threads. */
static int threads_at_doors(pid_t pid)
{
	char path[400], name[32];
	struct dirent *entry;
	DIR *task;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	task = opendir(path);
	while (task && (entry = readdir(task))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, entry->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		n += fgets(name, sizeof(name), f) && strcmp(name, "rampfs-door\n") == 0;
		fclose(f);
	}
	if (task)
		closedir(task);
	return n;
}

/* The doorman, a child of ours; *at_doors: its threads there, and those of one that was killed. */
static pid_t find_doorman(int *at_doors)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	*at_doors = 0;
	while ((entry = readdir(proc))) {
		char path[64], name[32] = "", line[256];
		int parent = 0;
		FILE *f;

		if (atoi(entry->d_name) <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/stat", atoi(entry->d_name));
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f) &&
		    sscanf(line, "%*d (%31[^)]) %*c %d", name, &parent) == 2 &&
		    strcmp(name, "rampfs-doorman") == 0 && parent == getpid()) {
			found = atoi(entry->d_name);
			*at_doors += threads_at_doors(found);
		}
		fclose(f);
	}
	closedir(proc);
	return found;
}

static int doorman_threads(void)
{
	int n;

	find_doorman(&n);
	return n;
}

/* And stay so: one that has done its work may still be ending, one that stood in line come. */
static void wait_until_threads_are(int many)
{
	int looks = 0;

	for (int i = 0; i < PATIENCE && looks < 20; i++) {
		looks = doorman_threads() == many ? looks + 1 : 0;
		usleep(5000);
	}
	ck_assert_int_eq(looks, 20);
}

/* Forty that come to the door and say nothing there: how many get in. */
static int silent_at_the_door(const void *arg)
{
	int sock[40], door, n = 0;

	(void)arg;
	for (int i = 0; i < 40; i++)
		sock[i] = say_hello();
	for (int i = 0; i < 40; i++)
		n += hear_welcome(sock[i], i < DOORS ? PATIENCE : GREETED_MS / 20, &door) == 0;
	return n;
}

START_TEST(who_stands_silent_at_the_door_leaves_room_for_others)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s = stranger_start(STRANGER, silent_at_the_door, NULL);
	struct prog prog;

	ck_assert_int_eq(stranger_said(&s), DOORS);
	ck_assert_int_le(doorman_threads(), DOORS);
	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	stranger_end(&s);
	/* When it ends, its threads do. */
	wait_until_threads_are(0);
	seg_put(seg);
}
END_TEST

/* ---- a file whose close(2) never returns ----------------------------------------------------- */

static void fuse_answer(int dev, uint64_t unique, const void *body, size_t len)
{
	struct {
		struct fuse_out_header head;
		uint8_t body[256];
	} out = {.head = {.len = (uint32_t)(sizeof(out.head) + len), .unique = unique}};

	memcpy(out.body, body, len);
	if (write(dev, &out, out.head.len) < 0)
		_exit(1);
}

/* A filesystem with one file that can be opened; nothing that comes after is ever answered. */
static void fuse_serve(int dev)
{
	static uint8_t in[1 << 18];
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
				     .minor = 31,
				     .max_write = 65536,
				     .max_background = 12,
				     .congestion_threshold = 9};
	struct fuse_attr file = {.ino = 2, .mode = S_IFREG | 0666, .nlink = 1};
	struct fuse_attr dir = {.ino = 1, .mode = S_IFDIR | 0777, .nlink = 2};
	struct fuse_entry_out entry = {
		.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000, .attr = file};
	struct fuse_attr_out attr = {.attr_valid = 1000, .attr = dir};
	struct fuse_open_out open = {.fh = 1};

	while (read(dev, in, sizeof(in)) > 0) {
		const struct fuse_in_header *head = (const void *)in;

		if (head->opcode == FUSE_INIT)
			fuse_answer(dev, head->unique, &init, sizeof(init));
		else if (head->opcode == FUSE_LOOKUP)
			fuse_answer(dev, head->unique, &entry, sizeof(entry));
		else if (head->opcode == FUSE_GETATTR && head->nodeid == 1)
			fuse_answer(dev, head->unique, &attr, sizeof(attr));
		else if (head->opcode == FUSE_OPEN)
			fuse_answer(dev, head->unique, &open, sizeof(open));
	}
}

/* Its server, which ends the connection when it is killed. */
static pid_t fuse_mount(const char *at)
{
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];
	pid_t pid;

	ck_assert_int_ge(dev, 0);
	ck_assert(!mkdir(at, 0755) || errno == EEXIST);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 dev);
	ck_assert_msg(!mount("hostile", at, "fuse.hostile", MS_NODEV | MS_NOSUID, options),
		      "mount: %s", strerror(errno));
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fuse_serve(dev);
		_exit(0);
	}
	close(dev);
	return pid;
}

/* Gives that file to the doorman, more often than there are doors: how many get in. */
static int send_hanging(const void *arg)
{
	int door, n = 0;

	(void)arg;
	for (int i = 0; i < DOORS + 4; i++) {
		int sock = say_hello();
		struct session_msg m;

		if (hear_welcome(sock, i < DOORS ? PATIENCE : GREETED_MS, &door))
			continue;
		n++;
		session_send_uffd(door, given_file);
		/* It is told so; then the thread begins to close it. */
		if (session_recv(sock, &m, NULL, NULL, 0) || m.result != EBADF)
			return -1;
	}
	return n;
}

static int greet_once(const void *arg)
{
	int door;

	(void)arg;
	return hear_welcome(say_hello(), PATIENCE, &door);
}

START_TEST(a_file_that_hangs_whoever_closes_it_hangs_one_thread_of_the_doorman)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s, again;
	struct prog prog;
	char path[400];
	pid_t server;
	int n;

	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	server = fuse_mount(path);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	given_path = path;
	s = stranger_start(STRANGER, send_hanging, NULL);
	given_path = NULL;
	ck_assert_int_eq(stranger_said(&s), DOORS);
	ck_assert_int_eq(doorman_threads(), DOORS);
	/* Others come and go as ever. */
	for (int i = 0; i < 3; i++) {
		world_prog(&prog);
		world_attach(&prog, seg, O_RDWR);
		prog_end(&prog);
	}
	wait_until_threads_are(DOORS);

	/* Also where the doorman dies and those that hang can't. Who is at its door then comes
	 * again. */
	ck_assert_int_eq(kill(find_doorman(&n), SIGKILL), 0);
	for (int i = 0; i < 100; i++) {
		again = stranger_start(STRANGER, greet_once, NULL);
		n = stranger_said(&again);
		stranger_end(&again);
		if (n == 0)
			break;
		usleep(50000);
	}
	ck_assert_int_eq(n, 0);
	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);

	/* With the filesystem's end they end, and its user is served again. */
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	wait_until_threads_are(0);
	again = stranger_start(STRANGER, greet_once, NULL);
	ck_assert_int_eq(stranger_said(&again), 0);
	stranger_end(&again);
	stranger_end(&s);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	umount2(path, MNT_DETACH);
	rmdir(path);
	seg_put(seg);
}
END_TEST

/* The daemon's end waits for no thread that hangs: the fixture's teardown comes before the server's
   death, which is this process's. */
START_TEST(the_daemon_ends_while_one_hangs_at_the_door)
{
	struct stranger s;
	char path[400];

	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	fuse_mount(path);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	given_path = path;
	s = stranger_start(STRANGER, send_hanging, NULL);
	given_path = NULL;
	ck_assert_int_eq(stranger_said(&s), DOORS);
	wait_until_threads_are(DOORS);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	umount2(path, MNT_DETACH);
	rmdir(path);
}
END_TEST

/* ---- tokens --------------------------------------------------------------------------------- */

static int nothing(const void *arg)
{
	(void)arg;
	return 0;
}

START_TEST(a_user_has_so_many_tokens_and_others_have_theirs)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s[9];
	struct ramp_err err = {0};
	uint64_t token[2], first[2] = {0};
	struct prog prog;

	world_prog(&prog);
	for (int i = 0; i < 9; i++)
		s[i] = stranger_start(STRANGER, nothing, NULL);
	for (int i = 0; i < 9; i++)
		stranger_said(&s[i]);
	/* Of one process the oldest goes. Of all of a user's the newest does not come. */
	for (int i = 0; i < 8; i++)
		for (int n = 0; n < 300; n++)
			ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR,
							s[i].pid, n ? token : first, &err),
					 0);
	ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR, s[8].pid, token, &err),
			 -EDQUOT);
	world_attach(&prog, seg, O_RDWR);
	for (int i = 0; i < 9; i++)
		stranger_end(&s[i]);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(an_old_token_is_none)
{
	struct prog_order order = {.op = PROG_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};
	struct seg *seg = world_segment("x", 5);
	struct prog prog;

	world_programs_stop();
	world.token_ms = 30;
	world_programs_start();
	world_prog(&prog);
	ck_assert_int_eq(
		programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL),
		0);
	usleep(60000);
	ck_assert_int_eq(prog_do(&prog, &order).result, -EPERM);
	prog_end(&prog);
	world.token_ms = 0;
	seg_put(seg);
}
END_TEST

START_TEST(a_forks_token_is_for_a_child)
{
	struct prog_order order = {.op = PROG_ADOPT};
	struct seg *seg = world_segment("x", 5);
	struct prog prog, other;
	struct prog_report r;

	world_prog(&prog);
	world_prog(&other);
	world_attach(&prog, seg, O_RDWR);
	r = op(&prog, PROG_TICKET, 0);
	ck_assert_int_eq(r.result, 0);
	order.token[0] = r.value;
	order.token[1] = r.addr;
	ck_assert_int_eq(prog_do(&other, &order).result, -EPERM);
	prog_end(&prog);
	prog_end(&other);
	seg_put(seg);
}
END_TEST

/* ---- the number of a process that has ended -------------------------------------------------- */

#define HELD_MAX 32

/* What that process has open, its session's socket too. */
static void hold_files(pid_t pid, int held[HELD_MAX])
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	ck_assert_int_ge(pidfd, 0);
	for (int i = 0; i < HELD_MAX; i++)
		held[i] = i < 4 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, i, 0);
	close(pidfd);
}

/* A process of that number which attaches with the token that it is told: the errno. */
static int attach_as(pid_t pid, struct seg *seg, const uint64_t *given, char text[SESSION_TEXT_MAX])
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
	struct session_msg msg = {.type = SESSION_ATTACH, .len = SEG_BYTES, .prot = PROT_READ};
	int pair[2];
	long child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	child = syscall(SYS_clone3, &args, sizeof(args));
	ck_assert_msg(child >= 0, "clone3: %s", strerror(errno));
	if (!child) {
		int sock = session_connect(world.socket);

		if (read(pair[1], msg.token, sizeof(msg.token)) != sizeof(msg.token) ||
		    session_send(sock, &msg, NULL, 0, 0) ||
		    session_recv(sock, &msg, NULL, NULL, 0) ||
		    write(pair[1], &msg, sizeof(msg)) != sizeof(msg))
			_exit(1);
		_exit(0);
	}
	if (given)
		memcpy(msg.token, given, sizeof(msg.token));
	else
		ck_assert_int_eq(
			programs_token(world.programs, seg_id(seg), O_RDWR, pid, msg.token, NULL),
			0);
	ck_assert_int_eq(write(pair[0], msg.token, sizeof(msg.token)), (ssize_t)sizeof(msg.token));
	ck_assert_int_eq(read(pair[0], &msg, sizeof(msg)), (ssize_t)sizeof(msg));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(pair[0]);
	close(pair[1]);
	memcpy(text, msg.text, SESSION_TEXT_MAX);
	return (int)msg.result;
}

START_TEST(a_dead_processes_session_and_token_do_not_serve_the_next_of_its_number)
{
	struct seg *seg = world_segment("x", 1);
	char text[SESSION_TEXT_MAX];
	int held[HELD_MAX];
	uint64_t token[2];
	struct prog prog;

	world_prog(&prog);
	ck_assert_int_eq(programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, token, NULL),
			 0);
	hold_files(prog.pid, held);
	prog_end(&prog);
	usleep(20000); /* /proc counts in ticks of 10 ms */
	ck_assert_int_eq(attach_as(prog.pid, seg, token, text), EPERM);
	/* With one of its own: the session that still stands is not its own. */
	ck_assert_int_eq(attach_as(prog.pid, seg, NULL, text), ESRCH);
	ck_assert_msg(strstr(text, "no session") != NULL, "%s", text);
	for (int i = 0; i < HELD_MAX; i++)
		if (held[i] >= 0)
			close(held[i]);
	seg_put(seg);
}
END_TEST

/* ---- agents that fall silent in the middle --------------------------------------------------- */

static uint64_t load_when_back(struct prog *prog, uint64_t addr)
{
	struct prog_order order = {.op = PROG_LOAD, .addr = addr};
	struct prog_report r = {.result = -1};

	for (int i = 0; i < PATIENCE && r.result; i++) {
		r = prog_do(prog, &order);
		if (r.result)
			usleep(1000);
	}
	ck_assert_int_eq(r.result, 0);
	return r.value;
}

/* Read-only first, then writable in its place; the agent leaves one command unanswered. */
START_TEST(an_agent_that_leaves_a_replacement_half_done_is_hung_up_on)
{
	struct prog_order order = {.op = PROG_ATTACH,
				   .len = SEG_BYTES,
				   .prot = PROT_READ | PROT_WRITE,
				   .flags = SESSION_REPLACE};
	struct seg *seg = world_segment("x", 5);
	struct ramp_err err = {0};
	struct prog prog;
	uint64_t addr;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(op(&prog, PROG_SESSION, (uint64_t)_i).result, 0);
	addr = world_attach(&prog, seg, O_RDONLY);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&prog, &order).result, -ETIMEDOUT);
	world_wait_session(&prog, 2);
	/* The segment is as free as before, and the old mapping stands. */
	ck_assert_uint_eq(load_when_back(&prog, addr), UINT64_C(0x0505050505050505));
	for (int i = 0; i < 100 && programs_revoke(world.programs, seg, 1000, &err); i++)
		usleep(10000); /* until its new session is ready */
	programs_restore(world.programs, seg);
	programs_token(world.programs, seg_id(seg), O_RDWR, prog.pid, order.token, NULL);
	ck_assert_int_eq(prog_do(&prog, &order).result, 0);
	ck_assert_int_eq(
		prog_do(&prog, &(struct prog_order){.op = PROG_STORE, .addr = addr}).result, 0);
	/* A child of it has the same, and no private copy of what looks read-only. */
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_FORK, .addr = addr}).result,
			 0);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

START_TEST(a_segment_that_comes_back_to_a_silent_agent_is_sigbus_until_it_comes_again)
{
	struct seg *seg = world_segment("x", 5);
	struct ramp_err err = {0};
	struct prog prog;
	uint64_t addr;

	prog_start(&prog, world.socket);
	ck_assert_int_eq(op(&prog, PROG_SESSION, 8).result, 0);
	addr = world_attach(&prog, seg, O_RDWR);
	ck_assert_int_eq(programs_revoke(world.programs, seg, 2000, &err), 0);
	world_give(seg);
	programs_gone(world.programs, seg, "b");
	ck_assert_int_eq(prog_do(&prog, &(struct prog_order){.op = PROG_LOAD, .addr = addr}).result,
			 -SIGBUS);
	seg = world_take(seg, 0, SEG_BYTES / RAMP_PAGE_BYTES);
	ck_assert_int_eq(programs_pulling(world.programs, seg, &err), 0);
	programs_back(world.programs, seg, 0);
	/* Hung up on for the SWAP that it left, it comes again and gets the segment. */
	world_wait_session(&prog, 2);
	ck_assert_uint_eq(load_when_back(&prog, addr), FILLED);
	prog_end(&prog);
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, one_thread_of_a_program_has_priority_and_none_that_is_not_its_own);
	tcase_add_test(tc, idle_connections_of_one_user_keep_nobody_out);
	tcase_add_test(tc, a_user_has_so_many_sessions_and_no_more);
	tcase_add_test(tc, who_stands_silent_at_the_door_leaves_room_for_others);
	tcase_add_test(tc, a_file_that_hangs_whoever_closes_it_hangs_one_thread_of_the_doorman);
	tcase_add_test(tc, the_daemon_ends_while_one_hangs_at_the_door);
	tcase_add_test(tc, a_user_has_so_many_tokens_and_others_have_theirs);
	tcase_add_test(tc, an_old_token_is_none);
	tcase_add_test(tc, a_forks_token_is_for_a_child);
	tcase_add_test(tc, a_dead_processes_session_and_token_do_not_serve_the_next_of_its_number);
	tcase_add_loop_test(tc, an_agent_that_leaves_a_replacement_half_done_is_hung_up_on, 7, 9);
	tcase_add_test(tc,
		       a_segment_that_comes_back_to_a_silent_agent_is_sigbus_until_it_comes_again);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "strangers", add_tests);
}
