/*
 * rampfs-run [--fixed=hint|refuse] PROGRAM [ARG...]: runs a program with the shim, so that its mmaps of files on a rampfs
 * mount are segments.
 *
 * It finds the shim beside itself (../lib, as built) or where it was installed, puts it in front of
 * LD_PRELOAD and becomes the program. Where the program's file shows that the program does not load
 * the shim, one line says so: the program's mmaps will be refused, and the program does not know
 * why. Exit status as env(1): 125 where rampfs-run failed itself, 126 where the program was found
 * and can't be run, 127 where it was not found; else the program's.
 */
#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SHIM "librampfs-preload.so"

enum { EXIT_OWN = 125, EXIT_CANNOT = 126, EXIT_NOT_FOUND = 127 };

static const char usage[] =
	"usage: rampfs-run [--fixed=hint|refuse] PROGRAM [ARG...]\n"
	"Run PROGRAM so that it can mmap files on a rampfs mount (MAP_SHARED) as local memory.\n"
	"\n"
	"  --fixed=hint    take MAP_FIXED of a segment for a hint, for a program that uses the "
	"address\n"
	"                  that mmap returns (QEMU)\n"
	"  --fixed=refuse  refuse it at another address than the segment's own (the default)\n"
	"  --help          this text\n"
	"  --version       the version\n"
	"\n"
	"RAMPFS_QUIET=1 in the environment silences the shim's lines on stderr. Static, setuid,\n"
	"setcap and Go programs do not load it: for these, read(2) and write(2) work, and mmap "
	"where\n"
	"user.ramp.mmap is passthrough, see rampfs(8). rampfs-mmap(3): what each call does.\n";

static int run_fail(const char *what, int code)
{
	fprintf(stderr, "rampfs-run: %s: %s\n", what, strerror(code));
	return EXIT_OWN;
}

/* Finds the shim in ../lib of the directory in which this program lies. Returns 0, or -errno. */
static int path_beside_us(char path[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	self[n] = '\0';
	for (int up = 0; up < 2; up++) {
		slash = strrchr(self, '/');
		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	n = snprintf(path, PATH_MAX, "%s/lib/%s", self, SHIM);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int find_shim(char path[PATH_MAX])
{
	if (path_beside_us(path) == 0 && access(path, R_OK) == 0)
		return 0;
	snprintf(path, PATH_MAX, "%s/%s", RAMPFS_LIBDIR, SHIM);
	return access(path, R_OK) ? -errno : 0;
}

/* The loader splits LD_PRELOAD at spaces and colons, and knows no way to quote them. */
static int preload(const char *shim)
{
	const char *others = getenv("LD_PRELOAD");
	char *value = NULL;
	int rc;

	if (strpbrk(shim, " :")) {
		fprintf(stderr, "rampfs-run: %s: LD_PRELOAD takes no path with a space or colon\n",
			shim);
		return -EINVAL;
	}
	if (asprintf(&value, "%s%s%s", shim, others && *others ? ":" : "", others ? others : "") <
	    0)
		return -ENOMEM;
	rc = setenv("LD_PRELOAD", value, 1) ? -errno : 0;
	free(value);
	return rc;
}

/* Finds the program as execvp(3) does. */
static bool find_program(const char *name, char path[PATH_MAX])
{
	const char *at = getenv("PATH"), *end;

	if (strchr(name, '/') || !at)
		return strlen(name) < PATH_MAX && strcpy(path, name) && access(path, X_OK) == 0;
	for (;; at = end + 1) {
		end = strchrnul(at, ':');
		if (snprintf(path, PATH_MAX, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "",
			     name) < PATH_MAX &&
		    access(path, X_OK) == 0)
			return true;
		if (!*end)
			return false;
	}
}

/* Whether the file is ELF of this machine's width and names no loader. The loader itself is such a
   file, too, but takes LD_PRELOAD. */
static bool is_static(int fd, const char *path)
{
	const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(part) || strncmp(last, "ld-", 3) == 0 ||
	    strncmp(last, "ld.", 3) == 0)
		return false;
	for (unsigned i = 0; i < head.e_phnum; i++)
		if (pread(fd, &part, sizeof(part), (off_t)(head.e_phoff + i * sizeof(part))) !=
			    sizeof(part) ||
		    part.p_type == PT_INTERP)
			return false;
	return head.e_type == ET_EXEC || head.e_type == ET_DYN;
}

/* Whether the kernel takes the file's capabilities for a gain of rights: the effective ones, also
   where the process gets none of them; and the permitted ones. Root has them anyway. */
static bool gives_capabilities(const char *path, bool gets_none)
{
	struct vfs_ns_cap_data caps = {0};
	ssize_t n = getxattr(path, "security.capability", &caps, sizeof(caps));

	if (n < (ssize_t)XATTR_CAPS_SZ_1 || getuid() == 0)
		return false;
	return (le32toh(caps.magic_etc) & VFS_CAP_FLAGS_EFFECTIVE) ||
	       (!gets_none && (caps.data[0].permitted || caps.data[1].permitted));
}

/* Returns why the loader takes no LD_PRELOAD for the program, or NULL. A process that has renounced
   rights (no_new_privs) gets none, nor one on a mount without (nosuid). */
static const char *why_secure(const char *path)
{
	struct statvfs fs;
	struct stat st;
	bool gets_none = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;

	if (statvfs(path, &fs) || (fs.f_flag & ST_NOSUID) || stat(path, &st))
		return NULL;
	if (!gets_none && (((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
			   ((st.st_mode & S_ISGID) && st.st_gid != getgid())))
		return "runs as another user (setuid)";
	return gives_capabilities(path, gets_none) ? "has capabilities (setcap)" : NULL;
}

static void warn_of(const char *name)
{
	const char *quiet = getenv("RAMPFS_QUIET"), *what;
	char path[PATH_MAX];
	int fd;

	if ((quiet && strcmp(quiet, "1") == 0) || !find_program(name, path))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	what = why_secure(path);
	if (!what && fd >= 0 && is_static(fd, path))
		what = "is statically linked";
	if (fd >= 0)
		close(fd);
	if (what)
		fprintf(stderr,
			"rampfs-run: %s %s and does not load the shim: read(2) and write(2) work, "
			"mmap as rampfs-run(1) says\n",
			name, what);
}

/* Tells the shim by the environment, which it shares with the programs that the program starts. */
static int set_fixed(const char *value)
{
	if (strcmp(value, "hint") != 0 && strcmp(value, "refuse") != 0) {
		fprintf(stderr, "rampfs-run: --fixed takes hint or refuse, not %s\n", value);
		return -EINVAL;
	}
	return setenv("RAMPFS_FIXED", value, 1) ? run_fail("RAMPFS_FIXED", errno) : 0;
}

static _Noreturn void print_and_exit(const char *text)
{
	exit(fputs(text, stdout) < 0 || fflush(stdout) ? EXIT_OWN : 0);
}

/* Returns the place of PROGRAM among the arguments, or 0 after it has said why not. */
static int read_options(int argc, char **argv)
{
	static const struct option longs[] = {{"fixed", required_argument, NULL, 'F'},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		if (c == 'h')
			print_and_exit(usage);
		if (c == 'V')
			print_and_exit("rampfs-run " RAMPFS_VERSION "\n");
		if (c == 'F' && set_fixed(optarg) == 0)
			continue;
		if (c == '?')
			fputs(usage, stderr);
		return 0;
	}
	if (optind < argc)
		return optind;
	fputs(usage, stderr);
	return 0;
}

int main(int argc, char **argv)
{
	char shim[PATH_MAX];
	int rc, first = read_options(argc, argv);

	if (!first)
		return EXIT_OWN;
	rc = find_shim(shim);
	if (rc)
		return run_fail(shim, -rc);
	if (preload(shim))
		return EXIT_OWN;
	warn_of(argv[first]);
	execvp(argv[first], argv + first);
	rc = errno;
	run_fail(argv[first], rc);
	return rc == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT;
}
