/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings of every small size, round and round, one end against the other. */

#include "tap.h"

#include "nprdma/dev/soft/fast.h"
#include "nprdma/dev/soft/ring.h"

#include <stdlib.h>
#include <string.h>

#define PAYLOAD 4096u
#define LARGE   NP_RING_APART_AREA

static struct {
    np_ring_tx_t     tx;
    np_ring_rx_t     rx;
    _Atomic uint32_t head;
    uint32_t         area;
    uint8_t          payload[LARGE];
} ring;


static void ring_make(uint32_t slots, uint32_t area)
{
    memset(&ring, 0, sizeof(ring));
    ring.tx.slots        = aligned_alloc(NP_LINE, slots * sizeof(np_slot_t));
    ring.tx.mask         = slots - 1;
    ring.tx.limit        = slots;
    ring.tx.payload      = ring.payload;
    ring.area            = area;
    ring.tx.payload_mask = area - 1;
    ring.tx.payload_part = area;
    ring.tx.payload_end  = calloc(slots, sizeof(uint32_t));
    ring.tx.head         = &ring.head;
    ring.rx.slots        = ring.tx.slots;
    ring.rx.mask         = slots - 1;
    ring.rx.next         = ring.tx.slots;
    ring.rx.payload      = ring.payload;
    ring.rx.payload_size = area;
    ring.rx.shared_head  = &ring.head;
    memset(ring.tx.slots, 0, slots * sizeof(np_slot_t));
}

static void ring_free(void)
{
    free(ring.tx.slots);
    free(ring.tx.payload_end);
}

/* Where the reader thinks that the next payload begins */
static uint32_t ring_expected(const np_slot_t *slot, uint32_t len)
{
    return np_ring_behind(slot->offset + len, len, ring.area);
}

/* Fill until there is no room, read some or all, and so on; all kinds of sizes.
 * The writer changes the part of the area that it uses at any time, of which
 * @a part is the least. */
static int ring_stream(uint32_t slots, unsigned messages, uint32_t part)
{
    const unsigned size = ucs_min(part / 2, 6000u);
    unsigned sent = 0, read = 0, seed = 1, i, len, some;
    uint32_t expected = 0, start;
    np_slot_t *slot;
    uint64_t word;

    while (read < messages) {
        for (;;) {
            if ((rand_r(&seed) % 5) == 0) {
                ring.tx.payload_part = (ring.tx.payload_part < ring.area) ?
                                       ring.area : part;
            }
            len = (sent * 37) % size;
            if ((sent == messages) || !np_ring_tx_has_slot(&ring.tx) ||
                !np_ring_tx_has_payload(&ring.tx, len, &start)) {
                break;
            }

            slot         = np_ring_tx_slot(&ring.tx);
            slot->offset = start & ring.tx.payload_mask;
            if (slot->offset + len > ring.tx.payload_part) {
                return 0;
            }
            memset(ring.payload + slot->offset, (uint8_t)sent, len);
            np_ring_tx_commit_payload(&ring.tx, start, len);
            if (len >= NP_RING_APART_MIN) {
                np_ring_tx_end_page(&ring.tx, len);
            }
            np_ring_tx_publish(&ring.tx, slot, len, NP_SLOT_AM_LONG, 1);
            ++sent;
        }

        if ((sent == read) || (sent - read > slots)) {
            return 0; /* no room in an empty ring, or more than it has */
        }

        some = rand_r(&seed) % 8;
        while (np_ring_rx_is_ready(&ring.rx, &word) &&
               ((some > 4) || (some-- > 0))) {
            slot = ring.rx.next;
            len  = np_word_len(word);
            if ((len != (read * 37) % size) ||
                ((slot->offset != expected) && (slot->offset != 0))) {
                return 0;
            }
            expected = ring_expected(slot, len) % ring.area;
            for (i = 0; i < len; ++i) {
                if (ring.payload[slot->offset + i] != (uint8_t)read) {
                    return 0;
                }
            }
            np_ring_rx_advance(&ring.rx);
            ++read;
        }
        np_ring_rx_publish(&ring.rx);
    }

    return 1;
}

/* What is in a page of its own, and what is not */
static void test_apart(void)
{
    const uint32_t area = NP_RING_APART_AREA, page = NP_RING_PAGE;
    const uint32_t least = NP_RING_APART_MIN, most = NP_RING_APART_MAX;

    TAP_CHECK((np_ring_behind(least, least, area) == page) &&
              (np_ring_behind(page + 1, least, area) == (2 * page)) &&
              (np_ring_behind(most + NP_FAST_SKEW, most, area) == page),
              "payload has its page for itself");
    TAP_CHECK((np_ring_behind(least - 1, least - 1, area) == least) &&
              (np_ring_behind(least, least, area / 2) == least) &&
              (np_ring_behind(page, most + 1, area) == page) &&
              (np_ring_behind(page + 1, page, area) == (page + NP_LINE)),
              "but for what is small, or a page, or in a small area");
}

static void test_held(void)
{
    uint32_t first;
    unsigned i;

    ring_make(4, PAYLOAD);
    for (i = 0; i < 4; ++i) {
        np_ring_tx_publish(&ring.tx, np_ring_tx_slot(&ring.tx), 0, NP_SLOT_GET,
                           0);
    }
    first           = ring.tx.tail - 4;
    ring.tx.is_kept = 1;
    ring.tx.kept    = first + 1;
    ring.rx.head    = ring.tx.tail;
    np_ring_rx_publish(&ring.rx);
    TAP_CHECK(np_ring_tx_is_read(&ring.tx, first + 1), "the slot is read");
    TAP_CHECK(np_ring_tx_has_slot(&ring.tx) &&
              (ring.tx.limit == first + 1 + 4), "but not free while kept");
    ring.tx.is_kept = 0;
    TAP_CHECK(np_ring_tx_refresh(&ring.tx) &&
              (ring.tx.limit == ring.tx.tail + 4), "and free afterwards");
    ring_free();
}

void test_ring(void)
{
    uint32_t slots;

    for (slots = 1; slots <= 256; slots *= 2) {
        ring_make(slots, PAYLOAD);
        TAP_CHECK(ring_stream(slots, 5000, PAYLOAD), "ring of %u slots", slots);
        ring_free();

        ring_make(slots, PAYLOAD);
        TAP_CHECK(ring_stream(slots, 5000, PAYLOAD / 4),
                  "ring of %u slots, now and then a part of its area", slots);
        ring_free();

        ring_make(slots, LARGE);
        TAP_CHECK(ring_stream(slots, 5000, LARGE / 4),
                  "ring of %u slots, and payload in pages of its own", slots);
        ring_free();
    }

    ring_make(8, PAYLOAD);
    atomic_store(&ring.head, 5);
    TAP_CHECK(!np_ring_tx_refresh(&ring.tx),
              "a head beyond what was written is refused");
    TAP_CHECK(ring.tx.limit == 8, "and frees nothing");
    ring_free();

    test_apart();
    test_held();
}
