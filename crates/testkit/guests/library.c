/* The C library at work, silently: sorting, strings, numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int before(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static char text[400], copy[400];
int main(void) {
    int data[60];
    unsigned x = 5;
    for (int i = 0; i < 60; i++) data[i] = (int)((x = x * 1103515245 + 12345) >> 8);
    qsort(data, 60, sizeof data[0], before);
    char *at = text;
    for (int i = 0; i < 12; i++) {
        for (int d = data[i]; d; d /= 10) *at++ = (char)('0' + d % 10);
        at = stpcpy(at, "; ");
    }
    strcpy(copy, text);
    memmove(copy + 3, copy, 100);
    memset(copy + 200, 'x', 60);
    long sum = (long)strlen(copy) + (strcmp(copy, text) < 0) + (strchr(text, ';') - text);
    sum += strtol(text, 0, 10) + (memcmp(text, copy, 50) < 0) + (strstr(text, "; 7") != 0);
    for (char *part = strtok(copy, ";"); part; part = strtok(0, ";")) sum += (long)strlen(part);
    sum += (long)sqrt((double)sum) + (long)(1000.0 * pow((double)data[3], 0.3)) + (long)(10.0 * exp(2.5));
    _exit((int)(sum % 100));
}
