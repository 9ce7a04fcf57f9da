/*
 * The mapping that shim_early's library has made when the program begins.
 */
#ifndef RAMP_SHIM_EARLY_H
#define RAMP_SHIM_EARLY_H

extern volatile unsigned char *early;

#endif
