// SPDX-License-Identifier: BSD-3-Clause
// Peers that are killed: every operation ends, and somebody is told.
#include "rma_op.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 11;

void peer_dies(const Body &body)
{
    RunOptions options;

    options.peer_dies = true;
    run_ranks(body, options);
}

ucs_status_t ignore_am(void*, void*, size_t, unsigned)
{
    return UCS_OK;
}

void require_failure_handling(const UctIface &iface)
{
    iface.require(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE,
                  "ERRHANDLE_PEER_FAILURE");
}

// A message each way, so that both are connected.
void greet(Node &node, uint8_t id)
{
    unsigned received = 0;

    node.iface.on_am(id, [](void *arg, void*, size_t, unsigned) {
        ++*static_cast<unsigned*>(arg);
        return UCS_OK;
    }, &received);
    node.sync();
    check((ucs_status_t)node.post("room", [&]() {
        return uct_ep_am_short(node.ep->ep, id, 0, nullptr, 0);
    }), "am_short");
    node.until("message", [&]() { return received == 1; });
    node.iface.on_am(id, ignore_am, nullptr);
}

// Until the error handler has run, with nothing but checks and progress.
void wait_for_error(Node &node)
{
    node.until("call of the error handler", [&]() {
        // A refused check is as good as one that was not answered yet
        uct_ep_check(node.ep->ep, 0, nullptr);
        return node.iface.errors > 0;
    });
}

// Whatever is posted to a failed endpoint is refused, or completed with an
// error; it does not stay without resources for ever.
void expect_error(Node &node, const char *what, Comp *comp,
                  const std::function<ssize_t()> &operation)
{
    ssize_t ret = node.post(what, operation);

    if (ret == UCS_INPROGRESS) {
        node.until(what, [&]() { return comp->calls > 0; });
        EXPECT_NE(UCS_OK, comp->status) << what;
    } else {
        EXPECT_LT(ret, 0) << what;
    }
}

void expect_all_refused(Node &node, const UctMem &local,
                        const UctRemote &remote)
{
    uint64_t flags = node.iface.attr.cap.flags;

    if (flags & UCT_IFACE_FLAG_AM_SHORT) {
        expect_error(node, "am_short", nullptr, [&]() {
            return uct_ep_am_short(node.ep->ep, AM_ID, 0, nullptr, 0);
        });
    }
    for (RmaKind kind : {RmaKind::PutShort, RmaKind::PutBcopy,
                         RmaKind::PutZcopy, RmaKind::GetShort,
                         RmaKind::GetBcopy, RmaKind::GetZcopy}) {
        const uint64_t bits[] = {
            UCT_IFACE_FLAG_PUT_SHORT, UCT_IFACE_FLAG_PUT_BCOPY,
            UCT_IFACE_FLAG_PUT_ZCOPY, UCT_IFACE_FLAG_GET_SHORT,
            UCT_IFACE_FLAG_GET_BCOPY, UCT_IFACE_FLAG_GET_ZCOPY
        };
        Comp comp;
        if (flags & bits[(int)kind]) {
            expect_error(node, name_of(kind).c_str(), &comp, [&]() {
                return rma_post(node, kind, local, 0, 64, remote.address,
                                remote.rkey(), &comp);
            });
        }
    }
    if (node.iface.attr.cap.atomic64.fop_flags & UCS_BIT(UCT_ATOMIC_OP_ADD)) {
        uint64_t result;
        Comp comp;
        expect_error(node, "atomic", &comp, [&]() {
            return uct_ep_atomic64_fetch(node.ep->ep, UCT_ATOMIC_OP_ADD, 1,
                                         &result, remote.address,
                                         remote.rkey(), &comp);
        });
    }
}

TEST(PeerFailure, CheckOfALivePeer)
{
    run_ranks([](Rank &rank) {
        Node node(rank);

        node.iface.require(UCT_IFACE_FLAG_EP_CHECK, "EP_CHECK");
        for (int i = 0; i < 1000; ++i) {
            ssize_t ret = node.post("check", [&]() {
                return uct_ep_check(node.ep->ep, 0, nullptr);
            });
            EXPECT_TRUE((ret == UCS_OK) || (ret == UCS_INPROGRESS)) << ret;
            node.domain.progress();
        }
        node.sync();
        EXPECT_EQ(0u, node.iface.errors);
    });
}

TEST(PeerFailure, KilledPeerIsReported)
{
    peer_dies([](Rank &rank) {
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, 4096);
        UctMem target(node.domain, MemKind::Heap, 4096);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));

        node.iface.require(UCT_IFACE_FLAG_EP_CHECK, "EP_CHECK");
        require_failure_handling(node.iface);
        node.sync();
        if (rank.id == 1) {
            raise(SIGKILL);
        }

        rank.oob.wait_peer_gone(rank.peer);
        wait_for_error(node);
        if (is_nprdma()) {
            EXPECT_EQ(1u, node.iface.errors); // tcp may call it twice
            // UCX wants no operation after the error; here they are refused
            expect_all_refused(node, local, remote);
        }
    });
}

// A program that spins, and then only looks now and then: no more looks than a
// few hundred may pass until it is told.
TEST(PeerFailure, KilledPeerIsReportedToOneThatLooksSeldom)
{
    peer_dies([](Rank &rank) {
        const int looks = 500;
        Node node(rank);

        if (!is_soft()) {
            throw Skipped("for the sockets of soft0");
        }
        greet(node, AM_ID);
        node.sync();
        if (rank.id == 1) {
            rank.oob.progress_with(nullptr);
            rank.oob.recv();
            raise(SIGKILL);
        }
        for (int i = 0; i < 1000000; ++i) {
            node.domain.progress();
        }
        rank.oob.progress_with(nullptr);
        rank.oob.send("die");
        rank.oob.wait_peer_gone(rank.peer);
        for (int i = 0; (i < looks) && (node.iface.errors == 0); ++i) {
            usleep(1000); // what it has to do besides
            node.domain.progress();
        }
        EXPECT_EQ(1u, node.iface.errors);
    });
}

// The messages' sender learns of a death from its sends alone.
TEST(PeerFailure, KilledReceiverInMidStream)
{
    peer_dies([](Rank &rank) {
        Node node(rank);
        uint64_t received = 0;

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        require_failure_handling(node.iface);
        node.iface.on_am(AM_ID, [](void *arg, void*, size_t, unsigned) {
            if (++*static_cast<uint64_t*>(arg) == 5000) {
                raise(SIGKILL);
            }
            return UCS_OK;
        }, &received);
        node.sync();

        if (rank.id == 1) {
            node.until("end of this process", []() { return false; });
        }
        node.until("error of a sender", [&]() {
            ucs_status_t status = uct_ep_am_short(node.ep->ep, AM_ID, 0,
                                                  nullptr, 0);
            if (status == UCS_ERR_NO_RESOURCE) {
                uct_ep_check(node.ep->ep, 0, nullptr);
            }
            return (node.iface.errors > 0) || ((status < 0) &&
                   (status != UCS_ERR_NO_RESOURCE));
        });
    });
}

TEST(PeerFailure, KilledSenderInMidStream)
{
    // What came is whole and in order, and the receiver can go on
    peer_dies([](Rank &rank) {
        Node node(rank);
        uint64_t received = 0;

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        node.iface.require(UCT_IFACE_FLAG_EP_CHECK, "EP_CHECK");
        require_failure_handling(node.iface);
        node.iface.on_am(AM_ID, [](void *arg, void *data, size_t, unsigned) {
            uint64_t &next = *static_cast<uint64_t*>(arg);
            EXPECT_EQ(next, *static_cast<uint64_t*>(data));
            ++next;
            return UCS_OK;
        }, &received);
        node.sync();

        for (uint64_t i = 0; rank.id == 1; ++i) {
            node.post("room", [&]() {
                return uct_ep_am_short(node.ep->ep, AM_ID, i, nullptr, 0);
            });
            if (i == 20000) {
                raise(SIGKILL);
            }
        }
        node.until("messages", [&]() { return received > 1000; });
        rank.oob.wait_peer_gone(rank.peer);
        wait_for_error(node);

        UctIface fresh(node.domain);
        fresh.on_am(AM_ID, ignore_am, nullptr);
        UctEp self(node.iface, fresh.address);
        node.until("message to oneself", [&]() {
            return uct_ep_am_short(self.ep, AM_ID, 0, nullptr, 0) == UCS_OK;
        });
    });
}

// UCP waits for an answer, and checks nothing meanwhile while it connects.
TEST(PeerFailure, LostMessagesAreReportedWithoutAsking)
{
    peer_dies([](Rank &rank) {
        Node node(rank);
        uint64_t received = 0;

        node.iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        if (!is_nprdma()) {
            node.iface.require(UCT_IFACE_FLAG_EP_KEEPALIVE, "EP_KEEPALIVE");
        }
        node.iface.on_am(AM_ID, [](void *arg, void*, size_t, unsigned) {
            ++*static_cast<uint64_t*>(arg);
            return UCS_OK;
        }, &received);
        node.sync();
        auto send = [&]() {
            ssize_t ret = node.post("room", [&]() {
                return uct_ep_am_short(node.ep->ep, AM_ID, 0, nullptr, 0);
            });
            check((ucs_status_t)ret, "am_short");
        };

        send();
        node.until("first message", [&]() { return received == 1; });
        node.sync();
        rank.oob.progress_with(nullptr);
        if (rank.id == 1) {
            rank.oob.recv();
            raise(SIGKILL);
        }
        send(); // nobody reads this one
        rank.oob.send("die");
        node.until("call of the error handler",
                   [&]() { return node.iface.errors > 0; });
    });
}

// Who has closed everything and left has not failed.
TEST(PeerFailure, FarewellIsNoError)
{
    run_ranks([](Rank &rank) {
        if (!is_nprdma()) {
            throw Skipped(test_tl() + " does not tell leaving from dying");
        }

        auto node = std::make_unique<Node>(rank);
        unsigned received = 0;
        node->iface.on_am(AM_ID, [](void *arg, void*, size_t, unsigned) {
            ++*static_cast<unsigned*>(arg);
            return UCS_OK;
        }, &received);
        node->sync();
        ssize_t ret = node->post("room", [&]() {
            return uct_ep_am_short(node->ep->ep, AM_ID, 0, nullptr, 0);
        });
        check((ucs_status_t)ret, "am_short");
        node->until("message", [&]() { return received == 1; });
        node->flush();
        node->sync();
        if (rank.id == 1) {
            rank.oob.progress_with(nullptr);
            node.reset();
            return;
        }

        rank.oob.wait_peer_gone(rank.peer);
        for (int i = 0; i < 10000; ++i) {
            node->domain.progress();
        }
        EXPECT_EQ(0u, node->iface.errors);
        node->until("error of a later send", [&]() {
            ucs_status_t status = uct_ep_am_short(node->ep->ep, AM_ID, 0,
                                                  nullptr, 0);
            return (status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE);
        });
    });
}

// Who has closed without reading everything has lost something: UCP waits for
// an answer then.
TEST(PeerFailure, FarewellWithUnreadMessagesIsAnError)
{
    run_ranks([](Rank &rank) {
        if (!is_soft()) {
            throw Skipped("only soft0 tells leaving from dying");
        }

        auto node = std::make_unique<Node>(rank);

        greet(*node, AM_ID);
        node->sync();
        rank.oob.progress_with(nullptr);
        if (rank.id == 1) {
            rank.oob.recv();
            node.reset();
            rank.oob.send("closed");
            return;
        }

        check(uct_ep_am_short(node->ep->ep, AM_ID, 0, nullptr, 0),
              "am_short"); // nobody reads this one
        rank.oob.send("close");
        rank.oob.recv();
        node->until("call of the error handler",
                    [&]() { return node->iface.errors > 0; });
    });
}

// Who posts a transfer to a peer that has left is told, though it has no bytes
// and so is done at once. The first one cannot know yet.
TEST(PeerFailure, TransferOfNoBytesTellsOfAFarewell)
{
    for (RmaKind kind : {RmaKind::PutShort, RmaKind::PutBcopy,
                         RmaKind::PutZcopy, RmaKind::GetBcopy,
                         RmaKind::GetZcopy}) {
        run_ranks([kind](Rank &rank) {
            if (!is_soft()) {
                throw Skipped("an RNIC's peer answers, or does not");
            }

            auto node = std::make_unique<Node>(rank);
            uint8_t local;
            const auto post = [&]() {
                return rma_post(*node, kind, &local, UCT_MEM_HANDLE_NULL, 0, 0,
                                UCT_INVALID_RKEY, nullptr);
            };

            greet(*node, AM_ID);
            EXPECT_EQ(0, post()) << name_of(kind);
            node->sync();
            rank.oob.progress_with(nullptr);
            if (rank.id == 1) {
                rank.oob.recv();
                node.reset();
                rank.oob.send("closed");
                return;
            }

            rank.oob.send("close");
            rank.oob.recv();
            EXPECT_EQ(0u, node->iface.errors);
            EXPECT_EQ(0, post()) << name_of(kind);
            node->until("call of the error handler",
                        [&]() { return node->iface.errors > 0; });
            EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, post()) << name_of(kind);
        });
    }
}

class KilledInTransfer : public testing::TestWithParam<RmaKind> {
};

TEST_P(KilledInTransfer, EveryCompletionIsCalled)
{
    peer_dies([](Rank &rank) {
        const size_t length = 4 << 20;
        RmaKind kind        = GetParam();
        Node node(rank);
        UctMem local(node.domain, MemKind::Local, length);
        UctMem target(node.domain, MemKind::Heap, length);
        UctRemote remote(node.domain, rank.oob.exchange(target.describe()));
        unsigned posted = 0;
        Comp comp(1);

        rma_limit(node.iface, kind, length);
        node.iface.require(UCT_IFACE_FLAG_EP_CHECK, "EP_CHECK");
        require_failure_handling(node.iface);
        memset(local.at(), 1, length);
        memset(target.at(), 0, length);
        node.sync();

        if (rank.id == 1) {
            // Die when the first put has begun; of gets, just now
            auto *first = (volatile uint8_t*)target.at();
            node.until("first byte", [&]() {
                return !rma_is_put(kind) || (*first != 0);
            });
            raise(SIGKILL);
        }

        node.until("error of a transfer", [&]() {
            ++comp.count;
            ssize_t ret = rma_post(node, kind, local, 0, length,
                                   remote.address, remote.rkey(), &comp);
            ++posted;
            if (ret != UCS_INPROGRESS) {
                --comp.count;
            }
            return (comp.status != UCS_OK) || (node.iface.errors > 0) ||
                   ((ret < 0) && (ret != UCS_ERR_NO_RESOURCE));
        });
        node.until("every completion", [&]() {
            uct_ep_check(node.ep->ep, 0, nullptr);
            return comp.count == 1;
        });
        EXPECT_GT(posted, 0u);
    });
}

INSTANTIATE_TEST_SUITE_P(
        Uct, KilledInTransfer,
        testing::Values(RmaKind::PutZcopy, RmaKind::GetZcopy),
        [](const testing::TestParamInfo<RmaKind> &info) {
            return name_of(info.param);
        });

TEST(PeerFailure, PendingOfADeadPeerCanBePurged)
{
    peer_dies([](Rank &rank) {
        Node node(rank);
        uct_pending_req_t request = {};
        ucs_status_t status = UCS_OK;
        unsigned purged = 0;

        if (test_tl() == "tcp") {
            throw Skipped("tcp asserts that whoever has room sends");
        }
        node.iface.require(UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_PENDING,
                           "AM_SHORT and PENDING");
        require_failure_handling(node.iface);
        node.iface.on_am(AM_ID, ignore_am, nullptr);
        node.sync();
        if (rank.id == 1) {
            rank.oob.progress_with(nullptr);
            rank.oob.recv();
            raise(SIGKILL);
        }

        while (status == UCS_OK) {
            status = uct_ep_am_short(node.ep->ep, AM_ID, 0, nullptr, 0);
        }
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
        request.func = [](uct_pending_req_t*) {
            return UCS_ERR_NO_RESOURCE;
        };
        check(uct_ep_pending_add(node.ep->ep, &request, 0),
              "uct_ep_pending_add");
        rank.oob.send("die");
        rank.oob.wait_peer_gone(rank.peer);
        wait_for_error(node);
        uct_ep_pending_purge(node.ep->ep,
                             [](uct_pending_req_t*, void *arg) {
                                 ++*static_cast<unsigned*>(arg);
                             }, &purged);
        EXPECT_EQ(1u, purged);
        node.ep.reset();
    });
}

TEST(PeerFailure, AddressOfAProcessThatIsGone)
{
    peer_dies([](Rank &rank) {
        UctDomain domain;
        UctIface iface(domain);
        ucs_status_t status = UCS_OK;
        Progress progress   = [&]() { return domain.progress(); };

        iface.require(UCT_IFACE_FLAG_CONNECT_TO_IFACE, "CONNECT_TO_IFACE");
        iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        require_failure_handling(iface);
        std::string theirs = rank.oob.exchange(iface.address);
        if (rank.id == 1) {
            raise(SIGKILL);
        }

        rank.oob.wait_peer_gone(rank.peer);
        if (!iface.reaches(theirs)) {
            return; // told at once
        }
        try {
            UctEp ep(iface, theirs);
            wait_until("error of a send", progress, [&]() {
                status = uct_ep_am_short(ep.ep, AM_ID, 0, nullptr, 0);
                uct_ep_check(ep.ep, 0, nullptr);
                return (iface.errors > 0) ||
                       ((status < 0) && (status != UCS_ERR_NO_RESOURCE));
            });
        } catch (const Failed &error) {
            if (strstr(error.what(), "waited") != nullptr) {
                throw;
            } // else the endpoint was refused
        }
    });
}

} // namespace
