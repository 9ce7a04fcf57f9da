/*
 * Which core this process has: the shim's, or this library's own.
 */
#ifndef RAMP_API_CORE_CHOICE_H
#define RAMP_API_CORE_CHOICE_H

#include "core/core_calls.h"

/* Returns the core, initialized. NULL: a shim of another version is loaded, whose core this library
   can't use. */
const struct core_calls *core_choice(void);

#endif
