// SPDX-License-Identifier: BSD-3-Clause
// What belongs to the program, and to one process of it alone.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
        paging_only();
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
        paging_only();
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

} // namespace
