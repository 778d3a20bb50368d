/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bringers: threads that bring pages in for callers that must not sleep in
 * them, since others would wait as well. At most NP_BRINGERS at a time, one
 * page that sleeps each; they start when they are first needed, and end with
 * their last user, but for those that sleep in a page just then: these end when
 * it comes.
 *
 *     the waiter            a bringer
 *     np_bringer_submit     brings the pages in
 *                           brought(): tries again what waits for them
 *     np_bringer_cancel     again at once, if they have gone meanwhile
 */

#ifndef NP_BRINGER_H_
#define NP_BRINGER_H_

#include "../np.h"

#include <stdatomic.h>

/** Threads, and so pages that may sleep without holding up others that do */
#define NP_BRINGERS 4

typedef enum np_errand_state {
    NP_ERRAND_QUEUED,      /**< for a thread */
    NP_ERRAND_SLEEPING,    /**< a thread brings its pages in */
    NP_ERRAND_RETURNING    /**< in brought() */
} np_errand_state_t;

/** Pages to bring in. Owners: the waiter, until np_bringer_cancel or brought()
 *  has said that it is over, and the threads: one reference each. */
typedef struct np_errand {
    ucs_list_link_t  list;      /**< guarded by the bringers' lock, as is: */
    np_errand_state_t state;
    _Atomic unsigned refs;
    _Atomic int      is_left;   /**< the waiter has gone, or its user ends */
    /* written by the submitter, or in brought() */
    uint64_t         va;
    uint64_t         len;
    int              write;
    ucs_status_t     status;    /**< how the last attempt has ended; by a
                                     thread */
    unsigned         rounds;    /**< attempts; by a thread */
    void             *user;     /**< see np_bringer_leave */
    /** They are there, or status says why not. Called without a lock. Returns
     *  whether it is over; else they are brought in again. */
    int              (*brought)(struct np_errand *bring);
    /* guarded by what brought() takes */
    void             *waiter;   /**< NULL: it has gone */
    void             (*retry)(void *waiter);
    int              is_again;  /**< it waits once more */
} np_errand_t;

/** One user more, and one less. What it has submitted must have been left. */
void np_bringer_open(void);
void np_bringer_close(void);

/** A new one, filled with 0 and with two references; NULL: no memory */
np_errand_t *np_errand_create(void);

/** One reference less */
void np_errand_put(np_errand_t *bring);

/** Returns 0: there is no thread, and none can be started; one reference is
 *  given back */
int np_bringer_submit(np_errand_t *bring);

/** The waiter waits no more: its reference is given back. brought() may still
 *  be called. Any thread that may take the bringers' lock, which is a leaf. */
void np_bringer_cancel(np_errand_t *bring);

/** When it returns no brought() of this user's is called any more */
void np_bringer_leave(const void *user);

#endif
