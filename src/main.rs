//! The `latentia` command.

/// Tensors come and go by the hundred megabytes a step; an allocator that keeps them mapped is worth 10 to 45 %.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's `mi_option_purge_delay`, which its crate does not name (`mimalloc.h`, `mi_option_e`, versions 2 and 3).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> std::process::ExitCode {
    // By default pages go back to the system within milliseconds, and a step would have them cleared again and again:
    // a fifth of its time. What is free stays until the process is idle for ten seconds or a job ends.
    #[expect(unsafe_code, reason = "the allocator's options have no safe names")]
    // SAFETY: sets a number, before any other thread exists.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, 10_000);
    }
    latentia::face::run(std::env::args_os())
}
