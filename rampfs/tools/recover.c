/*
 * rampfs-node recover. See recover.h.
 *
 * Happy path: the state directory's lock and the journal are taken, each member's fate is what the
 * operator named, every address is dialed, what may be lost is told, the operator confirms, and one
 * transaction makes the new cluster. Then the certificate is written beside the journal, which has
 * it too, so that a recovery that was killed in between is completed by the next one.
 *
 * How it fails: with one sentence, and nothing was changed then.
 */
#include "recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hmac.h"
#include "base/output.h"
#include "base/statedir.h"
#include "certificate.h"
#include "recover_dial.h"
#include "recover_report.h"

#define CERTIFICATE_FILE "recovered.cert"

struct recovering {
	const struct recover_options *o;
	struct statedir dir;
	int lock;
	struct recovery *r;
	struct recovery_facts facts;
	struct certificate cert;
	struct recovery_address addresses[CONFIG_NODES_MAX];
	size_t n_addresses;
};

/* ---- the certificate's file ------------------------------------------------------------------ */

static int write_all(int fd, const char *text)
{
	size_t len = strlen(text);

	errno = ENOSPC; /* the cause of a short write */
	return write(fd, text, len) == (ssize_t)len && fsync(fd) == 0 ? 0 : -errno;
}

static int place_certificate(struct recovering *w, const char *text, char path[PATH_MAX],
			     struct ramp_err *err)
{
	char made[PATH_MAX];
	int fd, rc = statedir_file(w->dir.path, CERTIFICATE_FILE, path, err);

	rc = rc ? rc : statedir_file(w->dir.path, CERTIFICATE_FILE ".new", made, err);
	if (rc)
		return rc;
	fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : write_all(fd, text);
	if (fd >= 0)
		close(fd);
	if (!rc && rename(made, path) < 0)
		rc = -errno;
	return rc ? ramp_err_sys(err, -rc,
				 "%s (the recovery is done; rampfs-node recover --show prints the "
				 "certificate)",
				 path)
		  : 0;
}

/* ---- members and their fates ----------------------------------------------------------------- */

static struct certificate_member *find_name(struct certificate *c, const char *name)
{
	for (size_t i = 0; i < c->n_members; i++)
		if (strcmp(c->members[i].row.name, name) == 0)
			return &c->members[i];
	return NULL;
}

static bool is_named(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static int take_member(void *arg, const struct node_row *row)
{
	struct recovering *w = arg;
	struct certificate *c = &w->cert;

	if (row->role == NODE_REMOVED)
		return 0;
	if (c->n_members == CONFIG_NODES_MAX)
		return -E2BIG;
	c->members[c->n_members++].row = *row;
	return 0;
}

static int check_names(struct recovering *w, const char *const *names, size_t n,
		       struct ramp_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct certificate_member *m = find_name(&w->cert, names[i]);

		if (!m)
			return ramp_err_set(err, ENOENT, "no such node: %s", names[i]);
		if (m->row.node == w->facts.self)
			return ramp_err_set(err, EINVAL, "%s is this node itself", names[i]);
	}
	return 0;
}

/* Gives each member the fate that the operator named. A node that was fenced before is lost. */
static int take_fates(struct recovering *w, struct ramp_err *err)
{
	const struct recover_options *o = w->o;
	char missing[160] = "";
	int rc = check_names(w, o->lost, o->n_lost, err);

	rc = rc ? rc : check_names(w, o->survivors, o->n_survivors, err);
	for (size_t i = 0; !rc && i < w->cert.n_members; i++) {
		struct certificate_member *m = &w->cert.members[i];
		bool lost = is_named(o->lost, o->n_lost, m->row.name);
		bool survives = is_named(o->survivors, o->n_survivors, m->row.name);
		bool fenced = m->row.incarnation && m->row.fenced == m->row.incarnation;
		size_t len = strlen(missing);

		if (m->row.node == w->facts.self)
			m->fate = FATE_RECOVERED;
		else if (lost && survives)
			rc = ramp_err_set(err, EINVAL, "%s is named as lost and as a survivor",
					  m->row.name);
		else if (survives && fenced)
			rc = ramp_err_set(err, EPERM, "%s was fenced: its segments are lost",
					  m->row.name);
		else if (lost || survives || fenced)
			m->fate = survives ? FATE_SURVIVOR : FATE_LOST;
		else
			snprintf(missing + len, sizeof(missing) - len, " %s", m->row.name);
	}
	if (!rc && missing[0])
		rc = ramp_err_set(err, EINVAL,
				  "name each other member, with --lost or --survivor:%s", missing);
	return rc;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static int take_addresses(struct recovering *w, struct ramp_err *err)
{
	for (size_t i = 0; i < w->o->n_addresses; i++) {
		const char *text = w->o->addresses[i], *at = strchr(text, '=');
		char name[RAMP_NODE_NAME_MAX + 1];
		const struct certificate_member *m;

		if (!at || at - text > RAMP_NODE_NAME_MAX || !config_address_ok(at + 1))
			return ramp_err_set(err, EINVAL, "--address is NAME=HOST:PORT, not %s",
					    text);
		snprintf(name, sizeof(name), "%.*s", (int)(at - text), text);
		m = find_name(&w->cert, name);
		if (!m)
			return ramp_err_set(err, ENOENT, "--address: no such node: %s", name);
		w->addresses[w->n_addresses++] =
			(struct recovery_address){.node = m->row.node, .address = at + 1};
	}
	return 0;
}

static void add_dial(struct dial *dials, size_t *n, const char *name, const char *address)
{
	for (size_t i = 0; i < *n; i++)
		if (strcmp(dials[i].address, address) == 0)
			return;
	if (*n == DIAL_MAX)
		return;
	snprintf(dials[*n].name, sizeof(dials[*n].name), "%s", name);
	snprintf(dials[*n].address, sizeof(dials[*n].address), "%s", address);
	(*n)++;
}

/* Dials the other members at each address that the tables, cluster.conf or the operator name. */
static int dial_members(struct recovering *w, struct ramp_err *err)
{
	static struct dial dials[DIAL_MAX];
	size_t n = 0;

	for (size_t i = 0; i < w->cert.n_members; i++) {
		const struct node_row *row = &w->cert.members[i].row;
		const struct config_node *founding = config_find(&w->dir.config, row->name);

		if (row->node == w->facts.self)
			continue;
		add_dial(dials, &n, row->name, row->address);
		if (founding)
			add_dial(dials, &n, row->name, founding->address);
		for (size_t a = 0; a < w->n_addresses; a++)
			if (w->addresses[a].node == row->node)
				add_dial(dials, &n, row->name, w->addresses[a].address);
	}
	return recover_dial(dials, n, w->dir.key, w->facts.cluster_id, err);
}

/* ---- the verbs ------------------------------------------------------------------------------- */

/* Asks for the cluster's name, so that no habit answers. */
static int confirm(const struct recovering *w, struct ramp_err *err)
{
	char line[RAMP_NODE_NAME_MAX + 3] = "";

	if (w->o->yes)
		return 0;
	printf("\nThis can't be taken back once the new cluster has run. Type the cluster's name "
	       "(%s) to continue: ",
	       w->dir.config.name);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, w->dir.config.name) == 0)
		return 0;
	return ramp_err_set(err, ECANCELED, "not confirmed: nothing was changed");
}

/* Names the copy of the journal by the cluster that it is of. */
static int copy_path(const struct recovering *w, char path[PATH_MAX], struct ramp_err *err)
{
	char name[32];
	const uint8_t *id = w->facts.cluster_id;

	snprintf(name, sizeof(name), "journal.db.%02x%02x%02x%02x", id[0], id[1], id[2], id[3]);
	return statedir_file(w->dir.path, name, path, err);
}

static void print_done(const struct recovering *w, const char *certificate)
{
	bool survivors = false;

	printf("\nDone: node %s is the cluster's only voter.\n", w->dir.node);
	printf("The certificate is %s\n", certificate);
	for (size_t i = 0; i < w->cert.n_members; i++)
		survivors |= w->cert.members[i].fate == FATE_SURVIVOR;
	printf("Next: start this node (rampfs %s MOUNTPOINT)%s.\n", w->dir.path,
	       survivors ? "; then on each survivor: rampfs-node recover --adopt CERTIFICATE "
			   "STATE_DIR"
			 : "");
	printf("Then make voters: mkfs.rampfs --join and rampfs-node promote. Never start a lost "
	       "node's old state again: rampfs(8) says why.\n");
}

/* Finishes a recovery that was killed before its certificate was written. */
static int complete(struct recovering *w, struct ramp_err *err)
{
	char path[PATH_MAX], *text = NULL;
	int rc = recovery_certificate(w->r, &text, err);

	rc = rc ? rc : certificate_parse(text, w->dir.key, &w->cert, err);
	rc = rc ? rc : place_certificate(w, text, path, err);
	free(text);
	if (rc)
		return rc;
	printf("This node was recovered already, and has not run since: nothing is changed.\n");
	print_done(w, path);
	return 0;
}

static int commit_found(struct recovering *w, char *text, struct ramp_err *err)
{
	char copy[PATH_MAX], path[PATH_MAX];
	ramp_node_t lost[CONFIG_NODES_MAX];
	struct recovery_change change = {.certificate = text,
					 .addresses = w->addresses,
					 .n_addresses = w->n_addresses,
					 .lost = lost,
					 .copy = copy};
	int rc = copy_path(w, copy, err);

	memcpy(change.cluster_id, w->cert.to, sizeof(change.cluster_id));
	for (size_t i = 0; i < w->cert.n_members; i++)
		if (w->cert.members[i].fate == FATE_LOST)
			lost[change.n_lost++] = w->cert.members[i].row.node;
	rc = rc ? rc : recovery_found(w->r, &change, err);
	rc = rc ? rc : place_certificate(w, text, path, err);
	if (!rc)
		print_done(w, path);
	return rc;
}

static int found(struct recovering *w, struct ramp_err *err)
{
	char *text = NULL;
	int rc;

	if (w->facts.founded)
		return complete(w, err);
	if (w->facts.last.index == 0)
		return ramp_err_set(err, EPERM,
				    "this node has none of the cluster's tables yet: recover on "
				    "another (of one that was adopted, journal.db.XXXXXXXX is the "
				    "journal as it was)");
	rc = recovery_each_node(w->r, take_member, w);
	if (rc)
		return ramp_err_sys(err, -rc, "the journal's nodes");
	snprintf(w->cert.cluster, sizeof(w->cert.cluster), "%s", w->dir.config.name);
	memcpy(w->cert.from, w->facts.cluster_id, sizeof(w->cert.from));
	w->cert.by = w->facts.self;
	w->cert.last = w->facts.last;
	if (!certificate_find(&w->cert, w->cert.by))
		return ramp_err_set(err, EPERM, "this node was removed from its cluster");
	rc = take_fates(w, err);
	rc = rc ? rc : take_addresses(w, err);
	rc = rc ? rc : dial_members(w, err);
	if (rc)
		return rc;
	rc = recover_report(w->r, &w->cert, w->dir.path);
	if (rc)
		return ramp_err_sys(err, -rc, "the journal's segments");
	rc = confirm(w, err);
	rc = rc ? rc : certificate_make_id(&w->cert, w->dir.key, err);
	rc = rc ? rc : certificate_write(&w->cert, w->dir.key, &text, err);
	rc = rc ? rc : commit_found(w, text, err);
	free(text);
	return rc;
}

/* ---- adopting -------------------------------------------------------------------------------- */

static int check_adoption(const struct recovering *w, struct ramp_err *err)
{
	const struct certificate *c = &w->cert;
	const struct certificate_member *self = certificate_find(c, w->facts.self);
	const struct certificate_member *by = certificate_find(c, c->by);

	if (memcmp(c->to, w->facts.cluster_id, sizeof(c->to)) == 0)
		return ramp_err_set(err, EALREADY, "this node is of the recovered cluster already");
	if (memcmp(c->from, w->facts.cluster_id, sizeof(c->from)) != 0)
		return ramp_err_set(err, EPERM,
				    "the certificate is of another cluster than this node's");
	if (!self || strcmp(self->row.name, w->dir.node) != 0 ||
	    (self->row.instance && self->row.instance != w->facts.instance))
		return ramp_err_set(err, EPERM, "the certificate does not name this node");
	if (self->fate == FATE_LOST)
		return ramp_err_set(err, EPERM,
				    "node %s was declared lost: segments of it may be in use "
				    "elsewhere. Read what you need (its old cluster's), then "
				    "mkfs.rampfs --force --rejoin",
				    w->dir.node);
	if (recovery_is_before(c->last, w->facts.last))
		return ramp_err_set(err, ESTALE,
				    "this node's journal is newer (term %llu, entry %llu) than "
				    "%s's was (term %llu, entry %llu): recover here instead",
				    (unsigned long long)w->facts.last.term,
				    (unsigned long long)w->facts.last.index, by->row.name,
				    (unsigned long long)c->last.term,
				    (unsigned long long)c->last.index);
	return 0;
}

static int commit_adopt(struct recovering *w, const char *text, struct ramp_err *err)
{
	char copy[PATH_MAX], path[PATH_MAX];
	struct node_row *rows = calloc(CONFIG_NODES_MAX, sizeof(*rows));
	struct recovery_change change = {.certificate = text,
					 .addresses = w->addresses,
					 .n_addresses = w->n_addresses,
					 .members = rows,
					 .copy = copy};
	int rc = rows ? copy_path(w, copy, err) : ramp_err_sys(err, ENOMEM, "the members");

	memcpy(change.cluster_id, w->cert.to, sizeof(change.cluster_id));
	for (size_t i = 0; !rc && i < w->cert.n_members; i++) {
		rows[change.n_members] = w->cert.members[i].row;
		rows[change.n_members++].instance = 0; /* its NODE_UP binds it */
	}
	rc = rc ? rc : recovery_adopt(w->r, &change, err);
	free(rows);
	rc = rc ? rc : place_certificate(w, text, path, err);
	if (!rc)
		printf("Done: node %s is a standby of the recovered cluster, with its segments.\n"
		       "Next: start it (rampfs %s MOUNTPOINT), then rampfs-node promote %s.\n",
		       w->dir.node, w->dir.path, w->dir.node);
	return rc;
}

static int adopt(struct recovering *w, struct ramp_err *err)
{
	char *text = NULL;
	int rc = certificate_read_file(w->o->adopt, &text, err);

	if (rc)
		return rc;
	rc = certificate_parse(text, w->dir.key, &w->cert, err);
	if (rc)
		rc = ramp_err_wrap(err, "%s", w->o->adopt);
	rc = rc ? rc : check_adoption(w, err);
	rc = rc ? rc : take_addresses(w, err);
	if (!rc)
		printf("node %s leaves its old cluster for the one that node %s has recovered. Its "
		       "segments remain its own.\n",
		       w->dir.node, certificate_find(&w->cert, w->cert.by)->row.name);
	rc = rc ? rc : confirm(w, err);
	rc = rc ? rc : commit_adopt(w, text, err);
	free(text);
	return rc;
}

/* Notes addresses and nothing else: no node is lost, but the others can't be reached where they
   were. */
static int readdress(struct recovering *w, struct ramp_err *err)
{
	struct recovery_change change = {.addresses = w->addresses};
	int rc = recovery_each_node(w->r, take_member, w);

	if (rc)
		return ramp_err_sys(err, -rc, "the journal's nodes");
	rc = take_addresses(w, err);
	change.n_addresses = w->n_addresses;
	rc = rc ? rc : recovery_readdress(w->r, &change, err);
	if (!rc)
		printf("Done: the next start of node %s uses these addresses. Nothing else was "
		       "changed.\n",
		       w->dir.node);
	return rc;
}

static int show(struct recovering *w, struct ramp_err *err)
{
	char *text = NULL;
	int rc = recovery_certificate(w->r, &text, err);

	if (!rc)
		fputs(text, stdout);
	free(text);
	return rc;
}

static int open_offline(struct recovering *w, const char *state_dir, struct ramp_err *err)
{
	char journal[PATH_MAX];
	int rc = statedir_read(state_dir, &w->dir, err);

	rc = rc ? rc : statedir_file(w->dir.path, "journal.db", journal, err);
	if (rc)
		return rc;
	w->lock = statedir_lock(w->dir.path, err);
	if (w->lock < 0)
		return w->lock;
	rc = recovery_open(journal, &w->r, err);
	if (!rc)
		recovery_facts(w->r, &w->facts);
	return rc;
}

static int recover_carry_out(struct recovering *w, struct ramp_err *err)
{
	const struct recover_options *o = w->o;

	if (o->show)
		return show(w, err);
	if (o->adopt)
		return adopt(w, err);
	if (o->n_addresses && !o->n_lost && !o->n_survivors)
		return readdress(w, err);
	return found(w, err);
}

int recover_run(const struct recover_options *o, const char *state_dir)
{
	struct recovering *w = calloc(1, sizeof(*w));
	struct ramp_err err = {0};
	int rc;

	if (!w) {
		fputs("rampfs-node: out of memory\n", stderr);
		return 1;
	}
	w->o = o;
	w->lock = -1;
	rc = open_offline(w, state_dir, &err);
	if (!rc)
		rc = recover_carry_out(w, &err);
	recovery_close(w->r);
	if (w->lock >= 0)
		close(w->lock);
	statedir_free(&w->dir);
	hmac_wipe(w, sizeof(*w));
	free(w);
	if (output_end("rampfs-node") && !rc)
		return 1;
	if (rc)
		fprintf(stderr, "rampfs-node: recover: %s\n", err.text);
	return rc ? 1 : 0;
}
