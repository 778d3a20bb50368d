// SPDX-License-Identifier: BSD-3-Clause
// Whatever has happened to memory between two transfers, the second one is
// right: on either side, read or written.
#include "paging_scene.h"

#include "../harness/swap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

// What is done with the memory: read or written, by its owner or by a peer.
struct Use {
    const char *name;
    bool       is_put;
    bool       is_local; // the initiator's memory
    bool       writes() const { return is_put != is_local; }
};

const Use USES[] = {
    {"GetFrom", false, false}, {"PutInto", true, false},
    {"PutFrom", true, true}, {"GetInto", false, true}
};

using MemoryParam = std::tuple<Event, Use, Topology>;

class PagingMemory : public testing::TestWithParam<MemoryParam> {
protected:
    static void SetUpTestSuite()
    {
        try {
            m_swap = new Swap;
        } catch (const Skipped &reason) {
            m_no_swap = reason.what();
        }
    }

    static void TearDownTestSuite()
    {
        delete m_swap;
        m_swap = nullptr;
    }

    static Swap        *m_swap;
    static std::string m_no_swap;
};

Swap *PagingMemory::m_swap = nullptr;
std::string PagingMemory::m_no_swap;

class MemoryCase {
public:
    MemoryCase(Rank &rank, const Event &event, const Use &use) :
        node(rank), use(use), scene(event.is_file),
        other(Scene::PAGES * PAGE), shared(node.domain, use.is_local ?
                                          other : scene.area),
        remote(node.domain, rank.oob.exchange(shared.describe()))
    {
        meet(node, remote);
    }

    bool owns_scene() const
    {
        return use.is_local ? node.rank.initiator() : node.rank.target();
    }

    bool owns_other() const
    {
        return use.is_local ? node.rank.target() : node.rank.initiator();
    }

    void move(size_t offset, size_t length)
    {
        uint8_t *mine = use.is_local ? scene.area.at(offset) :
                        other.at(offset);

        node.sync();
        if (node.rank.initiator()) {
            rma_finish(node, use.is_put ? RmaKind::PutZcopy : RmaKind::GetZcopy,
                       mine, length, remote.address + offset, remote.rkey());
        }
        node.sync();
    }

    // Read the memory, or write it, and look at both sides.
    void use_memory(size_t offset, size_t length)
    {
        if (use.writes()) {
            write_memory(offset, length);
        } else {
            read_memory(offset, length);
        }
    }

    void read_memory(size_t offset, size_t length)
    {
        move(offset, length);
        // Who has got the data learns what it must be
        std::string seeds(reinterpret_cast<char*>(scene.image.seeds.data()),
                          scene.image.seeds.size() * sizeof(uint64_t));
        std::string loose(1, scene.image.is_loose);
        std::string theirs = node.rank.oob.exchange(seeds + loose);
        Image wanted       = scene.image;

        if (!owns_scene()) {
            memcpy(wanted.seeds.data(), theirs.data(), theirs.size() - 1);
            wanted.is_loose = theirs.back();
        }
        if (owns_other()) {
            expect_none("read of " + std::to_string(length),
                        wanted.diff(other.at(offset), offset, length));
        }
        node.sync();
    }

    void write_memory(size_t offset, size_t length)
    {
        uint64_t seed = 1000 + length;
        size_t end    = offset + length;

        pattern_fill(other.at(offset), length, seed);
        move(offset, length);
        if (owns_scene()) {
            const Area &area = scene.area;
            expect_none("write of " + std::to_string(length),
                        pattern_diff(area.at(offset), length, seed));
            expect_none("before a write of " + std::to_string(length),
                        scene.image.diff(area.at(), 0, offset));
            expect_none("after a write of " + std::to_string(length),
                        scene.image.diff(area.at(end), end,
                                         area.length() - end));
        }
        node.sync();
    }

    Node       node;
    Use        use;
    Scene      scene;
    Area       other;
    SharedArea shared;
    UctRemote  remote;
};

void memory_round(MemoryCase &memory, const Event &event, size_t offset,
                  size_t length)
{
    const Use &use = memory.use;

    // Everything is mapped
    memory.use_memory(offset, length);
    if (memory.owns_scene()) {
        memory.scene.fill(1);
        event.happen(memory.scene);
    }

    Growth growth;
    memory.use_memory(offset, length);
    if (memory.node.rank.initiator() && counts_faults()) {
        EXPECT_EQ(event.faults && use.is_local,
                  growth.of(&C::local_faults) > 0) << length;
        EXPECT_EQ(event.faults && !use.is_local,
                  growth.of(&C::remote_faults) > growth.of(&C::false_alarms))
                << length;
    }
    if (memory.owns_scene() && (event.after != nullptr)) {
        event.after(memory.scene);
    }
    memory.node.sync();
}

TEST_P(PagingMemory, IsRightAfter)
{
    const Event event = std::get<0>(GetParam());
    const Use use     = std::get<1>(GetParam());

    if (event.needs_swap && (m_swap == nullptr)) {
        GTEST_SKIP() << m_no_swap;
    }
    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        nprdma_only();
        for (bool is_small : {true, false}) {
            MemoryCase memory(rank, event, use);
            size_t length = memory.scene.area.length();

            // Across the border of two pages; and nearly all of it
            if (is_small) {
                memory_round(memory, event, 21 * PAGE - 99, 220);
            } else {
                memory_round(memory, event, 100, length - 177);
            }
        }
    });
}

// To write where nobody may is an error: test_paging_refusal.cc
std::vector<MemoryParam> all_cases()
{
    std::vector<MemoryParam> cases;

    for (const Event &event : EVENTS) {
        for (const Use &use : USES) {
            for (Topology topology : {Topology::TwoProcesses,
                                      Topology::Loopback}) {
                if (!event.read_only || !use.writes()) {
                    cases.emplace_back(event, use, topology);
                }
            }
        }
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagingMemory, testing::ValuesIn(all_cases()),
        [](const testing::TestParamInfo<MemoryParam> &info) {
            return std::string(std::get<0>(info.param).name) +
                   std::get<1>(info.param).name +
                   name_of(std::get<2>(info.param));
        });

} // namespace
