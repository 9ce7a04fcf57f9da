/*
 * The exhaustive search. See explore.h.
 *
 *	raft_explore [--quick]		the predefined searches
 *	raft_explore NAME=VALUE ...	one search within other bounds
 *
 * A state of the cluster consists of each node's state; the messages under way; the events that may
 * still happen (budgets); and the memory of the checks: which node led in which term, and what was
 * committed. A link holds a few messages, delivered in any order. A message that finds its link
 * full is lost, or takes the place of the oldest: both are tried. A message that is never delivered
 * is lost, too. The search is depth first over all events; a state that was seen before (by a hash
 * of 64 bits) is not entered again. It ends when all states were seen, and fails when an invariant
 * is broken or when `states` were not enough.
 *
 * Invariants: one leader in a term; a committed entry is the same on all nodes and never changes; a
 * new leader has all of them; a read reaches what was committed before it; those of raft_check.
 */
#include "explore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message_name.h"
#include "sim_rng.h"

#define LINKS	  (NODES * (NODES - 1))
#define LINK_MAX  3
#define TERMS_MAX 8

struct budget { /* events that may still happen */
	uint8_t elections, heartbeats, proposals, confs, crashes, dups, reads, transfers;
};

struct cluster {
	uint32_t node[NODES];
	uint32_t link[LINKS][LINK_MAX];	   /* messages, the oldest first; 0: none */
	uint32_t committed[ENTRIES_MAX];   /* numbers of entries; 0: not known yet */
	uint8_t committed_in[ENTRIES_MAX]; /* the term in which that was known first */
	uint8_t leader[TERMS_MAX];
	struct budget budget;
};

/* A step of the search: the event and the state that it led to. */
struct move {
	struct cluster to;
	struct explore_event ev;
	uint8_t node;
};

struct frame {
	size_t first, next, end; /* in moves[] */
};

static struct {
	struct budget budget;
	struct explore_options node;
	uint32_t link, terms, conf;
	uint64_t states;
} bounds = {
	.budget = {0},
	.node = {.voters = NODES},
	.link = 1,
	.terms = 3,
	.conf = 8, /* remove node 3 */
	.states = 200000000,
};

static struct move *moves;
static size_t n_moves, cap_moves;
static struct frame *frames;
static size_t n_frames, cap_frames;
static uint64_t *seen, cap_seen, n_seen, n_steps, deepest;
static const struct move *current; /* its result is being made */

/* ---- reports --------------------------------------------------------------------------------- */

static void print_message(uint32_t number)
{
	const struct raft_message *m = explore_message(number);

	printf("%s %u -> %u term %llu index %llu/%llu commit %llu n %u%s", message_name(m->type),
	       m->from, m->to, (unsigned long long)m->term, (unsigned long long)m->index,
	       (unsigned long long)m->log_term, (unsigned long long)m->leader_commit, m->n_entries,
	       m->reject ? " reject" : "");
}

static void print_move(const struct move *m)
{
	static const char *const names[] = {"gets",  "election", "heartbeat",  "proposes", "conf",
					    "reads", "transfer", "lease over", "restarts"};

	printf("  node %u %s ", m->node + 1, names[m->ev.kind]);
	if (m->ev.kind == EXPLORE_MESSAGE)
		print_message(m->ev.arg);
	else if (m->ev.arg)
		printf("%u", m->ev.arg);
	if (m->ev.crash)
		printf(", dies after %u calls", m->ev.crash);
	printf("\n");
}

void explore_failed(const char *text)
{
	printf("FAILED: %s, after\n", text);
	for (size_t i = 0; i < n_frames; i++)
		if (frames[i].next > frames[i].first)
			print_move(&moves[frames[i].next - 1]);
	if (current)
		print_move(current);
	fflush(stdout);
	_Exit(1);
}

/* ---- states that were seen ------------------------------------------------------------------- */

static uint64_t cluster_hash(const struct cluster *c)
{
	const uint8_t *bytes = (const uint8_t *)c;
	uint64_t h = 1, word = 0;
	size_t len = sizeof(*c);

	for (; len >= 8; bytes += 8, len -= 8) {
		memcpy(&word, bytes, 8);
		h = sim_mix(h ^ word) + UINT64_C(0x9e3779b97f4a7c15);
	}
	word = 0;
	if (len)
		memcpy(&word, bytes, len);
	h = sim_mix(h ^ word);
	return h ? h : 1;
}

static bool seen_put(uint64_t h)
{
	uint64_t i = h & (cap_seen - 1);

	while (seen[i] && seen[i] != h)
		i = (i + 1) & (cap_seen - 1);
	if (seen[i])
		return false;
	seen[i] = h;
	n_seen++;
	return true;
}

static void seen_room(void)
{
	uint64_t *old = seen, cap = cap_seen;

	if (n_seen * 2 < cap_seen)
		return;
	cap_seen = cap ? cap * 2 : 1 << 16;
	seen = calloc(cap_seen, sizeof(*seen));
	if (!seen)
		explore_failed("no memory");
	n_seen = 0;
	for (uint64_t i = 0; i < cap; i++)
		if (old[i])
			seen_put(old[i]);
	free(old);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static void check_committed(struct cluster *c, const struct explore_summary *s)
{
	for (uint64_t i = s->snap_index + 1; i <= s->commit; i++) {
		if (!c->committed[i]) {
			c->committed[i] = s->entry[i];
			c->committed_in[i] = (uint8_t)s->term;
		} else if (c->committed[i] != s->entry[i]) {
			explore_failed("two entries are committed at one index");
		}
	}
}

static void check_leader(struct cluster *c, uint32_t node, const struct explore_summary *s)
{
	uint8_t *leader = &c->leader[s->term];

	if (*leader && *leader != node + 1)
		explore_failed("two nodes lead in one term");
	if (*leader)
		return;
	*leader = (uint8_t)(node + 1);
	for (uint64_t i = s->snap_index + 1; i < ENTRIES_MAX; i++)
		if (c->committed[i] && c->committed_in[i] < s->term &&
		    (i > s->last || s->entry[i] != c->committed[i]))
			explore_failed("a new leader lacks a committed entry");
}

static uint64_t highest_commit(const struct cluster *c)
{
	uint64_t highest = 0;

	for (uint32_t i = 0; i < NODES; i++)
		if (explore_node(c->node[i])->commit > highest)
			highest = explore_node(c->node[i])->commit;
	for (uint64_t i = 1; i < ENTRIES_MAX; i++)
		if (c->committed[i] && i > highest)
			highest = i;
	return highest;
}

/* ---- moves ----------------------------------------------------------------------------------- */

static uint32_t link_of(const struct raft_message *m)
{
	uint32_t from = m->from - 1, to = m->to - 1;

	return from * (NODES - 1) + (to > from ? to - 1 : to);
}

/* Puts a message onto its link. Returns true where the link was full, so that a message was
   lost. */
static bool link_put(struct cluster *c, uint32_t message, bool drop_oldest)
{
	uint32_t *slot = c->link[link_of(explore_message(message))];
	uint32_t n = 0;

	for (; n < bounds.link && slot[n]; n++)
		if (slot[n] == message)
			return false; /* the same is under way */
	if (n < bounds.link) {
		slot[n] = message;
		return false;
	}
	if (drop_oldest) {
		memmove(slot, slot + 1, (bounds.link - 1) * sizeof(*slot));
		slot[bounds.link - 1] = message;
	}
	return true;
}

static void move_push(const struct move *m)
{
	if (n_moves == cap_moves) {
		cap_moves = cap_moves ? cap_moves * 2 : 1024;
		moves = realloc(moves, cap_moves * sizeof(*moves));
		if (!moves)
			abort();
	}
	moves[n_moves++] = *m;
}

/* Makes one event at one node, from cluster `c` (budgets already taken), and pushes the result.
   Returns false where the event can't happen so. */
static bool move_make(const struct cluster *c, uint32_t node, struct explore_event ev)
{
	struct move m = {.to = *c, .ev = ev, .node = (uint8_t)node};
	const struct explore_outcome *o;
	const struct explore_summary *s;
	struct cluster before;
	bool full = false;

	current = &m;
	n_steps++;
	o = explore_step(c->node[node], ev);
	if (!o->node)
		return false;
	m.to.node[node] = o->node;
	s = explore_node(o->node);
	if (s->term >= TERMS_MAX || s->term > bounds.terms)
		return true; /* out of bounds: not followed */
	check_committed(&m.to, s);
	if (s->state == RAFT_LEADER)
		check_leader(&m.to, node, s);
	before = m.to;
	for (uint32_t i = 0; i < o->n_emitted; i++)
		full |= link_put(&m.to, o->emitted[i], true);
	move_push(&m);
	if (full) {
		m.to = before;
		for (uint32_t i = 0; i < o->n_emitted; i++)
			link_put(&m.to, o->emitted[i], false);
		move_push(&m);
	}
	current = NULL;
	return true;
}

/* Makes the event and, while crashes are left, the same with a death at every point of its
   turns. */
static void moves_of(const struct cluster *c, uint32_t node, enum explore_kind kind, uint32_t arg)
{
	struct cluster next = *c;

	if (!move_make(&next, node, (struct explore_event){.kind = kind, .arg = arg}))
		return;
	if (!c->budget.crashes)
		return;
	next.budget.crashes--;
	for (uint32_t k = 1; move_make(&next, node, (struct explore_event){kind, arg, k}); k++)
		;
}

static void moves_messages(const struct cluster *c)
{
	for (uint32_t l = 0; l < LINKS; l++)
		for (uint32_t k = 0; k < bounds.link && c->link[l][k]; k++) {
			uint32_t message = c->link[l][k];
			uint32_t to = explore_message(message)->to - 1;
			struct cluster next = *c;

			memmove(&next.link[l][k], &next.link[l][k + 1],
				(bounds.link - 1 - k) * sizeof(uint32_t));
			next.link[l][bounds.link - 1] = 0;
			moves_of(&next, to, EXPLORE_MESSAGE, message);
			if (!c->budget.dups)
				continue;
			next = *c;
			next.budget.dups--;
			moves_of(&next, to, EXPLORE_MESSAGE, message);
		}
}

static void moves_election(const struct cluster *c, uint32_t node)
{
	struct cluster next = *c;
	bool leases = false;

	/* All nodes are alike at the beginning: node 1 is the first to campaign. */
	if (c->budget.elections == bounds.budget.elections && node != 0)
		return;
	next.budget.elections--;
	moves_of(&next, node, EXPLORE_ELECTION, 0);
	for (uint32_t i = 0; i < NODES; i++)
		if (i != node && explore_node(c->node[i])->lease) {
			next.node[i] = explore_step(c->node[i],
						    (struct explore_event){.kind = EXPLORE_LEASE})
					       ->node;
			leases = true;
		}
	if (leases)
		moves_of(&next, node, EXPLORE_ELECTION, 0);
}

static void moves_leader(const struct cluster *c, uint32_t node)
{
	struct cluster next = *c;

	if (c->budget.heartbeats) {
		next.budget.heartbeats--;
		moves_of(&next, node, EXPLORE_HEARTBEAT, 0);
		next = *c;
	}
	if (c->budget.proposals) {
		next.budget.proposals--;
		moves_of(&next, node, EXPLORE_PROPOSE, c->budget.proposals);
		next = *c;
	}
	if (c->budget.confs) {
		next.budget.confs--;
		moves_of(&next, node, EXPLORE_CONF, bounds.conf);
		next = *c;
	}
	if (c->budget.reads) {
		next.budget.reads--;
		moves_of(&next, node, EXPLORE_READ, (uint32_t)highest_commit(c));
		next = *c;
	}
	if (c->budget.transfers) {
		next.budget.transfers--;
		moves_of(&next, node, EXPLORE_TRANSFER, 0);
	}
}

static void moves_all(const struct cluster *c)
{
	moves_messages(c);
	for (uint32_t i = 0; i < NODES; i++) {
		struct cluster next = *c;

		if (c->budget.elections)
			moves_election(c, i);
		if (explore_node(c->node[i])->state == RAFT_LEADER)
			moves_leader(c, i);
		if (!c->budget.crashes || c->budget.elections == bounds.budget.elections)
			continue;
		next.budget.crashes--;
		for (uint32_t lost = 0; lost < 2; lost++)
			move_make(&next, i, (struct explore_event){EXPLORE_RESTART, lost, 0});
	}
}

/* ---- the search ------------------------------------------------------------------------------ */

static void enter(const struct cluster *c)
{
	struct cluster copy = *c;

	if (n_frames == cap_frames) {
		cap_frames = cap_frames ? cap_frames * 2 : 256;
		frames = realloc(frames, cap_frames * sizeof(*frames));
		if (!frames)
			abort();
	}
	frames[n_frames] = (struct frame){.first = n_moves, .next = n_moves, .end = n_moves};
	n_frames++;
	moves_all(&copy);
	frames[n_frames - 1].end = n_moves;
	if (n_frames > deepest)
		deepest = n_frames;
}

static int search(void)
{
	struct cluster first = {.budget = bounds.budget};

	for (uint32_t i = 0; i < NODES; i++)
		first.node[i] = explore_node_first(i + 1);
	seen_room();
	seen_put(cluster_hash(&first));
	enter(&first);
	while (n_frames) {
		struct frame *f = &frames[n_frames - 1];

		if (f->next == f->end) {
			n_moves = f->first;
			n_frames--;
			continue;
		}
		seen_room();
		f->next++;
		if (!seen_put(cluster_hash(&moves[f->next - 1].to)))
			continue;
		if (n_seen > bounds.states) {
			printf("not finished: more than %llu states\n",
			       (unsigned long long)bounds.states);
			return 1;
		}
		enter(&moves[f->next - 1].to);
	}
	return 0;
}

static bool option(const char *text)
{
	static const struct {
		const char *name;
		uint8_t *value;
	} bytes[] = {
		{"elections", &bounds.budget.elections}, {"heartbeats", &bounds.budget.heartbeats},
		{"proposals", &bounds.budget.proposals}, {"confs", &bounds.budget.confs},
		{"crashes", &bounds.budget.crashes},	 {"dups", &bounds.budget.dups},
		{"reads", &bounds.budget.reads},	 {"transfers", &bounds.budget.transfers},
	};
	char name[32];
	unsigned long long value;

	if (sscanf(text, "%31[a-z]=%llu", name, &value) != 2)
		return false;
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		if (!strcmp(name, bytes[i].name)) {
			*bytes[i].value = (uint8_t)value;
			return value < 100;
		}
	if (!strcmp(name, "link") && value >= 1 && value <= LINK_MAX)
		bounds.link = (uint32_t)value;
	else if (!strcmp(name, "terms") && value < TERMS_MAX)
		bounds.terms = (uint32_t)value;
	else if (!strcmp(name, "conf") && value < 3 * NODES)
		bounds.conf = (uint32_t)value;
	else if (!strcmp(name, "voters") && value >= 1 && value <= NODES)
		bounds.node.voters = (uint32_t)value;
	else if (!strcmp(name, "compact"))
		bounds.node.compact = (uint32_t)value;
	else if (!strcmp(name, "states"))
		bounds.states = value;
	else
		return false;
	return true;
}

/* Makes one search within `words`. Returns the exit status. */
static int explore_run(char *const *words, int n)
{
	uint64_t nodes, messages, steps;
	int rc;

	for (int i = 0; i < n; i++)
		if (!option(words[i])) {
			fprintf(stderr, "what is %s?\n", words[i]);
			return 2;
		}
	bounds.node.rounds = bounds.budget.reads > 0;
	explore_nodes_begin(&bounds.node);
	rc = search();
	explore_counts(&nodes, &messages, &steps);
	for (int i = 0; i < n; i++)
		printf("%s ", words[i]);
	printf("\n  %llu states of the cluster, %llu of a node, %llu messages, %llu moves, %llu "
	       "steps "
	       "of the core, %llu deep\n",
	       (unsigned long long)n_seen, (unsigned long long)nodes, (unsigned long long)messages,
	       (unsigned long long)n_steps, (unsigned long long)steps, (unsigned long long)deepest);
	fflush(stdout);
	return rc;
}

/* ---- the predefined searches ----------------------------------------------------------------- */

#define WORDS_MAX 8
static const struct suite {
	bool quick;
	const char *words;
} suite[] = {
	{true, "elections=2 heartbeats=1 proposals=1"},
	{true, "elections=1 heartbeats=1 proposals=1 crashes=1"},
	{false, "elections=2 proposals=1 crashes=1"},
	{true, "elections=2 proposals=1 confs=1 conf=8"},	   /* node 3 is removed */
	{true, "elections=2 proposals=1 confs=1 voters=2 conf=6"}, /* node 3 becomes a voter */
	{true, "elections=1 proposals=1 transfers=1"},
	{false, "elections=2 proposals=2"},
	{false, "elections=3 proposals=1 terms=4"},
	{false, "elections=2 heartbeats=1 proposals=1 compact=1"},
	{false, "elections=2 proposals=1 compact=1 crashes=1"},
	{false, "elections=2 proposals=1 reads=1"},
	{false, "elections=2 proposals=1 dups=1"},
	{false, "elections=1 heartbeats=1 proposals=1 link=2 dups=1"},
	{false, "elections=2 proposals=1 confs=1 conf=8 crashes=1"},
	{false, "elections=1 heartbeats=1 proposals=1 transfers=1 crashes=1"},
};

static int suite_one(const char *text)
{
	char copy[256], *words[WORDS_MAX], *save = NULL;
	int n = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w && n < WORDS_MAX;
	     w = strtok_r(NULL, " ", &save))
		words[n++] = w;
	return explore_run(words, n);
}

/* Runs each search in a process of its own, as many at a time as there are processors. */
static int suite_run(bool quick)
{
	long jobs = sysconf(_SC_NPROCESSORS_ONLN), running = 0;
	int failed = 0, status;

	fflush(stdout);
	for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++) {
		if (quick && !suite[i].quick)
			continue;
		if (running == jobs) {
			wait(&status);
			failed += status != 0;
			running--;
		}
		if (fork() == 0)
			exit(suite_one(suite[i].words));
		running++;
	}
	for (; running; running--) {
		wait(&status);
		failed += status != 0;
	}
	printf("%d searches failed\n", failed);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return suite_run(false);
	if (argc == 2 && !strcmp(argv[1], "--quick"))
		return suite_run(true);
	if (argc >= 2 && argv[1][0] != '-')
		return explore_run(argv + 1, argc - 1);
	fprintf(stderr,
		"usage: %s [--quick | NAME=VALUE ...]\n"
		"NAME: elections heartbeats proposals confs crashes dups reads transfers (how many "
		"of\n"
		"each), link (messages on one at a time), terms (the highest), voters, conf "
		"(which\n"
		"change: 3 * (node - 1) + 0 voter, 1 learner, 2 removed), compact (after N\n"
		"entries), states (give up after N)\n",
		argv[0]);
	return 2;
}
