/*
 * The part of the kernel's API that Debian 12's headers (Linux 6.1) lack, and thin helpers around it.
 *
 * Constants and structs have names of our own (KERNEL_, kernel_), so that they don't clash with
 * newer headers, nor with <sys/mount.h>, which can't be included beside <linux/fs.h>. Layouts and
 * numbers are those of include/uapi/linux of Linux 6.18.
 *
 * The helpers keep no state, allocate nothing unless said, and do not log. All return 0, a count or
 * a negative errno; addresses and lengths are bytes and page-aligned. Any thread.
 */
#ifndef RAMP_KERNEL_H
#define RAMP_KERNEL_H

#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/types.h>

/* statx(2): stx_mnt_id is a number that no other mount ever gets. Linux 6.8 */
#define KERNEL_STATX_MNT_ID_UNIQUE 0x4000u

/* ---- userfaultfd ------------------------------------------------------------------------ */

#define KERNEL_UFFD_WP_UNPOPULATED (UINT64_C(1) << 13) /* Linux 6.4 */
#define KERNEL_UFFD_POISON	   (UINT64_C(1) << 14) /* 6.6 */
#define KERNEL_UFFD_WP_ASYNC	   (UINT64_C(1) << 15) /* 6.7 */
#define KERNEL_UFFD_MOVE	   (UINT64_C(1) << 16) /* 6.8; not for shmem */

struct kernel_uffdio_poison {
	struct uffdio_range range;
	uint64_t mode; /* 1: do not wake */
	int64_t updated;
};
#define KERNEL_UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct kernel_uffdio_poison)

/* MISSING, MINOR and WP together, always: MINOR alone lets the program's own MADV_COLLAPSE map
   pages that are not filled yet. */
#define KERNEL_UFFD_MODES                                                                          \
	(UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP)

/* Does the handshake, once in a userfaultfd's life. -EINVAL: the kernel lacks one of `features`. */
int kernel_uffd_api(int uffd, uint64_t features);
int kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes);
int kernel_uffd_unregister(int uffd, uint64_t start, uint64_t len);
/* Wakes threads blocked in the range: they try again, and raise their page fault again if needed. */
int kernel_uffd_wake(int uffd, uint64_t start, uint64_t len);

/*
 * Maps the file's pages as they are, and wakes (unless !wake). A page that is mapped already counts
 * as done. Returns how many bytes from `start` on are mapped now, or a negative errno if the first
 * page is not: -EAGAIN an event is unread (read it, try again), -EFAULT past the end of the file or
 * a hole, -ENOENT not registered, -ESRCH the process is gone.
 */
int64_t kernel_uffd_continue(int uffd, uint64_t start, uint64_t len, bool wake);
/* Poisons pages: a touch is SIGBUS from now on. As above; -EEXIST on a mapped page. */
int64_t kernel_uffd_poison(int uffd, uint64_t start, uint64_t len);
/* Sets or lifts write protection; lifting wakes. */
int kernel_uffd_protect(int uffd, uint64_t start, uint64_t len, bool on);

/* ---- /proc/PID/pagemap -------------------------------------------------------------------- */

struct kernel_page_region {
	uint64_t start, end, categories;
};
struct kernel_pm_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define KERNEL_PAGEMAP_SCAN _IOWR('f', 16, struct kernel_pm_scan) /* Linux 6.7 */
#define KERNEL_PM_WP	    (UINT64_C(1) << 0)			  /* PM_SCAN_WP_MATCHING */
#define KERNEL_PM_CHECK_WP  (UINT64_C(1) << 1)			  /* PM_SCAN_CHECK_WPASYNC */
#define KERNEL_PAGE_WRITTEN (UINT64_C(1) << 1)			  /* not write-protected */
#define KERNEL_PAGE_FILE    (UINT64_C(1) << 2)
#define KERNEL_PAGE_PRESENT (UINT64_C(1) << 3)
#define KERNEL_PAGE_SWAPPED (UINT64_C(1) << 4)
#define KERNEL_PAGE_PFNZERO (UINT64_C(1) << 5)
#define KERNEL_PAGE_HUGE    (UINT64_C(1) << 6)

/* Selects pages that have all of the categories `all`, none of `none`, and at least one of `any`
   (0: no matter). */
struct kernel_page_kind {
	uint64_t all, none, any;
};

/*
 * Returns 1 if a page in [start, end) is of that kind, 0 if none is; *at (may be NULL) is the first
 * one's address. all PRESENT: a load would go through. any PRESENT|WRITTEN: a page is there or is
 * not write-protected. `pagemap_fd` is an open /proc/PID/pagemap. -ENOTTY before 6.7.
 */
int kernel_pagemap_find(int pagemap_fd, uint64_t start, uint64_t end, struct kernel_page_kind kind,
			uint64_t *at);

#define KERNEL_PAGEMAP_REGIONS 512u /* more are repeated by some kernels, without KERNEL_PM_WP */
typedef void kernel_region_fn(void *arg, uint64_t start, uint64_t end);
/*
 * Calls fn for each run of pages of that kind in [start, end), in order. `arm`: each written page is
 * write-protected in the same step; then the kind is WRITTEN and nothing else (any other would leave
 * pages that are not protected), and every mapping there must be registered for WP_ASYNC (-EPERM).
 * WRITTEN and nothing else takes a tenth of the time of any other kind, with small pages. A page without an entry is of it;
 * but where no page table is, some kernels don't say so.
 */
int kernel_pagemap_each(int pagemap_fd, uint64_t start, uint64_t end, struct kernel_page_kind kind,
			bool arm, kernel_region_fn *fn, void *arg);

/* ---- /proc/TID/status ----------------------------------------------------------------------- */

/*
 * Whether the thread, which sleeps in a system call, will never return to its program: a signal
 * that ends its process is pending, or the thread is gone. A signal that has a handler, that stops
 * the thread, or that it ignores or blocks does not count: those interrupt no read of a file
 * (signal(7)). If /proc says nothing, the thread is taken to end.
 */
bool kernel_ends(pid_t thread);

/* ---- /proc/PID/maps ------------------------------------------------------------------------ */

#define KERNEL_VMA_READ	  0x01u
#define KERNEL_VMA_WRITE  0x02u
#define KERNEL_VMA_EXEC	  0x04u
#define KERNEL_VMA_SHARED 0x08u

struct kernel_vma {
	uint64_t start, end, offset, inode; /* offset into the file; inode 0: no file */
	uint32_t dev_major, dev_minor, flags;
};

struct kernel_procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define KERNEL_PROCMAP_QUERY _IOWR('f', 17, struct kernel_procmap_query) /* Linux 6.11 */
#define KERNEL_PROCMAP_NEXT  0x10u /* the VMA that covers query_addr, or the next */
#define KERNEL_PROCMAP_FILE  0x20u /* only file-backed ones */

/* A process's mappings, by PROCMAP_QUERY, or by reading the text if the kernel has no such query.
   For use by one thread. */
struct kernel_maps {
	int fd;		  /* for queries; -1 when `text` is used */
	FILE *text;	  /* NULL when `fd` is used */
	uint64_t text_at; /* where the last line read ended; UINT64_MAX: nothing read yet */
};

/* -ENOENT or -ESRCH: no such process; -EACCES. After success the caller calls kernel_maps_close. */
int kernel_maps_open(struct kernel_maps *maps, pid_t pid);
/* The same without PROCMAP_QUERY (older kernels). */
int kernel_maps_open_text(struct kernel_maps *maps, pid_t pid);
/* Finds the first file-backed mapping that overlaps [from, to): 1; 0: none; -errno (-ESRCH when the
   process ended). Continue from vma->end. */
int kernel_maps_next(struct kernel_maps *maps, uint64_t from, uint64_t to, struct kernel_vma *vma);
/* The same for all mappings, also those of no file. */
int kernel_maps_next_any(struct kernel_maps *maps, uint64_t from, uint64_t to,
			 struct kernel_vma *vma);
/* Returns the name of the file mapped at `addr`, as its link in /proc/PID/map_files reads: 0; -errno.
   Linux 6.11. */
int kernel_maps_name(struct kernel_maps *maps, uint64_t addr, char *name, uint32_t cap);
void kernel_maps_close(struct kernel_maps *maps);

/* Whether two descriptors of this process are the same open file: 1; 0; -errno if the kernel does not
   say. */
int kernel_same_file(int a, int b);

/* ---- madvise(2), mount, files --------------------------------------------------------------- */

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

/* "6.18" as 618 (major * 100 + minor); 0 where uname(2) makes no sense. */
int kernel_version(void);

/* ---- sockets -------------------------------------------------------------------------------- */

#define KERNEL_SO_PASSRIGHTS 83 /* of SOL_SOCKET. Linux 6.16 */
/* From now on a peer that sends a descriptor to this unix socket, or to a connection made to it, gets
   EPERM; the socket itself may send some. -ENOPROTOOPT before 6.16. */
int kernel_refuse_fds(int sock);

/* ---- scheduling ----------------------------------------------------------------------------- */

/* Priorities of SCHED_RR. A freeze keeps all programs from the segment, a page fault one thread. An
   agent's thread is the program's, which may let it compute for ever: it must never go before threads
   that serve all programs. */
#define KERNEL_FREEZE_PRIORITY 50
#define KERNEL_FAULT_PRIORITY  40
#define KERNEL_WINDOW_PRIORITY 35
#define KERNEL_AGENT_PRIORITY  30
/* Gives the calling thread that real-time priority, or with 0 normal priority again. Threads that it
   starts are normal. -EPERM: a cgroup denies it, and nothing has changed. Not for a thread that polls
   a uv_async_t: it spins while another thread is in the middle of uv_async_send, which at normal
   priority can't continue on the same processor (tried: windows of 34 to 950 ms). */
int kernel_rt_boost(int priority);
/* The same for a thread that switches often, and keeps its state in this struct, which begins as 0.
   -EPERM only the first time; the thread never gets the boost then. */
struct kernel_rt_boost {
	bool on, denied;
};
int kernel_rt_boost_while(struct kernel_rt_boost *boost, bool on);
/* Returns how many processors this process may run on. */
unsigned int kernel_processors(void);
/* Returns for how long all processors of the machine together have idled since it started; 0: not
   known. */
uint64_t kernel_idle_us(void);
/* Returns a thread's time slice in *ns: how long a thread (0: the calling one) without real-time
   priority runs at a time when others want its processor, sched_runtime of sched_setattr(2).
   -ENOTSUP: it has such priority, or the kernel is older than 6.12. */
int kernel_slice(pid_t tid, uint64_t *ns);
/* Sets it: 100,000 to 100,000,000; 0: the default. Nothing else of that thread changes, except that a
   nice value that another process sets at the very same time is undone. */
int kernel_slice_set(pid_t tid, uint64_t ns);
/* The time slice of threads that have page faults, and of those that serve them, which poll and yield
   between. If it were longer, threads that wake up would interrupt them, which costs more than to
   wait for that (a page fault takes a seventh longer). About the shortest there is. No other program
   asks for this very value: it marks the threads that have it. */
#define KERNEL_FAULT_SLICE_NS 100100u

/* ---- FUSE ------------------------------------------------------------------------------------ */

/* Of fuse_init_in/out.flags2, that is bits 32.. of the whole. */
#define KERNEL_FUSE2_DIRECT_IO_ALLOW_MMAP (UINT32_C(1) << 4) /* Linux 6.6 */
#define KERNEL_FUSE2_PASSTHROUGH	  (UINT32_C(1) << 5) /* 6.9; needs max_stack_depth 1 */
#define KERNEL_FUSE2_NO_EXPORT_SUPPORT	  (UINT32_C(1) << 6)
#define KERNEL_FUSE2_HAS_RESEND		  (UINT32_C(1) << 7) /* 6.9 */
/* fuse_init_out.unused[0] of the old header. */
#define KERNEL_FUSE_INIT_OUT_STACK_DEPTH_OFFSET 36u
#define KERNEL_FUSE_INIT_OUT_FLAGS2_OFFSET	32u

#define KERNEL_FOPEN_NOFLUSH		    (1u << 5)
#define KERNEL_FOPEN_PARALLEL_DIRECT_WRITES (1u << 6)
#define KERNEL_FOPEN_PASSTHROUGH	    (1u << 7)

#define KERNEL_FUSE_NOTIFY_RESEND 7u		      /* fuse_out_header.error; unique 0 */
#define KERNEL_FUSE_UNIQUE_RESEND (UINT64_C(1) << 63) /* marks a resent request's unique */

struct kernel_fuse_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
/* Returns the backing id (> 0), which goes into fuse_open_out.padding. */
#define KERNEL_FUSE_BACKING_OPEN  _IOW(229, 1, struct kernel_fuse_backing_map)
#define KERNEL_FUSE_BACKING_CLOSE _IOW(229, 2, uint32_t)

#endif
