// SPDX-License-Identifier: BSD-3-Clause
// Atomics on words whose page is absent: each is executed just once.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>
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
        nprdma_only();
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
        if (rank.target() && counts_faults()) {
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
        if (rank.target() && counts_faults()) {
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
        nprdma_only();
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
        if (counts_faults()) {
            EXPECT_GT(growth.of(&C::atomics), 0u);
        }
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

// A peer's atomics on a word whose page goes and comes without a word to
// nprdma: each is executed, or an error at the initiator, and the target lives.
class AtomicTornAway : public testing::TestWithParam<
                               std::tuple<bool, const char*>> {
};

// Takes the page away and gives it back until the end.
class Tearer {
public:
    Tearer(const Area &area, int fd) : m_area(area), m_fd(fd),
                                       m_thread([this]() { run(); })
    {
    }

    ~Tearer()
    {
        m_is_over = true;
        m_thread.join();
    }

    Tearer(const Tearer&) = delete;

private:
    void run()
    {
        while (!m_is_over) {
            if (m_fd < 0) {
                m_area.protect(0, PAGE, PROT_NONE);
                m_area.protect(0, PAGE, PROT_READ | PROT_WRITE);
            } else if ((ftruncate(m_fd, 0) != 0) ||
                       (ftruncate(m_fd, PAGE) != 0)) {
                return;
            }
        }
    }

    const Area        &m_area;
    int               m_fd;
    std::atomic<bool> m_is_over{false};
    std::thread       m_thread;
};

TEST_P(AtomicTornAway, IsAnError)
{
    bool is_file        = std::get<0>(GetParam());
    const char *service = std::get<1>(GetParam());

    run_ranks([=](Rank &rank) {
        if (!is_nprdma()) {
            throw Skipped("other transports die of it");
        }
        Node node(rank, {}, {{"SERVICE", service}});
        Area area(PAGE);
        int fd = is_file ? memfd_create("test", MFD_CLOEXEC) : -1;
        if (is_file) {
            ASSERT_EQ(0, ftruncate(fd, PAGE));
            area.map_again(MAP_SHARED, fd);
        }
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, rank.oob.exchange(shared.describe()));
        std::unique_ptr<Tearer> tearer;
        unsigned done = 0, refused = 0;

        node.sync();
        if (rank.target()) {
            tearer.reset(new Tearer(area, fd));
        }
        for (double end = now() + 1; rank.initiator() && (now() < end);) {
            uint64_t result = 0;
            Comp comp;
            ssize_t status = node.post("room", [&]() {
                return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                             &result, remote.address,
                                             remote.rkey(), &comp);
            });
            if (status == UCS_INPROGRESS) {
                node.until("an atomic", [&]() { return comp.calls > 0; });
                status = comp.status;
            }
            ASSERT_TRUE((status == UCS_OK) ||
                        (status == UCS_ERR_INVALID_ADDR)) << status;
            ++((status == UCS_OK) ? done : refused);
        }
        node.sync();
        tearer.reset();
        if (rank.initiator()) {
            EXPECT_GT(done + refused, 0u);
        } else {
            *(uint64_t*)area.at() = 41;
        }
        node.sync();
        if (rank.initiator()) {
            EXPECT_EQ(41u, fetch(node, UCT_ATOMIC_OP_ADD, 1, 0, remote.address,
                                 remote.rkey()));
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ(42u, *(uint64_t*)area.at());
        }
        node.sync();
        if (fd >= 0) {
            close(fd);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, AtomicTornAway,
        testing::Combine(testing::Bool(), testing::Values("adaptive", "off")),
        [](const testing::TestParamInfo<AtomicTornAway::ParamType> &info) {
            return std::string(std::get<0>(info.param) ? "File" : "Memory") +
                   ((std::get<1>(info.param) == std::string("off")) ?
                    "Progress" : "Service");
        });

} // namespace
