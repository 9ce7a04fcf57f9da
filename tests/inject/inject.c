/*
 * Failing calls, one by one, in a living daemon: a library for LD_PRELOAD.
 *
 * It arms itself in processes of `rampfs --daemon` alone. Each maps $INJECT_DIR/NODE (NODE: the
 * last part of its mountpoint), where the test writes which kind of call is to fail and how many of
 * that kind may pass before; the call that fails is counted down to by whichever thread makes it,
 * says ENOMEM, EMFILE, ENOSPC or whatever that call says when something runs out, and writes its
 * name and where it was called from. One call fails, and everything goes on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT	     __attribute__((visibility("default")))
#define CALLER_BYTES 64

enum kind {
	KIND_MEMORY = 1, /* malloc and its like */
	KIND_MAP,	 /* mmap, mremap, madvise */
	KIND_OPEN,	 /* what makes a descriptor or a thread */
	KIND_FILE,	 /* ftruncate, fallocate, pread, pwrite, stat, rename; not unlink: it takes
			    nothing */
	KIND_SEND,	 /* send, sendmsg, writev */
	KIND_IOCTL,	 /* ioctl, epoll_ctl, leases */
};

/* inject.py knows this layout. */
struct control {
	_Atomic uint32_t kind;	   /* of what is counted; 0: off */
	_Atomic uint32_t hits;	   /* calls that were made to fail */
	_Atomic uint64_t left;	   /* calls that pass before; wraps at the one that fails */
	char name[24];		   /* of the call */
	uint64_t caller;	   /* its return address, from the start of its object */
	char object[CALLER_BYTES]; /* the end of that object's path */
};

static struct control *control;

static bool is_daemon(char *node, size_t cap)
{
	char line[4096];
	FILE *f = fopen("/proc/self/cmdline", "re");
	size_t len = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
	const char *second, *last = "";

	if (f)
		fclose(f);
	line[len] = 0;
	second = line + strlen(line) + 1;
	if (second >= line + len || strcmp(second, "--daemon") != 0)
		return false;
	for (const char *at = line; at < line + len; at += strlen(at) + 1)
		last = at;
	last = strrchr(last, '/') ? strrchr(last, '/') + 1 : last;
	snprintf(node, cap, "%s", last);
	return true;
}

__attribute__((constructor)) static void arm(void)
{
	const char *dir = getenv("INJECT_DIR");
	char node[64], path[4096];
	void *at;
	int fd;

	if (!dir || !is_daemon(node, sizeof(node)))
		return;
	snprintf(path, sizeof(path), "%s/%s", dir, node);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		control = at;
}

static void note(const char *name, const void *caller)
{
	const char *path = "";
	Dl_info info;

	control->caller = (uint64_t)(uintptr_t)caller;
	if (dladdr(caller, &info) && info.dli_fname) {
		control->caller -= (uint64_t)(uintptr_t)info.dli_fbase;
		path = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') : info.dli_fname;
	}
	strncpy(control->object, path, CALLER_BYTES - 1);
	strncpy(control->name, name, sizeof(control->name) - 1);
	control->hits++;
}

/* True: this call is the one that fails. */
static bool hit(enum kind kind, const char *name, const void *caller)
{
	if (!control || control->kind != (uint32_t)kind)
		return false;
	/* Only one of the threads sees 0; from then on it counts down from the top. */
	if (control->left-- != 0)
		return false;
	control->kind = 0;
	note(name, caller);
	return true;
}

#define REAL(name) ((__typeof__(&name))real(#name, &real_##name))

static void *real(const char *name, void **cache)
{
	void *fn = __atomic_load_n(cache, __ATOMIC_ACQUIRE);

	if (!fn) {
		fn = dlsym(RTLD_NEXT, name);
		__atomic_store_n(cache, fn, __ATOMIC_RELEASE);
	}
	return fn;
}

/* PASS(kind, errno, result on failure, type, name, (parameters), (arguments)) */
#define PASS(kind, code, failed, type, name, params, args)                                         \
	static void *real_##name;                                                                  \
	EXPORT type name params                                                                    \
	{                                                                                          \
		if (hit(kind, #name, __builtin_return_address(0))) {                               \
			errno = code;                                                              \
			return failed;                                                             \
		}                                                                                  \
		return REAL(name) args;                                                            \
	}

#define MEMORY(name, params, args) PASS(KIND_MEMORY, ENOMEM, NULL, void *, name, params, args)
#define FAIL			   (-1)

MEMORY(malloc, (size_t n), (n))
MEMORY(calloc, (size_t n, size_t size), (n, size))
MEMORY(realloc, (void *p, size_t n), (p, n))
MEMORY(reallocarray, (void *p, size_t n, size_t size), (p, n, size))
MEMORY(aligned_alloc, (size_t align, size_t n), (align, n))

PASS(KIND_MAP, ENOMEM, MAP_FAILED, void *, mmap,
     (void *at, size_t len, int prot, int flags, int fd, off_t offset),
     (at, len, prot, flags, fd, offset))
PASS(KIND_MAP, ENOMEM, MAP_FAILED, void *, mmap64,
     (void *at, size_t len, int prot, int flags, int fd, off64_t offset),
     (at, len, prot, flags, fd, offset))
PASS(KIND_MAP, ENOMEM, FAIL, int, madvise, (void *at, size_t len, int advice), (at, len, advice))

PASS(KIND_OPEN, EMFILE, FAIL, int, socket, (int domain, int type, int protocol),
     (domain, type, protocol))
PASS(KIND_OPEN, EMFILE, FAIL, int, socketpair, (int domain, int type, int protocol, int pair[2]),
     (domain, type, protocol, pair))
PASS(KIND_OPEN, EMFILE, FAIL, int, accept4, (int fd, __SOCKADDR_ARG at, socklen_t *len, int flags),
     (fd, at, len, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, epoll_create1, (int flags), (flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, eventfd, (unsigned int count, int flags), (count, flags))
PASS(KIND_OPEN, EAGAIN, EAGAIN, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg))

PASS(KIND_FILE, ENOSPC, FAIL, int, fallocate, (int fd, int mode, off_t at, off_t len),
     (fd, mode, at, len))
PASS(KIND_FILE, ENOSPC, FAIL, int, fallocate64, (int fd, int mode, off64_t at, off64_t len),
     (fd, mode, at, len))
PASS(KIND_FILE, ENOSPC, FAIL, int, ftruncate, (int fd, off_t len), (fd, len))
PASS(KIND_FILE, ENOSPC, FAIL, int, ftruncate64, (int fd, off64_t len), (fd, len))
PASS(KIND_FILE, EIO, FAIL, ssize_t, pread, (int fd, void *buf, size_t n, off_t at),
     (fd, buf, n, at))
PASS(KIND_FILE, EIO, FAIL, ssize_t, pread64, (int fd, void *buf, size_t n, off64_t at),
     (fd, buf, n, at))
PASS(KIND_FILE, ENOSPC, FAIL, ssize_t, pwrite, (int fd, const void *buf, size_t n, off_t at),
     (fd, buf, n, at))
PASS(KIND_FILE, ENOSPC, FAIL, ssize_t, pwrite64, (int fd, const void *buf, size_t n, off64_t at),
     (fd, buf, n, at))
PASS(KIND_FILE, EIO, FAIL, int, fstat, (int fd, struct stat *st), (fd, st))
PASS(KIND_FILE, ENOSPC, FAIL, int, renameat, (int from, const char *a, int to, const char *b),
     (from, a, to, b))
PASS(KIND_FILE, EIO, FAIL, off_t, lseek, (int fd, off_t at, int whence), (fd, at, whence))
PASS(KIND_FILE, EIO, FAIL, ssize_t, readlink, (const char *path, char *buf, size_t cap),
     (path, buf, cap))

PASS(KIND_SEND, ENOBUFS, FAIL, ssize_t, send, (int fd, const void *buf, size_t n, int flags),
     (fd, buf, n, flags))
PASS(KIND_SEND, ENOBUFS, FAIL, ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags),
     (fd, msg, flags))
PASS(KIND_SEND, ECONNRESET, FAIL, ssize_t, recv, (int fd, void *buf, size_t n, int flags),
     (fd, buf, n, flags))
PASS(KIND_SEND, ENOMEM, FAIL, ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags),
     (fd, msg, flags))

PASS(KIND_IOCTL, ENOMEM, FAIL, int, epoll_ctl,
     (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event))

/* What takes a further argument only sometimes. */

#define WITH_MODE(kind, code, name, params, args, last)                                            \
	static void *real_##name;                                                                  \
	EXPORT int name params                                                                     \
	{                                                                                          \
		va_list ap;                                                                        \
		unsigned long more;                                                                \
                                                                                                   \
		va_start(ap, last);                                                                \
		more = va_arg(ap, unsigned long);                                                  \
		va_end(ap);                                                                        \
		if (hit(kind, #name, __builtin_return_address(0))) {                               \
			errno = code;                                                              \
			return FAIL;                                                               \
		}                                                                                  \
		return REAL(name) args;                                                            \
	}

WITH_MODE(KIND_OPEN, EMFILE, open, (const char *path, int flags, ...), (path, flags, more), flags)
WITH_MODE(KIND_OPEN, EMFILE, open64, (const char *path, int flags, ...), (path, flags, more), flags)
WITH_MODE(KIND_OPEN, EMFILE, openat, (int dir, const char *path, int flags, ...),
	  (dir, path, flags, more), flags)
WITH_MODE(KIND_OPEN, EMFILE, openat64, (int dir, const char *path, int flags, ...),
	  (dir, path, flags, more), flags)
WITH_MODE(KIND_IOCTL, ENOMEM, ioctl, (int fd, unsigned long request, ...), (fd, request, more),
	  request)

/* Of fcntl(2) the lease alone: giving back a lock can't fail, and SQLite is not made for that. */
#define WITH_LEASE(name)                                                                           \
	static void *real_##name;                                                                  \
	EXPORT int name(int fd, int command, ...)                                                  \
	{                                                                                          \
		va_list ap;                                                                        \
		unsigned long more;                                                                \
                                                                                                   \
		va_start(ap, command);                                                             \
		more = va_arg(ap, unsigned long);                                                  \
		va_end(ap);                                                                        \
		if (command == F_SETLEASE &&                                                       \
		    hit(KIND_IOCTL, #name, __builtin_return_address(0))) {                         \
			errno = ENOMEM;                                                            \
			return FAIL;                                                               \
		}                                                                                  \
		return REAL(name)(fd, command, more);                                              \
	}

WITH_LEASE(fcntl)
WITH_LEASE(fcntl64)
