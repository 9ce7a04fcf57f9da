/*
 * The random tester's worker: one process on one node that has the segment open and mapped, and
 * carries out the driver's calls (struct call) on it. A SIGBUS or SIGSEGV that a load or store gets is
 * an answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fsx.h"

static struct {
	int node, fd, append_fd, scratch;
	uint8_t *map; /* NULL: none */
	long map_off, map_len;
	struct wire *wire;
} me;

static sigjmp_buf on_signal;
static volatile sig_atomic_t armed;

static void caught(int number)
{
	if (armed)
		siglongjmp(on_signal, number);
	signal(number, SIG_DFL);
	raise(number);
}

void path_of(char *path, size_t cap, int node, int dir)
{
	snprintf(path, cap, "%s/%c/%s", mounts[node], 'a' + dir, NAME);
}

/* Another node's mount hears of a move some milliseconds later than the one that made it. */
static int open_here(int dir, int flags)
{
	char path[4096];
	int fd;

	path_of(path, sizeof(path), me.node, dir);
	for (int i = 0; i < 500; i++) {
		fd = open(path, flags | O_CLOEXEC, 0600);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return fd;
}

static long reopen(const struct call *c)
{
	int fd;

	if (me.fd >= 0) {
		close(me.fd);
		close(me.append_fd);
	}
	me.append_fd = -1;
	me.fd = open_here(c->owner, O_RDWR | c->how);
	if (me.fd >= 0)
		me.append_fd = open_here(c->owner, O_WRONLY | O_APPEND);
	fd = me.append_fd;
	return fd < 0 ? -1 : 0;
}

static long map_it(const struct call *c)
{
	void *at = mmap(NULL, (size_t)c->len, c->how, MAP_SHARED, me.fd, c->off);

	if (at == MAP_FAILED)
		return -1;
	me.map = at;
	me.map_off = c->off;
	me.map_len = c->len;
	return (long)at - c->off;
}

static long remap_it(const struct call *c)
{
	void *at = mremap(me.map, (size_t)me.map_len, (size_t)c->len, MREMAP_MAYMOVE);

	if (at == MAP_FAILED)
		return -1;
	me.map = at;
	me.map_len = c->len;
	return (long)at - me.map_off;
}

static long by_child(const uint8_t *at, size_t len)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		memcpy(me.wire->data, at, len);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	errno = ECHILD;
	return status ? -1 : (long)len;
}

/* Loads or stores through the mapping. A signal is the answer. */
static long touch(const struct call *c, struct answer *answer)
{
	uint8_t *at = me.map + (c->off - me.map_off), *data = me.wire->data;
	size_t len = (size_t)c->len;
	volatile long rc = -1;

	answer->signal = sigsetjmp(on_signal, 0);
	armed = answer->signal == 0;
	if (!armed)
		return -1;
	switch (c->verb) {
	case LOAD:
		memcpy(data, at, len);
		rc = c->len;
		break;
	case STORE:
		memcpy(at, data, len);
		rc = c->len;
		break;
	case LOAD_BY_CALL:
		rc = pwrite(me.scratch, at, len, 0);
		if (rc > 0 && pread(me.scratch, data, (size_t)rc, 0) != rc)
			rc = -2;
		break;
	case STORE_BY_CALL:
		if (pwrite(me.scratch, data, len, 0) != c->len)
			return -2;
		rc = pread(me.scratch, at, len, 0);
		break;
	case LOAD_BY_CHILD:
		rc = by_child(at, len);
		break;
	default: /* COPY_INSIDE: the file is read into its own mapping */
		rc = pread(me.fd, at, len, c->from);
	}
	armed = 0;
	return rc;
}

static long advise(const struct call *c)
{
	uint8_t *at = me.map + (c->off - me.map_off);
	static unsigned char core[ZONE / PAGE];

	switch (c->verb) {
	case ADVISE:
		return madvise(at, (size_t)c->len, c->how);
	case PROTECT:
		return mprotect(at, (size_t)c->len, c->how);
	case LOCK:
		return c->how ? mlock(at, (size_t)c->len) : munlock(at, (size_t)c->len);
	default:
		return mincore(at, (size_t)c->len, core);
	}
}

static long sync_it(const struct call *c)
{
	if (c->how == 0)
		return fsync(me.fd);
	if (c->how == 1)
		return fdatasync(me.fd);
	return me.map ? msync(me.map, (size_t)me.map_len, c->how == 2 ? MS_SYNC : MS_ASYNC) : 0;
}

static long rename_it(const struct call *c)
{
	char from[4096], to[4096];

	path_of(from, sizeof(from), me.node, c->owner);
	path_of(to, sizeof(to), me.node, c->dst);
	return rename(from, to);
}

static long stat_it(struct answer *answer)
{
	struct stat st;

	if (fstat(me.fd, &st))
		return -1;
	answer->blocks = st.st_blocks;
	return st.st_size;
}

static long carry_out(const struct call *c, struct answer *answer)
{
	uint8_t *data = me.wire->data;
	size_t len = (size_t)c->len;
	int rc;

	switch (c->verb) {
	case OPEN:
		return reopen(c);
	case READ:
		return pread(me.fd, data, len, c->off);
	case WRITE:
		return pwrite(me.fd, data, len, c->off);
	case APPEND:
		return write(me.append_fd, data, len);
	case TRUNCATE:
		return ftruncate(me.fd, c->off);
	case ALLOCATE:
		return fallocate(me.fd, c->how, c->off, c->len);
	case SEEK:
		return lseek(me.fd, c->off, c->how);
	case SYNC:
		return sync_it(c);
	case STAT:
		return stat_it(answer);
	case MAP:
		return map_it(c);
	case UNMAP:
		rc = munmap(me.map, (size_t)me.map_len);
		me.map = NULL;
		return rc;
	case REMAP:
		return remap_it(c);
	case ADVISE:
	case PROTECT:
	case LOCK:
	case CORE:
		return advise(c);
	case RENAME:
		return rename_it(c);
	default:
		return touch(c, answer);
	}
}

void worker(int node, int sock, struct wire *wire)
{
	struct sigaction action = {.sa_handler = caught, .sa_flags = SA_NODEFER};
	char byte;

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	me.node = node;
	me.wire = wire;
	me.fd = me.append_fd = -1;
	me.scratch = memfd_create("scratch", 0);
	while (read(sock, &byte, 1) == 1) {
		memset(&wire->answer, 0, sizeof(wire->answer));
		wire->answer.rc = carry_out(&wire->call, &wire->answer);
		wire->answer.code = errno;
		if (write(sock, &byte, 1) != 1)
			break;
	}
	_exit(0);
}
