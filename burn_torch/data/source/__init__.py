"""Data sets by name: MNIST, Fashion-MNIST, and the digits that come with the package."""
