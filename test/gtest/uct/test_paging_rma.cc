// SPDX-License-Identifier: BSD-3-Clause
// Put and get of every kind and size whose pages are absent, on either side.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

using namespace nt;

namespace {

constexpr size_t LARGEST = 5000003;
constexpr size_t HUGE_LENGTH = 64 << 20;

using C = nprdma_counters_t;

enum class Absent { Remote, Local, Both };

std::string name_of_absent(Absent absent)
{
    return (absent == Absent::Remote) ? "Remote" :
           (absent == Absent::Local) ? "Local" : "Both";
}

// Around what changes the way: words, DMA units, what goes inside messages,
// pages, buffered limits, batches, shared copies.
const std::vector<size_t> SIZES = {
    1, 2, 3, 4, 7, 8, 9, 63, 255, 257, 1000, 1024, 1025, 4095, 4096, 4097,
    8191, 8193, 16384, 16385, 65537, 262143, 262144, 300001, 1048577, LARGEST
};

// Offsets (local, remote) of the first byte in its page.
const std::vector<std::pair<size_t, size_t>> OFFSETS = {
    {0, 0}, {1, 0}, {0, 3}, {4095, 4093}, {8, 4090}, {2049, 5}
};

using PagingParam = std::tuple<RmaKind, MemKind, Absent, Topology>;

class Paging : public testing::TestWithParam<PagingParam> {
protected:
    RmaKind kind() const { return std::get<0>(GetParam()); }
    MemKind mem_kind() const { return std::get<1>(GetParam()); }
    Absent absent() const { return std::get<2>(GetParam()); }
    void run(const Body &body) { run_in(std::get<3>(GetParam()), body); }
};

class PagingCase {
public:
    PagingCase(Rank &rank, RmaKind kind, MemKind mem_kind, Absent absent,
               size_t wanted) :
        node(rank), kind(kind), absent(absent),
        largest(rma_limit(node.iface, kind, wanted)),
        local(node.domain, MemKind::Mmap, space()),
        target(node.domain, mem_kind, space()),
        remote(node.domain, rank.oob.exchange(target.describe()))
    {
        // All is there
        EXPECT_EQ(0, nprdma_prefetch(local.at(), space(),
                                     NPRDMA_PREFETCH_WRITE));
        EXPECT_EQ(0, nprdma_prefetch(target.at(), space(),
                                     NPRDMA_PREFETCH_WRITE));
        meet(node, remote);
    }

    size_t space() const { return Guarded::space(largest) + 2 * PAGE; }

    // Where to put a guarded block so that its data begins `offset` bytes into
    // a page.
    static size_t before(size_t offset)
    {
        return PAGE + offset - Guarded::GUARD;
    }

    // One transfer of `length` bytes after pages have gone, and a second one
    // that finds them.
    void transfer(size_t length, size_t local_offset, size_t remote_offset)
    {
        Guarded mine(local.at(before(local_offset)), length);
        Guarded theirs(target.at(before(remote_offset)), length);
        uint64_t address = remote.address + before(remote_offset) +
                           Guarded::GUARD;

        what = std::to_string(length) + " bytes from " +
               std::to_string(local_offset) + " to " +
               std::to_string(remote_offset);
        for (bool is_first : {true, false}) {
            fill(mine, theirs);
            if (is_first) {
                vanish(mine.data(), theirs.data(), length);
            }
            node.sync();
            if (node.rank.initiator()) {
                Growth growth;
                rma_finish(node, kind, mine.data(), length, address,
                           remote.rkey());
                is_first ? expect_faults(growth, length) :
                           expect_no_faults(growth);
            }
            node.sync();
            look(mine, theirs);
        }
    }

    void fill(Guarded &mine, Guarded &theirs)
    {
        ++seed;
        mine.fill(rma_is_put(kind) ? seed : 0);
        theirs.fill(rma_is_put(kind) ? 0 : seed);
    }

    void look(const Guarded &mine, const Guarded &theirs) const
    {
        if (node.rank.target()) {
            expect_none("target, " + what, theirs.diff(seed));
        }
        if (node.rank.initiator()) {
            expect_none("initiator, " + what, mine.diff(seed));
        }
    }

    void vanish(const uint8_t *mine, const uint8_t *theirs, size_t length) const
    {
        if (node.rank.initiator() && (absent != Absent::Remote)) {
            turn_absent(mine, length);
        }
        if (node.rank.target() && (absent != Absent::Local)) {
            turn_absent(theirs, length);
        }
    }

    void expect_faults(const Growth &growth, size_t length) const
    {
        const bool is_cold = !rma_is_put(kind) && (absent != Absent::Remote);

        if (rma_is_zcopy(kind) &&
            (length >= (is_cold ? SHARED_COLD : SHARED))) {
            return;
        }
        if (!counts_faults()) {
            return;
        }
        EXPECT_EQ(absent != Absent::Local, growth.of(&C::remote_faults) >
                                           growth.of(&C::false_alarms)) << what;
        EXPECT_EQ((absent != Absent::Remote) && rma_is_zcopy(kind),
                  growth.of(&C::local_faults) > 0) << what;
    }

    void expect_no_faults(const Growth &growth) const
    {
        if (!counts_faults()) {
            return;
        }
        // By chance, data may look like an absent page
        EXPECT_LE(growth.of(&C::remote_faults), growth.of(&C::false_alarms))
                << "again, " << what;
        EXPECT_EQ(0u, growth.of(&C::local_faults)) << "again, " << what;
    }

    Node        node;
    RmaKind     kind;
    Absent      absent;
    size_t      largest;
    UctMem      local;
    UctMem      target;
    UctRemote   remote;
    uint64_t    seed = 0;
    std::string what;
};

TEST_P(Paging, EverySize)
{
    run([this](Rank &rank) {
        nprdma_only();
        PagingCase paging(rank, kind(), mem_kind(), absent(), LARGEST);
        size_t turn = 0;

        for (size_t length : SIZES) {
            for (size_t i = 0; (length <= paging.largest) &&
                               (i < ((length <= 16385) ? OFFSETS.size() : 1));
                 ++i) {
                const auto &offsets = OFFSETS[turn++ % OFFSETS.size()];
                paging.transfer(length, offsets.first, offsets.second);
            }
        }
    });
}

// Every other page is absent, every third one on the other side.
TEST_P(Paging, Holes)
{
    run([this](Rank &rank) {
        nprdma_only();
        const size_t pages = 60; // not shared
        PagingCase paging(rank, kind(), mem_kind(), absent(), pages * PAGE);
        Guarded mine(paging.local.at(paging.before(77)), paging.largest);
        Guarded theirs(paging.target.at(paging.before(1999)), paging.largest);

        paging.what = "holes";
        for (size_t step : {2, 3, 7}) {
            paging.fill(mine, theirs);
            for (size_t at = 0; at < paging.largest; at += step * PAGE) {
                paging.vanish(mine.data() + at,
                              theirs.data() + (2 * at) % paging.largest, 1);
            }
            paging.node.sync();
            if (rank.initiator()) {
                Growth growth;
                rma_finish(paging.node, paging.kind, mine.data(),
                           paging.largest,
                           paging.remote.address + paging.before(1999) +
                           Guarded::GUARD, paging.remote.rkey());
                paging.expect_faults(growth, paging.largest);
            }
            paging.node.sync();
            paging.look(mine, theirs);
        }
    });
}

// Puts and gets of pages that nobody has touched since they were mapped: a
// source of zeros, and a target for anything.
TEST_P(Paging, NeverTouched)
{
    run([this](Rank &rank) {
        nprdma_only();
        Node node(rank);
        const size_t largest = rma_limit(node.iface, kind(), 1 << 20);
        bool put             = rma_is_put(kind());
        uint64_t seed        = 0;
        // Kept, so that no address comes twice
        std::vector<std::unique_ptr<UctMem>> all;

        for (size_t length : {(size_t)1, (size_t)1000, (size_t)8000, largest}) {
            for (bool from_untouched : {false, true}) {
                all.push_back(std::make_unique<UctMem>(
                        node.domain, MemKind::Mmap, length + PAGE));
                UctMem &local = *all.back();
                all.push_back(std::make_unique<UctMem>(
                        node.domain, mem_kind(), length + PAGE));
                UctMem &target = *all.back();
                UctRemote remote(node.domain,
                                 rank.oob.exchange(target.describe()));
                uint8_t *source = put ? local.at(9) : target.at(2047);
                uint8_t *sink   = put ? target.at(2047) : local.at(9);
                bool has_source = put ? rank.initiator() : rank.target();
                bool has_sink   = put ? rank.target() : rank.initiator();

                ++seed;
                if (has_source && !from_untouched) {
                    pattern_fill(source, length, seed);
                } else if (has_sink && from_untouched) {
                    pattern_fill(sink, length, seed);
                }
                node.sync();
                if (rank.initiator()) {
                    Growth growth;
                    rma_finish(node, kind(), local.at(9), length,
                               remote.address + 2047, remote.rkey());
                    if ((length < SHARED) && counts_faults()) {
                        EXPECT_GT(growth.of(&C::remote_faults), 0u) << length;
                    }
                }
                node.sync();
                if (has_sink) {
                    EXPECT_EQ("", from_untouched ? zero_diff(sink, length) :
                                  pattern_diff(sink, length, seed)) << length;
                }
                node.sync();
            }
        }
    });
}

std::string param_name(const testing::TestParamInfo<PagingParam> &info)
{
    return name_of(std::get<0>(info.param)) + name_of(std::get<1>(info.param)) +
           name_of_absent(std::get<2>(info.param)) +
           name_of(std::get<3>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Paging,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetShort,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Mmap, MemKind::Allocated),
                         testing::Values(Absent::Remote, Absent::Both),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

// Only these reach the caller's memory by themselves
INSTANTIATE_TEST_SUITE_P(
        UctLocal, Paging,
        testing::Combine(testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Mmap, MemKind::Allocated),
                         testing::Values(Absent::Local),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

class PagingHuge : public Paging {
};

TEST_P(PagingHuge, SixtyFourMegabytes)
{
    run([this](Rank &rank) {
        nprdma_only();
        PagingCase paging(rank, kind(), mem_kind(), absent(), HUGE_LENGTH);
        paging.transfer(HUGE_LENGTH - 1, 3, 4095);
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagingHuge,
        testing::Combine(testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
                         testing::Values(MemKind::Mmap),
                         testing::Values(Absent::Both),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        param_name);

// The pages on both sides of a gigabyte border, where one arena ends.
TEST_P(PagingHuge, AcrossArenas)
{
    run([this](Rank &rank) {
        nprdma_only();
        const uint64_t border = UINT64_C(0x200040000000);
        const size_t length   = 40 * PAGE;
        Node node(rank);
        Area mine(border + (UINT64_C(1) << 32) - length / 2, length);
        Area theirs(border - length / 2, length);
        SharedArea shared(node.domain, theirs);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        uint64_t seed = 0;

        for (RmaKind each : {RmaKind::PutShort, RmaKind::PutBcopy,
                             RmaKind::GetBcopy, kind()}) {
            bool put    = rma_is_put(each);
            size_t used = rma_limit(node.iface, each, length - 300);
            size_t at   = (length - used) / 2 + 77;

            ++seed;
            pattern_fill(mine.at(at), used, put ? seed : 0);
            pattern_fill(theirs.at(at), used, put ? 0 : seed);
            turn_absent(mine.at(), length);
            turn_absent(theirs.at(), length);
            node.sync();
            if (rank.initiator()) {
                rma_finish(node, each, mine.at(at), used, remote.address + at,
                           remote.rkey());
            }
            node.sync();
            if (put ? rank.target() : rank.initiator()) {
                EXPECT_EQ("", pattern_diff((put ? theirs : mine).at(at), used,
                                           seed)) << name_of(each);
            }
            node.sync();
        }
    });
}

// Data that is just what an absent page would give (mem/signature.h).
class Signature : public testing::TestWithParam<
                          std::tuple<RmaKind, const char*, Topology>> {
};

TEST_P(Signature, IsGoodData)
{
    RmaKind kind      = std::get<0>(GetParam());
    const char *check = std::get<1>(GetParam());

    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        if (check == std::string("readback")) {
            soft_only("WRITE_CHECK=readback has no effect");
        }
        const uint32_t signature = 0xd5ea5e1f;
        // Through the rings nothing is looked at
        Node node(rank, {},
                  is_soft() ? Settings{{"WRITE_CHECK", check}, {"LEND", "n"}} :
                              Settings{{"WRITE_CHECK", check}});
        const size_t largest = rma_limit(node.iface, kind, 300000);
        UctMem local(node.domain, MemKind::Mmap, largest + 2 * PAGE);
        UctMem target(node.domain, MemKind::Mmap, largest + 2 * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        bool put           = rma_is_put(kind);
        const UctMem &from = put ? local : target, &to = put ? target : local;
        uint64_t alarms    = 0;

        for (size_t length : {1, 2, 3, 4, 5, 8, 255, 256, 1000, 4096, 300000}) {
            for (size_t offset : {0, 1, 2, 3, 4094}) {
                size_t used = std::min(length, largest);
                // A byte's place at the remote side decides what it is
                for (size_t i = 0; i < used; ++i) {
                    *from.at(offset + i) = signature >>
                                           (8 * ((offset + i) % 4));
                }
                memset(to.at(), 0x33, largest + 2 * PAGE);
                turn_absent((length % 2) ? from.at() : to.at(), 2 * PAGE);
                node.sync();
                if (rank.initiator()) {
                    Growth growth;
                    for (int i = 0; i < 2; ++i) {
                        rma_finish(node, kind, local.at(offset), used,
                                   remote.address + offset, remote.rkey());
                    }
                    alarms += growth.of(&C::false_alarms);
                }
                node.sync();
                if (put ? rank.target() : rank.initiator()) {
                    for (size_t i = 0; i < used; ++i) {
                        ASSERT_EQ((uint8_t)(signature >>
                                            (8 * ((offset + i) % 4))),
                                  *to.at(offset + i)) << used << ", " << i;
                    }
                    ASSERT_EQ(0x33, *to.at(offset + used));
                }
                node.sync();
            }
        }
        if (counts_faults()) {
            EXPECT_EQ(rank.initiator() && !put, alarms > 0);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Signature,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutZcopy,
                                         RmaKind::GetBcopy, RmaKind::GetZcopy),
                         testing::Values("auto", "readback"),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<Signature::ParamType> &info) {
            return name_of(std::get<0>(info.param)) +
                   ((std::get<1>(info.param)[0] == 'a') ? "Auto" : "Readback") +
                   name_of(std::get<2>(info.param));
        });

} // namespace
