/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ports of one process, over an RNIC that is not there. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "nprdma/mem/arena.h"
#include "nprdma/proto/ep.h"
#include "nprdma/svc/service.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

np_vport_t *ours, *theirs;
np_vlink_t link_;
ucs_status_t down = UCS_OK;
uint8_t *area, *mine;
np_key_t *key;
unsigned num_messages;
void (*mocked_completed)(mocked_comp_t *comp);
void (*mocked_engine)(np_engine_config_t *config);


static void on_complete(void *arg, ucs_status_t status)
{
    mocked_comp_t *comp = arg;

    ++comp->count;
    comp->status = status;
    if (mocked_completed != NULL) {
        mocked_completed(comp);
    }
}

static void on_down(np_flight_t *flight, ucs_status_t status)
{
    down = status;
}

static void on_am(void *arg, uint8_t id, void *data, unsigned len)
{
    ++num_messages;
}

void mocked_progress(void)
{
    np_vport_progress(ours);
    np_vport_progress(theirs);
}

double mocked_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + (time.tv_nsec * 1e-9);
}

int mocked_wait(int (*is_so)(const void *arg), const void *arg,
                const np_vport_t *computes)
{
    const double end = mocked_now() + MOCKED_LIMIT;
    unsigned count;

    while (!is_so(arg) && (mocked_now() < end)) {
        count  = (computes == ours) ? 0 : np_vport_progress(ours);
        count += (computes == theirs) ? 0 : np_vport_progress(theirs);
        if (count == 0) {
            sched_yield();
        }
    }
    return is_so(arg);
}

int mocked_is_done(const void *comp)
{
    return ((const mocked_comp_t*)comp)->count > 0;
}

ucs_status_t mocked_flush(void)
{
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    MOCKED_POST(status, np_ep_flush(&link_.flight, &comp));
    if (status == UCS_INPROGRESS) {
        status = mocked_wait(mocked_is_done, &comp, NULL) ? comp.status :
                 UCS_ERR_TIMED_OUT;
    }
    return status;
}

ucs_status_t mocked_begin(np_dir_t dir, void *bytes, size_t len, void *remote,
                          mocked_comp_t *comp)
{
    const np_iov_t iov = {bytes, len};
    ucs_status_t status;

    *comp = (mocked_comp_t){0, UCS_OK};
    MOCKED_POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1,
                                   (uintptr_t)remote, comp));
    return status;
}

ucs_status_t mocked_move(np_dir_t dir, void *bytes, size_t len, void *remote)
{
    mocked_comp_t comp;
    ucs_status_t status;

    status = mocked_begin(dir, bytes, len, remote, &comp);
    if (status == UCS_INPROGRESS) {
        status = mocked_wait(mocked_is_done, &comp, NULL) ? comp.status :
                 UCS_ERR_TIMED_OUT;
    }
    return status;
}

int mocked_warm(void)
{
    const unsigned long before = ours->flights.stats->writes;
    const double end           = mocked_now() + MOCKED_LIMIT;

    while (mocked_now() < end) {
        if (mocked_move(NP_DIR_PUT, mine, MOCKED_AREA, area) != UCS_OK) {
            return 0;
        }
        if (ours->flights.stats->writes != before) {
            return 1;
        }
    }
    return 0;
}

static void *map_area(uint64_t at)
{
    void *area = mmap((void*)at, MOCKED_AREA, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE |
                      MAP_POPULATE, -1, 0);

    return area;
}

int mocked_start(np_service_mode_t service, int has_module,
                 void (*change)(np_vport_config_t *config))
{
    np_vport_config_t config        = {
        .device            = "mock0:1",
        .gid_index         = -1,
        .recv_buffers      = 64,
        .send_buffers      = 32,
        .sq_size           = 64,
        .credits           = 16,
        .direct_min        = 32768,
        .chunk             = 65536,
        .depth             = 4,
        .pin_max           = 1 << 20,
        .put_once          = 8,
        .connect_timeout   = 60,
        .timeout           = 16,
        .retry_count       = 6,
        .reconnect_timeout = 5
    };
    np_engine_config_t engine       = {
        .share_min   = 256 * 1024,
        .share_chunk = 128 * 1024,
        .inline_max  = NP_INLINE_DEFAULT,
        .intra_node  = NP_INTRA_NODE_VERBS,
        .service     = service
    };
    const np_vuser_t user           = {
        .am        = on_am,
        .complete  = on_complete,
        .link_down = on_down
    };
    np_vdev_addr_t dev_addr;
    np_vport_addr_t addr;
    np_packed_key_t packed;
    np_arenas_t arenas;

    mock_kmod_is_loaded = has_module;
    if (change != NULL) {
        change(&config);
    }
    if (mocked_engine != NULL) {
        mocked_engine(&engine);
    }
    if ((np_engine_init(&engine) != UCS_OK) ||
        (np_vport_open(&config, &np_vlink_ops, &user, &ours) != UCS_OK) ||
        (np_vport_open(&config, &np_vlink_ops, &user, &theirs) != UCS_OK)) {
        return 0;
    }

    area = map_area(MOCKED_AREA_AT);
    mine = map_area(MOCKED_MINE_AT);
    if ((np_arenas_share((uintptr_t)area, MOCKED_AREA, &arenas) != UCS_OK)) {
        return 0;
    }

    np_key_pack_arenas(&packed, arenas);
    np_vport_get_dev_addr(theirs, &dev_addr);
    np_vport_get_addr(theirs, &addr);
    np_vlink_init(&link_, ours, &dev_addr, &addr);
    np_service_start();
    return (np_key_unpack(&packed, &key) == UCS_OK) &&
           (mocked_move(NP_DIR_PUT, mine, 8, area) == UCS_OK);
}

void mocked_end(void)
{
    np_ep_close(&link_.flight);
    np_key_release(key);
    np_vport_close(ours);
    np_vport_close(theirs);
}
