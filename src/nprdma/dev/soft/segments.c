/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Allocated segments: asking for them, keeping them, and sending our own.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "segments.h"

#include "mail.h"
#include "peer.h"
#include "sock.h"

#include "../../mem/alloc.h"
#include "../../mem/window.h"

#include <stdlib.h>
#include <unistd.h>


/* Ask the target for the segment, so that later transfers find it. Returns 0 if
 * there is no room now. */
static int np_segments_ask(np_link_t *link, np_key_t *key)
{
    const np_slot_t slot = {.segment = {.id = key->segment_id}};

    if (!np_mail_tell(link, &slot, NP_SLOT_SEGMENT)) {
        return 0;
    }

    ++link->segments_asked;
    key->asked = 1;
    return 1;
}

np_window_t *np_segments_resolve(np_link_t *link, np_key_t *key)
{
    np_window_t *window, *expected = NULL;

    /* Look only if something has come since the last look */
    if (key->tried == (link->segments + 1)) {
        return NULL;
    }

    window = np_window_get(link->addr.port_id, key->segment_id);
    if (window == NULL) {
        if (key->asked || np_segments_ask(link, key)) {
            key->tried = link->segments + 1;
        }
        return NULL;
    }

    if (key->segment_len >
        (window->size - UCS_PTR_BYTE_DIFF(window->head, window->base))) {
        np_error("segment %lu is shorter than its key says",
                 key->segment_id);
        np_window_put(window);
        key->tried = link->segments + 1;
        return NULL;
    }

    /* release: a thread that finds it in the key sees it filled in */
    if (!atomic_compare_exchange_strong_explicit(&key->window, &expected,
                                                 window, memory_order_release,
                                                 memory_order_acquire)) {
        np_window_put(window); /* another thread was first */
        window = expected;
    }
    return window;
}

/* Segments that their owner has freed: keys that use one keep it by
 * themselves */
static void np_segments_drop_ended(np_link_t *link)
{
    unsigned i, kept = 0;

    for (i = 0; i < link->num_windows; ++i) {
        if (np_window_is_ended(link->windows[i])) {
            np_window_put(link->windows[i]);
        } else {
            link->windows[kept++] = link->windows[i];
        }
    }
    link->num_windows = kept;
}

void np_segments_take(np_link_t *link, uint64_t segment_id, int fd,
                      size_t size)
{
    np_window_t *window, **windows;

    if (link->segments == link->segments_asked) {
        np_diag("process %d sent a segment that nobody has asked for",
                link->process.pid);
        return;
    }

    ++link->segments;
    np_segments_drop_ended(link);
    if (np_window_add(link->addr.port_id, segment_id, fd, size, &window) !=
        UCS_OK) {
        return;
    }

    windows = realloc(link->windows,
                      (link->num_windows + 1) * sizeof(*windows));
    if (windows == NULL) {
        np_window_put(window);
        return;
    }

    link->windows                      = windows;
    link->windows[link->num_windows++] = window;
}

void np_segments_drop(np_link_t *link)
{
    unsigned i;

    for (i = 0; i < link->num_windows; ++i) {
        np_window_put(link->windows[i]);
    }
    free(link->windows);
}

void np_segments_send(np_peer_t *peer, uint64_t segment_id)
{
    np_msg_t msg = {
        .type       = NP_MSG_SEGMENT,
        .version    = NP_WIRE_VERSION,
        .segment_id = segment_id
    };
    size_t size;
    int fd;

    fd = np_alloc_dup_fd(segment_id, &size);
    if (fd >= 0) {
        msg.size = size;
        (void)np_sock_send(peer->fd, &msg, &fd, 1); /* else they do without */
        close(fd);
    }
}
