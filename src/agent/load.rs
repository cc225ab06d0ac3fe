//! The load in the guest (in the making).

use crate::agent::protocol::{Reply, Request};
use std::fs::File;
use std::io;

/// The workload's side of the agent.
#[derive(Debug)]
pub struct Load {
    _messages: File,
}

impl Load {
    /// A load that will send its messages there.
    pub fn new(messages: File) -> Load {
        Load { _messages: messages }
    }

    /// Answers a request about the load; blobs come before the reply.
    pub fn handle(
        &mut self,
        request: Request,
        _blob: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Reply, String> {
        Err(format!("this agent has no load yet: {request:?}"))
    }
}
