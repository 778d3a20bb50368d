/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports: one user's end of soft0. A port has links (to send) and peers (which
 * send to it), and one file descriptor that becomes readable when something
 * wants attention.
 *
 * A port and everything that belongs to it is used by one thread at a time, its
 * owner; its user takes the lock, if there are several threads. Beside it the
 * service threads accept connections and take control requests: what they share
 * with the owner is under port->lock.
 */

#ifndef NP_SOFT_PORT_H_
#define NP_SOFT_PORT_H_

#include "stranger.h"
#include "wire.h"

#include "../flight.h"
#include "../../mem/lent.h"
#include "../../stats.h"
#include "../../svc/service.h"
#include "../../yield.h"

#include <pthread.h>
#include <sys/types.h>

/** Peers whose rings are looked at in every progress; the others are told of
 *  by the activity map */
#define NP_PORT_HOT         16

/** Descriptors that a port costs */
#define NP_PORT_FDS         6

/** Peers that a port can have */
#define NP_PORT_MAX_PEERS   65536

/** Messages, requests, or rows of small ones (carry.h), taken from one ring
 *  before the next one has its turn */
#define NP_PORT_BATCH       16

/** Time between two looks at the sockets (a system call), and the progress
 *  calls between two looks at the clock: a program may spin now and look seldom
 *  then */
#define NP_PORT_HOUSEKEEP_USEC  50
#define NP_PORT_HOUSEKEEP_MIN   16
#define NP_PORT_HOUSEKEEP_MAX   128

typedef struct np_link np_link_t;
typedef struct np_peer np_peer_t;
typedef struct np_job np_job_t;
typedef struct np_ask np_ask_t;
typedef struct np_carry np_carry_t;

/** What the port tells the layers above it.  */
typedef struct np_port_ops {
    const np_way_ops_t *ways;
    /**
     * Execute a put or get that the data ring carries: between our memory and
     * @a area, @a len bytes. The port's owner.
     *
     * @param [in] dir       NP_DIR_PUT: into our memory.
     * @param [inout] done   Bytes from its beginning that are done.
     *
     * @return UCS_ERR_NO_RESOURCE: it must be tried again in a later progress;
     *         others: the answer.
     */
    ucs_status_t (*serve)(np_peer_t *peer, np_dir_t dir, uint64_t addr,
                          uint8_t *area, uint32_t len, uint32_t *done);
    /** Execute a request that the data ring carries of memory that we have
     *  lent: the answer, UCS_ERR_NO_PROGRESS if we have not. @a is_past,
     *  @a kept: of np_lent_copy. The port's owner. */
    ucs_status_t (*lend)(np_dir_t dir, uint64_t addr, uint8_t *area,
                         uint32_t len, int is_past, np_lent_range_t **kept);
    /** Execute a request of the control ring that is answered, and answer it
     *  (np_inbox_answer). The owner, or a service thread: @a mover says who we
     *  are to the link, each has its own word. */
    void (*execute)(const np_job_t *job, np_mover_t mover, np_stats_t *stats);
    /** Is all complete that a request must come after (np_ask_t::after)? */
    int (*may_send)(np_link_t *link, const np_ask_t *ask);
    /**
     * The answer of a request has come (mail.h). In progress: what this
     * completes may begin and end others.
     *
     * @return 1: its target could not do it now, or not all of it, and it is
     *         sent again later, with what it says by then; 0: it has ended.
     */
    int (*answered)(np_link_t *link, np_ask_t *ask, ucs_status_t status);
    /**
     * The target has executed what the data ring has carried (carry.h). In
     * progress, as answered.
     *
     * @return 1: it has ended; 0: what has come cannot be taken yet, and a
     *         later progress tries again.
     */
    int (*carried)(np_link_t *link, np_carry_t *carry, ucs_status_t status);
    /** Work on what is outstanding on a link beside the rings; returns how
     *  many operations have completed */
    unsigned (*progress)(np_link_t *link);
    /** Is there anything of it that only the next progress would move? */
    int (*has_work)(np_link_t *link);
    /** The link is down, but not reported: end what was done before; returns
     *  how many operations have */
    unsigned (*passed)(np_link_t *link);
    /** The link is broken, or the other end has left. Called once, perhaps
     *  inside a call to send: nothing of the user's may run in it. */
    void (*link_down)(np_link_t *link);
} np_port_ops_t;

typedef struct np_port_config {
    uint32_t data_slots;     /**< power of two */
    uint32_t payload_size;   /**< bytes that a link uses, power of two */
    uint32_t payload_wide;   /**< bytes that a busy link uses, power of two; at
                                  least payload_size is taken */
    unsigned wide_links;     /**< links that may be wide at a time */
    unsigned unload;         /**< np_unload_policy_t, where a translation cache
                                  is modelled */
    size_t   unload_max;     /**< bytes that it is asked about; 0: never */
} np_port_config_t;

/** Bytes of a link's segment .. */
static inline size_t np_port_link_size(const np_port_config_t *config)
{
    return np_link_shm_size(config->data_slots, config->payload_wide);
}

/** .. of which so much is mapped at first */
static inline size_t np_port_link_part(const np_port_config_t *config)
{
    return np_link_shm_size(config->data_slots, config->payload_size);
}

/** What a port's address says */
typedef struct np_port_addr {
    uint64_t port_id;     /**< name of its socket */
    uint64_t engine_id;
    uint64_t cookie;      /**< proof that this address was handed over */
    uint64_t start_time;  /**< of its process, as np_host_proc_start_time */
} __attribute__((packed)) np_port_addr_t;

/** Something in the port's epoll set; first member of what it belongs to */
typedef struct np_event {
    void (*handle)(struct np_event *self);
} np_event_t;

struct np_port {
    /* what progress touches every time */
    unsigned            num_hot;
    unsigned            countdown;    /**< to the next look at the clock */
    unsigned            period;       /**< where the countdown begins */
    unsigned            taken;        /**< what progress has found: messages,
                                           requests, chunks, pieces of our own
                                           copies, operations that have ended */
    np_yield_t          yield;
    uint64_t            last_clock;   /**< nanoseconds of CLOCK_MONOTONIC */
    uint64_t            last_look;    /**< at the sockets; 0: look at once */
    _Atomic unsigned    num_peers;    /**< length of peers[]; changed under the
                                           lock, by service threads too; read
                                           without it by the owner */
    unsigned            sweep;        /**< next cold peer to look at anyway */
    int                 is_armed;
    int                 has_chores;   /**< it is armed, or helps may be not
                                           empty: np_port_chores */
    np_port_shm_t       *shm;
    np_peer_t           *hot[NP_PORT_HOT];

    np_peer_t           **peers;      /**< NP_PORT_MAX_PEERS, by number; holes
                                           are NULL. Changed under lock; the
                                           owner reads without */
    pthread_mutex_t     lock;         /**< guards peers[], their shm,
                                           accepting */
    int                 bell;         /**< epoll set of the peers' sockets, the
                                           strangers' and the listening one,
                                           edge triggered, for the service
                                           threads */
    np_service_client_t service;
    _Atomic uint32_t    owner_taken;  /**< requests; written by the owner's
                                           progress. relaxed: has it any? */
    uint32_t            owner_seen;   /**< that at the threads' last look. This
                                           and the next two: under the threads'
                                           lock */
    uint64_t            owner_seen_at; /**< when that was, np_clock() */
    int                 is_attended;  /**< had it grown since the one before? */
    unsigned            service_peer; /**< the peer that a service thread looked
                                           at last; under lock */
    _Atomic uint64_t    strangers_until; /**< service threads look at new
                                              connections, np_clock() */
    _Atomic uint64_t    strangers_look; /**< and not before */
    np_event_t          listener;
    np_event_t          speaker;      /**< a stranger */
    unsigned            num_strangers; /**< under lock; read without by the
                                            owner */
    np_stranger_t       strangers[NP_PORT_STRANGERS]; /**< under lock */
    uint64_t            accept_at;    /**< before this the owner accepts none,
                                           and its epoll set has no listener; 0:
                                           it does. Its own, as is: */
    uint64_t            hear_at;      /**< it hears no stranger before */
    ucs_list_link_t     deaf_links;   /**< see np_link_t.hear_at */
    ucs_list_link_t     helps;        /**< copies of others that we work on */
    np_event_t          waker;
    int                 waker_fd;     /**< eventfd: a service thread has taken
                                           in a peer, or a WAKE, while we
                                           slept */
    int                 epoll_fd;
    int                 listen_fd;
    int                 spare_fd;     /**< see np_sock_accept */
    int                 shm_fd;
    _Atomic unsigned    num_gone;     /**< peers to free when drained; changed
                                           under lock */
    _Atomic unsigned    num_unanswered; /**< peers that wait for their ACCEPT;
                                             changed under lock */
    unsigned            num_wide;     /**< links that are wide */
    uint64_t            id;
    np_port_config_t    config;
    const np_port_ops_t *ops;

    /* owned by proto */
    np_flights_t        flights;
    void                *bounce;      /**< see proto/soft/rma.c */
    int                 is_model;     /**< a commodity RNIC in all that it
                                           knows: no way around the checks */
};

/**
 * Open a port.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY or UCS_ERR_IO_ERROR (logged).
 */
ucs_status_t np_port_open(const np_port_config_t *config,
                          const np_port_ops_t *ops, const np_user_t *user,
                          np_port_t **port_p);

/** Close it. Its links must be closed. */
void np_port_close(np_port_t *port);


void np_port_get_addr(const np_port_t *port, np_port_addr_t *addr);

/** Look at the sockets: new peers, answers, deaths. Returns how many events. */
unsigned np_port_housekeep(np_port_t *port);

/** The same, if it is time to */
unsigned np_port_clock(np_port_t *port);

/** The directory of our arenas, to be sent; if there is none, another
 *  descriptor of memory, since peers take no others */
int np_port_directory_fd(np_port_t *port, uint32_t *has_tables);

/** Take new connections in, if this is not being done: the owner, or a service
 *  thread. Returns whether to come again soon: there are more, or some that
 *  have not said who they are, or could not be answered. */
int np_port_accept(np_port_t *port, int is_owner);

/** The bell was rung: take what peers have rung with. A service thread, before
 *  it arms the port. Returns whether a process wants to connect. */
int np_port_hear_bell(np_port_t *port);

/** A service thread has something for the owner: wake it if it sleeps */
void np_port_wake_owner(np_port_t *port);

/** The same where the owner's sleep (`armed`) is claimed already: it is woken
 *  in any case */
void np_port_call_owner(np_port_t *port);

/** Let fd take part in the port's events */
ucs_status_t np_port_watch(np_port_t *port, int fd, np_event_t *event);

/** It does already: from now on only with what comes, not with what is there */
void np_port_watch_news(np_port_t *port, int fd, np_event_t *event);

void np_port_unwatch(np_port_t *port, int fd);

/** Ring for service threads when a socket has something, from now on; NULL: of
 *  one that connects. Returns 0, or -1 and errno. */
int np_port_hang_bell(np_port_t *port, int fd, np_peer_t *peer);
void np_port_take_bell(np_port_t *port, int fd);

/**
 * Prepare to sleep on epoll_fd.
 *
 * @return UCS_OK: the next event makes it readable; UCS_ERR_BUSY: there is
 *         something to do already.
 */
ucs_status_t np_port_arm(np_port_t *port);

/** Before a progress looks at the rings: awake again, and other seldom things.
 *  Returns how many chunks were moved for others. */
unsigned np_port_chores(np_port_t *port);

#endif
