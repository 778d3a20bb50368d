// SPDX-License-Identifier: BSD-3-Clause
// The flags of nprdma_set_order stay with what waits in the pending queue, also
// when the program has set others since.
#include "paging_face.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <list>
#include <mutex>

using namespace nt;

namespace {

constexpr size_t BED    = 8 * PAGE; // memory behind one gate
constexpr size_t GATES  = 2;
constexpr size_t AWAKE  = GATES * BED; // offset of what no gate is before
constexpr size_t LENGTH = AWAKE + BED;

// Brings no page in before it is opened.
class Gate {
public:
    Gate(uint8_t *address, size_t length) : m_address(address), m_length(length)
    {
        nprdma_swapper_t swapper = {wait, this};
        EXPECT_EQ(0, nprdma_register_swapper(address, length, &swapper));
    }

    ~Gate()
    {
        open();
        EXPECT_EQ(0, nprdma_unregister_swapper(m_address, m_length));
    }

    void open()
    {
        std::lock_guard<std::mutex> lock(m_lock);
        m_is_open = true;
        m_changed.notify_all();
    }

private:
    static int wait(void *arg, void*, size_t, int)
    {
        auto *self = static_cast<Gate*>(arg);
        std::unique_lock<std::mutex> lock(self->m_lock);

        self->m_changed.wait(lock, [self]() { return self->m_is_open; });
        return 0;
    }

    uint8_t                 *m_address;
    size_t                  m_length;
    std::mutex              m_lock;
    std::condition_variable m_changed;
    bool                    m_is_open = false;
};

// A put that is tried from the pending queue until it has begun.
struct Waiting : uct_pending_req_t {
    std::function<ssize_t()> post;
    ssize_t                  result  = UCS_ERR_NO_RESOURCE;

    static ucs_status_t again(uct_pending_req_t *self)
    {
        auto *waiting = static_cast<Waiting*>(self);

        waiting->result = waiting->post();
        return (waiting->result == UCS_ERR_NO_RESOURCE) ?
               UCS_ERR_NO_RESOURCE : UCS_OK;
    }

    bool has_begun() const { return result != UCS_ERR_NO_RESOURCE; }
};

// Rank 1 owns the memory; its service threads answer. It opens a gate when it
// is told to.
class PendingCase {
public:
    explicit PendingCase(Rank &rank) :
        node(rank), area(LENGTH), local(LENGTH), shared(node.domain, area),
        remote(node.domain, rank.oob.exchange(shared.describe()))
    {
        pattern_fill(area.at(), area.length(), 1);
        meet(node, remote);
        turn_absent(area.at(), area.length());
        node.sync();
    }

    void serve()
    {
        std::list<Gate> gates;

        for (size_t i = 0; i < GATES; ++i) {
            gates.emplace_back(area.at(i * BED), BED);
        }
        node.sync();
        node.rank.oob.progress_with(nullptr);
        for (std::string name; (name = node.rank.oob.recv()) != "end";) {
            std::next(gates.begin(), std::stoi(name))->open();
        }
        for (Gate &gate : gates) {
            gate.open();
        }
        node.rank.oob.progress_with([this]() {
            return node.domain.progress();
        });
        node.sync();
    }

    void ask(const std::function<void()> &body)
    {
        node.sync();
        try {
            body();
        } catch (...) {
            node.rank.oob.send("end");
            throw;
        }
        node.rank.oob.send("end");
        node.sync();
    }

    void open(int gate) { node.rank.oob.send(std::to_string(gate)); }

    ssize_t put(uint64_t seed, size_t offset, size_t length, Comp *comp)
    {
        pattern_fill(local.at(offset), length, seed, offset);
        return rma_post(node, RmaKind::PutZcopy, local.at(offset),
                        UCT_MEM_HANDLE_NULL, length, remote.address + offset,
                        remote.rkey(), comp);
    }

    // It cannot go now: let it wait as UCP does.
    void wait_for_room(Waiting &waiting)
    {
        waiting.func = Waiting::again;
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, waiting.post());
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(node.ep->ep, &waiting, 0));
    }

    void progress_much()
    {
        for (int i = 0; i < 2000; ++i) {
            node.domain.progress();
        }
    }

    void expect(uint64_t seed, size_t offset, size_t length)
    {
        EXPECT_EQ("", pattern_diff(area.at(offset), length, seed, offset));
    }

    Node       node;
    Area       area;
    Area       local;
    SharedArea shared;
    UctRemote  remote;
};

TEST(OrderPending, BeforeIsKept)
{
    run_ranks([](Rank &rank) {
        soft_only(BEHIND_IT);
        PendingCase test(rank);
        Node &node = test.node;
        Comp first, second, last;
        Waiting waiting;

        if (rank.target()) {
            test.serve();
            test.expect(2, 0, 5000);
            test.expect(4, AWAKE, 5000);
            node.sync();
            return;
        }

        test.ask([&]() {
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return test.put(2, 0, 5000, &first);
            }));
            ASSERT_EQ(UCS_INPROGRESS, node.post("another one", [&]() {
                return test.put(3, BED, 5000, &second);
            }));
            waiting.post = [&]() { return test.put(4, AWAKE, 5000, &last); };
            ASSERT_EQ(0, nprdma_set_order(NPRDMA_ORDER_BEFORE));
            test.wait_for_room(waiting);
            ASSERT_EQ(0, nprdma_set_order(0));

            // One of two has ended: the queue is tried again
            test.open(1);
            node.until("the second put", [&]() { return second.calls > 0; });
            test.progress_much();
            EXPECT_FALSE(waiting.has_begun()) << "the first one is under way";
            EXPECT_EQ(0u, first.calls);
            EXPECT_EQ(0u, nprdma_get_order());

            test.open(0);
            node.until("the last put", [&]() { return waiting.has_begun(); });
            EXPECT_EQ(1u, first.calls);
            node.flush();
        });
        node.sync();
    });
}

TEST(OrderPending, AfterIsKept)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        PendingCase test(rank);
        Node &node = test.node;
        Comp first, second, last;
        Waiting waiting;

        if (rank.target()) {
            test.serve();
            test.expect(3, BED - 3000, 6000);
            test.expect(4, AWAKE, 5000);
            node.sync();
            return;
        }

        test.ask([&]() {
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return test.put(2, BED - 3000, 3000, &first);
            }));
            // Overlaps it, and has pages behind the other gate too
            waiting.post = [&]() {
                return test.put(3, BED - 3000, 6000, &second);
            };
            ASSERT_EQ(0, nprdma_set_order(NPRDMA_ORDER_AFTER));
            test.wait_for_room(waiting);
            ASSERT_EQ(0, nprdma_set_order(0));

            test.open(0);
            node.until("the first put", [&]() { return first.calls > 0; });
            node.until("the one that waited", [&]() {
                return waiting.has_begun();
            });
            ASSERT_EQ(UCS_INPROGRESS, waiting.result);
            for (int i = 0; i < 1000; ++i) {
                ASSERT_EQ(UCS_ERR_NO_RESOURCE, test.put(4, AWAKE, 5000, &last))
                        << "it comes after what is under way";
                node.domain.progress();
            }
            EXPECT_EQ(0u, second.calls);

            test.open(1);
            node.complete("the last put", last, [&]() {
                return test.put(4, AWAKE, 5000, &last);
            });
            EXPECT_EQ(1u, second.calls);
            node.flush();
        });
        node.sync();
    });
}

// Flags that a callback of the waiting operation sets are the program's.
TEST(OrderPending, CallbacksSetTheirOwn)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        PendingCase test(rank);
        Node &node = test.node;
        Comp first, second;
        Waiting waiting;

        if (rank.target()) {
            test.serve();
            node.sync();
            return;
        }

        test.ask([&]() {
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return test.put(2, 0, 5000, &first);
            }));
            waiting.post = [&]() {
                ssize_t ret = test.put(3, 100, 5000, &second);
                if (ret != UCS_ERR_NO_RESOURCE) {
                    EXPECT_EQ(0, nprdma_set_order(NPRDMA_ORDER_BEFORE));
                }
                return ret;
            };
            ASSERT_EQ(0, nprdma_set_order(NPRDMA_ORDER_AFTER));
            test.wait_for_room(waiting);
            ASSERT_EQ(0, nprdma_set_order(0));
            test.open(0);
            node.until("the one that waited", [&]() {
                return waiting.has_begun();
            });
            EXPECT_EQ(NPRDMA_ORDER_BEFORE, nprdma_get_order());
            ASSERT_EQ(0, nprdma_set_order(0));
            node.flush();
        });
        node.sync();
    });
}

// The target computes, and reads no message: the ring is full of them. A get that
// has waited for a put needs none of that room.
TEST(OrderPending, NeedsNoRoomForMessages)
{
    run_ranks([](Rank &rank) {
        nprdma_only();
        PendingCase test(rank);
        Node &node = test.node;
        uint64_t messages = 0, count = 0;
        Comp put, get;
        Waiting waiting;

        node.iface.on_am(1, [](void *arg, void*, size_t, unsigned) {
            ++*static_cast<uint64_t*>(arg);
            return UCS_OK;
        }, &count);
        if (rank.target()) {
            test.serve();
            messages = std::stoull(rank.oob.recv());
            node.until("all messages", [&]() { return count == messages; });
            test.expect(2, 0, 5000);
            node.sync();
            return;
        }

        test.ask([&]() {
            while (uct_ep_am_short(node.ep->ep, 1, 0, nullptr, 0) == UCS_OK) {
                ++messages;
            }
            ASSERT_EQ(UCS_INPROGRESS, node.post("a slow put", [&]() {
                return test.put(2, 0, 5000, &put);
            }));
            waiting.post = [&]() {
                return rma_post(node, RmaKind::GetZcopy, test.local.at(AWAKE),
                                UCT_MEM_HANDLE_NULL, 5000,
                                test.remote.address, test.remote.rkey(),
                                &get);
            };
            test.wait_for_room(waiting);
            test.open(0);
            node.until("the put", [&]() { return put.calls > 0; });
            for (int i = 0; (i < 100000) && !waiting.has_begun(); ++i) {
                node.domain.progress();
            }
            EXPECT_TRUE(waiting.has_begun()) << "it waits for the program";
        });
        rank.oob.send(std::to_string(messages));
        node.until("the get", [&]() {
            return waiting.has_begun() &&
                   ((waiting.result == UCS_OK) || (get.calls > 0));
        });
        EXPECT_EQ("", pattern_diff(test.local.at(AWAKE), 5000, 2));
        node.sync();
    });
}

} // namespace
