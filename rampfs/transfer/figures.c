#include "figures.h"

#include <stdlib.h>
#include <time.h>

#include "move_message.h"

#define FIGURES_BUCKETS 256u
#define FIGURES_KEPT	4096u

struct figures_entry {
	LIST_ENTRY(figures_entry) in_bucket;
	TAILQ_ENTRY(figures_entry) in_order;
	struct msg_figures known;
};

struct figures {
	pthread_mutex_t lock; /* protects all */
	LIST_HEAD(, figures_entry) buckets[FIGURES_BUCKETS];
	TAILQ_HEAD(, figures_entry) order; /* the oldest first */
	unsigned n;
};

struct figures *figures_new(void)
{
	struct figures *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	pthread_mutex_init(&f->lock, NULL);
	TAILQ_INIT(&f->order);
	return f;
}

static void figures_drop(struct figures *f, struct figures_entry *entry)
{
	LIST_REMOVE(entry, in_bucket);
	TAILQ_REMOVE(&f->order, entry, in_order);
	f->n--;
	free(entry);
}

void figures_free(struct figures *f)
{
	struct figures_entry *entry, *next;

	for (entry = TAILQ_FIRST(&f->order); entry; entry = next) {
		next = TAILQ_NEXT(entry, in_order);
		figures_drop(f, entry);
	}
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* ---- under figures->lock -------------------------------------------------------------------- */

static struct figures_entry *figures_find(struct figures *f, ramp_segment_t id)
{
	struct figures_entry *entry;

	LIST_FOREACH (entry, &f->buckets[id % FIGURES_BUCKETS], in_bucket)
		if (entry->known.id == id)
			return entry;
	return NULL;
}

/* Of another segment than those that are kept; NULL: no memory. */
static struct figures_entry *figures_add(struct figures *f, ramp_segment_t id)
{
	struct figures_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	if (f->n == FIGURES_KEPT)
		figures_drop(f, TAILQ_FIRST(&f->order));
	entry->known.id = id;
	LIST_INSERT_HEAD(&f->buckets[id % FIGURES_BUCKETS], entry, in_bucket);
	TAILQ_INSERT_TAIL(&f->order, entry, in_order);
	f->n++;
	return entry;
}

static void take_source(struct msg_figures *known, const struct msg_figures *news)
{
	known->of_source = true;
	known->connect_us = news->connect_us;
	known->rounds_us = news->rounds_us;
	known->prepare_us = news->prepare_us;
	known->asked_us = news->asked_us;
	known->window_us = news->window_us;
}

static void take_target(struct msg_figures *known, const struct msg_figures *news)
{
	known->of_target = true;
	known->verbs = news->verbs;
	known->pull_us = news->pull_us;
	known->round_pages = news->round_pages;
	known->window_pages = news->window_pages;
	known->demand_pages = news->demand_pages;
	known->prefetch_pages = news->prefetch_pages;
	known->hole_pages = news->hole_pages;
	known->local_pages = news->local_pages;
	known->lost_pages = news->lost_pages;
}

/* ---- what is known --------------------------------------------------------------------------- */

/* Of the newest hand-over it keeps both halves; news of an older one come late. */
static void figures_learn(struct transfers *t, const struct msg_figures *news)
{
	struct figures *f = t->figures;
	struct figures_entry *entry;

	pthread_mutex_lock(&f->lock);
	entry = figures_find(f, news->id);
	if (!entry)
		entry = figures_add(f, news->id);
	if (entry && news->epoch > entry->known.epoch) {
		TAILQ_REMOVE(&f->order, entry, in_order);
		TAILQ_INSERT_TAIL(&f->order, entry, in_order);
		entry->known = *news;
	} else if (entry && news->epoch == entry->known.epoch) {
		if (news->of_source)
			take_source(&entry->known, news);
		if (news->of_target)
			take_target(&entry->known, news);
	}
	pthread_mutex_unlock(&f->lock);
}

bool transfers_figures(struct transfers *t, ramp_segment_t id, struct msg_figures *out)
{
	struct figures *f = t->figures;
	struct figures_entry *entry;

	pthread_mutex_lock(&f->lock);
	entry = figures_find(f, id);
	if (entry)
		*out = entry->known;
	pthread_mutex_unlock(&f->lock);
	return entry != NULL;
}

/* ---- measuring, telling ---------------------------------------------------------------------- */

static struct msg_figures figures_of(const struct move *m, bool at_source)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (struct msg_figures){
		.id = m->id,
		.epoch = m->epoch,
		.from = at_source ? m->t->self : m->peer,
		.to = at_source ? m->peer : m->t->self,
		.at_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
	};
}

static void figures_tell(struct transfers *t, ramp_node_t to, const struct msg_figures *f)
{
	MOVE_SEND(t, to, PROTO_FIGURES, proto_put_figures, f);
}

void figures_window(struct move *m, uint64_t window_us)
{
	struct msg_figures f = figures_of(m, true);

	f.of_source = true;
	f.connect_us = m->source.times.connect_us;
	f.rounds_us = m->source.times.rounds_us;
	f.prepare_us = m->source.times.prepare_us;
	f.asked_us = m->source.times.asked_us;
	f.window_us = window_us;
	figures_learn(m->t, &f);
	figures_tell(m->t, m->peer, &f);
}

void figures_taken(struct move *m)
{
	struct msg_figures f = figures_of(m, false);

	figures_learn(m->t, &f);
}

/* Pages that did not come: known as holes before, or written here while others came. */
static uint64_t local_pages(const struct move *m)
{
	const struct pull_figures *p = &m->target.pulled;
	uint64_t came = p->demand + p->prefetch + p->holes + p->lost;
	uint64_t before = m->target.had_rounds ? m->target.known_pages : p->all - p->missing;

	return before + (p->missing > came ? p->missing - came : 0);
}

void figures_whole(struct move *m, bool copied)
{
	struct msg_figures f = figures_of(m, false);
	const struct pull_figures *p = &m->target.pulled;

	f.of_target = true;
	f.verbs = p->rdma;
	f.pull_us = p->us;
	f.round_pages = m->target.round_pages;
	f.window_pages = copied ? p->demand + p->prefetch : 0;
	f.demand_pages = copied ? 0 : p->demand;
	f.prefetch_pages = copied ? 0 : p->prefetch;
	f.hole_pages = m->target.round_holes + p->holes;
	f.local_pages = local_pages(m);
	f.lost_pages = p->lost;
	figures_learn(m->t, &f);
	figures_tell(m->t, m->peer, &f);
}

void figures_send(struct transfers *t, ramp_node_t to, ramp_segment_t id)
{
	struct msg_figures f;

	if (transfers_figures(t, id, &f))
		figures_tell(t, to, &f);
}

static void on_figures(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		       struct wire_r *body)
{
	struct msg_figures f;

	(void)from;
	(void)incarnation;
	if (move_decoded(body, proto_get_figures(body, &f)))
		figures_learn(arg, &f);
}

void figures_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_FIGURES, on_figures, t);
}
