#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# probe.sh HEADERS FILE [CONFIG=VALUE...]: finds out by compiling what the
# kernel of these headers offers, and writes it as a C header.
set -eu

headers=$1
file=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# probe NAME INCLUDE CODE
names=
probe() {
	names="$names $1"
	{
		echo '#include <linux/module.h>'
		echo "#include <$2>"
		echo "$3"
		echo 'MODULE_LICENSE("GPL"); MODULE_DESCRIPTION("probe");'
	} >"$work/$1.c"
	echo "obj-m += $1.o" >>"$work/Kbuild"
}

probe works linux/hmm.h 'int works(struct hmm_range *range);
int works(struct hmm_range *range) { return hmm_range_fault(range); }'
probe iommu_map_gfp linux/iommu.h 'int f(struct iommu_domain *domain);
int f(struct iommu_domain *domain)
{ return iommu_map(domain, 0, 0, PAGE_SIZE, IOMMU_READ, GFP_ATOMIC); }'
probe vm_flags_mod linux/mm.h 'void f(struct vm_area_struct *vma);
void f(struct vm_area_struct *vma) { vm_flags_mod(vma, VM_DONTCOPY, 0); }'
probe import_ns_word linux/dma-buf.h 'MODULE_IMPORT_NS(DMA_BUF);'
probe invalidate_mappings linux/dma-buf.h '
const struct dma_buf_attach_ops ops = { .invalidate_mappings = NULL };'
probe iommu_pt_header linux/generic_pt/iommu.h ''
# All that leaf.c needs of the tables
probe iommu_pt linux/generic_pt/iommu.h '
bool f(struct iommu_domain *domain, struct iommu_iotlb_gather *gather);
bool f(struct iommu_domain *domain, struct iommu_iotlb_gather *gather)
{
	struct pt_common *common = &container_of(iommupt_from_domain(domain),
			struct pt_iommu_vtdss, iommu)->vtdss_pt.common;

	iommu_iotlb_gather_add_page(domain, gather, 0, PAGE_SIZE);
	return offsetof(struct pt_iommu_x86_64, x86_64_pt.common) ==
	       offsetof(struct pt_iommu_amdv1, amdpt.common) &&
	       (common->top_of_table & PT_TOP_LEVEL_MASK) &&
	       (common->features & BIT(PT_FEAT_DMA_INCOHERENT));
}'

# What does not compile is an answer: no final link, and go on
make -s -k -C "$headers" M="$work" "$@" KBUILD_MODPOST_WARN=1 modules \
	>"$work/log" 2>&1 || true

have() {
	[ -e "$work/$1.o" ]
}

if ! have works; then
	cat "$work/log" >&2
	echo "probe.sh: nothing compiles against $headers: see above" >&2
	exit 1
fi

# Backslashes continue lines of C
# shellcheck disable=SC1003
{
	echo "/* Made by probe.sh for $(basename "$headers") */"
	if have iommu_map_gfp; then
		echo '#define np_iommu_map(domain, iova, phys, size, prot) \'
		echo '	iommu_map(domain, iova, phys, size, prot, GFP_ATOMIC)'
		echo '#define np_iommu_map_sg(domain, iova, sg, count, prot) \'
		echo '	iommu_map_sg(domain, iova, sg, count, prot, \'
		echo '		     GFP_KERNEL_ACCOUNT)'
	else
		echo '#define np_iommu_map iommu_map_atomic'
		echo '#define np_iommu_map_sg iommu_map_sg'
	fi
	if have vm_flags_mod; then
		echo '#define np_vm_flags vm_flags_mod'
	else
		echo '#define np_vm_flags(vma, set, clear) \'
		echo '	((vma)->vm_flags = ((vma)->vm_flags | (set)) & ~(clear))'
	fi
	if have import_ns_word; then
		echo '#define NP_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS(DMA_BUF)'
	else
		echo '#define NP_IMPORT_NS_DMA_BUF MODULE_IMPORT_NS("DMA_BUF")'
	fi
	if have invalidate_mappings; then
		echo '#define NP_HAVE_INVALIDATE_MAPPINGS 1'
	fi
	if have iommu_pt; then
		echo '#define NP_HAVE_IOMMU_PT 1'
		why="leaf.c is for x86-64"
	elif ! have iommu_pt_header; then
		why="this kernel's IOMMU drivers share no form of tables"
	else
		why="the form of this kernel's IOMMU tables is not known to probe.sh"
		echo "probe.sh: $why: translations are replaced by two calls." \
			"$(grep -m 1 "iommu_pt.c:.*error" "$work/log")" >&2
	fi
	echo "#define NP_IN_PLACE_WHY \"$why\""
} >"$file.new"
# What is the same stays as old as it is
if cmp -s "$file.new" "$file"; then
	rm "$file.new"
else
	mv "$file.new" "$file"
fi
