/*
 * Does with the pages of a mapped segment what it is told, a line at a time, and answers each.
 *
 *	pages PATH	load PAGE | store PAGE | call PAGE | collapse PAGE
 *
 * load: the page's first byte as two hexadecimal digits, or the signal's si_code. store: that byte
 * becomes 5a. call: a system call is given the page. collapse: MADV_COLLAPSE of the 2 MiB from
 * there. "done", or the errno.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
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

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1, ends[2];
	unsigned char *at;
	struct stat st;
	char word[16];
	long page;

	if (fd < 0 || fstat(fd, &st) || pipe(ends) || sigaction(SIGBUS, &action, NULL))
		return 2;
	at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (scanf("%15s %ld", word, &page) == 2) {
		if (strcmp(word, "load") == 0)
			load(at + page * PAGE);
		else if (strcmp(word, "store") == 0)
			say(at[page * PAGE] = 0x5a);
		else if (strcmp(word, "call") == 0)
			say((int)write(ends[1], at + page * PAGE, 1));
		else
			say(madvise(at + page * PAGE, HUGE_PAGE, MADV_COLLAPSE));
	}
	return 0;
}
