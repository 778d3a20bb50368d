// SPDX-License-Identifier: BSD-3-Clause
// UCP objects that clean up after themselves, over the transports of UCX_TLS.
#include "ucp_face.h"

#include <stdlib.h>

#include <cstring>

namespace nt {

static std::string transports()
{
    const char *tls = getenv("UCX_TLS");

    return (tls == nullptr) ? "nprdma" : tls;
}

bool is_nprdma()
{
    return transports().find("nprdma") != std::string::npos;
}

void lacking(const std::string &what)
{
    if (is_nprdma()) {
        throw Failed("nprdma must have " + what);
    }
    throw Skipped(transports() + " has no " + what);
}

void check(ucs_status_t status, const std::string &what)
{
    if (status != UCS_OK) {
        throw Failed(what + ": " + ucs_status_string(status));
    }
}

bool ucx_has(unsigned minor)
{
    unsigned major, running, release;

    ucp_get_version(&major, &running, &release);
    return (major > 1) || (running >= minor);
}

const ucp_request_param_t &no_params()
{
    static const ucp_request_param_t params = {};

    return params;
}

std::string Mode::name() const
{
    std::string scheme = rendezvous;

    scheme = (scheme == "get_zcopy") ? "Get" :
             (scheme == "put_zcopy") ? "Put" : "";
    return std::string((protocols[0] == 'y') ? "New" : "Old") + scheme +
           ((ranks == 1) ? "Loopback" : "TwoProcesses");
}

void Mode::run(const Body &body) const
{
    RunOptions options;
    Mode mode = *this;

    options.ranks = ranks;
    run_ranks([body, mode](Rank &rank) {
        use_protocols(mode.protocols);
        setenv("UCX_RNDV_SCHEME", mode.rendezvous, 1);
        body(rank);
    }, options);
}

const char *usual_protocols()
{
    return ucx_has(16) ? "y" : "n";
}

std::vector<Mode> usual_modes()
{
    const char *protocols = usual_protocols();

    return {{protocols, "auto", 2}, {protocols, "get_zcopy", 2},
            {protocols, "put_zcopy", 2}};
}

void use_protocols(const char *protocols)
{
    if ((protocols[0] == 'n') && ucx_has(16)) {
        throw Skipped("UCX 1.16 and later crash with their older protocols in "
                      "puts and gets of a transport that needs no memh");
    }
    setenv("UCX_PROTO_ENABLE", protocols, 1);
}

std::vector<Mode> all_modes(bool rendezvous)
{
    std::vector<Mode> modes;

    for (int ranks : {2, 1}) {
        for (const char *protocols : {"n", "y"}) {
            modes.push_back({protocols, "auto", ranks});
            if (rendezvous) {
                modes.push_back({protocols, "get_zcopy", ranks});
                modes.push_back({protocols, "put_zcopy", ranks});
            }
        }
    }
    return modes;
}

std::string mode_name(const testing::TestParamInfo<Mode> &info)
{
    return info.param.name();
}

static void count_error(void *arg, ucp_ep_h, ucs_status_t status)
{
    auto *node = static_cast<UcpNode*>(arg);

    ++node->errors;
    node->error = status;
}

static std::string device()
{
    const char *value = getenv("NPRDMA_TEST_DEV");

    return ((value == nullptr) || (*value == 0)) ? "soft0" : value;
}

bool is_soft()
{
    return is_nprdma() && (device() == "soft0");
}

static void prepare_device()
{
    if (is_nprdma() && !is_soft()) {
        setenv("UCX_NET_DEVICES", device().c_str(), 1);
        setenv("UCX_NPRDMA_INTRA_NODE", "verbs", 1);
        setenv("UCX_NPRDMA_CONNECT_TIMEOUT", "15s", 0);
        setenv("UCX_NPRDMA_VERBS_TIMEOUT", "100ms", 0);
    }
}

UcpNode::UcpNode(Rank &rank, const UcpOptions &options) :
    rank(rank), m_options(options)
{
    ucp_worker_params_t worker_params = {};
    ucp_params_t params = {};
    ucp_address_t *address;
    ucp_config_t *config;
    ucs_status_t status;
    size_t length;

    setenv("UCX_TLS", "nprdma", 0);
    prepare_device();
    check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    params.field_mask        = UCP_PARAM_FIELD_FEATURES |
                               UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features          = options.features;
    params.mt_workers_shared = options.threads == UCS_THREAD_MODE_MULTI;
    status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        throw Failed("ucp_init with UCX_TLS=" + transports() + ": " +
                     ucs_status_string(status) + "; for nprdma, put "
                     "libnprdma_preload.so into LD_PRELOAD");
    }

    worker_params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = options.threads;
    check(ucp_worker_create(context, &worker_params, &worker),
          "ucp_worker_create");

    rank.oob.progress_with([this]() { return progress(); });
    check(ucp_worker_get_address(worker, &address, &length),
          "ucp_worker_get_address");
    std::string mine(reinterpret_cast<char*>(address), length);
    ucp_worker_release_address(worker, address);
    peer_address = rank.oob.exchange(mine);
    ep           = connect(peer_address);
    sync();
}

UcpNode::~UcpNode()
{
    try {
        if (ep != nullptr) {
            close(ep, (errors > 0) ? UCP_EP_CLOSE_FLAG_FORCE : 0);
        }
        if (errors == 0) {
            // Nobody leaves while the other one still closes
            sync();
        }
    } catch (const std::exception &error) {
        ADD_FAILURE() << "while closing: " << error.what();
    }

    rank.oob.progress_with(nullptr);
    if (worker != nullptr) {
        ucp_worker_destroy(worker);
    }
    if (context != nullptr) {
        ucp_cleanup(context);
    }
}

ucp_ep_h UcpNode::connect(const std::string &address)
{
    ucp_ep_params_t params = {};
    ucp_ep_h result;

    params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address         = (const ucp_address_t*)address.data();
    params.err_mode        = m_options.peer_errors ?
                             UCP_ERR_HANDLING_MODE_PEER :
                             UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.cb  = count_error;
    params.err_handler.arg = this;
    ucs_status_t status = ucp_ep_create(worker, &params, &result);
    if ((status == UCS_ERR_UNREACHABLE) && m_options.peer_errors) {
        lacking("error handling");
    }
    check(status, "ucp_ep_create");
    return result;
}

void UcpNode::close(ucp_ep_h closed, unsigned flags)
{
    ucp_request_param_t params = {};

    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags        = flags;
    wait(ucp_ep_close_nbx(closed, &params), "close of an endpoint");
}

void UcpNode::until(const char *what, const std::function<bool()> &condition)
{
    wait_until(what, [this]() { return progress(); }, condition);
}

ucs_status_t UcpNode::wait(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = UCS_INPROGRESS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }

    until(what, [&]() {
        status = ucp_request_check_status(request);
        return status != UCS_INPROGRESS;
    });
    ucp_request_free(request);
    return status;
}

void UcpNode::finish(ucs_status_ptr_t request, const char *what)
{
    check(wait(request, what), what);
}

void UcpNode::flush_ep()
{
    finish(ucp_ep_flush_nbx(ep, &no_params()), "flush of the endpoint");
}

void UcpNode::flush_worker()
{
    finish(ucp_worker_flush_nbx(worker, &no_params()), "flush of the worker");
}

UcpMem::UcpMem(UcpNode &node, size_t length, bool allocated) : m_node(node)
{
    ucp_mem_map_params_t params = {};
    ucp_mem_attr_t attr = {};

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                        UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    params.length     = length;
    if (allocated) {
        params.flags = UCP_MEM_MAP_ALLOCATE;
    } else {
        m_own.resize(length);
        params.address = m_own.data();
    }
    check(ucp_mem_map(node.context, &params, &m_memh), "ucp_mem_map");

    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    check(ucp_mem_query(m_memh, &attr), "ucp_mem_query");
    m_address = static_cast<uint8_t*>(attr.address);
}

UcpMem::~UcpMem()
{
    ucp_mem_unmap(m_node.context, m_memh);
}

std::string UcpMem::describe() const
{
    uint64_t address = (uintptr_t)m_address;
    std::string text(reinterpret_cast<char*>(&address), sizeof(address));
    void *buffer;
    size_t size;

    check(ucp_rkey_pack(m_node.context, m_memh, &buffer, &size),
          "ucp_rkey_pack");
    text.append(static_cast<char*>(buffer), size);
    ucp_rkey_buffer_release(buffer);
    return text;
}

UcpRemote::UcpRemote(ucp_ep_h ep, const std::string &description)
{
    memcpy(&address, description.data(), sizeof(address));
    check(ucp_ep_rkey_unpack(ep, description.data() + sizeof(address), &rkey),
          "ucp_ep_rkey_unpack");
}

} // namespace nt
