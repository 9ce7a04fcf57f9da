#include "programs_prog.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel.h"

#define PAGE	    4096u
#define WRITERS_MAX 8

static char path[108];
static int uffd = -1, second = -1;
static uint64_t agent_kind;
static _Atomic bool grown; /* its daemon was asked whether mappings may grow */
static _Atomic int ready;  /* 1, or -errno */
static pid_t agent_tid;
static _Atomic uint64_t sessions, lines;
static char line[SESSION_TEXT_MAX]; /* protected by line_lock */
static pthread_mutex_t line_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the agent ------------------------------------------------------------------------------ */

static int at_fixed(const struct session_msg *m, int fd)
{
	int type = m->flags & SESSION_PRIVATE ? MAP_PRIVATE : MAP_SHARED;
	void *at = mmap((void *)m->addr, m->len, PROT_NONE, type | MAP_FIXED_NOREPLACE, fd,
			(off_t)m->offset);

	if (at == MAP_FAILED || (m->flags & SESSION_NOHUGE && madvise(at, m->len, MADV_NOHUGEPAGE)))
		return errno;
	return madvise(at, m->len, MADV_DONTFORK) ? errno : 0;
}

static int anywhere(const struct session_msg *m, int prot, int flags, int fd, uint64_t *scratch)
{
	void *at = mmap(NULL, m->len, prot, flags, fd, (off_t)m->offset);

	if (at == MAP_FAILED)
		return errno;
	*scratch = (uint64_t)at;
	return madvise(at, m->len, MADV_DONTFORK) ? errno : 0;
}

static int swap(uint64_t from, uint64_t to, uint64_t len)
{
	void *at = mremap((void *)from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to);

	return at == MAP_FAILED ? errno : 0;
}

static void compute(int seconds)
{
	struct timespec now;
	time_t until;

	clock_gettime(CLOCK_MONOTONIC, &now);
	until = now.tv_sec + seconds;
	while (now.tv_sec < until)
		clock_gettime(CLOCK_MONOTONIC, &now);
}

static int drop(const struct session_msg *m)
{
	if (agent_kind == 10)
		compute(3);
	for (uint32_t i = 0; i < m->count; i++)
		if (madvise((void *)m->ranges[i].addr, m->ranges[i].len, MADV_DONTNEED_LOCKED) &&
		    errno != ENOMEM)
			return errno;
	return 0;
}

/* ---- page tables that are away ---- */

static struct {
	uint64_t home, at, len;
	bool moved;
} away[8];

static int reserve(const struct session_msg *m)
{
	uint64_t at = m->scratch + (agent_kind == 14 ? UINT64_C(3) << 30 : 0);
	size_t i = 0;

	while (i < 8 && away[i].len)
		i++;
	if (i == 8)
		return ENOSPC;
	if (mmap((void *)at, m->len, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		 0) == MAP_FAILED)
		return errno;
	away[i].home = m->addr;
	away[i].at = at;
	away[i].len = m->len;
	away[i].moved = false;
	return 0;
}

static int move(const struct session_msg *m)
{
	for (size_t i = 0; i < 8; i++)
		if (away[i].len && !away[i].moved)
			away[i].moved = mremap((void *)away[i].home, away[i].len, away[i].len,
					       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
					       (void *)away[i].at) != MAP_FAILED;
	return drop(m);
}

static int give_back(const struct session_msg *m)
{
	if (agent_kind == 15) {
		agent_kind = 13;
		/* This thread stops at once, the others when they notice. */
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSTOP);
	}
	for (size_t i = 0; i < 8; i++) {
		if (away[i].len && away[i].moved && !(m->flags & SESSION_FORGET))
			swap(away[i].at, away[i].home, away[i].len);
		else if (away[i].len)
			munmap((void *)away[i].at, away[i].len);
		away[i].len = 0;
	}
	return 0;
}

static bool is_away(void)
{
	bool any = false;

	for (size_t i = 0; i < 8; i++)
		any |= away[i].len && away[i].moved;
	return any;
}

static void say(const char *text)
{
	pthread_mutex_lock(&line_lock);
	if (text[0]) {
		snprintf(line, sizeof(line), "%s", text);
		lines++;
	}
	pthread_mutex_unlock(&line_lock);
}

static int carry_out(const struct session_msg *m, int fd, uint64_t *addr)
{
	int rc;

	switch (m->type) {
	case SESSION_MAP:
		if (agent_kind == 11) {
			agent_kind = 12;
			return EEXIST;
		}
		return at_fixed(m, fd);
	case SESSION_PROTECT:
		return mprotect((void *)m->addr, m->len, (int)m->prot) ? errno : 0;
	case SESSION_UNMAP:
		return munmap((void *)m->addr, m->len) ? errno : 0;
	case SESSION_DROP:
		return drop(m);
	case SESSION_RESERVE:
		return reserve(m);
	case SESSION_MOVE:
		return move(m);
	case SESSION_RETURN:
		return give_back(m);
	case SESSION_GONE:
		rc = anywhere(m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, addr);
		say(m->text);
		if (agent_kind == 9 && !munmap((void *)m->addr, m->len))
			usleep(300000);
		return rc ? rc : swap(*addr, m->addr, m->len);
	case SESSION_BACK:
		return anywhere(m, (int)m->prot,
				m->flags & SESSION_PRIVATE ? MAP_PRIVATE : MAP_SHARED, fd, addr);
	case SESSION_SWAP:
		if (agent_kind == 5)
			return 0;
		return swap(m->scratch, m->addr, m->len);
	case SESSION_SAY:
		say(m->text);
		return 0;
	default:
		return EPROTO;
	}
}

/* Reads what the second userfaultfd says, of which the daemon has to know nothing. */
static void *read_second(void *arg)
{
	struct pollfd at = {.fd = second, .events = POLLIN};
	struct uffd_msg msg;

	while (poll(&at, 1, -1) >= 0)
		if (read(second, &msg, sizeof(msg)) < 0 && errno != EAGAIN)
			usleep(1000); /* before the daemon's handshake */
	return arg;
}

static void make_uffds(int device)
{
	pthread_t thread;

	uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (agent_kind < 16)
		return;
	second = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	pthread_create(&thread, NULL, read_second, NULL);
	pthread_detach(thread);
}

static int greet(int sock, uint32_t tid)
{
	struct session_msg m = {
		.type = SESSION_HELLO, .flags = uffd < 0 ? 0 : SESSION_RECONNECT, .tid = tid};
	int fds[SESSION_FDS_MAX], nfds, rc;

	m.flags |= agent_kind >= 13 ? SESSION_MOVES : 0;
	m.flags |= is_away() ? SESSION_AWAY : 0;
	m.flags |= agent_kind >= 17 ? SESSION_GROWS | (grown ? SESSION_GROWN : 0) : 0;
	rc = session_send(sock, &m, NULL, 0, 0);
	if (!rc)
		rc = session_recv(sock, &m, fds, &nfds, 0);
	if (rc || m.type != SESSION_WELCOME || m.result)
		return rc ? rc : -(int)m.result;
	if (uffd < 0)
		make_uffds(fds[1]);
	if (agent_kind != 3)
		session_send_uffds(fds[0], (int[]){agent_kind == 2 ? fds[0] : uffd, second},
				   second < 0 ? 1 : 2);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	rc = session_recv(sock, &m, NULL, NULL, 0);
	return rc ? rc : -(int)m.result;
}

/* Answers a command that was never sent, until the other end has had enough. */
static void babble(int sock)
{
	struct session_msg done = {.type = SESSION_DONE};

	while (!session_send(sock, &done, NULL, 0, 0))
		usleep(1000);
}

static void serve(int sock)
{
	struct session_msg m, done;
	int fds[SESSION_FDS_MAX], nfds;

	while (!session_recv(sock, &m, fds, &nfds, 0)) {
		if (agent_kind == 1)
			continue;
		if ((agent_kind == 7 && m.type == SESSION_BACK) ||
		    (agent_kind == 8 && m.type == SESSION_SWAP) ||
		    (agent_kind == 12 && m.type == SESSION_MAP)) {
			agent_kind = 0;
			for (int i = 0; i < nfds; i++)
				close(fds[i]);
			continue;
		}
		if (agent_kind == 4 && m.type == SESSION_DROP) {
			babble(sock);
			return;
		}
		done = (struct session_msg){.type = SESSION_DONE, .serial = m.serial};
		done.result = (uint32_t)carry_out(&m, nfds ? fds[0] : -1, &done.addr);
		for (int i = 0; i < nfds; i++)
			close(fds[i]);
		if (session_send(sock, &done, NULL, 0, 0))
			return;
	}
}

static void *agent(void *arg)
{
	int sock, rc;

	(void)arg;
	agent_tid = (pid_t)syscall(SYS_gettid);
	for (;;) {
		sock = session_connect(path);
		rc = sock < 0 ? sock : greet(sock, (uint32_t)agent_tid);
		if (!rc) {
			sessions++;
			ready = 1;
			serve(sock);
		} else if (!ready) {
			ready = rc;
			return NULL;
		}
		if (sock >= 0)
			close(sock);
		usleep(2000);
	}
}

static int start_session(uint64_t kind)
{
	pthread_t thread;

	agent_kind = kind;
	ready = 0;
	uffd = second = -1;
	pthread_create(&thread, NULL, agent, NULL);
	pthread_detach(thread);
	while (!ready)
		usleep(200);
	return ready == 1 ? 0 : ready;
}

/* ---- what the program does ------------------------------------------------------------------ */

static __thread sigjmp_buf landing;
static __thread volatile sig_atomic_t flying;

static void on_bus(int sig)
{
	if (!flying)
		_exit(99);
	siglongjmp(landing, sig);
}

static int load(uint64_t addr, uint64_t *value)
{
	int sig = sigsetjmp(landing, 1);

	flying = 1;
	if (!sig)
		*value = *(volatile uint64_t *)addr;
	flying = 0;
	return -sig;
}

static int store(uint64_t addr, uint64_t value)
{
	int sig = sigsetjmp(landing, 1);

	flying = 1;
	if (!sig)
		*(volatile uint64_t *)addr = value;
	flying = 0;
	return -sig;
}

static struct {
	pthread_t thread[WRITERS_MAX];
	uint64_t n, addr, pages;
	_Atomic int stop;
	_Atomic uint64_t bad, stores;
} writers;

/* Each thread has a word of its own in every page, and knows what it stored there. */
static void *write_on(void *arg)
{
	uint64_t me = (uint64_t)arg, *last = calloc(writers.pages, sizeof(*last));
	uint64_t random = 88172645463325252u + me * 7919, n = 0, seen = 0;

	while (!writers.stop) {
		uint64_t page, at;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		page = random % writers.pages;
		at = writers.addr + page * PAGE + 64 * (me + 1);
		if (load(at, &seen))
			break;
		if (seen != last[page])
			writers.bad++;
		if (store(at, n + 1))
			break;
		last[page] = ++n;
		writers.stores++;
	}
	free(last);
	return NULL;
}

static void start_writers(const struct prog_order *o)
{
	writers.n = o->value;
	writers.addr = o->addr;
	writers.pages = o->len / PAGE;
	writers.stop = 0;
	for (uint64_t i = 0; i < writers.n; i++)
		pthread_create(&writers.thread[i], NULL, write_on, (void *)i);
}

static void stop_writers(struct prog_report *r)
{
	writers.stop = 1;
	for (uint64_t i = 0; i < writers.n; i++)
		pthread_join(writers.thread[i], NULL);
	writers.n = 0;
	r->value = writers.bad;
	r->all = writers.stores;
}

static int ask_for(struct session_msg *m, long ms)
{
	struct timeval patience = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	int sock = session_connect(path), rc;

	if (sock < 0)
		return sock;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	rc = session_send(sock, m, NULL, 0, 0);
	if (!rc)
		rc = session_recv(sock, m, NULL, NULL, 0);
	close(sock);
	return rc ? rc : -(int)m->result;
}

static int ask(struct session_msg *m)
{
	return ask_for(m, 0);
}

static int do_attach(const struct prog_order *o, struct prog_report *r)
{
	struct session_msg m = {.type = SESSION_ATTACH,
				.token = {o->token[0], o->token[1]},
				.offset = o->offset,
				.len = o->len,
				.prot = o->prot,
				.flags = o->flags};
	int rc = ask_for(&m, (long)o->value);

	r->addr = m.addr;
	r->all = m.all;
	memcpy(r->text, m.text, sizeof(r->text));
	return rc;
}

/* Adopts from a daemon that does not answer in time: gives up, and says whether addr is mapped
   later. */
static int give_up(struct session_msg *m, const struct prog_order *o, uint64_t *mapped)
{
	int rc = ask_for(m, (long)o->len);

	if (rc != -EAGAIN)
		return rc ? rc : -EALREADY;
	for (int i = 0; i < 500 && !*mapped; i++) {
		usleep(10000);
		*mapped = !msync((void *)o->addr, 4096, MS_ASYNC);
	}
	return 0;
}

static int do_fork(const struct prog_order *o, struct prog_report *r)
{
	struct session_msg m = {.type = SESSION_FORK};
	int pipefd[2], status, rc = ask(&m);
	pid_t child;

	if (rc || pipe(pipefd))
		return rc ? rc : -errno;
	r->all = m.segment;
	child = fork();
	if (!child) {
		uint64_t value = 0;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		m.type = SESSION_ADOPT;
		if (o->value)
			m.token[0] = m.token[1] = 0;
		rc = start_session(o->flags);
		if (!rc && o->len) {
			rc = give_up(&m, o, &value);
		} else if (!rc) {
			rc = ask(&m);
			value = (uint64_t)-rc;
			if (!rc)
				rc = load(o->addr, &value);
		}
		if (write(pipefd[1], &value, sizeof(value)) != sizeof(value))
			_exit(1);
		_exit(rc ? 1 : 0);
	}
	close(pipefd[1]);
	if (read(pipefd[0], &r->value, sizeof(r->value)) != sizeof(r->value))
		rc = -EPIPE;
	close(pipefd[0]);
	waitpid(child, &status, 0);
	return rc ? rc : status;
}

static int do_syscall(const struct prog_order *o)
{
	int pipefd[2], rc;

	if (pipe(pipefd))
		return -errno;
	rc = write(pipefd[1], (const void *)o->addr, 64) < 0 ? -errno : 0;
	close(pipefd[0]);
	close(pipefd[1]);
	return rc;
}

static int map_raw(const struct prog_order *o)
{
	int fd = open(o->path, O_RDWR | O_CLOEXEC);
	void *at;

	if (fd < 0)
		return -errno;
	at = mmap((void *)o->addr, o->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
		  fd, 0);
	close(fd);
	return at == MAP_FAILED ? -errno : 0;
}

static int do_punch(const struct prog_order *o)
{
	struct session_msg m = {
		.type = SESSION_PUNCH, .segment = o->value, .offset = o->offset, .len = o->len};

	return ask(&m);
}

static int ask_to_grow(void)
{
	struct session_msg m = {.type = SESSION_GROW};
	int rc = ask(&m);

	grown = !rc;
	return rc;
}

/* Remaps to value; 0: the mapping grows or shrinks where it is. */
static int do_remap(const struct prog_order *o)
{
	void *at = mremap((void *)o->addr, o->offset, o->len,
			  o->value ? MREMAP_MAYMOVE | MREMAP_FIXED : 0, (void *)o->value);

	return at == MAP_FAILED ? -errno : 0;
}

/* ---- sessions that name a thread ------------------------------------------------------------ */

static _Atomic uint32_t named;
static int named_sock = -1, named_result;

static int open_named(uint32_t tid)
{
	named_sock = session_connect(path);
	return named_sock < 0 ? named_sock : greet(named_sock, tid);
}

static _Atomic uint32_t named_does;

static void *wait_named(void *arg)
{
	named = (uint32_t)syscall(SYS_gettid);
	if (named_does == 2)
		compute(15);
	if (named_does == 3) {
		sleep(3); /* a busy test looks at it first */
		execlp("sleep", "sleep", "100", (char *)NULL);
	}
	for (;;)
		pause();
	return arg;
}

/* A process of its own with this memory: names itself. */
static int share_memory(void *arg)
{
	uint32_t self = (uint32_t)syscall(SYS_gettid);

	(void)arg;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	named_result = open_named(self);
	named = self;
	for (;;)
		pause();
	return 0;
}

static int name_one(const struct prog_order *o, struct prog_report *r)
{
	static _Alignas(16) char stack[65536];
	pthread_t thread;

	named = 0;
	if (o->value) {
		r->value = o->value;
		return open_named((uint32_t)o->value);
	}
	named_does = o->flags;
	if (o->flags == 1) {
		if (clone(share_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL) < 0)
			return -errno;
	} else {
		pthread_create(&thread, NULL, wait_named, NULL);
		pthread_detach(thread);
	}
	while (!named)
		usleep(200);
	r->value = named;
	return o->flags == 1 ? named_result : open_named(named);
}

static int take_ticket(struct prog_report *r)
{
	struct session_msg m = {.type = SESSION_FORK};
	int rc = ask(&m);

	r->value = m.token[0];
	r->addr = m.token[1];
	r->all = m.segment;
	return rc;
}

static int adopt(const struct prog_order *o)
{
	struct session_msg m = {.type = SESSION_ADOPT, .token = {o->token[0], o->token[1]}};

	return ask(&m);
}

/* ---- a mapping that never stands still ------------------------------------------------------ */

static struct {
	pthread_t thread;
	uint64_t addr, pages;
	_Atomic bool on;
} splitter;

static void *split_on(void *arg)
{
	uint64_t random = 88172645463325252u;

	while (splitter.on) {
		uint64_t from, len;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		from = random % splitter.pages;
		len = 1 + (random >> 32) % (splitter.pages - from);
		mprotect((void *)(splitter.addr + from * PAGE), len * PAGE, PROT_READ);
		mprotect((void *)splitter.addr, splitter.pages * PAGE, PROT_READ | PROT_WRITE);
	}
	return arg;
}

static int split(const struct prog_order *o)
{
	splitter.on = o->value;
	if (!o->value)
		return -pthread_join(splitter.thread, NULL);
	splitter.addr = o->addr;
	splitter.pages = o->len / PAGE;
	return -pthread_create(&splitter.thread, NULL, split_on, NULL);
}

static void obey_all(void);

static void *obey_on(void *arg)
{
	struct prog_report r = {0};

	pthread_join(*(pthread_t *)arg, NULL);
	if (send(3, &r, sizeof(r), 0) == sizeof(r))
		obey_all();
	_exit(0);
}

static int main_ends(void)
{
	static pthread_t self;
	pthread_t other;

	self = pthread_self();
	if (pthread_create(&other, NULL, obey_on, &self))
		return -EAGAIN;
	pthread_exit(NULL);
}

static int obey(const struct prog_order *o, struct prog_report *r)
{
	switch (o->op) {
	case PROG_SESSION:
		r->result = start_session(o->value);
		r->value = (uint64_t)agent_tid;
		return r->result;
	case PROG_ATTACH:
		return do_attach(o, r);
	case PROG_LOAD:
		return load(o->addr, &r->value);
	case PROG_STORE:
		return store(o->addr, o->value);
	case PROG_SYSCALL:
		return do_syscall(o);
	case PROG_WRITERS:
		start_writers(o);
		return 0;
	case PROG_STOP_WRITERS:
		stop_writers(r);
		return 0;
	case PROG_FORK:
		return do_fork(o, r);
	case PROG_MPROTECT:
		return mprotect((void *)o->addr, o->len, (int)o->prot) ? -errno : 0;
	case PROG_MUNMAP:
		return munmap((void *)o->addr, o->len) ? -errno : 0;
	case PROG_PUNCH:
		return do_punch(o);
	case PROG_MAP_RAW:
		return map_raw(o);
	case PROG_TEXT:
		pthread_mutex_lock(&line_lock);
		memcpy(r->text, line, sizeof(line));
		r->value = lines;
		pthread_mutex_unlock(&line_lock);
		return 0;
	case PROG_SESSIONS:
		r->value = sessions;
		return 0;
	case PROG_REMAP:
		return do_remap(o);
	case PROG_MAIN_ENDS:
		return main_ends();
	case PROG_NAME:
		return name_one(o, r);
	case PROG_UNNAME:
		return close(named_sock) ? -errno : 0;
	case PROG_TICKET:
		return take_ticket(r);
	case PROG_ADOPT:
		return adopt(o);
	case PROG_SPLIT:
		return split(o);
	case PROG_ADVISE:
		return madvise((void *)o->addr, o->len, (int)o->value) ? -errno : 0;
	case PROG_LOCK:
		return mlock((void *)o->addr, o->len) ||
				       (o->value && munlock((void *)o->addr, o->len))
			       ? -errno
			       : 0;
	case PROG_GROW:
		return ask_to_grow();
	case PROG_EXEC:
		return execlp("sleep", "sleep", "60", NULL) ? -errno : 0;
	}
	return -EINVAL;
}

static void obey_all(void)
{
	struct prog_order o;
	struct prog_report r;

	while (recv(3, &o, sizeof(o), 0) == sizeof(o)) {
		memset(&r, 0, sizeof(r));
		r.result = obey(&o, &r);
		if (send(3, &r, sizeof(r), 0) != sizeof(r))
			break;
	}
}

/* program SOCKET: descriptor 3 is the test's. */
int main(int argc, char **argv)
{
	struct sigaction bus = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};

	if (argc != 2)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s", argv[1]);
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &bus, NULL);
	obey_all();
	_exit(0);
}
