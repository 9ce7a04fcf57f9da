#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "base/cpu_weight.h"
#include "base/rate.h"

const char options_usage[] =
	"Usage: rampfs [-f] [-d] [-o OPTION[,OPTION]...] STATE_DIR MOUNTPOINT\n"
	"       rampfs --destroy [--force] STATE_DIR\n"
	"Mounts a node of a rampfs cluster: a filesystem of memory that moves between machines.\n"
	"STATE_DIR is made by mkfs.rampfs; umount(8) or fusermount3 -u ends it.\n"
	"\n"
	"umount takes the names away, not the memory. Programs that have segments mapped keep\n"
	"them undisturbed; what is being pulled, in both directions, is finished, then the\n"
	"node's processes end; the next start finds every segment. SIGTERM to rampfs does the "
	"same\n"
	"at once, also where files are open: what is half pulled continues at the next start, and "
	"a\n"
	"program that touches a page which is not here yet waits until then. SIGHUP opens the log\n"
	"file again and executes a new daemon: programs notice a pause of milliseconds.\n"
	"\n"
	"  -f, --foreground  stay in the foreground, log to stderr\n"
	"  -d, --debug       -f, with every request and a log of everything\n"
	"  -o OPTIONS        mount options; -o help lists them\n"
	"      --destroy     give the node's memory back: every segment that it holds is lost.\n"
	"                    Refused while it holds any, without --force\n"
	"  -h, --help        this text\n"
	"  -V, --version     the version\n";

const char options_mount_usage[] =
	"Mount options of rampfs:\n"
	"  log=syslog|stderr|FILE  where its log goes; FILE is an absolute path\n"
	"                          (default: syslog; with -f: stderr)\n"
	"  loglevel=error|warning|info|debug  (default: info)\n"
	"  uffd_group=GROUP        only members of GROUP may map segments: mapping one gives a\n"
	"                          userfaultfd, which sees faults in system calls too\n"
	"  mode=auto|lazy|demand|copy|precopy  how segments of this node move by mv, and by\n"
	"                          rampfs-migrate without --mode, where user.ramp.mode of the\n"
	"                          segment does not say it (default: auto)\n"
	"  rollback=ask|auto       a segment whose owner died right after it had come there goes\n"
	"                          back to where it was: opening it is an error until that is\n"
	"                          accepted (ask, the default), or works at once (auto)\n"
	"  quiesce_ms=N            how long programs that ask to be asked may take to let go of a\n"
	"                          segment that is to leave (1 to 4000, default 1000)\n"
	"  threads=N               of the pool that answers requests (1 to 64, default 8)\n"
	"  nice=N                  of what moves pages between nodes, beside other programs\n"
	"                          (-20 to 19, default -15; page faults go before all)\n"
	"  limit=SENT[:RECEIVED]   bytes a second, at most, of pages that go ahead of need: what "
	"this\n"
	"                          node sends to others, and what it reads of them (default: as\n"
	"                          much); as 200M, at least 1M, or none (default); pages that\n"
	"                          programs wait for are never limited\n"
	"and of mount(8): ro, rw, exec, noexec, noatime, nodiratime, relatime, strictatime,\n"
	"lazytime, sync, async, dirsync, silent, user, users, nouser, defaults, auto, noauto,\n"
	"nofail, _netdev, comment=, x-*. nosuid, nodev, allow_other and default_permissions are\n"
	"always on.\n";

static int parse_number(const char *value, int64_t min, int64_t max, int64_t *out)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(value, &end, 10);
	if (errno || end == value || *end || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

static int parse_group(const char *value, gid_t *gid)
{
	struct group *g = getgrnam(value);
	int64_t number;

	if (g) {
		*gid = g->gr_gid;
		return 0;
	}
	if (parse_number(value, 0, UINT32_MAX - 1, &number))
		return -EINVAL;
	*gid = (gid_t)number;
	return 0;
}

static int parse_level(const char *value, enum log_level *level)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};

	for (unsigned i = 0; i < 4; i++)
		if (strcmp(value, names[i]) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

/* Takes log=. A file's name must mean the same after chdir("/") and at each SIGHUP. */
static int parse_log(struct daemon_options *o, const char *value)
{
	if (value[0] != '/' && strcmp(value, "syslog") != 0 && strcmp(value, "stderr") != 0)
		return -EINVAL;
	if (strlen(value) >= sizeof(o->log))
		return -EINVAL;
	strcpy(o->log, value);
	return 0;
}

static int parse_rate(const char *value, size_t len, uint64_t *bytes_s)
{
	char text[32];

	if (len >= sizeof(text))
		return -EINVAL;
	memcpy(text, value, len);
	text[len] = 0;
	*bytes_s = 0;
	return strcmp(text, "none") == 0 ? 0 : rate_parse(text, bytes_s);
}

static int parse_limit(struct daemon_options *o, const char *value, struct ramp_err *err)
{
	size_t sent = strcspn(value, ":");
	const char *received = value[sent] ? value + sent + 1 : NULL;
	int rc = parse_rate(value, sent, &o->limit_sent);

	o->limit_received = o->limit_sent;
	if (!rc && received)
		rc = parse_rate(received, strlen(received), &o->limit_received);
	if (rc)
		return ramp_err_set(
			err, EINVAL,
			"mount option limit does not take \"%s\": it is SENT or "
			"SENT:RECEIVED, each bytes a second as 200M, at least 1M, or none",
			value);
	return 0;
}

static int parse_default_mode(const char *value, enum transfer_mode *mode)
{
	int found = transfer_mode_of(value);

	if (found < 0)
		return -EINVAL;
	*mode = (enum transfer_mode)found;
	return 0;
}

/* Takes options of mount(8) that change nothing here, and those that become mount(2)'s flags. */
static bool parse_generic(struct daemon_options *o, const char *word)
{
	static const struct {
		const char *word;
		unsigned long set, clear;
	} known[] = {
		{"defaults", 0, 0},
		{"rw", 0, MS_RDONLY},
		{"ro", MS_RDONLY, 0},
		{"exec", 0, MS_NOEXEC},
		{"noexec", MS_NOEXEC, 0},
		{"nosuid", 0, 0},
		{"nodev", 0, 0},
		{"auto", 0, 0},
		{"noauto", 0, 0},
		{"nofail", 0, 0},
		{"_netdev", 0, 0},
		{"async", 0, 0},
		{"sync", MS_SYNCHRONOUS, 0},
		{"dirsync", MS_DIRSYNC, 0},
		{"noatime", MS_NOATIME, 0},
		{"nodiratime", MS_NODIRATIME, 0},
		{"relatime", MS_RELATIME, 0},
		{"strictatime", MS_STRICTATIME, 0},
		{"lazytime", MS_LAZYTIME, 0},
		{"silent", MS_SILENT, 0},
		{"user", 0, 0},
		{"users", 0, 0},
		{"nouser", 0, 0},
		{"allow_other", 0, 0},
		{"default_permissions", 0, 0},
	};

	if (strncmp(word, "x-", 2) == 0 || strncmp(word, "comment=", 8) == 0)
		return true;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(word, known[i].word) == 0) {
			o->mount_flags = (o->mount_flags | known[i].set) & ~known[i].clear;
			return true;
		}
	return false;
}

static int unknown_word(const struct daemon_options *o, const char *word, struct ramp_err *err)
{
	if (o->sloppy)
		return 0;
	return ramp_err_set(err, EINVAL, "unknown mount option %s (-o help lists them)", word);
}

static int parse_word(struct daemon_options *o, char *word, struct ramp_err *err)
{
	char *value = strchr(word, '=');
	int rc = 0;

	if (strcmp(word, "help") == 0) {
		o->mode = MODE_OPTIONS_HELP;
		return 0;
	}
	if (parse_generic(o, word))
		return 0;
	if (strcmp(word, "remount") == 0)
		return ramp_err_set(err, EINVAL,
				    "remount: its own options change by umount and mount; those "
				    "of the kernel (ro, rw, noexec) also by mount -i -o remount");
	if (!value)
		return unknown_word(o, word, err);
	*value++ = 0;
	if (strcmp(word, "limit") == 0)
		return parse_limit(o, value, err);
	if (strcmp(word, "log") == 0)
		rc = parse_log(o, value);
	else if (strcmp(word, "loglevel") == 0)
		rc = parse_level(value, &o->log_level);
	else if (strcmp(word, "uffd_group") == 0)
		rc = parse_group(value, &o->uffd_group);
	else if (strcmp(word, "threads") == 0)
		rc = parse_number(value, 1, 64, &o->threads);
	else if (strcmp(word, "quiesce_ms") == 0)
		rc = parse_number(value, 1, 4000, &o->quiesce_ms);
	else if (strcmp(word, "nice") == 0)
		rc = parse_number(value, -20, 19, &o->nice);
	else if (strcmp(word, "mode") == 0)
		rc = parse_default_mode(value, &o->move_mode);
	else if (strcmp(word, "rollback") == 0 && strcmp(value, "auto") == 0)
		o->rollback_auto = true;
	else if (strcmp(word, "rollback") == 0)
		rc = strcmp(value, "ask") == 0 ? 0 : -EINVAL;
	else
		return unknown_word(o, word, err);
	if (rc)
		return ramp_err_set(err, EINVAL, "mount option %s does not take \"%s\"", word,
				    value);
	return 0;
}

static int parse_list(struct daemon_options *o, const char *list, struct ramp_err *err)
{
	while (*list) {
		size_t len = strcspn(list, ",");
		char *word = strndup(list, len);
		int rc;

		if (!word)
			return ramp_err_sys(err, ENOMEM, "mount options");
		rc = *word ? parse_word(o, word, err) : 0;
		free(word);
		if (rc)
			return rc;
		list += len + (list[len] == ',');
	}
	return 0;
}

enum { OPT_DESTROY = 256, OPT_FORCE };

bool options_helper(const char *name)
{
	const char *slash = strrchr(name, '/');

	return strcmp(slash ? slash + 1 : name, "mount.rampfs") == 0;
}

/* Returns the flags that there are. A program that has executed itself gets the arguments it was
   called with, under either name. */
static const char *flags_of(const char *name, bool own)
{
	if (own)
		return ":fdnsvrwt:o:hV";
	return options_helper(name) ? ":fnsvrwt:o:hV" : ":fdo:hV";
}

static int parse_flags(int argc, char **argv, bool own, struct daemon_options *o,
		       struct ramp_err *err)
{
	const char *name = argc > 0 ? argv[0] : "rampfs", *flags = flags_of(name, own);
	bool helper = !own && options_helper(name);
	static const struct option longs[] = {{"foreground", no_argument, NULL, 'f'},
					      {"debug", no_argument, NULL, 'd'},
					      {"destroy", no_argument, NULL, OPT_DESTROY},
					      {"force", no_argument, NULL, OPT_FORCE},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	int c, rc = 0;

	opterr = 0;
	while (!rc && (c = getopt_long(argc, argv, flags, longs, NULL)) != -1)
		switch (c) {
		case 'f':
			*(helper ? &o->fake : &o->foreground) = true;
			break;
		case 'd':
			o->debug = o->foreground = true;
			o->log_level = LOG_LEVEL_DEBUG;
			break;
		case 'o':
			rc = parse_list(o, optarg, err);
			break;
		case 'r':
			o->mount_flags |= MS_RDONLY;
			break;
		case 's':
			o->sloppy = true;
			break;
		case OPT_DESTROY:
			o->mode = MODE_DESTROY;
			break;
		case OPT_FORCE:
			o->force = true;
			break;
		case 'h':
			o->mode = MODE_HELP;
			break;
		case 'V':
			o->mode = MODE_VERSION;
			break;
		case ':':
			rc = ramp_err_set(err, EINVAL, "option -%c needs a value", optopt);
			break;
		case '?':
			if (optopt > 0 && optopt < OPT_DESTROY)
				rc = ramp_err_set(err, EINVAL, "unknown option -%c", optopt);
			else
				rc = ramp_err_set(err, EINVAL,
						  optopt ? "%s: it takes no value"
							 : "unknown option %s",
						  argv[optind - 1]);
			break;
		default: /* -n -v -w -t of mount(8): nothing to do */
			break;
		}
	return rc;
}

int options_parse(int argc, char **argv, bool own, struct daemon_options *o, struct ramp_err *err)
{
	int rc, left;

	*o = (struct daemon_options){.uffd_group = (gid_t)-1,
				     .log_level = LOG_LEVEL_INFO,
				     .nice = CPU_WEIGHT_NICE,
				     .move_mode = TRANSFER_MODE_DEFAULT};
	rc = parse_flags(argc, argv, own, o, err);
	if (rc)
		return rc;
	if (o->mode == MODE_HELP || o->mode == MODE_VERSION || o->mode == MODE_OPTIONS_HELP)
		return 0;
	/* In the background it would go nowhere. */
	if (!own && !o->foreground && strcmp(o->log, "stderr") == 0)
		return ramp_err_set(err, EINVAL,
				    "log=stderr is for -f: in the background there "
				    "is none");
	left = argc - optind;
	if (left != (o->mode == MODE_DESTROY ? 1 : 2))
		return ramp_err_set(err, EINVAL,
				    o->mode == MODE_DESTROY
					    ? "--destroy takes one STATE_DIR"
					    : "STATE_DIR and MOUNTPOINT are needed");
	o->state_dir = argv[optind];
	o->mountpoint = left == 2 ? argv[optind + 1] : NULL;
	return 0;
}
