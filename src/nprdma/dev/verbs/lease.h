/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Leases: memory that an RNIC reaches for the length of a transfer (design,
 * section 3). What is leased is registered, and so it is pinned: how much all
 * transfers have at a time is bounded.
 */

#ifndef NP_LEASE_H_
#define NP_LEASE_H_

#include "vport.h"

/** Leases of one transfer, at most */
#define NP_LEASES_MAX    8

/** Bytes of the lease that a transfer without any gets when all others have as
 *  much as they may */
#define NP_LEASE_SMALL   ((size_t)(64 * UCS_KBYTE))

enum {
    NP_LEASE_WRITE = 1u << 0, /**< a peer writes there; else it is sent from */
    NP_LEASE_PEERS = 1u << 1  /**< a peer asks for it: it gets nothing that the
                                   process itself may not read */
};

typedef struct np_lease {
    struct ibv_mr *mr;        /**< NULL: none */
} np_lease_t;

/** Leases that are over, to be given back when that delays nothing */
typedef struct np_leases {
    np_lease_t leases[NP_LEASES_MAX];
    unsigned   count;
} np_leases_t;

/** How much of a transfer of @a len bytes to lease at once */
size_t np_lease_size(const np_vport_t *port, size_t len);

/**
 * How much of @a len bytes may be leased now.
 *
 * @param [in] has_other  The transfer has another lease. One that has none gets
 *                        a small one in any case, since its peer may wait for
 *                        it, and with it a transfer of ours.
 *
 * @return 0: when another one is given back.
 */
size_t np_lease_room(const np_vport_t *port, size_t len, int has_other);

/**
 * Take a lease.
 *
 * @param [in] flags  NP_LEASE_WRITE, NP_LEASE_PEERS.
 *
 * @return UCS_OK; UCS_ERR_EXCEEDS_LIMIT: not so much; UCS_ERR_INVALID_ADDR: not
 *         mapped, or not with these rights, or what the kernel does not
 *         register.
 */
ucs_status_t np_lease_take(np_vport_t *port, void *base, size_t len,
                           unsigned flags, np_lease_t *lease);

/**
 * Give it back, if there is one.
 *
 * A queue pair that is broken may still hold it; then it is kept until the
 * queue pair is destroyed. Soft-RoCE forgets the last registration that was
 * written to if the error comes between the write's completion and its end, and
 * to give that back would take 50 s.
 */
void np_lease_end(np_conn_t *conn, np_lease_t *lease);

/** The same, but as @a spent is given back; others may have what it was of the
 *  port's bound at once */
void np_lease_spend(np_conn_t *conn, np_lease_t *lease, np_leases_t *spent);

void np_leases_end(np_leases_t *spent);

/** The queue pair is destroyed: what was kept for it is given back */
void np_lease_end_kept(np_conn_t *conn);

/** For requests of our own, from @a addr on */
static UCS_F_ALWAYS_INLINE np_place_t
np_lease_place(const np_lease_t *lease, const void *addr)
{
    return (np_place_t){(uintptr_t)addr, lease->mr->lkey};
}

/** The key that a peer writes with; 0: there is no lease */
static UCS_F_ALWAYS_INLINE uint32_t np_lease_rkey(const np_lease_t *lease)
{
    return (lease->mr == NULL) ? 0 : lease->mr->rkey;
}

#endif
