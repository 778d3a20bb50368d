// SPDX-License-Identifier: BSD-3-Clause
// Active messages: every kind, size and alignment, order, tiny rings.
#include "am_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 5;

// Ring 0 is the transport's default.
using AmParam = std::tuple<AmKind, Topology, int>;

class Am : public testing::TestWithParam<AmParam> {
protected:
    AmKind kind() const { return std::get<0>(GetParam()); }
    int ring() const { return std::get<2>(GetParam()); }

    Settings settings() const { return with_ring(ring()); }

    virtual Settings md_settings() const { return {}; }

    // Payloads of every kind of size, up to the largest
    void every_size(Rank &rank);

    void run(const Body &body) { run_in(std::get<1>(GetParam()), body); }

    // Send messages with these payloads in turn, `count` in all.
    void stream(Rank &rank, const std::vector<size_t> &lengths, size_t count,
                bool unaligned)
    {
        Node node(rank, settings(), md_settings());
        AmSource source(node, kind(), AM_ID);
        std::vector<size_t> fitting;

        for (size_t length : lengths) {
            if (length <= source.max_payload()) {
                fitting.push_back(length);
            }
        }

        AmSink sink(node, AM_ID, fitting);
        node.sync();

        for (size_t i = 0; rank.initiator() && (i < count); ++i) {
            source.offset = unaligned ? (i * 7) % 65 : 0;
            source.send(i, fitting[i % fitting.size()]);
        }
        if (rank.initiator()) {
            source.finish();
            node.flush();
        }
        if (rank.target()) {
            sink.wait(count);
        }
        node.sync();
    }
};

std::vector<size_t> lengths_of(AmKind kind)
{
    std::vector<size_t> lengths;

    // Short messages and those near inline thresholds: every length
    for (size_t length = 0; length <= 300; ++length) {
        lengths.push_back(length);
    }
    if ((kind == AmKind::Bcopy) || (kind == AmKind::Zcopy)) {
        for (size_t length : sizes_around(1 << 20)) {
            lengths.push_back(length);
        }
    }
    return lengths;
}

void Am::every_size(Rank &rank)
{
    std::vector<size_t> lengths = lengths_of(kind());
    size_t max;
    {
        UctDomain domain(md_settings());
        UctIface iface(domain);
        const auto &am = iface.attr.cap.am;
        max = (kind() == AmKind::Bcopy) ? am.max_bcopy :
              (kind() == AmKind::Zcopy) ? am.max_zcopy : am.max_short;
    }

    // The payload ends 8 bytes earlier than the message
    for (size_t less : {0, 1, 7, 8, 9}) {
        if (max >= 8 + less) {
            lengths.push_back(max - 8 - less);
        }
    }
    stream(rank, lengths, 3 * lengths.size(), false);
}

TEST_P(Am, EverySizeUpToTheLargest)
{
    run([this](Rank &rank) { every_size(rank); });
}

TEST_P(Am, UnalignedSources)
{
    run([this](Rank &rank) {
        stream(rank, {1, 7, 8, 9, 31, 64, 65, 1000, 4097}, 500, true);
    });
}

TEST_P(Am, OrderOverThousands)
{
    run([this](Rank &rank) {
        stream(rank, {0, 8, 1, 40, 17}, (ring() == 0) ? 20000 : 4000, false);
    });
}

TEST_P(Am, HeldDescriptorsKeepTheirBytes)
{
    run([this](Rank &rank) {
        Node node(rank, settings());
        AmSource source(node, kind(), AM_ID);
        size_t length = std::min<size_t>(source.max_payload(), 1000);
        AmSink sink(node, AM_ID, {length}, 4);

        node.sync();
        for (int round = 0; round < 20; ++round) {
            for (uint64_t i = 0; rank.initiator() && (i < 16); ++i) {
                source.send(round * 16 + i, length);
            }
            if (rank.target()) {
                sink.wait((round + 1) * 16);
                sink.release_held();
                EXPECT_EQ("", sink.error);
            }
            node.sync();
        }
        source.finish();
    });
}

TEST_P(Am, BothWaysAtOnce)
{
    run([this](Rank &rank) {
        Node node(rank, settings());
        AmSource source(node, kind(), AM_ID);
        AmSink sink(node, AM_ID, {8, 24});

        node.sync();
        for (size_t i = 0; i < 3000; ++i) {
            source.send(i, (i % 2) ? 24 : 8);
        }
        source.finish();
        sink.wait(3000);
        node.sync();
    });
}

std::string param_name(const testing::TestParamInfo<AmParam> &info)
{
    int ring = std::get<2>(info.param);

    return name_of(std::get<0>(info.param)) +
           name_of(std::get<1>(info.param)) +
           ((ring == 0) ? "" : "Ring" + std::to_string(ring));
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Am,
        testing::Combine(testing::Values(AmKind::Short, AmKind::ShortIov,
                                         AmKind::Bcopy, AmKind::Zcopy),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback),
                         testing::Values(0, 1, 2)),
        param_name);

// Past the caches, where soft0 has such stores.
class AmPast : public Am {
protected:
    Settings md_settings() const override { return {{"NT_STORES", "on"}}; }

    void run_past(const Body &body)
    {
        run([&body](Rank &rank) {
#ifdef __SSE2__
            if (!is_soft()) {
                throw Skipped("NT_STORES is soft0's");
            }
            body(rank);
#else
            (void)rank;
            throw Skipped("this processor has no non-temporal stores");
#endif
        });
    }
};

TEST_P(AmPast, EverySizeUpToTheLargest)
{
    run_past([this](Rank &rank) { every_size(rank); });
}

// So many bytes that the link becomes wide, from any alignment
TEST_P(AmPast, ManyLarge)
{
    run_past([this](Rank &rank) {
        stream(rank, {4095, 4096, 4103, 5000, 8000, 12000}, 3000, true);
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, AmPast,
        testing::Combine(testing::Values(AmKind::Short, AmKind::ShortIov,
                                         AmKind::Bcopy, AmKind::Zcopy),
                         testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback),
                         testing::Values(0)),
        param_name);

// A handler that answers at once, as protocols above do.
struct Echo {
    Node                  *node;
    uint64_t              received = 0;
    std::vector<uint64_t> unsent;
    bool                  answer;

    static ucs_status_t handler(void *arg, void *data, size_t, unsigned)
    {
        auto *echo = static_cast<Echo*>(arg);
        uint64_t number = *static_cast<uint64_t*>(data);

        ++echo->received;
        if (echo->answer &&
            (!echo->unsent.empty() || !echo->try_answer(number))) {
            echo->unsent.push_back(number);
        }
        return UCS_OK;
    }

    bool try_answer(uint64_t number)
    {
        return uct_ep_am_short(node->ep->ep, AM_ID + 1, number, nullptr, 0) ==
               UCS_OK;
    }

    void retry()
    {
        while (!unsent.empty() && try_answer(unsent.front())) {
            unsent.erase(unsent.begin());
        }
    }
};

TEST(AmHandler, MayAnswer)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Echo asked{&node, 0, {}, true}, answered{&node, 0, {}, false};
        const uint64_t count = 5000;

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        node.iface.on_am(AM_ID, Echo::handler, &asked);
        node.iface.on_am(AM_ID + 1, Echo::handler, &answered);
        node.sync();

        // Both ranks ask and answer
        for (uint64_t i = 0; i < count; ++i) {
            ssize_t ret = node.post("room", [&]() {
                asked.retry();
                return uct_ep_am_short(node.ep->ep, AM_ID, i, nullptr, 0);
            });
            ASSERT_EQ(UCS_OK, ret);
        }
        node.until("all answers", [&]() {
            asked.retry();
            return (answered.received == count) && asked.unsent.empty() &&
                   (asked.received == count);
        });
        node.sync();
    });
}

// Each of many ifaces sends to each, itself included.
struct Inbox {
    std::vector<unsigned> from;

    static ucs_status_t handler(void *arg, void *data, size_t length,
                                unsigned)
    {
        auto *inbox = static_cast<Inbox*>(arg);
        uint64_t sender = *static_cast<uint64_t*>(data);

        if ((length == sizeof(sender)) && (sender < inbox->from.size())) {
            ++inbox->from[sender];
        }
        return UCS_OK;
    }
};

TEST(ManyIfaces, AllToAll)
{
    run_in(Topology::Loopback, [](Rank&) {
        const size_t count = 16, rounds = 20;
        UctDomain domain;
        std::vector<std::unique_ptr<UctIface>> ifaces;
        std::vector<std::unique_ptr<UctEp>> eps;
        std::vector<Inbox> inboxes(count, {std::vector<unsigned>(count, 0)});
        Progress progress = [&]() { return domain.progress(); };

        for (size_t i = 0; i < count; ++i) {
            ifaces.push_back(std::make_unique<UctIface>(domain));
            ifaces[i]->require(UCT_IFACE_FLAG_AM_SHORT |
                               UCT_IFACE_FLAG_CONNECT_TO_IFACE, "AM_SHORT");
            ifaces[i]->on_am(AM_ID, Inbox::handler, &inboxes[i]);
        }
        for (size_t i = 0; i < count * count; ++i) {
            eps.push_back(std::make_unique<UctEp>(
                    *ifaces[i / count], ifaces[i % count]->address));
        }

        for (size_t i = 0; i < rounds * count * count; ++i) {
            uct_ep_h ep     = eps[i % (count * count)]->ep;
            uint64_t sender = (i % (count * count)) / count;
            ucs_status_t status = UCS_OK;

            wait_until("room", progress, [&]() {
                status = uct_ep_am_short(ep, AM_ID, sender, nullptr, 0);
                return status != UCS_ERR_NO_RESOURCE;
            });
            check(status, "am_short");
        }

        std::vector<unsigned> all(count, rounds);
        wait_until("all messages", progress, [&]() {
            return std::all_of(inboxes.begin(), inboxes.end(),
                               [&](const Inbox &inbox) {
                                   return inbox.from == all;
                               });
        });
    });
}

} // namespace
