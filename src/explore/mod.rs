//! Every cut of one recording: which states to look at, and what each stands for.

mod cuts;

pub use cuts::{Place, PlaceError, PlanError, PlannedCut, Which, Why, plan_cuts};
