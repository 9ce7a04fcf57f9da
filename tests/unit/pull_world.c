#include "pull_world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel.h"
#include "lock_keeper.h"

/* ---- programs.h, as far as pull needs it ---- */

static pthread_rwlock_t pager_lock = PTHREAD_RWLOCK_INITIALIZER;

void programs_set_pager(struct programs *p, const struct programs_pager *pager)
{
	pthread_rwlock_wrlock(&pager_lock);
	p->pager = *pager;
	pthread_rwlock_unlock(&pager_lock);
}

int programs_pulling(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	(void)seg;
	if (!p->map || atomic_load(&p->registered))
		return 0;
	if (kernel_uffd_register(p->uffd, (uintptr_t)p->map, p->len, KERNEL_UFFD_MODES))
		return ramp_err_sys(err, errno, "register");
	for (unsigned i = 0; i < p->n_others; i++)
		if (kernel_uffd_register(p->uffd, (uintptr_t)p->others[i], p->len,
					 KERNEL_UFFD_MODES))
			return ramp_err_sys(err, errno, "register");
	atomic_store(&p->registered, true);
	return 0;
}

void programs_trim(struct programs *p, struct seg *seg)
{
	(void)seg;
	atomic_fetch_add(&p->trims, 1);
}

bool programs_pulled(struct programs *p, struct seg *seg)
{
	atomic_fetch_add(&p->pulled, 1);
	if (atomic_load(&p->busy) == seg_id(seg))
		return false;
	if (seg != p->seg || !atomic_exchange(&p->registered, false))
		return true;
	kernel_uffd_unregister(p->uffd, (uintptr_t)p->map, p->len);
	kernel_uffd_wake(p->uffd, (uintptr_t)p->map, p->len);
	for (unsigned i = 0; i < p->n_others; i++) {
		kernel_uffd_unregister(p->uffd, (uintptr_t)p->others[i], p->len);
		kernel_uffd_wake(p->uffd, (uintptr_t)p->others[i], p->len);
	}
	return true;
}

/* Pages [first, first + count), in that mapping. */
static void resolve(struct programs *p, uint8_t *map, uint64_t first, uint64_t count)
{
	uint64_t at = first * PAGE, end = (first + count) * PAGE;
	int64_t n;

	if (!atomic_load(&p->registered))
		return;
	if (end > p->len)
		end = p->len;
	while (at < end) {
		n = kernel_uffd_continue(p->uffd, (uintptr_t)map + at, end - at, true);
		if (n == -ENOENT)
			return; /* unregistered meanwhile */
		if (n == -EFAULT) {
			kernel_uffd_wake(p->uffd, (uintptr_t)map + at, PAGE);
			n = PAGE;
		}
		ck_assert_int_gt(n, 0);
		at += (uint64_t)n;
	}
}

void programs_resolve(struct programs *p, ramp_segment_t id, uint64_t first, uint64_t count,
		      _Atomic uint64_t *since_us)
{
	(void)since_us;
	if (id != MEMORY_ID) /* it is not attached */
		return;
	ck_assert_uint_eq(id, seg_id(p->seg));
	if (atomic_load(&p->keeps_prefetch) && atomic_fetch_add(&p->kept, 1) == 0)
		while (atomic_load(&p->keeps_prefetch))
			usleep(1000);
	/* Else bytes that a program stores there are overwritten by a pull, if the daemon dies now. */
	ck_assert(pages_local(p->seg, first, count));
	resolve(p, p->map, first, count);
	for (unsigned i = 0; i < p->n_others; i++)
		resolve(p, p->others[i], first, count);
}

void programs_written(struct programs *p, ramp_segment_t id, uint64_t first, uint64_t count)
{
	_Atomic uint64_t since_us;

	programs_resolve(p, id, first, count, &since_us);
}

/* Which of its mappings has that address. */
static uint8_t *map_at(struct programs *p, uint64_t addr)
{
	for (unsigned i = 0; i < p->n_others; i++)
		if (addr - (uintptr_t)p->others[i] < p->len)
			return p->others[i];
	return p->map;
}

/* There alone, as programs does. */
void client_resolve(struct client *space, ramp_segment_t id, uint64_t addr, uint64_t first,
		    uint64_t count)
{
	struct programs *p = (struct programs *)(void *)space;
	uint8_t *map = map_at(p, addr);

	ck_assert_uint_eq(id, seg_id(p->seg));
	ck_assert(pages_local(p->seg, first, count));
	ck_assert_uint_eq(addr, (uintptr_t)map + first * PAGE);
	if (atomic_load(&p->keeps))
		atomic_fetch_add(&p->kept, 1);
	while (atomic_load(&p->keeps))
		usleep(1000);
	atomic_fetch_add(&p->resolves, 1);
	resolve(p, map, first, count);
}

void programs_poison(struct programs *p, struct seg *seg, uint64_t page, const char *why)
{
	uint64_t at = (uintptr_t)p->map + page * PAGE;

	(void)seg;
	ck_assert_ptr_nonnull(why);
	atomic_fetch_add(&p->poisoned, 1);
	kernel_uffd_protect(p->uffd, at, PAGE, false);
	kernel_uffd_poison(p->uffd, at, PAGE);
	kernel_uffd_wake(p->uffd, at, PAGE);
}

/* All that a DROP of its POISONs would drop, and more. */
bool programs_unpoison(struct programs *p, struct seg *seg)
{
	ck_assert_ptr_eq(seg, p->seg);
	ck_assert_int_eq(madvise(p->map, p->len, MADV_DONTNEED), 0);
	return true;
}

int client_read(struct client *space, struct client_fault *faults, int max, bool *more)
{
	struct programs *p = (struct programs *)(void *)space;
	struct uffd_msg msg;
	struct iovec io = {&msg, sizeof(msg)};
	int n = 0;

	while (atomic_load(&p->unread))
		usleep(1000);
	/* A few each time, so that there are more left now and then. */
	max = max < 2 ? max : 2;
	while (n < max && preadv2(p->uffd, &io, 1, -1, RWF_NOWAIT) == sizeof(msg)) {
		ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
		faults[n++] = (struct client_fault){
			.seg = seg_get(p->seg),
			.page = (msg.arg.pagefault.address -
				 (uintptr_t)map_at(p, msg.arg.pagefault.address)) /
				PAGE,
			.addr = msg.arg.pagefault.address,
			.write = msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE,
		};
	}
	*more = n == max;
	return n ? n : -EAGAIN;
}

struct client *client_get(struct client *space)
{
	atomic_fetch_add(&((struct programs *)(void *)space)->holds, 1);
	return space;
}

void client_blocked(struct client *space)
{
	atomic_fetch_add(&((struct programs *)(void *)space)->told, 1);
}

/* The first reference is given back last. */
void client_put(struct client *space)
{
	struct programs *p = (struct programs *)(void *)space;

	if (atomic_load(&p->holds))
		atomic_fetch_sub(&p->holds, 1);
	else
		atomic_fetch_add(&p->forgotten, 1);
}

void client_waits(struct client *space, pid_t tid)
{
	(void)space;
	ck_assert_int_eq(tid, 0); /* this userfaultfd does not tell the thread that waits */
}

void client_wake(struct client *space, uint64_t addr)
{
	kernel_uffd_wake(((struct programs *)(void *)space)->uffd, addr & ~(PAGE - 1), PAGE);
}

void client_wake_all(struct client *space)
{
	struct programs *p = (struct programs *)(void *)space;

	kernel_uffd_wake(p->uffd, (uintptr_t)p->map, p->len);
}

/* ---- the world ---- */

unsigned world_streams;
uint64_t world_limit_bytes_s;

uint8_t world_byte(uint64_t page, uint64_t at)
{
	return (uint8_t)((page * 31 + at * 7) % 251 + 1);
}

bool world_page_is(const uint8_t *at, uint64_t page)
{
	for (uint64_t i = 0; i < PAGE; i++)
		if (at[i] != world_byte(page, i))
			return false;
	return true;
}

static void finished(void *arg, ramp_segment_t id, const struct pull_figures *figures)
{
	struct world *w = arg;

	if (id != MEMORY_ID) {
		atomic_fetch_add(&w->finished_other, 1);
		return;
	}
	w->figures = *figures;
	atomic_store(&w->lost, figures->lost);
	atomic_fetch_add(&w->finished, 1);
	while (atomic_load(&w->busy))
		usleep(1000);
}

static uint64_t monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t world_slowed_ago_ms(struct world *w)
{
	return monotonic_ms() - atomic_load(&w->slowed_ms);
}

/* Called by the middle's one thread. */
static bool path_is_dead(struct world *w, unsigned connection, uint64_t offset)
{
	uint64_t after = atomic_load(&w->die_after);

	if (after == 0 || connection >= PREFETCH_MAX)
		return false;
	if (offset > after && atomic_load(&w->dead) < atomic_load(&w->to_die) &&
	    !atomic_exchange(&w->is_dead[connection], true))
		atomic_fetch_add(&w->dead, 1);
	return atomic_load(&w->is_dead[connection]);
}

static bool in_the_middle(void *arg, unsigned connection, enum way way, uint64_t offset,
			  uint8_t *bytes, size_t *len, size_t cap)
{
	struct world *w = arg;
	uint64_t after = atomic_load(&w->cut_after);

	(void)bytes;
	(void)cap;
	while (atomic_load(&w->held))
		usleep(1000);
	if (way == TO_CLIENT && atomic_load(&w->slow_after) && offset > w->slow_after) {
		usleep((useconds_t)*len * 4);
		atomic_store(&w->slowed_ms, monotonic_ms());
		atomic_fetch_add(&w->slowed, 1);
	}
	if (way == TO_CLIENT && path_is_dead(w, connection, offset))
		*len = 0;
	if (way != TO_CLIENT || after == 0 || offset + *len < after)
		return true;
	*len = after > offset ? after - offset : 0;
	atomic_fetch_add(&w->cuts, 1);
	return false;
}

/* ---- a transport that changes at borders ---- */

static struct tp_ops border_ops;
static struct borders *the_borders; /* a connection is the inner transport's */

static size_t border_span(struct tp_conn *conn, const struct tp_key *key, uint64_t offset,
			  size_t len)
{
	uint64_t every = atomic_load(&the_borders->every), left;

	ck_assert_uint_eq(offset % PAGE, 0);
	ck_assert(len && len % PAGE == 0);
	left = every ? every - offset % every : len;
	len = conn->tp->ops->span(conn, key, offset, len);
	return len < left ? len : left;
}

/* By its name: it is the thread itself that posts reads. */
static bool is_second(void)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	return strcmp(name, "prefetch-2") == 0;
}

/* Waits for the other connections for prefetch. */
static void gather(struct borders *b, const struct tp_conn *conn)
{
	bool first = false, prefetch = false;
	int waited_ms = 0;

	if (atomic_load(&b->together) == 0)
		return;
	pthread_mutex_lock(&b->lock);
	for (unsigned i = 0; i < b->n_prefetch; i++)
		if (b->prefetch[i].conn == conn) {
			prefetch = true;
			first = !b->prefetch[i].asked;
			b->prefetch[i].asked = true;
		}
	pthread_mutex_unlock(&b->lock);
	if (first)
		atomic_fetch_add(&b->gathered, 1);
	if (!prefetch || atomic_load(&b->gathered) >= atomic_load(&b->together))
		return;
	if (atomic_load(&b->pace_us))
		usleep(atomic_load(&b->pace_us));
	else
		while (!first && atomic_load(&b->gathered) < atomic_load(&b->together) &&
		       waited_ms++ < WAIT_MS)
			usleep(1000);
}

static int border_read(struct tp_conn *conn, const struct tp_read *read)
{
	uint64_t every = atomic_load(&the_borders->every), to = read->offset + read->len;

	atomic_fetch_add(&the_borders->asked, 1);
	if (every && read->offset / every != (to - 1) / every)
		atomic_fetch_add(&the_borders->broken, 1);
	if (every && to % every == 0)
		atomic_fetch_add(&the_borders->at_border, 1);
	gather(the_borders, conn);
	if (atomic_load(&the_borders->mute) && is_second())
		return 0;
	return conn->tp->ops->read(conn, read);
}

/* Of the connection that this thread has made last: how often its state was asked for, and 1; 0: it does not count. */
static __thread unsigned states_asked;

static enum tp_state border_state(struct tp_conn *conn, struct ramp_err *err)
{
	enum tp_state state;

	if (states_asked && states_asked++ < 3)
		return TP_CONNECTING;
	while ((state = conn->tp->ops->state(conn, err)) == TP_CONNECTING && states_asked)
		usleep(1000);
	if (states_asked)
		atomic_fetch_add(&the_borders->thirds, 1);
	states_asked = 0;
	return state;
}

static int border_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
			  enum tp_class class, struct tp_conn **out, struct ramp_err *err)
{
	struct borders *b = (struct borders *)tp;
	int rc = b->inner->ops->connect(b->inner, node, incarnation, class, out, err);

	states_asked = class == TP_PREFETCH && atomic_load(&b->ready_at_third) ? 1 : 0;
	pthread_mutex_lock(&b->lock);
	if (!rc && class == TP_PREFETCH && b->n_prefetch < PREFETCH_MAX)
		b->prefetch[b->n_prefetch++].conn = *out;
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static bool border_peer(struct tp *tp, struct tp_peer *out)
{
	struct borders *b = (struct borders *)tp;

	return b->inner->ops->peer(b->inner, out);
}

static void border_will_read(struct tp_conn *conn, const struct tp_key *key)
{
	if (conn->tp->ops->state(conn, NULL) == TP_CONNECTING && key->segment == MEMORY_ID)
		atomic_fetch_add(&the_borders->foretold, 1);
}

static void border_stats(struct tp *tp, struct tp_stats *stats)
{
	tp_get_stats(((struct borders *)tp)->inner, stats);
}

static void open_borders(struct borders *borders, struct tp *inner)
{
	border_ops = *inner->ops;
	border_ops.name = "borders";
	border_ops.connect = border_connect;
	border_ops.state = border_state;
	border_ops.will_read = border_will_read;
	border_ops.span = border_span;
	border_ops.read = border_read;
	border_ops.stats = border_stats;
	border_ops.peer = border_peer;
	borders->tp.ops = &border_ops;
	pthread_mutex_init(&borders->lock, NULL);
	borders->inner = inner;
	the_borders = borders;
}

/* ---- */

static struct pull *open_pull(struct world *w, struct tp *tp, struct store *store,
			      struct programs *programs)
{
	struct pull_config config = {
		.store = store,
		.programs = programs,
		.tp = tp,
		.streams = world_streams,
		.limit_bytes_s = world_limit_bytes_s,
		.finished = finished,
		.arg = w,
	};
	struct ramp_err err = {0};
	struct pull *pull;

	ck_assert_msg(pull_open(&config, &pull, &err) == 0, "%s", err.text);
	return pull;
}

static void open_source(struct world *w)
{
	struct ramp_err err = {0};

	w->s_pull = open_pull(w, w->s.tp, w->s_store, &w->s_programs);
	ck_assert_msg(serve_open(w->s.tp, &w->s_serve, &err) == 0, "%s", err.text);
}

static void close_source(struct world *w)
{
	pull_close(w->s_pull);
	serve_close(w->s_serve);
	w->s_pull = NULL;
}

static void start_node(struct node *node, ramp_node_t id, ramp_incarnation_t incarnation,
		       uint16_t port)
{
	const struct node_identity who = {
		.key = 'k', .cluster = 'c', .incarnation = incarnation, .port = port};

	*node = (struct node){0};
	node_start(node, id, who);
	node_open_transport(node);
}

/* The target reaches the source through the middle; the source, which has the smaller number,
   dials the target's control connection by itself. */
static void join(struct world *w)
{
	node_know(&w->t, w->s.id, middle_port(w->middle));
	node_know(&w->s, w->t.id, w->t.port);
}

void world_open(struct world *w, uint64_t size)
{
	struct ramp_err err = {0};

	memset(w, 0, sizeof(*w));
	node_streams = world_streams;
	w->size = size;
	w->k = (struct ramp_attempt){5, 7};
	w->key = tp_key_of_attempt(MEMORY_ID, w->k);
	w->s_store = memory_beside("s", 256 * MIB);
	w->t_store = memory_beside("t", 256 * MIB);
	start_node(&w->s, 1, WORLD_INCARNATION, 0);
	start_node(&w->t, 2, 0x71, 0);
	w->middle = middle_start(w->s.port, in_the_middle, w);
	join(w);
	open_source(w);
	w->t_programs.uffd = -1;
	open_borders(&w->borders, w->t.tp);
	w->t_pull = open_pull(w, &w->borders.tp, w->t_store, &w->t_programs);
	ck_assert_int_eq(store_create(w->s_store, MEMORY_ID, RECORD_OWNED, 1, &w->s_seg, &err), 0);
	ck_assert_int_eq(ftruncate(seg_fd(w->s_seg), (off_t)size), 0);
	w->s_programs.seg = w->s_seg;
}

static void detach(struct world *w)
{
	struct programs *p = &w->t_programs;

	if (p->map)
		munmap(p->map, p->len);
	for (unsigned i = 0; i < p->n_others; i++)
		munmap(p->others[i], p->len);
	if (p->uffd >= 0)
		close(p->uffd);
}

void world_close(struct world *w)
{
	pull_close(w->t_pull);
	if (w->s_pull)
		close_source(w);
	detach(w);
	node_stop(&w->t);
	if (w->s.tp)
		node_stop(&w->s);
	middle_stop(w->middle);
	seg_put(w->t_seg);
	seg_put(w->s_seg);
	store_close(w->t_store);
	store_close(w->s_store);
}

void world_write(struct world *w, uint64_t page)
{
	uint8_t bytes[PAGE];
	uint64_t len = w->size - page * PAGE < PAGE ? w->size - page * PAGE : PAGE;

	for (uint64_t i = 0; i < PAGE; i++)
		bytes[i] = world_byte(page, i);
	ck_assert_int_eq(pwrite(seg_fd(w->s_seg), bytes, len, (off_t)(page * PAGE)), (ssize_t)len);
}

void world_write_all(struct world *w)
{
	for (uint64_t page = 0; page * PAGE < w->size; page++)
		world_write(w, page);
}

void world_take(struct world *w, bool listed)
{
	struct record taken = {.kind = RECORD_TAKEN,
			       .epoch = 3,
			       .k = w->k,
			       .peer = 1,
			       .peer_inc = WORLD_INCARNATION,
			       .size = w->size};
	struct data_range ranges[4096];
	struct ramp_err err = {0};
	uint64_t bytes;
	uint32_t n = 0;

	ck_assert_int_eq(serve_grant(w->s_serve, w->s_seg, &w->key, w->t.id, &err), 0);
	if (listed)
		ck_assert_int_eq(populated_list(w->s_seg, ranges, 4096, &n, &bytes, &err), 0);
	ck_assert_int_eq(store_create(w->t_store, MEMORY_ID, RECORD_NONE, 0, &w->t_seg, &err), 0);
	ck_assert_msg(reserve_memory(w->t_seg, w->size, ranges, n, w->slack, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(pages_prepare(w->t_seg, w->size, &err), 0);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(pages_mark_remote(w->t_seg, ranges[i].offset / PAGE,
						   ranges[i].len / PAGE, &err),
				 0);
	if (!listed)
		ck_assert_int_eq(pages_mark_all_remote(w->t_seg, &err), 0);
	ck_assert_int_eq(record_change(w->t_seg, &taken, &err), 0);
	w->t_programs.seg = w->t_seg;
}

static void begin(struct world *w, struct seg *seg, const struct tp_key *key, bool prefetch)
{
	const struct pull_source source = {
		.node = 1,
		.incarnation = WORLD_INCARNATION,
		.key = *key,
		.prefetch = prefetch,
		.all = prefetch,
	};
	struct ramp_err err = {0};

	ck_assert_msg(pull_begin(w->t_pull, seg, &source, &err) == 0, "%s", err.text);
}

void world_begin(struct world *w, bool prefetch)
{
	begin(w, w->t_seg, &w->key, prefetch);
}

struct tp_key world_other_key(void)
{
	return tp_key_of_attempt(OTHER_ID, (struct ramp_attempt){5, 8});
}

void world_begin_other(struct world *w, struct seg *other)
{
	const struct tp_key key = world_other_key();

	begin(w, other, &key, true);
}

void world_pull_sparse_tebibyte(struct world *w, bool listed, bool kept)
{
	const uint64_t pages[3] = {0, TIB / PAGE / 2 + 77, TIB / PAGE - 1};
	/* two bits a page, where all are asked for */
	const uint64_t state_file = listed ? 0 : TIB / PAGE / 4;
	struct store_space before, after;
	struct lock_keeper keeper;

	world_open(w, TIB);
	for (int i = 0; i < 3; i++)
		world_write(w, pages[i]);
	if (kept)
		lock_keep(&keeper, w->s_seg, 0);
	store_space(w->t_store, &before);
	world_take(w, listed);
	world_attach(w);
	world_begin(w, true);
	world_wait_finished(w);
	for (int i = 0; i < 3; i++)
		ck_assert(world_page_is(w->t_programs.map + pages[i] * PAGE, pages[i]));
	store_space(w->t_store, &after);
	ck_assert_uint_le(before.free_bytes - after.free_bytes,
			  3 * 2 * MIB + 8 * PAGE + state_file);
	if (kept)
		lock_let_go(&keeper);
	world_close(w);
}

static void tell_pager(struct programs *p)
{
	pthread_rwlock_rdlock(&pager_lock);
	ck_assert_int_eq(p->pager.client_added(p->pager.arg, (struct client *)(void *)p, p->uffd),
			 0);
	pthread_rwlock_unlock(&pager_lock);
}

static uint8_t *map_file(struct world *w)
{
	int fd = seg_open(w->t_seg, O_RDWR);
	uint8_t *map;

	ck_assert_int_ge(fd, 0);
	map = mmap(NULL, w->t_programs.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	return map;
}

static void open_uffd(struct programs *p)
{
	uint64_t features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
			    UFFD_FEATURE_WP_HUGETLBFS_SHMEM | KERNEL_UFFD_WP_UNPOPULATED |
			    KERNEL_UFFD_POISON;

	p->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	ck_assert_int_ge(p->uffd, 0);
	ck_assert_int_eq(kernel_uffd_api(p->uffd, features), 0);
}

void world_attach_second(struct world *w, struct programs *second)
{
	struct programs *p = &w->t_programs;

	*second = (struct programs){.seg = w->t_seg, .len = p->len, .map = map_file(w)};
	open_uffd(second);
	ck_assert_int_eq(kernel_uffd_register(second->uffd, (uintptr_t)second->map, second->len,
					      KERNEL_UFFD_MODES),
			 0);
	atomic_store(&second->registered, true);
	pthread_rwlock_rdlock(&pager_lock);
	ck_assert_int_eq(
		p->pager.client_added(p->pager.arg, (struct client *)(void *)second, second->uffd),
		0);
	pthread_rwlock_unlock(&pager_lock);
}

void world_detach_second(struct programs *second)
{
	munmap(second->map, second->len);
	close(second->uffd);
}

uint8_t *world_attach_other(struct world *w)
{
	struct programs *p = &w->t_programs;

	ck_assert_uint_lt(p->n_others, OTHERS_MAX);
	p->others[p->n_others] = map_file(w);
	return p->others[p->n_others++];
}

void world_attach(struct world *w)
{
	struct programs *p = &w->t_programs;

	p->len = (w->size + PAGE - 1) / PAGE * PAGE;
	p->map = map_file(w);
	open_uffd(p);
	tell_pager(p);
}

void world_attach_again(struct world *w)
{
	struct programs *p = &w->t_programs;
	unsigned before = atomic_load(&p->forgotten);

	pthread_rwlock_rdlock(&pager_lock);
	p->pager.client_gone(p->pager.arg, (struct client *)(void *)p);
	pthread_rwlock_unlock(&pager_lock);
	wait_until(atomic_load(&p->forgotten) > before);
	tell_pager(p);
}

void world_source_stop(struct world *w)
{
	close_source(w);
	node_stop(&w->s);
}

void world_source_start(struct world *w, ramp_incarnation_t incarnation)
{
	struct ramp_err err = {0};

	start_node(&w->s, 1, incarnation, w->s.port);
	node_know(&w->s, w->t.id, w->t.port);
	open_source(w);
	ck_assert_int_eq(serve_grant(w->s_serve, w->s_seg, &w->key, w->t.id, &err), 0);
}

void world_target_restart(struct world *w)
{
	pull_close(w->t_pull);
	seg_put(w->t_seg);
	store_close(w->t_store);
	w->t_store = memory_again("t", 256 * MIB);
	w->t_seg = store_find(w->t_store, MEMORY_ID);
	ck_assert_ptr_nonnull(w->t_seg);
	w->t_programs.seg = w->t_seg;
	w->t_pull = open_pull(w, &w->borders.tp, w->t_store, &w->t_programs);
	if (w->t_programs.map) {
		kernel_uffd_wake(w->t_programs.uffd, (uintptr_t)w->t_programs.map,
				 w->t_programs.len);
		tell_pager(&w->t_programs);
	}
}

void world_wait_finished(struct world *w)
{
	wait_until(atomic_load(&w->finished));
	ck_assert_uint_eq(atomic_load(&w->finished), 1);
}

void world_check(struct world *w)
{
	uint8_t want[PAGE], got[PAGE];

	ck_assert_uint_eq(seg_size(w->t_seg), w->size);
	for (uint64_t at = 0; at < w->size; at += PAGE) {
		ssize_t n = pread(seg_fd(w->s_seg), want, PAGE, (off_t)at);

		ck_assert_int_eq(pread(seg_fd(w->t_seg), got, PAGE, (off_t)at), n);
		ck_assert_msg(!memcmp(want, got, (size_t)n), "page %lu differs", at / PAGE);
	}
}

static void *touch(void *arg)
{
	return (void *)(uintptr_t) * (volatile uint8_t *)arg;
}

pthread_t world_touch_at(uint8_t *at)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, touch, at), 0);
	return thread;
}

pthread_t world_touch(struct world *w, uint64_t page)
{
	return world_touch_at(w->t_programs.map + page * PAGE);
}

uint8_t world_touched(pthread_t thread)
{
	void *seen;

	pthread_join(thread, &seen);
	return (uint8_t)(uintptr_t)seen;
}

void world_wait_for_fault(struct world *w, uint64_t count)
{
	struct pull_status status;

	do
		pull_status(w->t_pull, &status);
	while (status.faults < count);
}

static sigjmp_buf out_of_bus;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(out_of_bus, 1);
}

int world_load(const uint8_t *at)
{
	const struct sigaction act = {.sa_handler = on_bus};

	sigaction(SIGBUS, &act, NULL);
	return sigsetjmp(out_of_bus, 1) ? -1 : *(const volatile uint8_t *)at;
}

void world_open_with(struct world *w, uint64_t size, bool attach, bool prefetch)
{
	world_open(w, size);
	world_write_all(w);
	world_take(w, true);
	if (attach)
		world_attach(w);
	world_begin(w, prefetch);
}
