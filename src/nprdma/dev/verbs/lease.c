/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Leases.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"

#include "../../mem/access.h"

#include <stdlib.h>

/** One that is given back when its queue pair is destroyed */
struct np_kept_lease {
    struct np_kept_lease *next;
    np_lease_t           lease;
};


size_t np_lease_size(const np_vport_t *port, size_t len)
{
    return (port->config.chunk != 0) ? port->config.chunk :
           np_nic_chunk(port->nic, len);
}

size_t np_lease_room(const np_vport_t *port, size_t len, int has_other)
{
    if ((port->registered == 0) || port->config.is_sequential ||
        ((port->registered + len) <= port->config.pin_max)) {
        return len;
    }
    return has_other ? 0 : ucs_min(len, NP_LEASE_SMALL);
}

ucs_status_t np_lease_take(np_vport_t *port, void *base, size_t len,
                           unsigned flags, np_lease_t *lease)
{
    const int access = (flags & NP_LEASE_WRITE) ?
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
    ucs_status_t status;

    /* some kernels register for a device what its process may not read */
    if ((flags & NP_LEASE_PEERS) && !(flags & NP_LEASE_WRITE) &&
        port->nic->is_forced &&
        (np_access_bring_in((uintptr_t)base, len, 0) != UCS_OK)) {
        return UCS_ERR_INVALID_ADDR;
    }

    status = np_nic_reg(port->nic, base, len, access, &lease->mr);
    if (status == UCS_OK) {
        port->registered += len;
    }
    return status;
}

/* For when its queue pair is destroyed; returns 0: it is to be given back by
 * the caller, at any time */
static int np_lease_keep(np_conn_t *conn, np_lease_t lease)
{
    struct np_kept_lease *kept;

    if (ucs_likely(!conn->is_broken)) {
        return 0;
    }

    kept = malloc(sizeof(*kept));
    if (kept == NULL) {
        return 0;
    }

    *kept             = (struct np_kept_lease){conn->kept_leases, lease};
    conn->kept_leases = kept;
    return 1;
}

void np_lease_spend(np_conn_t *conn, np_lease_t *lease, np_leases_t *spent)
{
    if (lease->mr == NULL) {
        return;
    }

    np_assert(conn->port->registered >= lease->mr->length);
    conn->port->registered -= lease->mr->length;
    if (!np_lease_keep(conn, *lease)) {
        np_assert(spent->count < NP_LEASES_MAX);
        spent->leases[spent->count++] = *lease;
    }
    lease->mr = NULL;
}

void np_leases_end(np_leases_t *spent)
{
    unsigned i;

    for (i = 0; i < spent->count; ++i) {
        np_nic_dereg(spent->leases[i].mr);
    }
    spent->count = 0;
}

void np_lease_end(np_conn_t *conn, np_lease_t *lease)
{
    np_leases_t spent;

    spent.count = 0;
    np_lease_spend(conn, lease, &spent);
    np_leases_end(&spent);
}

void np_lease_end_kept(np_conn_t *conn)
{
    struct np_kept_lease *kept;

    while ((kept = conn->kept_leases) != NULL) {
        conn->kept_leases = kept->next;
        np_nic_dereg(kept->lease.mr);
        free(kept);
    }
}
