// SPDX-License-Identifier: BSD-3-Clause
// UCT objects that clean up after themselves, for the tests of a transport.
#ifndef NPRDMA_TEST_UCT_FACE_H
#define NPRDMA_TEST_UCT_FACE_H

#include "../harness/pattern.h"
#include "../harness/ranks.h"

#include <uct/api/uct.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nt {

// The transport under test, from NPRDMA_TEST_TL and NPRDMA_TEST_DEV.
std::string test_tl();
std::string test_device();
bool is_nprdma();
bool is_soft(); // nprdma over soft0, not over an RDMA device

// What nprdma must have fails there; elsewhere the test is skipped.
[[noreturn]] void lacking(const std::string &what);

// Throws unless `status` is UCS_OK.
void check(ucs_status_t status, const std::string &what);

using Settings = std::vector<std::pair<std::string, std::string>>;

// For an iface that has room for so few messages to a peer; 0: its default.
Settings with_ring(int size);

// Sets a value in what uct_md_config_read() or uct_md_iface_config_read() gave
ucs_status_t modify(void *config, const std::string &name,
                    const std::string &value);

// Component, memory domain and worker.
class UctDomain {
public:
    explicit UctDomain(const Settings &settings = {});
    ~UctDomain();
    UctDomain(const UctDomain&) = delete;

    unsigned progress() { return uct_worker_progress(worker); }

    // What it answers at last: there is room, and no thread has the turn.
    ssize_t post(const char *what, const std::function<ssize_t()> &operation);

    // Does what nobody has mapped move through soft0's data rings, which only the
    // target's progress serves?
    bool uses_rings() const;

    // Why soft0 offers no short get; nullptr: it does.
    const char *why_no_get_short() const;

    uct_component_h component = nullptr;
    uct_md_h        md        = nullptr;
    uct_worker_h    worker    = nullptr;
    uct_md_attr_t   attr;

private:
    std::string setting(const std::string &name) const; // empty: the default
    bool open(uct_component_h candidate, const Settings &settings);
    bool has_device(uct_md_h candidate);

    Settings            m_settings;
    uct_component_h     *m_components = nullptr;
    ucs_async_context_t *m_async      = nullptr;
};

class UctIface {
public:
    UctIface(UctDomain &domain, const Settings &settings = {});
    ~UctIface();
    UctIface(const UctIface&) = delete;

    // Fails or skips unless all of these UCT_IFACE_FLAG_ bits are there.
    void require(uint64_t flags, const std::string &names) const;
    void require_events(uint64_t flags, const std::string &names) const;

    void on_am(uint8_t id, uct_am_callback_t callback, void *arg);
    bool reaches(const std::string &address) const;

    UctDomain        &domain;
    uct_iface_h      iface = nullptr;
    uct_iface_attr_t attr;
    std::string      address; // device address, then iface address
    unsigned         errors = 0; // calls of the error handler
};

class UctEp {
public:
    UctEp(UctIface &iface, const std::string &address);
    ~UctEp() { close(); }
    UctEp(const UctEp&) = delete;
    void close();

    uct_ep_h ep = nullptr;
};

// Local memory is for one's own side of a transfer: it is from the heap, and
// registered only where the domain registers memory.
enum class MemKind { Heap, Mmap, Allocated, Local };

// Memory that the domain knows, and its packed key.
class UctMem {
public:
    UctMem(UctDomain &domain, MemKind kind, size_t length);
    ~UctMem();
    UctMem(const UctMem&) = delete;

    uint8_t *at(size_t offset = 0) const { return m_address + offset; }
    uct_iov_t iov(size_t offset, size_t length) const;

    // Address and packed key, for UctRemote.
    std::string describe() const;

    size_t    length;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;

private:
    UctDomain              &m_domain;
    MemKind                m_kind;
    uint8_t                *m_address = nullptr;
    bool                   m_registered = false;
    uct_allocated_memory_t m_allocated;
};

// The other side's UctMem.
class UctRemote {
public:
    UctRemote(UctDomain &domain, const std::string &description);
    ~UctRemote();
    UctRemote(const UctRemote&) = delete;

    uct_rkey_t rkey() const { return m_bundle.rkey; }

    uint64_t address;

private:
    UctDomain         &m_domain;
    uct_rkey_bundle_t m_bundle;
};

// A completion that knows how often it was called.
struct Comp : uct_completion_t {
    explicit Comp(int operations = 1);
    unsigned calls = 0;
};

// One rank's iface, connected to the other rank's (or to itself).
class Node {
public:
    explicit Node(Rank &rank, const Settings &settings = {},
                  const Settings &md_settings = {});

    void sync() { rank.oob.barrier(); }
    void until(const char *what, const std::function<bool()> &condition);

    // Repeat while out of resources; the last status, or the length sent.
    ssize_t post(const char *what, const std::function<ssize_t()> &operation);

    // Post what completes through `comp` or at once, and wait for it.
    void complete(const char *what, Comp &comp,
                  const std::function<ssize_t()> &operation);

    ucs_status_t try_flush();
    void flush() { check(try_flush(), "flush of the endpoint"); }

    Rank                   &rank;
    UctDomain              domain;
    UctIface               iface;
    std::unique_ptr<UctEp> ep;
};

// What a suite's parameters are: two processes, or one with itself.
enum class Topology { TwoProcesses, Loopback };

std::string name_of(Topology topology);
std::string name_of(MemKind kind);
void run_in(Topology topology, const Body &body);

} // namespace nt

#endif
