// SPDX-License-Identifier: BSD-3-Clause
// Scenes in which buffers are brought in as soon as their transfer is posted.
#include "prepare_scene.h"

#include <cstdlib>

namespace nt {

void prepare_settings(const std::vector<std::string> &settings)
{
    if (!is_soft()) {
        throw Skipped("what is looked at is soft0's");
    }
    setenv("UCX_RNDV_THRESH", "8k", 1);
    for (const std::string &setting : settings) {
        size_t at = setting.find('=');
        setenv(("UCX_NPRDMA_" + setting.substr(0, at)).c_str(),
               setting.substr(at + 1).c_str(), 1);
    }
}

void turns(UcpNode &node, int count)
{
    for (int i = 0; i < count; ++i) {
        node.progress();
    }
}

size_t resident(const Area &area, size_t length)
{
    std::vector<unsigned char> pages(length / PAGE);
    size_t count = 0;

    if (mincore(area.at(), length, pages.data()) != 0) {
        throw Failed("mincore");
    }
    for (unsigned char page : pages) {
        count += page & 1;
    }
    return count;
}

void meet(UcpNode &node)
{
    static uint8_t out[100000], in[100000];

    for (int i = 0; i < 20; ++i) {
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(
                node.worker, in, sizeof(in), 9, ALL, &no_params());
        node.finish(ucp_tag_send_nbx(node.ep, out, sizeof(out), 9,
                                     &no_params()), "first message");
        node.finish(receive, "first receive");
        node.sync();
    }
}

ucp_tag_message_h arrived(UcpNode &node, ucp_tag_t tag)
{
    ucp_tag_message_h message = nullptr;
    ucp_tag_recv_info_t info;

    node.until("unexpected message", [&]() {
        message = ucp_tag_probe_nb(node.worker, tag, ALL, 1, &info);
        return message != nullptr;
    });
    return message;
}

} // namespace nt
