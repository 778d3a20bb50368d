/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory regions on dma-bufs.
 *
 * ibv_reg_dmabuf_mr() works with providers that implement it: in rdma-core 44
 * mlx5 and efa. With others the kernel is asked, whose interface for this takes
 * nothing that is the driver's own. libibverbs has that call too, but only for
 * its providers: its name carries a private version, and later versions have
 * another argument. The kernel's interface, rdma/ib_user_ioctl_cmds.h, stays.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "dmabuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#ifdef HAVE_UVERBS_DMABUF
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#endif

typedef struct np_dmabuf_mr {
    struct ibv_mr mr;         /* what users see; must be first */
    struct ibv_mr *provider;  /* NULL: the kernel was asked */
} np_dmabuf_mr_t;


#ifdef HAVE_UVERBS_DMABUF

/* Attributes that a call may have */
#define NP_UVERBS_MAX        (UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY + 1)

/* Numbers of drivers that may be in use; Linux 7.2 knows 22 */
#define NP_UVERBS_DRIVERS    64

/* A call of the kernel's verbs, being put together */
typedef union np_uverbs {
    struct ib_uverbs_ioctl_hdr hdr; /* its attributes follow */
    uint8_t                    room[sizeof(struct ib_uverbs_ioctl_hdr) +
                                    (NP_UVERBS_MAX *
                                     sizeof(struct ib_uverbs_attr))];
} np_uverbs_t;

static void np_uverbs_init(np_uverbs_t *call, unsigned object, unsigned method)
{
    memset(call, 0, sizeof(*call));
    call->hdr.object_id = object;
    call->hdr.method_id = method;
}

/* A handle (length 0), up to 8 bytes of input, or where the output goes */
static struct ib_uverbs_attr *np_uverbs_add(np_uverbs_t *call, unsigned id,
                                            uint64_t data, unsigned length)
{
    struct ib_uverbs_attr *attr = &call->hdr.attrs[call->hdr.num_attrs++];

    attr->attr_id = id;
    attr->flags   = UVERBS_ATTR_F_MANDATORY;
    attr->len     = length;
    attr->data    = data;
    return attr;
}

static int np_uverbs_call(struct ibv_context *ctx, np_uverbs_t *call)
{
    call->hdr.length = sizeof(call->hdr) +
                       (call->hdr.num_attrs * sizeof(*call->hdr.attrs));
    return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &call->hdr);
}

/* Callers must know the driver's number. To wrong ones the kernel says EINVAL
 * before it looks at the method, of which it knows none. */
static int np_uverbs_driver(struct ibv_context *ctx)
{
    np_uverbs_t call;
    int id;

    for (id = 0; id < NP_UVERBS_DRIVERS; ++id) {
        np_uverbs_init(&call, UVERBS_OBJECT_MR, UINT16_MAX);
        call.hdr.driver_id = id;
        if ((np_uverbs_call(ctx, &call) == 0) || (errno == EINVAL)) {
            continue;
        }
        if (errno == EPROTONOSUPPORT) {
            return id;
        }
        if (errno != ENOTTY) {
            return -1;
        }
        break; /* a kernel without this interface */
    }

    errno = EOPNOTSUPP;
    return -1;
}

static int np_dmabuf_reg_kernel(np_nic_t *nic, int fd, uint64_t offset,
                                size_t len, uint64_t iova, int access,
                                struct ibv_mr *mr)
{
    struct ib_uverbs_attr *handle;
    np_uverbs_t call;
    int driver;

    driver = np_uverbs_driver(nic->ctx);
    if (driver < 0) {
        return -1;
    }

    np_uverbs_init(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    call.hdr.driver_id = driver;
    handle = np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, nic->pd->handle,
                  0);
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset,
                  sizeof(uint64_t));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, len,
                  sizeof(uint64_t));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova,
                  sizeof(uint64_t));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_FD, (unsigned)fd,
                  sizeof(uint32_t));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
                  (unsigned)access, sizeof(uint32_t));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
                  (uintptr_t)&mr->lkey, sizeof(mr->lkey));
    np_uverbs_add(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY,
                  (uintptr_t)&mr->rkey, sizeof(mr->rkey));
    if (np_uverbs_call(nic->ctx, &call) != 0) {
        if (errno == EPROTONOSUPPORT) {
            errno = EOPNOTSUPP; /* it has no such method */
        }
        return -1;
    }

    mr->handle = handle->data;
    return 0;
}

static int np_dmabuf_dereg_kernel(struct ibv_mr *mr)
{
    np_uverbs_t call;
    int driver;

    driver = np_uverbs_driver(mr->context);
    if (driver < 0) {
        return -1;
    }

    np_uverbs_init(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
    call.hdr.driver_id = driver;
    np_uverbs_add(&call, UVERBS_ATTR_DESTROY_MR_HANDLE, mr->handle, 0);
    return np_uverbs_call(mr->context, &call);
}

#else

static int np_dmabuf_reg_kernel(np_nic_t *nic, int fd, uint64_t offset,
                                size_t len, uint64_t iova, int access,
                                struct ibv_mr *mr)
{
    errno = EOPNOTSUPP;
    return -1;
}

static int np_dmabuf_dereg_kernel(struct ibv_mr *mr)
{
    errno = EOPNOTSUPP;
    return -1;
}

#endif

/* By the provider if it can, else by the kernel */
static int np_dmabuf_reg_any(np_nic_t *nic, int fd, uint64_t offset, size_t len,
                             uint64_t iova, int access, np_dmabuf_mr_t *mr)
{
#ifdef HAVE_IBV_REG_DMABUF_MR
    mr->provider = ibv_reg_dmabuf_mr(nic->pd, offset, len, iova, fd, access);
    if (mr->provider != NULL) {
        mr->mr.lkey   = mr->provider->lkey;
        mr->mr.rkey   = mr->provider->rkey;
        mr->mr.handle = mr->provider->handle;
        return 0;
    }

    if ((errno != EOPNOTSUPP) && (errno != ENOSYS)) {
        return -1;
    }
#endif
    return np_dmabuf_reg_kernel(nic, fd, offset, len, iova, access, &mr->mr);
}

/* What each means: docs/design/protocol.md has the same table. The last is
 * for all others. */
static const np_dmabuf_error_t np_dmabuf_errors[] = {
    {EINVAL, "EINVAL", NP_DMABUF_SMALLER,
     "its driver refuses regions of this size"},
    {E2BIG, "E2BIG", NP_DMABUF_SMALLER,
     "its driver refuses regions of this size"},
    {ERANGE, "ERANGE", NP_DMABUF_SMALLER,
     "its driver refuses regions of this size"},
    {EMSGSIZE, "EMSGSIZE", NP_DMABUF_SMALLER,
     "its driver refuses regions of this size"},
    {EOVERFLOW, "EOVERFLOW", NP_DMABUF_SMALLER,
     "its driver refuses regions of this size"},
    {EOPNOTSUPP, "EOPNOTSUPP", NP_DMABUF_NEVER,
     "it needs a driver that imports dma-bufs, and an IOMMU that translates "
     "('dmesg' may say more)"},
    {ENOSYS, "ENOSYS", NP_DMABUF_NEVER,
     "it needs a libibverbs and a driver that import dma-bufs"},
    {EPERM, "EPERM", NP_DMABUF_NEVER,
     "something forbids it: look at the container's or the security module's "
     "rules"},
    {EACCES, "EACCES", NP_DMABUF_NEVER,
     "something forbids it: look at the container's or the security module's "
     "rules"},
    {ENODEV, "ENODEV", NP_DMABUF_NEVER, "the device is gone"},
    {ENXIO, "ENXIO", NP_DMABUF_NEVER, "the device is gone"},
    {EIO, "EIO", NP_DMABUF_NEVER,
     "the device has failed, or is gone ('dmesg' may say more)"},
    {ENOMEM, "ENOMEM", NP_DMABUF_LATER,
     "there is no memory for the tables of it"},
    {ENOSPC, "ENOSPC", NP_DMABUF_LATER,
     "the device has no room for more regions"},
    {EDQUOT, "EDQUOT", NP_DMABUF_LATER,
     "this user has all that nprdma.ko allows, or 64 devices have a page: check "
     "its parameter user_mb"},
    {EAGAIN, "EAGAIN", NP_DMABUF_LATER,
     "the device is busy, or the rdma cgroup's limit is reached"},
    {EBUSY, "EBUSY", NP_DMABUF_LATER, "the device is busy"},
    {EINTR, "EINTR", NP_DMABUF_LATER, "it was interrupted"},
    {ETIMEDOUT, "ETIMEDOUT", NP_DMABUF_LATER, "the device has not answered"},
    {EMFILE, "EMFILE", NP_DMABUF_LATER,
     "no file descriptor is left: check 'ulimit -n'"},
    {ENFILE, "ENFILE", NP_DMABUF_LATER, "the system has no descriptor left"},
    {EFAULT, "EFAULT", NP_DMABUF_OTHERS,
     "the device cannot reach these addresses"},
    {EBADF, "EBADF", NP_DMABUF_OTHERS, "what was exported is no dma-buf"},
    {0, "other", NP_DMABUF_OTHERS,
     "this error was not expected"}
};

const np_dmabuf_error_t *np_dmabuf_error(int error)
{
    const np_dmabuf_error_t *found = np_dmabuf_errors;

    while ((found->error != error) && (found->error != 0)) {
        ++found;
    }
    return found;
}

static ucs_status_t np_dmabuf_status(int error)
{
    switch (np_dmabuf_error(error)->then) {
    case NP_DMABUF_NEVER:
        return UCS_ERR_UNSUPPORTED;
    case NP_DMABUF_LATER:
        return UCS_ERR_NO_MEMORY;
    default:
        return UCS_ERR_INVALID_PARAM;
    }
}

ucs_status_t np_nic_reg_dmabuf(np_nic_t *nic, int fd, uint64_t offset,
                               size_t len, uint64_t iova, int access,
                               struct ibv_mr **mr_p)
{
    np_dmabuf_mr_t *mr;
    int error;

    mr = calloc(1, sizeof(*mr));
    if (mr == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    mr->mr.context = nic->ctx;
    mr->mr.pd      = nic->pd;
    mr->mr.length  = len;
    if (np_dmabuf_reg_any(nic, fd, offset, len, iova, access, mr) == 0) {
        *mr_p = &mr->mr;
        return UCS_OK;
    }

    error = errno;
    free(mr);
    errno = error;
    return np_dmabuf_status(error);
}

void np_nic_dereg_dmabuf(struct ibv_mr *mr)
{
    np_dmabuf_mr_t *dmabuf = (np_dmabuf_mr_t*)mr;
    int ret;

    if (dmabuf->provider != NULL) {
        ret = ibv_dereg_mr(dmabuf->provider);
    } else {
        ret = np_dmabuf_dereg_kernel(mr);
    }
    if (ret != 0) {
        np_error("a memory region on a dma-buf cannot be given back: %m");
    }
    free(dmabuf);
}
