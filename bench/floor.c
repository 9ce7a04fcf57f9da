/*
 * Floors: the costs of the kernel and the wire by themselves, measured with the smallest programs
 * that do the job.
 *
 *	floor pagefault MIB COUNT	us per page fault, one a line: a toucher, a resolver that
 *					reads the userfaultfd, sends 16 bytes, receives 4 KiB in
 *					place and says CONTINUE, a responder
 *	floor continue MIB COUNT	the same without responder and network: the data is there
 *	floor stream MIB [apart]	GB/s of one TCP stream with send() into a mapping; apart: sender
 *					and receiver on the first two processors
 *	floor revoke MIB small|huge REPS
 *					us per revoke with three writers: register from outside,
 *					the agent's MADV_DONTNEED; one a line
 *	floor agent COUNT		us per question to an agent, a thread at real-time priority
 *					beside three writers, and its answer, over a unix socket; one a
 *					line
 *	floor roundtrip COUNT		us per message round trip over TCP on loopback, one a line
 *	floor commit DIR COUNT		us per commit of three voters, one a line: a leader sends 4 KiB to
 *					two followers, each of the three appends them to a file in DIR
 *					and says fdatasync, one follower's answer is waited for
 *
 * Each makes a tmpfs of its own in a mount namespace of its own, so nothing is left behind (a slave
 * of the caller's: a private one would keep other people's mounts alive).
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"

#include "bench.h"

#include <linux/userfaultfd.h>

#define PAGE 4096u
#define AT   ((uint8_t *)0x100000000000) /* the mapping's address in every process */

static uint8_t *map_at(void *at, int fd, size_t bytes)
{
	uint8_t *p = mmap(at, bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), fd, 0);

	must(p != MAP_FAILED, "mmap");
	return p;
}

static void tcp_pair(int ends[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	must(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0 &&
		     getsockname(listener, (struct sockaddr *)&at, &len) == 0,
	     "listen");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(ends[0], (struct sockaddr *)&at, len) == 0, "connect");
	ends[1] = accept(listener, NULL, NULL);
	must(ends[1] >= 0, "accept");
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

/* Receives all of it. Returns false at the end of the stream. `spin_us`: polls that long before it
   sleeps. */
static int receive(int sock, void *bytes, size_t len, unsigned spin_us)
{
	size_t got = 0;

	while (got < len) {
		uint64_t since = now_ns();
		ssize_t n;

		do {
			n = recv(sock, (uint8_t *)bytes + got, len - got, MSG_DONTWAIT);
		} while (n < 0 && errno == EAGAIN && now_ns() - since < spin_us * 1000u);
		if (n < 0 && errno == EAGAIN)
			n = recv(sock, (uint8_t *)bytes + got, len - got, 0);
		if (n <= 0)
			return 0;
		got += (size_t)n;
	}
	return 1;
}

static uint32_t *shuffled(size_t n)
{
	uint32_t *order = malloc(n * sizeof(*order));
	uint64_t random = 88172645463325252u;

	must(order != NULL, "memory");
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	for (size_t i = n - 1; i > 0; i--) {
		size_t j = next_random(&random) % (i + 1);
		uint32_t swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
	return order;
}

static int new_uffd(void)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), uffd;

	must(dev >= 0, "/dev/userfaultfd");
	uffd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	must(uffd >= 0, "userfaultfd");
	close(dev);
	return uffd;
}

static void send_fd(int sock, int fd)
{
	char byte = 'f';
	struct iovec iov = {&byte, 1};
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c = {0};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = c.buf,
			   .msg_controllen = sizeof(c)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	must(sendmsg(sock, &m, 0) == 1, "sendmsg");
}

static int take_fd(int sock)
{
	char byte;
	struct iovec iov = {&byte, 1};
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c = {0};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = c.buf,
			   .msg_controllen = sizeof(c)};
	int fd;

	must(recvmsg(sock, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* ---- pagefault ---- */

static void respond(int sock, const uint8_t *source)
{
	uint64_t request[2];

	while (receive(sock, request, sizeof(request), 50))
		if (send(sock, source + request[0] * PAGE, PAGE, MSG_NOSIGNAL) != PAGE)
			break;
	_exit(0);
}

static void touch(int control, int fd, size_t bytes, size_t count)
{
	uint8_t *p = map_at(AT, fd, bytes);
	uint32_t *order = shuffled(bytes / PAGE);
	uint64_t *took = calloc(count, sizeof(*took));
	int uffd = new_uffd();
	char go;

	must(took != NULL, "memory");
	send_fd(control, uffd);
	must(read(control, &go, 1) == 1, "control");
	for (size_t i = 0; i < count; i++) {
		uint64_t since = now_ns();

		(void)((volatile uint8_t *)p)[(size_t)order[i] * PAGE];
		took[i] = now_ns() - since;
	}
	for (size_t i = 0; i < count; i++)
		printf("%.2f\n", (double)took[i] / 1e3);
	fflush(stdout);
	_exit(0);
}

/* sock -1: nothing is asked for. */
static void resolve(int uffd, int sock, uint8_t *mine)
{
	struct uffd_msg m;

	for (;;) {
		struct pollfd pfd = {.fd = uffd, .events = POLLIN};
		uint64_t since = now_ns(), request[2] = {0};

		while (read(uffd, &m, sizeof(m)) != (ssize_t)sizeof(m))
			if (now_ns() - since > 50000 && poll(&pfd, 1, -1) < 0)
				_exit(0);
		request[0] = (m.arg.pagefault.address - (uint64_t)AT) / PAGE;
		if (sock >= 0 &&
		    (send(sock, request, sizeof(request), MSG_NOSIGNAL) != sizeof(request) ||
		     !receive(sock, mine + request[0] * PAGE, PAGE, 50)))
			_exit(0);
		kernel_uffd_continue(uffd, (uint64_t)AT + request[0] * PAGE, PAGE, true);
	}
}

static pid_t start_responder(int sock, size_t bytes)
{
	int fd = tmpfs_file("never", bytes);
	pid_t responder = fork();

	if (responder == 0) {
		uint8_t *source = map_at(NULL, fd, bytes);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(source, 7, bytes);
		respond(sock, source);
	}
	return responder;
}

static int floor_pagefault(size_t mib, size_t count, bool remote)
{
	size_t bytes = mib << 20;
	int fd = tmpfs_file("never", bytes), tcp[2] = {-1, -1}, ctl[2];
	pid_t responder = 0, resolver, toucher;
	int uffd;

	must(count <= bytes / PAGE && fallocate(fd, 0, 0, (off_t)bytes) == 0, "fallocate");
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ctl) == 0, "socketpair");
	if (remote) {
		tcp_pair(tcp);
		responder = start_responder(tcp[1], bytes);
	}
	toucher = fork();
	if (toucher == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		touch(ctl[1], fd, bytes, count);
	}
	uffd = take_fd(ctl[0]);
	must(kernel_uffd_api(uffd, UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM) == 0 &&
		     kernel_uffd_register(uffd, (uint64_t)AT, bytes,
					  UFFDIO_REGISTER_MODE_MISSING |
						  UFFDIO_REGISTER_MODE_MINOR) == 0,
	     "register");
	resolver = fork();
	if (resolver == 0) {
		uint8_t *mine = map_at(NULL, fd, bytes);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		madvise(mine, bytes, MADV_POPULATE_WRITE);
		must(write(ctl[0], "g", 1) == 1, "control");
		resolve(uffd, tcp[0], mine);
	}
	waitpid(toucher, NULL, 0);
	kill(resolver, SIGKILL);
	if (remote)
		kill(responder, SIGKILL);
	while (wait(NULL) > 0)
		;
	return 0;
}

/* ---- stream ---- */

static void stay_on(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

static int floor_stream(size_t mib, bool apart)
{
	size_t bytes = mib << 20, sent = 0;
	int from = tmpfs_file("always", bytes), to = tmpfs_file("always", bytes), tcp[2];
	uint8_t *source = map_at(NULL, from, bytes), *sink;
	uint64_t since;
	pid_t sender;

	memset(source, 7, bytes);
	must(fallocate(to, 0, 0, (off_t)bytes) == 0, "fallocate");
	sink = map_at(NULL, to, bytes);
	madvise(sink, bytes, MADV_POPULATE_WRITE);
	tcp_pair(tcp);
	if (apart)
		stay_on(1);
	since = now_ns();
	sender = fork();
	if (sender == 0) {
		if (apart)
			stay_on(0);
		while (sent < bytes) {
			size_t piece = bytes - sent < (1u << 20) ? bytes - sent : 1u << 20;
			ssize_t n = send(tcp[1], source + sent, piece, MSG_NOSIGNAL);

			if (n < 0)
				_exit(1);
			sent += (size_t)n;
		}
		_exit(0);
	}
	close(tcp[1]);
	must(receive(tcp[0], sink, bytes, 0), "stream");
	printf("%.3f\n", (double)bytes / (double)(now_ns() - since));
	waitpid(sender, NULL, 0);
	return 0;
}

/* ---- revoke ---- */

static atomic_int stop_writers;
static size_t revoke_bytes;

static void *write_at_random(void *arg)
{
	uint64_t random = 88172645463325252u + (uint64_t)(uintptr_t)arg * 7919;

	while (!stop_writers)
		((volatile uint64_t *)AT)[next_random(&random) % (revoke_bytes / 8)] = random;
	return NULL;
}

/* The program: three writers and an agent (this thread), which drops the page-table entries when
   told to. */
static void program(int control, int fd, size_t bytes, int huge)
{
	struct sched_param rr = {.sched_priority = 10};
	pthread_t writers[3];
	uint8_t *p = map_at(AT, fd, bytes);
	int uffd = new_uffd();
	char byte;

	madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	madvise(p, bytes, MADV_POPULATE_WRITE);
	revoke_bytes = bytes;
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&writers[i], NULL, write_at_random, (void *)i);
	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &rr);
	send_fd(control, uffd);
	while (read(control, &byte, 1) == 1)
		if (madvise(p, bytes, MADV_DONTNEED) < 0 || write(control, "a", 1) != 1)
			break;
	_exit(0);
}

/* Maps the pages again as they were: one page at a time would leave small entries. */
static void give_back(int uffd, size_t bytes)
{
	struct uffd_msg m;

	while (read(uffd, &m, sizeof(m)) > 0)
		;
	kernel_uffd_unregister(uffd, (uint64_t)AT, bytes);
	kernel_uffd_wake(uffd, (uint64_t)AT, bytes);
}

static int floor_revoke(size_t mib, int huge, int reps)
{
	size_t bytes = mib << 20;
	int fd = tmpfs_file(huge ? "always" : "never", bytes), ctl[2], uffd;
	struct sched_param rr = {.sched_priority = 10};
	pid_t child;
	char byte;

	must(fallocate(fd, 0, 0, (off_t)bytes) == 0, "fallocate");
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ctl) == 0, "socketpair");
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		program(ctl[1], fd, bytes, huge);
	}
	uffd = take_fd(ctl[0]);
	must(kernel_uffd_api(uffd, UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
					   UFFD_FEATURE_PAGEFAULT_FLAG_WP |
					   UFFD_FEATURE_WP_HUGETLBFS_SHMEM) == 0,
	     "api");
	sched_setscheduler(0, SCHED_RR, &rr);
	for (int i = 0; i < reps; i++) {
		uint64_t since;

		usleep(200000); /* the writers touch their working set */
		since = now_ns();
		must(kernel_uffd_register(uffd, (uint64_t)AT, bytes,
					  UFFDIO_REGISTER_MODE_MISSING |
						  UFFDIO_REGISTER_MODE_MINOR |
						  UFFDIO_REGISTER_MODE_WP) == 0,
		     "register");
		must(write(ctl[0], "d", 1) == 1 && read(ctl[0], &byte, 1) == 1, "agent");
		printf("%.1f\n", (double)(now_ns() - since) / 1e3);
		give_back(uffd, bytes);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

/* ---- agent ---- */

static int floor_agent(int count)
{
	size_t bytes = 4u << 20;
	int fd = tmpfs_file("never", bytes), ctl[2];
	struct sched_param rr = {.sched_priority = 10};
	pthread_t writers[3];
	pid_t child;
	char byte = 0;

	must(fallocate(fd, 0, 0, (off_t)bytes) == 0, "fallocate");
	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ctl) == 0, "socketpair");
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		map_at(AT, fd, bytes);
		revoke_bytes = bytes;
		for (uintptr_t i = 0; i < 3; i++)
			pthread_create(&writers[i], NULL, write_at_random, (void *)i);
		sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &rr);
		while (read(ctl[1], &byte, 1) == 1 && write(ctl[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	sched_setscheduler(0, SCHED_RR, &rr);
	usleep(100000); /* the writers touch all of it */
	for (int i = 0; i < count; i++) {
		uint64_t since;

		usleep(5000);
		since = now_ns();
		must(write(ctl[0], "q", 1) == 1 && read(ctl[0], &byte, 1) == 1, "agent");
		printf("%.1f\n", (double)(now_ns() - since) / 1e3);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

/* ---- round trip ---- */

static int floor_roundtrip(int count)
{
	uint8_t message[64] = {0};
	int tcp[2];
	pid_t child;

	tcp_pair(tcp);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (receive(tcp[1], message, sizeof(message), 0))
			if (send(tcp[1], message, sizeof(message), MSG_NOSIGNAL) < 0)
				break;
		_exit(0);
	}
	for (int i = 0; i < count; i++) {
		uint64_t since;

		usleep(1000); /* both ends sleep, as between two moves */
		since = now_ns();
		must(send(tcp[0], message, sizeof(message), 0) > 0 &&
			     receive(tcp[0], message, sizeof(message), 0),
		     "round trip");
		printf("%.1f\n", (double)(now_ns() - since) / 1e3);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

/* ---- commit ---- */

static void append(int fd, const uint8_t *entry)
{
	must(write(fd, entry, PAGE) == PAGE && fdatasync(fd) == 0, "append");
}

/* The file goes with its last descriptor. */
static int log_file(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

	must(fd >= 0, dir);
	return fd;
}

static void follow(const char *dir, int sock)
{
	uint8_t entry[PAGE];
	int fd = log_file(dir);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (receive(sock, entry, sizeof(entry), 0)) {
		append(fd, entry);
		if (send(sock, "d", 1, MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* Returns how many more it has on its disk. */
static int answers(const struct pollfd *follower)
{
	uint8_t done[64];
	ssize_t n;

	if (!follower->revents)
		return 0;
	n = recv(follower->fd, done, sizeof(done), 0);
	must(n > 0, "a follower's answer");
	return (int)n;
}

static int floor_commit(const char *dir, int count)
{
	struct pollfd followers[2];
	uint8_t entry[PAGE] = {7};
	int fd = log_file(dir), acked[2] = {0};
	pid_t children[2];

	for (int i = 0; i < 2; i++) {
		int tcp[2];

		tcp_pair(tcp);
		children[i] = fork();
		if (children[i] == 0)
			follow(dir, tcp[1]);
		followers[i] = (struct pollfd){.fd = tcp[0], .events = POLLIN};
	}
	for (int i = 1; i <= count; i++) {
		uint64_t since = now_ns();

		for (int k = 0; k < 2; k++)
			must(send(followers[k].fd, entry, sizeof(entry), 0) == sizeof(entry),
			     "send");
		append(fd, entry);
		while (acked[0] < i && acked[1] < i) {
			must(poll(followers, 2, -1) > 0, "poll");
			for (int k = 0; k < 2; k++)
				acked[k] += answers(&followers[k]);
		}
		printf("%.1f\n", (double)(now_ns() - since) / 1e3);
	}
	for (int i = 0; i < 2; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "pagefault") == 0)
		return floor_pagefault(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
				       true);
	if (argc == 4 && strcmp(argv[1], "continue") == 0)
		return floor_pagefault(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10),
				       false);
	if (argc == 3 && strcmp(argv[1], "stream") == 0)
		return floor_stream(strtoul(argv[2], NULL, 10), false);
	if (argc == 4 && strcmp(argv[1], "stream") == 0 && strcmp(argv[3], "apart") == 0)
		return floor_stream(strtoul(argv[2], NULL, 10), true);
	if (argc == 5 && strcmp(argv[1], "revoke") == 0)
		return floor_revoke(strtoul(argv[2], NULL, 10), strcmp(argv[3], "huge") == 0,
				    atoi(argv[4]));
	if (argc == 3 && strcmp(argv[1], "agent") == 0)
		return floor_agent(atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "roundtrip") == 0)
		return floor_roundtrip(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "commit") == 0)
		return floor_commit(argv[2], atoi(argv[3]));
	fprintf(stderr, "Usage: floor pagefault|continue MIB COUNT | stream MIB [apart] | revoke "
			"MIB small|huge "
			"REPS | agent COUNT | roundtrip COUNT | commit DIR COUNT\n");
	return 2;
}
