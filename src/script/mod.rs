//! Scripts: seeded operations on a tree of files, and what is read back of it. Pure.

pub mod check;
pub mod content;
pub mod generate;
pub mod model;
pub mod op;
pub mod scripts;
pub mod shrink;
pub mod spec;
pub mod text;
pub mod tree;
