/*
 * rampfs-status [--json] [MOUNTPOINT]: what the node of a mount knows of its cluster.
 *
 * Happy path: prints MOUNT/.ramp/status and nodes as they are; with --json the same facts as one
 * object: nodes from .ramp/nodes, segments from the directories and their attributes, migrations
 * from .ramp/status.
 *
 * How it fails: without MOUNTPOINT there must be exactly one rampfs mount. A segment that goes away
 * or may not be read while it is looked at is left with the facts that could be had.
 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage[] = "usage: rampfs-status [--json] [MOUNTPOINT]\n"
			    "Show nodes, leader, segments, owners and migrations under way.\n"
			    "\n"
			    "  --json   as one JSON object\n"
			    "  --help, --version\n"
			    "\n"
			    "Without MOUNTPOINT: the one rampfs mount of this machine.\n";

/* ---- where ---------------------------------------------------------------------------------- */

/* The one rampfs mount. 0, or an exit status. */
static int find_mount(char path[PATH_MAX])
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *entry;
	int found = 0;

	if (!mounts) {
		fprintf(stderr, "rampfs-status: /proc/self/mounts: %s\n", strerror(errno));
		return EXIT_FAILED;
	}
	while ((entry = getmntent(mounts))) {
		if (strcmp(entry->mnt_type, "fuse.rampfs") != 0)
			continue;
		if (found++ == 0)
			snprintf(path, PATH_MAX, "%s", entry->mnt_dir);
	}
	endmntent(mounts);
	if (found == 1)
		return 0;
	fprintf(stderr, "rampfs-status: %s\n",
		found ? "there are several rampfs mounts: say which" : "no rampfs is mounted here");
	return found ? EXIT_USAGE : EXIT_FAILED;
}

/* A file of .ramp as a string, or NULL after a complaint. The caller frees. */
static char *read_text(const char *mount, const char *name)
{
	char path[PATH_MAX + 32], *text = NULL;
	size_t len = 0, cap = 0;
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/.ramp/%s", mount, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0) {
		if (cap - len < 65536) {
			char *grown = realloc(text, cap += 131072);

			if (!grown)
				break;
			text = grown;
		}
		n = read(fd, text + len, cap - len - 1);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (fd < 0 || n < 0 || !text) {
		fprintf(stderr, "rampfs-status: %s: %s\n", path, strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[len] = 0;
	}
	if (fd >= 0)
		close(fd);
	return text;
}

/* ---- text ----------------------------------------------------------------------------------- */

static int show_text(const char *mount)
{
	char *status = read_text(mount, "status");
	char *nodes = status ? read_text(mount, "nodes") : NULL;

	if (nodes)
		printf("%s\nmembers:\n", status);
	for (char *line = nodes ? strtok(nodes, "\n") : NULL; line; line = strtok(NULL, "\n"))
		printf("  %s\n", line);
	free(status);
	free(nodes);
	return nodes ? 0 : EXIT_FAILED;
}

/* ---- json ----------------------------------------------------------------------------------- */

/* "NAME voter up HOST:PORT capacity=N incarnation=HEX [leader] [here]" */
static void add_node(cJSON *nodes, char *line)
{
	static const char *const fields[] = {"name", "role", "state", "address"};
	cJSON *node = cJSON_CreateObject();
	char *save, *word = strtok_r(line, " ", &save);

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && word; i++) {
		cJSON_AddStringToObject(node, fields[i], word);
		word = strtok_r(NULL, " ", &save);
	}
	for (; word; word = strtok_r(NULL, " ", &save)) {
		if (strncmp(word, "capacity=", 9) == 0)
			cJSON_AddNumberToObject(node, "capacity_bytes", strtod(word + 9, NULL));
		else if (strncmp(word, "incarnation=", 12) == 0)
			cJSON_AddStringToObject(node, "incarnation", word + 12);
		else
			cJSON_AddBoolToObject(node, word, true);
	}
	cJSON_AddItemToArray(nodes, node);
}

static bool is_number(const char *s)
{
	char *end;

	if (*s < '0' || *s > '9' || strlen(s) > 15)
		return false; /* a larger one would lose digits in a double */
	strtoull(s, &end, 10);
	return *end == 0;
}

static void add_xattrs(cJSON *segment, const char *path)
{
	static const char *const names[] = {"id",    "addr",	       "extent", "state", "epoch",
					    "owner", "resident_bytes", "source", "lost",  "pages"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char name[64], value[4096];
		ssize_t n;

		snprintf(name, sizeof(name), "user.ramp.%s", names[i]);
		n = lgetxattr(path, name, value, sizeof(value) - 1);
		if (n < 0)
			continue;
		value[n] = 0;
		if (is_number(value))
			cJSON_AddNumberToObject(segment, names[i], strtod(value, NULL));
		else
			cJSON_AddStringToObject(segment, names[i], value);
	}
}

static void add_segments(cJSON *segments, const char *mount, const char *node)
{
	char path[PATH_MAX + 512];
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s", mount, node);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		cJSON *segment;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		segment = cJSON_CreateObject();
		cJSON_AddStringToObject(segment, "node", node);
		cJSON_AddStringToObject(segment, "name", entry->d_name);
		snprintf(path, sizeof(path), "%s/%s/%s", mount, node, entry->d_name);
		if (lstat(path, &st) == 0) {
			cJSON_AddNumberToObject(segment, "size", (double)st.st_size);
			add_xattrs(segment, path);
		}
		cJSON_AddItemToArray(segments, segment);
	}
	if (dir)
		closedir(dir);
}

/* "  NAME  FROM -> TO  STATE  N ms  (source)", taken apart from its end: a name may hold anything.
 */
static void add_migration(cJSON *migrations, char *line)
{
	static const char *const fields[] = {"side", "age", "state", "nodes"};
	cJSON *migration = cJSON_CreateObject();
	char *at, *arrow;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		for (at = line + strlen(line); at > line && !(at[0] == ' ' && at[1] == ' '); at--)
			;
		if (at == line)
			break;
		*at = 0;
		if (at[2] == '(')
			at[strlen(at + 2) + 1] = 0;
		arrow = strstr(at + 2, " -> ");
		if (i == 3 && arrow) {
			*arrow = 0;
			cJSON_AddStringToObject(migration, "from", at + 2);
			cJSON_AddStringToObject(migration, "to", arrow + 4);
		} else if (i == 1) {
			cJSON_AddNumberToObject(migration, "age_ms", strtod(at + 2, NULL));
		} else {
			cJSON_AddStringToObject(migration, fields[i],
						at[2] == '(' ? at + 3 : at + 2);
		}
	}
	cJSON_AddStringToObject(migration, "name", line + strspn(line, " "));
	cJSON_AddItemToArray(migrations, migration);
}

/* "key: value" lines of the head become strings; the migrations' section an array. */
static void add_status(cJSON *root, char *status)
{
	cJSON *migrations = cJSON_AddArrayToObject(root, "migrations");
	enum { HEAD, OTHER, MIGRATIONS } section = HEAD;
	char *save, *value;

	for (char *line = strtok_r(status, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (line[0] == ' ') {
			if (section == MIGRATIONS)
				add_migration(migrations, line);
			continue;
		}
		value = strstr(line, ": ");
		if (strncmp(line, "migrations:", 11) == 0) {
			section = MIGRATIONS;
		} else if (strncmp(line, "segments:", 9) == 0 || strncmp(line, "nodes:", 6) == 0) {
			section = OTHER;
		} else if (section == HEAD && value) {
			*value = 0;
			for (char *at = line; (at = strchr(at, ' '));)
				*at = '_';
			if (strcmp(line, "quorum") == 0)
				cJSON_AddBoolToObject(root, line, strcmp(value + 2, "yes") == 0);
			else
				cJSON_AddStringToObject(root, line, value + 2);
		}
	}
}

static int show_json(const char *mount)
{
	char *status = read_text(mount, "status");
	char *nodes = status ? read_text(mount, "nodes") : NULL;
	cJSON *root = cJSON_CreateObject(), *list, *segments, *node;
	char *save, *text;

	if (!nodes || !root) {
		free(status);
		cJSON_Delete(root);
		return EXIT_FAILED;
	}
	cJSON_AddStringToObject(root, "mountpoint", mount);
	add_status(root, status);
	list = cJSON_AddArrayToObject(root, "nodes");
	for (char *line = strtok_r(nodes, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		add_node(list, line);
	segments = cJSON_AddArrayToObject(root, "segments");
	cJSON_ArrayForEach(node, list)
	{
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(node, "name"));

		if (name)
			add_segments(segments, mount, name);
	}
	text = cJSON_Print(root);
	if (text)
		puts(text);
	free(text);
	free(status);
	free(nodes);
	cJSON_Delete(root);
	return text ? 0 : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	char mount[PATH_MAX];
	bool json = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		case 'V':
			printf("rampfs-status %s\n", RAMPFS_VERSION);
			return 0;
		default:
			fputs(usage, stderr);
			return EXIT_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	if (optind < argc) {
		snprintf(mount, sizeof(mount), "%s", argv[optind]);
	} else {
		rc = find_mount(mount);
		if (rc)
			return rc;
	}
	return json ? show_json(mount) : show_text(mount);
}
