// SPDX-License-Identifier: BSD-3-Clause
// A stream of active messages whose order, lengths and bytes are checked.
#ifndef NPRDMA_TEST_AM_STREAM_H
#define NPRDMA_TEST_AM_STREAM_H

#include "uct_face.h"

namespace nt {

enum class AmKind { Short, ShortIov, Bcopy, Zcopy };

std::string name_of(AmKind kind);

// Every message is [8 bytes: number][payload: the pattern of that number].
// Both ranks know the lengths of the payloads.
class AmSink {
public:
    AmSink(Node &node, uint8_t id, std::vector<size_t> lengths,
           unsigned hold = 0);
    ~AmSink();

    // Until `count` messages in all have come.
    void wait(size_t count);
    size_t received() const { return m_received; }
    void release_held();

    // The first thing that was wrong; empty if nothing was.
    std::string error;

private:
    struct Held {
        void     *data;
        size_t   length;
        uint64_t number;
    };

    static ucs_status_t handler(void *arg, void *data, size_t length,
                                unsigned flags);
    void check_message(const void *data, size_t length, uint64_t number);

    Node                &m_node;
    std::vector<size_t> m_lengths;
    size_t              m_received = 0;
    unsigned            m_hold; // keep so many descriptors for a while
    std::vector<Held>   m_held;
};

class AmSource {
public:
    AmSource(Node &node, AmKind kind, uint8_t id);

    // Longest payload that this kind of message carries.
    size_t max_payload() const;

    // UCS_ERR_NO_RESOURCE if there is no room now.
    ssize_t try_send(uint64_t number, size_t length);
    void send(uint64_t number, size_t length);

    // Until every zero-copy message was completed.
    void finish();

    // Where in its buffer the payload starts; for unaligned sources.
    size_t offset = 0;

    Comp zcopy; // of all zero-copy messages

private:
    ssize_t send_iov(uint64_t number, size_t length, bool is_short);

    Node                    &m_node;
    AmKind                  m_kind;
    uint8_t                 m_id;
    std::unique_ptr<UctMem> m_mem;   // only zero-copy: its payloads
    std::vector<uint8_t>    m_plain; // the others' payload
    size_t                  m_slot = 0;
};

} // namespace nt

#endif
