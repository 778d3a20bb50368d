/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Views of our memory: for requests of our own, and their keys for peers that
 * ask for them.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"
#include "views.h"

#include "../../mem/space.h"

#include <stdlib.h>

/** A peer that waits for views. Owner: its port. */
typedef struct np_vasked {
    ucs_list_link_t list;        /**< of port->asked */
    uint32_t        qpn;         /**< of its connection, and which life of it */
    uint32_t        generation;
    uint64_t        addr;        /**< as it has asked */
    np_nic_views_t  *views;
} np_vasked_t;


/* NULL: not yet, or never */
static np_nic_views_t *np_vport_own(np_vport_t *port, uint64_t va)
{
    uint32_t arena = np_arena_of(va);

    if (ucs_unlikely((port->own == NULL) || (port->own->arena != arena))) {
        port->own = np_views_get(port->nic, arena);
        if (port->own == NULL) {
            return NULL;
        }
    }
    if (ucs_likely(np_views_state(port->own) == NP_VIEWS_READY)) {
        return port->own;
    }

    np_views_again(port->own);
    return NULL;
}

int np_vport_view(np_vport_t *port, uint64_t va, uint64_t len, int to_write,
                  np_view_t *view)
{
    const np_nic_views_t *own = np_vport_own(port, va);
    const np_views_part_t *part;

    if (own == NULL) {
        return 0;
    }

    part = np_views_part(own, va, len);
    if (part == NULL) {
        return 0;
    }

    view->place  = (np_place_t){
        va, to_write ? part->write->lkey : part->read->lkey
    };
    view->region = own->region;
    return 1;
}

/* The keys of each region of the row */
static void np_conn_tell_row(np_conn_t *conn, const np_nic_views_t *views)
{
    np_vctl_t ctl = {.msg   = {.kind = NP_VMSG_VIEWS},
                     .views = {.status = UCS_OK,
                               .addr   = views->region->va,
                               .len    = views->region->len,
                               .size   = UINT64_C(1) << views->shift,
                               .table  = views->table->rkey}};
    unsigned i;

    for (i = 0; (i < views->count) && (conn->state == NP_CONN_READY); ++i) {
        ctl.views.index = i;
        ctl.views.read  = views->parts[i].read->rkey;
        ctl.views.write = views->parts[i].write->rkey;
        np_conn_reply(conn, &ctl);
    }
}

/* Returns 0: there is nothing to say yet */
static int
np_conn_tell_of(np_conn_t *conn, uint64_t addr, np_nic_views_t *views)
{
    np_views_state_t state = (views == NULL) ? NP_VIEWS_REFUSED :
                             np_views_state(views);
    np_vctl_t ctl          = {.msg   = {.kind = NP_VMSG_VIEWS},
                              .views = {.addr   = addr,
                                        .status = UCS_ERR_UNSUPPORTED}};

    if (state == NP_VIEWS_BUILDING) {
        return 0;
    }

    if (state == NP_VIEWS_READY) {
        np_conn_tell_row(conn, views);
        return 1;
    }

    if (state == NP_VIEWS_LATER) {
        ctl.views.status = UCS_ERR_NO_RESOURCE;
    }
    np_conn_reply(conn, &ctl);
    return 1;
}

void np_conn_tell_views(np_conn_t *conn, uint64_t addr)
{
    np_vport_t *port      = conn->port;
    np_nic_views_t *views = NULL;
    np_vasked_t *asked;
    uint64_t va;

    if (port->has_views &&
        (np_space_resolve(addr, 1, NP_RIGHT_BOTH | NP_RIGHT_MEMORY, &va) ==
         UCS_OK)) {
        views = np_views_get(port->nic, np_arena_of(va));
    }
    if (np_conn_tell_of(conn, addr, views)) {
        return;
    }

    asked = malloc(sizeof(*asked));
    if (asked == NULL) {
        (void)np_conn_tell_of(conn, addr, NULL);
        return;
    }

    *asked = (np_vasked_t){.qpn        = conn->qpn,
                           .generation = conn->generation,
                           .addr       = addr,
                           .views      = views};
    ucs_list_add_tail(&port->asked, &asked->list);
}

unsigned np_vport_tell_views(np_vport_t *port)
{
    np_vasked_t *asked, *next;
    unsigned count = 0;
    np_conn_t *conn;

    ucs_list_for_each_safe(asked, next, &port->asked, list) {
        conn = np_conn_find(port, asked->qpn);
        if ((conn == NULL) || (conn->generation != asked->generation) ||
            (conn->state != NP_CONN_READY) ||
            np_conn_tell_of(conn, asked->addr, asked->views)) {
            ucs_list_del(&asked->list);
            free(asked);
            ++count;
        }
    }
    return count;
}

void np_vport_drop_asked(np_vport_t *port)
{
    np_vasked_t *asked;

    while (!ucs_list_is_empty(&port->asked)) {
        asked = ucs_list_extract_head(&port->asked, np_vasked_t, list);
        free(asked);
    }
}
