/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pause points, mutants and the clock of the test build.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "pause.h"

#include "clock.h"

#ifdef NP_TEST_BUILD

void (*np_pause_hook)(np_pause_point_t point);
np_mutant_t np_mutant = NP_MUTANT_NONE;
uint64_t np_clock_of_test;

#else

/* A translation unit is not empty */
typedef int np_pause_none_t;

#endif
