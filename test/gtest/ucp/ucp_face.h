// SPDX-License-Identifier: BSD-3-Clause
// UCP objects that clean up after themselves, over the transports of UCX_TLS.
#ifndef NPRDMA_TEST_UCP_FACE_H
#define NPRDMA_TEST_UCP_FACE_H

#include "../harness/pattern.h"
#include "../harness/ranks.h"

#include <gtest/gtest.h>
#include <ucp/api/ucp.h>

#include <functional>
#include <string>
#include <vector>

namespace nt {

// UCX_TLS is set to nprdma if the caller did not set it.
bool is_nprdma();
bool is_soft(); // over soft0, not over an RDMA device (NPRDMA_TEST_DEV)

// What nprdma must have fails there; elsewhere the test is skipped.
[[noreturn]] void lacking(const std::string &what);

void check(ucs_status_t status, const std::string &what);

bool ucx_has(unsigned minor); // UCX 1.minor or later runs

// How UCP is to work in a test: its variables and the ranks.
struct Mode {
    const char *protocols;  // UCX_PROTO_ENABLE
    const char *rendezvous; // UCX_RNDV_SCHEME
    int        ranks;       // 1: to oneself

    std::string name() const;
    void run(const Body &body) const;
};

// UCX_PROTO_ENABLE, before a context is made: as programs have it, or
// `protocols`. Skips the test where this UCX cannot be used so.
const char *usual_protocols();
std::vector<Mode> usual_modes(); // two ranks, each rendezvous
void use_protocols(const char *protocols);

// Protocols and ranks, and with `rendezvous` all schemes too.
std::vector<Mode> all_modes(bool rendezvous);

std::string mode_name(const testing::TestParamInfo<Mode> &info);

struct UcpOptions {
    uint64_t          features;
    ucs_thread_mode_t threads     = UCS_THREAD_MODE_SINGLE;
    bool              peer_errors = false; // UCP_ERR_HANDLING_MODE_PEER
};

class UcpNode {
public:
    UcpNode(Rank &rank, const UcpOptions &options);
    ~UcpNode();
    UcpNode(const UcpNode&) = delete;

    unsigned progress() { return ucp_worker_progress(worker); }
    void until(const char *what, const std::function<bool()> &condition);
    void sync() { rank.oob.barrier(); }

    // Wait for a request, release it, and return its status.
    ucs_status_t wait(ucs_status_ptr_t request, const char *what);

    // The same; throws if it ended in an error.
    void finish(ucs_status_ptr_t request, const char *what);

    void flush_ep();
    void flush_worker();

    ucp_ep_h connect(const std::string &address);
    void close(ucp_ep_h ep, unsigned flags);

    Rank          &rank;
    ucp_context_h context = nullptr;
    ucp_worker_h  worker  = nullptr;
    ucp_ep_h      ep      = nullptr; // to the other rank, or to myself
    std::string   peer_address;
    unsigned      errors  = 0;       // calls of the error handler
    ucs_status_t  error   = UCS_OK;  // what the last one was told

private:
    UcpOptions m_options;
};

// Memory that peers may reach: the caller's own, or UCP's.
class UcpMem {
public:
    UcpMem(UcpNode &node, size_t length, bool allocated);
    ~UcpMem();
    UcpMem(const UcpMem&) = delete;

    uint8_t *at(size_t offset = 0) const { return m_address + offset; }
    std::string describe() const; // for UcpRemote

private:
    UcpNode              &m_node;
    std::vector<uint8_t> m_own;
    uint8_t              *m_address;
    ucp_mem_h            m_memh = nullptr;
};

class UcpRemote {
public:
    UcpRemote(ucp_ep_h ep, const std::string &description);
    ~UcpRemote() { ucp_rkey_destroy(rkey); }
    UcpRemote(const UcpRemote&) = delete;

    uint64_t   address;
    ucp_rkey_h rkey = nullptr;
};

// Parameters without any field.
const ucp_request_param_t &no_params();

} // namespace nt

#endif
