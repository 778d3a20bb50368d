/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What service threads do for a port of soft0: they take requests out of its
 * peers' control rings, and connections that its owner leaves waiting.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "inbox.h"

#include "peer.h"

#include "../../clock.h"

#include <time.h>

/* How long a new connection is left to the owner's progress */
#define NP_INBOX_ACCEPT_USEC 200

/* For how long new connections are looked at, ns, and the time between two
 * looks at least. Later, the owner hears them. */
#define NP_INBOX_STRANGERS   UINT64_C(1000000000)
#define NP_INBOX_LOOK        UINT64_C(1000000)

/* Time between two looks at whether the owner takes requests itself, ns: at
 * least, and at most for the second to tell */
#define NP_INBOX_ATTEND      UINT64_C(100000)
#define NP_INBOX_ATTEND_MAX  UINT64_C(100000000)

_Static_assert(sizeof(np_job_t) <= sizeof(np_service_job_t),
               "a job fits what the threads have for it");
_Static_assert(_Alignof(np_job_t) <= _Alignof(np_service_job_t),
               "and is where it may be");


/* Has this peer of the port a request? Under the port's lock. */
static np_peer_t *np_inbox_peer(const np_port_t *port, unsigned number)
{
    np_peer_t *peer = port->peers[number];

    return ((peer != NULL) && (peer->shm != NULL) && !peer->is_malformed &&
            np_ring_rx_has_any(&peer->ctl)) ? peer : NULL;
}

/* A request of one of the port's peers, each in turn and looked at once.
 * Returns 0 if there is none that may be taken. Under the port's lock. */
static int np_inbox_turn(np_port_t *port, np_job_t *job)
{
    np_peer_t *peer;
    unsigned i;

    for (i = 0; i < port->num_peers; ++i) {
        if (++port->service_peer >= port->num_peers) {
            port->service_peer = 0;
        }

        peer = np_inbox_peer(port, port->service_peer);
        if ((peer != NULL) && np_inbox_take(peer, job)) {
            return 1;
        }
    }
    return 0;
}

/* Has any peer one more? Its turn does not change. Under the port's lock. */
static int np_inbox_has_more(const np_port_t *port)
{
    unsigned i;

    for (i = 0; i < port->num_peers; ++i) {
        if (np_inbox_peer(port, i) != NULL) {
            return 1;
        }
    }
    return 0;
}

/* np_service_ops_t::arm. seq_cst: before the last look at the rings, as a peer
 * that rings looks at it after it has written there. */
static void np_inbox_arm(np_service_client_t *client)
{
    np_port_t *port = ucs_container_of(client, np_port_t, service);

    atomic_store_explicit(&port->shm->service_armed, 1, memory_order_seq_cst);
}

/* Does the owner take requests itself? Seen by what it has taken between two
 * looks: one that waits for a page has soon taken none, and what it took long
 * ago says nothing. */
static int np_inbox_is_attended(np_port_t *port)
{
    const uint64_t now = np_clock();
    uint32_t taken;

    if (now >= (port->owner_seen_at + NP_INBOX_ATTEND)) {
        taken = atomic_load_explicit(&port->owner_taken, memory_order_relaxed);
        port->is_attended   = (taken != port->owner_seen) &&
                              (now < (port->owner_seen_at +
                                      NP_INBOX_ATTEND_MAX));
        port->owner_seen    = taken;
        port->owner_seen_at = now;
        atomic_store_explicit(&port->shm->is_attended, port->is_attended,
                              memory_order_relaxed);
    }
    return port->is_attended;
}

/* Is the owner at the requests, and has no peer rung since the threads armed?
 * Then it does the next ones, and a thread would only be in its way: on its
 * processor perhaps. relaxed: the threads look again soon. */
static int np_inbox_is_left(np_port_t *port)
{
    return (np_engine.config.service != NP_SERVICE_POLL) &&
           np_inbox_is_attended(port) &&
           atomic_load_explicit(&port->shm->service_armed,
                                memory_order_relaxed);
}

/* np_service_ops_t::take */
static int np_inbox_next(np_service_client_t *client, np_service_job_t *place)
{
    np_port_t *port = ucs_container_of(client, np_port_t, service);
    np_job_t *job   = (np_job_t*)place->bytes;
    int is_taken;

    pthread_mutex_lock(&port->lock);
    if (np_inbox_is_left(port)) {
        is_taken = -np_inbox_has_more(port);
        pthread_mutex_unlock(&port->lock);
        return is_taken;
    }

    is_taken = np_inbox_turn(port, job);
    if (!is_taken) {
        /* the owner, or an atomic before it, may have been in the way */
        is_taken = -np_inbox_has_more(port);
    } else {
        /* relaxed: under the lock, as is the thread that waits for it to
         * fall */
        atomic_fetch_add_explicit(&job->peer->jobs, 1, memory_order_relaxed);
    }
    if ((is_taken > 0) && np_inbox_may_sleep(job)) {
        /* If its page sleeps, the other thread takes the next request, which
         * rings from now on, or is here already. No lock is taken between the
         * two looks, as it is after the threads have armed: so a fence. */
        np_inbox_arm(client);
        atomic_thread_fence(memory_order_seq_cst);
        if (np_inbox_has_more(port)) {
            np_service_call();
        }
    }
    pthread_mutex_unlock(&port->lock);
    return is_taken;
}

/* np_service_ops_t::execute */
static void np_inbox_execute(const np_service_job_t *place, unsigned thread,
                             np_stats_t *stats)
{
    const np_job_t *job = (const np_job_t*)place->bytes;

    if (np_inbox_is_answered(job)) {
        NP_STATS_INC(stats, served_thread);
        job->peer->port->ops->execute(job, (thread == 0) ? NP_MOVER_SERVICE :
                                      NP_MOVER_SLEEPER, stats);
    } else if (np_word_kind(job->word) != NP_SLOT_SHARE) {
        /* help with a copy is for the owner alone, which also finds nonsense:
         * its sender gets no answer from us */
        (void)np_inbox_note(job);
    }

    /* release: the peer is not touched any more */
    atomic_fetch_sub_explicit(&job->peer->jobs, 1, memory_order_release);
}

/* np_service_ops_t::serve: requests are taken next, by np_inbox_next. relaxed:
 * one thread may look where the other one has just done so. */
static int np_inbox_look(np_service_client_t *client)
{
    const struct timespec patience = {
        .tv_nsec = NP_INBOX_ACCEPT_USEC * 1000
    };
    np_port_t *port = ucs_container_of(client, np_port_t, service);
    uint64_t now, look;

    if (np_port_hear_bell(port)) {
        nanosleep(&patience, NULL);
        now = np_clock();
        atomic_store_explicit(&port->strangers_until,
                              now + NP_INBOX_STRANGERS, memory_order_relaxed);
    } else {
        look = atomic_load_explicit(&port->strangers_look,
                                    memory_order_relaxed);
        if (look >= atomic_load_explicit(&port->strangers_until,
                                         memory_order_relaxed)) {
            return 0; /* after the end of their time they had a last look */
        }

        now = np_clock();
        if (now < look) {
            return 1;
        }
    }

    atomic_store_explicit(&port->strangers_look, now + NP_INBOX_LOOK,
                          memory_order_relaxed);
    return np_port_accept(port, 0);
}

void np_inbox_accept(np_port_t *port)
{
    atomic_store_explicit(&port->strangers_until,
                          np_clock() + NP_INBOX_STRANGERS,
                          memory_order_relaxed);
    /* the threads take the lock after this, and see it */
    np_service_again(&port->service);
}

void np_inbox_begin(np_port_t *port)
{
    static const np_service_ops_t ops = {
        .serve   = np_inbox_look,
        .take    = np_inbox_next,
        .execute = np_inbox_execute,
        .arm     = np_inbox_arm
    };

    port->service.ops = &ops;
    port->service.fd  = port->bell;
    np_service_add(&port->service);
}

void np_inbox_end(np_port_t *port)
{
    if (np_flights_are_ours(&port->flights)) { /* else in no list of ours */
        np_service_remove(&port->service);
    }
}
