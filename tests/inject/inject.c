/*
 * Failing calls, one by one, in a living process of ours: a library for LD_PRELOAD.
 *
 * It arms itself in the daemon of a node ($INJECT_DIR/NODE; NODE: the last part of its mountpoint),
 * in its keeper ($INJECT_DIR/keeper-NODE), in the brokers ($INJECT_DIR/broker), and in a program
 * that has the shim ($INJECT_DIR/$INJECT_PROGRAM), there for the shim's own calls alone. Each process
 * maps that file, where the test writes which kind of call is to fail and how many of that kind may
 * pass before. Every thread counts down; the call that fails says ENOMEM, EMFILE, ENOSPC or the error
 * of that call when a resource runs out, and writes its name and its caller's address. One call
 * fails, and the process continues.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "role.h"

#define EXPORT	     __attribute__((visibility("default")))
#define CALLER_BYTES 64
#define SITES_MAX    1024
#define SHIM	     "librampfs-preload.so"

enum kind {
	KIND_MEMORY = 1, /* malloc and its like */
	KIND_MAP,	 /* mmap, mremap, madvise, mprotect, mlock, mincore; not munmap, which fails
			    only where it cuts a mapping in two */
	KIND_OPEN,	 /* calls that make a descriptor, a thread or a process */
	KIND_FILE,	 /* ftruncate, fallocate, pread, pwrite, fsync, stat, rename, mount, and
			    read and write of files */
	KIND_SEND,	 /* connect, send, sendmsg, recv, socket options. Not writev: /dev/fuse
			    takes an answer, or no program waits for it */
	KIND_IOCTL,	 /* ioctl, epoll_ctl, leases, priorities */
	KINDS
};

/* inject.py knows this layout. */
struct control {
	_Atomic uint32_t kind;	      /* that is to fail; 0: none */
	_Atomic uint32_t hits;	      /* calls that were made to fail */
	_Atomic uint64_t left;	      /* calls that pass before; wraps at the one that fails */
	_Atomic uint64_t made[KINDS]; /* calls of each kind */
	char only[64];		      /* NAME or NAME@OBJECT: those alone are counted; "": all */
	char name[24];		      /* of the call */
	uint64_t caller;	      /* its return address, from the start of its object */
	char object[CALLER_BYTES];    /* the end of that object's path */
	uint32_t per_site;	      /* most failures of one place in the code; 0: no limit */
	struct {
		uint32_t place, times; /* how often it has failed; 0: the end of the list */
	} sites[SITES_MAX];
};

static struct control *control;
static bool shim_alone;

__attribute__((constructor)) static void arm(void)
{
	control = role_control(sizeof(*control), &shim_alone);
}

static void note(const char *name, const void *caller)
{
	const char *path = "";
	Dl_info info;

	control->caller = (uint64_t)(uintptr_t)caller;
	if (dladdr(caller, &info) && info.dli_fname) {
		control->caller -= (uint64_t)(uintptr_t)info.dli_fbase;
		path = last_part(info.dli_fname);
	}
	strncpy(control->object, path, CALLER_BYTES - 1);
	strncpy(control->name, name, sizeof(control->name) - 1);
	control->hits++;
}

/* True while AddressSanitizer asks, when a thread of ours begins: it ends the process on a failure. */
static __thread bool asks_for_stack;

static bool counts(const void *caller)
{
	Dl_info info;

	if (asks_for_stack)
		return false;
	return !shim_alone || (dladdr(caller, &info) && info.dli_fname &&
			       strcmp(last_part(info.dli_fname), SHIM) == 0);
}

/* Returns whether control->only means this call, by its name and by the object that calls it. */
static bool is_meant(const char *name, const void *caller)
{
	size_t len = strcspn(control->only, "@");
	Dl_info info;

	if (!len)
		return true;
	if (strlen(name) != len || memcmp(name, control->only, len) != 0)
		return false;
	return !control->only[len] ||
	       (dladdr(caller, &info) && info.dli_fname &&
		strcmp(last_part(info.dli_fname), control->only + len + 1) == 0);
}

/* Returns a number for the call's place in the code, the same in each process. */
static uint32_t place_of(const char *name, const void *caller)
{
	uint64_t at = (uint64_t)(uintptr_t)caller;
	const char *path = "";
	Dl_info info;

	if (dladdr(caller, &info) && info.dli_fname) {
		at -= (uint64_t)(uintptr_t)info.dli_fbase;
		path = last_part(info.dli_fname);
	}
	for (; *path; path++)
		at = at * 31 + (unsigned char)*path;
	for (; *name; name++)
		at = at * 31 + (unsigned char)*name;
	return (uint32_t)(at ^ at >> 32);
}

/* Counts one more failure of this place; false: it has had its share. Threads may count one too few. */
static bool site_takes(const char *name, const void *caller)
{
	uint32_t place;
	size_t i = 0;

	if (!control->per_site)
		return true;
	place = place_of(name, caller);
	while (i < SITES_MAX && control->sites[i].times && control->sites[i].place != place)
		i++;
	if (i == SITES_MAX || control->sites[i].times == control->per_site)
		return false;
	control->sites[i].place = place;
	control->sites[i].times++;
	return true;
}

/* Returns whether this call is the one that fails. */
static bool hit(enum kind kind, const char *name, const void *caller)
{
	if (!control || !counts(caller) || !is_meant(name, caller))
		return false;
	control->made[kind]++;
	if (control->kind != (uint32_t)kind || !site_takes(name, caller))
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
PASS(KIND_MEMORY, ENOMEM, ENOMEM, int, posix_memalign, (void **out, size_t align, size_t n),
     (out, align, n))

static void *real_pthread_getattr_np;
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	int rc;

	asks_for_stack = true;
	rc = REAL(pthread_getattr_np)(thread, attr);
	asks_for_stack = false;
	return rc;
}

PASS(KIND_MAP, ENOMEM, MAP_FAILED, void *, mmap,
     (void *at, size_t len, int prot, int flags, int fd, off_t offset),
     (at, len, prot, flags, fd, offset))
PASS(KIND_MAP, ENOMEM, MAP_FAILED, void *, mmap64,
     (void *at, size_t len, int prot, int flags, int fd, off64_t offset),
     (at, len, prot, flags, fd, offset))
PASS(KIND_MAP, ENOMEM, FAIL, int, madvise, (void *at, size_t len, int advice), (at, len, advice))
PASS(KIND_MAP, ENOMEM, FAIL, int, mprotect, (void *at, size_t len, int prot), (at, len, prot))
PASS(KIND_MAP, ENOMEM, FAIL, int, mlock, (const void *at, size_t len), (at, len))
PASS(KIND_MAP, ENOMEM, FAIL, int, mlockall, (int flags), (flags))
PASS(KIND_MAP, ENOMEM, FAIL, int, mincore, (void *at, size_t len, unsigned char *in), (at, len, in))

PASS(KIND_OPEN, EMFILE, FAIL, int, socket, (int domain, int type, int protocol),
     (domain, type, protocol))
PASS(KIND_OPEN, EMFILE, FAIL, int, socketpair, (int domain, int type, int protocol, int pair[2]),
     (domain, type, protocol, pair))
PASS(KIND_OPEN, EMFILE, FAIL, int, accept4, (int fd, __SOCKADDR_ARG at, socklen_t *len, int flags),
     (fd, at, len, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, epoll_create1, (int flags), (flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, epoll_create, (int size), (size))
PASS(KIND_OPEN, EMFILE, FAIL, int, pipe, (int pair[2]), (pair))
PASS(KIND_OPEN, EMFILE, FAIL, int, pipe2, (int pair[2], int flags), (pair, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, dup2, (int fd, int as), (fd, as))
PASS(KIND_OPEN, EMFILE, FAIL, int, dup3, (int fd, int as, int flags), (fd, as, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, signalfd, (int fd, const sigset_t *mask, int flags),
     (fd, mask, flags))
PASS(KIND_OPEN, EMFILE, NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
PASS(KIND_OPEN, EMFILE, NULL, FILE *, fopen64, (const char *path, const char *mode), (path, mode))
PASS(KIND_OPEN, EMFILE, NULL, FILE *, setmntent, (const char *path, const char *mode), (path, mode))
PASS(KIND_OPEN, EMFILE, NULL, DIR *, opendir, (const char *path), (path))
PASS(KIND_OPEN, ENOMEM, NULL, DIR *, fdopendir, (int fd), (fd))
PASS(KIND_OPEN, EAGAIN, FAIL, pid_t, fork, (void), ())
PASS(KIND_OPEN, EAGAIN, EAGAIN, int, posix_spawn,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attr, char *const argv[], char *const env[]),
     (pid, path, actions, attr, argv, env))
PASS(KIND_OPEN, EMFILE, FAIL, int, fsopen, (const char *type, unsigned int flags), (type, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, fspick, (int dir, const char *path, unsigned int flags),
     (dir, path, flags))
PASS(KIND_OPEN, EMFILE, FAIL, int, fsmount, (int fd, unsigned int flags, unsigned int attr),
     (fd, flags, attr))
PASS(KIND_OPEN, EMFILE, FAIL, int, fanotify_init, (unsigned int flags, unsigned int events),
     (flags, events))
PASS(KIND_OPEN, ENOMEM, NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode))
PASS(KIND_OPEN, ENOMEM, FAIL, int, unshare, (int flags), (flags))
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
PASS(KIND_FILE, EIO, FAIL, int, fstat64, (int fd, struct stat64 *st), (fd, st))
PASS(KIND_FILE, EIO, FAIL, int, fstatfs, (int fd, struct statfs *st), (fd, st))
PASS(KIND_FILE, EIO, FAIL, int, statfs, (const char *path, struct statfs *st), (path, st))
PASS(KIND_FILE, EIO, FAIL, int, stat, (const char *path, struct stat *st), (path, st))
PASS(KIND_FILE, EIO, FAIL, int, fstatat, (int dir, const char *path, struct stat *st, int flags),
     (dir, path, st, flags))
PASS(KIND_FILE, EIO, FAIL, int, fsync, (int fd), (fd))
PASS(KIND_FILE, EIO, FAIL, int, fdatasync, (int fd), (fd))
PASS(KIND_FILE, ENOSPC, FAIL, int, futimens, (int fd, const struct timespec at[2]), (fd, at))
PASS(KIND_FILE, ENOSPC, FAIL, int, fsetxattr,
     (int fd, const char *name, const void *value, size_t size, int flags),
     (fd, name, value, size, flags))
PASS(KIND_FILE, ENOSPC, FAIL, int, renameat, (int from, const char *a, int to, const char *b),
     (from, a, to, b))
PASS(KIND_FILE, ENOSPC, FAIL, int, renameat2,
     (int from, const char *a, int to, const char *b, unsigned int flags), (from, a, to, b, flags))
PASS(KIND_FILE, ENOSPC, FAIL, int, link, (const char *from, const char *to), (from, to))
PASS(KIND_FILE, ENOSPC, FAIL, int, mkdir, (const char *path, mode_t mode), (path, mode))
PASS(KIND_FILE, ENOSPC, FAIL, int, mkostemp, (char *path, int flags), (path, flags))
PASS(KIND_FILE, EIO, FAIL, int, chmod, (const char *path, mode_t mode), (path, mode))
PASS(KIND_FILE, EIO, FAIL, int, unlink, (const char *path), (path))
PASS(KIND_FILE, EIO, FAIL, int, unlinkat, (int dir, const char *path, int flags),
     (dir, path, flags))
PASS(KIND_FILE, ENOLCK, FAIL, int, flock, (int fd, int operation), (fd, operation))
PASS(KIND_FILE, EIO, FAIL, int, access, (const char *path, int mode), (path, mode))
PASS(KIND_FILE, EIO, FAIL, int, statx,
     (int dir, const char *path, int flags, unsigned int mask, struct statx *st),
     (dir, path, flags, mask, st))
PASS(KIND_FILE, EIO, FAIL, ssize_t, preadv2,
     (int fd, const struct iovec *iov, int n, off_t at, int flags), (fd, iov, n, at, flags))
PASS(KIND_FILE, ENOMEM, FAIL, ssize_t, fgetxattr, (int fd, const char *name, void *to, size_t cap),
     (fd, name, to, cap))
PASS(KIND_FILE, ENOMEM, FAIL, ssize_t, getxattr,
     (const char *path, const char *name, void *to, size_t cap), (path, name, to, cap))
PASS(KIND_FILE, ENOSPC, FAIL, int, setxattr,
     (const char *path, const char *name, const void *value, size_t size, int flags),
     (path, name, value, size, flags))
PASS(KIND_FILE, ENOMEM, FAIL, ssize_t, readlinkat,
     (int dir, const char *path, char *buf, size_t cap), (dir, path, buf, cap))
PASS(KIND_FILE, ENOMEM, NULL, char *, realpath, (const char *path, char *to), (path, to))
PASS(KIND_FILE, ENOMEM, FAIL, int, mount,
     (const char *what, const char *where, const char *type, unsigned long flags, const void *data),
     (what, where, type, flags, data))
PASS(KIND_FILE, ENOMEM, FAIL, int, umount2, (const char *where, int flags), (where, flags))
PASS(KIND_FILE, ENOMEM, FAIL, int, fsconfig,
     (int fd, unsigned int command, const char *key, const void *value, int aux),
     (fd, command, key, value, aux))
PASS(KIND_FILE, EIO, FAIL, off_t, lseek, (int fd, off_t at, int whence), (fd, at, whence))
PASS(KIND_FILE, EIO, FAIL, ssize_t, readlink, (const char *path, char *buf, size_t cap),
     (path, buf, cap))

PASS(KIND_SEND, ENOBUFS, FAIL, ssize_t, send, (int fd, const void *buf, size_t n, int flags),
     (fd, buf, n, flags))
PASS(KIND_SEND, ENOBUFS, FAIL, ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags),
     (fd, msg, flags))
PASS(KIND_SEND, ENOBUFS, FAIL, ssize_t, sendto,
     (int fd, const void *buf, size_t n, int flags, __CONST_SOCKADDR_ARG at, socklen_t len),
     (fd, buf, n, flags, at, len))
PASS(KIND_SEND, ECONNRESET, FAIL, ssize_t, recv, (int fd, void *buf, size_t n, int flags),
     (fd, buf, n, flags))
PASS(KIND_SEND, ENOMEM, FAIL, ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags),
     (fd, msg, flags))

PASS(KIND_SEND, ENOBUFS, FAIL, int, connect, (int fd, __CONST_SOCKADDR_ARG at, socklen_t len),
     (fd, at, len))
PASS(KIND_SEND, ENOBUFS, FAIL, int, bind, (int fd, __CONST_SOCKADDR_ARG at, socklen_t len),
     (fd, at, len))
PASS(KIND_SEND, ENOBUFS, FAIL, int, listen, (int fd, int backlog), (fd, backlog))
PASS(KIND_SEND, ENOBUFS, FAIL, int, setsockopt,
     (int fd, int level, int name, const void *value, socklen_t len), (fd, level, name, value, len))
PASS(KIND_SEND, ENOBUFS, FAIL, int, getsockopt,
     (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len))
PASS(KIND_SEND, ENOBUFS, FAIL, int, getsockname, (int fd, __SOCKADDR_ARG at, socklen_t *len),
     (fd, at, len))
PASS(KIND_SEND, ENOBUFS, FAIL, int, getpeername, (int fd, __SOCKADDR_ARG at, socklen_t *len),
     (fd, at, len))
PASS(KIND_SEND, ENOMEM, EAI_MEMORY, int, getaddrinfo,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out),
     (node, service, hints, out))

PASS(KIND_IOCTL, EPERM, FAIL, int, sched_setscheduler,
     (pid_t pid, int policy, const struct sched_param *param), (pid, policy, param))
PASS(KIND_IOCTL, EACCES, FAIL, int, setpriority, (__priority_which_t which, id_t who, int priority),
     (which, who, priority))
PASS(KIND_IOCTL, EPERM, FAIL, int, setrlimit,
     (__rlimit_resource_t what, const struct rlimit *limit), (what, limit))
PASS(KIND_IOCTL, ENOMEM, FAIL, int, fanotify_mark,
     (int fd, unsigned int flags, uint64_t mask, int dir, const char *path),
     (fd, flags, mask, dir, path))
PASS(KIND_IOCTL, ENOMEM, FAIL, int, epoll_ctl,
     (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event))

/* Calls that take a further argument only sometimes. */

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

/* Fails only leases and new descriptors of fcntl(2): giving back a lock can't fail, and SQLite is not
   made for that. */
static bool fcntl_hit(int command, const char *name, const void *caller)
{
	bool fails = false;

	if (command == F_SETLEASE)
		fails = hit(KIND_IOCTL, name, caller);
	if (command == F_DUPFD_CLOEXEC || command == F_DUPFD)
		fails = hit(KIND_OPEN, name, caller);
	if (fails)
		errno = command == F_SETLEASE ? ENOMEM : EMFILE;
	return fails;
}

#define WITH_FCNTL(name)                                                                           \
	static void *real_##name;                                                                  \
	EXPORT int name(int fd, int command, ...)                                                  \
	{                                                                                          \
		va_list ap;                                                                        \
		unsigned long more;                                                                \
                                                                                                   \
		va_start(ap, command);                                                             \
		more = va_arg(ap, unsigned long);                                                  \
		va_end(ap);                                                                        \
		if (fcntl_hit(command, #name, __builtin_return_address(0)))                        \
			return FAIL;                                                               \
		return REAL(name)(fd, command, more);                                              \
	}

/* The child has a stack of its own, and never comes back to here. */
static void *real_clone;

EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	void *ptid, *tls, *ctid;
	va_list ap;

	va_start(ap, arg);
	ptid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	ctid = va_arg(ap, void *);
	va_end(ap);
	if (hit(KIND_OPEN, "clone", __builtin_return_address(0))) {
		errno = EAGAIN;
		return FAIL;
	}
	return REAL(clone)(fn, stack, flags, arg, ptid, tls, ctid);
}

static void *real_ptrace;

EXPORT long ptrace(enum __ptrace_request request, ...)
{
	unsigned long pid, at, data;
	va_list ap;

	va_start(ap, request);
	pid = va_arg(ap, unsigned long);
	at = va_arg(ap, unsigned long);
	data = va_arg(ap, unsigned long);
	va_end(ap);
	if (hit(KIND_IOCTL, "ptrace", __builtin_return_address(0))) {
		errno = EPERM;
		return FAIL;
	}
	return REAL(ptrace)(request, pid, at, data);
}

WITH_FCNTL(fcntl)
WITH_FCNTL(fcntl64)

/* A regular file has an end and a size; reads and writes of other descriptors (eventfds, pipes,
   /dev/fuse) can't fail for want of a resource. Standard error is the log. */
static bool is_file(int fd)
{
	struct stat st;

	return fd != STDERR_FILENO && REAL(fstat)(fd, &st) == 0 && S_ISREG(st.st_mode);
}

#define WITH_FILE(name, code, type, buf_type)                                                      \
	static void *real_##name;                                                                  \
	EXPORT type name(int fd, buf_type buf, size_t n)                                           \
	{                                                                                          \
		if (control && is_file(fd) &&                                                      \
		    hit(KIND_FILE, #name, __builtin_return_address(0))) {                          \
			errno = code;                                                              \
			return FAIL;                                                               \
		}                                                                                  \
		return REAL(name)(fd, buf, n);                                                     \
	}

WITH_FILE(read, EIO, ssize_t, void *)
WITH_FILE(write, ENOSPC, ssize_t, const void *)

/* ---- calls without a wrapper ---- */

static bool syscall_fails(long number, const void *caller)
{
	switch (number) {
	case SYS_mmap:
	case SYS_mremap:
	case SYS_madvise:
	case SYS_mprotect:
	case SYS_mlock:
		errno = ENOMEM;
		return hit(KIND_MAP, "syscall(map)", caller);
	case SYS_openat:
	case SYS_pidfd_open:
	case SYS_pidfd_getfd:
		errno = EMFILE;
		return hit(KIND_OPEN, "syscall(open)", caller);
	case SYS_read:
	case SYS_fstat:
	case SYS_fstatfs:
		errno = EIO;
		return hit(KIND_FILE, "syscall(file)", caller);
	case SYS_ioctl:
	case SYS_kcmp:
		errno = ENOMEM;
		return hit(KIND_IOCTL, "syscall(ioctl)", caller);
	default:
		return false;
	}
}

static void *real_syscall;

EXPORT long syscall(long number, ...)
{
	long a[6];
	va_list ap;
	int code = errno;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (control && syscall_fails(number, __builtin_return_address(0)))
		return FAIL;
	errno = code;
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
