#include "agent_session.h"

#include <stddef.h>

#include "sys.h"

struct scratch *scratch_find(struct agent_session *session, uint64_t at)
{
	for (int i = 0; i < SCRATCH_MAX; i++)
		if (session->scratch[i].at == at)
			return &session->scratch[i];
	return NULL;
}

void scratch_drop(struct scratch *scratch, uint64_t done)
{
	if (done < scratch->len)
		sys_munmap(scratch->at + done, scratch->len - done);
	*scratch = (struct scratch){0};
}

void scratch_drop_all(struct agent_session *session)
{
	for (int i = 0; i < SCRATCH_MAX; i++)
		if (session->scratch[i].at != 0)
			scratch_drop(&session->scratch[i], 0);
}
