"""The words of all other packages: element types, specs, tensor data, numbers, errors.  Imports numpy, never torch.

A file belongs here if rooms use it of which none may import the other; docs/decisions/0027 says why for each.
"""
