/* SPDX-License-Identifier: BSD-3-Clause */
/* A port of an RNIC that is not there (test/verbs/mock_verbs.h), and peers that
 * say whatever the input says: datagrams of the handshake, messages to both
 * sides of a connection, writes with immediate, failing queue pairs; with the
 * kernel module's stand-in or without. What the port sends goes nowhere. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "fuzz.h"

#include "../verbs/mock_kmod.h"
#include "../verbs/mock_verbs.h"

#include "nprdma/dev/verbs/hello.h"
#include "nprdma/dev/verbs/views.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"
#include "nprdma/face/rnic.h"
#include "nprdma/proto/rnic/rput.h"

#include <string.h>
#include <sys/mman.h>

#define LINKS     2          /* of ours */
#define CONNS     4          /* that hostile links may ask for */
#define NAMES     8          /* of operations that hostile links use */
#define UNPACKED  512

static np_vport_t *port;
static np_vlink_t links[LINKS];
static int is_open[LINKS];
static np_key_t *key;
static unsigned handed_over;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void on_complete(void *comp, ucs_status_t status)
{
}

static void on_down(np_flight_t *flight, ucs_status_t status)
{
}

static void touch(const void *data, size_t len)
{
    volatile uint8_t sum = 0;
    size_t i;

    fuzz_check_local(data, len);
    for (i = 0; i < len; ++i) {
        sum += ((const uint8_t*)data)[i];
    }
    ++handed_over;
}

/* A message reaches the program: every byte is read */
static void on_am(void *arg, uint8_t id, void *data, unsigned len)
{
    touch(data, len);
}

/* What a get brings is as long as what was asked for */
static void unpack(void *arg, const void *data, size_t len)
{
    if (len != (uintptr_t)arg) {
        fuzz_fail("bytes that nobody asked for", data, len);
    }
    touch(data, len);
}

/* Where bytes of messages may be */
unsigned fuzz_get_regions(fuzz_region_t *regions)
{
    unsigned count = 0;

    if (port != NULL) {
        regions[count++] = (fuzz_region_t){port->slab, port->slab_size};
        if (port->stage.bytes != NULL) {
            regions[count++] = (fuzz_region_t){port->stage.bytes,
                                               NP_STAGE_SIZE};
        }
    }
    return count;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const np_arenas_t arenas = {FUZZ_OURS >> NP_ARENA_SHIFT, 1};
    np_packed_key_t packed;

    fuzz_start();
    fuzz_is_target = 1;
    mock_swallows  = 1;
    np_key_pack_arenas(&packed, arenas);
    return (np_key_unpack(&packed, &key) == UCS_OK) ? 0 : 1;
}

static int open_port(void)
{
    const np_vport_config_t config = {
        .device            = "mock0:1",
        .gid_index         = -1,
        .recv_buffers      = 16,
        .send_buffers      = 8,
        .sq_size           = 16,
        .credits           = 8,
        .direct_min        = 8192,
        .chunk             = 16384,
        .depth             = 2,
        .pin_max           = 1 << 20,
        .put_once          = 8,
        .connect_timeout   = 60,
        .timeout           = 16,
        .retry_count       = 6,
        .reconnect_timeout = 5
    };
    const np_vuser_t user          = {
        .am        = on_am,
        .complete  = on_complete,
        .link_down = on_down
    };

    return np_vport_open(&config, &np_vlink_ops, &user, &port) == UCS_OK;
}

static void progress(unsigned count)
{
    for (; count > 0; --count) {
        np_vport_progress(port);
        np_vport_look_next(port); /* with what is seen to now and then */
    }
    if (port->has_views) {
        np_views_wait(port->nic);
    }
}

/* The n-th connection, of links of ours or of hostile ones; NULL: none */
static np_conn_t *find_conn(int is_link, unsigned n)
{
    np_conn_t *conn, *found = NULL;
    unsigned count = 0;

    kh_foreach_value(&port->conns, conn,
        if ((conn->is_link == is_link) && (conn->state == NP_CONN_READY) &&
            ((found == NULL) || (count++ < n))) {
            found = conn;
        }
    );
    return found;
}

/* a: kind; b: what is wrong with it; c, d: what it says then */
static void say_hello(const fuzz_record_t *record)
{
    np_conn_t *conn  = is_open[record->c % LINKS] ?
                       links[record->c % LINKS].conn : NULL;
    np_hello_t hello = {
        .magic     = NP_VWIRE_MAGIC,
        .version   = NP_VWIRE_VERSION,
        .kind      = record->a % 6,
        .engine_id = 77,
        .cookie    = port->cookie,
        .link_id   = 1 + (record->c % CONNS),
        .epoch     = (record->b >> 8) & 3,
        .credits   = 8,
        .qpn       = 1,
        .ud_qpn    = 2,
        .is_roce   = 1,
        .mtu       = IBV_MTU_1024,
        .reads     = 4
    };

    memcpy(hello.gid, port->nic->gid.raw, sizeof(hello.gid));
    if ((hello.kind != NP_HELLO_REQUEST) && (conn != NULL)) {
        hello.engine_id = np_engine.id;
        hello.cookie    = conn->hello.cookie;
        hello.link_id   = conn->link_id;
        hello.epoch     = conn->epoch;
        hello.taken     = conn->tx_acked;
    }
    if (record->b & 1) {
        hello.credits = record->d;
    }
    if (record->b & 2) {
        hello.taken += record->d;
    }
    if (record->b & 4) {
        hello.status = record->d;
    }
    if (record->b & 8) {
        hello.mtu   = record->d;
        hello.reads = record->d >> 8;
    }
    if (record->b & 16) {
        hello.cookie += 1;
    }
    if (record->b & 32) {
        hello.version = record->d;
    }
    if (record->b & 64) {
        memcpy(hello.gid, &record->d, sizeof(record->d));
    }
    np_hello_received(port, &hello, (record->b & 128) ? record->d % 128 :
                      sizeof(hello));
}

/* A name that somebody may know: small ones are hostile links', else one of
 * ours */
static uint32_t name_of(const np_conn_t *conn, uint32_t c)
{
    np_op_t *op;

    if (!conn->is_link || (c & 0x80)) {
        return 1 + (c % NAMES);
    }

    if (conn->link != NULL) {
        ucs_list_for_each(op, &conn->link->flight.ops, list) {
            if ((c-- & 0x7f) == 0) {
                return op->name;
            }
        }
    }
    return 0;
}

/* a: kind and flags; b: bytes behind it; c: name, lengths; more: the rest */
static void say(np_conn_t *conn, const fuzz_record_t *record,
                const fuzz_record_t *more)
{
    static struct {
        np_vctl_t ctl;
        uint8_t   bytes[NP_VSEG_SIZE];
    } message;
    size_t len = sizeof(np_vctl_t);

    memset(&message, record->d, sizeof(message));
    message.ctl = (np_vctl_t){
        .msg  = {
            .kind  = record->a % (NP_VMSG_LAST + 1),
            .id    = more->a % 8,
            .flags = more->op,
            .size  = (more->b & 0x100) ? more->b : 8,
            .ack   = conn->tx_acked + ((more->b & 0x200) ? more->c : 1)
        },
        .body = {
            .op       = name_of(conn, record->c),
            .status   = (more->b & 0x400) ? (int32_t)more->c : 0,
            .addr     = fuzz_address(record->d),
            .len      = (more->b & 0x800) ? more->d : (record->c >> 8) & 0x1ffff,
            .offset   = (more->b & 0x1000) ? more->d : more->c & 0x1ffff,
            .compare  = more->d,
            .rkey     = more->b & 3,
            .reserved = more->c
        }
    };

    if (message.ctl.msg.kind == NP_VMSG_AM) {
        len = sizeof(np_vmsg_t);
    }
    len = (record->a & 0x80) ? (record->b % (len + 1)) : len + record->b;
    mock_receive(conn->qpn, &message, ucs_min(len, (size_t)NP_VSEG_SIZE));
    progress(1);
}

static void open_link(unsigned n)
{
    np_vdev_addr_t dev;
    np_vport_addr_t addr;

    if (!is_open[n]) {
        np_vport_get_dev_addr(port, &dev);
        np_vport_get_addr(port, &addr);
        addr.cookie   += 1; /* of nobody: hostile ones answer */
        addr.engine_id = np_engine.id;
        np_vlink_init(&links[n], port, &dev, &addr);
        is_open[n] = 1;
    }
    (void)np_ep_check(&links[n].flight);
}

static void close_link(unsigned n)
{
    if (is_open[n]) {
        np_ep_cancel(&links[n].flight, UCS_ERR_CANCELED);
        np_ep_close(&links[n].flight);
        is_open[n] = 0;
    }
}

static size_t pack(void *dest, void *arg)
{
    memset(dest, 7, (uintptr_t)arg);
    return (uintptr_t)arg;
}

/* a: what our program does; c: bytes; d: where */
static void post(np_vlink_t *link, const fuzz_record_t *record)
{
    static uint64_t result;
    const uint64_t addr = FUZZ_OURS + (record->d % (FUZZ_SIZE / 2));
    const size_t small  = 1 + (record->c % UNPACKED);
    np_iov_t iov        = {
        (void*)(FUZZ_THEIRS + ((record->d >> 32) % (FUZZ_SIZE / 2))),
        1 + (record->c % (FUZZ_SIZE / 2))
    };

    switch (record->a % 9) {
    case 0:
        (void)np_vlink_am_short(link, 1, 2, &result, sizeof(result));
        break;
    case 1:
        (void)np_ep_put_copied(&link->flight, key, (void*)FUZZ_THEIRS, small,
                               addr);
        break;
    case 2:
    case 3:
        (void)np_ep_move((record->a % 9) == 2 ? NP_DIR_PUT : NP_DIR_GET,
                         &link->flight, key, &iov, 1, addr, NULL);
        break;
    case 4:
        (void)np_ep_get_unpack(&link->flight, key, small, addr, unpack,
                               (void*)small, NULL);
        break;
    case 5:
        (void)np_ep_atomic(&link->flight, key,
                           &(np_atomic_t){.addr = addr & ~7ul, .value = 1,
                                          .compare = 2,
                                          .op = record->b % NP_ATOMIC_LAST,
                                          .size = 8},
                           &result, NULL);
        break;
    case 6:
        (void)np_ep_flush(&link->flight, NULL);
        break;
    case 7:
        (void)np_ep_put_packed(&link->flight, key, pack, (void*)small, addr);
        break;
    default:
        np_ep_fence(&link->flight);
        break;
    }
}

/* The program's own doing, and the kernel's, in the middle of it */
static void own_memory(const fuzz_record_t *record)
{
    void *page = (void*)(((record->a & 4) ? FUZZ_THEIRS : FUZZ_OURS) +
                         ((record->b % FUZZ_PAGES) * 4096));

    if (record->a & 1) {
        np_mapper_unmap((uintptr_t)page, 4096);
    }
    if (record->a & 2) {
        madvise(page, 4096, MADV_DONTNEED);
    }
    if (record->a & 8) {
        mock_kmod_take(page, 4096);
    }
}

static void step(fuzz_input_t *input, const fuzz_record_t *record)
{
    const unsigned n = (record->op >> 4) % CONNS;
    np_conn_t *conn;
    fuzz_record_t more;

    if ((record->op & 15) == 3) {
        own_memory(record);
        return;
    }

    /* what follows goes into the middle of the engine, beside its threads */
    NP_TURN_WAIT(&port->turn);
    switch (record->op & 15) {
    case 0:
    case 1:
        say_hello(record);
        break;
    case 2:
        if (record->a & 1) {
            close_link(n % LINKS);
        } else {
            open_link(n % LINKS);
        }
        break;
    case 4:
        progress(1 + (record->a & 7u));
        break;
    case 5: /* what Reads of ours bring */
        mock_swallowed = record->a;
        break;
    case 6:
    case 8:
    case 9:
        if (is_open[n % LINKS]) {
            post(&links[n % LINKS], record);
        }
        break;
    case 7:
    case 10:
        conn = find_conn(record->a & 1, n);
        if ((conn != NULL) && ((record->op & 15) == 7)) {
            np_conn_break(conn);
            np_conn_probe(conn);
        } else if (conn != NULL) {
            mock_written(conn->qpn, name_of(conn, record->c));
        }
        progress(1);
        break;
    default:
        fuzz_next(input, &more);
        conn = find_conn((record->op & 15) >= 14, n);
        if (conn != NULL) {
            say(conn, record, &more);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size, 0};
    fuzz_record_t record;
    unsigned i;

    mock_kmod_is_loaded = (size > 0) && (data[size - 1] & 1);
    mock_swallowed      = 0;
    if (!open_port()) {
        fuzz_fail("no port", NULL, 0);
    }

    while (fuzz_next(&input, &record)) {
        step(&input, &record);
    }
    progress(2);

    for (i = 0; i < LINKS; ++i) {
        close_link(i);
    }
    progress(2);
    np_vport_close(port);
    port = NULL;
    if (mock_live_ahs() > 0) {
        fuzz_fail("ways to peers that are gone", NULL, mock_live_ahs());
    }
    return 0;
}
