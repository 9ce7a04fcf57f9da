/*
 * The steps of a revoke, at which a living process of ours is killed or held: a library for LD_PRELOAD.
 *
 * It arms itself where role.h says. The test writes a step's name, and which time counts; the process is
 * killed (SIGKILL) there, or waits until the test lets it go. The steps, before and after a call:
 *
 *   the daemon   watch, watched        the range for write protection alone, through the program's userfaultfd
 *                scan, scanned         its page tables are looked at
 *                register, registered  the range, for missing pages
 *                ask, asked            MOVE
 *                read                  the event of a move has been read
 *                give, given           the first message of that thread after that: TRANSFER
 *                recall, recalled      RETURN: the move is given up
 *                forget, forgotten     RETURN of a segment that has gone
 *   the shim     move, moved           mremap(2) to the place
 *                answer, answered      DONE
 *                return, returned      mremap(2) from there
 *                unmap, unmapped       munmap(2) there
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/kernel.h"
#include "base/session.h"
#include "role.h"

#define EXPORT	     __attribute__((visibility("default")))
#define STEP_BYTES   24
#define SLOTS	     2
#define PLACES	     8
#define HOLD_MS	     10000
#define DONTUNMAP    4 /* MREMAP_DONTUNMAP */
#define PACKET_FLAGS 8 /* of a RETURN: behind version, type and serial */

enum action { NOTHING, KILL, HOLD };

/* steps.py knows this layout. */
struct control {
	struct slot {
		_Atomic uint32_t action; /* enum action */
		_Atomic uint32_t left;	 /* times that the step passes before */
		_Atomic uint32_t held;	 /* the process waits there */
		char step[STEP_BYTES];
	} slots[SLOTS];
};

static struct control *control;
static uint64_t places[PLACES];		  /* of moved page tables; the agent's thread alone */
static __thread bool has_read, has_moved; /* and has sent nothing since */

__attribute__((constructor)) static void arm(void)
{
	bool program;

	control = role_control(sizeof(*control), &program);
}

static void step(const char *name)
{
	for (int i = 0; control && i < SLOTS; i++) {
		struct slot *slot = &control->slots[i];

		if (slot->action == NOTHING || strncmp(slot->step, name, STEP_BYTES) != 0 ||
		    slot->left-- != 0)
			continue;
		if (slot->action == KILL)
			kill(getpid(), SIGKILL);
		slot->held = 1;
		for (int ms = 0; slot->action == HOLD && ms < HOLD_MS; ms++)
			usleep(1000);
		slot->held = 0;
	}
}

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* ---- the daemon's, and the agent's answer ---- */

static const char *before_packet(const struct msghdr *msg)
{
	const uint8_t *bytes = msg->msg_iov[0].iov_base;
	uint16_t version, type;
	uint32_t flags;

	if (has_moved)
		return "answer";
	if (has_read)
		return "give";
	if (msg->msg_iovlen != 1 || msg->msg_iov[0].iov_len < PACKET_FLAGS + sizeof(flags))
		return NULL;
	memcpy(&version, bytes, sizeof(version));
	memcpy(&type, bytes + sizeof(version), sizeof(type));
	memcpy(&flags, bytes + PACKET_FLAGS, sizeof(flags));
	if (version != SESSION_VERSION)
		return NULL;
	if (type == SESSION_MOVE)
		return "ask";
	if (type == SESSION_RETURN)
		return flags & SESSION_FORGET ? "forget" : "recall";
	return NULL;
}

static const char *after(const char *before)
{
	static const char *const pairs[][2] = {{"answer", "answered"},	   {"give", "given"},
					       {"ask", "asked"},	   {"forget", "forgotten"},
					       {"register", "registered"}, {"watch", "watched"},
					       {"scan", "scanned"},	   {"recall", "recalled"}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (strcmp(pairs[i][0], before) == 0)
			return pairs[i][1];
	return before;
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static ssize_t (*send_it)(int, const struct msghdr *, int);
	const char *before = control ? before_packet(msg) : NULL;
	ssize_t n;

	if (!send_it)
		send_it = (ssize_t(*)(int, const struct msghdr *, int))real("sendmsg");
	has_moved = has_read = false;
	if (before)
		step(before);
	n = send_it(fd, msg, flags);
	if (before)
		step(after(before));
	return n;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	static int (*call)(int, unsigned long, ...);
	const struct uffdio_register *range;
	const char *before = NULL;
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!call)
		call = (int (*)(int, unsigned long, ...))real("ioctl");
	range = arg;
	if (request == UFFDIO_REGISTER)
		before = range->mode & UFFDIO_REGISTER_MODE_MISSING ? "register" : "watch";
	else if (request == KERNEL_PAGEMAP_SCAN)
		before = "scan";
	if (before)
		step(before);
	rc = call(fd, request, arg);
	if (before)
		step(after(before));
	return rc;
}

EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t at, int flags)
{
	static ssize_t (*read_it)(int, const struct iovec *, int, off_t, int);
	const struct uffd_msg *msgs = iov[0].iov_base;
	ssize_t n;

	if (!read_it)
		read_it = (ssize_t(*)(int, const struct iovec *, int, off_t, int))real("preadv2");
	n = read_it(fd, iov, count, at, flags);
	/* Nothing else of ours is read so, and in these sizes. */
	if (n <= 0 || at != -1 || n % (ssize_t)sizeof(*msgs))
		return n;
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++)
		if (msgs[i].event == UFFD_EVENT_REMAP) {
			has_read = true;
			step("read");
		}
	return n;
}

/* ---- the shim's ---- */

static uint64_t *find_place(uint64_t at)
{
	for (int i = 0; i < PLACES; i++)
		if (places[i] == at)
			return &places[i];
	return NULL;
}

static const char *before_call(long number, const long *a)
{
	if (number == SYS_mremap && a[3] & DONTUNMAP)
		return "move";
	if (number == SYS_mremap && a[0] && find_place((uint64_t)a[0]))
		return "return";
	if (number == SYS_munmap && a[0] && find_place((uint64_t)a[0]))
		return "unmap";
	return NULL;
}

static void after_call(const char *before, const long *a, long result)
{
	uint64_t *place = find_place(strcmp(before, "move") == 0 ? 0 : (uint64_t)a[0]);

	if (strcmp(before, "move") == 0) {
		if (result >= 0 && place)
			*place = (uint64_t)a[4];
		has_moved = true;
		step("moved");
		return;
	}
	if (place)
		*place = 0;
	step(strcmp(before, "return") == 0 ? "returned" : "unmapped");
}

EXPORT long syscall(long number, ...)
{
	static long (*call)(long, ...);
	const char *before;
	long a[6], result;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (!call)
		call = (long (*)(long, ...))real("syscall");
	before = control ? before_call(number, a) : NULL;
	if (before)
		step(before);
	result = call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (before) {
		int code = errno;

		after_call(before, a, result);
		errno = code;
	}
	return result;
}
