//! U-nets: the sizes that their shapes give, in the names of CompVis and of diffusers, and the table of families.
//!
//! # Source
//! `models.md` 3.2.

use super::super::contract::Task::{self, ImageToImage, ImageToVideo, MultiViewImage, TextToImage};
use super::rule::When::{Has, Is, No};
use super::rule::{Rule, View, denoiser};

/// A number that a U-net's shapes give; 0 where what it measures is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Channels of the first level.
    Width,
    /// Channels that go in.
    Input,
    /// Channels of the text it listens to.
    Context,
    /// Width of the vector added to the time's.
    Added,
    /// 1 if tokens go in through a linear map, 0 if through a convolution.
    Linear,
    /// 1 if it mixes frames.
    Temporal,
    /// Levels of resolution.
    Levels,
    /// 1 if the middle attends.
    Middle,
    /// Most transformer blocks in one place of the way down.
    Depth,
}

use Measure::{Added, Context, Depth, Input, Levels, Linear, Middle, Temporal, Width};

impl Measure {
    pub(super) fn spoken(self) -> &'static str {
        match self {
            Width => "channels of the first level:",
            Input => "channels in:",
            Context => "channels of text:",
            Added => "added conditioning:",
            Linear => "linear projections:",
            Temporal => "layers over time:",
            Levels => "levels:",
            Middle => "attention in the middle:",
            Depth => "transformer blocks in one place:",
        }
    }
}

/// The sizes of one U-net, in the order of [`Measure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes([usize; 9]);

impl Sizes {
    /// One of them.
    pub fn get(&self, measure: Measure) -> Option<usize> {
        self.0.get(measure as usize).copied()
    }

    /// What the view's shapes say, if it is a U-net.
    pub(super) fn read(view: &View<'_>) -> Option<Self> {
        let (_, first) = view.find("input_blocks.0.0.weight|conv_in.weight")?;
        let &[width, input, _, _] = first.shape.as_slice() else { return None };
        view.find("time_embed.0.weight|time_embedding.linear_1.weight")?;
        view.find("middle_block.0.in_layers.0.weight|mid_block.*")?;
        let last =
            |name: &str| view.find(name).and_then(|(_, tensor)| tensor.shape.last()).copied().unwrap_or(0);
        let there = |name: &str| usize::from(view.find(name).is_some());
        let linear = view.find("input_blocks.*.proj_in.weight|down_blocks.*.proj_in.weight");
        let ldm =
            (0..64).filter(|n| view.find(&format!("input_blocks.{n}.0.op.weight")).is_some()).count() + 1;
        let depth = view.all("input_blocks.*.transformer_blocks.*.attn2.to_k.weight|down_blocks.*.transformer_blocks.*.attn2.to_k.weight");
        let depth = depth.iter().filter_map(|(name, _)| {
            let number = name.split_once("transformer_blocks.")?.1.split('.').next()?;
            number.parse::<usize>().ok().map(|number| number.saturating_add(1))
        });
        Some(Self([
            width,
            input,
            last("*attn2.to_k.weight"),
            last("label_emb.0.0.weight|add_embedding.linear_1.weight|class_embedding.linear_1.weight"),
            usize::from(linear.is_some_and(|(_, tensor)| tensor.shape.len() == 2)),
            there("*time_stack*|*temporal_transformer_blocks*"),
            view.blocks("down_blocks").max(ldm),
            there("middle_block.1.*|mid_block.attentions.*"),
            depth.max().unwrap_or(0),
        ]))
    }
}

const DRAW: &[Task] = &[TextToImage, ImageToImage];
const EDIT: &[Task] = &[ImageToImage];
const VIEWS: &[Task] = &[MultiViewImage];
const CLIP: &[Task] = &[ImageToVideo];

const SD: &str = "stable-diffusion";
const XL: &str = "stable-diffusion-xl";

/// What the name of a file of Stable Diffusion can hide.
const HIDDEN: &str = "Turbo, Lightning, Hyper, LCM and other distillations are not visible in weights";

/// Every U-net that is known, `models.md` 3.2 row by row.
pub(super) static UNETS: &[Rule] = &[
    denoiser(
        SD,
        "1",
        &[Is(Context, 768), Is(Width, 320), Is(Input, 4), Is(Middle, 1), Is(Levels, 4), Is(Temporal, 0)],
    )
    .tasks(DRAW)
    .can(&["inpaint"])
    .predicts("epsilon")
    .size(512, 512)
    .runs(),
    denoiser(SD, "1 inpaint", &[Is(Context, 768), Is(Width, 320), Is(Input, 9)])
        .tasks(EDIT)
        .can(&["inpaint", "outpaint"])
        .predicts("epsilon")
        .size(512, 512)
        .runs(),
    denoiser(
        SD,
        "1 instruct-pix2pix",
        &[Is(Context, 768), Is(Width, 320), Is(Input, 8), Is(Added, 0), No("/cc_projection.weight")],
    )
    .tasks(EDIT)
    .can(&["edit"])
    .predicts("epsilon")
    .size(512, 512)
    .runs(),
    denoiser("zero123", "1", &[Is(Context, 768), Is(Input, 8), Has("/cc_projection.weight")])
        .tasks(VIEWS)
        .predicts("epsilon")
        .size(256, 256),
    denoiser(
        SD,
        "1 small, without a middle",
        &[Is(Context, 768), Is(Width, 320), Is(Input, 4), Is(Middle, 0), Is(Levels, 4)],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(512, 512),
    denoiser(SD, "1 small, three levels", &[Is(Context, 768), Is(Width, 320), Is(Input, 4), Is(Levels, 3)])
        .tasks(DRAW)
        .predicts("epsilon")
        .size(512, 512),
    denoiser(
        SD,
        "2",
        &[
            Is(Context, 1024),
            Is(Linear, 1),
            Is(Input, 4),
            Is(Added, 0),
            Is(Temporal, 0),
            No("camera_embed.0.weight"),
        ],
    )
    .tasks(DRAW)
    .can(&["inpaint"])
    .note("epsilon or v is told apart by one bias when it is loaded; `import --set prediction=v` settles it")
    .runs(),
    denoiser(SD, "2 inpaint", &[Is(Context, 1024), Is(Linear, 1), Is(Input, 9)])
        .tasks(EDIT)
        .can(&["inpaint", "outpaint"])
        .predicts("epsilon")
        .size(512, 512),
    denoiser(SD, "2 depth", &[Is(Context, 1024), Is(Linear, 1), Is(Input, 5)])
        .tasks(EDIT)
        .can(&["depth"])
        .predicts("epsilon")
        .size(512, 512),
    denoiser(SD, "x4 upscaler", &[Is(Context, 1024), Is(Width, 256), Is(Input, 7)])
        .tasks(&[Task::ImageUpscale])
        .can(&["upscale"])
        .predicts("v")
        .size(512, 512)
        .runs(),
    denoiser(SD, "2 unCLIP L", &[Is(Context, 1024), Is(Input, 4), Is(Added, 1536)])
        .tasks(EDIT)
        .can(&["variation"])
        .predicts("v")
        .size(768, 768),
    denoiser(SD, "2 unCLIP H", &[Is(Context, 1024), Is(Input, 4), Is(Added, 2048)])
        .tasks(EDIT)
        .can(&["variation"])
        .predicts("v")
        .size(768, 768),
    denoiser("mvdream", "1", &[Is(Context, 1024), Is(Input, 4), Has("camera_embed.0.weight")])
        .tasks(VIEWS)
        .predicts("epsilon")
        .size(256, 256)
        .note("four views are attended jointly"),
    denoiser(
        "stable-video-diffusion",
        "1",
        &[Is(Context, 1024), Is(Temporal, 1), Is(Input, 8), Is(Added, 768)],
    )
    .tasks(CLIP)
    .predicts("v")
    .size(1024, 576)
    .note("14 or 25 frames cannot be told from weights"),
    denoiser("stable-video-3d", "u", &[Is(Context, 1024), Is(Temporal, 1), Is(Input, 8), Is(Added, 256)])
        .tasks(VIEWS)
        .predicts("v")
        .size(576, 576),
    denoiser("stable-video-3d", "p", &[Is(Context, 1024), Is(Temporal, 1), Is(Input, 8), Is(Added, 1280)])
        .tasks(VIEWS)
        .predicts("v")
        .size(576, 576),
    denoiser(
        XL,
        "base",
        &[
            Is(Context, 2048),
            Is(Added, 2816),
            Is(Input, 4),
            Is(Depth, 10),
            Is(Levels, 3),
            No("/v_pred|v_pred"),
            No("/edm_mean|edm_mean"),
            No("/edm_vpred.sigma_max|edm_vpred.sigma_max"),
        ],
    )
    .tasks(DRAW)
    .can(&["inpaint"])
    .predicts("epsilon")
    .size(1024, 1024)
    .runs()
    .note(HIDDEN),
    denoiser(XL, "inpaint", &[Is(Context, 2048), Is(Added, 2816), Is(Input, 9)])
        .tasks(EDIT)
        .can(&["inpaint", "outpaint"])
        .predicts("epsilon")
        .size(1024, 1024)
        .runs(),
    denoiser(
        XL,
        "instruct-pix2pix",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 8), No("/edm_vpred.sigma_max|edm_vpred.sigma_max")],
    )
    .tasks(EDIT)
    .can(&["edit"])
    .predicts("epsilon")
    .size(768, 768),
    denoiser(XL, "SSD-1B", &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Is(Depth, 4), Is(Levels, 3)])
        .tasks(DRAW)
        .predicts("epsilon")
        .size(1024, 1024),
    denoiser(XL, "Vega", &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Is(Depth, 2), Is(Levels, 3)])
        .tasks(DRAW)
        .predicts("epsilon")
        .size(1024, 1024),
    denoiser(
        XL,
        "KOALA 1B",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Is(Depth, 6), Is(Levels, 3)],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(1024, 1024),
    denoiser(
        XL,
        "KOALA 700M",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Is(Depth, 5), Is(Levels, 3)],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(1024, 1024),
    denoiser(XL, "v-prediction", &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Has("/v_pred|v_pred")])
        .tasks(DRAW)
        .can(&["inpaint"])
        .predicts("v")
        .size(1024, 1024)
        .runs()
        .note("wants rescaled betas where `ztsnr` is there, trailing steps and guidance rescale 0.7"),
    denoiser(
        XL,
        "Playground 2.5",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Has("/edm_mean|edm_mean")],
    )
    .tasks(DRAW)
    .predicts("edm")
    .size(1024, 1024),
    denoiser(
        XL,
        "CosXL",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 4), Has("/edm_vpred.sigma_max|edm_vpred.sigma_max")],
    )
    .tasks(DRAW)
    .predicts("edm_v")
    .size(1024, 1024),
    denoiser(
        XL,
        "CosXL edit",
        &[Is(Context, 2048), Is(Added, 2816), Is(Input, 8), Has("/edm_vpred.sigma_max|edm_vpred.sigma_max")],
    )
    .tasks(EDIT)
    .can(&["edit"])
    .predicts("edm_v")
    .size(1024, 1024),
    denoiser(XL, "refiner", &[Is(Context, 1280), Is(Width, 384), Is(Added, 2560)])
        .tasks(EDIT)
        .can(&["refine"])
        .predicts("epsilon")
        .size(1024, 1024)
        .runs()
        .note("finishes what the base began; asks for an aesthetic score"),
    denoiser(
        "kolors",
        "1",
        &[Is(Context, 2048), Is(Added, 5632), Has("encoder_hid_proj.weight|/encoder_hid_proj.weight")],
    )
    .tasks(DRAW)
    .predicts("epsilon")
    .size(1024, 1024),
    denoiser("lotus", "1", &[Is(Added, 4), Is(Input, 8)]).note("estimates depth or normals; draws nothing"),
];

/// A U-net of no published size: tiny ones of tests, and what nobody has described.
pub(super) static UNET: Rule = denoiser("", "a U-net", &[]);
