#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long sys_result(long rc)
{
	return rc == -1 ? -errno : rc;
}

long sys_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset)
{
	return sys_result(syscall(SYS_mmap, addr, len, prot, flags, fd, offset));
}

int sys_munmap(uint64_t addr, uint64_t len)
{
	return (int)sys_result(syscall(SYS_munmap, addr, len));
}

long sys_mremap(uint64_t old, uint64_t old_len, uint64_t new_len, int flags, uint64_t to)
{
	return sys_result(syscall(SYS_mremap, old, old_len, new_len, flags, to));
}

int sys_mprotect(uint64_t addr, uint64_t len, int prot)
{
	return (int)sys_result(syscall(SYS_mprotect, addr, len, prot));
}

int sys_pkey_mprotect(uint64_t addr, uint64_t len, int prot, int pkey)
{
	return (int)sys_result(syscall(SYS_pkey_mprotect, addr, len, prot, pkey));
}

int sys_madvise(uint64_t addr, uint64_t len, int advice)
{
	return (int)sys_result(syscall(SYS_madvise, addr, len, advice));
}

int sys_munlock(uint64_t addr, uint64_t len)
{
	return (int)sys_result(syscall(SYS_munlock, addr, len));
}

int sys_msync(uint64_t addr, uint64_t len, int flags)
{
	return (int)sys_result(syscall(SYS_msync, addr, len, flags));
}

int sys_ioctl(int fd, unsigned long request, void *arg)
{
	return (int)sys_result(syscall(SYS_ioctl, fd, request, arg));
}

int sys_open(const char *path, int flags)
{
	return (int)sys_result(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

void sys_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint32_t timeout_ms)
{
	struct timespec time = {.tv_sec = timeout_ms / 1000,
				.tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &time, NULL, 0);
}

void sys_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void sys_pause_ms(uint32_t ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

void copy_text(char *to, size_t cap, const char *from)
{
	size_t len = strnlen(from, cap - 1);

	memcpy(to, from, len);
	to[len] = '\0';
}
