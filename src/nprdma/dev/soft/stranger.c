/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stranger.h"

#include "peer.h"
#include "port.h"

#include "../../clock.h"
#include "../../engine.h"
#include "../../seldom.h"

#include <sys/epoll.h>


/* UCS_OK: it is a peer now, and the socket that peer's; UCS_ERR_NO_RESOURCE: it
 * has said nothing yet; any other: it is none of ours */
static ucs_status_t np_stranger_hear(np_port_t *port, int fd, int is_owner)
{
    ucs_status_t status;
    np_msg_t msg;

    status = np_sock_look(fd, &msg);
    if (status != UCS_OK) {
        return status;
    }

    if ((msg.type != NP_MSG_CONNECT) || (msg.cookie != np_engine.cookie)) {
        return UCS_ERR_REJECTED;
    }

    return np_peer_create(port, fd, &msg, is_owner);
}

static void np_stranger_refuse(int fd, const np_sock_cred_t *cred,
                               ucs_status_t status)
{
    if (status != UCS_ERR_CONNECTION_RESET) {
        np_error_seldom("refused the connection of process %d (user %d): %s",
                        cred->pid, cred->uid, ucs_status_string(status));
    }
    np_sock_close(fd);
}

static void np_stranger_drop(np_port_t *port, np_stranger_t *stranger,
                             ucs_status_t status)
{
    np_port_unwatch(port, stranger->fd);
    np_port_take_bell(port, stranger->fd);
    np_stranger_refuse(stranger->fd, &stranger->cred, status);
    stranger->fd = -1;
    --port->num_strangers;
}

static int np_stranger_may_connect(const np_sock_cred_t *cred)
{
    if ((cred->uid == np_engine.uid) ||
        (np_engine.config.peer_users != NP_PEER_USERS_SAME)) {
        return 1;
    }

    np_error_seldom("refused process %d: it runs as user %d, this one as user "
                    "%d. Run both as one user, or set "
                    "UCX_NPRDMA_PEER_USERS=any", cred->pid, cred->uid,
                    np_engine.uid);
    return 0;
}

/* Hear one again. Returns 0 if it has said nothing yet; else it is gone from
 * here: a peer is watched otherwise. */
static int np_stranger_settle(np_port_t *port, np_stranger_t *stranger,
                              int is_owner)
{
    ucs_status_t status = np_stranger_hear(port, stranger->fd, is_owner);

    if (status == UCS_ERR_NO_RESOURCE) {
        return 0;
    }

    if (status == UCS_OK) {
        stranger->fd = -1;
        --port->num_strangers;
    } else {
        np_stranger_drop(port, stranger, status);
    }
    return 1;
}

static void
np_stranger_keep(np_port_t *port, int fd, const np_sock_cred_t *cred,
                 int is_owner)
{
    struct epoll_event speaks = {
        .events   = EPOLLIN | EPOLLRDHUP | EPOLLET,
        .data.ptr = &port->speaker
    };
    np_stranger_t *place = port->strangers, *stranger;
    unsigned i;

    for (i = 0; i < NP_PORT_STRANGERS; ++i) {
        stranger = &port->strangers[i];
        if (stranger->fd < 0) {
            place = stranger;
            break;
        }
        if (stranger->until < place->until) {
            place = stranger; /* the oldest */
        }
    }

    /* it may have spoken since it was heard */
    if ((place->fd >= 0) && !np_stranger_settle(port, place, is_owner)) {
        np_stranger_drop(port, place, UCS_ERR_EXCEEDS_LIMIT);
    }

    /* Each thing that it says is one event: the owner may sleep. It may compute
     * as well, and be the only one that has met it: then a thread hears it. */
    if ((epoll_ctl(port->epoll_fd, EPOLL_CTL_ADD, fd, &speaks) != 0) ||
        (np_port_hang_bell(port, fd, NULL) != 0)) {
        np_error_seldom("epoll_ctl(ADD) failed: %m. Check "
                        "fs.epoll.max_user_watches");
        np_sock_close(fd);
        return;
    }

    place->fd    = fd;
    place->cred  = *cred;
    place->until = np_clock() + NP_STRANGER_PATIENCE;
    ++port->num_strangers;
}

int np_port_accept_some(np_port_t *port, int is_owner, int *met)
{
    const unsigned most = is_owner ? NP_STRANGER_OWNER : NP_STRANGER_SERVICE;
    ucs_status_t status;
    np_sock_cred_t cred;
    unsigned i;
    int fd;

    if (port->spare_fd < 0) {
        port->spare_fd = np_sock_spare(port->listen_fd); /* it was used up */
    }

    *met = 0;
    for (i = 0; i < most; ++i) {
        if (np_sock_accept(port->listen_fd, &port->spare_fd, &fd, &cred) !=
            UCS_OK) {
            return 0;
        }

        if (!np_stranger_may_connect(&cred)) {
            np_sock_close(fd);
            *met = 1;
            continue;
        }

        status = np_stranger_hear(port, fd, is_owner);
        if (status == UCS_OK) {
            continue;
        }

        *met = 1;
        if (status == UCS_ERR_NO_RESOURCE) {
            np_stranger_keep(port, fd, &cred, is_owner);
        } else {
            np_stranger_refuse(fd, &cred, status);
        }
    }
    return 1;
}

unsigned np_port_hear_strangers(np_port_t *port, int is_owner)
{
    np_stranger_t *stranger;
    unsigned i;

    if (port->num_strangers == 0) {
        return 0;
    }

    for (i = 0; i < NP_PORT_STRANGERS; ++i) {
        stranger = &port->strangers[i];
        if (stranger->fd < 0) {
            continue;
        }

        if (!np_stranger_settle(port, stranger, is_owner) &&
            (np_clock() >= stranger->until)) {
            np_stranger_drop(port, stranger, UCS_ERR_TIMED_OUT);
        }
    }
    return port->num_strangers;
}

void np_port_drop_strangers(np_port_t *port)
{
    unsigned i;

    for (i = 0; i < NP_PORT_STRANGERS; ++i) {
        if (port->strangers[i].fd >= 0) {
            np_sock_close(port->strangers[i].fd);
            port->strangers[i].fd = -1;
        }
    }
    port->num_strangers = 0;
}
