/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over queue pairs: what may start, and starting it.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rop.h"

#include "rput.h"
#include "runload.h"

#include "../../mem/access.h"
#include "../../mem/stage.h"

#include <string.h>


ucs_status_t np_rpost_enter_slow(np_vlink_t *link)
{
    ucs_status_t status = np_flight_enter(&link->flight);

    if ((status != UCS_OK) || (link->conn->state != NP_CONN_READY)) {
        return (status != UCS_OK) ? status : UCS_ERR_NO_RESOURCE;
    }

    if (!np_conn_has_credit(link->conn)) {
        np_conn_want_credit(link->conn);
        return UCS_ERR_NO_RESOURCE;
    }

    return np_conn_has_room(link->conn) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

/* How a transfer goes, that has bytes */
typedef enum np_rpost_way {
    NP_RPOST_ONE_SIDED, /* by views, if its pages are there */
    NP_RPOST_MESSAGE,   /* by the target's CPU */
    NP_RPOST_UNLOADED   /* by the target's CPU, though it need not */
} np_rpost_way_t;

/* As far as is known before it is known what it is */
static UCS_F_ALWAYS_INLINE np_rpost_way_t np_rpost_way(const np_vlink_t *link)
{
    return link->port->has_views ? NP_RPOST_ONE_SIDED : NP_RPOST_MESSAGE;
}

static UCS_F_ALWAYS_INLINE np_rpost_way_t
np_rpost_put_way(np_vlink_t *link, uint64_t addr, size_t len)
{
    if (!link->port->has_views || (len <= link->port->config.put_once)) {
        return NP_RPOST_MESSAGE;
    }
    return ucs_unlikely(len <= link->port->config.unload_max) &&
           np_runload_decides(link, addr) ? NP_RPOST_UNLOADED :
           NP_RPOST_ONE_SIDED;
}

/* May a transfer start beside those in flight? Queue pairs do not order a Write
 * after the memory access of a Read before it. */
static ucs_status_t np_rpost_order(np_vlink_t *link, uint64_t addr, size_t len,
                                   int is_write, np_rpost_way_t way)
{
    if ((way == NP_RPOST_ONE_SIDED) &&
        ucs_unlikely(np_rput_is_overtaken(link, addr, len))) {
        return UCS_ERR_NO_RESOURCE;
    }

    return np_flight_order(&link->flight, addr, len, is_write);
}

/* May a get start? */
static ucs_status_t
np_rpost_enter_get(np_vlink_t *link, uint64_t addr, size_t len)
{
    ucs_status_t status = np_rpost_enter(link);

    return ucs_likely(status == UCS_OK) ?
           np_rpost_order(link, addr, len, 0, np_rpost_way(link)) : status;
}

/* May a put out of the program's memory start, and how does it go? It is not
 * unloaded: its completion tells of a refusal, and what is has no answer. */
static ucs_status_t np_rpost_enter_put(np_vlink_t *link, uint64_t addr,
                                       size_t len, np_rpost_way_t *way)
{
    ucs_status_t status = np_rpost_enter(link);

    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    *way = np_rpost_way(link);
    if (len <= link->port->config.put_once) {
        *way = NP_RPOST_MESSAGE;
    }
    return np_rpost_order(link, addr, len, 1, *way);
}

static int np_rpost_may_begin(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    /* not until a put that others would overtake is acknowledged */
    return !link->is_overtaking || !np_rput_is_unacked(link);
}

static np_vctl_t *np_rpost_begin(np_vlink_t *link, np_vmsg_kind_t kind)
{
    np_vctl_t *ctl = (np_vctl_t*)np_conn_begin(link->conn, kind);

    if (ucs_likely(ctl != NULL)) {
        memset(&ctl->body, 0, sizeof(ctl->body));
    }
    return ctl;
}

/* A transfer that may be one-sided, to be posted; NULL: no memory */
static np_rop_t *
np_rpost_get_one(np_vlink_t *link, np_dir_t dir, void *base, size_t len,
                 uint64_t addr, void *comp)
{
    np_rop_t *op = np_rop_get(link->port, NP_OP_ONE, comp);

    if (ucs_likely(op != NULL)) {
        op->one.dir    = dir;
        op->one.base   = base;
        op->one.len    = len;
        op->one.remote = addr;
    }
    return op;
}

/* What UNLOAD is about is told of it */
static void np_rpost_weigh(np_vlink_t *link, const np_rop_t *op, np_dir_t dir,
                           uint64_t addr, size_t len)
{
    if ((dir == NP_DIR_PUT) &&
        ucs_unlikely(len <= link->port->config.unload_max)) {
        (void)np_runload_posted(link, op, addr);
    }
}

static ucs_status_t np_rpost_post_one(np_vlink_t *link, np_rop_t *op)
{
    np_rop_post(link, op);
    np_op_order(&link->flight, &op->super, op->one.remote, op->one.len,
                op->one.dir == NP_DIR_PUT);
    np_rpost_weigh(link, op, op->one.dir, op->one.remote, op->one.len);
    if (np_rone_run(op)) {
        np_rop_todo(op);
    }
    np_flight_begun(&link->flight);
    return UCS_INPROGRESS;
}

/* A put whose bytes are in a message that has been begun: one-sided where it
 * may be, else the message goes */
static void np_rpost_put(np_vlink_t *link, np_vctl_t *ctl, uint64_t addr,
                         size_t len, np_rpost_way_t way)
{
    np_rop_t *op;

    if ((way == NP_RPOST_ONE_SIDED) &&
        np_rone_is_copyable(link, addr, len)) {
        op = np_rpost_get_one(link, NP_DIR_PUT, ctl + 1, len, addr, NULL);
        if (op != NULL) {
            op->copy = ctl;
            np_rpost_post_one(link, op);
            return;
        }
    }

    ctl->body.addr = addr;
    if (link->port->has_views) {
        ctl->msg.flags |= (way == NP_RPOST_UNLOADED) ? 0 : NP_VMSG_ABSENT;
        np_rput_by_message(link, ctl, addr, len, way == NP_RPOST_UNLOADED);
    }
    np_conn_send(link->conn, &ctl->msg, sizeof(*ctl) + len);
    link->flight.put = link->conn->tx_seq;
    np_flight_set_busy(&link->flight);
    np_flight_begun(&link->flight);
}

static ssize_t
np_rpost_put_packed(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                    void *arg, uint64_t addr)
{
    np_vlink_t *link      = np_vlink_of(flight);
    const uint64_t remote = np_key_base(key) + addr;
    ucs_status_t status;
    np_vctl_t *ctl;
    size_t len;

    status = np_rpost_enter(link);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    ctl = np_rpost_begin(link, NP_VMSG_PUT);
    if (ctl == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    /* before anything is packed: the caller cannot pack twice */
    status = np_rpost_order(link, remote, NP_VSEG_DATA, 1, np_rpost_way(link));
    if (ucs_unlikely(status != UCS_OK)) {
        np_conn_drop(link->conn, &ctl->msg);
        return status;
    }

    len = pack(ctl + 1, arg);
    np_assertv(len <= NP_VSEG_DATA, "%zu bytes were packed", len);
    if (ucs_unlikely((len == 0) ||
                     !np_key_covers(key, flight->engine_id, addr, len))) {
        np_conn_drop(link->conn, &ctl->msg);
        return (len == 0) ? 0 : (ssize_t)UCS_ERR_INVALID_ADDR;
    }

    np_rpost_put(link, ctl, remote, len, np_rpost_put_way(link, remote, len));
    return len;
}

static ucs_status_t
np_rpost_put_copied(np_flight_t *flight, UCS_V_UNUSED np_key_t *key,
                    const void *data, size_t len, uint64_t addr)
{
    np_vlink_t *link = np_vlink_of(flight);
    np_rpost_way_t way;
    ucs_status_t status;
    np_vctl_t *ctl;

    status = np_rpost_enter(link);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    way = np_rpost_put_way(link, addr, len);
    if (way == NP_RPOST_ONE_SIDED) {
        status = np_rput_post(link, data, len, addr);
        if (status == UCS_OK) {
            np_flight_begun(&link->flight);
        }
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    status = np_rpost_order(link, addr, len, 1, way);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    ctl = np_rpost_begin(link, NP_VMSG_PUT);
    if (ctl == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    memcpy(ctl + 1, data, len);
    np_rpost_put(link, ctl, addr, len, way);
    return UCS_OK;
}

int np_rpost_begin_move(np_rop_t *op, np_dir_t dir, const np_iov_t *iov,
                        size_t iovcnt, uint64_t addr)
{
    np_op_turn(&op->super, NP_OP_MOVE);
    return np_stream_begin(&op->stream, op->conn, op->super.name, dir, iov,
                           iovcnt, addr);
}

int np_rpost_begin_unpack(np_rop_t *op, np_unpack_t unpack, void *arg,
                          size_t len, uint64_t addr)
{
    np_op_turn(&op->super, NP_OP_UNPACK);
    op->unpack = unpack;
    op->arg    = arg;
    op->asked  = (np_asked_t){.ctl = {
        .msg  = {
            .kind  = NP_VMSG_READ,
            .flags = NP_VMSG_NO_KEYS |
                     (op->port->has_views ? NP_VMSG_ABSENT : 0)
        },
        .body = {.op = op->super.name, .addr = addr, .len = len}
    }};
    return np_conn_ask(op->conn, &op->asked);
}

/* An operation that needs the target's CPU; NULL: @a status_p says why not */
static np_rop_t *np_rpost_get_asking(np_vlink_t *link, np_op_kind_t kind,
                                     void *comp, ucs_status_t *status_p)
{
    np_rop_t *op;

    if (!np_rpost_may_ask(link)) {
        *status_p = np_flight_refuse(&link->flight);
        return NULL;
    }

    op = np_rop_get(link->port, kind, comp);
    if (op == NULL) {
        *status_p = np_op_none(&link->port->flights);
    }
    return op;
}

static ucs_status_t
np_rpost_move(np_dir_t dir, np_flight_t *flight, UCS_V_UNUSED np_key_t *key,
              const np_iov_t *iov, size_t iovcnt, size_t len, uint64_t addr,
              void *comp)
{
    np_vlink_t *link   = np_vlink_of(flight);
    np_rpost_way_t way = np_rpost_way(link);
    ucs_status_t status;
    np_rop_t *op;

    status = (dir == NP_DIR_PUT) ? np_rpost_enter_put(link, addr, len, &way) :
             np_rpost_enter_get(link, addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (np_region_is_exact()) {
        status = np_access_check_own(iov, iovcnt);
        if (status != UCS_OK) {
            return status;
        }
    }

    if ((way == NP_RPOST_ONE_SIDED) &&
        np_rone_is_possible(link, dir, iov, iovcnt, addr)) {
        op = np_rpost_get_one(link, dir, iov[0].base, len, addr, comp);
        return (op == NULL) ? np_op_none(&link->port->flights) :
               np_rpost_post_one(link, op);
    }

    op = np_rpost_get_asking(link, NP_OP_MOVE, comp, &status);
    if (op == NULL) {
        return status;
    }

    np_rop_post(link, op);
    np_op_order(&link->flight, &op->super, addr, len, dir == NP_DIR_PUT);
    if (!np_rpost_begin_move(op, dir, iov, iovcnt, addr)) {
        np_op_drop(&op->super);
        return UCS_ERR_NO_RESOURCE;
    }
    np_flight_begun(&link->flight);
    return UCS_INPROGRESS;
}

static ucs_status_t
np_rpost_get_unpack(np_flight_t *flight, UCS_V_UNUSED np_key_t *key, size_t len,
                    uint64_t addr, np_unpack_t unpack, void *arg, void *comp)
{
    np_vlink_t *link = np_vlink_of(flight);
    ucs_status_t status;
    np_rop_t *op;

    status = np_rpost_enter_get(link, addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (link->port->has_views && np_rone_is_copyable(link, addr, len)) {
        op = np_rpost_get_one(link, NP_DIR_GET, NULL, len, addr, comp);
        if (op == NULL) {
            return np_op_none(&link->port->flights);
        }

        op->one.unpack = unpack;
        op->one.arg    = arg;
        return np_rpost_post_one(link, op);
    }

    op = np_rpost_get_asking(link, NP_OP_UNPACK, comp, &status);
    if (op == NULL) {
        return status;
    }

    np_rop_post(link, op);
    np_op_order(&link->flight, &op->super, addr, len, 0);
    if (!np_rpost_begin_unpack(op, unpack, arg, len, addr)) {
        np_op_drop(&op->super);
        return UCS_ERR_NO_RESOURCE;
    }
    np_flight_begun(&link->flight);
    return UCS_INPROGRESS;
}

static ucs_status_t
np_rpost_atomic(np_flight_t *flight, const np_atomic_t *request, void *result,
                void *comp)
{
    np_vlink_t *link    = np_vlink_of(flight);
    const uint64_t addr = request->addr;
    ucs_status_t status;
    np_rop_t *op;

    status = np_rpost_enter(link);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    /* their answers are kept by the target until they have arrived */
    if (flight->count[NP_OP_ATOMIC] >= link->conn->credits) {
        return np_flight_refuse(flight);
    }

    op = np_rpost_get_asking(link, NP_OP_ATOMIC, comp, &status);
    if (op == NULL) {
        return status;
    }

    op->super.atomic.result = result;
    op->super.atomic.size   = request->size;
    np_rop_post(link, op);
    op->asked = (np_asked_t){.ctl = {
        .msg  = {
            .kind = NP_VMSG_ATOMIC,
            .id   = request->op,
            .size = request->size
        },
        .body = {
            .op      = op->super.name,
            .addr    = addr,
            .offset  = request->value,
            .compare = request->compare
        }
    }};
    if (!np_conn_ask(op->conn, &op->asked)) {
        np_op_drop(&op->super);
        return UCS_ERR_NO_RESOURCE;
    }
    np_op_order(flight, &op->super, addr, request->size, 1);
    np_flight_begun(flight);
    return UCS_INPROGRESS;
}

const np_way_ops_t np_rop_ways = {
    .op_size    = sizeof(np_rop_t),
    .max_ops    = NP_OP_NAMES,
    .may_begin  = np_rpost_may_begin,
    .hurry      = np_rop_hurry,
    .stopped    = np_rop_stopped,
    .ended      = np_rop_ended,
    .left       = np_rop_left,
    .move       = np_rpost_move,
    .put_copied = np_rpost_put_copied,
    .put_packed = np_rpost_put_packed,
    .get_unpack = np_rpost_get_unpack,
    .atomic     = np_rpost_atomic
};
