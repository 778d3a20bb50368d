// SPDX-License-Identifier: BSD-3-Clause
// What belongs to the program, and to one process of it alone.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <dirent.h>
#include <fstream>
#include <map>
#include <string>

using namespace nt;

namespace {

// Of our own threads, by name: the signals that they block.
std::map<std::string, uint64_t> blocked_signals()
{
    std::map<std::string, uint64_t> found;
    DIR *tasks = opendir("/proc/self/task");

    while (const dirent *task = readdir(tasks)) {
        std::string directory = std::string("/proc/self/task/") + task->d_name;
        std::ifstream status(directory + "/status");
        std::string line, name;

        while (std::getline(status, line)) {
            if (line.rfind("Name:\t", 0) == 0) {
                name = line.substr(6);
            } else if ((line.rfind("SigBlk:\t", 0) == 0) &&
                       (name.rfind("nprdma-", 0) == 0)) {
                found[name] = std::stoull(line.substr(8), nullptr, 16);
            }
        }
    }
    closedir(tasks);
    return found;
}

// Signals go to the program's threads; but a fault in a swapper's function is
// the program's to mend, and would kill it if it were blocked.
TEST(Processes, ThreadsMayFault)
{
    run_in(Topology::Loopback, [](Rank &rank) {
        nprdma_only();
        Node node(rank);
        Area area(PAGE);
        SharedArea shared(node.domain, area);
        UctRemote remote(node.domain, shared.describe()); // from now on
        auto threads = blocked_signals();

        ASSERT_FALSE(threads.empty()) << "no service thread has begun";
        for (const auto &[name, blocked] : threads) {
            for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
                              SIGSYS}) {
                EXPECT_EQ(0u, (blocked >> (fault - 1)) & 1) << name << fault;
            }
            for (int other : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGCHLD}) {
                EXPECT_EQ(1u, (blocked >> (other - 1)) & 1) << name << other;
            }
        }
    });
}

// A child that ends in an orderly way frees what it has inherited: its own view
// of it alone.
TEST(Processes, ChildFreesInheritedMemory)
{
    run_in(Topology::Loopback, [](Rank&) {
        nprdma_only();
        UctDomain domain;
        auto memory = std::make_unique<UctMem>(domain, MemKind::Allocated,
                                               8 * PAGE);
        int status = -1;

        pattern_fill(memory->at(), 8 * PAGE, 1);
        pid_t child = fork();
        if (child == 0) {
            memory.reset();
            _exit(0);
        }
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
        EXPECT_EQ("", pattern_diff(memory->at(), 8 * PAGE, 1));
    });
}

// An endpoint to one's own iface.
struct Loop {
    UctDomain domain;
    UctIface  iface{domain};
    UctEp     ep{iface, iface.address};
    unsigned  received = 0;

    // A message, and an operation that is left outstanding.
    bool talk(const UctRemote &remote, uint64_t *result)
    {
        unsigned wanted = received + 1;

        iface.on_am(3, [](void *arg, void*, size_t, unsigned) {
            ++*static_cast<unsigned*>(arg);
            return UCS_OK;
        }, &received);
        while (uct_ep_am_short(ep.ep, 3, 0, nullptr, 0) ==
               UCS_ERR_NO_RESOURCE) {
            domain.progress();
        }
        wait_until("message", [&]() { return domain.progress(); },
                   [&]() { return received == wanted; });
        return uct_ep_atomic64_fetch(ep.ep, UCT_ATOMIC_OP_ADD, 1, result,
                                     remote.address, remote.rkey(),
                                     nullptr) == UCS_INPROGRESS;
    }

    void flush()
    {
        wait_until("flush", [&]() { return domain.progress(); }, [&]() {
            return uct_ep_flush(ep.ep, 0, nullptr) == UCS_OK;
        });
    }
};

int child_closes(std::unique_ptr<Loop> &inherited)
{
    uct_ep_flush(inherited->ep.ep, UCT_FLUSH_FLAG_CANCEL, nullptr);
    inherited.reset();

    // and then it is a program of its own
    Loop own;
    UctMem word(own.domain, MemKind::Mmap, sizeof(uint64_t));
    UctRemote remote(own.domain, word.describe());
    uint64_t result;

    memset(word.at(), 0, word.length);
    own.talk(remote, &result);
    own.flush();
    return 0;
}

// Frameworks close in a child what they had opened before they forked: the
// parent's connections, and what is outstanding on them, go on.
TEST(Processes, ChildClosesInheritedEndpoints)
{
    run_in(Topology::Loopback, [](Rank&) {
        if (!is_nprdma()) {
            GTEST_SKIP() << "what others do with it is theirs";
        }

        auto loop = std::make_unique<Loop>();
        UctMem word(loop->domain, MemKind::Mmap, sizeof(uint64_t));
        UctRemote remote(loop->domain, word.describe());
        uint64_t results[2] = {7, 7};
        int status          = -1;

        memset(word.at(), 0, word.length);
        ASSERT_TRUE(loop->talk(remote, &results[0]));
        pid_t child = fork();
        if (child == 0) {
            int failed = 1;
            try {
                failed = child_closes(loop);
            } catch (const std::exception &error) {
                fprintf(stderr, "child: %s\n", error.what());
            }
            _exit(failed);
        }
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);

        loop->flush();
        EXPECT_EQ(0u, results[0]);
        loop->talk(remote, &results[1]);
        loop->flush();
        EXPECT_EQ(1u, results[1]);
        EXPECT_EQ(0u, loop->iface.errors);
    });
}

} // namespace
