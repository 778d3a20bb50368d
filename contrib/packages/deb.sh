#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes Debian packages of this tree, for the UCX that is installed.
set -euo pipefail

# shellcheck source=contrib/packages/common.sh
. "$(dirname "$0")/common.sh"
out=$top/build/packages
check=no

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        cat <<'END'
Usage: deb.sh [--out DIR] [--ucx-source DIR] [--check]
Makes Debian packages of this tree, for the UCX that is installed.

  --out DIR         where they go (build/packages)
  --ucx-source DIR  a source tree of that UCX, for the private headers; without
                    it Debian's source package is fetched
  --check           also run lintian (DIR/lintian has what it says), and make
                    DIR/osu_latency, which the packages do not have

DEBFULLNAME and DEBEMAIL are who has made them, as in debchange(1).
END
        exit 0
        ;;
    --out | --ucx-source)
        packages_option "${@:1:2}"
        shift
        ;;
    --check) check=yes ;;
    *) usage_error "unknown argument '$1': see --help" ;;
    esac
    shift
done
needed=(dpkg-buildpackage:dpkg-dev dh:debhelper dh_dkms:dh-dkms)
[ "$check" = no ] || needed+=(lintian:lintian mpicc:libopenmpi-dev)
for program in "${needed[@]}"; do
    command -v "${program%:*}" >/dev/null ||
        die "${program%:*} is missing: apt-get install ${program#*:}"
done
packages_source
ucx=$(dpkg-query -W -f '${Version}' libucx-dev 2>/dev/null) ||
    die "libucx-dev is not installed from a Debian package: apt-get install" \
        "libucx-dev"
packages_version "$ucx"
version=$version+$stamp+ucx$major.$minor
packages_open
# dpkg-buildpackage puts what it makes beside the tree
mkdir "$work/nprdma"
nprdma_files | tar -c -C "$top" --null -T - |
    tar -x -C "$work/nprdma" --no-same-owner
cp -R "$top/contrib/packages/debian" "$work/nprdma/debian"
cd "$work/nprdma"
email=${DEBEMAIL:-root@$(packages_host)}
sed -e "s/@UCX_MINOR@/$major.$minor/g" \
    -e "s/@UCX_NEXT@/$major.$((minor + 1))/g" \
    -e "s/@MAINTAINER@/${DEBFULLNAME:-the nprdma authors} <$email>/" \
    debian/control.in >debian/control
mv debian/plugin.install "debian/libucx$major.$minor-nprdma.install"
rm debian/control.in
cat >debian/changelog <<END
nprdma ($version) unstable; urgency=medium

  * Made by contrib/packages/deb.sh for UCX $ucx.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(date -R -d "@$made")
END
echo "deb.sh: building nprdma $version for UCX $ucx (log: $out/log)"
if ! NPRDMA_UCX_SOURCE=$source dpkg-buildpackage -b -us -uc >"$out/log" 2>&1
then
    tail -n 20 "$out/log" >&2
    die "dpkg-buildpackage failed: the end of $out/log is above"
fi
cd "$out"
# Of an earlier run
for name in libnprdma0 libnprdma-remote0 libnprdma-dev nprdma-utils \
    nprdma-dkms 'libucx*-nprdma'; do
    find "$out" -maxdepth 1 \( -name "${name}_*.deb" -o \
        -name "$name-dbgsym_*.deb" \) -delete
done
mv "$work"/*.deb "$out"
if [ "$check" = yes ]; then
    code=0
    lintian "$out"/*.deb >"$out/lintian" 2>"$out/lintian.log" || code=$?
    [ "$code" -ne 1 ] || die "lintian failed: see $out/lintian.log"
    parts=(osu_latency buffer coll options pattern pt2pt report rma run)
    parts=("${parts[@]/#/$top/osu-bench/}")
    mpicc -O2 -I"$top/osu-bench" -o "$out/osu_latency" "${parts[@]/%/.c}"
fi
ls "$out"/*.deb
