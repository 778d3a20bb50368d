/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The whole payload area.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "wide.h"

#include "mail.h"
#include "peer.h"

#include "../../segment.h"


void np_wide_free_link(np_link_t *link)
{
    if (link->wide_shm != NULL) {
        np_segment_unmap(link->wide_shm,
                         np_port_link_size(&link->port->config));
        link->wide_shm = NULL;
    }

    if (link->is_wide) {
        link->is_wide = 0;
        --link->port->num_wide;
    }
}

/* Others may be wide in its place, but it does not ask again */
static void np_wide_give_up(np_link_t *link, const char *who)
{
    np_diag("the link to process %d keeps a payload area of %u bytes: %s "
            "cannot map %u. Check 'ulimit -v' and vm.max_map_count",
            link->process.pid, link->port->config.payload_size, who,
            link->port->config.payload_wide);
    link->no_wide = 1;
    np_wide_free_link(link);
}

int np_wide_is_ready(np_link_t *link)
{
    static const np_slot_t slot = {0};
    np_wide_t wide;

    if (!link->is_wide) {
        return 0;
    }

    if (link->wide_shm == NULL) {
        link->wide_shm =
                np_segment_map_again(link->shm,
                                     np_port_link_size(&link->port->config));
        if (link->wide_shm == NULL) {
            np_wide_give_up(link, "this process");
            return 0;
        }
    }

    if (!link->wide_asked) {
        link->wide_asked = np_mail_tell(link, &slot, NP_SLOT_WIDE);
    }

    /* acquire: its mapping is there */
    wide = atomic_load_explicit(&link->shm->wide, memory_order_acquire);
    if (wide == NP_WIDE_NO) {
        np_wide_give_up(link, "that one");
    }
    return wide == NP_WIDE_YES;
}

void np_wide_use(np_link_t *link)
{
    link->data.payload = np_link_shm_payload(link->wide_shm,
                                             link->port->config.data_slots);
}

/* Map it, if nobody has */
static int np_wide_map(np_peer_t *peer)
{
    void *none = NULL;
    void *wide;

    if (atomic_load_explicit(&peer->wide_shm, memory_order_relaxed) != NULL) {
        return 1; /* it asks once more */
    }

    wide = np_segment_map_again(peer->shm, peer->shm_size);
    if (wide == NULL) {
        return 0;
    }

    /* release: the owner finds it when it meets what is in there */
    if (!atomic_compare_exchange_strong_explicit(&peer->wide_shm, &none, wide,
                                                 memory_order_release,
                                                 memory_order_relaxed)) {
        np_segment_unmap(wide, peer->shm_size); /* another thread was first */
    }
    return 1;
}

void np_wide_answer(np_peer_t *peer)
{
    const np_wide_t wide = np_wide_map(peer) ? NP_WIDE_YES : NP_WIDE_NO;

    /* release: it is mapped */
    atomic_store_explicit(&peer->shm->wide, wide, memory_order_release);
}

int np_wide_begin(np_peer_t *peer)
{
    void *wide = atomic_load_explicit(&peer->wide_shm, memory_order_acquire);

    if (wide == NULL) {
        return 0;
    }

    peer->data.payload      = np_link_shm_payload(wide, peer->data.mask + 1);
    peer->data.payload_size = peer->payload_full;
    return 1;
}

void np_wide_free_peer(np_peer_t *peer)
{
    void *wide = atomic_exchange_explicit(&peer->wide_shm, NULL,
                                          memory_order_acquire);

    if (wide != NULL) {
        np_segment_unmap(wide, peer->shm_size);
    }
}
