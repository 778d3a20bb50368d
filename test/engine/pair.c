/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ports of this process, and a link between them. */

#include "pair.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/start.h"

#include <dirent.h>
#include <string.h>

/* ns */
#define PAIR_PATIENCE UINT64_C(2000000000)

unsigned pair_received;


static void pair_complete(void *comp, ucs_status_t status)
{
    *(ucs_status_t*)comp = status;
}

static void pair_link_down(np_flight_t *flight, ucs_status_t status)
{
}

static const np_user_t pair_user = {
    .complete  = pair_complete,
    .link_down = pair_link_down
};

static void pair_am(void *arg, uint8_t id, void *data, unsigned len)
{
    ++pair_received;
}

np_port_t *pair_port(void)
{
    return pair_port_of_slots(PAIR_SLOTS);
}

np_port_t *pair_port_of_slots(unsigned slots)
{
    const np_port_config_t config = {
        .data_slots   = slots,
        .payload_size = ucs_max(4096u, slots * NP_LINE)
    };

    return pair_port_of(&config);
}

np_port_t *pair_port_of(const np_port_config_t *config)
{
    np_port_t *port;

    return (np_port_open(config, &np_proto_ops, &pair_user, &port) == UCS_OK) ?
           port : NULL;
}

void pair_progress(np_port_t *port)
{
    np_port_poll(port, pair_am, NULL);
    np_port_work(port);
}

void pair_link(np_port_t *from, np_port_t *to, np_link_t *link)
{
    np_port_addr_t addr;

    np_port_get_addr(to, &addr);
    np_link_init(link, from, &addr);
}

void pair_send(np_link_t *link)
{
    np_slot_t *slot;

    if (np_soft_reserve_inline(link, &slot) == UCS_OK) {
        memset(slot->data, 1, 8);
        np_fast_send_inline(link, slot, 5, 8);
    }
}

/* A port that has met a stranger takes nobody in for a while */
static int pair_may_wait(unsigned i, uint64_t begin)
{
    return (i < PROGRESS_MAX) || ((np_clock() - begin) < PAIR_PATIENCE);
}

int pair_meet(np_port_t *from, np_port_t *to, np_link_t *link)
{
    unsigned i;

    pair_send(link);
    for (i = 0; (i < PROGRESS_MAX) && (link->target == NULL); ++i) {
        pair_progress(to);
        np_port_housekeep(to);
        pair_progress(from);
        np_port_housekeep(from);
    }
    return link->target != NULL;
}

int pair_open_child(pair_t *pair)
{
    return pair_open_child_of_slots(pair, PAIR_SLOTS);
}

int pair_open_child_of_slots(pair_t *pair, unsigned slots)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    if (np_engine_init(&config) != UCS_OK) {
        return 0;
    }

    pair->target    = pair_port_of_slots(slots);
    pair->initiator = pair_port_of_slots(slots);
    pair_link(pair->initiator, pair->target, &pair->link);
    if (!pair_meet(pair->initiator, pair->target, &pair->link)) {
        return 0;
    }

    pair->peer = pair->target->peers[0];
    return 1;
}

int pair_wait_received(np_port_t *a, np_port_t *b, unsigned count)
{
    const uint64_t begin = np_clock();
    unsigned i;

    for (i = 0; pair_may_wait(i, begin) && (pair_received < count); ++i) {
        pair_progress(a);
        pair_progress(b);
    }
    return pair_received == count;
}

int pair_wait_down(np_port_t *a, np_port_t *b, np_link_t *link)
{
    const uint64_t begin = np_clock();
    unsigned i;

    for (i = 0; pair_may_wait(i, begin) &&
                !(link->flight.gate & NP_GATE_DOWN); ++i) {
        pair_progress(a);
        pair_progress(b);
    }
    return !!(link->flight.gate & NP_GATE_DOWN);
}

void pair_open(const char *name, pair_t *pair)
{
    pair->target    = pair_port();
    pair->initiator = pair_port();
    pair_received   = 0;
    pair_link(pair->initiator, pair->target, &pair->link);
    pair_send(&pair->link);
    TAP_CHECK(pair_wait_received(pair->target, pair->initiator, 1),
              "%s: connected", name);
    pair->peer = pair->target->peers[0];
}

void pair_close(pair_t *pair)
{
    np_ep_close(&pair->link.flight);
    np_proto_close(pair->initiator);
    np_proto_close(pair->target);
}

unsigned pair_count_files(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    while ((dir != NULL) && (readdir(dir) != NULL)) {
        ++count;
    }
    closedir(dir);
    return count;
}
