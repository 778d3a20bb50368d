/* SPDX-License-Identifier: BSD-3-Clause */
/* A port, and initiators that send whatever the input says: handshakes, slots
 * of both rings, offers to share, and stores anywhere into the segment. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "fuzz.h"

#include "nprdma/clock.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/segment.h"
#include "nprdma/proto/soft/copy.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINKS    3
#define SLOTS    8
#define PAYLOAD  16384
#define FIRST    4096 /* of it */

/* Of our pages that are lent: the first ones, which stay readable */
#define LENT_PAGES (FUZZ_PAGES / 2)
#define PATIENCE 10000

/* The same for what another thread does */
#define PATIENCE_NS UINT64_C(5000000000)

/* The hostile end of a connection */
typedef struct hostile {
    int           fd;
    np_link_shm_t *shm;
    int           shm_fd;
    size_t        size;
    uint32_t      data_tail;
    uint32_t      ctl_tail;
} hostile_t;

static np_port_t *port;
static hostile_t hostiles[LINKS];
static unsigned handed_over;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void target_complete(void *comp, ucs_status_t status)
{
}

static void target_link_down(np_flight_t *flight, ucs_status_t status)
{
}

static const np_user_t target_user = {target_complete, target_link_down};

/* A message reaches the program: every byte is read */
static void target_am(void *arg, uint8_t id, void *data, unsigned len)
{
    volatile uint8_t sum = 0;
    unsigned i;

    fuzz_check_local(data, len);
    for (i = 0; i < len; ++i) {
        sum += ((uint8_t*)data)[i];
    }
    ++handed_over;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const np_port_config_t config = {.data_slots = 8, .payload_size = 4096};

    fuzz_start();
    fuzz_is_target = 1;
    np_lent_begin(FUZZ_OURS, LENT_PAGES * 4096);
    return np_port_open(&config, &np_proto_ops, &target_user, &port) != UCS_OK;
}

/* Where the target has mapped its peers' segments */
unsigned fuzz_get_regions(fuzz_region_t *regions)
{
    unsigned count = 0, i;

    for (i = 0; (i < port->num_peers) && ((count + 1) < FUZZ_REGIONS); ++i) {
        if ((port->peers[i] != NULL) && (port->peers[i]->shm != NULL)) {
            regions[count].base   = port->peers[i]->shm;
            regions[count++].size = port->peers[i]->shm_part;
            if (port->peers[i]->wide_shm != NULL) {
                regions[count].base   = port->peers[i]->wide_shm;
                regions[count++].size = port->peers[i]->shm_size;
            }
        }
    }
    return count;
}

static void target_progress(void)
{
    np_port_housekeep(port);
    np_port_poll(port, target_am, NULL);
    np_port_work(port);
}

static void hostile_close(hostile_t *hostile)
{
    if (hostile->fd >= 0) {
        close(hostile->fd);
        hostile->fd = -1;
    }
    if (hostile->shm != NULL) {
        munmap(hostile->shm, hostile->size);
        close(hostile->shm_fd);
        hostile->shm = NULL;
    }
}

/* A segment as an honest peer makes it */
static int hostile_make_shm(hostile_t *hostile)
{
    void *ptr = NULL;

    hostile->size = np_link_shm_size(SLOTS, PAYLOAD);
    if (np_segment_create("fuzz", hostile->size, &ptr, &hostile->shm_fd) !=
        UCS_OK) {
        return 0;
    }

    hostile->shm       = ptr;
    hostile->data_tail = 0;
    hostile->ctl_tail  = 0;
    np_link_shm_init(hostile->shm, SLOTS, FIRST, PAYLOAD);
    return 1;
}

/* a: what is wrong with the segment, 0: nothing; else b, c say what it has */
static void hostile_connect(hostile_t *hostile, const fuzz_record_t *record)
{
    np_sock_cred_t cred;

    hostile_close(hostile);
    if ((np_sock_connect(port->id, &hostile->fd, &cred) != UCS_OK) ||
        !hostile_make_shm(hostile)) {
        return;
    }

    if (record->a & 1) {
        hostile->shm->data_slots = record->b;
    }
    if (record->a & 2) {
        hostile->shm->payload_size = record->c;
    }
    if (record->a & 4) {
        hostile->shm->magic = record->d;
    }
    if (record->a & 8) {
        hostile->shm->payload_first = record->d;
    }
}

/* a: type; b: what is wrong, and which descriptors; c, d: what it says then */
static void hostile_message(hostile_t *hostile, const fuzz_record_t *record)
{
    np_msg_t msg = {
        .type       = record->a % 6,
        .version    = (record->b & 1) ? record->c : NP_WIRE_VERSION,
        .engine_id  = (record->b & 2) ? record->d : (np_engine.id + 2),
        .cookie     = np_engine.cookie + !!(record->b & 4),
        .size       = (record->b & 8) ? record->d : hostile->size,
        .part       = (record->b & 256) ? record->d :
                      np_link_shm_size(SLOTS, FIRST),
        .bit        = record->c,
        .has_tables = !!(record->b & 16)
    };
    int fds[3] = {
        (record->b & 32) ? fuzz_fd(record->b >> 8) : hostile->shm_fd,
        (record->b & 64) ? fuzz_fd(record->b >> 10) : fuzz_fd(0),
        (record->b & 128) ? fuzz_fd(record->b >> 12) : fuzz_fd(4)
    };

    if ((hostile->fd >= 0) && (hostile->shm != NULL)) {
        np_sock_send(hostile->fd, &msg, fds,
                     (record->a & 0x40) ? ((record->a >> 4) & 3) : 3);
    }
}

static void hostile_publish(np_slot_t *slot, uint32_t *tail,
                            const fuzz_record_t *record, uint8_t kind)
{
    atomic_store(&slot->word, np_slot_word(*tail, record->b, kind,
                                           record->c >> 24));
    ++*tail;
}

/* a: kind; b: length; c, d: offset and address */
static void hostile_data(hostile_t *hostile, const fuzz_record_t *record)
{
    np_slot_t *slot = np_link_shm_data(hostile->shm) +
                      (hostile->data_tail % SLOTS);
    uint32_t offset = record->c & 0xffffff;

    slot->rma.addr   = fuzz_address(record->d);
    slot->rma.offset = offset;
    if ((record->a & 7) <= NP_SLOT_AM_LONG) {
        slot->offset = offset;
    }
    hostile_publish(slot, &hostile->data_tail, record, record->a & 7);
}

/* a: kind; b: number of the answer; more says the rest */
static void hostile_ctl(hostile_t *hostile, const fuzz_record_t *record,
                        const fuzz_record_t *more)
{
    np_slot_t *slot = np_link_shm_ctl(hostile->shm, SLOTS) +
                      (hostile->ctl_tail % NP_CTL_SLOTS);
    fuzz_record_t word = *record;

    word.b = 0;
    word.c = (uint32_t)record->b << 24;
    switch (record->a & 15) {
    case NP_SLOT_ATOMIC:
        slot->atomic = (np_atomic_t){
            .addr    = fuzz_address(record->d),
            .value   = more->d,
            .compare = more->c,
            .op      = more->a,
            .size    = (more->b & 1) ? more->b : 8
        };
        break;
    case NP_SLOT_FAULT:
        slot->fault = (np_slot_fault_t){
            .local  = fuzz_address(more->d),
            .remote = fuzz_address(record->d),
            .len    = record->c,
            .flags  = more->a,
            .epoch  = more->b & 1
        };
        break;
    case NP_SLOT_SHARE:
        slot->share = (np_slot_share_t){record->c, more->c};
        break;
    case NP_SLOT_WHEN:
        slot->when = (np_slot_when_t){
            .remote   = fuzz_address(record->d),
            .len      = record->c,
            .is_write = more->a & 1
        };
        break;
    default:
        memcpy(slot->data, &record->d, sizeof(record->d));
        memcpy(slot->data + 8, more, sizeof(*more));
        break;
    }
    hostile_publish(slot, &hostile->ctl_tail, &word, record->a & 15);
}

static void hostile_share(hostile_t *hostile, const fuzz_record_t *record,
                          const fuzz_record_t *more)
{
    np_share_t *share = &hostile->shm->shares[record->a % NP_LINK_SHARES];
    uint32_t chunk    = (record->b & 0xff) ? (record->b << 4) : record->b;
    uint64_t len      = record->c & 0x3ffff;

    share->args = (np_share_args_t){
        .initiator_va = fuzz_address(more->d),
        .target_va    = fuzz_address(record->d),
        .len          = (more->a & 1) ? more->d : len,
        .chunk        = chunk,
        .chunks       = (more->a & 2) ? more->c :
                        (chunk != 0) ? ucs_div_round_up(len, (uint64_t)chunk) :
                        0,
        .dir          = more->b,
        .cpu          = -1,
        .is_open      = more->a & 8
    };
    atomic_store(&share->claim, ((uint64_t)more->c << 48) |
                                ((more->a & 4) ? more->d : 0));
}

/* Any store: who leaves a word odd is given up */
static void hostile_store(hostile_t *hostile, const fuzz_record_t *record)
{
    size_t at = (record->c % (hostile->size - 8)) & ~7ul;

    memcpy(UCS_PTR_BYTE_OFFSET(hostile->shm, at), &record->d, 8);
}

/* a: which word, of what moves or of what is shared; d: what it says then.
 * Among all stores these would be few. */
static void hostile_word(hostile_t *hostile, const fuzz_record_t *record)
{
    np_link_shm_t *shm = hostile->shm;

    switch (record->a & 3) {
    case 0:
    case 1:
        atomic_store(&shm->moving[(record->a >> 2) % NP_MOVER_LAST].word,
                     record->d);
        break;
    case 2:
        atomic_store(&shm->moving[(record->a >> 2) % NP_MOVER_LAST].ended,
                     record->d);
        break;
    default: /* from the beginning again */
        atomic_fetch_and(&shm->shares[(record->a >> 2) % NP_LINK_SHARES].claim,
                         ~UCS_MASK(48));
        break;
    }
}

/* The program's own doing, in the middle of it */
static void own_memory(const fuzz_record_t *record)
{
    const unsigned number = record->b % FUZZ_PAGES;
    void *page            = (void*)(FUZZ_OURS + (number * 4096));

    if (record->a & 1) {
        np_mapper_unmap((uintptr_t)page, 4096);
    }
    if (record->a & 2) {
        madvise(page, 4096, MADV_DONTNEED);
    }
    if ((record->a & 4) && (number >= LENT_PAGES)) {
        mprotect(page, 4096, (record->a & 8) ? PROT_READ :
                             (PROT_READ | PROT_WRITE));
    }
}

static void step(fuzz_input_t *input, const fuzz_record_t *record)
{
    hostile_t *hostile = &hostiles[(record->op >> 4) % LINKS];
    fuzz_record_t more;
    unsigned i;

    switch (record->op & 15) {
    case 0:
        hostile_connect(hostile, record);
        break;
    case 1:
        hostile_message(hostile, record);
        break;
    case 2:
        hostile_close(hostile);
        break;
    case 3:
        own_memory(record);
        break;
    case 4:
    case 5:
        for (i = 0; i <= (record->a & 7u); ++i) {
            target_progress();
        }
        break;
    default:
        if (hostile->shm == NULL) {
            break;
        }
        switch (record->op & 15) {
        case 6:
        case 7:
        case 8:
            hostile_data(hostile, record);
            break;
        case 9:
        case 10:
        case 11:
            fuzz_next(input, &more);
            hostile_ctl(hostile, record, &more);
            break;
        case 12:
            fuzz_next(input, &more);
            hostile_share(hostile, record, &more);
            break;
        case 13:
            hostile_word(hostile, record);
            break;
        default:
            hostile_store(hostile, record);
            break;
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size, 0};
    fuzz_record_t record;
    uint64_t begin;
    unsigned i;

    for (i = 0; i < LINKS; ++i) {
        hostiles[i] = (hostile_t){.fd = -1};
    }
    while (fuzz_next(&input, &record)) {
        step(&input, &record);
    }
    target_progress();

    /* They go, and nothing of them stays */
    for (i = 0; i < LINKS; ++i) {
        hostile_close(&hostiles[i]);
    }
    /* a thread that discards what was sent has a copy of our end for a
     * moment */
    begin = np_clock();
    for (i = 0; ((i < PATIENCE) || ((np_clock() - begin) < PATIENCE_NS)) &&
                ((port->num_peers > 0) || (port->num_strangers > 0)); ++i) {
        target_progress();
    }
    if ((port->num_peers > 0) || (port->num_strangers > 0) || !ucs_list_is_empty(&port->helps)) {
        fuzz_fail("a peer that is gone stays", port, port->num_peers);
    }

    mprotect((void*)FUZZ_OURS, FUZZ_SIZE, PROT_READ | PROT_WRITE);
    return 0;
}
