// SPDX-License-Identifier: BSD-3-Clause
// Streams: bytes come in order, however they are cut.
#include "ucp_face.h"

#include <algorithm>

using namespace nt;

namespace {

class Stream : public testing::TestWithParam<Mode> {
protected:
    // Receive exactly `length` bytes of the stream's pattern from `at` on.
    static void receive_all(UcpNode &node, uint64_t seed, size_t at,
                            size_t length)
    {
        std::vector<uint8_t> sink(Guarded::space(length));
        ucp_request_param_t params = {};
        Guarded to(sink.data(), length);
        size_t received = 0;

        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags        = UCP_STREAM_RECV_FLAG_WAITALL;
        node.finish(ucp_stream_recv_nbx(node.ep, to.data(), length, &received,
                                        &params), "receive");
        ASSERT_EQ("", pattern_diff(to.data(), length, seed, at));
        to.fill(1);
        ASSERT_EQ("", to.diff(1)); // around
    }

    // Take what is there by UCP's own buffers.
    static size_t receive_some(UcpNode &node, uint64_t seed, size_t at)
    {
        size_t length = 0;
        void *data    = ucp_stream_recv_data_nb(node.ep, &length);

        if (data == nullptr) {
            node.progress();
            return 0;
        }
        if (UCS_PTR_IS_ERR(data)) {
            check(UCS_PTR_STATUS(data), "ucp_stream_recv_data_nb");
        }
        std::string diff = pattern_diff(data, length, seed, at);
        ucp_stream_data_release(node.ep, data);
        if (!diff.empty()) {
            throw Failed("at byte " + std::to_string(at) + ": " + diff);
        }
        return length;
    }
};

TEST_P(Stream, EverySize)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_STREAM});

        for (size_t length : sizes_around(4 << 20)) {
            std::vector<uint8_t> source(length + 1);
            ucs_status_ptr_t request = nullptr;

            if (length == 0) {
                continue; // a stream has no empty messages
            }
            pattern_fill(source.data() + 1, length, length);
            if (rank.initiator()) {
                request = ucp_stream_send_nbx(node.ep, source.data() + 1,
                                              length, &no_params());
            }
            if (rank.target()) {
                receive_all(node, length, 0, length);
            }
            if (rank.initiator()) {
                node.finish(request, "send");
            }
        }
        node.sync();
    });
}

TEST_P(Stream, CutDifferently)
{
    GetParam().run([](Rank &rank) {
        const size_t total  = 3 << 20;
        const size_t cuts[] = {1, 100, 8, 40000, 3000, 7, 200000};
        UcpNode node(rank, {UCP_FEATURE_STREAM});
        std::vector<uint8_t> source(total);
        std::vector<ucs_status_ptr_t> requests;
        size_t at = 0;

        pattern_fill(source.data(), total, 6);
        for (size_t i = 0; rank.initiator() && (at < total); ++i) {
            size_t length = std::min(cuts[i % 7], total - at);
            requests.push_back(ucp_stream_send_nbx(node.ep, &source[at],
                                                   length, &no_params()));
            at += length;
        }
        at = 0;
        for (size_t i = 0; rank.target() && (at < total); ++i) {
            size_t length = std::min(cuts[(i + 3) % 7] * 2, total - at);
            receive_all(node, 6, at, length);
            at += length;
        }
        for (ucs_status_ptr_t request : requests) {
            node.finish(request, "send");
        }
        node.sync();
    });
}

TEST_P(Stream, BuffersOfUcp)
{
    GetParam().run([](Rank &rank) {
        const size_t total = 1 << 20;
        UcpNode node(rank, {UCP_FEATURE_STREAM});
        std::vector<uint8_t> source(total);
        std::vector<ucs_status_ptr_t> requests;
        size_t at = 0;

        pattern_fill(source.data(), total, 12);
        for (; rank.initiator() && (at < total); at += 4096) {
            requests.push_back(ucp_stream_send_nbx(node.ep, &source[at], 4096,
                                                   &no_params()));
        }
        at = 0;
        if (rank.target()) {
            node.until("the whole stream", [&]() {
                at += receive_some(node, 12, at);
                return at >= total;
            });
            EXPECT_EQ(total, at);
        }
        for (ucs_status_ptr_t request : requests) {
            node.finish(request, "send");
        }
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, Stream, testing::ValuesIn(all_modes(false)),
                         mode_name);

} // namespace
