/*
 * The handlers, by what they are about; ops.c puts them into one table.
 */
#ifndef RAMP_OPS_H
#define RAMP_OPS_H

#include "request.h"

/* ops.c */
extern const struct fuse_lowlevel_ops mount_ops;

/* ops_name.c: names */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);

/* ops_io.c: bytes */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* A program's MADV_REMOVE. Control loop. */
void ops_punch(void *mount, struct punch_request *punch, ramp_segment_t id, uint64_t offset,
	       uint64_t len);
/* How an open is answered: never a second copy in the page cache, no FLUSH. */
void ops_open_flags(struct fuse_file_info *fi);
/* Sets the size, at the owner: 0, -EAGAIN (*gate: it was the gate; else spare.h, or pages), or what
   open would say. */
int ops_truncate(struct request *r, ramp_segment_t id, uint64_t size, bool *gate);

/*
 * ops_setid.c: set-user-ID and set-group-ID go before a write by somebody who may not keep them.
 * Fuse thread, in a write: which go (META_CLEAR_*; 0: the write needs nothing), by what stands
 * beside the bytes.
 */
uint32_t setid_goes(fuse_req_t req, fuse_ino_t ino);
/* The same in a truncate, a fallocate or a change of owner: what the kernel has left to us. */
uint32_t setid_unseen(fuse_req_t req, fuse_ino_t ino);
/* In a program's MADV_REMOVE, of which the kernel knows nothing. Any thread. */
uint32_t setid_punched(struct mount *m, const struct punch_request *punch, ramp_segment_t id);
bool setid_kept(pid_t pid); /* programs_keeps_setid */
/*
 * Has the metadata clear them for the request (FUSE's or our own) and then calls then(arg, 0) on
 * the park thread, or with why not (-EROFS: no quorum). -ESHUTDOWN: the request is the next
 * daemon's, and is not to be answered. It may come before this returns.
 */
void setid_clear(const struct request *r, ramp_segment_t id, uint32_t which,
		 void (*then)(void *arg, int rc), void *arg);

/* ops_attr.c: attributes */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_bufsz,
	      size_t out_bufsz);

/* ops_xattr.c: user.ramp.* */
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
/* change.c: one proposal to the metadata. */
struct change {
	struct request r; /* first */
	struct meta_command command;
	struct meta_reply reply;
	uint64_t waits_since_ms; /* for its turn */
	/* Replies and frees; park thread. reply.result may be any errno. */
	void (*done)(struct change *c);
};
/* Of a zeroed change whose request is initialised; the command has no id yet. */
void change_init(struct change *c, enum meta_command_type type, void (*done)(struct change *c));
/* A change of `size` bytes that begins with a struct change, its command identified by this
   request; NULL after ENOMEM has been replied. */
void *change_new(fuse_req_t fuse, size_t size, enum meta_command_type type,
		 void (*done)(struct change *c));
void change_propose(struct change *c);

#endif
