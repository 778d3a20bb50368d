/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Announcing buffers: UCP tells a transport of a receive only when its message
 * has come. These functions are called in place of UCP's own, call those, and
 * tell the engine of large transfers that are now on their way, so that it can
 * bring their memory in meanwhile (design, section 6).
 *
 * They change nothing: without them, or with UCX_NPRDMA_PREPARE=off, a transfer
 * brings in by itself what it finds absent. Only the _nbx forms are here, since
 * UCP's others call these. They do not see programs with UCX linked statically,
 * generic datatypes, set-uid programs, and memory that is not the host's.
 *
 * An announcement ends with its operation. A request of UCP's is asked whether
 * it is complete, until it is given back, which these functions see too. A
 * request in the program's own memory cannot be asked, since that memory may be
 * used for something else without notice: it gets a callback, if it has none.
 * Other announcements end after a millisecond.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hooks.h"

#include "../nprdma/extension.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define HOOKS_EXPORT   __attribute__((visibility("default")))

/* Smaller buffers are not worth a look; the engine's own limit is another */
#define HOOKS_MIN      4096

/* Buffers of a list that are looked at */
#define HOOKS_MAX_IOV  16

/* This library may have been compiled for another UCX than the one that runs,
 * and the program for a third. The parameters of a request have grown at their
 * end: so much of them every version has, and these bits of op_attr_mask are of
 * what came later. */
enum {
    HOOKS_PARAM_SIZE   = offsetof(ucp_request_param_t, memh) + sizeof(void*),
    HOOKS_LATER_FIELDS = 0xfe00
};

/* Each of UCP's functions in whose place one of ours is called */
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
    X(ucp_get_nbx) \
    X(ucp_request_check_status) \
    X(ucp_request_free) \
    X(ucp_request_release) \
    X(ucp_worker_destroy)

/* UCP's own functions, each found at its first call; NULL: not yet. Nothing is
 * read through these pointers, so relaxed order will do. */
static struct {
#define HOOKS_FIELD(_name) __typeof__(&_name) _Atomic _name;
    HOOKS_LIST(HOOKS_FIELD)
#undef HOOKS_FIELD
} hooks;

/* The engine; NULL: nprdma is not loaded. Written once, with release: a thread
 * that sees the table sees the engine. */
static const np_extension_t *_Atomic hooks_engine;

/* UCP calls some of these from others: only the outermost tells the engine */
static __thread int hooks_depth __attribute__((tls_model("initial-exec")));


int hooks_attach(void *plugin)
{
    const np_extension_t *extension = dlsym(plugin, NP_EXTENSION_SYMBOL);

    /* an older plug-in has a shorter table */
    if (extension == NULL) {
        return -1;
    }
    if ((extension->size >= (offsetof(np_extension_t, prepare_watched) +
                             sizeof(extension->prepare_watched)))) {
        atomic_store_explicit(&hooks_engine, extension, memory_order_release);
    }
    return 0;
}

static void *hooks_find(const char *name)
{
    void *func = dlsym(RTLD_NEXT, name);
    void *libucp;

    if (func == NULL) {
        /* A program that loads libucp RTLD_LOCAL keeps it to itself, and calls
         * the functions here only if it asks for them by name */
        libucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (libucp != NULL) {
            func = dlsym(libucp, name);
        }
    }
    return func;
}

/* UCP's own function, found at its first call; NULL: there is none, and a
 * libucp that comes later will do */
#define HOOKS_FUNC(_name) \
    ({ \
        __typeof__(&_name) _func = atomic_load_explicit(&hooks._name, \
                                                        memory_order_relaxed); \
        \
        if (_func == NULL) { \
            _func = (__typeof__(&_name))hooks_find(#_name); \
            atomic_store_explicit(&hooks._name, _func, memory_order_relaxed); \
        } \
        _func; \
    })

/* Memory that the engine is told of */
typedef struct hooks_piece {
    const void *buffer;
    size_t     length;
} hooks_range_t;

static unsigned hooks_look_at_iov(const ucp_dt_iov_t *iov, size_t count,
                                  hooks_range_t *ranges)
{
    unsigned found = 0;
    size_t i;

    for (i = 0; (i < count) && (i < HOOKS_MAX_IOV); ++i) {
        if (iov[i].length >= HOOKS_MIN) {
            ranges[found++] = (hooks_range_t){iov[i].buffer, iov[i].length};
        }
    }
    return found;
}

/* The parts of a buffer that are worth telling the engine of; at most
 * HOOKS_MAX_IOV */
static unsigned hooks_look(const void *buffer, size_t count,
                           const ucp_request_param_t *param,
                           hooks_range_t *ranges)
{
    size_t size = 1;

    /* "unknown" has another number in each version */
    if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
        (param->memory_type != UCS_MEMORY_TYPE_HOST)) {
        return 0;
    }

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        switch (param->datatype & UCP_DATATYPE_CLASS_MASK) {
        case UCP_DATATYPE_CONTIG:
            size = param->datatype >> UCP_DATATYPE_SHIFT;
            break;
        case UCP_DATATYPE_IOV:
            return hooks_look_at_iov(buffer, count, ranges);
        default:
            return 0;
        }
    }

    if (__builtin_mul_overflow(count, size, &size) || (size < HOOKS_MIN)) {
        return 0;
    }
    ranges[0] = (hooks_range_t){buffer, size};
    return 1;
}

static int hooks_is_over(void *request)
{
    __typeof__(&ucp_request_check_status) func =
            HOOKS_FUNC(ucp_request_check_status);

    return (func == NULL) || (func(request) != UCS_INPROGRESS);
}

/* A request is over, or will be used for another operation; NULL: all */
static void hooks_forget(const void *request)
{
    const np_extension_t *engine = atomic_load_explicit(&hooks_engine,
                                                        memory_order_acquire);

    if ((engine != NULL) &&
        (atomic_load_explicit(engine->prepare_watched,
                              memory_order_relaxed) > 0)) {
        engine->prepare_forget(request);
    }
}

static void hooks_sent(void *request, ucs_status_t status UCS_V_UNUSED,
                       void *arg UCS_V_UNUSED)
{
    hooks_forget(request);
}

static void
hooks_received_tag(void *request, ucs_status_t status UCS_V_UNUSED,
                   const ucp_tag_recv_info_t *info UCS_V_UNUSED,
                   void *arg UCS_V_UNUSED)
{
    hooks_forget(request);
}

static void hooks_received(void *request, ucs_status_t status UCS_V_UNUSED,
                           size_t length UCS_V_UNUSED, void *arg UCS_V_UNUSED)
{
    hooks_forget(request);
}

/* How the end of an operation is noticed */
typedef enum hooks_end {
    HOOKS_END_ASKED,    /* its request can be asked */
    HOOKS_END_TOLD,     /* it has got a callback of ours */
    HOOKS_END_UNKNOWN
} hooks_end_t;

static hooks_end_t hooks_end_of(const ucp_request_param_t *param)
{
    return !(param->op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) ?
           HOOKS_END_ASKED :
           !(param->op_attr_mask &
             (UCP_OP_ATTR_FIELD_CALLBACK | HOOKS_LATER_FIELDS)) ?
           HOOKS_END_TOLD : HOOKS_END_UNKNOWN;
}

static void hooks_announce(const np_extension_t *engine,
                           const hooks_range_t *ranges, unsigned count,
                           int is_receive, void *request, hooks_end_t end,
                           uint32_t given_back)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        engine->prepare_op(ranges[i].buffer, ranges[i].length, is_receive,
                           (end == HOOKS_END_UNKNOWN) ? NULL : request,
                           (end == HOOKS_END_ASKED) ? hooks_is_over : NULL,
                           given_back);
    }
}

/* Is it one small buffer? Most are, and have no time to lose. */
static inline int hooks_is_small(size_t count, const ucp_request_param_t *param)
{
    size_t size = 1;

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) {
        if ((param->datatype & UCP_DATATYPE_CLASS_MASK) !=
            UCP_DATATYPE_CONTIG) {
            return 0;
        }
        size = param->datatype >> UCP_DATATYPE_SHIFT;
    }
    return (count < HOOKS_MIN) && (size < HOOKS_MIN) &&
           ((count * size) < HOOKS_MIN);
}

/* The engine to tell, if this call is the program's; or NULL */
static inline const np_extension_t *hooks_engine_of_call(void)
{
    return (hooks_depth != 0) ? NULL :
           atomic_load_explicit(&hooks_engine, memory_order_acquire);
}

/*
 * A function of ours: calls UCP's, and if that has left a transfer on its way,
 * tells the engine of its memory. UCP comes first: the message to the peer
 * leaves before the engine does anything. The buffers are looked at before that
 * call: when UCP's function returns, the transfer may be over (its callback was
 * called in there, or by another thread), and list and parameters are the
 * program's again.
 */
#define HOOKS_DEFINE(_name, _is_receive, _cb, _ended, _params, ...) \
    static __attribute__((noinline)) ucs_status_ptr_t hooked_##_name _params \
    { \
        __typeof__(&_name) func = HOOKS_FUNC(_name); \
        const np_extension_t *engine; \
        hooks_range_t ranges[HOOKS_MAX_IOV]; \
        ucp_request_param_t told; \
        ucs_status_ptr_t request; \
        uint32_t given_back; \
        unsigned found = 0; \
        hooks_end_t end; \
        \
        if (func == NULL) { \
            return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED); \
        } \
        \
        engine = hooks_engine_of_call(); \
        if (!hooks_is_small(count, param) && (engine != NULL)) { \
            found = hooks_look(buffer, count, param, ranges); \
        } \
        \
        if (found == 0) { \
            return func(__VA_ARGS__); \
        } \
        \
        end = hooks_end_of(param); \
        if (end == HOOKS_END_TOLD) { \
            memcpy(&told, param, HOOKS_PARAM_SIZE); \
            told.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK; \
            told.cb._cb        = _ended; \
            param              = &told; \
        } \
        \
        given_back = engine->prepare_begin(); \
        ++hooks_depth; \
        request = func(__VA_ARGS__); \
        --hooks_depth; \
        if (UCS_PTR_IS_PTR(request)) { \
            hooks_announce(engine, ranges, found, _is_receive, request, end, \
                           given_back); \
        } \
        engine->prepare_end(); \
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

HOOKS_DEFINE(ucp_tag_send_nbx, 0, send, hooks_sent,
             (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
              const ucp_request_param_t *param),
             ep, buffer, count, tag, param)

HOOKS_DEFINE(ucp_tag_send_sync_nbx, 0, send, hooks_sent,
             (ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
              const ucp_request_param_t *param),
             ep, buffer, count, tag, param)

HOOKS_DEFINE(ucp_tag_recv_nbx, 1, recv, hooks_received_tag,
             (ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
              ucp_tag_t tag_mask, const ucp_request_param_t *param),
             worker, buffer, count, tag, tag_mask, param)

HOOKS_DEFINE(ucp_tag_msg_recv_nbx, 1, recv, hooks_received_tag,
             (ucp_worker_h worker, void *buffer, size_t count,
              ucp_tag_message_h message, const ucp_request_param_t *param),
             worker, buffer, count, message, param)

HOOKS_DEFINE(ucp_am_send_nbx, 0, send, hooks_sent,
             (ucp_ep_h ep, unsigned id, const void *header,
              size_t header_length, const void *buffer, size_t count,
              const ucp_request_param_t *param),
             ep, id, header, header_length, buffer, count, param)

HOOKS_DEFINE(ucp_am_recv_data_nbx, 1, recv_am, hooks_received,
             (ucp_worker_h worker, void *data_desc, void *buffer, size_t count,
              const ucp_request_param_t *param),
             worker, data_desc, buffer, count, param)

HOOKS_DEFINE(ucp_stream_send_nbx, 0, send, hooks_sent,
             (ucp_ep_h ep, const void *buffer, size_t count,
              const ucp_request_param_t *param),
             ep, buffer, count, param)

HOOKS_DEFINE(ucp_stream_recv_nbx, 1, recv_stream, hooks_received,
             (ucp_ep_h ep, void *buffer, size_t count, size_t *length,
              const ucp_request_param_t *param),
             ep, buffer, count, length, param)

HOOKS_DEFINE(ucp_put_nbx, 0, send, hooks_sent,
             (ucp_ep_h ep, const void *buffer, size_t count,
              uint64_t remote_addr, ucp_rkey_h rkey,
              const ucp_request_param_t *param),
             ep, buffer, count, remote_addr, rkey, param)

HOOKS_DEFINE(ucp_get_nbx, 1, send, hooks_sent,
             (ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr,
              ucp_rkey_h rkey, const ucp_request_param_t *param),
             ep, buffer, count, remote_addr, rkey, param)

/* Before UCP gives the request to another operation */
#define HOOKS_DEFINE_GIVE_BACK(_name, _type, _object, _request) \
    HOOKS_EXPORT void _name(_type _object) \
    { \
        __typeof__(&_name) func = HOOKS_FUNC(_name); \
        \
        hooks_forget(_request); \
        if (func != NULL) { \
            func(_object); \
        } \
    }

HOOKS_DEFINE_GIVE_BACK(ucp_request_free, void*, request, request)
HOOKS_DEFINE_GIVE_BACK(ucp_request_release, void*, request, request)
HOOKS_DEFINE_GIVE_BACK(ucp_worker_destroy, ucp_worker_h, worker, NULL)
