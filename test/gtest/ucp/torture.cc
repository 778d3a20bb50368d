// SPDX-License-Identifier: BSD-3-Clause
// What a program may do with its memory while others reach it.
#include "torture.h"

#include "../harness/pattern.h"
#include "../harness/ranks.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern char **environ;

namespace nt {

constexpr size_t PAGE_SIZE = 4096;

// The page that a thread finds protected, and gets by its handler.
static uint8_t *volatile fault_page;
static volatile sig_atomic_t fault_count;
static volatile sig_atomic_t alarm_count;

uint64_t Random::next()
{
    // xorshift64*
    m_state ^= m_state >> 12;
    m_state ^= m_state << 25;
    m_state ^= m_state >> 27;
    return (m_state * UINT64_C(2685821657736338717)) >> 16;
}

static void on_fault(int, siginfo_t *info, void*)
{
    auto *address = static_cast<uint8_t*>(info->si_addr);
    int error     = errno;

    if ((address < fault_page) || (address >= fault_page + PAGE_SIZE)) {
        signal(SIGSEGV, SIG_DFL); // happens again, and ends us
        return;
    }
    ++fault_count;
    mprotect(fault_page, PAGE_SIZE, PROT_READ | PROT_WRITE);
    errno = error;
}

static void on_alarm(int)
{
    ++alarm_count;
}

static uint8_t *map(size_t length)
{
    void *base = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return (base == MAP_FAILED) ? nullptr : static_cast<uint8_t*>(base);
}

static void own_signals()
{
    struct itimerval timer  = {{0, 1000}, {0, 1000}};
    struct sigaction action = {};

    action.sa_sigaction = on_fault;
    action.sa_flags     = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    // system calls are interrupted: no SA_RESTART
    action.sa_flags   = 0;
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    setitimer(ITIMER_REAL, &timer, nullptr);
}

Torture::Torture(uint64_t seed, unsigned pause) : m_pause(pause)
{
    const Turn turns[] = {&Torture::heap_turn, &Torture::map_turn,
                          &Torture::child_turn, &Torture::fault_turn};

    fault_page = map(PAGE_SIZE);
    own_signals();
    for (Turn turn : turns) {
        ++seed;
        m_threads.emplace_back([this, turn, seed]() { thread(turn, seed); });
    }
}

Torture::~Torture()
{
    stop();
}

std::string Torture::stop()
{
    const struct itimerval never = {};
    struct sigaction now         = {};

    if (m_threads.empty()) {
        return m_error;
    }
    m_stops = true;
    for (std::thread &thread : m_threads) {
        thread.join();
    }
    m_threads.clear();
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGSEGV, nullptr, &now);
    require(now.sa_sigaction == on_fault, "the handler of SIGSEGV was changed");
    sigaction(SIGALRM, nullptr, &now);
    require(now.sa_handler == on_alarm, "the handler of SIGALRM was changed");
    require((alarm_count > 0) && (fault_count > 0), "no signal came");
    return m_error;
}

void Torture::require(bool good, const std::string &what)
{
    std::lock_guard<std::mutex> guard(m_lock);

    if (!good && m_error.empty()) {
        m_error = what;
    }
}

void Torture::thread(Turn turn, uint64_t seed)
{
    Random random(seed * 7919);

    while (!m_stops) {
        (this->*turn)(random);
        usleep(random.below(2 * m_pause));
    }
}

// Blocks of some bytes and of some megabytes, some of which grow.
void Torture::heap_turn(Random &random)
{
    struct Block {
        uint8_t *data;
        size_t  length;
    } blocks[8];
    uint64_t seed = random.next();

    for (Block &block : blocks) {
        block.length = 1 + random.below(size_t(1) << (3 + random.below(19)));
        block.data   = static_cast<uint8_t*>(malloc(block.length));
        pattern_fill(block.data, block.length, seed);
    }
    for (Block &block : blocks) {
        if (random.below(2) == 0) {
            block.data = static_cast<uint8_t*>(realloc(block.data,
                                                       2 * block.length));
        }
        require(pattern_diff(block.data, block.length, seed).empty(),
                "a block of the heap has changed");
        free(block.data);
    }
}

// Mappings that move, shrink, are emptied, protected and unmapped in pieces.
void Torture::map_turn(Random &random)
{
    size_t length = (1 + random.below(512)) * PAGE_SIZE;
    uint64_t seed = random.next();
    uint8_t *base = map(length);
    void *moved;

    require(base != nullptr, "mmap");
    pattern_fill(base, length, seed);
    moved = mremap(base, length, 2 * length, MREMAP_MAYMOVE);
    require(moved != MAP_FAILED, "mremap");
    base = static_cast<uint8_t*>(moved);
    require(pattern_diff(base, length, seed).empty(), "a mapping has changed");
    mprotect(base, length, PROT_READ);
    mprotect(base, length, PROT_READ | PROT_WRITE);
    madvise(base + length, length, MADV_DONTNEED);
    require(base[length] == 0, "what was given back is not empty");
    if (random.below(2) == 0) {
        munmap(base + length, length);
        moved = mremap(base, length, PAGE_SIZE, 0);
        require(moved == base, "mremap to a page");
        length = PAGE_SIZE / 2;
    }
    require(pattern_diff(base, PAGE_SIZE, seed).empty(),
            "a mapping has changed");
    munmap(base, 2 * length);
}

static pid_t child_start(unsigned kind, std::vector<uint8_t> &data)
{
    char name[]  = "/bin/true";
    char *args[] = {name, nullptr};
    pid_t pid    = -1;

    if (kind == 0) {
        return (posix_spawn(&pid, name, nullptr, nullptr, args, environ) ==
                0) ? pid : -1;
    }
    pid = fork();
    if (pid == 0) {
        if (kind == 1) {
            execv(name, args);
            _exit(1);
        }
        memset(data.data(), 0xdd, data.size());
        _exit(0);
    }
    return pid;
}

void Torture::child_turn(Random &random)
{
    std::vector<uint8_t> data(100000);
    uint64_t seed = random.next();
    int status    = -1;
    pid_t pid;

    pattern_fill(data.data(), data.size(), seed);
    pid = child_start(random.below(3), data);
    require(pid > 0, "a child was not started");
    while ((pid > 0) && (waitpid(pid, &status, 0) < 0) && (errno == EINTR)) {
    }
    require(WIFEXITED(status) && (WEXITSTATUS(status) == 0),
            "a child ended with status " + std::to_string(status));
    require(pattern_diff(data.data(), data.size(), seed).empty(),
            "a child has written into its parent");
    usleep(10 * m_pause);
}

void Torture::fault_turn(Random &random)
{
    const uint8_t value = random.next();
    const int before    = fault_count;

    mprotect(fault_page, PAGE_SIZE, PROT_NONE);
    *static_cast<volatile uint8_t*>(fault_page) = value;
    require(fault_count == before + 1, "a fault of ours was not ours");
    require(*static_cast<volatile uint8_t*>(fault_page) == value,
            "what was written after a fault is not there");
}

} // namespace nt
