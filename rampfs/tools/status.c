/*
 * rampfs-status [--json] [MOUNTPOINT]: the facts that the node of a mount knows of its cluster.
 *
 * Happy path: MOUNT/.ramp/status and nodes, which the daemon makes in one go, become tables;
 * problems come first. With --json the facts are one object: nodes from .ramp/nodes, segments from
 * .ramp/segments, migrations from .ramp/status, numbers of the whole node from .ramp/metrics.
 *
 * How it fails: without MOUNTPOINT there must be exactly one rampfs mount. Where many read .ramp/segments
 * at a time one may get parts of two texts: the numbers in it show that, and it is read again. A daemon that
 * is stopped, or waits for a disk that is silent, does not answer: the program says so and ends (ramp_file.c).
 */
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/output.h"
#include "find_mount.h"
#include "ramp_file.h"
#include "status_json.h"
#include "status_text.h"

enum { EXIT_USAGE = 2 };

static const char usage[] =
	"usage: rampfs-status [--json] [MOUNTPOINT]\n"
	"Show what is lost or in doubt, nodes, segments, owners and migrations under way.\n"
	"\n"
	"  --json      as one JSON object\n"
	"  -h, --help  this text\n"
	"  --version   the version\n"
	"\n"
	"Without MOUNTPOINT: the one rampfs mount of this machine.\n";

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

	output_begin();
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return output_end("rampfs-status");
		case 'V':
			printf("rampfs-status %s\n", RAMPFS_VERSION);
			return output_end("rampfs-status");
		default:
			fputs("Try 'rampfs-status --help'.\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs("rampfs-status: one MOUNTPOINT at a time\nTry 'rampfs-status --help'.\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (optind < argc) {
		snprintf(mount, sizeof(mount), "%s", argv[optind]);
	} else {
		rc = find_mount("rampfs-status", mount);
		if (rc)
			return rc;
	}
	ramp_file_watch(mount);
	rc = json ? status_json(mount) : status_text(mount);
	return rc ? rc : output_end("rampfs-status");
}
