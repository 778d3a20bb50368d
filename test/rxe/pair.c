/* SPDX-License-Identifier: BSD-3-Clause */

#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT  60.0 /* seconds that a completion may take */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + (time.tv_nsec * 1e-9);
}

static void need(int ok, const char *what)
{
    if (!ok) {
        printf("Bail out! %s: %m\n", what);
        exit(1);
    }
}

static struct ibv_qp *create_qp(pair_t *pair)
{
    struct ibv_qp_init_attr init = {
        .send_cq = pair->cq,
        .recv_cq = pair->cq,
        .qp_type = IBV_QPT_RC,
        .cap     = {
            .max_send_wr  = 16,
            .max_recv_wr  = 16,
            .max_send_sge = 1,
            .max_recv_sge = 1
        }
    };
    struct ibv_qp_attr attr      = {
        .qp_state        = IBV_QPS_INIT,
        .port_num        = pair->nic->port_num,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_ATOMIC
    };
    struct ibv_qp *qp;

    qp = ibv_create_qp(pair->nic->pd, &init);
    need(qp != NULL, "ibv_create_qp");
    need(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
    return qp;
}

static void connect_qp(pair_t *pair, struct ibv_qp *qp, struct ibv_qp *peer)
{
    struct ibv_qp_attr ready = {
        .qp_state           = IBV_QPS_RTR,
        .path_mtu           = pair->nic->mtu,
        .dest_qp_num        = peer->qp_num,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer      = 12,
        .ah_attr            = {
            .is_global = 1,
            .port_num  = pair->nic->port_num,
            .grh       = {
                .dgid       = pair->nic->gid,
                .sgid_index = pair->nic->gid_index,
                .hop_limit  = 1
            }
        }
    };
    struct ibv_qp_attr send  = {
        .qp_state      = IBV_QPS_RTS,
        .timeout       = 18,
        .retry_cnt     = 6,
        .rnr_retry     = 7,
        .max_rd_atomic = 4
    };

    need(ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER) == 0, "to RTR");
    need(ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT |
                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC) == 0, "to RTS");
}

void pair_open(pair_t *pair, np_nic_t *nic)
{
    pair->nic = nic;
    pair->cq  = ibv_create_cq(nic->ctx, 64, NULL, NULL, 0);
    need(pair->cq != NULL, "ibv_create_cq");
    pair->qp[0] = create_qp(pair);
    pair->qp[1] = create_qp(pair);
    connect_qp(pair, pair->qp[0], pair->qp[1]);
    connect_qp(pair, pair->qp[1], pair->qp[0]);
}

void pair_close(pair_t *pair)
{
    need(ibv_destroy_qp(pair->qp[0]) == 0, "ibv_destroy_qp");
    need(ibv_destroy_qp(pair->qp[1]) == 0, "ibv_destroy_qp");
    need(ibv_destroy_cq(pair->cq) == 0, "ibv_destroy_cq");
}

static int poll_one(pair_t *pair, struct ibv_wc *wc)
{
    double end = now() + LIMIT;
    int ret;

    do {
        ret = ibv_poll_cq(pair->cq, 1, wc);
        need(ret >= 0, "ibv_poll_cq");
    } while ((ret == 0) && (now() < end));
    return (ret == 1) ? 0 : -1;
}

static int post(pair_t *pair, struct ibv_send_wr *wr, pair_mem_t local,
                size_t len)
{
    struct ibv_sge sge = {local.addr, len, local.key};
    struct ibv_send_wr *bad;

    wr->sg_list    = &sge;
    wr->num_sge    = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(pair->qp[0], wr, &bad);
}

static int run(pair_t *pair, struct ibv_send_wr *wr, pair_mem_t local,
               size_t len)
{
    need(post(pair, wr, local, len) == 0, "ibv_post_send");
    return pair_wait(pair);
}

void pair_post(pair_t *pair, enum ibv_wr_opcode opcode, pair_mem_t local,
               pair_mem_t remote, size_t len)
{
    struct ibv_send_wr wr = {
        .opcode  = opcode,
        .wr.rdma = {.remote_addr = remote.addr, .rkey = remote.key}
    };

    need(post(pair, &wr, local, len) == 0, "ibv_post_send");
}

int pair_wait(pair_t *pair)
{
    struct ibv_wc wc;

    return (poll_one(pair, &wc) == 0) ? (int)wc.status : PAIR_NOTHING;
}

int pair_write(pair_t *pair, pair_mem_t local, pair_mem_t remote, size_t len)
{
    pair_post(pair, IBV_WR_RDMA_WRITE, local, remote, len);
    return pair_wait(pair);
}

int pair_read(pair_t *pair, pair_mem_t local, pair_mem_t remote, size_t len)
{
    pair_post(pair, IBV_WR_RDMA_READ, local, remote, len);
    return pair_wait(pair);
}

int pair_add(pair_t *pair, pair_mem_t local, pair_mem_t remote, uint64_t add)
{
    struct ibv_send_wr wr = {
        .opcode    = IBV_WR_ATOMIC_FETCH_AND_ADD,
        .wr.atomic = {
            .remote_addr = remote.addr,
            .rkey        = remote.key,
            .compare_add = add
        }
    };

    return run(pair, &wr, local, sizeof(add));
}

int pair_swap(pair_t *pair, pair_mem_t local, pair_mem_t remote,
              uint64_t compare, uint64_t swap)
{
    struct ibv_send_wr wr = {
        .opcode    = IBV_WR_ATOMIC_CMP_AND_SWP,
        .wr.atomic = {
            .remote_addr = remote.addr,
            .rkey        = remote.key,
            .compare_add = compare,
            .swap        = swap
        }
    };

    return run(pair, &wr, local, sizeof(swap));
}

int pair_send(pair_t *pair, pair_mem_t from, pair_mem_t into, size_t len)
{
    struct ibv_sge sge        = {into.addr, len, into.key};
    struct ibv_recv_wr buffer = {.sg_list = &sge, .num_sge = 1};
    struct ibv_send_wr wr     = {.opcode = IBV_WR_SEND};
    int status                = IBV_WC_SUCCESS;
    struct ibv_recv_wr *bad;
    struct ibv_wc wc;
    int i;

    need(ibv_post_recv(pair->qp[1], &buffer, &bad) == 0, "ibv_post_recv");
    need(post(pair, &wr, from, len) == 0, "ibv_post_send");
    for (i = 0; (i < 2) && (status == IBV_WC_SUCCESS); ++i) {
        if (poll_one(pair, &wc) != 0) {
            return PAIR_NOTHING;
        }
        status = wc.status;
    }
    return status;
}
