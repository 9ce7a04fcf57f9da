/*
 * The thread that lends a daemon its hands in this process.
 *
 * Happy path: it takes a file table of its own, connects, makes a userfaultfd with the device that
 * the daemon hands it, sends the doorman a copy, and then sleeps in recvmsg(2) and carries out one
 * command after the other. What it opens there no closefrom(3) of the program reaches and no child
 * inherits.
 *
 * How it fails: before the daemon has said READY for the first time, the thread ends and
 * agent_start says why. Afterwards it never ends: a session that hangs up is a daemon that died or
 * is being upgraded, so it connects again, for ever, and sends the userfaultfd that it kept (were
 * the last copy closed, blocked loads would go on and read zeros).
 *
 * It must never wait for a thread of the program, which may be blocked in a page fault that only
 * this thread can resolve, whatever locks it holds: so no allocation, no stdio, no dlopen'd symbol,
 * and where it wants the table's lock it goes on without after a second. Without the lock, it reads
 * the table as it lies; the worst that comes of it is a wrong protection.
 *
 *           agent_start              READY
 *   NONE ---------------> STARTING --------> RUNNING
 *    ^                       |
 *    +------ FAILED <--------+ the thread has ended; error holds
 *     agent_start
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ioc.h"
#include "kernel.h"

#define HANDSHAKE_MS	 5000
#define STACK_BYTES	 (256 * 1024)
#define SWAP_STACK	 16384
#define SCRATCH_MAX	 64
#define LOCK_PATIENCE_MS 1000
#define PAUSE_FIRST_MS	 1
#define PAUSE_LAST_MS	 100
#define PAUSE_REFUSED_MS 1000

enum agent_state { NONE, STARTING, RUNNING, FAILED };

/* A mapping made for BACK that no SWAP has put in place yet. */
struct scratch {
	uint64_t at, len;
	uint32_t prot;
	bool nohuge;
};

struct agent {
	char socket[RAMP_SOCKET_PATH_MAX + 1]; /* empty: the slot is free. Attach lock */
	uint8_t index;
	_Atomic uint32_t state;	  /* enum agent_state; a futex */
	struct agent_error error; /* the thread's, until it has set FAILED */
	/* From here on the thread's alone. */
	int sock, uffd;
	struct scratch scratch[SCRATCH_MAX];
	/* The mremap of SWAP, in a thread of its own: see swap_begin. */
	bool swapping;
	uint64_t swap_from, swap_to, swap_len;
	int swap_event;
	long swap_result;
	_Atomic uint32_t swap_alive; /* cleared by the kernel when the thread has left its stack */
	_Alignas(16) char swap_stack[SWAP_STACK];
};

struct table table;
static struct agent agents[AGENTS_MAX]; /* the attach lock */

/* ---- the table ---------------------------------------------------------------------------------
 */

int table_add(const struct range *range)
{
	int rc = ranges_add(&table.ranges, range);

	if (rc)
		return rc;
	if (table.low == 0 || range->addr < table.low)
		table.low = range->addr;
	if (range->addr + range->len > table.high)
		table.high = range->addr + range->len;
	return 0;
}

/* For the agent: with the lock if it can be had in time. Returns whether it must be unlocked. */
static bool lock_table(void)
{
	return shim_lock_for(&table.lock, LOCK_PATIENCE_MS);
}

static void unlock_table(bool locked)
{
	if (locked)
		shim_unlock(&table.lock);
}

/* The table's pieces inside [addr, addr + len); nothing where the table is full. */
static void pieces_of(uint64_t addr, uint64_t len, uint32_t *first, uint32_t *last)
{
	if (ranges_isolate(&table.ranges, addr, addr + len, first, last))
		*first = *last = 0;
}

/* ---- the commands: a positive errno, or 0 -----------------------------------------------------
 */

/* What stands in the way and is nobody's any more: an attach that its daemon did not live to
   finish, or what is left of a segment that has gone and is now mapped through another node. */
static void clear_leftovers(const struct agent *agent, uint64_t addr, uint64_t len)
{
	uint32_t i, last;

	pieces_of(addr, len, &i, &last);
	for (uint32_t left = last - i; left; left--) {
		const struct range *r = &table.ranges.at[i];

		if ((r->flags & RANGE_PENDING) ||
		    ((r->flags & RANGE_GONE) && r->session != agent->index)) {
			shim_munmap(r->addr, r->len);
			ranges_remove(&table.ranges, i);
		} else {
			i++;
		}
	}
}

static int map_file(const struct session_msg *msg, int fd)
{
	long at = shim_mmap(msg->addr, msg->len, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd,
			    msg->offset);
	int rc;

	if (at < 0)
		return (int)at;
	rc = shim_madvise(msg->addr, msg->len, MADV_DONTFORK);
	if (rc == 0 && (msg->flags & SESSION_NOHUGE))
		shim_madvise(msg->addr, msg->len, MADV_NOHUGEPAGE);
	if (rc)
		shim_munmap(msg->addr, msg->len);
	return rc;
}

/* In a fork's child the table has the range already, as it was in the parent. */
static int do_map(struct agent *agent, const struct session_msg *msg, int fd)
{
	struct range range = {
		.addr = msg->addr,
		.len = msg->len,
		.segment = msg->segment,
		.extent = msg->addr - msg->offset,
		.count = 1,
		.prot = (uint8_t)msg->prot,
		.session = agent->index,
		.flags = RANGE_PENDING,
	};
	uint64_t ignored;
	bool locked;
	int rc;

	if (fd < 0)
		return EINVAL;
	locked = lock_table();
	clear_leftovers(agent, msg->addr, msg->len);
	rc = map_file(msg, fd);
	if (rc == 0 &&
	    ranges_gap(&table.ranges, msg->addr, msg->addr + msg->len, &ignored, &ignored)) {
		rc = table_add(&range);
		if (rc)
			shim_munmap(msg->addr, msg->len);
	}
	unlock_table(locked);
	return -rc;
}

static int do_unmap(const struct session_msg *msg)
{
	bool locked = lock_table();
	uint32_t first, last;
	int rc;

	pieces_of(msg->addr, msg->len, &first, &last);
	for (; first < last; last--)
		ranges_remove(&table.ranges, first);
	rc = shim_munmap(msg->addr, msg->len);
	unlock_table(locked);
	return -rc;
}

/* In the window: no lock, nothing but the call. */
static int do_drop(const struct session_msg *msg)
{
	for (uint32_t i = 0; i < msg->count; i++) {
		uint64_t addr = msg->ranges[i].addr, len = msg->ranges[i].len;
		int rc = shim_madvise(addr, len, MADV_DONTNEED_LOCKED);

		if (rc == -EINVAL)
			rc = shim_madvise(addr, len, MADV_DONTNEED);
		if (rc && rc != -ENOMEM)
			return -rc;
	}
	return 0;
}

static int put_empty(struct range *r, int empty_fd)
{
	long z, at;

	z = shim_mmap(0, r->len, r->prot, MAP_PRIVATE | MAP_NORESERVE, empty_fd, 0);
	if (z < 0)
		return (int)z;
	shim_madvise((uint64_t)z, r->len, MADV_DONTFORK);
	at = shim_mremap((uint64_t)z, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->addr);
	if (at < 0) {
		shim_munmap((uint64_t)z, r->len);
		return (int)at;
	}
	r->flags |= RANGE_GONE;
	return 0;
}

/* What the program has unmapped meanwhile stays unmapped. */
static int do_gone(const struct session_msg *msg, int fd)
{
	bool locked;
	uint32_t first, last;
	int rc = 0;

	if (fd < 0)
		return EINVAL;
	locked = lock_table();
	pieces_of(msg->addr, msg->len, &first, &last);
	for (; first < last && rc == 0; first++)
		if (table.ranges.at[first].segment == msg->segment)
			rc = put_empty(&table.ranges.at[first], fd);
	ranges_join(&table.ranges);
	unlock_table(locked);
	return -rc;
}

static struct scratch *find_scratch(struct agent *agent, uint64_t at)
{
	for (int i = 0; i < SCRATCH_MAX; i++)
		if (agent->scratch[i].at == at)
			return &agent->scratch[i];
	return NULL;
}

static int do_back(struct agent *agent, const struct session_msg *msg, int fd, uint64_t *at)
{
	struct scratch *scratch = find_scratch(agent, 0);
	long z;

	if (fd < 0)
		return EINVAL;
	if (!scratch)
		return ENOMEM;
	z = shim_mmap(0, msg->len, (int)msg->prot, MAP_SHARED, fd, msg->offset);
	if (z < 0)
		return (int)-z;
	shim_madvise((uint64_t)z, msg->len, MADV_DONTFORK);
	if (msg->flags & SESSION_NOHUGE)
		shim_madvise((uint64_t)z, msg->len, MADV_NOHUGEPAGE);
	*scratch = (struct scratch){.at = (uint64_t)z, .len = msg->len, .prot = msg->prot};
	*at = (uint64_t)z;
	return 0;
}

/* ---- SWAP ---------------------------------------------------------------------------------------
 */

/*
 * mremap of a registered range waits in the kernel until the daemon has read the event. A daemon
 * that dies first would leave this thread there for ever, and with it the one who could send the
 * userfaultfd to the next daemon. So a bare thread does it, which lives for that one call: it is
 * not the C library's, runs on the agent's thread pointer and touches nothing of it.
 */
static int swap_thread(void *arg)
{
	struct agent *agent = arg;
	uint64_t one = 1;

	agent->swap_result = shim_mremap(agent->swap_from, agent->swap_len, agent->swap_len,
					 MREMAP_MAYMOVE | MREMAP_FIXED, agent->swap_to);
	syscall(SYS_write, agent->swap_event, &one, sizeof(one));
	syscall(SYS_exit, 0);
	return 0;
}

static int swap_begin(struct agent *agent, const struct session_msg *msg)
{
	agent->swap_from = msg->scratch;
	agent->swap_to = msg->addr;
	agent->swap_len = msg->len;
	agent->swap_event = eventfd(0, EFD_CLOEXEC);
	if (agent->swap_event < 0)
		return errno;
	agent->swap_alive = 1;
	if (clone(swap_thread, agent->swap_stack + SWAP_STACK,
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			  CLONE_CHILD_CLEARTID,
		  agent, NULL, NULL, &agent->swap_alive) < 0) {
		int code = errno;

		close(agent->swap_event);
		return code;
	}
	agent->swapping = true;
	return 0;
}

/* The range is in place: the program's wishes of the meantime, what it unmapped and protected. */
static void settle_range(uint64_t addr, uint64_t len, uint32_t prot)
{
	bool locked = lock_table();
	uint64_t end = addr + len, gap_end, at = addr;
	uint32_t first, last;

	while (ranges_gap(&table.ranges, at, end, &at, &gap_end)) {
		shim_munmap(at, gap_end - at);
		at = gap_end;
	}
	pieces_of(addr, len, &first, &last);
	for (; first < last; first++) {
		struct range *r = &table.ranges.at[first];

		r->flags &= (uint8_t)~RANGE_GONE;
		if (r->prot != prot)
			shim_mprotect(r->addr, r->len, r->prot);
		if (r->flags & RANGE_NOHUGE)
			shim_madvise(r->addr, r->len, MADV_NOHUGEPAGE);
	}
	ranges_join(&table.ranges);
	unlock_table(locked);
}

/* Waits for the swap's thread. False: the session hung up first, and it is still under way. */
static bool swap_end(struct agent *agent)
{
	struct pollfd wait[2] = {{.fd = agent->swap_event, .events = POLLIN},
				 {.fd = agent->sock, .events = POLLRDHUP}};
	struct scratch *scratch = find_scratch(agent, agent->swap_from);

	while (poll(wait, 2, -1) < 0 || !(wait[0].revents & POLLIN))
		if (wait[1].revents)
			return false;
	while (agent->swap_alive)
		syscall(SYS_futex, &agent->swap_alive, FUTEX_WAIT, 1, NULL, NULL, 0);
	agent->swapping = false;
	close(agent->swap_event);
	if (agent->swap_result >= 0 && scratch) {
		settle_range(agent->swap_to, agent->swap_len, scratch->prot);
		*scratch = (struct scratch){0};
	}
	return true;
}

static int do_swap(struct agent *agent, const struct session_msg *msg, bool *hung_up)
{
	struct scratch *scratch = find_scratch(agent, msg->scratch);
	uint64_t start, end;
	bool locked, wanted;
	int rc;

	if (!scratch || msg->scratch == 0 || scratch->len != msg->len)
		return EINVAL;
	locked = lock_table();
	wanted = !ranges_gap(&table.ranges, msg->addr, msg->addr + msg->len, &start, &end) ||
		 start != msg->addr || end != msg->addr + msg->len;
	unlock_table(locked);
	if (!wanted) {
		shim_munmap(scratch->at, scratch->len);
		*scratch = (struct scratch){0};
		return 0;
	}
	rc = swap_begin(agent, msg);
	if (rc)
		return rc;
	if (!swap_end(agent)) {
		*hung_up = true;
		return 0;
	}
	return agent->swap_result < 0 ? (int)-agent->swap_result : 0;
}

/* Of a daemon that died between BACK and SWAP. The next one makes its own. */
static void drop_scratch(struct agent *agent)
{
	for (int i = 0; i < SCRATCH_MAX; i++) {
		if (agent->scratch[i].at == 0)
			continue;
		shim_munmap(agent->scratch[i].at, agent->scratch[i].len);
		agent->scratch[i] = (struct scratch){0};
	}
}

/* ---- the session --------------------------------------------------------------------------------
 */

static int carry_out(struct agent *agent, const struct session_msg *msg, int fd,
		     struct session_msg *done, bool *hung_up)
{
	switch (msg->type) {
	case SESSION_MAP:
		return do_map(agent, msg, fd);
	case SESSION_PROTECT:
		return -shim_mprotect(msg->addr, msg->len, (int)msg->prot);
	case SESSION_UNMAP:
		return do_unmap(msg);
	case SESSION_DROP:
		return do_drop(msg);
	case SESSION_GONE:
		return do_gone(msg, fd);
	case SESSION_BACK:
		return do_back(agent, msg, fd, &done->addr);
	case SESSION_SWAP:
		return do_swap(agent, msg, hung_up);
	case SESSION_SAY:
		shim_say_agent(msg->text, NULL);
		return 0;
	default:
		return EPROTO;
	}
}

/* One command. False: the session is over. */
static bool serve_one(struct agent *agent)
{
	struct session_msg msg, done = {.type = SESSION_DONE};
	int fds[SESSION_FDS_MAX], nfds = 0;
	bool hung_up = false;

	if (session_recv(agent->sock, &msg, fds, &nfds, 0))
		return false;
	done.serial = msg.serial;
	done.result = (uint32_t)carry_out(agent, &msg, nfds > 0 ? fds[0] : -1, &done, &hung_up);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	if (hung_up || session_send(agent->sock, &done, NULL, 0, 0))
		return false;
	if (msg.type == SESSION_GONE && msg.text[0])
		shim_say_agent(msg.text, NULL);
	return true;
}

static int refuse(struct agent *agent, int code, const char *text)
{
	agent->error.code = code;
	shim_copy(agent->error.text, sizeof(agent->error.text), text);
	return -code;
}

static void set_patience(int sock, uint32_t ms)
{
	struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
}

/* The answer of that type, or why there is none. */
static int expect(struct agent *agent, uint16_t type, struct session_msg *msg, int *fds, int *nfds)
{
	int rc = session_recv(agent->sock, msg, fds, nfds, 0);

	if (rc == -EAGAIN)
		return refuse(agent, ETIMEDOUT, "the daemon does not answer");
	if (rc)
		return refuse(agent, -rc, "the daemon hung up");
	if (msg->result)
		return refuse(agent, (int)msg->result, msg->text);
	if (msg->type != type)
		return refuse(agent, EPROTO, "the daemon speaks another language");
	return 0;
}

/* fds: the doorman's socket, and the device where this is the first time. */
static int hand_over_uffd(struct agent *agent, const int *fds, int nfds, bool again)
{
	int rc;

	if (nfds != (again ? 1 : 2))
		return refuse(agent, EPROTO, "the daemon's welcome lacks a descriptor");
	if (!again) {
		agent->uffd = ioctl(fds[1], USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		if (agent->uffd < 0)
			return refuse(agent, errno, "no userfaultfd");
	}
	rc = session_send_uffd(fds[0], agent->uffd);
	return rc ? refuse(agent, -rc, "the daemon's doorman hung up") : 0;
}

static int greet(struct agent *agent, bool again)
{
	struct session_msg msg = {.type = SESSION_HELLO, .flags = again ? SESSION_RECONNECT : 0};
	int fds[SESSION_FDS_MAX], nfds = 0;
	int rc;

	msg.tid = (uint32_t)syscall(SYS_gettid);
	rc = session_send(agent->sock, &msg, NULL, 0, 0);
	if (rc)
		return refuse(agent, -rc, "the daemon hung up");
	rc = expect(agent, SESSION_WELCOME, &msg, fds, &nfds);
	if (rc == 0)
		rc = hand_over_uffd(agent, fds, nfds, again);
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	return rc ? rc : expect(agent, SESSION_READY, &msg, NULL, NULL);
}

static int connect_session(struct agent *agent, bool again)
{
	int rc;

	agent->sock = session_connect(agent->socket);
	if (agent->sock < 0)
		return refuse(agent, -agent->sock, "no daemon listens");
	set_patience(agent->sock, HANDSHAKE_MS);
	rc = greet(agent, again);
	if (rc) {
		close(agent->sock);
		return rc;
	}
	set_patience(agent->sock, 0);
	return 0;
}

static void pause_ms(uint32_t ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

/* Until a daemon is there again; says once why it would not have us. */
static void reconnect(struct agent *agent)
{
	uint32_t pause = PAUSE_FIRST_MS;
	bool said = false;
	int rc;

	while ((rc = connect_session(agent, true)) != 0) {
		if (rc == -EPERM || rc == -EUSERS || rc == -EPROTO) {
			if (!said)
				shim_say_agent("rampfs: the daemon came back and refuses this "
					       "program: ",
					       agent->error.text, NULL);
			said = true;
			pause = PAUSE_REFUSED_MS;
		}
		pause_ms(pause);
		if (pause < PAUSE_LAST_MS)
			pause *= 2;
	}
}

/* A file table of its own, in which a stray write to stdout or stderr goes nowhere. */
static int leave_file_table(struct agent *agent)
{
	int fd;

	if (syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE))
		return refuse(agent, errno, "no file table of its own");
	fd = shim_open("/dev/null", O_RDWR);
	if (fd < 0)
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	while (fd >= 0 && fd < STDERR_FILENO)
		fd = dup(fd);
	return fd < 0 ? refuse(agent, errno, "no /dev/null") : 0;
}

static void set_state(struct agent *agent, enum agent_state state)
{
	agent->state = state;
	shim_futex_wake(&agent->state);
}

static void *agent_main(void *arg)
{
	struct agent *agent = arg;

	prctl(PR_SET_NAME, "rampfs-agent", 0, 0, 0);
	shim_count_thread_out();
	if (leave_file_table(agent) || connect_session(agent, false)) {
		shim_count_thread_in();
		set_state(agent, FAILED);
		return NULL;
	}
	set_state(agent, RUNNING);
	for (;;) {
		while (serve_one(agent))
			;
		close(agent->sock);
		if (!agent->swapping)
			drop_scratch(agent);
		do
			reconnect(agent);
		while (agent->swapping && !swap_end(agent) && close(agent->sock) == 0);
		drop_scratch(agent);
	}
	return NULL;
}

/* ---- for the program's threads ------------------------------------------------------------------
 */

int agent_of(const char *socket_path)
{
	size_t len = strnlen(socket_path, RAMP_SOCKET_PATH_MAX + 1);

	if (len == 0 || len > RAMP_SOCKET_PATH_MAX)
		return -EINVAL;
	for (int i = 0; i < AGENTS_MAX; i++) {
		if (agents[i].socket[0] == '\0') {
			memcpy(agents[i].socket, socket_path, len + 1);
			agents[i].index = (uint8_t)i;
		}
		if (strcmp(agents[i].socket, socket_path) == 0)
			return i;
	}
	return -EUSERS;
}

const char *agent_socket(int index)
{
	return agents[index].socket;
}

/* The caller has all signals blocked, and so has the thread. A program's thread-local storage may
   be larger than the stack that the agent needs: then it gets the default. */
static int spawn(struct agent *agent)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	rc = pthread_attr_init(&attr);
	if (rc)
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = pthread_create(&thread, &attr, agent_main, agent);
	pthread_attr_destroy(&attr);
	if (rc != EINVAL || pthread_attr_init(&attr))
		return rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, agent_main, agent);
	pthread_attr_destroy(&attr);
	return rc;
}

int agent_start(int index, struct agent_error *err)
{
	struct agent *agent = &agents[index];
	int rc;

	if (agent->state == RUNNING)
		return 0;
	agent->state = STARTING;
	rc = spawn(agent);
	if (rc) {
		agent->state = NONE;
		refuse(agent, rc, "no thread for the agent");
		*err = agent->error;
		return -rc;
	}
	/* The thread bounds every wait of its first handshake. */
	while (agent->state == STARTING)
		shim_futex_wait(&agent->state, STARTING, HANDSHAKE_MS);
	if (agent->state == RUNNING)
		return 0;
	*err = agent->error;
	return -err->code;
}

void agents_reset(void)
{
	for (int i = 0; i < AGENTS_MAX; i++) {
		agents[i].state = NONE;
		agents[i].swapping = false;
		memset(agents[i].scratch, 0, sizeof(agents[i].scratch));
	}
}
