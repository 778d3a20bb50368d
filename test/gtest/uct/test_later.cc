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

    ucs_status_t get(Comp &comp)
    {
        uct_iov_t iov = local.iov(0, LENGTH);

        return (ucs_status_t)node.post("get", [&]() {
            return uct_ep_get_zcopy(node.ep->ep, &iov, 1, remote.address,
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
