// SPDX-License-Identifier: BSD-3-Clause
// Back-pressure, pending requests, flush, and connecting.
#include "numbers.h"

#include <algorithm>
#include <deque>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 9;

class Flow : public testing::TestWithParam<std::tuple<Topology, int>> {
protected:
    // The ring's size, or 0 for the default.
    Settings settings() const { return with_ring(std::get<1>(GetParam())); }

    void run(const std::function<void(Node&, Numbers&)> &body)
    {
        run_in(std::get<0>(GetParam()), [&](Rank &rank) {
            Node node(rank, settings());
            Numbers numbers;

            node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
            node.iface.require(UCT_IFACE_FLAG_PENDING, "PENDING");
            node.iface.on_am(AM_ID, Numbers::handler, &numbers);
            node.sync();
            body(node, numbers);
            node.sync();
        });
    }
};

// A pending request that sends one number when its turn has come.
struct Pending : uct_pending_req_t {
    Node                  *node;
    uint64_t              number;
    std::vector<uint64_t> *dispatched;

    static ucs_status_t send(uct_pending_req_t *self)
    {
        auto *pending = static_cast<Pending*>(self);
        ucs_status_t status = uct_ep_am_short(pending->node->ep->ep, AM_ID,
                                              pending->number, nullptr, 0);

        if (status == UCS_OK) {
            pending->dispatched->push_back(pending->number);
        }
        return status;
    }
};

// Send numbers without any progress until there is no room. How many went.
uint64_t fill(Node &node)
{
    const uint64_t limit = 1 << 22;

    for (uint64_t i = 0; i < limit; ++i) {
        ucs_status_t status = uct_ep_am_short(node.ep->ep, AM_ID, i, nullptr,
                                              0);
        if (status == UCS_ERR_NO_RESOURCE) {
            return i;
        }
        check(status, "am_short");
    }
    throw Failed("a sender never runs out of resources, although its peer "
                 "makes no progress");
}

// Keep the other rank from making progress until fill() is done.
void wait_quietly(Node &node)
{
    node.rank.oob.progress_with(nullptr);
    node.sync();
    node.rank.oob.progress_with([&node]() { return node.domain.progress(); });
}

TEST_P(Flow, PendingKeepsOrder)
{
    run([](Node &node, Numbers &numbers) {
        const uint64_t count = 50;
        std::vector<uint64_t> dispatched;
        std::deque<Pending> requests;
        uint64_t sent = 0;

        if (node.rank.initiator()) {
            sent = fill(node);
            for (uint64_t i = 0; i < count; ++i) {
                Pending request = {};
                request.func       = Pending::send;
                request.node       = &node;
                request.number     = sent + i;
                request.dispatched = &dispatched;
                requests.push_back(request);
                check(uct_ep_pending_add(node.ep->ep, &requests.back(), 0),
                      "uct_ep_pending_add without room");
            }
            EXPECT_TRUE(dispatched.empty());
        }
        wait_quietly(node);

        if (node.rank.initiator()) {
            node.until("dispatch of pending requests",
                       [&]() { return dispatched.size() == count; });
            for (uint64_t i = 0; i < count; ++i) {
                EXPECT_EQ(sent + i, dispatched[i]);
            }
        }
        sent = node.rank.oob.exchange_value(sent) + sent;
        sent = (node.rank.count == 1) ? sent / 2 : sent;
        if (node.rank.target()) {
            node.until("all numbers", [&]() {
                return numbers.come.size() >= sent + count;
            });
            numbers.expect_all(sent + count);
        }
    });
}

// Room that comes while a request waits is that request's.
TEST_P(Flow, NothingOvertakesPending)
{
    run([](Node &node, Numbers &numbers) {
        std::vector<uint64_t> dispatched;
        Pending request = {};
        uint64_t sent   = 0;

        if (node.rank.initiator()) {
            sent               = fill(node);
            request.func       = Pending::send;
            request.node       = &node;
            request.number     = sent;
            request.dispatched = &dispatched;
            check(uct_ep_pending_add(node.ep->ep, &request, 0),
                  "uct_ep_pending_add");
            node.rank.oob.progress_with(nullptr);
        }
        sent = std::max(sent, node.rank.oob.exchange_value(sent));
        if (!node.rank.initiator() && (test_tl() != "tcp")) {
            // Over tcp some wait in the sender's own buffer. To oneself
            // there is no room without progress, and so no temptation.
            node.until("numbers", [&]() {
                return numbers.come.size() >= sent;
            });
        }
        node.rank.oob.barrier();
        if (node.rank.initiator()) {
            ucs_status_t status = uct_ep_am_short(node.ep->ep, AM_ID,
                                                  sent + 1, nullptr, 0);
            node.rank.oob.progress_with([&node]() {
                return node.domain.progress();
            });
            if (status == UCS_ERR_NO_RESOURCE) {
                status = (ucs_status_t)node.post("room", [&]() {
                    return uct_ep_am_short(node.ep->ep, AM_ID, sent + 1,
                                           nullptr, 0);
                });
            }
            check(status, "am_short");
            EXPECT_EQ(1u, dispatched.size());
        }
        if (node.rank.target()) {
            node.until("all numbers", [&]() {
                return numbers.come.size() >= sent + 2;
            });
            numbers.expect_all(sent + 2);
        }
    });
}

TEST_P(Flow, PendingThatFailsStaysFirst)
{
    run([](Node &node, Numbers&) {
        struct Stubborn : uct_pending_req_t {
            int              refusals;
            int              id;
            std::vector<int> *order;
        };
        std::vector<int> order;
        Stubborn requests[3] = {};

        if (test_tl() == "tcp") {
            throw Skipped("tcp asserts that whoever has room sends");
        }
        if (node.rank.initiator()) {
            fill(node);
            for (int i = 0; i < 3; ++i) {
                requests[i].refusals = (i == 0) ? 5 : 0;
                requests[i].id       = i;
                requests[i].order    = &order;
                requests[i].func     = [](uct_pending_req_t *self) {
                    auto *request = static_cast<Stubborn*>(self);
                    if (request->refusals-- > 0) {
                        return UCS_ERR_NO_RESOURCE;
                    }
                    request->order->push_back(request->id);
                    return UCS_OK;
                };
                check(uct_ep_pending_add(node.ep->ep, &requests[i], 0),
                      "uct_ep_pending_add");
            }
        }
        wait_quietly(node);
        if (node.rank.initiator()) {
            node.until("dispatch", [&]() { return order.size() == 3; });
            EXPECT_EQ(std::vector<int>({0, 1, 2}), order);
        }
    });
}

TEST_P(Flow, PurgeReturnsAll)
{
    run([](Node &node, Numbers &numbers) {
        const uint64_t count = 20;
        std::vector<uint64_t> dispatched, purged;
        std::vector<Pending> requests(count);
        uint64_t sent = 0;

        if (node.rank.initiator()) {
            sent = fill(node);
            for (uint64_t i = 0; i < count; ++i) {
                requests[i].func       = Pending::send;
                requests[i].node       = &node;
                requests[i].number     = sent + i;
                requests[i].dispatched = &dispatched;
                check(uct_ep_pending_add(node.ep->ep, &requests[i], 0),
                      "uct_ep_pending_add");
            }
            uct_ep_pending_purge(
                    node.ep->ep,
                    [](uct_pending_req_t *self, void *arg) {
                        static_cast<std::vector<uint64_t>*>(arg)->push_back(
                                static_cast<Pending*>(self)->number);
                    },
                    &purged);
            ASSERT_EQ(count, purged.size());
            EXPECT_TRUE(std::is_sorted(purged.begin(), purged.end()));
        }
        wait_quietly(node);
        node.flush();
        sent = std::max(sent, node.rank.oob.exchange_value(sent));
        if (node.rank.target()) {
            node.until("all numbers", [&]() {
                return numbers.come.size() >= sent;
            });
        }
        node.sync();
        EXPECT_TRUE(dispatched.empty());
        if (node.rank.target()) {
            numbers.expect_all(sent);
        }
    });
}

TEST_P(Flow, PendingIsRefusedWhileThereIsRoom)
{
    run([](Node &node, Numbers&) {
        std::vector<uint64_t> dispatched;
        Pending request = {};

        request.func       = Pending::send;
        request.node       = &node;
        request.dispatched = &dispatched;
        node.flush();
        node.sync();
        if (!node.rank.initiator()) {
            return;
        }

        // Either is allowed, but an accepted one must be dispatched
        ucs_status_t status = uct_ep_pending_add(node.ep->ep, &request, 0);
        if (status == UCS_OK) {
            node.until("dispatch", [&]() { return dispatched.size() == 1; });
        } else {
            EXPECT_EQ(UCS_ERR_BUSY, status);
        }
    });
}

TEST_P(Flow, FlushWaitsNotForPending)
{
    run([](Node &node, Numbers&) {
        std::vector<uint64_t> dispatched;
        Pending request = {};
        ucs_status_t status = UCS_OK;

        if (node.rank.initiator()) {
            request.func       = Pending::send;
            request.node       = &node;
            request.number     = fill(node);
            request.dispatched = &dispatched;
            check(uct_ep_pending_add(node.ep->ep, &request, 0),
                  "uct_ep_pending_add");
        }
        wait_quietly(node);
        if (node.rank.initiator()) {
            node.until("dispatch", [&]() { return dispatched.size() == 1; });
            status = node.try_flush();
        }
        EXPECT_EQ(UCS_OK, status);
    });
}

TEST_P(Flow, FlushOfEndpointAndIface)
{
    run([](Node &node, Numbers &numbers) {
        const uint64_t count = 300;

        for (uint64_t i = 0; node.rank.initiator() && (i < count); ++i) {
            Comp comp;
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_am_short(node.ep->ep, AM_ID, i, nullptr, 0);
            });
            check((ucs_status_t)ret, "am_short");
            switch (i % 4) {
            case 0:
                node.complete("flush of the endpoint", comp, [&]() {
                    return uct_ep_flush(node.ep->ep, 0, &comp);
                });
                break;
            case 1:
                node.flush();
                break;
            case 2:
                node.until("flush of the iface", [&]() {
                    return uct_iface_flush(node.iface.iface, 0, nullptr) ==
                           UCS_OK;
                });
                break;
            }
        }
        node.sync();
        if (node.rank.target()) {
            node.until("all numbers", [&]() {
                return numbers.come.size() >= count;
            });
            numbers.expect_all(count);
        }
    });
}

// Packs eight bytes, and counts how often.
size_t pack_counted(void *dest, void *arg)
{
    ++*static_cast<unsigned*>(arg);
    memset(dest, 1, 8);
    return 8;
}

// Puts and messages that are refused have packed nothing: whoever packs may take
// the bytes from where they are only once. Each put has a key of its own, of
// memory that the target must be asked for.
TEST_P(Flow, PacksOncePerOperation)
{
    const size_t stride = 16384, slots = 64; // more than any put may have

    run([&](Node &node, Numbers&) {
        UctMem area(node.domain, MemKind::Allocated, stride * slots);
        UctMem plain(node.domain, MemKind::Mmap, stride * slots);
        std::string one = node.rank.oob.exchange(area.describe());
        std::string two = node.rank.oob.exchange(plain.describe());
        unsigned packed = 0, accepted = 0, refused = 0;

        node.flush();
        node.sync();
        for (unsigned i = 0; node.rank.initiator() && (i < slots); ++i) {
            UctRemote remote(node.domain, (i == 0) ? two : one);
            ssize_t length = uct_ep_put_bcopy(node.ep->ep, pack_counted,
                                              &packed,
                                              remote.address + (i * stride),
                                              remote.rkey());
            if (length == UCS_ERR_NO_RESOURCE) {
                ++refused;
            } else {
                ASSERT_EQ(8, length);
                ++accepted;
            }
            ASSERT_EQ(accepted, packed) << "after " << refused << " refusals";
        }
        for (unsigned i = 0; node.rank.initiator() && (refused < 2 * slots) &&
             (i < (1 << 20)); ++i) {
            ssize_t length = uct_ep_am_bcopy(node.ep->ep, AM_ID, pack_counted,
                                             &packed, 0);
            (length == UCS_ERR_NO_RESOURCE) ? ++refused : ++accepted;
            ASSERT_EQ(accepted, packed);
        }
        wait_quietly(node);
        node.flush();
        node.sync();
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, Flow,
        testing::Combine(testing::Values(Topology::TwoProcesses,
                                         Topology::Loopback),
                         testing::Values(0, 1, 2)),
        [](const testing::TestParamInfo<std::tuple<Topology, int>> &info) {
            int ring = std::get<1>(info.param);
            return name_of(std::get<0>(info.param)) +
                   ((ring == 0) ? "" : "Ring" + std::to_string(ring));
        });

TEST(Connect, BothSidesAtOnceManyTimes)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Numbers numbers;
        std::string theirs = rank.oob.exchange(node.iface.address);

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        node.iface.on_am(AM_ID, Numbers::handler, &numbers);
        for (uint64_t round = 0; round < 50; ++round) {
            node.ep.reset();
            node.sync();
            node.ep = std::make_unique<UctEp>(node.iface, theirs);
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_am_short(node.ep->ep, AM_ID, round, nullptr, 0);
            });
            check((ucs_status_t)ret, "am_short");
            node.until("the peer's number", [&]() {
                return numbers.come.size() == round + 1;
            });
            EXPECT_EQ(round, numbers.come.back());
            node.flush();
            node.sync();
        }
        EXPECT_EQ(0u, node.iface.errors);
    });
}

TEST(Connect, ManyEndpointsToOneIface)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Numbers numbers;
        std::vector<std::unique_ptr<UctEp>> eps;
        std::string theirs = rank.oob.exchange(node.iface.address);

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        node.iface.on_am(AM_ID, Numbers::handler, &numbers);
        node.sync();
        for (uint64_t i = 0; i < 64; ++i) {
            eps.push_back(std::make_unique<UctEp>(node.iface, theirs));
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_am_short(eps[i]->ep, AM_ID, i, nullptr, 0);
            });
            check((ucs_status_t)ret, "am_short");
        }
        node.until("all numbers", [&]() { return numbers.come.size() == 64; });
        std::sort(numbers.come.begin(), numbers.come.end());
        numbers.expect_all(64);
        node.sync();
    });
}

TEST(Connect, OneWithoutAnswer)
{
    // Only rank 0 has an endpoint; rank 1 merely receives
    run_ranks([](Rank &rank) {
        UctDomain domain;
        UctIface iface(domain);
        Numbers numbers;
        Progress progress = [&]() { return domain.progress(); };

        iface.require(UCT_IFACE_FLAG_AM_SHORT |
                      UCT_IFACE_FLAG_CONNECT_TO_IFACE, "AM_SHORT");
        iface.on_am(AM_ID, Numbers::handler, &numbers);
        rank.oob.progress_with(progress);
        std::string theirs = rank.oob.exchange(iface.address);
        if (rank.id == 0) {
            UctEp ep(iface, theirs);
            for (uint64_t i = 0; i < 1000; ++i) {
                wait_until("room", progress, [&]() {
                    return uct_ep_am_short(ep.ep, AM_ID, i, nullptr, 0) ==
                           UCS_OK;
                });
            }
            rank.oob.barrier();
        } else {
            wait_until("all numbers", progress, [&]() {
                return numbers.come.size() == 1000;
            });
            numbers.expect_all(1000);
            rank.oob.barrier();
        }
    });
}

} // namespace
