/* SPDX-License-Identifier: BSD-3-Clause */
/* A libibverbs without a device. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mock_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define MOCK_PAGE    4096ul
#define MOCK_KEYS    65536u
#define MOCK_QPS     65536u
#define MOCK_GRH     40
#define MOCK_INLINE  256u
#define MOCK_MAX_MSG (1u << 20)
#define MOCK_UNIT    64ul   /* nothing smaller of memory is torn */
#define MOCK_POLL    6u    /* completions that a simulated poll finds: less */
#define MOCK_CHOICES 64u    /* queue pairs that a simulation chooses from */

/* Requests of a queue pair that mock_turn has looked at */
enum {
    MOCK_PASSED_NONE,
    MOCK_PASSED_READS,
    MOCK_PASSED_ALL
};

/* What libibverbs and this file know of each object; the library's part is
 * first */
typedef struct mock_mr {
    struct ibv_mr mr;
    uint64_t      iova;
    int           access;
    int           is_forced; /* the program may not read it */
    int           has_view;
    mock_view_t   view;
} mock_mr_t;

typedef struct mock_wc {
    struct mock_wc *next;
    struct ibv_wc  wc;
} mock_wc_t;

typedef struct mock_channel {
    struct ibv_comp_channel channel;  /* its fd: pointers to queues come out */
    int                     write_fd;
} mock_channel_t;

typedef struct mock_cq {
    struct ibv_cq cq;
    mock_wc_t     *first;
    mock_wc_t     **last;
    int           is_armed;
    int           is_solicited;  /* only by those */
} mock_cq_t;

typedef struct mock_recv {
    struct mock_recv *next;
    uint64_t         wr_id;
    uint64_t         addr;
    uint32_t         length;
} mock_recv_t;

typedef struct mock_queue {
    mock_recv_t *first;
    mock_recv_t **last;
    unsigned    count;
} mock_queue_t;

typedef struct mock_srq {
    struct ibv_srq srq;
    mock_queue_t   queue;
    unsigned       limit;    /* 0: nobody is told */
} mock_srq_t;

typedef struct mock_qp {
    struct ibv_qp qp;
    uint32_t      dest;
    mock_queue_t  queue;     /* datagrams */
    int           is_stuck;  /* its peer has no buffer: in this round of work */
    int           passed;    /* mock_turn: requests of it that were looked at */
} mock_qp_t;

typedef struct mock_ah {
    struct ibv_ah      ah;
    struct ibv_ah_attr attr;
} mock_ah_t;

/* A request that was posted, in the order of all */
typedef struct mock_wr {
    struct mock_wr     *next;
    mock_qp_t          *qp;
    struct ibv_send_wr wr;
    struct ibv_sge     sge;
    mock_ah_t          ah;      /* it may be destroyed before */
    uint8_t            bytes[MOCK_INLINE];
    size_t             done;     /* mock_turn: bytes of it that have moved */
    int                is_done;  /* all of it; it may not have completed */
    enum ibv_wc_status status;   /* and how it has ended */
} mock_wr_t;

int (*mock_find_view)(int fd, mock_view_t *view);
int (*mock_refuse_view)(size_t len);
int mock_swallows;
uint8_t mock_swallowed;

/* Guards all that follows, and every object */
static pthread_mutex_t mock_lock = PTHREAD_MUTEX_INITIALIZER;
static mock_mr_t *mock_mrs[MOCK_KEYS];
static uint32_t mock_last_key;
static mock_qp_t *mock_qps[MOCK_QPS];
static uint32_t mock_last_qpn = 16;
static mock_wr_t *mock_work;
static mock_wr_t **mock_work_end = &mock_work;
static int mock_is_held;
static mock_below_t mock_poll_below;
static unsigned mock_ahs;
static unsigned mock_ahs_live;
static unsigned mock_views_live;
static unsigned mock_mrs_live;
static unsigned mock_refusals;   /* of what a request wants to do with memory */
static int mock_async[2] = {-1, -1};
static int mock_kernel = -1;  /* has none of its calls */

static struct ibv_device mock_device = {.name = "mock0", .dev_name = "mock0"};
static const uint8_t mock_gid[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};


static int mock_min(int a, int b)
{
    return (a < b) ? a : b;
}

static void mock_unlock(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

/* The rest of the function has the lock */
#define MOCK_LOCKED \
    __attribute__((cleanup(mock_unlock))) pthread_mutex_t *_lock = &mock_lock; \
    pthread_mutex_lock(_lock)

/* Completions */

static void mock_complete(mock_cq_t *cq, const struct ibv_wc *wc, int solicited)
{
    mock_wc_t *entry = calloc(1, sizeof(*entry));
    mock_channel_t *channel;

    entry->wc = *wc;
    *cq->last = entry;
    cq->last  = &entry->next;
    if (cq->is_armed && (!cq->is_solicited || solicited ||
                         (wc->status != IBV_WC_SUCCESS))) {
        cq->is_armed = 0;
        channel      = (mock_channel_t*)cq->cq.channel;
        if ((channel != NULL) &&
            (write(channel->write_fd, &cq, sizeof(cq)) != sizeof(cq))) {
            abort();
        }
    }
}

static void mock_sent(const mock_wr_t *work, enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {
        [IBV_WR_RDMA_WRITE]          = IBV_WC_RDMA_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
        [IBV_WR_SEND]                = IBV_WC_SEND,
        [IBV_WR_RDMA_READ]           = IBV_WC_RDMA_READ
    };
    struct ibv_wc wc = {
        .wr_id  = work->wr.wr_id,
        .status = status,
        .opcode = opcodes[work->wr.opcode],
        .qp_num = work->qp->qp.qp_num
    };

    if ((status != IBV_WC_SUCCESS) ||
        (work->wr.send_flags & IBV_SEND_SIGNALED)) {
        mock_complete((mock_cq_t*)work->qp->qp.send_cq, &wc, 0);
    }
}

static int mock_poll_cq(struct ibv_cq *ibv_cq, int count, struct ibv_wc *wc)
{
    MOCK_LOCKED;
    mock_cq_t *cq = (mock_cq_t*)ibv_cq;
    mock_wc_t *entry;
    int i;

    if (mock_poll_below != NULL) { /* some may be seen later than others */
        count = mock_min(count, mock_poll_below(MOCK_POLL));
    }
    for (i = 0; (i < count) && (cq->first != NULL); ++i) {
        entry     = cq->first;
        wc[i]     = entry->wc;
        cq->first = entry->next;
        if (cq->first == NULL) {
            cq->last = &cq->first;
        }
        free(entry);
    }
    return i;
}

static int mock_req_notify_cq(struct ibv_cq *ibv_cq, int solicited)
{
    MOCK_LOCKED;
    mock_cq_t *cq = (mock_cq_t*)ibv_cq;

    /* all is more than solicited */
    cq->is_solicited = solicited && (!cq->is_armed || cq->is_solicited);
    cq->is_armed     = 1;
    return 0;
}

/* Receive queues */

static void mock_queue_init(mock_queue_t *queue)
{
    queue->first = NULL;
    queue->last  = &queue->first;
    queue->count = 0;
}

static void mock_queue_add(mock_queue_t *queue, const struct ibv_recv_wr *wr)
{
    mock_recv_t *recv;

    for (; wr != NULL; wr = wr->next) {
        recv  = calloc(1, sizeof(*recv));
        *recv = (mock_recv_t){
            .wr_id  = wr->wr_id,
            .addr   = wr->sg_list->addr,
            .length = wr->sg_list->length
        };
        *queue->last = recv;
        queue->last  = &recv->next;
        ++queue->count;
    }
}

static int mock_queue_take(mock_queue_t *queue, mock_recv_t *recv)
{
    mock_recv_t *first = queue->first;

    if (first == NULL) {
        return 0;
    }

    *recv        = *first;
    queue->first = first->next;
    if (queue->first == NULL) {
        queue->last = &queue->first;
    }
    --queue->count;
    free(first);
    return 1;
}

static void mock_queue_cleanup(mock_queue_t *queue)
{
    mock_recv_t recv;

    while (mock_queue_take(queue, &recv)) {
    }
}

/* Of a shared queue, which tells when it gets empty */
static int mock_srq_take(mock_srq_t *srq, mock_recv_t *recv)
{
    struct ibv_async_event event = {
        .element.srq = &srq->srq,
        .event_type  = IBV_EVENT_SRQ_LIMIT_REACHED
    };

    if (!mock_queue_take(&srq->queue, recv)) {
        return 0;
    }

    if (srq->queue.count < srq->limit) {
        srq->limit = 0;
        if (write(mock_async[1], &event, sizeof(event)) != sizeof(event)) {
            abort();
        }
    }
    return 1;
}

/* Memory */

static mock_mr_t *mock_mr_find(uint32_t key, uint64_t addr, size_t len,
                               int access)
{
    mock_mr_t *mr = (key < MOCK_KEYS) ? mock_mrs[key] : NULL;

    return ((mr != NULL) && ((mr->access & access) == access) &&
            (addr >= mr->iova) && (len <= mr->mr.length) &&
            ((addr - mr->iova) <= (mr->mr.length - len))) ? mr : NULL;
}

/* As a device reads what it has pinned, whoever may */
static void mock_mr_force(void *bytes, uint64_t addr, size_t len)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

    if ((fd < 0) || (pread(fd, bytes, len, addr) != (ssize_t)len)) {
        abort();
    }
    close(fd);
}

/* Between memory of a region and bytes, page by page: a view changes there */
static void mock_mr_copy(const mock_mr_t *mr, uint64_t addr, void *bytes,
                         size_t len, int to_region)
{
    size_t piece;
    void *at;

    for (; len > 0; len -= piece, addr += piece, bytes += piece) {
        piece = MOCK_PAGE - (addr % MOCK_PAGE);
        piece = (piece < len) ? piece : len;
        if (mr->is_forced && !to_region) {
            mock_mr_force(bytes, addr, piece);
            continue;
        }
        at    = !mr->has_view ? (uint8_t*)mr->mr.addr + (addr - mr->iova) :
                to_region ? mr->view.write(mr->view.arg, addr) :
                (void*)mr->view.read(mr->view.arg, addr);
        memcpy(to_region ? at : bytes, to_region ? bytes : at, piece);
    }
}

static int mock_mr_add(mock_mr_t *mr, struct ibv_pd *pd)
{
    uint32_t i;

    for (i = 0; i < MOCK_KEYS; ++i) {
        mock_last_key = (mock_last_key + 1) % MOCK_KEYS;
        if ((mock_last_key != 0) && (mock_mrs[mock_last_key] == NULL)) {
            mock_mrs[mock_last_key] = mr;
            ++mock_mrs_live;
            mr->mr.context          = pd->context;
            mr->mr.pd               = pd;
            mr->mr.lkey             = mock_last_key;
            mr->mr.rkey             = mock_last_key;
            return 1;
        }
    }
    return 0;
}

/* What cannot be registered; guarded by the lock */
static uint64_t mock_refused, mock_refused_end;
static int mock_refused_error = ENOMEM;

void mock_refuse(const void *addr, size_t len, int error)
{
    MOCK_LOCKED;
    mock_refused_error = error;
    mock_refused     = (uintptr_t)addr;
    mock_refused_end = mock_refused + len;
}

/* What may be done with all of a range */
#define MOCK_READ  1
#define MOCK_WRITE 2
#define MOCK_FORCE 4  /* write, or have a copy of one's own to write */

static unsigned mock_rights(uint64_t va, uint64_t end)
{
    unsigned rights = MOCK_READ | MOCK_WRITE | MOCK_FORCE;
    FILE *maps      = fopen("/proc/self/maps", "re");
    unsigned long first, last;
    char line[512], rwxp[8];

    while ((va < end) && (maps != NULL) &&
           (fgets(line, sizeof(line), maps) != NULL)) {
        if ((sscanf(line, "%lx-%lx %7s", &first, &last, rwxp) != 3) ||
            (last <= va)) {
            continue;
        }
        if (first > va) {
            break;
        }
        rights &= ((rwxp[0] == 'r') ? MOCK_READ : 0) |
                  ((rwxp[1] == 'w') ? MOCK_WRITE : 0) |
                  (((rwxp[1] == 'w') || (rwxp[3] == 'p')) ? MOCK_FORCE : 0);
        va      = last;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return (va < end) ? 0 : rights;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    const uint64_t end    = (uintptr_t)addr + len;
    const unsigned rights = mock_rights((uintptr_t)addr, end);
    mock_mr_t *mr;

    /* as Linux 6.1: it pins to write, and what nobody shall write by force */
    if (!(rights & ((access & IBV_ACCESS_LOCAL_WRITE) ? MOCK_WRITE :
                    MOCK_FORCE))) {
        errno = EFAULT;
        return NULL;
    }

    mr = calloc(1, sizeof(*mr));
    mr->mr.addr   = addr;
    mr->mr.length = len;
    mr->iova      = (uintptr_t)addr;
    mr->access    = access;
    mr->is_forced = !(rights & MOCK_READ);
    MOCK_LOCKED;
    if (((uintptr_t)addr < mock_refused_end) && (end > mock_refused)) {
        free(mr);
        errno = mock_refused_error;
        return NULL;
    }
    if (!mock_mr_add(mr, pd)) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    return &mr->mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
                                uint64_t iova, unsigned int access)
{
    return ibv_reg_mr(pd, addr, len, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
                                 uint64_t iova, int fd, int access)
{
    mock_view_t view;
    mock_mr_t *mr;
    int error;

    error = (mock_refuse_view == NULL) ? 0 : mock_refuse_view(len);
    if (error != 0) {
        errno = error;
        return NULL;
    }

    if ((mock_find_view == NULL) || !mock_find_view(fd, &view)) {
        errno = EINVAL; /* never asks the kernel for us */
        return NULL;
    }

    mr = calloc(1, sizeof(*mr));
    mr->mr.length = len;
    mr->iova      = iova;
    mr->access    = access;
    mr->has_view  = 1;
    mr->view      = view;
    MOCK_LOCKED;
    if (!mock_mr_add(mr, pd)) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    ++mock_views_live;
    return &mr->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    MOCK_LOCKED;
    mock_mrs[mr->lkey] = NULL;
    --mock_mrs_live;
    mock_views_live   -= ((mock_mr_t*)mr)->has_view;
    free(mr);
    return 0;
}

/* Work */

static mock_qp_t *mock_qp_find(uint32_t qpn)
{
    return (qpn < MOCK_QPS) ? mock_qps[qpn] : NULL;
}

/* Bytes that a request sends; allocated */
static uint8_t *mock_gather(const mock_wr_t *work, enum ibv_wc_status *status)
{
    size_t len     = (work->wr.num_sge > 0) ? work->sge.length : 0;
    uint8_t *bytes = malloc(len + 1);
    const mock_mr_t *mr;

    *status = IBV_WC_SUCCESS;
    if (len == 0) {
        return bytes;
    }

    if (work->wr.send_flags & IBV_SEND_INLINE) {
        memcpy(bytes, work->bytes, len);
        return bytes;
    }

    mr = mock_mr_find(work->sge.lkey, work->sge.addr, len, 0);
    if (mr == NULL) {
        *status = IBV_WC_LOC_PROT_ERR;
        return bytes;
    }

    mock_mr_copy(mr, work->sge.addr, bytes, len, 0);
    return bytes;
}

static void mock_datagram(const mock_wr_t *work, const uint8_t *bytes)
{
    mock_qp_t *to    = mock_qp_find(work->wr.wr.ud.remote_qpn);
    struct ibv_wc wc = {
        .opcode   = IBV_WC_RECV,
        .byte_len = MOCK_GRH + work->sge.length,
        .qp_num   = work->wr.wr.ud.remote_qpn,
        .src_qp   = work->qp->qp.qp_num,
        .wc_flags = IBV_WC_GRH
    };
    mock_recv_t recv;

    if ((to == NULL) || (to->qp.qp_type != IBV_QPT_UD) ||
        memcmp(work->ah.attr.grh.dgid.raw, mock_gid, sizeof(mock_gid)) ||
        !mock_queue_take(&to->queue, &recv)) {
        return; /* lost without a word */
    }

    wc.wr_id = recv.wr_id;
    memset((void*)recv.addr, 0, MOCK_GRH);
    memcpy((void*)(recv.addr + MOCK_GRH), bytes, work->sge.length);
    mock_complete((mock_cq_t*)to->qp.recv_cq, &wc,
                  work->wr.send_flags & IBV_SEND_SOLICITED);
}

/* A message, or a write with immediate (no bytes). Returns 0: no buffer. */
static int mock_deliver(mock_qp_t *to, const void *bytes, size_t len,
                        const uint32_t *imm, int solicited)
{
    struct ibv_wc wc = {
        .opcode   = (imm == NULL) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
        .byte_len = len,
        .qp_num   = to->qp.qp_num
    };
    mock_recv_t recv;

    if (!mock_srq_take((mock_srq_t*)to->qp.srq, &recv)) {
        return 0;
    }

    wc.wr_id = recv.wr_id;
    if (imm != NULL) {
        wc.imm_data = *imm;
        wc.wc_flags = IBV_WC_WITH_IMM;
    } else if (len > recv.length) {
        wc.status = IBV_WC_LOC_LEN_ERR;
    } else {
        memcpy((void*)recv.addr, bytes, len);
    }
    mock_complete((mock_cq_t*)to->qp.recv_cq, &wc, solicited);
    return 1;
}

static enum ibv_wc_status mock_rdma(const mock_wr_t *work, uint8_t *bytes)
{
    const uint64_t addr = work->wr.wr.rdma.remote_addr;
    const size_t len    = (work->wr.num_sge > 0) ? work->sge.length : 0;
    const int is_read   = work->wr.opcode == IBV_WR_RDMA_READ;
    const mock_mr_t *mr, *local;

    if (len == 0) {
        return IBV_WC_SUCCESS;
    }

    mr = mock_mr_find(work->wr.wr.rdma.rkey, addr, len,
                      is_read ? IBV_ACCESS_REMOTE_READ :
                      IBV_ACCESS_REMOTE_WRITE);
    if (mr == NULL) {
        return IBV_WC_REM_ACCESS_ERR;
    }

    mock_mr_copy(mr, addr, bytes, len, !is_read);
    if (is_read) {
        local = mock_mr_find(work->sge.lkey, work->sge.addr, len,
                             IBV_ACCESS_LOCAL_WRITE);
        if (local == NULL) {
            return IBV_WC_LOC_PROT_ERR;
        }
        mock_mr_copy(local, work->sge.addr, bytes, len, 1);
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status mock_swallow(const mock_wr_t *work,
                                       enum ibv_wc_status status)
{
    const size_t len = (work->wr.num_sge > 0) ? work->sge.length : 0;
    const mock_mr_t *local;
    uint8_t *bytes;

    if ((status != IBV_WC_SUCCESS) || (work->wr.opcode != IBV_WR_RDMA_READ)) {
        return status;
    }

    local = mock_mr_find(work->sge.lkey, work->sge.addr, len,
                         IBV_ACCESS_LOCAL_WRITE);
    if (local == NULL) {
        return IBV_WC_LOC_PROT_ERR;
    }

    bytes = malloc(len + 1);
    memset(bytes, mock_swallowed, len);
    mock_mr_copy(local, work->sge.addr, bytes, len, 1);
    free(bytes);
    return IBV_WC_SUCCESS;
}

/* Returns 0: not yet, its peer has no buffer */
static int mock_do(mock_wr_t *work)
{
    mock_qp_t *qp = work->qp, *to = NULL;
    enum ibv_wc_status status;
    uint8_t *bytes;
    int is_done = 1;

    if (qp->qp.state != IBV_QPS_RTS) {
        mock_sent(work, IBV_WC_WR_FLUSH_ERR);
        return 1;
    }

    if ((work->wr.num_sge > 0) && (work->sge.length > MOCK_MAX_MSG)) {
        mock_sent(work, IBV_WC_LOC_LEN_ERR);
        qp->qp.state = IBV_QPS_ERR;
        return 1;
    }

    bytes = mock_gather(work, &status);
    if (qp->qp.qp_type == IBV_QPT_UD) {
        mock_datagram(work, bytes);
        goto out;
    }

    to = mock_qp_find(qp->dest);
    if (mock_swallows && (to == NULL)) {
        status = mock_swallow(work, status);
        goto out;
    }
    if ((to == NULL) || (to->dest != qp->qp.qp_num) ||
        (to->qp.state < IBV_QPS_RTR) || (to->qp.state > IBV_QPS_RTS)) {
        status = IBV_WC_RETRY_EXC_ERR;
    }
    if ((status == IBV_WC_SUCCESS) && (work->wr.opcode != IBV_WR_SEND)) {
        status = mock_rdma(work, bytes);
    }
    if ((status == IBV_WC_SUCCESS) &&
        ((work->wr.opcode == IBV_WR_SEND) ||
         (work->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM))) {
        is_done = mock_deliver(to, bytes, (work->wr.num_sge > 0) ?
                               work->sge.length : 0,
                               (work->wr.opcode == IBV_WR_SEND) ? NULL :
                               &work->wr.imm_data,
                               work->wr.send_flags & IBV_SEND_SOLICITED);
    }
out:
    free(bytes);
    if (!is_done) {
        return 0;
    }

    mock_sent(work, status);
    if (status != IBV_WC_SUCCESS) {
        qp->qp.state = IBV_QPS_ERR;
        if (to != NULL) {
            to->qp.state = IBV_QPS_ERR;
        }
    }
    return 1;
}

/* Returns how much was done, at most @a max */
static unsigned mock_run(unsigned max)
{
    mock_wr_t **from, *work;
    unsigned count = 0, i;

    for (i = 0; i < MOCK_QPS; ++i) {
        if (mock_qps[i] != NULL) {
            mock_qps[i]->is_stuck = 0;
        }
        i = (i >= mock_last_qpn) ? MOCK_QPS : i;
    }

    for (from = &mock_work; (*from != NULL) && (count < max);) {
        work = *from;
        if (work->qp->is_stuck || !mock_do(work)) {
            work->qp->is_stuck = 1;
            from               = &work->next;
            continue;
        }

        *from = work->next;
        if (*from == NULL) {
            mock_work_end = from;
        }
        free(work);
        ++count;
    }
    return count;
}

/* What a simulation may choose */

/* A queue pair's peer, if the two are connected; NULL: nobody answers */
static mock_qp_t *mock_peer(const mock_qp_t *qp)
{
    mock_qp_t *to = mock_qp_find(qp->dest);

    return ((to != NULL) && (to->dest == qp->qp.qp_num) &&
            (to->qp.state >= IBV_QPS_RTR) && (to->qp.state <= IBV_QPS_RTS)) ?
           to : NULL;
}

static int mock_is_read(const mock_wr_t *work)
{
    return (work->qp->qp.qp_type == IBV_QPT_RC) &&
           (work->wr.opcode == IBV_WR_RDMA_READ);
}

/* Bytes of the next piece that a request moves: to the end, or to the border of
 * a unit of the remote side */
static size_t mock_piece(const mock_wr_t *work, size_t len,
                         mock_below_t below)
{
    const size_t left = len - work->done;
    size_t end;

    if ((left <= MOCK_UNIT) || (below(2) == 0)) {
        return left;
    }

    end = work->wr.wr.rdma.remote_addr + work->done + 1 + below(left);
    end = (end + MOCK_UNIT - 1) & ~(MOCK_UNIT - 1);
    end = end - work->wr.wr.rdma.remote_addr - work->done;
    return (end < left) ? end : left;
}

/* The next piece of a Write or Read. */
static enum ibv_wc_status
mock_move_piece(mock_wr_t *work, size_t piece)
{
    const int is_read   = mock_is_read(work);
    const uint64_t addr = work->wr.wr.rdma.remote_addr + work->done;
    const mock_mr_t *remote, *local = NULL;
    uint8_t *bytes;

    remote = mock_mr_find(work->wr.wr.rdma.rkey, addr, piece, is_read ?
                          IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    if (remote == NULL) {
        ++mock_refusals;
        return IBV_WC_REM_ACCESS_ERR;
    }

    if (!(work->wr.send_flags & IBV_SEND_INLINE)) {
        local = mock_mr_find(work->sge.lkey, work->sge.addr + work->done, piece,
                             is_read ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (local == NULL) {
            ++mock_refusals;
            return IBV_WC_LOC_PROT_ERR;
        }
    }

    bytes = malloc(piece);
    if (is_read) {
        mock_mr_copy(remote, addr, bytes, piece, 0);
        mock_mr_copy(local, work->sge.addr + work->done, bytes, piece, 1);
    } else {
        if (local != NULL) {
            mock_mr_copy(local, work->sge.addr + work->done, bytes, piece, 0);
        } else {
            memcpy(bytes, work->bytes + work->done, piece);
        }
        mock_mr_copy(remote, addr, bytes, piece, 1);
    }
    free(bytes);
    work->done += piece;
    return IBV_WC_SUCCESS;
}

/* One step of a request. Returns 0: not now, its peer has no buffer. */
static int mock_do_piece(mock_wr_t *work, mock_below_t below)
{
    const size_t len    = (work->wr.num_sge > 0) ? work->sge.length : 0;
    const int is_signal = work->wr.send_flags & IBV_SEND_SOLICITED;
    mock_qp_t *to       = mock_peer(work->qp);
    uint8_t *bytes;

    work->status = IBV_WC_SUCCESS;
    if (to == NULL) {
        work->status = IBV_WC_RETRY_EXC_ERR;
    } else if (work->wr.opcode == IBV_WR_SEND) {
        bytes = mock_gather(work, &work->status);
        if ((work->status == IBV_WC_SUCCESS) &&
            !mock_deliver(to, bytes, len, NULL, is_signal)) {
            free(bytes);
            return 0;
        }
        free(bytes);
    } else {
        if (work->done < len) {
            work->status = mock_move_piece(work, mock_piece(work, len, below));
        }
        if ((work->status == IBV_WC_SUCCESS) && (work->done < len)) {
            return 1;
        }
        if ((work->status == IBV_WC_SUCCESS) &&
            (work->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) &&
            !mock_deliver(to, NULL, 0, &work->wr.imm_data, is_signal)) {
            return 0;
        }
    }

    work->is_done = 1;
    if (work->status != IBV_WC_SUCCESS) {
        work->qp->qp.state = IBV_QPS_ERR;
    }
    return 1;
}

/* Datagrams may be lost, or come twice */
static void mock_do_datagram(mock_wr_t *work, mock_below_t below)
{
    enum ibv_wc_status status;
    uint8_t *bytes        = mock_gather(work, &status);
    const unsigned chance = below(8);
    unsigned times        = (chance == 0) ? 0 : (chance == 1) ? 2 : 1;

    for (; (status == IBV_WC_SUCCESS) && (times > 0); --times) {
        mock_datagram(work, bytes);
    }
    free(bytes);
    work->is_done = 1;
    work->status  = status;
}

/* What is done completes in the order in which it was posted, of each queue
 * pair: and if that is in error, as what was not done */
static unsigned mock_retire(void)
{
    mock_wr_t **from = &mock_work, *work;
    unsigned count   = 0, i;

    for (i = 0; i <= mock_last_qpn; ++i) {
        if (mock_qps[i] != NULL) {
            mock_qps[i]->passed = 0;
        }
    }

    while ((work = *from) != NULL) {
        if (work->qp->passed ||
            (!work->is_done && (work->qp->qp.state == IBV_QPS_RTS))) {
            work->qp->passed = 1;
            from             = &work->next;
            continue;
        }

        if (!work->is_done || ((work->qp->qp.state != IBV_QPS_RTS) &&
                               (work->status == IBV_WC_SUCCESS))) {
            work->status = IBV_WC_WR_FLUSH_ERR;
        }
        mock_sent(work, work->status);
        *from = work->next;
        free(work);
        ++count;
    }
    mock_work_end = from;
    return count;
}

/* May it be the next step of its queue pair? In order, but that a Write or a
 * message may pass Reads that were posted before it and are not fenced. */
static int mock_may_step(mock_wr_t *work)
{
    mock_qp_t *qp = work->qp;

    if (work->is_done || (qp->passed == MOCK_PASSED_ALL)) {
        return 0;
    }

    if (qp->passed == MOCK_PASSED_READS) {
        if (mock_is_read(work)) {
            return 0;
        }
        qp->passed = MOCK_PASSED_ALL;
        return !(work->wr.send_flags & IBV_SEND_FENCE);
    }

    qp->passed = mock_is_read(work) ? MOCK_PASSED_READS : MOCK_PASSED_ALL;
    return 1;
}

void mock_poll_some(mock_below_t below)
{
    MOCK_LOCKED;
    mock_poll_below = below;
}

unsigned mock_turn(mock_below_t below)
{
    MOCK_LOCKED;
    mock_wr_t *may[MOCK_CHOICES], *work;
    unsigned count, num_may = 0, i;

    count = mock_retire();
    for (i = 0; i <= mock_last_qpn; ++i) {
        if (mock_qps[i] != NULL) {
            mock_qps[i]->passed = 0;
        }
    }
    for (work = mock_work; (work != NULL) && (num_may < MOCK_CHOICES);
         work = work->next) {
        if (mock_may_step(work)) {
            may[num_may++] = work;
        }
    }
    if (num_may == 0) {
        return count;
    }

    work = may[below(num_may)];
    if (work->qp->qp.qp_type == IBV_QPT_UD) {
        mock_do_datagram(work, below);
    } else if (!mock_do_piece(work, below)) {
        return count;
    }
    return count + 1 + mock_retire();
}

int mock_fail(mock_below_t below)
{
    MOCK_LOCKED;
    mock_qp_t *qps[MOCK_CHOICES], *qp;
    unsigned count = 0, i;

    for (i = 0; (i <= mock_last_qpn) && (count < MOCK_CHOICES); ++i) {
        qp = mock_qps[i];
        if ((qp != NULL) && (qp->qp.qp_type == IBV_QPT_RC) &&
            (qp->qp.state == IBV_QPS_RTS) && (mock_peer(qp) != NULL)) {
            qps[count++] = qp;
        }
    }
    if (count == 0) {
        return 0;
    }

    qp = qps[below(count)];
    if (below(2) == 0) {
        mock_peer(qp)->qp.state = IBV_QPS_ERR;
    }
    qp->qp.state = IBV_QPS_ERR;
    return 1;
}

static int mock_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr,
                          struct ibv_send_wr **bad)
{
    MOCK_LOCKED;
    mock_wr_t *work;

    for (; wr != NULL; wr = wr->next) {
        work     = calloc(1, sizeof(*work));
        work->qp = (mock_qp_t*)ibv_qp;
        work->wr = *wr;
        if (wr->num_sge > 0) {
            work->sge = *wr->sg_list;
        }
        if ((wr->send_flags & IBV_SEND_INLINE) && (wr->num_sge > 0)) {
            if (work->sge.length > MOCK_INLINE) {
                free(work);
                *bad = wr;
                return EINVAL;
            }
            memcpy(work->bytes, (void*)work->sge.addr, work->sge.length);
        }
        if (ibv_qp->qp_type == IBV_QPT_UD) {
            work->ah = *(mock_ah_t*)wr->wr.ud.ah;
        }
        *mock_work_end = work;
        mock_work_end  = &work->next;
    }
    if (!mock_is_held) {
        mock_run(~0u);
    }
    return 0;
}

static int mock_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
                          struct ibv_recv_wr **bad)
{
    MOCK_LOCKED;
    mock_queue_add(&((mock_qp_t*)qp)->queue, wr);
    return 0;
}

static int mock_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                              struct ibv_recv_wr **bad)
{
    MOCK_LOCKED;
    mock_queue_add(&((mock_srq_t*)srq)->queue, wr);
    if (!mock_is_held) {
        mock_run(~0u); /* somebody may have waited for it */
    }
    return 0;
}

/* Devices */

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    list[0] = &mock_device;
    if (count != NULL) {
        *count = 1;
    }
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *ctx = calloc(1, sizeof(*ctx));
    MOCK_LOCKED;

    if ((mock_async[0] < 0) && (pipe2(mock_async, O_CLOEXEC) != 0)) {
        free(ctx);
        return NULL;
    }
    if (mock_kernel < 0) {
        mock_kernel = open("/dev/null", O_RDWR | O_CLOEXEC);
    }

    ctx->device            = device;
    ctx->cmd_fd            = mock_kernel;
    ctx->async_fd          = mock_async[0];
    ctx->ops.poll_cq       = mock_poll_cq;
    ctx->ops.req_notify_cq = mock_req_notify_cq;
    ctx->ops.post_send     = mock_post_send;
    ctx->ops.post_recv     = mock_post_recv;
    ctx->ops.post_srq_recv = mock_post_srq_recv;
    return ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
    free(ctx);
    return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    attr->max_qp_rd_atom      = 16;
    attr->max_qp_init_rd_atom = 16;
    attr->max_cqe             = 1 << 20;
    attr->phys_port_cnt       = 1;
    return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port_num,
                   struct _compat_ibv_port_attr *compat)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr*)compat;

    attr->state        = IBV_PORT_ACTIVE;
    attr->max_mtu      = IBV_MTU_4096;
    attr->active_mtu   = IBV_MTU_4096;
    attr->gid_tbl_len  = 1;
    attr->max_msg_sz   = MOCK_MAX_MSG;
    attr->active_width = 2;
    attr->active_speed = 32;
    attr->link_layer   = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port_num,
                      uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size)
{
    memset(entry, 0, sizeof(*entry));
    entry->port_num = port_num;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    memcpy(entry->gid.raw, mock_gid, sizeof(mock_gid));
    return 0;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
    return (read(ctx->async_fd, event, sizeof(*event)) == sizeof(*event)) ? 0 :
           -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return "status of a mock";
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    pd->context = ctx;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    mock_channel_t *channel = calloc(1, sizeof(*channel));
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0) {
        free(channel);
        return NULL;
    }

    channel->channel.context = ctx;
    channel->channel.fd      = fds[0];
    channel->write_fd        = fds[1];
    return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    close(((mock_channel_t*)channel)->write_fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context,
                             struct ibv_comp_channel *channel, int vector)
{
    mock_cq_t *cq = calloc(1, sizeof(*cq));

    cq->cq.context    = ctx;
    cq->cq.channel    = channel;
    cq->cq.cq_context = context;
    cq->cq.cqe        = cqe;
    cq->last          = &cq->first;
    return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct ibv_wc wc;

    while (mock_poll_cq(cq, 1, &wc) > 0) {
    }
    free(cq);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                     void **context)
{
    if (read(channel->fd, cq, sizeof(*cq)) != sizeof(*cq)) {
        return -1;
    }
    *context = NULL; /* the queue may be gone */
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    mock_srq_t *srq = calloc(1, sizeof(*srq));

    srq->srq.context     = pd->context;
    srq->srq.srq_context = attr->srq_context;
    srq->srq.pd          = pd;
    mock_queue_init(&srq->queue);
    return &srq->srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    MOCK_LOCKED;
    ((mock_srq_t*)srq)->limit = attr->srq_limit;
    return 0;
}

/* Nobody is told about a queue that is gone */
static void mock_forget_events(const struct ibv_srq *srq)
{
    struct ibv_async_event events[64];
    ssize_t len, i;

    len = read(mock_async[0], events, sizeof(events));
    for (i = 0; i < (len / (ssize_t)sizeof(*events)); ++i) {
        if ((events[i].element.srq != srq) &&
            (write(mock_async[1], &events[i], sizeof(*events)) !=
             sizeof(*events))) {
            abort();
        }
    }
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    MOCK_LOCKED;
    mock_forget_events(srq);
    mock_queue_cleanup(&((mock_srq_t*)srq)->queue);
    free(srq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    mock_qp_t *qp = calloc(1, sizeof(*qp));
    MOCK_LOCKED;

    if (mock_last_qpn == (MOCK_QPS - 1)) {
        free(qp);
        errno = ENOMEM;
        return NULL;
    }

    qp->qp.context    = pd->context;
    qp->qp.qp_context = attr->qp_context;
    qp->qp.pd         = pd;
    qp->qp.send_cq    = attr->send_cq;
    qp->qp.recv_cq    = attr->recv_cq;
    qp->qp.srq        = attr->srq;
    qp->qp.qp_type    = attr->qp_type;
    qp->qp.qp_num     = ++mock_last_qpn;
    mock_queue_init(&qp->queue);
    mock_qps[qp->qp.qp_num]   = qp;
    attr->cap.max_inline_data = MOCK_INLINE;
    return &qp->qp;
}

int ibv_modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
    mock_qp_t *qp = (mock_qp_t*)ibv_qp;
    MOCK_LOCKED;

    qp->qp.state = attr->qp_state;
    if (mask & IBV_QP_DEST_QPN) {
        qp->dest = attr->dest_qp_num;
    }
    if (attr->qp_state == IBV_QPS_RESET) {
        mock_queue_cleanup(&qp->queue);
    }
    if (!mock_is_held) {
        mock_run(~0u);
    }
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv_qp)
{
    mock_qp_t *qp = (mock_qp_t*)ibv_qp;
    mock_wr_t **from, *work;
    MOCK_LOCKED;

    mock_qps[qp->qp.qp_num] = NULL;
    for (from = &mock_work; (work = *from) != NULL;) {
        if (work->qp == qp) {
            *from = work->next;
            free(work);
        } else {
            from = &work->next;
        }
    }
    mock_work_end = from;
    mock_queue_cleanup(&qp->queue);
    free(qp);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    mock_ah_t *ah = calloc(1, sizeof(*ah));
    MOCK_LOCKED;

    ah->ah.context = pd->context;
    ah->ah.pd      = pd;
    ah->attr       = *attr;
    ++mock_ahs;
    ++mock_ahs_live;
    return &ah->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    MOCK_LOCKED;
    --mock_ahs_live;
    free(ah);
    return 0;
}

int ibv_fork_init(void)
{
    return 0;
}

/* For tests */

void mock_hold(void)
{
    MOCK_LOCKED;
    mock_is_held = 1;
}

void mock_release(void)
{
    MOCK_LOCKED;
    mock_is_held = 0;
    mock_run(~0u);
}

unsigned mock_step(unsigned count)
{
    MOCK_LOCKED;
    return mock_run(count);
}

unsigned mock_num_ahs(void)
{
    MOCK_LOCKED;
    return mock_ahs;
}

unsigned mock_live_ahs(void)
{
    MOCK_LOCKED;
    return mock_ahs_live;
}

unsigned mock_live_views(void)
{
    MOCK_LOCKED;
    return mock_views_live;
}

int mock_receive(uint32_t qpn, const void *data, size_t len)
{
    MOCK_LOCKED;
    mock_qp_t *to = mock_qp_find(qpn);

    return (to != NULL) && (to->qp.srq != NULL) &&
           mock_deliver(to, data, len, NULL, 1);
}

int mock_written(uint32_t qpn, uint32_t imm)
{
    MOCK_LOCKED;
    mock_qp_t *to = mock_qp_find(qpn);

    return (to != NULL) && (to->qp.srq != NULL) &&
           mock_deliver(to, NULL, 0, &imm, 1);
}

unsigned mock_live_mrs(void)
{
    MOCK_LOCKED;
    return mock_mrs_live - mock_views_live;
}

unsigned mock_refused_requests(void)
{
    MOCK_LOCKED;
    return mock_refusals;
}

unsigned mock_num_work(void)
{
    MOCK_LOCKED;
    const mock_wr_t *work;
    unsigned count = 0;

    for (work = mock_work; work != NULL; work = work->next) {
        ++count;
    }
    return count;
}
