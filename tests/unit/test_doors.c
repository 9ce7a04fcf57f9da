/*
 * The broker's doors, the sockets on which it waits for a userfaultfd: clients that keep one for
 * long, and what clients send there, or to the session socket instead, to do harm.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "programs_world.h"
#include "stranger.h"

#define GREETED_MS 1000 /* a HELLO that has no answer by then waits for a slot at the broker */

/* ---- the broker, from outside --------------------------------------------------------------- */

/* Counts the threads of one process that wait at a door. */
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

/* Returns the broker, a child of this process. *at_doors: how many threads it has at doors, with
   those of a broker that was killed. */
static pid_t find_broker(int *at_doors)
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
		    strcmp(name, "rampfs-broker") == 0 && parent == getpid()) {
			found = atoi(entry->d_name);
			*at_doors += threads_at_doors(found);
		}
		fclose(f);
	}
	closedir(proc);
	return found;
}

static int broker_threads(void)
{
	int n;

	find_broker(&n);
	return n;
}

/* Waits until there are that many, and stay that many: a thread that has done its work may still
   be ending, a client in line may still get its slot. */
static void wait_until_threads_are(int many)
{
	int looks = 0;

	for (int i = 0; i < PATIENCE && looks < 20; i++) {
		looks = broker_threads() == many ? looks + 1 : 0;
		usleep(5000);
	}
	ck_assert_int_eq(looks, 20);
}

/* Makes forty sessions that send nothing to the broker. Returns how many get a slot. All have
   sent HELLO before the first is looked at, and the last must be looked at before the first
   silent one's 5 s are over and its slot is free. */
static int silent_at_the_door(const void *arg)
{
	int sock[40], door, n = 0;

	(void)arg;
	for (int i = 0; i < 40; i++)
		sock[i] = stranger_hello();
	for (int i = 0; i < 40; i++)
		n += stranger_welcome(sock[i], i < DOORS ? PATIENCE : GREETED_MS / 100, &door) == 0;
	return n;
}

START_TEST(who_stands_silent_at_the_door_leaves_room_for_others)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s = stranger_start(STRANGER, silent_at_the_door, NULL);
	struct prog prog;

	ck_assert_int_eq(stranger_said(&s), DOORS);
	ck_assert_int_le(broker_threads(), DOORS);
	world_prog(&prog);
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);
	stranger_end(&s);
	/* When the client ends, its threads at the broker do. */
	wait_until_threads_are(0);
	seg_put(seg);
}
END_TEST

/* ---- a file whose close(2) never returns ----------------------------------------------------- */

static void fuse_answer(int dev, uint64_t unique, int error, const void *body, size_t len)
{
	struct {
		struct fuse_out_header head;
		uint8_t body[256];
	} out = {.head = {.len = (uint32_t)(sizeof(out.head) + len),
			  .error = -error,
			  .unique = unique}};

	if (len)
		memcpy(out.body, body, len);
	if (write(dev, &out, out.head.len) < 0)
		_exit(1);
}

/* Which request at a file's end is never answered. */
enum hang { AT_CLOSE, AT_RELEASE };

/* Serves a filesystem with one file that can be opened. AT_CLOSE: no request after the open is
   ever answered, so close(2) hangs. AT_RELEASE: a WRITE is never answered, so the process or
   thread that drops the last reference to a file with written data hangs, by whatever means it
   drops it. */
static void fuse_serve(int dev, enum hang hang)
{
	static uint8_t in[1 << 18];
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
				     .minor = 31,
				     .flags = hang == AT_RELEASE ? FUSE_WRITEBACK_CACHE : 0,
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
			fuse_answer(dev, head->unique, 0, &init, sizeof(init));
		else if (head->opcode == FUSE_LOOKUP)
			fuse_answer(dev, head->unique, 0, &entry, sizeof(entry));
		else if (head->opcode == FUSE_GETATTR && head->nodeid == 1)
			fuse_answer(dev, head->unique, 0, &attr, sizeof(attr));
		else if (head->opcode == FUSE_OPEN)
			fuse_answer(dev, head->unique, 0, &open, sizeof(open));
		else if (hang == AT_RELEASE &&
			 (head->opcode == FUSE_FLUSH || head->opcode == FUSE_GETXATTR))
			fuse_answer(dev, head->unique, ENOSYS, NULL, 0);
	}
}

/* Mounts it. Returns its server, which ends the connection when it is killed. */
static pid_t fuse_mount(const char *at, enum hang hang)
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
		fuse_serve(dev, hang);
		_exit(0);
	}
	close(dev);
	return pid;
}

/* Sends that file to the broker, more often than there are slots. Returns how many get one. */
static int send_hanging(const void *arg)
{
	int door, n = 0;

	(void)arg;
	for (int i = 0; i < DOORS + 4; i++) {
		int sock = stranger_hello();
		struct session_msg m;

		if (stranger_welcome(sock, i < DOORS ? PATIENCE : GREETED_MS, &door))
			continue;
		n++;
		session_send_uffds(door, &stranger_has, 1);
		/* The client is refused; then the broker's thread begins to close the file. */
		if (session_recv(sock, &m, NULL, NULL, 0) || m.result != EBADF)
			return -1;
	}
	return n;
}

static int greet_once(const void *arg)
{
	int door;

	(void)arg;
	return stranger_welcome(stranger_hello(), PATIENCE, &door);
}

START_TEST(a_file_that_hangs_whoever_closes_it_hangs_one_thread_of_the_broker)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s, again;
	struct prog prog;
	char path[400];
	pid_t server;
	int n;

	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	server = fuse_mount(path, AT_CLOSE);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	stranger_file = path;
	s = stranger_start(STRANGER, send_hanging, NULL);
	stranger_file = NULL;
	ck_assert_int_eq(stranger_said(&s), DOORS);
	ck_assert_int_eq(broker_threads(), DOORS);
	/* Other programs come and go as before. */
	for (int i = 0; i < 3; i++) {
		world_prog(&prog);
		world_attach(&prog, seg, O_RDWR);
		prog_end(&prog);
	}
	wait_until_threads_are(DOORS);

	/* Also if the broker dies and the threads that hang can't. A session that waits for the
	   broker then comes again. */
	ck_assert_int_eq(kill(find_broker(&n), SIGKILL), 0);
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

	/* When the filesystem ends, they end, and its user is served again. */
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

/* The daemon's end waits for no thread that hangs: the fixture's teardown comes before the
   server's death, which comes with this process's. */
START_TEST(the_daemon_ends_while_one_hangs_at_the_door)
{
	struct stranger s;
	char path[400];

	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	fuse_mount(path, AT_CLOSE);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	stranger_file = path;
	s = stranger_start(STRANGER, send_hanging, NULL);
	stranger_file = NULL;
	ck_assert_int_eq(stranger_said(&s), DOORS);
	wait_until_threads_are(DOORS);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	umount2(path, MNT_DETACH);
	rmdir(path);
}
END_TEST

/* Starts a program with a session, and tries again for a while: a session that waits for the
   broker when that dies is hung up on, and has to come again. */
static bool is_served(struct prog *prog)
{
	for (int i = 0; i < 6; i++) {
		prog_start(prog, world.socket);
		if (prog_do(prog, &(struct prog_order){.op = PROG_SESSION}).result == 0)
			return true;
		prog_end(prog);
		usleep(500000);
	}
	return false;
}

static void send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t n)
{
	struct iovec io = {(void *)(uintptr_t)bytes, len};
	union {
		char bytes[CMSG_SPACE(sizeof(int) * 2)];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = CMSG_SPACE(sizeof(int) * n)};

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int) * n);
	memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * n);
	if (sendmsg(sock, &m, MSG_NOSIGNAL) != (ssize_t)len)
		_exit(1);
}

/* Sends two descriptors in one message. The second is a socket that holds the last reference to
   a file; the thread that drops it hangs. The file was clean when it was closed here, and is not
   any more. */
static int send_two(const void *arg)
{
	static const uint8_t page[4096], version = SESSION_VERSION;
	int door, pair[2], two[2], n = stranger_welcome(stranger_hello(), PATIENCE, &door);
	char path[32];

	(void)arg;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", stranger_has);
	two[0] = open(path, O_RDWR | O_CLOEXEC);
	if (n || two[0] < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		_exit(1);
	send_fds(pair[0], &version, 1, &two[0], 1);
	close(two[0]);
	close(pair[0]);
	if (pwrite(stranger_has, page, sizeof(page), 0) != sizeof(page))
		_exit(1);
	two[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	two[1] = pair[1];
	send_fds(door, &version, 1, two, 2);
	close(two[0]);
	close(two[1]);
	return 0;
}

START_TEST(a_descriptor_too_many_hides_no_death_of_the_broker)
{
	struct seg *seg = world_segment("x", 5);
	struct stranger s;
	struct prog prog;
	char path[400];
	pid_t server, broker = 0;
	int n;

	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	server = fuse_mount(path, AT_RELEASE);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	stranger_file = path;
	/* The broker is stopped, so that it receives the message when the client has closed its
	   own copies. */
	for (int i = 0; i < PATIENCE && !broker; i++) { /* until the broker has its name */
		broker = find_broker(&n);
		usleep(1000);
	}
	ck_assert_int_gt(broker, 0);
	ck_assert_int_eq(kill(broker, SIGSTOP), 0);
	s = stranger_start(STRANGER, send_two, NULL);
	stranger_file = NULL;
	ck_assert_int_eq(stranger_said(&s), 0);
	ck_assert_int_eq(kill(broker, SIGCONT), 0);
	wait_until_threads_are(1);

	ck_assert_int_eq(kill(broker, SIGKILL), 0);
	ck_assert(is_served(&prog));
	world_attach(&prog, seg, O_RDWR);
	prog_end(&prog);

	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	wait_until_threads_are(0);
	stranger_end(&s);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	umount2(path, MNT_DETACH);
	rmdir(path);
	seg_put(seg);
}
END_TEST

/* ---- the session socket, where no descriptor may come ---------------------------------------- */

#define SENDERS 24 /* more than there are threads that end sessions */

/* Makes connections, each of which sends a file that is open nowhere else. Then that becomes a
   file whose last close hangs, and they hang up. Half of them are sessions. Returns how many
   messages were refused. */
static int send_to_the_daemon(const void *arg)
{
	static const uint8_t page[4096];
	struct session_msg m = {.type = SESSION_HELLO, .tid = 1};
	int socks[SENDERS], n = 0;
	char path[32];

	(void)arg;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", stranger_has);
	for (int i = 0; i < SENDERS; i++) {
		int fd = open(path, O_RDWR | O_CLOEXEC);

		socks[i] = i % 2 ? stranger_hello() : stranger_connect();
		if (socks[i] < 0 || fd < 0)
			_exit(1);
		n += session_send(socks[i], &m, &fd, 1, 0) == -EPERM;
		close(fd);
	}
	if (pwrite(stranger_has, page, sizeof(page), 0) != sizeof(page))
		_exit(1);
	for (int i = 0; i < SENDERS; i++)
		close(socks[i]);
	return n;
}

START_TEST(the_session_socket_takes_no_descriptor_and_the_daemon_goes_on)
{
	struct seg *seg;
	struct stranger s;
	struct prog prog;
	char path[400];
	pid_t server;
	int is;
	socklen_t len = sizeof(is);

	if (getsockopt(world.listen_fd, SOL_SOCKET, KERNEL_SO_PASSRIGHTS, &is, &len)) {
		/* Before Linux 6.16 the kernel does not refuse them. */
		ck_assert_int_eq(errno, ENOPROTOOPT);
		return;
	}
	seg = world_segment("x", 5);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	server = fuse_mount(path, AT_RELEASE);
	snprintf(path, sizeof(path), "%s/hostile/file", memory_dir());
	stranger_file = path;
	s = stranger_start(STRANGER, send_to_the_daemon, NULL);
	stranger_file = NULL;
	ck_assert_int_eq(stranger_said(&s), SENDERS);
	for (int i = 0; i < 3; i++) {
		world_prog(&prog);
		world_attach(&prog, seg, O_RDWR);
		prog_end(&prog);
	}

	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	stranger_end(&s);
	snprintf(path, sizeof(path), "%s/hostile", memory_dir());
	umount2(path, MNT_DETACH);
	rmdir(path);
	seg_put(seg);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, who_stands_silent_at_the_door_leaves_room_for_others);
	tcase_add_test(tc, a_file_that_hangs_whoever_closes_it_hangs_one_thread_of_the_broker);
	tcase_add_test(tc, the_daemon_ends_while_one_hangs_at_the_door);
	tcase_add_test(tc, a_descriptor_too_many_hides_no_death_of_the_broker);
	tcase_add_test(tc, the_session_socket_takes_no_descriptor_and_the_daemon_goes_on);
}

int main(int argc, char **argv)
{
	return world_main(argc, argv, "doors", add_tests);
}
