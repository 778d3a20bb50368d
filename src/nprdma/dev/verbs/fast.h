/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages over queue pairs. Whether one may start, and whether there is
 * room and credit for it, has been asked before.
 */

#ifndef NP_VERBS_FAST_H_
#define NP_VERBS_FAST_H_

#include "stream.h"
#include "vremote.h" /* the layers above need both */

#include <string.h>

/** @a len bytes after an 8-byte header */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_conn_am_short(np_conn_t *conn, uint8_t id, uint64_t header,
                 const void *payload, unsigned len)
{
    struct {
        np_vmsg_t msg;
        uint64_t  header;
        uint8_t   payload[NP_CONN_INLINE];
    } UCS_S_PACKED other, *small;
    const size_t total = sizeof(other.msg) + sizeof(other.header) + len;
    np_vmsg_t *msg;

    if (ucs_likely(total <= conn->port->max_inline)) {
        small         = np_conn_small_place(conn, &other);
        small->msg    = (np_vmsg_t){.kind = NP_VMSG_AM, .id = id};
        small->header = header;
        if (len > 0) {
            memcpy(small->payload, payload, len);
        }
        np_conn_send_small(conn, &small->msg, total);
        return UCS_OK;
    }

    msg = np_conn_begin(conn, NP_VMSG_AM);
    if (msg == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    msg->id = id;
    memcpy(msg + 1, &header, sizeof(header));
    if (len > 0) {
        memcpy(UCS_PTR_BYTE_OFFSET(msg + 1, sizeof(header)), payload, len);
    }
    np_conn_send(conn, msg, total);
    return UCS_OK;
}

/** What @a pack writes; returns its length, or UCS_ERR_NO_RESOURCE */
static inline ssize_t
np_conn_am_bcopy(np_conn_t *conn, uint8_t id,
                 size_t (*pack)(void *dest, void *arg), void *arg)
{
    np_vmsg_t *msg = np_conn_begin(conn, NP_VMSG_AM);
    size_t len;

    if (msg == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    msg->id = id;
    len     = pack(msg + 1, arg);
    np_assertv(len <= NP_VSEG_PAYLOAD, "%zu bytes were packed", len);
    np_conn_send(conn, msg, sizeof(*msg) + len);
    return len;
}

/** Gathered from a header and a scatter list */
static inline ucs_status_t
np_conn_am_iov(np_conn_t *conn, uint8_t id, const void *header,
               unsigned header_len, const np_iov_t *iov, size_t iovcnt)
{
    np_vmsg_t *msg = np_conn_begin(conn, NP_VMSG_AM);
    uint8_t *dest;
    size_t i;

    if (msg == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    msg->id = id;
    dest    = (uint8_t*)(msg + 1);
    if (header_len > 0) {
        memcpy(dest, header, header_len);
        dest += header_len;
    }
    for (i = 0; i < iovcnt; dest += iov[i++].len) {
        if (iov[i].len > 0) {
            memcpy(dest, iov[i].base, iov[i].len);
        }
    }
    np_conn_send(conn, msg, dest - (uint8_t*)msg);
    return UCS_OK;
}

#endif
