//! The `latentia` command.

/// Tensors come and go by the hundred megabytes a step; an allocator that keeps them mapped is worth 10 to 45 %.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    latentia::face::run(std::env::args_os())
}
