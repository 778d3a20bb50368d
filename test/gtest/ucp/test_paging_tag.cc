// SPDX-License-Identifier: BSD-3-Clause
// Messages whose buffers are absent: eager, and by every kind of rendezvous.
#include "ucp_face.h"

#include "../harness/paging.h"

#include <cstdlib>
#include <cstring>
#include <memory>

using namespace nt;

namespace {

using C = nprdma_counters_t;

constexpr size_t LARGEST     = 8 << 20;
constexpr size_t HUGE_LENGTH = 64 << 20;

struct TagParam {
    Mode       mode;
    const char *fault_mode;

    std::string name() const
    {
        return mode.name() + ((fault_mode[2] == 't') ? "Retry" : "");
    }

    // What is brought in before it is asked for is not found absent: most
    // scenes are without that.
    void run(const Body &body, const char *prepare = "off") const
    {
        const char *value = fault_mode;

        mode.run([=](Rank &rank) {
            if (!is_nprdma()) {
                throw Skipped("other transports have no page faults of their "
                              "own");
            }
            setenv("UCX_NPRDMA_FAULT_MODE", value, 1);
            setenv("UCX_NPRDMA_PREPARE", prepare, 1);
            // All sizes by rendezvous, and its data not by messages
            setenv("UCX_RNDV_THRESH", "0", 1);
            setenv("UCX_RNDV_SCHEME", "get_zcopy", 1);
            body(rank);
        });
    }
};

class PagingTag : public testing::TestWithParam<TagParam> {
};

// How often rendezvous has met absent pages, in both ranks.
struct Faults {
    uint64_t local;
    uint64_t remote;
};

Faults faults_of_all(UcpNode &node, const Growth &growth)
{
    Faults mine   = {growth.of(&C::local_faults),
                     growth.of(&C::remote_faults)};
    Faults theirs = node.rank.oob.exchange_value(mine);

    return {mine.local + theirs.local, mine.remote + theirs.remote};
}

// A get into memory that is not mapped is shared from a quarter of SHARED on:
// the target may be first with all of it, and then there is none to ask for
// (NP_CHUNKS_COLD).
void expect_faults(const Faults &faults, size_t length)
{
    if (length >= (SHARED / 4)) {
        EXPECT_GT(faults.remote + faults.local, 0u) << length;
    } else if (length > 0) {
        EXPECT_GT(faults.remote, 0u) << length << " local " << faults.local;
    }
}

void message(UcpNode &node, const void *source, void *sink, size_t length,
             ucp_tag_t tag)
{
    ucs_status_ptr_t send = nullptr, receive = nullptr;

    if (node.rank.target()) {
        receive = ucp_tag_recv_nbx(node.worker, sink, length, tag,
                                   ~(ucp_tag_t)0, &no_params());
    }
    if (node.rank.initiator()) {
        send = ucp_tag_send_nbx(node.ep, source, length, tag, &no_params());
    }
    if (node.rank.target()) {
        node.finish(receive, "receive");
    }
    if (node.rank.initiator()) {
        node.finish(send, "send");
    }
}

// Until memory that is there is reached by itself: before a rank has heard from
// its peer it asks for everything.
void meet(UcpNode &node, const void *source, void *sink)
{
    bool is_met = false;

    for (int i = 0; (i < 10000) && !is_met; ++i) {
        Growth growth;
        message(node, source, sink, 100, 0);
        is_met = faults_of_all(node, growth).remote == 0;
    }
    ASSERT_TRUE(is_met);
}

TEST_P(PagingTag, EverySize)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area from(LARGEST + PAGE), to(Guarded::space(LARGEST) + PAGE);
        ucp_tag_t tag = 0;

        meet(node, from.at(), to.at());
        for (size_t length : sizes_around(LARGEST)) {
            uint8_t *source = from.at((tag * 777) % PAGE);
            Guarded sink(to.at((tag * 555) % PAGE), length);

            ++tag;
            pattern_fill(source, length, tag);
            sink.fill(0);
            turn_absent(from.at(), from.length());
            turn_absent(to.at(), to.length());
            node.sync();
            Growth growth;
            message(node, source, sink.data(), length, tag);
            Faults faults = faults_of_all(node, growth);
            if (rank.target()) {
                ASSERT_EQ("", sink.diff(tag)) << length;
            }
            expect_faults(faults, length);
            if ((length > 0) && (length < SHARED)) {
                EXPECT_GT(faults.local, 0u) << length;
            }
        }
        node.sync();
    });
}

// Memory that is new for each message: the first touch is a peer's.
TEST_P(PagingTag, NeverTouched)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        ucp_tag_t tag = 0;
        // Kept, so that no address comes twice
        std::vector<std::unique_ptr<Area>> all;

        for (size_t length : {1, 700, 5000, 70000, 1000000, 5000001}) {
            for (bool from_untouched : {false, true}) {
                all.push_back(std::make_unique<Area>(length + PAGE));
                Area &from = *all.back();
                all.push_back(std::make_unique<Area>(length + PAGE));
                Area &to = *all.back();

                ++tag;
                if (from_untouched) {
                    pattern_fill(to.at(5), length, tag);
                } else {
                    pattern_fill(from.at(9), length, tag);
                }
                node.sync();
                Growth growth;
                message(node, from.at(9), to.at(5), length, tag);
                expect_faults(faults_of_all(node, growth), length);
                if (rank.target() && from_untouched) {
                    EXPECT_EQ(0, *to.at(5));
                    EXPECT_EQ(0, memcmp(to.at(5), to.at(6), length - 1));
                } else if (rank.target()) {
                    EXPECT_EQ("", pattern_diff(to.at(5), length, tag));
                }
                node.sync();
            }
        }
    });
}

// Both directions at once, and pages that go meanwhile.
TEST_P(PagingTag, ManyWhilePagesGo)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        const size_t count = 24, slot = 50 * PAGE;
        Area from(count * slot), to(count * slot);
        int other = (rank.count == 1) ? rank.id : 1 - rank.id;

        for (uint64_t round = 1; round <= 3; ++round) {
            std::vector<ucs_status_ptr_t> requests;

            for (size_t i = 0; i < count; ++i) {
                size_t length = (i * 8887 * round) % slot;
                pattern_fill(from.at(i * slot), slot,
                             1000 * round + 100 * rank.id + i);
                memset(to.at(i * slot), 0, slot);
                requests.push_back(ucp_tag_recv_nbx(
                        node.worker, to.at(i * slot), length, i,
                        ~(ucp_tag_t)0, &no_params()));
            }
            for (size_t i = 0; i < count; ++i) {
                size_t length = (i * 8887 * round) % slot;
                requests.push_back(ucp_tag_send_nbx(
                        node.ep, from.at(i * slot), length, i, &no_params()));
                turn_absent(from.at(((i * 5) % count) * slot), slot);
                turn_absent(to.at(((i * 7) % count) * slot), slot);
                node.progress();
            }
            for (ucs_status_ptr_t request : requests) {
                node.finish(request, "message");
            }
            for (size_t i = 0; i < count; ++i) {
                size_t length = (i * 8887 * round) % slot;
                ASSERT_EQ("", pattern_diff(to.at(i * slot), length,
                                           1000 * round + 100 * other + i));
            }
            node.sync();
        }
    }, "both");
}

std::vector<TagParam> all_params()
{
    std::vector<TagParam> params;

    for (const Mode &mode : all_modes(true)) {
        params.push_back({mode, "reverse"});
        if (mode.ranks == 2) {
            params.push_back({mode, "retry"});
        }
    }
    return params;
}

INSTANTIATE_TEST_SUITE_P(Ucp, PagingTag, testing::ValuesIn(all_params()),
                         [](const testing::TestParamInfo<TagParam> &info) {
                             return info.param.name();
                         });

class PagingTagHuge : public PagingTag {
};

TEST_P(PagingTagHuge, SixtyFourMegabytes)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        Area from(HUGE_LENGTH + PAGE);
        Area to(Guarded::space(HUGE_LENGTH));
        Guarded sink(to.at(), HUGE_LENGTH);

        if (rank.initiator()) {
            pattern_fill(from.at(1), HUGE_LENGTH, 64);
        }
        turn_absent(from.at(), from.length());
        turn_absent(to.at(), to.length());
        node.sync();
        Growth growth;
        message(node, from.at(1), sink.data(), HUGE_LENGTH, 64);
        Faults faults = faults_of_all(node, growth);
        if (rank.target()) {
            EXPECT_EQ("", sink.diff(64));
        }
        expect_faults(faults, HUGE_LENGTH);
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Ucp, PagingTagHuge,
        testing::Values(TagParam{{"n", "get_zcopy", 2}, "reverse"},
                        TagParam{{"n", "put_zcopy", 2}, "reverse"},
                        TagParam{{"y", "get_zcopy", 2}, "reverse"},
                        TagParam{{"y", "put_zcopy", 2}, "reverse"},
                        TagParam{{"y", "put_zcopy", 1}, "reverse"}),
        [](const testing::TestParamInfo<TagParam> &info) {
            return info.param.name();
        });

} // namespace
