// SPDX-License-Identifier: BSD-3-Clause
// Programs that swap by themselves: what they have put away is found by peers
// only if it is brought in by them.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t PAGES = 64;

// A storage engine in small: pages that are put away are in its store, and
// their frames hold nothing of them.
class Store {
public:
    explicit Store(const Area &area) :
        m_area(area), m_bytes(area.length()), m_is_away(area.length() / PAGE)
    {
        nprdma_swapper_t swapper = {bring_in, this};
        EXPECT_EQ(0, nprdma_register_swapper(area.at(), area.length(),
                                             &swapper));
    }

    ~Store()
    {
        EXPECT_EQ(0, nprdma_unregister_swapper(m_area.at(), m_area.length()));
    }

    Store(const Store&) = delete;

    void put_away(size_t page)
    {
        uint8_t *frame = m_area.at(page * PAGE);
        std::lock_guard<std::mutex> lock(m_lock);

        if (!m_is_away[page]) {
            turn_absent(frame, PAGE);
            memcpy(&m_bytes[page * PAGE], frame, PAGE);
            // A frame that somebody reads although it is away is found out
            memset(frame, 0xee, PAGE);
            m_is_away[page] = true;
        }
    }

    void put_all_away()
    {
        for (size_t page = 0; page < m_is_away.size(); ++page) {
            put_away(page);
        }
    }

    void bring_all_in()
    {
        bring_in(this, m_area.at(), m_area.length(), 1);
    }

    unsigned asked() const { return m_asked; }
    unsigned asked_to_write() const { return m_asked_to_write; }

private:
    static int bring_in(void *arg, void *va, size_t length, int write)
    {
        auto *self   = static_cast<Store*>(arg);
        size_t first = ((uint8_t*)va - self->m_area.at()) / PAGE;
        std::lock_guard<std::mutex> lock(self->m_lock);

        // Nothing is asked for that is not ours
        if (((uintptr_t)va % PAGE) || (length % PAGE) || (length == 0) ||
            (va < self->m_area.at()) ||
            (first + length / PAGE > self->m_is_away.size())) {
            return -1;
        }
        ++self->m_asked;
        self->m_asked_to_write += (write != 0);
        for (size_t page = first; page < first + length / PAGE; ++page) {
            if (self->m_is_away[page]) {
                memcpy(self->m_area.at(page * PAGE),
                       &self->m_bytes[page * PAGE], PAGE);
                self->m_is_away[page] = false;
            }
        }
        return 0;
    }

    const Area            &m_area;
    std::vector<uint8_t>  m_bytes;
    std::vector<bool>     m_is_away;
    std::mutex            m_lock;
    std::atomic<unsigned> m_asked{0};
    std::atomic<unsigned> m_asked_to_write{0};
};

uint32_t random_below(uint64_t &state, uint32_t limit)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % limit;
}

using StoreParam = std::tuple<RmaKind, Topology>;

class Stored : public testing::TestWithParam<StoreParam> {
};

// Both sides swap; everything is away before each transfer.
TEST_P(Stored, AllIsAway)
{
    RmaKind kind = std::get<0>(GetParam());

    run_in(std::get<1>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        Node node(rank);
        Area mine(PAGES * PAGE), theirs(PAGES * PAGE);
        Store my_store(mine), their_store(theirs);
        SharedArea shared(node.domain, theirs);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        bool put      = rma_is_put(kind);
        uint64_t seed = 0;

        for (size_t length : {1, 8, 1000, 4096, 8000, 100000}) {
            size_t used = rma_limit(node.iface, kind, length);
            size_t here = 3 * PAGE - 5, there = 7 * PAGE - 77;

            ++seed;
            my_store.bring_all_in();
            their_store.bring_all_in();
            pattern_fill(mine.at(), mine.length(), put ? seed : 0);
            pattern_fill(theirs.at(), theirs.length(), put ? 0 : seed);
            my_store.put_all_away();
            their_store.put_all_away();
            unsigned asked = their_store.asked();
            unsigned asked_to_write = their_store.asked_to_write();
            node.sync();
            if (rank.initiator()) {
                // Bytes that are copied at once must be there to be copied
                if (!rma_is_zcopy(kind)) {
                    my_store.bring_all_in();
                }
                rma_finish(node, kind, mine.at(here), used,
                           remote.address + there, remote.rkey());
            }
            node.sync();
            if (rank.target()) {
                EXPECT_GT(their_store.asked(), asked);
                EXPECT_EQ(put, their_store.asked_to_write() > asked_to_write);
            }
            my_store.bring_all_in();
            their_store.bring_all_in();
            if (put ? rank.target() : rank.initiator()) {
                Area &sink  = put ? theirs : mine;
                size_t at   = put ? there : here;
                size_t from = put ? here : there;
                expect_none("before", pattern_diff(sink.at(), at, 0));
                expect_none("data", pattern_diff(sink.at(at), used, seed,
                                                 from));
                expect_none("after", pattern_diff(
                        sink.at(at + used), sink.length() - at - used, 0,
                        at + used));
            }
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Stored,
        testing::Combine(testing::Values(RmaKind::PutShort, RmaKind::PutBcopy,
                                         RmaKind::PutZcopy, RmaKind::GetBcopy,
                                         RmaKind::GetZcopy),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<StoreParam> &info) {
            return name_of(std::get<0>(info.param)) +
                   name_of(std::get<1>(info.param));
        });

// A thread on each side puts pages away all the time while rank 0 writes to
// rank 1 and reads back; at the end the store itself is looked at.
using RaceParam = std::tuple<const char*, const char*>;

class StoredRace : public testing::TestWithParam<RaceParam> {
};

constexpr size_t RACE_LENGTH = 8000; // what every kind can carry
constexpr size_t RACE_SLOTS  = PAGES / 4;
constexpr size_t RACE_OFFSET = 55;

void race(Node &node, const Area &mine, const UctRemote &remote,
          unsigned rounds, std::vector<uint64_t> &seeds)
{
    std::vector<uint8_t> bytes(RACE_LENGTH);
    uint64_t state = 77;

    auto move = [&](RmaKind kind, uint8_t *buffer, size_t slot) {
        rma_finish(node, kind, buffer, RACE_LENGTH,
                   remote.address + slot * 4 * PAGE + RACE_OFFSET,
                   remote.rkey());
    };

    for (unsigned i = 1; i <= rounds; ++i) {
        size_t slot     = random_below(state, RACE_SLOTS);
        uint8_t *buffer = mine.at(random_below(state, RACE_SLOTS) * 4 * PAGE +
                                  9);

        pattern_fill(bytes.data(), RACE_LENGTH, i);
        seeds[slot] = i;
        move((i % 3) ? RmaKind::PutZcopy : RmaKind::PutBcopy, bytes.data(),
             slot);
        // There and back by memory of ours that comes and goes too
        move(RmaKind::GetZcopy, buffer, slot);
        move(RmaKind::PutZcopy, buffer, slot);
        memset(bytes.data(), 0, RACE_LENGTH);
        move((i % 2) ? RmaKind::GetZcopy : RmaKind::GetBcopy, bytes.data(),
             slot);
        expect_none("round " + std::to_string(i),
                    pattern_diff(bytes.data(), RACE_LENGTH, i));
    }
}

TEST_P(StoredRace, WhileItIsPutAway)
{
    Settings settings = {{"FAULT_MODE", std::get<0>(GetParam())},
                         {"WRITE_CHECK", std::get<1>(GetParam())}};
    bool is_for_soft  = (settings[0].second != "reverse") ||
                        (settings[1].second != "auto");

    run_ranks([=](Rank &rank) {
        nprdma_only();
        if (is_for_soft) {
            soft_only("FAULT_MODE and WRITE_CHECK have no effect");
        }
        Node node(rank, {}, settings);
        Area area(PAGES * PAGE);
        Store store(area);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        std::vector<uint64_t> seeds(RACE_SLOTS);
        std::atomic<bool> is_over{false};
        std::thread evictor([&]() {
            for (uint64_t state = rank.id; !is_over;) {
                store.put_away(random_below(state, PAGES));
            }
        });
        Growth growth;
        std::string error;

        node.sync();
        if (rank.initiator()) {
            try {
                // Where the target tries again by itself a round takes longer
                race(node, area, remote, is_soft() ? 200 : 20, seeds);
            } catch (const Failed &failure) {
                error = failure.what();
            }
            if (counts_faults()) {
                EXPECT_GT(growth.of(&C::remote_faults), 0u);
            }
        }
        std::string theirs = rank.oob.exchange(std::string(
                (char*)seeds.data(), seeds.size() * sizeof(uint64_t)));
        is_over = true;
        evictor.join();
        expect_none("race", error);
        store.bring_all_in();
        memcpy(seeds.data(), theirs.data(), theirs.size());
        for (size_t i = 0; rank.target() && (i < seeds.size()); ++i) {
            if (seeds[i] != 0) {
                EXPECT_EQ("", pattern_diff(
                        area.at(i * 4 * PAGE + RACE_OFFSET), RACE_LENGTH,
                        seeds[i])) << i;
            }
        }
        if (rank.target()) {
            EXPECT_GT(store.asked(), 0u);
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, StoredRace,
        testing::Combine(testing::Values("reverse", "retry"),
                         testing::Values("auto", "entries", "readback")),
        [](const testing::TestParamInfo<RaceParam> &info) {
            return std::string(std::get<0>(info.param)) + "_" +
                   std::get<1>(info.param);
        });

// A swapper that cannot: an error for who asked, and the memory beside it is
// still to be had.
TEST(Swapper, ThatCannot)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        Node node(rank);
        Area area(8 * PAGE);
        UctMem local(node.domain, MemKind::Mmap, 8 * PAGE);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        nprdma_swapper_t swapper = {
            [](void*, void*, size_t, int) { return -1; }, nullptr
        };

        pattern_fill(area.at(), area.length(), 5);
        ASSERT_EQ(0, nprdma_register_swapper(area.at(PAGE), PAGE, &swapper));
        node.sync();
        if (rank.initiator()) {
            for (RmaKind kind : {RmaKind::PutZcopy, RmaKind::GetZcopy}) {
                EXPECT_LT(rma_settle(node, kind, local.at(), 100,
                                     remote.address + 2 * PAGE - 50,
                                     remote.rkey()), 0) << name_of(kind);
            }
            rma_finish(node, RmaKind::GetZcopy, local.at(), PAGE,
                       remote.address + 2 * PAGE, remote.rkey());
            EXPECT_EQ("", pattern_diff(local.at(), PAGE, 5, 2 * PAGE));
            EXPECT_EQ(0u, node.iface.errors);
        }
        node.sync();
        // Without its swapper it is plain memory
        EXPECT_EQ(0, nprdma_unregister_swapper(area.at(PAGE), PAGE));
        EXPECT_EQ("", pattern_diff(area.at(), 2 * PAGE - 50, 5));
        node.sync();
        if (rank.initiator()) {
            rma_finish(node, RmaKind::GetZcopy, local.at(), PAGE,
                       remote.address + PAGE, remote.rkey());
            EXPECT_EQ("", pattern_diff(local.at(), PAGE - 50, 5, PAGE));
        }
        node.sync();
    });
}

} // namespace
