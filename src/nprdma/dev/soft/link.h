/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links: the sending end of a connection to a port. Made on first use; a link
 * that was never used costs its struct.
 */

#ifndef NP_SOFT_LINK_H_
#define NP_SOFT_LINK_H_

#include "dma.h"
#include "fill.h"
#include "port.h"
#include "ring.h"
#include "seen.h"

#include "../flight.h"
#include "../../mem/table.h"
#include "../../mem/window.h"

/** What is out of what the target has lent */
typedef enum np_lent_state {
    NP_LENT_TRIED, /**< the target may come to it */
    NP_LENT_LEFT   /**< it is recalled, and the target may be executing one */
} np_lent_state_t;

/** Owner: the caller of np_link_init; guarded as its port is. */
struct np_link {
    np_event_t       event;        /**< first member */
    np_flight_t      flight;
    np_ring_tx_t     data;
    np_ring_tx_t     ctl;
    np_link_shm_t    *shm;         /**< our segment; NULL: not connected */
    np_port_shm_t    *target;      /**< the port to wake; NULL: not yet known */
    np_port_t        *port;
    np_port_addr_t   addr;
    uint32_t         bit;          /**< ours in the target's activity map */
    int              fd;
    uint64_t         connect_at;   /**< with NP_GATE_UNCONNECTED: not before;
                                        np_clock() */
    unsigned         drops;        /**< see NP_LINK_DROPS */
    uint32_t         left_begin;   /**< the last of its slots that were
                                        recalled, one after the other */
    uint32_t         left_end;
    ucs_list_link_t  carried;      /**< by the data ring, in the order of
                                        sending, in which they end */
    uint32_t         answers_used; /**< bitmap of requests; see mail.h */
    ucs_list_link_t  asks;         /**< requests that are out, in the order of
                                        sending */
    unsigned         waiting;      /**< of these, to be sent again */
    uint64_t         stuck_since;  /**< see np_mail_ring_slow */
    uint32_t         stuck_at;
    np_process_t     process;      /**< the target's */
    np_event_t       death;        /**< of it */
    uint64_t         hear_at;      /**< no descriptor was left for a message: it
                                        stays until then, np_clock(); 0: none
                                        has to. Else in port->deaf_links: */
    ucs_list_link_t  deaf;
    int              no_vm;        /**< process_vm_* was refused */
    int              is_wide;      /**< uses, or will use, payload_wide */
    int              no_wide;      /**< one end cannot map that */
    int              wide_asked;   /**< the other end has been asked */
    void             *wide_shm;    /**< all of our segment; NULL: not mapped */
    uint32_t         rewind_at;    /**< payload_tail at the last look whether
                                        payload may begin anew .. */
    uint32_t         rewind_after; /**< .. and the bytes to the next one */
    unsigned         rewind_taken; /**< port->taken, when that was last seen */
    np_fill_t        fill;         /**< of the data ring's payload area */
    uint32_t         shares_used;  /**< bitmap; see share.h, as are: */
    uint16_t         share_generation;
    int              no_share;     /**< the target cannot help */
    int              has_helped;   /**< it did, with the last shared copy */
    np_window_t      **windows;    /**< segments that came over this link, but
                                        for those that had ended when the next
                                        came */
    unsigned         num_windows;
    unsigned         segments;     /**< that ever came */
    unsigned         segments_asked;

    np_tlb_t         *tlb;         /**< the target's cache, if it is modelled,
                                        and the target known; else NULL */
    np_remote_t      *remote;      /**< the target's tables; NULL: not yet */
    uint32_t         table_arena;  /**< what table is of */
    np_table_t       *table;       /**< last used; NULL: none */
    uint8_t          *inline_areas;
    np_drain_entry_t drain;

    /* owned by proto */
    int              no_reverse;   /**< process_vm_* on our memory was refused
                                        to the target */
    uint64_t         no_fetch;     /**< np_fault_page: the last page whose
                                        coming in no entry will tell; 0: none */
    unsigned         lent_count;   /**< copies and single requests that are out
                                        of what the target has lent (lend.h) */
    unsigned         lent_large;   /**< of these: copies */
    np_lent_state_t  lent_state;
    uint32_t         lent_recalled; /**< NP_LENT_LEFT: np_carry_is_recalled */
    uint64_t         lent_from;    /**< none is sent before; np_clock(), 0: it
                                        may be */
    uint64_t         lent_pause;   /**< ns, of which that was the last; 0: the
                                        last one was executed */
    uint64_t         lent_since;   /**< none was executed; np_clock(), 0: since
                                        the next look */
    struct np_weigh  *weigh;       /**< of its small puts; NULL: not yet */
    np_seen_t        seen[NP_SEEN_PAGES];
    ucs_list_link_t  copies;       /**< transfers in pieces, in the order of
                                        posting */
    ucs_list_link_t  dues;         /**< under the model of a translation cache:
                                        transfers that have moved, in the order
                                        in which they end */
    unsigned         num_dues;
    uint64_t         get_due;      /**< as well: a short get from then on needs
                                        not wait any more, and until then has
                                        to; np_clock(), 0: none was tried */
};

void np_link_init(np_link_t *link, np_port_t *port, const np_port_addr_t *addr);

/** Close it; nothing may be outstanding. What is in the ring still arrives. */
void np_link_close(np_link_t *link);

/**
 * Connect. Does not wait for the target: what is sent before it answers waits
 * in the ring.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: try again at link->connect_at; any other
 *         status: the link is down with it.
 */
ucs_status_t np_link_connect(np_link_t *link);

/** It has not been tried, or long enough ago */
int np_link_may_connect(const np_link_t *link);

/** Those of a port whose message had to stay for lack of descriptors: once
 *  more, if it is time */
void np_links_hear(np_port_t *port);

/** The link does not work any more: tell the layers above, once */
void np_link_down(np_link_t *link, ucs_status_t status);

/** Does the process at the other end run, and has it not hung up? It may have,
 *  and still run and move. */
int np_link_is_connected(np_link_t *link);

/** Is the other end still there, and the link usable? */
int np_link_is_alive(np_link_t *link);

/** It is down: may something that we sent not have been read? The target has
 *  died, or has never taken us in, or has closed its port before. */
int np_link_has_lost(np_link_t *link);

/** It has a new data ring (room.c) */
void np_link_init_room(np_link_t *link);

/**
 * The link has carried much payload: may it use the whole payload area? Far
 * from where the target reads, neither waits for the other's cache lines. If it
 * does already: may the payload begin anew?
 */
void np_link_busy(np_link_t *link);

/** The same for a request that the target may not come to: the link is not made
 *  wide before its ring is empty, and what it has lent is not asked for until
 *  then. Returns whether it may be. */
int np_link_busy_request(np_link_t *link);

/** Is there room in the data ring? Looked at only if the last one that was
 *  refused found none (np_link_full). */
int np_link_has_room(np_link_t *link);

/**
 * The kernel has refused process_vm_* to the target: remember, and say once
 * what that means.
 *
 * @return UCS_OK: use the rings; UCS_ERR_UNSUPPORTED: the user wants an error.
 */
ucs_status_t np_link_vm_refused(np_link_t *link);

/** Wake the target's owner, which sleeps; or its service threads. Never
 *  waits. */
void np_link_wake(np_link_t *link);
void np_link_ring(np_link_t *link);

/** The table of an arena of the link's target; NULL: not known yet */
np_table_t *np_link_table_slow(np_link_t *link, uint32_t arena);

/** Tell the target that there is something in a ring that it does not poll */
void np_link_notify_slow(np_link_t *link);


static UCS_F_ALWAYS_INLINE np_link_t *np_link_of(np_flight_t *flight)
{
    return ucs_container_of(flight, np_link_t, flight);
}

static UCS_F_ALWAYS_INLINE np_table_t *
np_link_table(np_link_t *link, uint64_t va)
{
    uint32_t arena = np_arena_of(va);

    return ucs_likely((link->table_arena == arena) && (link->table != NULL)) ?
           link->table : np_link_table_slow(link, arena);
}

/** The way to the target's memory, in one arena. @a direct: where @a va is
 *  mapped here, or NULL. */
static UCS_F_ALWAYS_INLINE np_dma_t
np_link_dma(np_link_t *link, np_dir_t dir, uint64_t va, void *direct)
{
    return (np_dma_t){
        .dir     = dir,
        .process = &link->process,
        .direct  = direct,
        .table   = np_link_table(link, va),
        .remote  = link->remote,
        .tlb     = link->tlb,
        .moving  = &link->drain.own[NP_MOVER_INITIATOR]
    };
}

/** Is it time for np_link_busy? */
static UCS_F_ALWAYS_INLINE int np_link_is_busy(const np_link_t *link)
{
    return (int32_t)(link->data.payload_tail - link->data.busy_at) >= 0;
}

/** Is the whole payload area in use? */
static UCS_F_ALWAYS_INLINE int np_link_is_widened(const np_link_t *link)
{
    return link->data.payload_mask == link->data.payload_full;
}


/** There is no room in the data ring for an operation: what waits, waits for
 *  that */
static inline ucs_status_t np_link_full(np_link_t *link)
{
    link->flight.is_full = 1;
    return UCS_ERR_NO_RESOURCE;
}

/** What is asked in an epoch is moved in that one alone */
static inline uint32_t np_link_epoch(const np_link_t *link)
{
    return atomic_load_explicit(&link->shm->epoch, memory_order_relaxed);
}

/** Is the way by process_vm_* open? */
static inline int np_link_has_vm(const np_link_t *link)
{
    return !link->no_vm && (link->process.pid != 0) &&
           (np_engine.config.single_copy != NP_SINGLE_COPY_OFF);
}

static UCS_F_ALWAYS_INLINE void np_link_notify(np_link_t *link)
{
    /* No fence between the slot's word and this load: the target, when it sets
     * it to 0, looks at the rings again after np_barrier_peers() or in turn
     * (np_port_poll_cold). Where that barrier is missing it is never 1. */
    if (ucs_unlikely(!atomic_load_explicit(&link->shm->polled,
                                           memory_order_relaxed))) {
        np_link_notify_slow(link);
    }
}

#endif
