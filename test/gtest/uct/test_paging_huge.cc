// SPDX-License-Identifier: BSD-3-Clause
// Huge pages, transparent ones and those of hugetlbfs.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t HUGE_PAGE   = 2 << 20;
constexpr size_t LENGTH      = 2 * HUGE_PAGE;
constexpr uint64_t PLACE     = UINT64_C(0x200000000000);
const char *const OVERCOMMIT = "/proc/sys/vm/nr_overcommit_hugepages";

enum class Huge { Transparent, Hugetlb };

// Lets the kernel make huge pages on demand, if we may.
class HugePool {
public:
    HugePool()
    {
        std::ifstream(OVERCOMMIT) >> m_before;
        std::ofstream(OVERCOMMIT) << m_before + 2 * LENGTH / HUGE_PAGE;
    }
    ~HugePool() { std::ofstream(OVERCOMMIT) << m_before; }

private:
    long m_before = 0;
};

// Kilobytes of the mapping at `area` that are transparent huge pages.
size_t huge_kilobytes(const Area &area)
{
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    uintptr_t begin = 0, end = 0;
    size_t total = 0;

    while (std::getline(maps, line)) {
        size_t number;

        if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
            continue;
        }
        if ((begin <= (uintptr_t)area.at()) && ((uintptr_t)area.at() < end) &&
            (sscanf(line.c_str(), "AnonHugePages: %zu", &number) == 1)) {
            total += number;
        }
    }
    return total;
}

void make_huge(Area &area, Huge huge)
{
    if (huge == Huge::Transparent) {
        if (madvise(area.at(), LENGTH, MADV_HUGEPAGE) != 0) {
            throw Skipped(std::string("MADV_HUGEPAGE: ") + strerror(errno));
        }
        memset(area.at(), 1, LENGTH);
        if (huge_kilobytes(area) == 0) {
            throw Skipped("the kernel makes no transparent huge page");
        }
        return;
    }

    try {
        area.map_again(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    } catch (const Failed &error) {
        throw Skipped(std::string("MAP_HUGETLB: ") + error.what());
    }
}

class HugePages : public testing::TestWithParam<std::tuple<Huge, Topology>> {
};

TEST_P(HugePages, OnEitherSide)
{
    Huge huge = std::get<0>(GetParam());
    HugePool pool;

    run_in(std::get<1>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        Node node(rank);
        Area mine(PLACE, LENGTH);
        Area theirs(PLACE + (UINT64_C(1) << 32), LENGTH);
        // One of them, so that two ranks need no more pages than one
        Area &big = rank.target() ? theirs : mine;
        make_huge(big, huge);
        SharedArea shared(node.domain, theirs);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        const size_t offset = 1001, length = LENGTH - 3000;
        uint64_t seed       = 0;

        meet(node, remote); // else even the last rounds may ask for help
        for (RmaKind kind : {RmaKind::PutZcopy, RmaKind::GetZcopy,
                             RmaKind::PutBcopy, RmaKind::GetBcopy}) {
            size_t used = rma_limit(node.iface, kind, length);
            bool put    = rma_is_put(kind);

            for (int round = 0; round < 3; ++round) {
                ++seed;
                pattern_fill(mine.at(), LENGTH, put ? seed : 0);
                pattern_fill(theirs.at(), LENGTH, put ? 0 : seed);
                if ((round == 1) && (huge == Huge::Transparent)) {
                    // One small page out of the middle: zeros
                    Area &source = put ? mine : theirs;
                    source.advise(HUGE_PAGE / 2, PAGE, MADV_DONTNEED);
                }
                if (round < 2) {
                    turn_absent(mine.at(), LENGTH);
                    turn_absent(theirs.at(), LENGTH);
                }
                node.sync();
                if (rank.initiator()) {
                    Growth growth;
                    rma_finish(node, kind, mine.at(offset), used,
                               remote.address + offset, remote.rkey());
                    bool is_met = growth.of(&C::remote_faults) >
                                  growth.of(&C::false_alarms);
                    bool is_any = (round < 2) && rma_is_zcopy(kind) &&
                                  (used >= SHARED);
                    EXPECT_TRUE(!counts_faults() || is_any || (is_met == (round < 2)))
                            << name_of(kind) << ", round " << round << ": "
                            << growth.of(&C::remote_faults) << " faults, "
                            << growth.of(&C::false_alarms) << " false alarms";
                }
                node.sync();
                if (put ? rank.target() : rank.initiator()) {
                    Area &sink   = put ? theirs : mine;
                    size_t hole  = HUGE_PAGE / 2;
                    bool is_torn = (round == 1) && (used > hole) &&
                                   (huge == Huge::Transparent);
                    size_t first = is_torn ? hole - offset : used;
                    expect_none("before", pattern_diff(sink.at(), offset,
                                                       0));
                    expect_none("data", pattern_diff(sink.at(offset), first,
                                                     seed, offset));
                    if (is_torn) {
                        expect_none("hole", zero_diff(sink.at(hole), PAGE));
                        expect_none("behind the hole", pattern_diff(
                                sink.at(hole + PAGE),
                                offset + used - hole - PAGE, seed,
                                hole + PAGE));
                    }
                    expect_none("after", pattern_diff(
                            sink.at(offset + used), LENGTH - offset - used, 0,
                            offset + used));
                }
                node.sync();
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, HugePages,
        testing::Combine(testing::Values(Huge::Transparent, Huge::Hugetlb),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<HugePages::ParamType> &info) {
            return std::string((std::get<0>(info.param) == Huge::Hugetlb) ?
                               "Hugetlb" : "Transparent") +
                   name_of(std::get<1>(info.param));
        });

} // namespace
