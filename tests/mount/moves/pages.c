/*
 * Takes commands about the pages of a mapped segment, a line at a time, and answers each.
 *
 *	pages PATH [closed]
 *			load PAGE | store PAGE | call PAGE | core PAGE | collapse PAGE | remove PAGE | ...
 *
 * closed: the file is closed once it is mapped, so that its mount is not busy.
 * load: the page's first byte as two hexadecimal digits, or the signal's si_code. store: that byte
 * becomes 5a. call: a system call is given the page. core: mincore's answer for all pages from there
 * on: "+3 -5" are three pages in memory and five that are not. The others are calls for the 2 MiB from
 * there (do_call): "done", or the errno.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE	  4096L
#define HUGE_PAGE (2L << 20)

static sigjmp_buf on_signal;
static volatile int code;

static void caught(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	code = info->si_code;
	siglongjmp(on_signal, 1);
}

static const char *code_name(void)
{
	return code == BUS_ADRERR      ? "BUS_ADRERR"
	       : code == BUS_MCEERR_AR ? "BUS_MCEERR_AR"
				       : "another si_code";
}

static void load(const volatile unsigned char *at)
{
	if (sigsetjmp(on_signal, 1))
		printf("%s\n", code_name());
	else
		printf("%02x\n", *at);
}

static void say(int rc)
{
	printf("%s\n", rc < 0 ? strerror(errno) : "done");
}

/* The kernel says by a signal that a page is gone. */
static void poison(unsigned char *at)
{
	say(sigsetjmp(on_signal, 1) ? 0 : madvise(at, PAGE, MADV_HWPOISON));
}

static void core(unsigned char *at, long pages)
{
	unsigned char *resident = calloc((size_t)pages, 1);

	if (!resident || mincore(at, (size_t)(pages * PAGE), resident)) {
		say(-1);
		free(resident);
		return;
	}
	for (long i = 0, from = 0; i < pages; i++)
		if (i + 1 == pages || (resident[i + 1] & 1) != (resident[i] & 1)) {
			printf("%s%c%ld", from ? " " : "", resident[i] & 1 ? '+' : '-',
			       i + 1 - from);
			from = i + 1;
		}
	printf("\n");
	free(resident);
}

static int map_again(int fd, unsigned char *at, off_t offset, int flags)
{
	void *again = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, offset);

	if (again != MAP_FAILED && again != at)
		errno = EFAULT;
	return again == at ? 0 : -1;
}

static int do_call(const char *word, int fd, unsigned char *at, off_t offset)
{
	if (strcmp(word, "collapse") == 0)
		return madvise(at, HUGE_PAGE, MADV_COLLAPSE);
	if (strcmp(word, "remove") == 0)
		return madvise(at, HUGE_PAGE, MADV_REMOVE);
	if (strcmp(word, "lock") == 0)
		return mlock(at, HUGE_PAGE);
	if (strcmp(word, "unlock") == 0)
		return munlock(at, HUGE_PAGE);
	if (strcmp(word, "lock_all") == 0)
		return mlockall(MCL_CURRENT);
	if (strcmp(word, "lock_future") == 0)
		return mlockall(MCL_FUTURE);
	if (strcmp(word, "unmap") == 0)
		return munmap(at, HUGE_PAGE);
	if (strcmp(word, "map") == 0)
		return map_again(fd, at, offset, 0);
	if (strcmp(word, "map_locked") == 0)
		return map_again(fd, at, offset, MAP_LOCKED);
	if (strcmp(word, "map_populate") == 0)
		return map_again(fd, at, offset, MAP_POPULATE);
	if (strcmp(word, "msync") == 0)
		return msync(at, HUGE_PAGE, MS_SYNC);
	if (strcmp(word, "fsync") == 0)
		return fsync(fd);
	errno = ENOSYS;
	return -1;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
	int fd = argc >= 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1, ends[2];
	unsigned char *at;
	struct stat st;
	char word[16];
	long page;

	if (fd < 0 || fstat(fd, &st) || pipe(ends) || sigaction(SIGBUS, &action, NULL))
		return 2;
	at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return 2;
	if (argc > 2)
		close(fd); /* its mount is not busy */
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (scanf("%15s %ld", word, &page) == 2) {
		if (strcmp(word, "load") == 0)
			load(at + page * PAGE);
		else if (strcmp(word, "store") == 0)
			say(at[page * PAGE] = 0x5a);
		else if (strcmp(word, "call") == 0)
			say((int)write(ends[1], at + page * PAGE, 1));
		else if (strcmp(word, "core") == 0)
			core(at + page * PAGE, st.st_size / PAGE - page);
		else if (strcmp(word, "poison") == 0)
			poison(at + page * PAGE);
		else
			say(do_call(word, fd, at + page * PAGE, page * PAGE));
	}
	return 0;
}
