/* Every way to map a segment, and the promises of mmap(2) and its like for each. */
#include "shim_prog.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

void scenario_basic(void)
{
	int fd = open_file(O_RDWR);
	volatile unsigned char *p = mmap(NULL, SEGMENT_BYTES, RW, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	CHECK((uintptr_t)p >= 0x100000000000ul && (uintptr_t)p % EXTENT_BYTES == 0);
	p[0] = 'a';
	p[SEGMENT_BYTES - 1] = 'z';
	CHECK(byte_of_file(0) == 'a' && byte_of_file(SEGMENT_BYTES - 1) == 'z');
	CHECK(pwrite(fd, "b", 1, 5) == 1 && p[5] == 'b');
	CHECK(msync((void *)p, SEGMENT_BYTES, MS_SYNC) == 0);
	CHECK(munmap((void *)p, SEGMENT_BYTES) == 0);
	CHECK(!is_mapped(p) && !is_mapped(p + SEGMENT_BYTES - 1));
	/* Nothing but the agent and the scribe, and nothing of them in our table. */
	CHECK(count_entries("/proc/$PPID/task") == 3);
	CHECK(close(fd) == 0);
	CHECK(open("/dev/null", O_RDONLY) == fd);
}

void scenario_partial(void)
{
	volatile unsigned char *two = map(2 * PAGE, RW, MAP_SHARED, 3 * PAGE), *all, *more;

	two[0] = 3;
	CHECK(byte_of_file(3 * PAGE) == 3);
	all = map(SEGMENT_BYTES, RW, MAP_SHARED, 0);
	CHECK(all + 3 * PAGE == two && all[3 * PAGE] == 3);
	CHECK(munmap((void *)two, 2 * PAGE) == 0);
	CHECK(all[3 * PAGE] == 3); /* was mapped twice */
	CHECK(munmap((void *)(all + PAGE), PAGE) == 0);
	CHECK(!is_mapped(all + PAGE) && is_mapped(all) && is_mapped(all + 2 * PAGE));
	all[0] = 1;
	all[2 * PAGE] = 2;
	more = map(4 * PAGE, RW, MAP_SHARED, 0);
	CHECK(more == all && is_mapped(all + PAGE));
	CHECK(munmap((void *)all, SEGMENT_BYTES) == 0);
	CHECK(is_mapped(all) && !is_mapped(all + PAGE) && is_mapped(all + 2 * PAGE));
	CHECK(!is_mapped(all + 4 * PAGE));
	CHECK(munmap((void *)all, 4 * PAGE) == 0 && !is_mapped(all));
}

void scenario_large(void)
{
	int fd = open_file(O_RDWR);
	volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, 0); /* the extent is given now */
	unsigned char *q;

	CHECK(mmap(NULL, EXTENT_BYTES, RW, MAP_SHARED, fd, 0) == p);
	p[SEGMENT_BYTES - 1] = 1;
	CHECK(touch(p + SEGMENT_BYTES, false) == SIGBUS); /* past the file's end */
	CHECK(ftruncate(fd, SEGMENT_BYTES + PAGE) == 0);
	p[SEGMENT_BYTES] = 7;
	CHECK(byte_of_file(SEGMENT_BYTES) == 7);
	CHECK(ftruncate(fd, SEGMENT_BYTES) == 0);
	errno = 0;
	q = mmap(NULL, EXTENT_BYTES + PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == MAP_FAILED && errno == ENOMEM);
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, EXTENT_BYTES - PAGE);
	CHECK(q == MAP_FAILED && errno == ENOMEM);
	CHECK(is_mapped(p) && is_mapped(p + EXTENT_BYTES - PAGE));
}

/* One call that fails on a segment as on a file of a tmpfs. */
static void check_alike(const int *fds, const int *plain, size_t i, int flags, size_t len, off_t at)
{
	bool maps;
	void *p;
	int code;

	errno = 0;
	p = mmap(NULL, len, RW, flags, plain[i], at);
	code = errno;
	maps = p != MAP_FAILED && munmap(p, len) == 0;
	errno = 0;
	p = mmap(NULL, len, RW, flags, fds[i], at);
	if ((p != MAP_FAILED) != maps || errno != code) {
		fprintf(stderr, "open %zu, flags 0x%x, %zu bytes: errno %d, not %d\n", i,
			(unsigned int)flags, len, errno, code);
		_exit(1);
	}
	if (p != MAP_FAILED)
		CHECK(munmap(p, len) == 0);
}

/* Each flag, and some pairs of errors, is answered as the kernel does it for a file of a tmpfs. */
void scenario_flags(void)
{
	static const int modes[] = {O_RDWR, O_RDONLY, O_WRONLY},
			 types[] = {MAP_SHARED, MAP_SHARED_VALIDATE};
	char name[] = "/dev/shm/shim-flags.XXXXXX";
	int fds[3], plain[3], first = mkstemp(name);
	unsigned int left_out = MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_TYPE;

	CHECK(first >= 0 && ftruncate(first, SEGMENT_BYTES) == 0);
	for (size_t i = 0; i < 3; i++) {
		fds[i] = open_file(modes[i]);
		plain[i] = open(name, modes[i]);
		CHECK(plain[i] >= 0);
	}
	CHECK(unlink(name) == 0);
	for (size_t i = 0; i < 3; i++)
		for (int t = 0; t < 2; t++) {
			for (unsigned int bit = 1; bit; bit <<= 1) {
				int flags = types[t] | (int)(bit & ~left_out);

				check_alike(fds, plain, i, flags, PAGE, 0);
				check_alike(fds, plain, i, flags, 0, 0);
			}
			check_alike(fds, plain, i, types[t], PAGE, 1);
			check_alike(fds, plain, i, types[t], SIZE_MAX, 0);
			check_alike(fds, plain, i, types[t], (size_t)1 << 62, 0);
			check_alike(fds, plain, i, types[t] | MAP_HUGETLB, PAGE, 1);
		}
	check_alike(fds, plain, 0, MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, PAGE, 0);
}

void scenario_arguments(void)
{
	int fd = open_file(O_RDWR), ro = open_file(O_RDONLY), wo = open_file(O_WRONLY);
	unsigned char *p, *q;

	CHECK(mmap(NULL, 0, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 1) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, ro, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, wo, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, 999, 0) == MAP_FAILED && errno == EBADF);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0) == MAP_FAILED &&
	      errno == EOPNOTSUPP);
	p = mmap((void *)0x123456789000, PAGE, RW, MAP_SHARED, fd, 0); /* only a hint */
	CHECK(p != MAP_FAILED && p != (void *)0x123456789000);
	q = mmap((void *)0x123456789000, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(q == MAP_FAILED && errno == EINVAL);
	q = mmap(p, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(q == p);
	q = mmap(p, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	CHECK(q == MAP_FAILED && errno == EEXIST);
	q = mmap(p + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, PAGE);
	CHECK(q == p + PAGE);
	errno = 77;
	q = mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_POPULATE, fd, 8 * PAGE);
	CHECK(q == p + 8 * PAGE && errno == 77);
}

/* Gets descriptor 100, a file of a mount that it does not have. */
void scenario_handed(void)
{
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, 100, 0) == MAP_FAILED && errno == ENODEV);
}

/* Another mount comes to the place of the first one. */
void scenario_succeeded(void)
{
	int fd;

	CHECK(is_mapped(map(PAGE, RW, MAP_SHARED, 0)));
	meet("mapped");
	fd = open_file(O_RDWR);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
}

/* Lengths that go around the end of all addresses: refused, and nothing has changed. */
void scenario_around(void)
{
	unsigned char *p = (unsigned char *)map(4 * PAGE, RW, MAP_SHARED, 0);
	size_t to_second = (size_t)-2 * PAGE, all = (size_t)-1;

	CHECK(map(PAGE, RW, MAP_SHARED, 8 * PAGE) == p + 8 * PAGE);
	CHECK(munmap(p + 8 * PAGE, (size_t)-7 * PAGE) == -1 && errno == EINVAL);
	CHECK(munmap(p + 3 * PAGE, to_second) == -1 && errno == EINVAL);
	CHECK(munmap(p, all) == -1 && errno == EINVAL);
	CHECK(mprotect(p + 3 * PAGE, to_second, PROT_NONE) == -1 && errno == ENOMEM);
	CHECK(mremap(p + 3 * PAGE, PAGE, to_second, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(mremap(p + 3 * PAGE, to_second, 4 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(errno == EFAULT);
	for (unsigned int i = 0; i < 4; i++)
		CHECK(touch(p + i * PAGE, true) == 0);
	CHECK(touch(p + 8 * PAGE, true) == 0);
	/* Each was counted once. */
	CHECK(munmap(p, 4 * PAGE) == 0 && !is_mapped(p) && !is_mapped(p + 3 * PAGE));
	CHECK(is_mapped(p + 8 * PAGE));
}

/* An mprotect that fails on its way has changed the pages before: a child finds them so. */
void scenario_halfway(void)
{
	unsigned char *p = (unsigned char *)map(PAGE, RW, MAP_SHARED, 0);
	pid_t pid;

	CHECK(map(PAGE, RW, MAP_SHARED, 2 * PAGE) == p + 2 * PAGE);
	CHECK(mprotect(p, 3 * PAGE, PROT_READ) == -1 && errno == ENOMEM);
	CHECK(touch(p, true) == SIGSEGV && touch(p + 2 * PAGE, true) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(touch(p, true) == SIGSEGV && touch(p, false) == 0);
		CHECK(touch(p + 2 * PAGE, true) == 0);
		_exit(0);
	}
	wait_for(pid);
}

/* Another user of the arena's addresses: a line says why the segment can't be mapped, but for a call
   that asks for the errno. */
void scenario_taken(void)
{
	void *at = (void *)map(PAGE, RW, MAP_SHARED, 0);
	int fd = open_file(O_RDWR);

	CHECK(munmap(at, PAGE) == 0);
	CHECK(mmap(at, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EEXIST);
	CHECK(mmap(at, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED &&
	      errno == EEXIST);
	CHECK(munmap(at, PAGE) == 0);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == at);
}

/* With MAP_FIXED for a hint, as QEMU maps a guest's memory: over a part of a reservation, whose end it then
   cuts off behind the address that mmap has returned. */
void scenario_hinted(void)
{
	const size_t room_bytes = 2 * SEGMENT_BYTES;
	unsigned char *room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open_file(O_RDWR);
	volatile unsigned char *p;

	CHECK(room != MAP_FAILED && mprotect(room, PAGE, RW) == 0);
	room[0] = 'r';
	errno = 77;
	p = mmap(room, SEGMENT_BYTES, RW, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(errno == 77 && (uintptr_t)p >= 0x100000000000ul && (uintptr_t)p % EXTENT_BYTES == 0);
	p[0] = 'a';
	CHECK(byte_of_file(0) == 'a');
	CHECK(munmap((void *)(p + SEGMENT_BYTES + PAGE), SEGMENT_BYTES - PAGE) == 0);
	CHECK(room[0] == 'r' && touch(room + PAGE, false) == SIGSEGV);
	for (size_t at = 0; at < room_bytes; at += PAGE)
		CHECK(is_mapped(room + at));
	/* The segment is mapped now; asked for over the reservation, and at no place that may be. */
	CHECK(mmap(room, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, PAGE) == p + PAGE);
	CHECK(mmap(room + 1, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED);
	CHECK(errno == EINVAL);
	/* At the segment's own address, and of a private mapping, it is what it always is. */
	CHECK(mmap((void *)p, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == p);
	CHECK(mmap((void *)p, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED);
	CHECK(errno == EEXIST);
	CHECK(mmap(room, PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == room && room[0] == 'a');
	CHECK(munmap((void *)p, SEGMENT_BYTES) == 0 && munmap(room, room_bytes) == 0);
}

void scenario_readonly(void)
{
	volatile unsigned char *p = map(SEGMENT_BYTES, PROT_READ, MAP_SHARED, 0), *q;

	CHECK(p[17] == 0);
	CHECK(touch((unsigned char *)p, true) == SIGSEGV);
	CHECK(mprotect((void *)p, PAGE, RW) == -1 && errno == EACCES);
	/* The same bytes through an open that may write: the same mapping, which may now. */
	q = map(4 * PAGE, RW, MAP_SHARED, 0);
	CHECK(q == p);
	q[0] = 'w';
	CHECK(p[0] == 'w' && byte_of_file(0) == 'w');
	CHECK(touch((unsigned char *)p + 4 * PAGE, true) == SIGSEGV);
	/* One after the other in the same place, either way round. */
	CHECK(munmap((void *)q, 4 * PAGE) == 0 && munmap((void *)p, SEGMENT_BYTES) == 0);
	CHECK(map(2 * PAGE, PROT_READ, MAP_SHARED, 0) == p);
	CHECK(munmap((void *)p, 2 * PAGE) == 0);
	CHECK(map(2 * PAGE, RW, MAP_SHARED, 0) == p);
	p[0] = 'x';
	CHECK(munmap((void *)p, 2 * PAGE) == 0);
	CHECK(map(2 * PAGE, PROT_READ, MAP_SHARED, 0) == p && p[0] == 'x');
	CHECK(mprotect((void *)p, PAGE, RW) == -1 && errno == EACCES);
}

void scenario_protect(void)
{
	volatile unsigned char *p = map(4 * PAGE, RW, MAP_SHARED, 0);

	p[0] = 1;
	CHECK(mprotect((void *)p, PAGE, PROT_READ) == 0);
	CHECK(touch((unsigned char *)p, true) == SIGSEGV && touch((unsigned char *)p, false) == 0);
	CHECK(mprotect((void *)p, PAGE, PROT_NONE) == 0);
	CHECK(touch((unsigned char *)p, false) == SIGSEGV);
	CHECK(mprotect((void *)p, PAGE, RW) == 0);
	p[0] = 2;
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DONTNEED) == 0 && p[0] == 2);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_RANDOM) == 0);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DONTFORK) == 0);
	CHECK(madvise((void *)p, 4 * PAGE, MADV_DOFORK) == -1 && errno == EINVAL);
	CHECK(madvise((void *)p, 4 * PAGE, 102) == -1 && errno == EINVAL); /* GUARD_INSTALL */
	p[2 * PAGE] = 9;
	CHECK(madvise((void *)(p + 2 * PAGE), PAGE, MADV_REMOVE) == 0);
	CHECK(p[2 * PAGE] == 0 && p[0] == 2 && byte_of_file(2 * PAGE) == 0);
	p[PAGE] = 8;
	p[3 * PAGE] = 9;
	CHECK(mlock((void *)(p + 3 * PAGE), PAGE) == 0);
	CHECK(madvise((void *)(p + PAGE), 3 * PAGE, MADV_REMOVE) == -1 && errno == EINVAL);
	CHECK(p[PAGE] == 8 && p[3 * PAGE] == 9);
	CHECK(munlock((void *)(p + 3 * PAGE), PAGE) == 0);
	CHECK(madvise((void *)(p + PAGE), 3 * PAGE, MADV_REMOVE) == 0 && p[3 * PAGE] == 0);
	CHECK(pkey_mprotect((void *)p, PAGE, PROT_READ, -1) == 0);
	CHECK(touch((unsigned char *)p, true) == SIGSEGV && touch((unsigned char *)p, false) == 0);
	CHECK(pkey_mprotect((void *)p, PAGE, RW, 1) == -1 && errno == EINVAL);
}

void scenario_remap(void)
{
	unsigned char *p = (unsigned char *)map(4 * PAGE, RW, MAP_SHARED, 0);

	p[0] = 1;
	CHECK(mremap(p, 4 * PAGE, 8 * PAGE, 0) == p);
	p[7 * PAGE] = 7;
	CHECK(byte_of_file(7 * PAGE) == 7);
	CHECK(mremap(p, 8 * PAGE, 2 * PAGE, MREMAP_MAYMOVE) == p);
	CHECK(!is_mapped(p + 2 * PAGE) && is_mapped(p + PAGE));
	CHECK(mremap(p, 2 * PAGE, SEGMENT_BYTES, MREMAP_MAYMOVE) == p && p[7 * PAGE] == 7);
	CHECK(mremap(p, SEGMENT_BYTES, EXTENT_BYTES + PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x123456789000) ==
	      MAP_FAILED);
	CHECK(errno == EINVAL && p[0] == 1);
	CHECK(remap_file_pages(p, PAGE, 0, 5, 0) == -1 && errno == EINVAL && p[0] == 1);
	/* Over a part that is mapped by itself already. */
	CHECK(munmap(p + PAGE, SEGMENT_BYTES - PAGE) == 0);
	CHECK(map(PAGE, RW, MAP_SHARED, 2 * PAGE) == p + 2 * PAGE);
	CHECK(mremap(p, PAGE, 4 * PAGE, 0) == p);
	CHECK(munmap(p + 2 * PAGE, PAGE) == 0 && is_mapped(p + 2 * PAGE));
	CHECK(munmap(p, 4 * PAGE) == 0 && !is_mapped(p + 2 * PAGE));
}

/* Private copies stay private, in the child too. */
void scenario_private(void)
{
	volatile unsigned char *p = map(4 * PAGE, RW, MAP_PRIVATE, 0);
	int status;
	pid_t pid;

	p[0] = 'p';
	CHECK(byte_of_file(0) == 0);
	pid = fork();
	if (pid == 0)
		_exit(p[0] == 'p' ? 0 : 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(mremap((void *)p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
}

#define MANY 1000

/* Many segments, each closed when it is mapped; a child has them all, and they outlive their
   names. */
void scenario_many(void)
{
	static volatile unsigned char *at[MANY];
	char name[PATH_MAX];
	pid_t pid;
	int fd;

	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%s.%d", file, i);
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
		at[i] = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		CHECK(at[i] != MAP_FAILED);
		CHECK(close(fd) == 0);
		at[i][0] = (unsigned char)i;
	}
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < MANY; i++) {
			CHECK(at[i][0] == (unsigned char)i);
			at[i][1] = (unsigned char)~i;
		}
		_exit(0);
	}
	wait_for(pid);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%s.%d", file, i);
		CHECK(unlink(name) == 0);
	}
	for (int i = 0; i < MANY; i++)
		CHECK(at[i][0] == (unsigned char)i && at[i][1] == (unsigned char)~i);
	for (int i = 0; i < MANY; i += 2)
		CHECK(munmap((void *)at[i], PAGE) == 0 && !is_mapped(at[i]));
	CHECK(at[1][0] == 1);
}

/* A name that goes, before the first mapping or after it. */
void scenario_unlinked(void)
{
	int fd = open_file(O_RDWR), other;
	volatile unsigned char *p, *q;
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s.never", file);
	other = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(other >= 0 && ftruncate(other, PAGE) == 0 && unlink(name) == 0);
	CHECK(pwrite(other, "x", 1, 0) == 1);
	q = mmap(NULL, PAGE, RW, MAP_SHARED, other, 0);
	CHECK(q != MAP_FAILED && q[0] == 'x');
	CHECK(close(other) == 0 && q[0] == 'x');
	p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && p != q && unlink(file) == 0);
	p[0] = 1;
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == p && q[0] == 1);
	q[PAGE] = 2;
	CHECK(munmap((void *)p, 2 * PAGE) == 0);
	q = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(q == p && q[0] == 1 && q[PAGE] == 2);
}

void scenario_pieces(void)
{
	for (unsigned char page = 0; page < 4; page++) {
		volatile unsigned char *p = map(PAGE, RW, MAP_SHARED, page * (off_t)PAGE);

		p[0] = page;
		CHECK(byte_of_file(page * (off_t)PAGE) == page);
	}
}

static void *put_at(void *at)
{
	return mmap(at, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Has as many pieces as there may be, and puts something of its own over a part of one. */
void scenario_full(void)
{
	unsigned char *q = (unsigned char *)map_all_pieces(), *at = q + 4 * PAGE;
	unsigned char *own = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(own != MAP_FAILED);
	own[0] = 'o';
	at[0] = 'x';
	CHECK(put_at(at) == MAP_FAILED && errno == ENOMEM);
	CHECK(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(own[0] == 'o' && at[0] == 'x' && byte_of_file(4 * PAGE) == 'x');
	/* A change that needs no more pieces can be made, and leaves room. */
	for (unsigned long i = LARGE_PAGES; i < LARGE_PAGES + 2; i++)
		CHECK(put_at(q + i * PAGE) == q + i * PAGE);
	CHECK(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at && at[0] == 'o');
	CHECK(byte_of_file(4 * PAGE) == 'x');
	at[PAGE] = 'y';
	CHECK(byte_of_file(5 * PAGE) == 'y');
}

/* A library that the program has loaded by itself maps; one in a namespace of its own has another C
   library, past the shim: refused, as without it. */
void scenario_loaded(void)
{
	typedef void *map_file(const char *name, unsigned long len);
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	volatile unsigned char *p;
	map_file *fn;
	void *lib;

	CHECK(n > 0);
	path[n] = 0;
	memcpy(strrchr(path, '/'), "/shim_plugin.so", sizeof("/shim_plugin.so"));
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	*(void **)&fn = dlsym(lib, "map_file");
	p = fn(file, SEGMENT_BYTES);
	CHECK(p && p == map(SEGMENT_BYTES, RW, MAP_SHARED, 0));
	p[0] = 5;
	CHECK(byte_of_file(0) == 5);
#ifdef __GLIBC__
	lib = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	*(void **)&fn = dlsym(lib, "map_file");
	CHECK(!fn(file, SEGMENT_BYTES));
#endif
}
