/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports of an RNIC.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vport.h"

#include "conn.h"
#include "hello.h"
#include "replay.h"
#include "stream.h"

#include "../../svc/bringer.h"
#include "../../engine.h"
#include "../../mem/kmod.h"
#include "../../mem/prepare.h"
#include "views.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The floor, within 'ulimit -l' of 64 KiB: less does not work */
#define NP_VPORT_MIN_RECV  4
#define NP_VPORT_MIN_SEND  2

/* Requests of all queue pairs together */
#define NP_VPORT_SEND_CQE  4096

/* How long a port that closes waits for what it has sent */
#define NP_VPORT_LINGER    (2 * NP_CLOCK_SEC)

/* Told to UCP, seconds: leads its older protocols from eager to rendezvous */
#define NP_VPORT_LATENCY   0.7e-6


static size_t np_vport_slab_size(const np_vport_t *port)
{
    return ucs_align_up_pow2(((size_t)(port->recv_buffers +
                                       port->send_buffers) * NP_VSEG_SIZE) +
                             (NP_UD_BUFFERS * (NP_UD_SIZE +
                                               sizeof(np_hello_t))),
                             (size_t)sysconf(_SC_PAGESIZE));
}

/* As many buffers as the limit of locked memory lets us have */
static ucs_status_t np_vport_create_slab(np_vport_t *port)
{
    ucs_status_t status;

    port->recv_buffers = ucs_max(port->config.recv_buffers,
                                 (unsigned)NP_VPORT_MIN_RECV);
    port->send_buffers = ucs_max(port->config.send_buffers,
                                 (unsigned)NP_VPORT_MIN_SEND);
    for (;;) {
        port->slab_size = np_vport_slab_size(port);
        port->slab      = mmap(NULL, port->slab_size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (port->slab == MAP_FAILED) {
            np_error("%s: no memory for %zu bytes of buffers", port->nic->name,
                     port->slab_size);
            return UCS_ERR_NO_MEMORY;
        }

        /* a child would otherwise take pages that the RNIC writes to */
        madvise(port->slab, port->slab_size, MADV_DONTFORK);
        status = np_nic_reg(port->nic, port->slab, port->slab_size,
                            IBV_ACCESS_LOCAL_WRITE, &port->mr);
        if (status == UCS_OK) {
            return UCS_OK;
        }

        munmap(port->slab, port->slab_size);
        if ((status != UCS_ERR_EXCEEDS_LIMIT) ||
            ((port->recv_buffers == NP_VPORT_MIN_RECV) &&
             (port->send_buffers == NP_VPORT_MIN_SEND))) {
            np_error("%s: %zu bytes of buffers cannot be registered: raise "
                     "'ulimit -l' to 64 (KiB) or more", port->nic->name,
                     port->slab_size);
            return UCS_ERR_NO_MEMORY;
        }

        port->recv_buffers = ucs_max(port->recv_buffers / 2,
                                     (unsigned)NP_VPORT_MIN_RECV);
        port->send_buffers = ucs_max(port->send_buffers / 2,
                                     (unsigned)NP_VPORT_MIN_SEND);
    }
}

static void np_vport_post_spare(np_vport_t *port)
{
    struct ibv_recv_wr wr[NP_VPORT_RECV_BATCH], *bad;
    struct ibv_sge sge[NP_VPORT_RECV_BATCH];
    unsigned i;
    int ret;

    for (i = 0; i < port->num_spare; ++i) {
        sge[i] = (struct ibv_sge){
            .addr   = (uintptr_t)np_vport_recv_buffer(port, port->spare[i]),
            .length = NP_VSEG_SIZE,
            .lkey   = port->mr->lkey
        };
        wr[i]  = (struct ibv_recv_wr){
            .wr_id   = port->spare[i],
            .next    = &wr[i + 1],
            .sg_list = &sge[i],
            .num_sge = 1
        };
    }

    wr[i - 1].next  = NULL;
    port->num_spare = 0;
    ret             = ibv_post_srq_recv(port->srq, wr, &bad);
    if (ucs_unlikely(ret != 0)) {
        np_error("%s: %ld receive buffers are lost: %s", port->nic->name,
                 (long)(&wr[i] - bad), strerror(ret));
    }
}

void np_vport_post_recv(np_vport_t *port, uint64_t index)
{
    port->spare[port->num_spare++] = index;
    if (port->num_spare == port->recv_batch) {
        np_vport_post_spare(port);
    }
}

static int np_vport_create_queues(np_vport_t *port)
{
    struct ibv_context *ctx           = port->nic->ctx;
    struct ibv_srq_init_attr srq_attr = {
        .srq_context = (void*)&port->is_low,
        .attr        = {.max_wr = port->recv_buffers, .max_sge = 1}
    };
    struct ibv_qp_init_attr ud_attr   = {
        .qp_type = IBV_QPT_UD,
        .cap     = {
            .max_send_wr  = NP_UD_BUFFERS,
            .max_recv_wr  = NP_UD_BUFFERS,
            .max_send_sge = 1,
            .max_recv_sge = 1
        }
    };

    port->channel = ibv_create_comp_channel(ctx);
    if (port->channel == NULL) {
        return 0;
    }

    port->send_cqe = ucs_min(NP_VPORT_SEND_CQE, port->nic->device.max_cqe) -
                     NP_UD_BUFFERS;
    port->send_cq  = ibv_create_cq(ctx, port->send_cqe + NP_UD_BUFFERS, NULL,
                                   port->channel, 0);
    port->recv_cq  = ibv_create_cq(ctx, port->recv_buffers + NP_UD_BUFFERS,
                                   NULL, port->channel, 0);
    port->srq      = ibv_create_srq(port->nic->pd, &srq_attr);
    if ((port->send_cq == NULL) || (port->recv_cq == NULL) ||
        (port->srq == NULL)) {
        return 0;
    }

    ud_attr.send_cq = port->send_cq;
    ud_attr.recv_cq = port->recv_cq;
    port->ud        = ibv_create_qp(port->nic->pd, &ud_attr);
    return (port->ud != NULL) &&
           (np_nic_start_ud(port->nic, port->ud, NP_HELLO_QKEY) == UCS_OK);
}

static void np_vport_destroy_queues(np_vport_t *port)
{
    if (port->ud != NULL) {
        ibv_destroy_qp(port->ud);
    }
    if (port->srq != NULL) {
        ibv_destroy_srq(port->srq);
    }
    if (port->recv_cq != NULL) {
        ibv_destroy_cq(port->recv_cq);
    }
    if (port->send_cq != NULL) {
        ibv_destroy_cq(port->send_cq);
    }
    if (port->channel != NULL) {
        ibv_destroy_comp_channel(port->channel);
    }
}

/* One descriptor for what can happen: a completion, time to repeat, or that a
 * service thread has something for the owner */
static int np_vport_create_events(np_vport_t *port)
{
    struct epoll_event event = {.events = EPOLLIN};
    int flags;

    port->event_fd   = epoll_create1(EPOLL_CLOEXEC);
    port->service_fd = epoll_create1(EPOLL_CLOEXEC);
    port->brought_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    port->bell_fd    = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    port->timer_fd   = timerfd_create(CLOCK_MONOTONIC,
                                      TFD_CLOEXEC | TFD_NONBLOCK);
    port->keys_fd    = timerfd_create(CLOCK_MONOTONIC,
                                      TFD_CLOEXEC | TFD_NONBLOCK);
    flags            = fcntl(port->channel->fd, F_GETFL);
    return (port->event_fd >= 0) && (port->timer_fd >= 0) &&
           (port->bell_fd >= 0) && (port->service_fd >= 0) &&
           (port->keys_fd >= 0) && (port->brought_fd >= 0) &&
           (epoll_ctl(port->service_fd, EPOLL_CTL_ADD, port->keys_fd,
                      &event) == 0) &&
           (epoll_ctl(port->service_fd, EPOLL_CTL_ADD, port->brought_fd,
                      &event) == 0) &&
           (epoll_ctl(port->service_fd, EPOLL_CTL_ADD, port->channel->fd,
                      &event) == 0) &&
           (epoll_ctl(port->service_fd, EPOLL_CTL_ADD,
                      port->nic->ctx->async_fd, &event) == 0) &&
           (fcntl(port->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0) &&
           (epoll_ctl(port->event_fd, EPOLL_CTL_ADD, port->channel->fd,
                      &event) == 0) &&
           (epoll_ctl(port->event_fd, EPOLL_CTL_ADD, port->timer_fd,
                      &event) == 0) &&
           (epoll_ctl(port->event_fd, EPOLL_CTL_ADD, port->bell_fd,
                      &event) == 0) &&
           (epoll_ctl(port->event_fd, EPOLL_CTL_ADD,
                      port->nic->ctx->async_fd, &event) == 0) &&
           (np_vport_arm_service(port) == 0);
}

static void np_vport_fill(np_vport_t *port)
{
    unsigned i;

    for (i = 0; i < port->recv_buffers; ++i) {
        np_vport_post_recv(port, i);
    }
    for (i = 0; i < port->send_buffers; ++i) {
        np_vport_buffer_put(port, np_vport_recv_buffer(
                port, port->recv_buffers + i));
    }
    for (i = 0; i < NP_UD_BUFFERS; ++i) {
        np_vport_post_ud(port, i);
    }
}

static void np_vport_init_lists(np_vport_t *port)
{
    kh_init_inplace(np_conns, &port->conns);
    ucs_list_head_init(&port->connecting);
    ucs_list_head_init(&port->ready);
    ucs_list_head_init(&port->dying);
    ucs_list_head_init(&port->streams);
    ucs_list_head_init(&port->todo);
    ucs_list_head_init(&port->replies);
    ucs_list_head_init(&port->asking);
    ucs_list_head_init(&port->replaying);
    ucs_list_head_init(&port->late);
    ucs_list_head_init(&port->asked);
    ucs_list_head_init(&port->open_puts);
}

/* Settings of all devices that RNICs know nothing of: a user may have set one
 * for soft0, so that it is no reason to fail, and is told once a process */
static void np_vport_tell_ignored(const np_vport_t *port)
{
    const np_engine_config_t *config = &np_engine.config;
    static atomic_flag is_told       = ATOMIC_FLAG_INIT;

    if (((config->write_check != NP_WRITE_CHECK_READBACK) &&
         (config->fault_mode == NP_FAULT_MODE_REVERSE) &&
         (config->inline_max == NP_INLINE_DEFAULT)) ||
        atomic_flag_test_and_set(&is_told)) {
        return;
    }

    if (config->write_check == NP_WRITE_CHECK_READBACK) {
        np_error("UCX_NPRDMA_WRITE_CHECK is %s: over %s %s. Unset it, or set "
                 "it to auto or entries",
                 np_write_check_names[config->write_check], port->nic->name,
                 port->has_views ? "entries confirm writes all the same" :
                 "no write is one-sided, so that none is checked");
    }
    if (config->fault_mode != NP_FAULT_MODE_REVERSE) {
        np_error("UCX_NPRDMA_FAULT_MODE is %s: over %s absent pages are moved "
                 "two-sided all the same. Unset it, or set it to reverse",
                 np_fault_mode_names[config->fault_mode], port->nic->name);
    }
    if (config->inline_max != NP_INLINE_DEFAULT) {
        np_error("UCX_NPRDMA_INLINE is %zu: over %s it has no effect. Unset it, "
                 "and set UCX_NPRDMA_VERBS_DIRECT_MIN to say what travels "
                 "inside messages there", config->inline_max, port->nic->name);
    }
}

/* Does nprdma.ko keep the views of memory, and may it? */
static ucs_status_t np_vport_choose_mapper(np_vport_t *port)
{
    const np_engine_config_t *config = &np_engine.config;
    ucs_status_t status;

    if ((config->mapper == NP_MAPPER_USER) ||
        (config->mr_scope == NP_MR_SCOPE_EXACT)) {
        return UCS_OK; /* views are of arenas */
    }

    status = np_kmod_open();
    if (status == UCS_OK) {
        port->has_views = 1;
        return UCS_OK;
    }

    if (config->mapper == NP_MAPPER_KMOD) {
        np_error("UCX_NPRDMA_MAPPER=kmod: %s", np_kmod_why());
        return UCS_ERR_NO_DEVICE;
    }
    np_debug("%s: transfers are two-sided: %s", port->nic->name,
             np_kmod_why());
    return UCS_OK;
}

static const np_service_ops_t np_vport_service_ops = {
    .serve = np_vport_serve
};

/* One that has nothing of the device's yet; NULL: no memory */
static np_vport_t *
np_vport_create(const np_vport_config_t *config, const np_vport_ops_t *ops,
                const np_vuser_t *user)
{
    const np_user_t links = {user->complete, user->link_down};
    np_vport_t *port      = calloc(1, sizeof(*port));

    if (port == NULL) {
        return NULL;
    }

    port->config      = *config;
    port->ops         = ops;
    port->user        = *user;
    port->max_inline  = NP_CONN_INLINE;
    port->event_fd    = -1;
    port->timer_fd    = -1;
    port->bell_fd     = -1;
    port->service_fd  = -1;
    port->keys_fd     = -1;
    port->brought_fd  = -1;
    port->wr.sg_list  = &port->sge;
    port->wr.num_sge  = 1;
    port->cookie      = np_engine.cookie;
    port->service.ops = &np_vport_service_ops;
    np_flights_init(&port->flights, &np_verbs_ops, ops->ways, &links,
                    &port->turn);
    np_vport_init_lists(port);
    np_turn_init(&port->turn);
    return port;
}

/* Buffers, queues, and what to wait on */
static ucs_status_t np_vport_build(np_vport_t *port)
{
    ucs_status_t status;

    status = np_vport_create_slab(port);
    if (status != UCS_OK) {
        return status;
    }

    port->recv_batch = ucs_min(ucs_max(port->recv_buffers / 16, 1u),
                               (unsigned)NP_VPORT_RECV_BATCH);
    port->kept_size  = ucs_max(port->recv_buffers, NP_VPORT_KEPT);
    port->kept       = calloc(port->kept_size, sizeof(*port->kept));
    if ((port->kept == NULL) || !np_vport_create_queues(port)) {
        np_error("%s: no queues: %m. Check 'ulimit -l'", port->nic->name);
        goto err_queues;
    }

    if (!np_vport_create_events(port)) {
        np_error("no descriptors to wait on: %m. Check 'ulimit -n'");
        goto err_events;
    }
    return UCS_OK;

err_events:
    close(port->event_fd);
    close(port->timer_fd);
    close(port->bell_fd);
    close(port->service_fd);
    close(port->keys_fd);
    close(port->brought_fd);
err_queues:
    free(port->kept);
    np_vport_destroy_queues(port);
    np_nic_dereg(port->mr);
    munmap(port->slab, port->slab_size);
    return UCS_ERR_IO_ERROR;
}

/* Its device, and what of it this port uses */
static ucs_status_t np_vport_choose_device(np_vport_t *port)
{
    ucs_status_t status;

    status = np_nic_open(port->config.device, port->config.gid_index,
                         &port->nic);
    if (status != UCS_OK) {
        return status;
    }

    if (port->config.direct_min == 0) {
        port->config.direct_min = np_nic_direct_min(port->nic);
    }

    status = np_vport_choose_mapper(port);
    if (!port->has_views) {
        np_prepare_enable(); /* registering pages that are there is faster */
    }
    return status;
}

ucs_status_t np_vport_open(const np_vport_config_t *config,
                           const np_vport_ops_t *ops, const np_vuser_t *user,
                           np_vport_t **port_p)
{
    ucs_status_t status;
    np_vport_t *port;

    port = np_vport_create(config, ops, user);
    if (port == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = np_vport_choose_device(port);
    if (status == UCS_OK) {
        status = np_vport_build(port);
    }
    if (status != UCS_OK) {
        np_stats_put(port->flights.stats);
        np_turn_cleanup(&port->turn);
        kh_destroy_inplace(np_conns, &port->conns);
        free(port);
        return status;
    }

    np_vport_tell_ignored(port);
    np_vport_fill(port);
    np_vport_arm_low(port);
    port->service.fd = port->service_fd;
    np_yield_open(&port->yield, &port->found);
    np_bringer_open();
    np_service_add(&port->service);
    *port_p = port;
    return UCS_OK;
}

static void np_vport_destroy_list(ucs_list_link_t *list)
{
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, list, list) {
        np_conn_destroy(conn);
    }
}

/* Links to this port need not find out by waiting */
static void np_vport_say_goodbye(np_vport_t *port)
{
    ucs_list_link_t told;
    np_conn_t *conn;

    ucs_list_head_init(&told);
    while (!ucs_list_is_empty(&port->ready)) {
        conn = ucs_list_extract_head(&port->ready, np_conn_t, list);
        ucs_list_add_tail(&told, &conn->list);
        if (!conn->is_link) {
            np_hello_gone(conn);
            /* room for one more datagram; any connection may turn out to have
             * failed, and change its list */
            np_vport_poll_send(port);
        }
    }
    ucs_list_splice_tail(&port->ready, &told);
}

/* Links that are closed, and repeat what was not taken */
static int np_vport_repeats(np_vport_t *port)
{
    np_conn_t *conn;

    np_hello_progress(port);
    (void)np_replay_progress(port);
    ucs_list_for_each(conn, &port->connecting, list) {
        if (conn->is_closing) {
            return 1;
        }
    }
    return !ucs_list_is_empty(&port->replaying);
}

void np_vport_close(np_vport_t *port)
{
    const uint64_t deadline = np_clock() + NP_VPORT_LINGER;

    if (!np_flights_are_ours(&port->flights)) {
        return;
    }

    np_yield_close(&port->yield);
    np_service_remove(&port->service);
    np_bringer_leave(port); /* the owner's for good */
    port->is_closing = 1;
    np_vport_say_goodbye(port);

    /* What was sent shall arrive */
    while ((np_vport_repeats(port) || (np_vport_reap(port) > 0) ||
            (port->ud_head != port->ud_tail)) &&
           (np_clock() < deadline)) {
        np_vport_poll_recv(port);
        np_vport_poll_send(port);
    }

    np_vport_destroy_list(&port->connecting);
    np_vport_destroy_list(&port->ready);
    np_vport_destroy_list(&port->dying);
    np_vport_drop_all_kept(port);
    np_vport_drop_asked(port);
    port->ops->closed(port);
    np_streams_cleanup(port);
    np_stage_cleanup(&port->stage);
    np_views_wait(port->nic);
    close(port->event_fd);
    close(port->timer_fd);
    close(port->bell_fd);
    close(port->service_fd);
    close(port->keys_fd);
    close(port->brought_fd);
    np_vport_destroy_queues(port);
    np_nic_dereg(port->mr);
    munmap(port->slab, port->slab_size);
    kh_destroy_inplace(np_conns, &port->conns);
    np_turn_cleanup(&port->turn);
    np_stats_put(port->flights.stats);
    free(port->kept);
    free(port);
    np_bringer_close();
}

void np_vport_query(np_vport_t *port, np_vport_attr_t *attr)
{
    attr->max_message = NP_VSEG_DATA;
    attr->bandwidth   = port->nic->bandwidth;
    attr->latency     = NP_VPORT_LATENCY;
    attr->pinned      = port->slab_size;
}

void np_vport_get_dev_addr(np_vport_t *port, np_vdev_addr_t *addr)
{
    memset(addr, 0, sizeof(*addr));
    np_host_addr_get(&addr->host);
    memcpy(addr->gid, port->nic->gid.raw, sizeof(addr->gid));
    addr->lid     = port->nic->port.lid;
    addr->is_roce = port->nic->is_roce;
    addr->mtu     = port->nic->mtu;
}

int np_vport_is_reachable(np_vport_t *port, const np_vdev_addr_t *addr)
{
    np_host_addr_t own;

    if (addr->is_roce != port->nic->is_roce) {
        return 0;
    }

    np_host_addr_get(&own);
    if (addr->host.version != own.version) {
        return 0;
    }

    return (np_engine.config.intra_node == NP_INTRA_NODE_VERBS) ||
           !np_host_is_reachable(&addr->host);
}

void np_vport_get_addr(np_vport_t *port, np_vport_addr_t *addr)
{
    addr->engine_id = np_engine.id;
    addr->cookie    = port->cookie;
    addr->qpn       = port->ud->qp_num;
}
