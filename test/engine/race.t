#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Transfers among those who swap, in every order; prints TAP.
set -euo pipefail
exec "$NPRDMA_BUILD/test_race"
