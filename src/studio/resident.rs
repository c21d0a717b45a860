//! Parts that stay in memory between pictures, because somebody asked for it.

use super::model::Model;
use super::slot::Residency;
use crate::error::Result;

impl Model {
    /// Reads text encoder, network and autoencoder now, and keeps them until [`Self::release`].
    ///
    /// # Errors
    /// What opening them says; what was opened before leaves again.
    pub fn keep(&mut self) -> Result<()> {
        self.keeps = true;
        let opened = self
            .text
            .lease(Residency::Stay)
            .map(drop)
            .and_then(|()| self.network.lease(Residency::Stay).map(drop))
            .and_then(|()| self.codec.lease(Residency::Stay).map(drop));
        if opened.is_err() {
            self.release();
        }
        opened
    }

    /// Lets its parts go; they are read again when they are next needed.
    pub fn release(&mut self) {
        self.keeps = false;
        self.text.close();
        self.network.close();
        self.codec.close();
    }

    /// Which parts are in memory: `text_encoder`, `denoiser`, `decoder`.
    pub fn open_parts(&self) -> Vec<&'static str> {
        let parts = [
            ("text_encoder", self.text.is_open()),
            ("denoiser", self.network.is_open()),
            ("decoder", self.codec.is_open()),
        ];
        parts.into_iter().filter_map(|(name, is_open)| is_open.then_some(name)).collect()
    }

    /// Whether its parts stay when a job is done.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// How long a part stays that this job needs no more.
    pub(super) fn residency(&self) -> Residency {
        if self.keeps { Residency::Stay } else { Residency::Phase }
    }
}
