/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The service threads: they answer peers' control requests while the program
 * computes. Two a process, so that one page that sleeps delays no other
 * request; they start when the first key is handed out, and wait for a bell.
 *
 * They end with the last port, do not survive fork, run with all signals
 * blocked, touch the program's memory only through the kernel, and complete
 * nothing of their own process.
 */

#ifndef NP_SERVICE_H_
#define NP_SERVICE_H_

#include "../stats.h"

typedef struct np_service_client np_service_client_t;

/** A request that was taken: the client's own record of it */
typedef struct np_service_job {
    unsigned char bytes[256] NP_LINE_ALIGNED;
} np_service_job_t;

/** What a port does in service threads, two at once perhaps */
typedef struct np_service_ops {
    /** The descriptor was readable, or it wanted another look: answer what can
     *  be answered now. Under no lock. Returns whether to look again within
     *  milliseconds, because no event will tell. */
    int (*serve)(np_service_client_t *client);

    /** Take the next request; returns 0: there is none; less: the port's owner
     *  is at them, and a thread looks again within milliseconds. Under the
     *  threads' lock. NULL: serve answers all. */
    int (*take)(np_service_client_t *client, np_service_job_t *job);
    /** Execute it, under no lock. Which of the threads we are: @a thread, from
     *  0. */
    void (*execute)(const np_service_job_t *job, unsigned thread,
                    np_stats_t *stats);
    /** Before the threads sleep: the next request makes the descriptor
     *  readable. Only of clients that have take; under the threads' lock. */
    void (*arm)(np_service_client_t *client);
} np_service_ops_t;

/** A port that is served. Owner: the caller that has added it. */
struct np_service_client {
    const np_service_ops_t *ops;
    int             fd;       /**< readable when a peer may want an answer */
    ucs_list_link_t list;     /**< guarded by the threads' lock, as are: */
    unsigned        users;    /**< threads that are in ops */
    int             is_again; /**< look again soon */
};

/** Have it served, from the first key that is handed out on. The port's
 *  owner. */
void np_service_add(np_service_client_t *client);

/** No thread uses it after this call. The port's owner. */
void np_service_remove(np_service_client_t *client);

/** There is one more request, which no event tells of: a thread that sleeps
 *  takes it. From a client's take. */
void np_service_call(void);

/** Look again at what a client has to answer, as if it had asked for that. Any
 *  thread that holds no lock which serve takes. */
void np_service_again(np_service_client_t *client);

/** Peers may ask from now on: start the threads, if they do not run and are
 *  wanted. Any thread; costs one load when they run. */
void np_service_start(void);

#endif
