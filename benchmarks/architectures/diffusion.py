"""Parts of models that make pictures and videos, of diffusers."""

from __future__ import annotations

import diffusers
import torch
import torch.nn.functional as F

from architectures.training import Training, architecture, images


@architecture("Stable Diffusion's UNet")
def unet() -> Training:
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    ).train()
    latents, noise = images(size=16, channels=4), images(size=16, channels=4)
    times, text = torch.tensor([10, 500]), torch.randn(2, 8, 32)
    return Training(model, lambda: F.mse_loss(model(latents, times, encoder_hidden_states=text).sample, noise))


@architecture("Stable Diffusion 3's transformer")
def sd3() -> Training:
    model = diffusers.SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=64,
        pooled_projection_dim=32,
        out_channels=4,
        pos_embed_max_size=16,
    ).train()
    latents, noise = images(size=16, channels=4), images(size=16, channels=4)
    times, text, pooled = torch.tensor([10.0, 500.0]), torch.randn(2, 8, 32), torch.randn(2, 32)
    return Training(
        model,
        lambda: F.mse_loss(
            model(latents, encoder_hidden_states=text, pooled_projections=pooled, timestep=times).sample, noise
        ),
    )


@architecture("DiT: classes by adaptive norms")
def dit() -> Training:
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, sample_size=16
    ).train()
    latents, noise = images(size=16, channels=4), images(size=16, channels=4)
    times, classes = torch.tensor([10, 500]), torch.tensor([1, 7])
    return Training(model, lambda: F.mse_loss(model(latents, timestep=times, class_labels=classes).sample, noise))


@architecture("Stable Diffusion's autoencoder")
def vae() -> Training:
    model = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32),
        norm_num_groups=8,
    ).train()
    pictures = images(size=32)

    def loss() -> torch.Tensor:
        posterior = model.encode(pictures).latent_dist
        return F.l1_loss(model.decode(posterior.sample()).sample, pictures) + 1e-6 * posterior.kl().mean()

    return Training(model, loss)


@architecture("CogVideoX's autoencoder: causal convolutions in 3D")
def video_vae() -> Training:
    model = diffusers.AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 2,
        up_block_types=("CogVideoXUpBlock3D",) * 2,
        block_out_channels=(16, 32),
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=8,
        temporal_compression_ratio=2,
    ).train()
    video = torch.randn(1, 3, 5, 16, 16)
    return Training(model, lambda: F.mse_loss(model(video).sample[:, :, :5], video))
