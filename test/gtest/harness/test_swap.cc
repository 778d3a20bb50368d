// SPDX-License-Identifier: BSD-3-Clause
// Swap that is made for a test: that pages go there, and that it goes away.
#include "paging.h"
#include "pattern.h"
#include "ranks.h"
#include "swap.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

using namespace nt;

static std::string swaps()
{
    std::ifstream file("/proc/swaps");
    std::string line, names;

    // How much of each is in use may change
    while (std::getline(file, line)) {
        names += line.substr(0, line.find(' ')) + "\n";
    }
    return names;
}

TEST(SwapForTests, TakesPagesAndGivesThemBack)
{
    std::string before = swaps();

    try {
        Swap swap;
        run_ranks([](Rank&) {
            const size_t length = 300 * PAGE;
            Area area(length);

            pattern_fill(area.at(), length, 1);
            EXPECT_EQ(0u, pages_in_swap(area.at(), length));
            page_out(area.at(), length);
            EXPECT_EQ(300u, pages_in_swap(area.at(), length));
            EXPECT_EQ("", pattern_diff(area.at(), length, 1));
            EXPECT_EQ(0u, pages_in_swap(area.at(), length));
        });
    } catch (const Skipped &reason) {
        GTEST_SKIP() << reason.what();
    }
    EXPECT_EQ(before, swaps());
}

// Whoever has made it is killed before it could clean up.
TEST(SwapForTests, GoesWithItsMaker)
{
    std::string before = swaps();
    RunOptions options;

    try {
        Swap possible;
    } catch (const Skipped &reason) {
        GTEST_SKIP() << reason.what();
    }
    options.peer_dies = true;
    run_ranks([&before](Rank &rank) {
        if (rank.id == 1) {
            Swap swap;
            rank.oob.barrier();
            raise(SIGKILL);
        }
        rank.oob.barrier();
        rank.oob.wait_peer_gone(rank.peer);
        wait_until("the swap to go", nullptr, [&before]() {
            return swaps() == before;
        });
    }, options);
}
