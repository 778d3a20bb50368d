/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine promises over RNICs as it does on soft0, over one that is not
 * there: order, errors, pages that come late. Prints TAP.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "../engine/rival.h"

#include "nprdma/extension.h"
#include "nprdma/dev/soft/drain.h"
#include "nprdma/dev/verbs/hello.h"
#include "nprdma/dev/verbs/views.h"
#include "nprdma/mem/arena.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/rnic/rop.h"
#include "nprdma/svc/service.h"

#include <ucs/debug/log.h>

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned tap_count, tap_failures;

void test_files(void);
void test_rights(void);
void test_sleep(void);
void test_unloaded(void);


static ucs_status_t send_message(void)
{
    return np_vlink_am_short(&link_, 1, 7, NULL, 0);
}

static ucs_status_t atomic_add(void *at, uint64_t value, mocked_comp_t *comp)
{
    static uint64_t result;
    ucs_status_t status;

    *comp = (mocked_comp_t){0, UCS_OK};
    MOCKED_POST(status, np_ep_atomic(&link_.flight, key,
                                     &(np_atomic_t){.addr = (uintptr_t)at,
                                                    .value = value,
                                                    .op = NP_ATOMIC_ADD,
                                                    .size = sizeof(value)},
                                     &result, comp));
    return status;
}

/* Whatever it is, it is complete before anything later begins */
static int order_after(int has_module)
{
    static const size_t sizes[] = {8, 24, 4096, 1 << 20};
    mocked_comp_t comp;
    ucs_status_t status;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, has_module, NULL));
    TAP_CHILD_CHECK(!has_module || mocked_warm());
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        mock_hold();
        TAP_CHILD_CHECK(nprdma_extension_v1.set_order(2) == 0);
        memset(mine, i + 1, sizes[i]);
        status = (i < 2) ?
                 np_ep_put_copied(&link_.flight, key, mine, sizes[i],
                                  (uintptr_t)area) :
                 mocked_begin(NP_DIR_PUT, mine, sizes[i], area, &comp);
        TAP_CHILD_CHECK(status == ((i < 2) ? UCS_OK : UCS_INPROGRESS));
        TAP_CHILD_CHECK(nprdma_extension_v1.set_order(0) == 0);
        TAP_CHILD_CHECK(send_message() == UCS_ERR_NO_RESOURCE);
        mock_release();
        MOCKED_POST(status, send_message());
        TAP_CHILD_CHECK(status == UCS_OK);
        TAP_CHILD_CHECK((area[0] == (i + 1)) &&
                        (area[sizes[i] - 1] == (i + 1)));
        TAP_CHILD_CHECK((i < 2) || (comp.count == 1));
    }

    mock_hold();
    TAP_CHILD_CHECK(nprdma_extension_v1.set_order(2) == 0);
    TAP_CHILD_CHECK(atomic_add(area, 1, &comp) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(nprdma_extension_v1.set_order(0) == 0);
    TAP_CHILD_CHECK(send_message() == UCS_ERR_NO_RESOURCE);
    mock_release();
    MOCKED_POST(status, send_message());
    TAP_CHILD_CHECK((status == UCS_OK) && (comp.count == 1));
    mocked_end();
    return 0;
}

/* What waits for a transfer that it overlaps is counted, as on soft0 */
static int waits_are_counted(void)
{
    uint64_t before;
    mocked_comp_t put;
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    before = ours->flights.stats->order_waits;
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, &put) ==
                    UCS_INPROGRESS);
    status = np_ep_put_copied(&link_.flight, key, mine, 8,
                              (uintptr_t)area + (1 << 20));
    TAP_CHILD_CHECK((status == UCS_OK) &&
                    (ours->flights.stats->order_waits == before));
    status = np_ep_put_copied(&link_.flight, key, mine, 8, (uintptr_t)area);
    TAP_CHILD_CHECK((status == UCS_ERR_NO_RESOURCE) &&
                    (ours->flights.stats->order_waits == (before + 1)));
    mock_release();
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &put, NULL));
    mocked_end();
    return 0;
}

static int order_after_one_sided(void)
{
    return order_after(1);
}

static int order_after_two_sided(void)
{
    return order_after(0);
}

/* A put of the same word, posted after an atomic, is what stays: the target
 * looks at the atomic late, and has no part in the put */
static int atomic_is_not_overtaken(void)
{
    const size_t size = 64;
    uint64_t *word;
    mocked_comp_t added, put;
    ucs_status_t status;
    np_iov_t iov;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL));
    TAP_CHILD_CHECK(mocked_warm());
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    word = (uint64_t*)area;
    memset(area, 0, MOCKED_AREA);
    memset(mine, 0x55, size);
    iov  = (np_iov_t){mine, size};
    TAP_CHILD_CHECK(atomic_add(word, 1, &added) == UCS_INPROGRESS);
    put = (mocked_comp_t){0, UCS_OK};
    for (i = 0; i < 1000; ++i) { /* theirs does not look */
        status = np_ep_move(NP_DIR_PUT, &link_.flight, key, &iov, 1,
                            (uintptr_t)word, &put);
        if (status != UCS_ERR_NO_RESOURCE) {
            break;
        }
        np_vport_progress(ours);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        MOCKED_POST(status, np_ep_move(NP_DIR_PUT, &link_.flight, key, &iov,
                                       1, (uintptr_t)word, &put));
    }
    TAP_CHILD_CHECK(status == UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &put, NULL));
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &added, NULL));
    TAP_CHILD_CHECK((added.status == UCS_OK) && (put.status == UCS_OK));
    TAP_CHILD_CHECK(*word == UINT64_C(0x5555555555555555));
    mocked_end();
    return 0;
}

/* The flush of a port says what has become of its links */
static int flush_tells(void)
{
    mocked_comp_t put, flush = {0, UCS_OK}, late = {0, UCS_OK};
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, &late) == UCS_OK);
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, &put) ==
                    UCS_INPROGRESS);
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, &flush) == UCS_INPROGRESS);
    np_conn_fail(link_.conn, UCS_ERR_CONNECTION_RESET);
    /* it has failed, and nobody has been told: what is flushed is not there */
    status = np_eps_flush(&ours->flights, &late);
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &flush, NULL));
    TAP_CHILD_CHECK(put.status == UCS_ERR_ENDPOINT_TIMEOUT);
    TAP_CHILD_CHECK(flush.status == UCS_ERR_ENDPOINT_TIMEOUT);
    TAP_CHILD_CHECK((status == UCS_INPROGRESS) && (late.count == 1) &&
                    (late.status == UCS_ERR_ENDPOINT_TIMEOUT));
    TAP_CHILD_CHECK(down == UCS_ERR_ENDPOINT_TIMEOUT);
    mock_release();
    mocked_end();
    return 0;
}

/* A link has gone down, and what is outstanding has not ended yet: its flush
 * ends with that, as on soft0 */
static int flush_waits(void)
{
    mocked_comp_t put, flush = {0, UCS_OK};

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, &put) ==
                    UCS_INPROGRESS);
    np_conn_fail(link_.conn, UCS_ERR_CONNECTION_RESET);
    TAP_CHILD_CHECK(np_ep_flush(&link_.flight, &flush) == UCS_INPROGRESS);
    TAP_CHILD_CHECK((put.count == 0) && (flush.count == 0));
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &flush, NULL));
    TAP_CHILD_CHECK((put.status == UCS_ERR_ENDPOINT_TIMEOUT) &&
                    (flush.status == UCS_ERR_ENDPOINT_TIMEOUT));
    TAP_CHILD_CHECK(np_ep_flush(&link_.flight, &flush) ==
                    UCS_ERR_ENDPOINT_TIMEOUT);
    mock_release();
    mocked_end();
    return 0;
}

/* A link that is cancelled is at its end, as on soft0, though nothing was
 * outstanding; whoever cancels need not be told */
static int cancel_is_the_end(void)
{
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    MOCKED_POST(status, send_message());
    TAP_CHILD_CHECK(status == UCS_OK);
    np_ep_cancel(&link_.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK(send_message() == UCS_ERR_CANCELED);
    TAP_CHILD_CHECK(np_ep_flush(&link_.flight, NULL) == UCS_ERR_CANCELED);
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, NULL) == UCS_OK);
    np_conn_fail(link_.conn, UCS_ERR_CONNECTION_RESET);
    np_vport_progress(ours);
    TAP_CHILD_CHECK(down == UCS_OK);
    mocked_end();
    return 0;
}

static void no_put_once(np_vport_config_t *config)
{
    config->put_once = 0;
}

static void cancel_again(mocked_comp_t *comp)
{
    np_ep_cancel(&link_.flight, UCS_ERR_CANCELED);
}

/* Who is told that a transfer is cancelled may cancel in there, too */
static int cancel_within_cancel(void)
{
    mocked_comp_t put;
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, no_put_once));
    TAP_CHILD_CHECK(mocked_warm());
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 65536, area, &put) ==
                    UCS_INPROGRESS);
    status = np_ep_put_copied(&link_.flight, key, mine, 8,
                              (uintptr_t)area + (1 << 20));
    TAP_CHILD_CHECK((status == UCS_OK) && (link_.flight.outstanding == 2));
    mocked_completed = cancel_again;
    np_ep_cancel(&link_.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK((put.count == 1) && (put.status == UCS_ERR_CANCELED) &&
                    (link_.flight.outstanding == 0));
    mock_release();
    mocked_end();
    return 0;
}

/* A put that nobody waits for has failed, which is the end of its link: a flush
 * after it does not say that it is there */
static int flush_tells_of_ignored(void)
{
    const np_iov_t iov = {mine, 1 << 20};
    mocked_comp_t flush = {0, UCS_OK};
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    munmap(area, MOCKED_AREA);
    MOCKED_POST(status, np_ep_move(NP_DIR_PUT, &link_.flight, key, &iov, 1,
                                   (uintptr_t)area, NULL));
    TAP_CHILD_CHECK(status == UCS_INPROGRESS);
    TAP_CHILD_CHECK(np_ep_flush(&link_.flight, &flush) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &flush, NULL));
    TAP_CHILD_CHECK((flush.count == 1) && (flush.status != UCS_OK));
    np_vport_progress(ours);
    TAP_CHILD_CHECK(down != UCS_OK);
    mocked_end();
    return 0;
}

static ucs_status_t nested_status;
static mocked_comp_t nested = {0, UCS_OK};

/* Two puts that wait for the device */
static int begin_two(mocked_comp_t *first, mocked_comp_t *second)
{
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, first) ==
                    UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area + (1 << 20),
                                 second) == UCS_INPROGRESS);
    return 0;
}

static void flush_once(mocked_comp_t *comp)
{
    mocked_completed = NULL;
    nested_status    = np_eps_flush(&ours->flights, &nested);
}

/* Who is told that one transfer is cancelled flushes the port: another one has
 * not ended yet */
static int flush_within_cancel(void)
{
    mocked_comp_t first, second;

    TAP_CHILD_CHECK(begin_two(&first, &second) == 0);
    mocked_completed = flush_once;
    np_ep_cancel(&link_.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK((first.count == 1) && (second.count == 1));
    TAP_CHILD_CHECK(nested_status == UCS_INPROGRESS);
    TAP_CHILD_CHECK((nested.count == 1) &&
                    (nested.status == UCS_ERR_CANCELED));
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, NULL) == UCS_OK);
    mock_release();
    mocked_end();
    return 0;
}

static void begin_once(mocked_comp_t *comp)
{
    mocked_completed = NULL;
    nested_status    = mocked_begin(NP_DIR_GET, mine, 1 << 20, area, &nested);
    if (!np_ep_has_resources(&link_.flight)) {
        nested_status = UCS_ERR_NO_RESOURCE; /* it would be waited for */
    }
}

/* What is told of the end of a link that is closed begins nothing more on it */
static int close_is_the_end(void)
{
    mocked_comp_t first, second;

    TAP_CHILD_CHECK(begin_two(&first, &second) == 0);
    mocked_completed = begin_once;
    np_ep_close(&link_.flight);
    TAP_CHILD_CHECK((first.count == 1) && (second.count == 1));
    TAP_CHILD_CHECK(nested_status == UCS_ERR_CANCELED);
    mock_release();
    np_vport_close(ours);
    np_vport_close(theirs);
    return 0;
}

/* And ends, if one of them is closed meanwhile */
static int flush_ends(void)
{
    mocked_comp_t put, flush = {0, UCS_OK};

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, &put) ==
                    UCS_INPROGRESS);
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, &flush) == UCS_INPROGRESS);
    np_ep_close(&link_.flight);
    TAP_CHILD_CHECK((put.count == 1) && (put.status == UCS_ERR_CANCELED) &&
                    (flush.count == 1) && (flush.status == UCS_ERR_CANCELED));
    mock_release();
    np_vport_close(ours);
    np_vport_close(theirs);
    return 0;
}

/* All operations that there may be are in use, but for @a left; returns those
 * that were free */
static np_op_t *take_ops(unsigned left)
{
    np_op_t *free_ops = ours->flights.free_ops;

    ours->flights.max_ops = ours->flights.num_ops;
    if (left == 0) {
        ours->flights.free_ops = NULL;
    } else {
        ours->flights.free_ops->next_free = NULL;
    }
    return free_ops;
}

/* A flush for which there is no name waits for others; a part of one leaves
 * nothing behind */
static int flush_without_names(void)
{
    mocked_comp_t put, flush = {0, UCS_OK};
    np_op_t *free_ops, *next;
    ucs_status_t status;
    unsigned left;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    mock_hold();
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, 1 << 20, area, &put) ==
                    UCS_INPROGRESS);
    for (left = 0; left < 2; ++left) {
        next     = ours->flights.free_ops->next_free;
        free_ops = take_ops(left);
        status   = np_eps_flush(&ours->flights, &flush);
        TAP_CHILD_CHECK(status == UCS_ERR_NO_RESOURCE);
        TAP_CHILD_CHECK(ucs_list_is_empty(&link_.flight.flushes));
        TAP_CHILD_CHECK((left == 0) || (ours->flights.free_ops == free_ops));
        ours->flights.free_ops = free_ops;
        free_ops->next_free    = next;
        ours->flights.max_ops  = NP_OP_NAMES;
    }
    TAP_CHILD_CHECK(np_eps_flush(&ours->flights, &flush) == UCS_INPROGRESS);
    mock_release();
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &flush, NULL));
    TAP_CHILD_CHECK((flush.count == 1) && (put.count == 1));
    mocked_end();
    return 0;
}

/* A small put that no batch can be made for goes as a message */
static int put_without_names(void)
{
    np_op_t *free_ops, *next;
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, no_put_once));
    TAP_CHILD_CHECK(mocked_warm());
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    next     = ours->flights.free_ops->next_free;
    free_ops = take_ops(0);
    memset(mine, 5, 8);
    status = np_ep_put_copied(&link_.flight, key, mine, 8, (uintptr_t)area);
    TAP_CHILD_CHECK((status == UCS_OK) && (link_.flight.outstanding == 0));
    ours->flights.free_ops = free_ops;
    free_ops->next_free    = next;
    ours->flights.max_ops  = NP_OP_NAMES;
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area[0] == 5);
    mocked_end();
    return 0;
}

/* The answer to a link's request to connect, with a status of any number */
static int answer_is_an_error(np_hello_kind_t kind, int32_t number,
                              ucs_status_t expected)
{
    ucs_status_t status;
    np_vlink_t other;
    np_hello_t hello;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    np_vlink_init(&other, ours, &link_.dev_addr, &link_.addr);
    mock_hold();
    TAP_CHILD_CHECK(np_ep_check(&other.flight) == UCS_OK);
    hello        = other.conn->hello;
    hello.kind   = kind;
    hello.status = number;
    np_hello_received(ours, &hello, sizeof(hello));
    status = np_vlink_am_short(&other, 1, 7, NULL, 0);
    TAP_CHILD_CHECK(status == expected);
    mock_release();
    np_vport_progress(ours);
    TAP_CHILD_CHECK(down == expected);
    status = np_vlink_am_short(&other, 1, 7, NULL, 0);
    TAP_CHILD_CHECK(status == expected);
    np_ep_close(&other.flight);
    mocked_end();
    return 0;
}

static int gone_is_an_error(void)
{
    return answer_is_an_error(NP_HELLO_GONE, UCS_OK, UCS_ERR_ENDPOINT_TIMEOUT);
}

static int refusal_is_an_error(void)
{
    return answer_is_an_error(NP_HELLO_REFUSE, UCS_ERR_NO_MEMORY,
                              UCS_ERR_NO_MEMORY);
}

/* In the byte that a ucs_status_t has these would be UCS_OK */
static int number_is_an_error(void)
{
    return answer_is_an_error(NP_HELLO_REFUSE, -256, UCS_ERR_IO_ERROR);
}

/* Who were told that would try for ever */
static int try_again_is_an_error(void)
{
    return answer_is_an_error(NP_HELLO_REFUSE, UCS_ERR_NO_RESOURCE,
                              UCS_ERR_IO_ERROR);
}

static int answer_with_number_is_an_error(void)
{
    return answer_is_an_error(NP_HELLO_REPLY, -512, UCS_ERR_IO_ERROR);
}

static void many_credits(np_vport_config_t *config)
{
    config->credits      = 1024;
    config->recv_buffers = 2048;
}

static int crowd_is_done(const void *arg)
{
    return *(const unsigned*)arg == link_.flight.outstanding;
}

/* Gets of absent pages, whose target does not look: only so many are taken */
static int crowd_is_bounded(void)
{
    enum { LEN = 64, COUNT = 4000 };
    static mocked_comp_t comps[COUNT];
    static const unsigned none;
    unsigned taken = 0, i, tries;
    ucs_status_t status;
    np_iov_t iov;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, many_credits));
    TAP_CHILD_CHECK(mocked_warm());
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    for (i = 0; i < COUNT; ++i) {
        memset(area + (i * LEN), i + 1, LEN);
    }
    mock_kmod_take(area, MOCKED_AREA);

    for (tries = 0; (taken < COUNT) && (tries < 20000); ++tries) {
        iov    = (np_iov_t){mine + (taken * LEN), LEN};
        status = np_ep_move(NP_DIR_GET, &link_.flight, key, &iov, 1,
                            (uintptr_t)area + (taken * LEN), &comps[taken]);
        TAP_CHILD_CHECK((status == UCS_INPROGRESS) ||
                        (status == UCS_ERR_NO_RESOURCE));
        taken += (status == UCS_INPROGRESS);
        np_vport_progress(ours);
    }
    TAP_CHILD_CHECK((taken > 0) && (link_.flight.outstanding == taken));
    TAP_CHILD_CHECK(taken <= (NP_RASKED_MAX + NP_TRANSFERS_MAX));

    TAP_CHILD_CHECK(mocked_wait(crowd_is_done, &none, 0));
    for (i = 0; i < taken; ++i) {
        TAP_CHILD_CHECK((comps[i].count == 1) && (comps[i].status == UCS_OK));
        TAP_CHILD_CHECK((mine[i * LEN] == (uint8_t)(i + 1)) &&
                        (mine[(i * LEN) + LEN - 1] == (uint8_t)(i + 1)));
    }
    mocked_end();
    return 0;
}

static unsigned errors_said, errors_complete;
static const char *error_names;

/* Whether each error line has all of it: variable, what was found, what to
 * do */
static ucs_log_func_rc_t
count_errors(const char *file, unsigned line, const char *function,
             ucs_log_level_t level, const ucs_log_component_config_t *component,
             const char *format, va_list args)
{
    char text[512], name[64];

    if (level != UCS_LOG_LEVEL_ERROR) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }

    vsnprintf(text, sizeof(text), format, args);
    ++errors_said;
    errors_complete += (sscanf(text, "nprdma: %63s", name) == 1) &&
                       (strstr(error_names, name) != NULL) &&
                       (strstr(text, "mock0:1") != NULL) &&
                       (strstr(text, "Unset it") != NULL);
    return UCS_LOG_FUNC_RC_STOP;
}

static void set_ignored(np_engine_config_t *config)
{
    config->write_check = NP_WRITE_CHECK_READBACK;
    config->fault_mode  = NP_FAULT_MODE_RETRY;
    config->inline_max  = 16384;
}

static void set_entries(np_engine_config_t *config)
{
    config->write_check = NP_WRITE_CHECK_ENTRIES; /* it is what RNICs have */
}

static int settings_of_others(void)
{
    error_names = "UCX_NPRDMA_WRITE_CHECK UCX_NPRDMA_FAULT_MODE "
                  "UCX_NPRDMA_INLINE";
    ucs_log_push_handler(count_errors);
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    printf("# %u lines, %u of them complete\n", errors_said, errors_complete);
    TAP_CHILD_CHECK(errors_said == errors_complete);
    mocked_end();
    return errors_said;
}

static int ignored_are_told(void)
{
    mocked_engine = set_ignored;
    return settings_of_others() != 3; /* once, of two ports */
}

static int honoured_are_not(void)
{
    mocked_engine = set_entries;
    return settings_of_others();
}

static int is_filled(const void *byte)
{
    return (area[0] == *(const uint8_t*)byte) &&
           (area[MOCKED_AREA - 1] == *(const uint8_t*)byte);
}

/* A put whose initiator computes after it has posted it: the key that it waits
 * for comes to a service thread */
static int key_comes_to_ours(void)
{
    const uint8_t byte = 0x42;
    mocked_comp_t put;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_ADAPTIVE, 0, NULL));
    memset(mine, byte, MOCKED_AREA);
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, MOCKED_AREA, area, &put) ==
                    UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_wait(is_filled, &byte, ours));
    TAP_CHILD_CHECK(memcmp(area, mine, MOCKED_AREA) == 0);
    TAP_CHILD_CHECK(put.count == 0);
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &put, NULL) &&
                    (put.status == UCS_OK));
    mocked_end();
    return 0;
}

static int key_comes_to_both(void)
{
    const uint8_t byte = 0x43;
    mocked_comp_t put;
    double end;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_ADAPTIVE, 0, NULL));
    memset(mine, byte, MOCKED_AREA);
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, MOCKED_AREA, area, &put) ==
                    UCS_INPROGRESS);
    end = mocked_now() + 1e-3;
    while (mocked_now() < end) {
        np_vport_progress(ours); /* until it has asked a service thread to
                                    look */
    }
    for (end = mocked_now() + MOCKED_LIMIT;
         !is_filled(&byte) && (mocked_now() < end);) {
        sched_yield(); /* both compute */
    }
    TAP_CHILD_CHECK(is_filled(&byte) && (put.count == 0));
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &put, NULL) &&
                    (put.status == UCS_OK));
    mocked_end();
    return 0;
}

/* The answering side's connection; NULL: not yet */
static np_conn_t *their_conn(void)
{
    return ucs_list_is_empty(&theirs->ready) ? NULL :
           ucs_list_head(&theirs->ready, np_conn_t, list);
}

static int has_given_key(const void *arg)
{
    np_conn_t *conn = their_conn();

    return (conn != NULL) && np_stream_awaits_write(conn);
}

/* The same, where the target has given its key in its own progress and computes
 * from then on: nothing has woken a thread of either side */
static int key_given_by_owner(void)
{
    const uint8_t byte = 0x44;
    mocked_comp_t put;
    double end;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_ADAPTIVE, 0, NULL));
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    usleep(50000); /* threads have gone to sleep */
    memset(mine, byte, MOCKED_AREA);
    TAP_CHILD_CHECK(mocked_begin(NP_DIR_PUT, mine, MOCKED_AREA, area, &put) ==
                    UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_wait(has_given_key, NULL, ours));
    for (end = mocked_now() + (MOCKED_LIMIT / 4);
         !is_filled(&byte) && (mocked_now() < end);) {
        sched_yield(); /* both compute */
    }
    TAP_CHILD_CHECK(is_filled(&byte) && (put.count == 0));
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &put, NULL) &&
                    (put.status == UCS_OK));
    mocked_end();
    return 0;
}

/* Our link says something about a stream of area; 0: it has not been able to */
static int say(np_vmsg_kind_t kind, uint32_t name, ucs_status_t status)
{
    const double end = mocked_now() + MOCKED_LIMIT;
    np_vctl_t ctl    = {.msg = {.kind = kind}};

    ctl.body.op     = name;
    ctl.body.status = status;
    ctl.body.addr   = (uintptr_t)area;
    ctl.body.len    = MOCKED_AREA;
    while (!np_conn_has_credit(link_.conn) ||
           !np_conn_send_copied(link_.conn, &ctl.msg, sizeof(ctl))) {
        np_conn_want_credit(link_.conn);
        mocked_progress();
        if (mocked_now() > end) {
            return 0;
        }
    }
    return 1;
}

static int has_served(const void *arg)
{
    return (their_conn()->rx_seq == link_.conn->tx_seq) &&
           (theirs->num_served == *(const unsigned*)arg);
}

/* A link that begins streams and does not go on with them has so many at the
 * target; they end when it gives them up, and leave nothing */
static int served_are_bounded(void)
{
    enum { NAME = 1 << 30, COUNT = NP_STREAM_SERVED_MAX + 40 };
    const unsigned most = NP_STREAM_SERVED_MAX, none = 0;
    unsigned i, round;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    for (round = 0; round < 2; ++round) {
        for (i = 0; i < COUNT; ++i) {
            TAP_CHILD_CHECK(say(NP_VMSG_WRITE, NAME + i, UCS_OK));
        }
        TAP_CHILD_CHECK(mocked_wait(has_served, &most, NULL));
        TAP_CHILD_CHECK(theirs->registered > 0);
        for (i = 0; i < COUNT; ++i) {
            TAP_CHILD_CHECK(say(NP_VMSG_DONE, NAME + i, UCS_ERR_CANCELED));
        }
        TAP_CHILD_CHECK(mocked_wait(has_served, &none, NULL));
        TAP_CHILD_CHECK(theirs->registered == 0);
    }
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, MOCKED_AREA, area) == UCS_OK);
    TAP_CHILD_CHECK(down == UCS_OK);
    mocked_end();
    return 0;
}

static unsigned num_kept(void)
{
    NP_TURN_WAIT(&ours->turn);
    return ours->kept_tail - ours->kept_head;
}

/* A target that rings on and on while the program computes fills no room that
 * its thread needs for others */
static int rings_are_not_kept(void)
{
    np_vmsg_t ring = {.kind = NP_VMSG_ACK, .flags = NP_VMSG_WAKE};
    double end     = mocked_now() + MOCKED_LIMIT;
    unsigned sent  = 0;
    uint32_t qpn;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_ADAPTIVE, 0, NULL));
    np_service_start();
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    qpn      = link_.conn->qpn;
    ring.ack = link_.conn->tx_acked;
    while ((sent < (2 * ours->kept_size)) && (mocked_now() < end)) {
        sent += mock_receive(qpn, &ring, sizeof(ring));
        if ((sent % 16) == 0) {
            usleep(100);
        }
    }
    printf("# %u rings, %u kept of %u\n", sent, num_kept(), ours->kept_size);
    TAP_CHILD_CHECK(sent == (2 * ours->kept_size));
    TAP_CHILD_CHECK(num_kept() <= 1);
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, 100, area) == UCS_OK);
    mocked_end();
    return 0;
}

/* The target can register nothing for a while: what is sent meanwhile was
 * registered by its initiator, and is in nobody's way afterwards */
static int late_keys_are_used(void)
{
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    memset(mine, 0x45, MOCKED_AREA);
    mock_refuse(area, 5 * 65536, ENOMEM);
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, MOCKED_AREA, area) == UCS_OK);
    TAP_CHILD_CHECK(memcmp(area, mine, MOCKED_AREA) == 0);
    mocked_end();
    return 0;
}

static void one_after_the_other(np_vport_config_t *config)
{
    config->is_sequential = 1;
}

/* So many bytes that 32 bits do not hold them: all of one file's few, again and
 * again */
static uint8_t *map_large(uint64_t at, size_t file, size_t size)
{
    int fd = memfd_create("large", MFD_CLOEXEC);
    size_t offset;

    if (ftruncate(fd, file) != 0) {
        return NULL;
    }
    for (offset = 0; offset < size; offset += file) {
        if (mmap((void*)(at + offset), ucs_min(file, size - offset),
                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd,
                 0) == MAP_FAILED) {
            return NULL;
        }
    }
    close(fd);
    return (uint8_t*)at;
}

/* In the traditional order all of a transfer is one registration, and was one
 * request */
static int large_is_whole(void)
{
    const size_t file = 32ul << 20, size = (4ul << 30) + 65536;
    uint8_t *from, *to;
    np_packed_key_t packed;
    np_arenas_t arenas;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, one_after_the_other));
    from = map_large(UINT64_C(0x320000000000), file, size);
    to   = map_large(UINT64_C(0x330000000000), file, size);
    TAP_CHILD_CHECK((from != NULL) && (to != NULL));
    TAP_CHILD_CHECK(np_arenas_share((uintptr_t)to, size, &arenas) == UCS_OK);
    np_key_pack_arenas(&packed, arenas);
    np_key_release(key);
    TAP_CHILD_CHECK(np_key_unpack(&packed, &key) == UCS_OK);
    memset(from, 0x77, file);
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, from, size, to) == UCS_OK);
    TAP_CHILD_CHECK(memcmp(from, to, file) == 0);
    mocked_end();
    return 0;
}

/* A stranger's datagram makes no way to the address that it names */
static int stranger_costs_nothing(void)
{
    unsigned before;
    np_hello_t hello;
    int i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    before = mock_num_ahs();
    for (i = 0; i < 100; ++i) {
        hello         = link_.conn->hello;
        hello.kind    = NP_HELLO_REQUEST;
        hello.cookie += 1 + i;
        hello.gid[15] = i;
        np_hello_received(theirs, &hello, sizeof(hello));
        hello.version += 1;
        np_hello_received(theirs, &hello, sizeof(hello));
    }
    TAP_CHILD_CHECK(mock_num_ahs() == before);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    mocked_end();
    TAP_CHILD_CHECK(mock_live_ahs() == 0);
    return 0;
}

static unsigned count_threads(void)
{
    unsigned count = 0;
    DIR *dir       = opendir("/proc/self/task");

    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

/* Stacks of threads that nobody has joined stay mapped */
static size_t mapped_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    size_t kib = 0;
    char line[256];

    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmSize: %zu", &kib);
    }
    fclose(file);
    return kib;
}

/* Views of many arenas leave nothing behind of the threads that have built
 * them */
static int views_leave_nothing(void)
{
    const unsigned arenas = 64;
    np_nic_views_t *views[64];
    size_t kib;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL));
    TAP_CHILD_CHECK(mocked_warm());
    kib = mapped_kib();
    for (i = 0; i < arenas; ++i) {
        views[i] = np_views_get(ours->nic, 0x100 + i);
        while (np_views_state(views[i]) == NP_VIEWS_BUILDING) {
            sched_yield();
        }
        TAP_CHILD_CHECK(np_views_state(views[i]) == NP_VIEWS_READY);
    }
    /* each has a table of 1 MiB, and the mock a quarter of that beside it */
    kib = mapped_kib() - kib;
    printf("# %u arenas: %zu KiB more are mapped\n", arenas, kib);
    TAP_CHILD_CHECK(kib < (arenas * 1280 + 16 * 1024));
    mocked_end();
    /* with . and ..; of one that has been joined the kernel may tell a while */
    for (i = 0; (i < 1000) && (count_threads() > (1 + 2)); ++i) {
        usleep(1000);
    }
    TAP_CHILD_CHECK(count_threads() == (1 + 2));
    return 0;
}

/* An atomic that is executed in the very moment in which the other end gives
 * its executor up has been executed: the word is the one that says so */
static int atomic_is_executed_once(void)
{
    np_moving_t *shared;
    np_moving_own_t moving;
    np_moving_unit_t unit;
    np_atomic_t request;
    uint64_t result = 1;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    TAP_CHILD_CHECK(np_table_get((uintptr_t)area >> NP_ARENA_SHIFT) != NULL);
    shared  = (np_moving_t*)(area + 8192);
    moving  = (np_moving_own_t){.shared = shared};
    request = (np_atomic_t){
        .addr  = (uintptr_t)&shared->ended,
        .value = 1,
        .op    = NP_ATOMIC_ADD,
        .size  = sizeof(shared->ended)
    };
    np_moving_unit_init(&unit, &moving);
    TAP_CHILD_CHECK(np_atomic_execute(&request, &unit.super, 1, &result) ==
                    UCS_OK);
    TAP_CHILD_CHECK((result == 0) && (shared->ended == 1));
    mocked_end();
    return 0;
}

static size_t pack_nothing(void *dest, void *arg)
{
    return 0;
}

static void unpack_nothing(void *arg, const void *data, size_t len)
{
}

/* What moves nothing needs no key */
static int nothing(int has_module)
{
    np_key_t *none   = (np_key_t*)~(uintptr_t)0; /* UCT_INVALID_RKEY */
    const np_iov_t empty = {NULL, 0};
    mocked_comp_t comp;
    ucs_status_t status;
    ssize_t packed;
    unsigned dir;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, has_module, NULL));
    TAP_CHILD_CHECK(!has_module || mocked_warm());
    MOCKED_POST(packed, np_ep_put_packed(&link_.flight, none, pack_nothing,
                                         NULL, 0));
    TAP_CHILD_CHECK(packed == 0);
    MOCKED_POST(packed, np_ep_put_packed(&link_.flight, key, pack_nothing,
                                         NULL, (uintptr_t)area));
    TAP_CHILD_CHECK(packed == 0);
    MOCKED_POST(status, np_ep_put_copied(&link_.flight, none, NULL, 0, 0));
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, np_ep_get_unpack(&link_.flight, none, 0, 0,
                                         unpack_nothing, NULL, &comp));
    TAP_CHILD_CHECK(status == UCS_OK);
    for (dir = NP_DIR_GET; dir <= NP_DIR_PUT; ++dir) {
        MOCKED_POST(status, np_ep_move(dir, &link_.flight, none, &empty, 1, 0,
                                       &comp));
        TAP_CHILD_CHECK(status == UCS_OK);
        MOCKED_POST(status, np_ep_move(dir, &link_.flight, none, NULL, 0, 0,
                                       &comp));
        TAP_CHILD_CHECK(status == UCS_OK);
    }
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, 100, area) == UCS_OK);
    mocked_end();
    return 0;
}

static int nothing_one_sided(void)
{
    return nothing(1);
}

static int nothing_two_sided(void)
{
    return nothing(0);
}

/* Times that a page of area which has been brought in goes at once */
static unsigned refusals;

static int swap_in(void *arg, void *va, size_t len, int write)
{
    if (refusals > 0) {
        --refusals;
        np_mapper_unmap((uintptr_t)va, len);
    }
    return 0;
}

static int start_swapping(void)
{
    const np_swapper_t swapper = {.swap_in = swap_in};

    return mocked_start(NP_SERVICE_OFF, 0, NULL) &&
           (np_mapper_add_swapper((uintptr_t)area, MOCKED_AREA, &swapper) ==
            UCS_OK);
}

/* One that is down and has been reported is closed while another one waits to
 * be: both are reported, and nothing is touched that is gone */
static int down_is_told(void)
{
    np_vdev_addr_t dev_addr;
    np_vport_addr_t addr;
    np_vlink_t *first = malloc(sizeof(*first)), *second;

    second = malloc(sizeof(*second));
    TAP_CHILD_CHECK((first != NULL) && (second != NULL) &&
                    mocked_start(NP_SERVICE_OFF, 0, NULL));
    np_vport_get_dev_addr(theirs, &dev_addr);
    np_vport_get_addr(theirs, &addr);
    np_vlink_init(first, ours, &dev_addr, &addr);
    np_vlink_init(second, ours, &dev_addr, &addr);
    np_vlink_ops.down(first, UCS_ERR_IO_ERROR);
    np_vport_progress(ours);
    TAP_CHILD_CHECK(first->flight.is_reported);
    np_vlink_ops.down(second, UCS_ERR_IO_ERROR);
    np_ep_close(&first->flight);
    memset(first, 0xff, sizeof(*first));
    free(first);
    np_vport_progress(ours);
    TAP_CHILD_CHECK(second->flight.is_reported &&
                    ucs_list_is_empty(&ours->flights.down));
    np_ep_close(&second->flight);
    free(second);
    mocked_end();
    return 0;
}

static void small_queue(np_vport_config_t *config)
{
    config->direct_min   = 2 << 20;
    config->sq_size      = 16;
    config->send_buffers = 64;
    config->recv_buffers = 256;
    config->pin_max      = 64 << 20;
    config->chunk        = 1 << 20;
}

/* A get whose bytes are sent in messages takes all the room that there is in
 * its target's queue: a put that is answered beside it does not wait for its
 * end, nor do messages of the link, which need to know that others were
 * taken */
static int answers_go_first(void)
{
    np_iov_t get_iov = {mine, 1 << 20}, put_iov = {mine + (1 << 20), 3 << 20};
    mocked_comp_t get = {0, UCS_OK}, put = {0, UCS_OK};
    unsigned round, before = 0, sent = 0;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, small_queue));
    get_iov.base = mine;
    put_iov.base = mine + (1 << 20);
    mock_hold();
    TAP_CHILD_CHECK(np_ep_move(NP_DIR_PUT, &link_.flight, key, &put_iov, 1,
                               (uintptr_t)area + (1 << 20), &put) ==
                    UCS_INPROGRESS);
    for (round = 0; (round < 10000) && !(get.count && put.count); ++round) {
        if (round == 2) {
            TAP_CHILD_CHECK(np_ep_move(NP_DIR_GET, &link_.flight, key,
                                       &get_iov, 1, (uintptr_t)area, &get) ==
                            UCS_INPROGRESS);
        }
        mock_step(2);
        np_vport_progress(theirs);
        np_vport_progress(ours);
        sent   += !get.count && (send_message() == UCS_OK);
        before += put.count && !get.count;
    }
    printf("# %u rounds, the put was complete %u before the get, %u messages\n",
           round, before, sent);
    TAP_CHILD_CHECK(get.count && put.count && (before >= 10) && (sent >= 50));
    mock_release();
    mocked_end();
    return 0;
}

static void end_swapping(void)
{
    np_mapper_remove_swapper((uintptr_t)area, MOCKED_AREA);
    mocked_end();
}

/* More often than a round of any request takes for enough */
#define MANY_REFUSALS 50000

static int refuses_no_more(const void *limit)
{
    return refusals < *(const unsigned*)limit;
}

/* A put whose page goes each time is tried again, and nothing overtakes it */
static int swapped_put_is_repeated(void)
{
    const unsigned limit = MANY_REFUSALS - 20000;
    static const uint64_t first = 1, second = 2;
    unsigned before;
    ucs_status_t status;

    TAP_CHILD_CHECK(start_swapping());
    before   = num_messages;
    refusals = MANY_REFUSALS;
    MOCKED_POST(status, np_ep_put_copied(&link_.flight, key, &first,
                                         sizeof(first), (uintptr_t)area));
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, np_ep_put_copied(&link_.flight, key, &second,
                                         sizeof(second), (uintptr_t)area));
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, send_message());
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(mocked_wait(refuses_no_more, &limit, NULL));
    TAP_CHILD_CHECK(num_messages == before);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(num_messages == (before + 1));
    TAP_CHILD_CHECK((refusals == 0) && (down == UCS_OK));
    TAP_CHILD_CHECK(*(const uint64_t*)area == second);
    end_swapping();
    return 0;
}

/* Of what is moved by messages: put from, and got to, memory of any size */
static int swapped_moves_are_repeated(void)
{
    static const size_t sizes[] = {8, 5000, 20000, 300000};
    unsigned i;

    TAP_CHILD_CHECK(start_swapping());
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        memset(mine, i + 1, sizes[i]);
        refusals = MANY_REFUSALS;
        TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, sizes[i], area) ==
                        UCS_OK);
        TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
        TAP_CHILD_CHECK((refusals == 0) && (down == UCS_OK));
        TAP_CHILD_CHECK(memcmp(area, mine, sizes[i]) == 0);
        memset(mine, 0, sizes[i]);
        np_mapper_unmap((uintptr_t)area, MOCKED_AREA);
        refusals = MANY_REFUSALS;
        TAP_CHILD_CHECK(mocked_move(NP_DIR_GET, mine, sizes[i], area) ==
                        UCS_OK);
        TAP_CHILD_CHECK((refusals == 0) && (down == UCS_OK));
        TAP_CHILD_CHECK(memcmp(area, mine, sizes[i]) == 0);
        np_mapper_unmap((uintptr_t)area, MOCKED_AREA);
    }
    end_swapping();
    return 0;
}

/* Atomics are executed once, also if the queue pair fails while they are
 * tried */
static int swapped_atomic(int is_broken)
{
    const unsigned limit = MANY_REFUSALS - 2000;
    uint64_t *word;
    mocked_comp_t comp;

    TAP_CHILD_CHECK(start_swapping());
    word     = (uint64_t*)area;
    *word    = 40;
    refusals = MANY_REFUSALS;
    TAP_CHILD_CHECK(atomic_add(word, 2, &comp) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(mocked_wait(refuses_no_more, &limit, NULL));
    TAP_CHILD_CHECK(comp.count == 0);
    if (is_broken) {
        np_conn_break(link_.conn);
    }
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &comp, NULL));
    printf("# %u refusals left, %s\n", refusals,
           ucs_status_string(comp.status));
    TAP_CHILD_CHECK((comp.status == UCS_OK) && (refusals == 0));
    TAP_CHILD_CHECK(*word == 42);
    TAP_CHILD_CHECK((mocked_flush() == UCS_OK) && (down == UCS_OK));
    TAP_CHILD_CHECK(!is_broken || (link_.conn->epoch > 0));
    end_swapping();
    return 0;
}

static int swapped_atomic_is_repeated(void)
{
    return swapped_atomic(0);
}

static int swapped_atomic_is_executed_once(void)
{
    return swapped_atomic(1);
}

/* A port that waits gives way to a process that wants its CPU */
static int gives_way(void)
{
    const time_t end = time(NULL) + 10;
    pid_t rival;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    rival = rival_start();
    TAP_CHILD_CHECK(rival > 0);
    np_engine.config.yield = 0;
    while ((ours->flights.stats->yields < 100) && (time(NULL) < end)) {
        np_vport_progress(ours);
        TAP_CHILD_CHECK(np_engine.config.yield ||
                        (ours->flights.stats->yields == 0));
        np_engine.config.yield = time(NULL) > (end - 9);
    }
    rival_stop(rival);
    TAP_CHILD_CHECK(ours->flights.stats->yields == 100);
    mocked_end();
    return 0;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    TAP_CHECK(tap_child(order_after_two_sided),
              "ORDER_AFTER: later operations wait");
    TAP_CHECK(tap_child(order_after_one_sided), "and with the kernel module");
    TAP_CHECK(tap_child(atomic_is_not_overtaken),
              "no one-sided put overtakes an atomic of its word");
    TAP_CHECK(tap_child(waits_are_counted), "what waits for its memory counts");
    TAP_CHECK(tap_child(flush_tells), "the flush of a port reports errors");
    TAP_CHECK(tap_child(flush_ends), "and ends with a link that is closed");
    TAP_CHECK(tap_child(close_is_the_end), "which begins nothing more");
    TAP_CHECK(tap_child(flush_waits), "that of a link that is down waits");
    TAP_CHECK(tap_child(cancel_is_the_end), "one that is cancelled has ended");
    TAP_CHECK(tap_child(cancel_within_cancel), "or is cancelled meanwhile");
    TAP_CHECK(tap_child(flush_tells_of_ignored), "nor does a failed put pass");
    TAP_CHECK(tap_child(flush_within_cancel), "and a flush in there waits");
    TAP_CHECK(tap_child(down_is_told), "each link that is down is reported");
    TAP_CHECK(tap_child(flush_without_names),
              "and waits where there is no name for it");
    TAP_CHECK(tap_child(put_without_names),
              "where a small put goes as a message");
    TAP_CHECK(tap_child(gone_is_an_error),
              "a peer that ends before it has answered is an error");
    TAP_CHECK(tap_child(refusal_is_an_error), "and one that refuses");
    TAP_CHECK(tap_child(number_is_an_error) &&
              tap_child(answer_with_number_is_an_error),
              "also with a number that is no status of UCX's");
    TAP_CHECK(tap_child(try_again_is_an_error), "or one that says to try again");
    TAP_CHECK(tap_child(crowd_is_bounded),
              "of a crowd of gets only so many are taken");
    TAP_CHECK(tap_child(served_are_bounded),
              "and of what a link asks for, which is over when it says so");
    TAP_CHECK(tap_child(answers_go_first),
              "answers do not wait for what else is served");
    TAP_CHECK(tap_child(nothing_two_sided), "what moves nothing needs no key");
    TAP_CHECK(tap_child(nothing_one_sided), "and with the kernel module");
    TAP_CHECK(tap_child(ignored_are_told),
              "settings that RNICs do not know are told");
    TAP_CHECK(tap_child(honoured_are_not) && tap_child(settings_of_others),
              "and others are not");
    TAP_CHECK(tap_child(key_comes_to_ours),
              "a put goes on while its initiator computes");
    TAP_CHECK(tap_child(key_comes_to_both), "and while both sides do");
    TAP_CHECK(tap_child(key_given_by_owner),
              "and if the target has computed since it gave its key");
    TAP_CHECK(tap_child(rings_are_not_kept), "its rings take no room");
    TAP_CHECK(tap_child(late_keys_are_used),
              "a put that was begun by messages goes on by writes");
    TAP_CHECK(tap_child(large_is_whole), "4 GiB and more arrive whole");
    TAP_CHECK(tap_child(stranger_costs_nothing),
              "no way is made to where a stranger says that it is");
    TAP_CHECK(tap_child(gives_way),
              "progress that finds nothing gives way, if it may");
    TAP_CHECK(tap_child(views_leave_nothing), "threads that built views are gone");
    TAP_CHECK(tap_child(atomic_is_executed_once),
              "an atomic whose executor is given up meanwhile is executed once");
    TAP_CHECK(tap_child(swapped_put_is_repeated),
              "a put whose page its program swaps again and again is repeated, "
              "and what follows waits");
    TAP_CHECK(tap_child(swapped_moves_are_repeated), "and puts and gets of all sizes");
    TAP_CHECK(tap_child(swapped_atomic_is_repeated), "and an atomic");
    TAP_CHECK(tap_child(swapped_atomic_is_executed_once),
              "once, if its queue pair fails meanwhile");
    test_files();
    test_rights();
    test_sleep();
    test_unloaded();
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
