#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Policies of unloading over streams and a modelled device; prints TAP.
set -euo pipefail
exec "$NPRDMA_BUILD/test_unload"
