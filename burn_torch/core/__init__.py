"""What everything else speaks of: element types, specs, tensor data, numbers, errors.  Imports numpy, never torch."""
