/*
 * Plain C that trains: what module.h does with the C of a module. run.h, which tools/cross/trained.py writes, includes the
 * model's header and says what it is.
 */

#include "run.h"

#include "record.h"

enum { STEPS = 5, NUMBERS = IMAGES * (INPUTS + TARGETS) + PARAMETERS + MOST_OUTPUTS };
static const int batches[STEPS] = {1, 1, 3, 2, 1};
static input_type images[IMAGES][INPUTS + 1];
static target_type targets[IMAGES][TARGETS + 1];
static double numbers[NUMBERS + 1]; /* of one stage */
static real reals[PARAMETERS + MOST_OUTPUTS + 1];
static MODEL model;

static void read_examples(void)
{
    read_stage("images", numbers, IMAGES * INPUTS);
    for (int i = 0; i < IMAGES * INPUTS; i++)
        images[i / INPUTS][i % INPUTS] = (input_type)numbers[i];
    read_stage("targets", numbers, IMAGES * TARGETS);
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < TARGETS; k++)
            targets[i][k] = (target_type)numbers[i * TARGETS + k];
}

static void read_parameters(const char *stage)
{
    read_stage(stage, numbers, PARAMETERS);
    for (int i = 0; i < PARAMETERS; i++)
        reals[i] = (real)numbers[i];
    CALL(set_parameters)(&model, reals);
}

static void write_reals(int count, const char *when, const char *what)
{
    for (int i = 0; i < count; i++)
        numbers[i] = reals[i];
    write_stage(numbers, count, "%s: %s", when, what);
}

static void write_outputs(void)
{
    for (int image = 0; image < PREDICTED; image++) {
        char when[MAX_NAME];
        snprintf(when, sizeof(when), "fresh, image %d", image);
#define WRITE(title, function, count) \
    function(&model, images[image], reals); \
    write_reals(count, when, title);
        EACH_OUTPUT(WRITE)
    }
#if HAS_LABELS
    for (int image = 0; image < IMAGES; image++)
        numbers[image] = CALL(predict)(&model, images[image]);
    write_stage(numbers, IMAGES, "fresh: classes, 1 threads");
#endif
}

static void train_step_by_step(void)
{
    int image = 0;
    for (int step = 0; step < STEPS; step++) {
        char when[MAX_NAME];
        snprintf(when, sizeof(when), "step %d", step);
        if (step != 3)
            CALL(zero_grad)(&model);
        for (int k = 0; k < batches[step]; k++, image++) {
            double loss = CALL(forward)(&model, images[image] TARGETS_OF(image));
            write_stage(&loss, 1, "%s, image %d: loss", when, image);
            CALL(backward)(&model);
        }
        if (step % 2) {
            CALL(get_gradients)(&model, reals);
            write_reals(PARAMETERS, when, "gradients");
        }
        CALL(update)(&model, LEARNING_RATE, batches[step]);
        CALL(get_parameters)(&model, reals);
        write_reals(PARAMETERS, when, "parameters");
    }
}

#if HAS_LABELS
static void train_epoch(void)
{
    unsigned char example[1 + INPUTS];
    while (fread(example, 1, sizeof(example), stdin) == sizeof(example))
        CALL(train_batch)(&model, example + 1, example, 1, LEARNING_RATE);
    CALL(get_parameters)(&model, reals);
    write_reals(PARAMETERS, "after the epoch", "parameters");
}
#endif

int main(int argc, char **argv)
{
    read_about(0);
    printf("{\"byteorder\": \"little\", \"info\": {\"digest\": \"%s\", \"compiler\": \"%s\", \"fma\": false}}\n", DIGEST,
           BUILT_BY);
    CALL(init)(&model);
    (void)argv;
#if HAS_LABELS
    if (argc > 1) {
        read_parameters("before the epoch: parameters");
        train_epoch();
        return fflush(stdout) != 0;
    }
#else
    (void)argc;
#endif
    read_examples();
    read_parameters("fresh: parameters");
    write_outputs();
    train_step_by_step();
    return fflush(stdout) != 0;
}
