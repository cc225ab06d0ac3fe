//! A guest that only looks: what costs it most, and tells nothing, is turned down.
//!
//! Loading a pool starts some eighty threads, twice, and a process that maps memory for as many gets
//! pages of 2 MiB, each zeroed. On an emulated CPU that takes longer than all checks. Nothing here
//! changes what is read, checked or replayed.

use super::build::StackError;
use crate::guest::control::Control;
use crate::guest::error::GuestError;

/// One thread for each kind of request and its completion.
const ONE_EACH: &str = "fixed,1,1 null fixed,1,1 null";

/// Settings by their files. A kernel or module that lacks one is only slower.
const SETTINGS: [(&str, &str); 4] = [
    ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ("/sys/module/zfs/parameters/zio_taskq_read", ONE_EACH),
    ("/sys/module/zfs/parameters/zio_taskq_write", ONE_EACH),
    ("/sys/module/zfs/parameters/zio_taskq_free", ONE_EACH),
];

/// Makes looking at states cheaper. For a guest that records nothing.
pub fn lighten(control: &mut Control) -> Result<(), StackError> {
    for (path, text) in SETTINGS {
        match control.write_file(path, text) {
            Ok(()) | Err(GuestError::Agent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
