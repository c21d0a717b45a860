//! From pixels to a file that is whole and tells how it was made.

use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};
use latentia::artifact::{Existing, Frames, Infotext, Picture, png, write};
use latentia::error::Code;

fn picture() -> Picture {
    let pixels: Vec<f32> = (0..3 * 20 * 30).map(|n| (n as f32 / 900.0) - 1.0).collect();
    let pixels = Tensor::from_vec(pixels, (1, 3, 20, 30), &Device::Cpu).expect("a tensor");
    Frames::from_pixels(&pixels).expect("finite").into_iter().next().expect("one")
}

/// The pixels of a file, by a decoder that knows nothing of us.
fn decode(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!((info.color_type, info.bit_depth), (::png::ColorType::Rgb, ::png::BitDepth::Eight));
    (info.width, info.height, pixels)
}

#[test]
fn a_png_keeps_every_pixel_and_every_word() {
    let picture = picture();
    let latin = "a café\nSteps: 4";
    let wide = "狐 🦊 'quotes' \"and\" \\";
    let bytes = png::encode(&picture, &[(png::PARAMETERS, latin), ("latentia", wide)]).expect("encoded");
    assert_eq!(decode(&bytes), (30, 20, picture.rgb().to_vec()));
    let texts = png::texts(&bytes).expect("readable");
    assert_eq!(
        texts,
        [(png::PARAMETERS.to_owned(), latin.to_owned()), ("latentia".to_owned(), wide.to_owned())]
    );
    let chunk = |kind: &[u8]| bytes.windows(4).any(|window| window == kind);
    assert!(chunk(b"tEXt") && chunk(b"iTXt"));
    let again = png::encode(&picture, &[(png::PARAMETERS, latin), ("latentia", wide)]).expect("encoded");
    assert_eq!(bytes, again, "the same ask gives the same bytes");
    let nul = png::encode(&picture, &[("k", "a\0b")]).expect("encoded");
    assert_eq!(png::texts(&nul).expect("readable"), [("k".to_owned(), "a\u{fffd}b".to_owned())]);
}

#[test]
fn settings_survive_in_a_file() {
    let info = Infotext {
        prompt: "狐, fox".into(),
        steps: Some(4),
        seed: Some(1),
        size: Some((30, 20)),
        ..Infotext::default()
    };
    let bytes = png::encode(&picture(), &[(png::PARAMETERS, &info.to_string())]).expect("encoded");
    let texts = png::texts(&bytes).expect("readable");
    assert_eq!(Infotext::parse(&texts[0].1), info);
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let good = png::encode(&picture(), &[(png::PARAMETERS, "words"), ("wide", "狐")]).expect("encoded");
    let mut refused = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        refused += usize::from(png::texts(&bad).is_err());
        assert!(png::texts(&good[..at]).is_err(), "cut at {at}");
    }
    assert!(refused > good.len() / 2);
    let code = |bytes: &[u8]| png::texts(bytes).expect_err("must be refused").code;
    assert_eq!(code(b""), Code::UnsupportedMediaType);
    assert_eq!(code(b"GIF89a"), Code::UnsupportedMediaType);
    assert_eq!(code(&good[..40]), Code::ImageCorrupt);
    let mut wide = good.clone();
    wide[16..20].copy_from_slice(&65_535_u32.to_be_bytes());
    assert!(matches!(code(&wide), Code::ImageTooLarge | Code::ImageCorrupt));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
}

#[test]
fn a_file_is_written_whole_and_replaced_only_if_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fox.png");
    write(&path, b"one", Existing::Keep).expect("written");
    assert_eq!(write(&path, b"two", Existing::Keep).expect_err("there").code, Code::AlreadyExists);
    assert_eq!(fs::read(&path).expect("read"), b"one");
    write(&path, b"three", Existing::Replace).expect("replaced");
    assert_eq!(fs::read(&path).expect("read"), b"three");
    assert_eq!(names(folder.path()), ["fox.png"], "nothing is left behind");
    let error = write(&folder.path().join("no/where.png"), b"x", Existing::Keep).expect_err("no folder");
    assert_eq!(error.code, Code::FileNotFound);
    assert!(!error.to_string().contains(&*folder.path().to_string_lossy()), "paths stay private");
    fs::create_dir(folder.path().join("sub")).expect("made");
    for existing in [Existing::Keep, Existing::Replace] {
        let error = write(&folder.path().join("sub"), b"x", existing).expect_err("a folder");
        assert_eq!(error.code, Code::AlreadyExists);
    }
    assert_eq!(write(Path::new("/"), b"x", Existing::Keep).expect_err("no name").code, Code::InvalidArgument);
}

#[test]
fn of_two_writers_one_wins_and_the_file_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fox.png");
    let bodies: Vec<Vec<u8>> = (0..8_u8).map(|n| vec![n; 100_000]).collect();
    let won: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = bodies
            .iter()
            .map(|body| scope.spawn(|| usize::from(write(&path, body, Existing::Keep).is_ok())))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(won, 1);
    assert!(bodies.contains(&fs::read(&path).expect("read")));
    assert_eq!(names(folder.path()).len(), 1);
}
