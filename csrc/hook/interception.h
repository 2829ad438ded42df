/* What the module needs of interception.c besides its functions. */
#ifndef STATOR_HOOK_INTERCEPTION_H
#define STATOR_HOOK_INTERCEPTION_H

#include "frame_compat.h"

#pragma GCC visibility push(hidden)
/* Answers of the callback that are not the call's result: evaluate the frame; evaluate it and all that it calls. */
extern PyObject *run_sentinel;
extern PyObject *run_all_sentinel;

/* Makes the sentinels.  False with an exception set. */
bool interception_init(void);
#pragma GCC visibility pop

#endif
