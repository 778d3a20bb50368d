/* SPDX-License-Identifier: BSD-3-Clause */
/* soft0: what it moves it has moved when a call returns, so that the world goes
 * on inside calls, at the pause points of the protocol. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/peer.h"
#include "nprdma/mem/lent.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/pause.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/unload.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/proto/soft/rma.h"

#include <stdio.h>
#include <string.h>

static np_port_t *sim_ports[SIM_PROCESSES];
static np_link_t sim_slinks[SIM_PROCESSES][SIM_PROCESSES];
static np_key_t *sim_keys[SIM_PROCESSES][SIM_PROCESSES];
static unsigned sim_lent[SIM_PROCESSES][SIM_PROCESSES];
static int sim_is_paused;


static void sim_on_message(void *arg, uint8_t id, void *data, unsigned len)
{
    sim_message((np_port_t**)arg - sim_ports, data, len);
}

static void sim_on_down(np_flight_t *flight, ucs_status_t status)
{
    const unsigned n = ucs_container_of(flight, np_link_t, flight) -
                       &sim_slinks[0][0];

    if (!sim_links[n / SIM_PROCESSES][n % SIM_PROCESSES].is_ending) {
        sim_wrong("a link is down: %s", ucs_status_string(status));
    }
}

/* Pages go and come while the protocol is between two steps. Not while a unit
 * is in flight, which who takes pages waits for, nor while entries change. */
static void sim_on_pause(np_pause_point_t point)
{
    switch (point) {
    case NP_PAUSE_CHECKED_LOCAL:
    case NP_PAUSE_ENTRIES_BEFORE:
    case NP_PAUSE_UNIT:
    case NP_PAUSE_MOVED:
    case NP_PAUSE_ENTRIES_AFTER:
    case NP_PAUSE_JUDGED:
    case NP_PAUSE_FAULT_SEND:
    case NP_PAUSE_SERVE_MAPPED:
    case NP_PAUSE_SERVE_MOVED:
    case NP_PAUSE_ANSWERED:
        break;
    default:
        return;
    }

    if (!sim_is_paused && (sim_between != NULL)) {
        sim_is_paused = 1;
        sim_between();
        sim_is_paused = 0;
    }
}

static int sim_open_engine(void)
{
    const int is_lent         = sim_below(2); /* a model's memory never is */
    np_engine_config_t engine = {
        .single_copy = (sim_below(4) == 0) ? NP_SINGLE_COPY_OFF :
                       NP_SINGLE_COPY_AUTO,
        .write_check = sim_below(NP_WRITE_CHECK_LAST),
        .fault_mode  = sim_below(NP_FAULT_MODE_LAST),
        .lend        = is_lent,
        .share_min   = (sim_below(2) == 0) ? 32768 : 262144,
        .share_chunk = 16384,
        .inline_max  = (sim_below(2) == 0) ? 64 : NP_INLINE_DEFAULT,
        .tlb.mode    = is_lent ? NP_TLB_OFF : sim_below(NP_TLB_LAST),
        .service     = NP_SERVICE_OFF
    };

    if (engine.tlb.mode != NP_TLB_OFF) {
        engine.tlb.wire = sim_below(2) * 2e-6;
        engine.tlb.miss = sim_below(2) * 2e-6;
        engine.tlb.gap  = sim_below(2) * 1e-6;
    }
    return np_engine_init(&engine) == UCS_OK;
}

static int sim_open_port(unsigned p)
{
    static const np_user_t user   = {
        .complete  = sim_complete,
        .link_down = sim_on_down
    };
    const np_port_config_t config = {
        .data_slots   = 8 << sim_below(4),
        .payload_size = 32768 << sim_below(2),
        .unload       = sim_below(NP_UNLOAD_LAST),
        .unload_max   = 64 << sim_below(5)
    };

    return np_port_open(&config, &np_proto_ops, &user, &sim_ports[p]) == UCS_OK;
}

static int sim_open_link(unsigned from, unsigned to)
{
    np_port_addr_t addr;

    np_port_get_addr(sim_ports[to], &addr);
    np_link_init(&sim_slinks[from][to], sim_ports[from], &addr);
    sim_keys[from][to] = sim_key(from, to);
    /* often not all of it */
    sim_lent[from][to] = np_lent_begin(sim_addr(from, to, 0),
                                       SIM_AREA / (1 + sim_below(3)));
    return 1;
}

static int sim_open(int has_views)
{
    unsigned p;

    if (!sim_open_engine()) {
        return 0;
    }
    for (p = 0; p < SIM_PROCESSES; ++p) {
        if (!sim_open_port(p)) {
            return 0;
        }
    }
    np_pause_hook = sim_on_pause;
    return sim_for_links(sim_open_link);
}

static int sim_close_link(unsigned from, unsigned to)
{
    np_ep_close(&sim_slinks[from][to].flight);
    np_key_release(sim_keys[from][to]);
    np_lent_end(sim_lent[from][to]);
    return 1;
}

static void sim_close(void)
{
    unsigned p;

    np_pause_hook = NULL;
    (void)sim_for_links(sim_close_link);
    for (p = 0; p < SIM_PROCESSES; ++p) {
        np_proto_close(sim_ports[p]);
    }
}

static np_flights_t *sim_flights(unsigned process)
{
    return &sim_ports[process]->flights;
}

static np_flight_t *sim_flight(unsigned from, unsigned to)
{
    return &sim_slinks[from][to].flight;
}

static np_key_t *sim_device_key(unsigned from, unsigned to)
{
    return sim_keys[from][to];
}

static ucs_status_t sim_put(unsigned from, unsigned to, const void *data,
                            size_t len, uint64_t addr)
{
    sim_hint();
    return np_soft_put_short(&sim_slinks[from][to], sim_keys[from][to], data,
                            len, addr);
}

static ucs_status_t sim_unpack(unsigned from, unsigned to, size_t len,
                               uint64_t addr, sim_op_t *op)
{
    return np_soft_get_bcopy(&sim_slinks[from][to], sim_keys[from][to], len,
                            addr, sim_take_bytes, op, op);
}

static ucs_status_t sim_send(unsigned from, unsigned to, const void *data,
                             size_t len, unsigned how)
{
    np_link_t *link = &sim_slinks[from][to];
    ucs_status_t status;
    np_slot_t *slot;
    uint32_t start;
    void *area;

    if ((how == 0) && (len <= NP_SLOT_INLINE)) {
        status = np_soft_reserve_inline(link, &slot);
        if (status == UCS_OK) {
            memcpy(slot->data, data, len);
            np_fast_send_inline(link, slot, 1, len);
        }
        return status;
    }

    status = np_soft_reserve(link, len, &area, &start);
    if (status == UCS_OK) {
        memcpy(area, data, len);
        np_fast_send(link, 1, start, len);
    }
    return status;
}

static unsigned sim_progress(unsigned process)
{
    return np_port_poll(sim_ports[process], sim_on_message,
                        &sim_ports[process]) +
           np_port_work(sim_ports[process]);
}

static void sim_reopen(unsigned from, unsigned to, int is_cancelled)
{
    if (is_cancelled) {
        np_ep_cancel(sim_flight(from, to), UCS_ERR_CANCELED);
    }
    (void)sim_close_link(from, to);
    (void)sim_open_link(from, to);
}

/* Nothing moves by itself, nor fails and is made good */
static unsigned sim_turn(void)
{
    return 0;
}

static int sim_nothing(void)
{
    return 0;
}

static void sim_take(void *va, size_t len)
{
    np_mapper_unmap((uintptr_t)va, len);
}

static void sim_give(void *va, size_t len, int write)
{
    (void)np_mapper_fault_in((uintptr_t)va, len, write);
}

static int sim_is_link_clean(unsigned from, unsigned to)
{
    const np_link_t *link = &sim_slinks[from][to];

    if ((link->flight.outstanding == 0) && (link->answers_used == 0)) {
        return 1;
    }

    printf("# %u -> %u: %u operations are outstanding, answers %#lx\n", from,
           to, link->flight.outstanding, (unsigned long)link->answers_used);
    return 0;
}

static int sim_is_clean(void)
{
    return sim_for_links(sim_is_link_clean);
}

const sim_device_t sim_soft = {
    .open       = sim_open,
    .close      = sim_close,
    .links      = sim_flights,
    .link       = sim_flight,
    .key        = sim_device_key,
    .put        = sim_put,
    .unpack     = sim_unpack,
    .message    = sim_send,
    .progress   = sim_progress,
    .reopen     = sim_reopen,
    .turn       = sim_turn,
    .fail       = sim_nothing,
    .take       = sim_take,
    .give       = sim_give,
    .settle     = sim_nothing,
    .is_clean   = sim_is_clean,
    .max_copied = 8192
};
