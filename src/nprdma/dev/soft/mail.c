/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Mail.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mail.h"

#include <string.h>


int np_mail_tell(np_link_t *link, const np_slot_t *slot, np_slot_kind_t kind)
{
    np_slot_t *next;

    if (!np_ring_tx_has_slots(&link->ctl)) {
        return 0;
    }

    next = np_ring_tx_slot(&link->ctl);
    memcpy(next->data, slot->data, sizeof(next->data));
    np_ring_tx_publish(&link->ctl, next, 0, kind, 0);
    np_link_notify(link);
    return 1;
}
