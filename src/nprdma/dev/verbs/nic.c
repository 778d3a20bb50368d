/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * RNICs.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nic.h"

#include "views.h"

#include "../../thread.h"
#include "../../trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Largest request, also of a device that does not say what it takes (0) */
#define NP_NIC_WRITE_MAX  (1u << 30)

/* Guards np_nics. They stay open until the process ends. */
static pthread_mutex_t np_nics_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(np_nics);

static pthread_once_t np_nics_once = PTHREAD_ONCE_INIT;


/* A child opens devices anew: contexts, and events of theirs, are the
 * parent's */
static void np_nics_after_fork(void)
{
    pthread_mutex_init(&np_nics_lock, NULL);
    ucs_list_head_init(&np_nics);
    np_views_after_fork();
}

static void np_nics_init(void)
{
    np_at_fork(NULL, NULL, np_nics_after_fork);
}

static int np_nic_port_is_up(struct ibv_context *ctx, unsigned num)
{
    struct ibv_port_attr port;

    return (ibv_query_port(ctx, num, &port) == 0) &&
           (port.state == IBV_PORT_ACTIVE);
}

/* Call each for all ports that are up, until it returns something else than
 * 0 */
static void np_nic_for_each(int (*each)(struct ibv_context *ctx, unsigned num,
                                        void *arg), void *arg)
{
    struct ibv_device_attr attr;
    struct ibv_device **devices;
    struct ibv_context *ctx;
    int count, i, is_over;
    unsigned num;

    devices = ibv_get_device_list(&count);
    if (devices == NULL) {
        return; /* no RDMA in this kernel */
    }

    for (i = 0, is_over = 0; (i < count) && !is_over; ++i) {
        ctx = ibv_open_device(devices[i]);
        if (ctx == NULL) {
            np_diag("%s cannot be opened: %m",
                    ibv_get_device_name(devices[i]));
            continue;
        }

        if (ibv_query_device(ctx, &attr) == 0) {
            for (num = 1; (num <= attr.phys_port_cnt) && !is_over; ++num) {
                is_over = np_nic_port_is_up(ctx, num) ? each(ctx, num, arg) :
                          0;
            }
        }

        if (is_over != 2) { /* else it was taken */
            ibv_close_device(ctx);
        }
    }
    ibv_free_device_list(devices);
}

typedef struct np_nic_names {
    np_nic_name_t *names;
    unsigned      count;
} np_nic_names_t;

static void np_nic_spell(struct ibv_context *ctx, unsigned num, char *name)
{
    snprintf(name, NP_NIC_NAME_MAX, "%.24s:%u",
             ibv_get_device_name(ctx->device), num);
}

static int np_nic_list_one(struct ibv_context *ctx, unsigned num, void *arg)
{
    np_nic_names_t *list = arg;
    np_nic_name_t *names;

    names = realloc(list->names, (list->count + 1) * sizeof(*names));
    if (names == NULL) {
        return 1;
    }

    list->names = names;
    np_nic_spell(ctx, num, names[list->count++].name);
    return 0;
}

unsigned np_nic_list(np_nic_name_t **names)
{
    np_nic_names_t list = {NULL, 0};

    np_nic_for_each(np_nic_list_one, &list);
    *names = list.names;
    return list.count;
}

/* How good is a GID? IPv4-mapped ones carry the address that the network
 * knows */
static int np_nic_gid_rank(const struct ibv_gid_entry *entry)
{
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    int is_v4 = memcmp(entry->gid.raw, v4, sizeof(v4)) == 0;

    switch (entry->gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
        return is_v4 ? 4 : 3;
    case IBV_GID_TYPE_IB:
        return 2;
    default:
        return 1;
    }
}

static ucs_status_t np_nic_choose_gid(np_nic_t *nic, int wanted)
{
    struct ibv_gid_entry entry;
    int i, rank, best = 0;

    for (i = 0; i < nic->port.gid_tbl_len; ++i) {
        if (((wanted >= 0) && (i != wanted)) ||
            (ibv_query_gid_ex(nic->ctx, nic->port_num, i, &entry, 0) != 0)) {
            continue;
        }

        rank = np_nic_gid_rank(&entry);
        if (rank > best) {
            best           = rank;
            nic->gid       = entry.gid;
            nic->gid_index = i;
        }
    }

    if (best > 0) {
        return UCS_OK;
    }

    if (wanted >= 0) {
        np_error("%s has no GID of index %d (UCX_NPRDMA_IB_GID_INDEX): "
                 "'ibv_devinfo -v' lists those there are", nic->name, wanted);
    } else {
        np_error("%s has no GID: give its network interface an address",
                 nic->name);
    }
    return UCS_ERR_NO_DEVICE;
}

/* Bytes per second of a link: lanes and rate, as InfiniBand encodes them */
static double np_nic_bandwidth(const struct ibv_port_attr *port)
{
    static const double gbits[] = {
        [0] = 2.5, [1] = 5, [2] = 10, [3] = 10, [4] = 14, [5] = 25, [6] = 50,
        [7] = 100
    };
    unsigned speed = (port->active_speed == 0) ? 0 :
                     ucs_ilog2(port->active_speed);
    unsigned lanes = (port->active_width == 2) ? 4 :
                     (port->active_width == 4) ? 8 :
                     (port->active_width == 8) ? 12 :
                     (port->active_width == 16) ? 2 : 1;

    return lanes * gbits[ucs_min(speed, ucs_static_array_size(gbits) - 1)] *
           1e9 / 8;
}

typedef struct np_nic_search {
    const char *name;
    np_nic_t   *nic;
} np_nic_search_t;

static int np_nic_find_one(struct ibv_context *ctx, unsigned num, void *arg)
{
    np_nic_search_t *search = arg;
    char name[NP_NIC_NAME_MAX];

    np_nic_spell(ctx, num, name);
    if (strcmp(name, search->name) != 0) {
        return 0;
    }

    search->nic->ctx      = ctx;
    search->nic->port_num = num;
    return 2;
}

/* Would a page be registered that may not be read? Yes, if that cannot be found
 * out. */
static int np_nic_find_forced(np_nic_t *nic)
{
    const size_t size = sysconf(_SC_PAGESIZE);
    struct ibv_mr *mr;
    int is_forced;
    void *page;

    page = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return 1;
    }

    mr        = ibv_reg_mr(nic->pd, page, size, 0);
    is_forced = (mr != NULL) || (errno != EFAULT);
    if (mr != NULL) {
        ibv_dereg_mr(mr);
    }
    munmap(page, size);
    return is_forced;
}

static ucs_status_t np_nic_start(np_nic_t *nic, int gid_index)
{
    np_nic_search_t search = {nic->name, nic};
    ucs_status_t status;
    int flags;

    np_nic_for_each(np_nic_find_one, &search);
    if ((nic->ctx == NULL) ||
        (ibv_query_port(nic->ctx, nic->port_num, &nic->port) != 0) ||
        (ibv_query_device(nic->ctx, &nic->device) != 0)) {
        np_error("there is no RNIC port %s that is up: see 'rdma link'",
                 nic->name);
        return UCS_ERR_NO_DEVICE;
    }

    nic->is_roce   = nic->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    nic->mtu       = nic->port.active_mtu;
    nic->bandwidth = np_nic_bandwidth(&nic->port);
    nic->max_write = ucs_min(nic->port.max_msg_sz - 1,
                             NP_NIC_WRITE_MAX - 1) + 1;
    status         = np_nic_choose_gid(nic, gid_index);
    if (status != UCS_OK) {
        return status;
    }

    flags = fcntl(nic->ctx->async_fd, F_GETFL);
    if (fcntl(nic->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        np_error("%s: its events cannot be read without waiting: %m",
                 nic->name);
        return UCS_ERR_IO_ERROR;
    }

    nic->pd = ibv_alloc_pd(nic->ctx);
    if (nic->pd == NULL) {
        np_error("%s: no protection domain: %m", nic->name);
        return UCS_ERR_IO_ERROR;
    }

    nic->is_forced = np_nic_find_forced(nic);
    return UCS_OK;
}

ucs_status_t np_nic_open(const char *name, int gid_index, np_nic_t **nic_p)
{
    ucs_status_t status;
    np_nic_t *nic;

    pthread_once(&np_nics_once, np_nics_init);
    pthread_mutex_lock(&np_nics_lock);
    ucs_list_for_each(nic, &np_nics, list) {
        if ((strcmp(nic->name, name) == 0) &&
            ((gid_index < 0) || (gid_index == nic->gid_index))) {
            *nic_p = nic;
            status = UCS_OK;
            goto out;
        }
    }

    nic = calloc(1, sizeof(*nic));
    if (nic == NULL) {
        status = UCS_ERR_NO_MEMORY;
        goto out;
    }

    snprintf(nic->name, sizeof(nic->name), "%s", name);
    ucs_list_head_init(&nic->views);
    atomic_init(&nic->view_size, NP_ARENA_SIZE);
    status = np_nic_start(nic, gid_index);
    if (status != UCS_OK) {
        if (nic->ctx != NULL) {
            ibv_close_device(nic->ctx);
        }
        free(nic);
        goto out;
    }

    ucs_list_add_tail(&np_nics, &nic->list);
    *nic_p = nic;
out:
    pthread_mutex_unlock(&np_nics_lock);
    return status;
}

/* A device may have several ports; each is a nic of ours */
static void np_nic_tell(struct ibv_context *ctx, unsigned port_num, int down,
                        int removed)
{
    np_nic_t *nic;

    pthread_mutex_lock(&np_nics_lock);
    ucs_list_for_each(nic, &np_nics, list) {
        if ((nic->ctx != ctx) || (!removed && (nic->port_num != port_num))) {
            continue;
        }

        if (removed) {
            atomic_store_explicit(&nic->is_removed, 1, memory_order_relaxed);
            np_error("%s: the device has failed, or was removed", nic->name);
        } else if (atomic_exchange_explicit(&nic->is_down, down,
                                            memory_order_relaxed) != down) {
            np_diag("%s: the port is %s", nic->name,
                    down ? "down: transfers wait for it" : "up again");
        }
    }
    pthread_mutex_unlock(&np_nics_lock);
}

void np_nic_take_events(np_nic_t *nic)
{
    struct ibv_async_event event;

    while (ibv_get_async_event(nic->ctx, &event) == 0) {
        switch (event.event_type) {
        case IBV_EVENT_PORT_ERR:
            np_nic_tell(nic->ctx, event.element.port_num, 1, 0);
            break;
        case IBV_EVENT_PORT_ACTIVE:
            np_nic_tell(nic->ctx, event.element.port_num, 0, 0);
            break;
        case IBV_EVENT_DEVICE_FATAL:
            np_nic_tell(nic->ctx, 0, 0, 1);
            break;
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            /* it stays until the event is acknowledged */
            atomic_store_explicit((_Atomic int*)event.element.srq->srq_context,
                                  1, memory_order_relaxed);
            break;
        default:
            break; /* queue pairs tell by their completions */
        }
        ibv_ack_async_event(&event);
    }
}

ucs_status_t np_nic_reg(np_nic_t *nic, void *addr, size_t len, int access,
                        struct ibv_mr **mr_p)
{
    const uint64_t begin = np_trace_begin();

    *mr_p = ibv_reg_mr(nic->pd, addr, len, access);
    np_trace(NP_TRACE_REGISTER, begin, (uintptr_t)addr, len);
    if (ucs_likely(*mr_p != NULL)) {
        return UCS_OK;
    }

    switch (errno) {
    case EFAULT:
    case EINVAL:
        return UCS_ERR_INVALID_ADDR;
    case ENOMEM: /* also the limit of locked memory */
    case EAGAIN:
    case ENOSPC:
        return UCS_ERR_EXCEEDS_LIMIT;
    default:
        np_diag("%s: registration of %zu bytes at %p failed: %m", nic->name,
                len, addr);
        return UCS_ERR_INVALID_ADDR;
    }
}

void np_nic_dereg(struct ibv_mr *mr)
{
    const uint64_t begin = np_trace_begin();
    const uint64_t va    = (uintptr_t)mr->addr;
    const size_t len     = mr->length;

    if (ibv_dereg_mr(mr) != 0) {
        np_error("ibv_dereg_mr failed: %m");
    }
    np_trace(NP_TRACE_DEREGISTER, begin, va, len);
}

struct ibv_ah *np_nic_address(np_nic_t *nic, const uint8_t *gid, uint16_t lid)
{
    struct ibv_ah_attr attr = {
        .is_global = nic->is_roce,
        .dlid      = lid,
        .port_num  = nic->port_num,
        .grh       = {.sgid_index = nic->gid_index, .hop_limit = 64}
    };
    struct ibv_ah *ah;

    memcpy(attr.grh.dgid.raw, gid, sizeof(attr.grh.dgid.raw));
    ah = ibv_create_ah(nic->pd, &attr);
    if (ah == NULL) {
        np_diag("%s: no way to a peer's address: %m", nic->name);
    }
    return ah;
}

ucs_status_t np_nic_start_ud(const np_nic_t *nic, struct ibv_qp *qp,
                             uint32_t qkey)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = nic->port_num,
        .qkey     = qkey
    };

    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                      IBV_QP_PORT | IBV_QP_QKEY) != 0) {
        return UCS_ERR_IO_ERROR;
    }

    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) {
        return UCS_ERR_IO_ERROR;
    }

    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn   = 1;
    return (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0) ?
           UCS_OK : UCS_ERR_IO_ERROR;
}
