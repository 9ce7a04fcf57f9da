/*
 * as_service PROGRAM [ARG...]: runs a program under systemd's SystemCallFilter=@system-service: any
 * other call kills the process.
 *
 * The calls are those of `systemd-analyze syscall-filter @system-service` of systemd 252, with all
 * sets that it names; a newer systemd allows more.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned int allowed[] = {
	/* clang-format off */
	SYS_accept, SYS_accept4, SYS_bind, SYS_brk, SYS_capget, SYS_capset, SYS_chdir,
	SYS_clone, SYS_clone3, SYS_close, SYS_connect, SYS_dup, SYS_dup3, SYS_eventfd2,
	SYS_execve, SYS_execveat, SYS_exit, SYS_faccessat, SYS_faccessat2, SYS_fadvise64,
	SYS_fallocate, SYS_fchdir, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat,
	SYS_fcntl, SYS_fdatasync, SYS_fgetxattr, SYS_flistxattr, SYS_flock, SYS_fremovexattr,
	SYS_fsetxattr, SYS_fstat, SYS_fstatfs, SYS_fsync, SYS_ftruncate, SYS_futex, SYS_getcpu,
	SYS_getcwd, SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getgroups,
	SYS_getitimer, SYS_getpeername, SYS_getpgid, SYS_getpid, SYS_getppid, SYS_getpriority,
	SYS_getrandom, SYS_getresgid, SYS_getresuid, SYS_getrlimit, SYS_getrusage, SYS_getsid,
	SYS_getsockname, SYS_getsockopt, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_getxattr,
	SYS_ioctl, SYS_kcmp, SYS_keyctl, SYS_kill, SYS_lgetxattr, SYS_linkat, SYS_listen,
	SYS_listxattr, SYS_llistxattr, SYS_lremovexattr, SYS_lseek, SYS_lsetxattr, SYS_madvise,
	SYS_mbind, SYS_membarrier, SYS_mkdirat, SYS_mknodat, SYS_mlock, SYS_mlock2,
	SYS_mlockall, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_msgctl, SYS_msgget, SYS_msgrcv,
	SYS_msgsnd, SYS_msync, SYS_munlock, SYS_munlockall, SYS_munmap, SYS_nanosleep,
	SYS_newfstatat, SYS_open, SYS_openat, SYS_openat2, SYS_personality, SYS_pipe2,
	SYS_ppoll, SYS_prctl, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_prlimit64, SYS_pselect6,
	SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_read, SYS_readahead, SYS_readlinkat,
	SYS_readv, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_removexattr, SYS_renameat,
	SYS_renameat2, SYS_rseq, SYS_semctl, SYS_semget, SYS_semop, SYS_semtimedop,
	SYS_sendfile, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_setfsgid, SYS_setfsuid,
	SYS_setgid, SYS_setgroups, SYS_setitimer, SYS_setns, SYS_setpgid, SYS_setpriority,
	SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid, SYS_setrlimit, SYS_setsid,
	SYS_setsockopt, SYS_setuid, SYS_setxattr, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_shmget,
	SYS_shutdown, SYS_sigaltstack, SYS_signalfd4, SYS_socket, SYS_socketpair, SYS_splice,
	SYS_statfs, SYS_statx, SYS_symlinkat, SYS_sync, SYS_syncfs, SYS_sysinfo, SYS_tee,
	SYS_tgkill, SYS_times, SYS_tkill, SYS_truncate, SYS_umask, SYS_uname, SYS_unlink,
	SYS_unlinkat, SYS_unshare, SYS_userfaultfd, SYS_utimensat, SYS_vmsplice, SYS_wait4,
	SYS_waitid, SYS_write, SYS_writev,
#ifdef __x86_64__
	SYS_access, SYS_add_key, SYS_alarm, SYS_arch_prctl, SYS_chmod, SYS_chown,
	SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close_range,
	SYS_copy_file_range, SYS_creat, SYS_dup2, SYS_epoll_create, SYS_epoll_create1,
	SYS_epoll_ctl, SYS_epoll_ctl_old, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_epoll_wait,
	SYS_epoll_wait_old, SYS_eventfd, SYS_exit_group, SYS_fork, SYS_futex_waitv,
	SYS_futimesat, SYS_get_mempolicy, SYS_get_robust_list, SYS_get_thread_area,
	SYS_getdents, SYS_getpgrp, SYS_inotify_add_watch, SYS_inotify_init, SYS_inotify_init1,
	SYS_inotify_rm_watch, SYS_io_cancel, SYS_io_destroy, SYS_io_getevents,
	SYS_io_pgetevents, SYS_io_setup, SYS_io_submit, SYS_io_uring_enter,
	SYS_io_uring_register, SYS_io_uring_setup, SYS_ioprio_get, SYS_ioprio_set, SYS_lchown,
	SYS_link, SYS_lstat, SYS_memfd_create, SYS_migrate_pages, SYS_mkdir, SYS_mknod,
	SYS_move_pages, SYS_mq_getsetattr, SYS_mq_notify, SYS_mq_open, SYS_mq_timedreceive,
	SYS_mq_timedsend, SYS_mq_unlink, SYS_name_to_handle_at, SYS_pause, SYS_pidfd_open,
	SYS_pidfd_send_signal, SYS_pipe, SYS_poll, SYS_process_madvise, SYS_process_vm_readv,
	SYS_process_vm_writev, SYS_readlink, SYS_remap_file_pages, SYS_rename, SYS_request_key,
	SYS_restart_syscall, SYS_rmdir, SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask,
	SYS_rt_sigqueueinfo, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
	SYS_rt_tgsigqueueinfo, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
	SYS_sched_getaffinity, SYS_sched_getattr, SYS_sched_getparam, SYS_sched_getscheduler,
	SYS_sched_rr_get_interval, SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam,
	SYS_sched_setscheduler, SYS_sched_yield, SYS_select, SYS_set_mempolicy,
	SYS_set_mempolicy_home_node, SYS_set_robust_list, SYS_set_thread_area,
	SYS_set_tid_address, SYS_signalfd, SYS_stat, SYS_symlink, SYS_sync_file_range, SYS_time,
	SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun, SYS_timer_gettime,
	SYS_timer_settime, SYS_timerfd_create, SYS_timerfd_gettime, SYS_timerfd_settime,
	SYS_utime, SYS_utimes, SYS_vfork,
#endif
	/* clang-format on */
};

#define ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

int main(int argc, char **argv)
{
	static struct sock_filter code[2 * ALLOWED + 2];
	struct sock_fprog filter = {.len = 2 * ALLOWED + 2, .filter = code};
	struct sock_filter *at = code;

	if (argc < 2)
		return 125;
	*at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					     offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ALLOWED; i++) {
		*at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		*at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	*at = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		fprintf(stderr, "as_service: no filter: %s\n", strerror(errno));
		return 125;
	}
	execvp(argv[1], argv + 1);
	fprintf(stderr, "as_service: %s: %s\n", argv[1], strerror(errno));
	return 126;
}
