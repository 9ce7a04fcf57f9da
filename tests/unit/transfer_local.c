/*
 * The doubles of programs.h and pull.h. A program is a flag: it has access or not. A pull copies
 * out of the source's file, where the world says that the source exports that key.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "memory/pages.h"
#include "transfer_world.h"

/* ---- programs -------------------------------------------------------------------------------- */

struct programs {
	struct programs_tools tools;
};

struct programs *double_programs_open(void)
{
	return calloc(1, sizeof(struct programs));
}

const struct programs_tools *double_programs_tools(struct programs *programs)
{
	return &programs->tools;
}

static struct local_program *program(struct seg *seg)
{
	for (int i = 0; i < ROWS; i++)
		if (world->rows[i].id == seg_id(seg))
			return &world->programs[world_self()][i];
	abort();
}

/* world->lock is held. */
static void grant(struct seg *seg)
{
	struct local_program *p = program(seg);
	long i = p - world->programs[world_self()];

	p->access = p->mapped;
	p->frozen = p->closed = false;
	for (ramp_node_t n = 1; n <= NODES; n++)
		if (n != world_self() && p->access && world->programs[n][i].access)
			world->double_access++;
}

int programs_may_move_since(struct programs *programs, struct seg *seg, uint64_t came_us,
			    struct ramp_err *err)
{
	bool unmovable;

	(void)programs;
	(void)came_us;
	world_lock();
	unmovable = program(seg)->unmovable;
	world_unlock();
	return unmovable ? ramp_err_set(err, EBUSY, "process 42 maps it") : 0;
}

int programs_prelook(struct programs *programs, struct seg *seg, struct ramp_err *err)
{
	(void)programs;
	(void)seg;
	(void)err;
	return 0;
}

void programs_prelook_many(struct programs *programs, struct prelook_one *ones, size_t n)
{
	atomic_fetch_add(&world->shared_looks, 1);
	for (size_t i = 0; i < n; i++)
		ones[i].rc = programs_prelook(programs, ones[i].seg, ones[i].err);
}

/*
 * Stores while a pre-copy reads: all new data; and of every 14 pages two are old when they are read. One of them is found
 * by the first look, and is new from then on; the other one is new at the freeze only. Of a large segment
 * the first look finds everything, so that another round is worth it; not in mode auto, which would go lazily.
 */
#define STORED_EVERY 14u
#define LARGE_PAGES  2000u

static atomic_uint *looks(ramp_segment_t id)
{
	for (int i = 0; i < ROWS; i++)
		if (world->rows[i].id == id)
			return &world->looks[i];
	abort();
}

/* Nothing is stored any more by then. */
static bool is_closed(ramp_segment_t id)
{
	bool closed = false;

	for (ramp_node_t n = 1; n <= NODES; n++)
		closed |= world->programs[n][looks(id) - world->looks].closed;
	return closed;
}

static bool is_old(ramp_segment_t id, uint64_t page)
{
	return (page % STORED_EVERY == 0 && atomic_load(looks(id)) == 0) ||
	       (page % STORED_EVERY == STORED_EVERY / 2 && !is_closed(id));
}

/* Where there was data when the watch began. */
static struct page_set *known(ramp_segment_t id)
{
	static struct page_set at_watch[ROWS];

	return &at_watch[looks(id) - world->looks];
}

/* The first pages of huge pages that were split. */
static struct page_set *split_of(ramp_segment_t id)
{
	static struct page_set split[ROWS];

	return &split[looks(id) - world->looks];
}

#define HUGE_PAGES (RAMP_HUGE_BYTES / RAMP_PAGE_BYTES)

/* Every so manyth page of the huge page that `page` is in was stored into; 0: none. */
static uint64_t every_of_huge(ramp_segment_t id, uint64_t page)
{
	if (!page_set_has(split_of(id), page - page % HUGE_PAGES))
		return 1;
	return atomic_load(&world->huge) == HUGE_THIN	? STORED_EVERY
	       : atomic_load(&world->huge) == HUGE_FLAT ? 1
							: 0;
}

static int add_stored_huge(ramp_segment_t id, const struct data_range *ranges, uint32_t count,
			   struct page_set *stored)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = ranges[i].offset / RAMP_PAGE_BYTES;
		uint64_t end = at + ranges[i].len / RAMP_PAGE_BYTES, every;

		if (page_set_fit(stored, end))
			return -ENOMEM;
		for (; at < end; at++) {
			every = every_of_huge(id, at);
			if (every && at % every == 0)
				page_set_add(stored, at, 1);
		}
	}
	return 0;
}

static int add_stored(ramp_segment_t id, const struct data_range *ranges, uint32_t count,
		      uint64_t first, uint64_t every, struct page_set *stored)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = ranges[i].offset / RAMP_PAGE_BYTES;
		uint64_t end = at + ranges[i].len / RAMP_PAGE_BYTES;

		if (page_set_fit(stored, end))
			return -ENOMEM;
		for (; at < end; at++)
			if (at % every == first || !page_set_has(known(id), at))
				page_set_add(stored, at, 1);
	}
	return 0;
}

static bool look_fails(enum where where)
{
	enum what what = fault_hit(POINT(where, 0));

	while (what == DO_DELAY && atomic_load(&world->hold))
		usleep(1000);
	return what == DO_DROP;
}

int programs_watch(struct programs *programs, struct seg *seg, const struct data_range *ranges,
		   uint32_t count, struct ramp_err *err)
{
	off_t data, hole = 0;

	(void)programs;
	(void)ranges;
	(void)count;
	if (look_fails(AT_WATCH))
		return ramp_err_set(err, EBUSY, "process 42 has an io_uring");
	atomic_fetch_add(&world->watches, 1);
	atomic_store(looks(seg_id(seg)), 0);
	page_set_clear(known(seg_id(seg)));
	page_set_clear(split_of(seg_id(seg)));
	/* Not in `ranges`, perhaps: it came after the list was made. */
	while ((data = lseek(seg_fd(seg), hole, SEEK_DATA)) >= 0) {
		hole = lseek(seg_fd(seg), data, SEEK_HOLE);
		if (page_set_fit(known(seg_id(seg)), page_count((uint64_t)hole)))
			return ramp_err_sys(err, ENOMEM, "a watch");
		page_set_add(known(seg_id(seg)), (uint64_t)data / RAMP_PAGE_BYTES,
			     page_count((uint64_t)(hole - data)));
	}
	return 0;
}

int programs_stored(struct programs *programs, struct seg *seg, const struct data_range *ranges,
		    uint32_t count, struct page_set *stored, struct ramp_err *err)
{
	bool all = seg_size(seg) > LARGE_PAGES * RAMP_PAGE_BYTES &&
		   atomic_load(&world->mode) != TRANSFER_AUTO &&
		   atomic_load(looks(seg_id(seg))) == 0;

	(void)programs;
	(void)err;
	if (look_fails(AT_LOOK))
		return ramp_err_set(err, EBUSY, "process 42 has an io_uring");
	atomic_fetch_add(looks(seg_id(seg)), 1);
	if (atomic_load(&world->huge))
		return add_stored_huge(seg_id(seg), ranges, count, stored);
	return add_stored(seg_id(seg), ranges, count, 0, all ? 1 : STORED_EVERY, stored);
}

int programs_stored_last(struct programs *programs, struct seg *seg,
			 const struct data_range *ranges, uint32_t count, struct page_set *stored)
{
	(void)programs;
	if (fault_hit(POINT(AT_LAST, 0)) == DO_DROP)
		return -ENOMEM;
	return add_stored(seg_id(seg), ranges, count, STORED_EVERY / 2, STORED_EVERY, stored);
}

const char *programs_stored_all(struct programs *programs, struct seg *seg)
{
	(void)programs;
	(void)seg;
	return atomic_load(&world->all_count) ? "programs have mapped it" : NULL;
}

bool programs_use(struct programs *programs, struct seg *seg)
{
	bool used;

	(void)programs;
	world_lock();
	used = program(seg)->mapped;
	world_unlock();
	return used;
}

static uint64_t page_of_next_huge(uint64_t page)
{
	return (page + HUGE_PAGES - 1) / HUGE_PAGES * HUGE_PAGES;
}

uint32_t programs_split(struct programs *programs, struct seg *seg, const struct page_set *before,
			const struct page_set *stored)
{
	uint64_t already = page_set_count(split_of(seg_id(seg)));

	if (before)
		return 0;
	atomic_fetch_add(&world->split_all, 1);
	return programs_huge(programs, seg, stored, split_of(seg_id(seg)))
		       ? 0
		       : (uint32_t)(page_set_count(split_of(seg_id(seg))) - already);
}

int programs_huge(struct programs *programs, struct seg *seg, const struct page_set *stored,
		  struct page_set *huge)
{
	uint64_t at = 0, first, run;

	(void)programs;
	for (; atomic_load(&world->huge) && (run = page_set_next(stored, at, &first));
	     at = first + run)
		for (at = page_of_next_huge(first); at + HUGE_PAGES <= first + run;
		     at += HUGE_PAGES) {
			if (page_set_has(split_of(seg_id(seg)), at))
				continue;
			if (page_set_fit(huge, at + 1))
				return -ENOMEM;
			page_set_add(huge, at, 1);
		}
	return 0;
}

void programs_map_huge(struct programs *programs, struct seg *seg, uint64_t offset)
{
	(void)programs;
	(void)seg;
	(void)offset;
}

void programs_unwatch(struct programs *programs, struct seg *seg)
{
	(void)programs;
	atomic_fetch_sub(&world->watches, 1);
	page_set_free(known(seg_id(seg)));
}

int programs_revoke(struct programs *programs, struct seg *seg, uint32_t timeout_ms,
		    struct ramp_err *err)
{
	enum what what = fault_hit(POINT(AT_REVOKE, 0));

	(void)programs;
	(void)timeout_ms;
	if (what == DO_DROP)
		return ramp_err_set(err, EBUSY, "process 42 is stopped");
	while (what == DO_DELAY && atomic_load(&world->hold_revoke))
		usleep(1000);
	if (what == DO_DOUBLE)
		usleep(100000);
	world_lock();
	program(seg)->access = program(seg)->closed = false;
	program(seg)->frozen = true;
	world_unlock();
	return 0;
}

int programs_close_ahead(struct programs *programs, struct seg *seg, struct ramp_err *err)
{
	(void)programs;
	(void)seg;
	return look_fails(AT_AHEAD) ? ramp_err_set(err, EOPNOTSUPP,
						   "the agent of process 42 is too old to close it "
						   "to stores")
				    : 0;
}

int programs_close_stores(struct programs *programs, struct seg *seg, uint32_t timeout_ms,
			  struct ramp_err *err)
{
	(void)programs;
	(void)timeout_ms;
	if (look_fails(AT_CLOSE)) {
		world_lock();
		grant(seg);
		world_unlock();
		return ramp_err_set(err, EBUSY, "process 42 maps it and its agent does not answer");
	}
	world_lock();
	if (!program(seg)->frozen)
		abort();
	grant(seg);
	program(seg)->closed = true;
	world_unlock();
	return 0;
}

void programs_restore(struct programs *programs, struct seg *seg)
{
	(void)programs;
	world_lock();
	for (int i = 0; i < EXPORTS; i++)
		if (world->exports[i].used && world->exports[i].node == world_self() &&
		    world->exports[i].key.segment == seg_id(seg))
			world->keys_at_return++;
	grant(seg);
	world_unlock();
}

void programs_gone(struct programs *programs, struct seg *seg, const char *owner_node)
{
	(void)programs;
	(void)owner_node;
	world_lock();
	program(seg)->access = false;
	program(seg)->frozen = false;
	world_unlock();
}

/* Giving addresses back is tests/mount/moves/give_back.sh's: no story here asks for it. */
int programs_hold_attaches(struct programs *programs, ramp_segment_t id, struct ramp_err *err)
{
	(void)programs;
	(void)id;
	return ramp_err_set(err, EBUSY, "not here");
}

void programs_release_attaches(struct programs *programs, ramp_segment_t id)
{
	(void)programs;
	(void)id;
}

int programs_give_back(struct programs *programs, const struct programs_extent *extent,
		       struct ramp_err *err)
{
	(void)programs;
	(void)extent;
	return ramp_err_set(err, EBUSY, "not here");
}

void programs_keeper(struct seg *seg, char who[PROGRAMS_KEEPER])
{
	(void)seg;
	who[0] = 0;
}

/* No program subscribes here. */
void programs_announce(struct programs *programs, const struct programs_event *event)
{
	(void)programs;
	(void)event;
}

bool programs_wants_demand(struct programs *programs, const struct programs_event *coming)
{
	(void)programs;
	(void)coming;
	return false;
}

void programs_ask(struct programs *programs, const struct programs_event *event)
{
	(void)programs;
	(void)event;
}

unsigned programs_unanswered(struct programs *programs, ramp_segment_t id,
			     char name[PROGRAMS_KEEPER])
{
	(void)programs;
	(void)id;
	if (!atomic_load(&world->unanswered))
		return 0;
	snprintf(name, PROGRAMS_KEEPER, "process 42 (deaf)");
	return 1;
}

static programs_answered *answered;
static void *answered_arg;

void programs_set_answered(struct programs *programs, programs_answered *fn, void *arg)
{
	(void)programs;
	answered = fn;
	answered_arg = arg;
}

void double_programs_answered(ramp_segment_t id)
{
	answered(answered_arg, id);
}

void programs_back(struct programs *programs, struct seg *seg)
{
	(void)programs;
	if (atomic_load(&world->sessions_away))
		return;
	world_lock();
	grant(seg);
	world_unlock();
}

void programs_await(struct programs *programs, struct seg *seg, uint64_t until_ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (sched_getscheduler(0) != SCHED_OTHER)
		atomic_fetch_add(&world->hasty_waits, 1);
	if (!atomic_load(&world->sessions_away) ||
	    until_ms <= (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000)
		return;
	usleep(20000); /* the sessions have attached */
	atomic_store(&world->sessions_away, false);
	programs_back(programs, seg);
}

void programs_set_tools(struct programs *programs, const struct programs_tools *tools)
{
	programs->tools = *tools;
}

void tool_answer(struct tool_request *request, int result, const char *text)
{
	(void)text;
	request->answered(result);
}

void tool_step(struct tool_request *request, const char *node, uint64_t page, uint64_t at_ns,
	       const char *name)
{
	(void)request;
	(void)node;
	(void)page;
	(void)at_ns;
	(void)name;
}

void tool_held(struct tool_request *request, uint8_t step, uint32_t ms)
{
	(void)request;
	(void)step;
	(void)ms;
}

void tool_progress(struct tool_request *request, uint64_t done_pages, uint64_t all_pages,
		   const char *state)
{
	(void)request;
	(void)done_pages;
	(void)all_pages;
	(void)state;
}

/* ---- serving --------------------------------------------------------------------------------- */

int serve_grant(struct serve *serve, struct seg *seg, const struct tp_key *key, ramp_node_t reader,
		struct ramp_err *err)
{
	enum what what = fault_hit(POINT(AT_GRANT, 0));

	(void)serve;
	(void)seg;
	if (what == DO_DROP)
		return ramp_err_set(err, ENOMEM, "no mapping left");
	while (what == DO_DELAY && atomic_load(&world->hold))
		usleep(1000);
	world_lock();
	for (int i = 0; i < EXPORTS; i++) {
		if (world->exports[i].used && !(tp_key_equal(&world->exports[i].key, key) &&
						world->exports[i].node == world_self()))
			continue;
		world->exports[i].used = true;
		world->exports[i].node = world_self();
		world->exports[i].incarnation = world->nodes[world_self()].incarnation;
		world->exports[i].key = *key;
		world->exports[i].reader = reader;
		break;
	}
	world_unlock();
	return 0;
}

void serve_trace(struct serve *serve, const struct tp_key *key, struct trace *trace)
{
	(void)serve;
	(void)key;
	(void)trace;
}

void serve_revoke(struct serve *serve, const struct tp_key *key)
{
	(void)serve;
	world_lock();
	for (int i = 0; i < EXPORTS; i++)
		if (world->exports[i].used && world->exports[i].node == world_self() &&
		    tp_key_equal(&world->exports[i].key, key))
			world->exports[i].used = false;
	world_unlock();
}

/* ---- pulling --------------------------------------------------------------------------------- */

struct job {
	struct job *next;
	struct pull *pull;
	ramp_segment_t id;
	struct seg *seg; /* NULL: it was whole */
	struct pull_source source;
	uint64_t all;
	pthread_t thread;
	atomic_bool stop, over, done, prefetch_all;
};

struct pull {
	struct pull_config config;
	pthread_mutex_t lock; /* protects jobs */
	struct job *jobs;
};

int pull_open(const struct pull_config *config, struct pull **out, struct ramp_err *err)
{
	struct pull *pull = calloc(1, sizeof(*pull));

	(void)err;
	pull->config = *config;
	pthread_mutex_init(&pull->lock, NULL);
	*out = pull;
	return 0;
}

void pull_source_limit(struct pull *pull, ramp_node_t node, uint64_t bytes_s)
{
	(void)pull;
	(void)node;
	(void)bytes_s;
}

static bool exported(const struct pull_source *s)
{
	bool found = false;

	if (!atomic_load(&world->running[s->node]))
		return false;
	world_lock();
	for (int i = 0; i < EXPORTS && !found; i++)
		found = world->exports[i].used && world->exports[i].node == s->node &&
			world->exports[i].incarnation == s->incarnation &&
			world->exports[i].reader == world_self() &&
			tp_key_equal(&world->exports[i].key, &s->key);
	world_unlock();
	return found;
}

/* One page, if the source may be read and the page is there. */
static bool pull_page(struct job *job, uint64_t page)
{
	const off_t at = (off_t)(page * RAMP_PAGE_BYTES);
	char path[PATH_LEN], bytes[RAMP_PAGE_BYTES] = {0};
	ssize_t n = -1;
	off_t data;
	int fd;

	if (atomic_load(&world->pull_stopped) || !exported(&job->source))
		return false;
	world_path(job->source.node, seg_id(job->seg), path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = pread(fd, bytes, sizeof(bytes), at);
	/* In a round, unlike in a copy, programs store meanwhile. */
	if (job->source.rank == PULL_AHEAD && is_old(seg_id(job->seg), page))
		memset(bytes, 0xdd, sizeof(bytes));
	/* A hole stays one, and one that was made of a page that was read is cleared. */
	data = fd >= 0 ? lseek(fd, at, SEEK_DATA) : -1;
	if (n >= 0 && data >= 0 && data < at + (off_t)RAMP_PAGE_BYTES)
		n = pwrite(seg_fd(job->seg), bytes, (size_t)n, at);
	else if (n >= 0 && pages_old(job->seg))
		n = fallocate(seg_fd(job->seg), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
			      RAMP_PAGE_BYTES);
	if (fd >= 0)
		close(fd);
	return n >= 0;
}

/* Lets go of a whole segment. The thread that ends the job has the lock, and waits for this one. */
static void let_go(struct job *job)
{
	struct pull *pull = job->pull;

	while (!atomic_load(&job->stop)) {
		if (pthread_mutex_trylock(&pull->lock)) {
			usleep(100);
			continue;
		}
		seg_put(job->seg);
		job->seg = NULL;
		pthread_mutex_unlock(&pull->lock);
		return;
	}
}

static void at_half(void)
{
	enum what what = fault_hit(POINT(AT_PULL, 0));

	while (what == DO_DELAY && atomic_load(&world->hold))
		usleep(1000);
}

static void *pull_all(void *arg)
{
	struct job *job = arg;
	uint64_t page, count = 0, lost = 0;

	while (!atomic_load(&job->stop) && pages_missing(job->seg) > pages_lost(job->seg)) {
		if (atomic_load(&job->over))
			pages_lose_all(job->seg);
		if (!job->source.prefetch && !atomic_load(&job->prefetch_all)) {
			usleep(500); /* no program here touches a page */
			continue;
		}
		page = pages_next_remote(job->seg, 0);
		if (page == UINT64_MAX || !pages_claim(job->seg, page, 1))
			continue;
		if (pull_page(job, page)) {
			pages_arrive(job->seg, page, 1);
			if (++count == job->all / 2)
				at_half();
		} else {
			pages_give_back(job->seg, page, 1);
			usleep(1000);
		}
	}
	lost = pages_lost(job->seg);
	if (fault_hit(POINT(AT_END, 0)) == DO_DELAY)
		while (atomic_load(&world->hold) && !atomic_load(&job->stop))
			usleep(1000);
	if (!atomic_load(&job->stop))
		job->pull->config.finished(
			job->pull->config.arg, job->id,
			&(struct pull_figures){.all = job->all, .prefetch = count, .lost = lost});
	atomic_store(&job->done, true);
	if (pages_missing(job->seg) == 0)
		let_go(job);
	return NULL;
}

static struct job *job_find(struct pull *pull, ramp_segment_t id)
{
	struct job *job = pull->jobs;

	while (job && job->id != id)
		job = job->next;
	return job;
}

static void job_end(struct pull *pull, struct job *job)
{
	struct job **at = &pull->jobs;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	atomic_store(&job->stop, true);
	pthread_join(job->thread, NULL);
	if (job->seg)
		seg_put(job->seg);
	free(job);
}

void pull_expect(struct pull *pull, ramp_node_t node)
{
	(void)pull;
	(void)node;
}

int pull_begin(struct pull *pull, struct seg *seg, const struct pull_source *source,
	       struct ramp_err *err)
{
	struct job *job = calloc(1, sizeof(*job)), *old;

	(void)err;
	if (fault_hit(POINT(AT_BEGIN, 0)) == DO_DELAY)
		while (atomic_load(&world->hold))
			usleep(1000);
	job->pull = pull;
	job->id = seg_id(seg);
	job->seg = seg_get(seg);
	job->source = *source;
	job->all = pages_missing(seg);
	pthread_mutex_lock(&pull->lock);
	old = job_find(pull, seg_id(seg));
	if (old)
		job_end(pull, old);
	job->next = pull->jobs;
	pull->jobs = job;
	pthread_create(&job->thread, NULL, pull_all, job);
	pthread_mutex_unlock(&pull->lock);
	return 0;
}

void pull_end(struct pull *pull, ramp_segment_t id)
{
	struct job *job;

	pthread_mutex_lock(&pull->lock);
	job = job_find(pull, id);
	if (job)
		job_end(pull, job);
	pthread_mutex_unlock(&pull->lock);
}

void pull_watch_lost(struct pull *pull, struct seg *seg)
{
	(void)pull;
	if (pages_lost(seg))
		atomic_fetch_add(&world->lost_watched, 1);
}

void pull_prefetch_all(struct pull *pull, ramp_segment_t id)
{
	struct job *job;

	pthread_mutex_lock(&pull->lock);
	job = job_find(pull, id);
	if (job)
		atomic_store(&job->prefetch_all, true);
	pthread_mutex_unlock(&pull->lock);
}

void pull_source_over(struct pull *pull, ramp_node_t node, ramp_incarnation_t incarnation)
{
	atomic_fetch_add(&world->sources_over, 1);
	pthread_mutex_lock(&pull->lock);
	for (struct job *job = pull->jobs; job; job = job->next)
		if (job->source.node == node && job->source.incarnation == incarnation)
			atomic_store(&job->over, true);
	pthread_mutex_unlock(&pull->lock);
}

/* No program waits for a range here. */
struct pull_order *pull_order_begin(struct pull *pull, struct seg *seg, uint64_t first,
				    uint64_t count,
				    void (*done)(void *arg, int result, uint64_t lost), void *arg)
{
	(void)pull;
	(void)seg;
	(void)first;
	(void)count;
	(void)done;
	(void)arg;
	return NULL;
}

bool pull_order_end(struct pull_order *order)
{
	(void)order;
	return true;
}

int pull_give_up(struct pull *pull, struct seg *seg, bool zeros, uint64_t *count)
{
	struct job *job;

	(void)zeros;
	*count = 0;
	pthread_mutex_lock(&pull->lock);
	job = job_find(pull, seg_id(seg));
	if (job)
		atomic_store(&job->over, true);
	pthread_mutex_unlock(&pull->lock);
	return job ? 0 : -EAGAIN;
}

int pull_progress(struct pull *pull, ramp_segment_t id, struct pull_progress *progress)
{
	struct job *job;
	int rc = -ENOENT;

	pthread_mutex_lock(&pull->lock);
	job = job_find(pull, id);
	if (job && job->seg) {
		memset(progress, 0, sizeof(*progress));
		progress->pages_all = job->all;
		progress->pages_missing = pages_missing(job->seg);
		progress->source = job->source.node;
		rc = 0;
	}
	pthread_mutex_unlock(&pull->lock);
	return rc;
}

void pull_close(struct pull *pull)
{
	while (pull->jobs)
		job_end(pull, pull->jobs);
	free(pull);
}
