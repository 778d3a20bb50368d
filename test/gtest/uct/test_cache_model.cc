// SPDX-License-Identifier: BSD-3-Clause
// soft0 with an RNIC's translation cache modelled: what transfers take, that
// nobody spins for it, and small puts that go by the target's CPU.
#include "paging_face.h"
#include "rma_op.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

using namespace nt;

namespace {

using C     = nprdma_counters_t;
using Clock = std::chrono::steady_clock;

const size_t LENGTH = 64;

// So long that this host's own time does not matter
const std::chrono::milliseconds WIRE{8}, MISS{12};

// A target that is not in progress, which its threads stand in for
const std::chrono::seconds COMPUTES{2};

const Settings MODEL = {{"SOFT_TLB", "page"}, {"SOFT_TLB_WIRE", "8ms"},
                        {"SOFT_TLB_MISS", "12ms"}};

class CacheModel : public testing::TestWithParam<RmaKind> {};
class CacheModelMany : public testing::TestWithParam<RmaKind> {};

std::string kind_name(const testing::TestParamInfo<RmaKind> &info)
{
    return name_of(info.param);
}

// One transfer to the page, from its post until it is there for good
Clock::duration transfer(Node &node, RmaKind kind, UctMem &local,
                         const UctRemote &remote, size_t page)
{
    const auto begin = Clock::now();

    rma_transfer(node, kind, local, 0, LENGTH, remote.address + page * PAGE,
                 remote.rkey());
    node.flush();
    return Clock::now() - begin;
}

TEST_P(CacheModel, TakesItsTime)
{
    const RmaKind kind = GetParam();

    run_in(Topology::TwoProcesses, [=](Rank &rank) {
        nprdma_only();
        soft_only("it is soft0's model");
        Node node(rank, {}, MODEL);
        UctMem local(node.domain, MemKind::Mmap, PAGE);
        UctMem target(node.domain, MemKind::Mmap, 8 * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        pattern_fill(target.at(), 8 * PAGE, 1);
        meet(node, remote);
        if (rank.initiator()) {
            for (size_t page = 0; page < 8; ++page) { // all are there then
                transfer(node, RmaKind::PutShort, local, remote, page);
            }
            for (size_t page = 0; page < 8; ++page) {
                EXPECT_GE(transfer(node, kind, local, remote, page), WIRE);
            }
        }
        node.sync();
        // the target's pages go from its device, and come again
        if (rank.target()) {
            turn_absent(target.at(), 8 * PAGE);
            pattern_fill(target.at(), 8 * PAGE, 2);
        }
        node.sync();
        if (rank.initiator()) {
            // not there: a try, and a message
            EXPECT_GE(transfer(node, kind, local, remote, 0), 2 * WIRE);
            // there again, which the cache does not know yet; a short get has
            // been tried since then
            Growth growth;
            if (kind != RmaKind::GetShort) {
                EXPECT_GE(transfer(node, kind, local, remote, 0), WIRE + MISS);
                EXPECT_EQ(growth.of(&C::tlb_misses), 1u);
            }
            growth.reset();
            EXPECT_GE(transfer(node, kind, local, remote, 0), WIRE);
            EXPECT_EQ(growth.of(&C::tlb_misses), 0u);
            EXPECT_GT(growth.of(&C::tlb_hits), 0u);
        }
        node.sync();
    });
}

// Their time is waited for together, and by nobody who posts
TEST_P(CacheModelMany, NobodySpins)
{
    const RmaKind kind = GetParam();

    run_in(Topology::TwoProcesses, [=](Rank &rank) {
        nprdma_only();
        soft_only("it is soft0's model");
        Node node(rank, {}, MODEL);
        UctMem local(node.domain, MemKind::Mmap, PAGE);
        UctMem target(node.domain, MemKind::Mmap, 16 * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        meet(node, remote);
        if (rank.initiator()) {
            for (size_t page = 0; page < 16; ++page) {
                transfer(node, RmaKind::PutShort, local, remote, page);
            }
            std::vector<Comp> comps(16);
            const auto begin = Clock::now();
            for (size_t page = 0; page < 16; ++page) {
                node.post("transfer", [&]() {
                    return rma_post(node, kind, local, 0, LENGTH,
                                    remote.address + page * PAGE,
                                    remote.rkey(), &comps[page]);
                });
            }
            const auto posted = Clock::now();
            node.flush();
            const auto flushed = Clock::now();
            EXPECT_GE(flushed - begin, WIRE);
            EXPECT_LT(posted - begin, 16 * WIRE) << "each waits when posted";
            EXPECT_LT(flushed - begin, 16 * WIRE) << "one after the other";
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, CacheModel,
        testing::Values(RmaKind::PutShort, RmaKind::PutBcopy, RmaKind::PutZcopy,
                        RmaKind::GetShort, RmaKind::GetBcopy,
                        RmaKind::GetZcopy), kind_name);

// A short get returns with its data
INSTANTIATE_TEST_SUITE_P(
        Uct, CacheModelMany,
        testing::Values(RmaKind::PutShort, RmaKind::PutBcopy, RmaKind::PutZcopy,
                        RmaKind::GetBcopy, RmaKind::GetZcopy), kind_name);

class CacheUnloaded : public testing::TestWithParam<RmaKind> {};

Settings unloading()
{
    return {{"UNLOAD", "always"}, {"UNLOAD_MAX", "1k"}};
}

TEST_P(CacheUnloaded, WhileTheTargetComputes)
{
    const RmaKind kind = GetParam();

    run_in(Topology::TwoProcesses, [=](Rank &rank) {
        nprdma_only();
        soft_only("it is soft0's model");
        Node node(rank, unloading(), MODEL);
        UctMem local(node.domain, MemKind::Mmap, PAGE);
        UctMem target(node.domain, MemKind::Mmap, 4 * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        pattern_fill(local.at(), PAGE, 3);
        pattern_fill(target.at(), 4 * PAGE, 0);
        meet(node, remote);
        if (rank.initiator()) {
            Growth growth;
            growth.reset();
            const auto begin = Clock::now();
            for (size_t page = 0; page < 4; ++page) {
                EXPECT_GE(transfer(node, kind, local, remote, page), WIRE);
            }
            EXPECT_LT(Clock::now() - begin, COMPUTES);
            EXPECT_EQ(growth.of(&C::unloaded), 4u);
            EXPECT_EQ(growth.of(&C::offloaded), 0u);
        }
        if (rank.target()) {
            std::this_thread::sleep_for(COMPUTES);
            for (size_t page = 0; page < 4; ++page) {
                EXPECT_EQ("", pattern_diff(target.at(page * PAGE), LENGTH, 3));
            }
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, CacheUnloaded,
        testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                        RmaKind::PutZcopy), kind_name);

// Its setting differs: no cache, no times, an error line, and right bytes
TEST(CacheOfOneSide, IsNotModelled)
{
    run_in(Topology::TwoProcesses, [=](Rank &rank) {
        nprdma_only();
        soft_only("it is soft0's model");
        Node node(rank, {}, rank.initiator() ? MODEL : Settings{});
        UctMem local(node.domain, MemKind::Mmap, PAGE);
        UctMem target(node.domain, MemKind::Mmap, PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        pattern_fill(local.at(), PAGE, 3);
        meet(node, remote);
        if (rank.initiator()) {
            Growth growth;
            transfer(node, RmaKind::PutZcopy, local, remote, 0);
            transfer(node, RmaKind::PutZcopy, local, remote, 0);
            EXPECT_EQ(growth.of(&C::tlb_misses) + growth.of(&C::tlb_hits), 0u);
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ("", pattern_diff(target.at(), LENGTH, 3));
        }
        node.sync();
    });
}

// One target, its cache and its CPU, and many that put to it
class CacheShared :
    public testing::TestWithParam<std::tuple<size_t, std::string>> {
protected:
    static constexpr size_t PAGES = 64;

    // A way of its own to the target's port
    struct Initiator {
        Initiator(UctDomain &domain, const Settings &settings,
                  const std::string &target) :
            iface(domain, settings), ep(iface, target)
        {
        }

        UctIface iface;
        UctEp    ep;
    };

    static size_t place(size_t page, size_t initiator)
    {
        return page * PAGE + (initiator % 64) * 64;
    }

    // To each page, and wait for all of it
    static void put(Node &node, Initiator &from, const UctRemote &remote,
                    size_t number, size_t pages = PAGES)
    {
        uint8_t data[32];
        Comp flushed;

        for (size_t page = 0; page < pages; ++page) {
            pattern_fill(data, sizeof(data), 1 + number);
            node.post("put", [&]() {
                return uct_ep_put_short(from.ep.ep, data, sizeof(data),
                                        remote.address + place(page, number),
                                        remote.rkey());
            });
        }
        node.complete("flush", flushed, [&]() {
            return uct_ep_flush(from.ep.ep, UCT_FLUSH_FLAG_LOCAL, &flushed);
        });
    }
};

TEST_P(CacheShared, ByAllInitiators)
{
    const size_t count       = std::get<0>(GetParam());
    const std::string policy = std::get<1>(GetParam());

    run_in(Topology::TwoProcesses, [=](Rank &rank) {
        nprdma_only();
        soft_only("it is soft0's model");
        const Settings ports = {{"UNLOAD", policy}};
        Node node(rank, ports, {{"SOFT_TLB", "page"},
                                {"SOFT_TLB_WIRE", "20us"},
                                {"SOFT_TLB_MISS", "20us"}});
        UctMem target(node.domain, MemKind::Mmap, PAGES * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        std::string address = rank.oob.exchange(node.iface.address);
        std::vector<std::unique_ptr<Initiator>> initiators;

        for (size_t i = 0; rank.initiator() && (i <= count); ++i) {
            initiators.push_back(std::make_unique<Initiator>(
                    node.domain, ports, address));
        }
        if (rank.initiator()) {
            // all know the target, which puts before that show nothing of
            for (size_t i = 0; i <= count; ++i) {
                Growth growth;
                while (growth.of(&C::tlb_hits) + growth.of(&C::tlb_misses) +
                       growth.of(&C::unloaded) == 0) {
                    put(node, *initiators[i], remote, i % count, 1);
                }
            }
            // pages come in, then the cache is filled
            put(node, *initiators[count], remote, 0);
            put(node, *initiators[count], remote, 0);
            Growth growth;
            for (size_t i = 0; i < count; ++i) {
                put(node, *initiators[i], remote, i);
            }
            if (policy == "off") {
                EXPECT_EQ(growth.of(&C::tlb_misses), 0u);
                EXPECT_EQ(growth.of(&C::tlb_hits),
                          count * PAGES);
            } else if (policy == "always") {
                EXPECT_EQ(growth.of(&C::unloaded),
                          count * PAGES);
            } else {
                EXPECT_EQ(growth.of(&C::unloaded) +
                          growth.of(&C::offloaded),
                          count * PAGES);
            }
        }
        node.sync();
        for (size_t i = 0; rank.target() && (i < count); ++i) {
            for (size_t page = 0; page < PAGES; ++page) {
                ASSERT_EQ("", pattern_diff(target.at(place(page, i)), 32,
                                           1 + i));
            }
        }
        node.sync();
    });
}

std::string
shared_name(const testing::TestParamInfo<CacheShared::ParamType> &info)
{
    return std::to_string(std::get<0>(info.param)) + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(
        Uct, CacheShared,
        testing::Combine(testing::Values(1, 8, 64),
                         testing::Values("off", "always", "auto")),
        shared_name);

} // namespace
