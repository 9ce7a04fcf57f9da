/*
 * What this node knows of the others' adapters. See core.h.
 */
#include "core.h"

#include <stdlib.h>

struct verbs_node *verbs_node_of(struct verbs *verbs, ramp_node_t number)
{
	struct verbs_node *node;

	LIST_FOREACH (node, &verbs->nodes, entry)
		if (node->node == number)
			return node;
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	node->node = number;
	LIST_INSERT_HEAD(&verbs->nodes, node, entry);
	return node;
}
