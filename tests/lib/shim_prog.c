/*
 * A program that knows nothing of rampfs: shim_prog FILE SCENARIO, run by rampfs-run.
 *
 * FILE is a segment of SEGMENT_BYTES bytes, all zero. Each scenario maps it, checks that mmap(2)'s
 * promises are kept, and exits 0; at the first broken one it names it and exits 1. Interactive
 * scenarios report their progress on stdout and wait for a line on stdin.
 */
#include "shim_prog.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>

const char *file;

int open_file(int flags)
{
	int fd = open(file, flags | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

volatile unsigned char *map(size_t len, int prot, int flags, off_t offset)
{
	int fd = open_file(prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	void *at = mmap(NULL, len, prot, flags, fd, offset);

	CHECK(at != MAP_FAILED);
	CHECK(close(fd) == 0);
	return at;
}

/* Every other page is mapped twice: for the kernel it is all one mapping. */
volatile unsigned char *map_all_pieces(void)
{
	volatile unsigned char *p = map(EXTENT_BYTES, RW, MAP_SHARED, 0);
	int fd = open_file(O_RDWR);

	for (unsigned long i = LARGE_PAGES; i < LARGE_PAGES + PIECES; i += 2)
		CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, (off_t)(i * PAGE)) == p + i * PAGE);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, EXTENT_BYTES - PAGE) != MAP_FAILED);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENOMEM);
	CHECK(close(fd) == 0);
	return p;
}

unsigned char byte_of_file(off_t offset)
{
	unsigned char byte;
	int fd = open_file(O_RDONLY);

	CHECK(pread(fd, &byte, 1, offset) == 1);
	close(fd);
	return byte;
}

bool is_mapped(const volatile void *at)
{
	return msync((void *)((uintptr_t)at & ~(PAGE - 1)), PAGE, MS_ASYNC) == 0;
}

static int count(const char *how, const char *what)
{
	char command[128];
	int n = -1;
	FILE *p;

	snprintf(command, sizeof(command), how, what);
	p = popen(command, "r");
	CHECK(p && fscanf(p, "%d", &n) == 1);
	pclose(p);
	return n;
}

int count_entries(const char *dir)
{
	return count("ls %s | wc -l", dir);
}

int count_lines(const char *name)
{
	return count("wc -l <%s", name);
}

static sigjmp_buf jump;
static void on_signal(int sig)
{
	siglongjmp(jump, sig);
}

int touch(volatile unsigned char *at, bool write)
{
	struct sigaction action = {.sa_handler = on_signal}, bus, segv;
	int sig;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	sig = sigsetjmp(jump, 1);
	if (sig == 0) {
		if (write)
			*at = 1;
		else
			(void)*at;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return sig;
}

bool comes_back(volatile unsigned char *at)
{
	for (int i = 0; i < 5000; i++) {
		if (touch(at, false) == 0)
			return true;
		usleep(1000);
	}
	return false;
}

void meet(const char *where)
{
	char line[64];

	printf("%s\n", where);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

void wait_for(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"basic", scenario_basic},	   {"partial", scenario_partial},
	{"large", scenario_large},	   {"flags", scenario_flags},
	{"arguments", scenario_arguments}, {"around", scenario_around},
	{"taken", scenario_taken},	   {"hinted", scenario_hinted},
	{"halfway", scenario_halfway},	   {"readonly", scenario_readonly},
	{"protect", scenario_protect},	   {"remap", scenario_remap},
	{"private", scenario_private},	   {"forks", scenario_forks},
	{"execs", scenario_execs},	   {"kin", scenario_kin},
	{"threads", scenario_threads},	   {"endure", scenario_endure},
	{"signals", scenario_signals},	   {"daemonlike", scenario_daemonlike},
	{"leaver", scenario_leaver},	   {"frozen", scenario_frozen},
	{"gone", scenario_gone},	   {"headless", scenario_headless},
	{"closer", scenario_closer},	   {"restart", scenario_restart},
	{"orphan", scenario_orphan},	   {"reborn", scenario_reborn},
	{"meanwhile", scenario_meanwhile}, {"follow", scenario_follow},
	{"tree", scenario_tree},	   {"crowd", scenario_crowd},
	{"many", scenario_many},	   {"full", scenario_full},
	{"pieces", scenario_pieces},	   {"unlinked", scenario_unlinked},
	{"loaded", scenario_loaded},	   {"beside", scenario_beside},
	{"squat", scenario_squat},	   {"allowed", scenario_allowed},
	{"late", scenario_late},	   {"widened", scenario_widened},
	{"grown", scenario_grown},	   {"growing", scenario_growing},
	{"holed", scenario_holed},	   {"reused", scenario_reused},
	{"covered", scenario_covered},	   {"own", scenario_own},
	{"mosaic", scenario_mosaic},	   {"crammed", scenario_crammed},
	{"handed", scenario_handed},	   {"succeeded", scenario_succeeded},
	{"jailed", scenario_jailed},	   {"moved", scenario_moved},
	{"limited", scenario_limited},
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	file = argv[1];
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (strcmp(argv[2], scenarios[i].name) == 0) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "no scenario %s\n", argv[2]);
	return 2;
}
