//! The mathematics of the walk from noise to a latent.
