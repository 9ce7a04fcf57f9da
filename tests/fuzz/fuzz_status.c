/*
 * rampfs-status's reading of .ramp/status, nodes and segments (status_text.c and status_json.c,
 * compiled in here), in which segments have the names that users gave them. The input: a byte (odd:
 * --json), then the three texts, each ended by a form feed; .ramp/segments gets the numbers at its
 * ends.
 *
 * It ends with one of its two statuses; where that is 0, its output with --json is JSON.
 */
#include <sys/stat.h>

#include "fuzz.h"

#include "tools/ramp_file.c"
#include "tools/status_json.c"
#include "tools/status_text.c"
#include "tools/text_table.c"

#define TEXTS 3

static void put_file(const char *name, const char *head, const void *bytes, size_t len)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/.ramp", fuzz_dir());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/.ramp/%s", fuzz_dir(), name);
	out = fopen(path, "we");
	fuzz_rule(out);
	fputs(head, out);
	fwrite(bytes, 1, len, out);
	if (head[0])
		fprintf(out, "\n%s", head);
	fuzz_rule(fclose(out) == 0);
}

static void put_files(struct fuzz_in *in)
{
	static const char *const names[TEXTS] = {"status", "nodes", "segments"};

	for (int i = 0; i < TEXTS; i++) {
		const uint8_t *end = in->left ? memchr(in->at, '\f', in->left) : NULL;
		size_t len = end ? (size_t)(end - in->at) : in->left;

		put_file(names[i], i == TEXTS - 1 ? "7\n" : "", in->at, len);
		in->at += len;
		in->left -= len;
		fuzz_u8(in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *nowhere;
	struct fuzz_in in = {data, size};
	bool json = fuzz_u8(&in) & 1;
	FILE *out = stdout, *err = stderr;
	char *text = NULL;
	cJSON *parsed;
	size_t len;
	int rc;

	if (!nowhere)
		nowhere = fopen("/dev/null", "we");
	put_files(&in);
	stderr = nowhere;
	stdout = open_memstream(&text, &len);
	fuzz_rule(stdout && nowhere);
	rc = json ? status_json(fuzz_dir()) : status_text(fuzz_dir());
	fclose(stdout);
	stdout = out;
	stderr = err;
	fuzz_rule(rc == 0 || rc == 1);
	if (json && rc == 0) {
		parsed = cJSON_Parse(text);
		fuzz_rule(cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(parsed, "segments")));
		fuzz_rule(cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(parsed, "migrations")));
		cJSON_Delete(parsed);
	}
	free(text);
	return 0;
}

void fuzz_seeds(void)
{
	static const char status[] =
		"cluster: lab\nquorum: yes\nnodes: 2\nsegments: 2\n"
		"  a/A cache  1.0 GiB  pulling from a, 40 % here  at 0x200000000000\n"
		"  b/\\xff  3 B  lost\n  ... and 3 more\nmigrations: 1\n"
		"  A cache  a -> b  moving  12 ms  (source)\n\f"
		"a voter up 10.0.0.1:7000 capacity=1073741824 incarnation=00ff leader here\n"
		"7 standby down [::1]:7 capacity=1 incarnation=1\n\f"
		"node\tname\tstate\tsize\tlost\na\tA cache\tpulling\t17\tnone\n"
		"b\t\\xff\\xe2\\x82\\xac\tlost\t3\t0-4096";
	char bytes[sizeof(status)];

	memcpy(bytes + 1, status, sizeof(status) - 1);
	bytes[0] = 0;
	fuzz_seed("tables", bytes, sizeof(bytes));
	bytes[0] = 1;
	fuzz_seed("json", bytes, sizeof(bytes));
}
