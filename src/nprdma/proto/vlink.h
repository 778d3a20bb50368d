/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over an RNIC's reliable queue pairs: what the face to UCX calls.
 *
 * Memory is not registered beforehand. A transfer below a size is carried inside
 * messages, a larger one is registered by both sides at once, in chunks, for as
 * long as it takes (design, section 6). All of a port is used by one thread at a
 * time.
 */

#ifndef NP_VLINK_H_
#define NP_VLINK_H_

#include "op.h"

#include "../dev/soft/host.h"
#include "../dev/verbs/nic.h"
#include "../mem/key.h"
#include "atomic.h"

typedef struct np_vport np_vport_t;
typedef struct np_vlink np_vlink_t;

/** Where a port's RNIC is, and whose host it is part of */
typedef struct np_vdev_addr {
    np_host_addr_t host;
    uint8_t        gid[16];
    uint16_t       lid;       /**< InfiniBand; 0 on RoCE */
    uint8_t        is_roce;
    uint8_t        mtu;       /**< enum ibv_mtu */
} __attribute__((packed)) np_vdev_addr_t;

/** A port of a process */
typedef struct np_vport_addr {
    uint64_t engine_id;
    uint64_t cookie;          /**< only who has the address may connect */
    uint32_t qpn;             /**< of its datagram queue pair */
} __attribute__((packed)) np_vport_addr_t;

/** For tests: what happens to the handshake's datagrams */
enum {
    NP_HELLO_LOSE  = 1u << 0,     /**< every other one is lost */
    NP_HELLO_TWICE = 1u << 1      /**< each is sent twice */
};

/** Seconds that a queue pair's timeout counts in */
#define NP_VPORT_TICK_TIME  4.096e-6

typedef struct np_vport_config {
    const char *device;       /**< as np_nic_list names it */
    int        gid_index;     /**< -1: choose */
    unsigned   recv_buffers;  /**< for all peers together */
    unsigned   send_buffers;
    unsigned   sq_size;       /**< work requests of a queue pair */
    unsigned   credits;       /**< messages under way to one peer */
    size_t     direct_min;    /**< bytes from which a transfer is registered; 0:
                                    as np_nic_direct_min says */
    size_t     chunk;         /**< bytes that are registered at once; 0: as
                                    np_nic_chunk says */
    unsigned   depth;         /**< chunks of a transfer at a time, each side */
    size_t     pin_max;       /**< bytes that all transfers have registered, but for
                                    a small chunk of those that find none left */
    size_t     put_once;      /**< bytes of the largest put that is executed exactly
                                    once, whatever pages do: by a message */
    double     connect_timeout; /**< seconds */
    double     reconnect_timeout; /**< seconds for another queue pair; 0: a
                                    link ends with its queue pair */
    unsigned   break_every;   /**< for tests: messages after which each queue
                                    pair fails; 0: never */
    unsigned   mischief;      /**< for tests: NP_HELLO_LOSE, ... */
    int        is_sequential; /**< to compare: one side registers after the other,
                                    each all at once */
    unsigned   timeout;       /**< of the queue pair: 4.096 us * 2^timeout */
    unsigned   retry_count;   /**< at most 6: Soft-RoCE takes 7 for "for ever" */
} np_vport_config_t;

/** What a port's user provides. Everything runs in np_vport_progress. */
typedef struct np_vuser {
    /** An active message; its bytes are gone afterwards */
    void (*am)(void *arg, uint8_t id, void *data, unsigned len);
    void *arg;
    /** An operation that returned UCS_INPROGRESS is complete */
    void (*complete)(void *comp, ucs_status_t status);
    /** The link does not work any more; once a link */
    void (*link_down)(np_vlink_t *link, ucs_status_t status);
} np_vuser_t;

typedef struct np_vport_attr {
    size_t max_message;  /**< largest active message, put_copied, get_unpack */
    double bandwidth;    /**< bytes/s */
    double latency;      /**< seconds */
    size_t pinned;       /**< bytes of buffers, whatever number of peers */
} np_vport_attr_t;

struct np_conn;

/** Why nothing new may start on a link */
enum {
    NP_VLINK_FENCE  = 1u << 0,    /**< not all before it is complete */
    NP_VLINK_REPLAY = 1u << 1     /**< what went over the queue pair before this
                                       one goes again first */
};

/** An endpoint's link. Owner: who called np_vlink_init; its port's thread. */
struct np_vlink {
    np_vport_t      *port;
    struct np_conn  *conn;        /**< NULL: not connected */
    np_vdev_addr_t  dev_addr;
    np_vport_addr_t addr;
    ucs_list_link_t list;         /**< of the port's links */
    ucs_list_link_t down;         /**< of port->down, or alone */
    ucs_status_t    status;       /**< why it is down, or UCS_OK */
    int             is_down;
    int             is_reported;
    int             has_pending;  /**< others wait, who were first: set by the
                                       user of the link */
    int             is_refused;   /**< an operation waits for one that is
                                       outstanding, not for room */
    int             is_overtaking; /**< one would, if it began before a put is
                                       acknowledged: np_vput_is_overtaken */
    unsigned        fence;        /**< NP_VLINK_FENCE, NP_VLINK_REPLAY */
    uint64_t        sequence;     /**< of the last operation */
    unsigned        outstanding;  /**< operations that are not complete */
    unsigned        atomics;      /**< of these */
    unsigned        ones;         /**< and these, for which the target's CPU has
                                       nothing to do */
    uint32_t        put_seq;      /**< number of the last put that is a message, or a
                                       later one that was acknowledged */
    uint64_t        put_first;    /**< with views: from here to put_end write such */
    uint64_t        put_end;      /**< puts, if not all are acknowledged */
    ucs_list_link_t ops;          /**< outstanding, in order of sequence */
    ucs_list_link_t flushes;
    np_overlap_t    overlap;      /**< remote ranges in flight */
    struct np_vremote *remotes;   /**< what is known of the target's memory */
    ucs_list_link_t blocks;       /**< of its entries (vremote.h) */
    unsigned        num_blocks;
    struct np_vputs *puts;        /**< small ones under way (vput.c), or NULL */
};

ucs_status_t np_vport_open(const np_vport_config_t *config,
                           const np_vuser_t *user, np_vport_t **port_p);
void np_vport_close(np_vport_t *port);
void np_vport_query(np_vport_t *port, np_vport_attr_t *attr);
void np_vport_get_dev_addr(np_vport_t *port, np_vdev_addr_t *addr);
void np_vport_get_addr(np_vport_t *port, np_vport_addr_t *addr);

/** By this device? Not who soft0 reaches, unless the user wants that. */
int np_vport_is_reachable(np_vport_t *port, const np_vdev_addr_t *addr);

/** Returns how much was done */
unsigned np_vport_progress(np_vport_t *port);

/** Progress has found nothing to do: bring in some of what waits (mem/prepare.h) */
void np_vport_prepare(np_vport_t *port);

/** Readable when there is something to progress, once armed */
int np_vport_event_fd(np_vport_t *port);

/** @return UCS_OK; UCS_ERR_BUSY: progress first */
ucs_status_t np_vport_arm(np_vport_t *port);

ucs_status_t np_vport_flush(np_vport_t *port, void *comp);
void np_vport_fence(np_vport_t *port);

void np_vlink_init(np_vlink_t *link, np_vport_t *port,
                   const np_vdev_addr_t *dev_addr, const np_vport_addr_t *addr);

/** What is outstanding is cancelled, without completions; messages that were
 *  sent still arrive */
void np_vlink_close(np_vlink_t *link);

/* All that follow: UCS_ERR_NO_RESOURCE: try again after progress; other errors
 * are those of the link, which is down, or of the call. */

/** Active message: @a len bytes behind an 8-byte header */
ucs_status_t np_vlink_am_short(np_vlink_t *link, uint8_t id, uint64_t header,
                               const void *payload, unsigned len);

/** Active message that @a pack writes; returns its length, or an error */
ssize_t np_vlink_am_bcopy(np_vlink_t *link, uint8_t id,
                          size_t (*pack)(void *dest, void *arg), void *arg);

/** Active message gathered from a header and pieces */
ucs_status_t np_vlink_am_iov(np_vlink_t *link, uint8_t id, const void *header,
                             unsigned header_len, const np_iov_t *iov,
                             size_t iovcnt);

/** Put of bytes that are copied; complete with the next flush */
ucs_status_t np_vlink_put_copied(np_vlink_t *link, np_key_t *key,
                                 const void *data, size_t len, uint64_t addr);

/** The same, packed; returns the length, or an error */
ssize_t np_vlink_put_bcopy(np_vlink_t *link, np_key_t *key,
                           size_t (*pack)(void *dest, void *arg), void *arg,
                           uint64_t addr);

/** Put or get of the program's own memory, which stays its own until the
 *  completion */
ucs_status_t np_vlink_move(np_dir_t dir, np_vlink_t *link, np_key_t *key,
                           const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                           void *comp);

/** Get of at most np_vport_attr_t::max_message bytes that @a unpack takes */
ucs_status_t np_vlink_get_unpack(np_vlink_t *link, np_key_t *key, size_t len,
                                 uint64_t addr, np_unpack_t unpack, void *arg,
                                 void *comp);

/** As np_atomic_post */
ucs_status_t np_vlink_atomic(np_vlink_t *link, np_key_t *key,
                             np_atomic_op_t op, size_t size, uint64_t value,
                             uint64_t compare, uint64_t addr, void *result,
                             void *comp);

ucs_status_t np_vlink_flush(np_vlink_t *link, void *comp);
void np_vlink_fence(np_vlink_t *link);

/** Complete all that is outstanding with @a status */
void np_vlink_cancel(np_vlink_t *link, ucs_status_t status);

/** Find out whether the peer is there: its death is reported by link_down */
ucs_status_t np_vlink_check(np_vlink_t *link);

/** Would an operation start? For what waits for room. */
int np_vlink_has_resources(np_vlink_t *link);

#endif
