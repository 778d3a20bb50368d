/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Words of the program's memory.
 *
 * Chaining. A program may install its handler after ours and call ours from it,
 * and then we put ours above it again. Handlers that only remember "the one
 * before" would then call each other in a circle. So each time we go above
 * another handler, we use another function of ours, a level, which knows that
 * handler for good. Whatever that handler calls was installed before this level
 * was made, so levels are passed downwards only. A handler that the program
 * installs a second time is below the newest level from then on, and the older
 * level, which it may call, goes on with what is below itself.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "touch.h"

#include "../thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* These functions have no frame: wherever they fault between the labels, stack
 * and return address are as at their entry, and np_touch_absent returns for
 * them.
 *
 * int np_touch_cas8(uint64_t va, uint64_t *seen, uint64_t value), and 4 */
extern const uint8_t np_touch_begin[], np_touch_end[], np_touch_absent[];
int np_touch_cas8(uint64_t va, uint64_t *seen, uint64_t value);
int np_touch_cas4(uint64_t va, uint64_t *seen, uint64_t value);

#define NP_TOUCH_LABEL(_name) \
    ".globl " #_name "\n" \
    ".hidden " #_name "\n" \
    #_name ":\n"

#define NP_TOUCH_FUNCTION(_name, _code) \
    ".balign 16\n" \
    ".type " #_name ", %function\n" \
    NP_TOUCH_LABEL(_name) \
    ".cfi_startproc\n" \
    _code \
    ".cfi_endproc\n" \
    ".size " #_name ", . - " #_name "\n"

#if defined(__x86_64__)

#  define NP_TOUCH_PC(_context) \
       ((_context)->uc_mcontext.gregs[REG_RIP])

__asm__(".pushsection .text\n"
        NP_TOUCH_LABEL(np_touch_begin)
        NP_TOUCH_FUNCTION(np_touch_cas8,
            "movq (%rsi), %rax\n"
            "lock cmpxchgq %rdx, (%rdi)\n"
            "movq %rax, (%rsi)\n" /* what was there, or what is here already */
            "sete %al\n"
            "movzbl %al, %eax\n"
            "ret\n")
        NP_TOUCH_FUNCTION(np_touch_cas4,
            "movl (%rsi), %eax\n"
            "lock cmpxchgl %edx, (%rdi)\n"
            "movq %rax, (%rsi)\n"
            "sete %al\n"
            "movzbl %al, %eax\n"
            "ret\n")
        NP_TOUCH_LABEL(np_touch_end)
        NP_TOUCH_FUNCTION(np_touch_absent,
            "movl $-1, %eax\n"
            "ret\n")
        ".popsection\n");

#elif defined(__aarch64__)

#  define NP_TOUCH_PC(_context) ((_context)->uc_mcontext.pc)

/* acquire and release, as the compiler has a sequentially consistent one. What
 * is another value than expected is written back, as cmpxchg does: memory that
 * is there for reading alone is refused whatever it holds. */
__asm__(".pushsection .text\n"
        NP_TOUCH_LABEL(np_touch_begin)
        NP_TOUCH_FUNCTION(np_touch_cas8,
            "ldr x3, [x1]\n"
            "1: ldaxr x4, [x0]\n"
            "cmp x4, x3\n"
            "csel x6, x2, x4, eq\n"
            "stlxr w5, x6, [x0]\n"
            "cbnz w5, 1b\n"
            "str x4, [x1]\n"
            "cset w0, eq\n"
            "ret\n")
        NP_TOUCH_FUNCTION(np_touch_cas4,
            "ldr w3, [x1]\n"
            "1: ldaxr w4, [x0]\n"
            "cmp w4, w3\n"
            "csel w6, w2, w4, eq\n"
            "stlxr w5, w6, [x0]\n"
            "cbnz w5, 1b\n"
            "str x4, [x1]\n"
            "cset w0, eq\n"
            "ret\n")
        NP_TOUCH_LABEL(np_touch_end)
        NP_TOUCH_FUNCTION(np_touch_absent,
            "mov w0, #-1\n"
            "ret\n")
        ".popsection\n");

#else
#  error "np_touch_cas4 and np_touch_cas8 are to be written for this machine"
#endif

/* Thread-local memory may be made at its first use, and the stack's guard may
 * be in it. The handler runs in threads of a Java machine or of Go, for their
 * own faults, all the time. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#  define NP_TOUCH_HANDLER \
       __attribute__((no_stack_protector, no_sanitize("thread", "address")))
#else
#  define NP_TOUCH_HANDLER __attribute__((no_sanitize("thread", "address")))
#endif

typedef enum np_touch_below {
    NP_TOUCH_CALLED,  /* called by its level */
    NP_TOUCH_MOVED,   /* is below a newer level, which calls it */
    NP_TOUCH_RESET    /* was to be called once (SA_RESETHAND): the default
                         now */
} np_touch_below_t;

/* One signal and what is below our levels. Written under the lock; a level is
 * written before it is installed, and does not change but for its state. */
typedef struct np_touch_signal {
    int              number;
    unsigned         used;                      /* levels */
    struct sigaction below[NP_TOUCH_LEVELS];
    _Atomic np_touch_below_t state[NP_TOUCH_LEVELS];
    _Atomic int      is_told;                   /* that no level is left */
} np_touch_signal_t;

static np_touch_signal_t np_touch_signals[] = {
    {.number = SIGSEGV},
    {.number = SIGBUS}
};

/* Taken where a handler is installed; the handler itself takes none */
static pthread_mutex_t np_touch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t np_touch_once  = PTHREAD_ONCE_INIT;

/* The process is on its way to its end by a signal */
static _Atomic int np_touch_is_over;


/* The default: it ends the process. An instruction that has faulted does so
 * again when we return; what was sent is sent again. */
NP_TOUCH_HANDLER static void
np_touch_default(int number, const siginfo_t *info)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};
    int is_sent = info->si_code <= 0;

#ifdef BUS_MCEERR_AO
    is_sent = is_sent ||
              ((number == SIGBUS) && (info->si_code == BUS_MCEERR_AO));
#endif
    atomic_store_explicit(&np_touch_is_over, 1, memory_order_relaxed);
    sigaction(number, &action, NULL);
    if (is_sent) {
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
    }
}

/* As the kernel would call it. The mask becomes what it was when our handler,
 * which does nothing more, returns. */
NP_TOUCH_HANDLER static void
np_touch_call(const struct sigaction *action, int number, siginfo_t *info,
              void *context)
{
    sigset_t mask = action->sa_mask;

    if (!(action->sa_flags & SA_NODEFER)) {
        sigaddset(&mask, number);
    }
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(number, info, context);
    } else {
        action->sa_handler(number);
    }
}

/* Pass the signal to what was there before a level. Keeps errno: a handler that
 * returns may rely on it. */
NP_TOUCH_HANDLER static void
np_touch_chain(np_touch_signal_t *signal, int level, siginfo_t *info,
               void *context)
{
    np_touch_below_t state = NP_TOUCH_MOVED;
    const struct sigaction *below;

    for (++level; (level > 0) && (state == NP_TOUCH_MOVED);) {
        state = atomic_load_explicit(&signal->state[--level],
                                     memory_order_acquire);
    }

    below = &signal->below[level];
    if ((state != NP_TOUCH_CALLED) ||
        (!(below->sa_flags & SA_SIGINFO) && (below->sa_handler == SIG_DFL))) {
        np_touch_default(signal->number, info);
    } else if (!(below->sa_flags & SA_SIGINFO) &&
               (below->sa_handler == SIG_IGN)) {
        /* a fault cannot be ignored */
        if (info->si_code > 0) {
            np_touch_default(signal->number, info);
        }
    } else {
        if (below->sa_flags & SA_RESETHAND) {
            atomic_store_explicit(&signal->state[level], NP_TOUCH_RESET,
                                  memory_order_release);
        }
        np_touch_call(below, signal->number, info, context);
    }
}

NP_TOUCH_HANDLER static void
np_touch_fault(unsigned level, int number, siginfo_t *info, void *context)
{
    ucontext_t *where  = context;
    const uintptr_t pc = NP_TOUCH_PC(where);
    int saved_errno;

    /* not ours: another process has sent it, and it came just now */
    if ((pc >= (uintptr_t)np_touch_begin) && (pc < (uintptr_t)np_touch_end) &&
        (info->si_code > 0)) {
        NP_TOUCH_PC(where) = (uintptr_t)np_touch_absent;
        return;
    }

    saved_errno = errno;
    np_touch_chain(&np_touch_signals[number == SIGBUS], level, info, context);
    errno = saved_errno;
}

#define NP_TOUCH_LEVEL_LIST(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

#define NP_TOUCH_LEVEL(_level) \
    NP_TOUCH_HANDLER static void \
    np_touch_fault_##_level(int number, siginfo_t *info, void *context) \
    { \
        np_touch_fault(_level, number, info, context); \
    }
NP_TOUCH_LEVEL_LIST(NP_TOUCH_LEVEL)
#undef NP_TOUCH_LEVEL

#define NP_TOUCH_NAME(_level) np_touch_fault_##_level,
static void (*const np_touch_levels[])(int, siginfo_t*, void*) = {
    NP_TOUCH_LEVEL_LIST(NP_TOUCH_NAME)
};
#undef NP_TOUCH_NAME

_Static_assert((sizeof(np_touch_levels) / sizeof(np_touch_levels[0])) ==
               NP_TOUCH_LEVELS, "a function for each level");

static int np_touch_is_ours(const struct sigaction *action)
{
    unsigned i;

    for (i = 0; (action->sa_flags & SA_SIGINFO) && (i < NP_TOUCH_LEVELS); ++i) {
        if (action->sa_sigaction == np_touch_levels[i]) {
            return 1;
        }
    }
    return 0;
}

static int
np_touch_is_same(const struct sigaction *a, const struct sigaction *b)
{
    return ((a->sa_flags & SA_SIGINFO) == (b->sa_flags & SA_SIGINFO)) &&
           ((a->sa_flags & SA_SIGINFO) ? (a->sa_sigaction == b->sa_sigaction) :
            (a->sa_handler == b->sa_handler));
}

static int np_touch_is_default(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) &&
           ((action->sa_handler == SIG_DFL) || (action->sa_handler == SIG_IGN));
}

/* Levels that had this handler below: a newer level calls it now */
static void np_touch_move(np_touch_signal_t *signal, unsigned level,
                          const struct sigaction *now)
{
    unsigned i;

    for (i = 0; i < level; ++i) {
        if (np_touch_is_same(&signal->below[i], now)) {
            atomic_store_explicit(&signal->state[i], NP_TOUCH_MOVED,
                                  memory_order_release);
        }
    }
}

static ucs_status_t np_touch_refuse(np_touch_signal_t *signal, unsigned vain)
{
    if (atomic_exchange(&signal->is_told, 1)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (vain > 0) {
        np_error("a handler of signal %d is not taken, though sigaction() says "
                 "nothing of it: atomics of peers are refused. Do not preload "
                 "libucs_signal.so, or any other library that replaces "
                 "sigaction()", signal->number);
    } else {
        np_error("the program has installed a handler of signal %d %u times: "
                 "atomics of peers are refused from now on. Install it once, "
                 "before UCX is initialized", signal->number, signal->used);
    }
    return UCS_ERR_UNSUPPORTED;
}

/* Go above the handler that is there now; under the lock. If it fails twice,
 * the reason is not a program that has put its own there again just now. */
static ucs_status_t np_touch_install(np_touch_signal_t *signal)
{
    struct sigaction now, action, before;
    unsigned level, vain = 0;

    memset(&action, 0, sizeof(action));
    for (;;) {
        if (sigaction(signal->number, NULL, &now) != 0) {
            return np_touch_refuse(signal, 1);
        }

        if (np_touch_is_ours(&now)) {
            return UCS_OK;
        }

        level = signal->used;
        if (atomic_load_explicit(&np_touch_is_over, memory_order_relaxed)) {
            return UCS_ERR_UNSUPPORTED;
        }

        if ((vain == 2) || (level == NP_TOUCH_LEVELS)) {
            signal->used -= vain; /* these were not installed */
            return np_touch_refuse(signal, vain);
        }

        np_touch_move(signal, level, &now);

        /* before it is installed: it may be called at once */
        signal->below[level] = now;
        signal->used         = level + 1;
        atomic_store_explicit(&signal->state[level], NP_TOUCH_CALLED,
                              memory_order_release);
        action.sa_sigaction  = np_touch_levels[level];
        action.sa_flags      = SA_SIGINFO | SA_NODEFER |
                               (now.sa_flags & (SA_RESTART | SA_ONSTACK));
        if (np_touch_is_default(&now)) {
            action.sa_flags |= SA_ONSTACK;
        }
        sigemptyset(&action.sa_mask);
        if ((sigaction(signal->number, &action, &before) != 0) ||
            np_touch_is_same(&before, &now)) {
            ++vain; /* unless it is there now */
        } else {
            /* another handler has come in between: go above it as well */
            sigaction(signal->number, &before, NULL);
            vain = 0;
        }
    }
}

static void np_touch_after_fork(void)
{
    pthread_mutex_init(&np_touch_lock, NULL);
}

static void np_touch_init(void)
{
    np_at_fork(NULL, NULL, np_touch_after_fork);
}

ucs_status_t np_touch_arm(void)
{
    ucs_status_t status = UCS_OK;
    struct sigaction now;
    unsigned i;

    for (i = 0; (i < 2) && (status == UCS_OK); ++i) {
        if (ucs_likely((sigaction(np_touch_signals[i].number, NULL, &now) ==
                        0) && np_touch_is_ours(&now))) {
            continue;
        }

        pthread_once(&np_touch_once, np_touch_init);
        pthread_mutex_lock(&np_touch_lock);
        status = np_touch_install(&np_touch_signals[i]);
        pthread_mutex_unlock(&np_touch_lock);
    }
    return status;
}

int np_touch_cas(uint64_t va, size_t size, uint64_t *seen, uint64_t value)
{
    return (size == sizeof(uint64_t)) ? np_touch_cas8(va, seen, value) :
                                        np_touch_cas4(va, seen, value);
}
