// SPDX-License-Identifier: BSD-3-Clause
// Back-pressure, pending requests, flush, connecting, and sleeping.
#include "rma_op.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 9;

// Numbers that came by active message.
struct Numbers {
    std::vector<uint64_t> come;

    static ucs_status_t handler(void *arg, void *data, size_t, unsigned)
    {
        static_cast<Numbers*>(arg)->come.push_back(
                *static_cast<uint64_t*>(data));
        return UCS_OK;
    }

    // 0, 1, 2, ... and so many of them
    void expect_all(uint64_t count) const
    {
        ASSERT_EQ(count, come.size());
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(i, come[i]);
        }
    }
};

class Flow : public testing::TestWithParam<std::tuple<Topology, int>> {
protected:
    // The ring's size, or 0 for the default.
    Settings settings() const
    {
        int ring = std::get<1>(GetParam());

        if (ring == 0) {
            return {};
        } else if (is_nprdma()) {
            return {{"RING_SIZE", std::to_string(ring)}};
        }
        return {{"MM_FIFO_SIZE", std::to_string(ring)},
                {"MM_FIFO_RELEASE_FACTOR", "0"}};
    }

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

class WakeUp : public testing::Test {
protected:
    static int descriptor(Node &node)
    {
        int fd = -1;

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        node.iface.require_events(UCT_IFACE_FLAG_EVENT_FD |
                                  UCT_IFACE_FLAG_EVENT_RECV, "EVENT_FD");
        check(uct_iface_event_fd_get(node.iface.iface, &fd),
              "uct_iface_event_fd_get");
        return fd;
    }

    // Arm after draining everything that is there.
    static void arm(Node &node, unsigned events = UCT_EVENT_RECV)
    {
        ucs_status_t status = UCS_ERR_BUSY;

        node.until("iface without events", [&]() {
            while (node.domain.progress() > 0) {
            }
            status = uct_iface_event_arm(node.iface.iface, events);
            return status != UCS_ERR_BUSY;
        });
        check(status, "uct_iface_event_arm");
    }

    static int poll_fd(int fd, int milliseconds)
    {
        struct pollfd pollfd = {fd, POLLIN, 0};

        return poll(&pollfd, 1, milliseconds);
    }

    static void send(Node &node, uint64_t number)
    {
        ssize_t ret = node.post("room", [&]() {
            return uct_ep_am_short(node.ep->ep, AM_ID, number, nullptr, 0);
        });
        check((ucs_status_t)ret, "am_short");
    }
};

TEST_F(WakeUp, SleepsUntilAMessageComes)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Numbers numbers;
        int fd = descriptor(node);

        node.iface.on_am(AM_ID, Numbers::handler, &numbers);
        send(node, 0);
        node.until("first number", [&]() { return !numbers.come.empty(); });
        node.flush();
        node.sync();

        for (uint64_t i = 1; i <= 20; ++i) {
            // The receiver makes no progress while it sleeps
            rank.oob.progress_with(nullptr);
            if (rank.id == 1) {
                arm(node);
                EXPECT_EQ(0, poll_fd(fd, 10)) << "awake without a reason";
            }
            rank.oob.barrier();
            if (rank.id == 0) {
                send(node, i);
                node.flush();
            } else {
                EXPECT_EQ(1, poll_fd(fd, patience() * 1000)) << "slept on";
                node.until("number", [&]() {
                    return numbers.come.size() == i + 1;
                });
            }
            rank.oob.progress_with([&]() { return node.domain.progress(); });
            node.sync();
        }
    });
}

TEST_F(WakeUp, ArmIsBusyWhenSomethingIsThere)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Numbers numbers;
        int fd = descriptor(node);

        node.iface.on_am(AM_ID, Numbers::handler, &numbers);
        send(node, 0);
        node.until("first number", [&]() { return !numbers.come.empty(); });
        node.flush();
        node.sync();

        rank.oob.progress_with(nullptr);
        if (rank.id == 1) {
            arm(node);
        }
        rank.oob.barrier();
        if (rank.id == 0) {
            // No flush: it may need the peer's progress
            send(node, 1);
            node.domain.progress();
        }
        rank.oob.barrier();
        if (rank.id == 1) {
            // Over a network the message may still be on its way
            ucs_status_t status = UCS_OK;
            wait_until("arm to be refused", nullptr, [&]() {
                status = uct_iface_event_arm(node.iface.iface,
                                             UCT_EVENT_RECV);
                return is_nprdma() || (status == UCS_ERR_BUSY) ||
                       (poll_fd(fd, 0) == 1);
            });
            if (is_nprdma()) {
                EXPECT_EQ(UCS_ERR_BUSY, status);
            }
            node.until("number", [&]() { return numbers.come.size() == 2; });
        }
        node.sync();
    });
}

// Each waits for the other in its sleep; a lost wake-up never ends.
TEST_F(WakeUp, PingPongAsleep)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        Numbers numbers;
        int fd = descriptor(node);

        node.iface.on_am(AM_ID, Numbers::handler, &numbers);
        node.sync();
        for (uint64_t i = 0; i < 3000; ++i) {
            if (rank.id == (int)(i % 2)) {
                send(node, i);
            }
            while ((rank.id != (int)(i % 2)) &&
                   (numbers.come.size() <= i / 2)) {
                if ((node.domain.progress() > 0) ||
                    (uct_iface_event_arm(node.iface.iface, UCT_EVENT_RECV |
                                         UCT_EVENT_SEND_COMP) ==
                     UCS_ERR_BUSY)) {
                    continue;
                }
                if (poll_fd(fd, patience() * 1000) != 1) {
                    throw Failed("message " + std::to_string(i) +
                                 " woke nobody");
                }
            }
        }
        node.sync();
    });
}

TEST_F(WakeUp, SendCompletion)
{
    run_ranks([](Rank &rank) {
        Node node(rank);
        int fd = descriptor(node);
        node.iface.require(UCT_IFACE_FLAG_GET_ZCOPY, "GET_ZCOPY");
        node.iface.require_events(UCT_IFACE_FLAG_EVENT_SEND_COMP,
                                  "EVENT_SEND_COMP");
        UctMem local(node.domain, MemKind::Local, 1 << 20);
        UctMem target(node.domain, MemKind::Heap, 1 << 20);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        pattern_fill(target.at(), 1 << 20, 5);
        node.sync();
        for (int i = 0; (rank.id == 0) && (i < 50); ++i) {
            Comp comp;
            ssize_t ret = node.post("room", [&]() {
                return rma_post(node, RmaKind::GetZcopy, local, 0, 1 << 20,
                                remote.address, remote.rkey(), &comp);
            });
            while ((ret == UCS_INPROGRESS) && (comp.calls == 0)) {
                if ((node.domain.progress() == 0) &&
                    (uct_iface_event_arm(node.iface.iface,
                                         UCT_EVENT_SEND_COMP) == UCS_OK) &&
                    (poll_fd(fd, patience() * 1000) != 1)) {
                    throw Failed("a completion woke nobody");
                }
            }
            EXPECT_EQ("", pattern_diff(local.at(), 1 << 20, 5));
            memset(local.at(), 0, 1 << 20);
        }
        node.sync();
    });
}

} // namespace
