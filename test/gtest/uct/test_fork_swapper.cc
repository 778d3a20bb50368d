// SPDX-License-Identifier: BSD-3-Clause
// Swappers belong to the process that has registered them, not to its children.
#include "paging_face.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

using namespace nt;

namespace {

int count_calls(void *arg, void*, size_t, int)
{
    ++*static_cast<std::atomic<unsigned>*>(arg);
    return 0;
}

// The child begins anew: its parent's swapper is not called. It has no tables, so
// one of its own would not be either, and is refused. 0, or which step has failed.
int child_begins_anew(const Area &area, std::atomic<unsigned> &parents)
{
    UctDomain domain;
    UctIface iface(domain);
    UctEp ep(iface, iface.address);
    SharedArea shared(domain, area);
    UctRemote remote(domain, shared.describe());
    std::atomic<unsigned> mine(0);
    nprdma_swapper_t swapper = {count_calls, &mine};
    std::vector<uint8_t> buffer(area.length());
    uct_iov_t iov = {buffer.data(), buffer.size(), nullptr, 0, 1};
    Comp comp;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (nprdma_register_swapper(area.at(), area.length(), &swapper) != -ENOSPC) {
        return 1;
    }
    while (status == UCS_ERR_NO_RESOURCE) {
        status = uct_ep_get_zcopy(ep.ep, &iov, 1, remote.address,
                                  remote.rkey(), &comp);
        domain.progress();
    }
    while ((status == UCS_INPROGRESS) && (comp.calls == 0)) {
        domain.progress();
    }
    if ((status != UCS_OK) && (comp.status != UCS_OK)) {
        return 2;
    }
    if (!pattern_diff(buffer.data(), buffer.size(), 1).empty()) {
        return 3;
    }
    if ((parents > 0) || (mine > 0)) {
        return 4;
    }
    return (nprdma_unregister_swapper(area.at(), area.length()) == -ENOENT) ? 0 :
           5;
}

TEST(ForkSwapper, ChildBeginsAnew)
{
    RunOptions options;

    options.ranks = 1;
    run_ranks([](Rank &) {
        nprdma_only();
        UctDomain domain;
        UctIface iface(domain);
        Area area(16 * PAGE);
        SharedArea shared(domain, area);
        std::atomic<unsigned> calls(0);
        nprdma_swapper_t swapper = {count_calls, &calls};
        int status = -1;

        pattern_fill(area.at(), area.length(), 1);
        ASSERT_EQ(0, nprdma_register_swapper(area.at(), area.length(),
                                             &swapper));
        pid_t child = fork();
        if (child == 0) {
            int step = 9;
            try {
                step = child_begins_anew(area, calls);
            } catch (const std::exception &) {
            }
            _exit(step);
        }
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_TRUE(WIFEXITED(status));
        EXPECT_EQ(0, WEXITSTATUS(status)) << "the step that failed";
        EXPECT_EQ(0, nprdma_unregister_swapper(area.at(), area.length()));
    }, options);
}

} // namespace
