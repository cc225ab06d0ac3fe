//! When the power is cut, and the script that cuts it.

pub mod choose;
pub mod script;
