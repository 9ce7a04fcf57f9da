/*
 * The daemon: opens every floor, runs the control loop, and closes every floor again.
 */
#include "daemon.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/cpu_weight.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/statedir.h"
#include "ending.h"
#include "floors.h"
#include "transport/transport.h"

#define DESCRIPTORS 1048576

/* Raises the limit of descriptors: five for each program, two for each segment, as many as the
   kernel lets a process have. */
static void raise_descriptors(void)
{
	struct rlimit limit = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};

	if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Ignores signals that must not end the daemon. The keeper says when to end (mount_config.ended). A
   broken pipe and a limit that could not be lifted are an errno to us. A lease that another process
   breaks (fanotify does) is given up at once. */
static void ignore_signals(void)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGIO, SIG_IGN);
}

static enum transport_choice choice_of(const struct config_node *node)
{
	switch (node->transport) {
	case CONFIG_TRANSPORT_VERBS:
		return TRANSPORT_VERBS;
	case CONFIG_TRANSPORT_TCP:
		return TRANSPORT_TCP;
	default:
		return TRANSPORT_AUTO;
	}
}

static int find_own_node(const struct statedir *dir, const struct config_node **self,
			 struct ramp_err *err)
{
	*self = config_find(&dir->config, dir->node);
	if (!*self)
		return ramp_err_set(err, EINVAL, "%s/cluster.conf: has no [node %s]", dir->path,
				    dir->node);
	return 0;
}

static int open_and_run(const struct daemon_config *config, struct floors *floors,
			struct ending *ending, struct ramp_err *err)
{
	const struct config_node *self;
	struct floors_config fc = {.daemon = config, .ended = ending_begin, .arg = ending};
	int rc = find_own_node(config->dir, &self, err);

	if (rc)
		return rc;
	fc.capacity_bytes = self->capacity_bytes;
	fc.transport = choice_of(self);
	fc.streams = self->streams;
	rc = floors_open(&fc, floors, err);
	if (rc)
		return rc;
	ending_init(ending, floors);
	rc = floors_start(floors, err);
	if (rc)
		return rc;
	log_info("node %s of cluster %s serves %s", config->dir->node, config->dir->config.name,
		 config->mountpoint);
	loop_run(floors->loop);
	return 0;
}

int daemon_run(const struct daemon_config *config, struct ramp_err *err)
{
	struct floors floors = {0};
	struct ending ending; /* its timer is closed with the loop */
	int rc;

	ignore_signals();
	raise_descriptors();
	/* The process that executed us may have page faults (time_slice.c), and a slice for them. */
	kernel_slice_set(0, 0);
	cpu_weight_set((int)config->options->nice);
	rc = open_and_run(config, &floors, &ending, err);
	floors_close(&floors);
	return rc;
}
