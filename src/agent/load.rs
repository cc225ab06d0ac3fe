//! The load as the agent's control loop sees it: prepare, start, stop, observe.
//!
//! What always holds: there is one load at a time, and each request is answered from the state in
//! which the one before left it or refused with what has to come first.

use crate::agent::observe;
use crate::agent::protocol::{Reply, Request};
use crate::agent::txgs::Watch;
use crate::record::ring::Ring;
use crate::workload::check;
use crate::workload::clock::Events;
use crate::workload::outbox::Port;
use crate::workload::plan::Plan;
use crate::workload::runner::{Prepared, Running};
use crate::workload::script_writer;
use nix::sys::mman::{MlockAllFlags, mlockall};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The workload's side of the agent.
#[derive(Debug)]
pub struct Load {
    events: Arc<Events>,
    port: Arc<Port>,
    memory: Memory,
    ring: Option<Arc<Ring>>,
    state: State,
    watch: Option<Watch>,
}

/// What is done with the process's memory before a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Locked: a page fault in the middle of a write can split it in two transactions.
    Locked,
    /// Left as it is, in a process that may not lock any.
    AsItIs,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Prepared(Prepared),
    Running(Running),
}

impl Load {
    /// A load that sends its messages there and locks its memory, as the guest's does.
    pub fn new(messages: File) -> Load {
        Load {
            events: Arc::default(),
            port: Arc::new(Port::new(messages)),
            memory: Memory::Locked,
            ring: None,
            state: State::Idle,
            watch: None,
        }
    }

    /// The same without locked memory, for an ordinary process.
    pub fn without_locked_memory(messages: File) -> Load {
        Load { memory: Memory::AsItIs, ..Load::new(messages) }
    }

    /// Answers a request about the load; an observation's parts go to `blob` before the reply.
    pub fn handle(
        &mut self,
        request: Request,
        blob: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Reply, String> {
        match request {
            Request::Prepare(plan) => self.prepare(plan),
            Request::StartLoad => self.start(),
            Request::WatchTxgs { pool, interval_ms } => self.watch(&pool, interval_ms),
            Request::StopLoad => self.stop(),
            Request::PlainLoop { plan, run_ms } => self.plain_loop(&plan, run_ms),
            Request::Observe(plan) => self.observe(&plan, blob),
            other => Err(format!("not a request about the load: {other:?}")),
        }
    }

    fn prepare(&mut self, plan: Plan) -> Result<Reply, String> {
        if matches!(self.state, State::Running(_)) {
            return Err("a load runs already; stop it before the next is prepared".to_owned());
        }
        self.state = State::Idle;
        let ring = self.ring_of(&plan)?;
        let prepared = Prepared::make(plan, ring, self.events.clone(), self.port.clone());
        self.state = State::Prepared(prepared.map_err(|error| error.to_string())?);
        if self.memory == Memory::Locked {
            // Every buffer exists by now and was written to.
            mlockall(MlockAllFlags::MCL_CURRENT)
                .map_err(|errno| format!("the writer's memory cannot be locked: {errno}"))?;
        }
        Ok(Reply::Done)
    }

    fn start(&mut self) -> Result<Reply, String> {
        match std::mem::take(&mut self.state) {
            State::Prepared(prepared) => {
                self.state = State::Running(prepared.start().map_err(|error| error.to_string())?);
                Ok(Reply::Done)
            }
            other => {
                self.state = other;
                Err("no load is prepared; send a plan to prepare first".to_owned())
            }
        }
    }

    fn stop(&mut self) -> Result<Reply, String> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => {
                running.stop().map(Reply::Rates).map_err(|error| error.to_string())
            }
            other => {
                self.state = other;
                Err("no load runs; start one first".to_owned())
            }
        }
    }

    fn watch(&mut self, pool: &str, interval_ms: u64) -> Result<Reply, String> {
        self.watch = None;
        let interval = Duration::from_millis(interval_ms);
        let watch = Watch::start(pool, interval, self.events.clone(), self.port.clone());
        self.watch = Some(watch.map_err(|error| error.to_string())?);
        Ok(Reply::Done)
    }

    fn plain_loop(&mut self, plan: &Plan, run_ms: u64) -> Result<Reply, String> {
        if matches!(self.state, State::Running(_)) {
            return Err("a load runs already; stop it before a plain loop is measured".to_owned());
        }
        check::check(plan).map_err(|error| error.to_string())?;
        let rate = script_writer::plain_loop(plan, Duration::from_millis(run_ms));
        rate.map(|rate| Reply::Rates(vec![rate])).map_err(|error| error.to_string())
    }

    fn observe(
        &mut self,
        plan: &Plan,
        blob: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Reply, String> {
        let ring = self.ring_of(plan)?;
        observe::observe(plan, &ring, blob).map_err(|error| error.to_string())?;
        Ok(Reply::Done)
    }

    /// The plan's bodies, made now unless they are there.
    fn ring_of(&mut self, plan: &Plan) -> Result<Arc<Ring>, String> {
        check::check(plan).map_err(|error| error.to_string())?;
        let is_of_plan =
            |ring: &&Arc<Ring>| ring.seed() == plan.seed && ring.count() == plan.bodies as usize;
        if let Some(ring) = self.ring.as_ref().filter(is_of_plan) {
            return Ok(ring.clone());
        }
        self.ring = None;
        let ring = Arc::new(Ring::make(plan.seed, plan.bodies));
        self.ring = Some(ring.clone());
        Ok(ring)
    }
}
