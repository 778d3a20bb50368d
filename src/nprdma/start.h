/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How the engine starts: each part of it, from its settings, in one order.
 */

#ifndef NP_START_H_
#define NP_START_H_

#include "engine.h"

/**
 * Start the engine, or check that it runs with these settings. Thread-safe.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM if it runs with others (says which);
 *         UCS_ERR_IO_ERROR if the kernel gave no random bytes.
 */
ucs_status_t np_engine_init(const np_engine_config_t *config);

#endif
