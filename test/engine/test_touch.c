/* SPDX-License-Identifier: BSD-3-Clause */
/* Words that the program may unmap at any moment, and its own handlers of the
 * signals that say so. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/pause.h"
#include "nprdma/mem/arena.h"
#include "nprdma/mem/atomic.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/touch.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define TOUCH_PAGE 4096

#ifndef __SANITIZE_THREAD__
/* glibc's own */
int __sigaction(int number, const struct sigaction *action,
                struct sigaction *older);

/* Does a library come before it that lets nobody have a handler? */
static int touch_is_guarded;

/* As libucs_signal.so has it */
int sigaction(int number, const struct sigaction *action,
              struct sigaction *older)
{
    if (touch_is_guarded && ((number == SIGSEGV) || (number == SIGBUS))) {
        action = NULL;
    }
    return __sigaction(number, action, older);
}
#endif

static uint8_t *touch_map(int flags, int fd)
{
    void *mem = mmap(NULL, 2 * TOUCH_PAGE, PROT_READ | PROT_WRITE, flags, fd,
                     0);

    return (mem == MAP_FAILED) ? NULL : mem;
}

static uint8_t *touch_anonymous(void)
{
    return touch_map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static int touch_file(void)
{
    int fd = memfd_create("touch", MFD_CLOEXEC);

    return (ftruncate(fd, 2 * TOUCH_PAGE) == 0) ? fd : -1;
}

static void touch_words(void)
{
    uint64_t words[2] = {UINT64_C(0x1122334455667788), 5}, seen;
    const uintptr_t va = (uintptr_t)words;

    seen = 0;
    TAP_CHECK((np_touch_cas(va, 8, &seen, 1) == 0) && (seen == words[0]) &&
              (words[0] == UINT64_C(0x1122334455667788)),
              "touch: another word is told");
    TAP_CHECK((np_touch_cas(va, 8, &seen, ~UINT64_C(0)) == 1) &&
              (words[0] == ~UINT64_C(0)) && (words[1] == 5),
              "touch: the one that was expected is replaced");
    seen = ~UINT64_C(0);
    TAP_CHECK((np_touch_cas(va + 4, 4, &seen, UINT64_C(0xaaaa00000007)) == 1) &&
              (words[0] == UINT64_C(0x7ffffffff)),
              "touch: half of it is replaced");
    seen = 3;
    TAP_CHECK((np_touch_cas(va + 4, 4, &seen, 1) == 0) && (seen == 7) &&
              (words[0] == UINT64_C(0x7ffffffff)), "touch: half of it is told");
}

static void touch_absent(void)
{
    uint8_t *mem  = touch_anonymous(), *mapped;
    int fd        = touch_file();
    uint64_t seen = 0;

    mapped = touch_map(MAP_SHARED, fd);
    TAP_CHECK(np_touch_arm() == UCS_OK, "touch: armed");
    TAP_CHECK(np_touch_cas((uintptr_t)mem, 8, &seen, 1) == 1,
              "touch: a page that nobody has used");
    seen = 17;
    mprotect(mem, TOUCH_PAGE, PROT_READ);
    TAP_CHECK((np_touch_cas((uintptr_t)mem, 8, &seen, 2) == -1) &&
              (seen == 17) && (*(uint64_t*)mem == 1),
              "touch: a page that cannot be written");
    munmap(mem, TOUCH_PAGE);
    TAP_CHECK((np_touch_cas((uintptr_t)mem, 8, &seen, 2) == -1) &&
              (np_touch_cas((uintptr_t)mem + 4, 4, &seen, 2) == -1) &&
              (seen == 17), "touch: no page");
    TAP_CHECK(np_touch_cas(0, 8, &seen, 2) == -1, "touch: address 0");
    TAP_CHECK(np_touch_cas(UINT64_C(0xdeadbeef) << 32, 8, &seen, 2) == -1,
              "touch: no user address");
    ftruncate(fd, TOUCH_PAGE);
    TAP_CHECK((np_touch_cas((uintptr_t)mapped + TOUCH_PAGE, 4, &seen, 2) ==
               -1) && (seen == 17), "touch: behind the end of a file");
    munmap(mapped, 2 * TOUCH_PAGE);
    munmap(mem + TOUCH_PAGE, TOUCH_PAGE);
    close(fd);
}

/* A peer's atomics, and what the program does between the look at its page and
 * the use of it */
static uint8_t *touch_raced;
static int touch_raced_fd;

static void touch_unmap(np_pause_point_t point)
{
    if (point == NP_PAUSE_SERVE_MAPPED) {
        np_pause_hook = NULL;
        munmap(touch_raced, TOUCH_PAGE);
    }
}

static void touch_truncate(np_pause_point_t point)
{
    if (point == NP_PAUSE_SERVE_MAPPED) {
        np_pause_hook = NULL;
        ftruncate(touch_raced_fd, 0);
    }
}

/* Away, and others at its place at once */
static void touch_replace(np_pause_point_t point)
{
    if (point == NP_PAUSE_SERVE_MAPPED) {
        np_pause_hook = NULL;
        mprotect(touch_raced, TOUCH_PAGE, PROT_NONE);
        mmap(touch_raced, TOUCH_PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
}

static ucs_status_t touch_atomic(np_atomic_op_t op, size_t size, uint64_t value,
                                 uint64_t *result)
{
    const np_atomic_t request = {
        .addr  = (uintptr_t)touch_raced,
        .value = value,
        .op    = op,
        .size  = size
    };

    return np_atomic_execute(&request, NULL, 1, result);
}

static int touch_race_child(int fd, void (*hook)(np_pause_point_t point),
                            ucs_status_t expected)
{
    np_arenas_t arenas;
    uint64_t result;
    unsigned op;

    for (op = NP_ATOMIC_ADD; op < NP_ATOMIC_LAST; ++op) {
        touch_raced_fd = fd;
        if (fd >= 0) {
            ftruncate(fd, 2 * TOUCH_PAGE);
        }
        touch_raced = (fd < 0) ? touch_anonymous() : touch_map(MAP_SHARED, fd);
        np_arenas_share((uintptr_t)touch_raced, TOUCH_PAGE, &arenas);
        TAP_CHILD_CHECK(touch_atomic(NP_ATOMIC_ADD, 8, 5, &result) == UCS_OK);
        TAP_CHILD_CHECK((result == 0) && (*(uint64_t*)touch_raced == 5));
        np_pause_hook = hook;
        TAP_CHILD_CHECK(touch_atomic(op, (op % 2) ? 8 : 4, 1, &result) ==
                        expected);
        TAP_CHILD_CHECK(np_pause_hook == NULL);
        np_mapper_unmap((uintptr_t)touch_raced, TOUCH_PAGE);
        munmap(touch_raced, 2 * TOUCH_PAGE);
    }
    return 0;
}

/* Not in children: those have no tables. What fails here ends all tests. */
static void touch_races(void)
{
    int fd = touch_file();

    TAP_CHECK(touch_race_child(-1, touch_unmap, UCS_ERR_INVALID_ADDR) == 0,
              "touch: atomics on pages that are unmapped just now");
    TAP_CHECK(touch_race_child(fd, touch_truncate, UCS_ERR_INVALID_ADDR) == 0,
              "touch: atomics on files that are truncated just now");
    TAP_CHECK(touch_race_child(-1, touch_replace, UCS_OK) == 0,
              "touch: atomics on pages that are replaced just now");
    close(fd);
}

/* Handlers of the program. What they were called for is mended by
 * touch_mend. */
static uint8_t *touch_own;
static volatile sig_atomic_t touch_calls, touch_older_calls;
static volatile sig_atomic_t touch_is_right;
static struct sigaction touch_older;

static int touch_blocked(int number)
{
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, number);
}

static void touch_mend(int number, siginfo_t *info, void *context)
{
    ++touch_calls;
    touch_is_right = (number == SIGSEGV) && (info->si_addr == touch_own) &&
                     (context != NULL) && touch_blocked(SIGSEGV) &&
                     touch_blocked(SIGUSR1) && !touch_blocked(SIGUSR2);
    mprotect(touch_own, TOUCH_PAGE, PROT_READ | PROT_WRITE);
}

static void touch_mend_plainly(int number)
{
    ++touch_calls;
    touch_is_right = (number == SIGSEGV) && !touch_blocked(SIGSEGV);
    mprotect(touch_own, TOUCH_PAGE, PROT_READ | PROT_WRITE);
}

/* As a crash handler that remembers the one before */
static void touch_remember(int number, siginfo_t *info, void *context)
{
    ++touch_older_calls;
    if (touch_older.sa_flags & SA_SIGINFO) {
        touch_older.sa_sigaction(number, info, context);
    }
}

static void touch_install(void (*function)(int, siginfo_t*, void*),
                          struct sigaction *older)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};

    action.sa_sigaction = function;
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &action, older);
}

/* A fault of the program, and one of ours */
static int touch_fault_own(int calls)
{
    volatile uint8_t *own = touch_own;
    uint64_t seen         = 0;

    touch_calls    = 0;
    touch_is_right = 0;
    mprotect(touch_own, TOUCH_PAGE, PROT_NONE);
    TAP_CHILD_CHECK(np_touch_cas((uintptr_t)touch_own, 8, &seen, 1) == -1);
    TAP_CHILD_CHECK(touch_calls == 0);
    *own = 1;
    TAP_CHILD_CHECK((touch_calls == calls) && touch_is_right);
    TAP_CHILD_CHECK(!touch_blocked(SIGSEGV) && !touch_blocked(SIGUSR1));
    return 0;
}

static int touch_child_before(void)
{
    touch_own = touch_anonymous();
    touch_install(touch_mend, NULL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    return touch_fault_own(1) || touch_fault_own(1);
}

static int touch_child_plain(void)
{
    struct sigaction action = {.sa_handler = touch_mend_plainly,
                               .sa_flags   = SA_NODEFER};

    touch_own = touch_anonymous();
    sigaction(SIGSEGV, &action, NULL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    return touch_fault_own(1);
}

/* Installed later, and it chains to nobody */
static int touch_child_after(void)
{
    touch_own = touch_anonymous();
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    touch_install(touch_mend, NULL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    return touch_fault_own(1);
}

/* Installed later, and it chains to ours, which is above it again */
static int touch_child_circle(void)
{
    unsigned i;

    touch_own = touch_anonymous();
    touch_install(touch_mend, NULL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    for (i = 1; i < 5; ++i) {
        touch_install(touch_remember, &touch_older);
        TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
        touch_older_calls = 0;
        TAP_CHILD_CHECK(touch_fault_own(1) == 0);
        TAP_CHILD_CHECK(touch_older_calls == 1);
    }
    return 0;
}

/* There is an end of coming above others: then nothing is touched any more */
static int touch_child_limit(void)
{
    ucs_status_t status = UCS_OK;
    unsigned count;

    touch_own = touch_anonymous();
    for (count = 0; (count < 100) && (status == UCS_OK); ++count) {
        touch_install(touch_mend, NULL);
        status = np_touch_arm();
    }
    TAP_CHILD_CHECK((count > 1) && (count <= (NP_TOUCH_LEVELS + 1)));
    TAP_CHILD_CHECK(status == UCS_ERR_UNSUPPORTED);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_ERR_UNSUPPORTED);
    return 0;
}

#ifndef __SANITIZE_THREAD__
/* Our handler is never taken: nothing is touched, and no level is lost by
 * that */
static int touch_child_guarded(void)
{
    unsigned i;

    touch_own = touch_anonymous();
    touch_install(touch_mend, NULL);
    touch_is_guarded = 1;
    for (i = 0; i < (2 * NP_TOUCH_LEVELS); ++i) {
        TAP_CHILD_CHECK(np_touch_arm() == UCS_ERR_UNSUPPORTED);
    }

    touch_is_guarded = 0;
    for (i = 0; i < (NP_TOUCH_LEVELS / 2); ++i) {
        TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
        TAP_CHILD_CHECK(touch_fault_own(1) == 0);
        touch_install(touch_mend, NULL);
    }
    return 0;
}
#endif

/* On the stack that the program's handler is used to */
static uint8_t touch_stack[2 * 65536];
static volatile sig_atomic_t touch_is_on_stack;

static void touch_mend_here(int number, siginfo_t *info, void *context)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    touch_mend(number, info, context);
    touch_is_on_stack = (here >= (uintptr_t)touch_stack) &&
                        (here < (uintptr_t)(touch_stack + sizeof(touch_stack)));
}

static int touch_child_stack(void)
{
    const stack_t stack     = {.ss_sp   = touch_stack,
                               .ss_size = sizeof(touch_stack)};
    struct sigaction action = {.sa_sigaction = touch_mend_here,
                               .sa_flags     = SA_SIGINFO};
    unsigned i;

    touch_own = touch_anonymous();
    sigaddset(&action.sa_mask, SIGUSR1);
    TAP_CHILD_CHECK(sigaltstack(&stack, NULL) == 0);
    for (i = 0; i < 2; ++i) {
        sigaction(SIGSEGV, &action, NULL);
        TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
        TAP_CHILD_CHECK(touch_fault_own(1) == 0);
        TAP_CHILD_CHECK(touch_is_on_stack == (int)i);
        action.sa_flags |= SA_ONSTACK;
    }

    /* where there is none, a fault on a stack that is full can be told */
    signal(SIGSEGV, SIG_DFL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    sigaction(SIGSEGV, NULL, &action);
    TAP_CHILD_CHECK(action.sa_flags & SA_ONSTACK);
    return 0;
}

static int touch_child_sent(void)
{
    struct sigaction action = {.sa_handler = SIG_IGN};

    sigaction(SIGBUS, &action, NULL);
    TAP_CHILD_CHECK(np_touch_arm() == UCS_OK);
    raise(SIGBUS); /* ignored, as it was before */
    return 0;
}

/* The signal that ends a child in which @a function is called; 0: none */
static int touch_ends(void (*function)(void))
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        /* UCX has handlers of its own, which print much */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (np_touch_arm() == UCS_OK) {
            function();
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch_end_by_fault(void)
{
    *(volatile uint8_t*)touch_own = 1;
}

static void touch_end_by_raise(void)
{
    raise(SIGSEGV);
}

static void touch_end_ignored(void)
{
    signal(SIGSEGV, SIG_IGN);
    if (np_touch_arm() == UCS_OK) {
        touch_end_by_fault();
    }
}

static void touch_end_once(void)
{
    struct sigaction action = {.sa_sigaction = touch_mend,
                               .sa_flags     = SA_SIGINFO | SA_RESETHAND};

    sigaction(SIGSEGV, &action, NULL);
    if (np_touch_arm() == UCS_OK) {
        touch_end_by_fault();
        mprotect(touch_own, TOUCH_PAGE, PROT_NONE);
        touch_end_by_fault();
    }
}

void test_touch(void)
{
    touch_words();
    touch_absent();
    touch_races();

#ifdef __SANITIZE_THREAD__
    printf("ok %u - touch: other handlers # SKIP ThreadSanitizer calls them with "
           "a mask of its own\n", ++tap_count);
#else
    TAP_CHECK(tap_child(touch_child_before), "touch: a handler before ours");
    TAP_CHECK(tap_child(touch_child_plain), "touch: one of the old kind");
    TAP_CHECK(tap_child(touch_child_after), "touch: a handler after ours");
    TAP_CHECK(tap_child(touch_child_circle), "touch: one that calls ours");
    TAP_CHECK(tap_child(touch_child_guarded), "touch: none is taken");
    TAP_CHECK(tap_child(touch_child_stack), "touch: one on its own stack");
#endif
    TAP_CHECK(tap_child(touch_child_limit), "touch: one again and again");
    TAP_CHECK(tap_child(touch_child_sent), "touch: a signal that is ignored");

    touch_own = touch_anonymous();
    mprotect(touch_own, TOUCH_PAGE, PROT_NONE);
    TAP_CHECK(touch_ends(touch_end_by_fault) == SIGSEGV,
              "touch: the program's faults end it");
    TAP_CHECK(touch_ends(touch_end_by_raise) == SIGSEGV,
              "touch: and so does what it raises");
    TAP_CHECK(touch_ends(touch_end_ignored) == SIGSEGV,
              "touch: a fault cannot be ignored");
    TAP_CHECK(touch_ends(touch_end_once) == SIGSEGV,
              "touch: a handler for one fault is called for one");
    munmap(touch_own, 2 * TOUCH_PAGE);
}
