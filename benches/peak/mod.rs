//! What a thread of this processor reaches with nothing but an engine's own instruction, and how benches measure.

use candle_core::Result;
use latentia::kernel::matrix::Engine;

/// The least processor time of several runs, in seconds.
pub(crate) fn best(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    let mut spent = 0.0;
    for _ in 0..40 {
        let began = processor_seconds();
        run()?;
        let took = processor_seconds() - began;
        least = least.min(took);
        spent += took;
        if spent > 0.25 {
            break;
        }
    }
    Ok(least)
}

/// What this thread has computed so far; elsewhere than on Unix, what the clock says.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library does not know a thread's time")]
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
fn processor_seconds() -> f64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}

/// GFLOP/s of a loop of the engine's instruction on registers alone.
pub(crate) fn peak(engine: Engine) -> f64 {
    const ROUNDS: usize = 50_000;
    let (instruction, flops): (fn(usize), f64) = match engine {
        #[cfg(target_arch = "x86_64")]
        Engine::Amx => (loops::amx, 4.0 * 16.0 * 16.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512Fp16 => (loops::avx512_fp16, 24.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512Bf16 => (loops::avx512_bf16, 24.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512 => (loops::avx512, 24.0 * 32.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx2 | Engine::Portable => (loops::avx2, 12.0 * 16.0),
        #[cfg(not(target_arch = "x86_64"))]
        _ => return f64::NAN,
    };
    let seconds = best(|| {
        instruction(ROUNDS);
        Ok(())
    });
    ROUNDS as f64 * flops / seconds.unwrap_or(f64::NAN) / 1e9
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, clippy::wildcard_imports, reason = "the processor's own instructions")]
mod loops {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Each round updates as many registers as the engine's kernel holds.
    macro_rules! rounds {
        ($name:ident, $feature:literal, $registers:literal, $zero:ident, $step:expr) => {
            pub(super) fn $name(rounds: usize) {
                #[target_feature(enable = $feature)]
                fn inner(rounds: usize) {
                    let mut held = [$zero(); $registers];
                    for _ in 0..rounds {
                        for held in &mut held {
                            *held = $step(*held);
                        }
                    }
                    black_box(held);
                }
                // SAFETY: called for an engine that was found on this processor.
                unsafe { inner(rounds) }
            }
        };
    }
    rounds!(avx512, "avx512f", 24, _mm512_setzero_ps, |held| {
        let one = _mm512_set1_ps(black_box_once());
        _mm512_fmadd_ps(one, one, held)
    });
    rounds!(avx2, "avx2,fma", 12, _mm256_setzero_ps, |held| {
        let one = _mm256_set1_ps(black_box_once());
        _mm256_fmadd_ps(one, one, held)
    });
    rounds!(avx512_bf16, "avx512f,avx512bf16", 24, _mm512_setzero_ps, |held| {
        // SAFETY: a register of bits is a register of bf16.
        let ones = unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(0x3f80_3f80)) };
        _mm512_dpbf16_ps(held, ones, ones)
    });

    fn black_box_once() -> f32 {
        0.999
    }

    pub(super) fn avx512_fp16(rounds: usize) {
        #[target_feature(enable = "avx512f,avx512fp16")]
        fn inner(rounds: usize) {
            macro_rules! each {
                ($($sum:literal)*) => {
                    concat!($("vfmadd231ph zmm", $sum, ", zmm30, zmm31\n"),*)
                };
            }
            // SAFETY: touches registers that the compiler may lose; numbers are zero or small.
            unsafe {
                asm!(
                    "2:",
                    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
                    "dec rcx",
                    "jnz 2b",
                    inout("rcx") rounds => _,
                    clobber_abi("C"),
                );
            }
        }
        // SAFETY: called for an engine that was found on this processor.
        unsafe { inner(rounds) }
    }

    pub(super) fn amx(rounds: usize) {
        let mut shape = [0u8; 64];
        shape[0] = 1;
        for tile in 0..8 {
            shape[16 + 2 * tile] = 64;
            shape[48 + tile] = 16;
        }
        // SAFETY: the engine was found, so the process may use the tiles; they are released at the end.
        unsafe {
            asm!(
                "ldtilecfg [{shape}]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                "tilerelease",
                shape = in(reg) shape.as_ptr(),
                rounds = inout(reg) rounds => _,
            );
        }
    }
}
