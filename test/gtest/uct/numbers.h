// SPDX-License-Identifier: BSD-3-Clause
// Numbers that came by active message, in the order in which they came.
#ifndef NPRDMA_TEST_NUMBERS_H
#define NPRDMA_TEST_NUMBERS_H

#include "uct_face.h"

#include <gtest/gtest.h>

namespace nt {

struct Numbers {
    std::vector<uint64_t> come;

    static ucs_status_t handler(void *arg, void *data, size_t, unsigned)
    {
        static_cast<Numbers*>(arg)->come.push_back(
                *static_cast<uint64_t*>(data));
        return UCS_OK;
    }

    // 0, 1, 2, ... and so many of them
    void expect_all(uint64_t count) const
    {
        ASSERT_EQ(count, come.size());
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(i, come[i]);
        }
    }
};

} // namespace nt

#endif
