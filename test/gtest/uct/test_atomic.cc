// SPDX-License-Identifier: BSD-3-Clause
// Atomics: every operation, both widths, also against the CPU's own.
#include "rma_op.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <type_traits>

using namespace nt;

namespace {

constexpr uct_atomic_op_t FETCHING[] = {
    UCT_ATOMIC_OP_ADD, UCT_ATOMIC_OP_AND, UCT_ATOMIC_OP_OR,
    UCT_ATOMIC_OP_XOR, UCT_ATOMIC_OP_SWAP, UCT_ATOMIC_OP_CSWAP
};
constexpr uct_atomic_op_t POSTED[] = {
    UCT_ATOMIC_OP_ADD, UCT_ATOMIC_OP_AND, UCT_ATOMIC_OP_OR, UCT_ATOMIC_OP_XOR
};

template<typename T>
T apply(uct_atomic_op_t op, T old, T value, T compare)
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
    case UCT_ATOMIC_OP_SWAP:
        return value;
    default:
        return (old == compare) ? value : old;
    }
}

// The operations on words of type T, on one remote word.
template<typename T>
class Word {
public:
    Word(Node &node, uint64_t address, uct_rkey_t rkey) :
        m_node(node), m_address(address), m_rkey(rkey)
    {
    }

    static void require(const UctIface &iface, uct_atomic_op_t op, bool fetch)
    {
        const auto &cap = (sizeof(T) == 4) ? iface.attr.cap.atomic32 :
                                             iface.attr.cap.atomic64;
        if (!((fetch ? cap.fop_flags : cap.op_flags) & UCS_BIT(op))) {
            lacking("atomic operation " + std::to_string(op));
        }
    }

    void post(uct_atomic_op_t op, T value)
    {
        ssize_t ret = m_node.post("room", [&]() {
            if constexpr (sizeof(T) == 4) {
                return uct_ep_atomic32_post(m_node.ep->ep, op, value,
                                            m_address, m_rkey);
            } else {
                return uct_ep_atomic64_post(m_node.ep->ep, op, value,
                                            m_address, m_rkey);
            }
        });
        check((ucs_status_t)ret, "posted atomic");
    }

    ucs_status_t start(uct_atomic_op_t op, T value, T compare, T *result,
                       Comp *comp)
    {
        uct_ep_h ep = m_node.ep->ep;

        if constexpr (sizeof(T) == 4) {
            return (op == UCT_ATOMIC_OP_CSWAP) ?
                   uct_ep_atomic_cswap32(ep, compare, value, m_address,
                                         m_rkey, result, comp) :
                   uct_ep_atomic32_fetch(ep, op, value, result, m_address,
                                         m_rkey, comp);
        } else {
            return (op == UCT_ATOMIC_OP_CSWAP) ?
                   uct_ep_atomic_cswap64(ep, compare, value, m_address,
                                         m_rkey, result, comp) :
                   uct_ep_atomic64_fetch(ep, op, value, result, m_address,
                                         m_rkey, comp);
        }
    }

    T fetch(uct_atomic_op_t op, T value, T compare = 0)
    {
        T result = 0x5a;
        Comp comp;

        m_node.complete("fetching atomic", comp, [&]() {
            return start(op, value, compare, &result, &comp);
        });
        return result;
    }

private:
    Node       &m_node;
    uint64_t   m_address;
    uct_rkey_t m_rkey;
};

using AtomicParam = std::tuple<int, MemKind, Topology>;

// Words lie in the middle of a block of others, which must not change.
class Atomic : public testing::TestWithParam<AtomicParam> {
protected:
    template<typename Test32, typename Test64>
    void run(Test32 test32, Test64 test64)
    {
        int width = std::get<0>(GetParam());

        run_in(std::get<2>(GetParam()), [&](Rank &rank) {
            Node node(rank);
            UctMem target(node.domain, std::get<1>(GetParam()), 4096);
            UctRemote remote(node.domain,
                             rank.oob.exchange(target.describe()));

            pattern_fill(target.at(), 4096, 99);
            if (width == 32) {
                test32(node, target, remote);
            } else {
                test64(node, target, remote);
            }
            node.sync();
        });
    }
};

// Bytes around the words at [from, to) are as they were.
void neighbours(const UctMem &target, size_t from, size_t to)
{
    EXPECT_EQ("", pattern_diff(target.at(), from, 99));
    EXPECT_EQ("", pattern_diff(target.at(to), 4096 - to, 99, to));
}

template<typename T>
void set_word(const UctMem &target, size_t offset, T value)
{
    __atomic_store_n((T*)target.at(offset), value, __ATOMIC_SEQ_CST);
}

template<typename T>
T get_word(const UctMem &target, size_t offset)
{
    return __atomic_load_n((T*)target.at(offset), __ATOMIC_SEQ_CST);
}

template<typename T>
void every_operation(Node &node, const UctMem &target,
                     const UctRemote &remote, bool fetching)
{
    const T top = (T)1 << (8 * sizeof(T) - 1);
    const T values[] = {0, 1, (T)-1, top, (T)0x0123456789abcdefull};
    const size_t offset = 1024 + sizeof(T);
    Word<T> word(node, remote.address + offset, remote.rkey());

    for (size_t i = 0; i < (fetching ? 6 : 4); ++i) {
        uct_atomic_op_t op = fetching ? FETCHING[i] : POSTED[i];

        Word<T>::require(node.iface, op, fetching);
        if (fetching && !is_nprdma() && (op >= UCT_ATOMIC_OP_AND) &&
            (op <= UCT_ATOMIC_OP_XOR)) {
            // UCX 1.13 has these wrong over shared memory: its inline
            // cmpxchg does not tell the compiler that it writes
            continue;
        }
        for (T old : values) {
            for (T value : values) {
                T compare = (value == 1) ? (T)~old : old;

                set_word<T>(target, offset, old);
                node.sync();
                if (node.rank.initiator() && fetching) {
                    EXPECT_EQ(old, word.fetch(op, value, compare));
                } else if (node.rank.initiator()) {
                    word.post(op, value);
                }
                node.flush();
                node.sync();
                EXPECT_EQ(node.rank.target() ?
                          apply(op, old, value, compare) : old,
                          get_word<T>(target, offset))
                        << "operation " << op << " of " << value << " on "
                        << old;
                node.sync();
            }
        }
    }
    neighbours(target, offset, offset + sizeof(T));
}

TEST_P(Atomic, EveryFetchingOperation)
{
    run([](auto&... args) { every_operation<uint32_t>(args..., true); },
        [](auto&... args) { every_operation<uint64_t>(args..., true); });
}

TEST_P(Atomic, EveryPostedOperation)
{
    run([](auto&... args) { every_operation<uint32_t>(args..., false); },
        [](auto&... args) { every_operation<uint64_t>(args..., false); });
}

template<typename T>
void many_in_flight(Node &node, const UctMem &target, const UctRemote &remote)
{
    const size_t words = 64, rounds = 100;
    std::vector<T> results(words * rounds, (T)-1);
    Comp comp(words * rounds);
    ucs_status_t status = UCS_OK;

    Word<T>::require(node.iface, UCT_ATOMIC_OP_ADD, true);
    memset(target.at(512), 0, words * sizeof(T));
    node.sync();

    for (size_t i = 0; node.rank.initiator() && (i < words * rounds); ++i) {
        Word<T> word(node, remote.address + 512 + (i % words) * sizeof(T),
                     remote.rkey());
        node.post("room", [&]() {
            status = word.start(UCT_ATOMIC_OP_ADD, 1, 0, &results[i], &comp);
            return status;
        });
        if (status != UCS_INPROGRESS) {
            check(status, "fetching atomic");
            --comp.count;
        }
    }
    if (node.rank.initiator()) {
        node.until("all results", [&]() { return comp.count == 0; });
        check(comp.status, "fetching atomic");
    }
    node.sync();

    for (size_t i = 0; i < words; ++i) {
        EXPECT_EQ(node.rank.target() ? (T)rounds : 0,
                  get_word<T>(target, 512 + i * sizeof(T)));
    }
    // Each word was counted up once a round, in some order
    for (size_t i = 0; node.rank.initiator() && (i < words); ++i) {
        std::vector<bool> seen(rounds, false);
        for (size_t round = 0; round < rounds; ++round) {
            T result = results[round * words + i];
            ASSERT_LT(result, rounds);
            EXPECT_FALSE(seen[result]);
            seen[result] = true;
        }
    }
    neighbours(target, 512, 512 + words * sizeof(T));
}

TEST_P(Atomic, ManyInFlight)
{
    run([](auto&... args) { many_in_flight<uint32_t>(args...); },
        [](auto&... args) { many_in_flight<uint64_t>(args...); });
}

// The target's CPU works on the word all the while.
template<typename T>
void against_cpu(Node &node, const UctMem &target, const UctRemote &remote)
{
    const T count       = 20000;
    const size_t offset = 2048;
    const T step        = (T)0x10001;
    Word<T> word(node, remote.address + offset, remote.rkey());
    bool both = node.rank.initiator() && node.rank.target();

    Word<T>::require(node.iface, UCT_ATOMIC_OP_ADD, true);
    set_word<T>(target, offset, 0);
    node.sync();

    for (T i = 0; i < count; ++i) {
        if (node.rank.initiator() && (i % 2)) {
            word.fetch(UCT_ATOMIC_OP_ADD, step);
        } else if (node.rank.initiator()) {
            word.post(UCT_ATOMIC_OP_ADD, step);
        }
        if (node.rank.target()) {
            __atomic_fetch_add((T*)target.at(offset), 1, __ATOMIC_SEQ_CST);
            node.domain.progress();
        }
    }
    node.flush();
    node.sync();
    if (node.rank.target()) {
        EXPECT_EQ((T)(count * step + count), get_word<T>(target, offset))
                << (both ? "to itself" : "between processes");
    }
    neighbours(target, offset, offset + sizeof(T));
}

TEST_P(Atomic, SumWithTheCpu)
{
    run([](auto&... args) { against_cpu<uint32_t>(args...); },
        [](auto&... args) { against_cpu<uint64_t>(args...); });
}

// Both sides count up by compare and swap; no count may be lost.
template<typename T>
void swaps_against_cpu(Node &node, const UctMem &target,
                       const UctRemote &remote)
{
    const T count       = 2000;
    const size_t offset = 2048;
    Word<T> word(node, remote.address + offset, remote.rkey());

    Word<T>::require(node.iface, UCT_ATOMIC_OP_CSWAP, true);
    set_word<T>(target, offset, 0);
    node.sync();

    if (node.rank.initiator()) {
        T old = 0;
        for (T done = 0; done < count;) {
            T found = word.fetch(UCT_ATOMIC_OP_CSWAP, old + 1, old);
            done   += (found == old);
            old     = (found == old) ? old + 1 : found;
        }
    }
    if (node.rank.target()) {
        T *mine = (T*)target.at(offset);
        for (T done = 0; done < count; ++done) {
            T old = get_word<T>(target, offset);
            while (!__atomic_compare_exchange_n(mine, &old, old + 1, false,
                                                __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST)) {
            }
            node.domain.progress();
        }
    }
    node.flush();
    node.sync();
    if (node.rank.target()) {
        EXPECT_EQ(2 * count, get_word<T>(target, offset));
    }
}

TEST_P(Atomic, SwapsWithTheCpu)
{
    run([](auto&... args) { swaps_against_cpu<uint32_t>(args...); },
        [](auto&... args) { swaps_against_cpu<uint64_t>(args...); });
}

// What comes after a fence, though what is before it is still outstanding, is
// taken as others take it, and done after that: each swap finds the value of
// the one before.
TEST(AtomicFenced, IsTakenAndWaits)
{
    run_ranks([](Rank &rank) {
        constexpr uint64_t COUNT = 12; // a link has 16 requests
        Node node(rank);
        UctMem target(node.domain, MemKind::Heap, 4096);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        std::vector<uint64_t> found(COUNT, ~0ul);

        if (!is_soft()) {
            throw Skipped("an RNIC's are refused until then");
        }
        memset(target.at(), 0, 4096);
        node.sync();
        if (rank.initiator()) {
            for (int round = 0; round < 100; ++round) {
                Comp comp(COUNT);

                node.post("room", [&]() { // connected, and the last round's
                    return uct_ep_atomic64_post(node.ep->ep, UCT_ATOMIC_OP_AND,
                                                0, remote.address,
                                                remote.rkey());
                });
                node.flush();
                for (uint64_t i = 0; i < COUNT; ++i) {
                    ASSERT_EQ(UCS_INPROGRESS, uct_ep_atomic64_fetch(
                            node.ep->ep, UCT_ATOMIC_OP_SWAP, i + 1, &found[i],
                            remote.address, remote.rkey(), &comp)) << i;
                    check(uct_ep_fence(node.ep->ep, 0), "uct_ep_fence");
                }
                node.until("swaps", [&]() { return comp.calls > 0; });
                for (uint64_t i = 0; i < COUNT; ++i) {
                    ASSERT_EQ(i, found[i]) << "round " << round;
                }
            }
        }
        node.sync();
        if (rank.target()) {
            EXPECT_EQ(COUNT, get_word<uint64_t>(target, 0));
        }
    });
}

// The same after a put, as flags are: whose target sees it has the bytes.
TEST(AtomicFenced, TellsOfAPut)
{
    run_ranks([](Rank &rank) {
        constexpr size_t LENGTH = 100000, FLAG = 128 << 10;
        Node node(rank, {}, {{"SINGLE_COPY", "off"}});
        UctMem source(node.domain, MemKind::Local, LENGTH);
        UctMem target(node.domain, MemKind::Heap, FLAG + sizeof(uint64_t));
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        if (!is_soft()) {
            throw Skipped("an RNIC's are refused until then");
        }
        set_word<uint64_t>(target, FLAG, 0);
        node.sync();
        for (uint64_t round = 1; round <= 100; ++round) {
            if (rank.initiator()) {
                Comp put;
                pattern_fill(source.at(), LENGTH, round);
                ASSERT_EQ(UCS_INPROGRESS, node.post("room", [&]() {
                    return rma_post(node, RmaKind::PutZcopy, source, 0, LENGTH,
                                    remote.address, remote.rkey(), &put);
                }));
                check(uct_ep_fence(node.ep->ep, 0), "uct_ep_fence");
                EXPECT_EQ(UCS_OK, uct_ep_atomic64_post(
                        node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                        remote.address + FLAG, remote.rkey())) << round;
                node.flush();
                EXPECT_EQ(1u, put.calls);
            }
            if (rank.target()) {
                node.until("flag", [&]() {
                    return get_word<uint64_t>(target, FLAG) == round;
                });
                ASSERT_EQ("", pattern_diff(target.at(), LENGTH, round));
            }
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Atomic,
        testing::Combine(testing::Values(32, 64),
                         testing::Values(MemKind::Heap, MemKind::Allocated),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback)),
        [](const testing::TestParamInfo<AtomicParam> &info) {
            return "Width" + std::to_string(std::get<0>(info.param)) +
                   name_of(std::get<1>(info.param)) +
                   name_of(std::get<2>(info.param));
        });

} // namespace
