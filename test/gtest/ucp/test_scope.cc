// SPDX-License-Identifier: BSD-3-Clause
// Endpoints with error handling over exact registrations: UCP then moves
// rendezvous zero-copy, and takes buffers back by invalidating them.
#include "ucp_face.h"

#include "../harness/paging.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

using namespace nt;

namespace {

using C = nprdma_counters_t;

// UCX 1.13's new protocols cannot abort requests, and have no invalidation.
class ScopeTag : public testing::TestWithParam<Mode> {
protected:
    static void run(const char *scope, const Body &body,
                    const RunOptions &options = {})
    {
        Mode mode = GetParam();

        run_ranks([=](Rank &rank) {
            if (!is_nprdma()) {
                throw Skipped("other transports have no scope of registrations");
            }
            use_protocols(mode.protocols);
            setenv("UCX_RNDV_SCHEME", mode.rendezvous, 1);
            setenv("UCX_KEEPALIVE_INTERVAL", "1s", 1);
            setenv("UCX_RNDV_THRESH", "8k", 1);
            setenv("UCX_NPRDMA_MR_SCOPE", scope, 1);
            body(rank);
        }, options);
    }

    static UcpOptions options()
    {
        UcpOptions options = {UCP_FEATURE_TAG};

        options.peer_errors = true;
        return options;
    }

    static void warm_up(UcpNode &node)
    {
        uint64_t out = 1, in = 0;
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(node.worker, &in,
                                                    sizeof(in), 1, ~0ull,
                                                    &no_params());

        node.finish(ucp_tag_send_nbx(node.ep, &out, sizeof(out), 1,
                                     &no_params()), "send");
        node.finish(receive, "receive");
        node.sync();
    }

    // Both ranks send to each other. Returns how many transfers were not
    // messages.
    static uint64_t exchange(UcpNode &node, size_t length, uint64_t seed)
    {
        std::vector<uint8_t> source(length), room(Guarded::space(length));

        return exchange(node, source.data(), room.data(), length, seed);
    }

    static uint64_t exchange(UcpNode &node, uint8_t *source, uint8_t *room,
                             size_t length, uint64_t seed)
    {
        Guarded sink(room, length);
        ucs_status_ptr_t send, receive;
        Growth growth;

        pattern_fill(source, length, seed);
        sink.fill(0);
        receive = ucp_tag_recv_nbx(node.worker, sink.data(), length, seed,
                                   ~0ull, &no_params());
        send    = ucp_tag_send_nbx(node.ep, source, length, seed,
                                   &no_params());
        node.finish(receive, "receive");
        node.finish(send, "send");
        EXPECT_EQ("", sink.diff(seed)) << length;
        node.sync();
        return growth.of(&C::reads) + growth.of(&C::writes) +
               growth.of(&C::remote_faults);
    }
};

TEST_P(ScopeTag, RendezvousIsZeroCopy)
{
    run("exact", [](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("what counts its bytes is soft0's alone");
        }

        UcpNode node(rank, options());
        uint64_t seed = 10;

        warm_up(node);
        for (size_t length : {size_t(10000), size_t(65536), size_t(100001),
                              size_t(1) << 20, size_t(5000001)}) {
            for (int i = 0; i < 10; ++i) {
                EXPECT_GT(exchange(node, length, ++seed), 0u) << length;
            }
        }
    });
}

// Arena scope cannot promise what UCP needs for that: messages.
TEST_P(ScopeTag, WithArenasItIsMessages)
{
    run("arena", [](Rank &rank) {
        UcpNode node(rank, options());

        warm_up(node);
        EXPECT_EQ(0u, exchange(node, 1 << 20, 11));
    });
}

// Memory is unmapped, and other memory is mapped at the same address. UCX that
// keeps registrations in a cache must not take the one for the other.
TEST_P(ScopeTag, OtherMemoryAtTheAddress)
{
    for (const char *scope : {"arena", "exact"}) {
        run(scope, [=](Rank &rank) {
            const size_t length = 1 << 20, size = Guarded::space(length);
            const bool is_exact = (strcmp(scope, "exact") == 0);
            UcpNode node(rank, options());
            uint8_t *at[2]      = {};
            unsigned same       = 0;
            uint64_t moved      = 0;

            warm_up(node);
            for (int round = 0; round < 10; ++round) {
                for (uint8_t *&address : at) {
                    // Or at another, if that was taken meanwhile
                    void *got = mmap(address, size, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                    ASSERT_NE(MAP_FAILED, got);
                    same   += (got == address);
                    address = (uint8_t*)got;
                }
                moved += exchange(node, at[0], at[1], length, 100 + round);
                for (uint8_t *address : at) {
                    ASSERT_EQ(0, munmap(address, size));
                }
            }
            EXPECT_GT(same, 0u);
            // With arenas these are messages: see above
            if (is_exact && is_soft()) {
                EXPECT_GE(moved, 10u);
            }
        });
    }
}

// The sender gives up and uses its buffer for something else, while its message
// is still waiting for a receive: that ends, and gets nothing of it.
TEST_P(ScopeTag, SenderCloses)
{
    run("exact", [](Rank &rank) {
        const size_t length = 1 << 20;
        UcpNode node(rank, options());
        std::vector<uint8_t> data(length);
        ucs_status_ptr_t request;

        warm_up(node);
        if (rank.id == 0) {
            pattern_fill(data.data(), length, 1);
            request = ucp_tag_send_nbx(node.ep, data.data(), length, 5,
                                       &no_params());
            ASSERT_TRUE(UCS_PTR_IS_PTR(request));
            rank.oob.recv();
            node.close(node.ep, UCP_EP_CLOSE_FLAG_FORCE);
            node.ep = nullptr;
            EXPECT_NE(UCS_OK, node.wait(request, "end of the send"));
            pattern_fill(data.data(), length, 2);
            rank.oob.send("closed");
            rank.oob.recv();
            EXPECT_EQ("", pattern_diff(data.data(), length, 2));
        } else {
            ucp_tag_recv_info_t info;
            ucp_tag_message_h message = nullptr;

            node.until("a rendezvous", [&]() {
                message = ucp_tag_probe_nb(node.worker, 5, ~0ull, 1, &info);
                return message != nullptr;
            });
            rank.oob.send("it is here");
            rank.oob.recv();
            pattern_fill(data.data(), length, 3);
            request = ucp_tag_msg_recv_nbx(node.worker, data.data(), length,
                                           message, &no_params());
            EXPECT_NE(UCS_OK, node.wait(request, "end of the receive"));
            EXPECT_NE("", pattern_diff(data.data(), length, 2));
            EXPECT_NE("", pattern_diff(data.data(), 8, 2));
            rank.oob.send("received");
        }
        // Whether both wait for each other when they close
        node.errors |= rank.oob.exchange_value(node.errors);
    });
}

// The receiver is killed in the middle: all requests end, and the buffers are
// the program's again.
TEST_P(ScopeTag, ReceiverIsKilled)
{
    RunOptions options;

    options.peer_dies = true;
    run("exact", [](Rank &rank) {
        const size_t length = 16 << 20;
        UcpNode node(rank, ScopeTag::options());
        std::vector<uint8_t> data(length, rank.id == 0);

        warm_up(node);
        if (rank.id == 1) {
            auto *first = (volatile uint8_t*)&data[0];
            ucs_status_ptr_t request = ucp_tag_recv_nbx(
                    node.worker, data.data(), length, 5, ~0ull, &no_params());
            node.until("first byte", [&]() { return *first != 0; });
            EXPECT_TRUE(UCS_PTR_IS_PTR(request));
            raise(SIGKILL);
        }

        std::vector<ucs_status_ptr_t> requests;
        for (int i = 0; i < 6; ++i) {
            requests.push_back(ucp_tag_send_nbx(node.ep, data.data(), length,
                                                5, &no_params()));
        }
        node.until("call of the error handler",
                   [&]() { return node.errors > 0; });
        unsigned failed = 0;
        for (ucs_status_ptr_t request : requests) {
            failed += node.wait(request, "end of a send") != UCS_OK;
        }
        EXPECT_GE(failed, 5u);
        EXPECT_EQ(1u, node.errors);
        pattern_fill(data.data(), length, 2);
        for (int i = 0; i < 1000; ++i) {
            node.progress();
        }
        EXPECT_EQ("", pattern_diff(data.data(), length, 2));
    }, options);
}

// The sender is killed while its receiver fetches.
TEST_P(ScopeTag, SenderIsKilled)
{
    RunOptions options;

    options.peer_dies = true;
    run("exact", [](Rank &rank) {
        const size_t length = 16 << 20;
        UcpNode node(rank, ScopeTag::options());
        std::vector<uint8_t> data(length, rank.id == 1);

        warm_up(node);
        if (rank.id == 1) {
            ucs_status_ptr_t request = ucp_tag_send_nbx(
                    node.ep, data.data(), length, 5, &no_params());
            EXPECT_TRUE(UCS_PTR_IS_PTR(request));
            node.until("the end, which kills", []() { return false; });
        }

        auto *first = (volatile uint8_t*)&data[0];
        ucs_status_ptr_t request = ucp_tag_recv_nbx(
                node.worker, data.data(), length, 5, ~0ull, &no_params());
        node.until("first byte", [&]() { return *first != 0; });
        kill(rank.peer, SIGKILL);
        node.wait(request, "end of the receive"); // well, if it was quick
        node.until("call of the error handler",
                   [&]() { return node.errors > 0; });
        pattern_fill(data.data(), length, 2);
        for (int i = 0; i < 1000; ++i) {
            node.progress();
        }
        EXPECT_EQ("", pattern_diff(data.data(), length, 2));
    }, options);
}

INSTANTIATE_TEST_SUITE_P(
        Ucp, ScopeTag,
        testing::ValuesIn(usual_modes()), mode_name);

} // namespace
