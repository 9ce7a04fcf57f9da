/*
 * A list of mappings that a look at processes has found.
 */
#ifndef RAMP_PROGRAMS_FOUND_H
#define RAMP_PROGRAMS_FOUND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* From the start of a process's first mapping of a file to the end of its last one. */
struct found {
	uint64_t ino;
	pid_t pid;
	uint64_t start, end;
};

struct found_list {
	struct found *at;
	size_t n, cap;
};

/* Notes one more. -ENOMEM. */
int found_note(struct found_list *list, pid_t pid, uint64_t ino, uint64_t start, uint64_t end);
/* Sorts it by file and process, with one entry for both. */
void found_join(struct found_list *list);
/* Returns where entries of that file begin, if there are any. The list is joined. */
size_t found_first(const struct found_list *list, uint64_t ino);
void found_free(struct found_list *list);

#endif
