// SPDX-License-Identifier: BSD-3-Clause
// A flush that cancels: what is outstanding ends at once, and so does the endpoint.
#include "uct_face.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace nt;

namespace {

// A completion that begins an atomic when it is called, as programs do that keep
// the number of their operations up.
struct Again : uct_completion_t {
    Again(UctEp &ep, uint64_t address, uct_rkey_t rkey) :
        ep(ep), address(address), rkey(rkey)
    {
        count  = 1;
        status = UCS_OK;
        func   = [](uct_completion_t *self) {
            Again *again = static_cast<Again*>(self);

            again->ended  = again->status;
            again->posted = again->begin(nullptr);
        };
    }

    ucs_status_t begin(uct_completion_t *comp)
    {
        return uct_ep_atomic64_fetch(ep.ep, UCT_ATOMIC_OP_ADD, 1, &result,
                                     address, rkey, comp);
    }

    UctEp        &ep;
    uint64_t     address;
    uct_rkey_t   rkey;
    uint64_t     result = 0;
    ucs_status_t ended  = UCS_INPROGRESS;
    ucs_status_t posted = UCS_INPROGRESS;
};

TEST(Cancel, IsTheEndOfAnEndpoint)
{
    RunOptions options;

    options.ranks = 1;
    run_ranks([](Rank &) {
        if (!is_nprdma()) {
            GTEST_SKIP() << "what it does to others is theirs";
        }

        UctDomain domain;
        UctIface iface(domain);
        UctEp ep(iface, iface.address);
        UctMem word(domain, MemKind::Mmap, sizeof(uint64_t));
        UctRemote remote(domain, word.describe());
        Again again(ep, remote.address, remote.rkey());
        Comp flushed;
        ucs_status_t status;
        const auto add  = [&]() { return again.begin(nullptr); };
        const auto send = [&]() {
            return uct_ep_am_short(ep.ep, 3, 0, nullptr, 0);
        };

        memset(word.at(), 0, word.length);
        // connected, and then something is outstanding
        domain.post("an atomic", add);
        while (uct_ep_flush(ep.ep, 0, nullptr) != UCS_OK) {
            domain.progress();
        }
        ASSERT_EQ(UCS_INPROGRESS, domain.post("another one", [&]() {
            return again.begin(&again);
        }));

        EXPECT_EQ(UCS_OK, uct_ep_flush(ep.ep, UCT_FLUSH_FLAG_CANCEL, nullptr));
        EXPECT_EQ(UCS_ERR_CANCELED, again.ended);
        EXPECT_EQ(UCS_ERR_CANCELED, again.posted) << "from the callback";
        EXPECT_EQ(UCS_ERR_CANCELED, domain.post("later", add)) << "and later";
        EXPECT_EQ(UCS_ERR_CANCELED, domain.post("a message", send));
        status = uct_ep_flush(ep.ep, 0, &flushed);
        EXPECT_NE(UCS_INPROGRESS, status) << "nothing is left to wait for";
        for (int i = 0; i < 1000; ++i) {
            domain.progress();
        }
        EXPECT_EQ(0u, iface.errors) << "who cancels need not be told";
    }, options);
}

} // namespace
