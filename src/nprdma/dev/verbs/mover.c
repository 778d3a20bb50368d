/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What moves bytes between memory of ours and of a peer: RDMA Reads and Writes.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "post.h"
#include "views.h"


void np_conn_write_lease(np_conn_t *conn, np_place_t from, np_place_t to,
                         size_t len, const uint32_t *imm, np_stream_t *stream,
                         uint32_t chunk)
{
    unsigned flags = IBV_SEND_SIGNALED;
    struct ibv_send_wr *wr;

    if ((imm != NULL) && conn->is_distant) {
        flags |= IBV_SEND_SOLICITED;
    }

    wr = np_conn_request(conn, from, len, (imm == NULL) ? IBV_WR_RDMA_WRITE :
                         IBV_WR_RDMA_WRITE_WITH_IMM, flags);
    wr->imm_data            = (imm == NULL) ? 0 : *imm;
    wr->wr.rdma.remote_addr = to.addr;
    wr->wr.rdma.rkey        = to.key;
    conn->unsignaled        = 0;
    np_conn_post(conn, wr, NULL, NP_SQ_STREAM, stream, chunk);
}

/* With @a op, which is told of its completion, or without */
static void np_conn_rdma(np_conn_t *conn, enum ibv_wr_opcode opcode,
                         np_place_t ours, np_place_t theirs, size_t len,
                         np_rop_t *op, uint32_t number)
{
    unsigned flags = (op != NULL) ? IBV_SEND_SIGNALED : 0;
    struct ibv_send_wr *wr;

    if ((opcode == IBV_WR_RDMA_WRITE) && (len <= conn->port->max_inline)) {
        flags |= IBV_SEND_INLINE;
    }
    wr = np_conn_request(conn, ours, len, opcode, flags);
    wr->wr.rdma.remote_addr = theirs.addr;
    wr->wr.rdma.rkey        = theirs.key;
    conn->unsignaled = (op != NULL) ? 0 : (conn->unsignaled + 1);
    np_conn_post(conn, wr, NULL, 0, op, number);
    np_conn_count(conn);
}

void np_conn_write(np_conn_t *conn, np_place_t from, np_place_t to, size_t len)
{
    np_conn_rdma(conn, IBV_WR_RDMA_WRITE, from, to, len, NULL, 0);
}

void np_conn_read(np_conn_t *conn, np_place_t to, np_place_t from, size_t len,
                  np_rop_t *op, uint32_t number)
{
    np_conn_rdma(conn, IBV_WR_RDMA_READ, to, from, len, op, number);
}

void np_conn_read_entries(np_conn_t *conn, void *buffer, np_place_t pages,
                          size_t len, np_rop_t *op, uint32_t number)
{
    np_conn_read(conn, np_vport_place(conn->port, buffer),
                 (np_place_t){NP_VIEWS_TABLE(pages.addr), pages.key},
                 np_page_count(pages.addr, len) * sizeof(uint32_t), op, number);
}
