#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

atomic_ullong heap_epoch = 1;

static pthread_mutex_t process_opened = PTHREAD_MUTEX_INITIALIZER;
static struct heap_process *process_first;
static uint64_t process_count;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

/* ---- errors --------------------------------------------------------------------------------- */

int heap_error(struct ramp_heap_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -code;
}

void process_misuse(const struct heap_process *p, const char *fmt, ...)
{
	char text[RAMP_HEAP_ERR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (p->options.misuse) {
		p->options.misuse(p->options.arg, text);
		return;
	}
	fprintf(stderr, "ramp_heap: %s\n", text);
	abort();
}

/* ---- the list ------------------------------------------------------------------------------- */

static void process_before_fork(void)
{
	pthread_mutex_lock(&process_opened);
}

static void process_after_fork(void)
{
	pthread_mutex_unlock(&process_opened);
}

/* The child shares the memory, and must not take part: it has no heap open. A lock that
   a thread of its parent held is locked for ever, so all of it is left. */
static void process_in_child(void)
{
	process_first = NULL;
	atomic_fetch_add(&heap_epoch, 1);
	pthread_mutex_unlock(&process_opened);
}

static void process_begin(void)
{
	pthread_atfork(process_before_fork, process_after_fork, process_in_child);
}

struct heap_process *process_new(struct ramp_heap *heap, uint64_t max,
				 const struct ramp_heap_options *options)
{
	struct heap_process *p = calloc(1, sizeof(*p));

	pthread_once(&process_once, process_begin);
	if (!p)
		return NULL;
	p->heap = heap;
	p->max = max;
	if (options)
		p->options = *options;
	pthread_mutex_init(&p->granules, NULL);
	pthread_mutex_init(&p->caches, NULL);
	for (unsigned int i = 0; i < HEAP_CLASSES; i++)
		pthread_mutex_init(&p->class[i], NULL);
	return p;
}

void process_delete(struct heap_process *p)
{
	pthread_mutex_destroy(&p->granules);
	pthread_mutex_destroy(&p->caches);
	for (unsigned int i = 0; i < HEAP_CLASSES; i++)
		pthread_mutex_destroy(&p->class[i]);
	free(p->idle);
	free(p);
}

void process_add(struct heap_process *p)
{
	pthread_mutex_lock(&process_opened);
	p->number = ++process_count;
	p->next = process_first;
	process_first = p;
	atomic_fetch_add(&heap_epoch, 1);
	pthread_mutex_unlock(&process_opened);
}

struct heap_process *process_remove(const struct ramp_heap *heap)
{
	struct heap_process *p = NULL;

	pthread_mutex_lock(&process_opened);
	for (struct heap_process **at = &process_first; *at; at = &(*at)->next) {
		if ((*at)->heap != heap)
			continue;
		p = *at;
		*at = p->next;
		atomic_fetch_add(&heap_epoch, 1);
		break;
	}
	pthread_mutex_unlock(&process_opened);
	return p;
}

struct heap_process *process_find(const struct ramp_heap *heap)
{
	struct heap_process *p;

	pthread_mutex_lock(&process_opened);
	for (p = process_first; p && p->heap != heap; p = p->next)
		;
	pthread_mutex_unlock(&process_opened);
	return p;
}

static bool process_overlaps(const struct heap_process *p, const void *address, uint64_t length)
{
	uintptr_t at = (uintptr_t)address, base = (uintptr_t)p->heap;

	return at >= base ? at - base < p->max : base - at < length;
}

struct heap_process *process_at(const void *address, uint64_t length)
{
	struct heap_process *p;

	pthread_mutex_lock(&process_opened);
	for (p = process_first; p && !process_overlaps(p, address, length); p = p->next)
		;
	pthread_mutex_unlock(&process_opened);
	return p;
}

bool process_in_call(const void *address, uint64_t length)
{
	bool in_call = false;

	pthread_mutex_lock(&process_opened);
	for (struct heap_process *p = process_first; p && !in_call; p = p->next)
		in_call = process_overlaps(p, address, length) && atomic_load(&p->calls);
	pthread_mutex_unlock(&process_opened);
	return in_call;
}

struct heap_process *process_hold(uint64_t number)
{
	struct heap_process *p;

	pthread_mutex_lock(&process_opened);
	for (p = process_first; p && p->number != number; p = p->next)
		;
	return p;
}

void process_let_go(void)
{
	pthread_mutex_unlock(&process_opened);
}

int process_keep_idle(struct heap_process *p, struct heap_cache *cache)
{
	if (p->idle_count == p->idle_room) {
		uint32_t room = p->idle_room ? 2 * p->idle_room : 16;
		struct heap_cache **more = realloc(p->idle, room * sizeof(struct heap_cache *));

		if (!more)
			return -ENOMEM;
		p->idle = more;
		p->idle_room = room;
	}
	p->idle[p->idle_count++] = cache;
	return 0;
}

/* ---- which process has a heap open ---------------------------------------------------------- */

/* Reads when the process started, in ticks since the machine did, and whether it is a zombie. Returns 0: there is
   no such process. */
static uint64_t process_started(uint64_t pid, char *state)
{
	char path[64], line[1024], *at;
	unsigned long long started = 0;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = 0;
	at = strrchr(line, ')'); /* the name may have any character in it */
	if (!at || sscanf(at + 1,
			  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
			  "%*d %llu",
			  state, &started) != 2)
		return 0;
	return started;
}

void process_self(struct heap_owner *owner)
{
	char text[37] = "", state, hex[33];
	struct stat st;
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned int n = 0;

	*owner = (struct heap_owner){.pid = (uint64_t)getpid()};
	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = 0;
		fclose(f);
	}
	for (const char *c = text; *c && n < 32; c++) {
		if (*c != '-')
			hex[n++] = *c;
	}
	if (n == 32) {
		hex[32] = 0;
		owner->boot[1] = strtoull(hex + 16, NULL, 16);
		hex[16] = 0;
		owner->boot[0] = strtoull(hex, NULL, 16);
	}
	if (stat("/proc/self/ns/pid", &st) == 0)
		owner->pid_space = st.st_ino;
	owner->started = process_started(owner->pid, &state);
}

bool process_is_another(const struct heap_owner *owner)
{
	struct heap_owner self;
	uint64_t started;
	char state = 0;

	process_self(&self);
	/* A pid says nothing on another machine, after a reboot, or among other pids. */
	if (!owner->pid || owner->boot[0] != self.boot[0] || owner->boot[1] != self.boot[1] ||
	    owner->pid_space != self.pid_space)
		return false;
	if (owner->pid == self.pid && owner->started == self.started)
		return false;
	started = process_started(owner->pid, &state);
	return started && started == owner->started && state != 'Z' && state != 'X';
}
