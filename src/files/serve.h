/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sessions of nprdma-filed, and the threads that serve them.
 *
 * A session is made by the door (door.c), which alone touches it until it is
 * given to a thread, and which watches its socket. The thread owns it from then
 * on. When the socket ends the door tells the thread and forgets it.
 */

#ifndef NF_SERVE_H_
#define NF_SERVE_H_

#include "common.h"
#include "opened.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct nf_thread nf_thread_t;

/** One client */
typedef struct nf_session {
    int              fd;          /**< its socket; closed by who owns it */
    uint8_t          *address;    /**< of its worker */
    nf_thread_t      *thread;     /**< that serves it */

    /* of the thread */
    ucp_ep_h         ep;          /**< NULL: none, or it has been closed */
    uint32_t         index;       /**< of its thread */
    uint64_t         secret;
    nf_opened_t      **opened;    /**< by handle; max_files */
    unsigned         num_opened;
    unsigned         uses;        /**< by its thread, and by what UCX has still
                                       to complete */
    unsigned         num_answers; /**< that UCX has still to send */
    int              is_broken;   /**< UCX has no way to the client */
    int              is_coming;   /**< the data of an append is */
    int              is_failing;  /**< it is not served any more */

    /* guarded by the thread's lock */
    struct nf_session *next_told;
    int              is_told;     /**< it is in the list */
    int              is_over;     /**< its socket has ended */
} nf_session_t;

/** A thread with a worker of its own. Owner: nf_serve_start's caller. */
struct nf_thread {
    const nf_export_t *export;
    nf_worker_t       worker;
    pthread_t         thread;
    int               wake;       /**< an eventfd: something has been told */
    _Atomic int       is_stopped; /**< relaxed: looked at again and again */
    _Atomic int       has_told;   /**< the same, and told is what counts */
    nf_session_t      **sessions; /**< by index; max_clients */
    unsigned          num_sessions;
    unsigned          num_kept;   /**< endpoints that UCX keeps */

    pthread_mutex_t   lock;       /**< guards what follows */
    nf_session_t      *told;      /**< new ones, and those that are over */
};

/** Threads for the clients of an export. Returns NULL on error; a line says
 *  why. */
nf_thread_t *nf_serve_start(const nf_export_t *export, unsigned count);

/** All sessions end, and the threads */
void nf_serve_stop(nf_thread_t *threads, unsigned count);

/** A client has shown who it is: @a session is the thread's now, which answers
 *  over its socket */
void nf_serve_begin(nf_thread_t *thread, nf_session_t *session);

/** Its socket has ended, and is not looked at any more */
void nf_serve_end(nf_session_t *session);

#endif
