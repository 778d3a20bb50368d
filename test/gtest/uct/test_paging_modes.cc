// SPDX-License-Identifier: BSD-3-Clause
// The core of it under every setting: which way a fault takes, and that the
// data is right whichever.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

// What transfers of 700 bytes and of many pages must count, and must not.
struct Setting {
    const char *name;
    Settings   settings;
    std::vector<uint64_t C::*> small_counts, small_never;
    std::vector<uint64_t C::*> large_counts, large_never;
    size_t     shared = SHARED; // from there on nobody need ask: no large_counts
    // A get looks at the target's entries first, and tries nothing
    std::vector<uint64_t C::*> large_put_counts = {};
    Settings   ports = {};
    // Of puts alone
    std::vector<uint64_t C::*> small_put_counts = {};
};

const std::vector<Setting> SETTINGS = {
    {"Default", {},
     {&C::remote_faults, &C::inlines}, {&C::reverses, &C::retries},
     {&C::remote_faults, &C::reverses}, {&C::retries}},
    {"Retry", {{"FAULT_MODE", "retry"}},
     {&C::remote_faults, &C::retries}, {&C::reverses, &C::inlines},
     {&C::remote_faults, &C::retries}, {&C::reverses}},
    {"NoInline", {{"INLINE", "0"}},
     {&C::reverses}, {&C::inlines, &C::retries},
     {&C::reverses}, {&C::inlines}},
    {"LargeInline", {{"INLINE", "16k"}},
     {&C::inlines}, {&C::reverses},
     {&C::reverses}, {}},
    {"Entries", {{"WRITE_CHECK", "entries"}},
     {&C::inlines}, {}, {&C::reverses}, {}},
    {"Readback", {{"WRITE_CHECK", "readback"}},
     {&C::inlines}, {}, {&C::reverses}, {}},
    {"EntriesRetry", {{"WRITE_CHECK", "entries"}, {"FAULT_MODE", "retry"}},
     {&C::retries}, {}, {&C::retries}, {}},
    {"ReadbackRetry", {{"WRITE_CHECK", "readback"}, {"FAULT_MODE", "retry"}},
     {&C::retries}, {}, {&C::retries}, {}},
    {"Strict", {{"ORDER", "strict"}}, {&C::inlines}, {}, {&C::reverses}, {}},
    {"Relaxed", {{"ORDER", "relaxed"}}, {&C::inlines}, {}, {&C::reverses}, {}},
    {"NoService", {{"SERVICE", "off"}},
     {&C::inlines}, {&C::rings}, {&C::reverses}, {&C::rings}},
    {"Event", {{"SERVICE", "event"}}, {&C::inlines}, {}, {&C::reverses}, {}},
    {"Poll", {{"SERVICE", "poll"}}, {&C::inlines}, {}, {&C::reverses}, {}},
    {"PageCache", {{"SOFT_TLB", "page"}},
     {&C::inlines, &C::tlb_misses}, {},
     {&C::reverses}, {}, SHARED, {&C::tlb_misses, &C::tlb_hits}},
    {"RangeCache", {{"SOFT_TLB", "range"}},
     {&C::inlines, &C::tlb_hits}, {},
     {&C::reverses}, {}, SHARED, {&C::tlb_hits}},
    // What is small goes by the target's CPU, in the time that it takes
    {"PageCacheTimes",
     {{"SOFT_TLB", "page"}, {"SOFT_TLB_WIRE", "3us"}, {"SOFT_TLB_MISS", "2us"},
      {"SOFT_TLB_GAP", "1us"}},
     {&C::inlines, &C::tlb_misses}, {},
     {&C::reverses}, {}, SHARED, {&C::tlb_misses, &C::tlb_hits}},
    {"PageCacheUnloads",
     {{"SOFT_TLB", "page"}, {"SOFT_TLB_WIRE", "3us"}, {"SOFT_TLB_MISS", "2us"}},
     {}, {},
     {&C::reverses}, {}, SHARED, {&C::tlb_misses, &C::tlb_hits},
     {{"UNLOAD", "always"}, {"UNLOAD_MAX", "1k"}}, {&C::unloaded}},
    {"PageCacheEntriesRetry",
     {{"SOFT_TLB", "page"}, {"WRITE_CHECK", "entries"},
      {"FAULT_MODE", "retry"}},
     {&C::retries}, {}, {&C::retries}, {}},
    {"NotShared", {{"SHARE_MIN", "inf"}},
     {&C::inlines}, {}, {&C::reverses}, {}, SIZE_MAX},
    {"SmallShares", {{"SHARE_MIN", "4k"}, {"SHARE_CHUNK", "4k"}},
     {&C::inlines}, {}, {&C::reverses}, {}, 4096},
    {"NotLent", {{"LEND", "n"}},
     {&C::inlines}, {&C::lent}, {&C::reverses}, {&C::lent, &C::lent_left}},
    // Rings: the target's CPU copies, and nothing is ever absent for it
    {"Rings", {{"SINGLE_COPY", "off"}},
     {}, {&C::remote_faults}, {}, {&C::remote_faults}},
};

// RNICs take these, say so if they would be wanted, and do as they always do.
void honoured_only(const Setting &setting)
{
    nprdma_only();
    for (const auto &each : setting.settings) {
        for (const char *name : {"FAULT_MODE", "WRITE_CHECK", "INLINE",
                                 "SOFT_TLB", "SHARE_MIN", "SHARE_CHUNK",
                                 "SINGLE_COPY", "LEND"}) {
            if (each.first == name) {
                soft_only(each.first + " has no effect");
            }
        }
    }
}

using ModeParam = std::tuple<Setting, RmaKind, Topology>;

class PagingMode : public testing::TestWithParam<ModeParam> {
protected:
    void expect_counts(const Growth &growth,
                       const std::vector<uint64_t C::*> &counts,
                       const std::vector<uint64_t C::*> &never, size_t length)
    {
        for (uint64_t C::*counter : counts) {
            EXPECT_GT(growth.of(counter), 0u) << name(counter) << length;
        }
        for (uint64_t C::*counter : never) {
            EXPECT_EQ(growth.of(counter), 0u) << name(counter) << length;
        }
    }

    // A large get into memory that is absent as well is tried again, whatever the
    // mode: both sides bring in theirs at the same time.
    void expect_way(const Growth &growth, const Setting &setting, size_t used,
                    bool put, bool is_ours_there)
    {
        bool must_ask = (used >= 65000) && (used < setting.shared) &&
                        !setting.large_counts.empty();

        if (used == 700) {
            expect_counts(growth, setting.small_counts, setting.small_never,
                          used);
            if (put) {
                expect_counts(growth, setting.small_put_counts, {}, used);
            }
        } else if (!put && !is_ours_there) {
            if (must_ask) {
                expect_counts(growth, {&C::retries}, {}, used);
            }
        } else if (used >= 65000) {
            expect_counts(growth, {}, setting.large_never, used);
            if (must_ask) {
                expect_counts(growth, setting.large_counts, {}, used);
            }
            if (must_ask && put) {
                expect_counts(growth, setting.large_put_counts, {}, used);
            }
        }
    }

    static std::string name(uint64_t C::*counter)
    {
        C counters = {};

        return "counter " + std::to_string(&(counters.*counter) -
                                           &counters.reads) + ", bytes ";
    }
};

TEST_P(PagingMode, IsRight)
{
    const Setting setting = std::get<0>(GetParam());
    RmaKind kind          = std::get<1>(GetParam());

    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        honoured_only(setting);
        Node node(rank, setting.ports, setting.settings);
        const size_t space = 3 << 20;
        UctMem local(node.domain, MemKind::Mmap, space);
        UctMem target(node.domain, MemKind::Mmap, space);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        bool put      = rma_is_put(kind);
        uint64_t seed = 0;

        meet(node, remote);
        for (size_t length : {1, 8, 700, 4096, 8000, 65000, 700000, 2500000}) {
            size_t used = rma_limit(node.iface, kind, length);
            for (size_t offset : {0, 4095, 77}) {
                if ((length > 100000) && (offset != 77)) {
                    continue; // slow to check
                }
                for (bool is_ours_there : {false, true}) {
                    Guarded mine(local.at(PAGE + offset), used);
                    Guarded theirs(target.at(PAGE + 2 * offset), used);
                    Growth growth;

                    ++seed;
                    mine.fill(put ? seed : 0);
                    theirs.fill(put ? 0 : seed);
                    if (!is_ours_there) {
                        turn_absent(local.at(), space);
                    }
                    turn_absent(target.at(), space);
                    node.sync();
                    if (rank.initiator()) {
                        growth.reset();
                        rma_finish(node, kind, mine.data(), used,
                                   remote.address + PAGE + 2 * offset +
                                   Guarded::GUARD, remote.rkey());
                        if (rma_is_zcopy(kind) && counts_faults()) {
                            expect_way(growth, setting, used, put,
                                       is_ours_there);
                        }
                    }
                    node.sync();
                    if (rank.target()) {
                        expect_none("target", theirs.diff(seed));
                    }
                    if (rank.initiator()) {
                        expect_none("initiator", mine.diff(seed));
                    }
                }
            }
        }
    });
}

// Pages go and come while transfers are under way: a window of them, and the
// memory is looked at when all are done.
TEST_P(PagingMode, WhilePagesGo)
{
    const Setting setting = std::get<0>(GetParam());
    RmaKind kind          = std::get<1>(GetParam());

    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        honoured_only(setting);
        Node node(rank, setting.ports, setting.settings);
        const size_t slots = 64, slot = 3 * PAGE;
        // what is unloaded is small
        const size_t length = rma_limit(node.iface, kind,
                                        setting.ports.empty() ?
                                        2 * PAGE + 500 : 1000);
        UctMem local(node.domain, MemKind::Mmap, slots * slot);
        UctMem target(node.domain, MemKind::Mmap, slots * slot);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        bool put = rma_is_put(kind);

        for (uint64_t round = 1; round <= 5; ++round) {
            std::vector<Comp> comps(slots);

            pattern_fill(local.at(), slots * slot, put ? round : 0);
            pattern_fill(target.at(), slots * slot, put ? 0 : round);
            node.sync();
            for (size_t i = 0; i < slots; ++i) {
                size_t at = i * slot + 100;
                if (rank.initiator()) {
                    ssize_t ret = node.post("room", [&]() {
                        return rma_post(node, kind, local.at(at),
                                        UCT_MEM_HANDLE_NULL, length,
                                        remote.address + at, remote.rkey(),
                                        &comps[i]);
                    });
                    ASSERT_TRUE((ret >= 0) || (ret == UCS_INPROGRESS)) << ret;
                    if (ret != UCS_INPROGRESS) {
                        comps[i].count = 0;
                    }
                }
                turn_absent(local.at(((i * 7) % slots) * slot), slot);
                turn_absent(target.at(((i * 5) % slots) * slot), slot);
                node.domain.progress();
            }
            if (rank.initiator()) {
                node.flush();
                node.until("all completions", [&]() {
                    for (const Comp &comp : comps) {
                        if (comp.count > 0) {
                            return false;
                        }
                    }
                    return true;
                });
            }
            node.sync();
            for (size_t i = 0; (put ? rank.target() : rank.initiator()) &&
                               (i < slots); ++i) {
                const UctMem &sink = put ? target : local;
                size_t at = i * slot + 100;
                ASSERT_EQ("", pattern_diff(sink.at(at), length, round, at));
                ASSERT_EQ("", pattern_diff(sink.at(at + length),
                                           slot - 100 - length, 0,
                                           at + length));
            }
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagingMode,
        testing::Combine(testing::ValuesIn(SETTINGS),
                         testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetBcopy,
                                         RmaKind::GetZcopy),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<ModeParam> &info) {
            return std::string(std::get<0>(info.param).name) +
                   name_of(std::get<1>(info.param)) +
                   name_of(std::get<2>(info.param));
        });

} // namespace
