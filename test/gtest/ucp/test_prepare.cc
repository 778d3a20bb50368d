// SPDX-License-Identifier: BSD-3-Clause
// Buffers that are brought in as soon as their transfer is posted.
#include "prepare_scene.h"

#include "../harness/swap.h"

#include <cstring>
#include <memory>
#include <vector>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t LENGTH = 4 * MIB;

class Prepare : public testing::TestWithParam<Mode> {
protected:
    static void run(const std::vector<std::string> &settings, const Body &body)
    {
        GetParam().run([=](Rank &rank) {
            prepare_settings(settings);
            body(rank);
        });
    }
};

// What a receive brings in, before anything was sent.
void receive_first(UcpNode &node, size_t length, size_t prepared)
{
    Area from(length), to(length);
    ucs_status_ptr_t receive = nullptr;

    meet(node);
    if (node.rank.initiator()) {
        pattern_fill(from.at(), length, 5);
    }
    node.sync();

    Growth growth;
    if (node.rank.target()) {
        receive = ucp_tag_recv_nbx(node.worker, to.at(), length, 1, ALL,
                                   &no_params());
        turns(node);
        EXPECT_EQ(prepared / PAGE, resident(to, length));
        EXPECT_EQ(prepared / QUANTUM, growth.of(&C::prepared));
    }
    node.sync();

    if (node.rank.initiator()) {
        node.finish(ucp_tag_send_nbx(node.ep, from.at(), length, 1,
                                     &no_params()), "send");
    }
    if (node.rank.target()) {
        node.finish(receive, "receive");
        EXPECT_EQ("", pattern_diff(to.at(), length, 5));
    }
    node.sync();
    if ((prepared == length) && (node.rank.count == 2) &&
        node.rank.target()) {
        EXPECT_EQ(0u, growth.of(&C::local_faults));
    }
}

TEST_P(Prepare, Receive)
{
    run({"PREPARE=recv"}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        receive_first(node, LENGTH, LENGTH);
    });
}

TEST_P(Prepare, ReceiveIsNot)
{
    for (const char *mode : {"PREPARE=off", "PREPARE=send"}) {
        SCOPED_TRACE(mode);
        run({mode}, [](Rank &rank) {
            UcpNode node(rank, {UCP_FEATURE_TAG});
            receive_first(node, LENGTH, 0);
        });
    }
}

TEST_P(Prepare, NotTheSmall)
{
    run({"PREPARE_MIN=1m"}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        receive_first(node, MIB - PAGE, 0);
        receive_first(node, MIB, MIB);
    });
}

TEST_P(Prepare, NotBeyondTheLimit)
{
    run({"PREPARE_MAX=1m"}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        receive_first(node, LENGTH, MIB);
    });
}

// A message that is not expected waits for its receive; what it will be read
// from is mapped meanwhile, and then nobody is asked for it.
TEST_P(Prepare, Send)
{
    // A put's memory is the receiver's, who has just posted it
    bool by_put = std::string("put_zcopy") == GetParam().rendezvous;

    run({"PREPARE=both", "SHARE_MIN=inf"}, [=](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area from(LENGTH), to(LENGTH);
        ucs_status_ptr_t send = nullptr, receive;

        meet(node);
        pattern_fill(from.at(), LENGTH, 6);
        turn_absent(from.at(), LENGTH);
        node.sync();
        Growth growth;
        if (rank.initiator()) {
            send = ucp_tag_send_nbx(node.ep, from.at(), LENGTH, 2,
                                    &no_params());
            turns(node);
            EXPECT_EQ(LENGTH / QUANTUM, growth.of(&C::prepared));
        }
        node.sync();
        if (rank.target()) {
            receive = ucp_tag_recv_nbx(node.worker, to.at(), LENGTH, 2, ALL,
                                       &no_params());
            turns(node);
            node.finish(receive, "receive");
            EXPECT_EQ("", pattern_diff(to.at(), LENGTH, 6));
        }
        if (rank.initiator()) {
            node.finish(send, "send");
        }
        node.sync();
        if (!by_put) {
            EXPECT_EQ(0u, growth.of(&C::remote_faults));
        }
    });
}

// What is mapped already costs no progress.
TEST_P(Prepare, WarmIsLeftAlone)
{
    run({}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area to(LENGTH), from(LENGTH);

        for (int round = 0; round < 3; ++round) {
            ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                    node.worker, to.at(), LENGTH, 3, ALL, &no_params());
            turns(node);
            Growth growth;
            ucs_status_ptr_t send = ucp_tag_send_nbx(
                    node.ep, from.at(), LENGTH, 3, &no_params());
            turns(node);
            // the transfer may be over before all of it is brought in
            EXPECT_LE(growth.of(&C::prepared),
                      (round == 0) ? LENGTH / QUANTUM : 0u);
            node.finish(receive, "receive");
            node.finish(send, "send");
            node.sync();
        }
    });
}

// The program takes its buffer back while it waits to be brought in.
TEST_P(Prepare, BufferIsGone)
{
    run({}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});

        for (int i = 0; i < 20; ++i) {
            Area to(LENGTH);
            ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                    node.worker, to.at(), LENGTH, 4, ALL, &no_params());

            for (int turn = 0; turn < i; ++turn) {
                node.progress();
            }
            ucp_request_cancel(node.worker, receive);
            to.protect((i % 3) * MIB, MIB, PROT_NONE);
            EXPECT_EQ(UCS_ERR_CANCELED, node.wait(receive, "cancel"));
            if ((i % 2) == 0) {
                turns(node);
            } // else it is unmapped first
        }
        turns(node);
        receive_first(node, LENGTH, LENGTH);
    });
}

// Read-only memory cannot be received into: the request says so, or is never
// matched; to prepare it harms nobody, and ends at the first error.
TEST_P(Prepare, ReadOnly)
{
    run({}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area to(LENGTH);

        to.protect(MIB, MIB, PROT_READ);
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                node.worker, to.at(), LENGTH, 4, ALL, &no_params());
        turns(node);
        ucp_request_cancel(node.worker, receive);
        EXPECT_EQ(UCS_ERR_CANCELED, node.wait(receive, "cancel"));
        EXPECT_EQ(MIB / PAGE, resident(to, LENGTH));
        receive_first(node, LENGTH, LENGTH);
    });
}

// Lists of buffers, and each function that may be told of.
TEST_P(Prepare, EveryCall)
{
    run({"PREPARE_MIN=4k"}, [](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG | UCP_FEATURE_STREAM |
                            UCP_FEATURE_RMA | UCP_FEATURE_AM});
        ucp_request_param_t list  = no_params();
        ucp_request_param_t words = no_params();
        ucs_status_ptr_t receive, send;
        size_t length;

        list.op_attr_mask  = UCP_OP_ATTR_FIELD_DATATYPE;
        list.datatype      = UCP_DATATYPE_IOV;
        words.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                             UCP_OP_ATTR_FIELD_FLAGS;
        words.datatype     = ucp_dt_make_contig(8);
        words.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
        for (int round = 0; round < 4; ++round) {
            Area to(LENGTH), from(LENGTH);
            ucp_dt_iov_t sinks[3]  = {{to.at(), MIB},
                                      {to.at(MIB), 1},
                                      {to.at(MIB + 1), LENGTH - MIB - 1}};
            ucp_dt_iov_t source[2] = {{from.at(), 10},
                                      {from.at(10), LENGTH - 10}};
            int other = (rank.count == 1) ? rank.id : 1 - rank.id;

            pattern_fill(from.at(), LENGTH, 10 * round + rank.id);
            if (round < 2) {
                receive = ucp_tag_recv_nbx(node.worker, sinks, 3, 7, ALL,
                                           &list);
            } else {
                receive = ucp_stream_recv_nbx(node.ep, to.at(), LENGTH / 8,
                                              &length, &words);
            }
            turns(node);
            if (round == 0) {
                send = ucp_tag_send_sync_nbx(node.ep, from.at(), LENGTH, 7,
                                             &no_params());
            } else if (round == 1) {
                send = ucp_tag_send_nbx(node.ep, source, 2, 7, &list);
            } else {
                send = ucp_stream_send_nbx(node.ep, from.at(), LENGTH,
                                           &no_params());
            }
            node.finish(send, "send");
            node.finish(receive, "receive");
            EXPECT_EQ("", pattern_diff(to.at(), LENGTH, 10 * round + other));
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, Prepare, testing::ValuesIn(all_modes(true)),
                         mode_name);

// Where pages must be waited for, memory is short: a buffer that nothing was sent
// to yet stays out.
TEST(PrepareSwap, Dropped)
{
    std::unique_ptr<Swap> swap;

    try {
        swap = std::make_unique<Swap>();
    } catch (const Skipped &reason) {
        GTEST_SKIP() << reason.what();
    }
    Mode{usual_protocols(), "auto", 1}.run([](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("what is looked at is soft0's");
        }
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area from(LENGTH), to(LENGTH);

        pattern_fill(from.at(), LENGTH, 3);
        memset(to.at(), 1, LENGTH);
        page_out(to.at(), LENGTH);
        Growth growth;
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                node.worker, to.at(), LENGTH, 1, ALL, &no_params());
        turns(node);
        EXPECT_GT(growth.of(&C::prepare_drops), 0u);
        EXPECT_LT(growth.of(&C::prepared), LENGTH / QUANTUM / 2);
        node.finish(ucp_tag_send_nbx(node.ep, from.at(), LENGTH, 1,
                                     &no_params()), "send");
        node.finish(receive, "receive");
        EXPECT_EQ("", pattern_diff(to.at(), LENGTH, 3));
    });
}

} // namespace
