//! The `latentia` command.

/// Tensors come and go by the hundred megabytes a step; an allocator that keeps them mapped is worth 10 to 45 %.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's `mi_option_purge_delay`, which its crate does not name (`mimalloc.h`, `mi_option_e`, versions 2 and 3).
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> std::process::ExitCode {
    // By default pages go back to the system within milliseconds, and a step has them cleared again and again:
    // 13 to 17 % of the samples of a profile. So what is free goes back after ten seconds.
    #[expect(unsafe_code, reason = "the allocator's options have no safe names")]
    // SAFETY: sets a number, before any other thread exists.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, 10_000);
    }
    latentia::face::run(std::env::args_os())
}
