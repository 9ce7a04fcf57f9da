#define FUSE_USE_VERSION 35
#include "fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ioc.h"
#include "base/kernel.h"
#include "base/session.h"

#define SEGMENT_ID 5000
#define PAGE_BYTES UINT64_C(4096)
#define PROCESSES  64
#define TOKENS	   256
#define PIECES	   64
#define UFFD_WANTED                                                                                \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |                        \
	 KERNEL_UFFD_WP_UNPOPULATED | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM |      \
	 KERNEL_UFFD_POISON | KERNEL_UFFD_WP_ASYNC | UFFD_FEATURE_EVENT_REMAP)

#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: fake daemon: not true: %s (errno %d, %s)\n",       \
				__FILE__, __LINE__, #cond, errno, strerror(errno));                \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct piece {
	uint64_t addr, len;
	uint32_t prot;
	bool gone;
};

struct process {
	pid_t pid; /* 0: the slot is free */
	pid_t tid; /* its agent's: it sees the mappings also when the first thread has ended */
	int sock;  /* its session; -1: hung up */
	int uffd;  /* -1 */
	int reconnects;
	bool moves, away, grown;     /* as its HELLO said */
	pthread_mutex_t commands;    /* one at a time */
	struct piece pieces[PIECES]; /* the mappings that /proc showed last, for GONE and BACK */
	int n;
};

struct token {
	uint64_t value; /* 0: used */
	pid_t parent;	/* of FORK; 0: an open's */
	bool writable;
};

struct fake {
	char dir[256], socket[108], backing[64];
	struct fuse *fuse;
	pthread_t fuse_thread, listener, pager;
	int listen_fd;
	_Atomic bool stopping, asleep;
	_Atomic bool deaf; /* events stay unread */
	_Atomic int hang_up, hang_up_punches, hang_up_growths, no_growth, growths;
	_Atomic bool silent, forgetful, stalls, older;
	_Atomic int fails; /* errno of every ADOPT */
	_Atomic bool late; /* ADOPT is answered before anything is mapped */
	int refuse;
	char refuse_text[SESSION_TEXT_MAX];
	pthread_mutex_t lock; /* processes, tokens */
	struct process processes[PROCESSES];
	struct token tokens[TOKENS];
	uint64_t last_token;
	_Atomic uint32_t fork_ms; /* between FORK's look and its answer */
	_Atomic uint32_t read_ms;
	_Atomic uint32_t late_page; /* 0: none */
	struct fake *before;	    /* one that was stopped: its mount's threads live on */
};

static struct fake *the_fake; /* fuse_get_context()->private_data would do as well */

/* ---- the mount ---- */

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	if (strcmp(path, "/") == 0) {
		memset(st, 0, sizeof(*st));
		st->st_mode = S_IFDIR | 0755;
		return 0;
	}
	if (strcmp(path, "/seg"))
		return -ENOENT;
	MUST(stat(the_fake->backing, st) == 0);
	st->st_mode = S_IFREG | 0666;
	return 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	if (strcmp(path, "/seg"))
		return -ENOENT;
	fi->direct_io = 1;
	fi->fh = (fi->flags & O_ACCMODE) == O_RDWR;
	return 0;
}

static int fs_read(const char *path, char *buf, size_t size, off_t offset,
		   struct fuse_file_info *fi)
{
	int fd = open(the_fake->backing, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	(void)path;
	(void)fi;
	MUST(fd >= 0);
	usleep(the_fake->read_ms * 1000);
	n = pread(fd, buf, size, offset);
	close(fd);
	return n < 0 ? -errno : (int)n;
}

static int fs_write(const char *path, const char *buf, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	int fd = open(the_fake->backing, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	(void)path;
	(void)fi;
	MUST(fd >= 0);
	n = pwrite(fd, buf, size, offset);
	close(fd);
	return n < 0 ? -errno : (int)n;
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	(void)path;
	(void)fi;
	return truncate(the_fake->backing, size) ? -errno : 0;
}

static uint64_t new_token(struct fake *fake, pid_t parent, bool writable)
{
	struct token *token;

	pthread_mutex_lock(&fake->lock);
	token = &fake->tokens[++fake->last_token % TOKENS];
	*token = (struct token){fake->last_token, parent, writable};
	pthread_mutex_unlock(&fake->lock);
	return token->value;
}

static bool take_token(struct fake *fake, uint64_t value, struct token *taken)
{
	struct token *token = &fake->tokens[value % TOKENS];
	bool good;

	pthread_mutex_lock(&fake->lock);
	good = value != 0 && token->value == value;
	*taken = *token;
	if (good)
		token->value = 0;
	pthread_mutex_unlock(&fake->lock);
	return good;
}

static int fs_ioctl(const char *path, unsigned int cmd, void *arg, struct fuse_file_info *fi,
		    unsigned int flags, void *data)
{
	struct ramp_ioc_attach *attach = data;
	struct ramp_ioc_info *info = data;

	(void)arg;
	(void)flags;
	if (cmd == (unsigned int)RAMP_IOC_INFO) {
		memset(info, 0, sizeof(*info));
		strcpy(info->socket, the_fake->socket);
		return 0;
	}
	if (strcmp(path, "/seg") || cmd != (unsigned int)RAMP_IOC_ATTACH)
		return -ENOTTY;
	memset(attach, 0, sizeof(*attach));
	attach->token[0] = new_token(the_fake, 0, fi->fh == 1);
	attach->segment = SEGMENT_ID;
	strcpy(attach->socket, the_fake->socket);
	return 0;
}

static const struct fuse_operations fs_ops = {
	.getattr = fs_getattr,
	.open = fs_open,
	.read = fs_read,
	.write = fs_write,
	.truncate = fs_truncate,
	.ioctl = fs_ioctl,
};

static void *fuse_main_thread(void *arg)
{
	fuse_loop_mt(((struct fake *)arg)->fuse, &(struct fuse_loop_config){.max_idle_threads = 4});
	return NULL;
}

/* ---- commands ---- */

static struct process *process_of(struct fake *fake, pid_t pid, bool make)
{
	struct process *found = NULL;

	pthread_mutex_lock(&fake->lock);
	for (int i = 0; i < PROCESSES && !found; i++)
		if (fake->processes[i].pid == pid)
			found = &fake->processes[i];
	for (int i = 0; i < PROCESSES && !found && make; i++) {
		struct process *p = &fake->processes[i];

		if (p->pid != 0 && (kill(p->pid, 0) == 0 || errno == EPERM))
			continue;
		if (p->pid) {
			close(p->sock);
			close(p->uffd);
		}
		p->pid = pid;
		p->sock = p->uffd = -1;
		p->n = p->reconnects = 0;
		found = p;
	}
	pthread_mutex_unlock(&fake->lock);
	return found;
}

/* Sends one command and receives its DONE. Returns the result, or -EPIPE when the session hung
   up. */
static int command(struct process *p, struct session_msg *msg, int fd, uint64_t *addr)
{
	static _Atomic uint32_t serial;
	struct session_msg done;
	int rc;

	pthread_mutex_lock(&p->commands);
	msg->serial = ++serial;
	rc = session_send(p->sock, msg, &fd, fd >= 0 ? 1 : 0, 0);
	if (rc == 0)
		rc = session_recv(p->sock, &done, NULL, NULL, 0);
	pthread_mutex_unlock(&p->commands);
	if (rc)
		return -EPIPE;
	MUST(done.type == SESSION_DONE && done.serial == msg->serial);
	if (addr)
		*addr = done.addr;
	return (int)done.result;
}

static int open_backing(struct fake *fake, bool writable)
{
	int fd = open(fake->backing, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);

	MUST(fd >= 0);
	return fd;
}

static int do_map(struct fake *fake, struct process *p, const struct piece *piece, bool writable)
{
	struct session_msg map = {.type = SESSION_MAP,
				  .segment = SEGMENT_ID,
				  .flags = writable ? 0 : SESSION_PRIVATE,
				  .addr = piece->addr,
				  .len = piece->len,
				  .offset = piece->addr - EXTENT_ADDR,
				  .prot = piece->prot};
	struct session_msg protect = {.type = SESSION_PROTECT,
				      .addr = piece->addr,
				      .len = piece->len,
				      .prot = piece->prot};
	int fd = open_backing(fake, writable), rc;

	rc = command(p, &map, fd, NULL);
	close(fd);
	return rc || fake->stalls || fake->fails ? rc : command(p, &protect, -1, NULL);
}

static void look_into_proc(struct fake *fake, struct process *p)
{
	struct kernel_maps maps;
	struct kernel_vma vma;
	struct stat st;
	uint64_t at = EXTENT_ADDR;

	MUST(stat(fake->backing, &st) == 0);
	MUST(kernel_maps_open(&maps, p->tid) == 0);
	p->n = 0;
	while (kernel_maps_next(&maps, at, EXTENT_ADDR + EXTENT_BYTES, &vma) == 1) {
		MUST(p->n < PIECES);
		p->pieces[p->n++] = (struct piece){.addr = vma.start,
						   .len = vma.end - vma.start,
						   .prot = vma.flags & 7,
						   .gone = vma.inode != st.st_ino};
		at = vma.end;
	}
	kernel_maps_close(&maps);
}

/* ---- BACK and SWAP ---- */

static int swap_in(struct fake *fake, struct process *p, const struct piece *piece)
{
	struct session_msg back = {.type = SESSION_BACK,
				   .segment = SEGMENT_ID,
				   .addr = piece->addr,
				   .len = piece->len,
				   .offset = piece->addr - EXTENT_ADDR,
				   .prot = piece->prot};
	struct session_msg swap = {.type = SESSION_SWAP, .addr = piece->addr, .len = piece->len};
	int fd = open_backing(fake, true);

	MUST(command(p, &back, fd, &swap.scratch) == 0);
	close(fd);
	MUST(kernel_uffd_register(p->uffd, swap.scratch, piece->len, KERNEL_UFFD_MODES) == 0);
	return command(p, &swap, -1, NULL);
}

static void unregister(struct process *p, const struct piece *piece)
{
	MUST(kernel_uffd_unregister(p->uffd, piece->addr, piece->len) == 0);
	MUST(kernel_uffd_wake(p->uffd, piece->addr, piece->len) == 0);
}

/* ---- requests ---- */

static void map_late(struct fake *fake, struct process *p, uint64_t page)
{
	struct session_msg map = {.type = SESSION_MAP,
				  .segment = SEGMENT_ID,
				  .addr = EXTENT_ADDR + page * PAGE_BYTES,
				  .len = PAGE_BYTES,
				  .offset = page * PAGE_BYTES,
				  .prot = PROT_READ | PROT_WRITE};
	int fd = open_backing(fake, true);

	MUST(command(p, &map, fd, NULL) == 0);
	close(fd);
}

static uint32_t map_new(struct fake *fake, struct process *p, const struct session_msg *msg,
			const struct token *token)
{
	struct piece piece = {EXTENT_ADDR + msg->offset, msg->len, msg->prot, false};
	uint32_t late = atomic_exchange(&fake->late_page, 0);
	int rc;

	if (late)
		map_late(fake, p, late);
	if (!(msg->flags & SESSION_REPLACE))
		return (uint32_t)do_map(fake, p, &piece, token->writable);
	rc = swap_in(fake, p, &piece);
	if (rc == 0)
		unregister(p, &piece);
	return (uint32_t)rc;
}

/* Returns false to hang up without an answer. */
static bool answer_attach(struct fake *fake, pid_t pid, const struct session_msg *msg,
			  struct session_msg *result)
{
	struct process *p = process_of(fake, pid, false);
	struct token token;

	if (!take_token(fake, msg->token[0], &token) || token.parent) {
		result->result = EPERM;
		strcpy(result->text, "this token is none of mine");
	} else if (!p || p->sock < 0) {
		result->result = ESRCH;
	} else if (msg->offset + msg->len > EXTENT_BYTES) {
		result->result = ENOMEM;
		strcpy(result->text, "longer than the extent of seg");
	} else {
		result->result = map_new(fake, p, msg, &token);
		if (fake->hang_up > 0 && fake->hang_up-- > 0)
			return false;
	}
	result->segment = SEGMENT_ID;
	result->addr = EXTENT_ADDR + msg->offset;
	result->len = msg->len;
	result->all = EXTENT_BYTES;
	return true;
}

static void answer_fork(struct fake *fake, pid_t pid, struct session_msg *result)
{
	struct process *p = process_of(fake, pid, false);

	if (!p) {
		result->result = ESRCH;
		return;
	}
	look_into_proc(fake, p);
	usleep(fake->fork_ms * 1000);
	result->token[0] = new_token(fake, pid, true);
	result->segment = (uint64_t)p->n;
}

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512], *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	MUST(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	MUST(n > 0);
	text[n] = '\0';
	at = strrchr(text, ')');
	MUST(at);
	return (pid_t)strtol(at + 4, NULL, 10);
}

static void answer_adopt(struct fake *fake, pid_t pid, const struct session_msg *msg,
			 struct session_msg *result)
{
	struct process *child = process_of(fake, pid, false), *parent;
	struct token token = {.parent = parent_of(pid)};

	if (!child || (msg->token[0] && (!take_token(fake, msg->token[0], &token) ||
					 !token.parent || fake->forgetful))) {
		result->result = EPERM;
		return;
	}
	parent = process_of(fake, token.parent, false);
	MUST(parent);
	for (int i = 0; i < parent->n && result->result == 0; i++)
		result->result = (uint32_t)do_map(fake, child, &parent->pieces[i],
						  (parent->pieces[i].prot & PROT_WRITE) != 0);
	result->segment = (uint64_t)parent->n;
}

/* Answers by itself. */
static bool fail_adopt(struct fake *fake, int sock, pid_t pid, const struct session_msg *msg)
{
	struct session_msg failed = {.type = SESSION_RESULT, .result = (uint32_t)fake->fails};
	struct session_msg ignored = {0};

	if (!fake->late)
		answer_adopt(fake, pid, msg, &ignored);
	session_send(sock, &failed, NULL, 0, 0);
	if (fake->late) {
		usleep(100000); /* the agent has noticed by then */
		answer_adopt(fake, pid, msg, &ignored);
	}
	return false;
}

static bool answer_punch(struct fake *fake, const struct session_msg *msg,
			 struct session_msg *result)
{
	int fd;

	if (fake->hang_up_punches > 0 && fake->hang_up_punches-- > 0) {
		result->result = EPERM;
		return fake->hang_up_punches % 2;
	}
	fd = open_backing(fake, true);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)msg->offset,
		      (off_t)msg->len))
		result->result = (uint32_t)errno;
	close(fd);
	return true;
}

/* An older daemon does not know the request. */
static bool answer_growth(struct fake *fake, struct session_msg *result)
{
	if (fake->older || (fake->hang_up_growths > 0 && fake->hang_up_growths-- > 0))
		return false;
	result->result = (uint32_t)fake->no_growth;
	fake->growths++;
	return true;
}

/* Takes the first one alone, as an older daemon does. */
static int receive_uffd(int door)
{
	char byte;
	struct iovec io = {&byte, 1};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = CMSG_LEN(sizeof(int))};
	int fd;

	if (recvmsg(door, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void greet(struct fake *fake, int sock, pid_t pid, const struct session_msg *hello)
{
	struct session_msg welcome = {.type = SESSION_WELCOME, .result = (uint32_t)fake->refuse};
	struct session_msg ready = {
		.type = SESSION_READY,
		.serial = fake->older ? 0 : SESSION_KNOWS_MOVE | SESSION_KNOWS_GROW};
	bool again = (hello->flags & SESSION_RECONNECT) != 0;
	struct process *p;
	int door[2], fds[2], uffd;

	strcpy(welcome.text, fake->refuse_text);
	if (fake->refuse) {
		session_send(sock, &welcome, NULL, 0, 0);
		close(sock);
		return;
	}
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) == 0);
	fds[0] = door[1];
	fds[1] = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	MUST(fds[1] >= 0);
	if (session_send(sock, &welcome, fds, again ? 1 : 2, 0) == 0) {
		close(door[1]);
		uffd = receive_uffd(door[0]);
		MUST(uffd >= 0 && (again || kernel_uffd_api(uffd, UFFD_WANTED) == 0));
		p = process_of(fake, pid, true);
		MUST(p);
		p->tid = (pid_t)hello->tid;
		p->uffd = uffd;
		p->sock = sock;
		p->reconnects += again ? 1 : 0;
		p->moves = hello->flags & SESSION_MOVES;
		p->away = hello->flags & SESSION_AWAY;
		p->grown = hello->flags & SESSION_GROWN;
		MUST(session_send(sock, &ready, NULL, 0, 0) == 0);
	}
	close(door[0]);
	close(fds[1]);
}

struct visitor {
	struct fake *fake;
	int sock;
};

static void *answer_one(void *arg)
{
	struct visitor visitor = *(struct visitor *)arg;
	struct session_msg msg, result = {.type = SESSION_RESULT};
	struct ucred who;
	socklen_t len = sizeof(who);
	bool answer = true;

	free(arg);
	MUST(getsockopt(visitor.sock, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0);
	if (session_recv(visitor.sock, &msg, NULL, NULL, 0)) {
		close(visitor.sock);
		return NULL;
	}
	if (visitor.fake->silent)
		return NULL; /* and keeps the connection open */
	if (msg.type == SESSION_HELLO) {
		greet(visitor.fake, visitor.sock, who.pid, &msg);
		return NULL;
	}
	if (msg.type == SESSION_ATTACH)
		answer = answer_attach(visitor.fake, who.pid, &msg, &result);
	else if (msg.type == SESSION_FORK)
		answer_fork(visitor.fake, who.pid, &result);
	else if (msg.type == SESSION_ADOPT && visitor.fake->fails)
		answer = fail_adopt(visitor.fake, visitor.sock, who.pid, &msg);
	else if (msg.type == SESSION_ADOPT)
		answer_adopt(visitor.fake, who.pid, &msg, &result);
	else if (msg.type == SESSION_PUNCH)
		answer = answer_punch(visitor.fake, &msg, &result);
	else if (msg.type == SESSION_GROW)
		answer = answer_growth(visitor.fake, &result);
	else
		result.result = EOPNOTSUPP;
	if (visitor.fake->stalls && msg.type == SESSION_ADOPT)
		return NULL; /* as while it is silent */
	if (answer)
		session_send(visitor.sock, &result, NULL, 0, 0);
	close(visitor.sock);
	return NULL;
}

static void *listen_thread(void *arg)
{
	struct fake *fake = arg;

	while (!fake->stopping) {
		struct visitor *visitor;
		pthread_t thread;
		int sock = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (sock < 0)
			break;
		visitor = malloc(sizeof(*visitor));
		MUST(visitor);
		*visitor = (struct visitor){fake, sock};
		MUST(pthread_create(&thread, NULL, answer_one, visitor) == 0);
		pthread_detach(thread);
	}
	return NULL;
}

/* Reads remap events; page faults wait until the test resolves the range. */
static void *pager_thread(void *arg)
{
	struct fake *fake = arg;
	char msg[4096];

	while (!fake->stopping) {
		usleep(1000);
		for (int i = 0; i < PROCESSES && !fake->deaf; i++)
			if (fake->processes[i].pid && fake->processes[i].uffd >= 0)
				while (read(fake->processes[i].uffd, msg, sizeof(msg)) > 0)
					;
	}
	return NULL;
}

/* ---- for the test ---- */

/* Sets a uid of the calling thread alone: the real one, which libfuse puts into the mount's
   options, or the effective one, which listen(2) remembers. */
static void be(uid_t real, uid_t effective)
{
	MUST(syscall(SYS_setresuid, real, effective, -1) == 0);
}

static void mount_fuse(struct fake *fake, uid_t uid)
{
	static char name[] = "fake", option[] = "-osubtype=rampfs,fsname=fake,allow_other";
	char *argv[] = {name, option, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	char where[300];

	snprintf(where, sizeof(where), "%s/mnt", fake->dir);
	MUST(mkdir(where, 0755) == 0);
	fake->fuse = fuse_new(&args, &fs_ops, sizeof(fs_ops), NULL);
	MUST(fake->fuse);
	be(uid, 0);
	MUST(fuse_mount(fake->fuse, where) == 0);
	be(0, 0);
	fuse_opt_free_args(&args);
	MUST(pthread_create(&fake->fuse_thread, NULL, fuse_main_thread, fake) == 0);
}

static void listen_at(struct fake *fake)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	strcpy(at.sun_path, fake->socket);
	fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(fake->listen_fd >= 0);
	MUST(mkdir(SESSION_DIR, 0755) == 0 || errno == EEXIST);
	unlink(fake->socket);
	MUST(bind(fake->listen_fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	MUST(chmod(fake->socket, 0666) == 0);
	MUST(listen(fake->listen_fd, 64) == 0);
	MUST(pthread_create(&fake->listener, NULL, listen_thread, fake) == 0);
	MUST(pthread_create(&fake->pager, NULL, pager_thread, fake) == 0);
}

struct fake *fake_start(const char *dir)
{
	return fake_start_mounted_by(dir, 0);
}

struct fake *fake_start_mounted_by(const char *dir, uid_t uid)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	int fd;

	MUST(fake);
	fake->before = the_fake;
	the_fake = fake;
	snprintf(fake->dir, sizeof(fake->dir), "%s", dir);
	snprintf(fake->socket, sizeof(fake->socket), SESSION_DIR "/%.64s", strrchr(dir, '/') + 1);
	snprintf(fake->backing, sizeof(fake->backing), "/dev/shm/%s", strrchr(dir, '/') + 1);
	fd = open(fake->backing, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	MUST(fd >= 0 && ftruncate(fd, (off_t)SEGMENT_BYTES) == 0);
	close(fd);
	pthread_mutex_init(&fake->lock, NULL);
	for (int i = 0; i < PROCESSES; i++)
		pthread_mutex_init(&fake->processes[i].commands, NULL);
	mount_fuse(fake, uid);
	listen_at(fake);
	return fake;
}

void fake_stop(struct fake *fake)
{
	char where[300];

	fake->stopping = true;
	shutdown(fake->listen_fd, SHUT_RDWR);
	if (!fake->asleep)
		pthread_join(fake->listener, NULL);
	pthread_join(fake->pager, NULL);
	close(fake->listen_fd);
	snprintf(where, sizeof(where), "%s/mnt", fake->dir);
	/* The mount's threads are left to the end of the process: it closes /dev/fuse, and that
	   ends the connection even where another mount namespace has a copy of the mount. */
	MUST(umount2(where, MNT_DETACH) == 0);
	unlink(fake->backing);
	unlink(fake->socket);
	rmdir(where);
}

void fake_wait_session(struct fake *fake, pid_t pid)
{
	for (int i = 0; i < 5000; i++) {
		struct process *p = process_of(fake, pid, false);

		if (p && p->sock >= 0)
			return;
		usleep(1000);
	}
	MUST(false);
}

void fake_look(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);

	MUST(p);
	look_into_proc(fake, p);
}

void fake_drop(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);
	struct session_msg drop = {.type = SESSION_DROP, .segment = SEGMENT_ID};

	for (int i = 0; i < p->n; i++)
		drop.ranges[drop.count++] =
			(struct session_range){p->pieces[i].addr, p->pieces[i].len};
	MUST(command(p, &drop, -1, NULL) == 0);
}

void fake_revoke(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);

	fake_look(fake, pid);
	for (int i = 0; i < p->n; i++)
		MUST(kernel_uffd_register(p->uffd, p->pieces[i].addr, p->pieces[i].len,
					  KERNEL_UFFD_MODES) == 0);
	fake_drop(fake, pid);
}

/* ---- MOVE and RETURN ---- */

/* Whether the segment's file is mapped where page tables are moved to. */
static bool is_away(struct fake *fake, const struct process *p)
{
	struct kernel_maps maps;
	struct kernel_vma vma;
	struct stat st;
	bool found = false;

	MUST(stat(fake->backing, &st) == 0);
	MUST(kernel_maps_open(&maps, p->tid) == 0);
	for (uint64_t at = EXTENT_ADDR + EXTENT_BYTES;
	     !found && kernel_maps_next(&maps, at, UINT64_MAX, &vma) == 1; at = vma.end)
		found = vma.inode == st.st_ino;
	kernel_maps_close(&maps);
	return found;
}

void fake_await_away(struct fake *fake, pid_t pid, bool away)
{
	struct process *p = process_of(fake, pid, false);

	for (int i = 0; i < 10000 && is_away(fake, p) != away; i++)
		usleep(1000);
	MUST(is_away(fake, p) == away);
}

int fake_reserve(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);
	int rc = 0;

	fake_look(fake, pid);
	MUST(p->moves);
	MUST(command(p, &(struct session_msg){.type = SESSION_RESERVE, .segment = SEGMENT_ID}, -1,
		     NULL) == 0);
	for (int i = 0; i < p->n && !rc; i++) {
		struct session_msg msg = {.type = SESSION_RESERVE,
					  .segment = SEGMENT_ID,
					  .addr = p->pieces[i].addr,
					  .len = p->pieces[i].len,
					  .scratch = p->pieces[i].addr + FAKE_AWAY};

		rc = command(p, &msg, -1, NULL);
	}
	return rc;
}

static struct session_msg move_all(const struct process *p)
{
	struct session_msg msg = {.type = SESSION_MOVE, .segment = SEGMENT_ID};

	for (int i = 0; i < p->n; i++) {
		MUST(kernel_uffd_register(p->uffd, p->pieces[i].addr, p->pieces[i].len,
					  KERNEL_UFFD_MODES) == 0);
		msg.ranges[msg.count++] =
			(struct session_range){p->pieces[i].addr, p->pieces[i].len};
	}
	return msg;
}

void fake_move(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);
	struct session_msg msg = move_all(p);

	MUST(command(p, &msg, -1, NULL) == 0);
}

void fake_move_and_die(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);
	struct session_msg msg = move_all(p);
	int before = p->reconnects;

	fake->deaf = true;
	MUST(session_send(p->sock, &msg, NULL, 0, 0) == 0);
	fake_await_away(fake, pid, true);
	fake_die(fake);
	for (int i = 0; i < 10000 && p->reconnects == before; i++)
		usleep(1000);
	fake->deaf = false;
	MUST(p->reconnects == before + 1);
	fake_wait_session(fake, pid);
	MUST(p->away);
}

void fake_return(struct fake *fake, pid_t pid, uint32_t flags)
{
	struct process *p = process_of(fake, pid, false);
	struct session_msg msg = {.type = SESSION_RETURN, .flags = flags, .segment = SEGMENT_ID};

	MUST(command(p, &msg, -1, NULL) == 0);
}

void fake_grow_old(struct fake *fake)
{
	fake->older = true;
}

void fake_restore(struct fake *fake, pid_t pid)
{
	const struct piece all = {.addr = EXTENT_ADDR, .len = EXTENT_BYTES};
	struct process *p = process_of(fake, pid, false);

	MUST(p);
	unregister(p, &all); /* also parts that have grown since they were looked at */
}

void fake_gone(struct fake *fake, pid_t pid, const char *line)
{
	struct process *p = process_of(fake, pid, false);
	char path[] = "/dev/shm/rampfs-empty.XXXXXX";
	int fd = mkstemp(path), empty;

	MUST(p && fd >= 0);
	empty = open(path, O_RDONLY | O_CLOEXEC);
	MUST(empty >= 0 && unlink(path) == 0);
	close(fd);
	for (int i = 0; i < p->n; i++) {
		struct session_msg msg = {.type = SESSION_GONE,
					  .segment = SEGMENT_ID,
					  .addr = p->pieces[i].addr,
					  .len = p->pieces[i].len};

		if (i == 0)
			strcpy(msg.text, line);
		MUST(command(p, &msg, empty, NULL) == 0);
		MUST(kernel_uffd_wake(p->uffd, msg.addr, msg.len) == 0);
	}
	close(empty);
}

void fake_back(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);

	MUST(p);
	for (int i = 0; i < p->n; i++)
		MUST(swap_in(fake, p, &p->pieces[i]) == 0);
	look_into_proc(fake, p);
	for (int i = 0; i < p->n; i++)
		if (!p->pieces[i].gone)
			unregister(p, &p->pieces[i]);
}

int fake_try_back(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);

	MUST(p && p->n > 0);
	return swap_in(fake, p, &p->pieces[0]);
}

static void *swap_thread(void *arg)
{
	struct process *p = arg;

	MUST(swap_in(the_fake, p, &p->pieces[0]) == -EPIPE);
	return NULL;
}

void fake_back_and_die(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);
	int before = p->reconnects;
	pthread_t thread;

	MUST(p->n == 1);
	fake->deaf = true;
	MUST(pthread_create(&thread, NULL, swap_thread, p) == 0);
	usleep(100000); /* it can't be seen from outside when a mremap has begun to wait */
	shutdown(p->sock, SHUT_RDWR);
	MUST(pthread_join(thread, NULL) == 0);
	for (int i = 0; i < 5000 && p->reconnects == before; i++)
		usleep(1000);
	MUST(p->reconnects == before + 1);
	fake->deaf = false;
	for (int i = 0; i < 5000; i++) {
		look_into_proc(fake, p);
		if (!p->pieces[0].gone)
			break;
		usleep(1000);
	}
	for (int i = 0; i < p->n; i++)
		unregister(p, &p->pieces[i]);
}

void fake_read_events(struct fake *fake, bool reads)
{
	fake->deaf = !reads;
}

void fake_die(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	memset(fake->tokens, 0, sizeof(fake->tokens));
	for (int i = 0; i < PROCESSES; i++) {
		struct process *p = &fake->processes[i];

		if (p->pid == 0 || p->sock < 0)
			continue;
		close(p->sock);
		close(p->uffd);
		p->sock = p->uffd = -1;
	}
	pthread_mutex_unlock(&fake->lock);
}

void fake_hang_up_attaches(struct fake *fake, int n)
{
	fake->hang_up = n;
}

void fake_answer_growths(struct fake *fake, int code, int hang_up)
{
	fake->no_growth = code;
	fake->hang_up_growths = hang_up;
}

int fake_growths(struct fake *fake)
{
	return fake->growths;
}

bool fake_heard_of_growth(struct fake *fake, pid_t pid)
{
	const struct process *p = process_of(fake, pid, false);

	return p && p->grown;
}

void fake_hang_up_punches(struct fake *fake, int n)
{
	fake->hang_up_punches = n;
}

void fake_map_late(struct fake *fake, uint32_t page)
{
	fake->late_page = page;
}

void fake_refuse(struct fake *fake, int code, const char *text)
{
	fake->refuse = code;
	strcpy(fake->refuse_text, text);
}

void fake_forget_forks(struct fake *fake)
{
	fake->forgetful = true;
}

void fake_stall_in_adopt(struct fake *fake)
{
	fake->stalls = true;
}

void fake_fail_in_adopt(struct fake *fake, int code, bool late)
{
	fake->late = late;
	fake->fails = code;
}

void fake_fall_silent(struct fake *fake)
{
	fake->silent = true;
}

void fake_fall_asleep(struct fake *fake)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int sock;

	pthread_cancel(fake->listener);
	pthread_join(fake->listener, NULL);
	fake->asleep = true;
	strcpy(at.sun_path, fake->socket);
	do {
		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		MUST(sock >= 0);
	} while (connect(sock, (struct sockaddr *)&at, sizeof(at)) == 0); /* left open */
	MUST(errno == EAGAIN);
	close(sock);
}

void fake_listen_as(struct fake *fake, uid_t uid)
{
	be(0, uid);
	MUST(listen(fake->listen_fd, 64) == 0);
	be(0, 0);
}

void fake_move_socket(struct fake *fake)
{
	char other[sizeof(fake->socket)];

	/* Within /run, which may be a filesystem of its own, and outside of /run/rampfs. */
	snprintf(other, sizeof(other), "/run/rampfs-elsewhere.%d", getpid());
	MUST(rename(fake->socket, other) == 0);
	strcpy(fake->socket, other);
}

int fake_reconnects(struct fake *fake, pid_t pid)
{
	struct process *p = process_of(fake, pid, false);

	return p ? p->reconnects : 0;
}

void fake_delay_reads(struct fake *fake, uint32_t ms)
{
	fake->read_ms = ms;
}

void fake_delay_forks(struct fake *fake, uint32_t ms)
{
	fake->fork_ms = ms;
}
