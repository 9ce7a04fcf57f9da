#include "ramp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SILENT_S 10

static _Atomic unsigned int begun, ended; /* files; by the one thread that reads */

/* Waits beside the reading thread, which a signal does not wake there. Printing takes as long as the reader of
   the output likes. */
static void *end_if_silent(void *mount)
{
	unsigned int seconds = 0, last = 0;

	while (seconds < SILENT_S) {
		sleep(1);
		seconds = begun != ended && begun == last ? seconds + 1 : 0;
		last = begun;
	}
	fprintf(stderr, "rampfs-status: %s: its daemon does not answer (see its log)\n",
		(const char *)mount);
	_exit(EXIT_FAILURE);
}

void ramp_file_watch(const char *mount)
{
	pthread_t thread;

	/* Where no thread can be made, it waits like any program that reads the files. */
	if (pthread_create(&thread, NULL, end_if_silent, (void *)(uintptr_t)mount) == 0)
		pthread_detach(thread);
}

static char *read_text(const char *mount, const char *name)
{
	char path[PATH_MAX + 32], *text = NULL;
	size_t len = 0, cap = 0;
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/.ramp/%s", mount, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0) {
		if (cap - len < 65536) {
			char *grown = realloc(text, cap += 131072);

			if (!grown) {
				n = -1; /* errno is ENOMEM */
				break;
			}
			text = grown;
		}
		n = read(fd, text + len, cap - len - 1);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && access(mount, F_OK) == 0) {
		fprintf(stderr, "rampfs-status: %s: is not a rampfs mount\n", mount);
	} else if (fd < 0 || n < 0 || !text) {
		fprintf(stderr, "rampfs-status: %s: %s\n", path, strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[len] = 0;
	}
	if (fd >= 0)
		close(fd);
	return text;
}

char *ramp_file_read(const char *mount, const char *name)
{
	char *text;

	begun++;
	text = read_text(mount, name);
	ended++;
	return text;
}
