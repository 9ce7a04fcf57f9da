#include "heap_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char heap_text[RAMP_HEAP_ERR_TEXT_BYTES];

void heap_map_file(int fd, uint64_t len)
{
	if (mmap(HEAP_BASE, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
	    (void *)HEAP_BASE) {
		perror("mmap");
		abort();
	}
}

int heap_map(uint64_t size, uint64_t len)
{
	int fd = memfd_create("heap", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)size)) {
		perror("memfd");
		abort();
	}
	heap_map_file(fd, len);
	return fd;
}

int heap_grow_file(void *fd, uint64_t size)
{
	return ftruncate(*(int *)fd, (off_t)size) ? -errno : 0;
}

const char *heap_heard(void)
{
	static char text[sizeof(heap_text)];

	if (!heap_text[0])
		return NULL;
	snprintf(text, sizeof(text), "%s", heap_text);
	heap_text[0] = 0;
	return text;
}

void heap_hear(void *arg, const char *text)
{
	(void)arg;
	snprintf(heap_text, sizeof(heap_text), "%s", text);
}
