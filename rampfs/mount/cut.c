/*
 * A range of a segment whose bytes are replaced.
 */
#include "cut.h"

#include "memory/pages.h"

int cut_begin(struct cut *cut, struct mount *m, struct seg *seg, uint64_t offset, uint64_t len)
{
	int rc;

	*cut = (struct cut){.seg = seg, .offset = offset, .len = len};
	if (!len || pages_local(seg, first_page(offset), count_pages(offset, len)))
		return 0;
	rc = pull_cut_begin(m->config.pull, seg, offset, len);
	if (!rc)
		cut->pull = m->config.pull;
	return rc;
}

void cut_end(struct cut *cut, uint64_t done)
{
	if (cut->pull)
		pull_cut_end(cut->pull, cut->seg, cut->offset, cut->len, done);
}
