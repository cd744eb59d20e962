/* The C library at work, silently, with blocks from the heap: copies, growth,
   numbers to text and back, formatted output into memory, bit tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct node { struct node *next; char *text; long bits; };
static long toggle(long word, unsigned bit) {
    long was;
    __asm__("btc %2,%0; sbb %1,%1" : "+r"(word), "=r"(was) : "r"((long)bit) : "cc");
    __asm__("bts %1,%0" : "+r"(word) : "r"((long)(bit * 7)) : "cc");
    __asm__("btr %1,%0" : "+r"(word) : "r"((long)(bit * 3)) : "cc");
    __asm__("btl %k1,%k0; adc $0,%0" : "+r"(word) : "r"((long)(bit * 5)) : "cc");
    __asm__("btsq $9,%0; btcw $3,%w0" : "+r"(word) : : "cc");
    return word ^ was;
}
int main(void) {
    struct node *head = 0;
    char line[100];
    double sum = 0;
    long bits = 0;
    for (int i = 0; i < 25; i++) {
        struct node *node = malloc(sizeof *node);
        int n = snprintf(line, sizeof line, "%d:%-6s|%05.2f|%#lx", i, "ab", i * 1.75, i * 7919L);
        node->text = strdup(line);
        node->text = realloc(node->text, (size_t)n + 1 + (size_t)i * 40);
        node->bits = bits = toggle(bits, (unsigned)i);
        node->next = head;
        head = node;
        sum += strtod(strchr(line, '|') + 1, 0) + (double)(atoi(line) + (int)strtoul("0x1f", 0, 16));
    }
    char *grown = 0;
    size_t size = 0;
    FILE *out = open_memstream(&grown, &size);
    for (struct node *at = head; at; at = at->next) fprintf(out, "%s;%lx\n", at->text, at->bits);
    fprintf(out, "%g\n", sum);
    fclose(out);
    long total = (long)size + grown[size - 2];
    int number;
    char word[20];
    if (sscanf(grown, "%d:%19[a-z]", &number, word) == 2) total += number + word[1];
    while (head) {
        struct node *next = head->next;
        free(head->text);
        free(head);
        head = next;
    }
    free(grown);
    char *wide = calloc(300, 50);
    total += wide[7000];
    free(wide);
    _exit((int)(total % 100));
}
