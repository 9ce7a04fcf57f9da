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

#include "base/ioc.h"
#include "base/kernel.h"
#include "sys.h"

#define FUSE_MAGIC 0x65735546
#define KNOWN_MAX  16
#define FIELD_MAX  256 /* also of a security module's options */

enum verdict { UNKNOWN, FOREIGN, OURS };

/*
 * One mount. Since Linux 6.8 a mount's number is never given to another one. Before, the device's
 * number has to do, which after an umount may be given to another user's mount.
 */
struct mount_key {
	uint64_t number;
	dev_t dev;
};

/* Each is 0, or a mount's number with its verdict; a full table is overwritten in turn. */
static _Atomic uint64_t known[KNOWN_MAX];
static _Atomic uint32_t next_known;

static uint64_t pack(uint64_t number, enum verdict verdict)
{
	return number << 2 | (uint64_t)verdict;
}

static enum verdict mounts_recall(uint64_t number)
{
	for (int i = 0; i < KNOWN_MAX; i++) {
		uint64_t word = known[i];

		if (word >> 2 == number && word != 0)
			return (enum verdict)(word & 3);
	}
	return UNKNOWN;
}

static void mounts_remember(uint64_t number, enum verdict verdict)
{
	for (int i = 0; i < KNOWN_MAX; i++) {
		uint64_t word = known[i];

		if (word >> 2 == number && word != 0) {
			known[i] = pack(number, verdict);
			return;
		}
	}
	known[next_known++ % KNOWN_MAX] = pack(number, verdict);
}

/* ---- /proc/self/mountinfo: "ID PARENT MAJOR:MINOR ROOT WHERE OPTIONS [TAG...] - TYPE ..." ---- */

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

/* Whether root has mounted it, from a FUSE mount's own options. */
static bool by_root(const char *options)
{
	return strstr(options, ",user_id=0,") != NULL;
}

/* Takes a field that is complete. Any user's mount may call itself rampfs (-o subtype=rampfs). */
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

/* Returns UNKNOWN where there is no list. A mount that is not in the list may be any user's, handed
   to us from a mount namespace of that user. */
static enum verdict listed(dev_t dev)
{
	struct reader reader = {.found = FOREIGN};
	char chunk[2048];
	ssize_t n;
	int fd = sys_open("/proc/self/mountinfo", O_RDONLY);

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
	return sys_ioctl(fd, RAMP_IOC_INFO, &info) == 0 ? OURS : FOREIGN;
}

static bool mount_key_of(int fd, struct mount_key *key)
{
	struct statx x;
	struct stat st;

	/* Without asking the filesystem, which may be any user's. */
	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		    KERNEL_STATX_MNT_ID_UNIQUE, &x) == 0) {
		key->dev = makedev(x.stx_dev_major, x.stx_dev_minor);
		key->number = x.stx_mask & KERNEL_STATX_MNT_ID_UNIQUE ? x.stx_mnt_id : key->dev;
		return true;
	}
	if (syscall(SYS_fstat, fd, &st))
		return false;
	key->dev = st.st_dev;
	key->number = st.st_dev;
	return true;
}

bool mounts_has(int fd)
{
	int saved = errno;
	enum verdict verdict = FOREIGN;
	struct mount_key key;

	if (mount_key_of(fd, &key)) {
		verdict = mounts_recall(key.number);
		if (verdict == UNKNOWN) {
			verdict = examine(fd, key.dev);
			mounts_remember(key.number, verdict);
		}
	}
	errno = saved;
	return verdict == OURS;
}

bool mounts_look_again(int fd)
{
	int saved = errno;
	enum verdict verdict = FOREIGN;
	struct mount_key key;

	if (mount_key_of(fd, &key)) {
		verdict = examine(fd, key.dev);
		mounts_remember(key.number, verdict);
	}
	errno = saved;
	return verdict == OURS;
}
