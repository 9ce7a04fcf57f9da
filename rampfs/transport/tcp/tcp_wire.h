/*
 * The wire of a data connection over TCP.
 *
 * After its hello (hello.h) the target sends requests, and the source answers each with one or
 * more replies, in any order between requests, in rising offsets within one:
 *
 *   request: u32 magic, u32 len, u64 tag, u64 segment, 16 bytes of grant, u64 offset
 *   reply:   u32 magic, u32 errno, u64 tag, u8 kind, u8 more, u16 0, u32 0, u64 offset, u64 len,
 *            then len bytes where it is data
 */
#ifndef RAMP_TCP_WIRE_H
#define RAMP_TCP_WIRE_H

#include <stdint.h>

#define TCP_REQUEST_MAGIC UINT32_C(0x51524d52) /* "RMRQ" */
#define TCP_REPLY_MAGIC	  UINT32_C(0x50524d52) /* "RMRP" */
#define TCP_REQUEST_BYTES 48
#define TCP_REPLY_BYTES	  40
#define TCP_PIECE_BYTES	  (64u << 10) /* of prefetch, before demand is looked at again */

#endif
