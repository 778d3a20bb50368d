// SPDX-License-Identifier: BSD-3-Clause
// Peers that are killed: every request ends, and the program is told.
#include "ucp_face.h"

#include <signal.h>
#include <stdlib.h>

#include <cstring>

using namespace nt;

namespace {

class Killed : public testing::TestWithParam<Mode> {
protected:
    static UcpOptions options(uint64_t features)
    {
        UcpOptions options = {features};

        options.peer_errors = true;
        return options;
    }

    static void run(const Body &body)
    {
        Mode mode = GetParam();
        RunOptions options;

        options.peer_dies = true;
        run_ranks([body, mode](Rank &rank) {
            use_protocols(mode.protocols);
            setenv("UCX_RNDV_SCHEME", mode.rendezvous, 1);
            setenv("UCX_KEEPALIVE_INTERVAL", "1s", 1);
            body(rank);
        }, options);
    }

    static void wait_for_error(UcpNode &node)
    {
        node.until("call of the error handler",
                   [&]() { return node.errors > 0; });
        EXPECT_EQ(1u, node.errors);
    }

    // A request of a dead peer ends, and not well.
    static void expect_failed(UcpNode &node, ucs_status_ptr_t request,
                              const char *what)
    {
        EXPECT_NE(UCS_OK, node.wait(request, what)) << what;
    }

    // Send and receive, so that both sides are connected.
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
};

// What UCX 1.13's new protocols can do too: they cannot abort requests.
class KilledIdle : public Killed {
};

// Nothing is being sent: keep-alive must find out.
TEST_P(KilledIdle, IsReported)
{
    run([](Rank &rank) {
        UcpNode node(rank, options(UCP_FEATURE_TAG));

        warm_up(node);
        if (rank.id == 1) {
            raise(SIGKILL);
        }
        wait_for_error(node);
    });
}

// UCP has one of its own for what is sent after the error; the handler is told
// the same.
TEST_P(Killed, HasOneStatus)
{
    run([](Rank &rank) {
        UcpNode node(rank, options(UCP_FEATURE_TAG));
        uint64_t word = 1;

        if (!is_nprdma()) {
            throw Skipped("what others call it is theirs");
        }
        warm_up(node);
        if (rank.id == 1) {
            raise(SIGKILL);
        }
        rank.oob.wait_peer_gone(rank.peer);
        wait_for_error(node);
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, node.error);
        EXPECT_EQ(node.error,
                  node.wait(ucp_tag_send_nbx(node.ep, &word, sizeof(word), 5,
                                             &no_params()),
                            "send after the error"));
    });
}

TEST_P(Killed, SendsThatNobodyMatches)
{
    run([](Rank &rank) {
        UcpNode node(rank, options(UCP_FEATURE_TAG));
        std::vector<uint8_t> data(1 << 20);
        std::vector<ucs_status_ptr_t> requests;

        warm_up(node);
        if (rank.id == 1) {
            ucp_tag_recv_info_t info;
            node.until("a rendezvous", [&]() {
                return ucp_tag_probe_nb(node.worker, 5, ~0ull, 0, &info) !=
                       nullptr;
            });
            raise(SIGKILL);
        }
        for (int i = 0; i < 8; ++i) {
            requests.push_back(ucp_tag_send_nbx(node.ep, data.data(),
                                                data.size(), 5,
                                                &no_params()));
        }
        wait_for_error(node);
        for (ucs_status_ptr_t request : requests) {
            expect_failed(node, request, "send to a dead peer");
        }
    });
}

// The receiver is killed while data move.
TEST_P(Killed, InMidTransfer)
{
    run([](Rank &rank) {
        const size_t length = 16 << 20;
        UcpNode node(rank, options(UCP_FEATURE_TAG));
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
        // Sends until one fails; each of them ends
        node.until("failed send", [&]() {
            return node.wait(ucp_tag_send_nbx(node.ep, data.data(), length, 5,
                                              &no_params()),
                             "end of a send") != UCS_OK;
        });
        wait_for_error(node);
    });
}

// The sender is killed while its receiver fetches.
TEST_P(Killed, SenderInRendezvous)
{
    run([](Rank &rank) {
        const size_t length = 8 << 20;
        UcpNode node(rank, options(UCP_FEATURE_TAG));
        std::vector<uint8_t> data(length);
        ucs_status_ptr_t request;

        warm_up(node);
        if (rank.id == 1) {
            request = ucp_tag_send_nbx(node.ep, data.data(), length, 5,
                                       &no_params());
            node.flush_worker();
            EXPECT_TRUE(UCS_PTR_IS_PTR(request));
            rank.oob.recv();
            raise(SIGKILL);
        }

        ucp_tag_recv_info_t info;
        ucp_tag_message_h message = nullptr;
        node.until("a rendezvous", [&]() {
            message = ucp_tag_probe_nb(node.worker, 5, ~0ull, 1, &info);
            return message != nullptr;
        });
        rank.oob.send("die");
        rank.oob.wait_peer_gone(rank.peer);
        request = ucp_tag_msg_recv_nbx(node.worker, data.data(), length,
                                       message, &no_params());
        ucs_status_t status = node.wait(request, "receive from a dead peer");
        wait_for_error(node);
        if (status == UCS_OK) {
            ASSERT_TRUE(ucx_has(16));
            throw Skipped("UCX 1.18 ends a receive from a dead sender with "
                          "success, over tcp too");
        }
    });
}

TEST_P(Killed, OneSided)
{
    run([](Rank &rank) {
        const size_t length = 4 << 20;
        UcpNode node(rank, options(UCP_FEATURE_TAG | UCP_FEATURE_RMA |
                                   UCP_FEATURE_AMO64));
        std::vector<uint8_t> local(length, 1);
        UcpMem target(node, length, false);
        UcpRemote remote(node.ep, rank.oob.exchange(target.describe()));
        unsigned posted = 0;

        memset(target.at(), 0, length);
        warm_up(node);
        if (rank.id == 1) {
            auto *first = (volatile uint8_t*)target.at();
            node.until("first byte", [&]() { return *first != 0; });
            raise(SIGKILL);
        }
        node.until("failed transfer", [&]() {
            ucs_status_ptr_t request =
                    (++posted % 2) ?
                    ucp_put_nbx(node.ep, local.data(), length, remote.address,
                                remote.rkey, &no_params()) :
                    ucp_get_nbx(node.ep, local.data(), length, remote.address,
                                remote.rkey, &no_params());
            return (node.wait(request, "end of a transfer") != UCS_OK) ||
                   (node.errors > 0);
        });
        wait_for_error(node);
    });
}

// The flush of an endpoint whose peer has died ends too.
TEST_P(Killed, Flush)
{
    run([](Rank &rank) {
        UcpNode node(rank, options(UCP_FEATURE_TAG));
        std::vector<uint8_t> data(100000);
        std::vector<ucs_status_ptr_t> requests;

        warm_up(node);
        if (rank.id == 1) {
            raise(SIGKILL);
        }
        rank.oob.progress_with(nullptr);
        rank.oob.wait_peer_gone(rank.peer);
        for (int i = 0; i < 100; ++i) {
            requests.push_back(ucp_tag_send_nbx(node.ep, data.data(),
                                                (i % 2) ? 8 : data.size(), 5,
                                                &no_params()));
        }
        requests.push_back(ucp_ep_flush_nbx(node.ep, &no_params()));
        for (ucs_status_ptr_t request : requests) {
            node.wait(request, "end of a request");
        }
        wait_for_error(node);
    });
}

// A third rank's worth of work goes on: here, messages to oneself.
TEST_P(KilledIdle, OthersGoOn)
{
    run([](Rank &rank) {
        UcpNode node(rank, options(UCP_FEATURE_TAG));
        ucp_address_t *address;
        size_t length;

        warm_up(node);
        if (rank.id == 1) {
            raise(SIGKILL);
        }
        wait_for_error(node);

        check(ucp_worker_get_address(node.worker, &address, &length),
              "ucp_worker_get_address");
        ucp_ep_h self = node.connect(std::string((char*)address, length));
        ucp_worker_release_address(node.worker, address);
        std::vector<uint8_t> source(300000), sink(300000);
        for (uint64_t i = 0; i < 20; ++i) {
            pattern_fill(source.data(), source.size(), i);
            ucs_status_ptr_t in  = ucp_tag_recv_nbx(node.worker, sink.data(),
                                                    sink.size(), i, ~0ull,
                                                    &no_params());
            ucs_status_ptr_t out = ucp_tag_send_nbx(self, source.data(),
                                                    source.size(), i,
                                                    &no_params());
            node.finish(in, "receive");
            node.finish(out, "send");
            EXPECT_EQ("", pattern_diff(sink.data(), sink.size(), i));
        }
        node.close(self, 0);
    });
}

INSTANTIATE_TEST_SUITE_P(
        Ucp, Killed,
        testing::ValuesIn(usual_modes()), mode_name);

INSTANTIATE_TEST_SUITE_P(
        Ucp, KilledIdle,
        testing::Values(Mode{"n", "auto", 2}, Mode{"y", "auto", 2}),
        mode_name);

} // namespace
