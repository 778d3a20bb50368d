#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the engine "nprdma" for the fio that is installed, and runs fio with
# it: files of an nprdma-filed, measured with the options that you know.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

prefix=
build=$nprdma_top/build/fio
only=no

usage() {
    sed -n '3,4s/^# //p' "$0"
    cat <<END

Usage: fio.sh [OPTION...] [--] [ARGUMENT OF FIO...]
  --prefix DIR  where nprdma is installed (default: set up, build, and use
                build/install)
  --build DIR   where fio's source and the engine go (default: build/fio)
  --only-build  build the engine, print what ioengine= takes, and end

Of the engine are socket=PATH, or host=HOST, port=PORT and token=FILE.
filename= is a path of the server. As in:

  nprdma-filed /srv/data &
  contrib/fio.sh --name=try --filename=/try --size=64m --rw=randrw --bs=4k \\
      --iodepth=16 --verify=crc32c
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --build)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: fio.sh --help"
        case $1 in
        --prefix) prefix=$(realpath -m "$2") ;;
        --build) build=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    --only-build) only=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    --)
        shift
        break
        ;;
    *) break ;;
    esac
    shift
done

command -v fio >/dev/null ||
    nprdma_die "fio is not installed: apt-get install fio"
nprdma_find_prefix
[ -e "$prefix/lib/libnprdma_remote.so" ] ||
    nprdma_die "no libnprdma_remote in $prefix/lib: make install first"

"$nprdma_top/contrib/debian-source.sh" fio fio "$build/source" >&2
if [ ! -e "$build/source/config-host.h" ]; then
    echo "fio.sh: fio's source finds out what this machine has" >&2
    (cd "$build/source" && ./configure >"$build/configure.log" 2>&1) ||
        nprdma_die "fio's configure failed: see $build/configure.log"
fi
engine=$build/nprdma.so
source=$nprdma_top/contrib/fio/nprdma.c
for file in "$source" "$build/source/config-host.h" \
    "$prefix/include/nprdma/nprdma_remote.h"; do
    [ "$engine" -nt "$file" ] || rm -f "$engine"
done
if [ ! -e "$engine" ]; then
    "${CC:-cc}" -std=gnu99 -O2 -g -Wall -Wno-unused-parameter -shared -fPIC \
        -D_GNU_SOURCE -include "$build/source/config-host.h" \
        -I "$build/source" -I "$prefix/include" -o "$engine.new" "$source" \
        -L "$prefix/lib" -Wl,-rpath,"$prefix/lib" -lnprdma_remote
    mv "$engine.new" "$engine"
fi

if [ "$only" = yes ]; then
    echo "external:$engine"
    exit 0
fi
exec "$prefix/bin/nprdma-run" fio "--ioengine=external:$engine" "$@"
