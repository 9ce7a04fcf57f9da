/*
 * The tmpfs of a store: for store.c alone.
 */
#ifndef RAMP_MEMORY_TMPFS_H
#define RAMP_MEMORY_TMPFS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

/* 1: it is mounted there; 0: it is not; -errno: that can't be found out. */
int tmpfs_mounted(const char *path, struct ramp_err *err);
int tmpfs_mount(const char *path, uint64_t capacity_bytes, struct ramp_err *err);
int tmpfs_set_flags(const char *path, unsigned long mount_flags); /* 0 or -errno */
int tmpfs_unmount(const char *path, bool force, struct ramp_err *err);
/* Takes the lock against a second daemon; -EBUSY. */
int tmpfs_lock(int dir_fd, int *lock_fd, struct ramp_err *err);
int tmpfs_incarnation(int dir_fd, ramp_incarnation_t *incarnation, struct ramp_err *err);

#endif
