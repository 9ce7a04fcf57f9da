/*
 * The format of the journal's file. See journal_format.h.
 *
 * A file of an older format is brought up in the transaction that counts the new life: both happen,
 * or neither. From then on an older program refuses it. Readers (journal_reader.h) ask nothing of
 * the format.
 */
#include "journal_format.h"

#include <errno.h>

#include "journal_impl.h"
#include "journal_keys.h"
#include "journal_tables.h"

/* The step to each format from the one before it. */
static const char *const steps[] = {
	[2] = JOURNAL_SEGMENT_USE,
};
_Static_assert(sizeof(steps) / sizeof(steps[0]) == JOURNAL_FORMAT + 1, "a step to each format");

int journal_is_none(const struct journal *j, struct ramp_err *err)
{
	if (j->dead)
		return -EIO;
	return ramp_err_set(err, EPROTO, "journal %s: is not a journal of rampfs %s", j->path,
			    RAMPFS_VERSION);
}

int journal_check_format(struct journal *j, struct ramp_err *err)
{
	uint64_t format = 0;

	if (journal_prepare(j, S_META_GET) < 0 || !journal_get_key_u64(j, "format", &format) ||
	    format == 0)
		return journal_is_none(j, err);
	if (format <= JOURNAL_FORMAT)
		return 0;
	return ramp_err_set(err, EOPNOTSUPP,
			    "journal %s: is of format %llu, a newer rampfs has used it, and rampfs "
			    "%s knows formats up to %d: start the newer one",
			    j->path, (unsigned long long)format, RAMPFS_VERSION, JOURNAL_FORMAT);
}

int journal_bring_up(struct journal *j)
{
	uint64_t format = JOURNAL_FORMAT;
	int rc = 0;

	if (!journal_get_key_u64(j, "format", &format))
		return journal_dead(j) ? -EIO : 0;
	if (format >= JOURNAL_FORMAT)
		return 0;
	while (rc == 0 && format < JOURNAL_FORMAT)
		rc = journal_run_text(j, steps[++format]);
	return rc ? rc : journal_put_key_u64(j, "format", JOURNAL_FORMAT);
}
