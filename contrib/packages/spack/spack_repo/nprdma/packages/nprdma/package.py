# SPDX-License-Identifier: BSD-3-Clause
"""For Spack 1.0 or later. nprdma has no address that it could be fetched from,
so this builds the checkout that it lies in:

    spack repo add contrib/packages/spack/spack_repo/nprdma
    spack install nprdma            # what is committed on its branch main
    spack develop --path "$PWD" nprdma@main     # in an environment: as it is
"""

import pathlib

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *

TOP = pathlib.Path(__file__).resolve().parents[7]

# Private headers must be of the very version, so UCX's own source is fetched a
# second time: these are the versions that nprdma compiles with, by the commits
# of their tags. Not 1.14: docs/guide/user-guide.md, "Other UCX and MPI". A UCX
# of a distribution may be another than its number says, as there, too.
UCX = {
    "1.13.1": "09f27c0efb04beb110d3a05dab274269309c4e23",
    "1.15.0": "348d14f111de710f12247b6a3ae12aefd0fe7b99",
    "1.16.0": "e4bb80267c5978f18ad0b4fcfb53d3f552d884d6",
    "1.17.0": "4ef9a097c12ee6f7a8d3e41c317ea2d47e424b32",
    "1.18.0": "693d02837894b9c346c9f91b105e4aff6f259c09",
    "1.18.1": "d9aa5650d4cbcbb00d61af980614dbe9dd27a1f2",
    "1.19.0": "e4636149592d5a435c2c911fe7727444a13bfa2e",
    "1.19.1": "7009d7a19b1c2464224a3fe117a4155fb29298f5",
    "1.20.0": "4b7a6ca8410f9cea0e15857233ecfeefdd863dde",
    "1.20.1": "d8e50df6651b9ea5b76f23aee0aefbf053a4137a",
    "1.21.0": "b6a9d47fccce849c28111f05a7fa8f1c930ff17d",
    "1.22.0": "8a6b06fb880accbb933a79cda893883872c68d9d",
}


class Nprdma(AutotoolsPackage):
    """UCX transport for RDMA on memory that is not pinned."""

    git = f"file://{TOP}"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("verbs", default=True, description="RDMA devices, by libibverbs")
    variant("munge", default=False, description="files by MUNGE, not by tokens")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("m4", type="build")
    depends_on(f"ucx@{','.join(UCX)} libs=shared")
    depends_on("rdma-core", when="+verbs")
    depends_on("munge", when="+munge")

    conflicts("platform=darwin", msg="nprdma is for Linux")
    conflicts("platform=windows", msg="nprdma is for Linux")

    for ucx_version, ucx_commit in UCX.items():
        resource(
            name=f"ucx-{ucx_version}",
            git="https://github.com/openucx/ucx.git",
            commit=ucx_commit,
            destination="build-spack",
            placement="ucx-source",
            when=f"^ucx@{ucx_version}",
        )

    # git ignores it, where this is a checkout that somebody works in
    build_directory = "build-spack"

    sanity_check_is_file = ["bin/nprdma-run", "bin/nprdma_info"]

    def configure_args(self):
        top = self.stage.source_path
        return [
            "--with-mpi=no",
            f"--with-ucx={self.spec['ucx'].prefix}",
            f"--with-ucx-source={join_path(top, 'build-spack', 'ucx-source')}",
        ] + self.with_or_without("verbs") + self.with_or_without("munge")
