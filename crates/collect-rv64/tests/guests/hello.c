// Prints its arguments and a few library results.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%d: %s\n", i, argv[i]);
    double values[64];
    for (int i = 0; i < 64; i++) values[i] = sin(i * 0.7) * exp(i / 17.0) / sqrt(i + 1);
    qsort(values, 64, sizeof values[0], by_value);
    for (int i = 0; i < 64; i += 7) printf("%.17g %a\n", values[i], (float)values[i]);
    char *text = malloc(100000);
    memset(text, 'x', 99999);
    text[99999] = 0;
    printf("%zu %s\n", strlen(text), getenv("HOME") ? "home" : "no home");
    time_t t = 86400 * 365;
    printf("%s", asctime(gmtime(&t)));
    fprintf(stderr, "done\n");
    return argc;
}
