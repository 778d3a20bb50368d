// SPDX-License-Identifier: BSD-3-Clause
// A pager of the program that is driven by faults.
#include "pager.h"

#include "paging.h"
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>

namespace nt {

namespace {

// All pagers of this process, for the report.
std::mutex          pagers_lock;
std::vector<Pager*> pagers;

[[noreturn]] void die(const std::string &what)
{
    fprintf(stderr, "pager: %s: %s\n", what.c_str(), strerror(errno));
    _exit(1);
}

std::string first_line(const std::string &path)
{
    std::ifstream file(path);
    std::string line;

    std::getline(file, line);
    return line;
}

// The functions of a thread in the kernel, as far as it is told.
std::string stack_of(const std::string &task)
{
    std::ifstream file(task + "/stack");
    std::string line, text;

    for (int i = 0; (i < 6) && std::getline(file, line); ++i) {
        text += " < " + line.substr(line.find(' ') + 1);
    }
    return text.empty() ? first_line(task + "/wchan") : text.substr(3);
}

void report_threads()
{
    DIR *dir = opendir("/proc/self/task");

    for (struct dirent *entry; (dir != nullptr) &&
                               ((entry = readdir(dir)) != nullptr);) {
        std::string task = std::string("/proc/self/task/") + entry->d_name;
        if (entry->d_name[0] != '.') {
            fprintf(stderr, "  thread %s (%s): %s\n", entry->d_name,
                    first_line(task + "/comm").c_str(),
                    stack_of(task).c_str());
        }
    }
    if (dir != nullptr) {
        closedir(dir);
    }
}

} // namespace

Watchdog::Watchdog(double limit) : m_limit(limit)
{
    begins("the beginning");
    m_thread = std::thread([this]() { run(); });
}

Watchdog::~Watchdog()
{
    m_is_over = true;
    m_thread.join();
}

void Watchdog::begins(const std::string &what)
{
    m_names.push_back(what);
    m_what = &m_names.back();
    ++m_beats;
}

void Watchdog::run()
{
    unsigned seen = 0;
    double since  = now();

    for (; !m_is_over; usleep(20000)) {
        if (m_beats != seen) {
            seen  = m_beats;
            since = now();
        } else if (now() - since > m_limit) {
            fprintf(stderr, "process %d hangs: %s\n", getpid(),
                    m_what.load()->c_str());
            for (const Pager *pager : pagers) {
                fprintf(stderr, "  %s\n", pager->state().c_str());
            }
            report_threads();
            _exit(1);
        }
    }
}

// The kernel's faults too: transfers use the memory through the kernel.
static int open_userfaultfd()
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
            close(device);
        }
    }
#endif
    if (fd < 0) {
        throw Skipped(std::string("no userfaultfd (root, or sysctl "
                                  "vm.unprivileged_userfaultfd=1): ") +
                      strerror(errno));
    }
    return fd;
}

// Nothing is touched here, which would wait for the pager's thread: it may need the
// lock.
int Pager::swap_in(void *arg, void *va, size_t length, int)
{
    auto *self   = static_cast<Pager*>(arg);
    size_t first = ((uint8_t*)va - self->m_base) / PAGE;
    std::lock_guard<std::mutex> lock(self->m_lock);

    for (size_t page = first; page < first + length / PAGE; ++page) {
        self->need(page);
    }
    return 0;
}

Pager::Pager(uint8_t *base, size_t length, size_t resident, Kind kind,
             size_t used) :
    m_base(base), m_length(length), m_resident(resident), m_kind(kind),
    m_used(used), m_fd(open_userfaultfd()), m_store(length),
    m_is_in(length / PAGE)
{
    struct uffdio_register all = {};
    struct uffdio_api api      = {};

    api.api = UFFD_API;
    if (kind == Shared) {
        api.features = UFFD_FEATURE_MISSING_SHMEM |
                       UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
    }
    all.range.start = (uintptr_t)base;
    all.range.len   = length;
    all.mode        = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
    if ((ioctl(m_fd, UFFDIO_API, &api) != 0) ||
        (ioctl(m_fd, UFFDIO_REGISTER, &all) != 0)) {
        close(m_fd);
        throw Skipped(std::string("userfaultfd of such memory: ") +
                      strerror(errno));
    }
    if (pipe(m_stop) != 0) {
        die("pipe");
    }

    // From here on each page is the pager's
    turn_absent(base, length);
    if (madvise(base, length, (kind == Shared) ? MADV_REMOVE :
                              MADV_DONTNEED) != 0) {
        die("to take all pages");
    }
    if (kind == Swapper) {
        nprdma_swapper_t swapper = {swap_in, this};
        if (nprdma_register_swapper(base, length, &swapper) != 0) {
            die("nprdma_register_swapper");
        }
    }
    std::lock_guard<std::mutex> lock(pagers_lock);
    pagers.push_back(this);
    m_thread = std::thread([this]() { run(); });
}

Pager::~Pager()
{
    if (m_kind == Swapper) {
        (void)nprdma_unregister_swapper(m_base, m_length);
    }
    // Each page is touched, and none is taken any more
    m_resident = m_length / PAGE;
    for (size_t at = 0; at < m_length; at += PAGE) {
        *(volatile uint8_t*)(m_base + at);
    }
    if (write(m_stop[1], "x", 1) != 1) {
        die("to stop");
    }
    m_thread.join();

    struct uffdio_range all = {(uintptr_t)m_base, m_length};
    ioctl(m_fd, UFFDIO_UNREGISTER, &all);
    close(m_fd);
    close(m_stop[0]);
    close(m_stop[1]);
    std::lock_guard<std::mutex> lock(pagers_lock);
    pagers.erase(std::find(pagers.begin(), pagers.end(), this));
}

std::string Pager::state() const
{
    static const char *const names[] = {"waits for a fault",
                                        "is in nprdma_notify_swap_out",
                                        "takes a page", "gives a page",
                                        "is in nprdma_notify_swap_in"};
    std::ostringstream text;

    text << "the pager of " << (void*)m_base << " (" << m_length / PAGE
         << " pages) " << names[m_step] << ", page " << m_page << " at "
         << (void*)(m_base + m_page * PAGE) << ", after " << m_faults
         << " faults";
    return text.str();
}

void Pager::run()
{
    struct pollfd fds[2] = {{m_fd, POLLIN, 0}, {m_stop[0], POLLIN, 0}};

    for (;;) {
        if ((poll(fds, 2, -1) < 0) && (errno != EINTR)) {
            die("poll");
        }
        if (fds[0].revents & POLLIN) {
            handle();
        } else if (fds[1].revents & POLLIN) {
            return;
        }
    }
}

void Pager::handle()
{
    struct uffd_msg msg;

    while (read(m_fd, &msg, sizeof(msg)) == sizeof(msg)) {
        if (msg.event == UFFD_EVENT_PAGEFAULT) {
            fault((msg.arg.pagefault.address - (uintptr_t)m_base) / PAGE);
        }
    }
}

void Pager::fault(size_t page)
{
    struct uffdio_range range = {(uintptr_t)m_base + page * PAGE, PAGE};
    std::lock_guard<std::mutex> lock(m_lock);

    if (m_is_in[page]) {
        // It came while the fault was on its way
        ioctl(m_fd, UFFDIO_WAKE, &range);
    } else {
        need(page);
    }
}

// Under the lock.
void Pager::need(size_t page)
{
    if (!m_is_in[page]) {
        // Room first: more than `resident` are never in
        while (m_order.size() >= m_resident) {
            evict(victim(page));
        }
        bring_in(page);
    }
}

// The oldest, of the others if it must be one of those.
std::deque<size_t>::iterator Pager::victim(size_t for_page)
{
    auto other = std::find_if(m_order.begin(), m_order.end(), [=](size_t page) {
        return (page < m_used) != (for_page < m_used);
    });

    return ((m_kind == Swapper) || (other == m_order.end())) ? m_order.begin() :
           other;
}

void Pager::evict(std::deque<size_t>::iterator which)
{
    const size_t page = *which;
    uint8_t *at       = m_base + page * PAGE;
    struct uffdio_writeprotect protect = {};

    m_page = page;
    m_step = TELLS_OUT;
    if (nprdma_notify_swap_out(at, PAGE) != 0) {
        die("nprdma_notify_swap_out");
    }

    // No peer touches it any more; the program itself must not write either
    m_step              = TAKES;
    protect.range.start = (uintptr_t)at;
    protect.range.len   = PAGE;
    protect.mode        = UFFDIO_WRITEPROTECT_MODE_WP;
    if (ioctl(m_fd, UFFDIO_WRITEPROTECT, &protect) != 0) {
        die("UFFDIO_WRITEPROTECT");
    }
    memcpy(&m_store[page * PAGE], at, PAGE);
    if (madvise(at, PAGE, (m_kind == Shared) ? MADV_REMOVE :
                          MADV_DONTNEED) != 0) {
        die("to take a page");
    }
    m_order.erase(which);
    m_is_in[page] = false;
    m_step        = IDLE;
}

void Pager::bring_in(size_t page)
{
    struct uffdio_copy copy = {};

    m_page       = page;
    m_step       = GIVES;
    copy.dst     = (uintptr_t)m_base + page * PAGE;
    copy.src     = (uintptr_t)&m_store[page * PAGE];
    copy.len     = PAGE;
    if (ioctl(m_fd, UFFDIO_COPY, &copy) != 0) {
        die("UFFDIO_COPY");
    }
    m_order.push_back(page);
    m_is_in[page] = true;
    ++m_faults;

    m_step = TELLS_IN;
    (void)nprdma_notify_swap_in(m_base + page * PAGE, PAGE);
    m_step = IDLE;
}

} // namespace nt
