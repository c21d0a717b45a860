//! Names and shapes of the tensors in files, and the tensors themselves.
