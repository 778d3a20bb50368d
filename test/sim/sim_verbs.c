/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's half of RNICs, over one that is not there: with the kernel
 * module's views of memory, and with leases. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim.h"

#include "../verbs/mock_kmod.h"
#include "../verbs/mock_verbs.h"

#include "nprdma/dev/verbs/conn.h"
#include "nprdma/dev/verbs/views.h"
#include "nprdma/start.h"
#include "nprdma/mem/arena.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/unload.h"
#include "nprdma/face/rnic.h"
#include "nprdma/svc/service.h"

#include <stdio.h>
#include <string.h>

static np_vport_t *sim_ports[SIM_PROCESSES];
static np_vlink_t sim_vlinks[SIM_PROCESSES][SIM_PROCESSES];
static np_key_t *sim_keys[SIM_PROCESSES][SIM_PROCESSES];
static int sim_has_failed;


static void sim_on_message(void *arg, uint8_t id, void *data, unsigned len)
{
    sim_message((np_vport_t**)arg - sim_ports, data, len);
}

static void sim_on_down(np_flight_t *flight, ucs_status_t status)
{
    sim_wrong("a link is down: %s", ucs_status_string(status));
}

static size_t sim_one_of(size_t a, size_t b, size_t c)
{
    const size_t sizes[] = {a, b, c};

    return sizes[sim_below(3)];
}

static void sim_configure(np_vport_config_t *config)
{
    *config = (np_vport_config_t){
        .device            = "mock0:1",
        .gid_index         = -1,
        .recv_buffers      = sim_one_of(8, 16, 64),
        .send_buffers      = sim_one_of(4, 8, 32),
        .sq_size           = sim_one_of(8, 16, 64),
        .credits           = sim_one_of(4, 16, 64),
        .direct_min        = sim_one_of(8192, 32768, 1 << 20),
        .chunk             = sim_one_of(16384, 32768, 65536),
        .depth             = 1 + sim_below(4),
        .pin_max           = sim_one_of(32768, 1 << 18, 1 << 22),
        .put_once          = sim_one_of(0, 8, 64),
        .connect_timeout   = 600,
        .timeout           = 16,
        .retry_count       = 6,
        .reconnect_timeout = 600,
        .is_sequential     = sim_below(8) == 0
    };
    if (sim_is_unloading) {
        config->unload     = 1 + sim_below(NP_UNLOAD_LAST - 1);
        config->unload_max = sim_one_of(16, 64, 1024);
    }
}

static int sim_open_engine(void)
{
    np_engine_config_t engine = {
        .share_min   = 256 * 1024,
        .share_chunk = 128 * 1024,
        .inline_max  = NP_INLINE_DEFAULT,
        .intra_node  = NP_INTRA_NODE_VERBS,
        .service     = NP_SERVICE_OFF
    };

    return np_engine_init(&engine) == UCS_OK;
}

static int sim_open_port(unsigned p)
{
    const np_vuser_t user = {
        .am        = sim_on_message,
        .arg       = &sim_ports[p],
        .complete  = sim_complete,
        .link_down = sim_on_down
    };
    np_vport_config_t config;

    sim_configure(&config);
    return np_vport_open(&config, &np_vlink_ops, &user, &sim_ports[p]) ==
           UCS_OK;
}

/* Views are there from the beginning: a thread makes them */
static void sim_make_views(const void *va, size_t len)
{
    const uint64_t last = np_arena_of((uintptr_t)va + len - 1);
    uint64_t arena      = np_arena_of((uintptr_t)va);

    for (; arena <= last; ++arena) {
        (void)np_views_get(sim_ports[0]->nic, arena);
    }
    np_views_wait(sim_ports[0]->nic);
}

static int sim_open_link(unsigned from, unsigned to)
{
    np_vport_addr_t addr;
    np_vdev_addr_t dev_addr;

    np_vport_get_dev_addr(sim_ports[to], &dev_addr);
    np_vport_get_addr(sim_ports[to], &addr);
    np_vlink_init(&sim_vlinks[from][to], sim_ports[from], &dev_addr, &addr);
    sim_keys[from][to] = sim_key(from, to);
    if (sim_ports[to]->has_views) {
        sim_make_views(sim_processes[to].area[from], SIM_AREA);
    }
    return 1;
}

static int sim_close_link(unsigned from, unsigned to)
{
    np_ep_close(&sim_vlinks[from][to].flight);
    np_key_release(sim_keys[from][to]);
    return 1;
}

static int sim_may_map(uint64_t va)
{
    return sim_has_memory(va);
}

static int sim_open(int has_views)
{
    unsigned p;

    mock_kmod_may_map   = sim_may_map;
    mock_kmod_is_loaded = has_views;
    mock_kmod_lags      = has_views;
    if (!sim_open_engine()) {
        return 0;
    }
    for (p = 0; p < SIM_PROCESSES; ++p) {
        if (!sim_open_port(p)) {
            return 0;
        }
        if (sim_ports[p]->has_views) {
            sim_make_views(sim_processes[p].pool, SIM_POOL);
        }
    }
    (void)sim_for_links(sim_open_link);
    mock_hold();
    if ((sim_world % 2) == 0) {
        mock_poll_some(sim_below);
    }
    return 1;
}

static void sim_close(void)
{
    unsigned p;

    (void)sim_for_links(sim_close_link);
    mock_poll_some(NULL);
    mock_release();
    for (p = 0; p < SIM_PROCESSES; ++p) {
        np_vport_close(sim_ports[p]);
    }
}

static np_flights_t *sim_flights(unsigned process)
{
    return &sim_ports[process]->flights;
}

static np_flight_t *sim_flight(unsigned from, unsigned to)
{
    return &sim_vlinks[from][to].flight;
}

static np_key_t *sim_device_key(unsigned from, unsigned to)
{
    return sim_keys[from][to];
}

static ucs_status_t sim_put(unsigned from, unsigned to, const void *data,
                            size_t len, uint64_t addr)
{
    if (sim_is_unloading) {
        sim_hint();
    }
    return np_ep_put_copied(&sim_vlinks[from][to].flight, sim_keys[from][to],
                            data, len, addr);
}

static ucs_status_t sim_unpack(unsigned from, unsigned to, size_t len,
                               uint64_t addr, sim_op_t *op)
{
    return np_ep_get_unpack(&sim_vlinks[from][to].flight, sim_keys[from][to],
                            len, addr, sim_take_bytes, op, op);
}

typedef struct sim_packed_text {
    const void *data;
    size_t     len;
} sim_packed_text_t;

static size_t sim_pack_text(void *dest, void *arg)
{
    const sim_packed_text_t *text = arg;

    memcpy(dest, text->data, text->len);
    return text->len;
}

static ucs_status_t sim_send(unsigned from, unsigned to, const void *data,
                             size_t len, unsigned how)
{
    np_vlink_t *link       = &sim_vlinks[from][to];
    sim_packed_text_t text = {data, len};
    const np_iov_t iov[]   = {{(void*)data, 8},
                              {UCS_PTR_BYTE_OFFSET(data, 8), len - 8}};
    uint64_t header;
    ssize_t sent;

    switch (how) {
    case 0:
        memcpy(&header, data, sizeof(header));
        return np_vlink_am_short(link, 1, header, UCS_PTR_BYTE_OFFSET(data, 8),
                                 len - sizeof(header));
    case 1:
        sent = np_vlink_am_bcopy(link, 1, sim_pack_text, &text);
        return (sent < 0) ? (ucs_status_t)sent : UCS_OK;
    default:
        return np_vlink_am_iov(link, 1, NULL, 0, iov, 2);
    }
}

static unsigned sim_progress(unsigned process)
{
    return np_vport_progress(sim_ports[process]);
}

static void sim_reopen(unsigned from, unsigned to, int is_cancelled)
{
    if (is_cancelled) {
        np_ep_cancel(sim_flight(from, to), UCS_ERR_CANCELED);
    }
    (void)sim_close_link(from, to);
    (void)sim_open_link(from, to);
}

static unsigned sim_turn(void)
{
    return mock_turn(sim_below);
}

/* Not more often in a row than the engine bears, see NP_CONN_REPLACE_MAX */
static int sim_fail(void)
{
    const int is_failed = mock_fail(sim_below);

    sim_has_failed |= is_failed;
    return is_failed;
}

static void sim_take(void *va, size_t len)
{
    mock_kmod_take(va, len);
}

static void sim_give(void *va, size_t len, int write)
{
    np_kmod_prefetch((uintptr_t)va, len, write);
}

static int sim_settle(void)
{
    return mock_kmod_settle(sim_below);
}

/* Send buffers of a connection that the device may still read, or that go again
 * if its queue pair fails */
static unsigned sim_held_by(const np_conn_t *conn)
{
    const np_sq_entry_t *entry;
    unsigned count = 0;
    uint32_t i;

    for (i = conn->sq_head; i != conn->sq_tail; ++i) {
        entry  = &conn->sq[i & conn->sq_mask];
        count += (entry->buffer != NULL) && !(entry->flags & NP_SQ_KEPT);
    }
    for (i = conn->tx_acked; i != conn->tx_seq; ++i) {
        count += (conn->sent != NULL) &&
                 (conn->sent[(i + 1) & conn->sent_mask].buffer != NULL);
    }
    return count;
}

static unsigned sim_held_by_all(const ucs_list_link_t *conns)
{
    unsigned count = 0;
    const np_conn_t *conn;

    ucs_list_for_each(conn, conns, list) {
        count += sim_held_by(conn);
    }
    return count;
}

static int sim_is_port_clean(np_vport_t *port)
{
    const unsigned held = sim_held_by_all(&port->ready) +
                          sim_held_by_all(&port->connecting) +
                          sim_held_by_all(&port->dying);

    if ((port->registered == 0) && (port->num_served == 0) &&
        (port->num_free_send + held == port->send_buffers) &&
        ucs_list_is_empty(&port->streams) && ucs_list_is_empty(&port->todo)) {
        return 1;
    }

    printf("# a port has %zu bytes registered, %u transfers served, %u send "
           "buffers of %u free, %u in use\n", port->registered,
           port->num_served, port->num_free_send, port->send_buffers, held);
    return 0;
}

static int sim_is_link_clean(unsigned from, unsigned to)
{
    const np_vlink_t *link = &sim_vlinks[from][to];

    const unsigned ones = np_flight_one_sided(&link->flight);

    if ((link->flight.outstanding == 0) && (ones == 0)) {
        return 1;
    }

    printf("# a link has %u operations outstanding, %u of them one-sided\n",
           link->flight.outstanding, ones);
    return 0;
}

static int sim_is_clean(void)
{
    int is_clean = sim_for_links(sim_is_link_clean);
    unsigned p;

    for (p = 0; p < SIM_PROCESSES; ++p) {
        is_clean &= sim_is_port_clean(sim_ports[p]);
    }

    if (mock_live_mrs() != SIM_PROCESSES) {
        printf("# %u memory regions are left\n",
               mock_live_mrs() - SIM_PROCESSES);
        is_clean = 0;
    }
    if ((mock_refused_requests() > 0) && !sim_has_failed &&
        (sim_counts.ends == 0)) {
        printf("# %u requests used memory that they may not\n",
               mock_refused_requests());
        is_clean = 0;
    }
    return is_clean;
}

const sim_device_t sim_verbs = {
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
    .fail       = sim_fail,
    .take       = sim_take,
    .give       = sim_give,
    .settle     = sim_settle,
    .is_clean   = sim_is_clean,
    .max_copied = NP_VSEG_DATA,
    .can_fail   = 1
};
