// SPDX-License-Identifier: BSD-3-Clause
// Transfers from and to memory that comes and goes.
#include "paging_face.h"

#include <algorithm>

namespace nt {

void nprdma_only()
{
    if (!is_nprdma()) {
        throw Skipped(test_tl() + " knows nothing of memory that goes");
    }
}

void soft_only(const std::string &reason)
{
    nprdma_only();
    if (!is_soft()) {
        throw Skipped("over " + test_device() + ": " + reason);
    }
}

bool counts_faults()
{
    return is_soft();
}

SharedArea::SharedArea(UctDomain &domain, const Area &area) :
    m_domain(domain), m_area(area)
{
    check(uct_md_mem_reg(domain.md, area.at(), area.length(),
                         UCT_MD_MEM_ACCESS_ALL, &m_memh), "uct_md_mem_reg");
}

SharedArea::~SharedArea()
{
    uct_md_mem_dereg(m_domain.md, m_memh);
}

std::string SharedArea::describe() const
{
    uint64_t address = (uintptr_t)m_area.at();
    std::string key(m_domain.attr.rkey_packed_size, 0);

    check(uct_md_mkey_pack(m_domain.md, m_memh, &key[0]), "uct_md_mkey_pack");
    return std::string(reinterpret_cast<char*>(&address), sizeof(address)) +
           key;
}

ucs_status_t rma_settle(Node &node, RmaKind kind, uint8_t *buffer,
                        size_t length, uint64_t remote_address,
                        uct_rkey_t rkey)
{
    Comp comp;
    ssize_t ret = node.post("room", [&]() {
        return rma_post(node, kind, buffer, UCT_MEM_HANDLE_NULL, length,
                        remote_address, rkey, &comp);
    });

    if (ret == UCS_INPROGRESS) {
        node.until(name_of(kind).c_str(), [&]() { return comp.calls > 0; });
        ret = comp.status;
    }
    return (ret < 0) ? (ucs_status_t)ret : node.try_flush();
}

void rma_finish(Node &node, RmaKind kind, uint8_t *buffer, size_t length,
                uint64_t remote_address, uct_rkey_t rkey)
{
    check(rma_settle(node, kind, buffer, length, remote_address, rkey),
          name_of(kind) + " of " + std::to_string(length) + " bytes");
}

void meet(Node &node, const UctRemote &remote)
{
    uint64_t word = 0;

    node.sync();
    if (node.rank.initiator()) {
        node.until("transfers without help", [&]() {
            Growth growth;
            rma_finish(node, RmaKind::GetZcopy, (uint8_t*)&word, sizeof(word),
                       remote.address, remote.rkey());
            return growth.of(&nprdma_counters_t::remote_faults) == 0;
        });
    }
    node.sync();
}

void expect_none(const std::string &what, const std::string &diff)
{
    if (!diff.empty()) {
        throw Failed(what + ": " + diff);
    }
}

std::string zero_diff(const uint8_t *bytes, size_t length)
{
    const uint8_t *wrong = std::find_if(bytes, bytes + length,
                                        [](uint8_t byte) { return byte; });

    return (wrong == bytes + length) ? "" :
           "byte " + std::to_string(wrong - bytes) + " of " +
           std::to_string(length) + " is " + std::to_string(*wrong) +
           " instead of 0";
}

} // namespace nt
