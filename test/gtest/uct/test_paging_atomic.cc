// SPDX-License-Identifier: BSD-3-Clause
// Atomics on words whose page is absent: each is executed just once.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

struct AtomicOp {
    const char      *name;
    uct_atomic_op_t op;
};

constexpr AtomicOp OPERATIONS[] = {
    {"Add", UCT_ATOMIC_OP_ADD}, {"And", UCT_ATOMIC_OP_AND},
    {"Or", UCT_ATOMIC_OP_OR}, {"Xor", UCT_ATOMIC_OP_XOR},
    {"Swap", UCT_ATOMIC_OP_SWAP}, {"Cswap", UCT_ATOMIC_OP_CSWAP}
};

uint64_t apply(uct_atomic_op_t op, uint64_t old, uint64_t value)
{
    switch (op) {
    case UCT_ATOMIC_OP_ADD:
        return old + value;
    case UCT_ATOMIC_OP_AND:
        return old & value;
    case UCT_ATOMIC_OP_OR:
        return old | value;
    case UCT_ATOMIC_OP_XOR:
        return old ^ value;
    default:
        return value;
    }
}

using AtomicParam = std::tuple<AtomicOp, MemKind, Topology>;

class PagingAtomic : public testing::TestWithParam<AtomicParam> {
};

// A fetching atomic; compare and swap expects what is there.
uint64_t fetch(Node &node, uct_atomic_op_t op, uint64_t value, uint64_t old,
               uint64_t address, uct_rkey_t rkey)
{
    uint64_t result = 0;
    Comp comp;

    node.complete("a fetching atomic", comp, [&]() {
        return (op == UCT_ATOMIC_OP_CSWAP) ?
               uct_ep_atomic_cswap64(node.ep->ep, old, value, address, rkey,
                                     &result, &comp) :
               uct_ep_atomic64_fetch(node.ep->ep, op, value, &result, address,
                                     rkey, &comp);
    });
    return result;
}

TEST_P(PagingAtomic, OnAbsentWords)
{
    uct_atomic_op_t op = std::get<0>(GetParam()).op;
    MemKind mem_kind   = std::get<1>(GetParam());

    run_in(std::get<2>(GetParam()), [=](Rank &rank) {
        paging_only();
        const size_t pages = 20;
        Node node(rank);
        UctMem target(node.domain, mem_kind, pages * PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        uint64_t old = 0, value = UINT64_C(0x0102030405060708);

        // Never touched: zeros, each page another word
        for (size_t page = 0; page < pages; ++page) {
            size_t at = page * PAGE + 8 * (page % 512);
            node.sync();
            if (rank.initiator()) {
                EXPECT_EQ(0u, fetch(node, op, value, 0, remote.address + at,
                                    remote.rkey()));
                node.flush();
            }
            node.sync();
            if (rank.target()) {
                EXPECT_EQ(apply(op, 0, value), *(uint64_t*)target.at(at));
            }
        }

        meet(node, remote);
        // One word again and again, absent before each of them
        Growth growth;
        for (int i = 0; i < 50; ++i) {
            if (rank.target()) {
                if (i == 0) {
                    *(uint64_t*)target.at() = 0;
                }
                turn_absent(target.at(), PAGE);
            }
            node.sync();
            value = value * 3 + i;
            if (rank.initiator()) {
                EXPECT_EQ(old, fetch(node, op, value, old, remote.address,
                                     remote.rkey())) << i;
            }
            old = apply(op, old, value);
            node.sync();
            if (rank.target()) {
                ASSERT_EQ(old, *(uint64_t*)target.at()) << i;
            }
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ(50u, growth.of(&C::atomics));
        }

        // Mapped memory that is there needs no help
        growth.reset();
        node.sync();
        for (int i = 0; rank.initiator() && (i < 50); ++i) {
            EXPECT_EQ(old, fetch(node, op, i, old, remote.address,
                                 remote.rkey()));
            old = apply(op, old, i);
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ((mem_kind == MemKind::Allocated) ? 0u : 50u,
                      growth.of(&C::atomics));
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagingAtomic,
        testing::Combine(testing::ValuesIn(OPERATIONS),
                         testing::Values(MemKind::Mmap, MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<AtomicParam> &info) {
            return std::string(std::get<0>(info.param).name) +
                   name_of(std::get<1>(info.param)) +
                   name_of(std::get<2>(info.param));
        });

// Both ranks count on both ranks' words, whose pages go all the time: none is
// lost, none is done twice.
class PagingCount : public testing::TestWithParam<
                            std::tuple<MemKind, const char*>> {
};

TEST_P(PagingCount, NoneIsLostOrDoneTwice)
{
    MemKind mem_kind    = std::get<0>(GetParam());
    const char *service = std::get<1>(GetParam());

    run_ranks([=](Rank &rank) {
        paging_only();
        const uint32_t count = 3000;
        Node node(rank, {}, {{"SERVICE", service}});
        UctMem target(node.domain, mem_kind, PAGE);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        Growth growth;

        node.sync();
        for (uint32_t i = 0; i < count; ++i) {
            check((ucs_status_t)node.post("room", [&]() {
                return uct_ep_atomic32_post(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                            remote.address + 4 * (i % 2),
                                            remote.rkey());
            }), "posted atomic");
            if ((i % 5) == 0) {
                turn_absent(target.at(), PAGE);
            }
        }
        node.flush();
        node.sync();
        auto *words = (uint32_t*)target.at();
        EXPECT_EQ(count / 2, words[0]);
        EXPECT_EQ(count / 2, words[1]);
        EXPECT_GT(growth.of(&C::swap_outs), 0u);
        EXPECT_GT(growth.of(&C::atomics), 0u);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, PagingCount,
        testing::Combine(testing::Values(MemKind::Mmap, MemKind::Allocated),
                         testing::Values("adaptive", "poll", "event", "off")),
        [](const testing::TestParamInfo<PagingCount::ParamType> &info) {
            return name_of(std::get<0>(info.param)) +
                   std::get<1>(info.param);
        });

} // namespace
