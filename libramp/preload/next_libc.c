#include "next_libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the kernel's ---- */

static void *kernel_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): syscall(2) gives addresses as numbers */
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

static int kernel_munmap(void *addr, size_t length)
{
	return (int)syscall(SYS_munmap, addr, length);
}

static void *kernel_mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	va_list ap;
	void *to = NULL;

	if (flags & MREMAP_FIXED) {
		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, to);
}

static int kernel_mprotect(void *addr, size_t length, int prot)
{
	return (int)syscall(SYS_mprotect, addr, length, prot);
}

static int kernel_pkey_mprotect(void *addr, size_t length, int prot, int pkey)
{
	return (int)syscall(SYS_pkey_mprotect, addr, length, prot, pkey);
}

static int kernel_madvise(void *addr, size_t length, int advice)
{
	return (int)syscall(SYS_madvise, addr, length, advice);
}

static int kernel_remap_file_pages(void *addr, size_t length, int prot, size_t page, int flags)
{
	return (int)syscall(SYS_remap_file_pages, addr, length, prot, page, flags);
}

static pid_t no_fork(void)
{
	errno = ENOSYS;
	return -1;
}

static int no_clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	(void)fn;
	(void)stack;
	(void)flags;
	(void)arg;
	errno = ENOSYS;
	return -1;
}

struct next_libc next_libc = {
	.mmap = kernel_mmap,
	.munmap = kernel_munmap,
	.mremap = kernel_mremap,
	.mprotect = kernel_mprotect,
	.pkey_mprotect = kernel_pkey_mprotect,
	.madvise = kernel_madvise,
	.remap_file_pages = kernel_remap_file_pages,
	.fork_raw = no_fork, /* where the C library has none */
	.clone = no_clone,
};

/* ---- the next library's ---- */

/* ISO C knows no cast from an object's pointer to a function's; POSIX promises that it works. */
static void resolve(void *slot, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found)
		memcpy(slot, &found, sizeof(found));
}

void next_libc_resolve(void)
{
	resolve(&next_libc.mmap, "mmap");
	resolve(&next_libc.munmap, "munmap");
	resolve(&next_libc.mremap, "mremap");
	resolve(&next_libc.mprotect, "mprotect");
	resolve(&next_libc.pkey_mprotect, "pkey_mprotect");
	resolve(&next_libc.madvise, "madvise");
	resolve(&next_libc.remap_file_pages, "remap_file_pages");
	resolve(&next_libc.fork_raw, "_Fork");
	resolve(&next_libc.clone, "clone");
}
