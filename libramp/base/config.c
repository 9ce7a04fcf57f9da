#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "size.h"

#define LINE_MAX_BYTES	   256 /* more than inih takes */
#define BYTE_ORDER_MARK	   "\xef\xbb\xbf"
#define USER_ADDRESS_END   UINT64_C(0x7ff000000000)
#define USER_ADDRESS_BEGIN UINT64_C(0x10000)

struct parser {
	FILE *file;
	const char *path;
	struct config_cluster *config;
	struct ramp_err *err;
	struct ramp_err own; /* used if the caller gave none */
	int line;	     /* of the key that the handler sees */
	bool failed, have_cluster, have_arena;
	char section[RAMP_NODE_NAME_MAX + 16]; /* the last one seen */
	unsigned seen;			       /* keys of this section, by bit */
	bool voter_given[CONFIG_NODES_MAX];
};

static int config_refuse(struct parser *p, int line, const char *reason, const char *what)
{
	if (!p->failed)
		ramp_err_set(p->err, EINVAL, "%s:%d: %s%s%s%s", p->path, line, reason,
			     what ? " \"" : "", what ? what : "", what ? "\"" : "");
	p->failed = true;
	return 0;
}

bool config_name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > RAMP_NODE_NAME_MAX || name[0] == '.')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
			return false;
	return true;
}

bool config_address_ok(const char *address)
{
	const char *colon = strrchr(address, ':');
	char *end;
	unsigned long port;

	if (!colon || colon == address || strlen(address) > CONFIG_ADDRESS_MAX)
		return false;
	if (address[0] == '[' ? colon[-1] != ']' || colon - address < 4
			      : memchr(address, ':', (size_t)(colon - address)) != NULL)
		return false;
	for (const char *c = address; *c; c++)
		if (isspace((unsigned char)*c) || iscntrl((unsigned char)*c) || *c == '/')
			return false;
	if (!isdigit((unsigned char)colon[1]))
		return false;
	port = strtoul(colon + 1, &end, 10);
	return *end == 0 && port >= 1 && port <= 65535;
}

/* Marks key number `bit` of the section as seen; false if the section has it twice. */
static bool first_time(struct parser *p, unsigned bit, const char *key)
{
	if (p->seen & (1u << bit)) {
		config_refuse(p, p->line, "given twice in this section:", key);
		return false;
	}
	p->seen |= 1u << bit;
	return true;
}

static int parse_arena(struct parser *p, const char *value)
{
	char *colon;
	uint64_t addr, len;

	errno = 0;
	addr = strtoull(value, &colon, 0);
	if (errno || colon == value || *colon != ':' || size_parse(colon + 1, &len))
		return config_refuse(p, p->line, "arena is ADDRESS:SIZE, not", value);
	if (addr % RAMP_EXTENT_MIN || len % RAMP_EXTENT_MIN)
		return config_refuse(p, p->line,
				     "arena's address and size must be multiples of 64M:", value);
	if (len == 0)
		return config_refuse(p, p->line, "arena is empty:", value);
	if (addr < USER_ADDRESS_BEGIN || addr >= USER_ADDRESS_END || len > USER_ADDRESS_END - addr)
		return config_refuse(p, p->line,
				     "arena is outside of what a program can map:", value);
	p->config->arena_addr = addr;
	p->config->arena_len = len;
	return 1;
}

static int parse_arena_user_max(struct parser *p, const char *value)
{
	if (size_parse(value, &p->config->arena_user_max))
		return config_refuse(p, p->line, "not a size like 512M or 8G:", value);
	if (p->config->arena_user_max < RAMP_EXTENT_MIN)
		return config_refuse(
			p, p->line, "arena-user-max is less than 64M, which is one extent:", value);
	return 1;
}

static int parse_cluster(struct parser *p, const char *key, const char *value)
{
	if (strcmp(key, "name") == 0) {
		if (!first_time(p, 0, key))
			return 0;
		if (!config_name_ok(value))
			return config_refuse(p, p->line, "not a cluster's name:", value);
		snprintf(p->config->name, sizeof(p->config->name), "%s", value);
		return 1;
	}
	if (strcmp(key, "arena") == 0)
		return first_time(p, 1, key) && parse_arena(p, value);
	if (strcmp(key, "arena-user-max") == 0)
		return first_time(p, 2, key) && parse_arena_user_max(p, value);
	return config_refuse(p, p->line, "unknown key in [cluster]:", key);
}

static int parse_address(struct parser *p, struct config_node *node, const char *value)
{
	if (!config_address_ok(value))
		return config_refuse(p, p->line, "address is HOST:PORT, not", value);
	for (size_t i = 0; i + 1 < p->config->n_nodes; i++)
		if (strcmp(p->config->nodes[i].address, value) == 0)
			return config_refuse(p, p->line, "another node has this address:", value);
	snprintf(node->address, sizeof(node->address), "%s", value);
	return 1;
}

static int parse_streams(struct parser *p, struct config_node *node, const char *value)
{
	unsigned n = 0;

	if (strcmp(value, "auto") != 0) {
		if (value[0] < '1' || value[0] > '0' + CONFIG_STREAMS_MAX || value[1])
			return config_refuse(p, p->line, "streams is auto or 1 to 8, not", value);
		n = (unsigned)(value[0] - '0');
	}
	node->streams = n;
	return 1;
}

static int parse_node(struct parser *p, const char *key, const char *value)
{
	struct config_node *node = &p->config->nodes[p->config->n_nodes - 1];

	if (strcmp(key, "address") == 0)
		return first_time(p, 0, key) && parse_address(p, node, value);
	if (strcmp(key, "capacity") == 0) {
		if (!first_time(p, 1, key))
			return 0;
		if (size_parse(value, &node->capacity_bytes))
			return config_refuse(p, p->line, "not a size like 512M or 8G:", value);
		if (node->capacity_bytes < CONFIG_CAPACITY_MIN)
			return config_refuse(p, p->line, "capacity is less than 16M:", value);
		return 1;
	}
	if (strcmp(key, "transport") == 0) {
		static const char *const names[] = {"auto", "verbs", "tcp"};

		if (!first_time(p, 2, key))
			return 0;
		for (unsigned i = 0; i < 3; i++)
			if (strcmp(value, names[i]) == 0) {
				node->transport = (enum config_transport)i;
				return 1;
			}
		return config_refuse(p, p->line, "transport is auto, verbs or tcp, not", value);
	}
	if (strcmp(key, "streams") == 0)
		return first_time(p, 4, key) && parse_streams(p, node, value);
	if (strcmp(key, "voter") == 0) {
		if (!first_time(p, 3, key))
			return 0;
		if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
			return config_refuse(p, p->line, "voter is yes or no, not", value);
		node->voter = value[0] == 'y';
		p->voter_given[p->config->n_nodes - 1] = true;
		return 1;
	}
	return config_refuse(p, p->line, "unknown key in a [node] section:", key);
}

/* Checks that a node's section is complete, when the next one begins or the file ends. */
static int end_section(struct parser *p)
{
	const struct config_node *node;

	if (strncmp(p->section, "node ", 5) != 0)
		return 1;
	node = &p->config->nodes[p->config->n_nodes - 1];
	if (!node->address[0])
		return config_refuse(p, node->line, "this node has no address:", node->name);
	if (!node->capacity_bytes)
		return config_refuse(p, node->line, "this node has no capacity:", node->name);
	return 1;
}

static int begin_node(struct parser *p, const char *name)
{
	struct config_cluster *c = p->config;

	while (*name == ' ' || *name == '\t')
		name++;
	if (!config_name_ok(name))
		return config_refuse(p, p->line, "not a node's name:", name);
	if (config_find(c, name))
		return config_refuse(p, p->line, "two sections of one node:", name);
	if (c->n_nodes == CONFIG_NODES_MAX)
		return config_refuse(p, p->line, "more than 64 nodes", NULL);
	c->nodes[c->n_nodes] = (struct config_node){.line = p->line};
	snprintf(c->nodes[c->n_nodes].name, sizeof(c->nodes[0].name), "%.*s", RAMP_NODE_NAME_MAX,
		 name);
	c->n_nodes++;
	return 1;
}

static int begin_section(struct parser *p, const char *section)
{
	if (!end_section(p))
		return 0;
	if (strlen(section) >= sizeof(p->section))
		return config_refuse(p, p->line, "this section's name is too long:", section);
	snprintf(p->section, sizeof(p->section), "%s", section);
	p->seen = 0;
	if (strncmp(section, "node ", 5) == 0)
		return begin_node(p, section + 5);
	if (strcmp(section, "cluster") != 0)
		return config_refuse(p, p->line, "unknown section:", section);
	if (p->have_cluster)
		return config_refuse(p, p->line, "a second [cluster] section", NULL);
	p->have_cluster = true;
	return 1;
}

static int on_key(void *arg, const char *section, const char *key, const char *value)
{
	struct parser *p = arg;

	if (p->failed)
		return 0;
	if (!section[0])
		return config_refuse(p, p->line, "a key before the first section:", key);
	if (strcmp(section, "cluster") == 0)
		return parse_cluster(p, key, value);
	return parse_node(p, key, value);
}

/* Notes a section when its line is read: inih itself does not report one that has no keys. */
static int see_section(struct parser *p, const char *line)
{
	char name[LINE_MAX_BYTES];
	const char *end;

	/* Some editors put it before the first line; inih passes over it, too. */
	if (p->line == 1 && strncmp(line, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
		line += strlen(BYTE_ORDER_MARK);
	while (isspace((unsigned char)*line))
		line++;
	end = *line == '[' ? strchr(line, ']') : NULL;
	if (!end)
		return 1;
	snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
	return begin_section(p, name);
}

/* The reader for inih: counts lines, and refuses a line that inih would cut, and bytes that are no
   text. */
static char *read_line(char *line, int size, void *arg)
{
	struct parser *p = arg;
	char *got = fgets(line, size, p->file);

	if (!got)
		return NULL;
	p->line++;
	if (!strchr(line, '\n') && !feof(p->file)) {
		config_refuse(p, p->line, "this line is too long", NULL);
		return NULL;
	}
	for (const char *c = line; *c; c++)
		if (iscntrl((unsigned char)*c) && !isspace((unsigned char)*c)) {
			config_refuse(p, p->line, "this is not text", NULL);
			return NULL;
		}
	return see_section(p, line) ? got : NULL;
}

static int config_finish(struct parser *p)
{
	struct config_cluster *c = p->config;
	size_t voters = 0;
	int last = p->line > 0 ? p->line : 1;

	if (!end_section(p))
		return 0;
	if (!p->have_cluster)
		return config_refuse(p, last, "there is no [cluster] section", NULL);
	if (!c->name[0])
		return config_refuse(p, last, "the cluster has no name", NULL);
	if (c->n_nodes == 0)
		return config_refuse(p, last, "there is no [node] section", NULL);
	for (size_t i = 0; i < c->n_nodes; i++) {
		if (!p->voter_given[i])
			c->nodes[i].voter = i < CONFIG_VOTERS_DEFAULT;
		voters += c->nodes[i].voter;
	}
	if (voters == 0)
		return config_refuse(p, last, "no node is a voter", NULL);
	return 1;
}

/* Closes `file`; `code`: errno of its opening, where it is NULL. */
static int config_read_stream(FILE *file, int code, const char *path, struct config_cluster *config,
			      struct ramp_err *err)
{
	struct parser p = {.path = path, .config = config, .file = file};
	int rc;

	p.err = err ? err : &p.own;
	*config = (struct config_cluster){.arena_addr = CONFIG_ARENA_ADDR,
					  .arena_len = CONFIG_ARENA_LEN};
	if (!file)
		return ramp_err_sys(err, code, "%s", path);
	config->nodes = calloc(CONFIG_NODES_MAX, sizeof(*config->nodes));
	if (!config->nodes) {
		fclose(file);
		return ramp_err_sys(err, ENOMEM, "%s", path);
	}
	rc = ini_parse_stream(read_line, &p, on_key, &p);
	if (ferror(p.file) && !p.failed)
		config_refuse(&p, p.line + 1, "cannot be read", NULL);
	else if (rc > 0 && !p.failed)
		config_refuse(&p, rc, "neither a [section] nor KEY=VALUE", NULL);
	else if (rc < 0 && !p.failed)
		config_refuse(&p, p.line, "no memory", NULL);
	if (!p.failed)
		config_finish(&p);
	fclose(file);
	if (!p.failed)
		return 0;
	config_free(config);
	return -EINVAL;
}

int config_read(const char *path, struct config_cluster *config, struct ramp_err *err)
{
	FILE *file = fopen(path, "re");

	return config_read_stream(file, errno, path, config, err);
}

int config_parse(const char *text, const char *name, struct config_cluster *config,
		 struct ramp_err *err)
{
	FILE *file = fmemopen((char *)(uintptr_t)text, strlen(text), "r");

	return config_read_stream(file, errno, name, config, err);
}

void config_free(struct config_cluster *config)
{
	free(config->nodes);
	config->nodes = NULL;
	config->n_nodes = 0;
}

const struct config_node *config_find(const struct config_cluster *config, const char *name)
{
	for (size_t i = 0; i < config->n_nodes; i++)
		if (strcmp(config->nodes[i].name, name) == 0)
			return &config->nodes[i];
	return NULL;
}

/* Whether HOST:PORT is 0.0.0.0 or [::], in any spelling. */
static bool is_wildcard(const char *address)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
	char host[RAMP_ADDRESS_MAX + 1];
	struct addrinfo *found;
	bool is = false;

	snprintf(host, sizeof(host), "%s", address + (address[0] == '['));
	*strrchr(host, ':') = 0;
	if (address[0] == '[')
		host[strlen(host) - 1] = 0;
	if (getaddrinfo(host, NULL, &hints, &found))
		return false;
	if (found->ai_family == AF_INET)
		is = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr.s_addr == INADDR_ANY;
	else if (found->ai_family == AF_INET6)
		is = IN6_IS_ADDR_UNSPECIFIED(
			&((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_addr);
	freeaddrinfo(found);
	return is;
}

void config_doubts(const struct config_node *node, bool here, void (*say)(const char *line))
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	char line[CONFIG_ADDRESS_MAX + 256];

	if (is_wildcard(node->address)) {
		snprintf(
			line, sizeof(line),
			"node %s: address=%s: other nodes can't reach it there: give an address of "
			"that machine",
			node->name, node->address);
		say(line);
	}
	if (here && node->capacity_bytes > memory) {
		snprintf(line, sizeof(line),
			 "node %s: capacity=%" PRIu64
			 "M is more than this machine's memory, %" PRIu64
			 "M: it runs out of memory, and processes are killed, before the store is "
			 "full",
			 node->name, node->capacity_bytes >> 20, memory >> 20);
		say(line);
	}
}

char *config_canonical(const struct config_cluster *config)
{
	static const char *const transports[] = {"auto", "verbs", "tcp"};
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "[cluster]\nname=%s\narena=0x%" PRIx64 ":%" PRIu64 "\n", config->name,
		config->arena_addr, config->arena_len);
	/* A default is not printed: the ids of clusters without it stay as they are. */
	if (config->arena_user_max)
		fprintf(f, "arena-user-max=%" PRIu64 "\n", config->arena_user_max);
	for (size_t i = 0; i < config->n_nodes; i++) {
		const struct config_node *n = &config->nodes[i];

		fprintf(f, "[node %s]\naddress=%s\ncapacity=%" PRIu64 "\ntransport=%s\nvoter=%s\n",
			n->name, n->address, n->capacity_bytes, transports[n->transport],
			n->voter ? "yes" : "no");
		/* Not the default: clusters that were made before it keep their id. */
		if (n->streams)
			fprintf(f, "streams=%u\n", n->streams);
	}
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
