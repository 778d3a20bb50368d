/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links: connecting, waking the target, ending.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "link.h"

#include "../host.h"
#include "segments.h"
#include "sock.h"
#include "vm.h"
#include "wide.h"

#include "../../clock.h"
#include "../../engine.h"
#include "../../segment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Until the next try, if the target has too many that wait for it, or the user
 * too many descriptors under way */
#define NP_LINK_CONNECT_AGAIN_NS UINT64_C(1000000)

/* Times that a target may let us go before we have spoken */
#define NP_LINK_DROPS 1000

/* Until the next try, if no descriptor was left for what came; messages that
 * may wait meanwhile: a socket has room for some 250 */
#define NP_LINK_DEAF_NS UINT64_C(5000000)
#define NP_LINK_BEHIND  64


void np_link_init(np_link_t *link, np_port_t *port, const np_port_addr_t *addr)
{
    memset(link, 0, sizeof(*link));
    link->port = port;
    link->addr = *addr;
    link->fd   = -1;
    np_process_init(&link->process);
    np_flight_init(&link->flight, &port->flights, addr->engine_id);
    ucs_list_head_init(&link->carried);
    ucs_list_head_init(&link->asks);
    ucs_list_head_init(&link->copies);
    ucs_list_head_init(&link->dues);
}

/* The message at the head stays. Each that comes after it is still an event;
 * those that are there are none, so that the owner can sleep. There must not be
 * so many of them that the target finds no room for one more. */
static void np_link_deafen(np_link_t *link)
{
    if ((link->hear_at == 0) && (np_sock_queued(link->fd) < NP_LINK_BEHIND)) {
        link->hear_at = np_clock() + NP_LINK_DEAF_NS;
        ucs_list_add_tail(&link->port->deaf_links, &link->deaf);
        np_port_watch_news(link->port, link->fd, &link->event);
    }
}

static void np_link_undeafen(np_link_t *link)
{
    if (link->hear_at != 0) {
        link->hear_at = 0;
        ucs_list_del(&link->deaf);
    }
}

void np_links_hear(np_port_t *port)
{
    const uint64_t now = np_clock();
    np_link_t *link, *next;

    ucs_list_for_each_safe(link, next, &port->deaf_links, deaf) {
        if ((now >= link->hear_at) ||
            (np_sock_queued(link->fd) >= NP_LINK_BEHIND)) {
            np_link_undeafen(link);
            np_port_watch(port, link->fd, &link->event);
        }
    }
}

static void np_link_unwatch(np_link_t *link)
{
    np_link_undeafen(link);
    if (link->fd >= 0) {
        np_port_unwatch(link->port, link->fd);
    }
    if (link->process.fd >= 0) {
        np_port_unwatch(link->port, link->process.fd);
    }
}

static void np_link_free(np_link_t *link)
{
    np_drain_remove(&link->drain); /* it looks at these two */
    np_link_unwatch(link);
    np_process_close(&link->process);
    if (link->fd >= 0) {
        np_sock_close_link(link->fd);
        link->fd = -1;
    }

    free(link->tlb);
    link->tlb = NULL;
    if (link->target != NULL) {
        np_segment_unmap(link->target, np_page_align(sizeof(np_port_shm_t)));
        link->target = NULL;
    }

    if (link->remote != NULL) {
        np_remote_put(link->remote);
        link->remote = NULL;
        link->table  = NULL;
    }

    np_wide_free_link(link);
    if (link->shm != NULL) {
        np_segment_unmap(link->shm, np_port_link_part(&link->port->config));
        link->shm = NULL;
    }

    free(link->data.payload_end);
    free(link->ctl.payload_end);
    link->data.payload_end = NULL;
    link->ctl.payload_end  = NULL;
}

void np_link_close(np_link_t *link)
{
    np_segments_drop(link);
    if (np_flights_are_ours(&link->port->flights)) {
        np_link_free(link);
    }
}

void np_link_down(np_link_t *link, ucs_status_t status)
{
    if (!np_flight_end(&link->flight, status)) {
        return;
    }

    np_debug("link to process %d is down: %s", link->process.pid,
             ucs_status_string(status));
    if (np_flights_are_ours(&link->port->flights)) {
        np_link_unwatch(link); /* its hang-up would stay */
    }
    link->port->ops->link_down(link);
}

static void np_link_learn_target(np_link_t *link, const np_msg_t *msg,
                                 const int *fds)
{
    void *shm;

    if ((link->target == NULL) &&
        (np_segment_map(fds[0], np_page_align(sizeof(np_port_shm_t)), &shm) ==
         UCS_OK)) {
        link->target = shm;
        link->bit    = msg->bit % NP_PORT_ACTIVITY;
        link->tlb    = np_tlb_create(&link->target->tlb, link->target->tlb_mode,
                                     link->process.pid,
                                     link->port->flights.stats);
        np_drain_set_barrier(&link->drain,
                             msg->has_barrier && np_engine_has_barrier());
    }

    if ((link->remote == NULL) && msg->has_tables &&
        (np_remote_get(link->flight.engine_id, fds[1], &link->remote) !=
         UCS_OK)) {
        np_debug("process %d shows no tables: transfers are two-sided",
                 link->process.pid);
    }
}

static void np_link_handle_event(np_event_t *event)
{
    np_link_t *link = ucs_container_of(event, np_link_t, event);
    int fds[NP_MSG_MAX_FDS];
    ucs_status_t status = UCS_OK;
    unsigned num_fds, i;
    np_msg_t msg;

    if (link->hear_at != 0) {
        status = UCS_ERR_EXCEEDS_LIMIT; /* but it has woken us */
    }

    for (i = 0; (i < NP_SOCK_BATCH) && (status == UCS_OK); ++i) {
        status = np_sock_recv(link->fd, &msg, fds, &num_fds);
        if (status != UCS_OK) {
            break;
        }

        if (msg.type == NP_MSG_ACCEPT) {
            np_link_learn_target(link, &msg, fds);
        } else if (msg.type == NP_MSG_SEGMENT) {
            np_segments_take(link, msg.segment_id, fds[0], msg.size);
        }

        while (num_fds > 0) {
            close(fds[--num_fds]);
        }
    }

    /* a target that has hung up is gone, whatever messages wait */
    if ((status == UCS_ERR_EXCEEDS_LIMIT) && np_link_is_connected(link)) {
        np_link_deafen(link);
    } else if ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE)) {
        np_link_down(link, UCS_ERR_CONNECTION_RESET);
    }
}

/* No matter which process has its sockets now */
static void np_link_handle_death(np_event_t *event)
{
    np_link_down(ucs_container_of(event, np_link_t, death),
                 UCS_ERR_CONNECTION_RESET);
}

static ucs_status_t
np_link_init_ring(np_ring_tx_t *ring, np_slot_t *slots, uint32_t num_slots,
                  uint8_t *payload, uint32_t payload_size,
                  _Atomic uint32_t *head)
{
    memset(ring, 0, sizeof(*ring));
    ring->payload_end = calloc(num_slots, sizeof(*ring->payload_end));
    if (ring->payload_end == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    ring->slots        = slots;
    ring->mask         = num_slots - 1;
    ring->limit        = num_slots;
    ring->payload      = payload;
    ring->payload_mask = payload_size - 1;
    ring->payload_full = payload_size - 1;
    ring->payload_part = payload_size;
    ring->head         = head;
    return UCS_OK;
}

static ucs_status_t np_link_create_shm(np_link_t *link, int *fd_p)
{
    const np_port_config_t *config = &link->port->config;
    void *shm = NULL;
    ucs_status_t status;

    status = np_segment_create_part("nprdma-link", np_port_link_size(config),
                                    np_port_link_part(config), &shm, fd_p);
    if (status != UCS_OK) {
        return status;
    }

    link->shm          = shm;
    link->inline_areas = np_link_shm_inline(shm, config->data_slots);
    np_link_shm_init(link->shm, config->data_slots, config->payload_size,
                     config->payload_wide);
    status = np_link_init_ring(&link->data, np_link_shm_data(shm),
                               config->data_slots,
                               np_link_shm_payload(shm, config->data_slots),
                               config->payload_wide, &link->shm->data_head);
    link->data.payload_mask = config->payload_size - 1;
    link->data.payload_part = config->payload_size;
    np_link_init_room(link);
    if (status == UCS_OK) {
        status = np_link_init_ring(&link->ctl,
                                   np_link_shm_ctl(shm, config->data_slots),
                                   NP_CTL_SLOTS, NULL, 0,
                                   &link->shm->ctl_head);
    }

    if (status != UCS_OK) {
        np_error("no memory for the book-keeping of %u slots",
                 config->data_slots);
        close(*fd_p);
    }
    return status;
}

static ucs_status_t np_link_watch(np_link_t *link)
{
    ucs_status_t status;

    link->event.handle = np_link_handle_event;
    link->death.handle = np_link_handle_death;
    status = np_port_watch(link->port, link->fd, &link->event);
    if ((status != UCS_OK) || (link->process.fd < 0)) {
        return status;
    }
    return np_port_watch(link->port, link->process.fd, &link->death);
}

static ucs_status_t np_link_check_target(const np_sock_cred_t *cred)
{
    if ((cred->uid != np_engine.uid) &&
        (np_engine.config.peer_users == NP_PEER_USERS_SAME)) {
        np_error("refused to connect to process %d: it runs as user %d, this "
                 "one as user %d. Run both as one user, or set "
                 "UCX_NPRDMA_PEER_USERS=any", cred->pid, cred->uid,
                 np_engine.uid);
        return UCS_ERR_REJECTED;
    }

    return UCS_OK;
}

/* Make the segment and hand it to the target through the connected socket */
static ucs_status_t np_link_introduce(np_link_t *link)
{
    np_msg_t msg = {
        .type       = NP_MSG_CONNECT,
        .version    = NP_WIRE_VERSION,
        .engine_id  = np_engine.id,
        .cookie     = link->addr.cookie,
        .start_time = np_host_own_start_time(),
        .has_barrier = np_engine_has_barrier(),
        .size       = np_port_link_size(&link->port->config),
        .part       = np_port_link_part(&link->port->config)
    };
    ucs_status_t status;
    int fds[3];

    status = np_link_create_shm(link, &fds[0]);
    if (status != UCS_OK) {
        return status;
    }

    fds[1] = link->port->shm_fd;
    fds[2] = np_port_directory_fd(link->port, &msg.has_tables);
    status = np_sock_send(link->fd, &msg, fds, 3);
    close(fds[0]);
    if ((status == UCS_ERR_CONNECTION_RESET) &&
        (link->drops++ < NP_LINK_DROPS)) {
        return UCS_ERR_NO_RESOURCE; /* it has too many strangers: again */
    }
    return (status == UCS_OK) ? np_link_watch(link) : status;
}

ucs_status_t np_link_connect(np_link_t *link)
{
    np_sock_cred_t cred;
    ucs_status_t status;

    status = np_sock_connect(link->addr.port_id, &link->fd, &cred);
    if (status == UCS_OK) {
        status = np_link_check_target(&cred);
    }

    if (status == UCS_OK) {
        status = np_process_open(&link->process, link->fd,
                                 link->addr.start_time);
    }

    if (status == UCS_OK) {
        status = np_link_introduce(link);
    }

    if (status != UCS_OK) {
        np_link_free(link);
        if (status == UCS_ERR_NO_RESOURCE) {
            link->connect_at = np_clock() + NP_LINK_CONNECT_AGAIN_NS;
        } else {
            np_link_down(link, status);
        }
        return status;
    }

    np_drain_add(&link->drain, link->shm, link->fd, &link->process,
                 UCS_BIT(NP_MOVER_INITIATOR));
    link->flight.gate &= ~NP_GATE_UNCONNECTED;
    np_debug("link to process %d of user %d", cred.pid, cred.uid);
    if ((cred.pid == 0) &&
        (np_engine.config.single_copy != NP_SINGLE_COPY_OFF)) {
        np_vm_explain_refusal(cred.pid); /* not in our pid namespace */
    }
    return UCS_OK;
}

int np_link_may_connect(const np_link_t *link)
{
    return (link->connect_at == 0) || (np_clock() >= link->connect_at);
}

int np_link_is_connected(np_link_t *link)
{
    struct pollfd pfd = {.fd = link->fd, .events = POLLRDHUP};

    if ((poll(&pfd, 1, 0) > 0) && (pfd.revents & (POLLRDHUP | POLLHUP))) {
        return 0;
    }

    /* A forked child may keep the socket open after the process has ended */
    return np_process_runs(&link->process);
}

int np_link_is_alive(np_link_t *link)
{
    np_sock_cred_t cred;
    ucs_status_t status;
    int fd;

    if (np_flight_is_down(&link->flight)) {
        return 0;
    }

    if (!(link->flight.gate & NP_GATE_UNCONNECTED)) {
        return np_link_is_connected(link);
    }

    /* never used: does the target listen? */
    status = np_sock_connect(link->addr.port_id, &fd, &cred);
    if (status == UCS_OK) {
        np_sock_close_link(fd);
    }
    return status != UCS_ERR_CONNECTION_RESET;
}

int np_link_has_lost(np_link_t *link)
{
    uint32_t tail;

    if ((link->shm == NULL) || (link->data.tail == 0)) {
        return 0;
    }

    /* what nobody waits for is not lost */
    tail = (link->data.tail == link->left_end) ? link->left_begin :
                                                 link->data.tail;

    /* acquire: the head was written before */
    return !atomic_load_explicit(&link->shm->left, memory_order_acquire) ||
           !np_ring_tx_is_read(&link->data, tail - 1);
}

np_table_t *np_link_table_slow(np_link_t *link, uint32_t arena)
{
    if (link->remote == NULL) {
        return NULL;
    }

    link->table       = np_remote_table(link->remote, arena);
    link->table_arena = arena;
    return link->table;
}

ucs_status_t np_link_vm_refused(np_link_t *link)
{
    if (np_engine.config.single_copy == NP_SINGLE_COPY_VM) {
        np_error("UCX_NPRDMA_SINGLE_COPY=vm, but the kernel refuses access "
                 "to process %d. See 'nprdma_info --check', or set "
                 "UCX_NPRDMA_SINGLE_COPY=auto", link->process.pid);
        return UCS_ERR_UNSUPPORTED;
    }

    link->no_vm = 1;
    np_vm_explain_refusal(link->process.pid);
    return UCS_OK;
}

static void np_link_tell(np_link_t *link, np_msg_type_t type)
{
    const np_msg_t msg = {.type = type, .version = NP_WIRE_VERSION};

    /* a full socket wakes as well; a broken one has its own event */
    (void)np_sock_send(link->fd, &msg, NULL, 0);
}

void np_link_wake(np_link_t *link)
{
    np_link_tell(link, NP_MSG_WAKE);
}

void np_link_ring(np_link_t *link)
{
    np_link_tell(link, NP_MSG_RING);
}

void np_link_notify_slow(np_link_t *link)
{
    uint64_t bit = UCS_BIT(link->bit % 64);

    if (link->target == NULL) {
        if (!atomic_load_explicit(&link->shm->accepted,
                                  memory_order_acquire)) {
            /* It has not seen our connection yet: that will wake it, and then
             * it looks into the ring by itself. */
            return;
        }

        np_link_handle_event(&link->event);
        if (link->target == NULL) {
            if (!np_flight_is_down(&link->flight)) {
                np_link_wake(link);
            }
            return;
        }
    }

    /* Between our slot and its flag is a fence where there is no barrier by the
     * kernel (np_barrier_peers): x86's locked instruction is one by itself. An
     * atomic of aarch64 is none for a relaxed load after it, so the load is
     * seq_cst, too; that of x86 costs nothing. */
    atomic_fetch_or_explicit(&link->target->activity[link->bit / 64], bit,
                             memory_order_seq_cst);
    if (atomic_load_explicit(&link->target->armed, memory_order_seq_cst) &&
        atomic_exchange_explicit(&link->target->armed, 0,
                                 memory_order_relaxed)) {
        np_link_wake(link);
    }
}
