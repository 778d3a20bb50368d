#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes ./configure out of configure.ac.
set -euo pipefail
cd "$(dirname "$0")"

for tool in autoreconf automake libtoolize; do
    if ! command -v "$tool" >/dev/null; then
        echo "autogen.sh: $tool is missing: install autoconf, automake and" \
             "libtool, or run contrib/setup.sh" >&2
        exit 1
    fi
done
exec autoreconf --install --force
