/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What is cheaper, to register or to copy (seed 003, UNH EXS: direct and indirect
 * transfers)? Both are measured on memory that is there. And how much to register
 * at once: what one piece more costs against what moves meanwhile.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nic.h"
#include "vwire.h"

#include <ucs/time/time.h>

#include <string.h>
#include <sys/mman.h>

#define NP_MEASURE_SMALL   ((size_t)4096)
#define NP_MEASURE_LARGE   ((size_t)1 << 18)
#define NP_MEASURE_ROUNDS  3

#define NP_DIRECT_FIRST    ((size_t)4096)
#define NP_DIRECT_LAST     ((size_t)1 << 20)

#define NP_CHUNK_FIRST     ((size_t)1 << 16)
#define NP_CHUNK_LAST      ((size_t)1 << 22)

/* Where nothing can be measured */
#define NP_DIRECT_DEFAULT  ((size_t)32768)
#define NP_CHUNK_DEFAULT   ((size_t)1 << 18)

/* A message more costs both sides posting, polling and a header. A transfer that
 * is registered needs two that others do not: READY, and the completion of a
 * write. Seconds, of an RNIC; they are few, and exactness is not needed. */
#define NP_MESSAGE_TIME    0.4e-6


/* The best of some rounds, in seconds; negative: it cannot be registered */
static double np_measure_reg(np_nic_t *nic, void *area, size_t len)
{
    double best = -1, time;
    struct ibv_mr *mr;
    ucs_time_t start;
    int i;

    for (i = 0; i < NP_MEASURE_ROUNDS; ++i) {
        start = ucs_get_time();
        if (np_nic_reg(nic, area, len, IBV_ACCESS_LOCAL_WRITE |
                       IBV_ACCESS_REMOTE_WRITE, &mr) != UCS_OK) {
            return -1;
        }
        np_nic_dereg(mr);
        time = ucs_time_to_sec(ucs_get_time() - start);
        best = ((best < 0) || (time < best)) ? time : best;
    }
    return best;
}

static double np_measure_copy(void *area, size_t len)
{
    double best = -1, time;
    ucs_time_t start;
    int i;

    for (i = 0; i < NP_MEASURE_ROUNDS; ++i) {
        start = ucs_get_time();
        memcpy(area, UCS_PTR_BYTE_OFFSET(area, len), len);
        time = ucs_time_to_sec(ucs_get_time() - start);
        best = ((best < 0) || (time < best)) ? time : best;
    }
    return best;
}

/* Both sides register at the same time; of the copies one side's is hidden
 * behind the other's, but for the first message */
static size_t np_measure_compare(double fixed, double per_byte, double copy)
{
    double direct, indirect;
    size_t len;

    copy /= NP_MEASURE_LARGE;
    for (len = NP_DIRECT_FIRST; len < NP_DIRECT_LAST; len *= 2) {
        direct   = fixed + (per_byte * len) + (2 * NP_MESSAGE_TIME);
        indirect = (copy * (len + ucs_min(len, NP_VSEG_DATA))) +
                   (NP_MESSAGE_TIME * ucs_div_round_up(len, NP_VSEG_DATA));
        if (direct <= indirect) {
            break;
        }
    }
    return len;
}

static void np_measure(np_nic_t *nic)
{
    double small, large, copy;
    void *area;

    nic->direct_min = NP_DIRECT_DEFAULT;
    area            = mmap(NULL, 2 * NP_MEASURE_LARGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (area == MAP_FAILED) {
        return;
    }

    small = np_measure_reg(nic, area, NP_MEASURE_SMALL);
    large = np_measure_reg(nic, area, NP_MEASURE_LARGE);
    copy  = np_measure_copy(area, NP_MEASURE_LARGE);
    munmap(area, 2 * NP_MEASURE_LARGE);
    if ((small < 0) || (large < 0)) {
        return;
    }

    nic->reg_byte   = ucs_max((large - small) /
                              (NP_MEASURE_LARGE - NP_MEASURE_SMALL), 0.0);
    nic->reg_fixed  = ucs_max(small - (nic->reg_byte * NP_MEASURE_SMALL), 0.0);
    nic->direct_min = np_measure_compare(nic->reg_fixed, nic->reg_byte, copy);
    ucs_debug("nprdma: %s: 4 KiB are registered in %.2f us, 256 KiB in %.2f us, "
              "and copied in %.2f us: transfers are registered from %zu bytes "
              "on", nic->name, small * 1e6, large * 1e6, copy * 1e6,
              nic->direct_min);
}

size_t np_nic_direct_min(np_nic_t *nic)
{
    if (nic->direct_min == 0) {
        np_measure(nic);
    }
    return nic->direct_min;
}

/* n pieces take n times the longer of registering and moving one, and the shorter
 * once more before the first or behind the last: len / n of that. With the fixed
 * cost of each piece their sum is least for pieces of sqrt(len * fixed / shorter). */
size_t np_nic_chunk(np_nic_t *nic, size_t len)
{
    double shorter, chunk;

    if ((np_nic_direct_min(nic) == 0) || !(nic->reg_fixed > 0)) {
        return NP_CHUNK_DEFAULT;
    }

    shorter = ucs_min(nic->reg_byte, 1 / nic->bandwidth);
    for (chunk = NP_CHUNK_FIRST; (chunk < NP_CHUNK_LAST) &&
         ((chunk * chunk * shorter) < (len * nic->reg_fixed)); chunk *= 2) {
    }
    return chunk;
}
