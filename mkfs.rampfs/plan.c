/*
 * Founding a cluster, and joining one. See plan.h.
 *
 * Every founder has the same canonical cluster.conf, and a founder's journal begins with those
 * members. A joiner's cluster.conf lists the members as the cluster named them when it joined,
 * itself among them; its journal knows them only to find them, and has no log (meta.h).
 *
 * How it fails: a configuration without the node, or a member that can't be reached, does not prove
 * the key or refuses; nothing was made here then. A joiner that the cluster has taken in and whose
 * directory then can't be made asks again: it gets the same number.
 */
#include "plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "transport/peers/join.h"

void plan_free(struct plan *plan)
{
	config_free(&plan->config);
	free(plan->nodes);
	plan->nodes = NULL;
}

int plan_found(const struct mkfs_options *o, const uint8_t key[STATEDIR_KEY_BYTES],
	       struct plan *plan, struct ramp_err *err)
{
	const struct config_cluster *config = &plan->config;
	struct meta_founding *founding = &plan->founding;

	plan->nodes = calloc(config->n_nodes, sizeof(*plan->nodes));
	if (!plan->nodes)
		return ramp_err_sys(err, ENOMEM, "the journal");
	*founding = (struct meta_founding){.instance = founding->instance,
					   .arena_addr = config->arena_addr,
					   .arena_len = config->arena_len,
					   .arena_user_max = config->arena_user_max,
					   .nodes = plan->nodes,
					   .n_nodes = config->n_nodes};
	for (size_t i = 0; i < config->n_nodes; i++) {
		const struct config_node *n = &config->nodes[i];
		struct node_row *row = &plan->nodes[i];

		*row = (struct node_row){.node = (ramp_node_t)i + 1,
					 .capacity = n->capacity_bytes,
					 .role = n->voter ? NODE_VOTER : NODE_STANDBY};
		memcpy(row->name, n->name, sizeof(row->name));
		memcpy(row->address, n->address, sizeof(row->address));
		if (strcmp(n->name, o->node) == 0)
			founding->self = row->node;
	}
	return statedir_cluster_id(config, key, founding->cluster_id, err);
}

/* ---- joining -------------------------------------------------------------------------------- */

/* Takes the joiner's facts from the options and its own section. */
static int own_words(const struct mkfs_options *o, const struct config_cluster *config, bool keeps,
		     struct join_request *request, struct config_node *own, struct ramp_err *err)
{
	const struct config_node *n = config->nodes ? config_find(config, o->node) : NULL;

	if (n)
		*own = *n;
	/* The member has the address that the cluster knows; STATE_DIR's own file may be older. */
	if (keeps && !o->config)
		own->address[0] = '\0';
	own->voter = false;
	if (o->address)
		snprintf(own->address, sizeof(own->address), "%s", o->address);
	if (o->capacity && size_parse(o->capacity, &own->capacity_bytes))
		return ramp_err_set(err, EINVAL, "--capacity: not a size like 512M or 8G: %s",
				    o->capacity);
	if (o->capacity && own->capacity_bytes < CONFIG_CAPACITY_MIN)
		return ramp_err_set(err, EINVAL, "--capacity: less than 16M: %s", o->capacity);
	if (o->address && !config_address_ok(o->address))
		return ramp_err_set(err, EINVAL, "--address is HOST:PORT, not %s", o->address);
	if (!config_name_ok(o->node))
		return ramp_err_set(err, EINVAL, "--node: not a node's name: %s", o->node);
	request->kind = keeps ? JOIN_KEPT : o->again ? JOIN_AGAIN : JOIN_NEW;
	snprintf(request->name, sizeof(request->name), "%s", o->node);
	memcpy(request->address, own->address, sizeof(request->address));
	request->capacity_bytes = own->capacity_bytes;
	return 0;
}

/* For texts that go into cluster.conf unchanged. */
static bool names_are_right(const struct join_answer *answer)
{
	bool right = config_name_ok(answer->cluster);

	for (size_t i = 0; i < answer->n_members; i++)
		right = right && config_name_ok(answer->members[i].name) &&
			config_address_ok(answer->members[i].address);
	return right;
}

/* Makes the configuration and the rows of the members that the cluster named. */
static int take_members(const struct join_answer *answer, const struct config_node *own,
			struct plan *plan, struct ramp_err *err)
{
	struct config_cluster *config = &plan->config;

	if (!names_are_right(answer))
		return ramp_err_set(err, EPROTO,
				    "the member that was asked gives a name or an address that "
				    "can't be one");
	config_free(config);
	config->nodes = calloc(answer->n_members + 1, sizeof(*config->nodes));
	plan->nodes = calloc(answer->n_members + 1, sizeof(*plan->nodes));
	if (!config->nodes || !plan->nodes)
		return ramp_err_sys(err, ENOMEM, "the members");
	memcpy(config->name, answer->cluster, sizeof(config->name));
	config->arena_addr = answer->arena_addr;
	config->arena_len = answer->arena_len;
	config->n_nodes = answer->n_members;
	for (size_t i = 0; i < answer->n_members; i++) {
		const struct join_member *m = &answer->members[i];
		struct config_node *n = &config->nodes[i];
		struct node_row *row = &plan->nodes[i];

		*row = (struct node_row){.node = m->node,
					 .capacity = m->capacity_bytes,
					 .role = m->voter ? NODE_VOTER : NODE_STANDBY};
		memcpy(row->name, m->name, sizeof(row->name));
		memcpy(row->address, m->address, sizeof(row->address));
		*n = (struct config_node){.capacity_bytes = m->capacity_bytes, .voter = m->voter};
		memcpy(n->name, m->name, sizeof(n->name));
		memcpy(n->address, m->address, sizeof(n->address));
		if (m->node != answer->node)
			continue;
		plan->founding.self = m->node;
		n->transport = own->transport;
		n->streams = own->streams;
		if (own->capacity_bytes)
			n->capacity_bytes = own->capacity_bytes;
	}
	return plan->founding.self ? 0
				   : ramp_err_set(err, EPROTO,
						  "the member that was asked does not name this "
						  "node as one");
}

int plan_join(const struct mkfs_options *o, const uint8_t key[STATEDIR_KEY_BYTES],
	      struct plan *plan, struct ramp_err *err)
{
	struct join_request request = {0};
	struct config_node own = {0};
	struct join_answer answer;
	int rc = own_words(o, &plan->config, plan->keeps, &request, &own, err);

	if (rc)
		return rc;
	request.incarnation = plan->incarnation;
	request.instance = plan->founding.instance;
	rc = join_ask(o->join, key, &request, &answer, err);
	if (rc)
		return rc;
	rc = take_members(&answer, &own, plan, err);
	memcpy(plan->founding.cluster_id, answer.cluster_id, sizeof(answer.cluster_id));
	plan->founding.arena_addr = answer.arena_addr;
	plan->founding.arena_len = answer.arena_len;
	plan->founding.life = answer.life;
	plan->founding.nodes = plan->nodes;
	plan->founding.n_nodes = answer.n_members;
	plan->founding.joins = true;
	free(answer.members);
	return rc;
}
