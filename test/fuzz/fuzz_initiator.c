/* SPDX-License-Identifier: BSD-3-Clause */
/* A link, and a target that answers whatever the input says: messages, heads,
 * statuses, answers, shares, a directory, and keys that were packed by
 * nobody. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "fuzz.h"

#include "nprdma/dev/soft/claim.h"
#include "nprdma/mem/key.h"
#include "nprdma/segment.h"
#include "nprdma/mem/table.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/rma.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS     8
#define PAYLOAD   4096
#define TARGET_ID UINT64_C(0x7700000000000077)
#define PORT_ID   UINT64_C(0xf00d00000000f00d)
#define MAX_OPS   128
#define PATIENCE  10000

static np_port_t *port;
static np_link_t link_;
static int listen_fd = -1;
static int spare_fd  = -1;
static int fake_directory_fd;
static np_directory_t *fake_directory;
static np_table_t *fake_table;

/* The hostile end */
static int target_fd;
static np_link_shm_t *target_shm;
static size_t target_size;

static np_key_t *key;
static void *buffers[MAX_OPS];
static unsigned num_buffers;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void initiator_complete(void *comp, ucs_status_t status)
{
}

static void initiator_link_down(np_flight_t *flight, ucs_status_t status)
{
}

static const np_user_t initiator_user = {initiator_complete,
                                         initiator_link_down};

static void initiator_am(void *arg, uint8_t id, void *data, unsigned len)
{
}

static void initiator_unpack(void *arg, const void *data, size_t len)
{
    fuzz_check_local(data, len);
    memcpy(arg, data, len);
}

/* As large as an honest one, of which size and magic are known */
static void make_fake_directory(void)
{
    struct stat st;
    void *ptr;

    if (fstat(np_directory_fd(), &st) != 0) {
        fuzz_fail("no directory", NULL, 0);
    }
    fake_directory_fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fake_directory_fd, st.st_size) != 0) {
        fuzz_fail("no room for a directory", NULL, st.st_size);
    }
    fcntl(fake_directory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    ptr = mmap(NULL, NP_TABLE_HEAD_SIZE + NP_TABLE_SIZE, PROT_READ | PROT_WRITE,
               MAP_SHARED, fake_directory_fd, 0);
    if (ptr == MAP_FAILED) {
        fuzz_fail("no mapping of a directory", NULL, st.st_size);
    }
    fake_directory = ptr;
    fake_table     = UCS_PTR_BYTE_OFFSET(ptr, NP_TABLE_HEAD_SIZE);
}

static void reset_fake_directory(void)
{
    fake_directory->magic     = np_directory_own()->magic;
    fake_directory->version   = np_directory_own()->version;
    fake_directory->arenas[0] = FUZZ_OURS >> NP_ARENA_SHIFT;
    atomic_store(&fake_directory->count, 1);
    memset((void*)&fake_table->views[np_page_index(FUZZ_OURS)], 0, FUZZ_PAGES);
    memset((void*)&fake_table->entries[np_page_index(FUZZ_OURS)], 0,
           FUZZ_PAGES * sizeof(fake_table->entries[0]));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const np_port_config_t config = {
        .data_slots   = SLOTS,
        .payload_size = PAYLOAD
    };

    fuzz_start();
    make_fake_directory();
    if ((np_sock_listen(PORT_ID ^ getpid(), &listen_fd) != UCS_OK) ||
        (np_port_open(&config, &np_proto_ops, &initiator_user, &port) !=
         UCS_OK)) {
        fuzz_fail("no port", NULL, 0);
    }
    return 0;
}

/* Take the link's connection in, as soon as there is one */
static void target_accept(void)
{
    np_sock_cred_t cred;
    unsigned num_fds;
    np_msg_t msg;
    int fds[NP_MSG_MAX_FDS];
    void *ptr;

    if ((target_fd >= 0) ||
        (np_sock_accept(listen_fd, &spare_fd, &target_fd, &cred) != UCS_OK)) {
        return;
    }
    if (np_sock_recv(target_fd, &msg, fds, &num_fds) != UCS_OK) {
        return;
    }
    if ((num_fds > 0) && (np_segment_map(fds[0], msg.size, &ptr) == UCS_OK)) {
        target_shm  = ptr;
        target_size = msg.size;
    }
    while (num_fds > 0) {
        close(fds[--num_fds]);
    }
}

static void target_close(void)
{
    if (target_fd >= 0) {
        close(target_fd);
        target_fd = -1;
    }
}

unsigned fuzz_get_regions(fuzz_region_t *regions)
{
    regions[0].base = link_.shm;
    regions[0].size = np_link_shm_size(SLOTS, PAYLOAD);
    return link_.shm != NULL;
}

static void link_progress(void)
{
    np_port_housekeep(port);
    np_port_poll(port, initiator_am, NULL);
    np_port_work(port);
    target_accept();
}

static void make_key(const np_packed_key_t *packed)
{
    np_key_t *unpacked;

    if (np_key_unpack(packed, &unpacked) == UCS_OK) {
        if (key != NULL) {
            np_key_release(key);
        }
        key = unpacked;
    }
}

/* Of the memory that the target owns, as the target would have packed it */
static void make_good_key(void)
{
    np_packed_key_t packed;

    np_key_pack_arenas(&packed, (np_arenas_t){FUZZ_OURS >> NP_ARENA_SHIFT, 1});
    packed.engine_id = TARGET_ID;
    make_key(&packed);
}

/* a: which of the fields are right; the next records are the rest of the
 * bytes */
static void any_key(fuzz_input_t *input, const fuzz_record_t *record)
{
    np_packed_key_t good, packed;
    fuzz_record_t more[3];
    unsigned i;

    for (i = 0; i < 3; ++i) {
        fuzz_next(input, &more[i]);
    }
    memcpy(&packed, more, sizeof(packed));
    np_key_pack_arenas(&good, (np_arenas_t){FUZZ_OURS >> NP_ARENA_SHIFT, 1});
    if (record->a & 1) {
        packed.magic   = good.magic;
        packed.version = good.version;
    }
    if (record->a & 2) {
        packed.engine_id = TARGET_ID;
    }
    if (record->a & 4) {
        packed.arena_first = good.arena_first;
        packed.arena_count = good.arena_count;
    }
    if (record->a & 8) { /* a segment of 16 pages, or so */
        packed.segment_id = 7;
        packed.va         = FUZZ_OURS;
        packed.len        = (record->c & 0xfffff) + 1;
    }
    make_key(&packed);
}

static void *new_buffer(size_t len)
{
    if (num_buffers == MAX_OPS) {
        return NULL;
    }
    buffers[num_buffers] = malloc(ucs_max(len, (size_t)8));
    memset(buffers[num_buffers], 0x5a, ucs_max(len, (size_t)8));
    return buffers[num_buffers++];
}

static void post_message(size_t len)
{
    np_slot_t *slot;
    uint32_t start;
    void *data;

    if (len <= NP_SLOT_INLINE) {
        if (np_soft_reserve_inline(&link_, &slot) == UCS_OK) {
            memset(slot->data, 1, len);
            np_fast_send_inline(&link_, slot, 5, len);
        }
    } else if ((len <= (PAYLOAD / 2 - NP_FAST_SKEW)) &&
               (np_soft_reserve(&link_, len, &data, &start) == UCS_OK)) {
        memset(data, 1, len);
        np_fast_send(&link_, 5, start, len);
    }
}

/* a: what; b: how; c: length; d: where */
static void post(const fuzz_record_t *record)
{
    uint64_t addr = fuzz_address(record->d);
    size_t len    = record->c & 0x1ffff;
    size_t small  = ucs_min(len, (size_t)1024);
    size_t word   = (record->b & 2) ? 4 : 8;
    void *buffer  = new_buffer(len);
    void *comp    = (record->b & 1) ? &num_buffers : NULL;
    np_iov_t iov  = {buffer, len};

    if ((buffer == NULL) || (link_.flight.gate & NP_GATE_DOWN)) {
        return;
    }

    switch (record->a & 7) {
    case 0:
        np_ep_move(NP_DIR_PUT, &link_.flight, key, &iov, 1, addr, comp);
        break;
    case 1:
        np_ep_move(NP_DIR_GET, &link_.flight, key, &iov, 1, addr, comp);
        break;
    case 2:
        np_soft_put_short(&link_, key, buffer, small, addr);
        break;
    case 3:
        np_soft_get_bcopy(&link_, key, small, addr, initiator_unpack, buffer,
                         comp);
        break;
    case 4:
        np_rma_get_now(&link_, key, buffer, small, addr);
        break;
    case 5:
        np_ep_atomic(&link_.flight, key,
                     &(np_atomic_t){
                         .addr = addr & ~(word - 1),
                         .value = 1,
                         .compare = 2,
                         .op = (record->b >> 8) % NP_ATOMIC_LAST,
                         .size = word
                     },
                     buffer, comp);
        break;
    case 6:
        post_message(len);
        break;
    default:
        if (record->b & 1) {
            np_flight_fence(&link_.flight);
        } else {
            np_flight_flush(&link_.flight, NULL);
        }
        break;
    }
}

/* a: type; b: which descriptors; c, d: the rest */
static void target_message(const fuzz_record_t *record)
{
    np_msg_t msg = {
        .type       = (record->a & 0x80) ? (record->a & 7) :
                      (record->a & 2) ? NP_MSG_SEGMENT : NP_MSG_ACCEPT,
        .version    = NP_WIRE_VERSION,
        .size       = (record->b & 1) ? record->d : (16 * 4096),
        .segment_id = (record->b & 2) ? record->d : 7,
        .bit        = record->c,
        .has_tables = !(record->b & 4)
    };
    int fds[3] = {
        (record->b & 8) ? fuzz_fd(record->b >> 8) : fuzz_fd(0),
        (record->b & 16) ? fuzz_fd(record->b >> 10) : fake_directory_fd,
        fuzz_fd(record->b >> 12)
    };

    if (msg.type == NP_MSG_SEGMENT) {
        fds[0] = (record->b & 8) ? fds[0] : fuzz_fd(2);
    }
    if (target_fd >= 0) {
        np_sock_send(target_fd, &msg, fds,
                     (record->b & 64) ? (record->c & 3) :
                     (msg.type == NP_MSG_SEGMENT) ? 1 : 2);
        atomic_store(&target_shm->accepted, 1);
    }
}

/* To request a, as it has asked or another; b: status */
static void target_answer(const fuzz_record_t *record)
{
    np_slot_t *ctl      = np_link_shm_ctl(target_shm, SLOTS);
    unsigned index      = record->a % NP_CTL_SLOTS;
    np_answer_t *answer = &target_shm->answers[index];
    uint32_t request    = record->c;
    uint64_t word;
    unsigned i;

    for (i = 0; i < NP_CTL_SLOTS; ++i) {
        word = atomic_load(&ctl[i].word);
        if ((np_word_id(word) == index) && (record->c == 0)) {
            request = (uint32_t)word;
        }
    }
    answer->result = record->d;
    atomic_store(&answer->word,
                 np_answer_word(request, (ucs_status_t)-(int)(record->b & 0xff)));
}

/* Chunks that it has claimed it has done, or not */
static void target_share(const fuzz_record_t *record)
{
    np_share_t *share = &target_shm->shares[record->a % NP_LINK_SHARES];
    uint64_t claim    = atomic_load(&share->claim);

    if (record->a & 2) {
        share->status = (int8_t)record->b;
    }
    if (record->a & 4) { /* all of it, or more */
        atomic_store(&share->claim,
                     (claim & ~(UCS_MASK(24) << 24)) |
                     ((uint64_t)(record->c & 0xffffff) << 24));
    } else {
        atomic_store(&share->claim, (claim & ~UCS_MASK(48)) |
                                    (record->d & UCS_MASK(48)));
    }
    if (!(record->a & 8)) {
        atomic_store(&share->done,
                     np_claim_back(atomic_load(&share->claim)));
    }
}

/* a: whose word; d: what it says then */
static void target_moving(const fuzz_record_t *record)
{
    np_moving_t *moving =
            &target_shm->moving[(record->a >> 1) % NP_MOVER_LAST];

    if (record->a & 1) {
        atomic_store(&moving->word, record->d);
    } else {
        atomic_store(&moving->ended, record->d);
    }
}

static void target_heads(const fuzz_record_t *record)
{
    atomic_store(&target_shm->data_head, (record->a & 1) ? record->c :
                                         link_.data.tail);
    atomic_store(&target_shm->ctl_head, (record->a & 2) ? record->c :
                                        link_.ctl.tail);
    atomic_store(&target_shm->polled, record->b & 1);
}

static void target_store(const fuzz_record_t *record)
{
    size_t at = (record->c % (target_size - 8)) & ~7ul;

    memcpy(UCS_PTR_BYTE_OFFSET(target_shm, at), &record->d, 8);
}

static void target_directory(const fuzz_record_t *record)
{
    unsigned page = np_page_index(FUZZ_OURS) + (record->b % FUZZ_PAGES);

    switch (record->a & 3) {
    case 0:
        atomic_store(&fake_directory->count, record->c);
        break;
    case 1:
        fake_directory->arenas[record->b % NP_TABLE_ARENAS] =
                (record->c & 1) ? (FUZZ_OURS >> NP_ARENA_SHIFT) : record->d;
        break;
    case 2:
        memset((void*)&fake_table->views[np_page_index(FUZZ_OURS)], record->c,
               FUZZ_PAGES);
        break;
    default:
        atomic_store(&fake_table->entries[page], record->c);
        break;
    }
}

static void step(fuzz_input_t *input, const fuzz_record_t *record)
{
    unsigned i;

    switch (record->op & 15) {
    case 0:
    case 1:
        post(record);
        return;
    case 7:
        for (i = 0; i <= (record->a & 7u); ++i) {
            link_progress();
        }
        return;
    case 8:
        target_close();
        return;
    case 9:
        any_key(input, record);
        return;
    case 10:
        target_directory(record);
        return;
    case 11: /* our memory goes */
        madvise((void*)(FUZZ_THEIRS + ((record->b % FUZZ_PAGES) * 4096)), 4096,
                MADV_DONTNEED);
        return;
    default:
        break;
    }

    target_accept();
    if (target_shm == NULL) {
        return;
    }
    switch (record->op & 15) {
    case 2:
        target_answer(record);
        break;
    case 3:
        target_heads(record);
        break;
    case 4:
        target_message(record);
        break;
    case 5:
        np_link_shm_data(target_shm)[record->a % SLOTS].rma.status =
                (int8_t)record->b;
        break;
    case 6:
        target_share(record);
        break;
    case 12:
        target_moving(record);
        break;
    default:
        target_store(record);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const np_port_addr_t addr = {
        .port_id   = PORT_ID ^ getpid(),
        .engine_id = TARGET_ID,
        .cookie    = 1
    };
    fuzz_input_t input = {data, size, 0};
    fuzz_record_t record;
    int fd;
    np_sock_cred_t cred;
    unsigned i;

    target_fd  = -1;
    target_shm = NULL;
    reset_fake_directory();
    make_good_key();
    np_link_init(&link_, port, &addr);
    while (fuzz_next(&input, &record)) {
        step(&input, &record);
    }
    link_progress();

    /* The target goes: whatever is outstanding ends */
    for (i = 0; (i < PATIENCE) &&
                ((i == 0) || (link_.flight.outstanding > 0)); ++i) {
        target_close(); /* also if it has not taken it in before */
        link_progress();
    }
    if (link_.flight.outstanding > 0) {
        fuzz_fail("operations that never end", &link_, link_.flight.outstanding);
    }

    np_ep_close(&link_.flight);
    if (target_shm != NULL) {
        munmap(target_shm, target_size);
    }
    while (np_sock_accept(listen_fd, &spare_fd, &fd, &cred) == UCS_OK) {
        close(fd);
    }
    np_key_release(key);
    key = NULL;
    while (num_buffers > 0) {
        free(buffers[--num_buffers]);
    }
    return 0;
}
