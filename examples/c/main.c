/*
 * Reads a handwritten digit without Python, from a PGM picture (P5, 28 x 28, white on black). From the project's folder:
 *
 *     micrograd freeze codegen.mnist weights/mnist.safetensors --standalone --output examples/c
 *     cc -O2 -ffp-contract=off examples/c/main.c examples/c/nn_infer.c -lm -o digit
 *     ./digit picture.pgm
 */

#include <stdio.h>

#include "nn_infer.h"

enum { SIDE = 28 };

/* A number of the header, after white space and comments; -1 where there is none. */
static int read_number(FILE *file)
{
    int c = getc(file), number = -1;
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF)
                c = getc(file);
        c = getc(file);
    }
    for (; c >= '0' && c <= '9' && number < 100000; c = getc(file))
        number = (number < 0 ? 0 : number) * 10 + (c - '0');
    return number;
}

/* Fills `pixels`; returns what is wrong with the file, or NULL. */
static const char *read_picture(const char *path, unsigned char *pixels)
{
    FILE *const file = fopen(path, "rb");
    const char *problem = NULL;
    if (file == NULL)
        return "cannot be opened";
    if (getc(file) != 'P' || getc(file) != '5')
        problem = "is no PGM file (P5)";
    else if (read_number(file) != SIDE || read_number(file) != SIDE || read_number(file) != 255)
        problem = "is not 28 x 28 pixels of 0 to 255";
    else if (fread(pixels, 1, NN_INFER_INPUTS, file) != NN_INFER_INPUTS)
        problem = "ends too early";
    fclose(file);
    return problem;
}

int main(int count, char **arguments)
{
    static struct nn_infer_workspace workspace;
    unsigned char pixels[NN_INFER_INPUTS];
    double probabilities[NN_INFER_PROBABILITIES];
    if (count != 2) {
        fprintf(stderr, "usage: digit PICTURE.pgm\n");
        return 2;
    }
    const char *const problem = read_picture(arguments[1], pixels);
    if (problem != NULL) {
        fprintf(stderr, "%s %s\n", arguments[1], problem);
        return 2;
    }
    const int digit = nn_infer_predict(&workspace, pixels);
    nn_infer_probabilities(&workspace, pixels, probabilities);
    printf("%d (%.1f %%)\n", digit, 100 * probabilities[digit]);
    return 0;
}
