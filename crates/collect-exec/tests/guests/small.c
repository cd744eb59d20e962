/* A little of everything that is deterministic: strings, a sort, switch tables, recursion, system calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static int name(int i) {
    switch (i % 7) {
    case 0: return 'a' + i;
    case 1: return 'b';
    case 2: return i * 3;
    case 3: return i ^ 5;
    case 4: return -i;
    case 5: return fib(i % 10);
    default: return 0;
    }
}

int main(int argc, char **argv) {
    int v[64], sum = 0;
    char text[300], copy[300];
    for (int i = 0; i < 64; i++) v[i] = (i * 7919) % 101;
    qsort(v, 64, sizeof *v, compare);
    for (int i = 0; i < 64; i++) sum += name(v[i]);
    memset(text, 'x', sizeof text - 1);
    text[299] = 0;
    strcpy(copy, text);
    printf("%d %d %zu %d %d\n", sum, v[10], strlen(copy), memcmp(text, copy, 300), argc);
    char *p = malloc(5000);
    memcpy(p, text, 300);
    p = realloc(p, 200000);
    puts(strchr(argv[0], 'z') ? "z" : "no z");
    free(p);
    return 3;
}
