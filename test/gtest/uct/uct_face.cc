// SPDX-License-Identifier: BSD-3-Clause
// UCT objects that clean up after themselves, for the tests of a transport.
#include "uct_face.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucs/async/async_fwd.h>

#include <algorithm>
#include <cstring>

namespace nt {

static std::string from_environment(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return ((value == nullptr) || (*value == 0)) ? fallback : value;
}

std::string test_tl()
{
    return from_environment("NPRDMA_TEST_TL", "nprdma");
}

std::string test_device()
{
    return from_environment("NPRDMA_TEST_DEV", "soft0");
}

bool is_nprdma()
{
    return test_tl() == "nprdma";
}

bool is_soft()
{
    return is_nprdma() && (test_device() == "soft0");
}

// An RDMA device on one host is reached only if that is wanted, and a death is
// noticed when it has given up.
static void prepare_device()
{
    if (is_nprdma() && !is_soft()) {
        setenv("UCX_NPRDMA_INTRA_NODE", "verbs", 1);
        setenv("UCX_NPRDMA_CONNECT_TIMEOUT", "15s", 0);
        setenv("UCX_NPRDMA_VERBS_TIMEOUT", "100ms", 0);
    }
}

void lacking(const std::string &what)
{
    if (is_nprdma()) {
        throw Failed("nprdma must have " + what);
    }
    throw Skipped(test_tl() + " has no " + what);
}

void check(ucs_status_t status, const std::string &what)
{
    if (status != UCS_OK) {
        throw Failed(what + ": " + ucs_status_string(status));
    }
}

Settings with_ring(int ring)
{
    std::string size = std::to_string(ring);

    if (ring == 0) {
        return {};
    } else if (is_soft()) {
        return {{"RING_SIZE", size}};
    } else if (is_nprdma()) {
        size = std::to_string(std::max(ring, 2));
        return {{"VERBS_CREDITS", size}, {"VERBS_SEND_BUFFERS", size}};
    }
    // The stock shared memory transports; they refuse a size of 1
    return {{"MM_FIFO_SIZE", size}, {"MM_FIFO_RELEASE_FACTOR", "0"}};
}

ucs_status_t modify(void *config, const std::string &name,
                    const std::string &value)
{
    ucs_status_t status = uct_config_modify(config, name.c_str(),
                                            value.c_str());

    // From UCX 1.17 on a name has its table's prefix
    return (status != UCS_ERR_NO_ELEM) ? status :
           uct_config_modify(config, ("NPRDMA_" + name).c_str(), value.c_str());
}

static void modify(void *config, const Settings &settings)
{
    for (const auto &setting : settings) {
        if (modify(config, setting.first, setting.second) != UCS_OK) {
            lacking("setting " + setting.first + "=" + setting.second);
        }
    }
}

UctDomain::UctDomain(const Settings &settings) : m_settings(settings)
{
    unsigned count;

    prepare_device();
    check(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &m_async),
          "ucs_async_context_create");
    check(uct_worker_create(m_async, UCS_THREAD_MODE_SINGLE, &worker),
          "uct_worker_create");
    check(uct_query_components(&m_components, &count),
          "uct_query_components");

    for (unsigned i = 0; (i < count) && (md == nullptr); ++i) {
        if (open(m_components[i], settings)) {
            component = m_components[i];
        }
    }

    if (md == nullptr) {
        throw Failed("UCX does not offer transport " + test_tl() +
                     " with device " + test_device() +
                     "; for nprdma, put libnprdma_preload.so into LD_PRELOAD");
    }
    check(uct_md_query(md, &attr), "uct_md_query");
}

UctDomain::~UctDomain()
{
    if (md != nullptr) {
        uct_md_close(md);
    }
    if (m_components != nullptr) {
        uct_release_component_list(m_components);
    }
    if (worker != nullptr) {
        uct_worker_destroy(worker);
    }
    if (m_async != nullptr) {
        ucs_async_context_destroy(m_async);
    }
}

std::string UctDomain::setting(const std::string &name) const
{
    for (const auto &each : m_settings) {
        if (each.first == name) {
            return each.second;
        }
    }
    return from_environment(("UCX_NPRDMA_" + name).c_str(), "");
}

bool UctDomain::uses_rings() const
{
    return is_soft() && (setting("SINGLE_COPY") == "off");
}

const char *UctDomain::why_no_get_short() const
{
    return uses_rings() ? "through the rings nothing returns with the data" :
           (setting("MR_SCOPE") == "exact") ?
           "with exact scope not all can be read without its owner" : nullptr;
}

bool UctDomain::has_device(uct_md_h candidate)
{
    uct_tl_resource_desc_t *resources;
    unsigned count;
    bool found = false;

    if (uct_md_query_tl_resources(candidate, &resources, &count) != UCS_OK) {
        return false;
    }

    for (unsigned i = 0; i < count; ++i) {
        found = found || ((test_tl() == resources[i].tl_name) &&
                          (test_device() == resources[i].dev_name));
    }
    uct_release_tl_resource_list(resources);
    return found;
}

bool UctDomain::open(uct_component_h candidate, const Settings &settings)
{
    uct_component_attr_t query = {};

    query.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT |
                       UCT_COMPONENT_ATTR_FIELD_NAME;
    if (uct_component_query(candidate, &query) != UCS_OK) {
        return false;
    }
    if (is_nprdma() && (test_tl() != query.name)) {
        return false;
    }

    std::vector<uct_md_resource_desc_t> resources(query.md_resource_count);
    query.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    query.md_resources = resources.data();
    check(uct_component_query(candidate, &query), "uct_component_query");

    for (const auto &resource : resources) {
        uct_md_config_t *config;
        ucs_status_t status;

        check(uct_md_config_read(candidate, nullptr, nullptr, &config),
              "uct_md_config_read");
        modify(config, settings);
        status = uct_md_open(candidate, resource.md_name, config, &md);
        uct_config_release(config);
        if (status != UCS_OK) {
            md = nullptr;
            continue;
        }

        if (has_device(md)) {
            return true;
        }
        uct_md_close(md);
        md = nullptr;
    }
    return false;
}

static ucs_status_t count_error(void *arg, uct_ep_h, ucs_status_t)
{
    ++*static_cast<unsigned*>(arg);
    return UCS_OK;
}

UctIface::UctIface(UctDomain &domain, const Settings &settings) :
    domain(domain)
{
    std::string tl = test_tl(), device = test_device();
    uct_iface_params_t params = {};
    uct_iface_config_t *config;
    ucs_status_t status;

    check(uct_md_iface_config_read(domain.md, tl.c_str(), nullptr, nullptr,
                                   &config), "uct_md_iface_config_read");
    modify(config, settings);

    params.field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                  UCT_IFACE_PARAM_FIELD_DEVICE |
                                  UCT_IFACE_PARAM_FIELD_CPU_MASK |
                                  UCT_IFACE_PARAM_FIELD_STATS_ROOT |
                                  UCT_IFACE_PARAM_FIELD_RX_HEADROOM |
                                  UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                                  UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                                  UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = tl.c_str();
    params.mode.device.dev_name = device.c_str();
    params.err_handler          = count_error;
    params.err_handler_arg      = &errors;
    status = uct_iface_open(domain.md, domain.worker, &params, config, &iface);
    uct_config_release(config);
    if ((status != UCS_OK) && !settings.empty() && !is_nprdma()) {
        lacking("iface with " + settings[0].first + "=" +
                settings[0].second);
    }
    check(status, "uct_iface_open");

    check(uct_iface_query(iface, &attr), "uct_iface_query");
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    address.resize(attr.device_addr_len + attr.iface_addr_len);
    check(uct_iface_get_device_address(iface,
                                       (uct_device_addr_t*)&address[0]),
          "uct_iface_get_device_address");
    if (attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) {
        check(uct_iface_get_address(
                      iface, (uct_iface_addr_t*)&address[attr.device_addr_len]),
              "uct_iface_get_address");
    }
}

UctIface::~UctIface()
{
    if (iface != nullptr) {
        uct_iface_close(iface);
    }
}

void UctIface::require(uint64_t flags, const std::string &names) const
{
    if ((attr.cap.flags & flags) != flags) {
        if ((flags == UCT_IFACE_FLAG_GET_SHORT) && !is_soft()) {
            throw Skipped(test_device() + " cannot return with the data");
        }
        if ((flags == UCT_IFACE_FLAG_GET_SHORT) &&
            (domain.why_no_get_short() != nullptr)) {
            throw Skipped(domain.why_no_get_short());
        }
        lacking(names);
    }
}

void UctIface::require_events(uint64_t flags, const std::string &names) const
{
    if ((attr.cap.event_flags & flags) != flags) {
        lacking(names);
    }
}

void UctIface::on_am(uint8_t id, uct_am_callback_t callback, void *arg)
{
    check(uct_iface_set_am_handler(iface, id, callback, arg, 0),
          "uct_iface_set_am_handler");
}

bool UctIface::reaches(const std::string &address) const
{
    auto *device = (const uct_device_addr_t*)address.data();

    return uct_iface_is_reachable(
            iface, device,
            (const uct_iface_addr_t*)(address.data() + attr.device_addr_len));
}

UctEp::UctEp(UctIface &iface, const std::string &address)
{
    uct_ep_params_t params = {};

    params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                        UCT_EP_PARAM_FIELD_DEV_ADDR |
                        UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface      = iface.iface;
    params.dev_addr   = (const uct_device_addr_t*)address.data();
    params.iface_addr = (const uct_iface_addr_t*)
                        (address.data() + iface.attr.device_addr_len);
    check(uct_ep_create(&params, &ep), "uct_ep_create");
}

void UctEp::close()
{
    if (ep != nullptr) {
        uct_ep_destroy(ep);
        ep = nullptr;
    }
}

UctMem::UctMem(UctDomain &domain, MemKind kind, size_t length) :
    length(length), m_domain(domain), m_kind(kind)
{
    if (kind == MemKind::Allocated) {
        uct_alloc_method_t method     = UCT_ALLOC_METHOD_MD;
        uct_mem_alloc_params_t params = {};

        if (!(domain.attr.cap.flags & UCT_MD_FLAG_ALLOC)) {
            lacking("memory of its own to allocate");
        }
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE;
        params.flags      = UCT_MD_MEM_ACCESS_ALL;
        params.mem_type   = UCS_MEMORY_TYPE_HOST;
        params.mds.mds    = &domain.md;
        params.mds.count  = 1;
        check(uct_mem_alloc(length, &method, 1, &params, &m_allocated),
              "uct_mem_alloc");
        m_address = static_cast<uint8_t*>(m_allocated.address);
        memh      = m_allocated.memh;
        return;
    }

    bool can_register = domain.attr.cap.flags & UCT_MD_FLAG_REG;
    if (!can_register && (is_nprdma() || (kind != MemKind::Local))) {
        lacking("memory registration");
    }
    if (kind != MemKind::Mmap) {
        m_address = static_cast<uint8_t*>(malloc(length));
    } else {
        void *mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        m_address = (mapped == MAP_FAILED) ? nullptr :
                                             static_cast<uint8_t*>(mapped);
    }
    if (m_address == nullptr) {
        throw Failed("no memory for a buffer");
    }
    if (!can_register) {
        return;
    }
    check(uct_md_mem_reg(domain.md, m_address, length, UCT_MD_MEM_ACCESS_ALL,
                         &memh), "uct_md_mem_reg");
    m_registered = true;
}

UctMem::~UctMem()
{
    if (m_registered) {
        uct_md_mem_dereg(m_domain.md, memh);
    }
    if (m_address == nullptr) {
        return;
    }

    if (m_kind == MemKind::Allocated) {
        uct_mem_free(&m_allocated);
    } else if (m_kind == MemKind::Mmap) {
        munmap(m_address, length);
    } else {
        free(m_address);
    }
}

uct_iov_t UctMem::iov(size_t offset, size_t length) const
{
    uct_iov_t iov = {};

    iov.buffer = at(offset);
    iov.length = length;
    iov.memh   = memh;
    iov.count  = 1;
    return iov;
}

std::string UctMem::describe() const
{
    uint64_t address = (uintptr_t)m_address;
    std::string key(m_domain.attr.rkey_packed_size, 0);

    check(uct_md_mkey_pack(m_domain.md, memh, &key[0]), "uct_md_mkey_pack");
    return std::string(reinterpret_cast<char*>(&address), sizeof(address)) +
           key;
}

UctRemote::UctRemote(UctDomain &domain, const std::string &description) :
    m_domain(domain)
{
    memcpy(&address, description.data(), sizeof(address));
    check(uct_rkey_unpack(domain.component,
                          description.data() + sizeof(address), &m_bundle),
          "uct_rkey_unpack");
}

UctRemote::~UctRemote()
{
    uct_rkey_release(m_domain.component, &m_bundle);
}

Comp::Comp(int operations)
{
    count  = operations;
    status = UCS_OK;
    func   = [](uct_completion_t *self) {
        ++static_cast<Comp*>(self)->calls;
    };
}

Node::Node(Rank &rank, const Settings &settings, const Settings &md_settings) :
    rank(rank), domain(md_settings), iface(domain, settings)
{
    iface.require(UCT_IFACE_FLAG_CONNECT_TO_IFACE, "CONNECT_TO_IFACE");
    rank.oob.progress_with([this]() { return domain.progress(); });

    std::string address = rank.oob.exchange(iface.address);
    if (!iface.reaches(address)) {
        lacking("way to the other rank");
    }
    ep = std::make_unique<UctEp>(iface, address);
    sync();
}

ssize_t UctDomain::post(const char *what,
                        const std::function<ssize_t()> &operation)
{
    ssize_t ret = UCS_ERR_NO_RESOURCE;
    const auto is_answered = [&]() {
        ret = operation();
        return ret != UCS_ERR_NO_RESOURCE;
    };

    wait_until(what, [this]() { return progress(); }, is_answered);
    return ret;
}

void Node::until(const char *what, const std::function<bool()> &condition)
{
    wait_until(what, [this]() { return domain.progress(); }, condition);
}

ssize_t Node::post(const char *what, const std::function<ssize_t()> &operation)
{
    return domain.post(what, operation);
}

void Node::complete(const char *what, Comp &comp,
                    const std::function<ssize_t()> &operation)
{
    ssize_t ret = post(what, operation);

    if (ret == UCS_INPROGRESS) {
        until(what, [&]() { return comp.calls > 0; });
        check(comp.status, what);
    } else if (ret < 0) {
        check((ucs_status_t)ret, what);
    } else if (comp.calls > 0) {
        throw Failed(std::string(what) + ": ended at once, but its "
                     "completion was called too");
    }
}

ucs_status_t Node::try_flush()
{
    ucs_status_t status = UCS_INPROGRESS;

    until("flush", [&]() {
        status = uct_ep_flush(ep->ep, UCT_FLUSH_FLAG_LOCAL, nullptr);
        return (status != UCS_INPROGRESS) && (status != UCS_ERR_NO_RESOURCE);
    });
    return status;
}

std::string name_of(Topology topology)
{
    return (topology == Topology::Loopback) ? "Loopback" : "TwoProcesses";
}

std::string name_of(MemKind kind)
{
    switch (kind) {
    case MemKind::Heap:
        return "Heap";
    case MemKind::Mmap:
        return "Mmap";
    case MemKind::Local:
        return "Local";
    default:
        return "Allocated";
    }
}

void run_in(Topology topology, const Body &body)
{
    RunOptions options;

    options.ranks = (topology == Topology::Loopback) ? 1 : 2;
    run_ranks(body, options);
}

} // namespace nt
