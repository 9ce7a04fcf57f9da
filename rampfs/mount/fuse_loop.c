/*
 * A pool of threads that read /dev/fuse on the one descriptor.
 *
 * A daemon that starts on a living connection takes it over first (fuse_takeover.c): it feeds
 * itself the saved INIT (the reply goes nowhere), has the kernel send again the requests that the
 * dead daemon had read and not answered, serves them, and then starts the pool. A daemon that
 * starts on a new connection gets INIT as any server does; the request and the answer, patched for
 * a resend, are saved before the answer is written (fuse_process.c).
 *
 * How it fails: a read that says ENODEV means that the mount is gone, which the keeper and daemon.c
 * are told. An INIT that comes again (the earlier daemon died between saving and writing its
 * answer) gets the same answer as the first time. A request that kills one daemon after another as
 * soon as it is carried out again is answered EIO; one that kills them later, from another thread,
 * can't be told from the others. Threads do not clone the descriptor (clone_fd): a dead daemon's
 * clones close, and requests hang.
 */
#include "fuse_loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fuse_process.h"
#include "fuse_request.h"
#include "fuse_takeover.h"

#define STOP_SIGNAL SIGUSR1

struct fuse_thread {
	pthread_t thread;
	struct mount *mount;
	uint8_t *receive;
};

static void *fuse_thread_main(void *arg)
{
	struct fuse_thread *t = arg;
	struct mount *m = t->mount;
	struct fuse_buf buf = {.mem = t->receive};
	struct timespec pause = {.tv_nsec = 10000000};

	while (!fuse_session_exited(m->session)) {
		int n = fuse_session_receive_buf(m->session, &buf);

		if (n == -EINTR || n == -EAGAIN || n == -ENOENT)
			continue;
		if (n < 0) {
			log_error("reading /dev/fuse: %s", strerror(-n));
			nanosleep(&pause, NULL);
			continue;
		}
		if (n == 0) { /* ENODEV, to libfuse, or another thread ended the session */
			if (!atomic_load_explicit(&m->stopping, memory_order_acquire))
				mount_end(m, MOUNT_UNMOUNTED);
			break;
		}
		fuse_process(m, &buf);
	}
	reply_buffer_free();
	return NULL;
}

static void on_stop_signal(int sig)
{
	(void)sig; /* the signal only ends a read(2) */
}

int fuse_loop_open(struct mount *m, struct ramp_err *err)
{
	m->n_threads = m->config.threads ? m->config.threads : 8;
	m->threads = calloc(m->n_threads, sizeof(*m->threads));
	if (!m->threads)
		return ramp_err_sys(err, ENOMEM, "fuse pool");
	for (uint32_t i = 0; i < m->n_threads; i++) {
		m->threads[i].mount = m;
		m->threads[i].receive = locked_buffer(RECEIVE_BYTES);
		if (!m->threads[i].receive)
			return ramp_err_sys(err, ENOMEM, "fuse pool's buffers");
	}
	return fuse_process_open(m, err);
}

int fuse_loop_start(struct mount *m, struct ramp_err *err)
{
	struct sigaction sa = {.sa_handler = on_stop_signal};
	int rc = fuse_takeover(m, m->threads[0].receive, err);

	if (rc)
		return rc;
	sigaction(STOP_SIGNAL, &sa, NULL);
	for (uint32_t i = 0; i < m->n_threads; i++) {
		rc = pthread_create(&m->threads[i].thread, NULL, fuse_thread_main, &m->threads[i]);
		if (rc)
			return ramp_err_sys(err, rc, "fuse pool's thread");
		pthread_setname_np(m->threads[i].thread, "fuse");
	}
	return 0;
}

/* Signals the thread until it ends: one signal is lost on a thread that has looked at the flag and
   not yet gone to sleep. */
static void fuse_thread_join(pthread_t thread)
{
	struct timespec wait = {.tv_nsec = 1000000};

	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		pthread_kill(thread, STOP_SIGNAL);
		nanosleep(&wait, NULL);
	}
}

void fuse_loop_stop(struct mount *m)
{
	if (!m->threads)
		return;
	atomic_store_explicit(&m->stopping, true, memory_order_release);
	if (m->session)
		fuse_session_exit(m->session);
	for (uint32_t i = 0; i < m->n_threads; i++) {
		if (m->threads[i].thread)
			fuse_thread_join(m->threads[i].thread);
		if (m->threads[i].receive)
			munmap(m->threads[i].receive, RECEIVE_BYTES);
	}
	free(m->threads);
	m->threads = NULL;
}
