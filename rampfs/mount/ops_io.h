/*
 * Handlers of reads, writes and the like.
 */
#ifndef RAMP_OPS_IO_H
#define RAMP_OPS_IO_H

#include "libfuse.h"
#include "mount_ref.h"

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* Carries out a program's MADV_REMOVE. Control loop. */
void ops_punch(void *mount, struct punch_request *punch, ramp_segment_t id, uint64_t offset,
	       uint64_t len);

#endif
