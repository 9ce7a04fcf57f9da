/*
 * A writer that is to have many pages at once.
 */
#include "pull_impl.h"

struct wish pulled_wish(struct pulled *pulled, uint64_t now_ms)
{
	struct wish wish;

	pthread_mutex_lock(&pulled->lock);
	wish = pulled->wish;
	pthread_mutex_unlock(&pulled->lock);
	return wish.until_ms > now_ms ? wish : (struct wish){0};
}

uint64_t wish_leaves(const struct wish *wish, uint64_t first, uint64_t count)
{
	if (!wish->until_ms || first >= wish->to || first + count <= wish->from)
		return count;
	return first < wish->from ? wish->from - first : 0;
}

/*
 * Of two writers the first has his turn before the other, but for one who wants those pages, too.
 * Where programs touch page after page there, a wish may not come true: then the prefetch goes on
 * for as long as it had to wait.
 */
void wish_for(struct pulled *pulled, uint64_t from, uint64_t to)
{
	uint64_t now = pull_now_ms(), since;
	struct wish *wish = &pulled->wish;

	pthread_mutex_lock(&pulled->lock);
	since = now < wish->since_ms + 2 * WISH_MAX_MS ? wish->since_ms : now;
	if (now < since + WISH_MAX_MS &&
	    (wish->until_ms <= now || (from <= wish->from && to >= wish->to)))
		*wish = (struct wish){
			.from = from, .to = to, .since_ms = since, .until_ms = now + WISH_MS};
	pthread_mutex_unlock(&pulled->lock);
}

void wish_fulfilled(struct pulled *pulled, uint64_t from, uint64_t to)
{
	struct wish *wish = &pulled->wish;

	pthread_mutex_lock(&pulled->lock);
	if (from <= wish->from && to >= wish->to)
		*wish = (struct wish){0};
	pthread_mutex_unlock(&pulled->lock);
}
