//! What a script's operations leave: the tree of files after each of them, and which sync makes
//! which of them durable. Pure.

pub mod content;
pub mod effect;
pub mod names;
pub mod promises;
pub mod tree;
pub mod versions;

#[cfg(test)]
pub mod reference;
#[cfg(test)]
pub mod testing;
