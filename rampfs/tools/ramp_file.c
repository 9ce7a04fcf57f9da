#include "ramp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *ramp_file_read(const char *mount, const char *name)
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

			if (!grown)
				break;
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
