// SPDX-License-Identifier: BSD-3-Clause
// The event descriptor: it sleeps, and it is woken.
#include "numbers.h"
#include "rma_op.h"

#include <poll.h>

#include <cstring>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 9;

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
        int idle = 0;

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
                idle += poll_fd(fd, 10);
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
        // A peer over a network asks now and then whether anybody is there
        EXPECT_LE(idle, 5) << "awake without a reason";
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
                return is_soft() || (status == UCS_ERR_BUSY) ||
                       (poll_fd(fd, 0) == 1);
            });
            if (is_soft()) {
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
