/*
 * Which segments have an open file and a mapped header: for the files of this folder alone.
 *
 * A node may hold more segments than a process may have open files or mappings (vm.max_map_count is
 * 65,530). So beyond SEG_AWAKE_MAX segments, one that only the table refers to rests: it has
 * neither. Any thread that has a reference may wake it, and it stays awake at least as long as the
 * reference. Only a segment that is OWNED and whole rests, so that no step of a migration except
 * the first can fail by waking.
 */
#ifndef RAMP_MEMORY_OPEN_CACHE_H
#define RAMP_MEMORY_OPEN_CACHE_H

struct seg;

#define SEG_AWAKE_MAX 4096

/* 0; -errno, which is -EIO where the segment is damaged. */
int seg_wake_file(struct seg *seg);
int seg_wake_header(struct seg *seg);
/* Lets it rest if it may. Called before the caller's reference is given back. */
void seg_may_rest(struct seg *seg);

/* The descriptor becomes the segment's, or is closed where the segment has one. */
void seg_take_file(struct seg *seg, int fd);
/* The descriptor replaces the segment's, under the same number. 0 or -errno; fd is closed then. */
int seg_replace_file(struct seg *seg, int fd);
/* Maps the header; the descriptor stays the caller's. 0 or -errno. */
int seg_take_header(struct seg *seg, int state_fd);
/* Closes and unmaps all that it has. No other thread may be using the segment. */
void seg_close(struct seg *seg);

#endif
