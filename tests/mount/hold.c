/*
 * Answers that a daemon does not get rid of: a library for LD_PRELOAD.
 *
 * In the daemon of the mount $HOLD_MOUNT, while the file $HOLD_FILE is there, an answer to write(2)
 * on /dev/fuse waits: what was asked for is done, and nobody is told. All else goes on, so that a
 * test may do what it likes before it kills that daemon.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FUSE_FD	    3 /* KEEPER_FD_FUSE */
#define WRITE_BYTES (sizeof(struct fuse_out_header) + sizeof(struct fuse_write_out))

static const char *held; /* NULL: not this process's */

/* `rampfs --daemon ... MOUNT` */
__attribute__((constructor)) static void begin(void)
{
	const char *mount = getenv("HOLD_MOUNT"), *last;
	char line[4096] = "";
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

	if (fd >= 0)
		close(fd);
	if (n < 2 || !mount || strcmp(line + strlen(line) + 1, "--daemon") != 0)
		return;
	for (last = line + n - 1; last > line && last[-1]; last--)
		;
	if (strcmp(last, mount) == 0)
		held = getenv("HOLD_FILE");
}

__attribute__((visibility("default"))) ssize_t writev(int fd, const struct iovec *iov, int count)
{
	ssize_t (*real)(int, const struct iovec *, int) =
		(ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	size_t len = 0;

	for (int i = 0; i < count; i++)
		len += iov[i].iov_len;
	while (held && fd == FUSE_FD && len == WRITE_BYTES && access(held, F_OK) == 0)
		usleep(1000);
	return real(fd, iov, count);
}
