// SPDX-License-Identifier: BSD-3-Clause
// Runs a test body in one or two fresh processes and brings the results home.
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <vector>

extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));

namespace nt {

enum { EXIT_PASSED = 0, EXIT_FAILED = 1, EXIT_SKIPPED = 77 };

static std::string error_text(const std::string &what)
{
    return what + ": " + strerror(errno);
}

double now()
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

double patience()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 60;
#else
    return 20;
#endif
}

void wait_until(const char *what, const Progress &progress,
                const std::function<bool()> &condition)
{
    double deadline = now() + patience();

    for (unsigned idle = 0; !condition();) {
        idle = ((progress != nullptr) && (progress() > 0)) ? 0 : idle + 1;
        if (idle > 100) {
            sched_yield();
        }
        if (((idle % 64) == 63) && (now() > deadline)) {
            std::ostringstream text;
            text << "waited " << patience() << " s for " << what;
            // Cleaning up after this may well crash
            fprintf(stderr, "%s\n", text.str().c_str());
            throw Failed(text.str());
        }
    }
}

Oob::~Oob()
{
    if (m_fd >= 0) {
        close(m_fd);
    }
}

void Oob::send(const std::string &message)
{
    // One byte in front, so that an empty message is not an end of file
    std::string packet = "." + message;

    if (::send(m_fd, packet.data(), packet.size(), MSG_NOSIGNAL) !=
        (ssize_t)packet.size()) {
        throw Failed(error_text("the other rank has gone (send)"));
    }
}

std::string Oob::recv()
{
    static const size_t max = 65536;
    std::string packet(max, 0);
    ssize_t ret = -1;

    wait_until("the other rank's message", m_progress, [&]() {
        ret = ::recv(m_fd, &packet[0], max, MSG_DONTWAIT);
        return (ret >= 0) || ((errno != EAGAIN) && (errno != EINTR));
    });
    if (ret <= 0) {
        throw Failed("the other rank has gone");
    }

    return packet.substr(1, ret - 1);
}

std::string Oob::exchange(const std::string &mine)
{
    if (m_fd < 0) {
        if (m_progress != nullptr) {
            m_progress();
        }
        return mine;
    }

    send(mine);
    return recv();
}

void Oob::wait_peer_gone(pid_t peer)
{
    wait_until("the other rank's end", m_progress, [&]() {
        return (kill(peer, 0) != 0) && (errno == ESRCH);
    });
}

namespace {

struct Child {
    pid_t       pid     = -1;
    int         report  = -1; // read end; closes when the child ends
    int         status  = 0;
    bool        ended   = false;
    bool        overdue = false;
    std::string text;
};

int child_run(const Body &body, Rank &rank, std::string &text)
{
    int failed = 0;

    testing::ScopedTrace trace("", 0, "rank " + std::to_string(rank.id));
    try {
        body(rank);
    } catch (const Skipped &skip) {
        text = skip.what();
        return testing::Test::HasFailure() ? EXIT_FAILED : EXIT_SKIPPED;
    } catch (const std::exception &error) {
        text   = error.what();
        failed = 1;
    }

    if ((failed == 0) && (__lsan_do_recoverable_leak_check != nullptr) &&
        (__lsan_do_recoverable_leak_check() != 0)) {
        text   = "memory was leaked";
        failed = 1;
    }

    return (failed || testing::Test::HasFailure()) ? EXIT_FAILED :
                                                     EXIT_PASSED;
}

[[noreturn]] void child_main(const Body &body, Rank &rank, int report)
{
    std::string text;
    int code;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    code = child_run(body, rank, text);
    if (write(report, text.data(), text.size()) < 0) {
        perror("report to the test");
    }
    fflush(nullptr);
    _exit(code);
}

// The first message on the ranks' channel tells the process id.
pid_t peer_pid(int fd)
{
    pid_t pid = getpid();

    if ((send(fd, &pid, sizeof(pid), MSG_NOSIGNAL) != sizeof(pid)) ||
        (recv(fd, &pid, sizeof(pid), 0) != sizeof(pid))) {
        _exit(EXIT_FAILED);
    }
    return pid;
}

void children_start(const Body &body, std::vector<Child> &children)
{
    int count = children.size();
    std::array<int, 2> pair = {-1, -1};

    if ((count == 2) &&
        (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
                    pair.data()) != 0)) {
        throw Failed(error_text("socketpair"));
    }

    fflush(nullptr);
    for (int i = 0; i < count; ++i) {
        int pipe_fds[2];

        if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
            throw Failed(error_text("pipe"));
        }

        children[i].pid = fork();
        if (children[i].pid < 0) {
            throw Failed(error_text("fork"));
        }
        if (children[i].pid == 0) {
            close(pipe_fds[0]);
            if (count == 2) {
                close(pair[!i]);
            }
            Rank rank{i, count, (count == 2) ? peer_pid(pair[i]) : getpid(),
                      Oob((count == 2) ? pair[i] : -1)};
            child_main(body, rank, pipe_fds[1]);
        }

        close(pipe_fds[1]);
        children[i].report = pipe_fds[0];
    }

    for (int fd : pair) {
        if (fd >= 0) {
            close(fd);
        }
    }
}

void child_collect(Child &child)
{
    while ((waitpid(child.pid, &child.status, 0) < 0) && (errno == EINTR)) {
    }
    close(child.report);
    child.ended = true;
}

void children_wait(std::vector<Child> &children, double limit)
{
    double deadline = now() + limit;
    size_t left     = children.size();

    while (left > 0) {
        std::vector<struct pollfd> fds;
        for (const Child &child : children) {
            fds.push_back({child.ended ? -1 : child.report, POLLIN, 0});
        }

        int ms = std::max(0.0, (deadline - now()) * 1000);
        if (poll(fds.data(), fds.size(), ms) == 0) {
            for (Child &child : children) {
                if (!child.ended) {
                    child.overdue = true;
                    kill(child.pid, SIGKILL);
                }
            }
            deadline = now() + limit;
            continue;
        }

        for (size_t i = 0; i < children.size(); ++i) {
            char buffer[4096];
            ssize_t ret;

            if (fds[i].revents == 0) {
                continue;
            }
            ret = read(fds[i].fd, buffer, sizeof(buffer));
            if (ret > 0) {
                children[i].text.append(buffer, ret);
            } else if (ret == 0) {
                child_collect(children[i]);
                --left;
            }
        }
    }
}

bool child_must_die(const RunOptions &options, size_t index)
{
    return options.peer_dies && (index == 1);
}

// Empty if this rank ended as it should.
std::string child_verdict(const Child &child, bool must_die)
{
    std::string tail = child.text.empty() ? "" : ": " + child.text;

    if (child.overdue) {
        return "did not end in time and was killed" + tail;
    } else if (WIFSIGNALED(child.status)) {
        if (must_die && (WTERMSIG(child.status) == SIGKILL)) {
            return "";
        }
        return std::string("died of ") + strsignal(WTERMSIG(child.status)) +
               tail;
    }

    switch (WEXITSTATUS(child.status)) {
    case EXIT_PASSED:
        return must_die ? "was to be killed, but ended by itself" : "";
    case EXIT_SKIPPED:
        return "";
    case EXIT_FAILED:
        return child.text.empty() ? "failed (see above)" : child.text;
    default:
        return "exited with code " +
               std::to_string(WEXITSTATUS(child.status)) + tail;
    }
}

} // namespace

RunResult run_ranks_result(const Body &body, const RunOptions &options)
{
    std::vector<Child> children(options.ranks);
    RunResult result;

    children_start(body, children);
    children_wait(children, (options.limit > 0) ? options.limit :
                                                  3 * patience());

    for (size_t i = 0; i < children.size(); ++i) {
        const Child &child  = children[i];
        std::string verdict = child_verdict(child, child_must_die(options, i));

        if (!verdict.empty()) {
            result.failures.push_back("rank " + std::to_string(i) + " " +
                                      verdict);
        } else if (WIFEXITED(child.status) &&
                   (WEXITSTATUS(child.status) == EXIT_SKIPPED)) {
            result.skip = child.text;
        }
    }

    return result;
}

void run_ranks(const Body &body, const RunOptions &options)
{
    RunResult result = run_ranks_result(body, options);

    for (const std::string &failure : result.failures) {
        ADD_FAILURE() << failure;
    }
    if (result.failures.empty() && !result.skip.empty()) {
        GTEST_SKIP() << result.skip;
    }
}

} // namespace nt
