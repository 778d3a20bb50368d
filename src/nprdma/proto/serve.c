/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers. A peer is trusted with what it was given:
 * every address is checked here, and the kernel does the copying.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "serve.h"

#include "atomic.h"
#include "copy.h"

#include "../mem/access.h"
#include "../mem/alloc.h"

#include <unistd.h>


static ucs_status_t
np_serve_rma(np_peer_t *peer, const np_slot_rma_t *rma, uint8_t kind,
             uint32_t len)
{
    uint8_t *data = peer->data.payload + rma->offset;
    uint64_t addr = rma->addr;
    ucs_status_t status;

    status = np_access_check(addr, len);
    if (status != UCS_OK) {
        return status;
    }

    return (kind == NP_SLOT_PUT) ? np_access_write(addr, data, len) :
           np_access_read(data, addr, len);
}

static ucs_status_t np_serve_segment(np_peer_t *peer, uint64_t id)
{
    np_msg_t msg = {
        .type       = NP_MSG_SEGMENT,
        .version    = NP_WIRE_VERSION,
        .segment_id = id
    };
    ucs_status_t status;
    size_t size;
    int fd;

    fd = np_alloc_dup_fd(id, &size);
    if (fd < 0) {
        return UCS_ERR_NO_ELEM;
    }

    msg.size = size;
    status   = np_sock_send(peer->fd, &msg, &fd, 1);
    close(fd);
    return status;
}

int np_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word)
{
    uint8_t kind = np_word_kind(word);

    switch (kind) {
    case NP_SLOT_PUT:
    case NP_SLOT_GET:
        slot->rma.status = np_serve_rma(peer, &slot->rma, kind,
                                        np_word_len(word));
        return 1;
    case NP_SLOT_ATOMIC:
        np_atomic_serve(&slot->atomic);
        return 1;
    case NP_SLOT_SHARE:
        return np_help_begin(peer, &slot->share);
    case NP_SLOT_SEGMENT:
        slot->segment.status = np_serve_segment(peer, slot->segment.id);
        return 1;
    default:
        return 0;
    }
}
