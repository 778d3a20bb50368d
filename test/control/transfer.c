/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data operations: a window of them, each with a part of the buffer. The buffer
 * of one that has ended is ours again: a source is overwritten, a sink gets a
 * mark that must stay.
 */
#include "side.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARK      0x5a
#define SCRIBBLE  0xee
#define AM_ID     1
#define DATA_TAG  1

/* Where the buffer is wanted: far from what the kernel gives to the next who
 * asks, so that nothing comes to lie where the buffer was unmapped */
#define BUFFER    ((void*)0x200000000000ul)

int transfer_is_one_sided(const case_t *c)
{
    return (c->op->kind != KIND_TAG) && (c->op->kind != KIND_AM);
}

static int is_sink(const side_t *s)
{
    return transfer_is_one_sided(s->c) ?
           ((s->role == INITIATOR) && (s->c->op->kind != KIND_PUT)) :
           (s->role == TARGET);
}

static uint8_t *part(const side_t *s, unsigned i)
{
    return s->buf + (i * s->c->op->size);
}

static uint64_t pattern(unsigned i, size_t word)
{
    return (((uint64_t)i << 40) + word + 1) * 0x9e3779b97f4a7c15ull;
}

static void fill(side_t *s, unsigned i)
{
    uint64_t *words = (uint64_t*)part(s, i);
    size_t w;

    for (w = 0; w < s->c->op->size / sizeof(*words); ++w) {
        words[w] = pattern(i, w);
    }
}

static int is_right(const side_t *s, unsigned i)
{
    const uint64_t *words = (const uint64_t*)part(s, i);
    size_t w;

    for (w = 0; w < s->c->op->size / sizeof(*words); ++w) {
        if (words[w] != pattern(i, w)) {
            return 0;
        }
    }
    return 1;
}

static int is_marked(const side_t *s, unsigned i)
{
    const uint8_t *bytes = part(s, i);

    return (bytes[0] == MARK) &&
           (memcmp(bytes, bytes + 1, s->c->op->size - 1) == 0);
}

/* A fetched value: that of nobody else, and one that there was */
static int is_right_fetch(side_t *s, unsigned i)
{
    uint64_t value = *(uint64_t*)part(s, i);

    if ((value >= s->c->op->window) || (s->fetched & (1u << value))) {
        return 0;
    }
    s->fetched |= 1u << value;
    return 1;
}

static void slot_ended(side_t *s, unsigned i, ucs_status_t status)
{
    int right;

    s->slots[i].has_ended = 1;
    ++s->seen->ended[(-status < STATUS_MAX) ? -status : (STATUS_MAX - 1)];
    s->num_ok += (status == UCS_OK);

    if (is_sink(s)) {
        if ((status == UCS_OK) && s->is_readable) {
            right = (s->c->op->kind == KIND_FETCH) ? is_right_fetch(s, i) :
                                                     is_right(s, i);
            s->seen->data |= right ? DATA_RIGHT : DATA_WRONG;
        }
        if (s->is_writable) {
            memset(part(s, i), MARK, s->c->op->size);
            s->slots[i].is_marked = 1;
        }
    } else if (s->is_writable) {
        memset(part(s, i), SCRIBBLE, s->c->op->size);
    }
}

static void slot_posted(side_t *s, unsigned i, ucs_status_ptr_t req)
{
    if (UCS_PTR_IS_PTR(req)) {
        s->slots[i].req = req;
    } else {
        slot_ended(s, i, UCS_PTR_STATUS(req));
    }
}

static ucs_status_t on_am(void *arg, const void *header, size_t header_length,
                          void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    side_t *s  = arg;
    unsigned i = *(const uint64_t*)header;

    (void)header_length;
    if ((i >= s->num_slots) || (length != s->c->op->size) ||
        s->slots[i].has_ended || (s->slots[i].req != NULL)) {
        s->seen->data |= DATA_WRONG;
        return UCS_OK;
    }

    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        slot_posted(s, i, ucp_am_recv_data_nbx(s->worker, data, part(s, i),
                                               length, &no_params));
        return UCS_INPROGRESS;
    }

    memcpy(part(s, i), data, length);
    slot_ended(s, i, UCS_OK);
    return UCS_OK;
}

void transfer_open(side_t *s)
{
    ucp_am_handler_param_t am = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM_ID,
        .cb         = on_am,
        .arg        = s
    };
    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH
    };
    size_t page = sysconf(_SC_PAGESIZE);
    unsigned i;

    s->len = ((s->c->op->size * s->c->op->window) + page - 1) / page * page;
    s->buf = mmap(BUFFER, s->len, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map.address = s->buf;
    map.length  = s->len;
    if ((s->buf == MAP_FAILED) ||
        (ucp_worker_set_am_recv_handler(s->worker, &am) != UCS_OK) ||
        (ucp_mem_map(s->context, &map, &s->memh) != UCS_OK)) {
        side_fail("buffer");
    }

    s->is_readable = s->is_writable = 1;
    s->num_slots   = ((s->role == INITIATOR) ||
                      !transfer_is_one_sided(s->c)) ? s->c->op->window : 0;
    if (is_sink(s)) {
        memset(s->buf, MARK, s->len);
    } else if (s->c->op->kind != KIND_FETCH &&
               ((s->role == INITIATOR) || (s->c->op->kind == KIND_GET))) {
        for (i = 0; i < s->c->op->window; ++i) {
            fill(s, i);
        }
    } else {
        memset(s->buf, 0, s->len); /* where puts and fetches go */
    }
}

static ucs_status_ptr_t post_fetch(side_t *s, unsigned i)
{
    static const uint64_t one = 1;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype     = ucp_dt_make_contig(sizeof(one)),
        .reply_buffer = part(s, i)
    };

    return ucp_atomic_op_nbx(s->ep, UCP_ATOMIC_OP_ADD, &one, 1, s->remote,
                             s->rkey, &param);
}

static ucs_status_ptr_t post_one(side_t *s, unsigned i)
{
    /* the headers of messages that wait are read later */
    static const uint64_t headers[WINDOW_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    size_t size     = s->c->op->size;
    uint64_t remote = s->remote + (i * size);

    switch (s->c->op->kind) {
    case KIND_TAG:
        return ucp_tag_send_nbx(s->ep, part(s, i), size, DATA_TAG + i,
                                &no_params);
    case KIND_AM:
        return ucp_am_send_nbx(s->ep, AM_ID, &headers[i], sizeof(headers[i]),
                               part(s, i), size, &no_params);
    case KIND_PUT:
        return ucp_put_nbx(s->ep, part(s, i), size, remote, s->rkey,
                           &no_params);
    case KIND_GET:
        return ucp_get_nbx(s->ep, part(s, i), size, remote, s->rkey,
                           &no_params);
    default:
        return post_fetch(s, i);
    }
}

void transfer_post(side_t *s)
{
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        if (s->role == INITIATOR) {
            slot_posted(s, i, post_one(s, i));
        } else if (s->c->op->kind == KIND_TAG) {
            slot_posted(s, i, ucp_tag_recv_nbx(s->worker, part(s, i),
                                               s->c->op->size, DATA_TAG + i,
                                               ~0ul, &no_params));
        }
    }
}

void transfer_reap(side_t *s)
{
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        if (s->slots[i].req == NULL) {
            continue;
        }
        status = ucp_request_check_status(s->slots[i].req);
        if (status != UCS_INPROGRESS) {
            ucp_request_free(s->slots[i].req);
            s->slots[i].req = NULL;
            slot_ended(s, i, status);
        }
    }
}

int transfer_has_ended(const side_t *s)
{
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        if (!s->slots[i].has_ended) {
            return 0;
        }
    }
    return 1;
}

void transfer_cancel(side_t *s)
{
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        if (s->slots[i].req != NULL) {
            ucp_request_cancel(s->worker, s->slots[i].req);
        }
    }
}

void transfer_abandon(side_t *s)
{
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        if (!s->slots[i].has_ended) {
            ++s->seen->abandoned;
        }
    }
    s->num_slots = 0;
}

void transfer_freeze(side_t *s)
{
    unsigned i;

    for (i = 0; i < s->num_slots; ++i) {
        s->seen->pending += !s->slots[i].has_ended;
    }
}

static void judge_fetches(side_t *s)
{
    uint64_t value = *(uint64_t*)s->buf;

    s->seen->data |= ((value >= s->settled.num_ok) &&
                      (value <= s->c->op->window)) ? DATA_RIGHT : DATA_WRONG;
}

void transfer_judge(side_t *s)
{
    unsigned i;

    if (!s->is_readable) {
        return;
    }

    for (i = 0; is_sink(s) && (i < s->c->op->window); ++i) {
        if (s->slots[i].is_marked && !is_marked(s, i)) {
            s->seen->data |= DATA_LATE;
        }
    }

    if ((s->role != TARGET) || !s->is_told[WORD_SETTLED]) {
        return;
    }
    if (s->c->op->kind == KIND_FETCH) {
        judge_fetches(s);
    } else if ((s->c->op->kind == KIND_PUT) && s->settled.is_flushed) {
        for (i = 0; i < s->c->op->window; ++i) {
            s->seen->data |= is_right(s, i) ? DATA_RIGHT : DATA_WRONG;
        }
    }
}
