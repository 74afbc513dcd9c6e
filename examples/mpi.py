"""One training run on many processes: mpiexec -n 4 python -m mpi4py examples/mpi.py

Each rank takes its part of every batch. What comes out does not depend on how many there are, to the last bit.
"""

import nn

from micrograd import mpi, training
from micrograd.data import digits

images, labels, test_images, test_labels = digits.load(train=4000, test=1000)
nn.reset(1)  # the same parameters on every rank
model = mpi.Trainer(nn)
history = training.fit(
    model, images, labels, epochs=3, batch_size=500, learning_rate=0.3, test=(test_images, test_labels)
)

if model.rank == 0:
    for epoch in history.epochs:
        print(f"epoch {epoch.number}: loss {epoch.loss:.6f}, {epoch.test_accuracy:.1%} of the test set right")
