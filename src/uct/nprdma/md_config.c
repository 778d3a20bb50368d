/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings of a memory domain, which are the engine's.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"


ucs_config_field_t uct_nprdma_md_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_nprdma_md_config_t, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"PEER_USERS", "same",
     "Whose processes may be peers on this host:\n"
     " - same - those of the same user.\n"
     " - any  - any process that was given this one's address; the kernel\n"
     "          then refuses direct access, and data goes through the rings.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.peer_users),
     UCS_CONFIG_TYPE_ENUM(np_peer_users_names)},

    {"SINGLE_COPY", "auto",
     "How soft0 moves memory that peers cannot map:\n"
     " - auto - process_vm_readv/writev, and the rings where the kernel\n"
     "          refuses these.\n"
     " - vm   - process_vm_readv/writev, or an error.\n"
     " - off  - the rings.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.single_copy),
     UCS_CONFIG_TYPE_ENUM(np_single_copy_names)},

    {"SHARE_MIN", "256k",
     "Size from which initiator and target of a transfer both copy, each a\n"
     "part, if the target is in progress; of a get into memory that is\n"
     "absent, half of it from a quarter of this size. \"inf\" for never.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.share_min),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"SHARE_CHUNK", "64k",
     "Smallest piece of a shared copy that one side takes at a time, from 4k\n"
     "to 1g. Large copies have larger pieces.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.share_chunk),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"LEND", "y",
     "Puts and gets of memory that is registered just then go through the\n"
     "rings while its owner makes progress, which copies it; if it does not\n"
     "come to that, they go as SINGLE_COPY says.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.lend), UCS_CONFIG_TYPE_BOOL},

    {"NT_STORES", "auto",
     "Copies into the rings of 4k and more use non-temporal stores, which do\n"
     "not wait for the cache of the core that reads there. auto: over links\n"
     "where that is faster, as is tried now and then.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.nt_stores),
     UCS_CONFIG_TYPE_ON_OFF_AUTO},

    {"WRITE_CHECK", "auto",
     "How a write to memory that may be absent is confirmed:\n"
     " - auto     - as the device can: soft0 knows what it has written.\n"
     " - entries  - the target's entries, before and after.\n"
     " - readback - up to 4k are read back and compared, more by entries. Not\n"
     "              over RDMA devices, which say so.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.write_check),
     UCS_CONFIG_TYPE_ENUM(np_write_check_names)},

    {"FAULT_MODE", "reverse",
     "What a target does once it has brought absent pages in:\n"
     " - reverse - it moves the data itself.\n"
     " - retry   - it says so, and the initiator tries again. Not over RDMA\n"
     "             devices, which say so.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.fault_mode),
     UCS_CONFIG_TYPE_ENUM(np_fault_mode_names)},

    {"INLINE", "1k",
     "Largest transfer whose data travels inside the messages when a page is\n"
     "absent, up to 16k. Over RDMA devices VERBS_DIRECT_MIN says it.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.inline_max),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"ORDER", "overlap",
     "Which transfers of an endpoint wait for earlier ones, besides fences:\n"
     " - overlap - those of the same memory, if one of them writes.\n"
     " - strict  - all.\n"
     " - relaxed - none.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.order),
     UCS_CONFIG_TYPE_ENUM(np_order_names)},

    {"MR_SCOPE", "arena",
     "What a registration lets peers reach:\n"
     " - arena - all memory within the same 1 GiB of addresses, for good. To\n"
     "           register costs a look-up.\n"
     " - exact - its own bytes, until it ends: other requests are refused by\n"
     "           the target. Memory of one's own side of a transfer must be\n"
     "           registered too.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.mr_scope),
     UCS_CONFIG_TYPE_ENUM(np_mr_scope_names)},

    {"SERVICE", "adaptive",
     "What answers peers while this program computes:\n"
     " - adaptive - its own progress; threads that peers wake if that does\n"
     "              not look for some microseconds.\n"
     " - event    - threads that peers wake for each request.\n"
     " - poll     - a thread that looks all the time: takes a CPU.\n"
     " - off      - its own progress alone.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.service),
     UCS_CONFIG_TYPE_ENUM(np_service_mode_names)},

    {"YIELD", "y",
     "Let other processes have the CPU where progress finds nothing, if they\n"
     "have lately taken it from this thread: one of them may be the one that\n"
     "is waited for. Not in workers that are made for several threads.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.yield), UCS_CONFIG_TYPE_BOOL},

    {"INTRA_NODE", "soft",
     "How peers on this host are reached:\n"
     " - soft  - by soft0, also where there is an RDMA device.\n"
     " - verbs - by the RDMA device, not by soft0.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.intra_node),
     UCS_CONFIG_TYPE_ENUM(np_intra_node_names)},

    {"MAPPER", "auto",
     "What keeps true what RDMA devices see of memory that is not pinned:\n"
     " - auto - the kernel module nprdma.ko, if it and the device can; else\n"
     "          as user.\n"
     " - kmod - nprdma.ko, or an error where there is an RDMA device.\n"
     " - user - nothing: each transfer registers its memory for as long as\n"
     "          it takes, and needs the target's CPU.\n"
     "soft0 does not use the module, and is the same with each.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.mapper),
     UCS_CONFIG_TYPE_ENUM(np_mapper_mode_names)},

    {"PREPARE", "both",
     "Which buffers are brought in as soon as the program has posted their\n"
     "transfer, before the peer's message comes (libnprdma_preload.so tells):\n"
     " - recv - those that it will receive into.\n"
     " - send - those that it sends.\n"
     " - both - all.\n"
     " - off  - none: each transfer brings in what it finds absent.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.prepare),
     UCS_CONFIG_TYPE_ENUM(np_prepare_mode_names)},

    {"PREPARE_MIN", "4k", "Smallest buffer that is prepared.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.prepare_min),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"PREPARE_MAX", "32m",
     "Memory that may wait to be prepared; what is announced beyond that is\n"
     "brought in by its transfer.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.prepare_max),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"TRACE", "",
     "File that gets a timeline of transfers when the process ends, for\n"
     "Chrome's trace viewer and nprdma-trace-plot. %p: process id, %h: host;\n"
     "without %p, \".<process id>\" is appended. Empty: off.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.trace),
     UCS_CONFIG_TYPE_STRING},

    {"SOFT_TLB", "off",
     "Model the translation cache of an RNIC on soft0 (4096 entries, 4-way),\n"
     "which all peers of a target share. Give all processes the same; with\n"
     "PEER_USERS=same alone.\n"
     " - off   - no model.\n"
     " - page  - an entry for each page of 4 KiB.\n"
     " - range - an entry for each arena of 1 GiB.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.tlb.mode),
     UCS_CONFIG_TYPE_ENUM(np_tlb_mode_names)},

    {"SOFT_TLB_WIRE", "0",
     "Time until a put or get ends in this model, for its initiator, if it\n"
     "misses nothing, and that an unloaded put is under way; at most 100ms.\n"
     "Without a unit it is seconds.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.tlb.wire),
     UCS_CONFIG_TYPE_TIME},

    {"SOFT_TLB_MISS", "0",
     "Time that one takes longer that misses, at most 100ms.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.tlb.miss),
     UCS_CONFIG_TYPE_TIME},

    {"SOFT_TLB_GAP", "0",
     "Time after which a target's RNIC takes the next one of the same peer,\n"
     "at most 100ms. A miss adds 64 % of it.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.tlb.gap),
     UCS_CONFIG_TYPE_TIME},

    {"SOFT_MODEL", "off",
     "Model on soft0 what zero-copy transfers cost over an RNIC that\n"
     "registers memory, and in which order that is done:\n"
     " - off        - as fast as this host is.\n"
     " - overlap    - on both sides at once, and in chunks.\n"
     " - sequential - all of it at the target, then here, then it is sent.\n"
     " - cached     - memory is registered, as by a cache that always hits.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.order),
     UCS_CONFIG_TYPE_ENUM(np_model_order_names)},

    {"SOFT_MODEL_RATE", "11921MBs",
     "What the model's link carries; 11921MBs are 12.5e9 bytes a second.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.rate),
     UCS_CONFIG_TYPE_BW},

    {"SOFT_MODEL_LATENCY", "1us", "One way over the model's link.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.latency),
     UCS_CONFIG_TYPE_TIME},

    {"SOFT_MODEL_REG", "16us",
     "What one registration costs in the model, whatever its size.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.reg),
     UCS_CONFIG_TYPE_TIME},

    {"SOFT_MODEL_REG_RATE", "15895MBs",
     "What is registered in a second beside that; 15895MBs are 0.06 ns a byte.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.reg_rate),
     UCS_CONFIG_TYPE_BW},

    {"SOFT_MODEL_SLOWDOWN", "1",
     "The model's world is slower than its settings say by this factor, so\n"
     "that what this host itself needs counts less.",
     ucs_offsetof(uct_nprdma_md_config_t, engine.model.slowdown),
     UCS_CONFIG_TYPE_DOUBLE},

    {NULL}};
