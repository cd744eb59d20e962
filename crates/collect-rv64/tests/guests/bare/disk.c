/* A driver for the block device, without an operating system: finds it, reads
 * and writes sectors by polling and by interrupt, and is refused what it should be. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bare.h"

#define DISK(offset) (*(volatile u32 *)(0x10001000UL + (offset)))
#define PLIC(offset) (*(volatile u32 *)(0x0c000000UL + (offset)))
#define QUEUE 8

struct descriptor { u64 address; u32 len; u16 flags, next; };
static struct descriptor descriptors[QUEUE] __attribute__((aligned(16)));
static volatile struct { u16 flags, index, ring[QUEUE]; } available __attribute__((aligned(2)));
static volatile struct { u16 flags, index; struct { u32 id, len; } ring[QUEUE]; } used
    __attribute__((aligned(4)));
static struct { u32 kind, reserved; u64 sector; } header;
static u8 bytes[4 * 512];
static volatile u8 status;
static u16 seen;

static long begin(void)
{
    CHECK(DISK(0) == 0x74726976 && DISK(4) == 2 && DISK(8) == 2);
    DISK(0x70) = 0;
    DISK(0x70) = 1 | 2;
    DISK(0x14) = 1;
    CHECK(DISK(0x10) & 1);
    DISK(0x24) = 1;
    DISK(0x20) = 1;
    DISK(0x14) = 0;
    CHECK(DISK(0x10) & 1 << 9);
    DISK(0x24) = 0;
    DISK(0x20) = 1 << 9;
    DISK(0x70) = 1 | 2 | 8;
    CHECK(DISK(0x70) & 8);
    DISK(0x30) = 0;
    CHECK(DISK(0x34) >= QUEUE && !DISK(0x44));
    DISK(0x38) = QUEUE;
    DISK(0x80) = (u64)descriptors;
    DISK(0x84) = (u64)descriptors >> 32;
    DISK(0x90) = (u64)&available;
    DISK(0x94) = (u64)&available >> 32;
    DISK(0xa0) = (u64)&used;
    DISK(0xa4) = (u64)&used >> 32;
    DISK(0x44) = 1;
    DISK(0x70) = 1 | 2 | 8 | 4;
    CHECK(DISK(0x100) == 64 && DISK(0x104) == 0);
    return 0;
}

/* One request over so many buffers; the answer is the status. */
static long request(u32 kind, u64 sector, int buffers)
{
    header.kind = kind;
    header.sector = sector;
    status = 0xff;
    descriptors[0] = (struct descriptor){ (u64)&header, 16, 1, 1 };
    for (int n = 0; n < buffers; n++)
        descriptors[1 + n] = (struct descriptor){ (u64)(bytes + 512 * n), 512, kind == 0 ? 3 : 1, 2 + n };
    descriptors[1 + buffers] = (struct descriptor){ (u64)&status, 1, 2, 0 };
    available.ring[available.index % QUEUE] = 0;
    asm volatile("fence" : : : "memory");
    available.index = available.index + 1;
    asm volatile("fence" : : : "memory");
    DISK(0x50) = 0;
    while (used.index == seen)
        ;
    seen++;
    asm volatile("fence" : : : "memory");
    return status;
}

static long interrupts(void)
{
    PLIC(4 * 1) = 1;
    PLIC(0x2000) = 1 << 1;
    PLIC(0x200000) = 0;
    DISK(0x64) = DISK(0x60);
    CHECK(!(READ_CSR(mip) & 1 << 11) && PLIC(0x200004) == 0);
    CHECK(request(0, 0, 1) == 0);
    CHECK(DISK(0x60) == 1 && READ_CSR(mip) & 1 << 11);
    CHECK(PLIC(0x200004) == 1);
    CHECK(!(READ_CSR(mip) & 1 << 11));
    DISK(0x64) = 1;
    PLIC(0x200004) = 1;
    CHECK(DISK(0x60) == 0 && !(READ_CSR(mip) & 1 << 11));
    return 0;
}

long run(long hart)
{
    long wrong;
    (void)hart;
    if ((wrong = begin()))
        return wrong;
    /* Sector n holds its number in every byte. */
    CHECK(request(0, 5, 3) == 0);
    for (int n = 0; n < 3 * 512; n++)
        CHECK(bytes[n] == 5 + n / 512);
    for (int n = 0; n < 1024; n++)
        bytes[n] = n * 7;
    CHECK(request(1, 10, 2) == 0);
    CHECK(request(4, 0, 0) == 0);
    for (int n = 0; n < 2048; n++)
        bytes[n] = 0;
    CHECK(request(0, 9, 4) == 0);
    for (int n = 0; n < 512; n++) {
        CHECK(bytes[n] == 9 && bytes[3 * 512 + n] == 12);
        CHECK(bytes[1 * 512 + n] == (u8)(n * 7) && bytes[2 * 512 + n] == (u8)((512 + n) * 7));
    }
    /* Outside of the disk, and nothing that a disk does. */
    CHECK(request(0, 63, 1) == 0 && request(0, 64, 1) == 1 && request(1, 63, 2) == 1);
    CHECK(request(0, -1UL >> 9, 1) == 1);
    CHECK(request(77, 0, 1) == 2);
    if ((wrong = interrupts()))
        return wrong;
    for (int n = 0; n < 40; n++)
        CHECK(request(0, n, 1) == 0 && bytes[3] == (n == 10 ? 21 : n == 11 ? (u8)(515 * 7) : n));
    return 0;
}
