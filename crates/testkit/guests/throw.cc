// Exceptions through frames with destructors, caught by base and rethrown.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
static int destroyed;
struct Guard {
    ~Guard() { destroyed++; }
};
static int deep(int n) {
    Guard guard;
    if (n == 0) throw std::out_of_range("too deep");
    return deep(n - 1) + n;
}
int main() {
    std::vector<std::string> seen;
    for (int i = 1; i < 4; i++) {
        try {
            try {
                deep(i * 3);
            } catch (const std::logic_error &) {
                throw;
            }
        } catch (const std::exception &e) {
            seen.push_back(e.what());
        }
    }
    std::printf("%zu times %s, destroyed %d\n", seen.size(), seen[0].c_str(), destroyed);
    return destroyed == 21 ? 0 : 1;
}
