/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a device may do that Soft-RoCE by itself does not: see README.md.
 */
#ifndef RXE_MODES_H
#define RXE_MODES_H

#include <linux/iommu.h>
#include <linux/types.h>

/* Of the last that rxe_modes_order() gave */
#define RXE_MODES_UNITS	64U

/* Bytes that are read or written at once */
unsigned int rxe_modes_unit(void);

/* The order of so many units, at most RXE_MODES_UNITS */
void rxe_modes_order(u8 *order, unsigned int count);

/* As iommu_iova_to_phys(), of a whole page */
phys_addr_t rxe_modes_phys(struct iommu_domain *domain, dma_addr_t iova);

/* A domain that regions are in, and one that they are in no more */
int rxe_modes_enter(struct iommu_domain *domain);
void rxe_modes_leave(void);

/* Is a read of this page to be aborted, as if there were no translation? */
bool rxe_modes_is_hole(struct page *page);

#endif
