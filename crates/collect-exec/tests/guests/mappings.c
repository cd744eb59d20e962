/* Changes its mappings in a random order (the argument is the seed), runs code in them, and prints in the end what the
   kernel says of them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>

#define PAGES 40
#define HOLE 20
static uint64_t next(uint64_t *seed, uint64_t most) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % most;
}

static void change(uint64_t seed, int file) {
    char *room = mmap(0, (PAGES + HOLE) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(room + PAGES * 4096, HOLE * 4096);
    for (int n = 0; n < 300; n++) {
        size_t len = (next(&seed, 8) + 1) * 4096;
        char *at = room + next(&seed, PAGES - 8) * 4096, *to = room + next(&seed, PAGES - 8) * 4096;
        int rights = next(&seed, 4);
        switch (next(&seed, 12)) {
        case 0: mmap(at, len, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
        case 1: mmap(at, len, rights, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
        case 2: mmap(at, len, rights & 1, MAP_PRIVATE | MAP_FIXED, file, next(&seed, 4) * 4096); break;
        case 3: munmap(at, len); break;
        case 4: mremap(at, (next(&seed, 8) + 1) * 4096, len, MREMAP_MAYMOVE | MREMAP_FIXED, to); break;
        case 5: prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, len, next(&seed, 2) ? "one" : "other"); break;
        case 6: madvise(at, len, next(&seed, 2) ? MADV_DONTFORK : MADV_DOFORK); break;
        case 7: sbrk((long)next(&seed, 9) * 4096 - 3 * 4096); break;
        case 8: {
            int id = shmget(IPC_PRIVATE, len, IPC_CREAT | 0600);
            void *seen = shmat(id, at, SHM_REMAP);
            shmctl(id, IPC_RMID, 0);
            if (next(&seed, 2)) shmdt(seen);
            break;
        }
        case 9: {
            uint8_t *code = mmap(at, len, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            memcpy(code + len - 16, "\xb8\x05\0\0\0\xc3", 6);
            if (((int (*)(void))(code + len - 16))() != 5) abort();
            break;
        }
        /* Fails, and does some of it. */
        case 10: mprotect(room + (PAGES - 9) * 4096, 9 * 4096 + len, rights); break;
        default: mprotect(at, len, rights);
        }
    }
}

int main(int argc, char **argv) {
    static char text[1 << 18];
    change(atoi(argv[1]), open("/proc/self/exe", O_RDONLY));
    int maps = open("/proc/self/maps", O_RDONLY);
    for (ssize_t n; (n = read(maps, text, sizeof text)) > 0;) write(1, text, n);
    _exit(0);
}
