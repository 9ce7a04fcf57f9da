/*
 * The ioctls: a token for an open file, and facts of the mount for programs.
 */
#include "ops_ioctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/ioc.h"
#include "inode.h"
#include "request.h"

/* Returns the process of a thread: FUSE names the calling thread, and tokens are valid for its
   process. -errno where /proc does not tell. */
static pid_t process_of(pid_t thread)
{
	char path[64], line[128];
	FILE *f;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!pid && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &pid) == 1)
			break;
	fclose(f);
	return pid ? pid : -ESRCH;
}

/* Whether a segment that is not this node's may be attached ahead: there is room for it. */
static int is_coming(struct mount *m, ramp_segment_t id)
{
	struct seg *seg = store_find(m->config.store, id);

	if (!seg)
		return -EREMOTE;
	seg_put(seg);
	return 0;
}

static int do_attach(struct mount *m, fuse_req_t req, fuse_ino_t ino, uint64_t fh, bool ahead,
		     struct ramp_ioc_attach *out)
{
	int mode = (int)(fh & O_ACCMODE);
	pid_t pid = process_of(fuse_req_ctx(req)->pid);
	struct seg *seg;
	bool local;
	int rc;

	if (inode_kind(ino) != INODE_IS_SEGMENT)
		return -ENOTTY;
	if (mode == O_WRONLY)
		return -EACCES;
	if (pid < 0)
		return pid;
	rc = inode_segment(m, ino, &seg);
	if (!rc) {
		local = inode_is_local(seg);
		rc = seg_damaged(seg) ? -EIO : local ? 0 : -EREMOTE;
		seg_put(seg);
	}
	if (rc == -EREMOTE && ahead)
		rc = is_coming(m, ino);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	out->segment = ino;
	snprintf(out->socket, sizeof(out->socket), "%s", m->config.session_path);
	return programs_token(m->config.programs, ino, mode, pid, out->token, NULL);
}

static void do_info(struct mount *m, fuse_ino_t ino, struct ramp_ioc_info *out)
{
	memset(out, 0, sizeof(*out));
	meta_arena(m->config.meta, &out->arena_addr, &out->arena_len);
	out->nodeid = ino;
	snprintf(out->socket, sizeof(out->socket), "%s", m->config.session_path);
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_bufsz,
	      size_t out_bufsz)
{
	struct mount *m = mount_of(req);
	struct ramp_ioc_attach attach;
	struct ramp_ioc_info info;
	int rc;

	(void)arg;
	(void)flags;
	(void)in_buf;
	(void)in_bufsz;
	if ((cmd == (unsigned int)RAMP_IOC_ATTACH || cmd == (unsigned int)RAMP_IOC_AHEAD) &&
	    out_bufsz >= sizeof(attach)) {
		rc = do_attach(m, req, ino, fi ? fi->fh : O_RDONLY,
			       cmd == (unsigned int)RAMP_IOC_AHEAD, &attach);
		if (rc)
			fuse_reply_err(req, -rc);
		else
			fuse_reply_ioctl(req, 0, &attach, sizeof(attach));
	} else if (cmd == (unsigned int)RAMP_IOC_INFO && out_bufsz >= sizeof(info)) {
		do_info(m, ino, &info);
		fuse_reply_ioctl(req, 0, &info, sizeof(info));
	} else {
		fuse_reply_err(req, ENOTTY);
	}
}
