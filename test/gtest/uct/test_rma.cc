// SPDX-License-Identifier: BSD-3-Clause
// Put and get: every kind, size, alignment and kind of memory, and order.
#include "rma_op.h"
#include "am_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

using namespace nt;

namespace {

constexpr size_t LARGEST = 4 << 20;

using RmaParam = std::tuple<RmaKind, MemKind, Topology>;

class Rma : public testing::TestWithParam<RmaParam> {
protected:
    RmaKind kind() const { return std::get<0>(GetParam()); }
    MemKind mem_kind() const { return std::get<1>(GetParam()); }
    void run(const Body &body) { run_in(std::get<2>(GetParam()), body); }
};

// Offsets (local, remote) that are aligned, unaligned alike, and unaligned
// differently; the last crosses a page.
const std::vector<std::pair<size_t, size_t>> OFFSETS = {
    {0, 0}, {1, 0}, {0, 3}, {5, 5}, {63, 1}, {8, 4093}
};

class RmaCase {
public:
    RmaCase(Rank &rank, RmaKind kind, MemKind mem_kind, size_t largest,
            const Settings &settings = {}) :
        node(rank, {}, settings), kind(kind),
        largest(rma_limit(node.iface, kind, largest)),
        local(node.domain, MemKind::Local, space(this->largest)),
        target(node.domain, mem_kind, space(this->largest)),
        remote(node.domain, node.rank.oob.exchange(target.describe()))
    {
    }

    static size_t space(size_t largest)
    {
        return Guarded::space(largest) + 4096 + 64;
    }

    // One transfer of `length` bytes; the bytes are looked at where they
    // must be: of a put at the target, of a get at the initiator.
    void transfer(size_t length, size_t local_offset, size_t remote_offset)
    {
        Guarded theirs(target.at(remote_offset), length);
        Guarded mine(local.at(local_offset), length);
        bool put = rma_is_put(kind);

        ++seed;
        theirs.fill(put ? 0 : seed);
        mine.fill(put ? seed : 0);
        node.sync();

        if (node.rank.initiator()) {
            rma_transfer(node, kind, local,
                         local_offset + Guarded::GUARD, length,
                         remote.address + remote_offset + Guarded::GUARD,
                         remote.rkey());
            node.flush();
        }
        node.sync();

        std::string what = std::to_string(length) + " bytes from offset " +
                           std::to_string(local_offset) + " to " +
                           std::to_string(remote_offset) + ": ";
        if (node.rank.target()) {
            expect("target, " + what, theirs.diff(seed));
        }
        if (node.rank.initiator()) {
            expect("initiator, " + what, mine.diff(seed));
        }
    }

    static void expect(const std::string &what, const std::string &diff)
    {
        if (!diff.empty()) {
            throw Failed(what + diff);
        }
    }

    Node      node;
    RmaKind   kind;
    size_t    largest;
    UctMem    local;
    UctMem    target;
    UctRemote remote;
    uint64_t  seed = 0;
};

// Up to a size at each place; larger ones at one place each, in turn.
void every_size(RmaCase &rma, size_t at_each_place)
{
    size_t turn = 0;

    for (size_t length : sizes_around(rma.largest)) {
        size_t places = (length <= at_each_place) ? OFFSETS.size() : 1;
        for (size_t i = 0; i < places; ++i) {
            const auto &offsets = OFFSETS[turn++ % OFFSETS.size()];
            rma.transfer(length, offsets.first, offsets.second);
        }
    }
}

TEST_P(Rma, EverySize)
{
    run([this](Rank &rank) {
        RmaCase rma(rank, kind(), mem_kind(), LARGEST);

        // The large ones are slow to check, so they take turns
        every_size(rma, 65537);
    });
}

TEST_P(Rma, ManyInFlight)
{
    run([this](Rank &rank) {
        const size_t count = 1000, piece = 96;
        RmaCase rma(rank, kind(), mem_kind(), LARGEST);
        UctMem local(rma.node.domain, MemKind::Local, count * piece);
        UctMem target(rma.node.domain, mem_kind(), count * piece);
        UctRemote remote(rma.node.domain,
                         rank.oob.exchange(target.describe()));
        bool put    = rma_is_put(kind());
        size_t used = std::min(piece - 7, rma.largest);
        std::vector<Comp> comps(count);

        for (size_t i = 0; i < count; ++i) {
            pattern_fill(local.at(i * piece), piece, put ? i : 7777);
            pattern_fill(target.at(i * piece), piece, put ? 7777 : i);
        }
        rma.node.sync();

        for (size_t i = 0; rank.initiator() && (i < count); ++i) {
            ssize_t ret = rma.node.post("room", [&]() {
                return rma_post(rma.node, kind(), local, i * piece, used,
                                remote.address + i * piece, remote.rkey(),
                                &comps[i]);
            });
            ASSERT_TRUE((ret >= 0) || (ret == UCS_INPROGRESS)) << ret;
            comps[i].count = (ret == UCS_INPROGRESS) ? comps[i].count : 0;
        }
        if (rank.initiator()) {
            rma.node.flush();
            rma.node.until("all completions", [&]() {
                return std::all_of(comps.begin(), comps.end(),
                                   [](const Comp &c) { return c.count == 0; });
            });
        }
        rma.node.sync();

        const UctMem &written = put ? target : local;
        for (size_t i = 0; (put ? rank.target() : rank.initiator()) &&
                           (i < count); ++i) {
            EXPECT_EQ("", pattern_diff(written.at(i * piece), used, i));
            EXPECT_EQ("", pattern_diff(written.at(i * piece + used),
                                       piece - used, 7777, used));
        }
        rma.node.sync();
    });
}

// Nothing but the rings, through which the target's CPU copies.
class RmaRings : public Rma {
};

TEST_P(RmaRings, EverySize)
{
    run([this](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("rings are soft0's");
        }
        RmaCase rma(rank, kind(), mem_kind(), 1 << 20,
                    {{"SINGLE_COPY", "off"}});

        every_size(rma, 0);
    });
}

// The kernel alone, which is not asked for large gets of what is registered.
class RmaKernel : public Rma {
};

TEST_P(RmaKernel, EverySize)
{
    run([this](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("LEND is soft0's");
        }
        RmaCase rma(rank, kind(), mem_kind(), 1 << 20,
                    {{"LEND", "n"}});

        every_size(rma, 0);
    });
}

// Copies into the rings go past the caches.
class RmaPast : public Rma {
};

TEST_P(RmaPast, EverySize)
{
    run([this](Rank &rank) {
#ifdef __SSE2__
        if (!is_soft()) {
            throw Skipped("NT_STORES is soft0's");
        }
        RmaCase rma(rank, kind(), mem_kind(), 1 << 20,
                    {{"NT_STORES", "on"}});

        every_size(rma, 0);
#else
        (void)rank;
        throw Skipped("this processor has no non-temporal stores");
#endif
    });
}

class RmaScatter : public Rma {
};

TEST_P(RmaScatter, EveryCount)
{
    run([this](Rank &rank) {
        RmaCase rma(rank, kind(), mem_kind(), 6 << 20);
        size_t max_iov = rma_max_iov(rma.node.iface, kind());

        for (size_t count = 1; count <= max_iov; ++count) {
            for (size_t piece : {1, 13, 64, 4096, 30001}) {
                rma_scatter(rma.node, kind(), rma.local, rma.target,
                            rma.remote, count,
                            std::min(piece, rma.largest / count), count);
            }
        }
        // Those that are copied in the background
        for (size_t count : {std::min<size_t>(2, max_iov), max_iov}) {
            rma_scatter(rma.node, kind(), rma.local, rma.target, rma.remote,
                        count, rma.largest / count - 3, 77);
        }
    });
}

std::string param_name(const testing::TestParamInfo<RmaParam> &info)
{
    return name_of(std::get<0>(info.param)) +
           name_of(std::get<1>(info.param)) +
           name_of(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
        Uct, RmaRings,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetShort,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Heap, MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

INSTANTIATE_TEST_SUITE_P(
        Uct, RmaKernel,
        testing::Combine(testing::Values(RmaKind::GetZcopy),
                         testing::Values(MemKind::Heap, MemKind::Mmap),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

INSTANTIATE_TEST_SUITE_P(
        Uct, RmaPast,
        testing::Combine(testing::Values(RmaKind::PutBcopy, RmaKind::PutZcopy,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Heap, MemKind::Mmap),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

INSTANTIATE_TEST_SUITE_P(
        Uct, Rma,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetShort,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Heap, MemKind::Mmap,
                                         MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

INSTANTIATE_TEST_SUITE_P(
        Uct, RmaScatter,
        testing::Combine(testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Heap, MemKind::Mmap,
                                         MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

class RmaEmpty : public testing::TestWithParam<Topology> {
};

// What moves nothing needs no key, and no address; it is complete at once, or
// says so like any other.
TEST_P(RmaEmpty, NeedsNoKey)
{
    run_in(GetParam(), [](Rank &rank) {
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, 4096);
        UctMem target(node.domain, MemKind::Mmap, 4096);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        auto settle = [&](const std::string &what, Comp &comp,
                          const std::function<ssize_t()> &post) {
            ssize_t ret = node.post(what.c_str(), post);
            if (ret == UCS_INPROGRESS) {
                node.until(what.c_str(), [&]() { return comp.calls > 0; });
                ret = comp.status;
            }
            EXPECT_EQ(UCS_OK, ret) << what;
        };

        pattern_fill(local.at(), 4096, 1);
        pattern_fill(target.at(), 4096, 2);
        node.sync();
        for (int round = 0; rank.initiator() && (round < 3); ++round) {
            for (RmaKind kind : {RmaKind::PutShort, RmaKind::PutBcopy,
                                 RmaKind::PutZcopy, RmaKind::GetShort,
                                 RmaKind::GetBcopy, RmaKind::GetZcopy}) {
                try {
                    rma_limit(node.iface, kind, 1);
                } catch (const Skipped&) {
                    continue; // this device has no such operation
                }
                for (uct_rkey_t rkey : {(uct_rkey_t)UCT_INVALID_RKEY,
                                        remote.rkey()}) {
                    Comp comp;
                    settle(name_of(kind), comp, [&]() {
                        return rma_post(node, kind, local, 0, 0,
                                        (rkey == remote.rkey()) ?
                                        remote.address : 0, rkey, &comp);
                    });
                }
            }

            uct_iov_t iov[2] = {{nullptr, 0, UCT_MEM_HANDLE_NULL, 0, 1},
                                {local.at(), 0, local.memh, 0, 1}};
            for (size_t count = 0; count <= 2; ++count) {
                Comp put, get;
                settle("put of an empty list", put, [&]() {
                    return (ssize_t)uct_ep_put_zcopy(
                            node.ep->ep, iov, count, 0, UCT_INVALID_RKEY,
                            &put);
                });
                settle("get of an empty list", get, [&]() {
                    return (ssize_t)uct_ep_get_zcopy(
                            node.ep->ep, iov, count, 0, UCT_INVALID_RKEY,
                            &get);
                });
            }

            // now they are connected, and others pass
            rma_transfer(node, RmaKind::GetZcopy, local, 0, 8, remote.address,
                         remote.rkey());
            node.flush();
            pattern_fill(local.at(), 8, 1);
        }
        node.sync();
        EXPECT_EQ("", pattern_diff(local.at(), 4096, 1));
        EXPECT_EQ("", pattern_diff(target.at(), 4096, 2));
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, RmaEmpty,
        testing::Values(Topology::TwoProcesses, Topology::Loopback),
        [](const testing::TestParamInfo<Topology> &info) {
            return name_of(info.param);
        });

TEST(RmaCompletion, OneForMany)
{
    run_ranks([](Rank &rank) {
        const int count = 20;
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, count * 100);
        UctMem target(node.domain, MemKind::Heap, count * 100);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        Comp comp(count + 1);

        node.iface.require(UCT_IFACE_FLAG_PUT_ZCOPY, "PUT_ZCOPY");
        for (int i = 0; rank.initiator() && (i < count); ++i) {
            pattern_fill(local.at(i * 100), 100, i);
            ssize_t ret = node.post("room", [&]() {
                return rma_post(node, RmaKind::PutZcopy, local, i * 100, 100,
                                remote.address + i * 100, remote.rkey(),
                                &comp);
            });
            if (ret != UCS_INPROGRESS) {
                check((ucs_status_t)ret, "put_zcopy");
                --comp.count;
            }
        }
        if (rank.initiator()) {
            node.until("all puts", [&]() { return comp.count == 1; });
            EXPECT_EQ(0u, comp.calls);
            EXPECT_EQ(UCS_OK, comp.status);
        }
        node.sync();

        for (int i = 0; rank.target() && (i < count); ++i) {
            EXPECT_EQ("", pattern_diff(target.at(i * 100), 100, i));
        }
        node.sync();
    });
}

// What a flush has completed is in the target's memory.
TEST(RmaCompletion, FlushesOfEveryKind)
{
    run_ranks([](Rank &rank) {
        const size_t count = 16, largest = 200000;
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, count * largest);
        UctMem target(node.domain, MemKind::Heap, count * largest);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        node.iface.require(UCT_IFACE_FLAG_PUT_ZCOPY, "PUT_ZCOPY");
        for (uint64_t round = 0; round < 30; ++round) {
            size_t length = (round % 3 == 0) ? 100 : largest - round;
            Comp comp(count + 1), flushed;

            for (size_t i = 0; rank.initiator() && (i < count); ++i) {
                pattern_fill(local.at(i * largest), length, round + i);
                ssize_t ret = node.post("room", [&]() {
                    return rma_post(node, RmaKind::PutZcopy, local,
                                    i * largest, length,
                                    remote.address + i * largest,
                                    remote.rkey(), &comp);
                });
                if (ret != UCS_INPROGRESS) {
                    check((ucs_status_t)ret, "put_zcopy");
                    --comp.count;
                }
            }
            if (rank.initiator() && (round % 2)) {
                node.complete("flush with completion", flushed, [&]() {
                    return uct_ep_flush(node.ep->ep, 0, &flushed);
                });
            } else if (rank.initiator()) {
                node.until("flush of the iface", [&]() {
                    return uct_iface_flush(node.iface.iface, 0, nullptr) ==
                           UCS_OK;
                });
            }
            node.sync();
            for (size_t i = 0; rank.target() && (i < count); ++i) {
                ASSERT_EQ("", pattern_diff(target.at(i * largest), length,
                                           round + i));
            }
            node.until("completions", [&]() {
                return !rank.initiator() || (comp.count == 1);
            });
            node.sync();
        }
    });
}

// With put, fence, message: when the message is there, so is the put.
struct FenceCheck {
    uint8_t     *base;
    size_t      length;
    uint64_t    received = 0;
    std::string error;

    static constexpr uint64_t SLOTS = 16;

    static ucs_status_t handler(void *arg, void *data, size_t, unsigned)
    {
        auto *self  = static_cast<FenceCheck*>(arg);
        auto number = *static_cast<uint64_t*>(data);

        std::string diff = pattern_diff(
                self->base + (number % SLOTS) * self->length, self->length,
                number);
        if (self->error.empty() && !diff.empty()) {
            self->error = "put " + std::to_string(number) + ": " + diff;
        }
        ++self->received;
        return UCS_OK;
    }
};

class Fence : public testing::TestWithParam<RmaParam> {
};

static void fence_round(Node &node, RmaKind kind, const UctMem &local,
                        const UctRemote &remote, size_t length,
                        uint64_t number, Comp &comp)
{
    size_t offset = (number % FenceCheck::SLOTS) * length;

    pattern_fill(local.at(offset), length, number);
    ++comp.count;
    ssize_t ret = node.post("room for a put", [&]() {
        return rma_post(node, kind, local, offset, length,
                        remote.address + offset, remote.rkey(), &comp);
    });
    if (ret != UCS_INPROGRESS) {
        --comp.count;
        if (ret < 0) {
            check((ucs_status_t)ret, "put");
        }
    }

    if (number % 2) {
        check(uct_ep_fence(node.ep->ep, 0), "uct_ep_fence");
    } else {
        check(uct_iface_fence(node.iface.iface, 0), "uct_iface_fence");
    }
    ret = node.post("room for a message", [&]() {
        return uct_ep_am_short(node.ep->ep, 3, number, nullptr, 0);
    });
    check((ucs_status_t)ret, "am_short");
}

TEST_P(Fence, PutIsThereWhenTheMessageComes)
{
    RmaKind kind    = std::get<0>(GetParam());
    MemKind mem_kind = std::get<1>(GetParam());

    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        Node node(rank);
        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");

        for (size_t wanted : {8, 100, 5000, 70000, 3000000}) {
            size_t length = rma_limit(node.iface, kind, wanted);
            UctMem local(node.domain, MemKind::Local,
                         FenceCheck::SLOTS * length);
            UctMem target(node.domain, mem_kind, FenceCheck::SLOTS * length);
            UctRemote remote(node.domain,
                             rank.oob.exchange(target.describe()));
            FenceCheck fence{target.at(), length, 0, ""};
            uint64_t rounds = (length > 100000) ? 2 : 20;
            Comp comp(1);

            node.iface.on_am(3, FenceCheck::handler, &fence);
            node.sync();
            for (uint64_t i = 0; i < rounds * FenceCheck::SLOTS; ++i) {
                if (rank.initiator()) {
                    fence_round(node, kind, local, remote, length, i, comp);
                }
                if ((i % FenceCheck::SLOTS) != FenceCheck::SLOTS - 1) {
                    continue;
                }
                // The slots are used again only when all were looked at
                node.until("fenced messages", [&]() {
                    return (!rank.target() || (fence.received == i + 1)) &&
                           (comp.count == 1);
                });
                node.sync();
            }
            EXPECT_EQ("", fence.error);
            node.flush();
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Fence,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy),
                         testing::Values(MemKind::Heap, MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

} // namespace
