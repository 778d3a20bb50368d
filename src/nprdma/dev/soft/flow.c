/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The flow of a link's operations through its rings.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "flow.h"

#include "../../mem/prepare.h"
#include "../../work.h"


static ucs_status_t np_flow_connect(np_flight_t *flight)
{
    np_link_t *link = np_link_of(flight);

    return np_link_may_connect(link) ? np_link_connect(link) :
           UCS_ERR_NO_RESOURCE;
}

static int np_flow_has_room(np_flight_t *flight)
{
    np_link_t *link = np_link_of(flight);

    if (flight->gate & NP_GATE_UNCONNECTED) {
        return np_link_may_connect(link);
    }

    /* A target that computes reads no messages, but operations that are none go
     * on */
    if (!np_link_has_room(link)) {
        return 0;
    }

    if (!np_mail_has_slot(link)) {
        np_mail_ring_slow(link); /* nothing of it may be outstanding */
        return 0;
    }
    return 1;
}

static void np_flow_stop(np_flight_t *flight)
{
    np_link_t *link = np_link_of(flight);

    np_carry_drop(link);

    /* The target may be in the middle of a reverse transfer */
    if (np_flights_are_ours(&link->port->flights) && (link->shm != NULL) &&
        !ucs_list_is_empty(&link->asks)) {
        np_mail_drop(link);
    }
}

static void np_flow_fail(np_flight_t *flight, ucs_status_t status)
{
    np_link_t *link = np_link_of(flight);

    np_error("a request to process %d has failed: %s", link->process.pid,
             ucs_status_string(status));
    np_link_down(link, status);
}

static void np_flow_end(np_flight_t *flight, ucs_status_t status)
{
    np_link_down(np_link_of(flight), status);
}

static void np_flow_close(np_flight_t *flight)
{
    np_link_close(np_link_of(flight));
}

static ucs_status_t np_flow_check(np_flight_t *flight)
{
    np_link_t *link = np_link_of(flight);

    if (!np_link_is_alive(link)) {
        np_link_down(link, UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return UCS_OK;
}

const np_dev_ops_t np_soft_ops = {
    .connect  = np_flow_connect,
    .has_room = np_flow_has_room,
    .fail     = np_flow_fail,
    .end      = np_flow_end,
    .stop     = np_flow_stop,
    .close    = np_flow_close,
    .check    = np_flow_check
};

static unsigned np_flow_progress_link(ucs_list_link_t *busy)
{
    np_link_t *link = ucs_container_of(busy, np_link_t, flight.busy);
    unsigned count;

    if (np_flight_is_down(&link->flight)) {
        /* what has gone well before */
        return np_carry_progress(link) + link->port->ops->passed(link);
    }

    count  = np_carry_progress(link);
    count += np_mail_progress(link);
    count += link->port->ops->progress(link);
    np_mail_ring(link);
    return count;
}

unsigned np_flow_progress(np_port_t *port)
{
    return np_work(&port->flights.busy, np_flow_progress_link);
}

int np_flow_has_work(np_port_t *port)
{
    np_link_t *link;

    ucs_list_for_each(link, &port->flights.busy, flight.busy) {
        if (port->ops->has_work(link) || np_mail_has_news(link) ||
            np_carry_has_news(link)) {
            return 1;
        }
        np_mail_ring_now(link); /* we shall not be there to do it later */
    }

    return np_flights_have_news(&port->flights) || np_prepare_has_work();
}
