// SPDX-License-Identifier: BSD-3-Clause
// Put, get and atomics of UCP, looked at in the memory itself.
#include "ucp_face.h"

#include <stdlib.h>

#include <cstring>
#include <set>
#include <tuple>

using namespace nt;

namespace {

constexpr size_t LARGEST = 4 << 20;

// Mode, and whether UCP allocates the target's memory.
using MemoryParam = std::tuple<Mode, bool>;

class Memory : public testing::TestWithParam<MemoryParam> {
protected:
    void run(uint64_t features, size_t length,
             const std::function<void(UcpNode&, UcpMem&, UcpRemote&)> &body)
    {
        bool allocated = std::get<1>(GetParam());

        std::get<0>(GetParam()).run([=](Rank &rank) {
            UcpNode node(rank, {features});
            UcpMem target(node, length, allocated);
            UcpRemote remote(node.ep, rank.oob.exchange(target.describe()));
            body(node, target, remote);
            node.sync();
        });
    }
};

void every_size(UcpNode &node, UcpMem &target, UcpRemote &remote, bool put)
{
    std::vector<uint8_t> local(Guarded::space(LARGEST) + 64);
    uint64_t seed = 0;

    for (size_t length : sizes_around(LARGEST)) {
        size_t here = (seed * 5) % 64, there = (seed * 11) % 64;
        Guarded mine(&local[here], length);
        Guarded theirs(target.at(there), length);
        uint64_t address = remote.address + there + Guarded::GUARD;

        ++seed;
        mine.fill(put ? seed : 0);
        theirs.fill(put ? 0 : seed);
        node.sync();
        if (node.rank.initiator()) {
            ucs_status_ptr_t request =
                    put ? ucp_put_nbx(node.ep, mine.data(), length, address,
                                      remote.rkey, &no_params()) :
                          ucp_get_nbx(node.ep, mine.data(), length, address,
                                      remote.rkey, &no_params());
            node.finish(request, "transfer");
            if (seed % 2) {
                node.flush_ep();
            } else {
                node.flush_worker();
            }
        }
        node.sync();
        if (node.rank.target()) {
            ASSERT_EQ("", theirs.diff(seed)) << length;
        }
        if (node.rank.initiator()) {
            ASSERT_EQ("", mine.diff(seed)) << length;
        }
    }
}

TEST_P(Memory, PutEverySize)
{
    run(UCP_FEATURE_RMA, Guarded::space(LARGEST) + 64,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            every_size(node, target, remote, true);
        });
}

TEST_P(Memory, GetEverySize)
{
    run(UCP_FEATURE_RMA, Guarded::space(LARGEST) + 64,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            every_size(node, target, remote, false);
        });
}

// Many of all sizes, one flush, and everything is there.
TEST_P(Memory, FlushOfMany)
{
    run(UCP_FEATURE_RMA, 1 << 20,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            const size_t slot = 8192, count = 128;
            std::vector<uint8_t> local(slot * count);
            std::vector<ucs_status_ptr_t> requests;

            for (int round = 0; round < 10; ++round) {
                memset(target.at(), 0, slot * count);
                node.sync();
                for (size_t i = 0; node.rank.initiator() && (i < count);
                     ++i) {
                    size_t length = (i * 997 + round) % slot;
                    pattern_fill(&local[i * slot], length, i + round);
                    requests.push_back(ucp_put_nbx(
                            node.ep, &local[i * slot], length,
                            remote.address + i * slot, remote.rkey,
                            &no_params()));
                }
                node.flush_worker();
                for (ucs_status_ptr_t request : requests) {
                    node.finish(request, "put");
                }
                requests.clear();
                node.sync();
                for (size_t i = 0; node.rank.target() && (i < count); ++i) {
                    ASSERT_EQ("", pattern_diff(target.at(i * slot),
                                               (i * 997 + round) % slot,
                                               i + round));
                }
            }
        });
}

// Data, fence, flag: who sees the flag sees the data.
TEST_P(Memory, FenceOrdersDataBeforeFlag)
{
    const char *tls = getenv("UCX_TLS");

    if (!is_nprdma() && (strstr(tls, "cma") != nullptr)) {
        GTEST_SKIP() << "cma's puts pass a fence: UCX 1.13 posts the flag "
                        "by another transport";
    }
    run(UCP_FEATURE_RMA, 1 << 20,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            const size_t flag_at = (1 << 20) - 8;
            std::vector<uint8_t> local(1 << 19);
            auto *flag = (uint64_t*)target.at(flag_at);

            memset(target.at(), 0, 1 << 20);
            node.sync();
            for (uint64_t i = 1; i <= 200; ++i) {
                size_t length = (i * 7919) % (i % 10 ? 5000 : 400000);

                if (node.rank.initiator()) {
                    pattern_fill(local.data(), length, i);
                    ucs_status_ptr_t data = ucp_put_nbx(
                            node.ep, local.data(), length, remote.address,
                            remote.rkey, &no_params());
                    check(ucp_worker_fence(node.worker), "fence");
                    ucs_status_ptr_t raise = ucp_put_nbx(
                            node.ep, &i, sizeof(i), remote.address + flag_at,
                            remote.rkey, &no_params());
                    node.finish(data, "put of data");
                    node.finish(raise, "put of the flag");
                    node.flush_ep();
                }
                if (node.rank.target()) {
                    node.until("flag", [&]() {
                        return __atomic_load_n(flag, __ATOMIC_ACQUIRE) == i;
                    });
                    ASSERT_EQ("", pattern_diff(target.at(), length, i));
                }
                node.sync();
            }
        });
}

constexpr ucp_atomic_op_t OPERATIONS[] = {
    UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP,
    UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR
};

template<typename T>
T apply(ucp_atomic_op_t op, T old, T value, T compare)
{
    switch (op) {
    case UCP_ATOMIC_OP_ADD:
        return old + value;
    case UCP_ATOMIC_OP_SWAP:
        return value;
    case UCP_ATOMIC_OP_CSWAP:
        return (old == compare) ? value : old;
    case UCP_ATOMIC_OP_AND:
        return old & value;
    case UCP_ATOMIC_OP_OR:
        return old | value;
    default:
        return old ^ value;
    }
}

template<typename T>
ucp_request_param_t atomic_params(T *reply)
{
    ucp_request_param_t params = {};

    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype     = ucp_dt_make_contig(sizeof(T));
    if (reply != nullptr) {
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        params.reply_buffer  = reply;
    }
    return params;
}

// For compare and swap the reply buffer holds the value to swap in.
template<typename T>
void one_atomic(UcpNode &node, UcpMem &target, UcpRemote &remote,
                ucp_atomic_op_t op, T old, T value, bool fetch)
{
    const size_t at = 512;
    T compare       = (value % 2) ? old : old + 1;
    T operand       = (op == UCP_ATOMIC_OP_CSWAP) ? compare : value;
    T reply         = value;
    auto *word      = (T*)target.at(at);

    pattern_fill(target.at(), 4096, 77);
    __atomic_store_n(word, old, __ATOMIC_SEQ_CST);
    node.sync();
    if (node.rank.initiator()) {
        ucp_request_param_t params = atomic_params<T>(fetch ? &reply :
                                                              nullptr);
        node.finish(ucp_atomic_op_nbx(node.ep, op, &operand, 1,
                                      remote.address + at, remote.rkey,
                                      &params), "atomic");
        node.flush_ep();
        if (fetch) {
            EXPECT_EQ(old, reply) << "operation " << op;
        }
    }
    node.sync();
    if (node.rank.target()) {
        EXPECT_EQ(apply(op, old, value, compare),
                  __atomic_load_n(word, __ATOMIC_SEQ_CST))
                << "operation " << op << " of " << value << " on " << old;
    }
    EXPECT_EQ("", pattern_diff(target.at(), at, 77));
    EXPECT_EQ("", pattern_diff(target.at(at + sizeof(T)),
                               4096 - at - sizeof(T), 77, at + sizeof(T)));
    node.sync();
}

template<typename T>
void every_atomic(UcpNode &node, UcpMem &target, UcpRemote &remote)
{
    const T values[] = {0, 1, (T)-1, (T)0x0123456789abcdefull};

    for (ucp_atomic_op_t op : OPERATIONS) {
        bool always_fetches = (op == UCP_ATOMIC_OP_SWAP) ||
                              (op == UCP_ATOMIC_OP_CSWAP);
        for (T old : values) {
            for (T value : values) {
                // UCX 1.13's own shared memory transports have fetching
                // and, or and xor wrong
                if (is_nprdma() || (op <= UCP_ATOMIC_OP_CSWAP)) {
                    one_atomic<T>(node, target, remote, op, old, value, true);
                }
                if (!always_fetches) {
                    one_atomic<T>(node, target, remote, op, old, value,
                                  false);
                }
            }
        }
    }
}

TEST_P(Memory, EveryAtomic)
{
    run(UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA, 4096,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            every_atomic<uint32_t>(node, target, remote);
            every_atomic<uint64_t>(node, target, remote);
        });
}

// Both ranks count on both ranks' words at once.
TEST_P(Memory, AtomicSumOfAll)
{
    run(UCP_FEATURE_AMO64 | UCP_FEATURE_RMA, 4096,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            const uint64_t count = 3000;
            std::vector<uint64_t> replies(count);
            std::vector<ucs_status_ptr_t> requests;
            auto *word   = (uint64_t*)target.at(64);
            uint64_t one = 1;

            *word = 0;
            node.sync();
            for (uint64_t i = 0; i < count; ++i) {
                ucp_request_param_t params =
                        atomic_params((i % 2) ? &replies[i] : nullptr);
                requests.push_back(ucp_atomic_op_nbx(
                        node.ep, UCP_ATOMIC_OP_ADD, &one, 1,
                        remote.address + 64, remote.rkey, &params));
            }
            for (ucs_status_ptr_t request : requests) {
                node.finish(request, "atomic");
            }
            node.flush_worker();
            node.sync();
            EXPECT_EQ(count, __atomic_load_n(word, __ATOMIC_SEQ_CST));
            // In any order, but each count was seen by one at most
            std::set<uint64_t> seen;
            for (uint64_t i = 1; i < count; i += 2) {
                ASSERT_LT(replies[i], count);
                ASSERT_TRUE(seen.insert(replies[i]).second) << replies[i];
            }
        });
}

INSTANTIATE_TEST_SUITE_P(Ucp, Memory,
                         testing::Combine(testing::ValuesIn(all_modes(false)),
                                          testing::Bool()),
                         [](const auto &info) {
                             return std::get<0>(info.param).name() +
                                    (std::get<1>(info.param) ? "Allocated" :
                                                               "Heap");
                         });

} // namespace
