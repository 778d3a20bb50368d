#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the tests of the engine's parts; they print TAP.
set -euo pipefail
exec "$NPRDMA_BUILD/test_engine"
