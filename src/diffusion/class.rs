//! The scheduler classes that a configuration can name.

use std::fmt;

use crate::error::{Code, Error, Result};

macro_rules! classes {
    ($($name:ident $text:literal;)*) => {
        /// A scheduler class of `diffusers`, whose configurations and numbers are understood.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Class {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl Class {
            /// Every class.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in `_class_name`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

classes! {
    Ddim "DDIMScheduler";
    DdimInverse "DDIMInverseScheduler";
    CogVideoX "CogVideoXDDIMScheduler";
    Ddpm "DDPMScheduler";
    Pndm "PNDMScheduler";
    Ipndm "IPNDMScheduler";
    Lcm "LCMScheduler";
    Tcd "TCDScheduler";
    Euler "EulerDiscreteScheduler";
    EulerAncestral "EulerAncestralDiscreteScheduler";
    Heun "HeunDiscreteScheduler";
    Kdpm2 "KDPM2DiscreteScheduler";
    Kdpm2Ancestral "KDPM2AncestralDiscreteScheduler";
    Lms "LMSDiscreteScheduler";
    DpmSde "DPMSolverSDEScheduler";
    DpmMultistep "DPMSolverMultistepScheduler";
    DpmSinglestep "DPMSolverSinglestepScheduler";
    UniPc "UniPCMultistepScheduler";
    Deis "DEISMultistepScheduler";
    SaSolver "SASolverScheduler";
    EdmEuler "EDMEulerScheduler";
    EdmDpmMultistep "EDMDPMSolverMultistepScheduler";
    FlowEuler "FlowMatchEulerDiscreteScheduler";
    FlowHeun "FlowMatchHeunDiscreteScheduler";
    FlowLcm "FlowMatchLCMScheduler";
}

impl Class {
    /// Reads a `_class_name`.
    ///
    /// # Errors
    /// `config_invalid` for a class that is not known, listing those that are.
    pub fn read(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|class| class.as_str() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|class| class.as_str()).collect();
            let error = Error::new(Code::ConfigInvalid, format!("the scheduler class {name} is not known"));
            Error { param: Some("_class_name".into()), ..error }
                .hint(format!("known are {}", known.join(", ")))
        })
    }

    /// Whether the class walks straight lines only.
    pub(crate) fn is_flow(self) -> bool {
        matches!(self, Self::FlowEuler | Self::FlowHeun | Self::FlowLcm)
    }

    /// Whether the class preconditions as EDM does.
    pub(crate) fn is_edm(self) -> bool {
        matches!(self, Self::EdmEuler | Self::EdmDpmMultistep)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
