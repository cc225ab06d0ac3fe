//! Self-describing blocks: how they are made, read back and recognised when damaged.

pub mod classify;
pub mod document;
pub mod found;
pub mod layout;
pub mod observed;
pub mod place;
pub mod ring;
pub mod rows;
#[cfg(test)]
pub(crate) mod testing;
pub mod wire;
