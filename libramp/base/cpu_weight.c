#include "cpu_weight.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define GROUP "/proc/self/autogroup"

#define OURS "RAMPFS_LEADS_ITS_SESSION"

static int wanted_nice = CPU_WEIGHT_NICE;
static int usual; /* the session's nice value while nothing moves */
static bool ours; /* whether the session is the node's own */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int moves; /* protected by lock */

void cpu_weight_session(void)
{
	if (getsid(0) == getpid())
		setenv(OURS, "1", 1);
	else
		unsetenv(OURS);
}

static int group_nice(void)
{
	char text[64];
	int fd = open(GROUP, O_RDONLY | O_CLOEXEC), nice = 0;
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return sscanf(text, "/autogroup-%*d nice %d", &nice) == 1 ? nice : 0;
}

static void set_group_nice(int nice)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", nice);
	int fd = open(GROUP, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, text, (size_t)len);
	close(fd);
}

void cpu_weight_set(int nice)
{
	wanted_nice = nice;
	ours = getenv(OURS) != NULL;
	usual = group_nice();
	if (ours && usual == nice && nice < 0) {
		usual = 0;
		set_group_nice(usual);
	}
}

void cpu_weight_thread(bool answers)
{
	int nice = answers && wanted_nice > 0 ? 0 : wanted_nice;

	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice);
}

void cpu_weight_group(bool move)
{
	pthread_mutex_lock(&lock);
	moves += move ? 1 : -1;
	if (ours && wanted_nice < usual && moves == (move ? 1 : 0))
		set_group_nice(move ? wanted_nice : usual);
	pthread_mutex_unlock(&lock);
}
