// SPDX-License-Identifier: BSD-3-Clause
// The checkers and the two-process harness: that they pass, and that they fail.
#include "pattern.h"
#include "ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

using namespace nt;

TEST(Checker, AcceptsItsOwnPattern)
{
    for (size_t length : {0, 1, 7, 8, 9, 63, 1000}) {
        for (size_t offset : {0, 1, 5, 8, 13}) {
            std::vector<uint8_t> buffer(length + 1);
            pattern_fill(buffer.data(), length, 42, offset);
            EXPECT_EQ("", pattern_diff(buffer.data(), length, 42, offset));
        }
    }
}

TEST(Checker, PatternDependsOnOffsetAlone)
{
    std::vector<uint8_t> whole(500), part(100);

    pattern_fill(whole.data(), whole.size(), 7);
    pattern_fill(part.data(), part.size(), 7, 333);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 333));
    EXPECT_EQ(whole[333], pattern_byte(7, 333));
}

TEST(Checker, FindsEveryWrongByte)
{
    std::vector<uint8_t> buffer(257);

    for (size_t at = 0; at < buffer.size(); ++at) {
        pattern_fill(buffer.data(), buffer.size(), 3);
        buffer[at] ^= 0x10;
        std::string diff = pattern_diff(buffer.data(), buffer.size(), 3);
        EXPECT_NE(std::string::npos,
                  diff.find("byte " + std::to_string(at) + " "))
                << at << ": " << diff;
    }
}

TEST(Checker, TellsSeedsAndShiftsApart)
{
    std::vector<uint8_t> buffer(64);

    for (uint64_t seed = 0; seed < 1000; ++seed) {
        pattern_fill(buffer.data(), buffer.size(), seed);
        EXPECT_NE("", pattern_diff(buffer.data(), 8, seed + 1));
        EXPECT_NE("", pattern_diff(buffer.data() + 1, 8, seed));
        EXPECT_NE("", pattern_diff(buffer.data() + 8, 8, seed));
    }
}

TEST(Checker, FindsWritesNextToTheBlock)
{
    std::vector<uint8_t> buffer(Guarded::space(100));
    Guarded block(buffer.data(), 100);

    block.fill(1);
    EXPECT_EQ("", block.diff(1));
    EXPECT_NE("", block.diff(2));

    for (long at : {-256, -1, 100, 355}) {
        block.data()[at] ^= 1;
        EXPECT_NE("", block.diff(1)) << at;
        block.data()[at] ^= 1;
    }
    EXPECT_EQ("", block.diff(1));
}

TEST(Checker, SizesReachEveryThreshold)
{
    std::vector<size_t> sizes = sizes_around(5000);

    for (size_t size : {0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 4999,
                        5000}) {
        EXPECT_TRUE(std::binary_search(sizes.begin(), sizes.end(), size))
                << size;
    }
    EXPECT_EQ(5000u, sizes.back());
}

TEST(Harness, RanksMeet)
{
    run_ranks([](Rank &rank) {
        EXPECT_EQ(1 - rank.id, rank.oob.exchange_value(rank.id));
        EXPECT_EQ(rank.peer, std::stoi(rank.oob.exchange(
                                     std::to_string(getpid()))));
        rank.oob.barrier();
    });
}

TEST(Harness, OneRankMeetsItself)
{
    RunOptions options;

    options.ranks = 1;
    run_ranks([](Rank &rank) {
        EXPECT_TRUE(rank.initiator() && rank.target());
        EXPECT_EQ(17, rank.oob.exchange_value(17));
    }, options);
}

static std::string only_failure(const Body &body,
                                const RunOptions &options = {})
{
    RunResult result = run_ranks_result(body, options);

    EXPECT_EQ(1u, result.failures.size());
    return result.failures.empty() ? "" : result.failures[0];
}

TEST(Harness, ReportsFailuresOfEitherRank)
{
    for (int bad : {0, 1}) {
        EXPECT_EQ("rank " + std::to_string(bad) + " on purpose",
                  only_failure([bad](Rank &rank) {
                      if (rank.id == bad) {
                          throw Failed("on purpose");
                      }
                  }));
    }
}

TEST(Harness, ReportsExpectations)
{
    EXPECT_EQ("rank 1 failed (see above)", only_failure([](Rank &rank) {
        // This failure is meant, and is not to be seen
        if (freopen("/dev/null", "w", stdout) == nullptr) {
            throw Failed("cannot open /dev/null");
        }
        EXPECT_EQ(0, rank.id);
    }));
}

TEST(Harness, ReportsCrashes)
{
    EXPECT_EQ("rank 1 died of Killed", only_failure([](Rank &rank) {
        if (rank.id == 1) {
            raise(SIGKILL);
        }
    }));
}

TEST(Harness, ReportsHangs)
{
    RunOptions options;

    options.limit = 0.5;
    EXPECT_EQ("rank 1 did not end in time and was killed",
              only_failure([](Rank &rank) {
                  while (rank.id == 1) {
                      pause();
                  }
              }, options));
}

TEST(Harness, ReportsSkips)
{
    RunResult result = run_ranks_result([](Rank&) {
        throw Skipped("no reason");
    });

    EXPECT_TRUE(result.failures.empty());
    EXPECT_EQ("no reason", result.skip);
}

TEST(Harness, KilledRankIsExpectedWhenAskedFor)
{
    RunOptions options;

    options.peer_dies = true;
    run_ranks([](Rank &rank) {
        if (rank.id == 1) {
            raise(SIGKILL);
        }
        rank.oob.wait_peer_gone(rank.peer);
    }, options);
    EXPECT_EQ("rank 1 was to be killed, but ended by itself",
              only_failure([](Rank&) {}, options));
}

TEST(Harness, WaitingForAnEndedRankFails)
{
    EXPECT_EQ("rank 0 the other rank has gone", only_failure([](Rank &rank) {
        if (rank.id == 0) {
            rank.oob.recv();
        }
    }));
}
