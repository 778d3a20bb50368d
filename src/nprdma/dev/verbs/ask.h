/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a link asks its target for: streams, reads whose bytes come in a
 * message, and atomics. It is kept until it has been answered, since it is
 * asked for again if the queue pair fails (replay.h). Both sides know it by the
 * name that the link's side gave it.
 */

#ifndef NP_VERBS_ASK_H_
#define NP_VERBS_ASK_H_

#include "conn.h"

/** Owner: the layer that asks. Guarded as its port is. */
struct np_asked {
    ucs_list_link_t list;       /**< of conn->asks, in the order in which they
                                     were first sent; or alone */
    np_vctl_t       ctl;        /**< as it is sent, with its name */
    uint32_t        seq;        /**< number of its message */
    int             is_stream;  /**< part of one, which takes its answers;
                                     else np_vport_ops_t::answered tells */
};

/** Ask for it; ctl and is_stream are filled in. Returns 0: there is no room,
 *  and it was not. Else it is out until it is answered, or np_ask_end. */
int np_conn_ask(np_conn_t *conn, np_asked_t *asked);

/** What is out is sent once more; returns 0: no room */
int np_conn_ask_again(np_conn_t *conn, np_asked_t *asked);

/** Its answer is not waited for any more */
static inline void np_ask_end(np_asked_t *asked)
{
    ucs_list_del(&asked->list);
    ucs_list_head_init(&asked->list);
}

/** The one of this name; NULL: none is out */
np_asked_t *np_ask_find(const np_conn_t *conn, uint32_t name);

/** The target says something that is not about a stream, with @a len bytes
 *  after @a ctl. UCS_ERR_INVALID_PARAM: it makes no sense. */
ucs_status_t
np_ask_answered(np_conn_t *conn, const np_vctl_t *ctl, size_t len);

#endif
