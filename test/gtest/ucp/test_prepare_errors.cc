// SPDX-License-Identifier: BSD-3-Clause
// Announced buffers that are not there, and whose peer is not there any more.
#include "prepare_scene.h"

#include <signal.h>

#include <cstdlib>
#include <functional>
#include <vector>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t LENGTH = 4 * MIB;

// Far from where the kernel puts mappings: nothing else comes into the holes.
constexpr uint64_t SOURCE = UINT64_C(0x200000000000);
constexpr uint64_t SINK   = UINT64_C(0x210000000000);

class PrepareHole : public testing::TestWithParam<Mode> {
protected:
    // A message from or into a buffer with a hole ends in an error where the
    // data is moved, and the peers can go on.
    static void run(bool is_source, const char *prepare)
    {
        Mode mode    = GetParam();
        bool by_put  = std::string("put_zcopy") == mode.rendezvous;
        // 1.13's new protocols do not look at what became of a get: there, only
        // that it ends is to be seen.
        bool is_blind = (std::string("y") == mode.protocols) && !ucx_has(15);

        mode.run([=](Rank &rank) {
            prepare_settings({prepare});
            UcpNode node(rank, {UCP_FEATURE_TAG});
            Area from(SOURCE, LENGTH), to(SINK, LENGTH);
            ucs_status_ptr_t send = nullptr, receive = nullptr;

            meet(node);
            pattern_fill(from.at(), LENGTH, 5);
            (is_source ? from : to).unmap(LENGTH / 2, MIB);
            if (rank.target()) {
                receive = ucp_tag_recv_nbx(node.worker, to.at(), LENGTH, 1,
                                           ALL, &no_params());
                turns(node);
            }
            node.sync();
            if (rank.initiator()) {
                send = ucp_tag_send_nbx(node.ep, from.at(), LENGTH, 1,
                                        &no_params());
                turns(node);
            }
            expect_error(node, by_put ? send : receive, is_blind);
            if (is_blind) {
                node.wait(by_put ? receive : send, "message at the other end");
            } // else it stays: UCP acknowledges nothing after an error
            node.sync();
            another(node);
        });
    }

private:
    // Who moves the data is told.
    static void expect_error(UcpNode &node, ucs_status_ptr_t request, bool any)
    {
        if (request != nullptr) {
            ucs_status_t status = node.wait(request, "message");
            EXPECT_TRUE(any || (status == UCS_ERR_INVALID_ADDR))
                    << ucs_status_string(status);
        }
    }

    static void another(UcpNode &node)
    {
        Area from(LENGTH), to(LENGTH);
        ucs_status_ptr_t send = nullptr, receive = nullptr;

        pattern_fill(from.at(), LENGTH, 6);
        if (node.rank.target()) {
            receive = ucp_tag_recv_nbx(node.worker, to.at(), LENGTH, 2, ALL,
                                       &no_params());
        }
        if (node.rank.initiator()) {
            send = ucp_tag_send_nbx(node.ep, from.at(), LENGTH, 2,
                                    &no_params());
        }
        if (node.rank.target()) {
            node.finish(receive, "receive");
            EXPECT_EQ("", pattern_diff(to.at(), LENGTH, 6));
        }
        if (node.rank.initiator()) {
            node.finish(send, "send");
        }
        node.sync();
    }
};

TEST_P(PrepareHole, InTheSink)
{
    for (const char *prepare : {"PREPARE=both", "PREPARE=off"}) {
        SCOPED_TRACE(prepare);
        run(false, prepare);
    }
}

TEST_P(PrepareHole, InTheSource)
{
    for (const char *prepare : {"PREPARE=both", "PREPARE=off"}) {
        SCOPED_TRACE(prepare);
        run(true, prepare);
    }
}

// Not by 1.13's new protocols and put: they tell the receiver behind a fence that
// the data is there, so the endpoint fails (FencedRefusal), and then UCP asserts
// that it has nothing to give up.
std::vector<Mode> hole_modes()
{
    std::vector<Mode> modes;

    for (const Mode &mode : all_modes(true)) {
        if ((std::string("y") != mode.protocols) ||
            (std::string("put_zcopy") != mode.rendezvous)) {
            modes.push_back(mode);
        }
    }
    return modes;
}

INSTANTIATE_TEST_SUITE_P(Ucp, PrepareHole, testing::ValuesIn(hole_modes()),
                         mode_name);

// What the survivor has when its peer is killed.
struct Post {
    Area             area{LENGTH};
    ucs_status_ptr_t request = nullptr;
};

class PrepareKilled : public testing::TestWithParam<Mode> {
protected:
    using Scene = std::function<void(UcpNode&)>;

    // With regions of their own ("exact") rendezvous moves the data by itself
    // even if errors are handled; else in fragments.
    static void run(const Scene &scene)
    {
        for (const char *scope : {"MR_SCOPE=arena", "MR_SCOPE=exact"}) {
            SCOPED_TRACE(scope);
            Mode mode = GetParam();
            RunOptions options;

            options.peer_dies = true;
            run_ranks([=](Rank &rank) {
                UcpOptions features = {UCP_FEATURE_TAG};

                use_protocols(mode.protocols);
                setenv("UCX_RNDV_SCHEME", mode.rendezvous, 1);
                setenv("UCX_KEEPALIVE_INTERVAL", "1s", 1);
                prepare_settings({scope});
                features.peer_errors = true;
                UcpNode node(rank, features);
                meet(node);
                scene(node);
            }, options);
        }
    }

    static void wait_for_error(UcpNode &node)
    {
        node.until("call of the error handler",
                   [&]() { return node.errors > 0; });
        EXPECT_EQ(1u, node.errors);
        turns(node);
    }

    // An error, or the right data.
    static void end_receive(UcpNode &node, Post &post)
    {
        if (node.wait(post.request, "receive from a dead peer") == UCS_OK) {
            EXPECT_EQ("", pattern_diff(post.area.at(), LENGTH, 8));
        }
    }

    // Who stays posts `count` receives.
    static void receive(UcpNode &node, std::vector<Post> &posts)
    {
        for (Post &post : posts) {
            post.request = ucp_tag_recv_nbx(node.worker, post.area.at(),
                                            LENGTH, 1, ALL, &no_params());
        }
    }

    static void send(UcpNode &node, std::vector<Post> &posts)
    {
        for (Post &post : posts) {
            pattern_fill(post.area.at(), LENGTH, 8);
            post.request = ucp_tag_send_nbx(node.ep, post.area.at(), LENGTH, 1,
                                            &no_params());
        }
    }
};

constexpr size_t COUNT = 6;

// Nothing was sent yet, and most of the buffers are still to be brought in.
TEST_P(PrepareKilled, AnnouncedBuffersWait)
{
    run([](UcpNode &node) {
        std::vector<Post> posts(COUNT);

        if (node.rank.id == 1) {
            node.rank.oob.recv();
            raise(SIGKILL);
        }
        Growth growth;
        receive(node, posts);
        turns(node, 10);
        EXPECT_LE(growth.of(&C::prepared), 10u);
        node.rank.oob.send("die");
        wait_for_error(node);
        for (Post &post : posts) {
            EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(post.request));
            ucp_request_cancel(node.worker, post.request);
            EXPECT_EQ(UCS_ERR_CANCELED, node.wait(post.request, "cancel"));
        }
    });
}

// The sender dies when its messages have come and the receiver's keys are, or
// are not yet, on their way to it; it does not look at them.
TEST_P(PrepareKilled, SenderBeforeTheKey)
{
    for (int moment : {0, 1, 3, 10, 100}) {
        SCOPED_TRACE(moment);
        run([=](UcpNode &node) {
            std::vector<Post> posts(COUNT);

            if (node.rank.id == 1) {
                send(node, posts);
                node.flush_worker();
                node.rank.oob.progress_with(nullptr);
                node.rank.oob.send("sent");
                node.rank.oob.recv();
                raise(SIGKILL);
            }
            node.rank.oob.recv();
            receive(node, posts);
            turns(node, moment);
            node.rank.oob.send("die");
            wait_for_error(node);
            for (Post &post : posts) {
                // one of which all had come was complete at once
                if (UCS_PTR_IS_PTR(post.request) &&
                    (ucp_request_check_status(post.request) ==
                     UCS_INPROGRESS)) {
                    ucp_request_cancel(node.worker, post.request);
                }
                end_receive(node, post);
            }
        });
    }
}

// The receiver dies when it has the messages, or has just posted receives.
TEST_P(PrepareKilled, ReceiverBeforeTheKey)
{
    for (int moment : {-1, 0, 1, 3, 10}) {
        SCOPED_TRACE(moment);
        run([=](UcpNode &node) {
            std::vector<Post> posts(COUNT);

            if (node.rank.id == 1) {
                ucp_tag_recv_info_t info;

                node.until("a rendezvous", [&]() {
                    return ucp_tag_probe_nb(node.worker, 1, ALL, 0, &info) !=
                           nullptr;
                });
                if (moment >= 0) {
                    receive(node, posts);
                    turns(node, moment);
                }
                raise(SIGKILL);
            }
            send(node, posts);
            wait_for_error(node);
            for (Post &post : posts) {
                node.wait(post.request, "send to a dead peer");
                EXPECT_EQ("", pattern_diff(post.area.at(), LENGTH, 8));
            }
        });
    }
}

// UCX 1.13's new protocols cannot abort requests.
INSTANTIATE_TEST_SUITE_P(
        Ucp, PrepareKilled,
        testing::ValuesIn(usual_modes()), mode_name);

} // namespace
