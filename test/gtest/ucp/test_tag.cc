// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages: eager and rendezvous, expected and unexpected.
#include "ucp_face.h"

#include <cstring>
#include <deque>

using namespace nt;

namespace {

constexpr size_t LARGEST    = 8 << 20;
constexpr ucp_tag_t ANY     = 0;
constexpr ucp_tag_t EXACTLY = ~(ucp_tag_t)0;

class Tag : public testing::TestWithParam<Mode> {
protected:
    static UcpOptions options()
    {
        UcpOptions options = {UCP_FEATURE_TAG};
        return options;
    }

    // A receive, and what arrived by it.
    struct Receive {
        ucs_status_ptr_t    request = nullptr;
        ucp_tag_recv_info_t info    = {};

        void post(UcpNode &node, void *buffer, size_t length, ucp_tag_t tag,
                  ucp_tag_t mask)
        {
            ucp_request_param_t params = {};

            // Only a request tells the tag and the length in UCX 1.13
            params.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            request = ucp_tag_recv_nbx(node.worker, buffer, length, tag, mask,
                                       &params);
        }

        ucs_status_t wait(UcpNode &node)
        {
            ucs_status_t status = UCS_INPROGRESS;

            if (!UCS_PTR_IS_PTR(request)) {
                return UCS_PTR_STATUS(request);
            }
            node.until("receive", [&]() {
                status = ucp_tag_recv_request_test(request, &info);
                return status != UCS_INPROGRESS;
            });
            ucp_request_free(request);
            return status;
        }
    };

    static ucs_status_ptr_t send(UcpNode &node, const void *buffer,
                                 size_t length, ucp_tag_t tag)
    {
        return ucp_tag_send_nbx(node.ep, buffer, length, tag, &no_params());
    }

    // Until a message with this tag waits to be received.
    static void arrive(UcpNode &node, ucp_tag_t tag)
    {
        ucp_tag_recv_info_t info;

        node.until("unexpected message", [&]() {
            return ucp_tag_probe_nb(node.worker, tag, EXACTLY, 0, &info) !=
                   nullptr;
        });
    }

    // One message of every size, from and to unaligned buffers.
    static void every_size(UcpNode &node, bool expected, bool synchronous)
    {
        std::vector<uint8_t> source(LARGEST + 64);
        std::vector<uint8_t> sink(Guarded::space(LARGEST) + 64);
        ucp_tag_t tag = 0;

        for (size_t length : sizes_around(LARGEST)) {
            uint8_t *from = source.data() + (tag * 7) % 64;
            Guarded to(sink.data() + (tag * 5) % 64, length);
            ucs_status_ptr_t request = nullptr;
            Receive receive;

            ++tag;
            to.fill(0);
            pattern_fill(from, length, tag);
            if (expected && node.rank.target()) {
                receive.post(node, to.data(), length, tag, EXACTLY);
            }
            if (expected) {
                node.sync();
            }
            if (node.rank.initiator()) {
                request = synchronous ?
                          ucp_tag_send_sync_nbx(node.ep, from, length, tag,
                                                &no_params()) :
                          send(node, from, length, tag);
            }
            if (!expected && node.rank.target()) {
                arrive(node, tag);
                receive.post(node, to.data(), length, tag, EXACTLY);
            }
            if (node.rank.target()) {
                ASSERT_EQ(UCS_OK, receive.wait(node));
                ASSERT_EQ(length, receive.info.length);
                ASSERT_EQ(tag, receive.info.sender_tag);
                ASSERT_EQ("", to.diff(tag)) << length << " bytes";
            }
            if (node.rank.initiator()) {
                node.finish(request, "send");
            }
        }
        node.sync();
    }
};

TEST_P(Tag, EverySizeExpected)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());
        every_size(node, true, false);
    });
}

TEST_P(Tag, EverySizeUnexpected)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());
        every_size(node, false, false);
    });
}

TEST_P(Tag, EverySizeSynchronous)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());
        every_size(node, true, true);
    });
}

TEST_P(Tag, SynchronousSendWaitsForTheMatch)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());

        for (size_t length : {8, 200000}) {
            std::vector<uint8_t> source(length), sink(length);
            ucs_status_ptr_t request = nullptr;

            pattern_fill(source.data(), length, length);
            if (rank.initiator()) {
                request = ucp_tag_send_sync_nbx(node.ep, source.data(),
                                                length, 1, &no_params());
                ASSERT_TRUE(UCS_PTR_IS_PTR(request));
            }
            if (rank.target()) {
                arrive(node, 1);
            }
            node.sync();
            if (rank.initiator()) {
                EXPECT_EQ(UCS_INPROGRESS, ucp_request_check_status(request));
            }
            node.sync();
            if (rank.target()) {
                Receive receive;
                receive.post(node, sink.data(), length, 1, EXACTLY);
                EXPECT_EQ(UCS_OK, receive.wait(node));
                EXPECT_EQ("", pattern_diff(sink.data(), length, length));
            }
            if (rank.initiator()) {
                node.finish(request, "synchronous send");
            }
            node.sync();
        }
    });
}

// Messages come in the order of their sending, whatever their sizes.
TEST_P(Tag, OrderAndAnyTag)
{
    GetParam().run([](Rank &rank) {
        const size_t sizes[] = {8, 70000, 0, 1000, 300000, 40, 9000};
        const size_t count   = 7 * 20, largest = 300000;
        UcpNode node(rank, options());
        std::vector<std::vector<uint8_t>> sources;
        std::vector<ucs_status_ptr_t> requests;
        std::vector<uint8_t> sink(largest);

        for (size_t i = 0; rank.initiator() && (i < count); ++i) {
            sources.emplace_back(sizes[i % 7]);
            pattern_fill(sources[i].data(), sizes[i % 7], i);
            requests.push_back(send(node, sources[i].data(), sizes[i % 7],
                                    (i << 8) | 0x77));
        }
        for (size_t i = 0; rank.target() && (i < count); ++i) {
            Receive receive;
            receive.post(node, sink.data(), largest, (i % 2) ? 0x77 : 0,
                         (i % 2) ? 0xff : ANY);
            ASSERT_EQ(UCS_OK, receive.wait(node));
            ASSERT_EQ((i << 8) | 0x77, receive.info.sender_tag);
            ASSERT_EQ(sizes[i % 7], receive.info.length);
            ASSERT_EQ("", pattern_diff(sink.data(), sizes[i % 7], i));
        }
        for (ucs_status_ptr_t request : requests) {
            node.finish(request, "send");
        }
    });
}

TEST_P(Tag, TruncationIsAnErrorAndWritesNothingMore)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());

        for (bool expected : {true, false}) {
            for (size_t length : {100, 5000, 200000, 2000000}) {
                std::vector<uint8_t> source(length);
                std::vector<uint8_t> sink(Guarded::space(length));
                size_t room = length / 2;
                Guarded to(sink.data(), room);
                ucs_status_ptr_t request = nullptr;
                Receive receive;

                if (expected && rank.target()) {
                    receive.post(node, to.data(), room, 3, EXACTLY);
                }
                node.sync();
                if (rank.initiator()) {
                    request = send(node, source.data(), length, 3);
                }
                if (!expected && rank.target()) {
                    arrive(node, 3);
                    receive.post(node, to.data(), room, 3, EXACTLY);
                }
                if (rank.target()) {
                    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, receive.wait(node));
                }
                if (rank.initiator()) {
                    node.wait(request, "send of a truncated message");
                }
                node.sync();
                if (rank.target()) {
                    to.fill(9); // only what is around is looked at
                    EXPECT_EQ("", to.diff(9)) << length;
                }
            }
        }
    });
}

TEST_P(Tag, CancelledReceiveTakesNothing)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());

        for (size_t length : {8, 200000}) {
            std::vector<uint8_t> source(length), sink(length), wrong(length);
            ucs_status_ptr_t request = nullptr;
            Receive cancelled, receive;

            pattern_fill(source.data(), length, 5);
            if (rank.target()) {
                cancelled.post(node, wrong.data(), length, 5, EXACTLY);
                receive.post(node, sink.data(), length, 5, EXACTLY);
                ASSERT_TRUE(UCS_PTR_IS_PTR(cancelled.request));
                ucp_request_cancel(node.worker, cancelled.request);
                EXPECT_EQ(UCS_ERR_CANCELED, cancelled.wait(node));
            }
            node.sync();
            if (rank.initiator()) {
                request = send(node, source.data(), length, 5);
            }
            if (rank.target()) {
                EXPECT_EQ(UCS_OK, receive.wait(node));
                EXPECT_EQ("", pattern_diff(sink.data(), length, 5));
                EXPECT_EQ(std::vector<uint8_t>(length), wrong);
            }
            if (rank.initiator()) {
                node.finish(request, "send");
            }
            node.sync();
        }
    });
}

// Both ranks keep many messages of all sizes in flight, both ways.
TEST_P(Tag, WindowsBothWays)
{
    GetParam().run([](Rank &rank) {
        const size_t window = 32, rounds = 6, largest = 100000;
        UcpNode node(rank, options());
        std::vector<uint8_t> source(window * largest), sink(window * largest);
        int other = (rank.count == 1) ? 0 : 1 - rank.id;

        for (size_t round = 0; round < rounds; ++round) {
            std::vector<ucs_status_ptr_t> sends;
            std::deque<Receive> receives(window);

            for (size_t i = 0; i < window; ++i) {
                receives[i].post(node, &sink[i * largest], largest, i,
                                 EXACTLY);
            }
            for (size_t i = 0; i < window; ++i) {
                size_t length = (i * 3331 * (round + 1)) % largest;
                pattern_fill(&source[i * largest], length,
                             rank.id * 1000 + i);
                sends.push_back(send(node, &source[i * largest], length, i));
            }
            for (size_t i = 0; i < window; ++i) {
                size_t length = (i * 3331 * (round + 1)) % largest;
                ASSERT_EQ(UCS_OK, receives[i].wait(node));
                ASSERT_EQ(length, receives[i].info.length);
                ASSERT_EQ("", pattern_diff(&sink[i * largest], length,
                                           other * 1000 + i));
            }
            for (ucs_status_ptr_t request : sends) {
                node.finish(request, "send");
            }
            node.sync();
        }
    });
}

TEST_P(Tag, ScatterLists)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, options());
        ucp_request_param_t params = {};
        std::vector<uint8_t> source(1 << 20), sink(1 << 20);

        params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        params.datatype     = ucp_dt_make_iov();
        for (size_t piece : {1, 100, 5000, 100000}) {
            ucp_dt_iov_t from[5], to[3];
            std::vector<uint8_t> flat;
            ucs_status_ptr_t request = nullptr;

            for (size_t i = 0; i < 5; ++i) {
                from[i] = {&source[i * (piece + 11)], piece};
                pattern_fill(from[i].buffer, piece, 8, i * piece);
            }
            to[0] = {&sink[1], piece * 2};
            to[1] = {&sink[500000], piece / 2};
            to[2] = {&sink[600000], 5 * piece - piece * 2 - piece / 2};

            if (rank.initiator()) {
                request = ucp_tag_send_nbx(node.ep, from, 5, piece, &params);
            }
            if (rank.target()) {
                node.finish(ucp_tag_recv_nbx(node.worker, to, 3, piece,
                                             EXACTLY, &params), "receive");
                for (const ucp_dt_iov_t &part : to) {
                    auto *bytes = static_cast<uint8_t*>(part.buffer);
                    flat.insert(flat.end(), bytes, bytes + part.length);
                }
                EXPECT_EQ("", pattern_diff(flat.data(), 5 * piece, 8));
            }
            if (rank.initiator()) {
                node.finish(request, "send");
            }
            node.sync();
        }
    });
}

// Memory that UCP allocated, and memory that is new for every message.
TEST_P(Tag, OtherKindsOfMemory)
{
    GetParam().run([](Rank &rank) {
        const size_t length = 3000001;
        UcpNode node(rank, options());

        for (int i = 0; i < 4; ++i) {
            UcpMem mapped(node, 2 * length, i % 2);
            uint8_t *source = mapped.at(1), *sink = mapped.at(length);
            ucs_status_ptr_t request = nullptr;
            Receive receive;

            memset(sink, 0, length);
            pattern_fill(source, length - 1, i);
            if (rank.initiator()) {
                request = send(node, source, length - 1, i);
            }
            if (rank.target()) {
                receive.post(node, sink, length - 1, i, EXACTLY);
                EXPECT_EQ(UCS_OK, receive.wait(node));
                EXPECT_EQ("", pattern_diff(sink, length - 1, i));
            }
            if (rank.initiator()) {
                node.finish(request, "send");
            }
            node.sync();
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, Tag, testing::ValuesIn(all_modes(true)),
                         mode_name);

} // namespace
