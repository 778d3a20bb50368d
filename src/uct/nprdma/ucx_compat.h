/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What differs between UCX versions. The only file that knows them.
 */

#ifndef UCT_NPRDMA_UCX_COMPAT_H_
#define UCT_NPRDMA_UCX_COMPAT_H_

#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_log.h>
#include <uct/base/uct_iov.inl>

#define UCT_NPRDMA_UCX_VERSION  UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR)
#define UCT_NPRDMA_UCX_AT_LEAST(_major, _minor) \
    (UCT_NPRDMA_UCX_VERSION >= UCT_VERSION(_major, _minor))

#endif
