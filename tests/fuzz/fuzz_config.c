/*
 * cluster.conf (config.c). A file that is accepted keeps every promise of config.h, and its
 * canonical text is a cluster.conf that means the same; an error names the line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "fuzz.h"

static char *canonical_of(const void *bytes, size_t len)
{
	struct config_cluster config;
	struct ramp_err err = {0};
	int fd = fuzz_file(bytes, len);
	char path[32], *text;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_read(path, &config, &err)) {
		fuzz_rule(err.code && strncmp(err.text, path, strlen(path)) == 0);
		close(fd);
		return NULL;
	}
	close(fd);
	fuzz_rule(config_name_ok(config.name) && config.n_nodes > 0 &&
		  config.n_nodes <= CONFIG_NODES_MAX);
	for (size_t i = 0; i < config.n_nodes; i++) {
		const struct config_node *node = &config.nodes[i];

		fuzz_rule(config_name_ok(node->name) && config_address_ok(node->address));
		fuzz_rule(node->capacity_bytes >= CONFIG_CAPACITY_MIN);
		fuzz_rule(config_find(&config, node->name) == node);
	}
	text = config_canonical(&config);
	config_free(&config);
	fuzz_rule(text);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = canonical_of(data, size), *again;

	if (!text)
		return 0;
	again = canonical_of(text, strlen(text));
	fuzz_rule(again && strcmp(text, again) == 0);
	free(text);
	free(again);
	return 0;
}

void fuzz_seeds(void)
{
	static const char small[] = "[cluster]\nname=c\n[node a]\naddress=h:1\ncapacity=16M\n";
	static const char full[] =
		"# a comment\n[cluster]\nname = prod\narena=0x1000000000:64G\narena-user-max=8G\n"
		"[node a]\naddress=[::1]:7000\ncapacity=8G\ntransport=tcp\n"
		"voter=no\n[node b]\naddress=10.0.0.2:7000\ncapacity=1T\n";

	fuzz_seed("small", small, sizeof(small) - 1);
	fuzz_seed("full", full, sizeof(full) - 1);
}
