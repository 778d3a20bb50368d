// SPDX-License-Identifier: BSD-3-Clause
// What a caller must not ask for: where UCX checks parameters, each is an error,
// and nothing is sent.
#include "uct_face.h"

#include <gtest/gtest.h>
#include <ucs/config/global_opts.h>

#include <cstdio>
#include <cstring>

using namespace nt;

namespace {

constexpr uint8_t AM_ID = 3;

// Debian's UCX does; one that was built for speed alone may not.
void require_checks()
{
    char line[256];
    bool checks = false;
    FILE *info  = popen("ucx_info -b", "r");

    while ((info != nullptr) && (fgets(line, sizeof(line), info) != nullptr)) {
        checks = checks || (strstr(line, "ENABLE_PARAMS_CHECK") &&
                            strstr(line, " 1"));
    }
    if (info != nullptr) {
        pclose(info);
    }
    if (!is_nprdma() || !checks) {
        throw Skipped("no nprdma, or this UCX checks no parameters "
                      "(ENABLE_PARAMS_CHECK of ucx_info -b)");
    }
    // Errors are what is wanted here
    check(ucs_global_opts_set_value("LOG_LEVEL", "fatal"), "LOG_LEVEL");
}

ucs_status_t count_message(void *arg, void*, size_t, unsigned)
{
    ++*static_cast<unsigned*>(arg);
    return UCS_OK;
}

TEST(Checks, Operations)
{
    run_in(Topology::Loopback, [](Rank &rank) {
        require_checks();

        Node node(rank);
        const uct_iface_attr_t &attr = node.iface.attr;
        const size_t size = 2 * attr.cap.am.max_bcopy;
        UctMem local(node.domain, MemKind::Local, size);
        UctMem target(node.domain, MemKind::Mmap, size);
        UctRemote remote(node.domain, target.describe());
        uct_ep_h ep      = node.ep->ep;
        unsigned arrived = 0;
        uint64_t result;

        std::vector<uct_iov_t> many(attr.cap.am.max_iov + 1, local.iov(0, 1));
        uct_iov_t one = local.iov(0, 1), whole = local.iov(0, size);
        node.iface.on_am(AM_ID, count_message, &arrived);
        memset(target.at(), 7, size);

        auto pack = [](void *dest, void*) -> size_t {
            memset(dest, 0, 1);
            return 1;
        };
        auto unpack = [](void *arg, const void *data, size_t length) {
            memcpy(arg, data, length);
        };
        struct {
            const char *what;
            ssize_t    status;
        } wrong[] = {
            {"am_short: id", uct_ep_am_short(ep, UCT_AM_ID_MAX, 0, nullptr,
                                             0)},
            {"am_short_iov: id", uct_ep_am_short_iov(ep, UCT_AM_ID_MAX, &one,
                                                     1)},
            {"am_bcopy: id", uct_ep_am_bcopy(ep, UCT_AM_ID_MAX, pack, nullptr,
                                             0)},
            {"am_zcopy: id", uct_ep_am_zcopy(ep, UCT_AM_ID_MAX, nullptr, 0,
                                             &one, 1, 0, nullptr)},
            {"am_short: length",
             uct_ep_am_short(ep, AM_ID, 0, local.at(),
                             attr.cap.am.max_short - sizeof(uint64_t) + 1)},
            {"am_short_iov: length", uct_ep_am_short_iov(ep, AM_ID, &whole,
                                                         1)},
            {"am_short_iov: pieces", uct_ep_am_short_iov(ep, AM_ID, &many[0],
                                                         many.size())},
            {"am_zcopy: length", uct_ep_am_zcopy(ep, AM_ID, nullptr, 0, &whole,
                                                 1, 0, nullptr)},
            {"am_zcopy: pieces", uct_ep_am_zcopy(ep, AM_ID, nullptr, 0,
                                                 &many[0], many.size(), 0,
                                                 nullptr)},
            {"am_zcopy: header", uct_ep_am_zcopy(ep, AM_ID, local.at(),
                                                 attr.cap.am.max_hdr + 1, &one,
                                                 1, 0, nullptr)},
            {"put_short: length",
             uct_ep_put_short(ep, local.at(), attr.cap.put.max_short + 1,
                              remote.address, remote.rkey())},
            {"put_zcopy: pieces", uct_ep_put_zcopy(ep, &many[0], many.size(),
                                                   remote.address,
                                                   remote.rkey(), nullptr)},
            {"get_bcopy: length",
             uct_ep_get_bcopy(ep, unpack, local.at(),
                              attr.cap.get.max_bcopy + 1, remote.address,
                              remote.rkey(), nullptr)},
            {"get_zcopy: pieces", uct_ep_get_zcopy(ep, &many[0], many.size(),
                                                   remote.address,
                                                   remote.rkey(), nullptr)},
        };
        for (const auto &call : wrong) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, call.status) << call.what;
        }
        for (size_t offset : {1, 4}) {
            ssize_t status = node.post("room", [&]() {
                return uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, &result,
                                             remote.address + offset,
                                             remote.rkey(), nullptr);
            });
            EXPECT_EQ(UCS_ERR_INVALID_ADDR, status) << "unaligned atomic";
        }

        node.flush();
        for (size_t i = 0; i < size; ++i) {
            ASSERT_EQ(7, *target.at(i)) << i;
        }
        EXPECT_EQ(0u, arrived);
    });
}

// Of messages that are handed over where they lie nothing is aligned, but what
// makes no sense is refused. UCP's offset may be larger than the alignment.
TEST(Checks, Alignment)
{
    struct Case {
        uint64_t     fields;
        size_t       alignment, offset;
        ucs_status_t status;
    };
    const uint64_t align = UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT;
    const uint64_t shift = UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;

    run_in(Topology::Loopback, [&](Rank&) {
        require_checks();

        UctDomain domain;
        for (const Case &one : {Case{align, 0, 0, UCS_ERR_INVALID_PARAM},
                                Case{align, 3, 1, UCS_ERR_INVALID_PARAM},
                                Case{shift, 0, 11, UCS_ERR_INVALID_PARAM},
                                Case{align | shift, 8, 8, UCS_OK},
                                Case{align | shift, 8, 11, UCS_OK},
                                Case{align, 64, 0, UCS_OK},
                                Case{align | shift, 64, 8, UCS_OK}}) {
            std::string tl = test_tl(), device = test_device();
            uct_iface_params_t params = {};
            uct_iface_config_t *config;
            uct_iface_h iface;

            check(uct_md_iface_config_read(domain.md, tl.c_str(), nullptr,
                                           nullptr, &config),
                  "uct_md_iface_config_read");
            params.field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                          UCT_IFACE_PARAM_FIELD_DEVICE |
                                          one.fields;
            params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
            params.mode.device.tl_name  = tl.c_str();
            params.mode.device.dev_name = device.c_str();
            params.am_alignment         = one.alignment;
            params.am_align_offset      = one.offset;

            ucs_status_t status = uct_iface_open(domain.md, domain.worker,
                                                 &params, config, &iface);
            uct_config_release(config);
            EXPECT_EQ(one.status, status)
                    << "alignment " << one.alignment << ", offset "
                    << one.offset;
            if (status == UCS_OK) {
                uct_iface_close(iface);
            }
        }
    });
}

} // namespace
