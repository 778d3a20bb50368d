// SPDX-License-Identifier: BSD-3-Clause
// Scenes in which buffers are brought in as soon as their transfer is posted.
#ifndef NPRDMA_TEST_PREPARE_SCENE_H
#define NPRDMA_TEST_PREPARE_SCENE_H

#include "ucp_face.h"

#include "../harness/paging.h"

#include <string>
#include <vector>

namespace nt {

constexpr ucp_tag_t ALL     = ~(ucp_tag_t)0;
constexpr size_t    MIB     = 1 << 20;
constexpr size_t    QUANTUM = 128 << 10; // what one progress call brings in
constexpr int       TURNS   = 2000;     // enough for all that waits

// Settings are NAME=VALUE, of variables that begin with UCX_NPRDMA_.
void prepare_settings(const std::vector<std::string> &settings);

// Progress calls, a number of them.
void turns(UcpNode &node, int count = TURNS);

// Pages that the OS has.
size_t resident(const Area &area, size_t length);

// Both sides know each other, and what they reach of each other.
void meet(UcpNode &node);

// Until a message of that tag waits for its receive; it is taken.
ucp_tag_message_h arrived(UcpNode &node, ucp_tag_t tag);

} // namespace nt

#endif
