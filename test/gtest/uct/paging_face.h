// SPDX-License-Identifier: BSD-3-Clause
// Transfers from and to memory that comes and goes.
#ifndef NPRDMA_TEST_PAGING_FACE_H
#define NPRDMA_TEST_PAGING_FACE_H

#include "rma_op.h"

#include "../harness/paging.h"

namespace nt {

// Other transports know nothing of memory that goes: the test is skipped there.
void nprdma_only();

// Over RNICs the test is skipped as well, and this is why.
void soft_only(const std::string &reason);

// Over RNICs without nprdma.ko transfers register their memory: no page is absent
// to them, and nothing is counted that has to do with it. What counters say is
// checked where this is true; data, order, completions and errors everywhere.
bool counts_faults();

// A reason: acknowledgements are numbers, and a queue pair's messages keep their
// order.
constexpr char BEHIND_IT[] = "what follows a put whose page sleeps waits for it";

// An area that peers may reach.
class SharedArea {
public:
    SharedArea(UctDomain &domain, const Area &area);
    ~SharedArea();
    SharedArea(const SharedArea&) = delete;

    std::string describe() const; // for UctRemote

private:
    UctDomain  &m_domain;
    const Area &m_area;
    uct_mem_h  m_memh;
};

// One transfer from start to end, its flush included; what it ended with. One
// whose kind has no completion may succeed although it has ended the endpoint.
ucs_status_t rma_settle(Node &node, RmaKind kind, uint8_t *buffer,
                        size_t length, uint64_t remote_address,
                        uct_rkey_t rkey);

// The same; throws unless it succeeded.
void rma_finish(Node &node, RmaKind kind, uint8_t *buffer, size_t length,
                uint64_t remote_address, uct_rkey_t rkey);

// Both ranks: until the initiator reaches memory that is there by itself.
// Before it has heard from its peer it asks for everything.
void meet(Node &node, const UctRemote &remote);

// Throws with this text in front unless there is no difference.
void expect_none(const std::string &what, const std::string &diff);

// Empty if all bytes are 0.
std::string zero_diff(const uint8_t *bytes, size_t length);

} // namespace nt

#endif
