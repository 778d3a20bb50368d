// SPDX-License-Identifier: BSD-3-Clause
// A stream of active messages whose order, lengths and bytes are checked.
#include "am_stream.h"

#include <algorithm>
#include <cstring>

namespace nt {

// Zero-copy payloads stay untouched until they are completed, so they
// take turns in this many buffers.
static constexpr size_t ZCOPY_SLOTS = 8;
static constexpr size_t SLACK       = 128; // for unaligned sources

std::string name_of(AmKind kind)
{
    static const char *names[] = {"Short", "ShortIov", "Bcopy", "Zcopy"};

    return names[(int)kind];
}

AmSink::AmSink(Node &node, uint8_t id, std::vector<size_t> lengths,
               unsigned hold) :
    m_node(node), m_lengths(std::move(lengths)), m_hold(hold)
{
    node.iface.on_am(id, handler, this);
}

AmSink::~AmSink()
{
    release_held();
}

void AmSink::check_message(const void *data, size_t length, uint64_t number)
{
    auto *bytes  = static_cast<const uint8_t*>(data);
    size_t wanted = m_lengths[number % m_lengths.size()] + sizeof(number);
    uint64_t found = 0;
    std::string name = "message " + std::to_string(number);

    if (!error.empty()) {
        return;
    }
    if (length != wanted) {
        error = name + " has " + std::to_string(length) + " bytes instead of " +
                std::to_string(wanted);
        return;
    }

    memcpy(&found, bytes, sizeof(found));
    if (found != number) {
        error = "message " + std::to_string(found) + " came in place of " +
                std::to_string(number);
        return;
    }

    std::string diff = pattern_diff(bytes + sizeof(number),
                                    length - sizeof(number), number);
    if (!diff.empty()) {
        error = name + ": " + diff;
    }
}

ucs_status_t AmSink::handler(void *arg, void *data, size_t length,
                             unsigned flags)
{
    auto *self = static_cast<AmSink*>(arg);
    uint64_t number = self->m_received++;

    self->check_message(data, length, number);
    if (!(flags & UCT_CB_PARAM_FLAG_DESC) ||
        (self->m_held.size() >= self->m_hold)) {
        return UCS_OK;
    }

    self->m_held.push_back({data, length, number});
    return UCS_INPROGRESS;
}

void AmSink::release_held()
{
    for (const Held &held : m_held) {
        check_message(held.data, held.length, held.number);
        uct_iface_release_desc(held.data);
    }
    m_held.clear();
}

void AmSink::wait(size_t count)
{
    m_node.until("active messages", [&]() {
        return (m_received >= count) || !error.empty();
    });
    if (error.empty() && (m_received > count)) {
        error = std::to_string(m_received) + " messages came instead of " +
                std::to_string(count);
    }
    if (!error.empty()) {
        throw Failed(error);
    }
}

AmSource::AmSource(Node &node, AmKind kind, uint8_t id) :
    zcopy(1), m_node(node), m_kind(kind), m_id(id)
{
    UctIface &iface = node.iface;

    switch (kind) {
    case AmKind::Short:
    case AmKind::ShortIov:
        iface.require(UCT_IFACE_FLAG_AM_SHORT, "AM_SHORT");
        break;
    case AmKind::Bcopy:
        iface.require(UCT_IFACE_FLAG_AM_BCOPY, "AM_BCOPY");
        break;
    case AmKind::Zcopy:
        iface.require(UCT_IFACE_FLAG_AM_ZCOPY, "AM_ZCOPY");
        m_mem = std::make_unique<UctMem>(node.domain, MemKind::Heap,
                                         ZCOPY_SLOTS *
                                         (max_payload() + SLACK));
        break;
    }
    m_plain.resize(max_payload() + SLACK);
}

size_t AmSource::max_payload() const
{
    const auto &am = m_node.iface.attr.cap.am;
    size_t whole   = (m_kind == AmKind::Bcopy) ? am.max_bcopy :
                     (m_kind == AmKind::Zcopy) ? am.max_zcopy : am.max_short;

    return std::min<size_t>(whole, 1 << 20) - sizeof(uint64_t);
}

struct PackArg {
    uint64_t number;
    size_t   length;
};

static size_t pack_message(void *dest, void *arg)
{
    auto *pack = static_cast<PackArg*>(arg);

    memcpy(dest, &pack->number, sizeof(pack->number));
    pattern_fill(static_cast<uint8_t*>(dest) + sizeof(pack->number),
                 pack->length, pack->number);
    return pack->length + sizeof(pack->number);
}

// Cut `length` bytes into up to four pieces; empty ones are among them.
static std::vector<size_t> cut(size_t length, size_t pieces)
{
    std::vector<size_t> lengths;

    for (size_t left = pieces; left > 1; --left) {
        size_t piece = (left == 3) ? 0 : length / 3;
        lengths.push_back(piece);
        length -= piece;
    }
    lengths.push_back(length);
    return lengths;
}

ssize_t AmSource::send_iov(uint64_t number, size_t length, bool is_short)
{
    const auto &am = m_node.iface.attr.cap.am;
    uct_iov_t iov[5];
    size_t count = 0, at = 0;
    size_t pieces = is_short ? 4 : std::min<size_t>(am.max_iov, 4);
    uint8_t *payload = m_plain.data() + offset;
    uct_mem_h memh   = UCT_MEM_HANDLE_NULL;

    if (is_short) {
        iov[count++] = {&number, sizeof(number), memh, 0, 1};
    } else {
        payload = m_mem->at((m_slot % ZCOPY_SLOTS) *
                            (max_payload() + SLACK) + offset);
        memh    = m_mem->memh;
    }

    pattern_fill(payload, length, number);
    for (size_t piece : cut(length, pieces)) {
        iov[count++] = {payload + at, piece, memh, 0, 1};
        at          += piece;
    }

    if (is_short) {
        return uct_ep_am_short_iov(m_node.ep->ep, m_id, iov, count);
    }

    ++zcopy.count;
    ssize_t ret = uct_ep_am_zcopy(m_node.ep->ep, m_id, &number,
                                  sizeof(number), iov, count, 0, &zcopy);
    if (ret != UCS_INPROGRESS) {
        --zcopy.count;
    }
    if (ret >= 0) {
        ++m_slot;
    }
    return ret;
}

ssize_t AmSource::try_send(uint64_t number, size_t length)
{
    PackArg pack = {number, length};

    switch (m_kind) {
    case AmKind::Short:
        pattern_fill(m_plain.data() + offset, length, number);
        return uct_ep_am_short(m_node.ep->ep, m_id, number,
                               m_plain.data() + offset, length);
    case AmKind::ShortIov:
        return send_iov(number, length, true);
    case AmKind::Bcopy:
        return uct_ep_am_bcopy(m_node.ep->ep, m_id, pack_message, &pack, 0);
    default:
        return send_iov(number, length, false);
    }
}

void AmSource::send(uint64_t number, size_t length)
{
    // The count starts at 1, which is our own reference
    if ((m_kind == AmKind::Zcopy) && (zcopy.count > (int)ZCOPY_SLOTS)) {
        m_node.until("completion of zero-copy messages",
                     [&]() { return zcopy.count == 1; });
    }

    ssize_t ret = m_node.post("room for an active message", [&]() {
        return try_send(number, length);
    });
    if (ret < 0) {
        check((ucs_status_t)ret, "active message of " +
                                 std::to_string(length) + " bytes");
    }
    if ((m_kind == AmKind::Bcopy) &&
        (ret != (ssize_t)(length + sizeof(number)))) {
        throw Failed("am_bcopy returned another length than was packed");
    }
}

void AmSource::finish()
{
    m_node.until("completion of zero-copy messages",
                 [&]() { return zcopy.count == 1; });
    check(zcopy.status, "zero-copy message");
}

} // namespace nt
