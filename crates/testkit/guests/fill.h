// Turns of a loop that fills a few words by a string instruction and jumps by a table. Nothing in them moves the stack pointer.
#define KEPT 0x5151515151515151ul
// The sum after a turn; `kept` is KEPT, wherever the caller keeps it.
static inline __attribute__((always_inline)) unsigned long
fill(unsigned long room[8], long turn, unsigned long sum, volatile unsigned long *kept)
{
    unsigned long *to = room + turn % 4;
    unsigned long count = 1 + turn % 3;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(turn) : "memory");
    switch (turn % 7) {
    case 0: return sum + room[1];
    case 1: return sum ^ room[2] << 3;
    case 2: return sum + *kept;
    case 3: return sum - room[3];
    case 4: return sum << 1 | sum >> 63;
    case 5: return sum ^ *kept;
    default: return sum + room[4] * 3;
    }
}
