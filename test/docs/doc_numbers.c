/* SPDX-License-Identifier: BSD-3-Clause */
/* What documents say in numbers, with the numbers of the code: a line for each,
 * the document, a tab, and a phrase that it must have. For docs.t. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "../engine/pair.h"
#include "../engine/tap.h"

#include "nprdma/start.h"
#include "nprdma/stats.h"
#include "nprdma/dev/soft/claim.h"
#include "nprdma/dev/soft/dma.h"
#include "nprdma/dev/soft/mail.h"
#include "nprdma/dev/soft/port.h"
#include "nprdma/dev/soft/tlb.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/signature.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/soft/copy.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/fault.h"
#include "nprdma/proto/soft/rma.h"

#ifdef HAVE_VERBS
#  include "nprdma/dev/verbs/vport.h"
#  include "nprdma/dev/verbs/vwire.h"
#  include "nprdma/proto/rnic/rput.h"
#  include "nprdma/dev/verbs/vremote.h"
#endif

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


unsigned tap_count, tap_failures; /* of pair.c; nothing is counted */

#define PROTOCOL  "docs/design/protocol.md"
#define DECISIONS "docs/design/decisions.md"
#define GUIDE     "docs/guide/user-guide.md"
#define OPS       "docs/guide/operations.md"
#define MAN       "docs/man/nprdma.7"


__attribute__((format(printf, 2, 3)))
static void say(const char *document, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    printf("%s\t", document);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static unsigned long kib(size_t bytes)
{
    return ucs_align_up_pow2(bytes, (size_t)1024) / 1024;
}

/* Descriptors of this process */
static unsigned files(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    if (dir == NULL) {
        perror("/proc/self/fd");
        exit(1);
    }

    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

/* One link, both ends of which are here: as many as a process has for a peer
 * that it talks to, and that answers */
static void say_files(void)
{
    static const char *const number[] = {
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight"
    };
    unsigned before, between, peer, port;
    np_port_t *first, *second;
    np_link_t link;

    first = pair_port(); /* and what a process has once */
    (void)np_directory_fd();
    before  = files();
    second  = pair_port();
    between = files();
    pair_link(first, second, &link);
    pair_send(&link);
    if (!pair_wait_received(first, second, 1)) {
        fprintf(stderr, "no message has come\n");
        exit(1);
    }
    np_port_housekeep(first); /* the ACCEPT */

    port = between - before;
    peer = files() - between;
    if ((peer >= ucs_static_array_size(number)) ||
        (port >= ucs_static_array_size(number))) {
        fprintf(stderr, "%u and %u descriptors?\n", peer, port);
        exit(1);
    }

    say("README.md", "%s descriptors for each peer", number[peer]);
    say(GUIDE, "%u for each peer that was talked to", peer);
    say(GUIDE, "%u for each worker", port);
    say(OPS, "%s descriptors for each peer and worker", number[peer]);
    say(OPS, "`fs.file-max` | more than %u x ranks x ranks", peer);
    say(MAN, "%c%s file descriptors for each peer that was talked to, and %s "
        "for each UCX worker", number[peer][0] - 'a' + 'A', number[peer] + 1,
        number[port]);
    say("docs/man/nprdma_info.1", "allows %s descriptors for each peer",
        number[peer]);
    np_ep_close(&link.flight);
    np_proto_close(first);
    np_proto_close(second);
}

static void say_protocol(void)
{
    say(PROTOCOL, "Version %u (`NP_WIRE_VERSION`)", NP_WIRE_VERSION);
    say(PROTOCOL, "first page | data slots | %u control slots | %u inline "
        "areas | payload", NP_CTL_SLOTS, NP_CTL_SLOTS);
    say(PROTOCOL, "inline areas, %lu KiB each", kib(NP_INLINE_SIZE));
    say(PROTOCOL, "A slot is %zu bytes: an %zu-byte word and %u bytes of "
        "content", sizeof(np_slot_t), sizeof(uint64_t), NP_SLOT_INLINE);
    say(PROTOCOL, "up to %u of its peers' rings", NP_PORT_HOT);
    say(PROTOCOL, "More than %u peers share bits", NP_PORT_ACTIVITY);
    say(PROTOCOL, "every %u us of progress", NP_PORT_HOUSEKEEP_USEC);
    say(PROTOCOL, "A packed key has %zu bytes", sizeof(np_packed_key_t));
    say(PROTOCOL, "four bytes in each %u-byte unit", NP_DMA_UNIT);
    say(PROTOCOL, "A link has %u requests and as many inline areas: so it "
        "retains at most %lu KiB", NP_CTL_SLOTS,
        kib(NP_CTL_SLOTS * NP_INLINE_SIZE));
    say(PROTOCOL, "stays odd for %llu s (`NP_PATIENCE`",
        NP_PATIENCE / 1000000000ull);
    say(PROTOCOL, "slices of at most %llu ms", NP_PATIENCE_SLICE / 1000000ull);
    say(PROTOCOL, "not taken for %u us", NP_MAIL_PATIENCE_NS / 1000);
    say(PROTOCOL, "asks again, %lu us later at first and %lu ms at last",
        NP_MAIL_RETRY_MIN_NS / 1000, NP_MAIL_RETRY_MAX_NS / 1000000);
    say(PROTOCOL, "a link has at most %u copies outstanding", NP_TRANSFERS_MAX);
    say(PROTOCOL, "in what one progress may copy (%llu MiB)",
        (unsigned long long)NP_COPY_QUANTUM / UCS_MBYTE);
}

static void say_limits(void)
{
    const np_port_config_t config = {.data_slots = 128, .payload_size = 32768};
    const size_t bcopy   = np_rma_max_bcopy(&config);
    const size_t segment = np_link_shm_size(128, 32768) -
                           (NP_CTL_SLOTS * NP_INLINE_SIZE);

    say(GUIDE, "half of `RING_BYTES`, at most %zu bytes", bcopy);
    say(GUIDE, "scatter list | %u elements", NP_MAX_IOV);
    say(GUIDE, "must allow a segment of a link (%lu KiB by default, of which "
        "%lu KiB are used at first, and %lu KiB of addresses)",
        kib(np_link_shm_size(128, 2 * UCS_MBYTE)), kib(segment),
        kib(np_link_shm_size(128, 32768)));
    say(GUIDE, "up to `%luk` |", kib(NP_INLINE_SIZE));
    say(MAN, "at most %zu bytes, is the largest active message", bcopy);
    say(MAN, "%u elements in a scatter list; active messages up to %zu bytes",
        NP_MAX_IOV, bcopy);
    say(MAN, "of shared memory (%lu KiB by default)", kib(segment));
    say(MAN, "Model the translation cache of an RNIC on soft0 (%u entries, "
        "%u-way)", NP_TLB_SETS * NP_TLB_WAYS, NP_TLB_WAYS);
    say(OPS, "L = %zu KiB + 64 (S + %u) + B, rounded up to pages = %lu KiB "
        "with S = 128, B = 32 KiB",
        ucs_align_up_pow2(sizeof(np_link_shm_t), (size_t)4096) / 1024,
        NP_CTL_SLOTS, kib(segment));
    say(OPS, "up to %lu KiB | one for each link",
        kib(NP_CTL_SLOTS * NP_INLINE_SIZE));
    say(OPS, "%lu KiB, and for each 4 MiB that a device has used 4 KiB of "
        "entries and 1 KiB of views", kib(NP_TABLE_HEAD_SIZE));
    say(OPS, "operations under way (private) | %.1f KiB each",
        sizeof(np_sop_t) / 1024.0);
    say(OPS, "at most S + %u of a link (S in the ring, %u requests, %u "
        "copies), and one for each flush that waits: %lu KiB with S = 128",
        NP_CTL_SLOTS + NP_TRANSFERS_MAX, NP_CTL_SLOTS, NP_TRANSFERS_MAX,
        kib((128 + NP_CTL_SLOTS + NP_TRANSFERS_MAX) * sizeof(np_sop_t)));
    say(OPS, "counters (shared) | %lu KiB",
        kib(ucs_align_up_pow2(sizeof(np_stats_page_t), (size_t)4096)));
    say("docs/man/nprdma.3", "has some for %u TiB of used memory",
        NP_TABLE_ARENAS >> (40 - NP_ARENA_SHIFT));
    say(DECISIONS, "(%u arenas of 1 GiB)", NP_TABLE_ARENAS);
    say("docs/results/paging.md", "in pieces of %lu KiB (`NP_DMA_MAX`)",
        kib(NP_DMA_MAX));
}

static void say_verbs(void)
{
#ifdef HAVE_VERBS
    say(PROTOCOL, "Version %u (`NP_VWIRE_VERSION`)", NP_VWIRE_VERSION);
    say(OPS, "x %u bytes and %u each way of the handshake", NP_VSEG_SIZE,
        NP_UD_BUFFERS);
    say(OPS, "((RECV_BUFFERS + SEND_BUFFERS) x %u + %u x %zu) / 4096",
        NP_VSEG_SIZE, NP_UD_BUFFERS, NP_UD_SIZE + sizeof(np_hello_t));
    say(PROTOCOL, "at most %u operations at a time that its target's CPU "
        "has to work on; a target takes %u", NP_RASKED_MAX,
        NP_STREAM_SERVED_MAX);
    say(OPS, "Over RNICs %.1f KiB each: of a link %u one-sided, %u that are "
        "asked for, up to %u small puts that go again; and %u streams of %.1f "
        "KiB that a peer has in work here", sizeof(np_rop_t) / 1024.0,
        NP_TRANSFERS_MAX, NP_RASKED_MAX, 2 * NP_RPUT_COUNT,
        NP_STREAM_SERVED_MAX, sizeof(np_stream_t) / 1024.0);
    say(PROTOCOL, "at most %u one-sided ones beside them", NP_TRANSFERS_MAX);
    say(PROTOCOL, "is halved down to %u KiB", NP_VPORT_CHUNK_MIN / 1024);
    say(PROTOCOL, "down to %llu MiB each",
        (unsigned long long)NP_KMOD_PART_MIN / UCS_MBYTE);
    say(OPS, "for each link and arena, %.1f KiB and 4 bytes",
        sizeof(np_vremote_t) / 1024.0);
    say(DECISIONS, "Ranges are kept (%u a port)", NP_VPORT_ABSENT);
#endif
}

int main(void)
{
    const np_engine_config_t config = {.share_min = 1 << 18};

    if (np_engine_init(&config) != UCS_OK) {
        return 1;
    }

    say_protocol();
    say_limits();
    say_verbs();
    say_files();
    return 0;
}
