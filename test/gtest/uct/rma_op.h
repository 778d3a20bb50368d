// SPDX-License-Identifier: BSD-3-Clause
// The six kinds of put and get behind one call.
#ifndef NPRDMA_TEST_RMA_OP_H
#define NPRDMA_TEST_RMA_OP_H

#include "uct_face.h"

namespace nt {

enum class RmaKind { PutShort, PutBcopy, PutZcopy, GetShort, GetBcopy,
                     GetZcopy };

std::string name_of(RmaKind kind);
bool rma_is_put(RmaKind kind);
bool rma_is_zcopy(RmaKind kind);

// The longest transfer of this kind, at most `wanted`; lacking() if the
// transport has no such operation.
size_t rma_limit(const UctIface &iface, RmaKind kind, size_t wanted);
size_t rma_max_iov(const UctIface &iface, RmaKind kind);

// Start one transfer between `local` and the remote address. What the
// operation itself returns; kinds without a completion ignore `comp`.
ssize_t rma_post(Node &node, RmaKind kind, const UctMem &local, size_t offset,
                 size_t length, uint64_t remote_address, uct_rkey_t rkey,
                 Comp *comp);

// The same with any memory of one's own.
ssize_t rma_post(Node &node, RmaKind kind, uint8_t *buffer, uct_mem_h memh,
                 size_t length, uint64_t remote_address, uct_rkey_t rkey,
                 Comp *comp);

// Start one and wait for its completion (puts without one: for its start).
void rma_transfer(Node &node, RmaKind kind, const UctMem &local,
                  size_t offset, size_t length, uint64_t remote_address,
                  uct_rkey_t rkey);

// A zero-copy transfer of `count` pieces of about `piece` bytes each, some
// empty, with gaps between them on the local side; checks both sides.
void rma_scatter(Node &node, RmaKind kind, const UctMem &local,
                 const UctMem &target, const UctRemote &remote, size_t count,
                 size_t piece, uint64_t seed);

} // namespace nt

#endif
