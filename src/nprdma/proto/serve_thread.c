/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What service threads do for a port of soft0: they take requests out of its
 * peers' control rings, and connections that its owner leaves waiting.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "serve.h"

#include <time.h>

/* How long a new connection is left to the owner's progress */
#define NP_SERVE_ACCEPT_USEC 200

/* Looks for what those say who have connected, some milliseconds apart: a
 * second. Later, the owner hears them. */
#define NP_SERVE_LOOKS       128


/* One request of one of the port's peers, each in turn. Returns 0 if there is
 * none. */
static int np_serve_next(np_port_t *port, np_job_t *job)
{
    np_peer_t *peer;
    int is_taken = 0;
    unsigned i;

    pthread_mutex_lock(&port->lock);
    for (i = 0; !is_taken && (i < port->num_peers); ++i) {
        if (++port->service_peer >= port->num_peers) {
            port->service_peer = 0;
        }

        peer = port->peers[port->service_peer];
        if ((peer == NULL) || (peer->shm == NULL) || peer->is_malformed ||
            (np_ring_rx_peek(&peer->ctl) == 0)) {
            continue;
        }

        is_taken = np_serve_take(peer, job);
        if (is_taken) {
            /* relaxed: under the lock, as whoever waits for it to fall */
            atomic_fetch_add_explicit(&peer->jobs, 1, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&port->lock);
    return is_taken;
}

/* np_service_ops_t::take */
static unsigned np_serve_one(np_service_client_t *client, unsigned thread,
                             np_stats_t *stats)
{
    np_port_t *port = ucs_container_of(client, np_port_t, service);
    np_job_t job;

    if (!np_serve_next(port, &job)) {
        return 0;
    }

    if (np_job_is_answered(job.word) && np_job_is_valid(job.word)) {
        NP_STATS_INC(stats, served_thread);
        /* if its page sleeps, the other thread is there for the next one */
        atomic_store_explicit(&port->shm->service_armed, 1,
                              memory_order_relaxed);
        np_serve_job(&job, (thread == 0) ? NP_MOVER_SERVICE : NP_MOVER_SLEEPER,
                     stats);
    } else if (np_word_kind(job.word) != NP_SLOT_SHARE) {
        /* help with a copy is for the owner alone; nonsense is found by it too:
         * whoever sends that gets no answer from us */
        (void)np_serve_note(job.peer, &job.slot, job.word);
    }

    /* release: the peer is not touched any more */
    atomic_fetch_sub_explicit(&job.peer->jobs, 1, memory_order_release);
    return 1;
}

/* np_service_ops_t::arm. seq_cst: before the last look at the rings, as who
 * rings looks at it after having written there. */
static void np_serve_arm(np_service_client_t *client)
{
    np_port_t *port = ucs_container_of(client, np_port_t, service);

    atomic_store_explicit(&port->shm->service_armed, 1, memory_order_seq_cst);
}

/* np_service_ops_t::serve: requests are taken next, by np_serve_one */
static int np_serve_look(np_service_client_t *client)
{
    const struct timespec patience = {
        .tv_nsec = NP_SERVE_ACCEPT_USEC * 1000
    };
    np_port_t *port = ucs_container_of(client, np_port_t, service);
    unsigned looks;

    looks = np_port_hear_bell(port) ? NP_SERVE_LOOKS :
            atomic_load_explicit(&port->service_looks, memory_order_relaxed);
    if (looks > 0) {
        nanosleep(&patience, NULL);
        looks = np_port_accept(port, 0) ? (looks - 1) : 0;
        atomic_store_explicit(&port->service_looks, looks,
                              memory_order_relaxed);
    }
    return looks > 0;
}

void np_serve_begin(np_port_t *port)
{
    static const np_service_ops_t ops = {
        .serve = np_serve_look,
        .take  = np_serve_one,
        .arm   = np_serve_arm
    };

    port->service.ops = &ops;
    port->service.fd  = port->bell;
    np_service_add(&port->service);
}

void np_serve_end(np_port_t *port)
{
    if (np_port_is_ours(port)) { /* else it is in no list of ours */
        np_service_remove(&port->service);
    }
}
