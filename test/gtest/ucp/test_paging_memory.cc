// SPDX-License-Identifier: BSD-3-Clause
// UCP's put, get and atomics on memory that comes and goes.
#include "ucp_face.h"

#include "../harness/paging.h"
#include "../harness/swap.h"

#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <tuple>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t LARGEST = 3 << 20;

using MemoryParam = std::tuple<Mode, bool>; // and whether UCP allocates

class PagingMemory : public testing::TestWithParam<MemoryParam> {
protected:
    void run(uint64_t features,
             const std::function<void(UcpNode&, UcpMem&, UcpRemote&)> &body)
    {
        bool allocated = std::get<1>(GetParam());

        std::get<0>(GetParam()).run([=](Rank &rank) {
            if (!is_nprdma()) {
                throw Skipped("other transports have no page faults of their "
                              "own");
            }
            UcpNode node(rank, {features});
            UcpMem target(node, Guarded::space(LARGEST) + PAGE, allocated);
            UcpRemote remote(node.ep, rank.oob.exchange(target.describe()));
            body(node, target, remote);
            node.sync();
        });
    }
};

void every_size(UcpNode &node, UcpMem &target, UcpRemote &remote, bool put)
{
    Area local(Guarded::space(LARGEST) + PAGE);
    uint64_t seed = 0;

    for (size_t length : sizes_around(LARGEST)) {
        size_t here = (seed * 991) % PAGE, there = (seed * 997) % PAGE;
        Guarded mine(local.at(here), length);
        Guarded theirs(target.at(there), length);
        uint64_t address = remote.address + there + Guarded::GUARD;

        ++seed;
        mine.fill(put ? seed : 0);
        theirs.fill(put ? 0 : seed);
        turn_absent(local.at(), local.length());
        turn_absent(target.at(), Guarded::space(LARGEST) + PAGE);
        node.sync();
        if (node.rank.initiator()) {
            Growth growth;
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
            if (length < SHARED) {
                EXPECT_EQ(length > 0, growth.of(&C::remote_faults) > 0)
                        << length;
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

TEST_P(PagingMemory, PutEverySize)
{
    run(UCP_FEATURE_RMA, [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
        every_size(node, target, remote, true);
    });
}

TEST_P(PagingMemory, GetEverySize)
{
    run(UCP_FEATURE_RMA, [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
        every_size(node, target, remote, false);
    });
}

// Many puts of all sizes, one flush, while pages go: everything is there.
TEST_P(PagingMemory, FlushOfMany)
{
    run(UCP_FEATURE_RMA, [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
        const size_t slot = 5 * PAGE, count = 128;
        Area local(slot * count);

        for (uint64_t round = 1; round <= 4; ++round) {
            std::vector<ucs_status_ptr_t> requests;
            Growth growth;

            memset(target.at(), 0, slot * count);
            node.sync();
            for (size_t i = 0; i < count; ++i) {
                size_t length = (i * 997 * round) % slot;
                if (node.rank.initiator()) {
                    pattern_fill(local.at(i * slot), length, i + round);
                    requests.push_back(ucp_put_nbx(
                            node.ep, local.at(i * slot), length,
                            remote.address + i * slot, remote.rkey,
                            &no_params()));
                }
                turn_absent(local.at(((i * 5) % count) * slot), slot);
                turn_absent(target.at(((i * 7) % count) * slot), slot);
                node.progress();
            }
            node.flush_worker();
            for (ucs_status_ptr_t request : requests) {
                node.finish(request, "put");
            }
            node.sync();
            if (node.rank.initiator()) {
                EXPECT_GT(growth.of(&C::remote_faults), 0u);
            }
            for (size_t i = 0; node.rank.target() && (i < count); ++i) {
                ASSERT_EQ("", pattern_diff(target.at(i * slot),
                                           (i * 997 * round) % slot,
                                           i + round));
            }
            node.sync();
        }
    });
}

// Data, fence, flag, each on pages that are absent: who sees the flag sees the
// data.
TEST_P(PagingMemory, FenceOrdersDataBeforeFlag)
{
    run(UCP_FEATURE_RMA, [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
        const size_t flag_at = 1 << 20;
        Area local(1 << 19);
        auto *flag = (uint64_t*)target.at(flag_at);

        memset(target.at(), 0, flag_at + 8);
        node.sync();
        for (uint64_t i = 1; i <= 100; ++i) {
            size_t length = (i * 7919) % (i % 10 ? 5000 : 400000);

            turn_absent(target.at(), flag_at + 8);
            node.sync();
            if (node.rank.initiator()) {
                pattern_fill(local.at(), length, i);
                ucs_status_ptr_t data = ucp_put_nbx(
                        node.ep, local.at(), length, remote.address,
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

// Both ranks count on both ranks' words, whose pages go all the time.
TEST_P(PagingMemory, AtomicSumOfAll)
{
    run(UCP_FEATURE_AMO64 | UCP_FEATURE_RMA,
        [](UcpNode &node, UcpMem &target, UcpRemote &remote) {
            const uint64_t count = 1000;
            std::vector<uint64_t> replies(count);
            std::vector<ucs_status_ptr_t> requests;
            auto *word   = (uint64_t*)target.at(64);
            uint64_t one = 1;
            Growth growth;

            *word = 0;
            node.sync();
            for (uint64_t i = 0; i < count; ++i) {
                ucp_request_param_t params = {};

                params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
                params.datatype     = ucp_dt_make_contig(sizeof(one));
                if (i % 2) {
                    params.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
                    params.reply_buffer  = &replies[i];
                }
                requests.push_back(ucp_atomic_op_nbx(
                        node.ep, UCP_ATOMIC_OP_ADD, &one, 1,
                        remote.address + 64, remote.rkey, &params));
                if ((i % 7) == 0) {
                    turn_absent(target.at(), PAGE);
                }
            }
            for (ucs_status_ptr_t request : requests) {
                node.finish(request, "atomic");
            }
            node.flush_worker();
            node.sync();
            EXPECT_EQ(count, __atomic_load_n(word, __ATOMIC_SEQ_CST));
            EXPECT_GT(growth.of(&C::atomics), 0u);
        });
}

INSTANTIATE_TEST_SUITE_P(Ucp, PagingMemory,
                         testing::Combine(testing::ValuesIn(all_modes(false)),
                                          testing::Bool()),
                         [](const auto &info) {
                             return std::get<0>(info.param).name() +
                                    (std::get<1>(info.param) ? "Allocated" :
                                                               "Heap");
                         });

// All that the kernel can take is taken before each message: it comes back from
// swap by the transfer itself.
TEST(PagingSwap, MessagesOutOfSwap)
{
    std::unique_ptr<Swap> swap;

    try {
        swap = std::make_unique<Swap>();
    } catch (const Skipped &reason) {
        GTEST_SKIP() << reason.what();
    }
    for (const Mode &mode : all_modes(true)) {
        SCOPED_TRACE(mode.name());
        mode.run([](Rank &rank) {
            if (!is_nprdma()) {
                throw Skipped("other transports have no page faults of their "
                              "own");
            }
            setenv("UCX_NPRDMA_PREPARE", "off", 1);
            UcpNode node(rank, {UCP_FEATURE_TAG});
            const size_t length = 4 << 20;
            Area from(length), to(length);

            for (uint64_t i = 1; i <= 3; ++i) {
                ucs_status_ptr_t send = nullptr;

                pattern_fill(from.at(), length, i);
                memset(to.at(), i, length);
                page_out(from.at(), length);
                page_out(to.at(), length);
                // Of the first message's pages nprdma knows nothing yet
                if (rank.initiator()) {
                    EXPECT_EQ(i > 1, nprdma_scan(from.at(), length) > 0);
                }
                if (rank.target()) {
                    EXPECT_EQ(i > 1, nprdma_scan(to.at(), length) > 0);
                }
                node.sync();
                Growth growth;
                if (rank.initiator()) {
                    send = ucp_tag_send_nbx(node.ep, from.at(1), length - 1, i,
                                            &no_params());
                }
                if (rank.target()) {
                    node.finish(ucp_tag_recv_nbx(node.worker, to.at(),
                                                 length - 1, i, ~(ucp_tag_t)0,
                                                 &no_params()), "receive");
                    EXPECT_EQ("", pattern_diff(to.at(), length - 1, i, 1));
                }
                if (rank.initiator()) {
                    node.finish(send, "send");
                }
                uint64_t faults = growth.of(&C::remote_faults);
                EXPECT_GT(faults + rank.oob.exchange_value(faults), 0u);
                node.sync();
            }
        });
    }
}

} // namespace
