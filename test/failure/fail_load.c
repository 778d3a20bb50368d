/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads libucp the way a plug-in host or an interpreter does (dlopen with
 * RTLD_LOCAL), starts UCP, and tells whether libc's mmap was patched, and if so
 * whether a forked child begins without a call of it: another thread of its
 * parent may have held a lock that the patch takes.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define CODE_BYTES  16

static void *lib;

static void *symbol(const char *name)
{
    void *ptr = dlsym(lib, name);

    if (ptr == NULL) {
        fprintf(stderr, "fail_load: %s\n", dlerror());
    }
    return ptr;
}

static pid_t parent;
static int   calls; /* of the child */

static void on_change(ucm_event_type_t type, ucm_event_t *event, void *arg)
{
    calls += getpid() != parent;
}

/* A child's exit code: the calls that there were, and one if it makes one */
static int calls_of_child(int makes_one)
{
    int status;
    pid_t pid;

    pid = fork();
    if (pid == 0) {
        if (makes_one) {
            (void)mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        _exit(calls);
    }
    return (waitpid(pid, &status, 0) == pid) && WIFEXITED(status) ?
           WEXITSTATUS(status) : -1;
}

static void watch_fork(void)
{
    ucs_status_t (*watch)(int, int, ucm_event_callback_t, void*);
    int events = UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED;

    parent = getpid();
    watch  = symbol("ucm_set_event_handler");
    if ((watch == NULL) || (watch(events, 0, on_change, NULL) != UCS_OK)) {
        printf("memory cannot be watched\n");
        return;
    }
    printf("calls of mmap in a child: %d, and where it makes one: %d\n",
           calls_of_child(0), calls_of_child(1));
}

int main(void)
{
    ucs_status_t (*config_read)(const char*, const char*, ucp_config_t**);
    ucs_status_t (*init_version)(unsigned, unsigned, const ucp_params_t*,
                                 const ucp_config_t*, ucp_context_h*);
    ucs_status_t (*worker_create)(ucp_context_h, const ucp_worker_params_t*,
                                  ucp_worker_h*);
    void (*worker_destroy)(ucp_worker_h);
    void (*cleanup)(ucp_context_h);
    void (*config_release)(ucp_config_t*);
    ucp_params_t        params        = {0};
    ucp_worker_params_t worker_params = {0};
    const void          *code         = (const void*)mmap;
    char                before[CODE_BYTES];
    ucp_config_t        *config;
    ucp_context_h       context;
    ucp_worker_h        worker;

    memcpy(before, code, sizeof(before));
    lib = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        fprintf(stderr, "fail_load: %s\n", dlerror());
        return 1;
    }

    config_read    = symbol("ucp_config_read");
    config_release = symbol("ucp_config_release");
    init_version   = symbol("ucp_init_version");
    cleanup        = symbol("ucp_cleanup");
    worker_create  = symbol("ucp_worker_create");
    worker_destroy = symbol("ucp_worker_destroy");
    if ((config_read == NULL) || (config_release == NULL) ||
        (init_version == NULL) || (cleanup == NULL) ||
        (worker_create == NULL) || (worker_destroy == NULL)) {
        return 1;
    }

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    if ((config_read(NULL, NULL, &config) != UCS_OK) ||
        (init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                      &context) != UCS_OK)) {
        printf("ucp_init failed\n");
        return 1;
    }
    config_release(config);
    if (worker_create(context, &worker_params, &worker) != UCS_OK) {
        printf("ucp_worker_create failed\n");
        return 1;
    }
    if (memcmp(before, code, sizeof(before)) != 0) {
        watch_fork();
    }
    worker_destroy(worker);
    cleanup(context);
    printf("worker opened, mmap %s\n",
           (memcmp(before, code, sizeof(before)) == 0) ? "untouched" :
                                                         "patched");
    return 0;
}
