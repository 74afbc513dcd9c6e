/* The frozen model as plain C: the inputs of a run of nn_infer, and what the first predictions() of driver.py say. */

#include "nn_infer.h"
#include "record.h"

static double numbers[IMAGES * NN_INFER_INPUTS];
static unsigned char images[IMAGES][NN_INFER_INPUTS];

int main(void)
{
    static struct nn_infer_workspace w;
    double classes[IMAGES];
    read_about(1);
    read_stage("images", numbers, IMAGES * NN_INFER_INPUTS);
    for (int i = 0; i < IMAGES * NN_INFER_INPUTS; i++)
        images[i / NN_INFER_INPUTS][i % NN_INFER_INPUTS] = (unsigned char)numbers[i];
    for (int image = 0; image < PREDICTED; image++) {
        nn_infer_logits(&w, images[image], numbers);
        write_stage(numbers, NN_INFER_LOGITS, "fresh, image %d: logits", image);
        nn_infer_probabilities(&w, images[image], numbers);
        write_stage(numbers, NN_INFER_PROBABILITIES, "fresh, image %d: probabilities", image);
    }
    for (int image = 0; image < IMAGES; image++)
        classes[image] = nn_infer_predict(&w, images[image]);
    write_stage(classes, IMAGES, "fresh: classes, 1 threads");
    return fflush(stdout) != 0;
}
