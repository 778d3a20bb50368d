/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings of every small size, round and round, one end against the other. */

#include "tap.h"

#include "nprdma/dev/soft/ring.h"

#include <stdlib.h>
#include <string.h>

#define PAYLOAD 4096u

static struct {
    np_ring_tx_t     tx;
    np_ring_rx_t     rx;
    _Atomic uint32_t head;
    uint8_t          payload[PAYLOAD];
} ring;


static void ring_make(uint32_t slots)
{
    memset(&ring, 0, sizeof(ring));
    ring.tx.slots        = aligned_alloc(NP_LINE, slots * sizeof(np_slot_t));
    ring.tx.mask         = slots - 1;
    ring.tx.limit        = slots;
    ring.tx.payload      = ring.payload;
    ring.tx.payload_mask = PAYLOAD - 1;
    ring.tx.payload_part = PAYLOAD;
    ring.tx.payload_end  = calloc(slots, sizeof(uint32_t));
    ring.tx.head         = &ring.head;
    ring.rx.slots        = ring.tx.slots;
    ring.rx.mask         = slots - 1;
    ring.rx.next         = ring.tx.slots;
    ring.rx.payload      = ring.payload;
    ring.rx.payload_size = PAYLOAD;
    ring.rx.shared_head  = &ring.head;
    memset(ring.tx.slots, 0, slots * sizeof(np_slot_t));
}

static void ring_free(void)
{
    free(ring.tx.slots);
    free(ring.tx.payload_end);
}

/* Fill until there is no room, read some or all, and so on; all kinds of sizes.
 * The writer changes the part of the area that it uses at any time, of which
 * @a part is the least. */
static int ring_stream(uint32_t slots, unsigned messages, uint32_t part)
{
    const unsigned size = part / 2;
    unsigned sent = 0, read = 0, seed = 1, i, len, some;
    uint32_t start;
    np_slot_t *slot;
    uint64_t word;

    while (read < messages) {
        for (;;) {
            if ((rand_r(&seed) % 5) == 0) {
                ring.tx.payload_part = (ring.tx.payload_part < PAYLOAD) ?
                                       PAYLOAD : part;
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
            if (len != (read * 37) % size) {
                return 0;
            }
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

static void test_held(void)
{
    uint32_t first;
    unsigned i;

    ring_make(4);
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
        ring_make(slots);
        TAP_CHECK(ring_stream(slots, 5000, PAYLOAD), "ring of %u slots", slots);
        ring_free();

        ring_make(slots);
        TAP_CHECK(ring_stream(slots, 5000, PAYLOAD / 4),
                  "ring of %u slots, now and then a part of its area", slots);
        ring_free();
    }

    ring_make(8);
    atomic_store(&ring.head, 5);
    TAP_CHECK(!np_ring_tx_refresh(&ring.tx),
              "a head beyond what was written is refused");
    TAP_CHECK(ring.tx.limit == 8, "and frees nothing");
    ring_free();

    test_held();
}
