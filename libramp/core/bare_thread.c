/*
 * musl's clone(3) refuses to make a thread (CLONE_THREAD) from 1.2.5 on, so where the system call can be
 * made it is made here.
 */
#include "bare_thread.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLAGS                                                                                      \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |        \
	 CLONE_CHILD_CLEARTID)

#if defined(__x86_64__)

int bare_thread_begin(int (*fn)(void *arg), void *arg, void *top, _Atomic uint32_t *alive)
{
	uint64_t *words = (uint64_t *)top - 2;
	register uint64_t ctid __asm__("r10") = (uint64_t)(uintptr_t)alive;
	register uint64_t tls __asm__("r8") = 0;
	long result;

	words[0] = (uint64_t)(uintptr_t)fn;
	words[1] = (uint64_t)(uintptr_t)arg;
	/* The new thread takes both from its stack, and never comes back here. */
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "pop %%rax\n\t"
			 "pop %%rdi\n\t"
			 "call *%%rax\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[end], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone), "D"((uint64_t)FLAGS), "S"(words), "d"((uint64_t)0),
			   "r"(ctid), "r"(tls), [end] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return (int)result;
}

#else

int bare_thread_begin(int (*fn)(void *arg), void *arg, void *top, _Atomic uint32_t *alive)
{
	int tid = clone(fn, top, FLAGS, arg, NULL, NULL, alive);

	return tid < 0 ? -errno : tid;
}

#endif
