#include "sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 512

/* ---- the kernel's calls ------------------------------------------------------------------------
 */

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

struct shim_next shim_next = {
	.mmap = kernel_mmap,
	.munmap = kernel_munmap,
	.mremap = kernel_mremap,
	.mprotect = kernel_mprotect,
	.madvise = kernel_madvise,
	.remap_file_pages = kernel_remap_file_pages,
	.fork_raw = no_fork, /* where the C library has none */
	.clone = no_clone,
};

static bool quiet;
/* The C library's count of threads: the last one to end calls exit(3). NULL where it has none. */
static _Atomic unsigned int *thread_count;

/* What descriptor 2 was when the program began; type 0: it was closed. */
static struct {
	dev_t dev;
	ino_t ino;
	mode_t type;
} first_stderr;

static void note_stderr(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st))
		return;
	first_stderr.dev = st.st_dev;
	first_stderr.ino = st.st_ino;
	first_stderr.type = st.st_mode & S_IFMT;
}

/* ISO C knows no cast from an object's pointer to a function's; POSIX promises that it works. */
static void resolve(void *slot, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found)
		memcpy(slot, &found, sizeof(found));
}

void shim_resolve(void)
{
	const char *value = getenv("RAMPFS_QUIET");

	quiet = value && strcmp(value, "1") == 0;
	note_stderr();
	resolve(&thread_count, "__nptl_nthreads");
	resolve(&shim_next.mmap, "mmap");
	resolve(&shim_next.munmap, "munmap");
	resolve(&shim_next.mremap, "mremap");
	resolve(&shim_next.mprotect, "mprotect");
	resolve(&shim_next.madvise, "madvise");
	resolve(&shim_next.remap_file_pages, "remap_file_pages");
	resolve(&shim_next.fork_raw, "_Fork");
	resolve(&shim_next.clone, "clone");
}

void shim_count_thread_out(void)
{
	if (thread_count)
		atomic_fetch_sub(thread_count, 1);
}

void shim_count_thread_in(void)
{
	if (thread_count)
		atomic_fetch_add(thread_count, 1);
}

static long result(long rc)
{
	return rc == -1 ? -errno : rc;
}

long shim_mmap(uint64_t addr, uint64_t len, int prot, int flags, int fd, uint64_t offset)
{
	return result(syscall(SYS_mmap, addr, len, prot, flags, fd, offset));
}

int shim_munmap(uint64_t addr, uint64_t len)
{
	return (int)result(syscall(SYS_munmap, addr, len));
}

long shim_mremap(uint64_t old, uint64_t old_len, uint64_t new_len, int flags, uint64_t to)
{
	return result(syscall(SYS_mremap, old, old_len, new_len, flags, to));
}

int shim_mprotect(uint64_t addr, uint64_t len, int prot)
{
	return (int)result(syscall(SYS_mprotect, addr, len, prot));
}

int shim_madvise(uint64_t addr, uint64_t len, int advice)
{
	return (int)result(syscall(SYS_madvise, addr, len, advice));
}

int shim_munlock(uint64_t addr, uint64_t len)
{
	return (int)result(syscall(SYS_munlock, addr, len));
}

int shim_msync(uint64_t addr, uint64_t len, int flags)
{
	return (int)result(syscall(SYS_msync, addr, len, flags));
}

int shim_ioctl(int fd, unsigned long request, void *arg)
{
	return (int)result(syscall(SYS_ioctl, fd, request, arg));
}

int shim_open(const char *path, int flags)
{
	return (int)result(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

void shim_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint32_t timeout_ms)
{
	struct timespec time = {.tv_sec = timeout_ms / 1000,
				.tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &time, NULL, 0);
}

void shim_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

uint64_t shim_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void shim_pause_ms(uint32_t ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&time, NULL);
}

void shim_copy(char *to, size_t cap, const char *from)
{
	size_t len = strnlen(from, cap - 1);

	memcpy(to, from, len);
	to[len] = '\0';
}

/* ---- entering and leaving ---------------------------------------------------------------------
 */

void shim_enter(struct shim_guard *guard)
{
	sigset_t all;

	guard->saved_errno = errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &guard->mask);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel);
}

void shim_leave(const struct shim_guard *guard)
{
	int ignored;

	pthread_setcancelstate(guard->cancel, &ignored);
	pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
	errno = guard->saved_errno;
}

/* ---- a lock -----------------------------------------------------------------------------------
 */

bool shim_lock_for(struct shim_lock *lock, uint32_t timeout_ms)
{
	uint64_t end_ms = 0;
	uint32_t word = 0;

	if (atomic_compare_exchange_strong(&lock->word, &word, 1))
		return true;
	if (timeout_ms != UINT32_MAX)
		end_ms = shim_now_ms() + timeout_ms;
	while (atomic_exchange(&lock->word, 2) != 0) {
		if (end_ms && shim_now_ms() >= end_ms)
			return false;
		shim_futex_wait(&lock->word, 2, end_ms ? timeout_ms : 1000);
	}
	return true;
}

void shim_lock(struct shim_lock *lock)
{
	shim_lock_for(lock, UINT32_MAX);
}

void shim_unlock(struct shim_lock *lock)
{
	if (atomic_exchange(&lock->word, 0) == 2)
		syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- one line to the user ---------------------------------------------------------------------
 */

/* The line's bytes, with its newline; what does not fit is cut. */
static size_t join(char *line, const char *part, va_list ap)
{
	size_t len = 0;

	for (; part; part = va_arg(ap, const char *))
		while (*part && len < LINE_BYTES - 1)
			line[len++] = *part++;
	line[len++] = '\n';
	return len;
}

/*
 * Whether that is a place for lines. A program that has closed its stderr gets the number for
 * another file, and a line in the midst of its data would spoil that: so nothing is written where
 * there was no stderr, nor into a file that the program also reads. A log that was put in stderr's
 * place is a file for writing alone; pipes and sockets are the first one or none.
 */
static bool takes_lines(const struct stat *st, bool also_read)
{
	mode_t type = st->st_mode & S_IFMT;

	if (!first_stderr.type)
		return false;
	if (type == S_IFREG)
		return !also_read;
	return type == S_IFCHR || (type == first_stderr.type && st->st_dev == first_stderr.dev &&
				   st->st_ino == first_stderr.ino);
}

/* A pipe that has no reader raises SIGPIPE in the thread that writes: that one is taken back. */
static void write_stderr(const char *line, size_t len)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct timespec now = {0};
	sigset_t pending, pipe;
	struct stat st;

	if (fstat(STDERR_FILENO, &st) ||
	    !takes_lines(&st, (fcntl(STDERR_FILENO, F_GETFL) & O_ACCMODE) == O_RDWR))
		return;
	if (poll(&ready, 1, 0) != 1 || (ready.revents & (POLLERR | POLLHUP | POLLNVAL)))
		return;
	sigemptyset(&pending);
	sigpending(&pending);
	if (write(STDERR_FILENO, line, len) < 0 && errno == EPIPE &&
	    !sigismember(&pending, SIGPIPE)) {
		sigemptyset(&pipe);
		sigaddset(&pipe, SIGPIPE);
		sigtimedwait(&pipe, NULL, &now);
	}
}

void shim_say(const char *first, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t len;

	if (quiet)
		return;
	va_start(ap, first);
	len = join(line, first, ap);
	va_end(ap);
	write_stderr(line, len);
}

int shim_refuse(const char *what, int code, const char *reason)
{
	shim_say("rampfs: ", what, ": ", reason[0] ? reason : strerrordesc_np(code), NULL);
	return -code;
}

/*
 * The program's stderr, for a thread with a file table of its own. Opened anew, so that nothing of
 * the program's is held and nobody waits. But a file has a place where the program goes on writing,
 * and would write over the line: there it has to be the very same open file, which never waits.
 */
static int open_stderr(void)
{
	int fd = shim_open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_APPEND | O_NOCTTY);
	int pidfd, same = -1;
	struct stat st, link;

	if (fd < 0)
		return fd;
	/* The link's own mode says how the program has it open, proc_pid_fd(5). */
	if (lstat("/proc/self/fd/2", &link) || fstat(fd, &st) ||
	    !takes_lines(&st, (link.st_mode & S_IRUSR) != 0)) {
		close(fd);
		return -1;
	}
	if (!S_ISREG(st.st_mode))
		return fd;
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (pidfd >= 0) {
		same = (int)syscall(SYS_pidfd_getfd, pidfd, STDERR_FILENO, 0);
		close(pidfd);
	}
	if (same < 0)
		return fd;
	close(fd);
	return same;
}

/* SIGPIPE stays blocked and pending. */
void shim_say_agent(const char *first, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t len;
	int fd;

	if (quiet)
		return;
	va_start(ap, first);
	len = join(line, first, ap);
	va_end(ap);
	fd = open_stderr();
	if (fd < 0)
		return;
	if (write(fd, line, len) < 0) {
		/* Nobody reads it: the line is lost, the program goes on. */
	}
	close(fd);
}
