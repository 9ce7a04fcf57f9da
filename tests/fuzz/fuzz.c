#include "fuzz.h"

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

static const char *seeds_dir;
static char own_dir[64];

/* In place of log.c: a line is made, since making it may go wrong, and not written, since what is
   refused is logged. */
void log_line(enum log_level level, const char *fmt, ...)
{
	char line[1200];
	va_list ap;

	(void)level;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	_exit(2);
}

void fuzz_broken(const char *file, int line, const char *rule)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, rule);
	abort();
}

void fuzz_seed(const char *name, const void *bytes, size_t len)
{
	char path[512];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", seeds_dir, name);
	out = fopen(path, "we");
	must(out && fwrite(bytes, 1, len, out) == len && fclose(out) == 0, path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	seeds_dir = getenv("FUZZ_SEEDS");
	if (!seeds_dir)
		return 0;
	fuzz_seeds();
	exit(0);
}

uint8_t fuzz_u8(struct fuzz_in *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

uint16_t fuzz_u16(struct fuzz_in *in)
{
	uint16_t low = fuzz_u8(in);

	return (uint16_t)(low | fuzz_u8(in) << 8);
}

int fuzz_file(const void *bytes, size_t len)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	must(fd >= 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len, "memfd");
	return fd;
}

unsigned int fuzz_open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char is[64];
	unsigned int n = 0;

	must(dir, "/proc/self/fd");
	while ((entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, is, sizeof(is));

		n += len > 0 && strncmp(is, "pipe:", 5) != 0;
	}
	closedir(dir);
	return n;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void remove_dir(void)
{
	nftw(own_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_dir(void)
{
	if (!own_dir[0]) {
		strcpy(own_dir, "/dev/shm/rampfs-fuzz-XXXXXX");
		must(mkdtemp(own_dir), own_dir);
		atexit(remove_dir);
	}
	return own_dir;
}
