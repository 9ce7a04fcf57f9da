/*
 * What a registration of memory with an RDMA device costs (the RAMP paper's Figure 2.5).
 *
 *	register ADDRESS MIB small|huge COUNT
 *		registers COUNT regions of MIB of a file, all of it there, one after the other, and takes
 *		them back; each is a mapping of its own, to be read by others, as a source makes them. A
 *		line for each: us of the registration, us of its end. The device is that of ADDRESS.
 *
 * The file is one, so that many regions fit into little memory: the pages are pinned each time.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define REGIONS	   64

static double now_us(void)
{
	return (double)now_ns() / 1e3;
}

/* Maps the file where huge pages can be mapped as such. */
static uint8_t *map(int fd, size_t bytes, int access)
{
	uintptr_t at = (uintptr_t)mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *mapped;

	must(at != (uintptr_t)MAP_FAILED, "mmap");
	at = (at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	mapped = mmap((void *)at, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0);
	must(mapped != MAP_FAILED, "mmap");
	return mapped;
}

static struct ibv_pd *domain(const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	must(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
	must(channel != NULL, "an RDMA event channel");
	must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) &&
		     !rdma_bind_addr(id, (struct sockaddr *)&at) && id->verbs,
	     address);
	pd = ibv_alloc_pd(id->verbs);
	must(pd != NULL, "a protection domain");
	return pd;
}

static void measure(struct ibv_pd *pd, int fd, size_t bytes, int count)
{
	double began[REGIONS], ended[REGIONS];
	struct ibv_mr *regions[REGIONS];

	for (int i = 0; i < count; i++) {
		uint8_t *at = map(fd, bytes, PROT_READ);
		double since = now_us();

		regions[i] = ibv_reg_mr(pd, at, bytes, IBV_ACCESS_REMOTE_READ);
		began[i] = now_us() - since;
		must(regions[i] != NULL, "ibv_reg_mr");
	}
	for (int i = 0; i < count; i++) {
		double since = now_us();

		must(ibv_dereg_mr(regions[i]) == 0, "ibv_dereg_mr");
		ended[i] = now_us() - since;
	}
	for (int i = 0; i < count; i++)
		printf("%.2f %.2f\n", began[i], ended[i]);
}

int main(int argc, char **argv)
{
	int count = argc == 5 ? atoi(argv[4]) : 0, huge;
	size_t bytes;
	int fd;

	if (count < 1 || count > REGIONS) {
		fprintf(stderr, "Usage: register ADDRESS MIB small|huge COUNT (at most %d)\n",
			REGIONS);
		return 2;
	}
	huge = strcmp(argv[3], "huge") == 0;
	bytes = strtoul(argv[2], NULL, 10) << 20;
	fd = tmpfs_file(huge ? "always" : "never", bytes);
	memset(map(fd, bytes, PROT_READ | PROT_WRITE), 7, bytes);
	measure(domain(argv[1]), fd, bytes, count);
	return 0;
}
