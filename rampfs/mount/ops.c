/*
 * The table of handlers, and our answer to INIT.
 */
#include "ops.h"

#include "fuse_request.h"
#include "ops_attr.h"
#include "ops_create.h"
#include "ops_io.h"
#include "ops_ioctl.h"
#include "ops_name.h"
#include "ops_open.h"
#include "ops_readdir.h"
#include "ops_xattr.h"

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* O_TRUNC comes as a setattr, which can wait at the gate. The kernel clears suid bits. Data
	   is copied, since a splice's pipe dies with the daemon. */
	conn->want &= ~(unsigned int)(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_HANDLE_KILLPRIV |
				      FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				      FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
	conn->max_background = 64;
	conn->max_write = REQUEST_BYTES;
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fsyncdir = op_fsync,
	.readdir = op_readdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.create = op_create,
	.ioctl = op_ioctl,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
};
