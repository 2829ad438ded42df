/* Code that is never intercepted; see skips.c. */
#ifndef STATOR_HOOK_SKIPS_H
#define STATOR_HOOK_SKIPS_H

#include "frame_compat.h"

#pragma GCC visibility push(hidden)
/* False with an exception set. */
bool skips_init(void);
bool is_skipped(PyCodeObject *code);
bool is_closed(PyCodeObject *code);
#pragma GCC visibility pop

#endif
