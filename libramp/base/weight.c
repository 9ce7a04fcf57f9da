#include "weight.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GROUP "/proc/self/autogroup"

static int weight_nice = WEIGHT_NICE;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int moves; /* under lock, as all below */
static int usual; /* the session's nice while none is under way */
static bool ours; /* the session */
static bool looked;

void weight_set(int nice)
{
	weight_nice = nice;
}

void weight_thread(void)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), weight_nice);
}

/* Led by this program: by the daemon, or by the keeper that has started it. */
static bool session_is_ours(void)
{
	char name[64], leader[PATH_MAX], own[PATH_MAX];
	ssize_t n, m;

	snprintf(name, sizeof(name), "/proc/%d/exe", (int)getsid(0));
	n = readlink(name, leader, sizeof(leader));
	m = readlink("/proc/self/exe", own, sizeof(own));
	return n > 0 && n == m && memcmp(leader, own, (size_t)n) == 0;
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

/* A former daemon may have been killed in the middle of a move. */
static void look(void)
{
	ours = session_is_ours();
	usual = group_nice();
	if (usual == weight_nice)
		usual = 0;
	looked = true;
}

void weight_group(bool move)
{
	pthread_mutex_lock(&lock);
	if (!looked)
		look();
	moves += move ? 1 : -1;
	if (ours && moves == (move ? 1 : 0))
		set_group_nice(move ? weight_nice : usual);
	pthread_mutex_unlock(&lock);
}
