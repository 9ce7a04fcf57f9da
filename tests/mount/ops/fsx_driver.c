/*
 * The random tester's driver: asks the workers, draws the operations, keeps the model and the
 * log of the operations. The first difference ends it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fsx.h"

const char *mounts[NODES];
const long zones[3] = {0, 4 * GIB - ZONE / 2, 9 * GIB - ZONE / 2};
struct node nodes[NODES];

int owner, model = -1;
unsigned long seed = 1, op;
static uint64_t random_state;
static char logged[LOGGED][160];
static unsigned long log_lines;
uint8_t expected[IO_MAX];

void draw_from(unsigned long new_seed)
{
	seed = new_seed;
	random_state = seed * UINT64_C(0x2545f4914f6cdd1d);
}

uint64_t draw64(void)
{
	uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

long draw(long below)
{
	return (long)(draw64() % (uint64_t)below);
}

void note(const char *fmt, ...)
{
	char *line = logged[log_lines++ % LOGGED];
	va_list ap;
	int n = snprintf(line, sizeof(logged[0]), "%lu %c ", op, 'a' + owner);

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(logged[0]) - (size_t)n, fmt, ap);
	va_end(ap);
}

static void say_where(void)
{
	static const char *const names[] = {"user.ramp.owner", "user.ramp.state",
					    "user.ramp.epoch"};
	char path[4096], value[64];

	for (int n = 0; n < NODES; n++)
		for (int o = 0; o < NODES; o++)
			for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
				ssize_t len;

				path_of(path, sizeof(path), n, o);
				len = getxattr(path, names[i], value, sizeof(value));
				if (len > 0)
					printf("%s: %s %.*s\n", path, names[i], (int)len, value);
			}
}

static void say_stack(pid_t pid)
{
	char command[200];

	snprintf(command, sizeof(command), "head -n 30 /proc/%d/task/*/{comm,syscall,stack} >&2",
		 (int)pid);
	if (system(command))
		perror(command);
}

void fail(const char *fmt, ...)
{
	unsigned long first = log_lines > LOGGED ? log_lines - LOGGED : 0;
	va_list ap;

	for (; first < log_lines; first++)
		printf("  %s\n", logged[first % LOGGED]);
	printf("seed %lu, operation %lu on %c: ", seed, op, 'a' + owner);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	say_where();
	fflush(stdout);
	for (int n = 0; n < NODES; n++)
		kill(nodes[n].pid, SIGKILL);
	_exit(1);
}

const struct answer *ask(int n, const struct call *c)
{
	struct node *node = &nodes[n];
	struct pollfd poll_fd = {.fd = node->sock, .events = POLLIN};
	char byte = 0;
	int status = 0;

	node->wire->call = *c;
	if (write(node->sock, &byte, 1) != 1)
		fail("the worker on %c is gone", 'a' + n);
	if (poll(&poll_fd, 1, PATIENCE * 1000) != 1) {
		say_stack(node->pid);
		fail("no answer from %c in %d s", 'a' + n, PATIENCE);
	}
	if (read(node->sock, &byte, 1) != 1) {
		waitpid(node->pid, &status, 0);
		fail("the worker on %c died: status %x", 'a' + n, (unsigned)status);
	}
	return &node->wire->answer;
}

/* Asks the owner's worker, which must answer with `want`. */
void must(const struct call *c, long want)
{
	const struct answer *a = ask(owner, c);

	if (a->rc != want || a->signal)
		fail("got %ld, not %ld (errno %s, signal %d)", a->rc, want,
		     a->rc < 0 ? strerror(a->code) : "none", a->signal);
}

void must_die(int n, const struct call *c, int number)
{
	const struct answer *a = ask(n, c);

	if (a->signal != number)
		fail("%c got signal %d, not %d (result %ld)", 'a' + n, a->signal, number, a->rc);
}

void must_refuse(int n, const struct call *c, int code)
{
	const struct answer *a = ask(n, c);

	if (a->rc != -1 || a->code != code || a->signal)
		fail("%c got %ld (%s, signal %d), not %s", 'a' + n, a->rc,
		     a->rc < 0 ? strerror(a->code) : "done", a->signal, strerror(code));
}

long model_size(void)
{
	struct stat st;

	if (fstat(model, &st))
		fail("the model's fstat: %s", strerror(errno));
	return st.st_size;
}

void model_did(long rc, const char *what)
{
	if (rc < 0)
		fail("the model's %s: %s", what, strerror(errno));
}

void same_bytes(const uint8_t *got, long n, long off)
{
	long got_n = pread(model, expected, (size_t)n, off);

	if (got_n < n && got_n >= 0)
		memset(expected + got_n, 0, (size_t)(n - got_n)); /* a last page behind the end */
	if (memcmp(got, expected, (size_t)n) == 0)
		return;
	for (long i = 0; i < n; i++)
		if (got[i] != expected[i]) {
			long last = i;

			for (long k = i; k < n; k++)
				if (got[k] != expected[k])
					last = k;
			fail("bytes %ld to %ld (page %ld) of %ld differ: first is %02x, not %02x",
			     off + i, off + last, (off + i) / PAGE, model_size(), got[i],
			     expected[i]);
		}
}

/* ---- drawing ---- */

long draw_length(void)
{
	long kind = draw(100);

	return 1 + draw(kind < 70 ? 8192 : kind < 95 ? 65536 : IO_MAX);
}

/* Draws a range in one zone; its ends are those of a page now and then. */
void draw_range(long *off, long *len)
{
	long start = draw(ZONE);

	*len = draw_length();
	if (draw(4) == 0)
		start = start / PAGE * PAGE;
	if (draw(4) == 0)
		*len = round_up(*len);
	if (*len > ZONE - start)
		*len = ZONE - start;
	*off = zones[draw(3)] + start;
}

bool in_zone(long off, long len)
{
	for (int i = 0; i < 3; i++)
		if (off >= zones[i] && off + len <= zones[i] + ZONE)
			return true;
	return false;
}

/* Returns the part of a drawn range that is mapped at the owner, and before `end`. */
bool draw_mapped(long *off, long *len, long end)
{
	const struct node *n = &nodes[owner];

	draw_range(off, len);
	if (!n->mapped)
		return false;
	if (end > n->map_off + n->map_len)
		end = n->map_off + n->map_len;
	if (*off < n->map_off)
		return false;
	if (*off + *len > end)
		*len = end - *off;
	return *len > 0;
}

bool draw_mapped_pages(long *off, long *len, long end)
{
	if (!draw_mapped(off, len, end))
		return false;
	*len = round_up(*off % PAGE + *len);
	*off = *off / PAGE * PAGE;
	return true;
}

void fill(uint8_t *data, long len)
{
	uint64_t x = draw64();

	if (x % 10 == 0) { /* zeros are holes to a move */
		memset(data, 0, (size_t)len);
		return;
	}
	for (long i = 0; i < len; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		data[i] = (uint8_t)(x >> 56);
	}
}
