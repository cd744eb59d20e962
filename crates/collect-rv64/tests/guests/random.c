// Random numbers in the ways that programs ask for them, one line each.
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

static void print(const unsigned char *bytes) {
    for (int i = 0; i < 16; i++) printf("%02x", bytes[i]);
    putchar('\n');
}

int main(void) {
    unsigned char bytes[16];
    if (getrandom(bytes, 16, 0) != 16) return 1;
    print(bytes);
    const char *names[] = {"/dev/urandom", "/dev/random"};
    for (int i = 0; i < 2; i++) {
        int file = open(names[i], O_RDONLY);
        if (read(file, bytes, 16) != 16) return 2;
        print(bytes);
        close(file);
    }
    int file = open("/dev/urandom", O_RDONLY);
    struct iovec parts[] = {{bytes, 5}, {bytes + 5, 11}};
    if (readv(file, parts, 2) != 16) return 3;
    print(bytes);
    return 0;
}
