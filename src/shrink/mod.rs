//! A failing script made as small as it can be, by recording and exploring smaller and smaller ones.

pub mod run;
