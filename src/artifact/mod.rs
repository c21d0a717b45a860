//! Pictures become files.
