// SPDX-License-Identifier: BSD-3-Clause
// The six kinds of put and get behind one call.
#include "rma_op.h"

#include <algorithm>
#include <cstring>

namespace nt {

std::string name_of(RmaKind kind)
{
    static const char *names[] = {"PutShort", "PutBcopy", "PutZcopy",
                                  "GetShort", "GetBcopy", "GetZcopy"};

    return names[(int)kind];
}

bool rma_is_put(RmaKind kind)
{
    return kind <= RmaKind::PutZcopy;
}

bool rma_is_zcopy(RmaKind kind)
{
    return (kind == RmaKind::PutZcopy) || (kind == RmaKind::GetZcopy);
}

size_t rma_limit(const UctIface &iface, RmaKind kind, size_t wanted)
{
    const auto &put = iface.attr.cap.put;
    const auto &get = iface.attr.cap.get;
    uint64_t flags[] = {UCT_IFACE_FLAG_PUT_SHORT, UCT_IFACE_FLAG_PUT_BCOPY,
                        UCT_IFACE_FLAG_PUT_ZCOPY, UCT_IFACE_FLAG_GET_SHORT,
                        UCT_IFACE_FLAG_GET_BCOPY, UCT_IFACE_FLAG_GET_ZCOPY};
    size_t limits[]  = {put.max_short, put.max_bcopy, put.max_zcopy,
                        get.max_short, get.max_bcopy, get.max_zcopy};

    iface.require(flags[(int)kind], name_of(kind));
    return std::min(limits[(int)kind], wanted);
}

size_t rma_max_iov(const UctIface &iface, RmaKind kind)
{
    return (kind == RmaKind::PutZcopy) ? iface.attr.cap.put.max_iov :
                                         iface.attr.cap.get.max_iov;
}

namespace {

struct Piece {
    uint8_t *address;
    size_t  length;
};

size_t pack_piece(void *dest, void *arg)
{
    auto *piece = static_cast<Piece*>(arg);

    memcpy(dest, piece->address, piece->length);
    return piece->length;
}

// What put_bcopy returns is a length, and 1 is also UCS_INPROGRESS.
ssize_t packed_status(ssize_t ret, size_t length)
{
    if (ret < 0) {
        return ret;
    }
    if (ret != (ssize_t)length) {
        throw Failed("put_bcopy returned another length than was packed");
    }
    return UCS_OK;
}

void unpack_piece(void *arg, const void *data, size_t length)
{
    memcpy(arg, data, length);
}

} // namespace

ssize_t rma_post(Node &node, RmaKind kind, const UctMem &local, size_t offset,
                 size_t length, uint64_t remote_address, uct_rkey_t rkey,
                 Comp *comp)
{
    return rma_post(node, kind, local.at(offset), local.memh, length,
                    remote_address, rkey, comp);
}

ssize_t rma_post(Node &node, RmaKind kind, uint8_t *buffer, uct_mem_h memh,
                 size_t length, uint64_t remote_address, uct_rkey_t rkey,
                 Comp *comp)
{
    uct_ep_h ep   = node.ep->ep;
    uct_iov_t iov = {buffer, length, memh, 0, 1};
    Piece piece   = {buffer, length};

    switch (kind) {
    case RmaKind::PutShort:
        return uct_ep_put_short(ep, buffer, length, remote_address, rkey);
    case RmaKind::PutBcopy:
        return packed_status(uct_ep_put_bcopy(ep, pack_piece, &piece,
                                              remote_address, rkey), length);
    case RmaKind::PutZcopy:
        return uct_ep_put_zcopy(ep, &iov, 1, remote_address, rkey, comp);
    case RmaKind::GetShort:
        return uct_ep_get_short(ep, buffer, length, remote_address, rkey);
    case RmaKind::GetBcopy:
        return uct_ep_get_bcopy(ep, unpack_piece, buffer, length,
                                remote_address, rkey, comp);
    default:
        return uct_ep_get_zcopy(ep, &iov, 1, remote_address, rkey, comp);
    }
}

void rma_transfer(Node &node, RmaKind kind, const UctMem &local,
                  size_t offset, size_t length, uint64_t remote_address,
                  uct_rkey_t rkey)
{
    Comp comp;

    node.complete(name_of(kind).c_str(), comp, [&]() {
        return rma_post(node, kind, local, offset, length, remote_address,
                        rkey, &comp);
    });
}

void rma_scatter(Node &node, RmaKind kind, const UctMem &local,
                 const UctMem &target, const UctRemote &remote, size_t count,
                 size_t piece, uint64_t seed)
{
    const size_t gap = 3;
    bool put         = rma_is_put(kind);
    uint64_t local_seed  = put ? seed : 1000;
    uint64_t remote_seed = put ? 1000 : seed;
    std::vector<uct_iov_t> iov;
    size_t total = 0, at = 1;

    for (size_t i = 0; i < count; ++i) {
        // Every fifth piece is empty, the others differ a little
        size_t length = ((i % 5) == 3) ? 0 : piece - (piece > i ? i % 2 : 0);
        pattern_fill(local.at(at - 1), length + 2, 2000);
        pattern_fill(local.at(at), length, local_seed, put ? total : 0);
        iov.push_back(local.iov(at, length));
        total += length;
        at    += length + gap;
    }

    Guarded theirs(target.at(1), total);
    theirs.fill(remote_seed);
    node.sync();

    if (node.rank.initiator()) {
        uint64_t address = remote.address + 1 + Guarded::GUARD;
        Comp comp;
        node.complete("scatter list", comp, [&]() -> ssize_t {
            if (put) {
                return uct_ep_put_zcopy(node.ep->ep, iov.data(), count,
                                        address, remote.rkey(), &comp);
            }
            return uct_ep_get_zcopy(node.ep->ep, iov.data(), count, address,
                                    remote.rkey(), &comp);
        });
        node.flush();
    }
    node.sync();

    std::string diff;
    if (node.rank.target()) {
        diff = theirs.diff(seed);
    }
    total = 0;
    for (size_t i = 0; node.rank.initiator() && diff.empty() && (i < count);
         ++i) {
        auto *bytes = static_cast<uint8_t*>(iov[i].buffer);
        diff        = pattern_diff(bytes, iov[i].length, seed, total);
        total      += iov[i].length;
        if (diff.empty()) {
            diff = pattern_diff(bytes - 1, 1, 2000);
        }
        if (diff.empty()) {
            diff = pattern_diff(bytes + iov[i].length, 1, 2000,
                                iov[i].length + 1);
        }
    }
    if (!diff.empty()) {
        throw Failed(std::to_string(count) + " pieces of " +
                     std::to_string(piece) + ": " + diff);
    }
    node.sync();
}

} // namespace nt
