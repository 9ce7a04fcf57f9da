/*
 * Helpers of shim_prog's scenarios. The file is a segment of SEGMENT_BYTES bytes, all zero.
 */
#ifndef RAMP_SHIM_PROG_H
#define RAMP_SHIM_PROG_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define PAGE	      4096ul
#define SEGMENT_BYTES (4ul << 20)
#define EXTENT_BYTES  (256ul << 20)
#define RW	      (PROT_READ | PROT_WRITE)

/* The segment; a scenario may continue with another. */
extern const char *file;

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: not true: %s (errno %d, %s)\n", __FILE__,          \
				__LINE__, #cond, errno, strerror(errno));                          \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Two functions that musl lacks. */
#ifndef __GLIBC__
#define closefrom(first)		  (void)syscall(SYS_close_range, first, ~0U, 0)
#define pkey_mprotect(at, len, prot, key) mprotect(at, len, prot)
#endif

int open_file(int flags);
/* Opens the file as prot needs it, maps it, closes it. */
volatile unsigned char *map(size_t len, int prot, int flags, off_t offset);
unsigned char byte_of_file(off_t offset);
bool is_mapped(const volatile void *at);
int count_entries(const char *dir);
int count_lines(const char *name);
/* Touches a byte. Returns 0, or the signal in which that ends. */
int touch(volatile unsigned char *at, bool write);
/* A mv that has come back may have returned before the mapping is in place again. */
bool comes_back(volatile unsigned char *at);
/* Maps the segment, up to its extent's end, in as many pieces as a program may have. The first is
   its first LARGE_PAGES pages, each of the next PIECES one page. */
volatile unsigned char *map_all_pieces(void);
#define LARGE_PAGES 8u
#define PIECES	    32766u
/* Reports the progress on stdout and waits for a line on stdin. */
void meet(const char *where);
/* Waits for a child that must exit 0. */
void wait_for(pid_t pid);

/* shim_prog_map.c: ways to map */
void scenario_basic(void);
void scenario_partial(void);
void scenario_large(void);
void scenario_flags(void);
void scenario_arguments(void);
void scenario_handed(void);
void scenario_succeeded(void);
void scenario_around(void);
void scenario_taken(void);
void scenario_hinted(void);
void scenario_halfway(void);
void scenario_readonly(void);
void scenario_protect(void);
void scenario_remap(void);
void scenario_private(void);
void scenario_many(void);
void scenario_full(void);
void scenario_pieces(void);
void scenario_unlinked(void);
void scenario_loaded(void);
/* shim_prog_crew.c: threads, children, handlers */
void scenario_forks(void);
void scenario_execs(void);
void scenario_kin(void);
void scenario_threads(void);
void scenario_endure(void);
void scenario_signals(void);
void scenario_daemonlike(void);
void scenario_leaver(void);
void scenario_tree(void);
void scenario_crowd(void);
/* shim_prog_move.c: the test moves the segment, or kills the daemon */
void scenario_frozen(void);
void scenario_gone(void);
void scenario_headless(void);
void scenario_closer(void);
void scenario_restart(void);
void scenario_orphan(void);
void scenario_reborn(void);
void scenario_meanwhile(void);
void scenario_follow(void);
void scenario_beside(void);
void scenario_squat(void);
void scenario_allowed(void);
void scenario_late(void);
void scenario_widened(void);
void scenario_grown(void);
void scenario_growing(void);
void scenario_holed(void);
void scenario_reused(void);
void scenario_covered(void);
void scenario_own(void);
void scenario_mosaic(void);
void scenario_crammed(void);
void scenario_jailed(void);
void scenario_moved(void);
void scenario_limited(void);

#endif
