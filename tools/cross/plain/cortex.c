/* The first words of a program for a Cortex-M4: the stack, and what starts newlib once the floating-point unit is on. */

extern char __stack[];
void _start(void);

static void start(void)
{
    *(volatile unsigned *)0xE000ED88 |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb");
    _start();
}

__attribute__((section(".vectors"), used)) static const struct {
    const char *stack;
    void (*start)(void);
    void (*others[14])(void);
} vectors = {__stack, start, {0}};
