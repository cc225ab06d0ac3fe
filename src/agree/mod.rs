//! Does the trace agree with reality? Real cuts of a disk that shares nothing with the trace, each
//! held against what the trace says of the same instant.
//!
//! Three things must match for each cut: the SHA-256 of the medium that the cut left and of the
//! trace's crash state; what two guests read from the two, record for record; and the survivors that
//! follow from transaction groups alone, up to the operations in flight at their boundary.

pub mod compare;
pub mod report;
pub mod run;
