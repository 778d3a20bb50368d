/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations: by every call that a transport has. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim_inside.h"

#include <stdlib.h>
#include <string.h>

/* What an active message says */
typedef struct sim_text {
    uint16_t from;
    uint16_t life;
    uint32_t len;
    uint64_t number;
    uint64_t fence;    /* operations that must be seen before it */
} sim_text_t;

sim_shape_t sim_shape;


static size_t sim_len(size_t max)
{
    static const size_t sizes[] = {8, 64, 1024, 8192, 65536, SIM_PUT_MAX};

    return 1 + sim_below(ucs_min(max, sizes[sim_below(6)]));
}

/* A link's next operation begins: what it is about */
static void sim_begin(sim_op_t *op, size_t max)
{
    op->number = sim_links[op->from][op->to].number + 1;
    if (sim_shape.is_set) {
        op->len    = ucs_min(sim_shape.len, max);
        op->offset = sim_shape.offset;
        return;
    }

    op->len    = sim_len(max);
    op->offset = sim_below(SIM_AREA - op->len + 1);
    if (sim_below(3) > 0) { /* many meet each other */
        op->offset = (sim_below(2) == 0) ? 0 : sim_below(16) * 64;
        op->offset = ucs_min(op->offset, SIM_AREA - op->len);
    }
}

/* What fails although something relies on it ends its link */
static int sim_may_fence(unsigned from, unsigned to)
{
    return sim_links[from][to].num_bad == 0;
}

/* Of the status of what would have begun: has it not? */
static int sim_is_refused(ucs_status_t status, const char *what)
{
    if (status == UCS_ERR_NO_RESOURCE) {
        ++sim_counts.refused;
        return 1;
    }

    if ((status != UCS_OK) && (status != UCS_INPROGRESS)) {
        sim_wrong("%s has failed: %s", what, ucs_status_string(status));
    }
    return 0;
}

void sim_put_copied(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_PUT, from, to);
    uint8_t bytes[64];
    ucs_status_t status;

    sim_begin(op, sizeof(bytes));
    if (!sim_shape.is_set && (sim_below(2) == 0)) {
        /* one after the other at the same place */
        op->len    = 24;
        op->offset = sim_below(2) * 64;
    }
    sim_fill(bytes, op->len);
    status = sim->put(from, to, bytes, op->len, sim_addr(from, to, op->offset));
    if (!sim_is_refused(status, "a short put")) {
        sim_tell("%u -> %u: %lu: short put of %zu at %#lx", from, to,
                 op->number, op->len, op->offset);
        ++sim_counts.puts;
        sim_begun(op);
        sim_written(op, op->offset, bytes, op->len, 1);
    }
    sim_op_put(op);
}

static size_t sim_pack(void *dest, void *arg)
{
    sim_op_t *op = arg;

    sim_fill(dest, op->len);
    op->expected = malloc(op->len);
    memcpy(op->expected, dest, op->len);
    return op->len;
}

void sim_put_packed(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_PUT, from, to);
    ssize_t len;

    sim_begin(op, sim->max_copied);
    len = np_ep_put_packed(sim->link(from, to), sim->key(from, to), sim_pack,
                           op, sim_addr(from, to, op->offset));
    if (!sim_is_refused((len < 0) ? (ucs_status_t)len : UCS_OK,
                        "a packed put")) {
        sim_tell("%u -> %u: %lu: packed put of %zu at %#lx", from, to,
                 op->number, op->len, op->offset);
        ++sim_counts.puts;
        sim_begun(op);
        sim_written(op, op->offset, op->expected, op->len, 1);
    }
    sim_op_put(op);
}

/* Bytes of buffers, as the model of the pool has them */
static void sim_gather(const sim_op_t *op, uint8_t *bytes)
{
    const sim_process_t *process = &sim_processes[op->from];
    size_t i;

    for (i = 0; i < op->iovcnt; bytes += op->iov[i++].len) {
        memcpy(bytes, process->pool_model +
                      ((uint8_t*)op->iov[i].base - process->pool),
               op->iov[i].len);
    }
}

void sim_move(np_dir_t dir, unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get((dir == NP_DIR_PUT) ? SIM_PUT : SIM_GET, from,
                              to);
    ucs_status_t status;

    sim_begin(op, SIM_PUT_MAX);
    if (!sim_pool_get(op, op->len, sim_shape.is_set ? sim_shape.pieces :
                      (sim_below(4) == 0) ? 3 : 1)) {
        sim_op_put(op);
        return;
    }

    op->expected = malloc(op->len);
    if (dir == NP_DIR_PUT) {
        sim_gather(op, op->expected);
    } else {
        memcpy(op->expected, sim_links[from][to].model + op->offset, op->len);
    }
    sim_tell("%u -> %u: %lu: %s of %zu at %#lx in %zu pieces", from, to,
             op->number, (dir == NP_DIR_PUT) ? "put" : "get", op->len,
             op->offset, op->iovcnt);
    status = np_ep_move(dir, sim->link(from, to), sim->key(from, to), op->iov,
                        op->iovcnt, sim_addr(from, to, op->offset), op);
    if (sim_is_refused(status, "a transfer")) {
        sim_tell("refused");
        sim_op_put(op);
        return;
    }

    sim_begun(op);
    if (dir == NP_DIR_PUT) {
        ++sim_counts.puts;
        sim_written(op, op->offset, op->expected, op->len, 0);
    } else {
        ++sim_counts.gets;
    }
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

void sim_take_bytes(void *arg, const void *data, size_t len)
{
    sim_op_t *op = arg;

    if ((len != op->len) || (memcmp(data, op->expected, len) != 0)) {
        sim_wrong("%u -> %u: operation %lu has brought other bytes", op->from,
                  op->to, op->number);
    }
    op->result = 1;
}

void sim_get_unpacked(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_UNPACK, from, to);
    ucs_status_t status;

    sim_begin(op, sim->max_copied);
    op->expected = malloc(op->len);
    memcpy(op->expected, sim_links[from][to].model + op->offset, op->len);
    status = sim->unpack(from, to, op->len, sim_addr(from, to, op->offset), op);
    if (sim_is_refused(status, "a buffered get")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: %lu: buffered get of %zu at %#lx", from, to,
             op->number, op->len, op->offset);
    ++sim_counts.gets;
    sim_begun(op);
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

static uint64_t sim_apply(np_atomic_op_t what, uint64_t old, uint64_t value,
                          uint64_t compare)
{
    switch (what) {
    case NP_ATOMIC_ADD:
        return old + value;
    case NP_ATOMIC_AND:
        return old & value;
    case NP_ATOMIC_OR:
        return old | value;
    case NP_ATOMIC_XOR:
        return old ^ value;
    case NP_ATOMIC_SWAP:
        return value;
    default:
        return (old == compare) ? value : old;
    }
}

void sim_atomic(unsigned from, unsigned to)
{
    const np_atomic_op_t what = sim_below(NP_ATOMIC_LAST);
    const size_t size         = (sim_below(2) == 0) ? 4 : 8;
    const int has_result      = (what >= NP_ATOMIC_SWAP) || (sim_below(2) == 0);
    sim_op_t *op              = sim_op_get(SIM_ATOMIC, from, to);
    uint64_t value            = sim_random(), compare, old = 0, new;
    np_atomic_t request;
    ucs_status_t status;

    if (!sim_may_fence(from, to)) { /* it comes after all that was before */
        sim_op_put(op);
        return;
    }

    value      = (size == 4) ? (uint32_t)value : value;
    op->number = sim_links[from][to].number + 1;
    op->len    = size;
    op->offset = sim_shape.is_set ? sim_shape.offset :
                 sim_below((sim_below(2) == 0) ? 16 : (SIM_AREA / 8)) * 8;
    memcpy(&old, sim_links[from][to].model + op->offset, size);
    compare    = (sim_below(2) == 0) ? old : value;
    op->value  = old;
    op->result = has_result ? 0 : old;
    request    = (np_atomic_t){
        .addr    = sim_addr(from, to, op->offset),
        .value   = value,
        .compare = compare,
        .op      = what,
        .size    = size
    };
    status     = np_ep_atomic(sim->link(from, to), sim->key(from, to), &request,
                              has_result ? &op->result : NULL, op);
    if (sim_is_refused(status, "an atomic")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: %lu: atomic %d of %zu at %#lx", from, to, op->number,
             what, size, op->offset);
    ++sim_counts.atomics;
    new = sim_apply(what, old, value, compare);
    sim_begun(op);
    sim_written(op, op->offset, &new, size, 1);
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

void sim_send(unsigned from, unsigned to)
{
    sim_link_t *link = &sim_links[from][to];
    sim_text_t text  = {
        .from   = from,
        .life   = link->life,
        .number = link->sent + 1,
        .fence  = link->fence
    };
    uint8_t bytes[SIM_MESSAGE];
    ucs_status_t status;

    text.len = sizeof(text) + sim_below(SIM_MESSAGE - sizeof(text) + 1);
    memset(bytes, text.number, sizeof(bytes));
    memcpy(bytes, &text, sizeof(text));
    status = sim->message(from, to, bytes, text.len, sim_below(3));
    if (!sim_is_refused(status, "a message")) {
        ++sim_counts.messages;
        ++link->sent;
        sim_tell("%u -> %u: message %lu, after %lu", from, to, link->sent,
                 link->fence);
    }
}

void sim_message(unsigned to, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    sim_link_t *link;
    sim_text_t text;
    size_t i;

    if (len < sizeof(text)) {
        sim_wrong("a message of %zu bytes", len);
    }

    memcpy(&text, data, sizeof(text));
    if (text.from >= SIM_PROCESSES) {
        sim_wrong("a message from %u", text.from);
    }
    link = &sim_links[text.from][to];
    if (text.life != link->life) {
        return; /* on its way when its link ended */
    }
    if ((len != text.len) || (text.number != link->received + 1)) {
        sim_wrong("%u -> %u: message %lu of %zu bytes after %lu", text.from, to,
                  text.number, len, link->received);
    }
    for (i = sizeof(text); i < len; ++i) {
        if (bytes[i] != (uint8_t)text.number) {
            sim_wrong("%u -> %u: message %lu: wrong bytes", text.from, to,
                      text.number);
        }
    }
    sim_tell("%u -> %u: message %lu has come", text.from, to, text.number);
    link->received = text.number;
    sim_check_area(text.from, to, text.fence, "at a message after a fence of");
}

void sim_flush(unsigned from, unsigned to)
{
    sim_op_t *op = sim_op_get(SIM_FLUSH, from, to);
    ucs_status_t status;

    op->upto[to] = sim_links[from][to].number;
    status       = np_ep_flush(sim->link(from, to), op);
    if (sim_is_refused(status, "a flush")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u -> %u: flush of %lu: %s", from, to, op->upto[to],
             ucs_status_string(status));
    ++sim_counts.flushes;
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

void sim_flush_port(unsigned from)
{
    sim_op_t *op = sim_op_get(SIM_FLUSH_PORT, from, 0);
    ucs_status_t status;
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        op->upto[p] = sim_links[from][p].number;
    }
    status = np_eps_flush(sim->links(from), op);
    if (sim_is_refused(status, "a flush of a port")) {
        sim_op_put(op);
        return;
    }

    sim_tell("%u: flush of its port: %s", from, ucs_status_string(status));
    ++sim_counts.flushes;
    if (status == UCS_OK) {
        sim_complete(op, UCS_OK);
    }
}

void sim_fence(unsigned from, unsigned to)
{
    if (!sim_may_fence(from, to)) {
        return;
    }

    np_ep_fence(sim->link(from, to));
    sim_links[from][to].fence = sim_links[from][to].number;
    sim_tell("%u -> %u: fence of %lu", from, to, sim_links[from][to].fence);
}

void sim_fence_port(unsigned from)
{
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        if (!sim_may_fence(from, p)) {
            return;
        }
    }
    np_eps_fence(sim->links(from));
    for (p = 0; p < SIM_PROCESSES; ++p) {
        sim_links[from][p].fence = sim_links[from][p].number;
    }
    sim_tell("%u: fence of its port", from);
}

/* A get of memory that is not there: an error, and no harm done. (A put of such
 * may end its link: small ones are told of by nobody else.) */
void sim_get_bad(unsigned from, unsigned to)
{
    sim_op_t *op     = sim_op_get(SIM_GET, from, to);
    sim_link_t *link = &sim_links[from][to];
    ucs_status_t status;

    sim_begin(op, SIM_PUT_MAX);
    if (!sim_pool_get(op, op->len, 1)) {
        sim_op_put(op);
        return;
    }

    op->offset += SIM_AREA;
    op->is_bad  = 1;
    status      = np_ep_move(NP_DIR_GET, sim->link(from, to),
                             sim->key(from, to), op->iov, op->iovcnt,
                             sim_addr(from, to, op->offset), op);
    if (status == UCS_INPROGRESS) {
        sim_tell("%u -> %u: %lu: bad get of %zu", from, to, op->number,
                 op->len);
        ++sim_counts.bad;
        ++link->num_bad;
        sim_begun(op);
        return;
    }

    if (status == UCS_OK) {
        sim_wrong("%u -> %u: a transfer of no memory has gone well", from, to);
    }
    sim_give_back(op);
    sim_op_put(op);
}

/* The link's life ends, and its next one begins, with another area: what was
 * sent before may still arrive in this one */
void sim_reopen(unsigned from, unsigned to)
{
    const int is_cancelled = sim_below(2) == 0;
    sim_link_t *link       = &sim_links[from][to];
    sim_op_t *op;

    if (link->life == (SIM_LIVES - 1)) {
        return;
    }

    sim_tell("%u -> %u: the link ends, and begins anew", from, to);
    ++sim_counts.ends;
    link->is_ending = 1;
    ++link->life;
    sim_open_area(from, to);
    link->number   = 0;
    link->fence    = 0;
    link->sent     = 0;
    link->received = 0;
    link->num_bad  = 0;
    sim->reopen(from, to, is_cancelled);
    link->is_ending = 0;
    for (op = sim_ops; op < &sim_ops[SIM_OPS]; ++op) {
        if (op->is_used && (op->kind != SIM_FLUSH_PORT) &&
            (op->from == from) && (op->to == to)) {
            if (is_cancelled) {
                sim_wrong("%u -> %u: operation %lu was not cancelled", from, to,
                          op->number);
            }
            sim_give_back(op);
            sim_op_put(op);
        }
    }
}
