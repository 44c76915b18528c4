"""The words of all other packages: element types, specs, tensor data, numbers, errors.  Imports numpy, never torch."""
