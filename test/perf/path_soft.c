/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short operations of soft0 in a loop, for callgrind to count the instructions
 * of: all that is counted is in measured(). Two interfaces of one thread, so
 * that nothing waits and every run takes the same way. Memory is of UCX, mapped
 * by both, and present; or the program's own, through the kernel.
 *
 * path_soft NAME COUNT: do so many of it.
 */
#include <ucs/async/async_fwd.h>
#include <ucs/datastruct/list.h>
#include <uct/api/uct.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AREA   (64ul << 10)
#define WARM   1000
#define AM_ID  7
#define WINDOW 16u

typedef struct port {
    uct_iface_h iface;
    uct_ep_h    ep;           /* to the other one */
    char        dev[256];     /* addresses */
    char        addr[256];
} port_t;

typedef struct area {
    char              *at;
    uct_mem_h         memh;
    uct_rkey_bundle_t rkey;
} area_t;

typedef struct op {
    const char *name;
    ucs_status_t (*post)(void);
    unsigned     window;      /* so many are under way at once; 0: none is */
} op_t;

static uct_component_h component;
static uct_md_h md;
static uct_worker_h worker;
static port_t ports[2];
static area_t mapped, own;    /* what is put to and got from */
static uct_completion_t comp;

static void die(const char *what, ucs_status_t status)
{
    fprintf(stderr, "path_soft: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        die(what, status);
    }
}

static void progress(void)
{
    uct_worker_progress(worker);
}

static ucs_status_t on_am(void *arg, void *data, size_t len, unsigned flags)
{
    return UCS_OK;
}

static void on_done(uct_completion_t *self)
{
}

static size_t pack(void *dest, void *arg)
{
    memcpy(dest, arg, 8);
    return 8;
}

static void unpack(void *arg, const void *data, size_t len)
{
    memcpy(arg, data, len);
}

static ucs_status_t am_short(void)
{
    return uct_ep_am_short(ports[0].ep, AM_ID, 1, NULL, 0);
}

static ucs_status_t am_bcopy(void)
{
    return (uct_ep_am_bcopy(ports[0].ep, AM_ID, pack, ports, 0) == 8) ?
           UCS_OK : UCS_ERR_NO_RESOURCE;
}

static ucs_status_t put_short(void)
{
    return uct_ep_put_short(ports[0].ep, ports, 8, (uintptr_t)mapped.at,
                            mapped.rkey.rkey);
}

static ucs_status_t get_bcopy(void)
{
    static uint64_t word;

    return uct_ep_get_bcopy(ports[0].ep, unpack, &word, 8,
                            (uintptr_t)mapped.at, mapped.rkey.rkey, &comp);
}

static ucs_status_t
zcopy(int is_put, const area_t *area, size_t offset, size_t length)
{
    static char buffer[4096] __attribute__((aligned(4096)));
    const uint64_t addr = (uintptr_t)area->at + offset;
    uct_iov_t iov       = {.buffer = buffer, .length = length, .count = 1,
                           .memh = UCT_MEM_HANDLE_NULL};

    return is_put ? uct_ep_put_zcopy(ports[0].ep, &iov, 1, addr,
                                     area->rkey.rkey, &comp) :
                    uct_ep_get_zcopy(ports[0].ep, &iov, 1, addr,
                                     area->rkey.rkey, &comp);
}

static ucs_status_t get_zcopy(void)
{
    return zcopy(0, &mapped, 0, 4096);
}

static ucs_status_t put_zcopy(void)
{
    return zcopy(1, &mapped, 0, 4096);
}

static ucs_status_t get_own(void)
{
    return zcopy(0, &own, 0, 4096);
}

static ucs_status_t put_own(void)
{
    return zcopy(1, &own, 0, 4096);
}

/* None waits for another one's bytes */
static ucs_status_t lent(int is_put)
{
    static unsigned place;

    return zcopy(is_put, &own, 64 * (place++ % WINDOW), 8);
}

static ucs_status_t get_lent(void)
{
    return lent(0);
}

static ucs_status_t put_lent(void)
{
    return lent(1);
}

static const op_t ops[] = {
    {"am_short", am_short, 0},
    {"am_bcopy", am_bcopy, 0},
    {"put_short", put_short, 0},
    {"get_bcopy", get_bcopy, 0},
    {"get_zcopy", get_zcopy, 0},
    {"put_zcopy", put_zcopy, 0},
    {"get_own", get_own, 0},
    {"put_own", put_own, 0},
    {"get_lent", get_lent, WINDOW},
    {"put_lent", put_lent, WINDOW},
    {"progress", NULL, 0}
};

static void measured_windows(const op_t *op, unsigned count)
{
    ucs_status_t status;
    unsigned i;

    for (; count >= op->window; count -= op->window) {
        comp.count = op->window;
        for (i = 0; i < op->window; ++i) {
            status = op->post();
            if (status != UCS_INPROGRESS) {
                die(op->name, status); /* it would be another way */
            }
        }
        while (comp.count > 0) {
            progress();
        }
    }
}

/* What is counted: an operation, and what the target makes of it */
__attribute__((noinline)) void measured(const op_t *op, unsigned count)
{
    ucs_status_t status;
    unsigned i;

    if (op->window > 0) {
        measured_windows(op, count);
        return;
    }

    for (i = 0; i < count; ++i) {
        comp.count = 1;
        if (op->post != NULL) {
            status = op->post();
            if (status != UCS_OK) {
                die(op->name, status);
            }
        }
        progress();
    }
}

static void open_md(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h *components;
    uct_md_config_t *config;
    unsigned num, i;

    check(uct_query_components(&components, &num), "uct_query_components");
    for (i = 0; i < num; ++i) {
        check(uct_component_query(components[i], &attr), "a component");
        if (strcmp(attr.name, "nprdma") == 0) {
            component = components[i];
        }
    }
    uct_release_component_list(components);
    if (component == NULL) {
        die("nprdma: start it with nprdma-run", UCS_ERR_NO_DEVICE);
    }

    check(uct_md_config_read(component, NULL, NULL, &config), "its settings");
    check(uct_md_open(component, "nprdma", config, &md), "uct_md_open");
    uct_config_release(config);
}

static void open_port(port_t *port)
{
    uct_iface_params_t params = {
        .field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode            = UCT_IFACE_OPEN_MODE_DEVICE,
        .mode.device.tl_name  = "nprdma",
        .mode.device.dev_name = "soft0"
    };
    uct_iface_config_t *config;

    check(uct_md_iface_config_read(md, "nprdma", NULL, NULL, &config),
          "settings of soft0");
    check(uct_iface_open(md, worker, &params, config, &port->iface),
          "uct_iface_open");
    uct_config_release(config);
    check(uct_iface_set_am_handler(port->iface, AM_ID, on_am, NULL, 0),
          "uct_iface_set_am_handler");
    uct_iface_progress_enable(port->iface,
                              UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    check(uct_iface_get_device_address(port->iface,
                                       (uct_device_addr_t*)port->dev),
          "a device's address");
    check(uct_iface_get_address(port->iface, (uct_iface_addr_t*)port->addr),
          "an interface's address");
}

static void connect_to(port_t *from, const port_t *to)
{
    uct_ep_params_t params = {
        .field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                      UCT_EP_PARAM_FIELD_IFACE_ADDR,
        .iface      = from->iface,
        .dev_addr   = (const uct_device_addr_t*)to->dev,
        .iface_addr = (const uct_iface_addr_t*)to->addr
    };

    check(uct_ep_create(&params, &from->ep), "uct_ep_create");
}

static void unpack_key(area_t *area, uct_mem_h memh)
{
    char packed[256];

    memset(area->at, 1, AREA);
    check(uct_md_mkey_pack(md, memh, packed), "uct_md_mkey_pack");
    check(uct_rkey_unpack(component, packed, &area->rkey), "uct_rkey_unpack");
}

static void open_areas(void)
{
    uct_alloc_method_t method      = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params = {
        .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                      UCT_MEM_ALLOC_PARAM_FIELD_MDS,
        .flags      = UCT_MD_MEM_ACCESS_ALL,
        .mds        = {&md, 1}
    };
    uct_allocated_memory_t memory;

    check(uct_mem_alloc(AREA, &method, 1, &params, &memory), "uct_mem_alloc");
    mapped.at = memory.address;
    unpack_key(&mapped, memory.memh);

    own.at = mmap(NULL, AREA, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(uct_md_mem_reg(md, own.at, AREA, UCT_MD_MEM_ACCESS_ALL, &own.memh),
          "uct_md_mem_reg");
    unpack_key(&own, own.memh);
}

/* Connected, mapped, and known to be so */
static void warm_up(const op_t *op)
{
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < WARM; ++i) {
        do {
            comp.count = 1;
            status     = (op->post == NULL) ? UCS_OK : op->post();
            progress();
        } while (status == UCS_ERR_NO_RESOURCE);
        while ((status == UCS_INPROGRESS) && (comp.count > 0)) {
            progress();
        }
        if ((status != UCS_OK) && (status != UCS_INPROGRESS)) {
            die(op->name, status);
        }
    }
}

int main(int argc, char **argv)
{
    ucs_async_context_t *async;
    const op_t *op = NULL;
    unsigned i;

    for (i = 0; (argc == 3) && (i < (sizeof(ops) / sizeof(ops[0]))); ++i) {
        if (strcmp(ops[i].name, argv[1]) == 0) {
            op = &ops[i];
        }
    }
    if (op == NULL) {
        fprintf(stderr, "path_soft NAME COUNT\n");
        return 2;
    }

    comp.func = on_done;
    check(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async),
          "ucs_async_context_create");
    check(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker),
          "uct_worker_create");
    open_md();
    open_port(&ports[0]);
    open_port(&ports[1]);
    connect_to(&ports[0], &ports[1]);
    open_areas();
    warm_up(op);
    measured(op, atoi(argv[2]));
    _exit(0);
}
