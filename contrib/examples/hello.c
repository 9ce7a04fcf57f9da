/*
 * A segment is made and filled, and moves to a node, where a receiver waits for it.
 *   cc hello.c -o hello $(pkg-config --cflags --libs libramp)
 *   ./hello NODE
 * On that node, before: ./hello --receive. RAMPFS_MOUNT names the mount where there are several.
 */
#include <ramp.h>
#include <stdio.h>
#include <string.h>

static int failed(void)
{
	fprintf(stderr, "hello: %s\n", ramp_error());
	return 1;
}

static int send_to(struct ramp_cluster *ramp, const char *node)
{
	struct ramp_alloc what = {.name = "hello", .size = 1 << 20};
	struct ramp_segment *segment;
	char *text;

	if (ramp_alloc(ramp, &what, &segment))
		return failed();
	text = ramp_data(segment);
	sprintf(text + 4096, "made on node %s", ramp_node(ramp));
	*(char **)text =
		text + 4096; /* a pointer, which stays right: the address is the same there */
	if (ramp_migrate(segment, node, NULL))
		return failed();
	ramp_put(segment);
	return 0;
}

static int receive(struct ramp_cluster *ramp)
{
	struct ramp_watch_options options = {.pattern = "hello", .receive = 1};
	struct ramp_segment *segment;
	struct ramp_watch *watch;

	if (ramp_watch_begin(ramp, &options, &watch))
		return failed();
	printf("node %s waits\n", ramp_node(ramp));
	fflush(stdout);
	if (ramp_receive(watch, -1, 0, &segment))
		return failed();
	printf("%s, now on node %s\n", *(char **)ramp_data(segment), ramp_node(ramp));
	ramp_put(segment);
	ramp_watch_end(watch);
	return ramp_free(ramp, NULL, "hello") ? failed() : 0;
}

int main(int argc, char **argv)
{
	struct ramp_cluster *ramp;
	int status;

	if (argc != 2)
		return fprintf(stderr, "Usage: hello NODE | hello --receive\n"), 2;
	if (ramp_open(NULL, &ramp))
		return failed();
	status = strcmp(argv[1], "--receive") ? send_to(ramp, argv[1]) : receive(ramp);
	ramp_close(ramp);
	return status;
}
