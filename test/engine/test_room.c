/* SPDX-License-Identifier: BSD-3-Clause */
/* A link that has become wide: where its payload begins anew, and that nothing
 * is written over what has not been read. */

#include "pair.h"
#include "tap.h"

#include "nprdma/dev/soft/wide.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/ep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROOM_NARROW   (32 * 1024u)
#define ROOM_WIDE     (512 * 1024u)
#define ROOM_LARGE    (2 * 1024 * 1024u)
#define ROOM_LEN      8000u
#define ROOM_MESSAGES 400
#define ROOM_RANDOM   60000

/* Two ports with a link each way; messages go over the first */
static struct {
    np_port_t *from;
    np_port_t *to;
    np_link_t link;
    np_link_t back;
    unsigned  sent;
    unsigned  taken;
    int       is_wrong; /* a message was not the one that was sent */
    uint32_t  farthest; /* offset in the payload area, since it was set to 0 */
} room;


/* Lengths and bytes follow from the number of the message */
static unsigned room_len(unsigned number)
{
    return 100 + ((number * 7919) % ROOM_LEN);
}

static void room_am(void *arg, uint8_t id, void *data, unsigned len)
{
    const uint8_t *bytes = data;
    unsigned i;

    room.is_wrong |= len != room_len(room.taken);
    for (i = 0; i < len; ++i) {
        room.is_wrong |= bytes[i] != (uint8_t)(room.taken + i);
    }
    ++room.taken;
}

static void room_am_back(void *arg, uint8_t id, void *data, unsigned len) {}

/* Returns whether there was room */
static int room_send(void)
{
    const unsigned len = room_len(room.sent);
    uint8_t *bytes;
    uint32_t start;
    void *data;
    unsigned i;

    if (np_fast_reserve(&room.link, len, &data, &start) != UCS_OK) {
        np_link_has_room(&room.link); /* or it becomes wide */
        return 0;
    }

    bytes = data;
    for (i = 0; i < len; ++i) {
        bytes[i] = room.sent + i;
    }
    room.farthest = ucs_max(room.farthest,
                            (uint32_t)(bytes - room.link.data.payload));
    np_fast_send(&room.link, 1, start, len);
    ++room.sent;
    return 1;
}

static void room_take_all(void)
{
    while (np_port_poll(room.to, room_am, NULL) > 0) {
    }
}

/* Something comes from the peer */
static void room_answer(void)
{
    pair_send(&room.back);
    np_port_poll(room.from, room_am_back, NULL);
}

/* Messages of which @a behind are not read when the next one is sent. Returns
 * how far the payload went. */
static uint32_t room_stream(unsigned messages, unsigned behind, int is_answered)
{
    unsigned i;

    room_take_all();
    room.farthest = 0;
    for (i = 0; i < messages; ++i) {
        room_send();
        if ((i % (behind + 1)) == behind) {
            room_take_all();
        }
        if (is_answered) {
            room_answer();
        }
    }
    return room.farthest;
}

/* Positions of its payload go round after a few laps, and its slots' numbers */
static void room_turn_back(np_link_t *link, np_peer_t *peer)
{
    np_ring_tx_t *tx      = &link->data;
    const uint32_t number = -ROOM_MESSAGES & ~(uint32_t)tx->mask;
    uint32_t i;

    tx->payload_tail = -20 * ROOM_WIDE;
    tx->payload_head = tx->payload_tail;
    tx->busy_at      = tx->payload_tail + ROOM_NARROW;
    for (i = 0; i <= tx->mask; ++i) {
        tx->payload_end[i] = tx->payload_tail;
    }
    tx->tail        = number;
    tx->limit       = number + tx->mask + 1;
    peer->data.head = number;
    peer->data.next = peer->data.slots;
    atomic_store(tx->head, number);
}

/* A word of zeroes is no message, also where its number would be 0 */
static void room_zero(void)
{
    np_ring_rx_t ring = room.to->peers[0]->data;

    ring.head = UINT32_MAX;
    atomic_store(&ring.slots[ring.head & ring.mask].word, 0);
    TAP_CHECK(!np_ring_rx_has_any(&ring), "room: a word of 0 is no message");
}

static int room_open(uint32_t narrow, uint32_t wide)
{
    const np_port_config_t config = {
        .data_slots   = 128,
        .payload_size = narrow,
        .payload_wide = wide,
        .wide_links   = 1
    };

    memset(&room, 0, sizeof(room));
    room.from = pair_port_of(&config);
    room.to   = pair_port_of(&config);
    pair_link(room.from, room.to, &room.link);
    pair_link(room.to, room.from, &room.back);
    return pair_meet(room.from, room.to, &room.link) &&
           pair_meet(room.to, room.from, &room.back);
}

static void room_close(void)
{
    np_ep_close(&room.link.flight);
    np_ep_close(&room.back.flight);
    np_proto_close(room.from);
    np_proto_close(room.to);
}

/* As many as there is room for, or few; taken sooner or later. @a part: if not
 * 0, all or so much of the area is used in turn, from any moment on. */
static void room_mix(uint32_t part)
{
    const uint32_t full = room.link.data.payload_full + 1;
    unsigned seed = 1, left;

    while (room.sent < ROOM_RANDOM) {
        if ((part != 0) && np_link_is_widened(&room.link) &&
            ((rand_r(&seed) % 4) == 0)) {
            room.link.data.payload_part =
                    (room.link.data.payload_part == full) ? part : full;
        }
        for (left = rand_r(&seed) % 70; left > 0; --left) {
            if ((room.sent == ROOM_RANDOM) || !room_send()) {
                break;
            }
        }
        if ((rand_r(&seed) % 3) == 0) {
            room_answer();
        }
        if ((rand_r(&seed) % 4) == 0) {
            room_take_all();
            room.is_wrong |= !np_link_has_room(&room.link);
        } else {
            np_port_poll(room.to, room_am, NULL);
        }
    }
    room_take_all();
}

/* A link that is wide, with so much of its area in use; @a part is the other */
static void test_room_part(uint32_t narrow, uint32_t wide, uint32_t part)
{
    TAP_CHECK(room_open(narrow, wide), "room: two links of %u and %u bytes",
              narrow, wide);
    room_mix(part);
    TAP_CHECK((room.taken == ROOM_RANDOM) && !room.is_wrong,
              "room: as they were sent, and none waits for ever");
    TAP_CHECK(np_link_is_widened(&room.link) &&
              (room.link.fill.near == part), "room: a part of %u bytes",
              room.link.fill.near);
    room_close();
}

/* Another part is not used while there may be less room in it */
static void test_room_switch(void)
{
    np_ring_tx_t *ring;
    uint32_t offset;
    int is_right = 1;

    TAP_CHECK(room_open(ROOM_LARGE, ROOM_LARGE), "room: links of one size");
    room_close();
    TAP_CHECK(room_open(ROOM_NARROW, ROOM_LARGE), "room: and of another");
    room_mix(0);
    ring = &room.link.data;
    for (offset = 0; offset < ROOM_LARGE; offset += NP_LINE) {
        ring->payload_tail    = offset;
        room.link.fill.bytes  = 0;
        room.link.fill.left   = 100;
        room.link.fill.step   = NP_FILL_LAST;
        room.link.fill.way    = NP_FILL_WHOLE; /* it does not begin anew */
        np_link_busy(&room.link);
        is_right &= (room.link.fill.bytes > 0) ==
                    ((offset + (ROOM_NARROW / 2)) <= (512 * 1024u));
    }
    TAP_CHECK(is_right, "room: no change where there would be less");
    room_close();
}

/* Send until the other end has been asked to map all of the area, which it has
 * not seen yet */
static int room_ask(void)
{
    unsigned i;

    for (i = 0; (i < (2 * ROOM_MESSAGES)) && !room.link.wide_asked &&
                !room.link.no_wide; ++i) {
        room_take_all();
        room_send();
    }
    return room.link.wide_asked && (room.link.wide_shm != NULL);
}

/* All that was sent has come, and the link goes on so */
static int room_goes_on(void)
{
    room_stream(ROOM_MESSAGES, 0, 1);
    room_stream(ROOM_MESSAGES, 7, 0);
    room_take_all();
    return !room.is_wrong && (room.taken == room.sent);
}

/* Map nothing more, or anything. Returns whether that is so now. */
static int room_limit(int is_limited)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *file;

    if (getrlimit(RLIMIT_AS, &limit) != 0) {
        return 0;
    }

    limit.rlim_cur = limit.rlim_max;
    if (is_limited) {
        file = fopen("/proc/self/statm", "r");
        if ((file == NULL) || (fscanf(file, "%lu", &pages) != 1)) {
            return 0;
        }
        fclose(file);
        limit.rlim_cur = pages * sysconf(_SC_PAGESIZE);
    }
    return setrlimit(RLIMIT_AS, &limit) == 0;
}

/* The whole area is mapped when a link becomes wide, and nothing waits for
 * that */
static void test_room_wide(void)
{
    np_peer_t *peer;
    void *wide;

    TAP_CHECK(room_open(ROOM_NARROW, ROOM_WIDE), "room: to become wide");
    peer = room.to->peers[0];
    TAP_CHECK((peer->shm_part + ROOM_WIDE - ROOM_NARROW) == peer->shm_size,
              "room: a part is mapped at first");
    TAP_CHECK(room_ask(), "room: the other end is asked");
    TAP_CHECK((peer->wide_shm == NULL) && room_send() &&
              !np_link_is_widened(&room.link), "room: messages do not wait");
    TAP_CHECK(room_goes_on() && np_link_is_widened(&room.link) &&
              (room.farthest > ROOM_NARROW), "room: it has answered");
    wide = peer->wide_shm;
    np_wide_answer(peer);
    TAP_CHECK((wide != NULL) && (wide == peer->wide_shm),
              "room: all is mapped once");
    room_close();
}

static void test_room_no_wide(int is_target)
{
    const char *who = is_target ? "target" : "initiator";

    TAP_CHECK(room_open(ROOM_NARROW, ROOM_WIDE), "room: to stay narrow");
    TAP_CHECK(!is_target || room_ask(), "room: not yet wide");
    TAP_CHECK(room_limit(1), "room: no more is mapped");
    if (is_target) {
        room_take_all();
    } else {
        room_ask();
    }
    TAP_CHECK(room_limit(0), "room: or it is again");
    TAP_CHECK(room_goes_on() && !np_link_is_widened(&room.link),
              "room: the %s cannot map all, and messages come", who);
    TAP_CHECK(room.link.no_wide && (room.link.wide_shm == NULL) &&
              (room.from->num_wide == 0), "room: nor is it asked again");
    room_close();
}

void test_room(void)
{
    uint32_t alone, answered, behind;

    TAP_CHECK(room_open(ROOM_NARROW, ROOM_WIDE), "room: two links");
    room_zero();
    TAP_CHECK(room_stream(ROOM_MESSAGES, 0, 1) < ROOM_NARROW,
              "room: the narrow area comes first");
    room_stream(2 * ROOM_MESSAGES, 0, 1);
    TAP_CHECK(np_link_is_widened(&room.link), "room: then the wide one");
    room_take_all();
    room_turn_back(&room.link, room.to->peers[0]);

    room_stream(ROOM_MESSAGES, 0, 1);
    answered = room_stream(ROOM_MESSAGES, 0, 1);
    TAP_CHECK((answered >= ROOM_NARROW) &&
              (answered < (ROOM_NARROW + (2 * ROOM_LEN))),
              "room: what is answered begins anew soon (%u)", answered);
    alone = room_stream(ROOM_MESSAGES, 0, 0);
    TAP_CHECK((alone >= (4 * ROOM_NARROW)) &&
              (alone < ((4 * ROOM_NARROW) + (2 * ROOM_LEN))),
              "room: what is not answered, later (%u)", alone);
    behind = room_stream(ROOM_MESSAGES, ROOM_MESSAGES, 1);
    TAP_CHECK(behind > (ROOM_WIDE / 2), "room: what is not read stays (%u)",
              behind);

    room_mix(0);
    TAP_CHECK((room.taken == ROOM_RANDOM) && !room.is_wrong,
              "room: %u messages, each as it was sent", room.taken);
    room_close();

    test_room_part(ROOM_NARROW, ROOM_LARGE, 512 * 1024u);
    test_room_part(ROOM_LARGE / 2, ROOM_LARGE, ROOM_LARGE / 2);
    test_room_part(ROOM_LARGE, ROOM_LARGE, ROOM_LARGE);
    test_room_switch();
    test_room_wide();
    test_room_no_wide(0);
    test_room_no_wide(1);
}
