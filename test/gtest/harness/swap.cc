// SPDX-License-Identifier: BSD-3-Clause
// Swap to compressed memory, and pages that go there.
#include "swap.h"
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/swap.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace nt {

namespace {

constexpr size_t SWAP_BYTES = 1 << 30; // takes memory only as far as needed

std::string error_text(const std::string &what)
{
    return what + ": " + strerror(errno);
}

std::string read_line(const std::string &path)
{
    char buffer[64];
    int fd      = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ssize_t ret = (fd < 0) ? -1 : read(fd, buffer, sizeof(buffer));

    if (fd >= 0) {
        close(fd);
    }
    std::string text(buffer, (ret > 0) ? ret : 0);
    return text.substr(0, text.find('\n'));
}

bool write_line(const std::string &path, const std::string &line)
{
    int fd      = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    ssize_t ret = (fd < 0) ? -1 : write(fd, line.data(), line.size());

    if (fd >= 0) {
        close(fd);
    }
    return ret == (ssize_t)line.size();
}

// A device of our own, so that nobody else's is touched.
class Zram {
public:
    // Empty, or what was in the way.
    std::string start()
    {
        m_number = read_line("/sys/class/zram-control/hot_add");
        if (m_number.empty()) {
            return error_text("the kernel gives no zram device");
        }
        if (!write_line(sys() + "disksize", std::to_string(SWAP_BYTES))) {
            return error_text("the zram device takes no size");
        }
        if (!write_header() || (swapon(device().c_str(), 0) != 0)) {
            return error_text("no swap on " + device());
        }
        return "";
    }

    void stop()
    {
        if (!m_number.empty()) {
            swapoff(device().c_str());
            write_line(sys() + "reset", "1");
            write_line("/sys/class/zram-control/hot_remove", m_number);
        }
    }

private:
    std::string sys() const { return "/sys/block/zram" + m_number + "/"; }
    std::string device() const { return "/dev/zram" + m_number; }

    // What mkswap would write
    bool write_header() const
    {
        std::vector<char> page(sysconf(_SC_PAGESIZE));
        uint32_t version = 1, last = SWAP_BYTES / page.size() - 1;
        int fd      = open(device().c_str(), O_WRONLY | O_CLOEXEC);
        ssize_t ret = -1;

        memcpy(&page[1024], &version, sizeof(version));
        memcpy(&page[1028], &last, sizeof(last));
        memcpy(&page[page.size() - 10], "SWAPSPACE2", 10);
        if (fd >= 0) {
            ret = write(fd, page.data(), page.size());
            fsync(fd);
            close(fd);
        }
        return ret == (ssize_t)page.size();
    }

    std::string m_number;
};

[[noreturn]] void keep_swap(int life, int report)
{
    Zram zram;
    char byte;

    // Out of the reach of who kills the test and all of its group
    setsid();
    std::string reason = zram.start();
    bool is_heard      = write(report, reason.data(), reason.size()) >= 0;
    close(report);
    while (reason.empty() && is_heard && (read(life, &byte, 1) < 0) &&
           (errno == EINTR)) {
    }
    zram.stop();
    _exit(0);
}

bool has_swap()
{
    struct sysinfo info;

    return (sysinfo(&info) == 0) && (info.totalswap > 0);
}

} // namespace

Swap::Swap()
{
    int life[2], report[2];
    char reason[256];
    ssize_t ret;

    if (has_swap()) {
        return;
    }
    if (geteuid() != 0) {
        throw Skipped("there is no swap, and only root can make some");
    }
    if ((pipe2(life, O_CLOEXEC) != 0) || (pipe2(report, O_CLOEXEC) != 0)) {
        throw Failed(error_text("pipe"));
    }

    m_keeper = fork();
    if (m_keeper == 0) {
        close(life[1]);
        close(report[0]);
        keep_swap(life[0], report[1]);
    }
    close(life[0]);
    close(report[1]);
    m_life = life[1];
    ret    = read(report[0], reason, sizeof(reason));
    close(report[0]);
    if (ret != 0) {
        close(m_life);
        waitpid(m_keeper, nullptr, 0);
        throw Skipped("no swap can be made: " +
                      std::string(reason, (ret > 0) ? ret : 0));
    }
}

Swap::~Swap()
{
    if (m_keeper >= 0) {
        close(m_life);
        waitpid(m_keeper, nullptr, 0);
    }
}

size_t pages_in_swap(const void *address, size_t length)
{
    const uint64_t in_swap = UINT64_C(1) << 62;
    const size_t page      = sysconf(_SC_PAGESIZE);
    std::vector<uint64_t> map(length / page);
    size_t size = map.size() * sizeof(map[0]), count = 0;
    int fd      = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    ssize_t ret = (fd < 0) ? -1 :
                  pread(fd, map.data(), size,
                        (uintptr_t)address / page * sizeof(map[0]));

    if (fd >= 0) {
        close(fd);
    }
    if (ret != (ssize_t)size) {
        throw Failed(error_text("/proc/self/pagemap"));
    }
    for (uint64_t entry : map) {
        count += (entry & in_swap) != 0;
    }
    return count;
}

// A page that another CPU has put into its batch for the LRU lists cannot be
// paged out. Moving a page between nodes empties the batches of all CPUs first;
// where the kernel cannot, compacting memory does too.
static void empty_batches(void *page)
{
    const int move = 1 << 1; // MPOL_MF_MOVE
    int node = 0, status = 0;

    if (syscall(SYS_move_pages, 0, 1ul, &page, &node, &status, move) < 0) {
        int fd = open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC);

        if ((fd >= 0) && (write(fd, "1", 1) != 1)) {
            sched_yield();
        }
        close(fd);
    }
}

// Of these, brings those in again that the kernel still has in memory, and for
// mincore() are there; returns how many there were.
static size_t recall_cached(uint8_t *address, size_t length)
{
    const size_t page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> map(length / page);
    size_t count = 0;

    if (mincore(address, length, map.data()) != 0) {
        throw Failed(error_text("mincore"));
    }
    for (size_t i = 0; i < map.size(); ++i) {
        if ((map[i] & 1) != 0) {
            (void)*(volatile uint8_t*)(address + (i * page));
            ++count;
        }
    }
    return count;
}

void page_out(void *address, size_t length)
{
    const size_t pages = length / sysconf(_SC_PAGESIZE);
    size_t gone        = 0;

    // Pages that the kernel is just busy with stay: let it go on, and try again
    for (int i = 0; (i < 10000) && (gone < pages); ++i) {
        if (i > 0) {
            sched_yield();
        }
        if ((i % 100) == 10) {
            empty_batches(address);
        }
        if (madvise(address, length, MADV_PAGEOUT) != 0) {
            throw Skipped(error_text("MADV_PAGEOUT"));
        }
        gone = pages_in_swap(address, length);
        if (gone == pages) {
            gone -= recall_cached(static_cast<uint8_t*>(address), length);
        }
    }
    if (gone < pages) {
        throw Skipped("MADV_PAGEOUT moves " + std::to_string(gone) + " of " +
                      std::to_string(pages) + " pages to swap");
    }
}

} // namespace nt
