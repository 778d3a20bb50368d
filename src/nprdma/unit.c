/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Is this thread inside a unit?
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "unit.h"

#if NP_HAS_ASSERT

NP_THREAD_OWN unsigned np_unit_depth;

#else

/* A translation unit is not empty */
typedef int np_unit_none_t;

#endif
