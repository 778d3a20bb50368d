/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Announcing buffers: UCP tells a transport of a receive only when its message
 * has come. These functions stand before UCP's own, call them, and tell the
 * engine of large transfers that are now on their way, so that it can bring
 * their memory in meanwhile (design, section 6).
 *
 * They change nothing: without them, or with UCX_NPRDMA_PREPARE=off, a transfer
 * brings in by itself what it finds absent. Only the _nbx forms are here, since
 * UCP's others call these. Not seen are UCX linked statically, generic
 * datatypes, set-uid programs, and memory that is not the host's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hooks.h"

#include "../nprdma/extension.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucp/api/ucp.h>

#define HOOKS_EXPORT   __attribute__((visibility("default")))

/* Smaller buffers are not worth a look; the engine's own limit is another */
#define HOOKS_MIN      4096

/* Pieces of a list that are looked at */
#define HOOKS_MAX_IOV  16

/* Each of UCP's functions that has one of ours before it */
#define HOOKS_LIST(X) \
    X(ucp_tag_send_nbx) \
    X(ucp_tag_send_sync_nbx) \
    X(ucp_tag_recv_nbx) \
    X(ucp_tag_msg_recv_nbx) \
    X(ucp_am_send_nbx) \
    X(ucp_am_recv_data_nbx) \
    X(ucp_stream_send_nbx) \
    X(ucp_stream_recv_nbx) \
    X(ucp_put_nbx) \
    X(ucp_get_nbx)

/* UCP's own, each found at its first call; NULL: not yet. Nothing is read through
 * them, so that relaxed will do. */
static struct {
#define HOOKS_FIELD(_name) __typeof__(&_name) _Atomic _name;
    HOOKS_LIST(HOOKS_FIELD)
#undef HOOKS_FIELD
} hooks;

/* What the engine does about it; NULL: nprdma is not loaded. Written once, with
 * release: whoever sees the function sees the engine. */
static void (*_Atomic hooks_prepare)(const void *va, size_t len,
                                     int is_receive);

/* UCP calls some of these from others: only the outermost tells */
static __thread int hooks_depth __attribute__((tls_model("initial-exec")));


void hooks_attach(void *plugin)
{
    const np_extension_t *extension = dlsym(plugin, NP_EXTENSION_SYMBOL);

    /* an older plug-in has a shorter table */
    if ((extension != NULL) &&
        (extension->size >= (offsetof(np_extension_t, prepare) +
                             sizeof(extension->prepare)))) {
        atomic_store_explicit(&hooks_prepare, extension->prepare,
                              memory_order_release);
    }
}

static void *hooks_find(const char *name)
{
    void *func = dlsym(RTLD_NEXT, name);
    void *libucp;

    if (func == NULL) {
        /* A program that loads libucp RTLD_LOCAL keeps it to itself, and calls
         * what is here only if it asks for it by name */
        libucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (libucp != NULL) {
            func = dlsym(libucp, name);
        }
    }
    return func;
}

/* Memory that the engine is told of */
typedef struct hooks_piece {
    const void *buffer;
    size_t     length;
} hooks_piece_t;

static unsigned hooks_look_at_iov(const ucp_dt_iov_t *iov, size_t count,
                                  hooks_piece_t *pieces)
{
    unsigned found = 0;
    size_t i;

    for (i = 0; (i < count) && (i < HOOKS_MAX_IOV); ++i) {
        if (iov[i].length >= HOOKS_MIN) {
            pieces[found++] = (hooks_piece_t){iov[i].buffer, iov[i].length};
        }
    }
    return found;
}

/* The pieces of a buffer that are worth being told of; at most HOOKS_MAX_IOV */
static unsigned hooks_look(const void *buffer, size_t count,
                           const ucp_request_param_t *param,
                           hooks_piece_t *pieces)
{
    size_t size = 1;

    if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
        (param->memory_type != UCS_MEMORY_TYPE_HOST) &&
        (param->memory_type != UCS_MEMORY_TYPE_UNKNOWN)) {
        return 0;
    }

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        switch (param->datatype & UCP_DATATYPE_CLASS_MASK) {
        case UCP_DATATYPE_CONTIG:
            size = param->datatype >> UCP_DATATYPE_SHIFT;
            break;
        case UCP_DATATYPE_IOV:
            return hooks_look_at_iov(buffer, count, pieces);
        default:
            return 0;
        }
    }

    if (__builtin_mul_overflow(count, size, &size) || (size < HOOKS_MIN)) {
        return 0;
    }
    pieces[0] = (hooks_piece_t){buffer, size};
    return 1;
}

static void hooks_announce(const hooks_piece_t *pieces, unsigned count,
                           int is_receive)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        atomic_load_explicit(&hooks_prepare, memory_order_acquire)
                (pieces[i].buffer, pieces[i].length, is_receive);
    }
}

/* Is it one small buffer? Most are, and have no time to lose. */
static inline int hooks_is_small(size_t count, const ucp_request_param_t *param)
{
    size_t size = 1;

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        if ((param->datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG) {
            return 0;
        }
        size = param->datatype >> UCP_DATATYPE_SHIFT;
    }
    return (count < HOOKS_MIN) && (size < HOOKS_MIN) &&
           ((count * size) < HOOKS_MIN);
}

/* Is this call the program's, with an engine to tell? */
static inline int hooks_may_announce(void)
{
    return (hooks_depth == 0) &&
           (atomic_load_explicit(&hooks_prepare, memory_order_relaxed) != NULL);
}

/*
 * A function of ours: calls UCP's, and if that has left a transfer on its way,
 * tells of its memory. First UCP: the message to the peer leaves before the
 * engine does anything. What is told is looked at before that: when UCP's
 * function returns, the transfer may be over (its callback was called in there,
 * or by another thread), and list and parameters are the program's again.
 */
#define HOOKS_DEFINE(_name, _is_receive, _params, ...) \
    static __attribute__((noinline)) ucs_status_ptr_t hooked_##_name _params \
    { \
        __typeof__(&_name) func; \
        hooks_piece_t pieces[HOOKS_MAX_IOV]; \
        ucs_status_ptr_t request; \
        unsigned found; \
        \
        func = atomic_load_explicit(&hooks._name, memory_order_relaxed); \
        if (func == NULL) { \
            func = (__typeof__(&_name))hooks_find(#_name); \
            if (func == NULL) { /* a libucp that comes later will do */ \
                return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED); \
            } \
            atomic_store_explicit(&hooks._name, func, memory_order_relaxed); \
        } \
        \
        if (hooks_is_small(count, param) || !hooks_may_announce()) { \
            return func(__VA_ARGS__); \
        } \
        \
        found = hooks_look(buffer, count, param, pieces); \
        ++hooks_depth; \
        request = func(__VA_ARGS__); \
        --hooks_depth; \
        if (UCS_PTR_IS_PTR(request)) { \
            hooks_announce(pieces, found, _is_receive); \
        } \
        return request; \
    } \
    \
    HOOKS_EXPORT ucs_status_ptr_t _name _params \
    { \
        __typeof__(&_name) func = atomic_load_explicit(&hooks._name, \
                                                       memory_order_relaxed); \
        \
        return ((func != NULL) && hooks_is_small(count, param)) ? \
               func(__VA_ARGS__) : hooked_##_name(__VA_ARGS__); \
    }

HOOKS_DEFINE(ucp_tag_send_nbx, 0,
             (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
              const ucp_request_param_t *param),
             ep, buffer, count, tag, param)

HOOKS_DEFINE(ucp_tag_send_sync_nbx, 0,
             (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
              const ucp_request_param_t *param),
             ep, buffer, count, tag, param)

HOOKS_DEFINE(ucp_tag_recv_nbx, 1,
             (ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
              ucp_tag_t tag_mask, const ucp_request_param_t *param),
             worker, buffer, count, tag, tag_mask, param)

HOOKS_DEFINE(ucp_tag_msg_recv_nbx, 1,
             (ucp_worker_h worker, void *buffer, size_t count,
              ucp_tag_message_h message, const ucp_request_param_t *param),
             worker, buffer, count, message, param)

HOOKS_DEFINE(ucp_am_send_nbx, 0,
             (ucp_ep_h ep, unsigned id, const void *header,
              size_t header_length, const void *buffer, size_t count,
              const ucp_request_param_t *param),
             ep, id, header, header_length, buffer, count, param)

HOOKS_DEFINE(ucp_am_recv_data_nbx, 1,
             (ucp_worker_h worker, void *data_desc, void *buffer, size_t count,
              const ucp_request_param_t *param),
             worker, data_desc, buffer, count, param)

HOOKS_DEFINE(ucp_stream_send_nbx, 0,
             (ucp_ep_h ep, const void *buffer, size_t count,
              const ucp_request_param_t *param),
             ep, buffer, count, param)

HOOKS_DEFINE(ucp_stream_recv_nbx, 1,
             (ucp_ep_h ep, void *buffer, size_t count, size_t *length,
              const ucp_request_param_t *param),
             ep, buffer, count, length, param)

HOOKS_DEFINE(ucp_put_nbx, 0,
             (ucp_ep_h ep, const void *buffer, size_t count,
              uint64_t remote_addr, ucp_rkey_h rkey,
              const ucp_request_param_t *param),
             ep, buffer, count, remote_addr, rkey, param)

HOOKS_DEFINE(ucp_get_nbx, 1,
             (ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr,
              ucp_rkey_h rkey, const ucp_request_param_t *param),
             ep, buffer, count, remote_addr, rkey, param)
