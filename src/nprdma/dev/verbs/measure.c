/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What is cheaper, to register or to copy (seed 003, UNH EXS: direct and
 * indirect transfers)? Both are measured on memory that is there, and so is the
 * message that each copied part needs: some RNICs are software. And how much to
 * register at once: what one chunk more costs against what moves meanwhile.
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

/* Seconds, as an RNIC needs */
#define NP_MESSAGE_DEFAULT 0.4e-6

/* Datagrams in flight, and how long they may take, where they may get lost */
#define NP_MESSAGES        8
#define NP_MESSAGES_LIMIT  ucs_time_from_msec(50)

#define NP_MESSAGE_SIZE    64
#define NP_MESSAGE_GRH     40

#define NP_MEASURE_QKEY    0x4e50524du


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

static int np_messages_post(struct ibv_qp *qp, struct ibv_ah *ah,
                            struct ibv_mr *mr)
{
    struct ibv_sge sge     = {
        .addr   = (uintptr_t)mr->addr,
        .length = NP_MESSAGE_GRH + NP_MESSAGE_SIZE,
        .lkey   = mr->lkey
    };
    struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send, *bad_send;
    int i;

    for (i = 0; i < NP_MESSAGES; ++i) {
        if (ibv_post_recv(qp, &recv, &bad_recv) != 0) {
            return 0;
        }
    }

    memset(&send, 0, sizeof(send));
    send.sg_list           = &sge;
    send.num_sge           = 1;
    send.opcode            = IBV_WR_SEND;
    send.send_flags        = IBV_SEND_SIGNALED;
    send.wr.ud.ah          = ah;
    send.wr.ud.remote_qpn  = qp->qp_num;
    send.wr.ud.remote_qkey = NP_MEASURE_QKEY;
    sge.length             = NP_MESSAGE_SIZE;
    for (i = 0; i < NP_MESSAGES; ++i) {
        if (ibv_post_send(qp, &send, &bad_send) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Each is sent, and received */
static int np_messages_wait(struct ibv_cq *cq)
{
    ucs_time_t end = ucs_get_time() + NP_MESSAGES_LIMIT;
    struct ibv_wc wc[NP_MESSAGES];
    int missing = 2 * NP_MESSAGES, count, i;

    while (missing > 0) {
        count = ibv_poll_cq(cq, NP_MESSAGES, wc);
        for (i = 0; i < count; ++i) {
            missing -= wc[i].status == IBV_WC_SUCCESS;
        }
        if (ucs_get_time() > end) {
            return 0;
        }
    }
    return 1;
}

/* Of one message, in seconds, both sides': from a queue to itself. As long as
 * an RNIC would need where that does not work. */
static double np_measure_message(np_nic_t *nic, struct ibv_mr *mr)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_UD,
        .cap     = {
            .max_send_wr  = NP_MESSAGES,
            .max_recv_wr  = NP_MESSAGES,
            .max_send_sge = 1,
            .max_recv_sge = 1
        }
    };
    double best       = NP_MESSAGE_DEFAULT, time;
    struct ibv_ah *ah = NULL;
    struct ibv_qp *qp = NULL;
    ucs_time_t start;
    int i;

    attr.send_cq = ibv_create_cq(nic->ctx, 2 * NP_MESSAGES, NULL, NULL, 0);
    attr.recv_cq = attr.send_cq;
    if (attr.send_cq == NULL) {
        return best;
    }

    qp = ibv_create_qp(nic->pd, &attr);
    if ((qp != NULL) &&
        (np_nic_start_ud(nic, qp, NP_MEASURE_QKEY) == UCS_OK)) {
        ah = np_nic_address(nic, nic->gid.raw, nic->port.lid);
    }
    for (i = 0; (ah != NULL) && (i < NP_MEASURE_ROUNDS); ++i) {
        start = ucs_get_time();
        if (!np_messages_post(qp, ah, mr) || !np_messages_wait(attr.send_cq)) {
            break;
        }
        time = ucs_time_to_sec(ucs_get_time() - start) / NP_MESSAGES;
        best = ((i == 0) || (time < best)) ? time : best;
    }

    if (ah != NULL) {
        ibv_destroy_ah(ah);
    }
    if (qp != NULL) {
        ibv_destroy_qp(qp);
    }
    ibv_destroy_cq(attr.send_cq);
    return best;
}

/* Both sides register at the same time; one side's copies take place during the
 * other's, but for the first message. A transfer that is registered needs two
 * messages that others do not: READY, and the completion of a write. */
static size_t np_measure_compare(const np_nic_t *nic, double copy)
{
    double direct, indirect;
    size_t len;

    copy /= NP_MEASURE_LARGE;
    for (len = NP_DIRECT_FIRST; len < NP_DIRECT_LAST; len *= 2) {
        direct   = nic->reg_fixed + (nic->reg_byte * len) + (2 * nic->message);
        indirect = (copy * (len + ucs_min(len, NP_VSEG_DATA))) +
                   (nic->message * ucs_div_round_up(len, NP_VSEG_DATA));
        if (direct <= indirect) {
            break;
        }
    }
    return len;
}

static void np_measure(np_nic_t *nic)
{
    double small, large, copy;
    struct ibv_mr *mr;
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
    if ((small < 0) || (large < 0) ||
        (np_nic_reg(nic, area, NP_MEASURE_SMALL, IBV_ACCESS_LOCAL_WRITE, &mr) !=
         UCS_OK)) {
        goto out;
    }

    nic->message    = np_measure_message(nic, mr);
    nic->reg_byte   = ucs_max((large - small) /
                              (NP_MEASURE_LARGE - NP_MEASURE_SMALL), 0.0);
    nic->reg_fixed  = ucs_max(small - (nic->reg_byte * NP_MEASURE_SMALL), 0.0);
    nic->direct_min = np_measure_compare(nic, copy);
    np_nic_dereg(mr);
    ucs_debug("nprdma: %s: 4 KiB are registered in %.2f us, 256 KiB in %.2f us, "
              "and copied in %.2f us; a message takes %.2f us: transfers are "
              "registered from %zu bytes on", nic->name, small * 1e6,
              large * 1e6, copy * 1e6, nic->message * 1e6, nic->direct_min);
out:
    munmap(area, 2 * NP_MEASURE_LARGE);
}

size_t np_nic_direct_min(np_nic_t *nic)
{
    if (nic->direct_min == 0) {
        np_measure(nic);
    }
    return nic->direct_min;
}

/* n chunks take n times the longer of registering and moving one, and the
 * shorter once more before the first or after the last: len / n of that. With
 * the fixed cost of each chunk their sum is least for chunks of sqrt(len *
 * fixed / shorter). */
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
