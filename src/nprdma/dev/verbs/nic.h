/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * RNICs: what libibverbs finds on this machine, opened once a process.
 */

#ifndef NP_NIC_H_
#define NP_NIC_H_

#include "../../np.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>

/** "rxe0:1": device and port, as UCX spells it */
#define NP_NIC_NAME_MAX  32

typedef struct np_nic_name {
    char name[NP_NIC_NAME_MAX];
} np_nic_name_t;

/** Where bytes are, of ours or a peer's, as an RNIC is told */
typedef struct np_place {
    uint64_t addr;
    uint32_t key;
} np_place_t;

/** One port of an RNIC. Owner: nic.c, until the process ends; constant once
 *  np_nic_open has returned it, but for what happens to it and its views. */
typedef struct np_nic {
    ucs_list_link_t      list;      /**< of all; guarded by its lock */
    char                 name[NP_NIC_NAME_MAX];
    struct ibv_context   *ctx;
    struct ibv_pd        *pd;
    uint8_t              port_num;
    struct ibv_port_attr port;
    struct ibv_device_attr device;
    union ibv_gid        gid;
    int                  gid_index;
    int                  is_roce;
    enum ibv_mtu         mtu;       /**< active */
    double               bandwidth; /**< bytes/s, of the link */
    uint32_t             max_write; /**< bytes that one request moves at most */
    int                  is_forced; /**< the kernel registers for reading what
                                         the process may not read (Linux 6.1) */
    size_t               direct_min; /**< measured: see np_nic_direct_min */
    double               reg_fixed;  /**< measured: seconds to register and give
                                          back anything; 0: not known */
    double               reg_byte;   /**< and for each byte */
    double               message;    /**< measured: seconds of a small one, both
                                          sides' processors together */
    _Atomic int          is_down;   /**< an event said so */
    _Atomic int          is_removed;
    ucs_list_link_t      views;     /**< of arenas: views.c */
    int                  no_views;  /**< its driver cannot; guarded there */
    _Atomic uint64_t     view_size; /**< bytes of the largest memory region that
                                         it takes on a view, as far as known: a
                                         power of two that only shrinks */
    int                  has_view_size; /**< it takes so many; guarded there */
} np_nic_t;

/**
 * Ports that are up, in the order of libibverbs.
 *
 * @param [out] names  To be released with free(); NULL if there is none.
 *
 * @return how many. Without RNICs this costs one look into sysfs.
 */
unsigned np_nic_list(np_nic_name_t **names);

/**
 * Open a port, or find it opened.
 *
 * @param [in] gid_index  Of the GID to use; -1: choose one: RoCE v2 over IPv4
 *                        first, then RoCE v2, then any.
 *
 * @return UCS_OK; UCS_ERR_NO_DEVICE: no such port, or it is down, or it has no
 *         such GID (says which); UCS_ERR_NO_MEMORY; UCS_ERR_IO_ERROR.
 */
ucs_status_t np_nic_open(const char *name, int gid_index, np_nic_t **nic_p);

/** Take what the device has reported about itself: its port down or up, its
 *  removal, a shared receive queue that gets empty, whose context is the flag
 *  to set. Any thread. Readable before: ctx->async_fd. */
void np_nic_take_events(np_nic_t *nic);

static inline int np_nic_is_down(const np_nic_t *nic)
{
    return atomic_load_explicit(&nic->is_down, memory_order_relaxed);
}

static inline int np_nic_is_removed(const np_nic_t *nic)
{
    return atomic_load_explicit(&nic->is_removed, memory_order_relaxed);
}

static inline uint64_t np_nic_view_size(const np_nic_t *nic)
{
    return atomic_load_explicit(&nic->view_size, memory_order_relaxed);
}

/**
 * Register memory for the length of a transfer, or for a queue's buffers.
 *
 * @return UCS_OK; UCS_ERR_EXCEEDS_LIMIT: 'ulimit -l', or the device's;
 *         UCS_ERR_INVALID_ADDR: not mapped, or not with these rights;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_nic_reg(np_nic_t *nic, void *addr, size_t len, int access,
                        struct ibv_mr **mr_p);

void np_nic_dereg(struct ibv_mr *mr);

/**
 * The way to a port in the network of this one, for datagrams.
 *
 * @param [in] lid  Of that port; not used with RoCE.
 *
 * @return to be destroyed; NULL: there is none, which is said.
 */
struct ibv_ah *np_nic_address(np_nic_t *nic, const uint8_t *gid, uint16_t lid);

/** Make a new queue pair, or one that was reset, one for datagrams.
 *
 * @return UCS_OK; UCS_ERR_IO_ERROR. */
ucs_status_t np_nic_start_ud(const np_nic_t *nic, struct ibv_qp *qp,
                             uint32_t qkey);

/**
 * The size from which registering a transfer for its length costs less than
 * copying it through messages: measured when the device is opened, some 100 us.
 *
 * @return a power of two from 4 KiB to 1 MiB.
 */
size_t np_nic_direct_min(np_nic_t *nic);

/**
 * How much of a transfer to register at once, by the same measurement: the
 * fixed cost of a registration against what cannot overlap.
 *
 * @return a power of two from 64 KiB to 4 MiB.
 */
size_t np_nic_chunk(np_nic_t *nic, size_t len);

#endif
