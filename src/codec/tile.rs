//! A codec that sees a picture in overlapping tiles, so that its memory does not grow with the picture.
//!
//! A tile's edge lacks the neighbours that its network would have seen. Tiles overlap, and over an overlap one fades
//! into the next, so that a pixel is told by a tile in proportion to its distance from that tile's edge. What a network
//! measures over a whole picture, such as a group norm's mean, it measures over each tile, which shows as a slight shift
//! of tone that the fading hides.

use candle_core::{Device, Tensor};

use super::{Codec, Posterior};
use crate::error::{Error, Result};
use crate::event::{Event, Watch};

/// Latent pixels over which neighbouring tiles fade, as a share of a tile's side: a quarter, as in diffusers'
/// `tile_overlap_factor`.
const FADE: usize = 4;

/// A codec and the tiles it works in.
pub struct Tiled<'a> {
    codec: &'a dyn Codec,
    /// A tile's side in latent pixels.
    side: usize,
    /// Pixels to a latent's side.
    factor: usize,
}

/// One tile along one side of the picture: where it begins, and what share of each of its pixels it tells.
struct Strip {
    from: usize,
    shares: Vec<f32>,
}

impl<'a> Tiled<'a> {
    /// Tiles of `side` latent pixels, each of which is `factor` pixels wide.
    pub fn new(codec: &'a dyn Codec, side: usize, factor: usize) -> Self {
        Self { codec, side, factor }
    }

    /// Works tile by tile. `latent` is the size in latent pixels; `enlarged` by how much what comes out is larger than
    /// that; `work` takes a tile's place, its origin and size in latent pixels, and makes `[1, C, h, w]` planes.
    fn blend<const N: usize>(
        &self,
        latent: [usize; 2],
        enlarged: usize,
        watch: &mut Watch<'_>,
        work: &mut dyn FnMut([usize; 4], &mut Watch<'_>) -> Result<[Tensor; N]>,
    ) -> Result<[Tensor; N]> {
        let [rows, columns] = latent.map(|length| strips(length, self.side, enlarged));
        let [height, width] = latent.map(|length| length * enlarged);
        let mut sums: [Vec<f32>; N] = std::array::from_fn(|_| Vec::new());
        let of = rows.len() * columns.len();
        for (index, (row, column)) in
            rows.iter().flat_map(|row| columns.iter().map(move |c| (row, c))).enumerate()
        {
            watch.check()?;
            let size = [&row.shares, &column.shares].map(|shares| shares.len() / enlarged);
            let planes = work([row.from, column.from, size[0], size[1]], watch)?;
            for (sum, planes) in sums.iter_mut().zip(planes) {
                let channels = planes.dim(1)?;
                let expected = [1, channels, row.shares.len(), column.shares.len()];
                if planes.dims() != expected {
                    let message = format!("a tile came out as {:?}, not {expected:?}", planes.dims());
                    return Err(Error::internal(message));
                }
                sum.resize(channels * height * width, 0.0);
                let planes = planes.flatten_all()?.to_vec1::<f32>()?;
                let lines =
                    planes.chunks_exact(column.shares.len()).zip(row.shares.iter().cycle()).enumerate();
                for (line, (values, share)) in lines {
                    let (channel, y) = (line / row.shares.len(), line % row.shares.len());
                    let from = (channel * height + row.from * enlarged + y) * width + column.from * enlarged;
                    let to = sum[from..].iter_mut();
                    to.zip(values.iter().zip(&column.shares)).for_each(|(to, (value, other))| {
                        *to += value * share * other;
                    });
                }
            }
            watch.say(Event::Tile { tile: index + 1, of })?;
        }
        let mut blended = Vec::with_capacity(N);
        for sum in sums {
            let channels = sum.len() / (height * width).max(1);
            blended.push(Tensor::from_vec(sum, (1, channels, height, width), &Device::Cpu)?);
        }
        blended.try_into().map_err(|_| Error::internal("tiles of another number of planes"))
    }
}

impl Codec for Tiled<'_> {
    fn encode(&self, pixels: &Tensor, watch: &mut Watch<'_>) -> Result<Posterior> {
        let (_, _, _, height, width) = pixels.dims5()?;
        let latent = [height / self.factor, width / self.factor];
        let (mut kind, mut is_certain) = (None, false);
        let mut work = |[y, x, h, w]: [usize; 4], watch: &mut Watch<'_>| {
            let part = pixels.narrow(3, y * self.factor, h * self.factor)?;
            let part = part.narrow(4, x * self.factor, w * self.factor)?;
            let Posterior { mean, deviation, scale, shift } = self.codec.encode(&part, watch)?;
            kind = Some((scale, shift));
            is_certain = deviation.is_none();
            let deviation = deviation.map_or_else(|| mean.zeros_like(), Ok)?;
            Ok([mean, deviation])
        };
        let [mean, deviation] = self.blend(latent, 1, watch, &mut work)?;
        let (scale, shift) = kind.ok_or_else(|| Error::internal("a picture without tiles"))?;
        Ok(Posterior { mean, deviation: (!is_certain).then_some(deviation), scale, shift })
    }

    fn decode(&self, latent: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor> {
        let (_, _, height, width) = latent.dims4()?;
        let mut work = |[y, x, h, w]: [usize; 4], watch: &mut Watch<'_>| {
            let part = latent.narrow(2, y, h)?.narrow(3, x, w)?;
            Ok([self.codec.decode(&part, watch)?.squeeze(2)?])
        };
        let [pixels] = self.blend([height, width], self.factor, watch, &mut work)?;
        Ok(pixels.unsqueeze(2)?)
    }
}

/// The tiles along a side of `length` latent pixels: as few as overlap by a quarter, evenly spread.
fn strips(length: usize, side: usize, enlarged: usize) -> Vec<Strip> {
    let side = side.min(length);
    let step = (side - side / FADE).max(1);
    let count = 1 + (length - side).div_ceil(step);
    let from = |index: usize| if count == 1 { 0 } else { index * (length - side) / (count - 1) };
    let mut strips: Vec<Strip> = (0..count)
        .map(|index| {
            // Rises over what it shares with the tile before and falls over what it shares with the one behind.
            let before = if index > 0 { from(index - 1) + side - from(index) } else { 0 };
            let behind = if index + 1 < count { from(index) + side - from(index + 1) } else { 0 };
            let ramp = |distance: usize, over: usize| {
                if over == 0 { 1.0 } else { ((distance as f32 + 0.5) / (over * enlarged) as f32).min(1.0) }
            };
            let end = side * enlarged;
            let shares = (0..end).map(|i| ramp(i, before).min(ramp(end - 1 - i, behind))).collect();
            Strip { from: from(index), shares }
        })
        .collect();
    // Where more than two tiles meet the ramps do not add up to one by themselves.
    let mut sums = vec![0f32; length * enlarged];
    for strip in &strips {
        sums[strip.from * enlarged..].iter_mut().zip(&strip.shares).for_each(|(sum, share)| *sum += share);
    }
    for strip in &mut strips {
        let sums = &sums[strip.from * enlarged..];
        strip.shares.iter_mut().zip(sums).for_each(|(share, sum)| *share /= sum);
    }
    strips
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles a picture and mixes every pixel with its neighbours up to three away, as convolutions do; halves it again
    /// by means.
    struct Mixing;

    impl Codec for Mixing {
        fn encode(&self, pixels: &Tensor, _: &mut Watch<'_>) -> Result<Posterior> {
            Ok(Posterior::certain(blur(&pixels.squeeze(2)?.avg_pool2d(2)?)?))
        }

        fn decode(&self, latent: &Tensor, _: &mut Watch<'_>) -> Result<Tensor> {
            let (_, _, h, w) = latent.dims4()?;
            Ok(blur(&latent.upsample_nearest2d(2 * h, 2 * w)?)?.unsqueeze(2)?)
        }
    }

    /// The mean of 7x7 pixels; beyond the edge there is nothing.
    fn blur(x: &Tensor) -> Result<Tensor> {
        let padded = x.pad_with_zeros(2, 3, 3)?.pad_with_zeros(3, 3, 3)?;
        Ok(padded.avg_pool2d_with_stride(7, 1)?)
    }

    fn picture(height: usize, width: usize) -> Tensor {
        let value = |i: usize| ((i % width) as f32 * 0.37).sin() + ((i / width % height) as f32 * 0.23).cos();
        let values: Vec<_> = (0..3 * height * width).map(value).collect();
        Tensor::from_vec(values, (1, 3, height, width), &Device::Cpu).expect("fits")
    }

    fn furthest(a: &Tensor, b: &Tensor) -> f32 {
        let difference = (a - b).and_then(|d| d.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>());
        difference.expect("same shapes")
    }

    #[test]
    fn shares_add_up_to_one_whatever_the_sizes() {
        for (length, side) in [(5, 8), (8, 8), (9, 8), (15, 8), (17, 8), (40, 16), (129, 32), (4, 1)] {
            let strips = strips(length, side, 2);
            let mut sums = vec![0f32; 2 * length];
            for strip in &strips {
                sums[2 * strip.from..].iter_mut().zip(&strip.shares).for_each(|(sum, share)| *sum += share);
            }
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-6), "{length} in {side}: {sums:?}");
        }
    }

    #[test]
    fn no_seam_shows_where_a_decoder_mixes_neighbours() -> Result<()> {
        let latent = picture(70, 50);
        let mut watch = Watch::quiet();
        let whole = Mixing.decode(&latent, &mut watch)?.squeeze(2)?;
        let tiled = Tiled::new(&Mixing, 32, 2).decode(&latent, &mut watch)?.squeeze(2)?;
        assert_eq!(whole.dims(), tiled.dims());
        // A tile's first three pixels lack neighbours; there it has less than a fifth of the say.
        let seam = furthest(&whole, &tiled);
        assert!(seam < 0.12, "{seam}");
        // Tiles put side by side without fading would show: the test can see a seam.
        let cut = |from: usize| Mixing.decode(&latent.narrow(3, from, 25)?, &mut Watch::quiet())?.squeeze(2);
        let hard = Tensor::cat(&[cut(0)?, cut(25)?], 3)?;
        assert!(furthest(&whole, &hard) > 0.5);
        Ok(())
    }

    #[test]
    fn one_tile_is_the_codec_itself_and_pictures_are_encoded_alike() -> Result<()> {
        let (latent, mut watch) = (picture(20, 30), Watch::quiet());
        let whole = Mixing.decode(&latent, &mut watch)?;
        let tiled = Tiled::new(&Mixing, 32, 2).decode(&latent, &mut watch)?;
        assert_eq!(furthest(&whole.squeeze(2)?, &tiled.squeeze(2)?), 0.0);
        let pixels = picture(140, 100).unsqueeze(2)?;
        let whole = Mixing.encode(&pixels, &mut watch)?;
        let tiled = Tiled::new(&Mixing, 32, 2).encode(&pixels, &mut watch)?;
        assert!(tiled.deviation.is_none());
        assert!(furthest(&whole.mean, &tiled.mean) < 0.2, "{}", furthest(&whole.mean, &tiled.mean));
        Ok(())
    }

    #[test]
    fn every_tile_is_reported_and_can_be_the_last() {
        let latent = picture(40, 40);
        let cancel = crate::event::Cancel::default();
        let (asked, mut tiles) = (cancel.clone(), 0);
        let mut watch = Watch::new(cancel, |event| {
            if let Event::Tile { tile, of } = event {
                tiles += 1;
                assert_eq!(*of, 9);
                if *tile == 4 {
                    asked.cancel();
                }
            }
        });
        let stopped = Tiled::new(&Mixing, 16, 2).decode(&latent, &mut watch).expect_err("was asked to stop");
        drop(watch);
        assert_eq!((stopped.code, tiles), (crate::error::Code::Cancelled, 4));
    }
}
