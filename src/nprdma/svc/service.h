/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The service threads: they answer peers' control requests while the program
 * computes. Two a process, so that one page that sleeps holds back nobody else;
 * they start when the first key is handed out, and wait for a bell.
 *
 * They end with the last port, do not survive fork, run with all signals blocked,
 * touch the program's memory only through the kernel, and complete nothing of
 * their own process.
 */

#ifndef NP_SERVICE_H_
#define NP_SERVICE_H_

#include "../dev/soft/port.h"

/** Have peers of this port answered. The port's owner. */
void np_service_add(np_port_t *port);

/** They leave this port alone after this call. The port's owner. */
void np_service_remove(np_port_t *port);

/** What else than a port of soft0 is answered. Owner: who has added it. */
typedef struct np_service_client {
    ucs_list_link_t list;     /**< guarded by the threads' lock, as are: */
    unsigned        users;    /**< threads that are in serve() */
    int             is_again; /**< look again soon */
    int             fd;       /**< readable when somebody may want an answer */
    /** Answer what can be answered now. Returns whether to look again within
     *  milliseconds, because no event will tell. */
    int (*serve)(struct np_service_client *client);
} np_service_client_t;

void np_service_add_client(np_service_client_t *client);

/** It is in no thread's hands after this call */
void np_service_remove_client(np_service_client_t *client);

/** Somebody may ask from now on: start the threads, if they do not run and are
 *  wanted. Any thread; costs one load when they run. */
void np_service_start(void);

#endif
