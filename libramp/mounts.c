#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ioc.h"
#include "shim.h"

#define FUSE_MAGIC 0x65735546
#define KNOWN_MAX  16
#define FIELD_MAX  256 /* of a security module's options, too */

enum verdict { UNKNOWN, FOREIGN, OURS };

/* Each 0, or a device with its verdict; a full table is overwritten in turn. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint32_t next_known;

static uint64_t pack(dev_t dev, enum verdict verdict)
{
	return (uint64_t)dev << 2 | (uint64_t)verdict;
}

static enum verdict recall(dev_t dev)
{
	for (int i = 0; i < KNOWN_MAX; i++) {
		uint64_t word = known[i];

		if (word >> 2 == (uint64_t)dev && word != 0)
			return (enum verdict)(word & 3);
	}
	return UNKNOWN;
}

static void remember(dev_t dev, enum verdict verdict)
{
	for (int i = 0; i < KNOWN_MAX; i++) {
		uint64_t word = known[i];

		if (word >> 2 == (uint64_t)dev && word != 0) {
			known[i] = pack(dev, verdict);
			return;
		}
	}
	known[next_known++ % KNOWN_MAX] = pack(dev, verdict);
}

/* ---- /proc/self/mountinfo: "ID PARENT MAJOR:MINOR ROOT WHERE OPTIONS [TAG...] - TYPE ..." ------
 */

struct reader {
	char field[FIELD_MAX]; /* the field being read; its beginning, where it is longer */
	uint32_t len;
	uint32_t number;    /* of this field in its line, from 0 */
	uint32_t type_at;   /* number of the field after "-", once that has been seen */
	bool right_device;  /* the line is about the device that is looked for */
	enum verdict found; /* of the last such line */
};

static dev_t parse_device(const char *s)
{
	unsigned int number[2] = {0, 0};

	for (int i = 0; i < 2; i++, s++)
		for (; *s >= '0' && *s <= '9'; s++)
			number[i] = number[i] * 10 + (unsigned int)(*s - '0');
	return makedev(number[0], number[1]);
}

/* Of a FUSE mount's own options: it was root that mounted it. */
static bool by_root(const char *options)
{
	return strstr(options, ",user_id=0,") != NULL;
}

/* What anybody mounts may call itself rampfs (-o subtype=rampfs). */
static void end_field(struct reader *r, dev_t dev)
{
	r->field[r->len] = '\0';
	if (r->number == 2)
		r->right_device = parse_device(r->field) == dev;
	else if (r->number > 5 && !r->type_at && strcmp(r->field, "-") == 0)
		r->type_at = r->number + 1;
	else if (r->type_at == r->number && r->type_at && r->right_device)
		r->found = strcmp(r->field, "fuse.rampfs") == 0 ? OURS : FOREIGN;
	else if (r->type_at + 2 == r->number && r->type_at && r->right_device && !by_root(r->field))
		r->found = FOREIGN;
	r->len = 0;
	r->number++;
}

static void take_byte(struct reader *r, char c, dev_t dev)
{
	if (c == ' ' || c == '\n')
		end_field(r, dev);
	else if (r->len < FIELD_MAX - 1)
		r->field[r->len++] = c;
	if (c == '\n') {
		r->number = 0;
		r->type_at = 0;
		r->right_device = false;
	}
}

/* UNKNOWN: there is no list. What is not in it may be anybody's, handed to us from a namespace of
   his own. */
static enum verdict listed(dev_t dev)
{
	struct reader reader = {.found = FOREIGN};
	char chunk[2048];
	ssize_t n;
	int fd = shim_open("/proc/self/mountinfo", O_RDONLY);

	if (fd < 0)
		return UNKNOWN;
	while ((n = syscall(SYS_read, fd, chunk, sizeof(chunk))) > 0)
		for (ssize_t i = 0; i < n; i++)
			take_byte(&reader, chunk[i], dev);
	syscall(SYS_close, fd);
	return reader.found;
}

static enum verdict examine(int fd, dev_t dev)
{
	struct ramp_ioc_info info;
	struct statfs fs;
	enum verdict verdict;

	if (syscall(SYS_fstatfs, fd, &fs) || fs.f_type != FUSE_MAGIC)
		return FOREIGN;
	verdict = listed(dev);
	if (verdict != UNKNOWN)
		return verdict;
	return shim_ioctl(fd, RAMP_IOC_INFO, &info) == 0 ? OURS : FOREIGN;
}

static bool device_of(int fd, dev_t *dev)
{
	struct stat st;

	if (syscall(SYS_fstat, fd, &st))
		return false;
	*dev = st.st_dev;
	return true;
}

bool mounts_has(int fd)
{
	int saved = errno;
	enum verdict verdict = FOREIGN;
	dev_t dev;

	if (device_of(fd, &dev)) {
		verdict = recall(dev);
		if (verdict == UNKNOWN) {
			verdict = examine(fd, dev);
			remember(dev, verdict);
		}
	}
	errno = saved;
	return verdict == OURS;
}

bool mounts_look_again(int fd)
{
	int saved = errno;
	enum verdict verdict = FOREIGN;
	dev_t dev;

	if (device_of(fd, &dev)) {
		verdict = examine(fd, dev);
		remember(dev, verdict);
	}
	errno = saved;
	return verdict == OURS;
}
