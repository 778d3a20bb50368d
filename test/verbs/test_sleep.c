/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that sleep: their pager does not answer for as long as the test likes.
 * What a peer asks of such a page waits, in order, and nobody else does. Prints
 * TAP.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"
#include "nprdma/face/rnic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE     4096ul
#define ASLEEP   (64 * PAGE)  /* from the beginning of area */
#define PATIENCE 10           /* seconds after which the page comes */

static np_vlink_t other;      /* beside link_, to the same port */
static int fault_fd;
static sem_t answers;         /* posted: all pages come */
static _Atomic int has_answered, has_given_up;
static pthread_t pager;


/* Lets all pages come when it is told to, full of 7 */
static void *answer_all(void *arg)
{
    static uint8_t page[4096] __attribute__((aligned(4096)));
    struct timespec until;
    struct uffdio_copy copy;
    size_t i;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    if (sem_timedwait(&answers, &until) != 0) {
        has_given_up = 1;
    }
    has_answered = 1;
    memset(page, 7, sizeof(page));
    for (i = 0; i < ASLEEP; i += PAGE) {
        copy = (struct uffdio_copy){
            .dst = (uintptr_t)area + i,
            .src = (uintptr_t)page,
            .len = PAGE
        };
        (void)ioctl(fault_fd, UFFDIO_COPY, &copy); /* EEXIST: it is there */
    }
    return NULL;
}

/* A descriptor for the page faults of this very process */
static int has_faults(void)
{
    fault_fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    return fault_fd >= 0;
}

static int fall_asleep(void)
{
    struct uffdio_api api           = {.api = UFFD_API};
    struct uffdio_register register_ = {
        .range = {(uintptr_t)area, ASLEEP},
        .mode  = UFFDIO_REGISTER_MODE_MISSING
    };

    sem_init(&answers, 0, 0);
    madvise(area, ASLEEP, MADV_DONTNEED);
    return has_faults() && (ioctl(fault_fd, UFFDIO_API, &api) == 0) &&
           (ioctl(fault_fd, UFFDIO_REGISTER, &register_) == 0) &&
           (pthread_create(&pager, NULL, answer_all, NULL) == 0);
}

static void wake_up(void)
{
    sem_post(&answers);
    pthread_join(pager, NULL);
}

static int open_other(void)
{
    np_vdev_addr_t dev_addr;
    np_vport_addr_t addr;

    np_vport_get_dev_addr(theirs, &dev_addr);
    np_vport_get_addr(theirs, &addr);
    np_vlink_init(&other, ours, &dev_addr, &addr);
    return 1;
}

/* Theirs looks, or a service thread does it for it */
static const np_vport_t *computes;

static int ends(ucs_status_t status, const mocked_comp_t *comp)
{
    return (status == UCS_OK) ||
           ((status == UCS_INPROGRESS) &&
            mocked_wait(mocked_is_done, comp, computes) &&
            (comp->status == UCS_OK));
}

static int others_flush(void)
{
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    MOCKED_POST(status, np_ep_flush(&other.flight, &comp));
    return ends(status, &comp);
}

#define POST(_status, _call) \
    do { \
        while ((_status = (_call)) == UCS_ERR_NO_RESOURCE) { \
            np_vport_progress(ours); \
            if (computes != theirs) { \
                np_vport_progress(theirs); \
            } \
        } \
    } while (0)

static int is_one_more(const void *before)
{
    return num_messages == (*(const unsigned*)before + 1);
}

/* Everything of the other link, in memory that is there */
static int others_go_on(void)
{
    static const size_t sizes[] = {8, 5000, 300000};
    uint8_t *there              = area + (1 << 20), *own = mine + (1 << 20);
    static uint64_t result;
    mocked_comp_t comp;
    ucs_status_t status;
    np_iov_t iov;
    unsigned i, before;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        iov = (np_iov_t){own, sizes[i]};
        memset(own, 40 + i, sizes[i]);
        comp = (mocked_comp_t){0, UCS_OK};
        POST(status, np_ep_move(NP_DIR_PUT, &other.flight, key, &iov, 1,
                                (uintptr_t)there, &comp));
        TAP_CHILD_CHECK(ends(status, &comp) && others_flush());
        TAP_CHILD_CHECK(memcmp(there, own, sizes[i]) == 0);
        memset(own, 0, sizes[i]);
        comp = (mocked_comp_t){0, UCS_OK};
        POST(status, np_ep_move(NP_DIR_GET, &other.flight, key, &iov, 1,
                                (uintptr_t)there, &comp));
        TAP_CHILD_CHECK(ends(status, &comp));
        TAP_CHILD_CHECK(memcmp(there, own, sizes[i]) == 0);
    }

    memset(there, 0, 8);
    for (i = 0; i < 20; ++i) {
        comp = (mocked_comp_t){0, UCS_OK};
        POST(status, np_ep_atomic(&other.flight, key,
                                  &(np_atomic_t){.addr = (uintptr_t)there,
                                                 .value = 1,
                                                 .op = NP_ATOMIC_ADD,
                                                 .size = 8},
                                  &result, &comp));
        TAP_CHILD_CHECK(ends(status, &comp) && (result == i));
    }
    if (computes == NULL) {
        before = num_messages;
        POST(status, np_vlink_am_short(&other, 1, 7, NULL, 0));
        TAP_CHILD_CHECK(status == UCS_OK);
        TAP_CHILD_CHECK(mocked_wait(is_one_more, &before, NULL));
    }
    TAP_CHILD_CHECK(!has_answered);
    return 0;
}

static int start_asleep(np_service_mode_t service)
{
    TAP_CHILD_CHECK(mocked_start(service, 0, NULL) && open_other());
    TAP_CHILD_CHECK(others_flush() && (mocked_flush() == UCS_OK));
    TAP_CHILD_CHECK(fall_asleep());
    return 0;
}

static int end_awake(void)
{
    np_ep_close(&other.flight);
    TAP_CHILD_CHECK(down == UCS_OK);
    mocked_end();
    TAP_CHILD_CHECK(!has_given_up);
    return 0;
}

/* A put or get of a page that is not there */
static int one_sleeps(np_dir_t dir, size_t len, np_service_mode_t service)
{
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;
    uint8_t *at;
    np_iov_t iov;

    TAP_CHILD_CHECK(start_asleep(service) == 0);
    at = area + ((len < PAGE) ? 0 : 100);
    memset(mine, (dir == NP_DIR_PUT) ? 5 : 0, len);
    iov = (np_iov_t){mine, len};
    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1, (uintptr_t)at,
                            &comp));
    TAP_CHILD_CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
    computes = (service == NP_SERVICE_OFF) ? NULL : theirs;
    TAP_CHILD_CHECK(others_go_on() == 0);
    TAP_CHILD_CHECK((comp.count == 0) || (dir == NP_DIR_PUT));
    wake_up();
    TAP_CHILD_CHECK(ends(status, &comp));
    computes = NULL;
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    memset(mine, (dir == NP_DIR_PUT) ? 5 : 7, len);
    TAP_CHILD_CHECK(memcmp(at, mine, len) == 0);
    return end_awake();
}

/* Each in a process of its own */
#define ONE_SLEEPS(_name, _dir, _len, _service) \
    static int _name(void) \
    { \
        return one_sleeps(_dir, _len, _service); \
    }

ONE_SLEEPS(put_8, NP_DIR_PUT, 8, NP_SERVICE_OFF)
ONE_SLEEPS(put_5000, NP_DIR_PUT, 5000, NP_SERVICE_OFF)
ONE_SLEEPS(put_200000, NP_DIR_PUT, 200000, NP_SERVICE_OFF)
ONE_SLEEPS(get_8, NP_DIR_GET, 8, NP_SERVICE_OFF)
ONE_SLEEPS(get_5000, NP_DIR_GET, 5000, NP_SERVICE_OFF)
ONE_SLEEPS(get_200000, NP_DIR_GET, 200000, NP_SERVICE_OFF)
ONE_SLEEPS(put_8_served, NP_DIR_PUT, 8, NP_SERVICE_ADAPTIVE)
ONE_SLEEPS(put_200000_served, NP_DIR_PUT, 200000, NP_SERVICE_ADAPTIVE)
ONE_SLEEPS(get_200000_served, NP_DIR_GET, 200000, NP_SERVICE_ADAPTIVE)

/* What follows over the same link is not done before, and each once, also if
 * the queue pair fails meanwhile: puts of the same word, or atomics, and a
 * message */
static int in_order(int has_atomics, int is_broken)
{
    static uint64_t values[3] = {100, 200, 300}, results[3];
    mocked_comp_t comps[3];
    ucs_status_t status;
    unsigned before, i;

    TAP_CHILD_CHECK(start_asleep(NP_SERVICE_OFF) == 0);
    for (i = 0; i < 3; ++i) {
        comps[i] = (mocked_comp_t){0, UCS_OK};
        if (has_atomics) {
            POST(status, np_ep_atomic(&link_.flight, key,
                                      &(np_atomic_t){.addr = (uintptr_t)area,
                                                     .value = 1,
                                                     .op = NP_ATOMIC_ADD,
                                                     .size = 8},
                                      &results[i], &comps[i]));
        } else {
            POST(status, np_ep_put_copied(&link_.flight, key, &values[i], 8,
                                          (uintptr_t)area));
        }
        TAP_CHILD_CHECK(status == (has_atomics ? UCS_INPROGRESS : UCS_OK));
    }
    before = num_messages + 1; /* others_go_on()'s */
    POST(status, np_vlink_am_short(&link_, 1, 7, NULL, 0));
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(others_go_on() == 0);
    if (is_broken) {
        np_conn_break(link_.conn);
        ++before;
        TAP_CHILD_CHECK(others_go_on() == 0);
    }
    TAP_CHILD_CHECK(num_messages == before);
    TAP_CHILD_CHECK((comps[0].count | comps[1].count | comps[2].count) == 0);
    wake_up();
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(mocked_wait(is_one_more, &before, NULL));
    for (i = 0; has_atomics && (i < 3); ++i) {
        TAP_CHILD_CHECK((comps[i].count == 1) && (comps[i].status == UCS_OK));
        TAP_CHILD_CHECK(results[i] == (UINT64_C(0x0707070707070707) + i));
    }
    TAP_CHILD_CHECK(*(uint64_t*)area ==
                    (has_atomics ? results[2] + 1 : values[2]));
    TAP_CHILD_CHECK(!is_broken || (link_.conn->epoch > 0));
    return end_awake();
}

#define IN_ORDER(_name, _has_atomics, _is_broken) \
    static int _name(void) \
    { \
        return in_order(_has_atomics, _is_broken); \
    }

IN_ORDER(puts_in_order, 0, 0)
IN_ORDER(atomics_in_order, 1, 0)
IN_ORDER(puts_when_broken, 0, 1)
IN_ORDER(atomics_when_broken, 1, 1)

/* A swapper of the program's that does not come back is no better */
static int swap_in(void *arg, void *va, size_t len, int write)
{
    while (!has_answered) {
        sched_yield();
    }
    return 0;
}

static int swapper_sleeps(void)
{
    const np_swapper_t swapper  = {.swap_in = swap_in};
    static const uint64_t value = 9;
    static uint64_t result;
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL) && open_other());
    TAP_CHILD_CHECK(others_flush() && (mocked_flush() == UCS_OK));
    TAP_CHILD_CHECK(np_mapper_add_swapper((uintptr_t)area, ASLEEP, &swapper) ==
                    UCS_OK);
    fault_fd = -1;
    sem_init(&answers, 0, 0);
    TAP_CHILD_CHECK(pthread_create(&pager, NULL, answer_all, NULL) == 0);
    POST(status, np_ep_put_copied(&link_.flight, key, &value, 8,
                                  (uintptr_t)area));
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(others_go_on() == 0);
    wake_up();
    POST(status, np_ep_atomic(&link_.flight, key,
                              &(np_atomic_t){.addr = (uintptr_t)area,
                                             .value = 1, .op = NP_ATOMIC_ADD,
                                             .size = 8},
                              &result, &comp));
    TAP_CHILD_CHECK(ends(status, &comp) && (result == 9));
    TAP_CHILD_CHECK(*(uint64_t*)area == 10);
    np_mapper_remove_swapper((uintptr_t)area, ASLEEP);
    return end_awake();
}

/* A port is closed while one of its pages sleeps, which comes later */
static int port_closes(void)
{
    static const uint64_t value = 9;
    ucs_status_t status;

    TAP_CHILD_CHECK(start_asleep(NP_SERVICE_OFF) == 0);
    POST(status, np_ep_put_copied(&link_.flight, key, &value, 8,
                                  (uintptr_t)area));
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(others_go_on() == 0);
    np_ep_close(&other.flight);
    mocked_end();
    TAP_CHILD_CHECK(!has_answered);
    wake_up();
    TAP_CHILD_CHECK(area[0] == 7);
    return 0;
}

void test_sleep(void)
{
    if (!has_faults()) {
        ++tap_count;
        printf("ok %u - pages that sleep # SKIP userfaultfd(): %s\n", tap_count,
               strerror(errno));
        return;
    }

    TAP_CHECK(tap_child(put_8),
              "a put whose page sleeps holds up no other connection");
    TAP_CHECK(tap_child(put_5000), "nor does one of 5000 bytes");
    TAP_CHECK(tap_child(put_200000), "nor one that is written");
    TAP_CHECK(tap_child(get_8), "nor a get");
    TAP_CHECK(tap_child(get_5000), "of 5000 bytes");
    TAP_CHECK(tap_child(get_200000), "or one that is written");
    TAP_CHECK(tap_child(put_8_served), "nor does a put to who computes");
    TAP_CHECK(tap_child(put_200000_served), "nor a large one");
    TAP_CHECK(tap_child(get_200000_served), "nor a large get");
    TAP_CHECK(tap_child(puts_in_order),
              "what follows over the same connection waits");
    TAP_CHECK(tap_child(atomics_in_order), "and with atomics");
    TAP_CHECK(tap_child(puts_when_broken),
              "also if the queue pair fails meanwhile");
    TAP_CHECK(tap_child(atomics_when_broken), "and each atomic once");
    TAP_CHECK(tap_child(swapper_sleeps), "nor does a swapper that sleeps");
    TAP_CHECK(tap_child(port_closes), "a port can be closed meanwhile");
}
