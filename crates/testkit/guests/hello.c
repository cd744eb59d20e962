/* Says hello, with its arguments, and ends with their number. */
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("hello %s, %d of %d\n", argv[i], i, argc - 1);
    return argc;
}
