// SPDX-License-Identifier: BSD-3-Clause
// Workers: sleeping, several threads, several endpoints and workers.
#include "ucp_face.h"

#include <poll.h>

#include <thread>

using namespace nt;

namespace {

class Worker : public testing::TestWithParam<Mode> {
protected:
    static ucs_status_ptr_t send(ucp_ep_h ep, const std::vector<uint8_t> &data,
                                 ucp_tag_t tag)
    {
        return ucp_tag_send_nbx(ep, data.data(), data.size(), tag,
                                &no_params());
    }

    static ucs_status_ptr_t receive(ucp_worker_h worker,
                                    std::vector<uint8_t> &data, ucp_tag_t tag)
    {
        return ucp_tag_recv_nbx(worker, data.data(), data.size(), tag,
                                ~(ucp_tag_t)0, &no_params());
    }

    static int poll_fd(int fd, int milliseconds)
    {
        struct pollfd pollfd = {fd, POLLIN, 0};

        return poll(&pollfd, 1, milliseconds);
    }

    static int descriptor(UcpNode &node)
    {
        int fd = -1;

        check(ucp_worker_get_efd(node.worker, &fd), "ucp_worker_get_efd");
        return fd;
    }

    // Wait for a request asleep; a lost wake-up is a failure.
    static void finish_asleep(UcpNode &node, int fd, ucs_status_ptr_t request,
                              const char *what)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            check(UCS_PTR_STATUS(request), what);
            return;
        }
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            if (node.progress() > 0) {
                continue;
            }
            ucs_status_t status = ucp_worker_arm(node.worker);
            if (status == UCS_ERR_BUSY) {
                continue;
            }
            check(status, "ucp_worker_arm");
            if (poll_fd(fd, patience() * 1000) != 1) {
                throw Failed(std::string(what) + " woke nobody");
            }
        }
        check(ucp_request_check_status(request), what);
        ucp_request_free(request);
    }
};

TEST_P(Worker, PingPongAsleep)
{
    Mode mode = GetParam();

    mode.ranks = 2;
    mode.run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP});
        int fd = descriptor(node);

        for (size_t length : {8, 5000, 300000}) {
            std::vector<uint8_t> source(length), sink(length);
            for (uint64_t i = 0; i < 300; ++i) {
                if (rank.id == (int)(i % 2)) {
                    pattern_fill(source.data(), length, i);
                    finish_asleep(node, fd, send(node.ep, source, i), "send");
                } else {
                    finish_asleep(node, fd, receive(node.worker, sink, i),
                                  "receive");
                    ASSERT_EQ("", pattern_diff(sink.data(), length, i));
                }
            }
        }
        node.sync();
    });
}

TEST_P(Worker, SleepsUntilAMessageComes)
{
    Mode mode = GetParam();

    mode.ranks = 2;
    mode.run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP});
        std::vector<uint8_t> data(64);
        int fd = descriptor(node);

        for (uint64_t i = 0; i < 10; ++i) {
            ucs_status_ptr_t request = nullptr;

            node.sync();
            if (rank.id == 1) {
                request = receive(node.worker, data, i);
                // The connection may still be talking, but not for ever
                node.until("worker that sleeps", [&]() {
                    return (ucp_worker_arm(node.worker) == UCS_OK) &&
                           (poll_fd(fd, 10) == 0);
                });
            }
            // The sleeper makes no progress
            rank.oob.progress_with(nullptr);
            rank.oob.barrier();
            rank.oob.progress_with([&]() { return node.progress(); });
            if (rank.id == 0) {
                node.finish(send(node.ep, data, i), "send");
                node.flush_worker();
            } else {
                EXPECT_EQ(1, poll_fd(fd, patience() * 1000)) << "slept on";
                node.finish(request, "receive");
            }
        }
    });
}

// Another thread's signal wakes the sleeper.
TEST_P(Worker, Signal)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP});
        int fd = descriptor(node);

        node.sync();
        node.until("worker without events", [&]() {
            return ucp_worker_arm(node.worker) == UCS_OK;
        });
        std::thread waker([&]() {
            EXPECT_EQ(UCS_OK, ucp_worker_signal(node.worker));
        });
        EXPECT_EQ(1, poll_fd(fd, patience() * 1000));
        waker.join();
        node.sync();
    });
}

// Threads of both ranks share one worker.
TEST_P(Worker, TwoThreads)
{
    GetParam().run([](Rank &rank) {
        const int threads   = 2;
        const uint64_t each = 400;
        UcpNode node(rank, {UCP_FEATURE_TAG, UCS_THREAD_MODE_MULTI});
        std::vector<std::thread> running;
        ucp_worker_attr_t attr = {};

        attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
        check(ucp_worker_query(node.worker, &attr), "ucp_worker_query");
        if (attr.thread_mode != UCS_THREAD_MODE_MULTI) {
            lacking("thread mode MULTI");
        }

        node.sync();
        for (int thread = 0; thread < threads; ++thread) {
            running.emplace_back([&, thread]() {
                try {
                    for (uint64_t i = 0; i < each; ++i) {
                        const size_t lengths[] = {8, 3000, 20000, 150000};
                        size_t length = lengths[i % 4];
                        ucp_tag_t tag = i * threads + thread;
                        std::vector<uint8_t> source(length), sink(length);

                        pattern_fill(source.data(), length, tag);
                        ucs_status_ptr_t in  = receive(node.worker, sink,
                                                       tag);
                        ucs_status_ptr_t out = send(node.ep, source, tag);
                        node.finish(in, "receive");
                        node.finish(out, "send");
                        ASSERT_EQ("", pattern_diff(sink.data(), length, tag));
                    }
                } catch (const std::exception &error) {
                    ADD_FAILURE() << "thread " << thread << ": "
                                  << error.what();
                }
            });
        }
        for (std::thread &thread : running) {
            thread.join();
        }
        node.sync();
    });
}

TEST_P(Worker, ManyEndpointsToOneWorker)
{
    GetParam().run([](Rank &rank) {
        const size_t count = 32;
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<ucp_ep_h> eps;
        std::vector<std::vector<uint8_t>> source(count), sink(count);
        std::vector<ucs_status_ptr_t> requests;

        for (size_t i = 0; i < count; ++i) {
            eps.push_back(node.connect(node.peer_address));
            source[i].resize(1 + i * 3000);
            sink[i].resize(1 + i * 3000);
            pattern_fill(source[i].data(), source[i].size(), i);
            requests.push_back(receive(node.worker, sink[i], i));
            requests.push_back(send(eps[i], source[i], i));
        }
        for (ucs_status_ptr_t request : requests) {
            node.finish(request, "message");
        }
        for (size_t i = 0; i < count; ++i) {
            EXPECT_EQ("", pattern_diff(sink[i].data(), sink[i].size(), i));
        }
        node.sync();
        for (ucp_ep_h ep : eps) {
            node.close(ep, 0);
        }
        node.sync();
    });
}

// Endpoints come and go while their peer stays.
TEST_P(Worker, ConnectAndCloseManyTimes)
{
    GetParam().run([](Rank &rank) {
        UcpNode node(rank, {UCP_FEATURE_TAG});
        std::vector<uint8_t> source(100), sink(100);

        for (uint64_t i = 0; i < 50; ++i) {
            ucp_ep_h ep = node.connect(node.peer_address);
            pattern_fill(source.data(), source.size(), i);
            ucs_status_ptr_t in  = receive(node.worker, sink, i);
            ucs_status_ptr_t out = send(ep, source, i);
            node.finish(in, "receive");
            node.finish(out, "send");
            EXPECT_EQ("", pattern_diff(sink.data(), sink.size(), i));
            node.sync();
            node.close(ep, (i % 2) ? (unsigned)UCP_EP_CLOSE_FLAG_FORCE : 0);
            node.sync();
        }
    });
}

// Several contexts in a process, as Open MPI has them.
TEST_P(Worker, TwoContexts)
{
    GetParam().run([](Rank &rank) {
        UcpNode first(rank, {UCP_FEATURE_TAG});
        {
            UcpNode second(rank, {UCP_FEATURE_TAG});
            std::vector<uint8_t> a(200000), b(200000), to_a(200000),
                                 to_b(200000);

            rank.oob.progress_with([&]() {
                return first.progress() + second.progress();
            });
            pattern_fill(a.data(), a.size(), 1);
            pattern_fill(b.data(), b.size(), 2);
            std::vector<ucs_status_ptr_t> requests = {
                receive(first.worker, to_a, 9),
                receive(second.worker, to_b, 9), send(first.ep, a, 9),
                send(second.ep, b, 9)
            };
            for (ucs_status_ptr_t request : requests) {
                if (!UCS_PTR_IS_PTR(request)) {
                    check(UCS_PTR_STATUS(request), "message");
                    continue;
                }
                first.until("message", [&]() {
                    second.progress();
                    return ucp_request_check_status(request) !=
                           UCS_INPROGRESS;
                });
                ucp_request_free(request);
            }
            EXPECT_EQ("", pattern_diff(to_a.data(), to_a.size(), 1));
            EXPECT_EQ("", pattern_diff(to_b.data(), to_b.size(), 2));
            second.sync();
        }
        rank.oob.progress_with([&]() { return first.progress(); });
    });
}

INSTANTIATE_TEST_SUITE_P(Ucp, Worker, testing::ValuesIn(all_modes(false)),
                         mode_name);

} // namespace
