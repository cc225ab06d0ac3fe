//! Everything that was read back of a crash state: one observation for each stream of the plan.

use crate::record::document::{self, DocumentDecoder, DocumentError, Kind};
use crate::record::observed::ObservedFile;
use crate::record::rows::ObservedRows;
use crate::record::wire::{self, Decoder, Sink, WireError};
use crate::script::tree::ObservedTree;
use crate::units::StreamId;
use crate::workload::plan::{Pattern, Plan};
use std::io;

/// What was found of each stream, each kind in the plan's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Of the streams that write records.
    pub files: Vec<ObservedFile>,
    /// Of the streams that carry out scripts.
    pub trees: Vec<ObservedTree>,
    /// Of the streams whose operations are transactions.
    pub rows: Vec<ObservedRows>,
}

/// Why what was read back is none.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// A part of a file.
    #[error(transparent)]
    File(#[from] WireError),
    /// A part of a document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It ends before its end.
    #[error("it ends inside a file's blocks or a document")]
    Unended,
    /// Streams are missing, or are there twice, or are not of the plan.
    #[error("{found} of {planned} files were read back, or not one for each stream of the plan")]
    Streams {
        /// What came.
        found: usize,
        /// Streams of the plan.
        planned: usize,
    },
}

impl Found {
    /// Sends it, or stores it, part by part.
    pub fn encode(&self, sink: &mut Sink) -> io::Result<()> {
        self.files.iter().try_for_each(|file| wire::encode(file, sink))?;
        let tree = |tree: &ObservedTree| document::encode(tree.stream, Kind::Tree, tree, sink);
        self.trees.iter().try_for_each(tree)?;
        let rows = |rows: &ObservedRows| document::encode(rows.stream, Kind::Rows, rows, sink);
        self.rows.iter().try_for_each(rows)
    }
}

/// Puts the parts together again.
#[derive(Debug, Default)]
pub struct FoundDecoder {
    files: Decoder,
    documents: DocumentDecoder,
    found: Found,
}

impl FoundDecoder {
    /// Takes the next part.
    pub fn part(&mut self, part: &[u8]) -> Result<(), FoundError> {
        if !document::is_document(part) {
            self.found.files.extend(self.files.part(part)?);
            return Ok(());
        }
        let Some(whole) = self.documents.part(part)? else { return Ok(()) };
        match whole.kind {
            Kind::Tree => self.found.trees.push(whole.read()?),
            Kind::Rows => self.found.rows.push(whole.read()?),
        }
        Ok(())
    }

    /// What was found: one for each of the plan's streams, each whole, or none can be judged.
    pub fn finish(self, plan: &Plan) -> Result<Found, FoundError> {
        let FoundDecoder { files, documents, found } = self;
        if files.is_within_a_file() || documents.is_within_one() {
            return Err(FoundError::Unended);
        }
        let of = |wanted: fn(&Pattern) -> bool| -> Vec<StreamId> {
            let streams = plan.streams.iter().filter(|stream| wanted(&stream.pattern));
            streams.map(|stream| stream.id).collect()
        };
        let files = found.files.iter().map(|file| file.stream);
        let trees = found.trees.iter().map(|tree| tree.stream);
        let rows = found.rows.iter().map(|rows| rows.stream);
        let all = files.eq(of(Pattern::is_of_records))
            && trees.eq(of(Pattern::is_of_scripts))
            && rows.eq(of(Pattern::is_of_rows));
        match all {
            true => Ok(found),
            false => Err(FoundError::Streams {
                found: found.files.len() + found.trees.len() + found.rows.len(),
                planned: plan.streams.len(),
            }),
        }
    }
}
