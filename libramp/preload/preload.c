/*
 * librampfs-preload.so: mmap and its kin for programs that know nothing of rampfs.
 *
 * Happy path: a call that does not concern a segment is passed to the next library (or the kernel,
 * before our constructor has run) after a look at its arguments; a MAP_SHARED file mapping costs
 * one statx(2) more. Only where the file is on a rampfs mount, or the range was mapped by us,
 * core/attach.c and core/remap.c carry it out. Private mappings of rampfs files are the kernel's:
 * fork must keep their copies.
 *
 * How it fails: a call that can't be carried out gets an errno and one line on stderr. errno is
 * untouched on success. A wrapper must not assume anything: it may be called by the dynamic loader,
 * by another library's constructor, in a signal handler, in vfork's child.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "core/attach.h"
#include "core/core.h"
#include "core/core_calls.h"
#include "core/fork.h"
#include "core/fork_gate.h"
#include "core/mounts.h"
#include "core/remap.h"
#include "core/sys.h"
#include "core/table.h"
#include "next_libc.h"

#define EXPORT __attribute__((visibility("default")))

/* Constructors of libraries that the program is linked with may have run before this one, and may
   have called a wrapper. */
static __attribute__((constructor)) void preload_init(void)
{
	core_init(next_libc_resolve, false);
}

/* For libramp.so in this process. */
EXPORT const struct core_calls rampfs_core_1 = {
	.init = preload_init,
	.map = attach_mmap,
	.unmap = core_call_unmap,
};

static bool shared_file(int flags, int fd)
{
	int type = flags & MAP_TYPE;

	return fd >= 0 && !(flags & MAP_ANONYMOUS) &&
	       (type == MAP_SHARED || type == MAP_SHARED_VALIDATE);
}

/* Returns true where the call is done, with *out and errno as the caller shall see them. */
static bool map_segment(const struct attach_call *call, void **out)
{
	int saved = errno, rc;
	uint64_t at;

	preload_init();
	rc = attach_mmap(call, &at);
	errno = rc ? -rc : saved;
	if (rc == -ENOTTY)
		return false;
	*out = rc ? MAP_FAILED : (void *)(uintptr_t)at;
	return true;
}

static bool may_be_ours(const void *addr, size_t length)
{
	if (!table_near(addr, length))
		return false;
	fork_settle();
	return true;
}

/* Fills pages in as the kernel does at the end of mmap, and like the kernel is silent about
   failures. */
static void populate(void *at, size_t length, int prot, int flags)
{
	bool copies = (prot & PROT_WRITE) && (flags & MAP_TYPE) == MAP_PRIVATE;
	int saved = errno;

	sys_madvise((uint64_t)(uintptr_t)at, length,
		    copies ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	errno = saved;
}

/* Maps where something of ours may be or may come: a call that fails leaves the old mapping. Pages
   are filled in afterwards, because an agent must not wait that long for the table. */
static void *map_over(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	size_t over = flags & MAP_FIXED ? length : 0;
	struct signal_guard guard;
	void *out;
	int code = -remap_over_begin(&guard, addr, over);

	if (code) {
		errno = code;
		return MAP_FAILED;
	}
	out = next_libc.mmap(addr, length, prot, flags & ~MAP_POPULATE, fd, offset);
	code = errno;
	remap_over_end(&guard, addr, out != MAP_FAILED ? over : 0);
	if (out == MAP_FAILED)
		errno = code;
	else if ((flags & MAP_POPULATE) && !(flags & MAP_NONBLOCK))
		populate(out, length, prot, flags);
	return out;
}

static void *map_other(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return addr && may_be_ours(addr, length)
		       ? map_over(addr, length, prot, flags, fd, offset)
		       : next_libc.mmap(addr, length, prot, flags, fd, offset);
}

EXPORT void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	struct attach_call call = {.addr = (uint64_t)(uintptr_t)addr,
				   .len = length,
				   .prot = prot,
				   .flags = flags,
				   .fd = fd,
				   .offset = (uint64_t)offset};
	bool shared = shared_file(flags, fd);
	int saved = errno;
	void *out;

	if (shared && mounts_has(fd) && map_segment(&call, &out))
		return out;
	errno = saved;
	out = map_other(addr, length, prot, flags, fd, offset);
	/* ENODEV is FUSE's answer for a rampfs mount: its device's number may have been another
	   filesystem's before. */
	if (out == MAP_FAILED && errno == ENODEV && shared && mounts_look_again(fd) &&
	    !map_segment(&call, &out))
		errno = ENODEV;
	return out;
}

EXPORT void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off64_t offset)
	__attribute__((alias("mmap")));

static int answer(int rc)
{
	if (rc == 0)
		return 0;
	errno = -rc;
	return -1;
}

EXPORT int munmap(void *addr, size_t length)
{
	return may_be_ours(addr, length) ? answer(remap_munmap(addr, length, next_libc.munmap))
					 : next_libc.munmap(addr, length);
}

EXPORT int mprotect(void *addr, size_t length, int prot)
{
	return may_be_ours(addr, length) ? answer(remap_mprotect(addr, length, prot, -1))
					 : next_libc.mprotect(addr, length, prot);
}

EXPORT int pkey_mprotect(void *addr, size_t length, int prot, int pkey)
{
	return may_be_ours(addr, length) ? answer(remap_mprotect(addr, length, prot, pkey))
					 : next_libc.pkey_mprotect(addr, length, prot, pkey);
}

EXPORT int madvise(void *addr, size_t length, int advice)
{
	int rc = may_be_ours(addr, length) ? remap_madvise(addr, length, advice) : -ENOTTY;

	return rc == -ENOTTY ? next_libc.madvise(addr, length, advice) : answer(rc);
}

EXPORT int remap_file_pages(void *addr, size_t length, int prot, size_t page, int flags)
{
	int rc = may_be_ours(addr, length) ? remap_file_pages_refuse(addr, length) : -ENOTTY;

	return rc == -ENOTTY ? next_libc.remap_file_pages(addr, length, prot, page, flags)
			     : answer(rc);
}

static void *move_over(void *old, size_t old_size, size_t new_size, int flags, void *to)
{
	struct signal_guard guard;
	void *out;
	int code = -remap_over_begin(&guard, to, new_size);

	if (code) {
		errno = code;
		return MAP_FAILED;
	}
	out = next_libc.mremap(old, old_size, new_size, flags, to);
	code = errno;
	remap_over_end(&guard, to, out != MAP_FAILED ? new_size : 0);
	if (out == MAP_FAILED)
		errno = code;
	return out;
}

EXPORT void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *to = NULL;
	va_list ap;
	int rc;

	if (flags & MREMAP_FIXED) {
		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	rc = may_be_ours(old, old_size ? old_size : 1)
		     ? remap_mremap(old, old_size, new_size, flags)
		     : -ENOTTY;
	if (rc == 0)
		return old;
	if (rc != -ENOTTY) {
		errno = -rc;
		return MAP_FAILED;
	}
	return (flags & MREMAP_FIXED) && may_be_ours(to, new_size)
		       ? move_over(old, old_size, new_size, flags, to)
		       : next_libc.mremap(old, old_size, new_size, flags, to);
}

/* ---- children that no handler of ours would see ---- */

/* The C library's since 2.34. */
pid_t _Fork(void);

EXPORT pid_t _Fork(void)
{
	int saved = errno, code;
	pid_t pid;

	preload_init();
	fork_gate_begin_fork();
	errno = saved;
	pid = next_libc.fork_raw();
	if (pid == 0)
		return 0;
	code = errno;
	fork_gate_end_fork();
	errno = code;
	return pid;
}

EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	bool own_memory = !(flags & CLONE_VM);
	int saved = errno, code, pid;
	void *ptid, *tls, *ctid;
	va_list ap;

	/* The caller gave as many as its flags call for; the next library looks at no more. */
	va_start(ap, arg);
	ptid = va_arg(ap, void *);
	tls = va_arg(ap, void *);
	ctid = va_arg(ap, void *);
	va_end(ap);
	preload_init();
	if (own_memory)
		fork_gate_begin_fork();
	errno = saved;
	pid = next_libc.clone(fn, stack, flags, arg, ptid, tls, ctid);
	code = errno;
	if (own_memory)
		fork_gate_end_fork();
	errno = code;
	return pid;
}
