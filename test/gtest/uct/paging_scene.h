// SPDX-License-Identifier: BSD-3-Clause
// Memory to which something happens between two transfers, and what it holds
// then.
#ifndef NPRDMA_TEST_PAGING_SCENE_H
#define NPRDMA_TEST_PAGING_SCENE_H

#include "paging_face.h"

#include <string>
#include <vector>

namespace nt {

// What each page of an area holds: zeros, or a pattern's bytes at the page's
// own offset. If anything may have become zero, `is_loose`.
struct Image {
    static constexpr uint64_t ZERO = ~UINT64_C(0);

    // Empty if bytes [offset, offset + length) are so.
    std::string diff(const uint8_t *data, size_t offset, size_t length) const;

    std::vector<uint64_t> seeds;
    bool                  is_loose = false;
};

// A file without a name.
class File {
public:
    explicit File(size_t length);
    ~File();
    File(const File&) = delete;

    int fd() const { return m_fd; }
    void write(const std::vector<uint8_t> &bytes) const;
    std::vector<uint8_t> read(size_t length) const;

private:
    int m_fd;
};

// An area, or a shared mapping of a file.
struct Scene {
    static constexpr size_t PAGES = 40;

    explicit Scene(bool is_file);

    void fill(uint64_t seed);

    // Pages [first, end).
    void becomes(size_t first, size_t end, uint64_t seed);

    // Tell nprdma that something has happened.
    void tell() const { turn_absent(area.at(), area.length()); }

    File  file;
    Area  area;
    Image image;
    pid_t child    = -1;
    int   to_child = -1;
};

struct Event {
    const char *name;
    bool       is_file;            // what the scene is
    bool       faults;             // the next transfer must ask for pages
    void       (*happen)(Scene&);
    void       (*after)(Scene&);   // a last look at the scene, or nullptr
    bool       read_only  = false; // nobody may write there
    bool       needs_swap = false;
};

extern const std::vector<Event> EVENTS;

} // namespace nt

#endif
