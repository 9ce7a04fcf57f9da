/*
 * A library that maps a file; shim_prog loads it.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

void *map_file(const char *name, unsigned long len);

/* Returns NULL where that fails. */
void *map_file(const char *name, unsigned long len)
{
	int fd = open(name, O_RDWR | O_CLOEXEC);
	void *at;

	if (fd < 0)
		return NULL;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}
