// SPDX-License-Identifier: BSD-3-Clause
// Gets that are done at once complete with a later progress, where UCX's users
// cannot have it otherwise: from UCX 1.16 on.
#include "uct_face.h"

#include <deque>

#include <gtest/gtest.h>

#include <uct/api/version.h>

using namespace nt;

namespace {

constexpr size_t LENGTH = 10000;

// One rank, whose memory is its own target
class Later {
public:
    explicit Later(Rank &rank) :
        node(rank), memory(node.domain, MemKind::Heap, LENGTH),
        remote(node.domain, memory.describe()),
        local(node.domain, MemKind::Local, LENGTH)
    {
        pattern_fill(memory.at(), LENGTH, 1);
    }

    ucs_status_t get(Comp &comp, size_t from = 0)
    {
        uct_iov_t iov = local.iov(from, LENGTH - from);

        return (ucs_status_t)node.post("get", [&]() {
            return uct_ep_get_zcopy(node.ep->ep, &iov, 1, remote.address + from,
                                    remote.rkey(), &comp);
        });
    }

    Node      node;
    UctMem    memory;
    UctRemote remote;
    UctMem    local;
};

void run(const std::function<void(Later&)> &body)
{
    run_in(Topology::Loopback, [=](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("it is about soft0, which moves at once");
        }
        if (UCT_VERNO_MINOR < 16) {
            throw Skipped("before UCX 1.16 a get that is done is complete");
        }

        Later later(rank);
        body(later);
    });
}

} // namespace

TEST(GetsEndLater, BeforeAFlush)
{
    run([](Later &later) {
        const uct_ep_h ep = later.node.ep->ep;
        Comp get, flush;

        ASSERT_EQ(UCS_INPROGRESS, later.get(get));
        ASSERT_EQ(UCS_INPROGRESS,
                  uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, &flush));
        EXPECT_EQ(UCS_INPROGRESS,
                  uct_iface_flush(later.node.iface.iface, UCT_FLUSH_FLAG_LOCAL,
                                  nullptr));
        EXPECT_EQ(UCS_ERR_BUSY, uct_iface_event_arm(later.node.iface.iface,
                                                    UCT_EVENT_SEND_COMP));
        EXPECT_EQ(0u, get.calls);
        later.node.until("flush", [&]() { return flush.calls > 0; });
        EXPECT_EQ(1u, get.calls);
        EXPECT_EQ(1u, flush.calls);
        EXPECT_EQ("", pattern_diff(later.local.at(), LENGTH, 1));
    });
}

// The flush waits for an atomic as well, whose end the same progress learns
TEST(GetsEndLater, BeforeAFlushOfOthers)
{
    struct Last : uct_completion_t {
        const Comp *get;
        unsigned   before = 2; // calls of get's when the flush ended

        static void ended(uct_completion_t *self)
        {
            auto *last = static_cast<Last*>(self);

            last->before = last->get->calls;
        }
    };

    run([](Later &later) {
        Comp atomic, get;
        Last flush;
        uint64_t result;

        flush.func   = Last::ended;
        flush.count  = 1;
        flush.status = UCS_OK;
        flush.get    = &get;
        ASSERT_EQ(UCS_INPROGRESS, later.node.post("an atomic", [&]() {
            return uct_ep_atomic64_fetch(later.node.ep->ep, UCT_ATOMIC_OP_ADD,
                                         0, &result,
                                         (later.remote.address + 7) & ~7ull,
                                         later.remote.rkey(), &atomic);
        }));
        // Elsewhere, or it would wait for the atomic
        ASSERT_EQ(UCS_INPROGRESS, later.get(get, 64));
        ASSERT_EQ(0u, atomic.calls);
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(later.node.ep->ep,
                                               UCT_FLUSH_FLAG_LOCAL, &flush));
        later.node.until("flush", [&]() { return flush.before != 2; });
        EXPECT_EQ(1u, flush.before);
        EXPECT_EQ(1u, atomic.calls);
    });
}

TEST(GetsEndLater, EachOnce)
{
    run([](Later &later) {
        std::deque<Comp> comps(200);
        std::vector<ucs_status_t> statuses;

        for (Comp &comp : comps) {
            statuses.push_back(later.get(comp));
        }
        later.node.flush();
        for (size_t i = 0; i < comps.size(); ++i) {
            ASSERT_EQ((statuses[i] == UCS_OK) ? 0u : 1u, comps[i].calls) << i;
        }
    });
}

TEST(GetsEndLater, WithACancel)
{
    run([](Later &later) {
        Comp get;

        ASSERT_EQ(UCS_INPROGRESS, later.get(get));
        ASSERT_EQ(UCS_OK, uct_ep_flush(later.node.ep->ep,
                                       UCT_FLUSH_FLAG_CANCEL, nullptr));
        EXPECT_EQ(1u, get.calls);
    });
}
