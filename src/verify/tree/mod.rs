//! Oracles for scripts: a tree of files held against the operations that made it.

pub mod damage;
pub mod differ;
pub mod instants;
pub mod pieces;
pub mod prefix;
pub mod seen;
#[cfg(test)]
mod speed;
pub mod survey;
pub mod torn;
