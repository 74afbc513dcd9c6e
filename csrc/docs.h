/*
 * The help text of each function, with the model's own numbers filled in. The texts are kept only here: `make docs`
 * copies them into the stubs of nn and nn_infer, and `make docs ARGS=--check` fails if the stubs are out of date.
 */

#ifndef DOCS_H
#define DOCS_H

#define AS_TEXT_(x) #x
#define AS_TEXT(x) AS_TEXT_(x)

#if FLOAT32
#define DOC_REAL "float32"
#else
#define DOC_REAL "float64"
#endif

#define DOC_ROW INPUT_NOUN
#define DOC_ROWS INPUT_NOUN "s"

#if INPUT_PIXELS
#define DOC_ELEMENTS "unsigned bytes"
#define DOC_BUFFERS "bytes, bytearray, memoryview or a NumPy array"
#else
#define DOC_ELEMENTS DOC_REAL
#define DOC_BUFFERS "array.array, memoryview or a NumPy array"
#endif
#if INPUT_PIXELS
#define DOC_CONVERTED "."
#else
#define DOC_CONVERTED ".\n    Other real numbers, in buffers or sequences, are converted."
#endif
#if INPUT_PARTS
#define DOC_PIXELS INPUT_ARGUMENT ": one example: " INPUT_TYPE "."
#define DOC_IMAGES INPUTS_ARGUMENT ": n examples, n >= 1: " INPUT_TYPE "."
#elif INPUT_LEAVES == 0
#define DOC_PIXELS INPUT_ARGUMENT ": None, because this model has no inputs."
#define DOC_IMAGES INPUTS_ARGUMENT ": None, because this model has no inputs: n is 1, or the number of its targets."
#else
#define DOC_PIXELS \
    INPUT_ARGUMENT ": a C-contiguous buffer of " AS_TEXT(INPUT_COUNT) " " DOC_ELEMENTS ", read in place: " \
    DOC_BUFFERS DOC_CONVERTED
#define DOC_IMAGES \
    INPUTS_ARGUMENT ": a C-contiguous buffer of n * " AS_TEXT(INPUT_COUNT) " " DOC_ELEMENTS \
    ", n >= 1, read in place:\n    " \
    DOC_BUFFERS DOC_CONVERTED
#endif

#if TARGET_PARTS
#define DOC_LABEL TARGET_ARGUMENT ": " TARGET_TYPE "."
#define DOC_LABELS TARGETS_ARGUMENT ": of n examples: " TARGET_TYPE "."
#elif TARGET_LABEL
#define DOC_LABEL TARGET_ARGUMENT ": an int, 0 <= label < " AS_TEXT(TARGET_COUNT) "."
#define DOC_LABELS TARGETS_ARGUMENT ": n ints, each below " AS_TEXT(TARGET_COUNT) \
    ": a buffer of bytes is read in place, others are converted."
#elif TARGET_COUNT
#define DOC_LABEL TARGET_ARGUMENT ": " AS_TEXT(TARGET_COUNT) " numbers: a buffer of " DOC_REAL \
    " is read in place, others are converted."
#define DOC_LABELS TARGETS_ARGUMENT ": n * " AS_TEXT(TARGET_COUNT) " numbers: a buffer of " DOC_REAL \
    " is read in place, others are\n    converted."
#else
#define DOC_LABEL TARGET_ARGUMENT ": None, because this model has no targets."
#define DOC_LABELS TARGETS_ARGUMENT ": None, because this model has no targets."
#endif

#if HAS_PREDICTION
#define DOC_CLASSES ""
#else
#define DOC_CLASSES "\nRaises RuntimeError, because this model has no classes: see outputs()."
#endif

#define DOC_THREADS "threads: an int, 1 <= threads <= " AS_TEXT(MAX_THREADS) ". Results do not depend on it."
#if FROZEN
#define DOC_USE "predict(" INPUT_ARGUMENT "), probabilities(" INPUT_ARGUMENT ") and outputs(" INPUT_ARGUMENT \
    ") take one " DOC_ROW "; info() describes the model."
#else
#define DOC_USE \
    "zero_grad(), forward(" TARGET_ARGUMENT ", " INPUT_ARGUMENT \
    "), backward(), update() is one training step; train() runs whole epochs.\n" \
    "predict(" INPUT_ARGUMENT "), probabilities(" INPUT_ARGUMENT ") and outputs(" INPUT_ARGUMENT ") take one " \
    DOC_ROW "; info() describes the model."
#endif
#define DOC_RAISES \
    "Raises TypeError for an argument of the wrong type, ValueError for a wrong size or range; an error changes nothing."

#define DOC_PREDICT \
    "predict($module, " INPUT_ARGUMENT ", /)\n--\n\n" \
    "The most likely class of one " DOC_ROW ", as an int; the first one on a tie.\n\n" \
    DOC_PIXELS "\n\n" DOC_RAISES DOC_CLASSES

#define DOC_PROBABILITIES \
    "probabilities($module, " INPUT_ARGUMENT ", /)\n--\n\n" \
    "The probability of each class for one " DOC_ROW ", as a tuple of floats.\n\n" DOC_PIXELS "\n\n" DOC_RAISES "\n" \
    "Raises RuntimeError if no output of the model is named 'probabilities'."

#define DOC_OUTPUTS \
    "outputs($module, " INPUT_ARGUMENT ", /)\n--\n\n" \
    "Every named output for one " DOC_ROW ": {name: tuple of floats}. info()['outputs'] has their lengths.\n\n" \
    DOC_PIXELS "\n\n" DOC_RAISES

#define DOC_PREDICT_BATCH \
    "predict_batch($module, " INPUTS_ARGUMENT ", *, threads=1, progress=None)\n--\n\n" \
    "The most likely class of each of n " DOC_ROWS ", as n bytes. The GIL is released.\n\n" \
    DOC_IMAGES "\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS " done, n, None).\n\n" DOC_RAISES DOC_CLASSES

#define DOC_OUT \
    "out: {name: a writable C-contiguous buffer of " DOC_REAL \
    "} for the outputs that are wanted; default: new memory."

#define DOC_OUTPUTS_BATCH \
    "outputs_batch($module, " INPUTS_ARGUMENT ", *, out=None, threads=1, progress=None)\n--\n\n" \
    "The named outputs of n " DOC_ROWS ", as a dict {name: a memoryview of n rows of " DOC_REAL \
    "}, which numpy.asarray()\n" \
    "reads without a copy. The GIL is released.\n\n" \
    DOC_IMAGES "\n" DOC_OUT "\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS " done, n, None).\n\n" DOC_RAISES "\n" \
    "What an interrupted call has written into `out` stays there."

#define DOC_PROBABILITIES_BATCH \
    "probabilities_batch($module, " INPUTS_ARGUMENT ", *, out=None, threads=1, progress=None)\n--\n\n" \
    "The probabilities of the classes of n " DOC_ROWS ", as a memoryview of n rows of " DOC_REAL \
    ". The GIL is released.\n\n" \
    DOC_IMAGES "\n" \
    "out: a writable C-contiguous buffer for them, which is then returned; default: new memory.\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS " done, n, None).\n\n" DOC_RAISES "\n" \
    "Raises RuntimeError if no output of the model is named 'probabilities'."

#define DOC_INFO \
    "info($module, /)\n--\n\n" \
    "Describes this module, as a dict: architecture, dtype, mode, SIMD level, compiler, digest of the graph."

#define DOC_FORWARD \
    "forward($module, " TARGET_ARGUMENT ", " INPUT_ARGUMENT ", /)\n--\n\n" \
    "Computes and returns the loss of one " DOC_ROW ", as a float; backward() starts from it.\n\n" \
    DOC_LABEL "\n" DOC_PIXELS "\n\n" DOC_RAISES

#define DOC_BACKWARD \
    "backward($module, /)\n--\n\n" \
    "Adds the gradients of the last forward() to those of the parameters. Returns None.\n\n" \
    "Raises RuntimeError if forward() has not run since the import or the last reset()."

#define DOC_INPUT_GRAD \
    "input_grad($module, /)\n--\n\n" \
    "The gradients of the loss by the inputs of the last forward(), after backward(), as a tuple of floats; as a dict\n" \
    "of them if the inputs have names. They are of this " DOC_ROW \
    " alone: unlike those of parameters, they do not add up.\n\n" \
    "Raises RuntimeError without Program(input_gradients=True), and before a backward()."

#define DOC_ZERO_GRAD "zero_grad($module, /)\n--\n\nSets the parameters' gradients to 0. Returns None."

#if RULES
#define DOC_STEP "One step of the model's rules for each parameter, whose gradient is grad / batch_size. Returns None.\n\n"
#else
#define DOC_STEP "data -= learning_rate * grad / batch_size for each parameter. Returns None.\n\n"
#endif
#define DOC_UPDATE \
    "update($module, /, step=0, batch_size=1, *, learning_rate=None)\n--\n\n" DOC_STEP \
    "step: an int >= 0, the number of the step, with which a learning rate may change. What else counts steps counts\n" \
    "    by itself: see optimizer_state().\n" \
    "batch_size: an int >= 1, the number of " DOC_ROWS " whose gradients were added up.\n" \
    "learning_rate: a finite float, a sequence of them that has the step's, or a function of the step (see\n" \
    "    micrograd.schedules); None means the model's own, info()['learning_rate'].\n\n" DOC_RAISES

#define DOC_EVALUATE \
    "evaluate($module, " INPUTS_ARGUMENT ", " TARGETS_ARGUMENT ", *, threads=1, progress=None)\n--\n\n" \
    "(mean loss, accuracy) over n " DOC_ROWS \
    ", as floats; the accuracy is None if the model has no classes. The GIL is\n" \
    "released.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS " done, n, mean loss so far).\n\n" DOC_RAISES

#define DOC_ACCUMULATE \
    "accumulate($module, " INPUTS_ARGUMENT ", " TARGETS_ARGUMENT ", *, threads=1, progress=None)\n--\n\n" \
    "Adds the gradients of n " DOC_ROWS \
    " to those of the parameters, and returns the sum of their losses, as a float. The\n" \
    "GIL is released.\n\n" \
    "The same bits as forward() and backward() for each " DOC_ROW \
    " in order; zero_grad() and update() are the caller's.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS \
    " done, n, mean loss so far). It may read the model;\n" \
    "    changing it raises RuntimeError. If it raises, the gradients of the " DOC_ROWS " done stay.\n\n" \
    DOC_RAISES

#define DOC_METRICS \
    "metrics($module, " INPUTS_ARGUMENT ", " TARGETS_ARGUMENT ", *, threads=1, progress=None)\n--\n\n" \
    "{name: mean over n " DOC_ROWS "} of the metrics that the model declares, as floats. The GIL is released.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" DOC_THREADS "\n" \
    "progress: a callable, called periodically with (" DOC_ROWS " done, n, None).\n\n" DOC_RAISES "\n" \
    "Raises RuntimeError if the model declares no metrics."

#define DOC_TRAIN \
    "train($module, " INPUTS_ARGUMENT ", " TARGETS_ARGUMENT \
    ", *, batch_size=1, learning_rate=None, epochs=1, seed=None, threads=1, " \
    "progress=None, check_finite=False)\n--\n\n" \
    "Runs whole epochs of gradient descent over n " DOC_ROWS \
    ". Returns the mean loss of each epoch, as a list of floats.\n" \
    "The GIL is released.\n\n" \
    "For each batch: zero_grad(), forward() and backward() for each " DOC_ROW \
    ", update() with the batch's actual size.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" \
    "batch_size: an int >= 1.\n" \
    "learning_rate: a finite float, a sequence of one for each step of all epochs, or a function of the step, 0, 1, ...\n" \
    "    (see micrograd.schedules), called for all steps before the first; None means the model's own,\n" \
    "    info()['learning_rate'].\n" \
    "epochs: an int, 0 <= epochs <= 1000000000.\n" \
    "seed: an int, 0 <= seed < 2**64, to shuffle the " DOC_ROWS \
    " before each epoch, as random.Random(seed).shuffle\n" \
    "    does; None keeps their order.\n" \
    DOC_THREADS "\n" \
    "    Threads share the " DOC_ROWS " of a batch, so they cannot speed up batches of one " DOC_ROW ".\n" \
    "progress: a callable, called periodically with (" DOC_ROWS \
    " done, n * epochs, mean loss of the epoch so far). It\n" \
    "    may read the model; changing it raises RuntimeError. In other threads, evaluate(), predict_batch() and\n" \
    "    calls that change the model wait until train() is done: a progress() that waits for one of them deadlocks.\n" \
    "check_finite: if True, FloatingPointError stops train() before a step that would make a parameter inf or nan,\n" \
    "    or at the start if one is already. It names the parameter, the step and its " DOC_ROWS \
    ". The parameters and\n" \
    "    the optimizer's state are then those before the step, the gradients those of the step.\n\n" \
    DOC_RAISES

#define DOC_STATE_DICT \
    "state_dict($module, /)\n--\n\n" \
    "The parameters, as {name: memoryview of " DOC_REAL \
    "}: writable, strided, shared with the model, not copied.\n\n" \
    "What is written to them counts from the next call on; during train() and other long calls, from its next chunk\n" \
    "on, so also if progress() writes. A write by another thread while a call computes is a data race. While a view of\n" \
    "the weights that the inputs multiply is alive, each call scans them once, for inf and nan."

#define DOC_GRAD_DICT \
    "grad_dict($module, /)\n--\n\n" \
    "The gradients, as {name: memoryview of " DOC_REAL "}, with the names and shapes of state_dict()."

#define DOC_FLAT_DATA \
    "flat_data($module, /)\n--\n\n" \
    "All parameters in one piece, as a memoryview of " DOC_REAL \
    ": writable, contiguous, shared with the model, not copied.\n\n" \
    "The tensors of state_dict(), one after the other, with padding, which may hold anything. Behind them are 16 spare\n" \
    "bytes, which the model leaves alone: room for a loss and a flag. Writes count as those to state_dict()."

#define DOC_FLAT_GRAD \
    "flat_grad($module, /)\n--\n\n" \
    "The gradients, as a memoryview like flat_data(), in the same places."

#define DOC_LOAD_STATE_DICT \
    "load_state_dict($module, mapping, /)\n--\n\n" \
    "Copies all parameters from {name: numbers}: buffers, arrays, lists, converted to " DOC_REAL ". Returns None.\n\n" \
    "Names and shapes must be exactly those of state_dict().\n\n" \
    "Raises TypeError for anything but a mapping and for what are no numbers, ValueError for a missing or unknown\n" \
    "name and for a wrong shape; an error changes nothing."

#define DOC_OPTIMIZER_STATE \
    "optimizer_state($module, /)\n--\n\n" \
    "What the optimizer keeps, as {name: memoryview}: writable and shared with the model, as those of state_dict().\n\n" \
    "'step' is the number of steps taken since the start or reset(), one int64. 'NAME.KIND', for a parameter NAME and\n" \
    "each number that its rule keeps, has the shape of the parameter. Plain gradient descent keeps no such numbers."

#define DOC_LOAD_OPTIMIZER_STATE \
    "load_optimizer_state($module, mapping, /)\n--\n\n" \
    "Copies the optimizer's state from {name: numbers}, as load_state_dict(). Returns None.\n\n" \
    "Names and shapes must be exactly those of optimizer_state(); 'step' may be an int too.\n\n" \
    "Raises TypeError for anything but a mapping and for what are no numbers, ValueError for a missing or unknown\n" \
    "name and for a wrong shape or number; an error changes nothing."

#define DOC_PATH "path: a str, bytes or os.PathLike."

#define DOC_SAVE_WEIGHTS \
    "save_weights($module, path, /)\n--\n\n" \
    "Writes all parameters to a safetensors file, in C order, with the names and shapes of state_dict(). An existing\n" \
    "file is replaced when the new one is whole. Returns None.\n\n" \
    DOC_PATH "\n\n" \
    "Raises TypeError for anything else, ValueError for a path with a null character, OSError if the file cannot be\n" \
    "written."

#define DOC_LOAD_WEIGHTS \
    "load_weights($module, path, /)\n--\n\n" \
    "Copies all parameters from a safetensors file of floats, converted to " DOC_REAL ". Returns None.\n\n" \
    "Names and shapes must be exactly those of state_dict().\n\n" \
    DOC_PATH "\n\n" \
    "Raises TypeError for anything else, OSError if the file cannot be read, ValueError or TypeError if it is not a\n" \
    "whole file of this model's parameters; an error changes nothing."

#define DOC_DATA \
    "data($module, i, /)\n--\n\n" \
    "Parameter i, as a float, in the order of the model's parameters().\n\n" \
    "i: an int, 0 <= i < " AS_TEXT(PARAMETER_COUNT) ".\n\n" DOC_RAISES

#define DOC_GRAD \
    "grad($module, i, /)\n--\n\n" \
    "The gradient of parameter i, as a float.\n\n" \
    "i: an int, 0 <= i < " AS_TEXT(PARAMETER_COUNT) ".\n\n" DOC_RAISES

#if HAS_DISTRIBUTIONS
#define DOC_FRESH \
    "Draws fresh weights, the same as those of the micrograd model made after random.seed(seed), and clears the\n" \
    "gradients and the optimizer's state. Returns None.\n\n" \
    "seed: an int, 0 <= seed < 2**64; None draws a different one each time."
#else
#define DOC_FRESH \
    "Restores the weights that the model was built with, and clears the gradients and the optimizer's state. Returns None.\n\n" \
    "seed: None; or, of a model with noise, an int that noise is drawn from, 0 <= seed < 2**64."
#endif
#define DOC_RESET "reset($module, /, seed=None)\n--\n\n" DOC_FRESH "\n\n" DOC_RAISES

#endif
