#include "lock_keeper.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/kernel.h"

static void *write_it(void *arg)
{
	struct lock_keeper *keeper = arg;

	ck_assert_int_eq(write(keeper->fd, keeper->bytes, RAMP_PAGE_BYTES), -1);
	ck_assert_int_eq(errno, EFAULT);
	return NULL;
}

void lock_keep(struct lock_keeper *keeper, struct seg *seg, uint64_t page)
{
	struct pollfd fault;

	keeper->fd = seg_hand_out(seg, O_RDWR);
	ck_assert_int_ge(keeper->fd, 0);
	ck_assert_int_ge(lseek(keeper->fd, (off_t)(page * RAMP_PAGE_BYTES), SEEK_SET), 0);
	keeper->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	ck_assert_int_ge(keeper->uffd, 0);
	ck_assert_int_eq(kernel_uffd_api(keeper->uffd, KERNEL_UFFD_POISON), 0);
	keeper->bytes = mmap(NULL, RAMP_PAGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(keeper->bytes, MAP_FAILED);
	ck_assert_int_eq(kernel_uffd_register(keeper->uffd, (uintptr_t)keeper->bytes,
					      RAMP_PAGE_BYTES, UFFDIO_REGISTER_MODE_MISSING),
			 0);
	ck_assert_int_eq(pthread_create(&keeper->thread, NULL, write_it, keeper), 0);
	fault = (struct pollfd){.fd = keeper->uffd, .events = POLLIN};
	ck_assert_int_eq(poll(&fault, 1, 10000), 1);
}

void lock_let_go(struct lock_keeper *keeper)
{
	ck_assert_int_gt(
		kernel_uffd_poison(keeper->uffd, (uintptr_t)keeper->bytes, RAMP_PAGE_BYTES), 0);
	kernel_uffd_wake(keeper->uffd, (uintptr_t)keeper->bytes, RAMP_PAGE_BYTES);
	pthread_join(keeper->thread, NULL);
	munmap(keeper->bytes, RAMP_PAGE_BYTES);
	close(keeper->uffd);
	close(keeper->fd);
}
