/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a link asks of our memory by a message of its own: puts and atomics. The
 * layers above know what they mean (np_vport_ops_t); here their links are told,
 * and what atomics gave is kept in case the answer is lost.
 */

#ifndef NP_VSERVE_H_
#define NP_VSERVE_H_

#include "conn.h"

/**
 * One has come, with @a len bytes after @a ctl.
 *
 * @return UCS_OK: handled, also if the link is told of an error;
 *         UCS_ERR_NO_RESOURCE: not now, and nothing of it was done
 *         (np_bring_want); UCS_ERR_INVALID_PARAM: it makes no sense.
 */
ucs_status_t
np_vserve_asked(np_conn_t *conn, const np_vctl_t *ctl, size_t len);

/** The connection ends */
void np_vserve_cleanup(np_conn_t *conn);

#endif
